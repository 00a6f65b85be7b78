/* worst.c: searches for the inputs that cost one apply, or one turn of the loop, the most.
 *
 *     worst --replay FILE|DIR...                       plays cases and judges them by the ceilings
 *     worst --search [--seconds S] [--rounds N] [--seed SEED] [--keep DIR] FILE|DIR...
 *
 * The search begins with the cases named, keeps the worst for each kind of thing that the costly
 * batch ended with, and changes one of them at a time. --rounds N with the same seed and cases does
 * the same again. What is worst is printed, and written to DIR; what breaks a ceiling as well, and
 * ends the search with 1. A case file alone replays what it found. */
#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "machine/limits.h"
#include "worst.h"

/* Steps are promised (limits.h). Branches are what they stood for, with room for other compilers:
 * what was found is in found/. */
static const uint64_t ceilings[WORST_METRICS] = {
    [WORST_STEPS] = MACHINE_APPLY_STEPS_MAX,
    [WORST_APPLY] = UINT64_C(9000000),
    [WORST_TURN] = UINT64_C(100000000),
};
static const char *const metric_names[WORST_METRICS] = {
    [WORST_STEPS] = "steps", [WORST_APPLY] = "apply", [WORST_TURN] = "turn"};

#define CASE_TEXT_MAX 8192u
#define CASES_MAX 1024u

struct elite {
    struct worst_case c;
    uint64_t value, commands;
};

struct search {
    struct elite elite[WORST_METRICS][WORST_KINDS];
    struct worst_mark best[WORST_METRICS];
    uint64_t random, rounds, kept;
    const char *keep;
};

static struct worst_case cases[CASES_MAX];
static char case_names[CASES_MAX][256];
static unsigned cases_n;

static void die(const char *what, const char *name)
{
    (void)fprintf(stderr, "worst: %s: %s\n", name, what);
    exit(2);
}

static void load_file(const char *path)
{
    char text[CASE_TEXT_MAX + 1];
    unsigned line = 0;
    FILE *f = fopen(path, "rb");
    if (f == NULL) {
        die("cannot be read", path);
    }
    size_t len = fread(text, 1, CASE_TEXT_MAX, f);
    text[len] = '\0';
    (void)fclose(f);
    if (cases_n == CASES_MAX) {
        die("too many cases", path);
    }
    if (!worst_parse(text, &cases[cases_n], &line)) {
        (void)fprintf(stderr, "worst: %s:%u: not KIND NAME OWNER HOW TIMES\n", path, line);
        exit(2);
    }
    (void)snprintf(case_names[cases_n++], sizeof case_names[0], "%.255s", path);
}

static int is_case(const struct dirent *e)
{
    size_t len = strlen(e->d_name);
    return len > 5 && strcmp(e->d_name + len - 5, ".case") == 0;
}

static void load(const char *path)
{
    struct stat st;
    if (stat(path, &st) != 0) {
        die("cannot be read", path);
    }
    if (!S_ISDIR(st.st_mode)) {
        load_file(path);
        return;
    }
    struct dirent **list = NULL;
    int n = scandir(path, &list, is_case, alphasort);
    for (int i = 0; i < n; i++) {
        char file[512];
        (void)snprintf(file, sizeof file, "%s/%s", path, list[i]->d_name);
        load_file(file);
        free(list[i]);
    }
    free(list);
}

static void save(const char *dir, const char *name, const struct worst_case *c, uint64_t value)
{
    char path[512];
    char text[CASE_TEXT_MAX];
    size_t len = worst_print(c, text, sizeof text);
    (void)snprintf(path, sizeof path, "%s/%s.case", dir, name);
    FILE *f = fopen(path, "wb");
    if (f == NULL || fprintf(f, "# %" PRIu64 "\n", value) < 0 || fwrite(text, 1, len, f) != len ||
        fclose(f) != 0) {
        die("cannot be written", path);
    }
}

static bool within(const struct worst_result *r, const char *name)
{
    bool good = true;
    for (unsigned k = 0; k < WORST_METRICS; k++) {
        if (r->mark[k].value > ceilings[k]) {
            printf("%s: %s %" PRIu64 ", above %" PRIu64 ", in a batch of '%s'\n", name,
                   metric_names[k], r->mark[k].value, ceilings[k],
                   worst_kind_name(r->mark[k].kind));
            good = false;
        }
    }
    return good;
}

/* --- replay --- */

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash == NULL ? path : slash + 1;
}

static int replay(void)
{
    struct worst_mark most[WORST_METRICS] = {{0}};
    bool good = cases_n > 0;
    printf("%-36s %7s %12s %12s %9s %9s\n", "case", "steps", "apply", "turn", "apply us",
           "turn us");
    for (unsigned i = 0; i < cases_n; i++) {
        struct worst_result r;
        worst_run(&cases[i], true, &r);
        printf("%-36s %7" PRIu64 " %12" PRIu64 " %12" PRIu64 " %9" PRIu64 " %9" PRIu64 "\n",
               base_name(case_names[i]), r.mark[WORST_STEPS].value, r.mark[WORST_APPLY].value,
               r.mark[WORST_TURN].value, r.apply_ns / 1000, r.turn_ns / 1000);
        good = within(&r, case_names[i]) && good;
        for (unsigned k = 0; k < WORST_METRICS; k++) {
            most[k] = r.mark[k].value > most[k].value ? r.mark[k] : most[k];
        }
    }
    for (unsigned k = 0; k < WORST_METRICS; k++) {
        printf("%s: %" PRIu64 " at most, of %" PRIu64 "\n", metric_names[k], most[k].value,
               ceilings[k]);
    }
    return good ? 0 : 1;
}

/* --- search --- */

static void keep_all(struct search *s)
{
    for (unsigned k = 0; s->keep != NULL && k < WORST_METRICS; k++) {
        for (unsigned i = 0; i < WORST_KINDS; i++) {
            char name[128];
            const struct elite *e = &s->elite[k][i];
            if (e->value > 0) {
                (void)snprintf(name, sizeof name, "%s-%s", metric_names[k], worst_kind_name(i));
                save(s->keep, name, &e->c, e->value);
            }
        }
    }
}

/* Judges it, and keeps it where it is the worst of its kind, or as bad and shorter. */
static bool take(struct search *s, const struct worst_case *c)
{
    struct worst_result r;
    worst_run(c, s->rounds % 64 == 0, &r);
    if (!within(&r, "found")) {
        save(s->keep != NULL ? s->keep : ".", "breach", c, r.mark[WORST_STEPS].value);
        return false;
    }
    for (unsigned k = 0; k < WORST_METRICS; k++) {
        struct elite *e = &s->elite[k][r.mark[k].kind];
        if (r.mark[k].value > e->value ||
            (r.mark[k].value == e->value && r.commands < e->commands)) {
            *e = (struct elite){.c = *c, .value = r.mark[k].value, .commands = r.commands};
        }
        if (r.mark[k].value > s->best[k].value) {
            s->best[k] = r.mark[k];
            printf("round %" PRIu64 ": %s %" PRIu64 ", in a batch of '%s'\n", s->rounds,
                   metric_names[k], r.mark[k].value, worst_kind_name(r.mark[k].kind));
            (void)fflush(stdout);
        }
    }
    return true;
}

/* One of those that are kept; in half of the rounds the worst there is. */
static const struct worst_case *pick(struct search *s)
{
    unsigned metric = (unsigned)worst_below(&s->random, WORST_METRICS);
    if (worst_below(&s->random, 2) == 0) {
        return &s->elite[metric][s->best[metric].kind].c;
    }
    return &s->elite[metric][worst_below(&s->random, WORST_KINDS)].c;
}

static int search(struct search *s, uint64_t seconds, uint64_t rounds)
{
    static struct worst_case c;
    uint64_t until_ns = fli_clock_ns() + seconds * UINT64_C(1000000000);
    uint64_t keep_ns = 0;
    for (unsigned i = 0; i < cases_n; i++) {
        if (!take(s, &cases[i])) {
            return 1;
        }
    }
    for (s->rounds = 1; s->rounds <= rounds && fli_clock_ns() < until_ns; s->rounds++) {
        c = *pick(s);
        worst_mutate(&c, pick(s), &s->random);
        if (!take(s, &c)) {
            return 1;
        }
        if (fli_clock_ns() > keep_ns) {
            keep_all(s);
            keep_ns = fli_clock_ns() + UINT64_C(10000000000);
        }
    }
    keep_all(s);
    for (unsigned k = 0; k < WORST_METRICS; k++) {
        printf("%s: %" PRIu64 " of %" PRIu64 ", in a batch of '%s'\n", metric_names[k],
               s->best[k].value, ceilings[k], worst_kind_name(s->best[k].kind));
    }
    printf("%" PRIu64 " rounds\n", s->rounds - 1);
    return 0;
}

static uint64_t number(const char *text)
{
    char *end = NULL;
    uint64_t n = text == NULL ? 0 : strtoull(text, &end, 10);
    if (text == NULL || end == text || *end != '\0') {
        die("not a number", text == NULL ? "(nothing)" : text);
    }
    return n;
}

int main(int argc, char **argv)
{
    static struct search s;
    bool searches = false;
    uint64_t seconds = UINT64_MAX / UINT64_C(4000000000);
    uint64_t rounds = UINT64_MAX;
    fli_random(&s.random, sizeof s.random);
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--search") == 0) {
            searches = true;
        } else if (strcmp(argv[i], "--replay") == 0) {
            searches = false;
        } else if (strcmp(argv[i], "--seconds") == 0) {
            seconds = number(argv[++i]);
        } else if (strcmp(argv[i], "--rounds") == 0) {
            rounds = number(argv[++i]);
        } else if (strcmp(argv[i], "--seed") == 0) {
            s.random = number(argv[++i]);
        } else if (strcmp(argv[i], "--keep") == 0) {
            s.keep = argv[++i];
        } else {
            load(argv[i]);
        }
    }
    if (!searches) {
        return replay();
    }
    printf("seed %" PRIu64 "\n", s.random);
    return search(&s, seconds, rounds);
}
