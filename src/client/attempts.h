/* attempts.h: the numbers of the sendings of one ACQUIRE, so that a node can tell a late one from
 * the newest. Each sending has a larger one than the last; the first has 1.
 *
 * After a call whose outcome stayed unknown its last sending may still be on its way, so the calls
 * of the next hour begin above it. What a node remembers of earlier calls it says by LATE. */
#ifndef FLI_CLIENT_ATTEMPTS_H
#define FLI_CLIENT_ATTEMPTS_H

#include "client/call_state.h"

#define FLI_ATTEMPTS_UNCERTAIN_MS UINT64_C(3600000)

struct fli_attempts {
    uint64_t above;
    uint64_t until_ms;
};

/* The number of the next sending, after one numbered `last` (0: this is the first of a call). */
static inline uint64_t fli_attempts_next(const struct fli_attempts *a, uint64_t last,
                                         uint64_t now_ms)
{
    uint64_t least = last == 0 && now_ms < a->until_ms ? a->above : last;
    return least + 1;
}

/* A call has ended that had sent `last` at last. */
static inline void fli_attempts_learn(struct fli_attempts *a, const struct fli_call_state *ended,
                                      uint64_t last, uint64_t now_ms)
{
    if (ended->status == 0 || !ended->unknown || last == 0) {
        return;
    }
    bool uncertain = now_ms < a->until_ms;
    a->above = uncertain && a->above > last ? a->above : last;
    a->until_ms = now_ms + FLI_ATTEMPTS_UNCERTAIN_MS;
}

#endif
