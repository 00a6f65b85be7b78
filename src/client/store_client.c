/* store_client.c: the calls to fencelock-store; see store_client.h. */
#include "fencelock/store_client.h"

#include <stdlib.h>

#include "client/backup.h"
#include "client/caller.h"
#include "client/url.h"

struct fl_store {
    struct fli_caller caller;
};

int fl_store_create(const char *address, uint64_t timeout_ms, fl_store **ret)
{
    const struct fl_store_options options = {.timeout_ms = timeout_ms};
    return fl_store_create_with(address, &options, ret);
}

static int create(const char *address, const struct fl_store_options *options, fl_store **ret)
{
    char errmsg[FLI_TLS_ERRMSG_SIZE];
    uint64_t timeout_ms = options->timeout_ms;
    if (address == NULL || timeout_ms > FL_TIMEOUT_MAX_MS || strchr(address, ',') != NULL) {
        return FL_EINVAL;
    }
    struct fl_store *s = calloc(1, sizeof *s);
    if (s == NULL) {
        return FL_ENOMEM;
    }
    int rc = fli_caller_init(&s->caller, address);
    if (rc != 0) {
        free(s);
        return rc;
    }
    struct fli_engine *e = &s->caller.engine;
    e->learns_leader = false;
    e->timeout_ms = timeout_ms != 0 ? timeout_ms : e->timeout_ms;
    rc = fli_link_security_init(&e->tls, options->tls, errmsg, sizeof errmsg);
    rc = rc != 0 ? rc : fli_link_login(&e->tls, options->user, options->password);
    if (rc != 0) {
        fl_store_destroy(s);
        return rc;
    }
    *ret = s;
    return 0;
}

int fl_store_create_with(const char *address, const struct fl_store_options *options,
                         fl_store **ret)
{
    struct fli_url room;
    struct fl_store_options own = {.timeout_ms = 0};
    own = options == NULL ? own : *options;
    struct fli_url_options o = {
        .nodes = address, .tls = own.tls, .user = own.user, .password = own.password};
    int rc = fli_url_apply(&o, &room);
    own.tls = o.tls;
    own.user = o.user;
    own.password = o.password;
    rc = rc != 0 ? rc : create(o.nodes, &own, ret);
    fli_url_forget(&room);
    return rc;
}

void fl_store_destroy(fl_store *s)
{
    if (s != NULL) {
        fli_caller_fini(&s->caller);
        free(s);
    }
}

void fli_store_on_trouble(struct fl_store *s, fli_trouble_cb on_trouble, void *arg)
{
    s->caller.on_trouble = on_trouble;
    s->caller.trouble_arg = arg;
}

const char *fl_store_error(const fl_store *s)
{
    return s->caller.error;
}

static int check(fl_store *s, const struct fli_call *call, bool needs_token)
{
    const struct fli_ask *ask = &call->ask;
    int rc = fli_caller_check_timeout(&s->caller, call->timeout_ms);
    if (rc != 0) {
        return rc;
    }
    bool fenced = ask->token != FL_TOKEN_NONE;
    if (ask->token > FL_TOKEN_MAX || (needs_token && !fenced)) {
        return fli_caller_fail(&s->caller, FL_EINVAL, "a token is a number from 1 to %llu",
                               (unsigned long long)FL_TOKEN_MAX);
    }
    bool names_lock = fenced || ask->op == FLI_ASK_MARK;
    if (names_lock && (ask->lock.len < 1 || ask->lock.len > FL_NAME_MAX)) {
        return fli_caller_fail(&s->caller, FL_EINVAL, "a lock's name has 1 to %u bytes, not %zu",
                               FL_NAME_MAX, ask->lock.len);
    }
    return 0;
}

/* Makes the call; on FL_ESTALE *ret_mark gets the mark. ret_reply may be NULL. */
static int run(fl_store *s, const struct fli_call *call, fl_token *ret_mark, redisReply **ret_reply)
{
    redisReply *reply = NULL;
    int rc = fli_caller_run(&s->caller, call, &reply, NULL);
    if (rc == FL_ESTALE && ret_mark != NULL && reply != NULL) {
        *ret_mark = fli_ask_stale_mark(reply->str, reply->len);
    }
    if (rc == 0 && ret_reply != NULL) {
        *ret_reply = reply;
    } else {
        freeReplyObject(reply);
    }
    return rc == FL_ENOTHELD ? FL_ENOTFOUND : rc;
}

int fl_store_claim(fl_store *s, struct fl_bytes lock, fl_token token, uint64_t timeout_ms,
                   fl_token *ret_mark)
{
    const struct fli_call call = {.ask = {.op = FLI_ASK_CLAIM, .lock = lock, .token = token},
                                  .timeout_ms = timeout_ms,
                                  .no = ""};
    int rc = check(s, &call, true);
    return rc == 0 ? run(s, &call, ret_mark, NULL) : rc;
}

static const char no_key[] = "there is no such key";

int fl_store_get(fl_store *s, struct fl_bytes key, struct fl_fencing fencing, uint64_t timeout_ms,
                 fl_token *ret_mark, char **ret, size_t *ret_len)
{
    const struct fli_call call = {
        .ask = {.op = FLI_ASK_GET, .name = key, .lock = fencing.lock, .token = fencing.token},
        .timeout_ms = timeout_ms,
        .no = no_key};
    redisReply *reply = NULL;
    int rc = check(s, &call, false);
    if (rc == 0) {
        rc = run(s, &call, ret_mark, &reply);
    }
    if (rc != 0) {
        return rc;
    }
    size_t len = reply->len;
    char *copy = malloc(len + 1);
    if (copy != NULL) {
        memcpy(copy, reply->str, len);
        copy[len] = '\0';
    }
    freeReplyObject(reply);
    if (copy == NULL) {
        return fli_caller_fail(&s->caller, FL_ENOMEM, "out of memory");
    }
    *ret = copy;
    if (ret_len != NULL) {
        *ret_len = len;
    }
    return 0;
}

int fl_store_set(fl_store *s, struct fl_bytes key, struct fl_bytes value, struct fl_fencing fencing,
                 uint64_t timeout_ms, fl_token *ret_mark)
{
    const struct fli_call call = {.ask = {.op = FLI_ASK_SET,
                                          .name = key,
                                          .value = value,
                                          .lock = fencing.lock,
                                          .token = fencing.token},
                                  .timeout_ms = timeout_ms,
                                  .no = ""};
    int rc = check(s, &call, false);
    return rc == 0 ? run(s, &call, ret_mark, NULL) : rc;
}

int fl_store_del(fl_store *s, struct fl_bytes key, struct fl_fencing fencing, uint64_t timeout_ms,
                 fl_token *ret_mark)
{
    const struct fli_call call = {
        .ask = {.op = FLI_ASK_DEL, .name = key, .lock = fencing.lock, .token = fencing.token},
        .timeout_ms = timeout_ms,
        .no = no_key};
    int rc = check(s, &call, false);
    return rc == 0 ? run(s, &call, ret_mark, NULL) : rc;
}

int fl_store_mark(fl_store *s, struct fl_bytes lock, uint64_t timeout_ms, fl_token *ret)
{
    const struct fli_call call = {
        .ask = {.op = FLI_ASK_MARK, .lock = lock}, .timeout_ms = timeout_ms, .no = ""};
    redisReply *reply = NULL;
    int rc = check(s, &call, false);
    if (rc == 0) {
        rc = run(s, &call, NULL, &reply);
    }
    if (rc != 0) {
        return rc;
    }
    *ret = (fl_token)reply->integer;
    freeReplyObject(reply);
    return 0;
}

static int claim_all(fl_store *s, struct fl_bytes name, const struct fl_acquire_options *options,
                     fl_token token, uint64_t timeout_ms)
{
    int rc = fl_store_claim(s, name, token, timeout_ms, NULL);
    size_t n = options != NULL ? options->also_len : 0;
    for (size_t i = 0; rc == 0 && i < n; i++) {
        rc = fl_store_claim(s, options->also[i], token, timeout_ms, NULL);
    }
    return rc;
}

int fl_acquire_claimed(fl_client *c, fl_store *s, struct fl_bytes name,
                       const struct fl_acquire_options *options, uint64_t timeout_ms,
                       bool *ret_store_failed, struct fl_grant *ret)
{
    struct fl_grant grant;
    bool unused;
    bool *store_failed = ret_store_failed != NULL ? ret_store_failed : &unused;
    *store_failed = false;
    int rc = fl_acquire(c, name, options, &grant);
    if (rc != 0) {
        return rc;
    }
    rc = claim_all(s, name, options, grant.token, timeout_ms);
    *store_failed = rc != 0;
    if (rc == 0 && fl_remaining_ms(&grant) == 0) {
        rc = FL_ENOTHELD;
    }
    if (rc != 0) {
        /* if the release fails, the lock ends with its lease */
        int ignored = fl_release(c, name, grant.token, 0);
        (void)ignored;
        return rc;
    }
    *ret = grant;
    return 0;
}

int fl_store_backup(fl_store *s, uint64_t timeout_ms,
                    int (*sink)(void *arg, const void *data, size_t len), void *arg)
{
    int rc = fli_caller_check_timeout(&s->caller, timeout_ms);
    return rc == 0 ? fli_backup(&s->caller, FLI_ASK_STORE_BACKUP, 0, timeout_ms, sink, arg) : rc;
}
