/* limit.c: one replicated limit, changed while the cluster runs. What is in use stays: a limit
 * below the locks, sessions or waits that there are is refused. How long one queue is, and how many
 * locks one session has, is not known for all of them together; there a lower limit counts for what
 * comes. */
#include "machine/state.h"

static uint32_t *field_of(struct machine_limits *l, uint64_t limit)
{
    switch (limit) {
    case MACHINE_LIMIT_LOCKS:
        return &l->locks_max;
    case MACHINE_LIMIT_SESSIONS:
        return &l->sessions_max;
    case MACHINE_LIMIT_WAITS:
        return &l->waits_max;
    case MACHINE_LIMIT_LOCK_WAITS:
        return &l->lock_waits_max;
    default:
        FLI_ASSERT(limit == MACHINE_LIMIT_SESSION_LOCKS);
        return &l->session_locks_max;
    }
}

static uint64_t in_use(const struct machine *m, uint64_t limit)
{
    switch (limit) {
    case MACHINE_LIMIT_LOCKS:
        return m->locks.len;
    case MACHINE_LIMIT_SESSIONS:
        return machine_sessions_len(m);
    case MACHINE_LIMIT_WAITS:
        return m->waits_by_request.len;
    default:
        return 0;
    }
}

void machine_limit_set(struct machine *m, const struct machine_command *c, struct machine_result *r)
{
    uint64_t used = in_use(m, c->number);
    r->code = used <= c->number2 ? MACHINE_DONE : MACHINE_LIMIT;
    r->number = (uint32_t)c->number;
    r->token = used;
    if (r->code == MACHINE_DONE) {
        *field_of(&m->limits, c->number) = (uint32_t)c->number2;
    }
}
