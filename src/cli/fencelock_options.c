/* fencelock_options.c: see fencelock_options.h. */
#include "cli/fencelock_options.h"

#include <string.h>

#include "base/bytes.h"
#include "base/distance.h"
#include "base/options.h"

#define EVERYWHERE                                                                                 \
    (CLI_BIT(CLI_OPT_TIMEOUT) | CLI_BIT(CLI_OPT_JSON) | CLI_BIT(CLI_OPT_NO_COLOR) |                \
     CLI_BIT(CLI_OPT_HELP) | CLI_BIT(CLI_OPT_VERSION))
#define WORD_MAX 32u
#define NAME_ROOM 48u

static const char *const words_on_lost[] = {"kill", "term", "warn", NULL};
static const char *const words_by[] = {"wait", NULL};

static const struct fli_option options[CLI_OPTIONS] = {
#define OPTION(id, name_, kind_, value_, help_, ...)                                               \
    [CLI_OPT_##id] = {name_, FLI_OPTION_##kind_, value_, .help = help_, ##__VA_ARGS__},
    CLI_OPTION_ROWS(OPTION)};

enum cli_exit cli_exit_of(int code)
{
    switch (code) {
    case 0:
        return CLI_EXIT_DONE;
    case FL_EINVAL:
        return CLI_EXIT_USAGE;
    case FL_ENOLEADER: /* these are refused, and no answer */
    case FL_ENOCONN:
    case FL_EBUSY:
    case FL_ENOMEM:
        return CLI_EXIT_UNKNOWN;
    default:
        return fl_err_class(code) == FL_CLASS_REFUSED ? CLI_EXIT_NO : CLI_EXIT_UNKNOWN;
    }
}

/* A command that runs another program has no --json: the output belongs to that program. */
static uint64_t options_of(const struct cli_command *c)
{
    uint64_t taken = c->options | EVERYWHERE;
    return c->args_max == CLI_ARGS_REST ? taken & ~CLI_BIT(CLI_OPT_JSON) : taken;
}

/* ---- parsing --------------------------------------------------------------------------------- */

struct parse {
    const struct cli_command *commands;
    int argc;
    const char *const *argv;
    int at; /* next word */
    bool options_over;
    /* The first word with a blank behind it, when there are commands of two words that begin so;
     * and the first of these. */
    char family[WORD_MAX];
    const struct cli_command *first;
    struct cli_args args;
    struct fli_options reader;
};

const char *cli_verb(const struct cli_args *a)
{
    const char *blank = strchr(a->command->name, ' ');
    return blank != NULL ? blank + 1 : a->command->name;
}

/* A number alone is milliseconds, and a person may have meant seconds. */
static void warn_of_short_time(struct cli_args *a, uint64_t ms, const char *value, const char *from)
{
    if (ms > 0 && ms < CLI_SHORT_MS && value[strspn(value, "0123456789")] == '\0' &&
        a->warning[0] == '\0') {
        snprintf(a->warning, sizeof a->warning,
                 "%s %s is %s milliseconds: write %ss if seconds are meant, or %sms", from, value,
                 value, value, value);
    }
}

static int take_value(struct parse *p, size_t o, const char *value, const char *from)
{
    struct cli_args *a = &p->args;
    const struct fli_option *row = &options[o];
    bool is_text = row->kind == FLI_OPTION_POINTER;
    int rc = is_text ? 0 : fli_option_read(&p->reader, row, value, from, &a->number[o]);
    if (rc != 0 || (row->kind == FLI_OPTION_FLAG && a->number[o] == 0)) {
        return rc;
    }
    if (row->kind == FLI_OPTION_TIME) {
        warn_of_short_time(a, a->number[o], value, from);
    }
    if (row->many && a->n_also == FL_NAMES_MAX - 1) {
        return fli_options_wrong(&p->reader, "%s is given more than %u times: ask for fewer locks",
                                 from, FL_NAMES_MAX - 1);
    }
    if (row->many) {
        a->also[a->n_also++] = fl_str(value);
    }
    a->text[o] = value;
    a->given |= CLI_BIT(o);
    return 0;
}

static const char *variable_of(size_t o, char out[NAME_ROOM])
{
    size_t n = (size_t)snprintf(out, NAME_ROOM, "FENCELOCK_");
    for (const char *c = options[o].name; *c != '\0'; c++) {
        out[n++] = (char)(*c == '-' ? '_' : *c - 'a' + 'A');
    }
    out[n] = '\0';
    return out;
}

static int take_option(struct parse *p)
{
    char from[NAME_ROOM];
    const char *word = p->argv[p->at];
    const char *value = NULL;
    size_t o = 0;
    if (word[1] != '-' && strcmp(word, "-h") != 0) {
        bool negative = word[1] >= '0' && word[1] <= '9';
        return fli_options_wrong(&p->reader, "there is no option %s%s; see fencelock --help", word,
                                 negative ? ", and no number here is below 0" : "");
    }
    int rc = fli_options_next(&p->reader, p->argc, p->argv, &p->at, &o, &value);
    if (rc > 0) {
        p->args.given |= CLI_BIT(rc == FLI_OPTIONS_HELP ? CLI_OPT_HELP : CLI_OPT_VERSION);
    }
    if (rc != 0) {
        return rc > 0 ? 0 : rc;
    }
    if (options[o].kind == FLI_OPTION_FLAG && value != NULL) {
        return fli_options_wrong(&p->reader, "--%s takes no value", options[o].name);
    }
    snprintf(from, sizeof from, "--%s", options[o].name);
    return take_value(p, o, value != NULL ? value : "yes", from);
}

/* name: the words that are no command, or (is_short) too few for one. */
static int unknown(struct parse *p, const char *name, bool is_short)
{
    char list[128] = "";
    char best[2 * WORD_MAX] = "";
    char own[2 * WORD_MAX];
    size_t least = SIZE_MAX;
    size_t len = strlen(p->family);
    for (const struct cli_command *c = p->commands; c->name != NULL; c++) {
        (void)snprintf(own, sizeof own, "%s", c->name);
        own[len > 0 ? strlen(own) : strcspn(own, " ")] = '\0';
        size_t d = strlen(name) < sizeof own ? fli_distance(name, own) : SIZE_MAX;
        if (d <= (strlen(own) > 4 ? 2 : 1) && d < least) {
            least = d;
            (void)snprintf(best, sizeof best, "%s", own);
        }
        if (len > 0 && strncmp(own, p->family, len) == 0) {
            size_t at = strlen(list);
            (void)snprintf(list + at, sizeof list - at, "%s%s", at == 0 ? "" : ", ", own + len);
        }
    }
    if (is_short) {
        return fli_options_wrong(&p->reader, "%swhat? One of: %s", p->family, list);
    }
    return fli_options_wrong(&p->reader, "there is no command '%s'; %s%s%s", name,
                             best[0] != '\0' ? "did you mean '"
                             : len > 0       ? "there are: "
                                             : "see fencelock --help",
                             best[0] != '\0' ? best : list, best[0] != '\0' ? "'?" : "");
}

/* The first word, or the second of a family. */
static int take_command(struct parse *p, const char *word)
{
    char name[4 * WORD_MAX];
    (void)snprintf(name, sizeof name, "%s%s", p->family, word);
    size_t len = strlen(name);
    for (const struct cli_command *c = p->commands; c->name != NULL; c++) {
        if (strncmp(c->name, name, len) != 0) {
            continue;
        }
        if (c->name[len] == '\0') {
            p->args.command = c;
            return 0;
        }
        if (c->name[len] == ' ' && p->first == NULL) {
            p->first = c;
            (void)snprintf(p->family, sizeof p->family, "%.*s", (int)len + 1, c->name);
            return 0;
        }
    }
    return unknown(p, name, false);
}

static int take_argument(struct parse *p, const char *word)
{
    const struct cli_command *c = p->args.command;
    bool has_rest = c->args_max == CLI_ARGS_REST;
    /* `run -- echo hi` would lock "echo". A name that begins with - has -- on both sides. */
    if (has_rest && p->args.n_args == 0 && p->options_over) {
        if (p->at == p->argc || strcmp(p->argv[p->at], "--") != 0) {
            return fli_options_wrong(&p->reader,
                                     "the lock's name is missing: write fencelock %s NAME -- %s...",
                                     c->name, word);
        }
        p->at++;
    }
    if (has_rest && p->args.n_args == 1) {
        p->args.rest = &p->argv[p->at - 1];
        p->at = p->argc;
        return 0;
    }
    if (p->args.n_args == c->args_max) {
        return fli_options_wrong(&p->reader,
                                 "'%s' is one argument too many: write fencelock %s%s%s", word,
                                 c->name, c->arguments[0] == '\0' ? "" : " ", c->arguments);
    }
    FLI_ASSERT(p->args.n_args < CLI_ARGS_MAX);
    p->args.arg[p->args.n_args++] = word;
    return 0;
}

static int take_next(struct parse *p)
{
    const char *word = p->argv[p->at];
    bool is_option = !p->options_over && word[0] == '-' && word[1] != '\0';
    if (is_option && strcmp(word, "--") != 0) {
        return take_option(p);
    }
    p->at++;
    if (is_option) {
        p->options_over = true;
        return 0;
    }
    return p->args.command == NULL ? take_command(p, word) : take_argument(p, word);
}

/* Whether the words make a command, with all that it needs, and with options that it takes. */
static int check_words(struct parse *p)
{
    const struct cli_command *c = p->args.command;
    bool asks = cli_has(&p->args, CLI_OPT_HELP) || cli_has(&p->args, CLI_OPT_VERSION);
    if (c == NULL && p->first != NULL && cli_has(&p->args, CLI_OPT_HELP)) {
        p->args.command = p->first;
    } else if (c == NULL && p->first != NULL) {
        return unknown(p, p->family, true);
    }
    if (asks) {
        return 0;
    }
    if (c == NULL) {
        return fli_options_wrong(&p->reader, "what shall be done? See fencelock --help");
    }
    if (p->args.n_args < c->args_min || (c->args_max == CLI_ARGS_REST && p->args.rest == NULL)) {
        return fli_options_wrong(&p->reader, "too few arguments: write fencelock %s %s", c->name,
                                 c->arguments);
    }
    for (int o = 0; o < CLI_OPTIONS; o++) {
        if (p->reader.seen[o] && (options_of(c) & CLI_BIT(o)) == 0) {
            return fli_options_wrong(&p->reader, "%s takes no --%s; see fencelock %s --help",
                                     c->name, options[o].name, c->name);
        }
    }
    return 0;
}

static int take_environment(struct parse *p, const char *(*getenv_fn)(const char *name))
{
    uint64_t wanted = p->args.command != NULL ? EVERYWHERE | p->args.command->options : 0;
    for (int o = 0; o < CLI_OPTIONS; o++) {
        char room[NAME_ROOM];
        if (!options[o].in_environment || (wanted & CLI_BIT(o)) == 0 ||
            cli_has(&p->args, (enum cli_option)o)) {
            continue;
        }
        const char *name = variable_of((size_t)o, room);
        const char *value = getenv_fn(name);
        if (value != NULL && value[0] != '\0') {
            int rc = take_value(p, (size_t)o, value, name);
            if (rc != 0) {
                return rc;
            }
        }
    }
    return 0;
}

int cli_parse(const struct cli_command *commands, int argc, const char *const *argv,
              const char *(*getenv_fn)(const char *name), struct cli_args *ret, char *errmsg,
              size_t errmsg_size)
{
    struct parse p = {.commands = commands,
                      .reader = {.table = options,
                                 .n = CLI_OPTIONS,
                                 .errmsg = errmsg,
                                 .errmsg_size = errmsg_size},
                      .argc = argc,
                      .argv = argv,
                      .at = 1};
    int rc = 0;
    while (rc == 0 && p.at < argc) {
        rc = take_next(&p);
    }
    rc = rc == 0 ? check_words(&p) : rc;
    rc = rc == 0 ? take_environment(&p, getenv_fn) : rc;
    if (rc == 0) {
        *ret = p.args;
    }
    return rc;
}

/* ---- help ------------------------------------------------------------------------------------ */

static void print_option(FILE *f, int o)
{
    char left[WORD_MAX];
    char variable[NAME_ROOM];
    snprintf(left, sizeof left, "--%s %s", options[o].name,
             options[o].value == NULL ? "" : options[o].value);
    fprintf(f, "  %-24s %s%s%s\n", left, options[o].help, options[o].in_environment ? "; or " : "",
            options[o].in_environment ? variable_of((size_t)o, variable) : "");
}

static void print_command_help(const struct cli_command *c, FILE *f)
{
    fprintf(f, "fencelock %s %s\n%s\n\n", c->name, c->arguments, c->help);
    for (int o = 0; o < CLI_OPTIONS; o++) {
        if ((options_of(c) & CLI_BIT(o)) != 0) {
            print_option(f, o);
        }
    }
}

void cli_print_help(const struct cli_command *commands, const struct cli_command *command, FILE *f)
{
    if (command != NULL) {
        print_command_help(command, f);
    } else {
        fputs("fencelock: locks with fencing tokens\n\n", f);
        for (const struct cli_command *c = commands; c->name != NULL; c++) {
            char left[3 * WORD_MAX];
            snprintf(left, sizeof left, "%s %s", c->name, c->arguments);
            fprintf(f, "  %-34s  %s\n", left, c->help);
        }
        fputs("\nEach command has its own --help.\n", f);
    }
    fputs(
        "\nA TIME has a unit: 500ms, 5s, 2m, 1h. A number alone is milliseconds.\n"
        "Exit codes: 0 done; 1 no (held by another, not held, stale...); 2 wrong usage;\n"
        "3 no node could be asked, or the outcome is unknown; 4 store get: there is no such key.\n"
        "run ends with its command's exit code, or with 122: the lock was lost, and the command\n"
        "could not be stopped; 123: the lock was lost; 124: not acquired;\n"
        "125: as 3; 126: the command cannot be executed; 127: it is not found.\n",
        f);
}
