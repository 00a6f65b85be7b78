/* caller.h: the blocking client: an engine (engine.h) with one call at a time, and a loop that
 * waits for it. It also has what clients of the lock service and of the storage share. One
 * thread. */
#ifndef FLI_CLIENT_CALLER_H
#define FLI_CLIENT_CALLER_H

#include "client/engine.h"

struct fl_async;
struct fl_store;

#define FLI_TROUBLE_SIZE 160u
#define FLI_SILENCE_MS UINT64_C(2000)

/* Called each time that a call goes on although no node is usable, and with 0 when one is usable
 * again; and once when a call that waits for no lock has had no answer for FLI_SILENCE_MS.
 * without_ms: for how long none has been. text: every node with its last error; it is valid
 * until the callback returns. The callback must not use the client. */
typedef void (*fli_trouble_cb)(void *arg, uint64_t without_ms, const char *text);

struct fli_caller {
    struct fli_engine engine;
    fli_trouble_cb on_trouble; /* NULL: none */
    void *trouble_arg;
    int stop_fd; /* a call ends with FL_EUNCERTAIN when it is readable; -1: none */
    /* private; trouble[n_nodes] is of a leader whose address is not in the list */
    bool without; /* no usable node, since without_ms */
    uint64_t without_ms;
    char trouble[FL_NODES_MAX + 1][FLI_TROUBLE_SIZE]; /* of each node, during this call */
    char error[1024];
};

struct fli_call {
    struct fli_ask ask;
    uint64_t wait_ms;    /* of an ACQUIRE */
    uint64_t timeout_ms; /* beyond wait_ms; 0: that of the engine */
    const char *no;      /* the error text of a "no" */
};

/* nodes: as for fli_nodes_parse(). 0; FL_EINVAL, FL_ESYSTEM. */
int fli_caller_init(struct fli_caller *k, const char *nodes) FLI_MUST_USE;
void fli_caller_fini(struct fli_caller *k);

/* fli_engine_own() with a sentence; the calls below do it. */
int fli_caller_own(struct fli_caller *k) FLI_MUST_USE;

/* Makes the call. 0; FL_ENOTHELD for a "no"; or a code. Unless it is 0, k->error says why.
 * ret_reply (may be NULL): the reply of a success or a refusal, or NULL; to be freed by
 * freeReplyObject(). ret_lease_ms (may be NULL): fli_call_state.lease_until_ms. */
int fli_caller_run(struct fli_caller *k, const struct fli_call *call, redisReply **ret_reply,
                   uint64_t *ret_lease_ms) FLI_MUST_USE;

/* Makes one attempt at this node and no other. 0; FL_ENOCONN, FL_ETIMEOUT, FL_EPROTO, FL_EBUSY,
 * FL_ENOLEADER; FL_ENOTHELD for a "no"; or the code of a refusal. */
int fli_caller_once(struct fli_caller *k, uint32_t node, const struct fli_ask *ask,
                    uint64_t timeout_ms, redisReply **ret_reply) FLI_MUST_USE;

/* For programs that are interrupted: every later call ends when fd is readable; -1: none does. */
void fli_client_stop_at(fl_client *c, int fd);

/* Resolves the nodes' names now and never again: a call that resolves one does not see that. */
void fli_client_resolve(fl_client *c);

/* The number of an attempt at an ACQUIRE of this handle that may still be carried out; 0: there is
 * none. And: this handle's attempts come after that one of another handle. */
uint64_t fli_client_last_attempt(const fl_client *c);
uint64_t fli_async_last_attempt(const struct fl_async *a);
void fli_client_begin_above(fl_client *c, uint64_t last);

/* For every later call of this client. NULL: no callback any more. */
void fli_client_on_trouble(fl_client *c, fli_trouble_cb on_trouble, void *arg);
void fli_store_on_trouble(struct fl_store *s, fli_trouble_cb on_trouble, void *arg);

/* Before anything is sent: 0; FL_EINVAL for a timeout above FL_TIMEOUT_MAX_MS. */
int fli_caller_check_timeout(struct fli_caller *k, uint64_t timeout_ms) FLI_MUST_USE;

/* Sets k->error; returns code. */
int fli_caller_fail(struct fli_caller *k, int code, const char *fmt, ...) FLI_PRINTF(3, 4);

#endif
