/* machine_bench: nanoseconds and bytes the lock machine takes, on one core, without log or network.
 *
 * Prints one line a figure. Commands are encoded beforehand, so that what is measured is what a
 * replica does with an entry: verify, decode, apply. Not a test: timings are never assertions. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "../lib/give_up.h"
#include "../lib/snapshot_bytes.h"
#include "base/clock.h"
#include "machine/budget.h"
#include "machine/machine.h"

#define BATCH 100u

static const uint64_t seed[2] = {1, 2};

struct batches {
    struct fli_buf buf;
    uint32_t count;
    uint64_t clock_ms;
};

static void batch_start(struct batches *b)
{
    static const uint8_t room[MACHINE_BATCH_HEADER_SIZE];
    fli_buf_clear(&b->buf);
    b->count = 0;
    if (fli_buf_append(&b->buf, room, sizeof room) != 0) {
        abort();
    }
}

static void batch_add(struct batches *b, const struct machine_command *c)
{
    if (machine_command_encode(c, &b->buf) != 0) {
        abort();
    }
    b->count++;
}

static size_t batch_end(struct batches *b)
{
    struct machine_batch_header h = {.count = b->count, .timestamp_ms = b->clock_ms, .term = 1};
    h.length = (uint32_t)b->buf.len;
    if (fli_buf_reserve(&b->buf, 8) != 0) {
        abort();
    }
    return machine_batch_seal(b->buf.data, &h);
}

static void apply(struct machine *m, struct batches *b, struct machine_result *results)
{
    b->count += results == NULL ? give_up_leases(m, b->clock_ms, &b->buf, MACHINE_EXPIRIES_MAX) : 0;
    size_t len = batch_end(b); /* may move the data */
    if (machine_apply(m, b->buf.data, len, results) != 0) {
        abort();
    }
}

/* A 32-byte name or owner made of a number. */
static struct fli_slice text32(char out[33], char kind, uint64_t i)
{
    snprintf(out, 33, "%c-%030llu", kind, (unsigned long long)i);
    return (struct fli_slice){(const uint8_t *)out, 32};
}

static struct machine_command acquire(struct fli_slice name, struct fli_slice owner,
                                      uint64_t ttl_ms)
{
    return (struct machine_command){.op = MACHINE_OP_ACQUIRE,
                                    .n_names = 1,
                                    .permits = 1,
                                    .name = name,
                                    .owner = owner,
                                    .ttl_ms = ttl_ms};
}

/* Bytes of memory that this process has, those of malloc and those of slabs. */
static size_t resident(void)
{
    unsigned long long pages = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    if (f == NULL || fscanf(f, "%*u %llu", &pages) != 1) {
        abort();
    }
    fclose(f);
    return (size_t)pages * 4096;
}

static void report(const char *what, uint64_t ns, uint64_t n)
{
    printf("%-44s %9.1f ns/op\n", what, (double)ns / (double)n);
}

/* Applies pairs of ACQUIRE and RELEASE of free locks; `held` others stay held. */
static void bench_pairs(struct machine *m, struct batches *b, uint64_t pairs)
{
    char name[33];
    char owner[33];
    uint64_t ns = 0;
    uint64_t token = machine_last_token(m);
    for (uint64_t i = 0; i < pairs; i += BATCH) {
        batch_start(b);
        for (uint64_t k = 0; k < BATCH; k++) {
            struct machine_command c =
                acquire(text32(name, 'p', (i + k) % 5000), text32(owner, 'o', i + k), 60000);
            batch_add(b, &c);
            c = (struct machine_command){
                .op = MACHINE_OP_RELEASE, .name = c.name, .token = ++token};
            batch_add(b, &c);
        }
        b->clock_ms++;
        size_t len = batch_end(b);
        uint64_t t = fli_clock_ns();
        if (machine_apply(m, b->buf.data, len, NULL) != 0) {
            abort();
        }
        ns += fli_clock_ns() - t;
    }
    struct machine_counts n;
    machine_get_counts(m, &n);
    if (n.releases < pairs) {
        abort();
    }
    char what[80];
    snprintf(what, sizeof what, "ACQUIRE + RELEASE, %llu other locks held",
             (unsigned long long)n.locks_held);
    report(what, ns, pairs);
}

static void hold_many(struct machine *m, struct batches *b, uint64_t n)
{
    char name[33];
    char owner[33];
    size_t before = resident();
    uint64_t ns = 0;
    for (uint64_t i = 0; i < n; i += BATCH) {
        batch_start(b);
        for (uint64_t k = 0; k < BATCH; k++) {
            struct machine_command c = acquire(text32(name, 'n', i + k), text32(owner, 'o', i + k),
                                               FL_TTL_MAX_MS - (i + k) % 1000);
            batch_add(b, &c);
        }
        size_t len = batch_end(b);
        uint64_t t = fli_clock_ns();
        if (machine_apply(m, b->buf.data, len, NULL) != 0) {
            abort();
        }
        ns += fli_clock_ns() - t;
    }
    report("ACQUIRE of a new lock, kept", ns, n);
    size_t after = resident();
    printf("%-44s %9.1f bytes\n", "memory per held lock (32-byte name, owner)",
           (double)(after - before) / (double)n);
}

static void bench_snapshot(struct machine *m, uint64_t n)
{
    struct fli_buf out;
    fli_buf_init(&out, SIZE_MAX);
    uint64_t t = fli_clock_ns();
    if (machine_snapshot_encode(m, &out) != 0) {
        abort();
    }
    report("snapshot encode, per lock", fli_clock_ns() - t, n);
    t = fli_clock_ns();
    uint64_t hash = machine_hash(m);
    report("hash, per lock", fli_clock_ns() - t, n);
    struct machine *copy = NULL;
    t = fli_clock_ns();
    if (machine_snapshot_decode(out.data, out.len, seed, &copy) != 0 ||
        machine_hash(copy) != hash) {
        abort();
    }
    report("snapshot decode, per lock", fli_clock_ns() - t, n);
    machine_destroy(copy);
    fli_buf_fini(&out);
}

/* CPU time of this thread, so that a busy machine does not count. */
static uint64_t cpu_ns(void)
{
    struct timespec t;
    if (clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t) != 0) {
        abort();
    }
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static int by_size(const void *a, const void *b)
{
    const uint64_t *x = a;
    const uint64_t *y = b;
    return *x < *y ? -1 : *x > *y;
}

#define TIMES_MAX 20000u

/* Empty batches while there is work; how long they take. */
static void drain(struct machine *m, struct batches *b, const char *what, uint64_t n)
{
    static uint64_t times[TIMES_MAX];
    uint64_t all = 0;
    size_t batches = 0;
    do {
        batch_start(b);
        uint64_t t = cpu_ns();
        apply(m, b, NULL);
        t = cpu_ns() - t;
        all += t;
        if (batches < TIMES_MAX) {
            times[batches++] = t;
        }
    } while (machine_has_work(m) || machine_next_lease(m, b->clock_ms) <= b->clock_ms);
    report(what, all, n);
    qsort(times, batches, sizeof times[0], by_size);
    printf("  one apply of these, us of CPU: median %.0f, p99 %.0f, longest of %zu %.0f\n",
           (double)times[batches / 2] / 1000, (double)times[batches * 99 / 100] / 1000, batches,
           (double)times[batches - 1] / 1000);
}

/* A term mark, then everything expires at once. */
static void bench_expiry(struct machine *m, struct batches *b, uint64_t n)
{
    batch_start(b);
    struct machine_batch_header h = {.flags = MACHINE_BATCH_TERM_MARK,
                                     .timestamp_ms = b->clock_ms + 5000,
                                     .term = 2,
                                     .length = MACHINE_BATCH_HEADER_SIZE};
    size_t len = machine_batch_seal(b->buf.data, &h);
    uint64_t t = fli_clock_ns();
    if (machine_apply(m, b->buf.data, len, NULL) != 0) {
        abort();
    }
    report("term mark (whole)", fli_clock_ns() - t, 1);
    b->clock_ms += 2 * FL_TTL_MAX_MS;
    drain(m, b, "mass expiry, per lock", n);
}

/* The costliest batch that a leader may make beside all that is due: n leases that end, and waits
 * whose searches run along a chain of sessions. */
static void bench_worst(struct batches *b, uint64_t n)
{
    struct machine *m = machine_create(seed);
    char name[33];
    char owner[33];
    b->clock_ms = 1;
    hold_many(m, b, n);
    for (uint64_t i = 0; i < 3000; i++) {
        batch_start(b);
        struct machine_command c = {
            .op = MACHINE_OP_SESSION_OPEN, .owner = text32(owner, 's', i), .ttl_ms = FL_TTL_MAX_MS};
        batch_add(b, &c);
        c = acquire(text32(name, 'c', i), c.owner, 0);
        c.flags = MACHINE_ACQUIRE_EXPLICIT;
        batch_add(b, &c);
        apply(m, b, NULL);
    }
    for (uint64_t i = 0; i + 1 < 2000; i++) {
        batch_start(b);
        struct machine_command c = acquire(text32(name, 'c', i + 1), text32(owner, 's', i), 0);
        c.flags = MACHINE_ACQUIRE_EXPLICIT | MACHINE_ACQUIRE_WAIT;
        c.wait_ms = FL_WAIT_MAX_MS;
        batch_add(b, &c);
        apply(m, b, NULL);
    }
    b->clock_ms += FL_TTL_MAX_MS - 1;
    batch_start(b);
    uint64_t cost = 0;
    for (uint64_t i = 2001; i < 3000; i++) {
        struct machine_command c = acquire(text32(name, 'c', 0), text32(owner, 's', i), 0);
        c.flags = MACHINE_ACQUIRE_EXPLICIT | MACHINE_ACQUIRE_WAIT;
        c.wait_ms = FL_WAIT_MAX_MS;
        cost += machine_command_cost(&c);
        if (cost > MACHINE_BATCH_COST_MAX) {
            break;
        }
        batch_add(b, &c);
    }
    uint64_t t = cpu_ns();
    apply(m, b, NULL);
    t = cpu_ns() - t;
    printf("%-44s %9.1f us of CPU, %llu steps\n", "apply of the costliest batch", (double)t / 1000,
           (unsigned long long)machine_spent(m));
    machine_destroy(m);
}

/* One hot lock with a queue of `n`: each RELEASE grants the head, who then asks at the end
 * again. */
static void bench_queue(struct batches *b, uint64_t n, uint64_t rounds)
{
    struct machine *m = machine_create(seed);
    char owner[33];
    struct fli_slice name = {(const uint8_t *)"hot", 3};
    for (uint64_t i = 0; i < n; i++) {
        batch_start(b);
        struct machine_command c = acquire(name, text32(owner, 'w', i), 60000);
        c.flags = MACHINE_ACQUIRE_WAIT;
        c.wait_ms = FL_WAIT_MAX_MS;
        batch_add(b, &c);
        apply(m, b, NULL);
    }
    uint64_t t = fli_clock_ns();
    for (uint64_t i = 0; i < rounds; i++) {
        batch_start(b);
        struct machine_command c = {
            .op = MACHINE_OP_RELEASE, .name = name, .token = machine_last_token(m)};
        batch_add(b, &c);
        c = acquire(name, text32(owner, 'w', i % n), 60000);
        c.flags = MACHINE_ACQUIRE_WAIT;
        c.wait_ms = FL_WAIT_MAX_MS;
        batch_add(b, &c);
        apply(m, b, NULL);
    }
    report("RELEASE, grant to next, join queue of 20000", fli_clock_ns() - t, rounds);
    machine_destroy(m);
}

int main(int argc, char **argv)
{
    uint64_t n = argc > 1 ? strtoull(argv[1], NULL, 10) : 1000000;
    struct batches b = {.clock_ms = 1};
    fli_buf_init(&b.buf, MACHINE_BATCH_MAX);
    batch_start(&b);
    struct machine *m = machine_create(seed);
    bench_pairs(m, &b, 1000000);
    hold_many(m, &b, n);
    bench_pairs(m, &b, 1000000);
    bench_snapshot(m, n);
    bench_expiry(m, &b, n);
    bench_queue(&b, 20000, 100000);
    bench_worst(&b, n);
    machine_destroy(m);
    fli_buf_fini(&b.buf);
    return 0;
}
