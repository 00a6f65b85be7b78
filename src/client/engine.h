/* engine.h: carries out the orders of calls (call_state.h) without waiting: any number of calls at
 * once, each on a connection of its own, driven by one epoll descriptor that holds a timer too. The
 * engine wants to be driven whenever that descriptor is readable: by an event loop (async.h), or by
 * a caller that waits for it (caller.h).
 *
 * The leader is learned on the way: LEADER goes in front of a request now and then, in the same
 * packet, and its answer comes in front of the request's.
 *
 * Not thread-safe. A call's end is told from fli_engine_process() only; new calls and cancels are
 * fine in there. */
#ifndef FLI_CLIENT_ENGINE_H
#define FLI_CLIENT_ENGINE_H

#include "base/list.h"
#include "client/attempts.h"
#include "client/ask.h"
#include "client/call_state.h"
#include "client/health_probe.h"
#include "client/idle.h"
#include "client/place.h"

#define FLI_REQUEST_MAX ((size_t)64 << 20) /* bytes of a request */

/* What a caller wants to know while a call goes on. */
struct fli_engine_watcher {
    void (*on_trouble)(void *arg, uint32_t node, const char *text);
    /* The order `asked` has ended so; over: and the call with it. */
    void (*on_event)(void *arg, enum fli_call_want asked, enum fli_call_event event, bool over);
    void *arg;
};

struct fli_engine {
    uint64_t timeout_ms;
    uint64_t attempt_ms;
    uint32_t n_nodes;
    /* One call at a time, which may wait for names: each connection resolves its own. */
    bool blocks;
    bool learns_leader;                /* set to begin with */
    struct fli_engine_watcher watcher; /* all NULL: nobody wants to know */
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
    struct fli_idle idle;
    struct fli_place places[FL_NODES_MAX + 1];
};

struct fli_engine_call;

/* How a call ended. reply belongs to the call; to keep it, take it and leave NULL. */
struct fli_ended {
    int status; /* of the call state machine */
    const char *error;
    redisReply *reply;
    uint64_t lease_until_ms;
};
typedef void (*fli_ended_cb)(void *arg, struct fli_ended *ended);

/* Resolves names, which may block, unless `blocks`: then it is done for each connection. 0;
 * FL_EINVAL, FL_ENOCONN, FL_ESYSTEM. */
int fli_engine_init(struct fli_engine *e, const char *nodes, bool blocks) FLI_MUST_USE;
void fli_engine_fini(struct fli_engine *e); /* ends all calls without telling */

struct fli_call_times {
    uint64_t deadline_ms; /* of the whole call */
    uint64_t wait_ms;     /* ACQUIRE */
    uint64_t attempt_ms;  /* 0: the engine's */
};

/* Copies the bytes of ask. 0; FL_ENOMEM. */
int fli_engine_start(struct fli_engine *e, const struct fli_ask *ask,
                     const struct fli_call_times *times, fli_ended_cb done, void *arg,
                     struct fli_engine_call **ret) FLI_MUST_USE;
void fli_engine_cancel(struct fli_engine_call *op);

void fli_engine_process(struct fli_engine *e);

/* Makes the descriptor readable at that time or sooner. */
void fli_engine_wake_at(struct fli_engine *e, uint64_t time_ms);

#endif
