/* as_user.h: commands and queries by users, for tests of their rights. */
#ifndef TEST_MACHINE_AS_USER_H
#define TEST_MACHINE_AS_USER_H

#include "fixture.h"

static inline struct fli_slice slice(const char *text)
{
    return (struct fli_slice){(const uint8_t *)text, strlen(text)};
}

static inline struct machine_command by(struct machine_command c, uint64_t user)
{
    c.user = user;
    c.flags = (uint8_t)(c.flags | (user != 0 ? MACHINE_COMMAND_BY : 0));
    return c;
}

static inline struct machine_command cmd_user(const char *name, const char *words)
{
    return (struct machine_command){
        .op = MACHINE_OP_USER_SET, .owner = slice(name), .words = slice(words)};
}

/* As a node does it. */
static inline void set(struct fixture *k, const char *name, const char *words)
{
    assert_int_equal(fixture_run(k, by(cmd_user(name, words), MACHINE_USER_NODE)).code,
                     MACHINE_DONE);
}

/* What a command says who asks by a user that has logged in now. */
static inline uint64_t login(struct fixture *k, const char *name)
{
    struct machine_command q = {.op = MACHINE_OP_USER, .owner = slice(name)};
    struct machine_result r = fixture_query(k, by(q, MACHINE_USER_NODE));
    struct fli_slice payload = {k->payload.data, k->payload.len};
    uint64_t user = 0;
    struct acl_user acl;
    assert_int_equal(r.code, MACHINE_DONE);
    assert_int_equal(machine_users_next(&payload, &user, &acl), 1);
    assert_int_equal(machine_users_next(&payload, &user, &acl), 0);
    return user;
}

static inline struct machine_result run_by(struct fixture *k, uint64_t user,
                                           struct machine_command c)
{
    return MACHINE_OP_IS_QUERY(c.op) ? fixture_query(k, by(c, user)) : fixture_run(k, by(c, user));
}

#endif
