/* main.c: options, many seeds, and the report at the end. */
#include <malloc.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/bytes.h"
#include "tools.h"

static const char *const sabotages[SIM_SABOTAGES] = {
    [SIM_SABOTAGE_NONE] = "none",
    [SIM_SABOTAGE_NO_FENCING] = "no-fencing",
    [SIM_SABOTAGE_CHECK_WRITES_ONLY] = "check-writes-only",
    [SIM_SABOTAGE_UNSAFE_ACK] = "unsafe-ack",
    [SIM_SABOTAGE_NO_SYNC] = "no-sync",
    [SIM_SABOTAGE_FORGET_MARKS] = "forget-marks",
    [SIM_SABOTAGE_OLDER_COPIES] = "older-copies",
};

const char *tools_sabotage_name(enum sim_sabotage k)
{
    return sabotages[k];
}

static char replay[4096];

/* The seed must be printed even after an assertion or a sanitizer has fired. */
static void print_replay(void)
{
    static const char head[] = "\nreplay: ";
    if (write(STDERR_FILENO, head, sizeof head - 1) < 0 ||
        write(STDERR_FILENO, replay, strlen(replay)) < 0 || write(STDERR_FILENO, "\n", 1) < 0) {
        return;
    }
}

static void on_signal(int sig)
{
    print_replay();
    signal(sig, SIG_DFL);
    raise(sig);
}

void __sanitizer_set_death_callback(void (*callback)(void)) __attribute__((weak));

static void watch_for_death(void)
{
    signal(SIGABRT, on_signal);
    if (__sanitizer_set_death_callback != NULL) {
        __sanitizer_set_death_callback(print_replay);
    } else {
        signal(SIGSEGV, on_signal);
    }
}

/* ---- the list of faults that are left out or kept ---- */

size_t tools_list_print(const uint8_t *without, unsigned n, char *out, size_t size)
{
    size_t len = 0;
    const char *comma = "";
    out[0] = '\0';
    for (unsigned i = 0; i < n && len + 16 < size; i++) {
        if (without[i] == 0) {
            len += (size_t)snprintf(out + len, size - len, "%s%u", comma, i);
            comma = ",";
        }
    }
    return len;
}

void tools_replay(const struct plan *p, uint64_t seed, char *out, size_t size)
{
    const struct sim_orders *o = &p->orders;
    size_t len =
        (size_t)snprintf(out, size, "%s --seed %llu", p->program, (unsigned long long)seed);
    if (o->sabotage != SIM_SABOTAGE_NONE) {
        len += (size_t)snprintf(out + len, size - len, " --sabotage %s", sabotages[o->sabotage]);
    }
    if (o->scene != SIM_SCENE_NONE) {
        len += (size_t)snprintf(out + len, size - len, " --scene %s --cut %llu",
                                sim_scene_name(o->scene), (unsigned long long)o->cut);
    }
    if (o->scenario != SIM_SCENARIO_NONE) {
        len += (size_t)snprintf(out + len, size - len, " --scenario %s",
                                sim_scenario_name(o->scenario));
    }
    if (o->length != 0) {
        len += (size_t)snprintf(out + len, size - len, " --length %llu",
                                (unsigned long long)o->length);
    }
    if (o->members_heavy) {
        len += (size_t)snprintf(out + len, size - len, " --members-heavy");
    }
    if (o->relay_heavy) {
        len += (size_t)snprintf(out + len, size - len, " --relay-heavy");
    }
    if (o->until_ms != 0) {
        len += (size_t)snprintf(out + len, size - len, " --until %llu",
                                (unsigned long long)o->until_ms);
    }
    if (o->clients != 0) {
        len += (size_t)snprintf(out + len, size - len, " --clients %u", o->clients);
    }
    if (o->without != NULL && len + 64 < size) {
        char list[2048];
        tools_list_print(o->without, p->faults, list, sizeof list);
        snprintf(out + len, size - len, " --only %s", list[0] == '\0' ? "none" : list);
    }
}

/* ---- many seeds ---- */

/* A run of many seeds that never reached one of the marks does not test what it claims. */
static int report(const struct plan *p, const struct sim_marks *marks, uint64_t seeds)
{
    int missing = 0;
    bool all = !p->part && p->orders.sabotage == SIM_SABOTAGE_NONE && p->orders.without == NULL;
#define SIM_MARK_REPORT(name, needs)                                                               \
    printf("  %-22s %llu\n", #name, (unsigned long long)marks->name);                              \
    if (all && marks->name == 0 && seeds >= (needs)) {                                             \
        fprintf(stderr, "%s: no seed of %llu reached: %s\n", p->program,                           \
                (unsigned long long)seeds, #name);                                                 \
        missing++;                                                                                 \
    }
    SIM_MARKS(SIM_MARK_REPORT)
#undef SIM_MARK_REPORT
    bool heavy = p->orders.members_heavy;
#define SIM_MARK_REPORT(name)                                                                      \
    if (heavy) {                                                                                   \
        printf("  %-22s %llu\n", #name, (unsigned long long)marks->name);                          \
    }                                                                                              \
    if (heavy && all && marks->name < SIM_MEMBER_TIMES && seeds >= SIM_MEMBER_SEEDS) {             \
        fprintf(stderr, "%s: %llu seeds reached less than %u times: %s\n", p->program,             \
                (unsigned long long)seeds, SIM_MEMBER_TIMES, #name);                               \
        missing++;                                                                                 \
    }
    SIM_MEMBER_MARKS(SIM_MARK_REPORT)
#undef SIM_MARK_REPORT
    printf("%s\n", missing == 0 ? "passed" : "failed");
    return missing == 0 ? 0 : 1;
}

static double seconds_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void progress(const struct sim_marks *marks, uint64_t seeds, uint64_t from, double seconds)
{
    printf("%llu seeds from %llu, %llu operations, %llu faults, %.0f simulated seconds in %.1f s "
           "(%.0f a second, %.2f million events a second)\n",
           (unsigned long long)seeds, (unsigned long long)from,
           (unsigned long long)marks->operations, (unsigned long long)marks->faults,
           (double)marks->simulated_ms / 1000, seconds,
           (double)marks->simulated_ms / 1000 / seconds, (double)marks->events / 1e6 / seconds);
    fflush(stdout);
}

static uint64_t one(struct plan *p, uint64_t seed, struct sim_marks *marks)
{
    struct sim_orders o = p->orders;
    struct sim_marks before = *marks;
    o.seed = seed;
    o.replay = replay;
    tools_replay(p, seed, replay, sizeof replay);
    uint64_t digest = sim_run(&o, marks, &p->faults);
    if (p->verbose) {
        printf("seed %llu: %llu operations, %llu events, %llu ms, digest %016llx\n",
               (unsigned long long)seed,
               (unsigned long long)(marks->operations - before.operations),
               (unsigned long long)(marks->events - before.events),
               (unsigned long long)(marks->simulated_ms - before.simulated_ms),
               (unsigned long long)digest);
    }
    return digest;
}

static bool enough(const struct plan *p, uint64_t seeds, const struct sim_marks *marks,
                   double seconds)
{
    if (p->seconds != 0) {
        return seconds >= (double)p->seconds;
    }
    return p->operations != 0 ? marks->operations >= p->operations : seeds >= p->seeds;
}

static int run_seeds(struct plan *p)
{
    struct sim_marks marks = {0};
    struct sim_marks again = {0};
    double start = seconds_now();
    double said = start;
    uint64_t seeds = 0;
    while (!enough(p, seeds, &marks, seconds_now() - start)) {
        uint64_t seed = p->from + seeds;
        uint64_t digest = one(p, seed, &marks);
        /* From time to time the same seed runs again, to prove that it can be replayed. */
        if (seed % 64 == 0 && one(p, seed, &again) != digest) {
            fprintf(stderr, "%s: seed %llu does not repeat\n", p->program,
                    (unsigned long long)seed);
            return 1;
        }
        seeds++;
        if ((p->seconds != 0 || p->operations != 0) && seconds_now() - said >= 10) {
            said = seconds_now();
            progress(&marks, seeds, p->from, said - start);
        }
    }
    progress(&marks, seeds, p->from, seconds_now() - start);
    return report(p, &marks, seeds);
}

/* ---- power cuts at all points ---- */

/* Every `every`th point of each scene, or of the one that was named. */
static int run_cuts(struct plan *p)
{
    struct sim_marks marks = {0};
    enum sim_scene only = p->orders.scene;
    for (unsigned k = SIM_SCENE_NONE + 1; k < SIM_SCENES; k++) {
        if (only != SIM_SCENE_NONE && only != k) {
            continue;
        }
        p->orders.scene = (enum sim_scene)k;
        p->orders.cut = 0;
        one(p, p->from, &marks);
        uint64_t points = marks.points;
        uint64_t before = marks.power_cuts;
        for (uint64_t at = 1 + p->from % p->every; at <= points; at += p->every) {
            p->orders.cut = at;
            one(p, p->from, &marks);
        }
        printf("%-8s %llu points, %llu power cuts\n", sim_scene_name(p->orders.scene),
               (unsigned long long)points, (unsigned long long)(marks.power_cuts - before));
        if (points == 0 || marks.power_cuts == before) {
            fprintf(stderr, "%s: no power was cut\n", p->program);
            return 1;
        }
    }
    return 0;
}

/* ---- scenarios ---- */

/* Each of them, or the one that was named, with so many seeds. Some say what only some seeds come
 * to. */
static int run_scenarios(struct plan *p)
{
    enum sim_scenario only = p->orders.scenario;
    for (unsigned k = SIM_SCENARIO_NONE + 1; k < SIM_SCENARIOS; k++) {
        struct sim_marks marks = {0};
        p->orders.scenario = (enum sim_scenario)k;
        if (only != SIM_SCENARIO_NONE && only != k) {
            continue;
        }
        for (uint64_t seed = p->from; seed < p->from + p->scenarios; seed++) {
            one(p, seed, &marks);
        }
        printf("%-9s %llu seeds, %llu came to what it is about, %llu snapshots installed\n",
               sim_scenario_name(p->orders.scenario), (unsigned long long)p->scenarios,
               (unsigned long long)marks.scenarios_told,
               (unsigned long long)marks.snapshots_installed);
        if (marks.scenarios_told == 0) {
            fprintf(stderr, "%s: no seed came to what the scenario is about\n", p->program);
            return 1;
        }
    }
    printf("passed\n");
    return 0;
}

/* ---- options ---- */

static _Noreturn void usage(const char *program)
{
    fprintf(
        stderr,
        "usage: %s [--seeds N | --seconds N | --operations N] [--from K]   many seeds\n"
        "       %s --seed N [--trace] [--until MS] [--clients N] [--only FAULT,...|none]\n"
        "                                                   one, or a part of it\n"
        "       %s --seed N --minimize                      the least part that still fails\n"
        "       %s --sabotaged [--from K]                   each sabotage must be caught\n"
        "       %s --cuts N [--from SEED] [--scene NAME]    a power cut at every Nth point of each "
        "scene: form, lost,\n"
        "                                                   add, return, replace, move\n"
        "       %s --seed N --scene NAME --cut POINT        one of them\n"
        "       %s --scenarios N [--from SEED] [--scenario NAME]   N seeds of each scenario: "
        "removed, older, ... (scenario.c)\n"
        "       with --sabotage "
        "no-fencing|check-writes-only|unsafe-ack|no-sync|forget-marks|older-copies\n"
        "--length N: so many operations in each seed, with snapshots and changes of members in "
        "all\n--members-heavy: changes of members all the time\n--relay-heavy: pipelines, and "
        "changes of who leads\n--verbose: what each seed came to; "
        "--part: whoever asks adds up what seeds have "
        "reached\n--trace: what everybody does; --until: clients begin nothing new after it, and "
        "faults "
        "end;\n"
        "--clients: only the first N; --only: of the run's list of faults, only these\n",
        program, program, program, program, program, program, program);
    exit(2);
}

static uint64_t number(const struct plan *p, const char *text)
{
    uint64_t n;
    if (text == NULL || !fli_parse_u64(text, strlen(text), UINT64_MAX, &n)) {
        usage(p->program);
    }
    return n;
}

static enum sim_sabotage sabotage_of(const struct plan *p, const char *name)
{
    for (unsigned k = 0; k < SIM_SABOTAGES && name != NULL; k++) {
        if (strcmp(name, sabotages[k]) == 0) {
            return (enum sim_sabotage)k;
        }
    }
    usage(p->program);
}

static enum sim_scene scene_of(const struct plan *p, const char *name)
{
    for (unsigned k = SIM_SCENE_NONE + 1; k < SIM_SCENES && name != NULL; k++) {
        if (strcmp(name, sim_scene_name((enum sim_scene)k)) == 0) {
            return (enum sim_scene)k;
        }
    }
    usage(p->program);
}

static enum sim_scenario scenario_of(const struct plan *p, const char *name)
{
    for (unsigned k = SIM_SCENARIO_NONE + 1; k < SIM_SCENARIOS && name != NULL; k++) {
        if (strcmp(name, sim_scenario_name((enum sim_scenario)k)) == 0) {
            return (enum sim_scenario)k;
        }
    }
    usage(p->program);
}

static void only(struct plan *p, const char *list)
{
    if (list == NULL) {
        usage(p->program);
    }
    memset(p->without, 1, sizeof p->without);
    p->orders.without = p->without;
    p->faults = SIM_FAULTS_MAX;
    while (strcmp(list, "none") != 0 && *list != '\0') {
        char *end;
        unsigned long i = strtoul(list, &end, 10);
        if (end == list || i >= SIM_FAULTS_MAX) {
            usage(p->program);
        }
        p->without[i] = 0;
        list = *end == ',' ? end + 1 : end;
    }
}

static bool is_switch(struct plan *p, const char *a)
{
    const struct {
        const char *name;
        bool *on;
    } switches[] = {{"--trace", &p->orders.trace},
                    {"--verbose", &p->verbose},
                    {"--part", &p->part},
                    {"--members-heavy", &p->orders.members_heavy},
                    {"--relay-heavy", &p->orders.relay_heavy},
                    {"--minimize", &p->minimize},
                    {"--sabotaged", &p->sabotaged}};
    for (size_t i = 0; i < sizeof switches / sizeof switches[0]; i++) {
        if (strcmp(a, switches[i].name) == 0) {
            *switches[i].on = true;
            return true;
        }
    }
    return false;
}

static void parse(struct plan *p, int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        const char *a = argv[i];
        const char *v = i + 1 < argc ? argv[i + 1] : NULL;
        if (is_switch(p, a)) {
            continue;
        }
        i++;
        if (strcmp(a, "--seed") == 0) {
            p->from = number(p, v);
            p->seeds = 1;
        } else if (strcmp(a, "--seeds") == 0) {
            p->seeds = number(p, v);
        } else if (strcmp(a, "--from") == 0) {
            p->from = number(p, v);
        } else if (strcmp(a, "--seconds") == 0) {
            p->seconds = number(p, v);
        } else if (strcmp(a, "--operations") == 0) {
            p->operations = number(p, v);
        } else if (strcmp(a, "--scene") == 0) {
            p->orders.scene = scene_of(p, v);
        } else if (strcmp(a, "--cut") == 0) {
            p->orders.cut = number(p, v);
        } else if (strcmp(a, "--cuts") == 0) {
            p->every = number(p, v);
        } else if (strcmp(a, "--scenarios") == 0) {
            p->scenarios = number(p, v);
        } else if (strcmp(a, "--scenario") == 0) {
            p->orders.scenario = scenario_of(p, v);
        } else if (strcmp(a, "--length") == 0) {
            p->orders.length = number(p, v);
        } else if (strcmp(a, "--until") == 0) {
            p->orders.until_ms = number(p, v);
        } else if (strcmp(a, "--clients") == 0) {
            p->orders.clients = (unsigned)number(p, v);
        } else if (strcmp(a, "--only") == 0) {
            only(p, v);
        } else if (strcmp(a, "--sabotage") == 0) {
            p->orders.sabotage = sabotage_of(p, v);
        } else {
            usage(p->program);
        }
    }
}

int main(int argc, char **argv)
{
    static struct plan p = {.from = 1, .seeds = 200};
    p.program = argv[0];
    /* Memory that one run frees is used by the next one. */
    mallopt(M_MMAP_THRESHOLD, 1 << 30);
    mallopt(M_TRIM_THRESHOLD, 1 << 30);
    parse(&p, argc, argv);
    const char *env = getenv("FENCELOCK_SEED");
    if (env != NULL) {
        p.from = number(&p, env);
        p.seeds = 1;
    }
    if (p.minimize) {
        return tools_minimize(&p);
    }
    if (p.sabotaged) {
        return tools_sabotaged(&p);
    }
    watch_for_death();
    if (p.every != 0) {
        return run_cuts(&p);
    }
    if (p.scenarios != 0) {
        return run_scenarios(&p);
    }
    return run_seeds(&p);
}
