/* world.c: see world.h. */
#include "world.h"

uint64_t world_below(struct world *w, uint64_t n)
{
    return rng_below(&w->rng, n);
}

static const char letters[] = "abcdefghijklmnopqrstuvwxyz";

struct fli_slice world_letter(char c)
{
    return c == 0 ? (struct fli_slice){NULL, 0}
                  : (struct fli_slice){(const uint8_t *)&letters[c - 'a'], 1};
}

static struct fli_slice any_name(struct world *w)
{
    return world_letter((char)('a' + world_below(w, MODEL_NAMES)));
}

static struct fli_slice any_owner(struct world *w)
{
    return world_letter((char)('u' + world_below(w, MODEL_OWNERS)));
}

static struct fli_slice any_text(struct world *w)
{
    return world_below(w, 2) == 0 ? world_letter(0)
                                  : world_letter((char)('a' + world_below(w, 26)));
}

static struct machine_limits any_limits(struct world *w)
{
    if (!w->narrow || world_below(w, 2) == 0) {
        return MACHINE_LIMITS_DEFAULT;
    }
    return (struct machine_limits){
        .locks_max = (uint32_t)(1 + world_below(w, 6)),
        .sessions_max = (uint32_t)(1 + world_below(w, 12)),
        .waits_max = (uint32_t)(1 + world_below(w, 10)),
        .lock_waits_max = (uint32_t)(1 + world_below(w, 5)),
        .session_locks_max = (uint32_t)(1 + world_below(w, 5)),
    };
}

/* Some more names, all different, as a rule none that are semaphores. Now and then in a shape that
 * is not executed. */
static void ask_for_several(struct world *w, struct machine_command *c)
{
    size_t len = 0;
    uint64_t start = world_below(w, MODEL_NAMES);
    uint64_t most = 1 + world_below(w, world_below(w, 3) == 0 ? MODEL_NAMES : 2);
    for (uint64_t i = 0; i < MODEL_NAMES && c->n_names < 1 + most; i++) {
        uint64_t index = (start + i) % MODEL_NAMES;
        char name = (char)('a' + index);
        if (name != (char)c->name.data[0] && (index >= w->semaphores || world_below(w, 20) == 0)) {
            len = machine_also_add(w->also, len, world_letter(name));
            c->n_names++;
        }
    }
    c->also = (struct fli_slice){w->also, len};
    c->mode = world_below(w, 100) == 0 ? MACHINE_MODE_SHARED : MACHINE_MODE_EXCLUSIVE;
    c->permits = world_below(w, 100) == 0 ? 2 : 1;
}

static struct machine_command any_acquire(struct world *w)
{
    struct machine_command c = {.op = MACHINE_OP_ACQUIRE, .n_names = 1, .permits = 1};
    c.name = any_name(w);
    c.owner = any_owner(w);
    c.value = any_text(w);
    if (world_below(w, 100) < w->explicit_percent) {
        c.flags |= MACHINE_ACQUIRE_EXPLICIT;
    } else {
        c.ttl_ms = 10 + world_below(w, 40) * w->patience;
    }
    if (world_below(w, 3) != 0) {
        c.flags |= MACHINE_ACQUIRE_WAIT;
        c.wait_ms = 1 + world_below(w, 80) * w->patience;
    }
    if (world_below(w, 100) < w->shared_percent) {
        c.mode = MACHINE_MODE_SHARED;
    }
    /* Some names are semaphores, as a rule. */
    uint64_t index = c.name.data[0] - (uint64_t)'a';
    if (index < w->semaphores && world_below(w, 10) != 0) {
        c.mode = MACHINE_MODE_EXCLUSIVE;
        c.permits = 2 + (uint32_t)index;
    } else if (world_below(w, 60) == 0) {
        c.permits = 2;
    }
    if (world_below(w, 100) < w->several_percent) {
        ask_for_several(w, &c);
    }
    if (w->users && c.n_names > 1) {
        c.flags &= (uint8_t)~MACHINE_ACQUIRE_WAIT;
        c.wait_ms = 0;
    }
    return c;
}

/* A lock and its token, as a rule. */
static void aim_at_held(struct world *w, struct machine_command *c)
{
    unsigned holds[MODEL_HOLDS_MAX];
    char name = (char)('a' + world_below(w, MODEL_NAMES));
    unsigned n = model_holders(&w->model, name, holds);
    c->name = world_letter(name);
    c->token = n == 0 ? 0 : w->model.holds[holds[world_below(w, n)]].token;
    if (world_below(w, 8) == 0) {
        c->token = world_below(w, 3) == 0 ? 0 : w->model.last_token - (w->model.last_token > 0);
    }
}

static struct machine_command any_cancel(struct world *w)
{
    struct machine_command c = {.op = MACHINE_OP_CANCEL, .number = w->model.serial, .number2 = 1};
    const struct model_wait *x = &w->model.waits[world_below(w, MODEL_WAITS_MAX)];
    if (x->exists) {
        c.number = x->id;
        c.number2 = x->times_asked - (world_below(w, 4) == 0);
    }
    return c;
}

static struct machine_command any_rare(struct world *w)
{
    switch (world_below(w, 8)) {
    case 0:
        return cmd_limits(MACHINE_OP_LIMITS, 0, any_limits(w));
    case 1:
        return cmd_limits(MACHINE_OP_INIT, 1 + world_below(w, 3), MACHINE_LIMITS_DEFAULT);
    case 2:
        return cmd_number(MACHINE_OP_RAISE, 1 + world_below(w, 10), 0);
    case 3:
        return cmd_name(MACHINE_OP_TOKEN, "a");
    default:
        return world_any_change_of_nodes(w);
    }
}

static struct machine_command any_of_locks(struct world *w)
{
    struct machine_command c = {.op = 0};
    uint64_t dice = world_below(w, 100);
    if (dice < 50) {
        return any_acquire(w);
    }
    if (dice < 62) {
        c.op = MACHINE_OP_RELEASE;
        aim_at_held(w, &c);
    } else if (dice < 68) {
        c.op = MACHINE_OP_RENEW;
        aim_at_held(w, &c);
        c.ttl_ms = world_below(w, 2) == 0 ? 0 : 10 + world_below(w, 60);
    } else if (dice < 72) {
        c.op = MACHINE_OP_BREAK;
        c.name = any_name(w);
    } else if (dice < 76) {
        return any_cancel(w);
    } else if (dice < 90) {
        c.op = MACHINE_OP_SESSION_OPEN;
        c.owner = any_owner(w);
        c.ttl_ms = 10 + world_below(w, 60) * w->patience;
        c.lockdelay_ms = world_below(w, 2) == 0 ? 0 : 1 + world_below(w, 40);
        c.label = any_text(w);
    } else if (dice < 95) {
        c.op = world_below(w, 3) == 0 ? MACHINE_OP_SESSION_CLOSE : MACHINE_OP_SESSION_RENEW;
        c.owner = any_owner(w);
    } else {
        return any_rare(w);
    }
    return c;
}

struct machine_command world_any_command(struct world *w)
{
    if (!w->users) {
        return any_of_locks(w);
    }
    struct machine_command c =
        world_below(w, w->unrest) == 0 ? world_any_change_of_users(w) : any_of_locks(w);
    world_say_who(w, &c);
    return c;
}
