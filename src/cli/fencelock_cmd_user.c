/* fencelock_cmd_user.c: `fencelock user`: makes, lists and deletes users. A password is asked for
 * on the terminal, or is the first line of stdin; it is never an argument, which everybody on the
 * machine could read. */
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "base/lines.h"
#include "cli/fencelock_common.h"
#include "link/link.h"

/* What `ACL SETUSER` begins a password with; then the password. */
#define WORD_SIZE (FL_PASSWORD_MAX + 2u)

static void check_password(const char *why)
{
    if (why != NULL) {
        cli_usage("the password of the new user: %s", why);
    }
}

/* Reads a line from stdin, into which the password goes behind its `>`. NULL, or why not. */
static const char *read_line(char word[WORD_SIZE])
{
    const char *why = NULL;
    size_t len = 0;
    word[0] = '>';
    int rc = fli_line_read(stdin, word + 1, WORD_SIZE - 1, &len, &why);
    return rc == 1 && len > 0 ? NULL : why != NULL ? why : "it is empty";
}

/* On a terminal it is asked for twice, and not shown. */
static void ask_quietly(const char *prompt, char word[WORD_SIZE])
{
    struct cli_keyboard k;
    if (!cli_keyboard_open(&k, ECHO, TCSAFLUSH)) {
        check_password("the terminal cannot be told not to show it");
    }
    cli_signals_add(&k.signals, SIGTSTP);
    fputs(prompt, stderr); /* not before: what is typed at once would be shown, or lost */
    const char *why = cli_keyboard_wait(&k, UINT64_MAX) >= 0 ? read_line(word) : "interrupted";
    int signal = cli_keyboard_close(&k);
    fputc('\n', stderr);
    if (signal != 0) {
        cli_end(CLI_EXIT_SIGNAL + signal);
    }
    check_password(why);
}

static void read_password(char word[WORD_SIZE])
{
    char again[WORD_SIZE];
    if (isatty(STDIN_FILENO) != 1) {
        check_password(read_line(word));
        return;
    }
    ask_quietly("password of the new user: ", word);
    ask_quietly("the same again: ", again);
    check_password(strcmp(word, again) == 0 ? NULL : "the two differ");
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

/* There must be no such user: one that is changed by mistake would have two passwords. */
static void refuse_known(const struct cli_args *a, fl_client *c)
{
    const char *const words[] = {"ACL", "GETUSER", a->arg[0]};
    redisReply *r = cli_ask_cluster(a, c, words, 3, false, NULL);
    if (r->type != REDIS_REPLY_NIL) {
        cli_die(a, FL_EEXISTS,
                "there is a user of that name; fencelock user remove deletes it, and ACL SETUSER "
                "changes it");
    }
    freeReplyObject(r);
}

int cli_run_user_add(const struct cli_args *a, fl_client *c)
{
    char password[WORD_SIZE];
    /* "reset": the request may be sent again, and gives one password all the same */
    const char *words[6 + CLI_ARGS_MAX] = {"ACL", "SETUSER", a->arg[0], "reset", "on", password};
    for (unsigned i = 1; i < a->n_args; i++) {
        words[5 + i] = a->arg[i];
        check_password(strchr(">#", a->arg[i][0]) == NULL || a->arg[i][0] == '\0'
                           ? NULL
                           : "it is asked for, and not an argument, which everybody on this "
                             "machine could read");
    }
    refuse_known(a, c);
    read_password(password);
    freeReplyObject(cli_ask_cluster(a, c, words, 5 + a->n_args, true, NULL));
    return report(a, "add");
}

int cli_run_user_remove(const struct cli_args *a, fl_client *c)
{
    const char *const words[] = {"ACL", "DELUSER", a->arg[0]};
    bool uncertain; /* an earlier attempt may have removed the user */
    redisReply *r = cli_ask_cluster(a, c, words, 3, true, &uncertain);
    bool removed = uncertain || (r->type == REDIS_REPLY_INTEGER && r->integer == 1);
    freeReplyObject(r);
    return removed ? report(a, "remove") : cli_fail(a, FL_ENOTFOUND, "there is no such user");
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
    redisReply *r = cli_ask_cluster(a, c, words, 2, false, NULL);
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
