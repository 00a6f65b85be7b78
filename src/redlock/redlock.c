/* redlock.c: the handle; see redlock_private.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/process.h"
#include "redlock/keep_thread.h"
#include "redlock/quorum.h"
#include "redlock/redlock_private.h"

/* ---- time ------------------------------------------------------------------------------------ */

uint64_t fl_redlock_now_ms(void)
{
    return fli_clock_ms();
}

uint64_t fl_redlock_remaining_ms(const struct fl_redlock_lock *lock)
{
    bool ours = !fli_grant_is_inherited(lock->process);
    return ours ? fli_left_ms(lock->deadline_ms, fli_clock_ms()) : 0;
}

void fli_redlock_not_due(struct fl_redlock *r, struct fli_due *d)
{
    fli_due_remove(&r->due, d);
}

void fli_redlock_due(struct fl_redlock *r, struct fli_due *d, uint64_t due_ms)
{
    if (d->node.pos == FLI_HEAP_NONE && fli_due_add(&r->due, d, d->fire) != 0) {
        fli_fatal("out of memory for a timer");
    }
    fli_due_set(&r->due, d, due_ms);
}

static uint64_t next_due_ms(const struct fl_redlock *r)
{
    uint64_t due_ms = fli_dues_next(&r->due);
    for (uint32_t i = 0; i < r->n; i++) {
        uint64_t ms = fli_server_due_ms(&r->servers[i]);
        due_ms = ms < due_ms ? ms : due_ms;
    }
    return due_ms;
}

static void run_due(struct fl_redlock *r)
{
    /* An answer that arrived while this process was stopped is not late, so it is read first. */
    for (uint32_t i = 0; i < r->n; i++) {
        fli_server_read(&r->servers[i]);
    }
    uint64_t now_ms = fli_clock_ms();
    for (uint32_t i = 0; i < r->n; i++) {
        fli_server_tick(&r->servers[i], now_ms);
    }
    struct fli_due *d;
    while ((d = fli_dues_first(&r->due, now_ms)) != NULL) {
        fli_redlock_not_due(r, d);
        d->fire(d, now_ms);
    }
}

static void leave(struct fl_redlock *r);

static void own_first(struct fli_alarm *alarm)
{
    (void)!fli_own(FLI_CONTAINER_OF(alarm, struct fl_redlock, alarm)); /* else it does not ring */
}

static void on_alarm(struct fli_alarm *alarm)
{
    struct fl_redlock *r = FLI_CONTAINER_OF(alarm, struct fl_redlock, alarm);
    r->armed_ms = UINT64_MAX;
    fli_enter(r);
    if (!r->closing) {
        run_due(r);
    }
    leave(r);
}

/* An alarm that rings too early does no harm, so it is only ever set to an earlier time. */
static void arm(struct fl_redlock *r)
{
    uint64_t due_ms = fli_list_empty(&r->notes) ? next_due_ms(r) : 0;
    if (due_ms < r->armed_ms) {
        r->armed_ms = due_ms;
        fli_alarm_set(&r->alarm, due_ms);
    }
}

/* ---- entering and leaving -------------------------------------------------------------------- */

static void finish_closing(struct fl_redlock *r);

/* What the parent had begun has ended here, as when the handle is closed, but no server hears of
 * it: the requests, also those that release, go with the connections. Needs no descriptor that it
 * has not closed before: a loop has as many as it had. */
static void leave_to_parent(struct fl_redlock *r)
{
    r->depth++;
    if (r->is_private && uv_loop_fork(&r->own_loop) != 0) {
        fli_fatal("this process was forked, and another thread took the descriptors of its loop");
    }
    fli_alarm_leave(&r->alarm);
    r->armed_ms = 0; /* so that nothing sets the parent's */
    fli_ops_close(r);
    fli_checks_close(r);
    fli_keepers_close(r);
    for (uint32_t i = 0; i < r->n; i++) {
        fli_server_own(&r->servers[i]);
        fli_deferred_drop(&r->servers[i]);
    }
    r->depth--;
}

int fli_own(struct fl_redlock *r)
{
    if (r->depth > 0 || r->closing) {
        return 0;
    }
    if (r->process != fli_process()) {
        leave_to_parent(r);
        r->process = fli_process();
    }
    if (fli_alarm_is_own(&r->alarm)) {
        return 0;
    }
    int rc = fli_alarm_own(&r->alarm);
    if (rc == 0) {
        r->armed_ms = UINT64_MAX;
        arm(r);
    }
    return rc;
}

void fli_enter(struct fl_redlock *r)
{
    (void)!fli_own(r); /* without an alarm it can still end what there is */
    r->depth++;
}

void fli_note_add(struct fl_redlock *r, struct fli_note *n)
{
    fli_list_push(&r->notes, &n->node);
}

static void deliver(struct fl_redlock *r)
{
    struct fli_list *node;
    while ((node = fli_list_pop(&r->notes)) != NULL) {
        struct fli_note *n = FLI_CONTAINER_OF(node, struct fli_note, node);
        n->deliver(n);
    }
}

static void flush(struct fl_redlock *r)
{
    for (uint32_t i = 0; i < r->n; i++) {
        if (r->servers[i].conn.out.len > 0) {
            fli_server_flush(&r->servers[i]);
        }
    }
}

static void leave(struct fl_redlock *r)
{
    FLI_ASSERT(r->depth > 0);
    if (r->depth > 1) {
        r->depth--;
        return;
    }
    flush(r);
    while (!fli_list_empty(&r->notes)) {
        deliver(r);
        flush(r); /* may lose a connection, which ends other calls */
    }
    r->depth--;
    if (!r->closing) {
        arm(r);
    } else if (r->owner.links.handles == 0) {
        finish_closing(r);
    }
}

/* Callbacks for what a public call has ended come in the next turn of the loop, never from inside
 * the call. */
void fli_leave_call(struct fl_redlock *r)
{
    FLI_ASSERT(r->depth > 0);
    if (r->depth > 1) {
        r->depth--;
        return;
    }
    flush(r);
    r->depth--;
    arm(r);
}

static void owner_enter(struct fli_link_owner *o)
{
    fli_enter(FLI_CONTAINER_OF(o, struct fl_redlock, owner.links));
}

static void owner_leave(struct fli_link_owner *o)
{
    leave(FLI_CONTAINER_OF(o, struct fl_redlock, owner.links));
}

/* ---- servers --------------------------------------------------------------------------------- */

/* A server that is listed twice must not count twice. Of the entries with one run_id the first one
 * counts, as far as the ids are known by now. */
static void find_duplicates(struct fl_redlock *r)
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

static void owner_ready(struct fli_server_owner *o, struct fli_server *s)
{
    struct fl_redlock *r = FLI_CONTAINER_OF(o, struct fl_redlock, owner);
    find_duplicates(r);
    fli_ops_ready(r, s);
    fli_checks_ready(r, s);
}

static void owner_down(struct fli_server_owner *o, struct fli_server *s)
{
    struct fl_redlock *r = FLI_CONTAINER_OF(o, struct fl_redlock, owner);
    fli_ops_down(r, s);
    fli_checks_down(r, s);
}

static uint32_t ready_count(const struct fl_redlock *r)
{
    uint32_t ready = 0;
    for (uint32_t i = 0; i < r->n; i++) {
        ready += r->servers[i].state == FLI_SERVER_READY;
    }
    return ready;
}

bool fli_may_begin(const struct fl_redlock *r)
{
    bool settled = true;
    for (uint32_t i = 0; i < r->n; i++) {
        settled = settled && r->servers[i].settled;
    }
    return settled || ready_count(r) >= fli_quorum(r->n);
}

size_t fl_redlock_servers(const fl_redlock *r)
{
    return r->n;
}

const char *fl_redlock_address(const fl_redlock *r, size_t index)
{
    return index < r->n ? r->servers[index].address : "";
}

/* ---- names ----------------------------------------------------------------------------------- */

int fli_check_name(struct fl_bytes name)
{
    return name.data != NULL && name.len >= 1 && name.len <= FL_NAME_MAX ? 0 : FL_EINVAL;
}

size_t fli_make_key(const struct fl_redlock *r, struct fl_bytes name, char *key)
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

struct complaint {
    char *text;
    size_t size;
};

static int complain(const struct complaint *c, const char *text)
{
    (void)snprintf(c->text, c->size, "%s", text);
    return FL_EINVAL;
}

/* Splits the key format at its %s. */
static int take_format(struct fl_redlock *r, const char *format, const struct complaint *c)
{
    static const char rule[] = "a key format has one %s, and %% for a percent sign";
    char *to = r->prefix;
    size_t len = 0;
    bool seen = false;
    if (strlen(format) > FL_REDLOCK_KEY_FORMAT_MAX) {
        return complain(c, "the key format is too long");
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
            return complain(c, rule);
        }
        to[len++] = *p;
    }
    return seen ? 0 : complain(c, rule);
}

static int take_time(uint64_t given, uint64_t default_ms, uint64_t *ret, const struct complaint *c)
{
    if (given > FL_REDLOCK_TIME_MAX_MS) {
        return complain(c, "a time is more than a day");
    }
    *ret = given == 0 ? default_ms : given;
    return 0;
}

static int take_times(struct fl_redlock *r, const struct fl_redlock_options *o,
                      const struct complaint *c)
{
    const struct {
        uint64_t given, standard;
        uint64_t *to;
    } rows[] = {
        {o->max_ttl_ms, FL_REDLOCK_MAX_TTL_DEFAULT_MS, &r->owner.max_ttl_ms},
        {o->budget_ms, FL_REDLOCK_BUDGET_DEFAULT_MS, &r->budget_ms},
        {o->connect_ms, FL_REDLOCK_CONNECT_DEFAULT_MS, &r->owner.connect_ms},
        {o->hung_ms, FL_REDLOCK_HUNG_DEFAULT_MS, &r->owner.hung_ms},
        {o->retry_ms, FL_REDLOCK_RETRY_DEFAULT_MS, &r->retry_ms},
        {o->retry_cap_ms, FL_REDLOCK_RETRY_CAP_DEFAULT_MS, &r->retry_cap_ms},
    };
    int rc = 0;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0] && rc == 0; i++) {
        rc = take_time(rows[i].given, rows[i].standard, rows[i].to, c);
    }
    if (rc == 0 && r->owner.max_ttl_ms < FL_TTL_MIN_MS) {
        rc = complain(c, "max_ttl_ms is below the smallest TTL");
    }
    return rc;
}

static int take_text(const char *text, char **ret)
{
    *ret = NULL;
    if (text == NULL) {
        return 0;
    }
    if (strlen(text) > FL_REDLOCK_CREDENTIAL_MAX) {
        return FL_EINVAL;
    }
    *ret = strdup(text);
    return *ret == NULL ? FL_ENOMEM : 0;
}

static int take_login(struct fli_server *s, const struct fl_redlock_login *login,
                      const struct complaint *c)
{
    if (login->username != NULL && login->password == NULL) {
        return complain(c, "a username needs a password");
    }
    s->database = login->database;
    int rc = take_text(login->username, &s->username);
    if (rc == 0) {
        rc = take_text(login->password, &s->password);
    }
    return rc == FL_EINVAL ? complain(c, "a username or password is too long") : rc;
}

static int take_servers(struct fl_redlock *r, const struct fl_redlock_options *o,
                        const struct complaint *c)
{
    const char *p = o->servers;
    if (p == NULL) {
        return complain(c, "no servers are given");
    }
    for (;;) {
        size_t len = strcspn(p, ",");
        if (r->n == FL_REDLOCK_SERVERS_MAX) {
            (void)snprintf(c->text, c->size, "more than %u servers are given",
                           FL_REDLOCK_SERVERS_MAX);
            return FL_EINVAL;
        }
        struct fli_server *s = &r->servers[r->n];
        int rc = fli_server_locate(s, p, len, c->text, c->size);
        if (rc == 0) {
            rc = take_login(s, o->each != NULL ? &o->each[r->n] : &o->login, c);
        }
        for (uint32_t i = 0; i < r->n && rc == 0; i++) {
            if (strcmp(r->servers[i].address, s->address) == 0) {
                (void)snprintf(c->text, c->size, "%s is given twice", s->address);
                rc = FL_EINVAL;
            }
        }
        fli_server_init(s, &r->owner, r->n++);
        if (rc != 0) {
            return rc;
        }
        p += len;
        if (*p == '\0') {
            return 0;
        }
        p++;
    }
}

static int take_tls(struct fl_redlock *r, const struct fl_tls_options *o, const struct complaint *c)
{
    char errmsg[FLI_TLS_ERRMSG_SIZE];
    int rc = fli_link_security_init(&r->owner.tls, o, errmsg, sizeof errmsg);
    return rc == FL_EINVAL ? complain(c, errmsg) : rc;
}

static int take_options(struct fl_redlock *r, const struct fl_redlock_options *o,
                        const struct complaint *c)
{
    r->owner.restarts_are_safe = o->restarts_are_safe;
    int rc = take_times(r, o, c);
    rc = rc == 0 ? take_tls(r, o->tls, c) : rc;
    if (rc == 0) {
        rc = take_format(r, o->key_format != NULL ? o->key_format : "%s", c);
    }
    return rc == 0 ? take_servers(r, o, c) : rc;
}

/* ---- creating and closing -------------------------------------------------------------------- */

static void init(struct fl_redlock *r)
{
    fli_list_init(&r->ops);
    fli_list_init(&r->checks);
    fli_list_init(&r->keepers);
    fli_list_init(&r->notes);
    fli_dues_init(&r->due);
    fli_buf_init(&r->text.bytes, FLI_OP_TEXT_MAX);
    r->process = fli_process();
    r->stop_fd = -1;
    r->armed_ms = UINT64_MAX;
    r->owner.ready = owner_ready;
    r->owner.down = owner_down;
    r->owner.links.enter = owner_enter;
    r->owner.links.leave = owner_leave;
}

static void free_servers(struct fl_redlock *r)
{
    for (uint32_t i = 0; i < r->n; i++) {
        fli_server_close(&r->servers[i]);
    }
}

static int start(struct fl_redlock *r, uv_loop_t *loop)
{
    r->owner.links.loop = loop;
    if (loop == NULL) {
        r->is_private = true;
        r->owner.links.loop = &r->own_loop;
        if (uv_loop_init(&r->own_loop) != 0) {
            return FL_ESYSTEM;
        }
    }
    if (fli_alarm_init(&r->alarm, r->owner.links.loop, own_first, on_alarm) != 0) {
        if (r->is_private) {
            (void)uv_loop_close(&r->own_loop);
        }
        return FL_ESYSTEM;
    }
    r->owner.links.handles = 1;
    return 0;
}

int fl_redlock_create(struct uv_loop_s *loop, const struct fl_redlock_options *options,
                      fl_redlock **ret, char *errmsg, size_t errmsg_size)
{
    char spare[256];
    const struct complaint c = {errmsg != NULL ? errmsg : spare,
                                errmsg != NULL ? errmsg_size : sizeof spare};
    struct fl_redlock *r = calloc(1, sizeof *r);
    if (r == NULL) {
        return FL_ENOMEM;
    }
    init(r);
    int rc = take_options(r, options, &c);
    if (rc == 0 && loop == NULL) {
        r->options = fli_options_copy(options, r->n);
        rc = r->options == NULL ? FL_ENOMEM : 0;
    }
    if (rc == 0) {
        rc = start(r, loop);
    }
    if (rc != 0) {
        fli_options_free(r->options, r->n);
        free_servers(r);
        fli_link_security_fini(&r->owner.tls);
        free(r);
        return rc;
    }
    fli_enter(r);
    run_due(r);
    fli_leave_call(r);
    *ret = r;
    return 0;
}

static void on_alarm_closed(struct fli_alarm *alarm)
{
    struct fl_redlock *r = FLI_CONTAINER_OF(alarm, struct fl_redlock, alarm);
    fli_enter(r);
    r->owner.links.handles--;
    leave(r);
}

static void finish_closing(struct fl_redlock *r)
{
    fli_ops_forget(r);
    FLI_ASSERT(fli_list_empty(&r->checks) && fli_list_empty(&r->notes));
    fli_dues_fini(&r->due);
    fli_buf_fini(&r->text.bytes);
    fli_link_security_fini(&r->owner.tls);
    fli_options_free(r->options, r->n);
    void (*closed)(void *ctx) = r->closed;
    void *ctx = r->closed_ctx;
    bool is_private = r->is_private;
    if (!is_private) {
        free(r); /* the private loop has to end first */
    } else {
        r->closing = false;
        uv_stop(&r->own_loop);
    }
    if (closed != NULL) {
        closed(ctx);
    }
}

static bool has_deferred_for_opening(const struct fl_redlock *r)
{
    bool has = false;
    for (uint32_t i = 0; i < r->n; i++) {
        has |= r->servers[i].deferred_len > 0 && r->servers[i].state == FLI_SERVER_OPENING;
    }
    return has;
}

/* Ends the turn of the loop that calls it. */
struct stop {
    struct fli_due due;
    uv_loop_t *loop;
};

static void stop_due(struct fli_due *due, uint64_t now_ms)
{
    struct stop *s = FLI_CONTAINER_OF(due, struct stop, due);
    uv_stop(s->loop);
}

/* A release ends with the quorum. If the program ends then (`fencelock redlock release`), the
 * servers that are still being connected to would keep the lock: they get one budget more. */
static void send_deferred(struct fl_redlock *r)
{
    uint64_t until_ms = fli_clock_ms() + r->budget_ms;
    struct stop stop = {.due.fire = stop_due, .loop = &r->own_loop};
    fli_heap_node_init(&stop.due.node);
    fli_enter(r);
    fli_redlock_due(r, &stop.due, until_ms);
    fli_leave_call(r);
    while (has_deferred_for_opening(r) && fli_clock_ms() < until_ms) {
        (void)uv_run(&r->own_loop, UV_RUN_ONCE);
    }
    fli_redlock_not_due(r, &stop.due);
}

void fl_redlock_close(fl_redlock *r, void (*closed)(void *ctx), void *ctx)
{
    if (r == NULL || r->closing) {
        return;
    }
    fli_keep_thread_end(r->keep_thread);
    if (r->process == fli_process() && r->is_private && has_deferred_for_opening(r)) {
        send_deferred(r);
    }
    fli_enter(r);
    r->closed = closed;
    r->closed_ctx = ctx;
    fli_ops_close(r);
    fli_checks_close(r);
    fli_keepers_close(r);
    flush(r);
    r->closing = true;
    free_servers(r);
    for (uint32_t i = 0; i < r->n; i++) {
        fli_deferred_drop(&r->servers[i]);
    }
    fli_alarm_close(&r->alarm, on_alarm_closed);
    r->depth--; /* leave() in callbacks of the loop sees no outer call */
    if (r->is_private) {
        while (r->closing) {
            (void)uv_run(&r->own_loop, UV_RUN_ONCE);
        }
        int rc = uv_loop_close(&r->own_loop);
        FLI_ASSERT(rc == 0);
        free(r);
    }
}
