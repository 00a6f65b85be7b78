/* view.h: the payloads that machine_query() appends, and how to read them back. A payload may come
 * over a socket from another node, so the reader checks bounds and ranges and trusts no count. */
#ifndef MACHINE_VIEW_H
#define MACHINE_VIEW_H

#include <stdbool.h>

#include "base/buf.h"
#include "base/bytes.h"

enum machine_lock_state {
    MACHINE_LOCK_HELD = 1,
    MACHINE_LOCK_DELAYED = 2,
    MACHINE_LOCK_QUEUED = 3
};

enum machine_lock_mode {
    MACHINE_LOCK_NONE = 0, /* nobody holds it */
    MACHINE_LOCK_EXCLUSIVE,
    MACHINE_LOCK_SHARED,
    MACHINE_LOCK_PERMITS, /* a semaphore */
};

/* One lock with one of its holders. Times are on the cluster clock of the moment of the answer. */
struct machine_lock_view {
    uint8_t state;
    bool session_explicit;
    struct fli_slice name;
    struct fli_slice owner;   /* of the holder; empty unless HELD */
    struct fli_slice label;   /* of the holder's session */
    struct fli_slice value;   /* read back as digits when the hold is counted */
    uint32_t count;           /* for writing: how often it was taken; 0: not counted */
    struct fli_slice user;    /* the session's user; empty: the default user, or one that was
                                 deleted */
    struct fli_slice address; /* where the request came from (batch.h); empty: not recorded */
    uint64_t token;           /* 0 unless HELD */
    uint64_t since_ms;        /* cluster clock of the grant */
    uint64_t ttl_left_ms;     /* of the holder's lease, or of the delay */
    uint32_t renewals;        /* of that lease; 2^32 - 1: that often or more */
    uint32_t waiters;
    uint32_t holders;
    uint32_t permits; /* 1 unless it is a semaphore */
    uint8_t mode;     /* enum machine_lock_mode */
    uint8_t together; /* number of locks of this grant; 1 unless HELD */
};

struct machine_session_view {
    bool session_explicit;
    struct fli_slice owner;
    struct fli_slice label;
    struct fli_slice lock;          /* implicit: its lock */
    struct fli_slice user, address; /* as above */
    uint64_t ttl_ms;
    uint64_t ttl_left_ms; /* 0 for an implicit session that waits: it has no lease yet */
    uint64_t lockdelay_ms;
    uint32_t locks; /* held */
    uint32_t waits;
    uint8_t together; /* in a queue: number of locks of this wait; else 0 */
};

/* A payload is: kind (1), more (1), reserved (2), count (4), cursor (4-byte length, bytes), then
 * count records, each with its own 4-byte length in front. SHOW is a page of one lock with its
 * oldest holder, followed by the same lock with each other holder (`holders` says how many there
 * are) and by its queue as sessions (`waiters` says how many), as far as they fit. The byte table
 * is at the top of view.c. A cursor is short text without blanks; what it means is private. */
struct machine_page {
    bool more; /* there is a next page; ask again with `cursor` */
    struct fli_slice cursor;
    uint32_t count;         /* records not yet read */
    struct fli_reader rest; /* private */
};
int machine_page_open(const void *data, size_t len, struct machine_page *ret) FLI_MUST_USE;
/* 1: one more record read; 0: end; FL_ECORRUPT. */
int machine_page_next_lock(struct machine_page *p, struct machine_lock_view *ret) FLI_MUST_USE;
int machine_page_next_session(struct machine_page *p,
                              struct machine_session_view *ret) FLI_MUST_USE;
/* Whether the next record is a lock. SHOW has fewer holders than `holders` says while some of these
 * are over and not yet taken away. */
bool machine_page_is_at_lock(const struct machine_page *p);

#endif
