/* engine_state.h: what an engine (engine.h) and its channels (channel.h) share. */
#ifndef FLI_CLIENT_ENGINE_STATE_H
#define FLI_CLIENT_ENGINE_STATE_H

#include "base/due.h"
#include "base/list.h"
#include "client/call_request.h"
#include "client/attempts.h"
#include "client/call_state.h"
#include "client/owner.h"
#include "client/place.h"

#define FLI_REQUEST_MAX ((size_t)64 << 20) /* bytes of a request */

/* Callbacks while a call goes on; under the mutex of who has the engine, if there is one. */
struct fli_engine_watcher {
    void (*on_trouble)(void *arg, uint32_t node, const char *text);
    /* The order `asked` has ended with this event. over: so has the call. */
    void (*on_event)(void *arg, enum fli_call_want asked, enum fli_call_event event, bool over);
    void *arg;
};

struct fli_call;
struct fli_engine;

/* Carries out calls in place of the engine's own way through the nodes of a cluster: src/redlock.
 * All of it is called as the engine's functions are. */
struct fli_backend {
    /* Why it cannot make this call, in a sentence; NULL: it can. */
    const char *(*refuses)(const struct fli_engine *e, const struct fli_call_request *request);
    void (*begin)(struct fli_call *call); /* which ends by fli_call_end() */
    void (*cancel)(struct fli_call *call);
    /* The engine is about to close its connections and to free its calls. */
    void (*drop)(struct fli_engine *e);
    void (*abandon)(struct fli_engine *e);       /* as fli_engine_abandon() */
    int (*own)(struct fli_engine *e);            /* the end of fli_engine_own() */
    bool (*is_busy)(const struct fli_engine *e); /* something is to be sent yet */
    void (*fini)(struct fli_backend *b);
};

struct fli_engine_node {
    struct fli_place place;
    struct fli_list channels;        /* that new requests may use, or that owe an answer */
    struct fli_list askers;          /* calls that want to know whether it lives or serves */
    uint64_t again_ms;               /* no connection is begun before */
    unsigned failures;               /* connections in a row that came to nothing */
    char error[FLI_LINK_ERROR_SIZE]; /* of the last one */
};

struct fli_engine {
    uint64_t timeout_ms;
    uint64_t attempt_ms;
    uint32_t n_nodes;
    bool resolves;      /* which may block to resolve names: each connection resolves its own */
    bool learns_leader; /* true after init */
    struct fli_backend *backend;       /* NULL: the calls are to nodes */
    struct fli_engine_watcher watcher; /* of all calls; all NULL: none */
    int epoll_fd;
    struct fli_owner owner; /* of acquires that name none */
    bool owner_is_given;    /* by its user */
    fl_token newest;        /* granted by the calls of its user */
    fl_token inherited;   /* up to this one they were granted to the process that forked this one */
    struct fli_dues dues; /* of its user as well: fli_engine_process() runs them */
    uint64_t seed;        /* of all jitter; random after init */
    /* private; nodes[n_nodes] is the leader when its address is not in the list */
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
    struct fli_list fresh; /* calls that have not begun */
    struct fli_list calls;
    struct fli_list ended; /* calls that have ended, and whose callbacks were not called yet */
    struct fli_list dirty; /* channels with something to send */
    struct fli_list closed;
    struct fli_engine_node nodes[FL_NODES_MAX + 1];
};

/* How a call ended. reply and report belong to the call; a callback that keeps one sets it to
 * NULL. */
struct fli_ended {
    int status; /* that of the call state machine */
    const char *error;
    redisReply *reply;
    struct fl_redlock_report *report; /* of a backend */
    fl_token token;                   /* that the reply is, or a backend's */
    uint64_t lease_until_ms;
    bool unknown; /* some attempt may have been done without an answer */
};
typedef void (*fli_ended_cb)(void *arg, struct fli_ended *ended);

struct fli_channel;

/* Who hears all that comes on a channel, instead of calls (watch.c). */
struct fli_listener {
    void (*opened)(struct fli_listener *l, struct fli_channel *ch); /* to put its request */
    void (*answered)(struct fli_listener *l, const redisReply *reply);
    /* All was answered, and more has come: it is read no further until fli_channel_hear() has found
     * nothing. */
    void (*called)(struct fli_listener *l);
    void (*ended)(struct fli_listener *l, int code, const char *why); /* the channel is gone */
};

struct fli_channel {
    struct fli_list in;    /* of its node's channels, or of the closed ones */
    struct fli_list dirty; /* among those with something to send */
    struct fli_engine *engine;
    uint32_t node;
    struct fli_link link;
    uint32_t events; /* in the epoll set; 0: it is not in it */
    int watched_fd;
    struct fli_due due;            /* while it connects: the next socket or address */
    unsigned tried;                /* of the addresses of the node */
    uint64_t address_until_ms;     /* when the next address is tried; UINT64_MAX: not */
    uint64_t until_ms;             /* for all addresses */
    struct fli_call *waiter;       /* whose request waits for a lock: it is alone here */
    struct fli_listener *listener; /* likewise; NULL: none */
    bool held;                     /* it has not heard yet what was read */
    bool left;                     /* no other call begins here */
    bool useful;                   /* an answer has come */
    bool full;                     /* the kernel takes no more at the moment */
    uint64_t heard_ms;
    uint64_t asked_ms; /* when the node was asked last whether it lives */
    struct fli_buf out;
    size_t out_at;
    uint64_t queued, sent;    /* bytes, ever */
    uint64_t asked, answered; /* requests, ever */
    uint64_t leader, check;   /* the number of this request; 0: none is owed */
    struct fli_list joining;
    struct fli_list unsent;
    struct fli_list awaiting;
};

struct fli_call {
    struct fli_list in; /* a list of the engine's */
    struct fli_engine *engine;
    struct fli_call_request request;
    struct fli_call_state call_state;
    struct fli_due due;
    const struct fli_engine_watcher *watcher; /* of this call; NULL: none */
    uint32_t node;                            /* where it is, or was last */
    struct fli_channel *channel;              /* NULL: nowhere */
    struct fli_list in_channel;
    uint64_t number; /* of its request on the channel */
    uint64_t end;    /* of its bytes */
    struct fli_list in_askers;
    uint32_t alive;      /* it has been told that this node lives */
    redisReply *arrived; /* an answer that came while the node was asked whether it lives */
    redisReply *reply;
    struct fli_redlock_op *op; /* of a backend; NULL: it has not begun, or has ended */
    struct fl_redlock_report *report;
    fl_token token;
    fli_ended_cb done;
    void *arg;
    char trouble[512];
    struct fl_bytes also[FLI_CALL_ALSO_MAX];
    char bytes[]; /* the texts of the request */
};

/* ---- engine.c: what channels tell of --------------------------------------------------------- */

void fli_call_feed(struct fli_call *c, enum fli_call_event event, int code);
/* By a backend. */
void fli_call_end(struct fli_call *c, int status, uint64_t lease_until_ms);
void fli_call_answer(struct fli_call *c, redisReply *reply);
void fli_call_trouble(struct fli_call *c, const char *text);
void fli_engine_leader_is(struct fli_channel *ch, const redisReply *reply);
void fli_engine_forget_leader(struct fli_engine *e, uint32_t node);
uint64_t fli_engine_random(struct fli_engine *e, uint64_t below);

#endif
