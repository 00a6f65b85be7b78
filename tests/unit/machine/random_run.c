/* random_run.c: see random_run.h. */
#include "random_run.h"

uint64_t random_below(struct random_run *w, uint64_t n)
{
    return rng_below(&w->rng, n);
}

static const char letters[] = "abcdefghijklmnopqrstuvwxyz";

struct fli_slice letter_slice(char c)
{
    return c == 0 ? (struct fli_slice){NULL, 0}
                  : (struct fli_slice){(const uint8_t *)&letters[c - 'a'], 1};
}

static struct fli_slice any_name(struct random_run *w)
{
    return letter_slice((char)('a' + random_below(w, MODEL_NAMES)));
}

static struct fli_slice any_owner(struct random_run *w)
{
    return letter_slice((char)('u' + random_below(w, MODEL_OWNERS)));
}

static struct fli_slice any_text(struct random_run *w)
{
    return random_below(w, 2) == 0 ? letter_slice(0)
                                   : letter_slice((char)('a' + random_below(w, 26)));
}

static struct machine_limits any_limits(struct random_run *w)
{
    if (!w->small_limits || random_below(w, 2) == 0) {
        return MACHINE_LIMITS_DEFAULT;
    }
    return (struct machine_limits){
        .locks_max = (uint32_t)(1 + random_below(w, 6)),
        .sessions_max = (uint32_t)(1 + random_below(w, 12)),
        .waits_max = (uint32_t)(1 + random_below(w, 10)),
        .lock_waits_max = (uint32_t)(1 + random_below(w, 5)),
        .session_locks_max = (uint32_t)(1 + random_below(w, 5)),
    };
}

/* Some more names, all different, as a rule none that are semaphores. Now and then in a shape that
 * is not executed. */
static void ask_for_several(struct random_run *w, struct machine_command *c)
{
    size_t len = 0;
    uint64_t start = random_below(w, MODEL_NAMES);
    uint64_t most = 1 + random_below(w, random_below(w, 3) == 0 ? MODEL_NAMES : 2);
    for (uint64_t i = 0; i < MODEL_NAMES && c->n_names < 1 + most; i++) {
        uint64_t index = (start + i) % MODEL_NAMES;
        char name = (char)('a' + index);
        if (name != (char)c->name.data[0] && (index >= w->semaphores || random_below(w, 20) == 0)) {
            len = machine_also_add(w->also, len, letter_slice(name));
            c->n_names++;
        }
    }
    c->also = (struct fli_slice){w->also, len};
    c->mode = random_below(w, 100) == 0 ? MACHINE_MODE_SHARED : MACHINE_MODE_EXCLUSIVE;
    c->permits = random_below(w, 100) == 0 ? 2 : 1;
}

static struct machine_command any_acquire(struct random_run *w)
{
    struct machine_command c = {.op = MACHINE_OP_ACQUIRE, .n_names = 1, .permits = 1};
    c.name = any_name(w);
    c.owner = any_owner(w);
    c.value = any_text(w);
    if (random_below(w, 100) < w->explicit_percent) {
        c.flags |= MACHINE_ACQUIRE_EXPLICIT;
    } else {
        c.ttl_ms = 10 + random_below(w, 40) * w->duration_factor;
    }
    if (random_below(w, 3) != 0) {
        c.flags |= MACHINE_ACQUIRE_WAIT;
        c.wait_ms = 1 + random_below(w, 80) * w->duration_factor;
    }
    if (random_below(w, 100) < w->shared_percent) {
        c.mode = MACHINE_MODE_SHARED;
    }
    /* Some names are semaphores, as a rule. */
    uint64_t index = c.name.data[0] - (uint64_t)'a';
    if (index < w->semaphores && random_below(w, 10) != 0) {
        c.mode = MACHINE_MODE_EXCLUSIVE;
        c.permits = 2 + (uint32_t)index;
    } else if (random_below(w, 60) == 0) {
        c.permits = 2;
    }
    if (random_below(w, 100) < w->multi_lock_percent) {
        ask_for_several(w, &c);
    }
    if (w->users && c.n_names > 1) {
        c.flags &= (uint8_t)~MACHINE_ACQUIRE_WAIT;
        c.wait_ms = 0;
    }
    return c;
}

/* A lock and its token, as a rule. */
static void aim_at_held(struct random_run *w, struct machine_command *c)
{
    unsigned holds[MODEL_HOLDS_MAX];
    char name = (char)('a' + random_below(w, MODEL_NAMES));
    unsigned n = model_holders(&w->model, name, holds);
    c->name = letter_slice(name);
    c->token = n == 0 ? 0 : w->model.holds[holds[random_below(w, n)]].token;
    if (random_below(w, 8) == 0) {
        c->token = random_below(w, 3) == 0 ? 0 : w->model.last_token - (w->model.last_token > 0);
    }
}

static struct machine_command any_cancel(struct random_run *w)
{
    struct machine_command c = {.op = MACHINE_OP_CANCEL, .number = w->model.serial, .number2 = 1};
    const struct model_wait *x = &w->model.waits[random_below(w, MODEL_WAITS_MAX)];
    if (x->exists) {
        c.number = x->id;
        c.number2 = x->times_asked - (random_below(w, 4) == 0);
    }
    return c;
}

static struct machine_command any_rare(struct random_run *w)
{
    switch (random_below(w, 8)) {
    case 0:
        return cmd_limits(MACHINE_OP_LIMITS, 0, any_limits(w));
    case 1:
        return cmd_limits(MACHINE_OP_INIT, 1 + random_below(w, 3), MACHINE_LIMITS_DEFAULT);
    case 2:
        return cmd_number(MACHINE_OP_RAISE, 1 + random_below(w, 10), 0);
    case 3:
        return cmd_name(MACHINE_OP_TOKEN, "a");
    default:
        return random_any_change_of_nodes(w);
    }
}

static struct machine_command any_of_locks(struct random_run *w)
{
    struct machine_command c = {.op = 0};
    uint64_t dice = random_below(w, 100);
    if (dice < 50) {
        return any_acquire(w);
    }
    if (dice < 62) {
        c.op = MACHINE_OP_RELEASE;
        aim_at_held(w, &c);
    } else if (dice < 68) {
        c.op = MACHINE_OP_RENEW;
        aim_at_held(w, &c);
        c.ttl_ms = random_below(w, 2) == 0 ? 0 : 10 + random_below(w, 60);
    } else if (dice < 72) {
        c.op = MACHINE_OP_BREAK;
        c.name = any_name(w);
    } else if (dice < 76) {
        return any_cancel(w);
    } else if (dice < 90) {
        c.op = MACHINE_OP_SESSION_OPEN;
        c.owner = any_owner(w);
        c.ttl_ms = 10 + random_below(w, 60) * w->duration_factor;
        c.lockdelay_ms = random_below(w, 2) == 0 ? 0 : 1 + random_below(w, 40);
        c.label = any_text(w);
    } else if (dice < 95) {
        c.op = random_below(w, 3) == 0 ? MACHINE_OP_SESSION_CLOSE : MACHINE_OP_SESSION_RENEW;
        c.owner = any_owner(w);
    } else {
        return any_rare(w);
    }
    return c;
}

struct machine_command random_any_command(struct random_run *w)
{
    if (!w->users) {
        return any_of_locks(w);
    }
    struct machine_command c = random_below(w, w->user_command_interval) == 0
                                   ? random_any_change_of_users(w)
                                   : any_of_locks(w);
    random_set_user(w, &c);
    return c;
}
