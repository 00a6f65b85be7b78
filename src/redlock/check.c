/* check.c: asks every server what it is; fitness.c decides whether that is fit. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "client/handle.h"
#include "redlock/fitness.h"
#include "redlock/quorum.h"
#include "redlock/redlock_private.h"

#define SCRATCH_TTL_MS UINT64_C(10000)

/* The last three are what a lock needs, in this order, on a key that nobody else uses. */
enum question { ASK_INFO, ASK_FSYNC, ASK_SET, ASK_EXTEND, ASK_RELEASE, QUESTIONS };

struct question_request {
    struct fli_redis_request base;
    struct check *check;
    uint32_t index;
    enum question question;
};

struct check {
    struct fli_list node;
    struct fli_due due;
    struct fli_wait *wait; /* of who waits for it; NULL: it is over */
    struct fli_redlock *r;
    uint32_t refs;                          /* one for the caller, one for each request */
    uint32_t left;                          /* answers still to come */
    bool unsettled[FL_REDLOCK_SERVERS_MAX]; /* its connection is still being made */
    struct fli_facts facts[FL_REDLOCK_SERVERS_MAX];
    struct question_request questions[FL_REDLOCK_SERVERS_MAX][QUESTIONS];
    char value[FL_REDLOCK_VALUE_LEN + 1]; /* of the scratch key */
    char key[FLI_REDIS_KEY_MAX];
    size_t key_len;
};

static void unref(struct check *c)
{
    if (--c->refs == 0) {
        free(c);
    }
}

/* Takes what is known of the servers from their connections. */
static void complete_facts(struct check *c)
{
    struct fli_redlock *r = c->r;
    uint64_t now_ms = fli_clock_ms();
    for (uint32_t i = 0; i < r->n; i++) {
        struct fli_facts *f = &c->facts[i];
        const struct fli_server *s = &r->servers[i];
        if (!f->heard && s->facts.heard) {
            f->heard = s->status == FL_REDLOCK_REPLICA;
            memcpy(f->role, s->facts.role, sizeof f->role);
            memcpy(f->run_id, s->facts.run_id, sizeof f->run_id);
        }
        if (!f->heard && s->status == FL_REDLOCK_ERROR) {
            memcpy(f->error, s->error, sizeof f->error);
        }
        f->young_ms = fli_left_ms(s->counts_from_ms, now_ms);
    }
}

static void end(struct check *c)
{
    if (c->wait != NULL) {
        c->wait->over = true;
        c->wait = NULL;
        fli_due_remove(&c->r->engine->dues, &c->due);
        fli_list_remove(&c->node);
    }
}

static void end_if_complete(struct check *c)
{
    bool waits = c->left > 0;
    for (uint32_t i = 0; i < c->r->n; i++) {
        waits = waits || c->unsettled[i];
    }
    if (!waits) {
        end(c);
    }
}

static void take_trial(struct fli_facts *f, enum question question, const redisReply *reply)
{
    static const char *const what[QUESTIONS] = {
        [ASK_SET] = "set", [ASK_EXTEND] = "extended", [ASK_RELEASE] = "released"};
    if (what[question] == NULL || f->refused != NULL) {
        return;
    }
    enum fl_redlock_status status = question == ASK_SET
                                        ? fli_set_status(reply, f->refusal, sizeof f->refusal)
                                        : fli_script_status(reply, f->refusal, sizeof f->refusal);
    if (status == FL_REDLOCK_YES) {
        return;
    }
    f->refused = what[question];
    f->refused_key =
        fli_is_error(reply, "NOPERM") && memmem(reply->str, reply->len, " key", 4) != NULL;
    if (f->refusal[0] == '\0') {
        (void)snprintf(f->refusal, sizeof f->refusal, "it answered %s",
                       reply->type == REDIS_REPLY_NIL ? "nil" : "0");
    }
}

static void on_answer(struct fli_redis_request *base, struct fli_server *s, const redisReply *reply)
{
    struct question_request *q = FLI_CONTAINER_OF(base, struct question_request, base);
    struct check *c = q->check;
    if (c->wait != NULL) {
        struct fli_facts *f = &c->facts[q->index];
        c->left--;
        f->heard = f->heard || reply != NULL;
        if (reply != NULL) {
            take_trial(f, q->question, reply);
        }
        if (reply != NULL && reply->type == REDIS_REPLY_STRING) {
            fli_facts_take_info(f, reply->str, reply->len);
        } else if (reply != NULL && q->question == ASK_FSYNC && reply->type == REDIS_REPLY_ARRAY &&
                   reply->elements == 2 && reply->element[1]->type == REDIS_REPLY_STRING) {
            fli_copy_text(f->fsync, sizeof f->fsync, reply->element[1]->str,
                          reply->element[1]->len);
        }
        end_if_complete(c);
    }
    unref(c);
}

static int put(struct check *c, const struct fli_server *s, enum question question,
               struct fli_buf *out)
{
    static const char *const info[] = {"INFO"};
    static const char *const fsync[] = {"CONFIG", "GET", "appendfsync"};
    const struct fli_slice key = {(const uint8_t *)c->key, c->key_len};
    switch (question) {
    case ASK_SET:
        return fli_put_set(out, key, c->value, SCRATCH_TTL_MS);
    case ASK_EXTEND:
        return fli_put_extend(out, key, c->value, SCRATCH_TTL_MS);
    case ASK_RELEASE:
        return fli_put_release(out, key, c->value, s->delete_how);
    default:
        return question == ASK_INFO ? fli_put_words(out, 1, info) : fli_put_words(out, 3, fsync);
    }
}

static void ask(struct check *c, struct fli_server *s)
{
    struct fli_buf *text = &c->r->text;
    for (int i = 0; i < QUESTIONS; i++) {
        struct question_request *q = &c->questions[s->index][i];
        q->base.answered = on_answer;
        q->check = c;
        q->index = s->index;
        q->question = (enum question)i;
        fli_buf_clear(text);
        if (put(c, s, q->question, text) == 0 &&
            fli_server_put(s, &q->base, text, fli_clock_ns()) == 0) {
            c->refs++;
            c->left++;
        }
    }
}

static void on_due(struct fli_due *d, uint64_t now_ms)
{
    end(FLI_CONTAINER_OF(d, struct check, due));
}

void fli_checks_server_changed(struct fli_server *s)
{
    FLI_LIST_FOREACH_SAFE(node, next, &s->r->checks)
    {
        struct check *c = FLI_CONTAINER_OF(node, struct check, node);
        if (c->unsettled[s->index] && s->state == FLI_SERVER_READY) {
            ask(c, s);
        }
        c->unsettled[s->index] = false;
        end_if_complete(c);
    }
}

void fli_checks_end(struct fli_redlock *r)
{
    FLI_LIST_FOREACH_SAFE(node, next, &r->checks)
    {
        end(FLI_CONTAINER_OF(node, struct check, node));
    }
}

static struct check *begin(struct fli_redlock *r, uint64_t timeout_ms, struct fli_wait *w)
{
    struct check *c = calloc(1, sizeof *c);
    struct fli_dues *dues = &r->engine->dues;
    if (c == NULL || fli_due_add(dues, &c->due, on_due) != 0) {
        free(c);
        return NULL;
    }
    c->r = r;
    c->refs = 1;
    c->wait = w;
    char name[64];
    fli_random_hex(c->value, FL_REDLOCK_VALUE_LEN / 2);
    int len = snprintf(name, sizeof name, "fencelock-check-%s", c->value);
    c->key_len = fli_make_key(r, (struct fl_bytes){name, (size_t)len}, c->key);
    fli_due_set(dues, &c->due, fli_clock_ms() + timeout_ms);
    fli_list_push(&r->checks, &c->node);
    for (uint32_t i = 0; i < r->n; i++) {
        struct fli_server *s = &r->servers[i];
        fli_facts_init(&c->facts[i]);
        c->unsettled[i] = s->state == FLI_SERVER_OPENING || !s->settled;
        if (s->state == FLI_SERVER_READY) {
            ask(c, s);
        }
    }
    end_if_complete(c);
    fli_engine_wake(r->engine);
    return c;
}

static int check(fl_client *client, const struct fl_redlock_check_options *o,
                 struct fl_redlock_check_report *ret)
{
    struct fli_redlock *r = fli_redlock_of(client);
    const struct fli_fitness_rules rules = {.eviction_allowed = o->eviction_allowed,
                                            .restarts_are_safe = r->restarts_are_safe};
    uint64_t timeout_ms = o->timeout_ms != 0 ? o->timeout_ms : r->connect_ms + r->budget_ms;
    struct fli_wait w;
    fli_wait_init(&w, client);
    struct check *c = begin(r, timeout_ms, &w);
    if (c == NULL) {
        return fli_fail(client, FL_ENOMEM, "out of memory");
    }
    int rc = fli_wait(client, &w) ? 0 : FL_EUNCERTAIN;
    end(c);
    if (rc == 0) {
        complete_facts(c);
        bool fit = fli_fitness(c->facts, r->n, &rules, ret);
        rc = fit ? 0 : fli_fail(client, FL_EDENIED, "the servers are not fit for Redlock");
    }
    unref(c);
    return rc;
}

int fl_redlock_check(fl_client *client, const struct fl_redlock_check_options *options,
                     struct fl_redlock_check_report *ret)
{
    static const struct fl_redlock_check_options defaults;
    const struct fl_redlock_check_options *o = options != NULL ? options : &defaults;
    int rc = fli_redlock_enter(client);
    if (rc != 0) {
        return rc;
    }
    rc = o->timeout_ms > FL_REDLOCK_TIME_MAX_MS
             ? fli_fail(client, FL_EINVAL, "a timeout is at most a day")
             : check(client, o, ret);
    fli_client_leave(client);
    return rc;
}
