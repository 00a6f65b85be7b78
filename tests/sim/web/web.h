/* web.h: private to the files of this folder. What is simulated and how is in sim.h; here are two
 * clients that do what they are told, a storage with the shipping rule, and what is noted of them.
 *
 *   world    seed and steps: begins, passes time, does what the steps say
 *   worker   a client's work under a lock of the lock service, or of Redlock: quorum
 *   storage  one value and its mark
 *   notes    what is told of it all: a trace and messages;  state: all of it, as JSON */
#ifndef SIM_WEB_WEB_H
#define SIM_WEB_WEB_H

#include "../sim.h"
#include "sim_web.h"

#define WEB_CLIENTS 2u
#define WEB_REDIS 5u
#define WEB_LOCK 0u
#define WEB_TTL_MS 10000u
#define WEB_NOTES_MAX 600u
#define WEB_MESSAGES_MAX 600u
#define WEB_WRITES_MAX 200u
#define WEB_TEXT_MAX 160u
#define WEB_STEPS_MAX 400u
#define WEB_SPANS_MAX 400u

/* What a client is about. */
enum web_phase {
    WEB_IDLE,
    WEB_ASKS,     /* for the lock */
    WEB_HOLDS,    /* and is about to read */
    WEB_READS,    /* the read is on its way */
    WEB_COMPUTES, /* the new value */
    WEB_READY,    /* it has looked at its lease for the last time; next it writes */
    WEB_WRITES,   /* the write is on its way */
    WEB_RELEASES,
    WEB_DONE
};

enum web_outcome { WEB_NONE, WEB_WRITTEN, WEB_REFUSED, WEB_GAVE_UP };

struct web_client {
    struct sim_client *c;
    unsigned number; /* 1 or 2 */
    enum web_phase phase;
    enum web_outcome outcome;
    bool redlock; /* how it takes the lock this time */
    bool silent, holds_back;
    bool asks_again;
    uint64_t adds, value, base; /* base: number of the write that it has read */
    uint64_t owner;             /* number */
    unsigned cut;               /* Redis servers that it cannot reach: bits */
};

/* A message between a client and the storage or a Redis server. */
struct web_op {
    struct web_client *w;
    bool write;
    uint64_t token, base, value;
    int status;
    unsigned message; /* its number among the notes */
};

struct web_write {
    unsigned client;
    uint64_t token, from, to;
    bool lost; /* a later write was computed without it */
};

struct web_storage {
    uint64_t value, mark;
    struct web_write writes[WEB_WRITES_MAX];
    unsigned writes_n; /* the number of the last one */
    struct web_op *held[WEB_CLIENTS];
};

struct web_note {
    uint64_t at;
    const char *kind;
    unsigned client; /* 0: of none */
    char text[WEB_TEXT_MAX];
};

struct web_message {
    uint64_t sent, arrives; /* arrives 0: the network holds it back */
    const char *from, *to, *fate;
    char text[24];
};

/* How long something lasted. */
struct web_span {
    const char
        *kind; /* "holds": as the lock service sees it; "believes", "stopped": a client; "leads" */
    unsigned who; /* number of the client or node */
    uint64_t from, to;
    bool open;
};

struct web_step {
    uint64_t at; /* when it began */
    char word[16];
};

struct web {
    struct sim *s;
    struct sim_marks marks;
    uint64_t seed, begun_at;
    bool check, claim, redlock, wait;
    bool kill_at_grant;
    uint64_t commands_seen; /* of the leader, before that grant */
    struct web_client clients[WEB_CLIENTS];
    struct web_storage storage;
    struct web_note notes[WEB_NOTES_MAX];
    unsigned notes_n;
    struct web_message messages[WEB_MESSAGES_MAX + 1]; /* the last one: what has no room */
    unsigned messages_n;
    struct web_step steps[WEB_STEPS_MAX];
    unsigned steps_n;
    unsigned leader_seen; /* 0: none */
    struct web_span spans[WEB_SPANS_MAX];
    unsigned spans_n;
    struct fli_buf json;
};

extern struct web web;

/* worker.c */
void web_workers_init(void);
bool web_worker_begin(struct web_client *w);
void web_worker_act(struct sim_client *c);
void web_worker_watch(void); /* after every event */
/* It has the lock, and so much time as it was told. */
void web_worker_has(struct web_client *w);
void web_worker_stored(const struct web_op *op);
uint64_t web_lease_left(const struct web_client *w); /* what it believes */
const char *web_client_name(const struct web_client *w);

/* quorum.c */
void web_quorum_begin(struct web_client *w);
void web_quorum_act(struct web_client *w);
void web_quorum_release(struct web_client *w);
uint64_t web_redis_holder(unsigned i, uint64_t *ret_left_ms); /* number of the client; 0: none */

/* storage.c */
void web_storage_send(struct web_client *w, bool write, uint64_t token, uint64_t base,
                      uint64_t value);
bool web_storage_late(struct web_client *w); /* false: nothing is held back */
void web_storage_fini(void);

/* notes.c */
void web_note(const char *kind, unsigned client, const char *fmt, ...) FLI_PRINTF(3, 4);
unsigned web_message(const char *from, const char *to, uint64_t ms, const char *fmt, ...)
    FLI_PRINTF(4, 5);
/* Whether this lasts now. */
void web_span(const char *kind, unsigned who, bool now);
void web_fate(unsigned message, const char *fate);
uint64_t web_now(void);
bool web_full(void);

/* world.c */
unsigned
web_holder(void); /* number of the client that the lock service has granted the lock; or 0 */
struct web_client *web_client_of_owner(uint64_t owner); /* NULL: of neither */

#endif
