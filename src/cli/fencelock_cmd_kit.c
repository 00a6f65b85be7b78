/* fencelock_cmd_kit.c: commands that start a Python program which is installed beside this one:
 * fencelock-guard, so that this program needs no driver of any database; and fencelock-demo, which
 * breaks Redlock on real servers. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/fencelock_common.h"

#define WORDS_MAX (CLI_ARGS_MAX + 16u)
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

/* The folder of this program. */
static void find_folder(char folder[PATH_SIZE / 2])
{
    ssize_t n = readlink("/proc/self/exe", folder, PATH_SIZE / 2 - 1);
    folder[n > 0 ? n : 0] = '\0';
    char *slash = strrchr(folder, '/');
    if (slash != NULL) {
        *slash = '\0';
    }
}

static bool find_program(const struct kit *kit, char path[PATH_SIZE])
{
    const char *given = getenv(kit->variable);
    bool is_given = given != NULL && given[0] != '\0';
    char folder[PATH_SIZE / 2];
    find_folder(folder);
    for (size_t i = 0; i < (is_given ? 1 : 2); i++) {
        int len = snprintf(path, PATH_SIZE, "%s%s%s/%s", is_given ? given : folder,
                           is_given ? "" : "/", is_given ? "" : kit->places[i], kit->program);
        if (len < (int)PATH_SIZE && access(path, X_OK) == 0) {
            return true;
        }
    }
    return false;
}

/* Becomes the program, with these options of ours and these words. */
_Noreturn static void exec_program(const struct cli_args *a, const struct kit *kit,
                                   const char *const *words, size_t n_words)
{
    static const struct {
        enum cli_option option;
        const char *name;
        bool has_value;
    } passed_on[] = {{CLI_OPT_JSON, "--json", false},    {CLI_OPT_NO_COLOR, "--no-color", false},
                     {CLI_OPT_SEED, "--seed", true},     {CLI_OPT_RUNS, "--runs", true},
                     {CLI_OPT_TOKENS, "--tokens", true}, {CLI_OPT_SVG, "--svg", true}};
    const char *argv[WORDS_MAX + 1] = {kit->program};
    size_t n = 1;
    char path[PATH_SIZE];
    for (size_t i = 0; i < sizeof passed_on / sizeof passed_on[0]; i++) {
        if (cli_has(a, passed_on[i].option)) {
            argv[n++] = passed_on[i].name;
            argv[n] = passed_on[i].has_value ? a->text[passed_on[i].option] : NULL;
            n += passed_on[i].has_value;
        }
    }
    FLI_ASSERT(n + n_words <= WORDS_MAX);
    memcpy(&argv[n], words, n_words * sizeof words[0]);
    if (!find_program(kit, path)) {
        cli_die(a, FL_EINVAL, kit->missing);
    }
    union {
        const char *const *words;
        char *const *argv;
    } exec = {.words = argv}; /* execv() changes nothing; only its type says otherwise */
    execv(path, exec.argv);
    char message[PATH_SIZE + 128];
    snprintf(message, sizeof message, "cannot start %s (it needs python3): %s", path,
             strerror(errno));
    cli_die(a, FL_EINVAL, message);
}

/* token: FL_TOKEN_NONE for none. */
_Noreturn static void exec_guard(const struct cli_args *a, fl_token token)
{
    const char *words[CLI_ARGS_MAX + 4] = {NULL};
    char number[24];
    size_t n = 0;
    if (token != FL_TOKEN_NONE) {
        (void)snprintf(number, sizeof number, "%" PRIu64, token);
        words[n++] = "--token";
        words[n++] = number;
    }
    words[n++] = "--";
    words[n++] = cli_verb(a);
    memcpy(&words[n], a->arg, a->n_args * sizeof a->arg[0]);
    exec_program(a, &guard, words, n + a->n_args);
}

int cli_run_guard(const struct cli_args *a)
{
    exec_guard(a, FL_TOKEN_NONE);
}

/* `guard adopt` needs a token above all that may have been lost. */
int cli_run_guard_adopt(const struct cli_args *a, fl_client *c)
{
    struct fl_result r;
    const struct fl_ask ask = {.what = FL_ASK_TOKEN, .name = fl_str("fencelock guard adopt")};
    (void)cli_call(a, c, &ask, 0, &r);
    exec_guard(a, r.token);
}

int cli_run_demo_redlock(const struct cli_args *a)
{
    char folder[PATH_SIZE / 2];
    const char *const words[] = {"--programs", folder};
    find_folder(folder);
    exec_program(a, &demo, words, 2);
}
