/* loadgen.h: a closed loop of requests from many clients, in one thread, with percentiles: what
 * bench.c (a cluster of ours) and load.c (the comparison with other services) both run.
 *
 * A client has one connection (or, with a fan, one to each of several servers) and a fixed number
 * of slots. A slot has one request in flight; when that is answered it sends its next. A
 * loadgen_work makes the requests. The generator takes processor time on the same machine as the
 * servers, so a comparison must look at the servers' CPU time as well. */
#ifndef BENCH_LOADGEN_H
#define BENCH_LOADGEN_H

#include "histogram.h"
#include "client/nodes.h"
#include "link/link.h"

#define LOADGEN_CLIENTS_MAX 10000u
#define LOADGEN_SLOTS_MAX 100000u /* of all clients together */
#define LOADGEN_DRAIN_MS 2000u    /* at the end, to release what is held */

struct loadgen_slot {
    unsigned number;  /* of all slots */
    bool holds;       /* its next request is a release */
    uint64_t token;   /* or what else the work keeps */
    uint64_t sent_ns; /* when the request in flight was sent */
    unsigned missing; /* answers still to come */
    unsigned yes;     /* answers that said yes; for the work */
    bool failed;      /* an answer was an error */
};

enum loadgen_outcome {
    LOADGEN_ACQUIRED, /* the slot holds something now */
    LOADGEN_RELEASED, /* an acquire and its release are complete */
    LOADGEN_REFUSED,  /* another holds it: no error, and tried again */
    LOADGEN_FAILED,
};

struct loadgen_work {
    void *ctx;
    bool fans; /* each client connects to every server, and sends each request to all of them */
    /* Appends the slot's next request. 0 or an error of the buffer. */
    int (*ask)(void *ctx, struct loadgen_slot *s, struct fli_buf *out);
    /* Takes one answer. */
    void (*answer)(void *ctx, struct loadgen_slot *s, const redisReply *reply);
    /* All answers have come: classifies them. counts: false during warm-up and drain. */
    enum loadgen_outcome (*outcome)(void *ctx, struct loadgen_slot *s, uint64_t now_ns,
                                    bool counts);
};

struct loadgen_result {
    uint64_t pairs;
    uint64_t all_pairs; /* also outside of the measured time */
    uint64_t refused;
    uint64_t errors;
    double seconds;
    struct histogram acquire;
    struct histogram release;
    char first_error[256];
};

struct loadgen_config {
    const struct fli_node *nodes;
    uint32_t n_nodes;                   /* clients are spread over them, unless the work fans out */
    struct fli_link_security *security; /* NULL: neither TLS nor a login */
    unsigned clients;                   /* 1 to LOADGEN_CLIENTS_MAX */
    unsigned in_flight;                 /* slots of each client */
    uint64_t warmup_ms;                 /* not counted */
    uint64_t measure_ms;                /* counted */
    const struct loadgen_work *work;
    bool (*stopped)(void *ctx); /* whether to end the run now; NULL: never early */
    void *ctx;
};

/* Runs the load. 0; FL_ENOCONN (cannot connect, or a connection broke), FL_EPROTO, FL_ELIMIT
 * (descriptors or slots), with a sentence in errmsg. */
int loadgen_run(const struct loadgen_config *config, struct loadgen_result *ret, char *errmsg,
                size_t errmsg_size) FLI_MUST_USE;

/* Appends a request made of C strings. */
int loadgen_put(struct fli_buf *out, unsigned argc, const char *const *argv) FLI_MUST_USE;

/* ---- the work of fencelock ------------------------------------------------------------------- */

struct loadgen_locks {
    char prefix[64];  /* of lock names and owners; no two runs have the same */
    const char *name; /* the one lock that all want; NULL: each slot has its own */
    uint64_t ttl_ms;
    uint64_t wait_ms;          /* 0: no wait */
    uint64_t release_sent_ns;  /* with `name`: when its release was sent; 0: there was none */
    struct histogram *handoff; /* with `name`: the time from the release to the next grant */
};

/* The work that acquires and releases; l must stay where it is. */
struct loadgen_work loadgen_locks_work(struct loadgen_locks *l);

#endif
