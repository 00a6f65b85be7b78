/* model_multi.c: the model's ACQUIRE of several locks, all or none. */
#include "model.h"

#include <string.h>

struct asked {
    char names[MODEL_NAMES + 1];
    unsigned n;
    char owner;
    int session; /* an explicit one; -1: none */
    bool is_explicit;
};

static struct asked read_request(const struct model *m, const struct machine_command *c)
{
    struct asked a = {.owner = (char)c->owner.data[0], .session = -1};
    struct fli_slice names[MACHINE_NAMES_MAX];
    a.n = machine_command_names(c, names);
    for (unsigned i = 0; i < a.n; i++) {
        a.names[i] = (char)names[i].data[0];
    }
    a.is_explicit = (c->flags & MACHINE_ACQUIRE_EXPLICIT) != 0;
    if (a.is_explicit) {
        a.session = model_find_session(m, true, a.owner, 0);
    }
    return a;
}

static bool is_own(const struct model *m, const struct asked *a, unsigned session)
{
    const struct model_session *s = &m->sessions[session];
    return s->is_explicit == a->is_explicit && s->owner == a->owner;
}

/* How many of the locks it holds; and whether that is one grant of just these. */
static unsigned held_of_them(const struct model *m, const struct asked *a, uint64_t *ret_token,
                             bool *ret_same)
{
    unsigned found = 0;
    *ret_token = 0;
    *ret_same = true;
    for (unsigned i = 0; i < MODEL_HOLDS_MAX; i++) {
        const struct model_hold *h = &m->holds[i];
        if (!h->exists || !is_own(m, a, h->session) || strchr(a->names, h->name) == NULL) {
            continue;
        }
        *ret_same = *ret_same && h->together == a->n && (found == 0 || h->token == *ret_token);
        *ret_token = h->token;
        found++;
    }
    *ret_same = *ret_same && found == a->n;
    return found;
}

static unsigned awaited_of_them(const struct model *m, const struct asked *a, uint64_t *ret_id,
                                bool *ret_same)
{
    unsigned found = 0;
    *ret_id = 0;
    *ret_same = true;
    for (unsigned i = 0; i < MODEL_WAITS_MAX; i++) {
        const struct model_wait *w = &m->waits[i];
        if (!w->exists || !is_own(m, a, w->session) || strchr(a->names, w->name) == NULL) {
            continue;
        }
        *ret_same = *ret_same && w->together == a->n && (found == 0 || w->id == *ret_id);
        *ret_id = w->id;
        found++;
    }
    *ret_same = *ret_same && found == a->n;
    return found;
}

/* Whether this owner has or awaits one of the locks for another user. */
static bool is_foreign(const struct model *m, const struct asked *a)
{
    bool foreign = false;
    for (unsigned i = 0; i < MODEL_HOLDS_MAX; i++) {
        const struct model_hold *h = &m->holds[i];
        foreign = foreign || (h->exists && is_own(m, a, h->session) &&
                              strchr(a->names, h->name) != NULL && !model_owns(m, h->session));
    }
    for (unsigned i = 0; i < MODEL_WAITS_MAX; i++) {
        const struct model_wait *w = &m->waits[i];
        foreign = foreign || (w->exists && is_own(m, a, w->session) &&
                              strchr(a->names, w->name) != NULL && !model_owns(m, w->session));
    }
    return foreign;
}

static bool all_free(const struct model *m, const struct asked *a)
{
    unsigned queue[MODEL_WAITS_MAX];
    for (unsigned i = 0; i < a->n; i++) {
        char name = a->names[i];
        if (model_queue(m, name, queue) > 0 || !model_lets_in(m, name, 1)) {
            return false;
        }
    }
    return true;
}

static uint32_t common_limit(const struct model *m, const struct asked *a)
{
    struct machine_counts n = model_counts(m);
    unsigned created = 0;
    for (unsigned i = 0; i < a->n; i++) {
        created += !model_in_use(m, a->names[i]);
    }
    if (created > 0 && n.locks + created > m->limits.locks_max) {
        return MACHINE_LIMIT_LOCKS;
    }
    if (!a->is_explicit) {
        return n.sessions >= m->limits.sessions_max ? MACHINE_LIMIT_SESSIONS : 0;
    }
    return model_requests(m, (unsigned)a->session) + a->n > m->limits.session_locks_max
               ? MACHINE_LIMIT_SESSION_LOCKS
               : 0;
}

static uint32_t queue_limit(const struct model *m, const struct asked *a)
{
    unsigned queue[MODEL_WAITS_MAX];
    for (unsigned i = 0; i < a->n; i++) {
        if (model_queue(m, a->names[i], queue) >= m->limits.lock_waits_max) {
            return MACHINE_LIMIT_LOCK_WAITS;
        }
    }
    return model_counts(m).waits + a->n > m->limits.waits_max ? MACHINE_LIMIT_WAITS : 0;
}

static unsigned session_for(struct model *m, const struct asked *a, const struct machine_command *c)
{
    if (a->is_explicit) {
        return (unsigned)a->session;
    }
    unsigned s = model_new_session(m, false, a->owner, a->names[0]);
    m->sessions[s].ttl_ms = c->ttl_ms;
    m->sessions[s].uid = model_asker_uid(m);
    return s;
}

static char value_of(const struct machine_command *c)
{
    return c->value.len == 0 ? 0 : (char)c->value.data[0];
}

static void take(struct model *m, const struct asked *a, const struct machine_command *c,
                 struct machine_result *r)
{
    uint32_t limit = common_limit(m, a);
    if (limit == 0 && m->last_token == FL_TOKEN_MAX) {
        limit = MACHINE_LIMIT_TOKENS;
    }
    if (limit != 0) {
        model_answer_limit(m, r, limit);
        return;
    }
    unsigned s = session_for(m, a, c);
    for (unsigned i = 0; i < a->n; i++) {
        m->locks[a->names[i] - 'a'].permits = 1;
    }
    model_grant(m, a->names, s, 1, value_of(c), 0);
    r->code = MACHINE_GRANTED;
    r->token = m->last_token;
    r->deadline_ms = m->sessions[s].deadline_ms;
}

/* The last of its places. */
static uint32_t place(const struct model *m, uint64_t id)
{
    unsigned queue[MODEL_WAITS_MAX];
    uint32_t last = 0;
    for (char name = 'a'; name < (char)('a' + MODEL_NAMES); name++) {
        unsigned n = model_queue(m, name, queue);
        for (uint32_t i = 0; i < n; i++) {
            last = m->waits[queue[i]].id == id && i + 1 > last ? i + 1 : last;
        }
    }
    return last;
}

static void put_wait(struct model *m, struct model_wait w)
{
    unsigned i = 0;
    while (m->waits[i].exists) {
        i++;
    }
    m->waits[i] = w;
}

static void join(struct model *m, const struct asked *a, const struct machine_command *c,
                 struct machine_result *r)
{
    uint32_t limit = queue_limit(m, a);
    limit = limit != 0 ? limit : common_limit(m, a);
    if (limit != 0) {
        model_answer_limit(m, r, limit);
        return;
    }
    if (a->is_explicit && model_closes_cycle(m, (unsigned)a->session, a->names)) {
        m->counts.deadlocks++;
        r->code = MACHINE_DEADLOCK;
        return;
    }
    unsigned s = session_for(m, a, c);
    uint64_t id = ++m->serial;
    for (unsigned i = 0; i < a->n; i++) {
        struct model_lock *l = &m->locks[a->names[i] - 'a'];
        if (!model_in_use(m, a->names[i])) {
            *l = (struct model_lock){.idle = true, .permits = 1, .idle_serial = ++m->serial};
        }
        put_wait(m, (struct model_wait){.exists = true,
                                        .name = a->names[i],
                                        .session = s,
                                        .slots = 1,
                                        .id = id,
                                        .times_asked = 1,
                                        .deadline_ms = m->clock_ms + c->wait_ms,
                                        .index = i,
                                        .together = a->n,
                                        .value = value_of(c)});
        model_tell(m, (struct model_event){.type = MACHINE_EVENT_QUEUED,
                                           .index = (uint8_t)i,
                                           .is_explicit = a->is_explicit,
                                           .name = a->names[i],
                                           .owner = a->owner,
                                           .user = model_user_name(m, m->sessions[s].uid),
                                           .wait = id});
    }
    r->code = MACHINE_QUEUED;
    r->number = place(m, id);
    r->token = 1;
    r->wait = id;
}

static void ask_again(struct model *m, const struct machine_command *c, uint64_t id,
                      struct machine_result *r)
{
    for (unsigned i = 0; i < MODEL_WAITS_MAX; i++) {
        struct model_wait *w = &m->waits[i];
        if (!w->exists || w->id != id) {
            continue;
        }
        uint64_t deadline_ms = m->clock_ms + c->wait_ms;
        w->times_asked++;
        w->deadline_ms = deadline_ms > w->deadline_ms ? deadline_ms : w->deadline_ms;
        if (!m->sessions[w->session].is_explicit) {
            m->sessions[w->session].ttl_ms = c->ttl_ms;
        }
        r->token = w->times_asked;
    }
    r->code = MACHINE_QUEUED;
    r->number = place(m, id);
    r->wait = id;
}

void model_acquire_multi(struct model *m, const struct machine_command *c, struct machine_result *r)
{
    if (c->mode != MACHINE_MODE_EXCLUSIVE || c->permits != 1) {
        r->code = MACHINE_UNSUPPORTED;
        return;
    }
    struct asked a = read_request(m, c);
    if (a.is_explicit && (a.session < 0 || !model_owns(m, (unsigned)a.session))) {
        r->code = MACHINE_NOSESSION;
        return;
    }
    for (unsigned i = 0; i < a.n; i++) {
        uint32_t permits = m->locks[a.names[i] - 'a'].permits;
        if (model_in_use(m, a.names[i]) && permits != 1) {
            r->code = MACHINE_MISMATCH;
            r->number = permits;
            return;
        }
    }
    uint64_t token = 0;
    uint64_t id = 0;
    bool same = false;
    if (is_foreign(m, &a) && held_of_them(m, &a, &token, &same) > 0) {
        model_refuse(r, 0);
    } else if (held_of_them(m, &a, &token, &same) > 0) {
        r->code = same ? MACHINE_GRANTED : MACHINE_MISMATCH;
        for (unsigned i = 0; same && i < MODEL_HOLDS_MAX; i++) {
            if (m->holds[i].exists && m->holds[i].token == token && m->holds[i].index == 0) {
                r->token = token;
                model_renew(m, m->holds[i].session, c->ttl_ms, r);
            }
        }
    } else if (all_free(m, &a)) {
        take(m, &a, c, r);
    } else if ((c->flags & MACHINE_ACQUIRE_WAIT) == 0) {
        r->code = MACHINE_HELD;
    } else if (awaited_of_them(m, &a, &id, &same) == 0) {
        join(m, &a, c, r);
    } else if (is_foreign(m, &a)) {
        model_refuse(r, 0);
    } else if (same) {
        ask_again(m, c, id, r);
    } else {
        r->code = MACHINE_MISMATCH;
    }
}
