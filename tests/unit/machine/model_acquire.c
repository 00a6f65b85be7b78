/* model_acquire.c: the model's ACQUIRE of one lock. */
#include "model.h"

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

static uint64_t max_u64(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
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
    m->sessions[i].uid = model_asker_uid(m);
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
    m->locks[name - 'a'].permits = permits_of(c);
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
                                       .user = model_user_name(m, m->sessions[s].uid),
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
        if (!model_owns(m, session)) {
            model_refuse(r, 0);
            return true;
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
    s->leased = true;
    s->deadline_ms = max_u64(s->deadline_ms, m->clock_ms + s->ttl_ms);
    r->deadline_ms = s->deadline_ms;
}

/* Somebody may be in the way. */
static void acquire_in_use(struct model *m, const struct machine_command *c, int session,
                           struct machine_result *r)
{
    char name = first_byte(c->name);
    struct model_lock *l = &m->locks[name - 'a'];
    unsigned queue[MODEL_WAITS_MAX];
    int hold = session < 0 ? -1 : model_find_hold(m, session, name);
    if (l->permits != permits_of(c)) {
        r->code = MACHINE_MISMATCH;
        r->number = l->permits;
    } else if (hold >= 0 && (l->slots != slots_of(c) || m->holds[hold].together > 1)) {
        r->code = MACHINE_MISMATCH;
    } else if (hold >= 0 && !model_owns(m, (unsigned)session)) {
        model_refuse(r, 0);
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

void model_acquire(struct model *m, const struct machine_command *c, struct machine_result *r)
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
    } else if (is_explicit && (session < 0 || !model_owns(m, (unsigned)session))) {
        r->code = MACHINE_NOSESSION;
    } else if (model_in_use(m, name)) {
        acquire_in_use(m, c, session, r);
    } else {
        acquire_now(m, c, session, r);
    }
}
