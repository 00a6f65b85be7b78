/* pending.h: private to the service of the storage: an operation from its arrival to its answer,
 * the lists that it waits on, and the rules of who is held back and who gives up.
 *
 * Addresses share the queue: they take turns in it (base/line.h), and when the bytes of all that
 * wait reach their ceiling, the address that has the most gives up its last operation
 * (base/share.h). So who sends little is served and admitted whatever others send. An address here
 * is one of PENDING_ADDRESSES, by a random number of the client's. What waits for strict mode's
 * verdict counts like everything else.
 *
 * A connection is behind when its client has not taken SERVICE_DEFER_BYTES of answers. Its next
 * read is deferred then, and with it everything that comes later on that connection, so that the
 * order stays. They go on when the client has caught up. What is deferred has a ceiling of its own,
 * which is shared likewise. */
#ifndef STORE_PENDING_H
#define STORE_PENDING_H

#include "base/line.h"
#include "base/share.h"
#include "store/service.h"
#include "store/strict.h"

#define PENDING_ADDRESSES 256u

enum pending_place { PENDING_NOWHERE, PENDING_UNCHECKED, PENDING_QUEUED, PENDING_DEFERRED };

struct pending {
    struct fli_list link;
    struct fli_list unchecked; /* of its address */
    struct pending_of *of;
    enum pending_place place; /* NOWHERE: in the group */
    struct store_op op;
    struct strict_question question; /* used while `open` */
    bool open;                       /* no verdict yet */
    struct net_request *request;     /* NULL when its connection has gone */
    int proto;                       /* RESP2 or RESP3, as of when it came */
    size_t size;                     /* bytes that count against the limits */
    uint8_t bytes[];                 /* key, lock and value */
};

/* The operations of an address. */
struct pending_of {
    struct fli_share bytes, deferred_bytes;
    struct fli_queue queue;
    struct fli_list deferred, unchecked;
};

struct pending_lists {
    struct pending_of of[PENDING_ADDRESSES];
    struct fli_line line;
    struct fli_list unchecked; /* strict mode: of all, in the order in which they came */
    struct fli_shares bytes;   /* of all operations, also of those in the group */
    struct fli_shares deferred_bytes;
    size_t queued, unchecked_n, deferred_n;
};

void pending_init(struct pending_lists *l);
void pending_fini(struct pending_lists *l);

/* An operation of this address, which counts from now on; zero otherwise. NULL: out of memory. */
struct pending *pending_new(struct pending_lists *l, size_t size, uint64_t address);
void pending_free(struct pending_lists *l, struct pending *p); /* on no list */

void pending_queue(struct pending_lists *l, struct pending *p);
/* Puts it on `unchecked`, which the state of its connection counts. */
void pending_check(struct pending_lists *l, struct pending *p);
struct pending *pending_first_unchecked(const struct pending_lists *l);
void pending_remove(struct pending_lists *l, struct pending *p); /* from its list */
struct pending *pending_any(struct pending_lists *l);            /* on any list; NULL: none */
/* The next of the queue, which leaves it; NULL: it is empty. */
struct pending *pending_next(struct pending_lists *l);
/* 0 or FL_ENOMEM. */
int pending_defer(struct pending_lists *l, struct pending *p) FLI_MUST_USE;
/* For what the group had no room for, the last one first: in front of what came later. */
void pending_queue_front(struct pending_lists *l, struct pending *p);
int pending_defer_front(struct pending_lists *l, struct pending *p) FLI_MUST_USE;

/* Whether there is room for one more, of so many bytes; or for one more that is deferred. */
bool pending_has_room(const struct pending_lists *l, size_t size);
bool pending_may_defer(const struct pending_lists *l, const struct pending *p);
/* Takes off the lists what gives up first, to make room for one more of an address; or for one more
 * that is deferred. NULL: it is the new one itself. If `open`, its question is still asked. */
struct pending *pending_give_up(struct pending_lists *l, uint64_t address);
struct pending *pending_give_up_deferred(struct pending_lists *l, const struct pending *p);

/* The user pointer of a connection is a number: CONN_DEFERRED while it has deferred operations,
 * plus CONN_UNCHECKED for each of its operations that wait for a verdict. */
#define CONN_DEFERRED ((uintptr_t)1)
#define CONN_UNCHECKED ((uintptr_t)2)
uintptr_t pending_conn_state(const struct pending *p); /* 0 when the connection has gone */
void pending_set_conn_state(const struct pending *p, uintptr_t state);

/* Whether operations of its connection are deferred. */
bool pending_is_deferred(const struct pending *p);
/* Whether it has to wait until its client has taken more of its answers. */
bool pending_must_defer(const struct pending *p);
/* Moves what may go on to the front of the queue: everything else of these connections in the queue
 * came later. */
void pending_resume(struct pending_lists *l);

#endif
