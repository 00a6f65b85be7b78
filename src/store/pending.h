/* pending.h: private to the service of the storage: an operation from its arrival to its answer,
 * the lists that it waits on, and the rule of who is held back.
 *
 * A connection is behind when its client has not taken SERVICE_DEFER_BYTES of answers. Its next
 * read is deferred then, and with it everything that comes later on that connection, so that the
 * order stays. They go on when the client has caught up. */
#ifndef STORE_PENDING_H
#define STORE_PENDING_H

#include "store/service.h"
#include "store/strict.h"

struct pending {
    struct fli_list link;
    struct pending_list *on; /* the list; NULL: in the group */
    struct store_op op;
    struct strict_question question; /* used while `open` */
    bool open;                       /* no verdict yet */
    struct net_request *request;     /* NULL when its connection has gone */
    int proto;                       /* RESP2 or RESP3, as of when it came */
    size_t size;                     /* bytes that count against the limits */
    uint8_t bytes[];                 /* key, lock and value */
};

struct pending_list {
    struct fli_list list;
    size_t n;
    size_t bytes; /* the sum of their sizes */
};

void pending_list_init(struct pending_list *l);
struct pending *pending_first(const struct pending_list *l); /* NULL: it is empty */
void pending_push(struct pending_list *l, struct pending *p);
void pending_push_front(struct pending_list *l, struct pending *p);
void pending_remove(struct pending *p); /* from its list */

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
/* Whether `deferred` has room for so many bytes more. */
bool pending_may_defer(const struct pending_list *deferred, size_t size);
/* Moves what may go on from `deferred` to the front of the queue: everything else of these
 * connections in the queue came later. */
void pending_resume(struct pending_list *deferred, struct pending_list *queue);

#endif
