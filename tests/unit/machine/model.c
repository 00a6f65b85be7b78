/* model.c: see model.h. */
#include "model.h"

#include <stdlib.h>
#include <string.h>

#include "machine/acl.h"

void model_init(struct model *m)
{
    memset(m, 0, sizeof *m);
    m->limits = MACHINE_LIMITS_DEFAULT;
    m->version = 1;
    m->asker = -1;
    model_users_init(m);
}

static struct model_lock *lock_of(struct model *m, char name)
{
    return &m->locks[name - 'a'];
}

void model_tell(struct model *m, struct model_event e)
{
    if (m->n_events == MODEL_EVENTS_MAX) {
        abort();
    }
    e.by = m->by;
    m->events[m->n_events++] = e;
}

static char user_of(const struct model *m, const struct model_session *s)
{
    return model_user_name(m, s->uid);
}

static uint64_t max_u64(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static void hold(struct model *m, struct model_hold h, uint32_t slots)
{
    struct model_lock *l = lock_of(m, h.name);
    unsigned i = 0;
    while (m->holds[i].exists) {
        i++;
    }
    m->holds[i] = h;
    l->slots = slots;
    l->idle = false;
    l->idle_serial = 0;
}

/* One token for all of the names. */
void model_grant(struct model *m, const char *names, unsigned session, uint32_t slots, char value,
                 uint64_t wait)
{
    struct model_session *s = &m->sessions[session];
    unsigned n = (unsigned)strlen(names);
    m->last_token++;
    for (unsigned i = 0; i < n; i++) {
        hold(m,
             (struct model_hold){.exists = true,
                                 .name = names[i],
                                 .session = session,
                                 .token = m->last_token,
                                 .since_ms = m->clock_ms,
                                 .index = i,
                                 .together = n,
                                 .value = value},
             slots);
    }
    m->counts.grants++;
    if (!s->is_explicit) {
        s->leased = true;
        s->deadline_ms = m->clock_ms + s->ttl_ms;
    }
    for (unsigned i = 0; i < n; i++) {
        model_tell(m, (struct model_event){.type = MACHINE_EVENT_GRANTED,
                                           .index = (uint8_t)i,
                                           .is_explicit = s->is_explicit,
                                           .name = names[i],
                                           .owner = s->owner,
                                           .user = user_of(m, s),
                                           .token = m->last_token,
                                           .wait = wait,
                                           .deadline_ms = s->deadline_ms});
    }
}

bool model_lets_in(const struct model *m, char name, uint32_t slots)
{
    const struct model_lock *l = &m->locks[name - 'a'];
    unsigned n = model_count_holders(m, name);
    if (l->delayed) {
        return false;
    }
    if (n == 0) {
        return true;
    }
    if (slots == 1 || l->slots != slots) {
        return false;
    }
    return slots == MODEL_SHARED || n < slots;
}

/* The locks of the wait with this id, in the order in which they were named. */
static void names_of_wait(const struct model *m, uint64_t id, char names[MODEL_NAMES + 1])
{
    unsigned n = 0;
    for (unsigned i = 0; i < MODEL_WAITS_MAX; i++) {
        if (m->waits[i].exists && m->waits[i].id == id) {
            names[m->waits[i].index] = m->waits[i].name;
            n++;
        }
    }
    names[n] = 0;
}

static void names_of_token(const struct model *m, uint64_t token, char names[MODEL_NAMES + 1])
{
    unsigned n = 0;
    for (unsigned i = 0; i < MODEL_HOLDS_MAX; i++) {
        if (m->holds[i].exists && m->holds[i].token == token) {
            names[m->holds[i].index] = m->holds[i].name;
            n++;
        }
    }
    names[n] = 0;
}

static void drop_wait(struct model *m, uint64_t id)
{
    for (unsigned i = 0; i < MODEL_WAITS_MAX; i++) {
        m->waits[i].exists = m->waits[i].exists && m->waits[i].id != id;
    }
}

/* Whether this wait is the first in all its queues and all its locks let it in. */
static bool has_its_turn(const struct model *m, const struct model_wait *w)
{
    char names[MODEL_NAMES + 1];
    unsigned queue[MODEL_WAITS_MAX];
    names_of_wait(m, w->id, names);
    for (const char *p = names; *p != 0; p++) {
        model_queue(m, *p, queue);
        if (m->waits[queue[0]].id != w->id || !model_lets_in(m, *p, w->slots)) {
            return false;
        }
    }
    return true;
}

static void tell_wait_ended(struct model *m, const struct model_wait *w, const char *names,
                            uint8_t reason)
{
    struct model_session *s = &m->sessions[w->session];
    m->counts.waits_ended++;
    for (unsigned k = 0; names[k] != 0; k++) {
        model_tell(m, (struct model_event){.type = MACHINE_EVENT_WAIT_ENDED,
                                           .reason = reason,
                                           .index = (uint8_t)k,
                                           .is_explicit = s->is_explicit,
                                           .name = names[k],
                                           .owner = s->owner,
                                           .user = user_of(m, s),
                                           .wait = w->id});
    }
    if (!s->is_explicit) {
        s->exists = false;
    }
}

/* It has its turn and may not have the lock any more. In runs with users nobody waits for several
 * locks: see test_model.c. */
static void deny(struct model *m, const struct model_wait *w, const char *names)
{
    if (names[1] != 0) {
        abort();
    }
    drop_wait(m, w->id);
    tell_wait_ended(m, w, names, MACHINE_REASON_DENIED);
}

/* Something about the lock has changed. */
static void settle(struct model *m, char name)
{
    struct model_lock *l = lock_of(m, name);
    unsigned queue[MODEL_WAITS_MAX];
    for (;;) {
        if (model_queue(m, name, queue) == 0 || m->last_token == FL_TOKEN_MAX) {
            break;
        }
        struct model_wait w = m->waits[queue[0]];
        if (!has_its_turn(m, &w)) {
            break;
        }
        char names[MODEL_NAMES + 1];
        names_of_wait(m, w.id, names);
        if (!model_wait_may(m, names, w.session)) {
            deny(m, &w, names);
            continue;
        }
        drop_wait(m, w.id);
        model_grant(m, names, w.session, w.slots, w.value, w.id);
    }
    if (model_count_holders(m, name) > 0) {
        return;
    }
    if (!l->delayed && model_queue(m, name, queue) == 0) {
        *l = (struct model_lock){.idle = false};
    } else if (!l->idle) {
        l->idle = true;
        l->idle_serial = ++m->serial;
    }
}

/* Ends the grant that this hold is of. */
static void end_hold(struct model *m, unsigned hold, uint8_t type, uint8_t reason)
{
    struct model_hold h = m->holds[hold];
    struct model_session *s = &m->sessions[h.session];
    char names[MODEL_NAMES + 1];
    names_of_token(m, h.token, names);
    m->counts.releases += type == MACHINE_EVENT_RELEASED;
    m->counts.expiries += type == MACHINE_EVENT_EXPIRED;
    m->counts.breaks += type == MACHINE_EVENT_BROKEN;
    for (unsigned i = 0; names[i] != 0; i++) {
        model_tell(m, (struct model_event){.type = type,
                                           .reason = reason,
                                           .index = (uint8_t)i,
                                           .is_explicit = s->is_explicit,
                                           .name = names[i],
                                           .owner = s->owner,
                                           .user = user_of(m, s),
                                           .token = h.token});
    }
    if (!s->is_explicit) {
        s->exists = false;
    }
    for (unsigned i = 0; i < MODEL_HOLDS_MAX; i++) {
        m->holds[i].exists = m->holds[i].exists && m->holds[i].token != h.token;
    }
}

static void end_lock(struct model *m, unsigned hold, uint8_t type, uint8_t reason,
                     uint64_t delay_ms)
{
    char names[MODEL_NAMES + 1];
    names_of_token(m, m->holds[hold].token, names);
    end_hold(m, hold, type, reason);
    for (const char *p = names; *p != 0 && delay_ms > 0; p++) {
        struct model_lock *l = lock_of(m, *p);
        l->until_ms = max_u64(l->delayed ? l->until_ms : 0, m->clock_ms + delay_ms);
        l->delayed = true;
    }
    for (const char *p = names; *p != 0; p++) {
        settle(m, *p);
    }
}

static void end_delay(struct model *m, char name)
{
    struct model_lock *l = lock_of(m, name);
    l->delayed = false;
    l->until_ms = 0;
    settle(m, name);
}

static void end_wait(struct model *m, unsigned i, uint8_t reason)
{
    struct model_wait w = m->waits[i];
    char names[MODEL_NAMES + 1];
    names_of_wait(m, w.id, names);
    drop_wait(m, w.id);
    tell_wait_ended(m, &w, names, reason);
    for (const char *p = names; *p != 0; p++) {
        settle(m, *p);
    }
}

void model_recheck(struct model *m)
{
    for (uint64_t done = 0;;) {
        int next = -1;
        for (unsigned i = 0; i < MODEL_WAITS_MAX; i++) {
            const struct model_wait *w = &m->waits[i];
            if (w->exists && w->index == 0 && w->id > done &&
                (next < 0 || w->id < m->waits[next].id)) {
                next = (int)i;
            }
        }
        if (next < 0) {
            return;
        }
        char names[MODEL_NAMES + 1];
        done = m->waits[next].id;
        names_of_wait(m, done, names);
        if (!model_wait_may(m, names, m->waits[next].session)) {
            end_wait(m, (unsigned)next, MACHINE_REASON_DENIED);
        }
    }
}

static void end_session(struct model *m, unsigned session, uint8_t reason)
{
    struct model_session s = m->sessions[session];
    bool clean = reason == MACHINE_REASON_CLOSE;
    for (;;) { /* its locks, oldest grant first */
        int best = -1;
        for (unsigned i = 0; i < MODEL_HOLDS_MAX; i++) {
            const struct model_hold *h = &m->holds[i];
            if (h->exists && h->session == session &&
                (best < 0 || h->token < m->holds[best].token)) {
                best = (int)i;
            }
        }
        if (best < 0) {
            break;
        }
        end_lock(m, (unsigned)best, clean ? MACHINE_EVENT_RELEASED : MACHINE_EVENT_EXPIRED, reason,
                 clean ? 0 : s.lockdelay_ms);
    }
    for (;;) { /* its waits, oldest first */
        int best = -1;
        for (unsigned i = 0; i < MODEL_WAITS_MAX; i++) {
            const struct model_wait *w = &m->waits[i];
            if (w->exists && w->session == session && (best < 0 || w->id < m->waits[best].id)) {
                best = (int)i;
            }
        }
        if (best < 0) {
            break;
        }
        end_wait(m, (unsigned)best, MACHINE_REASON_SESSION);
    }
    model_tell(m, (struct model_event){.type = MACHINE_EVENT_SESSION_ENDED,
                                       .reason = reason,
                                       .is_explicit = true,
                                       .owner = s.owner,
                                       .user = user_of(m, &s)});
    m->sessions[session].exists = false;
}

/* Something due: what, when, whose. */
struct due {
    uint64_t deadline_ms;
    int kind;
    char owner, name;
    unsigned index;
};

static bool before(const struct due *a, const struct due *b)
{
    if (a->deadline_ms != b->deadline_ms) {
        return a->deadline_ms < b->deadline_ms;
    }
    if (a->kind != b->kind) {
        return a->kind < b->kind;
    }
    return a->owner != b->owner ? a->owner < b->owner : a->name < b->name;
}

static void consider(struct due *best, const struct due *d)
{
    if (best->kind < 0 || before(d, best)) {
        *best = *d;
    }
}

static struct due earliest(const struct model *m)
{
    struct due best = {.kind = -1};
    for (unsigned i = 0; i < MODEL_NAMES; i++) {
        if (m->locks[i].delayed) {
            consider(&best, &(struct due){m->locks[i].until_ms, 0, 0, (char)('a' + i), i});
        }
    }
    for (unsigned i = 0; i < MODEL_SESSIONS_MAX; i++) {
        const struct model_session *s = &m->sessions[i];
        if (s->exists && s->leased) {
            consider(&best,
                     &(struct due){s->deadline_ms, s->is_explicit ? 1 : 2, s->owner, s->name, i});
        }
    }
    for (unsigned i = 0; i < MODEL_WAITS_MAX; i++) {
        const struct model_wait *w = &m->waits[i];
        if (w->exists && w->index == 0) {
            const struct model_session *s = &m->sessions[w->session];
            consider(&best,
                     &(struct due){w->deadline_ms, s->is_explicit ? 3 : 4, s->owner, w->name, i});
        }
    }
    return best;
}

void model_begin(struct model *m, uint64_t timestamp_ms, bool term_mark)
{
    m->clock_ms = max_u64(m->clock_ms, timestamp_ms);
    m->asker = -1;
    m->by = 0;
    for (unsigned i = 0; term_mark && i < MODEL_SESSIONS_MAX; i++) {
        struct model_session *s = &m->sessions[i];
        if (s->exists && s->leased) {
            s->deadline_ms = max_u64(s->deadline_ms, m->clock_ms + s->ttl_ms);
        }
    }
    for (;;) {
        struct due d = earliest(m);
        if (d.kind < 0 || d.deadline_ms >= m->clock_ms) {
            return;
        }
        switch (d.kind) {
        case 0:
            end_delay(m, d.name);
            break;
        case 1:
            end_session(m, d.index, MACHINE_REASON_DEADLINE);
            break;
        case 2:
            end_lock(m, (unsigned)model_find_hold(m, (int)d.index, d.name), MACHINE_EVENT_EXPIRED,
                     MACHINE_REASON_DEADLINE, 0);
            break;
        default:
            end_wait(m, d.index, MACHINE_REASON_DEADLINE);
            break;
        }
    }
}

void model_answer_limit(struct model *m, struct machine_result *r, uint32_t limit)
{
    m->counts.limits++;
    r->code = MACHINE_LIMIT;
    r->number = limit;
}

static char first_byte(struct fli_slice s)
{
    return s.len == 0 ? 0 : (char)s.data[0];
}

static bool burn(struct model *m, uint64_t step, uint64_t most, struct machine_result *r)
{
    if (m->last_token + step > most) {
        model_answer_limit(m, r, MACHINE_LIMIT_TOKENS);
        return false;
    }
    m->last_token += step;
    r->code = MACHINE_DONE;
    r->token = m->last_token;
    return true;
}

static void cancel(struct model *m, const struct machine_command *c, struct machine_result *r)
{
    r->code = MACHINE_NO;
    for (unsigned i = 0; i < MODEL_WAITS_MAX; i++) {
        if (m->waits[i].exists && m->waits[i].id == c->number &&
            m->waits[i].times_asked == c->number2) {
            end_wait(m, i, MACHINE_REASON_CANCEL);
            r->code = MACHINE_DONE;
            r->wait = c->number;
            return;
        }
    }
}

static void break_lock(struct model *m, char name, struct machine_result *r)
{
    unsigned holds[MODEL_HOLDS_MAX];
    unsigned n = model_holders(m, name, holds);
    if (n == 0 && !lock_of(m, name)->delayed) {
        r->code = MACHINE_NO;
    } else if (burn(m, 1, FL_TOKEN_MAX, r)) {
        char names[MODEL_NAMES + 1] = {name, 0};
        m->counts.breaks += n == 0;
        if (n == 1) {
            names_of_token(m, m->holds[holds[0]].token, names);
        }
        for (unsigned i = 0; i < n; i++) {
            end_hold(m, holds[i], MACHINE_EVENT_BROKEN, MACHINE_REASON_BREAK);
        }
        lock_of(m, name)->delayed = false;
        lock_of(m, name)->until_ms = 0;
        for (const char *p = names; *p != 0; p++) {
            settle(m, *p);
        }
    }
}

static void open_session(struct model *m, const struct machine_command *c, struct machine_result *r)
{
    char owner = first_byte(c->owner);
    int session = model_find_session(m, true, owner, 0);
    bool is_new = session < 0;
    if (!is_new && !model_owns(m, (unsigned)session)) {
        model_refuse(r, 0);
        return;
    }
    if (is_new && model_count_sessions(m, false) >= m->limits.sessions_max) {
        model_answer_limit(m, r, MACHINE_LIMIT_SESSIONS);
        return;
    }
    if (is_new) {
        session = (int)model_new_session(m, true, owner, 0);
        m->sessions[session].serial = ++m->serial;
        m->sessions[session].uid = model_asker_uid(m);
        model_tell(m, (struct model_event){.type = MACHINE_EVENT_SESSION_OPENED,
                                           .is_explicit = true,
                                           .owner = owner,
                                           .user = user_of(m, &m->sessions[session])});
    }
    m->sessions[session].lockdelay_ms = c->lockdelay_ms;
    m->sessions[session].label = first_byte(c->label);
    r->code = MACHINE_DONE;
    model_renew(m, (unsigned)session, c->ttl_ms, r);
}

/* RENEW and RELEASE. */
static void on_held(struct model *m, const struct machine_command *c, struct machine_result *r)
{
    char name = first_byte(c->name);
    bool refused = c->op == MACHINE_OP_RELEASE && !model_asker_may(m, ACL_ACQUIRE, name);
    r->code = MACHINE_NO;
    for (unsigned i = 0; i < MODEL_HOLDS_MAX; i++) {
        struct model_hold *h = &m->holds[i];
        if (!h->exists || h->name != name || h->token != c->token) {
            continue;
        }
        if (!model_owns(m, h->session)) {
            refused = refused || model_asker_may(m, ACL_SEE, name);
            break;
        }
        r->code = MACHINE_DONE;
        r->token = c->token;
        if (c->op == MACHINE_OP_RENEW) {
            model_renew(m, h->session, c->ttl_ms, r);
        } else {
            end_lock(m, i, MACHINE_EVENT_RELEASED, MACHINE_REASON_RELEASE, 0);
        }
        return;
    }
    if (refused) {
        bool lacks = c->op == MACHINE_OP_RELEASE && !model_asker_may(m, ACL_ACQUIRE, name);
        model_refuse(r, lacks ? ACL_ACQUIRE : 0);
    }
}

/* SESSION RENEW and CLOSE. */
static void on_session(struct model *m, const struct machine_command *c, struct machine_result *r)
{
    int session = model_find_session(m, true, first_byte(c->owner), 0);
    if (session < 0 || !model_owns(m, (unsigned)session)) {
        r->code = MACHINE_NOSESSION;
        return;
    }
    r->code = MACHINE_DONE;
    if (c->op == MACHINE_OP_SESSION_RENEW) {
        model_renew(m, (unsigned)session, 0, r);
    } else {
        end_session(m, (unsigned)session, MACHINE_REASON_CLOSE);
    }
}

static void init(struct model *m, const struct machine_command *c, struct machine_result *r)
{
    r->code = m->cluster_id == 0 ? MACHINE_DONE : MACHINE_EXISTS;
    if (m->cluster_id == 0) {
        m->cluster_id = c->number;
        m->limits = c->limits;
    }
}

struct machine_result model_apply(struct model *m, const struct machine_command *c)
{
    struct machine_result r = {.clock_ms = m->clock_ms};
    if (!model_enter(m, c, &r)) {
        return r;
    }
    switch (c->op) {
    case MACHINE_OP_INIT:
        init(m, c, &r);
        break;
    case MACHINE_OP_NODE_ADD:
    case MACHINE_OP_NODE_REPLACE:
    case MACHINE_OP_NODE_REMOVE:
    case MACHINE_OP_NODE_SETTLED:
    case MACHINE_OP_NODE_VERSION:
    case MACHINE_OP_VERSION_RAISE:
        model_nodes_apply(m, c, &r);
        break;
    case MACHINE_OP_USER_SET:
    case MACHINE_OP_USER_DELETE:
    case MACHINE_OP_USERS_LOAD:
    case MACHINE_OP_USERS_SEAL:
        model_users_apply(m, c, &r);
        break;
    case MACHINE_OP_LIMITS:
        m->limits = c->limits;
        r.code = MACHINE_DONE;
        break;
    case MACHINE_OP_ACQUIRE:
        model_acquire(m, c, &r);
        break;
    case MACHINE_OP_CANCEL:
        cancel(m, c, &r);
        break;
    case MACHINE_OP_RENEW:
    case MACHINE_OP_RELEASE:
        on_held(m, c, &r);
        break;
    case MACHINE_OP_BREAK:
        break_lock(m, first_byte(c->name), &r);
        break;
    case MACHINE_OP_TOKEN:
        m->counts.tokens += burn(m, 1, FL_TOKEN_MAX, &r);
        break;
    case MACHINE_OP_SESSION_OPEN:
        open_session(m, c, &r);
        break;
    case MACHINE_OP_SESSION_RENEW:
    case MACHINE_OP_SESSION_CLOSE:
        on_session(m, c, &r);
        break;
    case MACHINE_OP_RAISE:
        burn(m, c->number, MACHINE_RAISE_TO_MAX, &r);
        break;
    default:
        abort();
    }
    return r;
}
