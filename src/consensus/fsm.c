/* fsm.c: see fsm.h. */
#include "consensus/fsm.h"

#include <stdlib.h>

#include "base/clock.h"

void fsm_report(struct fsm *f, const struct machine_command *c, const struct machine_result *r)
{
    bool of_lock = c->op == MACHINE_OP_ACQUIRE || c->op == MACHINE_OP_RENEW ||
                   c->op == MACHINE_OP_RELEASE || c->op == MACHINE_OP_KEYS;
    bool refused = r->code == MACHINE_HELD || r->code == MACHINE_NO;
    if (f->config.refused != NULL && of_lock && refused) {
        f->config.refused(f->config.ctx, c, r);
    }
}

static void run_commands(struct fsm *f, struct machine_cursor *cur)
{
    const struct fsm_observer *o = &f->observer;
    struct machine_result result;
    const uint8_t *command = cur->p;
    bool ours = o->batch_begin != NULL && o->batch_begin(o->ctx, &cur->header);
    for (uint32_t i = 0; machine_next(f->machine, cur, &result); i++, command = cur->p) {
        if (result.code == MACHINE_HELD || result.code == MACHINE_NO) {
            struct machine_command c;
            (void)machine_command_redecode(command, (size_t)(cur->p - command), &c);
            fsm_report(f, &c, &result);
        }
        if (ours) {
            o->command_done(o->ctx, i, &result);
        }
    }
    if (ours) {
        o->batch_end(o->ctx);
    }
}

int fsm_apply(struct fsm *f, const void *entry, size_t len)
{
    struct machine_cursor cur;
    if (f->broken != 0) {
        return f->broken;
    }
    enum fli_turn_part part = fli_turn_enter(f->config.host.turn, FLI_TURN_APPLY);
    uint64_t began_ns = fli_clock_ns();
    int rv = machine_begin(f->machine, entry, len, &cur);
    if (rv != 0) {
        f->broken = rv;
        host_fail(&f->config.host, rv, "%s",
                  rv == FL_EVERSION
                      ? "a log entry was written by a newer version of fencelock: upgrade this node"
                      : "a log entry is corrupt: this node must not go on; restore it from its "
                        "peers");
    } else {
        run_commands(f, &cur);
        metrics_observe_ns(&f->apply_times, fli_clock_ns() - began_ns);
        f->entries++;
        f->bytes += len;
    }
    fli_turn_leave(f->config.host.turn, part);
    return rv;
}

struct machine *fsm_replace(struct fsm *f, struct machine *fresh)
{
    struct machine *old = f->machine;
    machine_set_event_cb(old, NULL, NULL);
    f->machine = fresh;
    machine_set_event_cb(fresh, f->config.event, f->config.event_ctx);
    f->restores++;
    if (f->config.restored != NULL) {
        f->config.restored(f->config.ctx);
    }
    return old;
}

int fsm_create(const struct fsm_config *config, struct machine *machine, struct fsm **ret)
{
    struct fsm *f = calloc(1, sizeof *f);
    if (f == NULL) {
        return FL_ENOMEM;
    }
    if (machine == NULL) {
        uint64_t seed[2];
        fli_random(seed, sizeof seed);
        machine = machine_create(seed);
    }
    f->config = *config;
    metrics_histogram_init(&f->apply_times, METRICS_RANGE_FAST);
    f->machine = machine;
    machine_set_event_cb(machine, config->event, config->event_ctx);
    *ret = f;
    return 0;
}

void fsm_destroy(struct fsm *f)
{
    if (f == NULL) {
        return;
    }
    machine_destroy(f->machine);
    free(f);
}
