/* throttle.h: spreads login attempts from addresses that have failed, and keeps failures of some
 * from locking others out of the same address (a load balancer is one address):
 *
 *   the attempt                            waits for
 *   logged in lately, with this password   nothing
 *   any other                              its user's failures from this address: longer each time
 *                                          and those of the address: THROTTLE_STEP_MS apart
 *
 * Whoever is told at once that a password is wrong has guessed at once, too. So a login goes before
 * others for THROTTLE_JUDGED_MAX wrong passwords of its user from there, and for no more.
 *
 * So guesses at one user's password come ever more slowly, guesses at many users' (or at invented
 * names) from one address at a constant pace, and whoever has logged in from there goes before all
 * of them. Others from there wait for a few turns of that pace.
 *
 * An attempt that is under way may fail: it counts with the failures among the free ones, until its
 * end is known.
 *
 * Both tables are bounded. Addresses share that of failures: beyond THROTTLE_MAX the one with the
 * most forgets its oldest (base/share.h). Users share that of logins likewise. Pure: time comes as
 * an argument. */
#ifndef AUTH_THROTTLE_H
#define AUTH_THROTTLE_H

#include "auth/hash.h"
#include "base/list.h"
#include "base/share.h"
#include "machine/acl.h"

#define THROTTLE_MAX 1024u /* in each of the two tables */
#define THROTTLE_FREE 3u   /* failures, and attempts under way, without a delay */
/* Delay after the next failure; each further one of a user doubles it. */
#define THROTTLE_STEP_MS UINT64_C(250)
#define THROTTLE_STEP_MAX_MS UINT64_C(5000)
#define THROTTLE_AHEAD_MS UINT64_C(15000) /* an attempt that would wait longer is refused */
/* Wrong passwords from an address that are told from the right one at once, after a login from
 * there had to wait like others. */
#define THROTTLE_JUDGED_MAX 100u
/* Time without a failure after which it is forgotten. */
#define THROTTLE_FORGET_MS UINT64_C(600000)

/* An attempt. The address: 4 bytes, or 16, of which the first 8 count; empty: this machine. The
 * user: at most ACL_NAME_MAX bytes; empty when the name cannot be that of a user. The tag stands
 * for the password: auth_tag() with the key of the throttle, AUTH_TAG_SIZE bytes. `counted` is set
 * by throttle_ask(): the attempt counts as under way. */
struct throttle_who {
    struct fli_slice address, user;
    const uint8_t *tag;
    bool counted;
};

struct throttle_entry {
    struct fli_list link; /* of those that share, the oldest first */
    unsigned group;       /* whose share it is */
    uint8_t address[16];
    uint8_t user[ACL_NAME_MAX]; /* of failures: empty for all of the address */
    size_t user_len;
    uint64_t at_ms;             /* the last failure, or login */
    uint64_t next_ms;           /* when the next attempt may be checked */
    unsigned failures;          /* of a login: 0 */
    unsigned under_way;         /* attempts that may fail */
    unsigned judged;            /* of a login: the wrong passwords that were told from it */
    uint8_t tag[AUTH_TAG_SIZE]; /* of a login */
};

#define THROTTLE_GROUPS 128u
struct throttle_table {
    struct throttle_entry entries[THROTTLE_MAX];
    unsigned n; /* entries ever used */
    struct fli_list spare;
    struct fli_shares shares;
    struct {
        struct fli_share share;
        struct fli_list entries;
    } groups[THROTTLE_GROUPS]; /* of addresses, or of users, by a random number of theirs */
};

struct throttle {
    struct throttle_table failed, logged_in;
    uint64_t seed[2];
    uint8_t key[AUTH_TAG_SIZE]; /* for tags */
    uint64_t failures;          /* ever */
};

void throttle_init(struct throttle *t);
void throttle_fini(struct throttle *t); /* clears it, too */

/* Returns when an attempt may be checked (now or later), and reserves that time. UINT64_MAX: never,
 * too many attempts are before it. Each other attempt ends with one of the three below. */
uint64_t throttle_ask(struct throttle *t, struct throttle_who *who, uint64_t now_ms);
void throttle_failed(struct throttle *t, const struct throttle_who *who, uint64_t now_ms);
/* Forgives the failures of this user from this address. */
void throttle_succeeded(struct throttle *t, const struct throttle_who *who, uint64_t now_ms);
/* It was not checked. */
void throttle_left(struct throttle *t, const struct throttle_who *who);

#endif
