/* users_load.c: replaces all users at once. The value of USERS_LOAD is the new list of users, each
 * written by acl_encode(), sorted by name. Users not on the list are deleted, except for the
 * default user, which stays unchanged. Users on the list keep their numbers, and keep their logins
 * where USER_SET would. All of it happens, or nothing. */
#include <string.h>

#include "machine/users.h"

struct user_list {
    struct fli_slice all;
    unsigned n;
    uint32_t at[MACHINE_USERS_MAX]; /* where each record begins */
    bool known[MACHINE_USERS_MAX];  /* such a user exists already */
};

/* Reads a record that was checked before. */
static void read_user(const struct user_list *l, unsigned i, struct acl_user *ret)
{
    struct fli_reader r;
    fli_reader_init(&r, l->all.data + l->at[i], l->all.len - l->at[i]);
    bool read = acl_decode(&r, ret);
    FLI_ASSERT(read);
}

/* The name stands where acl_encode() puts it. */
static struct fli_slice name_at(const struct user_list *l, unsigned i)
{
    const uint8_t *record = l->all.data + l->at[i];
    return (struct fli_slice){record + 2, record[1]};
}

static bool read_user_list(struct fli_slice users, struct user_list *l)
{
    struct fli_reader r;
    struct acl_user u;
    fli_reader_init(&r, users.data, users.len);
    memset(l, 0, sizeof *l);
    l->all = users;
    while (fli_reader_left(&r) > 0) {
        if (l->n == MACHINE_USERS_MAX) {
            return false;
        }
        l->at[l->n] = (uint32_t)(users.len - fli_reader_left(&r));
        if (!acl_decode(&r, &u)) {
            return false;
        }
        if (l->n > 0) {
            struct fli_slice before = name_at(l, l->n - 1);
            if (fli_bytes_cmp(before.data, before.len, u.name, u.name_len) >= 0) {
                return false;
            }
        }
        l->n++;
    }
    return true;
}

bool machine_users_ok(struct fli_slice users)
{
    struct user_list l;
    return read_user_list(users, &l);
}

/* -1: the user is not on the list. */
static int find(const struct user_list *l, const struct user *u)
{
    unsigned lo = 0;
    unsigned hi = l->n;
    while (lo < hi) {
        unsigned mid = lo + (hi - lo) / 2;
        struct fli_slice name = name_at(l, mid);
        int order = fli_bytes_cmp(name.data, name.len, u->acl.name, u->acl.name_len);
        if (order == 0) {
            return (int)mid;
        }
        lo = order < 0 ? mid + 1 : lo;
        hi = order < 0 ? hi : mid;
    }
    return -1;
}

static bool goes(void *ctx, const struct user *u)
{
    const struct user_list *l = ctx;
    return u->uid != 0 && find(l, u) < 0;
}

/* Whether there is room for the records, and enough numbers for new users. */
static bool fits(const struct machine *m, struct user_list *l)
{
    uint8_t record[USER_RECORD_MAX];
    size_t bytes = l->all.len + (size_t)l->n * 8;
    uint32_t known = 0;
    for (unsigned i = 0; i < m->users.n; i++) {
        int at = find(l, m->users.list[i]);
        if (at >= 0) {
            l->known[at] = true;
            known++;
        } else if (m->users.list[i]->uid == 0) {
            bytes += machine_user_encode(m->users.list[i], record);
        }
    }
    return bytes <= MACHINE_USERS_BYTES_MAX && l->n - known <= UINT32_MAX - m->users.last_uid;
}

/* Whether anybody could change users afterwards. Call it after fits(). */
static bool has_administrator(const struct machine *m, const struct user_list *l)
{
    struct acl_user acl;
    bool any = m->sender.is_node;
    for (unsigned i = 0; i < m->users.n && !any; i++) {
        const struct user *u = m->users.list[i];
        int at = find(l, u);
        if (at >= 0) {
            read_user(l, (unsigned)at, &acl);
        }
        any = (at >= 0 || u->uid == 0) && machine_user_administers(m, u, at >= 0 ? &acl : &u->acl);
    }
    for (unsigned i = 0; i < l->n && !any; i++) {
        read_user(l, i, &acl);
        any = !l->known[i] && acl_is_administrator(&acl, false);
    }
    return any;
}

static bool is_equal(const struct acl_user *a, const struct acl_user *b)
{
    uint8_t bytes_a[ACL_ENCODED_MAX];
    uint8_t bytes_b[ACL_ENCODED_MAX];
    size_t len_a = acl_encode(a, bytes_a);
    size_t len_b = acl_encode(b, bytes_b);
    return fli_bytes_cmp(bytes_a, len_a, bytes_b, len_b) == 0;
}

static void change_known(struct machine *m, const struct user_list *l)
{
    for (unsigned i = 0; i < m->users.n; i++) {
        struct user *u = m->users.list[i];
        struct acl_user acl;
        int at = find(l, u);
        if (at < 0) {
            continue;
        }
        read_user(l, (unsigned)at, &acl);
        if (!is_equal(&u->acl, &acl)) {
            machine_user_replace(m, u, &acl);
            machine_user_event(m, u, MACHINE_REASON_NONE);
        }
    }
}

static void make_new(struct machine *m, const struct user_list *l)
{
    for (unsigned i = 0; i < l->n; i++) {
        if (l->known[i]) {
            continue;
        }
        struct user *u = fli_xcalloc(1, sizeof *u);
        u->uid = ++m->users.last_uid;
        u->login = 1;
        read_user(l, i, &u->acl);
        machine_user_insert(m, u);
        machine_user_event(m, u, MACHINE_REASON_NONE);
    }
}

void machine_users_replace(struct machine *m, const struct machine_command *c,
                           struct machine_result *r)
{
    struct user_list l;
    bool read = read_user_list(c->value, &l);
    FLI_ASSERT(read); /* machine_command_check() accepted it */
    if ((c->flags & MACHINE_USER_INITIAL) != 0 && m->users.sealed) {
        r->code = MACHINE_EXISTS;
        return;
    }
    if (!fits(m, &l)) {
        machine_answer_limit(m, r, MACHINE_LIMIT_USERS);
        return;
    }
    if (!has_administrator(m, &l)) {
        r->code = MACHINE_NOADMIN;
        return;
    }
    m->users.sealed = true;
    r->code = MACHINE_DONE;
    change_known(m, &l);
    make_new(m, &l);
    for (unsigned i = 0; i < m->users.n; i++) { /* while the sender's name is still known */
        if (goes(&l, m->users.list[i])) {
            machine_user_event(m, m->users.list[i], MACHINE_REASON_CLOSE);
        }
    }
    machine_users_drop(m, goes, &l);
    machine_users_recheck(m);
}
