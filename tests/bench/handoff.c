/* handoff.c: how fast a contended lock changes hands, and for comparison how fast a free one is
 * taken, through libfencelock's blocking calls.
 *
 *     handoff plain|handoff NODES CLIENTS SECONDS
 *
 *   plain     each client has a lock of its own, and takes it and gives it back without end; a
 *             sample is the time of fl_lock_take()
 *   handoff   all clients want one lock; a sample is the time from before fl_lock_release() was
 *             called by the holder to when fl_lock_take() returned to the next
 *
 * Each client is a thread with a connection of its own. Prints one line of JSON: samples, seconds,
 * and percentiles in microseconds; the same as tests/bench/peers/etcd. Judges nothing. */
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "fencelock/client.h"

#define CLIENTS_MAX 256u
#define SAMPLES_MAX 2000000u /* of one client */
#define TTL_MS UINT64_C(60000)

struct worker {
    pthread_t thread;
    fl_client *client;
    char name[32];
    uint32_t *samples_us;
    size_t n_samples;
    uint64_t locks;
};

static struct worker workers[CLIENTS_MAX];
static bool hands_off;
static uint64_t warm_ns, end_ns;
static _Atomic uint64_t released_ns; /* when the holder began to give the lock back; 0: not yet */

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * UINT64_C(1000000000) + (uint64_t)t.tv_nsec;
}

static void must(int rc, const char *what, const fl_client *c)
{
    if (rc != 0) {
        fprintf(stderr, "handoff: %s: %s\n", what, c != NULL ? fl_client_error(c) : "");
        exit(1);
    }
}

static void take_sample(struct worker *w, uint64_t sent_ns, uint64_t got_ns)
{
    uint64_t from_ns = hands_off ? atomic_load(&released_ns) : sent_ns;
    /* A lock that was asked for after it was given back was not handed over. */
    bool counts = got_ns >= warm_ns && (!hands_off || (from_ns != 0 && sent_ns < from_ns));
    if (counts && w->n_samples < SAMPLES_MAX) {
        w->samples_us[w->n_samples++] = (uint32_t)((got_ns - from_ns) / 1000);
    }
}

static void *work(void *arg)
{
    struct worker *w = arg;
    const struct fl_take options = {
        .ttl_ms = TTL_MS, .wait_ms = hands_off ? TTL_MS : 0, .unrenewed = true};
    while (now_ns() < end_ns) {
        fl_lock *lock;
        uint64_t sent_ns = now_ns();
        must(fl_lock_take(w->client, w->name, &options, &lock), "acquire", w->client);
        take_sample(w, sent_ns, now_ns());
        w->locks++;
        atomic_store(&released_ns, now_ns());
        must(fl_lock_release(lock), "release", w->client);
    }
    return NULL;
}

static int in_order(const void *a, const void *b)
{
    const uint32_t *x = a;
    const uint32_t *y = b;
    return (*x > *y) - (*x < *y);
}

static uint32_t at(const uint32_t *sorted, size_t n, unsigned per_mille)
{
    return n == 0 ? 0 : sorted[(n - 1) * per_mille / 1000];
}

static void print_result(const char *mode, unsigned n, double seconds)
{
    size_t total = 0;
    uint64_t locks = 0;
    for (unsigned i = 0; i < n; i++) {
        total += workers[i].n_samples;
        locks += workers[i].locks;
    }
    uint32_t *all = calloc(total + 1, sizeof *all);
    must(all == NULL ? FL_ENOMEM : 0, "out of memory", NULL);
    size_t len = 0;
    for (unsigned i = 0; i < n; i++) {
        memcpy(all + len, workers[i].samples_us, workers[i].n_samples * sizeof *all);
        len += workers[i].n_samples;
    }
    qsort(all, total, sizeof *all, in_order);
    printf("{\"mode\":\"%s\",\"clients\":%u,\"seconds\":%.1f,\"samples\":%zu,\"locks\":%" PRIu64 ","
           "\"p50_us\":%u,\"p90_us\":%u,\"p99_us\":%u,\"max_us\":%u}\n",
           mode, n, seconds, total, locks, at(all, total, 500), at(all, total, 900),
           at(all, total, 990), at(all, total, 1000));
    free(all);
}

int main(int argc, char **argv)
{
    unsigned long n = argc == 5 ? strtoul(argv[3], NULL, 10) : 0;
    double seconds = argc == 5 ? strtod(argv[4], NULL) : 0;
    hands_off = argc == 5 && strcmp(argv[1], "handoff") == 0;
    if (n < 1 || n > CLIENTS_MAX || seconds <= 0 || (!hands_off && strcmp(argv[1], "plain") != 0)) {
        fprintf(stderr, "usage: handoff plain|handoff NODES CLIENTS SECONDS\n");
        return 2;
    }
    for (unsigned i = 0; i < n; i++) {
        struct worker *w = &workers[i];
        snprintf(w->name, sizeof w->name, "bench/%u", hands_off ? 0 : i);
        w->samples_us = malloc(SAMPLES_MAX * sizeof w->samples_us[0]); /* touched as it fills */
        must(w->samples_us == NULL ? FL_ENOMEM : fl_open(argv[2], NULL, &w->client), "create",
             NULL);
    }
    warm_ns = now_ns() + (uint64_t)(seconds * 1e8);
    end_ns = now_ns() + (uint64_t)(seconds * 1.1e9);
    for (unsigned i = 0; i < n; i++) {
        must(pthread_create(&workers[i].thread, NULL, work, &workers[i]), "thread", NULL);
    }
    for (unsigned i = 0; i < n; i++) {
        (void)pthread_join(workers[i].thread, NULL);
    }
    print_result(argv[1], (unsigned)n, seconds);
    for (unsigned i = 0; i < n; i++) {
        fl_close(workers[i].client);
        free(workers[i].samples_us);
    }
    return 0;
}
