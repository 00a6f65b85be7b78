/* users.c: the rights of users, see machine.h and acl.h.
 *
 * A command names its sender (batch.h). The sender's rights are checked here, when the command is
 * applied. A grant and a session carry the number of their user, so another user who learns their
 * token or owner cannot use it. Numbers are never reused: a new user with the name of a deleted one
 * owns nothing of what the deleted one had. */
#include <stdlib.h>
#include <string.h>

#include "machine/state.h"
#include "machine/users.h"

#define DEFAULT_NAME "default"

static struct user *find_uid(const struct machine *m, uint32_t uid)
{
    unsigned lo = 0;
    unsigned hi = m->users.n;
    while (lo < hi) {
        unsigned mid = lo + (hi - lo) / 2;
        if (m->users.list[mid]->uid < uid) {
            lo = mid + 1;
        } else {
            hi = mid;
        }
    }
    return lo < m->users.n && m->users.list[lo]->uid == uid ? m->users.list[lo] : NULL;
}

static struct user *find_name(const struct machine *m, struct fli_slice name)
{
    for (unsigned i = 0; i < m->users.n; i++) {
        const struct acl_user *a = &m->users.list[i]->acl;
        if (fli_bytes_cmp(a->name, a->name_len, name.data, name.len) == 0) {
            return m->users.list[i];
        }
    }
    return NULL;
}

size_t machine_user_encode(const struct user *u, uint8_t out[USER_RECORD_MAX])
{
    fli_put_u32(out, u->uid);
    fli_put_u32(out + 4, u->login);
    return 8 + acl_encode(&u->acl, out + 8);
}

/* Adds the user to the sums, or subtracts it from them. Every change of a user comes through
 * here. */
static void count_user(struct machine *m, const struct user *u, bool comes)
{
    uint8_t record[USER_RECORD_MAX];
    size_t len = machine_user_encode(u, record);
    uint64_t h = machine_digest_user((struct fli_slice){record, len});
    rights_forget(&m->users.known);
    m->users.digest += comes ? h : -h;
    m->users.bytes = comes ? m->users.bytes + (uint32_t)len : m->users.bytes - (uint32_t)len;
    if (u->uid == 0) {
        m->users.open = comes && acl_is_open(&u->acl);
    }
}

void machine_user_insert(struct machine *m, struct user *u)
{
    struct users *us = &m->users;
    FLI_ASSERT(us->n == 0 || us->list[us->n - 1]->uid < u->uid);
    if (us->n == us->cap) {
        unsigned cap = us->cap == 0 ? 4 : 2 * us->cap;
        struct user **list = fli_xcalloc(cap, sizeof(*list));
        if (us->n > 0) {
            memcpy(list, us->list, us->n * sizeof(*list));
        }
        free(us->list);
        us->list = list;
        us->cap = cap;
    }
    us->list[us->n++] = u;
    count_user(m, u, true);
}

/* The only user of a new cluster. */
static void make_default(struct acl_user *ret)
{
    static const char words[] = "on nopass ~* +@all";
    char unused[128];
    acl_user_init(ret, (struct fli_slice){(const uint8_t *)DEFAULT_NAME, sizeof DEFAULT_NAME - 1});
    int rc = acl_apply(ret, (struct fli_slice){(const uint8_t *)words, sizeof words - 1},
                       ACL_LOCK_RIGHTS, unused, sizeof unused);
    FLI_ASSERT(rc == 0);
}

void machine_users_init(struct machine *m)
{
    struct user *u = fli_xcalloc(1, sizeof *u);
    make_default(&u->acl);
    u->login = 1;
    machine_work_init(&m->users.work, WORK_USERS);
    machine_user_insert(m, u);
}

void machine_users_fini(struct machine *m)
{
    for (unsigned i = 0; i < m->users.n; i++) {
        free(m->users.list[i]);
    }
    free(m->users.list);
}

struct fli_slice machine_uid_name(const struct machine *m, uint32_t uid)
{
    const struct user *u = uid == 0 ? NULL : find_uid(m, uid);
    return u == NULL ? (struct fli_slice){NULL, 0}
                     : (struct fli_slice){u->acl.name, u->acl.name_len};
}

/* ---- the sender ------------------------------------------------------------------------------ */

/* NULL when the login is not valid. */
static const struct user *find_login(const struct machine *m, uint64_t user)
{
    if (user == 0) {
        const struct user *u = m->users.list[0];
        return u->acl.on && u->acl.nopass ? u : NULL;
    }
    const struct user *u = find_uid(m, (uint32_t)user);
    return u != NULL && u->acl.on && u->login == (uint32_t)(user >> 32) ? u : NULL;
}

static bool may(const struct machine *m, uint64_t user, unsigned right,
                const struct fli_slice *name, uint64_t *steps)
{
    if (user == 0 && m->users.open) {
        return true;
    }
    const struct user *u = find_login(m, user);
    if (u == NULL || right == 0) {
        return u != NULL;
    }
    return name == NULL ? acl_may_some(&u->acl, right) : acl_may(&u->acl, right, *name, steps);
}

bool machine_may(const struct machine *m, uint64_t user, unsigned right,
                 const struct fli_slice *name)
{
    uint64_t steps = 0;
    return may(m, user, right, name, &steps);
}

bool machine_may_see(const struct machine *m, uint64_t user, struct fli_slice name, uint64_t *steps)
{
    return may(m, user, ACL_SEE, &name, steps);
}

bool machine_users_are_new(const struct machine *m)
{
    return !m->users.sealed;
}

uint64_t machine_users_digest(const struct machine *m)
{
    return m->users.digest;
}

struct fli_slice machine_user_name(const struct machine *m, uint64_t user)
{
    const struct user *u = user == 0 ? m->users.list[0] : find_uid(m, (uint32_t)user);
    return u == NULL ? (struct fli_slice){NULL, 0}
                     : (struct fli_slice){u->acl.name, u->acl.name_len};
}

void machine_refuse(struct machine_result *r, unsigned right)
{
    r->code = MACHINE_NOPERM;
    r->number = right;
}

/* Whether the sender needs no check of rights: a node, or a default user who may do everything. */
static bool may_everything(const struct machine *m)
{
    FLI_ASSERT(m->sender.is_node || m->sender.user != NULL);
    return m->sender.is_node || (m->users.open && m->sender.user->uid == 0);
}

bool machine_sender_may(const struct machine *m, unsigned right, struct fli_slice name,
                        uint64_t *steps)
{
    return may_everything(m) || acl_may(&m->sender.user->acl, right, name, steps);
}

bool machine_sender_may_all(const struct machine *m, unsigned right)
{
    return may_everything(m) || acl_may_all(&m->sender.user->acl, right);
}

struct origin machine_sender_origin(const struct machine *m)
{
    struct origin origin = {.uid = m->sender.user == NULL ? 0 : m->sender.user->uid,
                            .address_len = (uint8_t)m->sender.address.len};
    if (origin.address_len > 0) {
        memcpy(origin.address, m->sender.address.data, origin.address_len);
    }
    return origin;
}

bool machine_sender_owns(const struct machine *m, struct session *s)
{
    return m->sender.is_node || machine_session_uid(s) == m->sender.user->uid;
}

/* How often a command's rights are checked. */
#define ASKED_TIMES 2u

uint32_t machine_command_cost_now(const struct machine *m, const struct machine_command *c)
{
    uint32_t cost = machine_command_cost(c);
    if (c->user == 0 && m->users.open) {
        return cost;
    }
    const struct user *u = find_login(m, c->user);
    if (u == NULL || u->acl.patterns_len == 0) {
        return cost;
    }
    size_t steps = 0;
    struct fli_slice names[MACHINE_NAMES_MAX] = {c->name};
    unsigned n = c->n_names > 1 ? machine_command_names(c, names) : 1;
    for (unsigned i = 0; i < n; i++) {
        steps += acl_steps_max(&u->acl, names[i].len);
    }
    if (c->op == MACHINE_OP_KEYS && c->value.len > 0) {
        steps += acl_steps_max(&u->acl, c->value.len);
    }
    return cost + (uint32_t)(ASKED_TIMES * steps / RIGHTS_STEP_BYTES);
}

/* Commands of the cluster itself, and those with which a node cleans up, are open to no user. */
static bool is_of_clients(unsigned op)
{
    switch (op) {
    case MACHINE_OP_INIT:
    case MACHINE_OP_LIMITS:
    case MACHINE_OP_NODE_ADD:
    case MACHINE_OP_NODE_REPLACE:
    case MACHINE_OP_NODE_REMOVE:
    case MACHINE_OP_NODE_SETTLED:
    case MACHINE_OP_NODE_VERSION:
    case MACHINE_OP_VERSION_RAISE:
    case MACHINE_OP_RAISE:
    case MACHINE_OP_EXPIRE:
    case MACHINE_OP_CANCEL:
        return false;
    default:
        return true;
    }
}

static bool may_acquire(const struct machine *m, const struct machine_command *c)
{
    struct fli_slice names[MACHINE_NAMES_MAX];
    uint64_t steps = 0;
    unsigned n = machine_command_names(c, names);
    for (unsigned i = 0; i < n; i++) {
        if (!acl_may(&m->sender.user->acl, ACL_ACQUIRE, names[i], &steps)) {
            return false;
        }
    }
    return true;
}

/* The right that the command needs in any state and its user lacks; 0: none. */
static unsigned missing_right(const struct machine *m, const struct machine_command *c)
{
    const struct acl_user *u = &m->sender.user->acl;
    uint64_t steps = 0;
    switch ((enum machine_op)c->op) {
    case MACHINE_OP_ACQUIRE:
        return may_acquire(m, c) ? 0 : ACL_ACQUIRE;
    case MACHINE_OP_RENEW:
        return acl_may(u, ACL_ACQUIRE, c->name, &steps) ? 0 : ACL_ACQUIRE;
    case MACHINE_OP_SESSION_OPEN:
    case MACHINE_OP_SESSION_RENEW:
        return acl_may_some(u, ACL_ACQUIRE) ? 0 : ACL_ACQUIRE;
    case MACHINE_OP_BREAK:
        return acl_may(u, ACL_BREAK, c->name, &steps) ? 0 : ACL_BREAK;
    case MACHINE_OP_TOKEN:
        return acl_may(u, ACL_TOKEN, c->name, &steps) ? 0 : ACL_TOKEN;
    case MACHINE_OP_SHOW:
        return acl_may(u, ACL_SEE, c->name, &steps) ? 0 : ACL_SEE;
    case MACHINE_OP_LOCKS:
        return acl_may_some(u, ACL_SEE) ? 0 : ACL_SEE;
    case MACHINE_OP_USER_SET:
    case MACHINE_OP_USER_DELETE:
    case MACHINE_OP_USERS_LOAD:
    case MACHINE_OP_USERS_SEAL:
    case MACHINE_OP_LIMIT_SET:
    case MACHINE_OP_SETTING_SET:
    case MACHINE_OP_USERS:
    case MACHINE_OP_USER:
        return acl_may_some(u, ACL_ADMIN) ? 0 : ACL_ADMIN;
    case MACHINE_OP_MAY:
        return c->number == 0 || acl_may_some(u, (unsigned)c->number) ? 0 : (unsigned)c->number;
    default:
        return 0; /* the owner decides, and of KEYS each key */
    }
}

bool machine_sender_enter(struct machine *m, const struct machine_command *c,
                          struct machine_result *r)
{
    m->sender = (struct machine_sender){
        .is_node = c->user == MACHINE_USER_NODE || !is_of_clients(c->op),
        .address = c->address,
    };
    if (m->sender.is_node) {
        return true;
    }
    m->sender.user = find_login(m, c->user);
    if (m->sender.user == NULL) {
        r->code = MACHINE_NOAUTH;
        return false;
    }
    unsigned missing = may_everything(m) ? 0 : missing_right(m, c);
    if (missing != 0) {
        machine_refuse(r, missing);
    }
    return missing == 0;
}

void machine_sender_leave(struct machine *m)
{
    m->sender = (struct machine_sender){.user = NULL};
}

/* What it takes to match is charged, as far as there are steps left: whoever changes users may have
 * waits for thousands of names looked at. */
static void charge_match(struct machine *m, uint64_t match)
{
    uint64_t steps = match / RIGHTS_STEP_BYTES;
    machine_charge(m, steps < m->steps ? (uint32_t)steps : m->steps);
}

static bool may_have(struct machine *m, const struct user *u, struct request *request)
{
    uint64_t match = 0;
    bool may = true;
    for (unsigned i = 0; may && i < request_parts(request); i++) {
        struct fli_slice name = lock_name(request_part(request, i)->lock);
        may = rights_may_acquire(&m->users.known, u->uid, &u->acl, name, &match);
    }
    charge_match(m, match);
    return may;
}

/* A wait begins with the right to all that it waits for, and every change that may take one away
 * begins the check. So nothing is compared when no check is under way: it would be compared at each
 * grant, and a session that ends can let in hundreds. */
bool machine_wait_may(struct machine *m, const struct wait *w)
{
    const struct user *u = m->users.list[0];
    uint32_t uid = machine_session_uid(request_session(w->request));
    if (m->users.recheck == NULL || (uid == 0 && m->users.open)) {
        return true;
    }
    u = uid == 0 ? u : find_uid(m, uid);
    return u != NULL && u->acl.on && may_have(m, u, w->request);
}

/* ---- changes --------------------------------------------------------------------------------- */

/* The next wait, from this one on, that is not a further part of a multi-lock; NULL at the end. */
static struct wait *first_from(struct machine *m, struct fli_list *link)
{
    for (; link != &m->waits; link = link->next) {
        struct wait *w = wait_of_all(link);
        if (request_part(w->request, 0) == w->request) {
            return w;
        }
    }
    return NULL;
}

/* Continues the check at this wait, or ends it at NULL. */
static void recheck_at(struct machine *m, struct wait *w)
{
    machine_work_forget(m, &m->users.work);
    m->users.recheck = w;
    m->users.recheck_id = w == NULL ? 0 : wait_id(w);
    if (w != NULL) {
        machine_work_last(m, &m->users.work);
    }
}

void machine_users_skip(struct machine *m, struct wait *w)
{
    if (m->users.recheck == w) {
        recheck_at(m, first_from(m, w->all.next));
    }
}

static void check_one(struct machine *m)
{
    struct wait *w = m->users.recheck;
    bool stays = machine_wait_may(m, w);
    machine_charge(m, MACHINE_STEPS_RECORD * request_parts(w->request));
    recheck_at(m, first_from(m, w->all.next));
    if (!stays) {
        machine_wait_end(m, w, MACHINE_REASON_DENIED);
    }
}

/* The loop terminates: each round checks one wait and takes at least one step. */
void machine_users_work(struct machine *m)
{
    machine_work(m);
    while (m->steps > 0 && m->users.recheck != NULL) {
        check_one(m);
        machine_charge(m, 1);
        machine_work(m);
    }
}

void machine_user_event(struct machine *m, const struct user *u, enum machine_reason reason)
{
    struct fli_slice name = {u->acl.name, u->acl.name_len};
    machine_emit(m, &(struct machine_event){.type = MACHINE_EVENT_USER_CHANGED,
                                            .reason = (uint8_t)reason,
                                            .owner = name});
}

void machine_users_recheck(struct machine *m)
{
    recheck_at(m, first_from(m, m->waits.next));
    machine_users_work(m);
}

/* Whether every wait of this user is allowed or denied after the change as it was before. */
static bool has_equal_rights(const struct acl_user *a, const struct acl_user *b)
{
    bool equal = a->on == b->on && a->n_rules == b->n_rules &&
                 fli_bytes_cmp(a->patterns, a->patterns_len, b->patterns, b->patterns_len) == 0;
    for (unsigned i = 0; equal && i < a->n_rules; i++) {
        equal = a->rules[i].rights == b->rules[i].rights &&
                a->rules[i].all_names == b->rules[i].all_names;
    }
    return equal;
}

/* Whether a login made under the old user could be refused under the new one. */
static bool locks_out(const struct acl_user *before, const struct acl_user *after)
{
    if ((before->on && !after->on) || (before->nopass && !after->nopass)) {
        return true;
    }
    for (unsigned i = 0; i < before->n_passwords; i++) {
        bool kept = false;
        for (unsigned k = 0; k < after->n_passwords; k++) {
            kept = kept || memcmp(&before->passwords[i], &after->passwords[k],
                                  sizeof after->passwords[k]) == 0;
        }
        if (!kept) {
            return true;
        }
    }
    return false;
}

bool machine_user_administers(const struct machine *m, const struct user *u,
                              const struct acl_user *after)
{
    return acl_is_administrator(after, u == m->sender.user && !locks_out(&u->acl, after));
}

/* Whether nobody could change users any more if this user got another record, or none (NULL).
 * Nobody could undo that either: users are in the log, so no restart and no file brings one back.
 * Only the node's own commands are not asked. It is asked here, where changes come one after the
 * other: two administrators may take the right from each other in the same moment. */
static bool ends_administration(const struct machine *m, const struct user *changed,
                                const struct acl_user *after)
{
    bool any = m->sender.is_node;
    for (unsigned i = 0; i < m->users.n && !any; i++) {
        const struct user *u = m->users.list[i];
        const struct acl_user *acl = u == changed ? after : &u->acl;
        any = acl != NULL && machine_user_administers(m, u, acl);
    }
    return !any;
}

void machine_user_replace(struct machine *m, struct user *u, const struct acl_user *acl)
{
    bool out = locks_out(&u->acl, acl);
    count_user(m, u, false);
    u->acl = *acl;
    u->login += out;
    count_user(m, u, true);
}

/* Two numbers, 8 bytes, and the encoded user. */
static uint32_t record_size(const struct acl_user *acl)
{
    uint8_t bytes[ACL_ENCODED_MAX];
    return 8 + (uint32_t)acl_encode(acl, bytes);
}

void machine_user_set(struct machine *m, const struct machine_command *c, struct machine_result *r)
{
    char unused[256];
    struct user *u = find_name(m, c->owner);
    struct acl_user acl;
    bool initial = (c->flags & MACHINE_USER_INITIAL) != 0;
    if (initial && m->users.sealed) {
        r->code = MACHINE_EXISTS;
        return;
    }
    if (u != NULL) {
        acl = u->acl;
    } else {
        acl_user_init(&acl, c->owner);
    }
    int rc = acl_apply(&acl, c->words, ACL_LOCK_RIGHTS, unused, sizeof unused);
    uint32_t before = u == NULL ? 0 : record_size(&u->acl);
    uint32_t room = MACHINE_USERS_BYTES_MAX - m->users.bytes + before;
    if (rc == FL_ELIMIT ||
        (rc == 0 && (record_size(&acl) > room || (u == NULL && m->users.last_uid == UINT32_MAX)))) {
        machine_answer_limit(m, r, MACHINE_LIMIT_USERS);
        return;
    }
    if (rc != 0) {
        r->code = MACHINE_WRONG;
        return;
    }
    if (u != NULL && ends_administration(m, u, &acl)) {
        r->code = MACHINE_NOADMIN;
        return;
    }
    m->users.sealed = m->users.sealed || !initial;
    r->code = MACHINE_DONE;
    bool waits_stay = u == NULL || has_equal_rights(&u->acl, &acl); /* nobody new waits yet */
    if (u != NULL) {
        machine_user_replace(m, u, &acl);
    } else {
        u = fli_xcalloc(1, sizeof *u);
        *u = (struct user){.uid = ++m->users.last_uid, .login = 1, .acl = acl};
        machine_user_insert(m, u);
    }
    machine_user_event(m, u, MACHINE_REASON_NONE);
    if (!waits_stay) {
        machine_users_recheck(m);
    }
}

void machine_user_delete(struct machine *m, const struct machine_command *c,
                         struct machine_result *r)
{
    struct users *us = &m->users;
    struct user *u = find_name(m, c->owner);
    if (u == NULL) {
        r->code = MACHINE_NO;
        return;
    }
    if (u->uid == 0) {
        r->code = MACHINE_WRONG;
        return;
    }
    if (ends_administration(m, u, NULL)) {
        r->code = MACHINE_NOADMIN;
        return;
    }
    unsigned i = 0;
    while (us->list[i] != u) {
        i++;
    }
    count_user(m, u, false);
    us->n--;
    memmove(&us->list[i], &us->list[i + 1], (us->n - i) * sizeof us->list[0]);
    us->sealed = true;
    r->code = MACHINE_DONE;
    if (m->sender.user == u) { /* a user who deletes itself is named in this event, and then counts
                                  as a node */
        m->sender.user = NULL;
        m->sender.is_node = true;
    }
    machine_user_event(m, u, MACHINE_REASON_CLOSE);
    machine_users_recheck(m);
    free(u);
}

void machine_users_drop(struct machine *m, bool (*goes)(void *ctx, const struct user *u), void *ctx)
{
    struct users *us = &m->users;
    unsigned kept = 0;
    for (unsigned i = 0; i < us->n; i++) {
        struct user *u = us->list[i];
        if (!goes(ctx, u)) {
            us->list[kept++] = u;
            continue;
        }
        count_user(m, u, false);
        if (m->sender.user == u) {
            m->sender.user = NULL;
            m->sender.is_node = true;
        }
        free(u);
    }
    us->n = kept;
}

static bool is_not_default(void *ctx, const struct user *u)
{
    return u->uid != 0;
}

void machine_reset_users(struct machine *m)
{
    struct acl_user acl;
    make_default(&acl);
    machine_users_drop(m, is_not_default, NULL);
    machine_user_replace(m, m->users.list[0], &acl);
    m->users.sealed = false;
}

void machine_users_seal(struct machine *m)
{
    m->users.sealed = true;
}

/* ---- reading --------------------------------------------------------------------------------- */

/* Writes the users' records one after the other. */
int machine_users_query(struct machine *m, const struct machine_command *q,
                        struct machine_result *r, struct fli_buf *payload)
{
    size_t start = payload->len;
    int rc = 0;
    r->code = q->op == MACHINE_OP_USERS ? MACHINE_DONE : MACHINE_NOTFOUND;
    for (unsigned i = 0; i < m->users.n && rc == 0; i++) {
        const struct user *u = m->users.list[i];
        uint8_t record[USER_RECORD_MAX];
        if (q->op == MACHINE_OP_USER &&
            fli_bytes_cmp(u->acl.name, u->acl.name_len, q->owner.data, q->owner.len) != 0) {
            continue;
        }
        r->code = MACHINE_DONE;
        rc = fli_buf_append(payload, record, machine_user_encode(u, record));
    }
    payload->len = rc == 0 ? payload->len : start;
    return rc;
}

static bool read_user(struct fli_reader *r, struct user *ret)
{
    memset(ret, 0, sizeof *ret);
    ret->uid = fli_read_u32(r);
    ret->login = fli_read_u32(r);
    return acl_decode(r, &ret->acl) && ret->login > 0 && ret->login <= MACHINE_LOGIN_MAX;
}

int machine_users_next(struct fli_slice *payload, uint64_t *ret_user, struct acl_user *ret)
{
    struct fli_reader r;
    struct user u;
    if (payload->len == 0) {
        return 0;
    }
    fli_reader_init(&r, payload->data, payload->len);
    if (!read_user(&r, &u)) {
        return FL_ECORRUPT;
    }
    *payload = (struct fli_slice){r.p, fli_reader_left(&r)};
    *ret_user = machine_user_of(u.uid, u.login);
    *ret = u.acl;
    return 1;
}

bool machine_users_load(struct machine *m, struct fli_reader *r, bool first)
{
    struct user u;
    if (!read_user(r, &u) || (u.uid == 0) != first) {
        return false;
    }
    struct fli_slice name = {u.acl.name, u.acl.name_len};
    if (first) {
        struct user *own = m->users.list[0];
        if (find_name(m, name) != own) {
            return false;
        }
        count_user(m, own, false);
        *own = u;
        count_user(m, own, true);
        return true;
    }
    if (u.uid > m->users.last_uid || u.uid <= m->users.list[m->users.n - 1]->uid ||
        find_name(m, name) != NULL) {
        return false;
    }
    struct user *own = fli_xmalloc(sizeof *own);
    *own = u;
    machine_user_insert(m, own);
    return m->users.bytes <= MACHINE_USERS_BYTES_MAX;
}
