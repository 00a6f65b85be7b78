/* fencelock_cmd_guard.c: commands about storages that fence by themselves. The work is done by
 * fencelock-guard, a Python program that drives the storage's own client, so that this one needs no
 * driver of any database. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/fencelock_common.h"

#define WORDS_MAX (CLI_ARGS_MAX + 10u)
#define PATH_SIZE 4096u

/* Beside ourselves, in the build tree and once installed; or where FENCELOCK_GUARDS says. */
static bool find_program(char path[PATH_SIZE])
{
    static const char *const places[] = {"../guards", "../share/fencelock/guards"};
    const char *given = getenv("FENCELOCK_GUARDS");
    if (given != NULL && given[0] != '\0') {
        return snprintf(path, PATH_SIZE, "%s/kit/fencelock-guard", given) < (int)PATH_SIZE &&
               access(path, X_OK) == 0;
    }
    char self[PATH_SIZE / 2];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    if (n <= 0) {
        return false;
    }
    self[n] = '\0';
    *strrchr(self, '/') = '\0';
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        snprintf(path, PATH_SIZE, "%s/%s/kit/fencelock-guard", self, places[i]);
        if (access(path, X_OK) == 0) {
            return true;
        }
    }
    return false;
}

/* Becomes the program; comes back only with an exit code when that fails. */
static int become(const struct cli_args *a, fl_token token)
{
    char path[PATH_SIZE];
    char number[2][32];
    const char *argv[WORDS_MAX];
    size_t n = 0;
    if (!find_program(path)) {
        return cli_fail(a, FL_EINVAL,
                        "the guards are not installed beside fencelock: set FENCELOCK_GUARDS to "
                        "the folder that has kit/fencelock-guard",
                        NULL, NULL);
    }
    argv[n++] = "fencelock-guard";
    if (cli_has(a, CLI_OPT_JSON)) {
        argv[n++] = "--json";
    }
    if (cli_has(a, CLI_OPT_NO_COLOR)) {
        argv[n++] = "--no-color";
    }
    if (cli_has(a, CLI_OPT_SEED)) {
        snprintf(number[0], sizeof number[0], "--seed=%" PRIu64, a->number[CLI_OPT_SEED]);
        argv[n++] = number[0];
    }
    if (token != FL_TOKEN_NONE) {
        snprintf(number[1], sizeof number[1], "--token=%" PRIu64, token);
        argv[n++] = number[1];
    }
    argv[n++] = "--";
    argv[n++] = a->command->sub;
    for (unsigned i = 0; i < a->n_args; i++) {
        argv[n++] = a->arg[i];
    }
    argv[n] = NULL;
    union {
        const char *const *words;
        char *const *argv;
    } exec = {.words = argv}; /* execv() changes nothing, whatever its type says */
    execv(path, exec.argv);
    char message[PATH_SIZE + 128];
    snprintf(message, sizeof message, "cannot start %s (it needs python3): %s", path,
             strerror(errno));
    return cli_fail(a, FL_EINVAL, message, NULL, NULL);
}

int cli_run_guard(const struct cli_args *a)
{
    return become(a, FL_TOKEN_NONE);
}

/* Needs a token that is newer than all that may have been lost. */
int cli_run_guard_adopt(const struct cli_args *a)
{
    int code;
    fl_client *c = cli_client_create(a, &code);
    if (c == NULL) {
        return code;
    }
    fl_token token = FL_TOKEN_NONE;
    int rc = fl_issue_token(c, fl_str("fencelock guard adopt"), 0, &token);
    code = rc == 0 ? 0 : cli_fail(a, rc, fl_client_error(c), NULL, NULL);
    fl_client_destroy(c);
    return rc == 0 ? become(a, token) : code;
}
