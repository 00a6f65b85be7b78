/* logins.c: see logins.h. */
#include "auth/logins.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/map.h"

void auth_logins_init(struct auth_logins *ls, const struct auth_logins_config *config)
{
    *ls = (struct auth_logins){.config = *config};
    throttle_init(&ls->throttle);
    fli_list_init(&ls->delayed);
    fli_list_init(&ls->all);
}

void auth_logins_fini(struct auth_logins *ls)
{
    FLI_ASSERT(ls->n == 0);
    throttle_fini(&ls->throttle);
}

static void finish(struct net_request *r, int rc)
{
    if (rc == 0) {
        net_answer(r);
    } else {
        net_answer_failed(r);
    }
}

/* ---- a login, from its request to its end ---- */

static struct throttle_who who_of(const struct auth_login *l)
{
    return (struct throttle_who){
        {l->host, l->host_len}, {(const uint8_t *)l->user, strlen(l->user)}, l->tag, l->counted};
}

/* Whether one more login fits, and the address and the name have room for it. */
static bool has_room(const struct auth_logins *ls, uint64_t origin, uint64_t source)
{
    unsigned of_address = 0;
    unsigned of_user = 0;
    FLI_LIST_FOREACH(link, &ls->all)
    {
        const struct auth_login *l = FLI_CONTAINER_OF(link, struct auth_login, all);
        of_address += l->origin == origin;
        of_user += l->job.source == source;
    }
    return !ls->stopping && ls->n < AUTH_LOGINS_MAX && of_address < AUTH_ADDRESS_MAX &&
           of_user < AUTH_USER_MAX;
}

static void copy(void *to, struct fli_slice from)
{
    if (from.len > 0) {
        memcpy(to, from.data, from.len);
    }
}

static struct auth_login *make(struct auth_logins *ls, struct net_request *r,
                               const struct net_auth *auth, const struct throttle_who *who,
                               struct fli_slice password)
{
    uint64_t origin = net_conn_origin(r->conn);
    const uint64_t seed[2] = {origin, 0};
    uint64_t source = fli_siphash(seed, who->user.data, who->user.len);
    struct auth_login *l =
        has_room(ls, origin, source) ? calloc(1, sizeof *l + ls->config.room) : NULL;
    if (l == NULL) {
        return NULL;
    }
    ls->n++;
    fli_list_init(&l->link);
    fli_list_init(&l->all);
    fli_list_push(&ls->all, &l->all);
    l->logins = ls;
    l->r = r;
    l->origin = origin;
    l->job.source = source; /* users of an address take turns at the worker */
    l->hello = *auth;
    l->counted = who->counted;
    memcpy(l->tag, who->tag, sizeof l->tag);
    copy(l->host, who->address);
    l->host_len = (uint8_t)who->address.len;
    copy(l->user, who->user);
    copy(l->password, password);
    l->password_len = password.len;
    *ls->config.slot(ls->config.ctx, r) = l;
    return l;
}

static void end(struct auth_login *l)
{
    struct auth_logins *ls = l->logins;
    FLI_ASSERT(ls->n > 0 && l->r == NULL);
    if (l->counted) { /* it was not checked */
        struct throttle_who who = who_of(l);
        throttle_left(&ls->throttle, &who);
    }
    ls->n--;
    fli_list_remove(&l->all);
    explicit_bzero(l, sizeof *l);
    free(l);
}

/* Takes the request off, to answer it, and lets its connection go on; NULL: it has gone. */
static struct net_request *detach(struct auth_login *l)
{
    struct net_request *r = l->r;
    l->r = NULL;
    if (r != NULL) {
        *l->logins->config.slot(l->logins->config.ctx, r) = NULL;
        net_conn_release(r->conn);
    }
    return r;
}

static void fail(struct auth_login *l, int status)
{
    struct net_request *r = detach(l);
    if (r != NULL) {
        l->logins->config.failed(l->logins->config.ctx, r, status);
    }
    end(l);
}

/* Also of a client that has gone: it has tried a password. */
static void note_end(struct auth_login *l)
{
    struct auth_logins *ls = l->logins;
    struct throttle_who who = who_of(l);
    l->counted = false;
    if (l->ok) {
        throttle_succeeded(&ls->throttle, &who, fli_clock_ms());
    } else {
        throttle_failed(&ls->throttle, &who, fli_clock_ms());
    }
}

static void answer(struct auth_login *l)
{
    struct auth_logins *ls = l->logins;
    struct net_request *r = l->r;
    if (r == NULL) {
        return;
    }
    ls->counts.logins += l->ok;
    ls->counts.failures += !l->ok;
    if (l->ok) {
        net_conn_set_login(r->conn, l->login);
    } else if (ls->config.wrong != NULL) {
        ls->config.wrong(ls->config.ctx, r->conn, l->user);
    }
    (void)detach(l);
    if (!l->ok) {
        finish(r, fli_resp_error(net_reply(r), "WRONGPASS",
                                 "invalid username-password pair or user is disabled."));
    } else if (l->hello.is_hello) {
        net_hello_finish(ls->config.commands, r, &l->hello);
    } else {
        finish(r, fli_resp_simple(net_reply(r), "OK"));
    }
}

static void work(struct auth_job *job)
{
    struct auth_login *l = FLI_CONTAINER_OF(job, struct auth_login, job);
    l->ok = auth_may_log_in(l->found ? &l->acl : NULL,
                            (struct fli_slice){l->password, l->password_len});
    l->worked = true;
}

static void let_go(struct auth_logins *ls, const struct auth_login *l);

static void done(struct auth_job *job)
{
    struct auth_login *l = FLI_CONTAINER_OF(job, struct auth_login, job);
    if (!l->worked) {
        fail(l, FL_EBUSY);
        return;
    }
    note_end(l);
    if (l->ok) {
        let_go(l->logins, l);
    }
    answer(l);
    end(l);
}

void auth_login_go_on(struct auth_login *l, int status)
{
    l->job.work = work;
    l->job.done = done;
    if (status == 0 && !l->logins->stopping) {
        status = auth_worker_submit(l->logins->config.worker, &l->job);
    } else {
        status = status != 0 ? status : FL_EBUSY;
    }
    if (status != 0) {
        fail(l, status);
    }
}

/* The user of now, not of when the request came. A name that nobody can have takes as long to be
 * refused as a wrong password. */
static void start(struct auth_login *l)
{
    if (l->user[0] == '\0') {
        auth_login_go_on(l, 0);
    } else {
        l->logins->config.find(l->logins->config.ctx, l);
    }
}

/* Who waits with the password that was right just now waits no longer. */
static void let_go(struct auth_logins *ls, const struct auth_login *l)
{
    FLI_LIST_FOREACH_SAFE(pos, next, &ls->delayed)
    {
        struct auth_login *d = FLI_CONTAINER_OF(pos, struct auth_login, link);
        bool same = d->job.source == l->job.source && memcmp(d->tag, l->tag, sizeof d->tag) == 0;
        if (same && d->r != NULL && !ls->stopping) {
            fli_list_remove(&d->link);
            start(d);
        }
    }
}

/* ---- requests ---- */

static struct fli_slice host_of(const struct net_conn *c)
{
    struct fli_slice address = net_conn_address(c);
    address.len = address.len < 2 ? 0 : address.len - 2;
    return address;
}

/* The throttle is asked first: those whom it does not know are few at a time, so they leave room
 * for those whom it knows. */
void auth_logins_begin(struct auth_logins *ls, struct net_request *r, const struct net_auth *auth)
{
    static const struct fli_slice none = {(const uint8_t *)"", 0};
    uint64_t now_ms = fli_clock_ms();
    uint8_t tag[AUTH_TAG_SIZE];
    bool fits = acl_name_ok(auth->user) && auth->password.len <= AUTH_PASSWORD_MAX;
    struct fli_slice password = fits ? auth->password : none;
    struct throttle_who who = {host_of(r->conn), fits ? auth->user : none, tag, false};
    auth_tag(ls->throttle.key, password, tag);
    uint64_t at_ms = throttle_ask(&ls->throttle, &who, now_ms);
    struct auth_login *l = at_ms == UINT64_MAX ? NULL : make(ls, r, auth, &who, password);
    if (l == NULL) {
        throttle_left(&ls->throttle, &who);
        finish(r, fli_resp_error(net_reply(r), "BUSY",
                                 "too many logins are under way, or have failed from this address; "
                                 "try again in a minute"));
        return;
    }
    net_conn_hold(r->conn);
    if (at_ms > now_ms) {
        l->at_ms = at_ms;
        ls->counts.delayed++;
        fli_list_push(&ls->delayed, &l->link);
    } else {
        start(l);
    }
}

/* Whoever has the login at present frees it; its connection goes with the request. */
void auth_logins_cancel(struct auth_logins *ls, struct net_request *r)
{
    struct auth_login **slot = ls->config.slot(ls->config.ctx, r);
    if (*slot != NULL) {
        (*slot)->r = NULL;
        *slot = NULL;
    }
}

/* ---- time ---- */

void auth_logins_turn(struct auth_logins *ls)
{
    uint64_t now_ms = fli_clock_ms();
    FLI_LIST_FOREACH_SAFE(pos, next, &ls->delayed)
    {
        struct auth_login *l = FLI_CONTAINER_OF(pos, struct auth_login, link);
        if (l->r != NULL && l->at_ms > now_ms && !ls->stopping) {
            continue;
        }
        fli_list_remove(&l->link);
        if (l->r == NULL) {
            end(l);
        } else if (ls->stopping) {
            fail(l, FL_EBUSY);
        } else {
            start(l);
        }
    }
}

uint64_t auth_logins_next_ms(const struct auth_logins *ls)
{
    uint64_t next_ms = UINT64_MAX;
    FLI_LIST_FOREACH(pos, &ls->delayed)
    {
        const struct auth_login *l = FLI_CONTAINER_OF(pos, struct auth_login, link);
        next_ms = l->at_ms < next_ms ? l->at_ms : next_ms;
    }
    return next_ms;
}

void auth_logins_stop(struct auth_logins *ls)
{
    ls->stopping = true;
    auth_logins_turn(ls);
}
