/* rights.c: nothing for a user who may not. An account of users and rights of our own, by what
 * administrators asked for and the order of the log; and by it
 *
 *   - each command, as it is applied: refused if and only if its user lacks the right
 *   - each grant, also one out of a queue, whoever's command it is that lets it in
 *   - who waits: nobody who may not
 *   - each answer: refused only if that was so at some moment between question and answer; said
 *     only if its user might hear it at such a moment
 *   - what is a grant's: only for the user whose it is, by number, so not for one
 *     who is made anew under the name of a deleted one
 *   - in the end: the users of each node, from the log or from a snapshot */
#include <stdlib.h>
#include <string.h>

#include "machine/acl.h"
#include "machine/batch.h"
#include "sim.h"

static unsigned place_of(unsigned right)
{
    return (unsigned)__builtin_ctz(right);
}

static const struct sim_rights *now(const struct sim *s)
{
    return &s->users.rights[s->users.rights_len - 1];
}

/* A state of its own, from this moment on. */
static struct sim_rights *begin_anew(struct sim *s)
{
    struct sim_users *us = &s->users;
    us->rights = sim_grow(us->rights, &us->rights_cap, us->rights_len + 1, sizeof *us->rights);
    struct sim_rights *r = &us->rights[us->rights_len++];
    if (us->rights_len > 1) {
        *r = us->rights[us->rights_len - 2];
    }
    r->seq = s->oracle.seq;
    return r;
}

void sim_rights_init(struct sim *s)
{
    struct sim_user *u = &begin_anew(s)->users[0];
    *u = (struct sim_user){.there = true, .on = true, .login = 1};
    for (unsigned i = 0; i < SIM_RIGHTS; i++) {
        u->names[i] = SIM_ALL_NAMES;
    }
}

void sim_rights_fini(struct sim *s)
{
    free(s->users.changes);
    free(s->users.rights);
}

/* ---- what a user may ------------------------------------------------------------------------- */

static const struct sim_user *of_uid(const struct sim_rights *r, uint32_t uid)
{
    for (unsigned i = 0; i < SIM_USERS; i++) {
        if (r->users[i].there && r->users[i].uid == uid) {
            return &r->users[i];
        }
    }
    return NULL;
}

static const struct sim_user *of_login(const struct sim_rights *r, uint64_t login)
{
    const struct sim_user *u = of_uid(r, (uint32_t)login);
    return u != NULL && u->on && (login == 0 || u->login == login >> 32) ? u : NULL;
}

/* To all of these; to any at all when they are none. */
static bool may(const struct sim_user *u, unsigned right, unsigned mask)
{
    unsigned has = u->names[place_of(right)];
    return mask == 0 ? has != 0 : (has & mask) == mask;
}

static unsigned lock_bit(struct fli_slice name)
{
    return 1u << sim_lock_number(name);
}

static unsigned mask_of(const struct machine_command *c)
{
    unsigned mask = c->name.len == 0 ? 0 : lock_bit(c->name);
    for (size_t at = 0; at < c->also.len; at += 1 + (size_t)c->also.data[at]) {
        mask |= lock_bit((struct fli_slice){c->also.data + at + 1, c->also.data[at]});
    }
    return mask;
}

/* The right that a command asks for, whatever the state of locks is; 0: that depends. */
static unsigned right_for(uint8_t op)
{
    switch (op) {
    case MACHINE_OP_ACQUIRE:
    case MACHINE_OP_RENEW:
    case MACHINE_OP_SESSION_OPEN:
    case MACHINE_OP_SESSION_RENEW:
        return ACL_ACQUIRE;
    case MACHINE_OP_BREAK:
        return ACL_BREAK;
    case MACHINE_OP_TOKEN:
        return ACL_TOKEN;
    case MACHINE_OP_SHOW:
    case MACHINE_OP_LOCKS:
        return ACL_SEE;
    case MACHINE_OP_USER_SET:
    case MACHINE_OP_USER_DELETE:
    case MACHINE_OP_USERS_LOAD:
        return ACL_ADMIN;
    default:
        return 0;
    }
}

/* Names do not count for these. */
static bool is_of_no_name(uint8_t op)
{
    return right_for(op) == ACL_ADMIN || op == MACHINE_OP_LOCKS || op == MACHINE_OP_SESSION_OPEN ||
           op == MACHINE_OP_SESSION_RENEW;
}

/* ---- the log --------------------------------------------------------------------------------- */

static bool is_of_clients(uint8_t op)
{
    return right_for(op) != 0 || op == MACHINE_OP_RELEASE || op == MACHINE_OP_SESSION_CLOSE;
}

static void become(struct sim_users *us, struct sim_user *u, const struct sim_user *wanted)
{
    uint32_t uid = u->there ? u->uid : ++us->last_uid;
    uint32_t login = u->there ? u->login + (u->on && !wanted->on) : 1;
    *u = *wanted;
    u->uid = uid;
    u->login = login;
}

static const struct sim_user_change *change_of(const struct sim_users *us, uint64_t sending)
{
    for (size_t i = us->changes_len; i > 0; i--) {
        if (us->changes[i - 1].sending == sending) {
            return &us->changes[i - 1];
        }
    }
    return NULL;
}

/* A list of all: those that were there first, then those that are new, each by name. */
static void load(struct sim_users *us, struct sim_rights *r, const struct sim_user_change *c)
{
    bool was[SIM_USERS];
    for (unsigned i = 0; i < SIM_USERS; i++) {
        was[i] = r->users[i].there;
        if (was[i] && c->users[i].there) {
            become(us, &r->users[i], &c->users[i]);
        } else if (i > 0) {
            r->users[i].there = false;
        }
    }
    for (unsigned i = 1; i < SIM_USERS; i++) {
        if (!was[i] && c->users[i].there) {
            become(us, &r->users[i], &c->users[i]);
        }
    }
}

/* Each user of the simulation comes in without a password. */
static bool has_administrator(const struct sim_rights *r)
{
    bool any = false;
    for (unsigned i = 0; i < SIM_USERS; i++) {
        const struct sim_user *u = &r->users[i];
        any = any || (u->there && u->on && u->names[SIM_RIGHTS - 1] != 0);
    }
    return any;
}

/* False: it is refused, and changes nothing. */
static bool change(struct sim *s, const struct machine_command *c, uint64_t sending)
{
    struct sim_users *us = &s->users;
    const struct sim_user_change *wanted = change_of(us, sending);
    SIM_CHECK(s, wanted != NULL, "users are changed, and nobody asked for it");
    struct sim_rights *r = begin_anew(s);
    struct sim_user *u = &r->users[wanted->user];
    const struct sim_rights before = *r;
    uint32_t last_uid = us->last_uid;
    if (c->op == MACHINE_OP_USERS_LOAD) {
        load(us, r, wanted);
    } else if (c->op == MACHINE_OP_USER_SET) {
        become(us, u, &wanted->users[wanted->user]);
    } else if (wanted->user != 0) {
        u->there = false;
    }
    if (c->user != MACHINE_USER_NODE && !has_administrator(r)) {
        *r = before;
        us->last_uid = last_uid;
        return false;
    }
    s->marks->users_changed++;
    return true;
}

void sim_rights_begin(struct sim *s, const struct machine_command *c, uint64_t sending)
{
    struct sim_asking *a = &s->users.asking;
    *a = (struct sim_asking){.free = c->user == MACHINE_USER_NODE || !is_of_clients(c->op)};
    const struct sim_user *u = of_login(now(s), c->user);
    unsigned right = right_for(c->op);
    if (!a->free && u == NULL) {
        a->code = MACHINE_NOAUTH;
        return;
    }
    a->uid = a->free ? 0 : u->uid;
    if (!a->free && right != 0 && !may(u, right, is_of_no_name(c->op) ? 0 : mask_of(c))) {
        a->code = MACHINE_NOPERM;
        a->right = right;
        return;
    }
    if (right == ACL_ADMIN && !change(s, c, sending)) {
        a->code = MACHINE_NOADMIN;
        return;
    }
    /* Breaking a mere delay has no event, and a BREAK that is refused breaks nothing. */
    if (c->op == MACHINE_OP_BREAK) {
        s->oracle.breaking |= lock_bit(c->name);
    }
}

static bool is_of_token(uint8_t op)
{
    return op == MACHINE_OP_RENEW || op == MACHINE_OP_RELEASE;
}

static bool is_of_session(uint8_t op)
{
    return op == MACHINE_OP_SESSION_OPEN || op == MACHINE_OP_SESSION_RENEW ||
           op == MACHINE_OP_SESSION_CLOSE;
}

/* Only its own user may act on a grant or a session. order.c checks the user of a session's
 * locks. */
static void check_owner(struct sim *s, const struct machine_command *c,
                        const struct machine_result *r)
{
    const struct sim_asking *a = &s->users.asking;
    if (a->free || r->code != MACHINE_DONE) {
        return;
    }
    if (is_of_token(c->op)) {
        uint32_t uid = sim_oracle_token(s, c->token)->uid;
        SIM_CHECK(s, uid == a->uid,
                  "command %u about token %llu is carried out for user %u, and it is user %u's",
                  c->op, (unsigned long long)c->token, a->uid, uid);
    } else if (is_of_session(c->op)) {
        uint64_t owner = sim_order_owner(s, c->owner);
        uint32_t uid = sim_oracle_owner(s, owner)->uid;
        SIM_CHECK(s, uid == a->uid,
                  "command %u about session %llu is carried out for user %u, and it is user %u's",
                  c->op, (unsigned long long)owner, a->uid, uid);
    }
}

/* Whether the command is about what another user has at this moment. */
static bool is_anothers(struct sim *s, const struct machine_command *c)
{
    uint32_t uid = s->users.asking.uid;
    if (is_of_token(c->op)) {
        const struct sim_token *t = sim_oracle_token(s, c->token);
        return t->uid != uid && t->ended_seq == 0;
    }
    if (c->op != MACHINE_OP_ACQUIRE && c->op != MACHINE_OP_SESSION_OPEN) {
        return false;
    }
    const struct sim_owner *o = sim_oracle_owner(s, sim_order_owner(s, c->owner));
    return o->uid != uid && (o->open || o->held > 0 || o->waits > 0);
}

void sim_rights_end(struct sim *s, const struct machine_command *c, const struct machine_result *r)
{
    const struct sim_asking *a = &s->users.asking;
    bool lacks = r->code == MACHINE_NOPERM && r->number != 0;
    if (a->code != 0) {
        SIM_CHECK(s, r->code == a->code && (a->right == 0 || r->number == a->right),
                  "command %u of user %llu comes to %u, and the user may not", c->op,
                  (unsigned long long)c->user, r->code);
        s->marks->logins_over += a->code == MACHINE_NOAUTH;
        s->marks->rights_lacked += a->code == MACHINE_NOPERM;
    } else {
        const struct sim_user *u = of_uid(now(s), a->uid);
        bool release = c->op == MACHINE_OP_RELEASE && !a->free && u != NULL &&
                       !may(u, ACL_ACQUIRE, mask_of(c));
        SIM_CHECK(s, r->code != MACHINE_NOAUTH && (!lacks || release),
                  "command %u of user %llu is refused with %u, and the user may", c->op,
                  (unsigned long long)c->user, r->code);
        bool refused = r->code == MACHINE_NOPERM && r->number == 0;
        SIM_CHECK(s, !refused || (!a->free && is_anothers(s, c)),
                  "command %u of user %llu is refused as about another's, and no other user has it",
                  c->op, (unsigned long long)c->user);
        s->marks->not_theirs += refused;
    }
    check_owner(s, c, r);
    s->users.asking = (struct sim_asking){.free = true};
}

static bool may_hold(const struct sim *s, uint32_t uid, unsigned mask)
{
    const struct sim_user *u = of_uid(now(s), uid);
    return u != NULL && u->on && may(u, ACL_ACQUIRE, mask);
}

void sim_rights_granted(struct sim *s, uint32_t uid, unsigned mask, uint64_t token)
{
    SIM_CHECK(s, may_hold(s, uid, mask),
              "token %llu is granted to user %u, who may not acquire locks %x",
              (unsigned long long)token, uid, mask);
}

void sim_rights_waits(struct sim *s, const struct sim_wait *w)
{
    SIM_CHECK(s, may_hold(s, w->uid, w->mask),
              "wait %llu for locks %x goes on, and user %u may not acquire them",
              (unsigned long long)w->id, w->mask, w->uid);
}

/* ---- answers --------------------------------------------------------------------------------- */

/* Whether there was a moment since the question was asked at which the user might have it (yes), or
 * might not. */
static bool was_so(const struct sim_lane *l, unsigned right, unsigned mask, bool yes)
{
    const struct sim_users *us = &l->client->sim->users;
    for (size_t i = us->rights_len; i > 0; i--) {
        const struct sim_user *u = of_login(&us->rights[i - 1], l->login);
        bool has = u != NULL && (right == 0 || may(u, right, mask));
        if (has == yes) {
            return true;
        }
        if (us->rights[i - 1].seq <= l->start_seq) {
            return false;
        }
    }
    return false;
}

/* Whether its owner had anything since the question that was another user's. */
static bool was_anothers(const struct sim_lane *l, uint32_t uid)
{
    const struct sim_owner *o = sim_oracle_owner(l->client->sim, l->owner_number);
    bool has = o->open || o->held > 0 || o->waits > 0;
    return o->uid != uid && (has || o->ended_seq > l->start_seq || o->idle_seq > l->start_seq);
}

static void check_refused(struct sim_lane *l, uint8_t op, uint64_t token, unsigned right,
                          unsigned mask)
{
    struct sim *s = l->client->sim;
    uint32_t uid = (uint32_t)l->login;
    bool about_token = is_of_token(op) || op == MACHINE_OP_CHECK;
    bool foreign = about_token && sim_oracle_token(s, token)->uid != uid;
    bool other_owner =
        (op == MACHINE_OP_ACQUIRE || op == MACHINE_OP_SESSION_OPEN) && was_anothers(l, uid);
    SIM_CHECK(s, foreign || other_owner || was_so(l, right, mask, false),
              "command %u about %s is refused, and the user might have it all the time", op,
              l->name);
    s->marks->answers_refused++;
}

/* A renewal has an entry seldom, so it is the answer that tells whether it was carried out. */
static void check_renewed(const struct sim_lane *l, uint8_t op, uint64_t token)
{
    struct sim *s = l->client->sim;
    const struct sim_owner *o = sim_oracle_owner(s, l->owner_number);
    bool is_new = o->opened_seq > l->start_seq; /* another one of that name */
    uint32_t uid = op == MACHINE_OP_RENEW ? sim_oracle_token(s, token)->uid : o->uid;
    SIM_CHECK(s, uid == (uint32_t)l->login || (op == MACHINE_OP_SESSION_RENEW && is_new),
              "what user %u has is renewed for user %u", uid, (uint32_t)l->login);
}

bool sim_rights_answer(struct sim_lane *l, const struct machine_result *r)
{
    struct sim *s = l->client->sim;
    bool confirms = l->call_state.order.request == FLI_REQUEST_CONFIRM;
    uint8_t op = confirms ? MACHINE_OP_RENEW : l->command.op;
    uint64_t token = confirms ? l->token : l->command.token;
    unsigned right = op == MACHINE_OP_RELEASE ? ACL_ACQUIRE
                     : op == MACHINE_OP_CHECK ? ACL_SEE
                                              : right_for(op);
    unsigned mask = is_of_no_name(op) || l->command.name.len == 0 ? 0
                    : op == MACHINE_OP_ACQUIRE                    ? l->mask
                                                                  : 1u << l->lock;
    if (r->code == MACHINE_NOPERM || r->code == MACHINE_NOAUTH) {
        check_refused(l, op, token, r->code == MACHINE_NOPERM ? right : 0, mask);
        return true;
    }
    bool own = op == MACHINE_OP_RELEASE ||
               (op == MACHINE_OP_CHECK && sim_oracle_token(s, token)->uid == (uint32_t)l->login);
    SIM_CHECK(s, was_so(l, own ? 0 : right, mask, true),
              "command %u about %s is answered, and the user might not have it at any time", op,
              l->name);
    if (r->code == MACHINE_DONE && (op == MACHINE_OP_RENEW || op == MACHINE_OP_SESSION_RENEW)) {
        check_renewed(l, op, token);
    }
    return false;
}

/* Of LOCKS: the locks of the simulation that it names. */
void sim_rights_listed(struct sim_lane *l, unsigned mask)
{
    for (unsigned k = 0; k < SIM_ALL_LOCKS; k++) {
        SIM_CHECK(l->client->sim, (mask >> k & 1) == 0 || was_so(l, ACL_SEE, 1u << k, true),
                  "lock %u is listed for a user who may not see it", k);
    }
}

/* ---- in the end ------------------------------------------------------------------------------ */

void sim_rights_compare(struct sim *s, const struct machine *m)
{
    char name[3];
    for (unsigned i = 0; i < SIM_USERS; i++) {
        const struct sim_user *u = &now(s)->users[i];
        uint64_t login = u->uid == 0 ? 0 : machine_user_of(u->uid, u->login);
        bool in = u->there && u->on;
        SIM_CHECK(s, (!u->there && i > 0) || machine_may(m, login, 0, NULL) == in,
                  "a node lets user %s in, or not, and it should be the other way round",
                  sim_user_name(i));
        for (unsigned k = 0; u->there && k < SIM_RIGHTS * SIM_ALL_LOCKS; k++) {
            unsigned lock = k / SIM_RIGHTS;
            unsigned right = 1u << k % SIM_RIGHTS;
            sim_lock_name(lock, name);
            struct fli_slice text = {(const uint8_t *)name, 2};
            SIM_CHECK(s, machine_may(m, login, right, &text) == (in && may(u, right, 1u << lock)),
                      "a node ends with another right @%s of user %s to %s", acl_right_name(right),
                      sim_user_name(i), name);
        }
    }
}
