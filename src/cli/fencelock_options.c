/* fencelock_options.c: see fencelock_options.h. */
#include "cli/fencelock_options.h"

#include <stdarg.h>
#include <string.h>

#include "base/bytes.h"
#include "base/distance.h"
#include "base/options.h"

#define EVERYWHERE                                                                                 \
    (CLI_BIT(CLI_OPT_TIMEOUT) | CLI_BIT(CLI_OPT_JSON) | CLI_BIT(CLI_OPT_NO_COLOR) |                \
     CLI_BIT(CLI_OPT_HELP) | CLI_BIT(CLI_OPT_VERSION))
#define WORD_MAX 32u
#define NAME_ROOM 48u

#define OR_VARIABLE .in_environment = true

static const struct fli_option options[CLI_OPTIONS] = {
    [CLI_OPT_TTL] = {"ttl", FLI_OPTION_TIME, "TIME",
                     .help = "the lease, unless renewed (default 10s; renew: as before)"},
    [CLI_OPT_WAIT] = {"wait", FLI_OPTION_TIME, "TIME",
                      .help =
                          "how long to wait (default: run a day, cluster 2m, others not at all)"},
    [CLI_OPT_OWNER] = {"owner", FLI_OPTION_POINTER, "ID",
                       .help = "16 to 255 bytes that nobody else uses (default: random)"},
    [CLI_OPT_VALUE] = {"value", FLI_OPTION_POINTER, "TEXT", .help = "a note that `show` prints"},
    [CLI_OPT_SHARED] = {"shared", FLI_OPTION_FLAG,
                        .help = "take it as a reader, beside others that use --shared"},
    [CLI_OPT_PERMITS] = {"permits", FLI_OPTION_NUMBER, "N",
                         .help = "a semaphore: up to N hold it at a time"},
    [CLI_OPT_ALSO] = {"also", FLI_OPTION_POINTER, "NAME",
                      .help = "take this lock too, all or none; up to 15 times", .many = true},
    [CLI_OPT_MAX_HOLD] = {"max-hold", FLI_OPTION_TIME, "TIME",
                          .help =
                              "call the lock lost after this long (default: never; redlock: 24h)"},
    [CLI_OPT_QUIET] = {"quiet", FLI_OPTION_FLAG,
                       .help = "print errors only, nothing while waiting and renewing"},
    [CLI_OPT_ON_LOST] =
        {"on-lost", FLI_OPTION_POINTER, "kill|term|warn",
         .help = "stop the command by TERM then KILL (default), by TERM, or not at all"},
    [CLI_OPT_LEARNER] = {"learner", FLI_OPTION_FLAG,
                         .help = "a copy: it gets the whole log and never votes"},
    [CLI_OPT_FORCE_LOSE_MAJORITY] = {"force-lose-majority", FLI_OPTION_FLAG,
                                     .help = "even if the voters that are left have no majority"},
    [CLI_OPT_OF] = {"of", FLI_OPTION_POINTER, "INCARNATION",
                    .help =
                        "only this one, so that it can be run again (default: the present one)"},
    [CLI_OPT_LIVE] =
        {"live", FLI_OPTION_FLAG,
         .help = "only whether nodes answer, leader or not; for programs that restart nodes"},
    [CLI_OPT_VERIFY] = {"verify", FLI_OPTION_FLAG,
                        .help = "check this file and print what is in it; asks no node"},
    [CLI_OPT_KEEP] = {"keep", FLI_OPTION_NUMBER, "N",
                      .help =
                          "FILE is a folder: choose the name, and keep the newest N backups there"},
    [CLI_OPT_REPLACE] = {"replace", FLI_OPTION_FLAG,
                         .help = "put the new file in the place of one that has its name"},
    [CLI_OPT_MATCH] = {"match", FLI_OPTION_POINTER, "GLOB",
                       .help = "only names, or keys of Redis, that match"},
    [CLI_OPT_BY] = {"by", FLI_OPTION_POINTER, "wait",
                    .help = "wait: the locks that were waited for most"},
    [CLI_OPT_ONCE] = {"once", FLI_OPTION_FLAG, .help = "print once and end"},
    [CLI_OPT_LIMIT] = {"limit", FLI_OPTION_NUMBER, "N",
                       .help = "at most so many (default 1000; top: 10; watch: no limit)"},
    [CLI_OPT_LOCK] = {"lock", FLI_OPTION_POINTER, "NAME", .help = "the lock that fences the key",
                      OR_VARIABLE},
    [CLI_OPT_TOKEN] = {"token", FLI_OPTION_NUMBER, "N", .help = "the token of the grant",
                       OR_VARIABLE},
    [CLI_OPT_DEFAULT] = {"default", FLI_OPTION_POINTER, "TEXT",
                         .help = "print this, and end with 0, when there is no such key"},
    [CLI_OPT_STORE] = {"store", FLI_OPTION_POINTER, "HOST:PORT",
                       .help = "the storage (default 127.0.0.1:7411)", OR_VARIABLE},
    [CLI_OPT_CLAIM] = {"claim", FLI_OPTION_POINTER, "HOST:PORT",
                       .help = "claim at this fencelock-store with the token that was burnt"},
    [CLI_OPT_NODES] = {"nodes", FLI_OPTION_POINTER, "A:P,B:P",
                       .help = "the nodes (default 127.0.0.1:7401; redlock: none)", OR_VARIABLE},
    [CLI_OPT_DISCOVER] = {"discover", FLI_OPTION_FLAG,
                          .help = "ask the nodes for all members, go on with these", OR_VARIABLE},
    [CLI_OPT_TLS] = {"tls", FLI_OPTION_FLAG, .help = "connect with TLS", OR_VARIABLE},
    [CLI_OPT_CACERT] = {"cacert", FLI_OPTION_POINTER, "FILE",
                        .help = "the CAs to trust (default: the system's)", OR_VARIABLE},
    [CLI_OPT_CERT] = {"cert", FLI_OPTION_POINTER, "FILE",
                      .help = "the client's certificate, for servers that ask for one",
                      OR_VARIABLE},
    [CLI_OPT_KEY] = {"key", FLI_OPTION_POINTER, "FILE", .help = "the key of --cert", OR_VARIABLE},
    [CLI_OPT_SNI] = {"sni", FLI_OPTION_POINTER, "HOST",
                     .help = "the name in the server's certificate, if not its host", OR_VARIABLE},
    [CLI_OPT_USER] = {"user", FLI_OPTION_POINTER, "NAME",
                      .help = "log in as this user; password: FENCELOCK_PASSWORD", OR_VARIABLE},
    [CLI_OPT_PASSWORD_FILE] = {"password-file", FLI_OPTION_POINTER, "FILE",
                               .help = "its first line is the password", OR_VARIABLE},
    [CLI_OPT_REDIS_TLS] = {"redis-tls", FLI_OPTION_FLAG,
                           .help = "TLS to Redis, with --cacert, --cert and --key", OR_VARIABLE},
    [CLI_OPT_REDIS] = {"redis", FLI_OPTION_POINTER, "A:P,B:P",
                       .help = "the Redis servers, the same at all clients", OR_VARIABLE},
    [CLI_OPT_REDIS_USER] = {"redis-user", FLI_OPTION_POINTER, "NAME",
                            .help = "the user; password: FENCELOCK_REDIS_PASSWORD", OR_VARIABLE},
    [CLI_OPT_REDIS_PASSWORD_FILE] = {"redis-password-file", FLI_OPTION_POINTER, "F",
                                     .help = "its first line is the password", OR_VARIABLE},
    [CLI_OPT_REDIS_DB] = {"redis-db", FLI_OPTION_NUMBER, "N", .help = "the database (default 0)"},
    [CLI_OPT_KEY_FORMAT] = {"key-format", FLI_OPTION_POINTER, "TEXT",
                            .help = "how a name becomes a key, with one %s (default %s)"},
    [CLI_OPT_MIN_VALIDITY] = {"min-validity", FLI_OPTION_TIME, "TIME",
                              .help = "fail when less than this is left of the TTL"},
    [CLI_OPT_MAX_TTL] = {"max-ttl", FLI_OPTION_TIME, "TIME",
                         .help = "the longest TTL of any client (default 30s)"},
    [CLI_OPT_RESTARTS_ARE_SAFE] = {"restarts-are-safe", FLI_OPTION_FLAG,
                                   .help = "the servers keep their keys over a restart"},
    [CLI_OPT_BUDGET] = {"budget", FLI_OPTION_TIME, "TIME",
                        .help = "how long a server may take, at most TTL/20 (default 50ms)"},
    [CLI_OPT_TOKENS] = {"tokens", FLI_OPTION_POINTER, "on|off|writes",
                        .help = "runs of this kind only; writes: no claim before the first read"},
    [CLI_OPT_SEED] = {"seed", FLI_OPTION_NUMBER, "N",
                      .help = "the seed of the first run (default 1)"},
    [CLI_OPT_RUNS] = {"runs", FLI_OPTION_NUMBER, "N",
                      .help = "how many runs, each with its seed (default 1)"},
    [CLI_OPT_SVG] = {"svg", FLI_OPTION_POINTER, "FILE",
                     .help = "draw the first run into this file"},
    [CLI_OPT_DURATION] = {"duration", FLI_OPTION_TIME, "TIME",
                          .help = "watch for this long (default 10s)"},
    [CLI_OPT_ALIASES] = {"front-door-aliases", FLI_OPTION_POINTER, "FILE",
                         .help = "the forms of further scripts, as fencelockd will have them"},
    [CLI_OPT_TIMEOUT] = {"timeout", FLI_OPTION_TIME, "TIME",
                         .help = "time limit beyond --wait (default 5s; cluster: 10s)",
                         OR_VARIABLE},
    [CLI_OPT_JSON] = {"json", FLI_OPTION_FLAG, .help = "print one JSON value"},
    [CLI_OPT_NO_COLOR] = {"no-color", FLI_OPTION_FLAG, .help = "no colours (also: NO_COLOR)"},
    [CLI_OPT_HELP] = {"help", FLI_OPTION_FLAG, .help = "this text"},
    [CLI_OPT_VERSION] = {"version", FLI_OPTION_FLAG, .help = "the version"},
};

enum cli_exit cli_exit_of(int code)
{
    switch (code) {
    case 0:
        return CLI_EXIT_DONE;
    case FL_ENOTHELD:
    case FL_ENOTFOUND:
    case FL_ESTALE:
    case FL_EWRONGLOCK:
    case FL_ENOTOKEN:
    case FL_EDEADLOCK:
    case FL_ELIMIT:
    case FL_ENOSESSION:
    case FL_EEXISTS:
    case FL_EDENIED:
    case FL_EMISMATCH:
        return CLI_EXIT_NO;
    case FL_EINVAL:
        return CLI_EXIT_USAGE;
    default:
        return CLI_EXIT_UNKNOWN;
    }
}

/* A command that runs another program has no --json: the output belongs to that program. */
static uint64_t options_of(const struct cli_command *c)
{
    uint64_t taken = c->options | EVERYWHERE;
    return c->args_max == CLI_ARGS_REST ? taken & ~CLI_BIT(CLI_OPT_JSON) : taken;
}

/* ---- nearest word ---------------------------------------------------------------------------- */

struct nearest {
    const char *word;
    size_t distance;
};

static void consider(struct nearest *n, const char *given, const char *candidate)
{
    if (strlen(given) >= WORD_MAX || strlen(candidate) >= WORD_MAX) {
        return;
    }
    size_t d = fli_distance(given, candidate);
    size_t allowed = strlen(candidate) > 4 ? 2 : 1;
    if (d <= allowed && (n->word == NULL || d < n->distance)) {
        *n = (struct nearest){candidate, d};
    }
}

/* ---- parsing --------------------------------------------------------------------------------- */

struct parse {
    const struct cli_command *commands;
    int argc;
    const char *const *argv;
    int at; /* next word */
    bool options_over;
    struct cli_args args;
    struct fli_options reader;
    char *errmsg;
    size_t errmsg_size;
};

static int wrong(struct parse *p, const char *fmt, ...) FLI_PRINTF(2, 3);

static int wrong(struct parse *p, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    vsnprintf(p->errmsg, p->errmsg_size, fmt, args);
    va_end(args);
    return FL_EINVAL;
}

static const char *title(const struct cli_command *c, char out[2 * WORD_MAX])
{
    snprintf(out, (size_t)2 * WORD_MAX, "%s%s%s", c->name, c->sub == NULL ? "" : " ",
             c->sub == NULL ? "" : c->sub);
    return out;
}

/* Of times that the servers limit as well: their own words could not name the option. */
static int check_range(struct parse *p, enum cli_option o, const char *value, const char *from)
{
    uint64_t ms = p->args.number[o];
    if ((o == CLI_OPT_TTL || o == CLI_OPT_TIMEOUT) && ms == 0) {
        return wrong(p, "%s must not be 0: leave it out for the default", from);
    }
    if (o == CLI_OPT_TTL && (ms < FL_TTL_MIN_MS || ms > FL_TTL_MAX_MS)) {
        return wrong(p, "%s is %ums to 24h, not '%s'%s", from, (unsigned)FL_TTL_MIN_MS, value,
                     value[strspn(value, "0123456789")] == '\0' ? " (milliseconds)" : "");
    }
    if ((o == CLI_OPT_WAIT || o == CLI_OPT_TIMEOUT) && ms > CLI_TIME_MAX_MS) {
        return wrong(p, "%s is at most 24h, not '%s'", from, value);
    }
    return 0;
}

static int take_value(struct parse *p, enum cli_option o, const char *value, const char *from)
{
    struct cli_args *a = &p->args;
    if (options[o].kind == FLI_OPTION_TIME && !fli_parse_duration(value, &a->number[o])) {
        return wrong(p,
                     "%s '%s' is not a time: write 500ms, 5s, 2m, 1h, or a number of milliseconds",
                     from, value);
    }
    if (options[o].kind == FLI_OPTION_TIME && a->number[o] > 0 && a->number[o] < CLI_SHORT_MS &&
        value[strspn(value, "0123456789")] == '\0' && a->warning[0] == '\0') {
        snprintf(a->warning, sizeof a->warning,
                 "%s %s is %s milliseconds: write %ss if seconds are meant, or %sms", from, value,
                 value, value, value);
    }
    if (options[o].kind == FLI_OPTION_TIME && a->number[o] > UINT64_MAX / 4) {
        return wrong(p, "%s %s is too long", from, value); /* its end must be a time */
    }
    int rc = check_range(p, o, value, from);
    if (rc != 0) {
        return rc;
    }
    if (options[o].kind == FLI_OPTION_NUMBER &&
        !fli_parse_u64(value, strlen(value), FL_TOKEN_MAX, &a->number[o])) {
        return wrong(p, "%s '%s' is not a whole number, or too large", from, value);
    }
    if (options[o].many && a->n_also == FL_NAMES_MAX - 1) {
        return wrong(p, "%s is given more than %u times: ask for fewer locks", from,
                     FL_NAMES_MAX - 1);
    }
    if (options[o].many) {
        a->also[a->n_also++] = fl_str(value);
    }
    a->text[o] = value;
    a->given |= CLI_BIT(o);
    return 0;
}

/* The name of an option as one writes it, and that of its variable. */
static const char *written(size_t o, char out[NAME_ROOM])
{
    snprintf(out, NAME_ROOM, "--%s", options[o].name);
    return out;
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
    const char *value;
    size_t o;
    if (p->argv[p->at][1] != '-' && strcmp(p->argv[p->at], "-h") != 0) {
        bool negative = p->argv[p->at][1] >= '0' && p->argv[p->at][1] <= '9';
        return wrong(p, "there is no option %s%s; see fencelock --help", p->argv[p->at],
                     negative ? ", and no number here is below 0" : "");
    }
    int rc = fli_options_next(&p->reader, p->argc, p->argv, &p->at, &o, &value);
    if (rc != 0) {
        p->args.given |= rc == FLI_OPTIONS_HELP      ? CLI_BIT(CLI_OPT_HELP)
                         : rc == FLI_OPTIONS_VERSION ? CLI_BIT(CLI_OPT_VERSION)
                                                     : 0;
        return rc < 0 ? rc : 0;
    }
    if (options[o].kind != FLI_OPTION_FLAG) {
        return take_value(p, (enum cli_option)o, value, written(o, from));
    }
    p->args.given |= CLI_BIT(o);
    return value == NULL ? 0 : wrong(p, "--%s takes no value", options[o].name);
}

/* Takes options up to the next word that is none, and returns it; NULL at the end. */
static int next_word(struct parse *p, const char **ret)
{
    *ret = NULL;
    while (p->at < p->argc) {
        const char *word = p->argv[p->at];
        if (p->options_over || word[0] != '-' || word[1] == '\0') {
            p->at++;
            *ret = word;
            return 0;
        }
        if (strcmp(word, "--") == 0) {
            p->options_over = true;
            p->at++;
            continue;
        }
        int rc = take_option(p);
        if (rc != 0) {
            return rc;
        }
    }
    return 0;
}

static int unknown_command(struct parse *p, const char *word)
{
    struct nearest n = {NULL, 0};
    for (const struct cli_command *c = p->commands; c->name != NULL; c++) {
        consider(&n, word, c->name);
    }
    if (n.word != NULL) {
        return wrong(p, "there is no command '%s'; did you mean '%s'?", word, n.word);
    }
    return wrong(p, "there is no command '%s'; see fencelock --help", word);
}

static const struct cli_command *find_name(const struct cli_command *commands, const char *name)
{
    const struct cli_command *c = commands;
    while (c->name != NULL && strcmp(c->name, name) != 0) {
        c++;
    }
    return c->name != NULL ? c : NULL;
}

static int unknown_sub(struct parse *p, const struct cli_command *family, const char *word)
{
    char list[128] = "";
    struct nearest n = {NULL, 0};
    for (const struct cli_command *c = family;
         c->name != NULL && strcmp(c->name, family->name) == 0; c++) {
        size_t len = strlen(list);
        snprintf(list + len, sizeof list - len, "%s%s", len == 0 ? "" : ", ", c->sub);
        if (word != NULL) {
            consider(&n, word, c->sub);
        }
    }
    if (word == NULL) {
        return wrong(p, "%s what? One of: %s", family->name, list);
    }
    if (n.word != NULL) {
        return wrong(p, "there is no command '%s %s'; did you mean '%s'?", family->name, word,
                     n.word);
    }
    return wrong(p, "there is no command '%s %s'; there are: %s", family->name, word, list);
}

static int take_command(struct parse *p)
{
    const char *name;
    int rc = next_word(p, &name);
    if (rc != 0 || name == NULL) {
        return rc;
    }
    const struct cli_command *c = find_name(p->commands, name);
    if (c == NULL) {
        return unknown_command(p, name);
    }
    if (c->sub != NULL) {
        const char *sub;
        rc = next_word(p, &sub);
        if (rc != 0) {
            return rc;
        }
        const struct cli_command *family = c;
        while (sub != NULL && c->name != NULL && strcmp(c->name, name) == 0 &&
               strcmp(c->sub, sub) != 0) {
            c++;
        }
        bool found = sub != NULL && c->name != NULL && strcmp(c->name, name) == 0;
        if (!found && !(sub == NULL && cli_has(&p->args, CLI_OPT_HELP))) {
            return unknown_sub(p, family, sub);
        }
    }
    p->args.command = c;
    return 0;
}

static int take_args(struct parse *p)
{
    const struct cli_command *c = p->args.command;
    char name[2 * WORD_MAX];
    for (;;) {
        const char *word;
        int rc = next_word(p, &word);
        if (rc != 0) {
            return rc;
        }
        if (word == NULL) {
            break;
        }
        /* `run -- echo hi` would lock "echo". A name that begins with - has -- on both sides. */
        if (c != NULL && c->args_max == CLI_ARGS_REST && p->args.n_args == 0 && p->options_over) {
            if (p->at == p->argc || strcmp(p->argv[p->at], "--") != 0) {
                return wrong(p, "the lock's name is missing: write fencelock %s NAME -- %s...",
                             title(c, name), word);
            }
            p->at++;
        }
        if (c != NULL && c->args_max == CLI_ARGS_REST && p->args.n_args == 1) {
            p->args.rest = &p->argv[p->at - 1];
            p->at = p->argc;
            break;
        }
        if (c == NULL || p->args.n_args == c->args_max) {
            return wrong(p, "'%s' is one argument too many: write fencelock %s%s%s", word,
                         c == NULL ? "" : title(c, name),
                         c == NULL || c->arguments[0] == '\0' ? "" : " ",
                         c == NULL ? "" : c->arguments);
        }
        FLI_ASSERT(p->args.n_args < CLI_ARGS_MAX);
        p->args.arg[p->args.n_args++] = word;
    }
    bool asks = cli_has(&p->args, CLI_OPT_HELP) || cli_has(&p->args, CLI_OPT_VERSION);
    if (c == NULL || asks) {
        return 0;
    }
    if (p->args.n_args < c->args_min || (c->args_max == CLI_ARGS_REST && p->args.rest == NULL)) {
        return wrong(p, "too few arguments: write fencelock %s %s", title(c, name), c->arguments);
    }
    for (int o = 0; o < CLI_OPTIONS; o++) {
        if (p->reader.seen[o] && (options_of(c) & CLI_BIT(o)) == 0) {
            return wrong(p, "%s takes no --%s; see fencelock %s --help", title(c, name),
                         options[o].name, title(c, name));
        }
    }
    return 0;
}

static int take_flag(struct parse *p, enum cli_option o, const char *value, const char *from)
{
    bool yes = strcmp(value, "1") == 0 || strcmp(value, "yes") == 0;
    if (!yes && strcmp(value, "0") != 0 && strcmp(value, "no") != 0) {
        return wrong(p, "%s '%s' is neither yes nor no", from, value);
    }
    p->args.given |= yes ? CLI_BIT(o) : 0;
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
            int rc = options[o].kind == FLI_OPTION_FLAG
                         ? take_flag(p, (enum cli_option)o, value, name)
                         : take_value(p, (enum cli_option)o, value, name);
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
                      .at = 1,
                      .errmsg = errmsg,
                      .errmsg_size = errmsg_size};
    int rc = take_command(&p);
    if (rc == 0) {
        rc = take_args(&p);
    }
    if (rc == 0) {
        rc = take_environment(&p, getenv_fn);
    }
    bool asks = cli_has(&p.args, CLI_OPT_HELP) || cli_has(&p.args, CLI_OPT_VERSION);
    if (rc == 0 && p.args.command == NULL && !asks) {
        rc = wrong(&p, "what shall be done? See fencelock --help");
    }
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
    char name[2 * WORD_MAX];
    fprintf(f, "fencelock %s %s\n%s\n\n", title(c, name), c->arguments, c->help);
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
            char name[2 * WORD_MAX];
            char left[3 * WORD_MAX];
            snprintf(left, sizeof left, "%s %s", title(c, name), c->arguments);
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
