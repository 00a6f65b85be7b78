/* users.c: see users.h. */
#include "store/users.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "auth/aclfile.h"
#include "auth/hash.h"
#include "auth/throttle.h"
#include "auth/worker.h"
#include "base/clock.h"
#include "base/map.h"

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

struct users_login {
    struct fli_list link; /* delayed */
    struct fli_list all;  /* logins */
    struct auth_job job;
    struct users *users;
    struct net_request *r; /* NULL: the request has gone */
    uint64_t at_ms;
    struct net_auth hello;  /* its slices are not used */
    bool found, worked, ok; /* the user exists; the worker has run; the password is right */
    uint64_t login;
    struct acl_user acl;
    char name[ACL_NAME_MAX + 1];
    uint8_t password[AUTH_PASSWORD_MAX];
    size_t password_len;
    uint8_t tag[AUTH_TAG_SIZE]; /* of the password */
    uint8_t host[16];           /* its address */
    uint8_t host_len;
    bool counted;    /* throttle.h */
    uint64_t origin; /* a number for its address; job.source also tells users apart */
};

struct reading {
    struct auth_job job;
    struct users *users;
    struct aclfile file;
    bool worked;
    int rc;
    char errmsg[512];
};

struct users {
    struct users_config config;
    struct table table;
    uint64_t last_login;
    struct auth_worker *worker;
    struct throttle throttle;
    struct fli_list delayed;
    uv_timer_t timer;
    struct fli_list logins; /* under way */
    unsigned logins_n;
    bool reading, again, closing; /* again: reload once more after this reading */
    struct users_counts counts;
    void (*close_cb)(void *ctx);
    void *close_ctx;
};

/* ---- the table ------------------------------------------------------------------------------- */

static const struct entry *by_login(const struct users *u, uint64_t login)
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

static uint64_t login_of(struct users *u, const struct aclfile_user *f, const struct acl_user *acl)
{
    const struct entry *old = by_name(&u->table, (struct fli_slice){f->name, f->name_len});
    return old != NULL && same_login(&old->acl, acl) ? old->login : ++u->last_login;
}

static int use_file(struct users *u, const struct aclfile *file, char *errmsg, size_t errmsg_size)
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
        int rc = acl_apply(acl, (struct fli_slice){f->words.data, f->words.len}, ACL_STORE_RIGHTS,
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
    u->counts.users = t.n;
    return 0;
}

/* ---- reading the file again ------------------------------------------------------------------ */

static void read_work(struct auth_job *job)
{
    struct reading *r = FLI_CONTAINER_OF(job, struct reading, job);
    r->rc = aclfile_read(r->users->config.path, ACL_STORE_RIGHTS, &r->file, r->errmsg,
                         sizeof r->errmsg);
    r->worked = true;
}

static void read_done(struct auth_job *job)
{
    struct reading *r = FLI_CONTAINER_OF(job, struct reading, job);
    struct users *u = r->users;
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
        users_reload(u);
    }
}

void users_reload(struct users *u)
{
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

static struct fli_slice host_of(const struct net_conn *c)
{
    struct fli_slice address = net_conn_address(c);
    address.len = address.len < 2 ? 0 : address.len - 2;
    return address;
}

static void finish(struct net_request *r, int rc)
{
    if (rc == 0) {
        net_answer(r);
    } else {
        net_answer_failed(r);
    }
}

static void refuse(struct net_request *r, const char *word, const char *text)
{
    finish(r, fli_resp_error(net_reply(r), word, "%s", text));
}

static struct throttle_who who_of(const struct users_login *l)
{
    return (struct throttle_who){
        {l->host, l->host_len}, {(const uint8_t *)l->name, strlen(l->name)}, l->tag, l->counted};
}

static void free_login(struct users_login *l)
{
    FLI_ASSERT(l->users->logins_n > 0);
    if (l->counted) { /* it was not checked */
        struct throttle_who who = who_of(l);
        throttle_left(&l->users->throttle, &who);
    }
    l->users->logins_n--;
    fli_list_remove(&l->all);
    explicit_bzero(l, sizeof *l);
    free(l);
}

/* Takes the request off, to answer it; NULL: it has gone. */
static struct net_request *detach(struct users_login *l)
{
    struct net_request *r = l->r;
    l->r = NULL;
    if (r != NULL) {
        *l->users->config.slot(r) = NULL;
    }
    return r;
}

static void set_timer(struct users *u);

/* Who waits with the password that was right just now waits no longer. */
static void let_go(struct users *u, const struct users_login *l)
{
    FLI_LIST_FOREACH(link, &u->delayed)
    {
        struct users_login *d = FLI_CONTAINER_OF(link, struct users_login, link);
        bool same = d->job.source == l->job.source && memcmp(d->tag, l->tag, sizeof d->tag) == 0;
        d->at_ms = same ? 0 : d->at_ms;
    }
    set_timer(u);
}

/* Also of a client that has gone: it has tried a password. */
static void note_end(struct users_login *l)
{
    struct users *u = l->users;
    struct throttle_who who = who_of(l);
    l->counted = false;
    if (!l->ok) {
        throttle_failed(&u->throttle, &who, fli_clock_ms());
        return;
    }
    throttle_succeeded(&u->throttle, &who, fli_clock_ms());
    if (!u->closing) {
        let_go(u, l);
    }
}

static void answer_login(struct users_login *l)
{
    struct users *u = l->users;
    struct net_request *r = detach(l);
    if (l->worked) {
        note_end(l);
    }
    if (r == NULL) {
        return;
    }
    if (l->ok) {
        net_conn_set_login(r->conn, l->login);
    }
    net_conn_release(r->conn);
    if (!l->worked) {
        refuse(r, "BUSY", "too many logins are under way; try again in a moment");
    } else if (!l->ok) {
        u->counts.failures++;
        refuse(r, "WRONGPASS", "invalid username-password pair or user is disabled.");
    } else {
        u->counts.logins++;
        if (l->hello.is_hello) {
            net_hello_finish(u->config.commands, r, &l->hello);
        } else {
            finish(r, fli_resp_simple(net_reply(r), "OK"));
        }
    }
}

static void verify_work(struct auth_job *job)
{
    struct users_login *l = FLI_CONTAINER_OF(job, struct users_login, job);
    l->ok = auth_may_log_in(l->found ? &l->acl : NULL,
                            (struct fli_slice){l->password, l->password_len});
    l->worked = true;
}

static void verify_done(struct auth_job *job)
{
    struct users_login *l = FLI_CONTAINER_OF(job, struct users_login, job);
    answer_login(l);
    free_login(l);
}

/* A login that was delayed is checked against the users of now, not of when it came. */
static void start_login(struct users_login *l)
{
    struct users *u = l->users;
    struct fli_slice name = {(const uint8_t *)l->name, strlen(l->name)};
    const struct entry *e = l->name[0] == '\0' ? NULL : by_name(&u->table, name);
    l->found = e != NULL;
    if (e != NULL) {
        l->acl = e->acl;
        l->login = e->login;
    }
    l->job.work = verify_work;
    l->job.done = verify_done;
    if (u->closing || auth_worker_submit(u->worker, &l->job) != 0) {
        answer_login(l);
        free_login(l);
    }
}

static void timer_cb(uv_timer_t *timer);

static void set_timer(struct users *u)
{
    uint64_t now_ms = fli_clock_ms();
    uint64_t next_ms = UINT64_MAX;
    FLI_LIST_FOREACH(pos, &u->delayed)
    {
        const struct users_login *l = FLI_CONTAINER_OF(pos, struct users_login, link);
        next_ms = l->at_ms < next_ms ? l->at_ms : next_ms;
    }
    if (next_ms != UINT64_MAX) {
        (void)uv_timer_start(&u->timer, timer_cb, next_ms > now_ms ? next_ms - now_ms : 0, 0);
    }
}

static void timer_cb(uv_timer_t *timer)
{
    struct users *u = timer->data;
    uint64_t now_ms = fli_clock_ms();
    FLI_LIST_FOREACH_SAFE(pos, next, &u->delayed)
    {
        struct users_login *l = FLI_CONTAINER_OF(pos, struct users_login, link);
        if (l->r != NULL && l->at_ms > now_ms && !u->closing) {
            continue;
        }
        fli_list_remove(&l->link);
        if (l->r == NULL) {
            free_login(l);
        } else {
            start_login(l);
        }
    }
    set_timer(u);
}

/* Whether one more login fits, and the address and the name have room for it. */
static bool has_room(const struct users *u, uint64_t origin, uint64_t source)
{
    unsigned of_address = 0;
    unsigned of_user = 0;
    FLI_LIST_FOREACH(link, &u->logins)
    {
        const struct users_login *l = FLI_CONTAINER_OF(link, struct users_login, all);
        of_address += l->origin == origin;
        of_user += l->job.source == source;
    }
    return u->logins_n < USERS_LOGINS_MAX && of_address < USERS_ADDRESS_MAX &&
           of_user < USERS_USER_MAX;
}

static struct users_login *make_login(struct users *u, struct net_request *r,
                                      const struct net_auth *auth, const struct throttle_who *who,
                                      struct fli_slice password)
{
    uint64_t origin = net_conn_origin(r->conn);
    const uint64_t seed[2] = {origin, 0};
    uint64_t source = fli_siphash(seed, who->user.data, who->user.len);
    struct users_login *l = has_room(u, origin, source) ? calloc(1, sizeof *l) : NULL;
    if (l == NULL) {
        return NULL;
    }
    u->logins_n++;
    fli_list_init(&l->link);
    fli_list_init(&l->all);
    fli_list_push(&u->logins, &l->all);
    l->origin = origin;
    l->job.source = source; /* users of an address take turns at the worker */
    l->users = u;
    l->r = r;
    l->hello = *auth;
    l->counted = who->counted;
    memcpy(l->tag, who->tag, sizeof l->tag);
    l->host_len = (uint8_t)who->address.len;
    if (l->host_len > 0) {
        memcpy(l->host, who->address.data, l->host_len);
    }
    if (who->user.len > 0) {
        memcpy(l->name, who->user.data, who->user.len);
    }
    l->password_len = password.len;
    if (password.len > 0) {
        memcpy(l->password, password.data, password.len);
    }
    return l;
}

/* The throttle is asked first: those whom it does not know are few at a time, so they leave room
 * for those whom it knows. */
void users_auth(void *ctx, struct net_request *r, const struct net_auth *auth)
{
    static const struct fli_slice none = {(const uint8_t *)"", 0};
    struct users *u = ctx;
    uint64_t now_ms = fli_clock_ms();
    uint8_t tag[AUTH_TAG_SIZE];
    bool fits = acl_name_ok(auth->user) && auth->password.len <= AUTH_PASSWORD_MAX;
    struct fli_slice password = fits ? auth->password : none;
    struct throttle_who who = {host_of(r->conn), fits ? auth->user : none, tag, false};
    auth_tag(u->throttle.key, password, tag);
    uint64_t at_ms = u->closing ? UINT64_MAX : throttle_ask(&u->throttle, &who, now_ms);
    struct users_login *l = at_ms == UINT64_MAX ? NULL : make_login(u, r, auth, &who, password);
    if (l == NULL) {
        throttle_left(&u->throttle, &who);
        refuse(r, "BUSY",
               "too many logins are under way, or have failed from this address; try again in a "
               "minute");
        return;
    }
    *u->config.slot(r) = l;
    net_conn_hold(r->conn);
    if (at_ms <= now_ms) {
        start_login(l);
        return;
    }
    l->at_ms = at_ms;
    u->counts.delayed++;
    fli_list_push(&u->delayed, &l->link);
    set_timer(u);
}

void users_cancel(struct users *u, struct users_login *l)
{
    FLI_ASSERT(l->users == u);
    l->r = NULL; /* its connection goes with it; the login's present owner frees it */
}

void users_after_handshake(struct users *u, struct net_conn *c)
{
    char name[FLI_TLS_NAME_MAX];
    if (u->config.cert_users == FLI_TLS_USER_OFF || !net_conn_has_cert(c)) {
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
        u->counts.logins += e->acl.on;
    }
}

/* ---- rights ---------------------------------------------------------------------------------- */

/* NULL: the client has not logged in, or its login is not valid any more. */
static const struct acl_user *user_of(const struct users *u, const struct net_conn *c)
{
    uint64_t login = net_conn_login(c);
    const struct entry *e = login == 0 ? u->table.of_nobody : by_login(u, login);
    return e == NULL || !e->acl.on ? NULL : &e->acl;
}

void users_name(void *ctx, const struct net_conn *c, char out[NET_USER_NAME_MAX + 1])
{
    const struct users *u = ctx;
    const struct entry *e = by_login(u, net_conn_login(c));
    if (e == NULL) {
        (void)snprintf(out, NET_USER_NAME_MAX + 1, "%s",
                       net_conn_login(c) == 0 ? "default" : "(gone)");
        return;
    }
    (void)snprintf(out, NET_USER_NAME_MAX + 1, "%.*s", (int)e->acl.name_len,
                   (const char *)e->acl.name);
}

/* lock NULL: for every name; ACL_ADMIN needs no name. */
static bool may(const struct users *u, const struct net_conn *c, unsigned right,
                const struct fli_slice *lock)
{
    const struct acl_user *a = user_of(u, c);
    uint64_t steps = 0;
    if (a == NULL) {
        return false;
    }
    if (right == ACL_ADMIN) {
        return acl_may_some(a, right);
    }
    return lock == NULL ? acl_may_all(a, right) : acl_may(a, right, *lock, &steps);
}

bool users_is_known(void *ctx, const struct net_conn *c)
{
    return user_of(ctx, c) != NULL;
}

void users_deny(struct users *u, struct net_request *r, unsigned right)
{
    u->counts.denied++;
    if (user_of(u, r->conn) == NULL) {
        refuse(r, "NOAUTH", "Authentication required.");
        return;
    }
    finish(r, fli_resp_error(net_reply(r), "NOPERM", "this user lacks the right @%s%s",
                             acl_right_name(right), right == ACL_ADMIN ? "" : " to this lock"));
}

bool users_gate(struct users *u, struct net_request *r, enum fli_command_id id)
{
    bool needs_admin = id == FLI_CMD_INFO || id == FLI_CMD_CLIENT_LIST;
    bool is_for_all =
        id == FLI_CMD_AUTH || id == FLI_CMD_HELLO || id == FLI_CMD_QUIT || id == FLI_CMD_RESET;
    if (!is_for_all && user_of(u, r->conn) == NULL) {
        users_deny(u, r, ACL_READ); /* NOAUTH */
        return false;
    }
    bool lacks = needs_admin && !may(u, r->conn, ACL_ADMIN, NULL);
    if (lacks) {
        users_deny(u, r, ACL_ADMIN);
    }
    return !lacks;
}

bool users_allow(struct users *u, struct net_request *r, const struct fli_request *q,
                 enum store_verb verb)
{
    const struct fli_slice *lock = q->lock.len > 0 ? &q->lock : NULL;
    bool writes = verb == STORE_SET || verb == STORE_DEL;
    unsigned first = writes ? ACL_WRITE : verb == STORE_CLAIM ? ACL_CLAIM : ACL_READ;
    unsigned second = verb == STORE_GET && q->fenced ? ACL_CLAIM : first;
    if (user_of(u, r->conn) == NULL) {
        users_deny(u, r, first);
        return false;
    }
    if (!q->fenced && (verb == STORE_GET || writes)) {
        return true; /* a write is answered NOTOKEN: with users there is fencing */
    }
    unsigned lacks = !may(u, r->conn, first, lock)    ? first
                     : !may(u, r->conn, second, lock) ? second
                                                      : 0;
    if (lacks != 0) {
        users_deny(u, r, lacks);
    }
    return lacks == 0;
}

bool users_may_know(const struct users *u, const struct net_conn *c, const struct store_op *op)
{
    const struct fli_slice bound = {op->bound.bytes, op->bound.len};
    return may(u, c, ACL_READ, op->bound.len > 0 ? &bound : NULL);
}

void users_get_counts(const struct users *u, struct users_counts *ret)
{
    *ret = u->counts;
}

/* ---- start and end --------------------------------------------------------------------------- */

int users_create(const struct users_config *config, struct users **ret, char *errmsg,
                 size_t errmsg_size)
{
    struct users *u = calloc(1, sizeof *u);
    struct aclfile file = {.users = NULL};
    if (u == NULL) {
        (void)snprintf(errmsg, errmsg_size, "out of memory");
        return FL_ENOMEM;
    }
    u->config = *config;
    throttle_init(&u->throttle);
    fli_list_init(&u->delayed);
    fli_list_init(&u->logins);
    int rc = aclfile_read(config->path, ACL_STORE_RIGHTS, &file, errmsg, errmsg_size);
    rc = rc == 0 ? use_file(u, &file, errmsg, errmsg_size) : rc;
    aclfile_free(&file);
    if (rc == 0) {
        rc = auth_worker_create(config->loop, 2 * USERS_LOGINS_MAX, &u->worker);
        if (rc != 0) {
            (void)snprintf(errmsg, errmsg_size, "no thread can be made for passwords");
        }
    }
    if (rc != 0) {
        users_destroy(u);
        return rc;
    }
    (void)uv_timer_init(config->loop, &u->timer); /* cannot fail */
    u->timer.data = u;
    *ret = u;
    return 0;
}

static void timer_closed(uv_handle_t *handle)
{
    struct users *u = handle->data;
    u->close_cb(u->close_ctx);
}

static void worker_closed(void *ctx)
{
    struct users *u = ctx;
    u->worker = NULL;
    uv_close((uv_handle_t *)&u->timer, timer_closed);
}

void users_close(struct users *u, void (*cb)(void *ctx), void *ctx)
{
    u->close_cb = cb;
    u->close_ctx = ctx;
    u->closing = true;
    (void)uv_timer_stop(&u->timer);
    timer_cb(&u->timer); /* answers the delayed logins */
    auth_worker_close(u->worker, worker_closed, u);
}

void users_destroy(struct users *u)
{
    if (u == NULL) {
        return;
    }
    FLI_ASSERT(u->logins_n == 0 && u->worker == NULL);
    free(u->table.list);
    throttle_fini(&u->throttle);
    free(u);
}
