/* scripts.h: a client that sends one request at a time to any node, and goes on when it is answered
 * or has waited long enough. What it sends, and what it makes of an answer, is its owner's
 * (keyed.c, reenter.c). */
#ifndef SIM_SCRIPTS_H
#define SIM_SCRIPTS_H

#include "base/base.h"
#include "sim.h"

#define SIM_SCRIPTERS 3u /* of each owner */

struct sim_scripter {
    struct sim *sim;
    unsigned index;
    struct sim_random random;
    uint64_t serial; /* of the request that is awaited; others are ignored */
    uint64_t asked_at;
    unsigned tries;
    bool waiting;
    void (*act)(struct sim_scripter *p);
    void (*write)(struct sim_scripter *p, const struct sim_node *to, struct fli_buf *b);
    void (*told)(struct sim *s, uint64_t serial, const struct machine_result *r, const void *data,
                 size_t len);
};

/* `how` has the functions; the rest is set. */
void sim_scripter_init(struct sim_scripter *p, const struct sim_scripter *how, struct sim *s,
                       unsigned index, uint64_t random);
uint64_t sim_scripter_below(struct sim_scripter *p, uint64_t n);
void sim_scripter_ask(struct sim_scripter *p);
void sim_scripter_rest(struct sim_scripter *p); /* for a while; then it acts */
/* Whether this is what it waits for. r NULL: nobody knows, or the machine has not seen it. */
bool sim_scripter_hears(struct sim_scripter *p, uint64_t serial, const struct machine_result *r,
                        const void *data, size_t len);
/* Nothing of it is on its way any more. */
bool sim_scripter_is_idle(const struct sim_scripter *p);

void sim_put_word(struct fli_buf *b, const char *format, ...) FLI_PRINTF(2, 3);

#endif
