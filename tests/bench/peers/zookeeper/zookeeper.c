/* zookeeper.c: locks of a ZooKeeper ensemble through its own C client.
 *
 *     zookeeper plain|handoff|probe HOST:PORT,HOST:PORT,... CLIENTS SECONDS
 *
 *   plain     each client makes an ephemeral node of its own and deletes it, without end: the least
 *             that can be called a lock; a sample is the time of the creation
 *   handoff   the recipe of ZooKeeper's documentation: a sequential ephemeral node, the list of
 *             them, and a watch on the one in front; a sample is the time from before the holder
 *             deleted its node to when the next knew that it holds the lock
 *   probe     one client; a line for each creation: when it was asked for and when it was done, in
 *             nanoseconds of CLOCK_MONOTONIC, until it is killed
 *
 * plain and handoff print one line of JSON, as tests/bench/handoff.c does, after a tenth of SECONDS
 * to warm up. Uses the client's single-threaded library: 256 clients with two threads each would
 * take time from the servers. Each client has a session of its own, on the server that the library
 * chooses. Judges nothing. */
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <zookeeper/zookeeper.h>

#define CLIENTS_MAX 1024u
#define SAMPLES_MAX 4000000u
#define SESSION_MS 30000
#define PROBE_SESSION_MS 4000 /* the least that servers allow; a third of it finds a dead server */
#define CARE_NS UINT64_C(50000000) /* how often a quiet session is looked after */
#define PATH_SIZE 160u

enum mode { PLAIN, HANDOFF, PROBE };

struct client {
    zhandle_t *zk;
    unsigned number;
    bool connected, stale;
    char path[PATH_SIZE]; /* of its node */
    uint64_t sent_ns;     /* when it asked for the lock */
    uint64_t turns;
    int fd;
    short events;
};

static struct client clients[CLIENTS_MAX];
static struct pollfd polled[CLIENTS_MAX];
static unsigned n_clients;
static enum mode mode;
static char root[64];
static uint32_t *samples_us;
static size_t n_samples;
static uint64_t n_locks, warm_ns, end_ns;
static uint64_t released_ns; /* when the holder began to give the lock back; 0: not yet */
static unsigned idle;        /* clients that have stopped */

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * UINT64_C(1000000000) + (uint64_t)t.tv_nsec;
}

static void die(const char *what, int rc)
{
    fprintf(stderr, "zookeeper: %s: %s\n", what, zerror(rc));
    exit(1);
}

/* What must work, except that the probe lives through anything. */
static bool failed(const char *what, int rc)
{
    if (rc == ZOK) {
        return false;
    }
    if (mode != PROBE) {
        die(what, rc);
    }
    return true;
}

static void acquire(struct client *c);

static void on_deleted(int rc, const void *data)
{
    struct client *c = &clients[(size_t)data];
    (void)failed("delete", rc);
    acquire(c);
}

static void take_sample(struct client *c, uint64_t got_ns)
{
    if (mode == PROBE) {
        printf("%" PRIu64 " %" PRIu64 "\n", c->sent_ns, got_ns);
        return;
    }
    uint64_t from_ns = mode == HANDOFF ? released_ns : c->sent_ns;
    /* A lock that was asked for after it was given back was not handed over. */
    bool counts = got_ns >= warm_ns && got_ns < end_ns &&
                  (mode == PLAIN || (from_ns != 0 && c->sent_ns < from_ns));
    if (counts && n_samples < SAMPLES_MAX) {
        samples_us[n_samples++] = (uint32_t)((got_ns - from_ns) / 1000);
    }
    n_locks++;
}

static void granted(struct client *c)
{
    take_sample(c, now_ns());
    released_ns = now_ns();
    int rc = zoo_adelete(c->zk, c->path, -1, on_deleted, (const void *)(size_t)c->number);
    if (failed("delete", rc)) {
        acquire(c);
    }
}

/* ---- the recipe ------------------------------------------------------------------------------ */

static void look(struct client *c);

static void on_gone(zhandle_t *zk, int type, int state, const char *path, void *ctx)
{
    (void)zk, (void)state, (void)path;
    if (type != ZOO_SESSION_EVENT) {
        look(ctx);
    }
}

static void on_exists(int rc, const struct Stat *stat, const void *data)
{
    if (rc == ZNONODE) {
        look(&clients[(size_t)data]); /* it went before it could be watched; no watch was left */
    } else if (rc != ZOK) {
        die("exists", rc);
    }
}

/* A name is PREFIX and ten digits, so the order of the strings is that of the numbers. */
static void on_children(int rc, const struct String_vector *names, const void *data)
{
    struct client *c = &clients[(size_t)data];
    if (rc != ZOK) {
        die("children", rc);
    }
    const char *mine = strrchr(c->path, '/') + 1;
    const char *before = NULL;
    for (int32_t i = 0; i < names->count; i++) {
        const char *name = names->data[i];
        if (strcmp(name, mine) < 0 && (before == NULL || strcmp(name, before) > 0)) {
            before = name;
        }
    }
    if (before == NULL) {
        granted(c);
        return;
    }
    char path[PATH_SIZE];
    snprintf(path, sizeof path, "%s/%s", root, before);
    rc = zoo_awexists(c->zk, path, on_gone, c, on_exists, data);
    if (rc != ZOK) {
        die("exists", rc);
    }
}

static void look(struct client *c)
{
    int rc = zoo_aget_children(c->zk, root, 0, on_children, (const void *)(size_t)c->number);
    if (rc != ZOK) {
        die("children", rc);
    }
}

/* ---- acquiring ------------------------------------------------------------------------------- */

static void on_created(int rc, const char *path, const void *data)
{
    struct client *c = &clients[(size_t)data];
    if (failed("create", rc)) {
        acquire(c);
        return;
    }
    snprintf(c->path, sizeof c->path, "%s", path);
    if (mode == HANDOFF) {
        look(c);
    } else {
        granted(c);
    }
}

static void acquire(struct client *c)
{
    uint64_t now = now_ns();
    if (now >= end_ns) {
        idle++;
        return;
    }
    char path[PATH_SIZE];
    c->turns++;
    if (mode == PROBE) {
        snprintf(path, sizeof path, "%s/%u-%" PRIu64, root, c->number, c->turns);
    } else {
        snprintf(path, sizeof path, mode == PLAIN ? "%s/%u" : "%s/lock-", root, c->number);
    }
    c->sent_ns = now;
    int flags = ZOO_EPHEMERAL | (mode == HANDOFF ? ZOO_SEQUENCE : 0);
    int rc = zoo_acreate(c->zk, path, "x", 1, &ZOO_OPEN_ACL_UNSAFE, flags, on_created,
                         (const void *)(size_t)c->number);
    if (rc != ZOK && mode != PROBE) {
        die("create", rc);
    }
    c->stale = rc != ZOK; /* the probe: asked again from the loop */
}

/* ---- the loop -------------------------------------------------------------------------------- */

static void on_session(zhandle_t *zk, int type, int state, const char *path, void *ctx)
{
    (void)zk, (void)path;
    struct client *c = ctx;
    if (type == ZOO_SESSION_EVENT) {
        c->connected = state == ZOO_CONNECTED_STATE;
        if (state == ZOO_EXPIRED_SESSION_STATE) {
            die("session", ZSESSIONEXPIRED);
        }
    }
}

static void care(struct client *c)
{
    struct timeval tv;
    int interest = 0;
    c->fd = -1;
    int rc = zookeeper_interest(c->zk, &c->fd, &interest, &tv);
    if (rc != ZOK && rc != ZCONNECTIONLOSS && rc != ZOPERATIONTIMEOUT) {
        (void)failed("connect", rc);
    }
    c->events = (short)(((interest & ZOOKEEPER_READ) != 0 ? POLLIN : 0) |
                        ((interest & ZOOKEEPER_WRITE) != 0 ? POLLOUT : 0));
}

static void turn(uint64_t *cared_ns)
{
    uint64_t now = now_ns();
    bool all = now - *cared_ns > CARE_NS;
    *cared_ns = all ? now : *cared_ns;
    for (unsigned i = 0; i < n_clients; i++) {
        struct client *c = &clients[i];
        if (all || !c->connected || c->fd < 0 || (c->events & POLLOUT) != 0) {
            care(c);
        }
        polled[i] = (struct pollfd){.fd = c->fd, .events = c->events};
    }
    int n = poll(polled, n_clients, 10);
    for (unsigned i = 0; n > 0 && i < n_clients; i++) {
        short got = polled[i].revents;
        if (got == 0) {
            continue;
        }
        int events = ((got & (POLLIN | POLLHUP | POLLERR)) != 0 ? ZOOKEEPER_READ : 0) |
                     ((got & POLLOUT) != 0 ? ZOOKEEPER_WRITE : 0);
        int rc = zookeeper_process(clients[i].zk, events);
        if (rc != ZOK && rc != ZNOTHING && mode != PROBE) {
            die("connection", rc);
        }
        if (rc != ZOK || !clients[i].connected) {
            care(&clients[i]);
        }
    }
    if (mode == PROBE && clients[0].stale && clients[0].connected) {
        acquire(&clients[0]);
    }
}

static bool root_made;

static void on_root(int rc, const char *path, const void *data)
{
    (void)path, (void)data;
    if (rc != ZOK) {
        die("create", rc);
    }
    root_made = true;
}

static void connect_all(const char *hosts, uint64_t *cared_ns)
{
    zoo_set_debug_level((ZooLogLevel)0);
    for (unsigned i = 0; i < n_clients; i++) {
        clients[i].number = i;
        clients[i].fd = -1;
        clients[i].zk = zookeeper_init(
            hosts, on_session, mode == PROBE ? PROBE_SESSION_MS : SESSION_MS, NULL, &clients[i], 0);
        if (clients[i].zk == NULL) {
            die("connect", ZSYSTEMERROR);
        }
    }
    uint64_t deadline = now_ns() + UINT64_C(30000000000);
    unsigned connected = 0;
    while (connected < n_clients) {
        turn(cared_ns);
        connected = 0;
        for (unsigned i = 0; i < n_clients; i++) {
            connected += clients[i].connected;
        }
        if (now_ns() > deadline) {
            die("connect", ZOPERATIONTIMEOUT);
        }
    }
    snprintf(root, sizeof root, "/bench-%" PRIx64, now_ns() ^ ((uint64_t)getpid() << 48));
    int rc = zoo_acreate(clients[0].zk, root, "", 0, &ZOO_OPEN_ACL_UNSAFE, 0, on_root, NULL);
    while (rc == ZOK && !root_made) {
        turn(cared_ns);
    }
    (void)failed("create", rc);
}

static int in_order(const void *a, const void *b)
{
    const uint32_t *x = a;
    const uint32_t *y = b;
    return (*x > *y) - (*x < *y);
}

static uint32_t at(unsigned per_mille)
{
    return n_samples == 0 ? 0 : samples_us[(n_samples - 1) * per_mille / 1000];
}

int main(int argc, char **argv)
{
    static const char *const modes[] = {"plain", "handoff", "probe"};
    unsigned m = 0;
    while (m < 3 && argc == 5 && strcmp(argv[1], modes[m]) != 0) {
        m++;
    }
    n_clients = argc == 5 ? (unsigned)strtoul(argv[3], NULL, 10) : 0;
    double seconds = argc == 5 ? strtod(argv[4], NULL) : 0;
    if (m == 3 || n_clients < 1 || n_clients > CLIENTS_MAX || seconds <= 0) {
        fputs("usage: zookeeper plain|handoff|probe ADDRESSES CLIENTS SECONDS\n", stderr);
        return 2;
    }
    mode = (enum mode)m;
    samples_us = malloc(SAMPLES_MAX * sizeof *samples_us); /* touched as it fills */
    if (samples_us == NULL) {
        die("memory", ZSYSTEMERROR);
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
    uint64_t cared_ns = 0;
    end_ns = UINT64_MAX;
    connect_all(argv[2], &cared_ns);
    warm_ns = now_ns() + (uint64_t)(seconds * 1e8);
    end_ns = mode == PROBE ? UINT64_MAX : now_ns() + (uint64_t)(seconds * 1.1e9);
    for (unsigned i = 0; i < n_clients; i++) {
        acquire(&clients[i]);
    }
    while (idle < n_clients) {
        turn(&cared_ns);
    }
    qsort(samples_us, n_samples, sizeof *samples_us, in_order);
    printf("{\"mode\":\"%s\",\"clients\":%u,\"seconds\":%.1f,\"samples\":%zu,\"locks\":%" PRIu64
           ",\"p50_us\":%u,\"p90_us\":%u,\"p99_us\":%u,\"max_us\":%u}\n",
           modes[m], n_clients, seconds, n_samples, n_locks, at(500), at(900), at(990), at(1000));
    for (unsigned i = 0; i < n_clients; i++) {
        zookeeper_close(clients[i].zk);
    }
    return 0;
}
