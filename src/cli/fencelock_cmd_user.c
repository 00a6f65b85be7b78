/* fencelock_cmd_user.c: `fencelock user`: makes, lists and deletes users. A password is asked for
 * on the terminal, or is the first line of stdin; it is never an argument, which everybody on the
 * machine could read. */
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "base/lines.h"
#include "cli/interrupted.h"
#include "link/link.h"

/* What `ACL SETUSER` begins a password with; then the password. */
#define WORD_SIZE (FL_PASSWORD_MAX + 2u)

static int no_password(const char *why)
{
    return cli_complain("the password of the new user: %s", why);
}

/* Reads a line from stdin, into which the password goes behind its `>`. */
static int read_line(char word[WORD_SIZE])
{
    const char *why = NULL;
    size_t len = 0;
    word[0] = '>';
    int rc = fli_line_read(stdin, word + 1, WORD_SIZE - 1, &len, &why);
    return rc == 1 && len > 0 ? 0 : no_password(why != NULL ? why : "it is empty");
}

/* On a terminal it is asked for twice, and not shown. */
static int ask_quietly(const char *prompt, char word[WORD_SIZE])
{
    struct cli_keyboard k;
    if (!cli_keyboard_open(&k, ECHO, TCSAFLUSH)) {
        return no_password("the terminal cannot be told not to show it");
    }
    cli_signals_add(&k.signals, SIGTSTP);
    fputs(prompt, stderr); /* not before: what is typed at once would be shown, or lost */
    int code = cli_keyboard_wait(&k, UINT64_MAX) >= 0 ? read_line(word) : CLI_EXIT_USAGE;
    int signal = cli_keyboard_close(&k);
    fputc('\n', stderr);
    return signal == 0 ? code : CLI_EXIT_SIGNAL + signal;
}

static int read_password(char word[WORD_SIZE])
{
    char again[WORD_SIZE];
    if (isatty(STDIN_FILENO) != 1) {
        return read_line(word);
    }
    int code = ask_quietly("password of the new user: ", word);
    code = code != 0 ? code : ask_quietly("the same again: ", again);
    if (code == 0 && strcmp(word, again) != 0) {
        code = no_password("the two differ");
    }
    explicit_bzero(again, sizeof again);
    return code;
}

static int report(const struct cli_args *a, const char *change)
{
    struct cli_out o = cli_result(a);
    fli_json_text(&o.j, "change", change);
    fli_json_bytes(&o.j, "user", fl_str(a->arg[0]));
    cli_text(&o, "done\n");
    cli_out_end(&o);
    return CLI_EXIT_DONE;
}

/* Whether there is such a user already: one that is changed by mistake would have two passwords. */
static int refuse_known(const struct cli_args *a, fl_client *c)
{
    const char *const words[] = {"ACL", "GETUSER", a->arg[0]};
    redisReply *r = NULL;
    int code = cli_ask_cluster(a, c, words, 3, false, &r, NULL);
    if (code == 0 && r->type != REDIS_REPLY_NIL) {
        code = cli_fail(a, FL_EEXISTS,
                        "there is a user of that name; fencelock user remove deletes it, and ACL "
                        "SETUSER changes it");
    }
    if (r != NULL) {
        freeReplyObject(r);
    }
    return code;
}

int cli_run_user_add(const struct cli_args *a, fl_client *c)
{
    char password[WORD_SIZE];
    /* "reset": the request may be sent again, and gives one password all the same */
    const char *words[6 + CLI_ARGS_MAX] = {"ACL", "SETUSER", a->arg[0], "reset", "on", password};
    redisReply *r = NULL;
    int code = refuse_known(a, c);
    code = code != 0 ? code : read_password(password);
    for (unsigned i = 1; i < a->n_args; i++) {
        words[5 + i] = a->arg[i];
        if (code == 0 && (a->arg[i][0] == '>' || a->arg[i][0] == '#')) {
            code = no_password("it is asked for, and not an argument, which everybody on this "
                               "machine could read");
        }
    }
    code = code != 0 ? code : cli_ask_cluster(a, c, words, 5 + a->n_args, true, &r, NULL);
    explicit_bzero(password, sizeof password);
    if (code == 0) {
        freeReplyObject(r);
        code = report(a, "add");
    }
    return code;
}

int cli_run_user_remove(const struct cli_args *a, fl_client *c)
{
    const char *const words[] = {"ACL", "DELUSER", a->arg[0]};
    redisReply *r = NULL;
    bool uncertain; /* an earlier attempt may have removed the user */
    int code = cli_ask_cluster(a, c, words, 3, true, &r, &uncertain);
    if (code == 0) {
        bool removed = uncertain || (r->type == REDIS_REPLY_INTEGER && r->integer == 1);
        freeReplyObject(r);
        code = removed ? report(a, "remove") : cli_fail(a, FL_ENOTFOUND, "there is no such user");
    }
    return code;
}

/* ---- list ------------------------------------------------------------------------------------ */

/* A line as in a file of users: `user NAME on #HASH ~PATTERN +@RIGHT`. */
static void add_user(struct cli_list *l, char *line)
{
    char *rest = line;
    char rights[4096] = "";
    size_t len = 0;
    uint64_t passwords = 0;
    (void)strtok_r(line, " ", &rest);
    const char *name = strtok_r(NULL, " ", &rest);
    const char *state = strtok_r(NULL, " ", &rest);
    for (const char *word = strtok_r(NULL, " ", &rest); word != NULL && len < sizeof rights;
         word = strtok_r(NULL, " ", &rest)) {
        passwords += word[0] == '#';
        len += word[0] == '#' ? 0
                              : (size_t)snprintf(rights + len, sizeof rights - len, "%s%s",
                                                 len == 0 ? "" : " ", word);
    }
    cli_list_row(l);
    cli_list_text(l, "user", "USER", CLI_BOLD, name != NULL ? name : "");
    cli_list_text(l, "state", "STATE", CLI_PLAIN, state != NULL ? state : "");
    cli_list_u64(l, "passwords", "PASSWORDS", CLI_PLAIN, passwords);
    cli_list_text(l, "rights", "RIGHTS", CLI_PLAIN, rights);
}

int cli_run_user_list(const struct cli_args *a, fl_client *c)
{
    static const char *const words[] = {"ACL", "LIST"};
    struct cli_list l;
    redisReply *r = NULL;
    int code = cli_ask_cluster(a, c, words, 2, false, &r, NULL);
    if (code != 0) {
        return code;
    }
    struct cli_out o = cli_result(a);
    cli_list_begin(&l, &o, "users");
    for (size_t i = 0; i < r->elements; i++) {
        if (r->element[i]->type == REDIS_REPLY_STRING) {
            add_user(&l, r->element[i]->str);
        }
    }
    cli_list_end(&l);
    cli_out_end(&o);
    freeReplyObject(r);
    return CLI_EXIT_DONE;
}
