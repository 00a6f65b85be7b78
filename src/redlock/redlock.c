/* redlock.c: opens a client of Redis servers; see redlock_private.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "client/handle.h"
#include "redlock/quorum.h"
#include "redlock/redlock_private.h"

struct fli_redlock *fli_redlock_of(fl_client *c)
{
    return FLI_CONTAINER_OF(c->engine.backend, struct fli_redlock, backend);
}

/* ---- servers --------------------------------------------------------------------------------- */

/* A server that is listed twice must not count twice. Of the entries with one run_id the first one
 * counts, as far as the ids are known by now. */
static void find_duplicates(struct fli_redlock *r)
{
    for (uint32_t i = 0; i < r->n; i++) {
        const char *id = r->servers[i].facts.run_id;
        r->servers[i].is_duplicate = false;
        for (uint32_t j = 0; j < i && id[0] != '\0'; j++) {
            if (strcmp(id, r->servers[j].facts.run_id) == 0) {
                r->servers[i].is_duplicate = true;
            }
        }
    }
}

void fli_server_changed(struct fli_server *s)
{
    find_duplicates(s->r);
    fli_ops_server_changed(s);
    fli_checks_server_changed(s);
}

size_t fli_make_key(const struct fli_redlock *r, struct fl_bytes name, char *key)
{
    size_t before = strlen(r->prefix);
    size_t after = strlen(r->suffix);
    FLI_ASSERT(before + name.len + after <= FLI_REDIS_KEY_MAX);
    memcpy(key, r->prefix, before);
    memcpy(key + before, name.data, name.len);
    memcpy(key + before + name.len, r->suffix, after);
    return before + name.len + after;
}

/* ---- options --------------------------------------------------------------------------------- */

/* Each of these says why, for fl_client_error(). */
static int wrong(const char *text)
{
    return fli_fail(NULL, FL_EINVAL, "%s", text);
}

/* Splits the key format at its %s. */
static int take_format(struct fli_redlock *r, const char *format)
{
    static const char rule[] = "a key format has one %s, and %% for a percent sign";
    char *to = r->prefix;
    size_t len = 0;
    bool seen = false;
    if (strlen(format) > FL_REDLOCK_KEY_FORMAT_MAX) {
        return wrong("the key format is too long");
    }
    for (const char *p = format; *p != '\0'; p++) {
        if (*p == '%' && p[1] == 's' && !seen) {
            seen = true;
            to = r->suffix;
            len = 0;
            p++;
            continue;
        }
        if (*p == '%' && *++p != '%') {
            return wrong(rule);
        }
        to[len++] = *p;
    }
    return seen ? 0 : wrong(rule);
}

static int take_times(struct fli_redlock *r, const struct fl_redlock_options *o)
{
    const struct {
        uint64_t given, standard;
        uint64_t *to;
    } rows[] = {
        {o->max_ttl_ms, FL_REDLOCK_MAX_TTL_DEFAULT_MS, &r->max_ttl_ms},
        {o->budget_ms, FL_REDLOCK_BUDGET_DEFAULT_MS, &r->budget_ms},
        {o->connect_ms, FL_REDLOCK_CONNECT_DEFAULT_MS, &r->connect_ms},
        {o->hung_ms, FL_REDLOCK_HUNG_DEFAULT_MS, &r->hung_ms},
        {o->retry_ms, FL_REDLOCK_RETRY_DEFAULT_MS, &r->retry_ms},
        {o->retry_cap_ms, FL_REDLOCK_RETRY_CAP_DEFAULT_MS, &r->retry_cap_ms},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        if (rows[i].given > FL_REDLOCK_TIME_MAX_MS) {
            return wrong("a time is more than a day");
        }
        *rows[i].to = rows[i].given == 0 ? rows[i].standard : rows[i].given;
    }
    return r->max_ttl_ms < FL_TTL_MIN_MS ? wrong("max_ttl_ms is below the smallest TTL") : 0;
}

static int take_text(const char *text, char **ret)
{
    if (text != NULL && strlen(text) > FL_PASSWORD_MAX) {
        return wrong("a user or password is too long");
    }
    *ret = text == NULL ? NULL : strdup(text);
    return text != NULL && *ret == NULL ? FL_ENOMEM : 0;
}

static int take_login(struct fli_redlock *r, const struct fl_redlock_options *o)
{
    if (o->user != NULL && o->password == NULL) {
        return wrong("a user needs a password");
    }
    r->database = o->database;
    int rc = take_text(o->user, &r->user);
    return rc == 0 ? take_text(o->password, &r->password) : rc;
}

/* ---- opening --------------------------------------------------------------------------------- */

static void free_text(char *text)
{
    if (text != NULL) {
        explicit_bzero(text, strlen(text));
        free(text);
    }
}

static void redlock_free(struct fli_redlock *r)
{
    fli_buf_fini(&r->text);
    free_text(r->user);
    free_text(r->password);
    free(r);
}

static void fini(struct fli_backend *b)
{
    redlock_free(FLI_CONTAINER_OF(b, struct fli_redlock, backend));
}

/* Somebody has to hear of the token while a call here waits for it. A child of fork() has no such
 * thread yet. */
static int keep_tokens(fl_client *tokens)
{
    int rc = fli_client_enter(tokens);
    if (rc == 0) {
        rc = fli_client_keep(tokens);
        fli_client_leave(tokens);
    }
    return rc;
}

static int issue_by_client(struct fli_redlock *r, struct fl_bytes name, uint64_t timeout_ms,
                           fl_done done, void *arg, fl_call *ret_call)
{
    const struct fl_ask ask = {.what = FL_ASK_TOKEN, .name = name, .timeout_ms = timeout_ms};
    int rc = keep_tokens(r->tokens);
    return rc == 0 ? fl_ask_start(r->tokens, &ask, done, arg, ret_call) : rc;
}

static int take_tokens(struct fli_redlock *r, fl_client *tokens)
{
    if (tokens == NULL) {
        return 0;
    }
    if (tokens->engine.backend != NULL) {
        return wrong("Redis servers issue no tokens: open their client with fl_open()");
    }
    r->issue = issue_by_client;
    r->tokens = tokens;
    return keep_tokens(tokens);
}

static int make(struct fli_redlock *r, const struct fl_redlock_options *o)
{
    r->restarts_are_safe = o->restarts_are_safe;
    int rc = take_times(r, o);
    rc = rc == 0 ? take_format(r, o->key_format != NULL ? o->key_format : "%s") : rc;
    rc = rc == 0 ? take_login(r, o) : rc;
    return rc == 0 ? take_tokens(r, o->tokens) : rc;
}

static int make_client(struct fli_redlock *r, const struct fl_redlock_options *o, fl_client **ret)
{
    const struct fl_client_options mine = {.timeout_ms = r->budget_ms,
                                           .tls = o->tls,
                                           .own_loop = o->own_loop,
                                           .on_log = o->on_log,
                                           .log_arg = o->log_arg};
    int rc = fli_client_make(o->servers, &mine, FLI_OF_REDIS, ret);
    if (rc != 0) {
        return rc;
    }
    struct fli_engine *e = &(*ret)->engine;
    r->n = e->n_nodes;
    r->engine = e;
    rc = r->n > FL_REDLOCK_SERVERS_MAX
             ? fli_fail(NULL, FL_EINVAL, "more than %u servers are given", FL_REDLOCK_SERVERS_MAX)
             : 0;
    for (uint32_t i = 0; i < r->n && rc == 0; i++) {
        rc = fli_server_init(&r->servers[i], r, i) == 0
                 ? 0
                 : fli_fail(NULL, FL_ENOMEM, "%s", fl_strerror(FL_ENOMEM));
    }
    if (rc != 0) {
        fl_close(*ret);
        *ret = NULL;
        return rc;
    }
    e->backend = &r->backend;
    return 0;
}

int fl_redlock_open(const struct fl_redlock_options *options, fl_client **ret)
{
    struct fli_redlock *r = calloc(1, sizeof *r);
    *ret = NULL;
    (void)fli_fail(NULL, FL_ENOMEM, "%s", fl_strerror(FL_ENOMEM)); /* until another one is known */
    if (r == NULL) {
        return FL_ENOMEM;
    }
    r->backend = fli_op_backend;
    r->backend.fini = fini;
    fli_list_init(&r->ops);
    fli_list_init(&r->checks);
    fli_list_init(&r->tickets);
    fli_buf_init(&r->text, FLI_OP_TEXT_MAX);
    int rc = make(r, options);
    rc = rc == 0 ? make_client(r, options, ret) : rc;
    if (rc != 0) {
        redlock_free(r);
    }
    return rc;
}

/* ---- locks by their values ------------------------------------------------------------------- */

int fli_redlock_enter(fl_client *c)
{
    if (c != NULL && c->engine.backend == NULL) {
        return fli_fail(c, FL_EINVAL, "that is no client of Redis servers");
    }
    return fli_client_enter(c);
}

struct fl_bytes fl_redlock_value(const fl_lock *lock)
{
    return lock->request.owner;
}

/* 0, and *ret_lease_ms. */
static int run(fl_client *c, enum fli_call_command command, struct fl_bytes name, const char *value,
               uint64_t ttl_ms, uint64_t *ret_lease_ms)
{
    struct fli_call_plan q = {
        .request = {.command = command, .name = name, .owner = fl_str(value), .ttl_ms = ttl_ms}};
    struct fli_outcome o;
    int rc = fli_redlock_enter(c);
    if (rc != 0) {
        return rc;
    }
    fli_client_leave(c);
    rc = fli_run(c, &q, &o);
    *ret_lease_ms = o.lease_until_ms;
    return rc;
}

int fl_redlock_extend(fl_client *c, struct fl_bytes name, const char *value, uint64_t ttl_ms,
                      uint64_t *deadline_ms)
{
    uint64_t fresh_ms = 0;
    uint64_t t0_ms = fli_clock_ms();
    int rc = run(c, FLI_CALL_RENEW, name, value, ttl_ms, &fresh_ms);
    if (rc == FL_EUNCERTAIN && fresh_ms == 0) { /* given up, perhaps after it was sent */
        fresh_ms = fli_deadline_ms(t0_ms, ttl_ms);
    }
    if (rc == 0 || (fresh_ms != 0 && fresh_ms < *deadline_ms)) {
        *deadline_ms = fresh_ms;
    }
    if (rc == FL_ENOTHELD) {
        *deadline_ms = 0;
    }
    return rc;
}

int fl_redlock_release(fl_client *c, struct fl_bytes name, const char *value)
{
    uint64_t unused;
    return run(c, FLI_CALL_RELEASE, name, value, 0, &unused);
}
