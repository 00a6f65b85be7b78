/* store_client.c: the calls to fencelock-store; see store_client.h. */
#include "fencelock/store_client.h"

#include <stdlib.h>
#include <string.h>

#include "client/handle.h"

/* A client (handle.h) of one server, which knows no leader. */
struct fl_store {
    fl_client client;
};

static fl_client *client_of(fl_store *s)
{
    return &s->client; /* the only member */
}

int fl_store_open(const char *address, const struct fl_client_options *options, fl_store **ret)
{
    fl_client *c;
    int rc = fli_client_make(address, options, FLI_OF_STORE, &c);
    *ret = (fl_store *)(void *)c;
    return rc;
}

void fl_store_close(fl_store *s)
{
    if (s != NULL) {
        fl_close(client_of(s));
    }
}

void fli_store_on_trouble(struct fl_store *s, fli_trouble_cb on_trouble, void *arg)
{
    fli_client_on_trouble(client_of(s), on_trouble, arg);
}

const char *fl_store_error(const fl_store *s)
{
    return fli_error(true);
}

/* Makes the call; on FL_ESTALE *ret_mark gets the mark. ret_reply may be NULL. */
static int run(fl_store *s, const struct fli_call_request *request, uint64_t timeout_ms,
               fl_token *ret_mark, redisReply **ret_reply)
{
    struct fli_call_plan q = {.request = *request, .timeout_ms = timeout_ms};
    struct fli_outcome o;
    int rc = fli_run(client_of(s), &q, &o);
    if (rc == FL_ESTALE && ret_mark != NULL && o.reply != NULL) {
        *ret_mark = fli_call_stale_mark(o.reply->str, o.reply->len);
    }
    if (rc == 0 && ret_reply != NULL) {
        *ret_reply = o.reply;
    } else {
        freeReplyObject(o.reply);
    }
    return rc;
}

/* A request about a key. */
static struct fli_call_request about(enum fli_call_command command, struct fl_bytes key,
                                     struct fl_fencing fencing)
{
    return (struct fli_call_request){
        .command = command, .name = key, .lock = fencing.lock, .token = fencing.token};
}

int fl_store_claim(fl_store *s, struct fl_bytes lock, fl_token token, uint64_t timeout_ms,
                   fl_token *ret_mark)
{
    const struct fli_call_request q = {.command = FLI_CALL_CLAIM, .lock = lock, .token = token};
    return run(s, &q, timeout_ms, ret_mark, NULL);
}

int fl_store_get(fl_store *s, struct fl_bytes key, struct fl_fencing fencing, uint64_t timeout_ms,
                 fl_token *ret_mark, char **ret, size_t *ret_len)
{
    const struct fli_call_request q = about(FLI_CALL_GET, key, fencing);
    redisReply *reply = NULL;
    int rc = run(s, &q, timeout_ms, ret_mark, &reply);
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
        return fli_failed(client_of(s), FL_ENOMEM);
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
    struct fli_call_request q = about(FLI_CALL_SET, key, fencing);
    q.value = value;
    return run(s, &q, timeout_ms, ret_mark, NULL);
}

int fl_store_del(fl_store *s, struct fl_bytes key, struct fl_fencing fencing, uint64_t timeout_ms,
                 fl_token *ret_mark)
{
    const struct fli_call_request q = about(FLI_CALL_DEL, key, fencing);
    return run(s, &q, timeout_ms, ret_mark, NULL);
}

int fl_store_mark(fl_store *s, struct fl_bytes lock, uint64_t timeout_ms, fl_token *ret)
{
    const struct fli_call_request q = {.command = FLI_CALL_MARK, .lock = lock};
    redisReply *reply = NULL;
    int rc = run(s, &q, timeout_ms, NULL, &reply);
    if (rc == 0) {
        *ret = (fl_token)reply->integer;
        freeReplyObject(reply);
    }
    return rc;
}

static int claim_all(fl_store *s, const fl_lock *lock, const struct fl_take *options,
                     fl_token token, uint64_t timeout_ms)
{
    int rc = fl_store_claim(s, fl_lock_name(lock), token, timeout_ms, NULL);
    size_t n = options != NULL ? options->also_len : 0;
    for (size_t i = 0; rc == 0 && i < n; i++) {
        rc = fl_store_claim(s, options->also[i], token, timeout_ms, NULL);
    }
    return rc;
}

int fl_lock_take_claimed(fl_client *c, fl_store *s, const char *name, const struct fl_take *options,
                         uint64_t timeout_ms, bool *ret_store_failed, fl_lock **ret)
{
    fl_lock *lock;
    fl_token token;
    bool unused;
    bool *store_failed = ret_store_failed != NULL ? ret_store_failed : &unused;
    *store_failed = false;
    int rc = fl_lock_take(c, name, options, &lock);
    if (rc != 0) {
        return rc;
    }
    rc = fl_lock_token(lock, &token);
    if (rc == 0) {
        rc = claim_all(s, lock, options, token, timeout_ms);
        *store_failed = rc != 0;
    }
    if (rc == 0) {
        rc = fl_lock_token(lock, &token);
    }
    if (rc != 0) {
        (void)fl_lock_release(lock); /* if that fails, the lock ends with its lease */
        return rc;
    }
    *ret = lock;
    return 0;
}
