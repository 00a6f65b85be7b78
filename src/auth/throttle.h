/* throttle.h: delays login attempts from addresses that have failed. Attempts from one such address
 * come one after the other, further apart the more often it has failed. Addresses without a failure
 * are not delayed by others. Pure: time comes as an argument. Bounded: beyond THROTTLE_MAX
 * addresses, the one with the oldest failure is forgotten. */
#ifndef AUTH_THROTTLE_H
#define AUTH_THROTTLE_H

#include "machine/acl.h"

#define THROTTLE_MAX 1024u
#define THROTTLE_FREE 3u /* failures without a delay */
/* Delay after the next failure; each further one doubles it. */
#define THROTTLE_STEP_MS UINT64_C(250)
#define THROTTLE_STEP_MAX_MS UINT64_C(5000)
#define THROTTLE_AHEAD_MS UINT64_C(15000) /* an attempt that would wait longer is refused */
/* Time without a failure after which it is forgotten. */
#define THROTTLE_FORGET_MS UINT64_C(600000)

struct throttle_entry {
    uint8_t address[16];
    uint64_t failed_ms; /* the last failure; 0: the entry is free */
    uint64_t next_ms;   /* when the next attempt may be checked */
    unsigned failures;
    uint8_t user[ACL_NAME_MAX]; /* whose failures they are */
    size_t user_len;
    bool others; /* there are failures of another user, too */
};

struct throttle {
    struct throttle_entry entries[THROTTLE_MAX];
    uint64_t failures; /* ever */
};

/* Returns when an attempt from this address may be checked (now or later), and reserves that time.
 * UINT64_MAX: never, too many attempts are before it. The address: 4 bytes, or 16, of which the
 * first 8 count; empty: this machine. */
uint64_t throttle_ask(struct throttle *t, struct fli_slice address, uint64_t now_ms);
/* The user: at most ACL_NAME_MAX bytes; empty when the name cannot be that of a user. */
void throttle_failed(struct throttle *t, struct fli_slice address, struct fli_slice user,
                     uint64_t now_ms);
/* Forgives the failures of this user, unless there are others from the address: whoever guesses
 * another's password could log in as himself in between. */
void throttle_succeeded(struct throttle *t, struct fli_slice address, struct fli_slice user);

#endif
