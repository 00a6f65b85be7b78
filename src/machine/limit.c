/* limit.c: limits and settings, changed while the cluster runs. A limit below the present number of
 * locks, sessions or waits is refused. The longest queue and the most locks of one session are not
 * known; so a lower limit on those applies to later requests only. */
#include <stddef.h>

#include "machine/state.h"

/* The fields, in the order of their numbers. */
#define LIMIT(field) offsetof(struct machine_limits, field)
static const size_t limits_at[MACHINE_LIMITS_SETTABLE] = {LIMIT(locks_max), LIMIT(sessions_max),
                                                          LIMIT(waits_max), LIMIT(lock_waits_max),
                                                          LIMIT(session_locks_max)};
#define SETTING(field) offsetof(struct machine_settings, field)
static const struct {
    uint32_t min, max;
} bounds[MACHINE_SETTINGS] = MACHINE_SETTING_BOUNDS;
static const size_t settings_at[MACHINE_SETTINGS] = {SETTING(election_ms), SETTING(heartbeat_ms),
                                                     SETTING(hold_ms), SETTING(log_level)};

static uint32_t *field_of(void *record, const size_t *places, uint64_t number)
{
    return (uint32_t *)(void *)((uint8_t *)record + places[number - 1]);
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

static void set_limit(struct machine *m, const struct machine_command *c, struct machine_result *r)
{
    uint64_t used = in_use(m, c->number);
    r->code = used <= c->number2 ? MACHINE_DONE : MACHINE_LIMIT;
    r->number = (uint32_t)c->number;
    r->token = used;
    if (r->code == MACHINE_DONE) {
        *field_of(&m->limits, limits_at, c->number) = (uint32_t)c->number2;
    }
}

/* ---- settings -------------------------------------------------------------------------------- */

void machine_setting_bounds(enum machine_setting setting, uint32_t *ret_min, uint32_t *ret_max)
{
    FLI_ASSERT(setting >= 1 && setting <= MACHINE_SETTINGS);
    *ret_min = bounds[setting - 1].min;
    *ret_max = bounds[setting - 1].max;
}

bool machine_setting_ok(uint64_t setting, uint64_t value)
{
    return setting >= 1 && setting <= MACHINE_SETTINGS &&
           (value == 0 || (value >= bounds[setting - 1].min && value <= bounds[setting - 1].max));
}

bool machine_settings_ok(const struct machine_settings *s)
{
    struct machine_settings copy = *s;
    bool each = true;
    for (unsigned i = 1; i <= MACHINE_SETTINGS; i++) {
        each = each && machine_setting_ok(i, *field_of(&copy, settings_at, i));
    }
    return each && (s->election_ms == 0 || s->heartbeat_ms == 0 ||
                    s->election_ms >= MACHINE_HEARTBEATS_MIN * s->heartbeat_ms);
}

/* MISMATCH: `token` is the present value of the other time. */
static void set_setting(struct machine *m, const struct machine_command *c,
                        struct machine_result *r)
{
    struct machine_settings wanted = m->settings;
    *field_of(&wanted, settings_at, c->number) = (uint32_t)c->number2;
    bool good = machine_settings_ok(&wanted);
    r->code = good ? MACHINE_DONE : MACHINE_MISMATCH;
    r->number = (uint32_t)c->number;
    r->token =
        c->number == MACHINE_SETTING_ELECTION ? m->settings.heartbeat_ms : m->settings.election_ms;
    if (good) {
        m->settings = wanted;
    }
}

void machine_config_apply(struct machine *m, const struct machine_command *c,
                          struct machine_result *r)
{
    switch (c->op) {
    case MACHINE_OP_LIMIT_SET:
        set_limit(m, c, r);
        break;
    case MACHINE_OP_SETTING_SET:
        set_setting(m, c, r);
        break;
    default:
        FLI_ASSERT(c->op == MACHINE_OP_LIMITS);
        m->limits = c->limits;
        r->code = MACHINE_DONE;
        break;
    }
}
