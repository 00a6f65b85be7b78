/* engine.h: calls that do not block: any number of calls at once, each on a connection of its own,
 * driven by one epoll descriptor that holds a timer too. The engine wants to be driven whenever
 * that descriptor is readable.
 *
 * Not thread-safe. A call's end is told from fli_engine_process() only; new calls and cancels are
 * fine in there. */
#ifndef FLI_CLIENT_ENGINE_H
#define FLI_CLIENT_ENGINE_H

#include "base/list.h"
#include "client/attempts.h"
#include "client/ask.h"
#include "client/call_state.h"
#include "client/link.h"
#include "client/nodes.h"
#include "client/health_probe.h"

#define FLI_PLACE_ADDRESSES 8u
#define FLI_IDLE_MAX 4u /* connections kept open between calls */

/* Where a node is. */
struct fli_place {
    struct fli_node node;
    struct sockaddr_storage address[FLI_PLACE_ADDRESSES];
    socklen_t address_len[FLI_PLACE_ADDRESSES];
    unsigned n;    /* 0: its name is not known */
    unsigned turn; /* which one is tried next */
};

struct fli_idle {
    struct fli_link link;
    uint32_t node;
};

struct fli_engine {
    uint64_t timeout_ms;
    uint64_t attempt_ms;
    uint32_t n_nodes;
    int epoll_fd;
    /* private; places[n_nodes] is the leader when its address is not in the list */
    int timer_fd;
    uint64_t timer_ms; /* what it is set to */
    uint32_t leader;   /* FLI_CALL_NOBODY: not known */
    uint64_t learned_ms;
    uint64_t shun_ms;
    uint32_t silent; /* left because it said nothing: not where calls begin, for a while */
    uint64_t silent_until_ms;
    struct fli_link_tls tls;
    struct fli_pace pace;
    struct fli_attempts attempts;
    struct fli_list ops;
    struct fli_list ended; /* and not yet told */
    struct fli_idle idle[FLI_IDLE_MAX];
    unsigned n_idle;
    struct fli_place places[FL_NODES_MAX + 1];
};

struct fli_op;

/* How a call ended. reply belongs to the call; to keep it, take it and leave NULL. */
struct fli_ended {
    int status; /* of the call state machine */
    const char *error;
    redisReply *reply;
    uint64_t lease_until_ms;
};
typedef void (*fli_ended_cb)(void *arg, struct fli_ended *ended);

/* Resolves names, which may block. 0; FL_EINVAL, FL_ENOCONN, FL_ESYSTEM. */
int fli_engine_init(struct fli_engine *e, const char *nodes) FLI_MUST_USE;
void fli_engine_fini(struct fli_engine *e); /* ends all calls without telling */

struct fli_op_times {
    uint64_t deadline_ms; /* of the whole call */
    uint64_t wait_ms;     /* ACQUIRE */
    uint64_t attempt_ms;  /* 0: the engine's */
};

/* Copies the bytes of ask. 0; FL_ENOMEM. */
int fli_engine_start(struct fli_engine *e, const struct fli_ask *ask,
                     const struct fli_op_times *times, fli_ended_cb done, void *arg,
                     struct fli_op **ret) FLI_MUST_USE;
void fli_op_cancel(struct fli_op *op);

void fli_engine_process(struct fli_engine *e);

/* Makes the descriptor readable at that time or sooner. */
void fli_engine_wake_at(struct fli_engine *e, uint64_t time_ms);

#endif
