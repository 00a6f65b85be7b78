/* engine.h: carries out the orders of calls (call_state.h) without waiting: any number of calls at
 * once, on one pipelined connection for each node (channel.h), under one epoll descriptor that
 * holds a timer too. Whenever that descriptor is readable, somebody calls fli_engine_process(): an
 * event loop, or a thread that waits for it (handle.h).
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

#include "client/engine_state.h"

/* What the servers are. */
enum fli_kind {
    FLI_OF_CLUSTER,
    FLI_OF_STORE, /* one, which knows no leader */
    FLI_OF_REDIS, /* perhaps on Unix sockets; the backend is set after init */
};

#define FLI_WHY_SIZE 320u

/* Copies the options; the owner is random when they have none. Resolves names, which may block;
 * with `resolves`, each connection does that instead. 0;
 * FL_EINVAL, FL_ENOMEM, FL_ENOCONN, FL_ESYSTEM: why gets a sentence. */
int fli_engine_init(struct fli_engine *e, const char *nodes, enum fli_kind kind, bool resolves,
                    const struct fl_client_options *options, char why[FLI_WHY_SIZE]) FLI_MUST_USE;
/* Resolves the names at once, for a program that cannot be ended while a call resolves one; none is
 * resolved later. 0; FL_ENOCONN: none is known. */
int fli_engine_resolve(struct fli_engine *e) FLI_MUST_USE;
void fli_engine_fini(struct fli_engine *e); /* ends all calls without a callback */

/* In a child that has inherited it: closes what is the parent's without a word to anybody, ends all
 * calls without a callback, and makes a new owner; epoll_fd keeps its number. Otherwise nothing. 0;
 * FL_ESYSTEM: there are no descriptors, and it must not be used. */
int fli_engine_own(struct fli_engine *e) FLI_MUST_USE;
bool fli_engine_is_inherited(const struct fli_engine *e);
/* In a child whose parent was in the middle of using it: leaves all that it has where it is. */
void fli_engine_abandon(struct fli_engine *e);
/* Copies the texts of the request. The call does not begin yet. NULL: out of memory. */
struct fl_call *fli_call_make(struct fli_engine *e, const struct fli_call_request *request,
                              void *arg) FLI_MUST_USE;
/* Begins it, or begins it anew with the request that it has now. ended() is called once, from
 * fli_engine_process(); the call is freed then, unless that has begun it anew or noted a callback
 * to its user. */
void fli_call_begin(struct fl_call *call, const struct fli_call_times *times,
                    void (*ended)(struct fl_call *call));
/* Both. NULL: out of memory. */
struct fl_call *fli_engine_start(struct fli_engine *e, const struct fli_call_request *request,
                                 const struct fli_call_times *times,
                                 void (*ended)(struct fl_call *call), void *arg) FLI_MUST_USE;
void fli_engine_cancel(struct fl_call *call); /* frees it; NULL is fine */
/* Frees a call that is over, and of whose end its user has heard. */
void fli_call_let_go(struct fl_call *call);
void fli_engine_process(struct fli_engine *e);

/* Makes the descriptor readable at once; at that time, or sooner. */
void fli_engine_wake(struct fli_engine *e);
void fli_engine_wake_for(struct fli_engine *e, uint64_t time_ms);

#endif
