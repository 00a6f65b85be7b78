/* trial.c: see trial.h. */
#include "frontdoor/trial.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "frontdoor/normal.h"

/* The lock before the request. */
enum step { FREE, ANOTHERS, ITS_OWN, TWICE, OVER, STEPS };
static const char *const step_names[STEPS] = {"a free lock", "another holder's", "its own",
                                              "its own, taken twice", "its own, but over"};

/* What the words of a request say that it does. */
enum { ENDS = 1, TAKES = 2, PROLONGS = 4, COUNTS = 8, COMPARES = 16 };

struct hold {
    uint64_t token, deadline_ms; /* no token: nobody holds it */
    uint32_t count;
    struct fli_slice owner;
    uint8_t room[FL_OWNER_MAX];
};

struct trial {
    const struct frontdoor_monitored *m;
    struct frontdoor_request q;
    unsigned words;
    struct machine *machine;
    uint64_t clock_ms, sequence;
    struct fli_buf bytes, payload;
    struct hold before[STEPS], after[STEPS];
    struct fli_slice answers[STEPS];
    uint8_t room[STEPS][48]; /* of the answers, without their end */
};

/* ---- words ----------------------------------------------------------------------------------- */

static const struct {
    const char *word;
    unsigned says;
} said_by[] = {
    {"del", ENDS},           {"unlink", ENDS},      {"hdel", ENDS},
    {"set", TAKES},          {"setnx", TAKES},      {"setex", TAKES},
    {"psetex", TAKES},       {"mset", TAKES},       {"msetnx", TAKES},
    {"hset", TAKES},         {"hsetnx", TAKES},     {"hincrby", TAKES | COUNTS},
    {"expire", PROLONGS},    {"pexpire", PROLONGS}, {"expireat", PROLONGS},
    {"get", COMPARES},       {"mget", COMPARES},    {"getrange", COMPARES},
    {"exists", COMPARES},    {"hget", COMPARES},    {"hexists", COMPARES | COUNTS},
    {"pexpireat", PROLONGS},
};

static bool has_word(const char *tokens, const char *word)
{
    char line[16];
    (void)snprintf(line, sizeof line, "\n'%s\n", word);
    return strstr(tokens, line) != NULL;
}

static unsigned words_of_script(struct fli_slice text)
{
    size_t size = 2 * text.len + 2;
    char *tokens = fli_xmalloc(size);
    unsigned ret = 0;
    if (frontdoor_normal_print(text, tokens, size)) {
        for (size_t i = 0; i < sizeof said_by / sizeof said_by[0]; i++) {
            ret |= has_word(tokens, said_by[i].word) ? said_by[i].says : 0;
        }
    }
    free(tokens);
    /* A script that gives a lock back sets a key only to be remembered, and prolongs what is
     * left. */
    return (ret & ENDS) != 0    ? ret & ~(unsigned)(TAKES | PROLONGS)
           : (ret & TAKES) != 0 ? ret & ~(unsigned)PROLONGS
                                : ret;
}

static unsigned words_of(const struct frontdoor_context *c, enum fli_command_id id,
                         const struct frontdoor_monitored *m)
{
    uint8_t sha1[FLI_SHA1_SIZE];
    switch (id) {
    case FLI_CMD_EVAL:
        return words_of_script(m->words[1]);
    case FLI_CMD_EVALSHA: {
        const struct frontdoor_form *f =
            fli_sha1_parse(m->words[1], sha1) ? frontdoor_scripts_find(c->scripts, sha1) : NULL;
        FLI_ASSERT(f != NULL); /* it was parsed */
        return words_of_script((struct fli_slice){(const uint8_t *)f->script, strlen(f->script)});
    }
    case FLI_CMD_KEY_SET:
        return TAKES | COMPARES;
    case FLI_CMD_DELEX:
    case FLI_CMD_DELIFEQ:
        return ENDS | COMPARES;
    case FLI_CMD_HEXISTS:
    case FLI_CMD_HGET:
        return COUNTS | COMPARES;
    default:
        return COMPARES;
    }
}

/* ---- the machine ----------------------------------------------------------------------------- */

static struct machine_result send(struct trial *t, struct machine_command *c)
{
    static const uint8_t header[MACHINE_BATCH_HEADER_SIZE];
    struct machine_result r = {.code = 0};
    struct machine_batch_header h = {
        .count = 1, .timestamp_ms = t->clock_ms, .term = 1, .sequence = ++t->sequence};
    fli_buf_clear(&t->bytes);
    fli_buf_clear(&t->payload);
    if (MACHINE_OP_IS_QUERY(c->op)) {
        return machine_query(t->machine, c, t->clock_ms, &r, &t->payload) == 0
                   ? r
                   : (struct machine_result){.code = 0};
    }
    (void)!machine_fill_in(t->machine, c, t->clock_ms);
    int rc = fli_buf_append(&t->bytes, header, sizeof header);
    rc = rc != 0 ? rc : machine_command_encode(c, &t->bytes);
    rc = rc != 0 ? rc : fli_buf_reserve(&t->bytes, 8);
    if (rc == 0) {
        h.length = (uint32_t)t->bytes.len;
        rc = machine_apply(t->machine, t->bytes.data, machine_batch_seal(t->bytes.data, &h), &r);
    }
    return rc == 0 ? r : (struct machine_result){.code = 0};
}

static struct fli_slice payload(const struct trial *t)
{
    return (struct fli_slice){t->payload.data, t->payload.len};
}

static void inspect(struct trial *t, struct hold *ret)
{
    struct frontdoor_answers unused;
    struct machine_command c = frontdoor_fetch(t->q.keys[0], &unused);
    struct machine_result r = send(t, &c);
    *ret = (struct hold){.token = r.token, .deadline_ms = r.deadline_ms};
    FLI_ASSERT(t->payload.len <= sizeof ret->room);
    ret->owner = (struct fli_slice){ret->room, t->payload.len};
    if (t->payload.len > 0) {
        memcpy(ret->room, t->payload.data, t->payload.len);
        c.flags = MACHINE_KEYS_COUNT;
        c.label = ret->owner;
        r = send(t, &c);
        ret->count = r.code == MACHINE_DONE ? r.number : 0;
    }
}

/* The leases are the shortest, so that each prolongation is seen. */
static void take(struct trial *t, struct fli_slice key, struct fli_slice owner)
{
    bool counts = (t->words & COUNTS) != 0;
    struct machine_command c = {.op = MACHINE_OP_KEYS,
                                .flags = MACHINE_KEYS_GRANT,
                                .n_names = 1,
                                .permits = 1,
                                .name = key,
                                .owner = owner,
                                .ttl_ms = FL_TTL_MIN_MS};
    c.flags |= counts ? MACHINE_KEYS_COUNT | MACHINE_KEYS_EXTEND : 0;
    (void)send(t, &c);
}

static void take_all(struct trial *t, enum step step)
{
    static const char other[] = "another holder";
    const struct frontdoor_request *q = &t->q;
    bool own = step != ANOTHERS && q->value.len > 0;
    unsigned n = q->answers.n_each > 0 ? q->answers.n_each : q->n_keys;
    for (unsigned i = 0; i < n && step != FREE; i++) {
        bool each = q->answers.n_each > 0;
        struct fli_slice key = each ? q->each_keys[i] : q->keys[i];
        struct fli_slice owner = each ? q->each_values[i] : q->value;
        owner = own ? owner : (struct fli_slice){(const uint8_t *)other, sizeof other - 1};
        take(t, key, owner);
        if (step == TWICE) {
            take(t, key, owner);
        }
    }
}

static void end_leases(struct trial *t)
{
    struct machine_command c;
    t->clock_ms += FL_TTL_MIN_MS + 1;
    while (machine_lease_give_up(t->machine, t->clock_ms, &c)) {
        (void)send(t, &c);
    }
}

static void answer(struct trial *t, enum step step)
{
    uint8_t room[FRONTDOOR_ROOM];
    struct frontdoor_answers answers = t->q.answers;
    struct frontdoor_result result;
    struct machine_command c = frontdoor_command(&t->q, room);
    struct machine_result r = send(t, &c);
    if (t->q.fetches && r.code == MACHINE_HELD && r.token == 0) {
        c = frontdoor_fetch(t->q.keys[0], &answers);
        r = send(t, &c);
    }
    bool known = frontdoor_result_of(&r, payload(t), t->q.value, &result);
    fli_buf_clear(&t->bytes);
    if (known && frontdoor_reply(&t->bytes, 2, &answers, &result) == 0) {
        size_t len = t->bytes.len - 2;
        len = len < sizeof t->room[step] ? len : sizeof t->room[step];
        for (size_t i = 0; i < len; i++) {
            uint8_t b = t->bytes.data[i];
            t->room[step][i] = b >= ' ' && b < 0x7f ? b : ' ';
        }
        t->answers[step] = (struct fli_slice){t->room[step], len};
    }
}

static void run(struct trial *t, enum step step)
{
    static const uint64_t seed[2] = {1, 2};
    t->machine = machine_create(seed);
    t->clock_ms = 1000;
    t->sequence = 0;
    take_all(t, step);
    t->clock_ms++;
    inspect(t, &t->before[step]);
    if (step == OVER) {
        end_leases(t);
    }
    answer(t, step);
    inspect(t, &t->after[step]);
    machine_destroy(t->machine);
}

/* ---- the check ------------------------------------------------------------------------------- */

static bool same(struct fli_slice a, struct fli_slice b)
{
    return fli_bytes_cmp(a.data, a.len, b.data, b.len) == 0;
}

static bool unchanged(const struct trial *t, enum step step)
{
    const struct hold *a = &t->before[step];
    const struct hold *b = &t->after[step];
    return a->token == b->token && a->deadline_ms == b->deadline_ms && a->count == b->count &&
           same(a->owner, b->owner);
}

static const char *check_taking(const struct trial *t, enum step step)
{
    const struct hold *h = &t->after[step];
    struct fli_slice owner = t->q.new_value.len > 0 ? t->q.new_value : t->q.value;
    if (h->token == 0) {
        return step == OVER && t->after[FREE].token != 0 ? "it is not taken" : NULL;
    }
    if ((t->words & TAKES) == 0) {
        return "it is taken, though nothing in the request takes a lock";
    }
    if (!same(h->owner, owner)) {
        return "it is taken for another value";
    }
    if (step == OVER && h->token <= t->before[OVER].token) {
        return "its token is not above the last one";
    }
    return (t->words & COUNTS) != 0 && h->count != 1 ? "it is not counted" : NULL;
}

static const char *check_own(const struct trial *t)
{
    const struct hold *a = &t->before[ITS_OWN];
    const struct hold *b = &t->after[ITS_OWN];
    bool prolonged = b->deadline_ms > a->deadline_ms;
    if ((t->words & ENDS) != 0) {
        return b->token != 0 ? "it is not given back" : NULL;
    }
    if (b->token == 0) {
        return "it is given back, though nothing in the request does that";
    }
    if (t->q.new_value.len > 0) {
        return same(b->owner, t->q.new_value) ? NULL : "it does not go to the new value";
    }
    if (b->token != a->token) {
        return "it is not the same hold any more";
    }
    if ((t->words & (TAKES | PROLONGS)) == 0) {
        return unchanged(t, ITS_OWN) ? NULL : "it changes, though nothing in the request does that";
    }
    if ((t->words & (TAKES | COUNTS)) == (TAKES | COUNTS) && prolonged && b->count != 2) {
        return "it is not counted";
    }
    /* SET with KEEPTTL prolongs nothing. */
    bool to_prolong = (t->words & PROLONGS) != 0 || (t->after[FREE].token == 0 && t->q.ttl_ms > 0);
    return to_prolong && !prolonged ? "its lease is not prolonged" : NULL;
}

static const char *check_answer(const struct trial *t, enum step step)
{
    static const char none[] = "-ERR the leader's answer fits no";
    struct fli_slice a = t->answers[step];
    bool asks = unchanged(t, ITS_OWN) && t->after[FREE].token == 0;
    bool done = step == FREE ? t->after[FREE].token != 0 || (asks && t->q.value.len == 0)
                             : step == ITS_OWN && (asks ? t->q.value.len > 0 : !unchanged(t, step));
    if (a.len == 0 || (a.len > sizeof none - 1 && memcmp(a.data, none, sizeof none - 1) == 0)) {
        return "there is no answer to it";
    }
    return done && unchanged(t, ANOTHERS) && same(a, t->answers[ANOTHERS])
               ? "the answer is the same as for another holder's lock"
               : NULL;
}

static const char *check_step(const struct trial *t, enum step step)
{
    const char *why = NULL;
    if (step == FREE || step == OVER) {
        why = check_taking(t, step);
    } else if (step == ITS_OWN) {
        why = check_own(t);
    } else if (step == TWICE && t->after[step].count != 1) {
        why = "it is not given back once, of two times";
    } else if (step == ANOTHERS && !unchanged(t, step) &&
               ((t->words & COMPARES) != 0 || t->q.value.len > 0)) {
        why = "it is changed";
    }
    return why != NULL ? why : check_answer(t, step);
}

static const char *effect(const struct trial *t, enum step step)
{
    const struct hold *a = &t->before[step];
    const struct hold *b = &t->after[step];
    if (step == FREE || step == OVER) {
        return b->token != 0 ? "taken" : "stays free";
    }
    if (b->token == 0) {
        return "given back";
    }
    return b->token != a->token               ? "handed over"
           : b->count < a->count              ? "given back once"
           : b->deadline_ms != a->deadline_ms ? "prolonged"
                                              : "stays as it is";
}

bool frontdoor_try(const struct frontdoor_context *c, const struct frontdoor_monitored *m,
                   struct frontdoor_trial *ret)
{
    const struct fli_command *command = NULL;
    char errmsg[FRONTDOOR_ERRMSG_SIZE];
    unsigned n = 0;
    if (fli_command_lookup(FLI_SERVICE_LOCK, m->words, m->n, &command, &n, errmsg, sizeof errmsg) !=
            0 ||
        (command->flags & FLI_CMD_FRONTDOOR) == 0) {
        return false;
    }
    struct trial *t = fli_xcalloc(1, sizeof *t);
    bool is = frontdoor_request_parse(c, command->id, m->words + n, m->n - n, &t->q, errmsg) == 0 &&
              !t->q.waits;
    *ret = (struct frontdoor_trial){.holds = true};
    if (is) {
        t->words = words_of(c, command->id, m);
        fli_buf_init(&t->bytes, MACHINE_BATCH_HEADER_SIZE + MACHINE_COMMAND_LARGEST + 8);
        fli_buf_init(&t->payload, MACHINE_PAGE_SIZE_MAX);
    }
    for (unsigned step = 0; is && step < STEPS; step++) {
        run(t, step);
    }
    size_t len = 0;
    for (unsigned step = 0; is && step < STEPS; step++) {
        if (step == TWICE && (t->words & (ENDS | COUNTS)) != (ENDS | COUNTS)) {
            continue;
        }
        const char *why = check_step(t, step);
        len += (size_t)snprintf(ret->saw + len, sizeof ret->saw - len, "%s%s: %s (%.*s)",
                                step == 0 ? "" : "; ", step_names[step], effect(t, step),
                                (int)t->answers[step].len, t->answers[step].data);
        if (why != NULL && ret->holds) {
            ret->holds = false;
            (void)snprintf(ret->why, sizeof ret->why, "%s: %s", step_names[step], why);
        }
    }
    fli_buf_fini(&t->bytes);
    fli_buf_fini(&t->payload);
    free(t);
    return is;
}
