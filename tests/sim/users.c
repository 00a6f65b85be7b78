/* users.c: administrators, who change users while all else goes on: at any node, each by itself or
 * all at once, some of them without the right to. And the logins of clients.
 *
 * A client that connects logs in as its user: it has the number that the log has for that at this
 * moment, which may be another one before its first request is there. One whose user is not there,
 * or is off, has a number that is nobody's. Passwords are not simulated. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "machine/acl.h"
#include "machine/batch.h"
#include "sim.h"

#define EVERY_MS 400u /* a change, about */
#define NOBODY machine_user_of(1u << 30, 1)
#define WORDS_MAX 512u

static const char *const names[SIM_USERS] = {"default", "ann", "bob", "cy"};

/* 7407: none of the seeds that are kept has any, so those are still the same runs. */
void sim_users_choose(struct sim *s)
{
    struct sim_random random = {s->orders.seed * UINT64_C(0x9fb21c651e98df25) + 7407};
    s->users.any = sim_draw_chance(&random, 30) && s->orders.scene == SIM_SCENE_NONE &&
                   s->orders.scenario == SIM_SCENARIO_NONE;
    s->users.default_open = sim_draw_chance(&random, 50);
    s->users.random = random;
    for (unsigned i = 0; s->users.any && i < SIM_CLIENTS_MAX; i++) {
        s->clients[i].user = (unsigned)sim_draw_below(&s->users.random, SIM_USERS);
    }
}

/* ---- who clients are ---- */

uint64_t sim_users_login(const struct sim_client *c)
{
    const struct sim_users *us = &c->sim->users;
    if (!us->any || c->user == 0) {
        return 0;
    }
    const struct sim_user *u = &us->rights[us->rights_len - 1].users[c->user];
    return u->there && u->on ? machine_user_of(u->uid, u->login) : NOBODY;
}

/* ---- words ---- */

static unsigned some_rights(struct sim_random *r)
{
    unsigned dice = (unsigned)sim_draw_below(r, 100);
    if (dice < 40) {
        return (1u << SIM_RIGHTS) - 1;
    }
    return dice < 70 ? ACL_SEE | ACL_ACQUIRE : (unsigned)sim_draw_below(r, 1u << SIM_RIGHTS);
}

/* One pattern, which may be of several names. */
static unsigned some_names(struct sim_random *r, char pattern[16])
{
    char name[3];
    unsigned lock = (unsigned)sim_draw_below(r, SIM_ALL_LOCKS);
    switch (sim_draw_below(r, 8)) {
    case 0:
    case 1:
        snprintf(pattern, 16, "*");
        return SIM_ALL_NAMES;
    case 2:
        snprintf(pattern, 16, "L?");
        return (1u << SIM_LOCKS) - 1;
    case 3:
        snprintf(pattern, 16, "[LR][0-2]");
        return 7;
    case 4:
        snprintf(pattern, 16, "[^L]*");
        return (2u << SIM_ALL_LOCKS) - (1u << SIM_LOCKS);
    default:
        sim_lock_name(lock, name);
        snprintf(pattern, 16, "\\%s", name);
        return 1u << lock;
    }
}

static void put_rule(struct sim_random *r, struct sim_user *u, char words[WORDS_MAX], bool own)
{
    char pattern[16];
    size_t len = strlen(words);
    unsigned locks = some_names(r, pattern);
    unsigned rights = some_rights(r);
    len += (size_t)snprintf(words + len, WORDS_MAX - len, own ? " ~%s" : " (~%s", pattern);
    for (unsigned i = 0; i < SIM_RIGHTS; i++) {
        if ((rights >> i & 1) != 0) {
            u->names[i] |= locks;
            len += (size_t)snprintf(words + len, WORDS_MAX - len, " +@%s", acl_right_name(1u << i));
        }
    }
    snprintf(words + len, WORDS_MAX - len, own ? "" : ")");
}

/* What a user is from here on, whatever it was before. */
static void invent(struct sim_users *us, unsigned user, struct sim_user *u, char words[WORDS_MAX])
{
    struct sim_random *r = &us->random;
    *u = (struct sim_user){.there = true, .on = sim_draw_chance(r, 90)};
    if (user == 0 && us->default_open) {
        u->on = true;
    }
    const char *on = u->on ? "on" : "off";
    snprintf(words, WORDS_MAX, "reset nopass %s", on);
    if ((user == 0 && us->default_open) || sim_draw_chance(r, 25)) {
        snprintf(words, WORDS_MAX, "reset nopass %s ~* +@all", on);
        for (unsigned i = 0; i < SIM_RIGHTS; i++) {
            u->names[i] = SIM_ALL_NAMES;
        }
        return;
    }
    for (unsigned n = 1 + (unsigned)sim_draw_below(r, 3), i = 0; i < n; i++) {
        put_rule(r, u, words, i == 0);
    }
}

static struct fli_slice slice(const char *text)
{
    return (struct fli_slice){(const uint8_t *)text, strlen(text)};
}

static size_t encode(unsigned user, const char *words, uint8_t *out)
{
    char errmsg[200];
    struct acl_user u;
    acl_user_init(&u, slice(names[user]));
    int rc = acl_apply(&u, slice(words), ACL_LOCK_RIGHTS, errmsg, sizeof errmsg);
    FLI_ASSERT(rc == 0);
    return acl_encode(&u, out);
}

/* ---- changes ---- */

struct admin {
    struct node_ticket ticket;
    struct sim_node *node;
    uint64_t sending;
};

static void answered(struct node_ticket *t, int status, const struct machine_result *result,
                     struct fli_slice payload)
{
    struct admin *a = FLI_CONTAINER_OF(t, struct admin, ticket);
    if (!a->node->ghost) {
        sim_oracle_result(a->node->sim, a->sending, status, result);
    }
    free(a);
}

/* The sender of a change: as a rule a user that may make it; a node while there is no such user. */
static uint64_t some_admin(struct sim_users *us)
{
    const struct sim_rights *now = &us->rights[us->rights_len - 1];
    unsigned first = (unsigned)sim_draw_below(&us->random, SIM_USERS);
    bool anybody = sim_draw_chance(&us->random, 20);
    for (unsigned i = 0; i < SIM_USERS; i++) {
        const struct sim_user *u = &now->users[(first + i) % SIM_USERS];
        if (u->there && u->on && (anybody || u->names[SIM_RIGHTS - 1] != 0 /* @admin */)) {
            return u->uid == 0 ? 0 : machine_user_of(u->uid, u->login);
        }
    }
    return MACHINE_USER_NODE;
}

static void submit(struct sim_node *n, struct machine_command *m, uint64_t sending)
{
    struct sim *s = n->sim;
    uint8_t room[8];
    struct fli_buf bytes;
    struct admin *a = fli_xcalloc(1, sizeof *a);
    a->node = n;
    a->sending = sending;
    sim_oracle_mark(sending, m, room);
    fli_buf_init(&bytes, MACHINE_BATCH_MAX);
    int rv = machine_command_encode(m, &bytes);
    FLI_ASSERT(rv == 0);
    s->current = n;
    if (node_submit(n->node, &a->ticket, bytes.data, bytes.len, answered) != 0) {
        free(a);
    }
    s->current = NULL;
    fli_buf_fini(&bytes);
}

/* By name, so the default one is the last. */
static size_t invent_all(struct sim_users *us, struct sim_user_change *c, uint8_t *records)
{
    char words[WORDS_MAX];
    size_t len = 0;
    for (unsigned i = 1; i <= SIM_USERS; i++) {
        unsigned user = i % SIM_USERS;
        if (us->changes_len == 0 || sim_draw_chance(&us->random, 70)) {
            invent(us, user, &c->users[user], words);
            len += encode(user, words, records + len);
        }
    }
    return len;
}

static void change(struct sim_node *n)
{
    static uint8_t records[SIM_USERS * ACL_ENCODED_MAX];
    struct sim *s = n->sim;
    struct sim_users *us = &s->users;
    char words[WORDS_MAX];
    struct sim_user_change c = {.user = (unsigned)sim_draw_below(&us->random, SIM_USERS)};
    struct machine_command m = {.user = some_admin(us)};
    unsigned dice = us->changes_len == 0 ? 0 : (unsigned)sim_draw_below(&us->random, 100);
    m.op = dice < 20   ? MACHINE_OP_USERS_LOAD
           : dice < 32 ? MACHINE_OP_USER_DELETE
                       : MACHINE_OP_USER_SET;
    if (m.op == MACHINE_OP_USERS_LOAD) {
        m.value = (struct fli_slice){records, invent_all(us, &c, records)};
    } else {
        m.owner = slice(names[c.user]);
    }
    if (m.op == MACHINE_OP_USER_SET) {
        invent(us, c.user, &c.users[c.user], words);
        m.words = slice(words);
    }
    c.sending = sim_oracle_sends(s, &m, 0);
    us->changes = sim_grow(us->changes, &us->changes_cap, us->changes_len + 1, sizeof *us->changes);
    us->changes[us->changes_len++] = c;
    SIM_TRACE(s, "kind %u of user %s (%s) is asked of node %u by %llu", m.op, names[c.user],
              m.op == MACHINE_OP_USER_SET ? words : "", n->index + 1, (unsigned long long)m.user);
    submit(n, &m, c.sending);
}

static void change_fire(struct sim *s, struct sim_event *e)
{
    struct sim_node *n = &s->nodes[sim_draw_below(&s->users.random, s->n)];
    if (s->healed) {
        sim_drop(s, e);
        return;
    }
    if (n->power == SIM_UP && !n->paused && n->node != NULL) {
        change(n);
    }
    sim_again(s, e, 1 + sim_draw_below(&s->users.random, 2 * EVERY_MS));
}

void sim_users_start(struct sim *s)
{
    if (s->users.any) {
        sim_after(s, 1, change_fire);
    }
}

const char *sim_user_name(unsigned user)
{
    return names[user];
}
