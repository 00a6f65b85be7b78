/* tools.c: runs in processes of their own, whose failure is the result: the smallest part of a run
 * that still fails, and sabotage that must be caught. */
#include "tools.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define SABOTAGE_SEEDS_MAX 600u
#define SABOTAGE_CAUGHT 3u /* by this many seeds for each sabotage */

struct outcome {
    bool failed;
    char message[512]; /* the first line about the failure */
};

/* The process prints to a pipe. The line that begins with "seed", or an assertion, tells the
 * failure. */
static void read_message(int fd, struct outcome *ret)
{
    char text[65536];
    size_t len = 0;
    ssize_t n;
    while (len < sizeof text - 1 && (n = read(fd, text + len, sizeof text - 1 - len)) > 0) {
        len += (size_t)n;
    }
    text[len] = '\0';
    const char *at = strstr(text, "\nseed ");
    at = at == NULL ? strstr(text, "ssert") : at + 1;
    at = at == NULL ? text : at;
    snprintf(ret->message, sizeof ret->message, "%.*s", (int)strcspn(at, "\n"), at);
}

static struct outcome try_run(const struct sim_orders *orders, unsigned *ret_faults)
{
    struct outcome out = {0};
    int fds[2];
    int counts[2];
    if (pipe(fds) != 0 || pipe(counts) != 0) {
        abort();
    }
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        struct sim_marks marks = {0};
        unsigned faults = 0;
        dup2(fds[1], STDERR_FILENO);
        dup2(fds[1], STDOUT_FILENO);
        close(fds[0]);
        close(counts[0]);
        sim_run(orders, &marks, &faults);
        if (write(counts[1], &faults, sizeof faults) < 0) {
            _Exit(3);
        }
        _Exit(0);
    }
    int status = 0;
    close(fds[1]);
    close(counts[1]);
    read_message(fds[0], &out);
    waitpid(pid, &status, 0);
    if (ret_faults != NULL && read(counts[0], ret_faults, sizeof *ret_faults) <= 0) {
        *ret_faults = SIM_FAULTS_MAX;
    }
    close(fds[0]);
    close(counts[0]);
    out.failed = status != 0;
    return out;
}

/* ---- shortening ---- */

/* Whether two failures are of the same kind: the same words, with any numbers. */
static bool same_kind(const char *a, const char *b)
{
    for (;;) {
        while (*a != '\0' && !isalpha((unsigned char)*a)) {
            a++;
        }
        while (*b != '\0' && !isalpha((unsigned char)*b)) {
            b++;
        }
        if (*a != *b) {
            return false;
        }
        if (*a == '\0') {
            return true;
        }
        a++;
        b++;
    }
}

static bool still_fails(const struct plan *p, const struct outcome *first)
{
    struct outcome out = try_run(&p->orders, NULL);
    return out.failed && same_kind(out.message, first->message);
}

static unsigned faults_kept(const struct plan *p)
{
    unsigned n = 0;
    for (unsigned i = 0; i < SIM_FAULTS_MAX; i++) {
        n += p->without[i] == 0;
    }
    return n;
}

/* Leaves out runs of `chunk` kept faults, as long as the run still fails without them. */
static void shorten_faults(struct plan *p, const struct outcome *first, unsigned chunk)
{
    uint8_t before[SIM_FAULTS_MAX];
    for (unsigned start = 0; start < SIM_FAULTS_MAX;) {
        unsigned left = chunk;
        unsigned i = start;
        memcpy(before, p->without, sizeof before);
        for (; i < SIM_FAULTS_MAX && left > 0; i++) {
            left -= p->without[i] == 0;
            p->without[i] = 1;
        }
        if (left < chunk && !still_fails(p, first)) {
            memcpy(p->without, before, sizeof before);
        }
        start = i;
    }
}

static void shorten_time(struct plan *p, const struct outcome *first)
{
    uint64_t low = 1;
    uint64_t longest = p->orders.length == 0 ? 12001 : 1 << 24;
    uint64_t high = p->orders.until_ms != 0 ? p->orders.until_ms : longest;
    while (low < high) {
        uint64_t before = p->orders.until_ms;
        p->orders.until_ms = low + (high - low) / 2;
        if (still_fails(p, first)) {
            high = p->orders.until_ms;
        } else {
            low = p->orders.until_ms + 1;
            p->orders.until_ms = before;
        }
    }
}

static void shorten_clients(struct plan *p, const struct outcome *first)
{
    unsigned before = p->orders.clients;
    for (unsigned n = 1; n < SIM_CLIENTS_MAX && (before == 0 || n < before); n++) {
        p->orders.clients = n;
        if (still_fails(p, first)) {
            return;
        }
    }
    p->orders.clients = before;
}

int tools_minimize(struct plan *p)
{
    char command[4096];
    p->orders.seed = p->from;
    struct outcome first = try_run(&p->orders, NULL);
    if (!first.failed) {
        printf("seed %llu does not fail\n", (unsigned long long)p->from);
        return 0;
    }
    printf("%s\n", first.message);
    if (p->orders.without == NULL) {
        p->orders.without = p->without;
    }
    shorten_time(p, &first);
    for (unsigned chunk = faults_kept(p); chunk > 0; chunk /= 2) {
        shorten_faults(p, &first, chunk);
    }
    shorten_clients(p, &first);
    shorten_faults(p, &first, 1);
    shorten_time(p, &first);
    p->faults = SIM_FAULTS_MAX;
    tools_replay(p, p->from, command, sizeof command);
    struct outcome last = try_run(&p->orders, NULL);
    printf("with %u faults: %s\nreplay: %s --trace\n", faults_kept(p), last.message, command);
    return 1;
}

/* ---- sabotage ---- */

/* A checker that has never failed proves nothing. */
static bool caught(struct plan *p, enum sim_sabotage k)
{
    unsigned n = 0;
    p->orders.sabotage = k;
    for (uint64_t i = 0; i < SABOTAGE_SEEDS_MAX; i++) {
        p->orders.seed = p->from + i;
        struct outcome out = try_run(&p->orders, NULL);
        /* The sabotage's damage must be caught, not a cluster that stands still or dies. */
        bool harm = strncmp(out.message, "seed ", 5) == 0 &&
                    strstr(out.message, "ms after healing") == NULL &&
                    strstr(out.message, "does not start") == NULL;
        if (!out.failed || !harm) {
            continue;
        }
        printf("%-18s caught: %s\n", tools_sabotage_name(k), out.message);
        if (++n == SABOTAGE_CAUGHT) {
            return true;
        }
    }
    fprintf(stderr, "%s: %s is caught by %u of %u seeds from %llu, %u are needed\n", p->program,
            tools_sabotage_name(k), n, SABOTAGE_SEEDS_MAX, (unsigned long long)p->from,
            SABOTAGE_CAUGHT);
    return false;
}

int tools_sabotaged(struct plan *p)
{
    bool all = true;
    for (unsigned k = SIM_SABOTAGE_NONE + 1; k < SIM_SABOTAGES; k++) {
        all = caught(p, (enum sim_sabotage)k) && all;
    }
    return all ? 0 : 1;
}
