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
    struct fli_list in; /* in none: the check is over */
    struct check *check;
    enum question question;
};

struct check {
    struct fli_list in;
    struct fli_list open; /* questions without an answer */
    struct fli_wait wait;
    struct fli_redlock *r;
    bool unsettled[FL_REDLOCK_SERVERS_MAX]; /* its connection is still being made */
    struct fli_facts facts[FL_REDLOCK_SERVERS_MAX];
    char value[FL_REDLOCK_VALUE_LEN + 1]; /* of the scratch key */
    char key[FLI_REDIS_KEY_MAX];
    size_t key_len;
};

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

static void end_if_complete(struct check *c)
{
    bool waits = !fli_list_empty(&c->open);
    for (uint32_t i = 0; i < c->r->n; i++) {
        waits = waits || c->unsettled[i];
    }
    c->wait.over = !waits;
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

static void take_answer(struct fli_facts *f, enum question question, const redisReply *reply)
{
    f->heard = true;
    take_trial(f, question, reply);
    if (reply->type == REDIS_REPLY_STRING) {
        fli_facts_take_info(f, reply->str, reply->len);
    } else if (question == ASK_FSYNC && reply->type == REDIS_REPLY_ARRAY && reply->elements == 2 &&
               reply->element[1]->type == REDIS_REPLY_STRING) {
        fli_copy_text(f->fsync, sizeof f->fsync, reply->element[1]->str, reply->element[1]->len);
    }
}

static void on_answer(struct fli_redis_request *base, struct fli_server *s, const redisReply *reply)
{
    struct question_request *q = FLI_CONTAINER_OF(base, struct question_request, base);
    if (fli_list_linked(&q->in)) {
        fli_list_remove(&q->in);
        if (reply != NULL) {
            take_answer(&q->check->facts[s->index], q->question, reply);
        }
        end_if_complete(q->check);
    }
    free(q);
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

/* Without memory it says nothing about that. */
static void ask(struct check *c, struct fli_server *s)
{
    struct fli_buf *text = &c->r->text;
    for (int i = 0; i < QUESTIONS; i++) {
        struct question_request *q = calloc(1, sizeof *q);
        fli_buf_clear(text);
        if (q == NULL || put(c, s, (enum question)i, text) != 0 ||
            fli_server_put(s, &q->base, text, fli_clock_ns()) != 0) {
            free(q);
            continue;
        }
        q->base.answered = on_answer;
        q->check = c;
        q->question = (enum question)i;
        fli_list_init(&q->in);
        fli_list_push(&c->open, &q->in);
    }
}

void fli_checks_server_changed(struct fli_server *s)
{
    FLI_LIST_FOREACH(at, &s->r->checks)
    {
        struct check *c = FLI_CONTAINER_OF(at, struct check, in);
        if (c->unsettled[s->index] && s->state == FLI_SERVER_READY) {
            ask(c, s);
        }
        c->unsettled[s->index] = false;
        end_if_complete(c);
    }
}

static void end(struct check *c)
{
    fli_list_remove(&c->in);
    while (fli_list_pop(&c->open) != NULL) {
        /* they are their servers' */
    }
}

void fli_checks_forget(struct fli_redlock *r)
{
    struct fli_list *at;
    while ((at = fli_list_first(&r->checks)) != NULL) {
        end(FLI_CONTAINER_OF(at, struct check, in));
    }
}

static void begin(struct check *c, uint64_t timeout_ms)
{
    struct fli_redlock *r = c->r;
    char name[64];
    fli_random_hex(c->value, FL_REDLOCK_VALUE_LEN / 2);
    int len = snprintf(name, sizeof name, "fencelock-check-%s", c->value);
    c->key_len = fli_make_key(r, (struct fl_bytes){name, (size_t)len}, c->key);
    c->wait.until_ms = fli_clock_ms() + timeout_ms;
    fli_list_init(&c->open);
    fli_list_init(&c->in);
    fli_list_push(&r->checks, &c->in);
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
}

static int check(fl_client *client, const struct fl_redlock_check_options *o,
                 struct fl_redlock_check_report *ret)
{
    struct fli_redlock *r = fli_redlock_of(client);
    const struct fli_fitness_rules rules = {.eviction_allowed = o->eviction_allowed,
                                            .restarts_are_safe = r->restarts_are_safe};
    struct check *c = calloc(1, sizeof *c);
    if (c == NULL) {
        return fli_fail(client, FL_ENOMEM, "out of memory");
    }
    c->r = r;
    fli_wait_init(&c->wait, client);
    begin(c, o->timeout_ms != 0 ? o->timeout_ms : r->connect_ms + r->budget_ms);
    int rc = fli_wait(client, &c->wait) ? 0 : FL_EUNCERTAIN;
    end(c);
    if (rc == 0) {
        complete_facts(c);
        bool fit = fli_fitness(c->facts, r->n, &rules, ret);
        rc = fit ? 0 : fli_fail(client, FL_EDENIED, "the servers are not fit for Redlock");
    }
    free(c);
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
