/* file_users.c: see file_users.h. */
#include "auth/file_users.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "auth/aclfile.h"
#include "base/clock.h"

/* A user as the file has it now. `login` changes whenever the user is switched or its passwords
 * change, so older connections are no longer logged in. 0: no login. */
struct entry {
    uint64_t login;
    struct acl_user acl;
};

struct table {
    struct entry *list; /* by login */
    unsigned n;
    const struct entry *of_nobody; /* the default user, if it needs no password; else NULL */
};

struct reading {
    struct auth_job job;
    struct file_users *users;
    struct aclfile file;
    bool worked;
    int rc;
    char errmsg[512];
};

struct file_users {
    struct file_users_config config;
    struct table table;
    uint64_t last_login;
    struct auth_worker *worker;
    struct auth_logins logins;
    uv_timer_t timer;             /* active while logins are delayed */
    bool reading, again, closing; /* again: reload once more after this reading */
    uint64_t denied;
    void (*close_cb)(void *ctx);
    void *close_ctx;
};

/* ---- the table ------------------------------------------------------------------------------- */

static const struct entry *by_login(const struct file_users *u, uint64_t login)
{
    unsigned from = 0;
    unsigned to = u->table.n;
    while (from < to) {
        unsigned at = from + (to - from) / 2;
        if (u->table.list[at].login == login) {
            return &u->table.list[at];
        }
        if (u->table.list[at].login < login) {
            from = at + 1;
        } else {
            to = at;
        }
    }
    return NULL;
}

static const struct entry *by_name(const struct table *t, struct fli_slice name)
{
    for (unsigned i = 0; i < t->n; i++) {
        const struct acl_user *a = &t->list[i].acl;
        if (fli_bytes_cmp(a->name, a->name_len, name.data, name.len) == 0) {
            return &t->list[i];
        }
    }
    return NULL;
}

static bool same_login(const struct acl_user *a, const struct acl_user *b)
{
    return a->on == b->on && a->nopass == b->nopass && a->n_passwords == b->n_passwords &&
           memcmp(a->passwords, b->passwords, a->n_passwords * sizeof a->passwords[0]) == 0;
}

static int by_login_number(const void *a, const void *b)
{
    const struct entry *x = a;
    const struct entry *y = b;
    return x->login < y->login ? -1 : x->login > y->login;
}

static uint64_t login_of(struct file_users *u, const struct aclfile_user *f,
                         const struct acl_user *acl)
{
    const struct entry *old = by_name(&u->table, (struct fli_slice){f->name, f->name_len});
    return old != NULL && same_login(&old->acl, acl) ? old->login : ++u->last_login;
}

static int use_file(struct file_users *u, const struct aclfile *file, char *errmsg,
                    size_t errmsg_size)
{
    struct table t = {.list = calloc(file->n + 1u, sizeof t.list[0]), .n = file->n};
    if (t.list == NULL) {
        (void)snprintf(errmsg, errmsg_size, "out of memory");
        return FL_ENOMEM;
    }
    for (unsigned i = 0; i < file->n; i++) {
        const struct aclfile_user *f = &file->users[i];
        struct acl_user *acl = &t.list[i].acl;
        acl_user_init(acl, (struct fli_slice){f->name, f->name_len});
        int rc = acl_apply(acl, (struct fli_slice){f->words.data, f->words.len}, u->config.rights,
                           errmsg, errmsg_size);
        if (rc != 0) { /* aclfile_read() has applied them before */
            free(t.list);
            return rc;
        }
        t.list[i].login = login_of(u, f, acl);
    }
    qsort(t.list, t.n, sizeof t.list[0], by_login_number);
    const struct entry *e = by_name(&t, (struct fli_slice){(const uint8_t *)"default", 7});
    t.of_nobody = e != NULL && e->acl.nopass ? e : NULL;
    free(u->table.list);
    u->table = t;
    return 0;
}

/* ---- reading the file again ------------------------------------------------------------------ */

static void read_work(struct auth_job *job)
{
    struct reading *r = FLI_CONTAINER_OF(job, struct reading, job);
    r->rc = aclfile_read(r->users->config.path, r->users->config.rights, &r->file, r->errmsg,
                         sizeof r->errmsg);
    r->worked = true;
}

static void read_done(struct auth_job *job)
{
    struct reading *r = FLI_CONTAINER_OF(job, struct reading, job);
    struct file_users *u = r->users;
    char text[640];
    int rc = r->worked ? r->rc : FL_EBUSY;
    if (rc == 0 && r->file.n == 0) {
        (void)snprintf(r->errmsg, sizeof r->errmsg,
                       "it names no user, and may have been cut off: write a line for each");
        rc = FL_EINVAL;
    }
    rc = rc == 0 ? use_file(u, &r->file, r->errmsg, sizeof r->errmsg) : rc;
    if (rc == 0) {
        (void)snprintf(text, sizeof text, "the users were read again users=%u", u->table.n);
        u->config.log(u->config.ctx, 3, text);
    } else if (r->worked) {
        (void)snprintf(text, sizeof text,
                       "the new file of users is refused, and the old users stay: %s", r->errmsg);
        u->config.log(u->config.ctx, 1, text);
    }
    aclfile_free(&r->file);
    free(r);
    u->reading = false;
    if (u->again && !u->closing) {
        file_users_reload(u);
    }
}

void file_users_reload(struct file_users *u)
{
    if (u == NULL) {
        return;
    }
    struct reading *r = u->reading || u->closing ? NULL : calloc(1, sizeof *r);
    u->again = u->reading;
    if (r == NULL) {
        return;
    }
    r->users = u;
    r->job.work = read_work;
    r->job.done = read_done;
    u->reading = auth_worker_submit(u->worker, &r->job) == 0;
    if (!u->reading) {
        u->config.log(u->config.ctx, 2, "users are not read again: too much is under way");
        free(r);
    }
}

/* ---- logging in ------------------------------------------------------------------------------ */

static void find(void *ctx, struct auth_login *l)
{
    const struct file_users *u = ctx;
    const struct entry *e =
        by_name(&u->table, (struct fli_slice){(const uint8_t *)l->user, strlen(l->user)});
    l->found = e != NULL;
    if (e != NULL) {
        l->acl = e->acl;
        l->login = e->login;
    }
    auth_login_go_on(l, 0);
}

static void refuse(struct net_request *r, const char *word, const char *text)
{
    if (fli_resp_error(net_reply(r), word, "%s", text) == 0) {
        net_answer(r);
    } else {
        net_answer_failed(r);
    }
}

static struct auth_login **slot(void *ctx, struct net_request *r)
{
    const struct file_users *u = ctx;
    return u->config.slot(r);
}

static void failed(void *ctx, struct net_request *r, int status)
{
    refuse(r, "BUSY", "too many logins are under way; try again in a moment");
}

static void timer_cb(uv_timer_t *timer);

static void set_timer(struct file_users *u)
{
    uint64_t now_ms = fli_clock_ms();
    uint64_t next_ms = auth_logins_next_ms(&u->logins);
    if (next_ms != UINT64_MAX && !u->closing) {
        (void)uv_timer_start(&u->timer, timer_cb, next_ms > now_ms ? next_ms - now_ms : 0, 0);
    }
}

static void timer_cb(uv_timer_t *timer)
{
    struct file_users *u = timer->data;
    auth_logins_turn(&u->logins);
    set_timer(u);
}

static void auth(void *ctx, struct net_request *r, const struct net_auth *auth)
{
    struct file_users *u = ctx;
    auth_logins_begin(&u->logins, r, auth);
    set_timer(u);
}

void file_users_cancel(struct file_users *u, struct net_request *r)
{
    if (u != NULL) {
        auth_logins_cancel(&u->logins, r);
    }
}

void file_users_shaken(struct file_users *u, struct net_conn *c)
{
    char name[FLI_TLS_NAME_MAX];
    if (u == NULL || u->config.cert_users == FLI_TLS_USER_OFF || !net_conn_has_cert(c)) {
        return;
    }
    net_conn_set_login(c, NET_LOGIN_NOBODY); /* nor the default user, if it is no user's */
    if (!net_conn_cert_user(c, u->config.cert_users, name)) {
        return;
    }
    struct fli_slice text = {(const uint8_t *)name, strlen(name)};
    const struct entry *e = acl_name_ok(text) ? by_name(&u->table, text) : NULL;
    if (e != NULL) { /* one that is off is refused at each command */
        net_conn_set_login(c, e->login);
        u->logins.counts.logins += e->acl.on;
    }
}

/* ---- rights ---------------------------------------------------------------------------------- */

/* NULL: the client has not logged in, or its login is not valid any more. */
static const struct acl_user *user_of(const struct file_users *u, const struct net_conn *c)
{
    uint64_t login = net_conn_login(c);
    const struct entry *e = login == 0 ? u->table.of_nobody : by_login(u, login);
    return e == NULL || !e->acl.on ? NULL : &e->acl;
}

static void name_of(void *ctx, const struct net_conn *c, char out[NET_USER_NAME_MAX + 1])
{
    const struct file_users *u = ctx;
    const struct entry *e = by_login(u, net_conn_login(c));
    if (e == NULL) {
        (void)snprintf(out, NET_USER_NAME_MAX + 1, "%s",
                       net_conn_login(c) == 0 ? "default" : "(gone)");
        return;
    }
    (void)snprintf(out, NET_USER_NAME_MAX + 1, "%.*s", (int)e->acl.name_len,
                   (const char *)e->acl.name);
}

bool file_users_may(const struct file_users *u, const struct net_conn *c, unsigned right,
                    const struct fli_slice *name)
{
    const struct acl_user *a = user_of(u, c);
    uint64_t steps = 0;
    if (a == NULL) {
        return false;
    }
    if (right == ACL_ADMIN) {
        return acl_may_some(a, right);
    }
    return name == NULL ? acl_may_all(a, right) : acl_may(a, right, *name, &steps);
}

bool file_users_is_known(void *u, const struct net_conn *c)
{
    return user_of(u, c) != NULL;
}

void file_users_deny(struct file_users *u, struct net_request *r, unsigned right)
{
    u->denied++;
    if (user_of(u, r->conn) == NULL) {
        refuse(r, "NOAUTH", "Authentication required.");
        return;
    }
    char text[128];
    (void)snprintf(text, sizeof text, "this user lacks the right @%s%s", acl_right_name(right),
                   right == ACL_ADMIN ? "" : " to this lock");
    refuse(r, "NOPERM", text);
}

void file_users_get_counts(const struct file_users *u, struct file_users_counts *ret)
{
    if (u == NULL) {
        return;
    }
    *ret = (struct file_users_counts){.users = u->table.n,
                                      .logins = u->logins.counts.logins,
                                      .failures = u->logins.counts.failures,
                                      .delayed = u->logins.counts.delayed,
                                      .denied = u->denied};
}

/* ---- start and end --------------------------------------------------------------------------- */

int file_users_create(const struct file_users_config *config, struct file_users **ret, char *errmsg,
                      size_t errmsg_size)
{
    struct file_users *u = calloc(1, sizeof *u);
    struct aclfile file = {.users = NULL};
    if (u == NULL) {
        (void)snprintf(errmsg, errmsg_size, "out of memory");
        return FL_ENOMEM;
    }
    u->config = *config;
    int rc = aclfile_read(config->path, config->rights, &file, errmsg, errmsg_size);
    rc = rc == 0 ? use_file(u, &file, errmsg, errmsg_size) : rc;
    aclfile_free(&file);
    if (rc == 0) {
        rc = auth_worker_create(config->loop, AUTH_LOGINS_MAX + 1, &u->worker);
        if (rc != 0) {
            (void)snprintf(errmsg, errmsg_size, "no thread can be made for passwords");
        }
    }
    const struct auth_logins_config logins = {.commands = config->commands,
                                              .worker = u->worker,
                                              .ctx = u,
                                              .slot = slot,
                                              .find = find,
                                              .failed = failed};
    auth_logins_init(&u->logins, &logins);
    if (rc != 0) {
        file_users_destroy(u);
        return rc;
    }
    (void)uv_timer_init(config->loop, &u->timer); /* cannot fail */
    u->timer.data = u;
    config->commands->users_ctx = u;
    config->commands->user_name = name_of;
    config->commands->is_known = file_users_is_known;
    config->commands->auth = auth;
    *ret = u;
    return 0;
}

static void timer_closed(uv_handle_t *handle)
{
    struct file_users *u = handle->data;
    u->close_cb(u->close_ctx);
}

static void worker_closed(void *ctx)
{
    struct file_users *u = ctx;
    u->worker = NULL;
    uv_close((uv_handle_t *)&u->timer, timer_closed);
}

void file_users_close(struct file_users *u, void (*cb)(void *ctx), void *ctx)
{
    if (u == NULL) {
        cb(ctx);
        return;
    }
    u->close_cb = cb;
    u->close_ctx = ctx;
    u->closing = true;
    (void)uv_timer_stop(&u->timer);
    auth_logins_stop(&u->logins);
    auth_worker_close(u->worker, worker_closed, u);
}

void file_users_destroy(struct file_users *u)
{
    if (u == NULL) {
        return;
    }
    FLI_ASSERT(u->worker == NULL);
    auth_logins_fini(&u->logins);
    free(u->table.list);
    free(u);
}
