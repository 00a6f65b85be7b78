/* main.c: seeds, faults and phases of the simulation.
 *
 * A run: the cluster starts; clients work while faults come and go; everything is healed and every
 * client must get its answer in bounded time; then nobody asks for anything, and every lease must
 * end by itself and all replicas be equal. */
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "sim.h"

#define ANSWER_BOUND_MS 8000u /* from healing to the last answer */
#define REST_BOUND_MS 12000u  /* from the last answer to the end of every lease */
#define IDLE_ENTRIES_MAX 400u /* what expiry alone may write in that time */

static uint64_t current_seed;
static const char *program = "sim";

/* Also after an assertion or a sanitizer has fired, the seed must be known. */
static void print_seed(void)
{
    char text[128];
    int n = snprintf(text, sizeof text, "\n%s: replay with --seed %llu\n", program,
                     (unsigned long long)current_seed);
    if (n > 0 && write(STDERR_FILENO, text, (size_t)n) < 0) {
        return;
    }
}

static void on_signal(int sig)
{
    print_seed();
    signal(sig, SIG_DFL);
    raise(sig);
}

void __sanitizer_set_death_callback(void (*callback)(void)) __attribute__((weak));

void sim_fail(struct sim *s, const char *fmt, ...)
{
    va_list args;
    fprintf(stderr, "\nseed %llu, %llu ms, step %llu: ", (unsigned long long)s->seed,
            (unsigned long long)sim_now(s), (unsigned long long)s->oracle.steps);
    va_start(args, fmt);
    vfprintf(stderr, fmt, args);
    va_end(args);
    fputc('\n', stderr);
    sim_cluster_describe(s);
    sim_clients_describe(s);
    print_seed();
    fflush(NULL);
    _Exit(1);
}

void sim_trace(struct sim *s, const char *fmt, ...)
{
    if (!s->trace) {
        return;
    }
    va_list args;
    printf("%6llu ", (unsigned long long)sim_now(s));
    va_start(args, fmt);
    vprintf(fmt, args);
    va_end(args);
    putchar('\n');
}

/* splitmix64 (Steele, Lea, Flood 2014). */
uint64_t sim_random(struct sim *s)
{
    uint64_t z = s->random += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

uint64_t sim_below(struct sim *s, uint64_t n)
{
    return sim_random(s) % n;
}

bool sim_chance(struct sim *s, unsigned percent)
{
    return sim_below(s, 100) < percent;
}

uint64_t sim_now(const struct sim *s)
{
    return s->fixture.time;
}

void *sim_grow(void *p, size_t *cap, size_t need, size_t size)
{
    if (need <= *cap) {
        return p;
    }
    size_t cap_new = need * 2 + 16;
    p = realloc(p, cap_new * size);
    FLI_ASSERT(p != NULL);
    memset((char *)p + *cap * size, 0, (cap_new - *cap) * size);
    *cap = cap_new;
    return p;
}

/* How rough this seed is; each seed has its own mixture. */
struct weather {
    unsigned cut, lossy, join, pause, resume, slow, transfer, shuffle; /* percent per 10 ms */
};

static struct weather weather_of(struct sim *s)
{
    struct weather w = {.shuffle = 5};
    w.cut = sim_chance(s, 60) ? (unsigned)sim_below(s, 6) : 0;
    w.lossy = (unsigned)sim_below(s, 101);
    w.join = (unsigned)(2 + sim_below(s, 10));
    w.pause = sim_chance(s, 60) ? (unsigned)sim_below(s, 3) : 0;
    w.resume = (unsigned)(1 + sim_below(s, 8));
    w.slow = sim_chance(s, 50) ? (unsigned)sim_below(s, 4) : 0;
    w.transfer = sim_chance(s, 40) ? (unsigned)sim_below(s, 3) : 0;
    return w;
}

static void misfortune(struct sim *s, const struct weather *w)
{
    unsigned i = (unsigned)sim_below(s, s->n);
    unsigned j = (unsigned)((i + 1 + sim_below(s, s->n - 1)) % s->n);
    if (sim_chance(s, w->cut)) {
        bool lossy = sim_chance(s, w->lossy);
        sim_cut(s, i, j, lossy);
        if (sim_chance(s, 50)) {
            sim_cut(s, j, i, lossy);
        }
    }
    if (sim_chance(s, w->join)) {
        sim_join(s, i, j);
        sim_join(s, j, i);
    }
    if (sim_chance(s, w->pause) && sim_node_alive(s, i)) {
        sim_pause(s, i);
    }
    if (sim_chance(s, w->resume) && !sim_node_alive(s, j)) {
        sim_resume(s, j);
    }
    if (sim_chance(s, w->slow)) {
        unsigned top = sim_chance(s, 20) ? 200 : 25;
        unsigned network_ms = (unsigned)(1 + sim_below(s, top));
        sim_slow(s, i, network_ms, (unsigned)(1 + sim_below(s, top)));
    }
    if (sim_chance(s, w->transfer)) {
        sim_transfer(s, i);
    }
    if (sim_chance(s, w->shuffle)) {
        sim_shuffle_election(s, i);
    }
}

static uint64_t entries_proposed(struct sim *s)
{
    uint64_t n = 0;
    for (unsigned i = 0; i < s->n; i++) {
        struct proposer_stats stats;
        proposer_get_stats(s->nodes[i].proposer, &stats);
        n += stats.batches;
    }
    return n;
}

static void work(struct sim *s, uint64_t duration_ms)
{
    struct weather w = weather_of(s);
    uint64_t next_ms = 0;
    while (sim_now(s) < duration_ms) {
        sim_cluster_step(s);
        sim_clients_step(s);
        if (sim_now(s) >= next_ms) {
            misfortune(s, &w);
            next_ms = sim_now(s) + 10;
        }
    }
}

static bool at_rest(struct sim *s)
{
    struct machine_counts counts;
    machine_get_counts(fsm_machine(s->nodes[0].fsm), &counts);
    return counts.sessions == 0 && counts.locks == 0 && sim_converged(s);
}

static void settle(struct sim *s)
{
    sim_heal(s);
    s->quiet = true;
    uint64_t bound_ms = sim_now(s) + ANSWER_BOUND_MS;
    while (!sim_clients_done(s) || !sim_converged(s)) {
        /* The fixture draws no new election timeout by itself: equal ones would split votes. */
        if (sim_chance(s, 10)) {
            sim_shuffle_election(s, (unsigned)sim_below(s, s->n));
        }
        sim_cluster_step(s);
        sim_clients_step(s);
        SIM_CHECK(s, sim_now(s) < bound_ms, "not everybody is answered %u ms after healing",
                  ANSWER_BOUND_MS);
    }
    uint64_t entries = entries_proposed(s);
    bound_ms = sim_now(s) + REST_BOUND_MS;
    while (!at_rest(s)) {
        sim_cluster_step(s);
        SIM_CHECK(s, sim_now(s) < bound_ms, "leases have not ended %u ms after the last answer",
                  REST_BOUND_MS);
    }
    SIM_CHECK(s, entries_proposed(s) - entries < IDLE_ENTRIES_MAX,
              "expiry wrote %llu entries in an idle cluster",
              (unsigned long long)(entries_proposed(s) - entries));
}

static uint64_t run_seed(uint64_t seed, bool trace, struct sim_marks *marks)
{
    struct sim *s = calloc(1, sizeof *s);
    FLI_ASSERT(s != NULL);
    current_seed = seed;
    s->seed = seed;
    s->random = seed * UINT64_C(0x2545f4914f6cdd1d) + 1;
    s->trace = trace;
    s->marks = marks;
    s->n = sim_chance(s, 70) ? 3 : 5;
    s->clients_n = (unsigned)(2 + sim_below(s, SIM_CLIENTS_MAX - 1));
    sim_oracle_init(s);
    sim_clients_start(s);
    sim_cluster_start(s);
    work(s, 1500 + sim_below(s, 3500));
    settle(s);
    sim_oracle_end(s);
    s->quiet = true;
    uint64_t digest = s->digest;
    sim_cluster_stop(s);
    sim_oracle_fini(s);
    free(s);
    return digest;
}

/* A run of many seeds that never reached one of the marks does not test what it says. */
static int report(const struct sim_marks *marks, uint64_t seeds)
{
    int missing = 0;
#define SIM_MARK_REPORT(name, needs)                                                               \
    printf("  %-20s %llu\n", #name, (unsigned long long)marks->name);                              \
    if (marks->name == 0 && seeds >= (needs)) {                                                    \
        fprintf(stderr, "%s: no seed of %llu reached: %s\n", program, (unsigned long long)seeds,   \
                #name);                                                                            \
        missing++;                                                                                 \
    }
    SIM_MARKS(SIM_MARK_REPORT)
#undef SIM_MARK_REPORT
    return missing == 0 ? 0 : 1;
}

static uint64_t number(const char *text)
{
    uint64_t n;
    if (text == NULL || !fli_parse_u64(text, strlen(text), UINT64_MAX, &n)) {
        fprintf(stderr, "usage: %s [--seed N | --seeds N [--from K]] [--trace]\n", program);
        exit(2);
    }
    return n;
}

int main(int argc, char **argv)
{
    uint64_t from = 1;
    uint64_t seeds = 200;
    bool trace = false;
    const char *env = getenv("FENCELOCK_SEED");
    program = argv[0];
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--seed") == 0) {
            env = i + 1 < argc ? argv[i + 1] : NULL;
            from = number(env);
            i++;
        } else if (strcmp(argv[i], "--seeds") == 0) {
            seeds = number(argv[++i]);
        } else if (strcmp(argv[i], "--from") == 0) {
            from = number(argv[++i]);
        } else if (strcmp(argv[i], "--trace") == 0) {
            trace = true;
        } else {
            number(NULL);
        }
    }
    if (env != NULL) {
        from = number(env);
        seeds = 1;
    }
    signal(SIGABRT, on_signal);
    if (__sanitizer_set_death_callback != NULL) {
        __sanitizer_set_death_callback(print_seed);
    } else {
        signal(SIGSEGV, on_signal);
    }
    struct sim_marks marks = {0};
    uint64_t digest = 0;
    for (uint64_t seed = from; seed < from + seeds; seed++) {
        digest = run_seed(seed, trace, &marks);
        /* Now and then the same seed again, to prove that it can be replayed. */
        if (seed % 64 == 0 && run_seed(seed, false, &marks) != digest) {
            fprintf(stderr, "%s: seed %llu does not repeat\n", program, (unsigned long long)seed);
            return 1;
        }
    }
    printf("%llu seeds from %llu, last digest %016llx\n", (unsigned long long)seeds,
           (unsigned long long)from, (unsigned long long)digest);
    return report(&marks, seeds);
}
