/* attempts.h: the numbers of the attempts at one ACQUIRE, so that a node can tell a late attempt
 * from the newest. Each attempt has a larger number than the one before; the first has 1.
 *
 * After a call whose outcome stayed unknown, or that was cancelled, its last attempt may still be
 * on its way. So calls of the next hour begin with a larger number. A node that remembers a still
 * larger one answers LATE, with that number. */
#ifndef FLI_CLIENT_ATTEMPTS_H
#define FLI_CLIENT_ATTEMPTS_H

#include "client/call_state.h"

#define FLI_ATTEMPTS_UNCERTAIN_MS UINT64_C(3600000)

struct fli_attempts {
    uint64_t above;    /* calls begin above this number, */
    uint64_t until_ms; /* until this time */
};

/* The number of the next attempt, after the one numbered `last` (0: this is the first of a
 * call). */
static inline uint64_t fli_attempts_next(const struct fli_attempts *a, uint64_t last,
                                         uint64_t now_ms)
{
    uint64_t least = last == 0 && now_ms < a->until_ms ? a->above : last;
    return least + 1;
}

static inline void fli_attempts_uncertain(struct fli_attempts *a, uint64_t last, uint64_t now_ms)
{
    bool uncertain = now_ms < a->until_ms;
    a->above = uncertain && a->above > last ? a->above : last;
    a->until_ms = now_ms + FLI_ATTEMPTS_UNCERTAIN_MS;
}

/* The number of an attempt that may still be on its way; 0: there is none. */
static inline uint64_t fli_attempts_last(const struct fli_attempts *a, uint64_t now_ms)
{
    return now_ms < a->until_ms ? a->above : 0;
}

/* A call has ended, or is given up before its end, and `last` is the number of its last attempt.
 * What it waits for an answer to may still be on its way. */
static inline void fli_attempts_end(struct fli_attempts *a, const struct fli_call_state *call,
                                    uint64_t last, uint64_t now_ms)
{
    bool over = call->order.want == FLI_WANT_NOTHING;
    bool uncertain = over ? call->status != 0 && call->unknown : fli_call_state_is_out(call);
    if (uncertain && last != 0) {
        fli_attempts_uncertain(a, last, now_ms);
    }
}

#endif
