/* dispatch.h: the meaning of requests: turns words into a command of the machine, and its result
 * into an answer. It has no sockets and no node: answers leave through a sink, commands through a
 * table of functions, so tests and simulators drive it with buffers.
 *
 *        lookup, parse           submit               result
 *   (request) ----------> local answer    (in flight) ------> answered
 *                    `--> in flight            |
 *                                              | QUEUED
 *                                              v          event, deadline
 *                                          (parked) ----------------------> answered
 *
 * A request whose connection closes is cancelled. If it is in flight, its memory (which holds the
 * node's ticket) lives on as an orphan until the result comes. Then what no client will learn of is
 * cleaned up: a wait is cancelled, and a grant under an owner that this node made is released. A
 * grant under an owner that the client named stays: asking again finds it. Cleaning up is tried for
 * a while and then left to the lease's end.
 *
 * LOCKS or SESSION LIST may cost the leader some milliseconds, and their answers, or SHOW's, may
 * have 64 KiB. So a node has only a few of them in flight, and the others stand in line. The number
 * of all requests is limited too. Beyond each limit the answer is BUSY.
 *
 * Who leaves or hangs up needs no memory for that: the call itself is cleaned up. The limit counts
 * the calls of clients that are gone, for which no connection is charged any more.
 *
 * One thread. Memory of DISPATCH_SPARE_MAX requests is kept for others. */
#ifndef SERVER_DISPATCH_H
#define SERVER_DISPATCH_H

#include "node/node.h"
#include "frontdoor/request.h"
#include "server/info.h"
#include "wire/commands.h"

struct dispatch;
struct call;

/* Where answers go. `request` is the pointer that was given to dispatch_request(). */
struct dispatch_sink {
    struct fli_buf *(*reply)(void *request);
    void (*answer)(void *request); /* the appended answer is complete; the request is gone */
    void (*failed)(void *request); /* the answer did not fit; the request is gone */
    /* Whether the client reads its answers too slowly: lists for it wait. May be NULL. */
    bool (*behind)(void *request);
};

/* Functions of the node, as in node.h. */
struct dispatch_node {
    void *ctx;
    int (*submit)(void *ctx, struct node_ticket *t, const void *command, size_t len,
                  node_ticket_cb cb);
    void (*status)(void *ctx, struct node_status *ret);
    size_t (*members)(void *ctx, struct node_member *ret, size_t max);
    int (*transfer)(void *ctx, uint64_t id, void (*cb)(void *ctx, int status), void *cb_ctx);
    int (*change)(void *ctx, const struct node_change *wanted, void (*cb)(void *ctx, int status),
                  void *cb_ctx);
    /* As in node.h. May be NULL: then there are no backups. */
    int (*backup_begin)(void *ctx, uint64_t *ret_id);
    int (*backup_read)(void *ctx, uint64_t id, uint64_t offset, void *data, size_t len,
                       size_t *ret_len, const char **ret_why);
    struct machine *(*machine)(void *ctx); /* NULL when there is none */
};

struct dispatch_config {
    struct dispatch_sink sink;
    struct dispatch_node node;
    void *ctx;
    uint64_t (*now_ms)(void *ctx);
    /* Answers a command about the connection (FLI_CMD_CONNECTION) in full. */
    void (*connection)(void *ctx, void *request, const struct fli_command *command,
                       const struct fli_slice *args, unsigned n);
    /* The source of a request, as a number: requests of one source keep their order, and sources
     * take turns under load. May be NULL: then all requests have the same source. */
    uint64_t (*source)(void *ctx, void *request);
    /* The address of a request's client, as a number. May be NULL: then all have the same one. */
    uint64_t (*address)(void *ctx, void *request);
    /* The requests of a request's connection that have no answer yet, or whose answer waits for an
     * earlier one, with this one. May be NULL:
     * then all calls are for anybody. */
    unsigned (*in_flight)(void *ctx, void *request);
    /* gate: whether a command may go on; when not, it answers it. set_sender: puts the sender into
     * the machine's command. sees: whether the sender may see some lock, for lists that the node
     * answers by itself; when not, it answers. users: answers the ACL commands in full. All are
     * NULL, or none: then there are no users, and every client is the default user. They, and the
     * next, get users_ctx. */
    void *users_ctx;
    bool (*gate)(void *ctx, void *request, const struct fli_command *command);
    void (*set_sender)(void *ctx, void *request, struct machine_command *m);
    bool (*sees)(void *ctx, void *request, const struct fli_command *command);
    void (*users)(void *ctx, void *request, const struct fli_command *command,
                  const struct fli_slice *args, unsigned n);
    /* The machine refused a request for want of a right, or of a login. May be NULL. */
    void (*refused)(void *ctx, void *request, enum fli_command_id id, bool by_right);
    /* Fills in the facts for INFO that only the server knows. May be NULL. */
    void (*describe)(void *ctx, struct info_server *ret);
    /* The locks that were waited for most (LOCKS BY WAIT). May be NULL: then none are known. */
    const struct busiest *(*busiest)(void *ctx);
    /* Whether the sender may see the lock. May be NULL: every client may see all. */
    bool (*may_see)(void *ctx, void *request, struct fli_slice lock, uint64_t *steps);
    /* How the front door answers, but for the time. NULL: it is switched off. */
    const struct frontdoor_context *frontdoor;
    uint64_t (*wall_ms)(void); /* since 1970, for EXAT and PXAT. May be NULL: they are refused */
    uint64_t slack_ms; /* how long after its deadline a wait's end may still come; 0: default */
    size_t calls_max;  /* requests in flight or parked; 0: default */
};

/* Each call takes up to 1 KiB. This limit is needed: a connection may have a full pipeline, and
 * many requests may be parked on one wait. */
#define DISPATCH_CALLS_DEFAULT ((size_t)1 << 18)
#define DISPATCH_CALL_MEMORY ((size_t)1 << 10)
/* The last quarter of the calls is for connections with no more than so many requests in flight. So
 * connections with full pipelines keep nobody from renewing a lock. */
#define DISPATCH_FEW 4u
#define DISPATCH_SPARE_MAX 4096u
#define DISPATCH_DUE_MAX 4096u /* waits that a turn ends; and those that may be tried again */
/* What is cleaned up after clients that are gone: so much is with the node at a time. */
#define DISPATCH_CLEANUP_MAX 64u
#define DISPATCH_CLEANUP_QUEUES 64u /* for addresses, by their numbers */
#define DISPATCH_TOLD_MAX 1024u /* requests that a turn tells of the end of their wait; so BLPOPs */
#define DISPATCH_LISTINGS_MAX 4u /* in flight */
/* Between checks whether clients have caught up. */
#define DISPATCH_LISTINGS_POLL_MS UINT64_C(10)
#define DISPATCH_LISTINGS_WAIT_MAX 4096u /* in line, of all addresses */
/* Of clients that read too slowly, so many are passed over in a turn. */
#define DISPATCH_LISTINGS_PASSED_MAX 2048u
#define DISPATCH_LISTINGS_QUEUES 64u             /* for addresses, by their numbers */
#define DISPATCH_LISTINGS_WAIT_MS UINT64_C(3000) /* how long one stands in line */

#define DISPATCH_SLACK_DEFAULT_MS UINT64_C(10000)
#define DISPATCH_CLEANUP_AGAIN_MS UINT64_C(500) /* between attempts to clean up */
#define DISPATCH_CLEANUP_TRIES 40u

/* The caller keeps one for each request until it is answered; zero at first. */
struct dispatch_slot {
    struct call *call;
};

int dispatch_create(const struct dispatch_config *config, struct dispatch **ret) FLI_MUST_USE;
/* Every ticket must have come back. NULL is fine. */
void dispatch_destroy(struct dispatch *d);

/* Takes a request and answers it, now or later. `proto`: the protocol of the answer. */
void dispatch_request(struct dispatch *d, void *request, struct dispatch_slot *slot, int proto,
                      const struct fli_slice *argv, unsigned argc);

/* Drops a request that needs no answer any more. */
void dispatch_cancel(struct dispatch *d, struct dispatch_slot *slot);

/* The client has closed its sending side. It may be dead, and a lock granted to a dead client
 * blocks all others. So if the request waits in a queue, now or later, the wait is cancelled. The
 * request is still answered. */
void dispatch_hangup(struct dispatch *d, struct dispatch_slot *slot);

/* Takes an event of the local log, or one that the leader sent ahead of it. Requests that wait for
 * it are answered in the next turns. */
void dispatch_event(struct dispatch *d, const struct machine_event *event);

/* A snapshot replaced the state and skipped events. A wait that may have ended by one of them is
 * answered UNCERTAIN in one of the next turns: asking again under the same owner finds out. */
void dispatch_restored(struct dispatch *d);

/* Does what is due: waits that have ended, or whose end never came, and cleaning up. Not from
 * inside an event or a result. */
void dispatch_turn(struct dispatch *d);
uint64_t dispatch_next_turn_ms(const struct dispatch *d); /* on now_ms; UINT64_MAX for never */

/* The node is about to stop: parked requests are answered, later waits are not parked. */
void dispatch_stop(struct dispatch *d);

void dispatch_get_counts(const struct dispatch *d, struct info_counts *ret);

#endif
