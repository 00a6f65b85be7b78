/* reenter.c: clients that take one lock several times and give it back as often, as Redisson does:
 * with scripts of the front door that come to KEYS with COUNT. They have no part in the locks of
 * the other clients. A request without an answer is sent again, to any node; the label of LEAVE
 * tells a repetition from a new request.
 *
 * This file keeps its own account, and judges by it when an entry is first applied and when an
 * answer comes:
 *
 *   - a lock has one owner; ENTER counts up for that owner only, and tells others until when
 *   - LEAVE counts down; the last one frees the lock, as the end of its lease does
 *   - a label counts once: a repetition gets the first answer and changes nothing
 *   - an owner whose every request was answered knows its count: it is free at the last LEAVE,
 *     not before and not after, unless its lease had ended
 *   - one token for a hold, larger than all before; no lease ends before its time
 *   - what the machine says is what the client reads */
#include "reenter.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "frontdoor/scripts.h"
#include "keyed.h"
#include "machine/batch.h"
#include "scripts.h"
#include "wire/resp.h"

#define LOCKS 2u
#define PERCENT 35u /* of the seeds */
#define DEPTH_MAX 4u
#define LEAVE_TRIES 12u
#define KEEP_MS 30000u /* a LEAVE is remembered */
#define LABEL_MAX 20u

struct label {
    unsigned lock;
    uint8_t bytes[LABEL_MAX];
    bool gave_back;
    uint64_t until_ms;
};

/* A lock, as the log says. */
struct hold {
    unsigned count; /* 0: free */
    unsigned actor;
    uint64_t life; /* of the actor's owner */
    uint64_t token, base_at, ttl_ms, promised_ms;
    bool granted, ended; /* by an event of the command that is being applied */
};

struct actor {
    struct sim_scripter base;
    uint64_t life; /* counts owners: one that does not know its count is not used any more */
    unsigned lock, depth;
    uint64_t ttl_ms;
    bool expired;           /* the lease of what it was told it has has ended, in the log */
    uint64_t expired_token; /* the last hold of this owner whose lease has ended, in the log */
    bool leaving;           /* what is outstanding */
    uint64_t leaves;
};

struct sim_reenter {
    struct actor actors[SIM_SCRIPTERS];
    struct hold holds[LOCKS];
    struct label *labels;
    size_t labels_n, labels_cap;
    struct frontdoor_scripts *scripts;
    struct frontdoor_context frontdoor;
    const char *enter, *leave;
    struct sim_keyed *keyed; /* NULL: not in this seed */
};

/* ---- the log --------------------------------------------------------------------------------- */

bool sim_reenter_is_of(struct fli_slice name)
{
    return (name.len == 2 && name.data[0] == 'T') || sim_keyed_is_of(name);
}

static struct hold *hold_of(struct sim *s, struct fli_slice name)
{
    unsigned lock = (unsigned)(name.data[1] - '0');
    SIM_CHECK(s, s->reenter != NULL && lock < LOCKS, "an event of an unknown lock");
    return &s->reenter->holds[lock];
}

/* Owners are "r<actor>.<life>". */
static struct actor *actor_of(struct sim *s, struct fli_slice owner, uint64_t *ret_life)
{
    SIM_CHECK(s,
              owner.len > 3 && owner.data[0] == 'r' &&
                  fli_parse_u64(owner.data + 3, owner.len - 3, UINT64_MAX, ret_life),
              "a lock that is taken several times has an unknown owner");
    return &s->reenter->actors[(owner.data[1] - '0') % SIM_SCRIPTERS];
}

static void granted(struct sim *s, const struct machine_event *e, struct hold *h)
{
    uint64_t life;
    struct actor *a = actor_of(s, e->owner, &life);
    SIM_CHECK(s, h->count == 0, "lock T%td is granted while it is held", h - s->reenter->holds);
    SIM_CHECK(s, e->token > s->oracle.token_max, "token %llu is granted after %llu",
              (unsigned long long)e->token, (unsigned long long)s->oracle.token_max);
    (void)sim_oracle_issue(s, e->token, 0);
    *h = (struct hold){.count = 1,
                       .actor = a->base.index,
                       .life = life,
                       .token = e->token,
                       .base_at = s->oracle.last_seal.at,
                       .ttl_ms = e->deadline_ms - e->clock_ms,
                       .promised_ms = e->deadline_ms,
                       .granted = true};
    s->marks->entered++;
    SIM_TRACE(s, "T%td is granted to r%u.%llu, token %llu, until %llu", h - s->reenter->holds,
              a->base.index, (unsigned long long)life, (unsigned long long)e->token,
              (unsigned long long)e->deadline_ms);
}

void sim_reenter_event(struct sim *s, const struct machine_event *e)
{
    if (sim_keyed_is_of(e->name)) {
        sim_keyed_event(sim_keyed_of(s), e);
        return;
    }
    struct hold *h = hold_of(s, e->name);
    if (e->type == MACHINE_EVENT_GRANTED) {
        granted(s, e, h);
        return;
    }
    SIM_CHECK(s, e->type == MACHINE_EVENT_RELEASED || e->type == MACHINE_EVENT_EXPIRED,
              "an event of kind %u of a lock that is taken several times", e->type);
    SIM_CHECK(s, h->count > 0 && h->token == e->token, "a hold ends that never began");
    SIM_TRACE(s, "T%td, token %llu: %s", h - s->reenter->holds, (unsigned long long)e->token,
              e->type == MACHINE_EVENT_EXPIRED ? "its lease ends" : "it is given back");
    if (e->type == MACHINE_EVENT_EXPIRED) {
        struct actor *a = &s->reenter->actors[h->actor];
        sim_order_expires(s, e, h->base_at, h->ttl_ms, h->promised_ms);
        if (a->life == h->life) {
            a->expired = true;
            a->expired_token = e->token;
        }
        s->marks->entered_expired++;
    } else {
        SIM_CHECK(s, h->count == 1, "a lock that was taken %u times is freed", h->count);
        h->ended = true;
    }
    h->count = 0;
}

static bool limited(const struct sim *s, const struct machine_result *r)
{
    return r->code == MACHINE_LIMIT &&
           s->options.limits.locks_max != MACHINE_LIMITS_DEFAULT.locks_max;
}

static void prolonged(struct sim *s, struct hold *h, const struct machine_command *c,
                      const struct machine_result *r)
{
    uint64_t until_ms = s->oracle.last_timestamp_ms + c->ttl_ms;
    SIM_CHECK(s, r->deadline_ms >= until_ms && r->deadline_ms >= h->promised_ms,
              "token %llu is prolonged to %llu, asked for was %llu, promised %llu",
              (unsigned long long)h->token, (unsigned long long)r->deadline_ms,
              (unsigned long long)until_ms, (unsigned long long)h->promised_ms);
    h->base_at = s->oracle.last_seal.at;
    h->ttl_ms = c->ttl_ms;
    h->promised_ms = r->deadline_ms;
}

static void entered(struct sim *s, struct hold *h, bool own, const struct machine_command *c,
                    const struct machine_result *r)
{
    if (limited(s, r)) {
        SIM_CHECK(s, !h->granted, "a lock is granted, and a limit is said to be reached");
    } else if (h->granted) {
        SIM_CHECK(s, own && r->code == MACHINE_GRANTED && r->token == h->token,
                  "ENTER of a free lock comes to %u", r->code);
    } else if (own) {
        SIM_CHECK(s, r->code == MACHINE_DONE && r->number == h->count + 1 && r->token == h->token,
                  "ENTER of one's own lock comes to %u, count %u", r->code, r->number);
        h->count++;
        prolonged(s, h, c, r);
        s->marks->reentered++;
    } else {
        SIM_CHECK(s, h->count > 0 && r->code == MACHINE_HELD, "ENTER comes to %u, and %s", r->code,
                  h->count > 0 ? "another has the lock" : "it is free");
    }
}

static struct label *label_of(struct sim *s, unsigned lock, struct fli_slice bytes)
{
    struct sim_reenter *re = s->reenter;
    for (size_t i = re->labels_n; i > 0; i--) {
        struct label *l = &re->labels[i - 1];
        if (l->lock == lock && memcmp(l->bytes, bytes.data, LABEL_MAX) == 0) {
            return l->until_ms >= s->oracle.last_timestamp_ms ? l : NULL;
        }
    }
    return NULL;
}

static void remember(struct sim *s, unsigned lock, const struct machine_command *c, bool gave_back)
{
    struct sim_reenter *re = s->reenter;
    re->labels = sim_grow(re->labels, &re->labels_cap, re->labels_n + 1, sizeof *re->labels);
    struct label *l = &re->labels[re->labels_n++];
    *l = (struct label){
        .lock = lock, .gave_back = gave_back, .until_ms = s->oracle.last_timestamp_ms + c->number};
    memcpy(l->bytes, c->label.data, LABEL_MAX);
}

static void left(struct sim *s, struct hold *h, bool own, const struct machine_command *c,
                 const struct machine_result *r)
{
    unsigned lock = (unsigned)(h - s->reenter->holds);
    SIM_CHECK(s, c->label.len == LABEL_MAX, "LEAVE has a label of %zu bytes", c->label.len);
    const struct label *before = label_of(s, lock, c->label);
    if (before != NULL) {
        SIM_CHECK(s, r->code == MACHINE_DONE && r->number == before->gave_back && !h->ended,
                  "a LEAVE that was carried out comes to %u, %u when it is sent again", r->code,
                  r->number);
        s->marks->left_again++;
    } else if (h->ended) {
        SIM_CHECK(s, own && r->code == MACHINE_DONE && r->number == 1,
                  "LEAVE frees a lock and comes to %u, %u", r->code, r->number);
        remember(s, lock, c, true);
        s->marks->left++;
    } else if (limited(s, r)) {
        return;
    } else if (own && h->count > 0) {
        SIM_CHECK(s, h->count > 1 && r->code == MACHINE_DONE && r->number == 0,
                  "LEAVE of a lock that was taken %u times comes to %u, %u", h->count, r->code,
                  r->number);
        h->count--;
        prolonged(s, h, c, r);
        remember(s, lock, c, false);
    } else {
        SIM_CHECK(s, r->code == (h->count > 0 ? MACHINE_HELD : MACHINE_NO),
                  "LEAVE of a lock that is not one's own comes to %u", r->code);
    }
}

void sim_reenter_applied(struct sim *s, const struct machine_command *c,
                         const struct machine_result *r)
{
    sim_keyed_applied(sim_keyed_of(s), c, r);
    if (s->reenter == NULL || c->op != MACHINE_OP_KEYS || (c->flags & MACHINE_KEYS_COUNT) == 0) {
        return;
    }
    uint64_t life;
    const struct actor *a = actor_of(s, c->owner, &life);
    struct hold *h = hold_of(s, c->name);
    bool own = h->actor == a->base.index && h->life == life && (h->count > 0 || h->ended);
    ((c->flags & MACHINE_KEYS_GRANT) != 0 ? entered : left)(s, h, own, c, r);
    h->granted = h->ended = false;
}

/* ---- requests -------------------------------------------------------------------------------- */

static void put_script(struct fli_buf *b, unsigned words, const char *script, unsigned keys)
{
    int rc = fli_resp_array(b, words);
    rc = rc != 0 ? rc : fli_resp_text(b, "EVAL");
    rc = rc != 0 ? rc : fli_resp_text(b, script);
    FLI_ASSERT(rc == 0);
    sim_put_word(b, "%u", keys);
}

static void write_request(struct sim_scripter *p, const struct sim_node *to, struct fli_buf *b)
{
    const struct sim_reenter *re = p->sim->reenter;
    const struct actor *a = FLI_CONTAINER_OF(p, struct actor, base);
    SIM_TRACE(p->sim, "r%u.%llu asks node %u: %s %llu of T%u", p->index,
              (unsigned long long)a->life, to->index + 1, a->leaving ? "LEAVE" : "ENTER",
              (unsigned long long)p->serial, a->lock);
    if (!a->leaving) {
        put_script(b, 6, re->enter, 1);
        sim_put_word(b, "T%u", a->lock);
        sim_put_word(b, "%llu", (unsigned long long)a->ttl_ms);
        sim_put_word(b, "r%u.%llu", a->base.index, (unsigned long long)a->life);
        return;
    }
    put_script(b, 8, re->leave, 2);
    sim_put_word(b, "T%u", a->lock);
    sim_put_word(b, "unlock-%u.%llu", a->base.index, (unsigned long long)a->leaves);
    sim_put_word(b, "%llu", (unsigned long long)a->ttl_ms);
    sim_put_word(b, "r%u.%llu", a->base.index, (unsigned long long)a->life);
    sim_put_word(b, "%u", KEEP_MS);
}

/* ---- answers --------------------------------------------------------------------------------- */

/* It does not know what it has: another owner takes its place. */
static void become_another(struct actor *a)
{
    a->life++;
    a->depth = 0;
    a->expired = false;
    sim_scripter_rest(&a->base);
}

static bool says_nil(const char *data, size_t len)
{
    return len == 5 && memcmp(data, "$-1\r\n", 5) == 0;
}

static bool says_number(const char *data, size_t len, uint64_t n)
{
    char text[32];
    size_t want = (size_t)snprintf(text, sizeof text, ":%llu\r\n", (unsigned long long)n);
    return len == want && memcmp(data, text, want) == 0;
}

static void enter_told(struct actor *a, const struct machine_result *r, const char *data,
                       size_t len)
{
    struct sim *s = a->base.sim;
    bool done = r->code == MACHINE_GRANTED || r->code == MACHINE_DONE;
    SIM_CHECK(s, done ? says_nil(data, len) : data[0] == (r->code == MACHINE_HELD ? ':' : '-'),
              "the answer %.*s is made of %u", (int)len, data, r->code);
    if (r->code == MACHINE_GRANTED) {
        SIM_CHECK(s, a->depth == 0 || a->expired, "an owner that holds its lock is granted it");
        a->depth = 1;
        a->expired = a->expired_token == r->token; /* the answer may come later than that end */
    } else if (r->code == MACHINE_DONE) {
        SIM_CHECK(s, r->number == a->depth + 1,
                  "an owner that has taken its lock %u times has now taken it %u times", a->depth,
                  r->number);
        a->depth++;
    } else if (a->depth > 0 && r->code == MACHINE_HELD) {
        SIM_CHECK(s, a->expired, "an owner that holds its lock is told that another has it");
        a->depth = 0;
    }
    sim_scripter_rest(&a->base);
}

static void leave_told(struct actor *a, const struct machine_result *r, const char *data,
                       size_t len)
{
    struct sim *s = a->base.sim;
    if (r->code == MACHINE_LIMIT) {
        become_another(a);
        return;
    }
    bool done = r->code == MACHINE_DONE;
    SIM_CHECK(s, done ? says_number(data, len, r->number) : says_nil(data, len),
              "the answer %.*s is made of %u, %u", (int)len, data, r->code, r->number);
    SIM_CHECK(s, done || a->expired, "LEAVE finds the lock lost, and its lease has not ended");
    SIM_CHECK(s, !done || r->number == (a->depth == 1),
              "LEAVE of a lock that was taken %u times says %u", a->depth, r->number);
    a->leaving = false;
    a->depth = done && r->number == 0 ? a->depth - 1 : 0;
    if (a->depth == 0 || a->expired) {
        become_another(a);
        return;
    }
    sim_scripter_rest(&a->base);
}

/* r: what the machine said; NULL: nobody knows, or the node has not asked it. */
static void told(struct sim *s, uint64_t serial, const struct machine_result *r, const void *data,
                 size_t len)
{
    struct actor *a = &s->reenter->actors[serial % SIM_SCRIPTERS];
    const char *text = data;
    if (!sim_scripter_hears(&a->base, serial, r, data, len)) {
        return;
    }
    SIM_TRACE(s, "r%u.%llu has T%u %u times and hears of %s %llu: %d, %u", a->base.index,
              (unsigned long long)a->life, a->lock, a->depth, a->leaving ? "LEAVE" : "ENTER",
              (unsigned long long)serial, r != NULL ? (int)r->code : -1, r != NULL ? r->number : 0);
    bool unknown = r == NULL && (len == 0 || strncmp(text, "-UNCERTAIN", 10) == 0);
    if (r != NULL) {
        (a->leaving ? leave_told : enter_told)(a, r, text, len);
    } else if (a->leaving && a->base.tries < LEAVE_TRIES) {
        sim_scripter_ask(&a->base); /* once more: the label says that it is the same */
    } else if (unknown || a->leaving) {
        a->leaving = false;
        become_another(a);
    } else {
        sim_scripter_rest(&a->base);
    }
}

/* ---- who asks -------------------------------------------------------------------------------- */

static void act(struct sim_scripter *p)
{
    struct actor *a = FLI_CONTAINER_OF(p, struct actor, base);
    struct sim *s = a->base.sim;
    if (a->base.waiting) {
        return;
    }
    if (a->depth == 0) {
        if (s->healed) {
            return;
        }
        a->lock = (unsigned)sim_scripter_below(&a->base, LOCKS);
        a->ttl_ms = SIM_TTL_MIN_MS + sim_scripter_below(&a->base, s->options.ttl_max_ms + 1000);
    }
    a->leaving = a->depth > 0 &&
                 (s->healed || a->depth == DEPTH_MAX || sim_scripter_below(&a->base, 100) < 55);
    a->leaves += a->leaving;
    a->base.tries = 0;
    sim_scripter_ask(&a->base);
}

void sim_reenter_init(struct sim *s)
{
    struct sim_random r = {s->orders.seed * UINT64_C(0xd1b54a32d192ed03) + 7};
    if (!sim_draw_chance(&r, PERCENT) || s->users.any || s->orders.scene != SIM_SCENE_NONE ||
        s->orders.scenario != SIM_SCENARIO_NONE || s->orders.sabotage != SIM_SABOTAGE_NONE) {
        return;
    }
    static const struct sim_scripter how = {.act = act, .write = write_request, .told = told};
    struct sim_reenter *re = fli_xcalloc(1, sizeof *re);
    int rc = frontdoor_scripts_create(&re->scripts);
    FLI_ASSERT(rc == 0);
    re->frontdoor.scripts = re->scripts;
    for (size_t i = 0; i < frontdoor_forms_len; i++) {
        if (strcmp(frontdoor_forms[i].name, "enter") == 0) {
            re->enter = frontdoor_forms[i].script;
        } else if (strcmp(frontdoor_forms[i].name, "leave-once-silently") == 0) {
            re->leave = frontdoor_forms[i].script;
        }
    }
    FLI_ASSERT(re->enter != NULL && re->leave != NULL);
    for (unsigned i = 0; i < SIM_SCRIPTERS; i++) {
        struct actor *a = &re->actors[i];
        *a = (struct actor){.life = 1};
        sim_scripter_init(&a->base, &how, s, i, sim_draw(&r));
    }
    re->keyed = sim_keyed_init(s, sim_draw(&r), &re->frontdoor);
    s->reenter = re;
}

struct sim_keyed *sim_keyed_of(const struct sim *s)
{
    return s->reenter == NULL ? NULL : s->reenter->keyed;
}

void sim_reenter_fini(struct sim *s)
{
    if (s->reenter != NULL) {
        sim_keyed_fini(s->reenter->keyed);
        frontdoor_scripts_destroy(s->reenter->scripts);
        free(s->reenter->labels);
        free(s->reenter);
        s->reenter = NULL;
    }
}

void sim_reenter_start(struct sim *s)
{
    for (unsigned i = 0; s->reenter != NULL && i < SIM_SCRIPTERS; i++) {
        sim_scripter_rest(&s->reenter->actors[i].base);
    }
    sim_keyed_start(sim_keyed_of(s));
}

bool sim_reenter_done(const struct sim *s)
{
    for (unsigned i = 0; s->reenter != NULL && i < SIM_SCRIPTERS; i++) {
        const struct actor *a = &s->reenter->actors[i];
        if (a->depth > 0 || !sim_scripter_is_idle(&a->base)) {
            return false;
        }
    }
    return sim_keyed_done(sim_keyed_of(s));
}

const struct frontdoor_context *sim_reenter_frontdoor(const struct sim *s)
{
    return s->reenter == NULL ? NULL : &s->reenter->frontdoor;
}

void sim_reenter_end(struct sim *s)
{
    for (unsigned i = 0; s->reenter != NULL && i < LOCKS; i++) {
        SIM_CHECK(s, s->reenter->holds[i].count == 0, "lock T%u is held at the end", i);
    }
    sim_keyed_end(sim_keyed_of(s));
}
