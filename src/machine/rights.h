/* rights.h (private to machine): answers about the right to acquire that took long to find.
 *
 * After a change of users one entry can check hundreds that wait for one lock, or let them in
 * before they are checked, and long patterns take as long to compare with its name as many grants.
 * So such an answer is remembered until a user is changed or the entry ends. What is remembered is
 * no state: it is forgotten when an entry begins, so it is the same on all replicas. */
#ifndef MACHINE_RIGHTS_H
#define MACHINE_RIGHTS_H

#include "machine/acl.h"
#include "machine/limits.h"

/* How many steps of matching stand for one step of a batch. */
#define RIGHTS_STEP_BYTES 32u

/* How many steps of matching are worth a place: as many as the steps of one record stand for. */
#define RIGHTS_KNOWN_STEPS (MACHINE_STEPS_RECORD * RIGHTS_STEP_BYTES)

#define RIGHTS_KNOWN_MAX 32u
_Static_assert(RIGHTS_KNOWN_MAX > MACHINE_USERS_BYTES_MAX / ACL_PATTERNS_SIZE,
               "there are places for all users whose patterns are as long as may be");

struct known_right {
    uint32_t uid;
    bool may;
    uint8_t name_len;
    uint8_t name[FL_NAME_MAX];
};

struct known_rights {
    struct known_right list[RIGHTS_KNOWN_MAX];
    unsigned n; /* ever, since they were forgotten: the newest took the place of the oldest */
};

void rights_forget(struct known_rights *known);

/* Whether this user may acquire this lock. *steps grows by the cost of matching, unless the answer
 * is remembered. */
bool rights_may_acquire(struct known_rights *known, uint32_t uid, const struct acl_user *u,
                        struct fli_slice name, uint64_t *steps);

#endif
