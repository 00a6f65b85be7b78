/* model.c: see model.h. */
#include "model.h"

#include <stdlib.h>
#include <string.h>

void model_init(struct model *m)
{
    memset(m, 0, sizeof *m);
    m->limits = MACHINE_LIMITS_DEFAULT;
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
    m->events[m->n_events++] = e;
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
    struct model_session *s = &m->sessions[w.session];
    char names[MODEL_NAMES + 1];
    names_of_wait(m, w.id, names);
    drop_wait(m, w.id);
    m->counts.waits_ended++;
    for (unsigned k = 0; names[k] != 0; k++) {
        model_tell(m, (struct model_event){.type = MACHINE_EVENT_WAIT_ENDED,
                                           .reason = reason,
                                           .index = (uint8_t)k,
                                           .is_explicit = s->is_explicit,
                                           .name = names[k],
                                           .owner = s->owner,
                                           .wait = w.id});
    }
    if (!s->is_explicit) {
        s->exists = false;
    }
    for (const char *p = names; *p != 0; p++) {
        settle(m, *p);
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
                                       .owner = s.owner});
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

/* Locks that a session holds or awaits. */
uint64_t model_requests(const struct model *m, unsigned session)
{
    uint64_t n = 0;
    for (unsigned i = 0; i < MODEL_HOLDS_MAX; i++) {
        n += m->holds[i].exists && m->holds[i].session == session;
    }
    for (unsigned i = 0; i < MODEL_WAITS_MAX; i++) {
        n += m->waits[i].exists && m->waits[i].session == session;
    }
    return n;
}

static uint32_t request_limit(const struct model *m, int session)
{
    if (session < 0) {
        return model_count_sessions(m, false) >= m->limits.sessions_max ? MACHINE_LIMIT_SESSIONS
                                                                        : 0;
    }
    return model_requests(m, (unsigned)session) >= m->limits.session_locks_max
               ? MACHINE_LIMIT_SESSION_LOCKS
               : 0;
}

static char first_byte(struct fli_slice s)
{
    return s.len == 0 ? 0 : (char)s.data[0];
}

static unsigned session_for(struct model *m, const struct machine_command *c, int session)
{
    if (session >= 0) {
        return (unsigned)session;
    }
    unsigned i = model_new_session(m, false, first_byte(c->owner), first_byte(c->name));
    m->sessions[i].ttl_ms = c->ttl_ms;
    return i;
}

static uint32_t slots_of(const struct machine_command *c)
{
    return c->mode == MACHINE_MODE_SHARED ? MODEL_SHARED : c->permits;
}

static uint32_t permits_of(const struct machine_command *c)
{
    return c->mode == MACHINE_MODE_SHARED ? 1 : c->permits;
}

/* Nobody is in the way. */
static void acquire_now(struct model *m, const struct machine_command *c, int session,
                        struct machine_result *r)
{
    struct machine_counts n = model_counts(m);
    char name = first_byte(c->name);
    uint32_t limit = request_limit(m, session);
    if (!model_in_use(m, name) && n.locks >= m->limits.locks_max) {
        limit = MACHINE_LIMIT_LOCKS;
    } else if (limit == 0 && m->last_token == FL_TOKEN_MAX) {
        limit = MACHINE_LIMIT_TOKENS;
    }
    if (limit != 0) {
        model_answer_limit(m, r, limit);
        return;
    }
    unsigned s = session_for(m, c, session);
    lock_of(m, name)->permits = permits_of(c);
    model_grant(m, (const char[]){name, 0}, s, slots_of(c), first_byte(c->value), 0);
    r->code = MACHINE_GRANTED;
    r->token = m->last_token;
    r->deadline_ms = m->sessions[s].deadline_ms;
}

static void acquire_wait(struct model *m, const struct machine_command *c, int session,
                         struct machine_result *r)
{
    unsigned queue[MODEL_WAITS_MAX];
    char name = first_byte(c->name);
    unsigned len = model_queue(m, name, queue);
    uint32_t limit = request_limit(m, session);
    if (len >= m->limits.lock_waits_max) {
        limit = MACHINE_LIMIT_LOCK_WAITS;
    } else if (model_count_waits(m) >= m->limits.waits_max) {
        limit = MACHINE_LIMIT_WAITS;
    }
    if (limit != 0) {
        model_answer_limit(m, r, limit);
        return;
    }
    if (session >= 0 && model_closes_cycle(m, (unsigned)session, (const char[]){name, 0})) {
        m->counts.deadlocks++;
        r->code = MACHINE_DEADLOCK;
        return;
    }
    unsigned i = 0;
    while (m->waits[i].exists) {
        i++;
    }
    unsigned s = session_for(m, c, session);
    m->waits[i] = (struct model_wait){.exists = true,
                                      .name = name,
                                      .session = s,
                                      .slots = slots_of(c),
                                      .id = ++m->serial,
                                      .times_asked = 1,
                                      .deadline_ms = m->clock_ms + c->wait_ms,
                                      .together = 1,
                                      .value = first_byte(c->value)};
    model_tell(m, (struct model_event){.type = MACHINE_EVENT_QUEUED,
                                       .is_explicit = m->sessions[s].is_explicit,
                                       .name = name,
                                       .owner = m->sessions[s].owner,
                                       .wait = m->serial});
    r->code = MACHINE_QUEUED;
    r->number = len + 1;
    r->token = 1;
    r->wait = m->serial;
}

/* False when it does not wait for this lock. */
static bool ask_again(struct model *m, const struct machine_command *c, unsigned session,
                      struct machine_result *r)
{
    unsigned queue[MODEL_WAITS_MAX];
    unsigned len = model_queue(m, first_byte(c->name), queue);
    for (unsigned i = 0; i < len; i++) {
        struct model_wait *w = &m->waits[queue[i]];
        if (w->session != session) {
            continue;
        }
        if (w->together > 1 || w->slots != slots_of(c)) {
            r->code = MACHINE_MISMATCH;
            return true;
        }
        w->times_asked++;
        w->deadline_ms = max_u64(w->deadline_ms, m->clock_ms + c->wait_ms);
        if (!m->sessions[session].is_explicit) {
            m->sessions[session].ttl_ms = c->ttl_ms;
        }
        r->code = MACHINE_QUEUED;
        r->number = i + 1;
        r->token = w->times_asked;
        r->wait = w->id;
        return true;
    }
    return false;
}

void model_renew(struct model *m, unsigned session, uint64_t ttl_ms, struct machine_result *r)
{
    struct model_session *s = &m->sessions[session];
    if (ttl_ms != 0) {
        s->ttl_ms = ttl_ms;
    }
    s->renewals += s->leased;
    s->leased = true;
    s->deadline_ms = max_u64(s->deadline_ms, m->clock_ms + s->ttl_ms);
    r->deadline_ms = s->deadline_ms;
}

/* Somebody may be in the way. */
static void acquire_in_use(struct model *m, const struct machine_command *c, int session,
                           struct machine_result *r)
{
    char name = first_byte(c->name);
    struct model_lock *l = lock_of(m, name);
    unsigned queue[MODEL_WAITS_MAX];
    int hold = session < 0 ? -1 : model_find_hold(m, session, name);
    if (l->permits != permits_of(c)) {
        r->code = MACHINE_MISMATCH;
        r->number = l->permits;
    } else if (hold >= 0 && (l->slots != slots_of(c) || m->holds[hold].together > 1)) {
        r->code = MACHINE_MISMATCH;
    } else if (hold >= 0) {
        r->code = MACHINE_GRANTED;
        r->token = m->holds[hold].token;
        model_renew(m, (unsigned)session, c->ttl_ms, r);
    } else if (model_queue(m, name, queue) == 0 && model_lets_in(m, name, slots_of(c))) {
        acquire_now(m, c, session, r);
    } else if ((c->flags & MACHINE_ACQUIRE_WAIT) == 0) {
        r->code = MACHINE_HELD;
    } else if (session < 0 || !ask_again(m, c, (unsigned)session, r)) {
        acquire_wait(m, c, session, r);
    }
}

/* The implicit session of this owner that holds or awaits the lock; -1 when there is none. */
static int implicit_at(const struct model *m, char owner, char name)
{
    for (unsigned i = 0; i < MODEL_HOLDS_MAX; i++) {
        const struct model_session *s = &m->sessions[m->holds[i].session];
        if (m->holds[i].exists && m->holds[i].name == name && !s->is_explicit &&
            s->owner == owner) {
            return (int)m->holds[i].session;
        }
    }
    for (unsigned i = 0; i < MODEL_WAITS_MAX; i++) {
        const struct model_session *s = &m->sessions[m->waits[i].session];
        if (m->waits[i].exists && m->waits[i].name == name && !s->is_explicit &&
            s->owner == owner) {
            return (int)m->waits[i].session;
        }
    }
    return -1;
}

static void acquire(struct model *m, const struct machine_command *c, struct machine_result *r)
{
    char name = first_byte(c->name);
    bool is_explicit = (c->flags & MACHINE_ACQUIRE_EXPLICIT) != 0;
    int session = is_explicit ? model_find_session(m, true, first_byte(c->owner), 0)
                              : implicit_at(m, first_byte(c->owner), name);
    if (c->n_names > 1) {
        model_acquire_multi(m, c, r);
        return;
    }
    if (c->mode == MACHINE_MODE_SHARED && c->permits != 1) {
        r->code = MACHINE_UNSUPPORTED;
    } else if (is_explicit && session < 0) {
        r->code = MACHINE_NOSESSION;
    } else if (model_in_use(m, name)) {
        acquire_in_use(m, c, session, r);
    } else {
        acquire_now(m, c, session, r);
    }
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

static void join(struct model *m, const struct machine_command *c, struct machine_result *r)
{
    for (unsigned i = 0; i < m->n_nodes; i++) {
        if (m->nodes[i].id == c->number) {
            r->code = m->nodes[i].incarnation == c->number2 ? MACHINE_DONE : MACHINE_EXISTS;
            return;
        }
    }
    if (m->n_nodes == 9) {
        model_answer_limit(m, r, MACHINE_LIMIT_NODES);
        return;
    }
    m->nodes[m->n_nodes].id = c->number;
    m->nodes[m->n_nodes++].incarnation = c->number2;
    r->code = MACHINE_DONE;
}

static void forget(struct model *m, const struct machine_command *c, struct machine_result *r)
{
    r->code = MACHINE_NOTFOUND;
    for (unsigned i = 0; i < m->n_nodes; i++) {
        if (m->nodes[i].id == c->number) {
            m->nodes[i] = m->nodes[--m->n_nodes];
            r->code = MACHINE_DONE;
            return;
        }
    }
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
    if (is_new && model_count_sessions(m, false) >= m->limits.sessions_max) {
        model_answer_limit(m, r, MACHINE_LIMIT_SESSIONS);
        return;
    }
    if (is_new) {
        session = (int)model_new_session(m, true, owner, 0);
        m->sessions[session].serial = ++m->serial;
        model_tell(m, (struct model_event){.type = MACHINE_EVENT_SESSION_OPENED,
                                           .is_explicit = true,
                                           .owner = owner});
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
    r->code = MACHINE_NO;
    for (unsigned i = 0; i < MODEL_HOLDS_MAX; i++) {
        struct model_hold *h = &m->holds[i];
        if (!h->exists || h->name != name || h->token != c->token) {
            continue;
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
}

/* SESSION RENEW and CLOSE. */
static void on_session(struct model *m, const struct machine_command *c, struct machine_result *r)
{
    int session = model_find_session(m, true, first_byte(c->owner), 0);
    if (session < 0) {
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
    switch (c->op) {
    case MACHINE_OP_INIT:
        init(m, c, &r);
        break;
    case MACHINE_OP_JOIN:
        join(m, c, &r);
        break;
    case MACHINE_OP_FORGET:
        forget(m, c, &r);
        break;
    case MACHINE_OP_LIMITS:
        m->limits = c->limits;
        r.code = MACHINE_DONE;
        break;
    case MACHINE_OP_ACQUIRE:
        acquire(m, c, &r);
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
