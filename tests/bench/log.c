/* log.c: what the durable log costs by itself: one client's view of a write, entries/s and CPU.
 *
 *   log [DIR] [SECONDS]     DIR: on the disk that is to be measured (default: the current one)
 *
 * Each row keeps so many entries of 64 bytes on their way: as many as there are go into each write.
 */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/clock.h"
#include "log/log.h"

#define ENTRY 64u

struct run {
    struct log_device *device;
    struct log *log;
    bool closed;
};

static void on_durable(void *ctx)
{
}

static void on_failed(void *ctx, int error, const char *message)
{
    fprintf(stderr, "log: %s\n", message);
    exit(1);
}

static void on_say(void *ctx, enum log_level level, const char *message)
{
    fprintf(stderr, "log: %s\n", message);
}

static void on_closed(void *ctx)
{
    struct run *r = ctx;
    r->closed = true;
}

static void turn(struct run *r)
{
    (void)log_device_wait(r->device, -1);
}

static void append(struct run *r)
{
    static const uint8_t data[ENTRY] = "a lock is a lock is a lock";
    struct log_entry e = {
        .index = log_last_index(r->log) + 1, .term = 1, .kind = 1, .len = ENTRY, .data = data};
    if (log_append(r->log, &e) == 0) {
        fprintf(stderr, "log: no room\n");
        exit(1);
    }
}

static double cpu_s(void)
{
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
           (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6;
}

static void measure(struct run *r, unsigned window, double seconds, const char *engine)
{
    struct log_stats before;
    struct log_stats after;
    log_get_stats(r->log, &before);
    double cpu = cpu_s();
    uint64_t first = log_last_index(r->log);
    uint64_t since = fli_clock_ns();
    uint64_t until = since + (uint64_t)(seconds * 1e9);
    uint64_t longest = 0;
    uint64_t last = since;
    uint64_t done = log_durable(r->log);
    while (fli_clock_ns() < until) {
        while (log_position(r->log) - log_durable(r->log) < window) {
            append(r);
        }
        log_flush(r->log);
        turn(r);
        if (log_durable(r->log) != done) {
            uint64_t now = fli_clock_ns();
            longest = now - last > longest ? now - last : longest;
            last = now;
            done = log_durable(r->log);
            log_compact(r->log, log_durable_index(r->log));
        }
    }
    log_get_stats(r->log, &after);
    double took = (double)(fli_clock_ns() - since) / 1e9;
    double writes = (double)(after.writes - before.writes);
    double entries = (double)(log_last_index(r->log) - first);
    printf("%-10.10s %8u %12.0f %10.0f %10.1f %12.2f %14.2f %10.2f %9llu\n", engine, window,
           entries / took, writes / took,
           (double)(after.write_ns_sum - before.write_ns_sum) / writes / 1e3,
           (cpu_s() - cpu) / entries * 1e6, (cpu_s() - cpu) / writes * 1e6, (double)longest / 1e6,
           (unsigned long long)(after.recycled - before.recycled));
}

static void run_engine(const char *base, unsigned engine, double seconds)
{
    char dir[512];
    char command[600];
    char errmsg[512];
    struct run r = {.log = NULL};
    snprintf(dir, sizeof dir, "%s/log-bench-XXXXXX", base);
    if (mkdtemp(dir) == NULL) {
        perror(dir);
        exit(1);
    }
    uint64_t since = fli_clock_ns();
    struct log_config config = {.durable = on_durable, .failed = on_failed, .log = on_say};
    if (log_files_create(dir, engine, &r.device, errmsg, sizeof errmsg) != 0) {
        printf("%s\n", errmsg);
        return;
    }
    config.device = r.device;
    config.ctx = &r;
    uint64_t created = fli_clock_ns();
    if (log_open(&config, &r.log, errmsg, sizeof errmsg) != 0) {
        fprintf(stderr, "log: %s\n", errmsg);
        exit(1);
    }
    uint64_t opened = fli_clock_ns();
    printf("%s: device %.2f ms, log_open of an empty directory %.2f ms\n", r.device->engine,
           (double)(created - since) / 1e6, (double)(opened - created) / 1e6);
    static const unsigned windows[] = {1, 16, 256};
    for (unsigned i = 0; i < 3; i++) {
        measure(&r, windows[i], seconds, r.device->engine);
    }
    log_close(r.log, on_closed, &r);
    while (!r.closed) {
        turn(&r);
    }
    log_destroy(r.log);
    since = fli_clock_ns();
    if (log_open(&config, &r.log, errmsg, sizeof errmsg) != 0) {
        fprintf(stderr, "log: %s\n", errmsg);
        exit(1);
    }
    struct log_stats s;
    log_get_stats(r.log, &s);
    printf("log_open again: %.2f ms for %llu bytes in %llu segments\n",
           (double)(fli_clock_ns() - since) / 1e6, (unsigned long long)s.bytes,
           (unsigned long long)s.segments);
    r.closed = false;
    log_close(r.log, on_closed, &r);
    while (!r.closed) {
        turn(&r);
    }
    log_destroy(r.log);
    log_files_destroy(r.device);
    snprintf(command, sizeof command, "rm -rf '%s'", dir);
    if (system(command) != 0) {
        fprintf(stderr, "log: %s is left\n", dir);
    }
}

int main(int argc, char **argv)
{
    const char *dir = argc > 1 ? argv[1] : ".";
    double seconds = argc > 2 ? strtod(argv[2], NULL) : 2;
    printf("%-10s %8s %12s %10s %10s %12s %14s %10s %9s\n", "engine", "window", "entries/s",
           "writes/s", "us/write", "cpu us/entry", "cpu us/write", "gap ms", "recycled");
    run_engine(dir, LOG_ENGINE_BEST, seconds);
    run_engine(dir, LOG_ENGINE_THREAD, seconds);
    return 0;
}
