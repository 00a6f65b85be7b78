/* engine_state.h: what an engine (engine.h) and its channels (channel.h) share. */
#ifndef FLI_CLIENT_ENGINE_STATE_H
#define FLI_CLIENT_ENGINE_STATE_H

#include <pthread.h>

#include "base/due.h"
#include "base/list.h"
#include "client/call_request.h"
#include "client/attempts.h"
#include "client/call_state.h"
#include "client/owner.h"
#include "client/place.h"

#define FLI_REQUEST_MAX ((size_t)64 << 20) /* bytes of a request */

struct fl_call;
struct fli_engine;
struct fli_wait;

/* Carries out calls in place of the engine's own way through the nodes of a cluster: src/redlock.
 * All of it is called as the engine's functions are. */
struct fli_backend {
    /* Why it cannot make this call, in a sentence; NULL: it can. */
    const char *(*refuses)(const struct fli_engine *e, const struct fli_call_request *request);
    void (*begin)(struct fl_call *call); /* which ends by fli_call_end() */
    void (*cancel)(struct fl_call *call);
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
    uint64_t avoid_until_ms;         /* it gave no answer: no call begins there before */
    unsigned failures;               /* connections in a row that came to nothing */
    char error[FLI_LINK_ERROR_SIZE]; /* of the last one */
};

struct fli_engine {
    uint64_t timeout_ms;
    uint64_t attempt_ms;
    uint32_t n_nodes;
    bool resolves;      /* which may block to resolve names: each connection resolves its own */
    bool learns_leader; /* true after init */
    struct fli_backend *backend;                                /* NULL: the calls are to nodes */
    void (*on_trouble)(struct fl_call *call, const char *text); /* of any; NULL: nobody hears */
    int epoll_fd;
    struct fli_owner owner; /* of acquires that name none */
    bool owner_is_given;    /* by its user */
    fl_token newest;        /* granted by the calls of its user */
    fl_token inherited;   /* up to this one they were granted to the process that forked this one */
    struct fli_dues dues; /* of its user as well: fli_engine_process() runs them */
    uint64_t seed;        /* of all jitter; random after init */
    /* private; nodes[n_nodes] is the leader when its address is not in the list */
    uint64_t process; /* whose it is */
    fl_call last_name;
    int timer_fd;
    uint64_t timer_ms; /* what it is set to */
    uint32_t leader;   /* FLI_CALL_NOBODY: unknown */
    uint64_t learned_ms;
    struct fli_link_security tls;
    struct fli_pace pace;
    struct fli_attempts attempts;
    struct fli_list calls; /* all that there are */
    struct fli_list fresh; /* those that have not begun */
    struct fli_list ended; /* those that have ended, and whose users have not heard of it yet */
    struct fli_list dirty; /* channels with something to send */
    struct fli_list closed;
    struct fli_engine_node nodes[FL_NODES_MAX + 1];
};

struct fli_channel;

/* Who hears all that comes on a channel, instead of calls (watch.c). */
struct fli_listener {
    void (*opened)(struct fli_listener *l, struct fli_channel *ch); /* to put its request */
    void (*answered)(struct fli_listener *l, const redisReply *reply);
    /* All was answered, and more has come: it is read no further until fli_channel_hear() has found
     * nothing. NULL: what comes unasked ends the channel. */
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
    struct fl_call *waiter;        /* whose request waits for a lock: it is alone here */
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
    uint64_t begun;           /* of those asked: a part of each may have been sent */
    uint64_t leader, check;   /* the number of this request; 0: none is owed */
    struct fli_list calls;    /* in the order of their requests, which is that of the answers */
};

struct fli_call_times {
    uint64_t deadline_ms; /* of the whole call */
    uint64_t wait_ms;     /* ACQUIRE */
    uint64_t attempt_ms;  /* 0: the engine's */
    bool once;            /* at the node with this number and no other, and not repeated */
    uint32_t node;
    bool insists; /* asked again when a node refuses it: something has to be given back */
};

/* A callback that is to be made: handle.h. */
struct fli_callback {
    struct fli_list in;
    /* Under the mutex, which it gives back while it calls its user. */
    void (*deliver)(struct fl_client *c, struct fli_callback *n);
    bool under_way;
    pthread_t thread; /* on which it is */
};

/* A call: a request, its attempts at one node after the other, and how it ended. A lock that is
 * taken or released, a renewal and a question are each one call. When it has ended it may be used
 * again for what follows. */
struct fl_call {
    struct fli_list in;    /* all calls of the engine */
    struct fli_list queue; /* the fresh ones, or those that have ended */
    struct fli_engine *engine;
    struct fli_call_request request;
    struct fli_call_state call_state; /* with its status, and the end of the lease */
    struct fli_due due;
    bool active;                 /* it has begun, and nobody has heard of its end */
    uint32_t node;               /* where it is, or was last */
    struct fli_channel *channel; /* NULL: nowhere */
    struct fli_list in_channel;
    uint64_t number; /* of its request on the channel */
    uint64_t end;    /* of its bytes */
    struct fli_list in_askers;
    uint32_t alive;            /* it has been told that this node lives */
    struct fli_redlock_op *op; /* of a backend; NULL: it has not begun */
    void (*ended)(struct fl_call *call);
    void *arg;
    /* How it ended; whoever keeps one sets it to NULL. */
    redisReply *reply;
    struct fl_redlock_report *report; /* of a backend */
    fl_token token;                   /* that the reply is, or a backend's */
    char trouble[512];                /* the last one */
    char error[640];
    /* Of calls that a user of a handle has begun: calls.c. */
    struct fl_client *client; /* NULL: it is another one */
    fl_call name;             /* for its user, who cancels it by that */
    struct fli_callback note;
    struct fl_lock *lock;    /* that a yes makes held */
    struct fl_lock *session; /* under which; NULL also when that was freed */
    bool is_private; /* nobody else knows its owner, so what it may have got is given back */
    bool gives_back; /* it does that, or is a release */
    struct fli_call_times times;
    uint64_t began_ms;
    uint64_t held_until_ms; /* what it may have got, without a session */
    fl_done done;
    struct fli_wait *wait; /* of a thread that blocks; NULL: it calls back. Also while another call
                              has to be over first, which that one has as well */
    struct fl_result result;
    struct fl_bytes also[FLI_CALL_ALSO_MAX];
    char bytes[]; /* the texts of the request */
};

/* ---- calls.c --------------------------------------------------------------------------------- */

/* The call of a user is about to be freed, or its user is not to hear of it any more. */
void fli_call_forget(struct fl_call *call);

/* ---- handle.c: what a thread that waits for a call hears of it ------------------------------- */

void fli_wait_trouble(struct fli_wait *w, uint32_t node, const char *text);
/* The order `asked` has ended with this event. over: so has the call. */
void fli_wait_event(struct fli_wait *w, enum fli_call_want asked, enum fli_call_event event,
                    bool over);

/* ---- engine.c: what channels tell of --------------------------------------------------------- */

void fli_call_feed(struct fl_call *c, enum fli_call_event event, int code);
/* By a backend. */
void fli_call_end(struct fl_call *c, int status, uint64_t lease_until_ms);
void fli_call_answer(struct fl_call *c, redisReply *reply);
void fli_call_trouble(struct fl_call *c, const char *text);
void fli_engine_leader_is(struct fli_channel *ch, const redisReply *reply);
void fli_engine_forget_leader(struct fli_engine *e, uint32_t node);
uint64_t fli_engine_random(struct fli_engine *e, uint64_t below);

#endif
