/* request.c: see request.h. */
#include "frontdoor/request.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "base/bytes.h"
#include "frontdoor/signals.h"
#include "machine/glob.h"
#include "wire/resp.h"

#define ANSWERS(g, w, t, a)                                                                        \
    ((struct frontdoor_answers){.granted = (g), .own = (w), .other = (t), .absent = (a)})

/* In milliseconds. A longer duration is cut to this, so that nothing overflows. */
#define DURATION_MAX (UINT64_C(1) << 50)

struct parse {
    const struct frontdoor_context *context;
    struct frontdoor_request *r;
    char *errmsg;
};

static int FLI_PRINTF(2, 3) wrong(struct parse *p, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(p->errmsg, FRONTDOOR_ERRMSG_SIZE, fmt, args);
    va_end(args);
    return FL_EINVAL;
}

const char *frontdoor_error_word(int rc)
{
    return rc == FL_ENOTFOUND ? "NOSCRIPT" : "ERR";
}

static bool same(struct fli_slice a, struct fli_slice b)
{
    return fli_bytes_cmp(a.data, a.len, b.data, b.len) == 0;
}

/* ---- keys and values ------------------------------------------------------------------------- */

static int take_keys(struct parse *p, const struct fli_slice *keys, unsigned n)
{
    if (n > MACHINE_NAMES_MAX) {
        return wrong(p, "a request names at most %u keys here, not %u", MACHINE_NAMES_MAX, n);
    }
    for (unsigned i = 0; i < n; i++) {
        if (keys[i].len < 1 || keys[i].len > FL_NAME_MAX) {
            return wrong(p, "a key is the name of a lock: 1 to %u bytes, not %zu", FL_NAME_MAX,
                         keys[i].len);
        }
        for (unsigned k = 0; k < i; k++) {
            if (same(keys[i], keys[k])) {
                return wrong(p, "a key is named twice: name each once");
            }
        }
        p->r->keys[i] = keys[i];
    }
    p->r->n_keys = n;
    return 0;
}

static int take_value(struct parse *p, struct fli_slice given, struct fli_slice *ret)
{
    if (given.len < 1 || given.len > FL_OWNER_MAX) {
        return wrong(p, "a value says whose the lock is: 1 to %u bytes, not %zu", FL_OWNER_MAX,
                     given.len);
    }
    *ret = given;
    return 0;
}

/* ---- durations ------------------------------------------------------------------------------- */

static uint64_t in_range(uint64_t ms)
{
    ms = ms < FL_TTL_MIN_MS ? FL_TTL_MIN_MS : ms;
    return ms > FL_TTL_MAX_MS ? FL_TTL_MAX_MS : ms;
}

static bool is_negative(struct fli_slice s)
{
    uint64_t unused;
    return s.len > 1 && s.data[0] == '-' &&
           fli_parse_u64(s.data + 1, s.len - 1, UINT64_MAX, &unused);
}

/* Reads the length of a lease, and limits it to the range that leases have. */
static int take_duration(struct parse *p, const char *command, struct fli_slice given,
                         uint64_t unit_ms, uint64_t since_ms)
{
    uint64_t v = 0;
    bool number = fli_parse_u64(given.data, given.len, INT64_MAX, &v);
    if (!number && !is_negative(given)) {
        return wrong(p, "value is not an integer or out of range");
    }
    v = v > DURATION_MAX / unit_ms ? DURATION_MAX : v * unit_ms;
    if (v <= since_ms) {
        return wrong(p, "invalid expire time in '%s' command", command);
    }
    p->r->ttl_ms = in_range(v - since_ms);
    return 0;
}

/* ---- SET ------------------------------------------------------------------------------------- */

struct set_options {
    bool nx, xx, get, keep_ttl, has_ifeq;
    struct fli_slice ifeq;
};

static int syntax(struct parse *p)
{
    return wrong(p,
                 "syntax error: write SET key value [NX | XX | IFEQ value] [GET] [PX ms | EX s | "
                 "PXAT ms | EXAT s | KEEPTTL]");
}

enum set_what { SET_NX, SET_XX, SET_GET, SET_KEEP_TTL, SET_IFEQ, SET_FENCE, SET_FOR, SET_UNTIL };

struct set_word {
    uint8_t len; /* compared first: nearly every SET has NX and PX */
    char word[8];
    uint8_t what; /* enum set_what */
    uint16_t unit_ms;
};

static const struct set_word *find_word(struct fli_slice given)
{
    static const struct set_word words[] = {
        {2, "NX", SET_NX, 0},         {2, "PX", SET_FOR, 1},
        {2, "EX", SET_FOR, 1000},     {2, "XX", SET_XX, 0},
        {3, "GET", SET_GET, 0},       {4, "PXAT", SET_UNTIL, 1},
        {4, "EXAT", SET_UNTIL, 1000}, {4, "IFEQ", SET_IFEQ, 0},
        {5, "FENCE", SET_FENCE, 0},   {7, "KEEPTTL", SET_KEEP_TTL, 0},
    };
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        if (given.len == words[i].len && frontdoor_is_word(given, words[i].word)) {
            return &words[i];
        }
    }
    return NULL;
}

static int set_expiry(struct parse *p, const struct set_word *w, struct fli_slice given)
{
    bool absolute = w->what == SET_UNTIL;
    if (absolute && p->context->wall_ms == 0) {
        return wrong(p, "%s cannot be served here: write PX or EX", w->word);
    }
    return take_duration(p, "set", given, w->unit_ms, absolute ? p->context->wall_ms : 0);
}

static int set_option(struct parse *p, const struct fli_slice *args, unsigned n, unsigned *at,
                      struct set_options *o)
{
    const struct set_word *w = find_word(args[*at]);
    bool more = *at + 1 < n; /* there is an argument behind it */
    if (w == NULL) {
        return syntax(p);
    }
    switch (w->what) {
    case SET_NX:
        o->nx = true;
        return 0;
    case SET_XX:
        o->xx = true;
        return 0;
    case SET_GET:
        o->get = true;
        return 0;
    case SET_KEEP_TTL:
        o->keep_ttl = true;
        return 0;
    case SET_FENCE:
        return wrong(p, "SET with FENCE is served by fencelock-store, not by this server");
    case SET_IFEQ:
        if (!more || o->has_ifeq) {
            return syntax(p);
        }
        o->has_ifeq = true;
        *at += 1;
        return take_value(p, args[*at], &o->ifeq);
    default:
        *at += 1;
        return !more || p->r->ttl_ms != 0 ? syntax(p) : set_expiry(p, w, args[*at]);
    }
}

static int set_plain(struct parse *p, const struct set_options *o)
{
    struct frontdoor_request *r = p->r;
    if (o->nx) {
        r->change = MACHINE_KEYS_GRANT;
        r->answers = o->get
                         ? ANSWERS(FRONTDOOR_NIL, FRONTDOOR_SENT, FRONTDOOR_VALUE, FRONTDOOR_NEVER)
                         : ANSWERS(FRONTDOOR_OK, FRONTDOOR_NIL, FRONTDOOR_NIL, FRONTDOOR_NEVER);
        r->fetches = o->get;
        return 0;
    }
    if (o->xx) {
        r->change = MACHINE_KEYS_EXTEND;
        r->answers =
            o->get ? ANSWERS(FRONTDOOR_NEVER, FRONTDOOR_SENT, FRONTDOOR_ERROR_HELD, FRONTDOOR_NIL)
                   : ANSWERS(FRONTDOOR_NEVER, FRONTDOOR_OK, FRONTDOOR_NIL, FRONTDOOR_NIL);
        return 0;
    }
    if (o->keep_ttl) {
        return wrong(p, "KEEPTTL of SET goes with XX or IFEQ here");
    }
    r->change = MACHINE_KEYS_GRANT | MACHINE_KEYS_EXTEND;
    r->answers = o->get
                     ? ANSWERS(FRONTDOOR_NIL, FRONTDOOR_SENT, FRONTDOOR_ERROR_HELD, FRONTDOOR_NEVER)
                     : ANSWERS(FRONTDOOR_OK, FRONTDOOR_OK, FRONTDOOR_ERROR_HELD, FRONTDOOR_NEVER);
    return 0;
}

static int set_ifeq(struct parse *p, const struct set_options *o)
{
    struct frontdoor_request *r = p->r;
    if (o->get) {
        return wrong(p, "GET of SET goes with NX, XX or neither here, not with IFEQ");
    }
    if (same(r->value, o->ifeq)) {
        r->change = MACHINE_KEYS_EXTEND;
        r->answers = ANSWERS(FRONTDOOR_NEVER, FRONTDOOR_OK, FRONTDOOR_NIL, FRONTDOOR_NIL);
        return 0;
    }
    r->change = MACHINE_KEYS_RELEASE;
    r->new_value = r->value;
    r->value = o->ifeq;
    r->answers = ANSWERS(FRONTDOOR_OK, FRONTDOOR_NEVER, FRONTDOOR_NIL, FRONTDOOR_NIL);
    return 0;
}

static int parse_set(struct parse *p, const struct fli_slice *args, unsigned n)
{
    struct set_options o = {.nx = false};
    int rc = take_keys(p, args, 1);
    rc = rc != 0 ? rc : take_value(p, args[1], &p->r->value);
    for (unsigned i = 2; rc == 0 && i < n; i++) {
        rc = set_option(p, args, n, &i, &o);
    }
    if (rc != 0) {
        return rc;
    }
    if (o.nx + o.xx + o.has_ifeq > 1 || (o.keep_ttl && p->r->ttl_ms != 0)) {
        return syntax(p);
    }
    if (p->r->ttl_ms == 0 && (!o.keep_ttl || o.nx)) {
        p->r->ttl_ms = FL_TTL_MAX_MS;
    }
    return o.has_ifeq ? set_ifeq(p, &o) : set_plain(p, &o);
}

/* ---- scripts --------------------------------------------------------------------------------- */

static int unknown_script(struct parse *p, const uint8_t sha1[FLI_SHA1_SIZE])
{
    char text[FLI_SHA1_HEX + 1];
    fli_sha1_text(sha1, text);
    return wrong(p,
                 "script %s is none of those that are served, and none is run here. If it does "
                 "what one of the forms in docs/FRONTDOOR.md does, put the line `%s = FORM` into "
                 "the file of --front-door-aliases",
                 text, text);
}

static int find_script(struct parse *p, enum fli_command_id id, struct fli_slice given,
                       const struct frontdoor_form **ret)
{
    uint8_t sha1[FLI_SHA1_SIZE];
    if (id == FLI_CMD_EVAL) {
        *ret = frontdoor_scripts_load(p->context->scripts, given, sha1);
        return *ret != NULL ? 0 : unknown_script(p, sha1);
    }
    *ret = fli_sha1_parse(given, sha1) ? frontdoor_scripts_find(p->context->scripts, sha1) : NULL;
    if (*ret == NULL) {
        (void)wrong(p, "No matching script. Please use EVAL.");
        return FL_ENOTFOUND;
    }
    return 0;
}

/* Reads how long a release is remembered. No length is an error. */
static int take_keep(struct parse *p, struct fli_slice given)
{
    uint64_t ms = 0;
    if (!fli_parse_u64(given.data, given.len, INT64_MAX, &ms)) {
        return wrong(p, "value is not an integer or out of range");
    }
    p->r->keep_ms = ms < 1 ? 1 : ms > MACHINE_LEAVE_KEEP_MS ? MACHINE_LEAVE_KEEP_MS : ms;
    return 0;
}

/* Reads keys with a value each, behind the length of the lease. */
static int take_each(struct parse *p, const struct frontdoor_form *f, const struct fli_slice *keys,
                     unsigned n_keys, unsigned n_argv)
{
    struct frontdoor_request *r = p->r;
    size_t size = 0;
    if (n_argv < n_keys + 1) {
        return wrong(p, "this script (%s) takes a value for each of its keys", f->name);
    }
    r->change = f->change;
    r->answers = f->answers;
    r->each_keys = keys;
    r->each_values = keys + n_keys + 1;
    r->answers.n_each = (uint8_t)n_keys;
    int rc = take_duration(p, "pexpire", keys[n_keys], 1, 0);
    for (unsigned i = n_keys; rc == 0 && i-- > 0;) {
        rc = take_keys(p, &keys[i], 1);
        rc = rc != 0 ? rc : take_value(p, r->each_values[i], &r->value);
        size += 2 + keys[i].len + r->each_values[i].len;
    }
    return rc == 0 && size > FRONTDOOR_ROOM
               ? wrong(p, "the keys and values of this script take %zu bytes, more than %zu", size,
                       FRONTDOOR_ROOM)
               : rc;
}

/* Reads the arguments of a form. ARGV[1] is argv[0]. */
static int take_form(struct parse *p, const struct frontdoor_form *f, const struct fli_slice *argv,
                     unsigned n)
{
    struct frontdoor_request *r = p->r;
    unsigned most = f->value_at > f->ttl_at ? f->value_at : f->ttl_at;
    most = most > f->new_value_at ? most : f->new_value_at;
    most = most > f->word_at ? most : f->word_at;
    most = most > f->keep_at ? most : f->keep_at;
    most = most > f->empty_at ? most : f->empty_at;
    if (n < most) {
        return wrong(p, "this script (%s) takes %u arguments behind its keys, not %u", f->name,
                     most, n);
    }
    if (f->empty_at > 0 && argv[f->empty_at - 1].len > 0) {
        return wrong(p, "of this script (%s) there are no conditions: the last argument is empty",
                     f->name);
    }
    r->answers = f->answers;
    r->op = f->op;
    r->change = f->change;
    if (f->word_at > 0 && argv[f->word_at - 1].len == strlen(f->word) &&
        memcmp(argv[f->word_at - 1].data, f->word, strlen(f->word)) == 0) {
        r->change = f->change_if;
    }
    int rc = f->value_at > 0 ? take_value(p, argv[f->value_at - 1], &r->value) : 0;
    if (rc == 0 && f->new_value_at > 0) {
        rc = take_value(p, argv[f->new_value_at - 1], &r->new_value);
    }
    if (rc == 0 && f->ttl_at > 0) {
        rc = take_duration(p, "pexpire", argv[f->ttl_at - 1], f->seconds ? 1000 : 1, 0);
    }
    if (rc == 0 && f->keep_at > 0) {
        rc = take_keep(p, argv[f->keep_at - 1]);
    }
    /* Replacing a value by itself means keeping it. */
    if (rc == 0 && f->new_value_at > 0 && same(r->value, r->new_value)) {
        r->change = MACHINE_KEYS_EXTEND | MACHINE_KEYS_GRANT;
        r->new_value = (struct fli_slice){NULL, 0};
    }
    return rc;
}

static int parse_eval(struct parse *p, enum fli_command_id id, const struct fli_slice *args,
                      unsigned n)
{
    const struct frontdoor_form *f = NULL;
    uint64_t keys = 0;
    if (!fli_parse_u64(args[1].data, args[1].len, INT64_MAX, &keys)) {
        return is_negative(args[1]) ? wrong(p, "Number of keys can't be negative")
                                    : wrong(p, "value is not an integer or out of range");
    }
    if (keys > n - 2) {
        return wrong(p, "Number of keys can't be greater than number of args");
    }
    int rc = find_script(p, id, args[0], &f);
    if (rc != 0) {
        return rc;
    }
    FLI_ASSERT(f != NULL);
    if (keys < f->keys_min || keys > f->keys_max) {
        return f->keys_min == f->keys_max
                   ? wrong(p, "this script (%s) takes %u key%s, not %llu", f->name, f->keys_min,
                           fli_s(f->keys_min), (unsigned long long)keys)
                   : wrong(p, "this script (%s) takes %u to %u keys, not %llu", f->name,
                           f->keys_min, f->keys_max, (unsigned long long)keys);
    }
    if (f->each) {
        return take_each(p, f, args + 2, (unsigned)keys, n - 2 - (unsigned)keys);
    }
    if (f->latch_key > 0) {
        const struct fli_slice *latch = &args[1 + f->latch_key];
        fli_sha1_of(latch->data, latch->len, p->r->latch);
        p->r->has_latch = true;
    }
    rc = take_keys(p, args + 2, f->first_key ? 1 : (unsigned)keys);
    return rc != 0 ? rc : take_form(p, f, args + 2 + keys, n - 2 - (unsigned)keys);
}

/* ---- the others ------------------------------------------------------------------------------ */

static int query(struct parse *p, const struct fli_slice *keys, unsigned n,
                 struct frontdoor_answers answers)
{
    p->r->answers = answers;
    return take_keys(p, keys, n);
}

static int release_if(struct parse *p, struct fli_slice key, struct fli_slice value)
{
    p->r->change = MACHINE_KEYS_RELEASE;
    p->r->answers = ANSWERS(FRONTDOOR_NEVER, FRONTDOOR_INT_1, FRONTDOOR_INT_0, FRONTDOOR_INT_0);
    int rc = take_keys(p, &key, 1);
    return rc != 0 ? rc : take_value(p, value, &p->r->value);
}

static int lock_token(struct parse *p, const struct fli_slice *args)
{
    int rc =
        query(p, args, 1, ANSWERS(FRONTDOOR_NEVER, FRONTDOOR_TOKEN, FRONTDOOR_NIL, FRONTDOOR_NIL));
    return rc != 0 ? rc : take_value(p, args[1], &p->r->value);
}

static int holds(struct parse *p, const struct fli_slice *args, struct frontdoor_answers answers)
{
    int rc = query(p, args, 1, answers);
    p->r->op = MACHINE_OP_KEY;
    p->r->change = MACHINE_KEYS_COUNT;
    return rc != 0 ? rc : take_value(p, args[1], &p->r->value);
}

static bool begins_with(struct fli_slice s, const char *prefix)
{
    return s.len >= strlen(prefix) && memcmp(s.data, prefix, strlen(prefix)) == 0;
}

static bool is_latch(enum fli_command_id id, const struct fli_slice *args, unsigned n)
{
    return id == FLI_CMD_KEY_DEL && n == 1 && begins_with(args[0], "redisson_unlock_latch:");
}

static int wait_for_signal(struct parse *p, const struct fli_slice *args, unsigned n)
{
    const char *why = frontdoor_signal_parse(args, n, &p->r->keys[0], &p->r->wait_ms);
    p->r->waits = true;
    return why == NULL ? 0 : wrong(p, "%s", why);
}

static int get(struct parse *p, const struct fli_slice *args, unsigned n)
{
    if (begins_with(args[0], "redisson_lock_token:")) {
        return wrong(p, "RFencedLock.getToken() does not say who asks, so it would give the newest "
                        "token to one who has lost the lock: take it from lockAndGetToken() or "
                        "tryLockAndGetToken(), or ask with LOCKTOKEN key value");
    }
    return query(p, args, n,
                 ANSWERS(FRONTDOOR_NEVER, FRONTDOOR_VALUE, FRONTDOOR_VALUE, FRONTDOOR_NIL));
}

static int unguarded(struct parse *p, const char *name)
{
    return wrong(p,
                 "%s does not say whose the lock is, so it could end or prolong another's. Give it "
                 "back with a script that compares the value, DELEX key IFEQ value or DELIFEQ key "
                 "value. Prolong it with SET key value XX PX ms. An operator writes BREAK key, or "
                 "starts the nodes with --front-door-del yes",
                 name);
}

static int parse_del(struct parse *p, const char *name, const struct fli_slice *keys, unsigned n)
{
    if (!p->context->del) {
        return unguarded(p, name);
    }
    p->r->change = MACHINE_KEYS_RELEASE | MACHINE_KEYS_EACH;
    return query(
        p, keys, n,
        ANSWERS(FRONTDOOR_NEVER, FRONTDOOR_COUNT, FRONTDOOR_ERROR_NOT_KEY, FRONTDOOR_INT_0));
}

/* Like Redis, it ends the key when the time is already over. */
static int parse_pexpire(struct parse *p, const struct fli_slice *args, unsigned n)
{
    uint64_t ms = 0;
    int rc = parse_del(p, "PEXPIRE", args, 1);
    if (rc == 0 && (n > 3 || (n == 3 && !frontdoor_is_word(args[2], "XX")))) {
        return wrong(p, "write PEXPIRE key ms [XX]: every key has a lease, and none is shortened");
    }
    bool over = is_negative(args[1]) ||
                (fli_parse_u64(args[1].data, args[1].len, INT64_MAX, &ms) && ms == 0);
    if (rc == 0 && !over) {
        p->r->change = MACHINE_KEYS_EXTEND | MACHINE_KEYS_EACH;
        rc = take_duration(p, "pexpire", args[1], 1, 0);
    }
    return rc;
}

static int parse(struct parse *p, enum fli_command_id id, const struct fli_slice *args, unsigned n)
{
    switch (id) {
    case FLI_CMD_KEY_SET:
        return parse_set(p, args, n);
    case FLI_CMD_KEY_GET:
        return get(p, args, n);
    case FLI_CMD_HEXISTS:
        return holds(p, args,
                     ANSWERS(FRONTDOOR_NEVER, FRONTDOOR_INT_1, FRONTDOOR_INT_0, FRONTDOOR_INT_0));
    case FLI_CMD_HGET:
        return holds(p, args,
                     ANSWERS(FRONTDOOR_NEVER, FRONTDOOR_COUNT_TEXT, FRONTDOOR_NIL, FRONTDOOR_NIL));
    case FLI_CMD_EXISTS:
        return query(p, args, n,
                     ANSWERS(FRONTDOOR_NEVER, FRONTDOOR_COUNT, FRONTDOOR_COUNT, FRONTDOOR_INT_0));
    case FLI_CMD_TTL:
        return query(p, args, n,
                     ANSWERS(FRONTDOOR_NEVER, FRONTDOOR_TTL, FRONTDOOR_TTL, FRONTDOOR_INT_MINUS_2));
    case FLI_CMD_PTTL:
        return query(
            p, args, n,
            ANSWERS(FRONTDOOR_NEVER, FRONTDOOR_PTTL, FRONTDOOR_PTTL, FRONTDOOR_INT_MINUS_2));
    case FLI_CMD_EVAL:
    case FLI_CMD_EVALSHA:
        return parse_eval(p, id, args, n);
    case FLI_CMD_DELIFEQ:
        return release_if(p, args[0], args[1]);
    case FLI_CMD_DELEX:
        return n == 3 && frontdoor_is_word(args[1], "IFEQ") ? release_if(p, args[0], args[2])
                                                            : unguarded(p, "DELEX without IFEQ");
    case FLI_CMD_LOCKTOKEN:
        return lock_token(p, args);
    case FLI_CMD_KEY_DEL:
        return parse_del(p, "DEL", args, n);
    case FLI_CMD_UNLINK:
        return parse_del(p, "UNLINK", args, n);
    case FLI_CMD_PEXPIRE:
        return parse_pexpire(p, args, n);
    case FLI_CMD_BLPOP:
        return wait_for_signal(p, args, n);
    default:
        return wrong(p, "not a command about keys");
    }
}

/* With --front-door-shared a client sends its request to every node. The second node finds what was
 * done through the first, and answers as if it had done it. */
static void treat_as_repeated(struct frontdoor_request *r)
{
    bool counts = (r->change & MACHINE_KEYS_COUNT) != 0;
    bool releases = (r->change & MACHINE_KEYS_RELEASE) != 0;
    if (releases && !counts && r->value.len > 0 && r->new_value.len == 0) {
        r->keep_ms = MACHINE_RELEASED_MS;
    } else if (r->change == MACHINE_KEYS_GRANT) {
        r->change |= MACHINE_KEYS_EXTEND;
        r->answers.own = r->answers.granted;
    }
}

static bool serves(const struct frontdoor_context *c, const struct frontdoor_request *q)
{
    uint64_t steps = 0;
    struct fli_slice pattern = {(const uint8_t *)c->pattern,
                                c->pattern == NULL ? 0 : strlen(c->pattern)};
    unsigned n = q->answers.n_each > 0 ? q->answers.n_each : q->n_keys;
    for (unsigned i = 0; c->pattern != NULL && i < n; i++) {
        struct fli_slice key = q->answers.n_each > 0 ? q->each_keys[i] : q->keys[i];
        if (!machine_glob_match(pattern, key, &steps)) {
            return false;
        }
    }
    return true;
}

int frontdoor_request_parse(const struct frontdoor_context *c, enum fli_command_id id,
                            const struct fli_slice *args, unsigned n, struct frontdoor_request *ret,
                            char errmsg[FRONTDOOR_ERRMSG_SIZE])
{
    struct parse p = {c, ret, errmsg};
    memset(ret, 0, offsetof(struct frontdoor_request, keys));
    int rc = parse(&p, id, args, n);
    if (rc == 0 && !serves(c, ret)) {
        return wrong(&p,
                     "this node does not serve that key as Redis does: --front-door says which");
    }
    if (rc == 0 && ret->op == 0) {
        ret->op = ret->change != 0 ? MACHINE_OP_KEYS : MACHINE_OP_KEY;
    }
    if (rc == 0 && c->shared) {
        treat_as_repeated(ret);
    }
    return rc;
}

/* ---- SCRIPT ---------------------------------------------------------------------------------- */

bool frontdoor_is_local(enum fli_command_id id, const struct fli_slice *args, unsigned n)
{
    return id == FLI_CMD_SCRIPT_LOAD || id == FLI_CMD_SCRIPT_EXISTS || id == FLI_CMD_SCRIPT_FLUSH ||
           is_latch(id, args, n);
}

static int load(struct frontdoor_scripts *scripts, struct fli_slice text, struct fli_buf *out)
{
    uint8_t sha1[FLI_SHA1_SIZE];
    char hex[FLI_SHA1_HEX + 1];
    char errmsg[FRONTDOOR_ERRMSG_SIZE];
    struct parse p = {.errmsg = errmsg};
    if (frontdoor_scripts_load(scripts, text, sha1) == NULL) {
        (void)unknown_script(&p, sha1);
        return fli_resp_error(out, "ERR", "%s", errmsg);
    }
    fli_sha1_text(sha1, hex);
    return fli_resp_text(out, hex);
}

int frontdoor_local(struct frontdoor_scripts *scripts, enum fli_command_id id,
                    const struct fli_slice *args, unsigned n, struct fli_buf *out)
{
    uint8_t sha1[FLI_SHA1_SIZE];
    if (id == FLI_CMD_KEY_DEL) {
        return fli_resp_int(out, 0);
    }
    if (id == FLI_CMD_SCRIPT_LOAD) {
        return load(scripts, args[0], out);
    }
    if (id == FLI_CMD_SCRIPT_FLUSH) {
        frontdoor_scripts_flush(scripts);
        return fli_resp_simple(out, "OK");
    }
    int rc = fli_resp_array(out, n);
    for (unsigned i = 0; rc == 0 && i < n; i++) {
        bool known = fli_sha1_parse(args[i], sha1) && frontdoor_scripts_find(scripts, sha1) != NULL;
        rc = fli_resp_int(out, known);
    }
    return rc;
}
