/* throttle.h: who has failed to log in, by address, and how long he is to wait before he may try
 * again. Attempts of one address that has failed are spread out, one behind the other, further
 * apart the more often it has failed; who has not failed is not held up by others. Pure: time comes
 * as an argument. Bounded: beyond THROTTLE_MAX addresses the one that failed longest ago is
 * forgotten. */
#ifndef AUTH_THROTTLE_H
#define AUTH_THROTTLE_H

#include "base/base.h"

#define THROTTLE_MAX 1024u
#define THROTTLE_FREE 3u               /* failures that cost nothing */
#define THROTTLE_STEP_MS UINT64_C(250) /* for the next, twice as much for each after it */
#define THROTTLE_STEP_MAX_MS UINT64_C(5000)
#define THROTTLE_AHEAD_MS UINT64_C(15000)   /* who would have to wait longer is refused */
#define THROTTLE_FORGET_MS UINT64_C(600000) /* without a failure */

struct throttle_entry {
    uint8_t address[16];
    uint64_t failed_ms; /* last; 0: the entry is free */
    uint64_t next_ms;   /* when the next attempt may be looked at */
    unsigned failures;
};

struct throttle {
    struct throttle_entry entries[THROTTLE_MAX];
    uint64_t failures; /* ever */
};

/* When an attempt from here may be looked at (now, or later), which takes the turn. UINT64_MAX: not
 * at all, there are too many before it. The address: 4 or 16 bytes, of the latter the first 8
 * count; none: this machine. */
uint64_t throttle_ask(struct throttle *t, struct fli_slice address, uint64_t now_ms);
void throttle_failed(struct throttle *t, struct fli_slice address, uint64_t now_ms);
void throttle_succeeded(struct throttle *t, struct fli_slice address);

#endif
