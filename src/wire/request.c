/* request.c: a small specification of each command lists its arguments, their kinds and ranges, and
 * the fields they fill; one loop applies it. What a specification cannot express (one option
 * excludes another) is checked by a function afterwards. */
#include "wire/request.h"

#include <stdio.h>
#include <string.h>

#include "base/bytes.h"
#include "wire/text.h"

enum kind { KIND_BYTES, KIND_NUMBER };

/* min and max limit the length in bytes, or the number. */
struct arg {
    const char *name;
    enum kind kind;
    uint64_t min;
    uint64_t max;
    size_t offset; /* in struct fli_request */
    const char *unit;
};

#define OPTION_VALUES_MAX 2u
struct option {
    const char *word;
    struct arg values[OPTION_VALUES_MAX];
    unsigned n_values;
    bool repeats; /* may be given again (ALSO, whose values go to the list of further names) */
};

#define ARGS_MAX 3u
#define OPTIONS_MAX 8u
struct spec {
    bool known; /* false: the row is empty */
    struct arg args[ARGS_MAX];
    unsigned n_args;
    unsigned n_required;
    bool more; /* takes further arguments that are read elsewhere */
    const struct option *options;
    unsigned n_options;
};

struct parse {
    const struct fli_command *command;
    struct fli_request *request;
    char *errmsg;
    size_t errmsg_size;
    char title[48]; /* filled in by title() */
};

#define AT(field) offsetof(struct fli_request, field)
#define BYTES(text, field, lo, hi)                                                                 \
    {                                                                                              \
        .name = (text), .kind = KIND_BYTES, .min = (lo), .max = (hi), .offset = AT(field)          \
    }
#define NUMBER(text, field, lo, hi, what)                                                          \
    {                                                                                              \
        .name = (text), .kind = KIND_NUMBER, .min = (lo), .max = (hi), .offset = AT(field),        \
        .unit = (what)                                                                             \
    }
#define ONE(w, ...)                                                                                \
    {                                                                                              \
        .word = (w), .values = {__VA_ARGS__}, .n_values = 1                                        \
    }
#define TWO(w, ...)                                                                                \
    {                                                                                              \
        .word = (w), .values = {__VA_ARGS__}, .n_values = 2                                        \
    }
#define MANY(w, ...)                                                                               \
    {                                                                                              \
        .word = (w), .values = {__VA_ARGS__}, .n_values = 1, .repeats = true                       \
    }
#define FLAG(w)                                                                                    \
    {                                                                                              \
        .word = (w), .n_values = 0                                                                 \
    }
#define OPTIONS(list) .options = (list), .n_options = sizeof(list) / sizeof((list)[0])

#define NAME BYTES("name", name, 1, FL_NAME_MAX)
#define KEY BYTES("key", name, 1, FLI_KEY_MAX)
#define LOCK BYTES("lock", lock, 1, FL_NAME_MAX)
#define OWNER BYTES("owner", owner, 1, FL_OWNER_MAX)
#define TOKEN NUMBER("token", token, 1, FL_TOKEN_MAX, "a fencing token")
#define TTL NUMBER("TTL", ttl_ms, FL_TTL_MIN_MS, FL_TTL_MAX_MS, "milliseconds")
#define CURSOR ONE("CURSOR", BYTES("CURSOR", cursor, 0, FLI_CURSOR_MAX))
#define COUNT ONE("COUNT", NUMBER("COUNT", number, 1, FLI_COUNT_MAX, "elements of a page"))
#define MODE_WORD_MAX 16u /* longer than any mode, so that a wrong one is quoted in full */
#define NODE NUMBER("id", number, 1, FLI_NODE_ID_MAX, "a node")
#define INCARNATION_DIGITS 16u
#define NODE_ADDRESS BYTES("host:port", value, 1, FLI_NODE_ADDRESS_MAX)
#define CLIENT_NAME(text) BYTES(text, label, 0, FLI_CLIENT_NAME_MAX)

static const struct option acquire_options[] = {
    ONE("TTL", TTL),
    ONE("SESSION", BYTES("SESSION", owner, 1, FL_OWNER_MAX)),
    ONE("OWNER", BYTES("OWNER", owner, FL_OWNER_MIN, FL_OWNER_MAX)),
    ONE("WAIT", NUMBER("WAIT", wait_ms, 0, FL_WAIT_MAX_MS, "milliseconds")),
    ONE("VALUE", BYTES("VALUE", value, 0, FL_VALUE_MAX)),
    ONE("MODE", BYTES("MODE", mode, 1, MODE_WORD_MAX)),
    ONE("PERMITS", NUMBER("PERMITS", permits, 1, FL_PERMITS_MAX, "holders at a time")),
    ONE("ATTEMPT", NUMBER("ATTEMPT", attempt, 1, FL_TOKEN_MAX, "which sending of it this is")),
    MANY("ALSO", BYTES("ALSO", last_also, 1, FL_NAME_MAX)),
};
enum { ACQUIRE_TTL, ACQUIRE_SESSION, ACQUIRE_OWNER };

#define REPORT_MAX UINT32_MAX
/* What a client reports about its leases since its last report. */
#define JEOPARDY ONE("JEOPARDY", NUMBER("JEOPARDY", jeopardies, 0, REPORT_MAX, "leases"))
#define LOST ONE("LOST", NUMBER("LOST", lost, 0, REPORT_MAX, "leases"))
static const struct option renew_options[] = {ONE("TTL", TTL), JEOPARDY, LOST};
static const struct option replace_options[] = {
    FLAG("FORCE"), ONE("OF", BYTES("OF", by, INCARNATION_DIGITS, INCARNATION_DIGITS))};
enum { REPLACE_FORCE };
static const struct option session_renew_options[] = {JEOPARDY, LOST};
static const struct option locks_options[] = {ONE("MATCH", BYTES("MATCH", pattern, 1, FL_NAME_MAX)),
                                              CURSOR, COUNT,
                                              ONE("BY", BYTES("BY", by, 1, MODE_WORD_MAX))};
static const struct option session_open_options[] = {
    ONE("TTL", TTL),
    ONE("LOCKDELAY", NUMBER("LOCKDELAY", lockdelay_ms, 0, FL_LOCKDELAY_MAX_MS, "milliseconds")),
    ONE("LABEL", BYTES("LABEL", label, 0, FL_LABEL_MAX)),
};
static const struct option session_list_options[] = {CURSOR, COUNT};
static const struct option fence_options[] = {TWO("FENCE", LOCK, TOKEN)};
static const struct option hello_options[] = {
    TWO("AUTH", BYTES("AUTH user", owner, 0, UINT64_MAX),
        BYTES("AUTH password", value, 0, UINT64_MAX)),
    ONE("SETNAME", CLIENT_NAME("SETNAME")),
};

/* A row of n required arguments. */
#define ARGS(n, ...) .known = true, .args = {__VA_ARGS__}, .n_args = (n), .n_required = (n)
#define OPTIONAL(...) .known = true, .args = {__VA_ARGS__}, .n_args = 1
#define PLAIN .known = true

static const struct spec specs[FLI_CMD_ID_MAX + 1] = {
    [FLI_CMD_PING] = {OPTIONAL(BYTES("message", value, 0, UINT64_MAX))},
    [FLI_CMD_ECHO] = {ARGS(1, BYTES("message", value, 0, UINT64_MAX))},
    [FLI_CMD_HELLO] = {OPTIONAL(NUMBER("protover", number, 0, INT64_MAX, "the RESP version")),
                       OPTIONS(hello_options)},
    [FLI_CMD_AUTH] = {ARGS(2, BYTES("user", owner, 0, UINT64_MAX),
                           BYTES("password", value, 0, UINT64_MAX))},
    [FLI_CMD_SELECT] = {ARGS(1, NUMBER("index", number, 0, 0, "there is only database 0"))},
    [FLI_CMD_QUIT] = {PLAIN, .more = true},
    [FLI_CMD_RESET] = {PLAIN},
    [FLI_CMD_INFO] = {OPTIONAL(BYTES("section", pattern, 0, UINT64_MAX)), .more = true},
    [FLI_CMD_COMMAND] = {PLAIN},
    [FLI_CMD_COMMAND_COUNT] = {PLAIN},
    [FLI_CMD_COMMAND_DOCS] = {PLAIN, .more = true},
    [FLI_CMD_COMMAND_INFO] = {PLAIN, .more = true},
    [FLI_CMD_COMMAND_LIST] = {PLAIN},
    [FLI_CMD_CLIENT_ID] = {PLAIN},
    [FLI_CMD_CLIENT_GETNAME] = {PLAIN},
    [FLI_CMD_CLIENT_SETNAME] = {ARGS(1, CLIENT_NAME("name"))},
    [FLI_CMD_CLIENT_SETINFO] = {ARGS(2, BYTES("attribute", label, 1, FL_LABEL_MAX),
                                     BYTES("value", value, 0, FL_LABEL_MAX))},
    [FLI_CMD_CLIENT_TRACKING] = {ARGS(1, BYTES("mode", label, 1, FL_LABEL_MAX)), .more = true},
    [FLI_CMD_CLIENT_INFO] = {PLAIN},
    [FLI_CMD_CLIENT_LIST] = {PLAIN},
    [FLI_CMD_ACQUIRE] = {ARGS(1, NAME), OPTIONS(acquire_options)},
    [FLI_CMD_RENEW] = {ARGS(2, NAME, TOKEN), OPTIONS(renew_options)},
    [FLI_CMD_RELEASE] = {ARGS(2, NAME, TOKEN)},
    [FLI_CMD_CHECK] = {ARGS(2, NAME, TOKEN)},
    [FLI_CMD_TOKEN] = {ARGS(1, NAME)},
    [FLI_CMD_SHOW] = {ARGS(1, NAME)},
    [FLI_CMD_LOCKS] = {PLAIN, OPTIONS(locks_options)},
    [FLI_CMD_BREAK] = {ARGS(1, NAME)},
    [FLI_CMD_SESSION_OPEN] = {ARGS(1, BYTES("owner", owner, FL_OWNER_MIN, FL_OWNER_MAX)),
                              OPTIONS(session_open_options)},
    [FLI_CMD_SESSION_RENEW] = {ARGS(1, OWNER), OPTIONS(session_renew_options)},
    [FLI_CMD_SESSION_CLOSE] = {ARGS(1, OWNER)},
    [FLI_CMD_SESSION_SHOW] = {ARGS(1, OWNER)},
    [FLI_CMD_SESSION_LIST] = {PLAIN, OPTIONS(session_list_options)},
    [FLI_CMD_LEADER] = {PLAIN},
    [FLI_CMD_CLUSTER_MEMBERS] = {PLAIN},
    [FLI_CMD_CLUSTER_INFO] = {PLAIN},
    [FLI_CMD_CLUSTER_TRANSFER] = {OPTIONAL(NUMBER("id", number, 1, FLI_NODE_ID_MAX, "a node"))},
    [FLI_CMD_CLUSTER_BACKUP] = {.known = true,
                                .args = {NUMBER("id", number, 1, INT64_MAX, "a backup"),
                                         NUMBER("offset", offset, 0, INT64_MAX, "bytes")},
                                .n_args = 2},
    [FLI_CMD_CLUSTER_CONFIG] = {.known = true,
                                .args = {BYTES("GET or SET", by, 1, MODE_WORD_MAX),
                                         BYTES("name", label, 1, FLI_CLIENT_NAME_MAX),
                                         BYTES("value", value, 1, FLI_CLIENT_NAME_MAX)},
                                .n_args = 3,
                                .n_required = 1},
    [FLI_CMD_CLUSTER_ADD] = {.known = true,
                             .args = {NODE, NODE_ADDRESS, BYTES("LEARNER", mode, 1, MODE_WORD_MAX)},
                             .n_args = 3,
                             .n_required = 2},
    [FLI_CMD_CLUSTER_REMOVE] = {.known = true,
                                .args = {NODE, BYTES("FORCE", mode, 1, MODE_WORD_MAX)},
                                .n_args = 2,
                                .n_required = 1},
    [FLI_CMD_CLUSTER_REPLACE] = {.known = true,
                                 .args = {NODE, NODE_ADDRESS},
                                 .n_args = 2,
                                 .n_required = 1,
                                 OPTIONS(replace_options)},
    [FLI_CMD_CLUSTER_MOVE] = {.known = true,
                              .args = {NODE, NODE_ADDRESS, BYTES("FORCE", mode, 1, MODE_WORD_MAX)},
                              .n_args = 3,
                              .n_required = 2},
    [FLI_CMD_SUBSCRIBE] = {PLAIN, .more = true},
    [FLI_CMD_PSUBSCRIBE] = {PLAIN, .more = true},
    [FLI_CMD_UNSUBSCRIBE] = {PLAIN, .more = true},
    [FLI_CMD_PUNSUBSCRIBE] = {PLAIN, .more = true},
    [FLI_CMD_ACL_CAT] = {PLAIN, .more = true},
    [FLI_CMD_ACL_DELUSER] = {PLAIN, .more = true},
    [FLI_CMD_ACL_GETUSER] = {PLAIN, .more = true},
    [FLI_CMD_ACL_LIST] = {PLAIN},
    [FLI_CMD_ACL_LOAD] = {PLAIN},
    [FLI_CMD_ACL_SAVE] = {PLAIN},
    [FLI_CMD_ACL_SETUSER] = {PLAIN, .more = true},
    [FLI_CMD_ACL_USERS] = {PLAIN},
    [FLI_CMD_ACL_WHOAMI] = {PLAIN},
    [FLI_CMD_CLAIM] = {ARGS(2, LOCK, TOKEN)},
    [FLI_CMD_GET] = {ARGS(1, KEY), OPTIONS(fence_options)},
    [FLI_CMD_SET] = {ARGS(2, KEY, BYTES("value", value, 0, UINT64_MAX)), OPTIONS(fence_options)},
    [FLI_CMD_DEL] = {ARGS(1, KEY), OPTIONS(fence_options)},
    [FLI_CMD_MARK] = {ARGS(1, LOCK)},
};

/* Name and subcommand, for messages. */
static const char *title(struct parse *p)
{
    const struct fli_command *c = p->command;
    snprintf(p->title, sizeof p->title, "%s%s%s", c->name, c->subcommand == NULL ? "" : " ",
             c->subcommand == NULL ? "" : c->subcommand);
    return p->title;
}

/* Ends a message with the command's syntax. */
static int wrong(struct parse *p, const char *what)
{
    char usage[FLI_USAGE_SIZE];
    fli_command_usage(usage, sizeof usage, p->command);
    snprintf(p->errmsg, p->errmsg_size, "%s: write %s", what, usage);
    return FL_EINVAL;
}

static int wrong_length(struct parse *p, const struct arg *arg, size_t len)
{
    snprintf(p->errmsg, p->errmsg_size, "%s of %s must be %llu to %llu bytes long, not %zu",
             arg->name, title(p), (unsigned long long)arg->min, (unsigned long long)arg->max, len);
    return FL_EINVAL;
}

static int wrong_number(struct parse *p, const struct arg *arg, const struct fli_slice *given)
{
    char quoted[FLI_QUOTE_SIZE];
    fli_quote(quoted, sizeof quoted, given);
    if (arg->min == arg->max) {
        snprintf(p->errmsg, p->errmsg_size, "%s of %s must be %llu (%s), not %s", arg->name,
                 title(p), (unsigned long long)arg->min, arg->unit, quoted);
    } else {
        snprintf(p->errmsg, p->errmsg_size,
                 "%s of %s must be a whole number from %llu to %llu (%s), not %s", arg->name,
                 title(p), (unsigned long long)arg->min, (unsigned long long)arg->max, arg->unit,
                 quoted);
    }
    return FL_EINVAL;
}

static int take(struct parse *p, const struct arg *arg, const struct fli_slice *given)
{
    uint8_t *to = (uint8_t *)p->request + arg->offset;
    if (arg->kind == KIND_BYTES) {
        if (given->len < arg->min || given->len > arg->max) {
            return wrong_length(p, arg, given->len);
        }
        memcpy(to, given, sizeof *given);
        return 0;
    }
    uint64_t v;
    if (!fli_parse_u64(given->data, given->len, arg->max, &v) || v < arg->min) {
        return wrong_number(p, arg, given);
    }
    memcpy(to, &v, sizeof v);
    return 0;
}

/* Compares, ignoring case; `word` is upper case. */
static bool is_word(const struct fli_slice *s, const char *word)
{
    size_t i = 0;
    for (; i < s->len && word[i] != '\0'; i++) {
        uint8_t c = s->data[i];
        if (c != (uint8_t)word[i] && (c < 'a' || c > 'z' || c - ('a' - 'A') != word[i])) {
            return false;
        }
    }
    return i == s->len && word[i] == '\0';
}

static const struct option *find_option(const struct spec *spec, const struct fli_slice *given)
{
    for (unsigned i = 0; i < spec->n_options; i++) {
        if (is_word(given, spec->options[i].word)) {
            return &spec->options[i];
        }
    }
    return NULL;
}

static int unknown_option(struct parse *p, const struct fli_slice *given)
{
    char quoted[FLI_QUOTE_SIZE];
    char what[FLI_QUOTE_SIZE + 64];
    fli_quote(quoted, sizeof quoted, given);
    snprintf(what, sizeof what, "%s has no option %s", title(p), quoted);
    return wrong(p, what);
}

static int short_option(struct parse *p, const struct option *o)
{
    char what[96];
    snprintf(what, sizeof what, "%s of %s needs %s", o->word, title(p),
             o->n_values == 1 ? "a value" : "two values");
    return wrong(p, what);
}

static int given_twice(struct parse *p, const struct option *o)
{
    snprintf(p->errmsg, p->errmsg_size, "%s of %s is given twice: give it once", o->word, title(p));
    return FL_EINVAL;
}

/* Adds one more name of ALSO. */
static int add_name(struct parse *p)
{
    struct fli_request *r = p->request;
    if (r->n_also == FLI_ALSO_MAX) {
        snprintf(p->errmsg, p->errmsg_size,
                 "ALSO of %s is given more than %u times: ask for fewer locks", title(p),
                 FLI_ALSO_MAX);
        return FL_EINVAL;
    }
    r->also[r->n_also++] = r->last_also;
    return 0;
}

/* Reads the options in args[0..n). Bit i of *ret_given is set when option i was given. */
static int take_options(struct parse *p, const struct spec *spec, const struct fli_slice *args,
                        unsigned n, unsigned *ret_given)
{
    unsigned given = 0;
    for (unsigned i = 0; i < n;) {
        const struct option *o = find_option(spec, &args[i]);
        if (o == NULL) {
            return unknown_option(p, &args[i]);
        }
        unsigned bit = 1u << (unsigned)(o - spec->options);
        if ((given & bit) != 0 && !o->repeats) {
            return given_twice(p, o);
        }
        if (n - i - 1 < o->n_values) {
            return short_option(p, o);
        }
        for (unsigned v = 0; v < o->n_values; v++) {
            int rc = take(p, &o->values[v], &args[i + 1 + v]);
            if (rc != 0) {
                return rc;
            }
        }
        int rc = o->repeats ? add_name(p) : 0;
        if (rc != 0) {
            return rc;
        }
        given |= bit;
        i += 1 + o->n_values;
    }
    *ret_given = given;
    return 0;
}

static bool same_bytes(const struct fli_slice *a, const struct fli_slice *b)
{
    return a->len == b->len && memcmp(a->data, b->data, a->len) == 0;
}

/* Several locks are only possible in exclusive mode, and each name may occur once. */
static int finish_also(struct parse *p)
{
    const struct fli_request *r = p->request;
    if (r->n_also > 0 && r->shared) {
        return wrong(p, "ALSO and MODE SHARED of ACQUIRE exclude each other (several locks are "
                        "taken alone)");
    }
    if (r->n_also > 0 && r->permits > 0) {
        return wrong(p, "ALSO and PERMITS of ACQUIRE exclude each other (several locks are taken "
                        "alone)");
    }
    for (unsigned i = 0; i < r->n_also; i++) {
        bool twice = same_bytes(&r->also[i], &r->name);
        for (unsigned k = 0; k < i; k++) {
            twice = twice || same_bytes(&r->also[i], &r->also[k]);
        }
        if (twice) {
            char quoted[FLI_QUOTE_SIZE];
            fli_quote(quoted, sizeof quoted, &r->also[i]);
            snprintf(p->errmsg, p->errmsg_size,
                     "ALSO of ACQUIRE names the lock %s a second time: name each lock once",
                     quoted);
            return FL_EINVAL;
        }
    }
    return 0;
}

static int finish_mode(struct parse *p)
{
    struct fli_request *r = p->request;
    r->shared = is_word(&r->mode, "SHARED");
    if (r->mode.len > 0 && !r->shared && !is_word(&r->mode, "EXCLUSIVE")) {
        return wrong(p, "MODE of ACQUIRE is EXCLUSIVE or SHARED");
    }
    if (r->mode.len > 0 && r->permits > 0) {
        return wrong(p, "PERMITS and MODE of ACQUIRE exclude each other (a semaphore has no mode)");
    }
    int rc = finish_also(p);
    r->permits = r->permits == 0 ? 1 : r->permits;
    return rc;
}

static int finish_acquire(struct parse *p, unsigned given)
{
    struct fli_request *r = p->request;
    bool session = (given & 1u << ACQUIRE_SESSION) != 0;
    if (session && (given & 1u << ACQUIRE_TTL) != 0) {
        return wrong(p, "SESSION and TTL of ACQUIRE exclude each other (a session has a TTL of its "
                        "own)");
    }
    if (session && (given & 1u << ACQUIRE_OWNER) != 0) {
        return wrong(p, "SESSION and OWNER of ACQUIRE exclude each other (the session names the "
                        "owner)");
    }
    if (!session && r->ttl_ms == 0) {
        r->ttl_ms = FL_TTL_DEFAULT_MS;
    }
    if (r->attempt > 1 && r->owner.len == 0) {
        return wrong(p, "ATTEMPT of ACQUIRE needs OWNER or SESSION (which sending of whose request "
                        "is it?)");
    }
    r->attempt = r->attempt == 0 ? 1 : r->attempt;
    r->explicit_session = session;
    r->wait = r->wait_ms > 0;
    return finish_mode(p);
}

/* Checks a name that goes into a line of CLIENT LIST. */
static int finish_client_name(struct parse *p)
{
    const struct fli_slice *name = &p->request->label;
    for (size_t i = 0; i < name->len; i++) {
        if (name->data[i] <= ' ' || name->data[i] >= 0x7f) {
            snprintf(p->errmsg, p->errmsg_size,
                     "a client's name cannot contain spaces, newlines or special characters: use "
                     "printable ASCII");
            return FL_EINVAL;
        }
    }
    return 0;
}

static int finish_hello(struct parse *p, unsigned n)
{
    uint64_t version = p->request->number;
    if (n > 0 && version != 2 && version != 3) {
        snprintf(p->errmsg, p->errmsg_size,
                 "unsupported protocol version: write HELLO 2 or HELLO 3");
        return FL_EVERSION;
    }
    return finish_client_name(p);
}

static int finish_page(struct parse *p)
{
    if (p->request->number == 0) {
        p->request->number = FLI_COUNT_DEFAULT;
    }
    return 0;
}

static int finish_locks(struct parse *p)
{
    const struct fli_request *r = p->request;
    if (r->by.len > 0 && !is_word(&r->by, "WAIT")) {
        return wrong(p, "BY of LOCKS is WAIT: the locks that were waited for most");
    }
    if (r->by.len > 0 && (r->pattern.len > 0 || r->cursor.data != NULL)) {
        return wrong(p, "BY of LOCKS goes with COUNT only: there is one page, of all locks");
    }
    return finish_page(p);
}

/* Reads the digits of OF. */
static int finish_replace(struct parse *p, unsigned given)
{
    struct fli_request *r = p->request;
    r->force = (given & 1u << REPLACE_FORCE) != 0;
    for (size_t i = 0; i < r->by.len; i++) {
        static const char digits[] = "0123456789abcdef";
        uint8_t c = r->by.data[i];
        const char *at = c == 0 ? NULL : strchr(digits, c);
        if (at == NULL) {
            return wrong(p, "OF of CLUSTER REPLACE is an incarnation, as CLUSTER MEMBERS shows it: "
                            "16 digits of 0 to 9 and a to f");
        }
        r->incarnation = r->incarnation << 4 | (uint64_t)(at - digits);
    }
    if (r->by.len > 0 && r->incarnation == 0) { /* which would mean: no OF */
        return wrong(p, "OF of CLUSTER REPLACE is an incarnation, as CLUSTER MEMBERS shows it, and "
                        "none is 0");
    }
    return 0;
}

/* Checks the optional last word of CLUSTER ADD, REMOVE and MOVE. */
static int finish_member(struct parse *p)
{
    struct fli_request *r = p->request;
    bool adds = p->command->id == FLI_CMD_CLUSTER_ADD;
    if (r->mode.len > 0 && !is_word(&r->mode, adds ? "LEARNER" : "FORCE")) {
        return wrong(p, adds ? "the last word of CLUSTER ADD is LEARNER or nothing"
                             : "the last word is FORCE or nothing");
    }
    r->learner = adds && r->mode.len > 0;
    r->force = !adds && r->mode.len > 0;
    return 0;
}

/* The checks that the specification cannot express. */
static int finish(struct parse *p, unsigned n, unsigned given)
{
    switch (p->command->id) {
    case FLI_CMD_ACQUIRE:
        return finish_acquire(p, given);
    case FLI_CMD_SESSION_OPEN:
        return p->request->ttl_ms != 0 ? 0 : wrong(p, "SESSION OPEN needs a TTL");
    case FLI_CMD_HELLO:
        return finish_hello(p, n);
    case FLI_CMD_CLIENT_SETNAME:
        return finish_client_name(p);
    case FLI_CMD_CLUSTER_ADD:
    case FLI_CMD_CLUSTER_REMOVE:
    case FLI_CMD_CLUSTER_MOVE:
        return finish_member(p);
    case FLI_CMD_CLUSTER_REPLACE:
        return finish_replace(p, given);
    case FLI_CMD_LOCKS:
        return finish_locks(p);
    case FLI_CMD_SESSION_LIST:
        return finish_page(p);
    case FLI_CMD_GET:
    case FLI_CMD_SET:
    case FLI_CMD_DEL:
        p->request->fenced = given != 0;
        return 0;
    default:
        return 0;
    }
}

int fli_request_parse(const struct fli_command *command, const struct fli_slice *args, unsigned n,
                      struct fli_request *ret, char *errmsg, size_t errmsg_size)
{
    FLI_ASSERT(command->id > FLI_CMD_NONE && command->id <= FLI_CMD_ID_MAX);
    memset(ret, 0, offsetof(struct fli_request, also)); /* n_also says that the list is empty */
    ret->command = command;
    if ((command->flags & FLI_CMD_FRONTDOOR) != 0) {
        return 0; /* src/frontdoor reads the arguments */
    }
    FLI_ASSERT(specs[command->id].known);
    const struct spec *spec = &specs[command->id];
    struct parse p = {command, ret, errmsg, errmsg_size, ""};
    unsigned skip = 0; /* AUTH may leave out its first argument */
    if (command->id == FLI_CMD_AUTH && n == 1) {
        skip = 1;
    }
    if (n + skip < spec->n_required) {
        return wrong(&p, "too few arguments");
    }
    unsigned taken = 0;
    for (; taken < n && taken + skip < spec->n_args; taken++) {
        /* An argument that may be left out is not the first option. */
        if (taken + skip >= spec->n_required && find_option(spec, &args[taken]) != NULL) {
            break;
        }
        int rc = take(&p, &spec->args[taken + skip], &args[taken]);
        if (rc != 0) {
            return rc;
        }
    }
    unsigned given = 0;
    int rc = spec->more ? 0 : take_options(&p, spec, args + taken, n - taken, &given);
    return rc != 0 ? rc : finish(&p, n, given);
}

const char *fli_request_error_word(int rc)
{
    return rc == FL_EVERSION ? "NOPROTO" : "ERR";
}
