/* engine.h: carries out the orders of calls (call_state.h) without waiting: any number of calls at
 * once, each on a connection of its own, under one epoll descriptor that holds a timer too.
 * Whenever that descriptor is readable, somebody calls fli_engine_process(): an event loop
 * (async.h), or a caller that waits for it (caller.h).
 *
 * The engine learns the leader on the way: now and then it sends LEADER in front of a request, in
 * the same packet, and that answer comes first.
 *
 * An engine that a child of fork() has inherited is the parent's, until fli_engine_own() has made
 * it the child's.
 *
 * Not thread-safe. Only fli_engine_process() reports the end of a call; callbacks may start and
 * cancel calls. */
#ifndef FLI_CLIENT_ENGINE_H
#define FLI_CLIENT_ENGINE_H

#include "base/list.h"
#include "client/attempts.h"
#include "client/ask.h"
#include "client/call_state.h"
#include "client/health_probe.h"
#include "client/idle.h"
#include "client/owner.h"
#include "client/place.h"

#define FLI_REQUEST_MAX ((size_t)64 << 20) /* bytes of a request */

/* Callbacks while a call goes on. */
struct fli_engine_watcher {
    void (*on_trouble)(void *arg, uint32_t node, const char *text);
    /* The order `asked` has ended with this event. over: so has the call. */
    void (*on_event)(void *arg, enum fli_call_want asked, enum fli_call_event event, bool over);
    void *arg;
};

struct fli_engine {
    uint64_t timeout_ms;
    uint64_t attempt_ms;
    uint32_t n_nodes;
    bool blocks;        /* one call at a time */
    bool resolves;      /* which may block to resolve names: each connection resolves its own */
    bool learns_leader; /* true after init */
    struct fli_engine_watcher watcher; /* all NULL: none */
    int epoll_fd;
    struct fli_owner owner; /* of acquires that name none */
    fl_token newest;        /* granted by the calls of its user */
    fl_token inherited; /* up to this one they were granted to the process that forked this one */
    /* private; places[n_nodes] is the leader when its address is not in the list */
    uint64_t process; /* whose it is */
    int timer_fd;
    uint64_t timer_ms; /* what it is set to */
    uint32_t leader;   /* FLI_CALL_NOBODY: unknown */
    uint64_t learned_ms;
    uint64_t shun_ms;
    /* a node that was left because it gave no answer: for a while no call begins there */
    uint32_t silent;
    uint64_t silent_until_ms;
    struct fli_link_security tls;
    struct fli_pace pace;
    struct fli_attempts attempts;
    struct fli_list ops;
    struct fli_list ended; /* calls that have ended, and whose callbacks were not called yet */
    struct fli_idle idle;
    struct fli_place places[FL_NODES_MAX + 1];
};

struct fli_engine_call;

/* How a call ended. reply belongs to the call; a callback that keeps it sets it to NULL. */
struct fli_ended {
    int status; /* that of the call state machine */
    const char *error;
    redisReply *reply;
    uint64_t lease_until_ms;
};
typedef void (*fli_ended_cb)(void *arg, struct fli_ended *ended);

/* Resolves names, which may block; with `blocks`, each connection does that instead. 0; FL_EINVAL,
 * FL_ENOCONN, FL_ESYSTEM. */
int fli_engine_init(struct fli_engine *e, const char *nodes, bool blocks) FLI_MUST_USE;
/* Resolves the names at once, for a program that cannot be ended while a call resolves one; none is
 * resolved later. 0; FL_ENOCONN: none is known. */
int fli_engine_resolve(struct fli_engine *e) FLI_MUST_USE;
void fli_engine_fini(struct fli_engine *e); /* ends all calls without a callback */

/* Copies the options; the owner is random when they have none. options may be NULL. 0; FL_EINVAL,
 * FL_ENOMEM. */
int fli_engine_options(struct fli_engine *e, const struct fl_client_options *options) FLI_MUST_USE;

/* In a child that has inherited it: closes what is the parent's without a word to anybody, ends all
 * calls without a callback, and makes a new owner; epoll_fd keeps its number. Otherwise nothing. 0;
 * FL_ESYSTEM: there are no descriptors, and it must not be used. */
int fli_engine_own(struct fli_engine *e) FLI_MUST_USE;
bool fli_engine_is_inherited(const struct fli_engine *e);
/* For engine_own.c: ends all calls without a callback, and closes idle connections; and lets the
 * timer wake epoll_fd. */
void fli_engine_drop(struct fli_engine *e);
bool fli_engine_watch_timer(const struct fli_engine *e);

struct fli_call_times {
    uint64_t deadline_ms; /* of the whole call */
    uint64_t wait_ms;     /* ACQUIRE */
    uint64_t attempt_ms;  /* 0: the engine's */
};

/* Copies the texts of ask. 0; FL_ENOMEM. */
int fli_engine_start(struct fli_engine *e, const struct fli_ask *ask,
                     const struct fli_call_times *times, fli_ended_cb done, void *arg,
                     struct fli_engine_call **ret) FLI_MUST_USE;
void fli_engine_cancel(struct fli_engine_call *op);

void fli_engine_process(struct fli_engine *e);

/* Makes the descriptor readable at that time, or sooner. */
void fli_engine_wake_at(struct fli_engine *e, uint64_t time_ms);

#endif
