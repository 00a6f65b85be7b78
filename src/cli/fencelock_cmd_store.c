/* fencelock_cmd_store.c: commands to fencelock-store. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "cli/fencelock_common.h"

/* The lock and token of --lock and --token. They are given together, or neither is. */
static struct fl_fencing fencing_of(const struct cli_args *a)
{
    bool lock = cli_has(a, CLI_OPT_LOCK);
    if (lock != cli_has(a, CLI_OPT_TOKEN)) {
        cli_die(a, FL_EINVAL, lock ? "--lock needs --token too" : "--token needs --lock too");
    }
    return (struct fl_fencing){.lock = fl_str(a->text[CLI_OPT_LOCK]),
                               .token = a->number[CLI_OPT_TOKEN]};
}

static int fail(const struct cli_args *a, int code, const fl_store *s, fl_token token,
                fl_token mark)
{
    const char *error = fl_store_error(s);
    struct cli_out o = cli_failure(a, code, error, cli_remedy(a, code, error));
    if (mark != FL_TOKEN_NONE) {
        fli_json_u64(&o.j, "token", token);
        fli_json_u64(&o.j, "mark", mark);
    }
    cli_out_end(&o);
    return (int)cli_exit_of(code);
}

/* {"verb": true, "key": ...}, or "key: verb". */
static int done(const struct cli_args *a, const char *verb, const char *what_key, const char *what,
                fl_token token)
{
    struct cli_out o = cli_answer(a, verb, true, what_key, fl_str(what), false);
    cli_json_token(&o, "token", token);
    if (token != FL_TOKEN_NONE) {
        cli_text(&o, " under token %" PRIu64, token);
    }
    cli_text(&o, "\n");
    cli_out_end(&o);
    return CLI_EXIT_DONE;
}

/* value NULL: there is none. */
static void print_value(const struct cli_args *a, bool found, const struct fl_bytes *value)
{
    struct cli_out o = cli_result(a);
    fli_json_bool(&o.j, "found", found);
    fli_json_bytes(&o.j, "key", fl_str(a->arg[0]));
    if (value != NULL) {
        fli_json_bytes(&o.j, "value", *value);
    }
    if (value != NULL && o.terminal) {
        cli_text_safe(&o, *value);
        cli_text(&o, "\n");
    } else if (value != NULL && !o.json) {
        fwrite(value->data, 1, value->len, o.f);
    }
    cli_out_end(&o);
}

/* A missing key has an exit code of its own: for a script it is no refusal. */
static int missing(const struct cli_args *a)
{
    bool replaced = cli_has(a, CLI_OPT_DEFAULT);
    struct fl_bytes value = fl_str(a->text[CLI_OPT_DEFAULT]);
    print_value(a, false, replaced ? &value : NULL);
    if (!replaced && !cli_has(a, CLI_OPT_JSON)) {
        cli_complain("there is no key '%.200s'; --default TEXT prints TEXT instead", a->arg[0]);
    }
    return replaced ? CLI_EXIT_DONE : CLI_EXIT_MISSING;
}

/* Redis and the front door of fencelockd serve GET too, and an address of theirs must not look like
 * a missing key. Only a storage has marks. */
static bool is_foreign(fl_store *s, int *rc)
{
    fl_token mark = FL_TOKEN_NONE;
    int asked = fl_store_mark(s, fl_str("fencelock"), 0, &mark);
    if (asked == 0 || strstr(fl_store_error(s), "unknown command") == NULL) {
        return false; /* a storage, perhaps one that denies the mark */
    }
    *rc = asked;
    return true;
}

int cli_run_store_get(const struct cli_args *a, fl_store *s)
{
    struct fl_fencing fencing = fencing_of(a);
    struct fl_bytes value;
    char *text = NULL;
    fl_token mark = FL_TOKEN_NONE;
    int code = CLI_EXIT_DONE;
    int rc = fl_store_get(s, fl_str(a->arg[0]), fencing, 0, &mark, &text, &value.len);
    if (rc == 0) {
        value.data = text;
        print_value(a, true, &value);
    } else if (rc == FL_ENOTFOUND && !is_foreign(s, &rc)) {
        code = missing(a);
    } else {
        code = fail(a, rc, s, fencing.token, mark);
    }
    free(text);
    return code;
}

/* `set`, `del` and `claim`. */
int cli_run_store_write(const struct cli_args *a, fl_store *s)
{
    struct fl_fencing fencing = fencing_of(a);
    fl_token mark = FL_TOKEN_NONE;
    bool sets = a->n_args == 2;
    bool claims = a->n_args == 0;
    if (claims && fencing.token == FL_TOKEN_NONE) {
        cli_die(a, FL_EINVAL, "a claim needs --lock NAME and --token N");
    }
    const char *what = claims ? a->text[CLI_OPT_LOCK] : a->arg[0];
    int rc = claims ? fl_store_claim(s, fencing.lock, fencing.token, 0, &mark)
             : sets ? fl_store_set(s, fl_str(what), fl_str(a->arg[1]), fencing, 0, &mark)
                    : fl_store_del(s, fl_str(what), fencing, 0, &mark);
    const char *verb = claims ? "claimed" : sets ? "written" : "deleted";
    return rc == 0 ? done(a, verb, claims ? "lock" : "key", what, fencing.token)
                   : fail(a, rc, s, fencing.token, mark);
}

int cli_run_store_mark(const struct cli_args *a, fl_store *s)
{
    struct fl_bytes lock = fl_str(a->text[CLI_OPT_LOCK]);
    fl_token mark = FL_TOKEN_NONE;
    if (!cli_has(a, CLI_OPT_LOCK)) {
        cli_die(a, FL_EINVAL, "which lock? Write --lock NAME");
    }
    int rc = fl_store_mark(s, lock, 0, &mark);
    if (rc != 0) {
        return fail(a, rc, s, FL_TOKEN_NONE, FL_TOKEN_NONE);
    }
    struct cli_out o = cli_result(a);
    fli_json_bytes(&o.j, "lock", lock);
    fli_json_u64(&o.j, "mark", mark);
    cli_text(&o, "%" PRIu64 "\n", mark);
    cli_out_end(&o);
    return CLI_EXIT_DONE;
}
