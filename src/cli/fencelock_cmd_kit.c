/* fencelock_cmd_kit.c: commands that start a Python program which is installed beside this one:
 * fencelock-guard, so that this program needs no driver of any database; and fencelock-demo, which
 * breaks Redlock on real servers. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/fencelock_common.h"

#define WORDS_MAX (CLI_ARGS_MAX + 10u)
#define PATH_SIZE 4096u

/* A program, and where the folder of its files (its kit) may be. */
struct kit {
    const char *places[2]; /* folders beside our own: in the build tree, and when installed */
    const char *variable;  /* the environment variable that names another folder */
    const char *program;
    const char *missing;
};
static const struct kit guard = {
    .places = {"../guards", "../share/fencelock/guards"},
    .variable = "FENCELOCK_GUARDS",
    .program = "kit/fencelock-guard",
    .missing = "the guards are not installed beside fencelock: set FENCELOCK_GUARDS to the folder "
               "that has kit/fencelock-guard",
};
static const struct kit demo = {
    .places = {"../demo", "../share/fencelock/demo"},
    .variable = "FENCELOCK_DEMO",
    .program = "fencelock-demo",
    .missing = "the demonstration is not installed beside fencelock: set FENCELOCK_DEMO to the "
               "folder that has fencelock-demo",
};

/* The arguments of the program. */
struct words {
    const char *argv[WORDS_MAX];
    size_t n;
    char folder[PATH_SIZE / 2]; /* where this program is */
};

static void add(struct words *w, const char *word)
{
    FLI_ASSERT(w->n + 1 < WORDS_MAX);
    w->argv[w->n++] = word;
    w->argv[w->n] = NULL;
}

static void add_two(struct words *w, const char *option, const char *value)
{
    add(w, option);
    add(w, value);
}

static void begin(struct words *w, const struct cli_args *a, const struct kit *kit)
{
    *w = (struct words){.n = 0};
    ssize_t n = readlink("/proc/self/exe", w->folder, sizeof w->folder - 1);
    w->folder[n > 0 ? n : 0] = '\0';
    char *slash = strrchr(w->folder, '/');
    if (slash != NULL) {
        *slash = '\0';
    }
    add(w, kit->program);
    if (cli_has(a, CLI_OPT_JSON)) {
        add(w, "--json");
    }
    if (cli_has(a, CLI_OPT_NO_COLOR)) {
        add(w, "--no-color");
    }
    if (cli_has(a, CLI_OPT_SEED)) {
        add_two(w, "--seed", a->text[CLI_OPT_SEED]);
    }
}

static bool find_program(const struct kit *kit, const struct words *w, char path[PATH_SIZE])
{
    const char *given = getenv(kit->variable);
    if (given != NULL && given[0] != '\0') {
        return snprintf(path, PATH_SIZE, "%s/%s", given, kit->program) < (int)PATH_SIZE &&
               access(path, X_OK) == 0;
    }
    for (size_t i = 0; i < sizeof kit->places / sizeof kit->places[0]; i++) {
        snprintf(path, PATH_SIZE, "%s/%s/%s", w->folder, kit->places[i], kit->program);
        if (access(path, X_OK) == 0) {
            return true;
        }
    }
    return false;
}

/* Becomes the program. Returns only when that fails, with the exit code. */
static int exec_program(const struct cli_args *a, const struct kit *kit, const struct words *w)
{
    char path[PATH_SIZE];
    if (!find_program(kit, w, path)) {
        return cli_fail(a, FL_EINVAL, kit->missing);
    }
    union {
        const char *const *words;
        char *const *argv;
    } exec = {.words = w->argv}; /* execv() changes nothing; only its type says otherwise */
    execv(path, exec.argv);
    char message[PATH_SIZE + 128];
    snprintf(message, sizeof message, "cannot start %s (it needs python3): %s", path,
             strerror(errno));
    return cli_fail(a, FL_EINVAL, message);
}

static int exec_guard(const struct cli_args *a, fl_token token)
{
    struct words w;
    char number[24];
    begin(&w, a, &guard);
    if (token != FL_TOKEN_NONE) {
        (void)snprintf(number, sizeof number, "%" PRIu64, token);
        add_two(&w, "--token", number);
    }
    add(&w, "--");
    add(&w, a->command->sub);
    for (unsigned i = 0; i < a->n_args; i++) {
        add(&w, a->arg[i]);
    }
    return exec_program(a, &guard, &w);
}

int cli_run_guard(const struct cli_args *a)
{
    return exec_guard(a, FL_TOKEN_NONE);
}

/* `guard adopt` needs a token above all that may have been lost. */
int cli_run_guard_adopt(const struct cli_args *a, fl_client *c)
{
    fl_token token = FL_TOKEN_NONE;
    int rc = fl_issue_token(c, fl_str("fencelock guard adopt"), 0, &token);
    return rc == 0 ? exec_guard(a, token) : cli_fail(a, rc, fl_client_error(c));
}

int cli_run_demo_redlock(const struct cli_args *a)
{
    static const struct {
        enum cli_option option;
        const char *name;
    } passed_on[] = {
        {CLI_OPT_RUNS, "--runs"}, {CLI_OPT_TOKENS, "--tokens"}, {CLI_OPT_SVG, "--svg"}};
    struct words w;
    begin(&w, a, &demo);
    add_two(&w, "--programs", w.folder);
    for (size_t i = 0; i < sizeof passed_on / sizeof passed_on[0]; i++) {
        if (cli_has(a, passed_on[i].option)) {
            add_two(&w, passed_on[i].name, a->text[passed_on[i].option]);
        }
    }
    return exec_program(a, &demo, &w);
}
