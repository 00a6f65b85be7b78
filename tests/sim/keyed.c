/* keyed.c: clients that take locks as keys with values: SET NX, scripts that compare the value, one
 * key or two, or an owner for each. They have no part in the locks of the other clients. A request
 * without an answer is sent again, to any node; half of the runs take the nodes for several
 * servers, so that a change that was made counts as made again.
 *
 * The account here is by the log: when an entry is first applied, the state of the command's keys
 * before it says what it has to do, and what the machine has to answer.
 *
 *   - all free: granted to the value, if the form grants, each with a token above all before
 *   - all the value's: prolonged or given back, as the form says; no lease ends before its time
 *   - anything else: nothing, but for the value's own keys where the form says so
 *   - a release that was made counts as made again, for its time and where that was asked for
 *   - a lease that its leader prolongs without an entry does not end before its time either
 *   - what the machine says is what the client reads; a client whose requests were all answered
 *     knows what it has, unless a lease has ended */
#include "keyed.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "frontdoor/scripts.h"
#include "machine/batch.h"
#include "scripts.h"
#include "wire/resp.h"

#define LOCKS 3u
#define PERCENT 50u
#define TRIES 8u
#define VALUE_MAX 24u
#define RELEASES 64u /* of a key, while they are known again */

enum form { TAKE, TAKE_TWO, PROLONG, PROLONG_EACH, PROLONG_ALL, GIVE, GIVE_EACH, FORMS };
static const char *const forms[FORMS] = {NULL,         "set-all", NULL,          "renew-each",
                                         "extend-all", "release", "release-each"};

struct value {
    uint8_t len, bytes[VALUE_MAX];
};

/* A lock, as the log says. */
struct hold {
    struct value owner; /* empty: free */
    uint64_t token, base_at, ttl_ms, promised_ms;
    bool granted, ended; /* by an event of the command that is being applied */
    /* The last releases: whose, and how long each is known again. */
    struct {
        struct value owner;
        uint64_t until_ms;
    } released[RELEASES];
    unsigned releases; /* ever */
};

struct actor {
    struct sim_scripter base;
    uint64_t life;
    unsigned lock, n; /* its first key, and how many */
    enum form form;
    uint64_t ttl_ms;
    bool has;
    bool expired; /* the lease of one of its keys has ended, in the log */
};

struct sim_keyed {
    struct sim *sim;
    struct actor actors[SIM_SCRIPTERS];
    struct hold holds[LOCKS];
    const char *scripts[FORMS];
    bool shared;
};

static struct actor *actor_of(struct sim_scripter *p)
{
    return FLI_CONTAINER_OF(p, struct actor, base);
}

/* ---- the log --------------------------------------------------------------------------------- */

bool sim_keyed_is_of(struct fli_slice name)
{
    return name.len == 2 && name.data[0] == 'K';
}

static struct hold *hold_of(struct sim_keyed *k, struct fli_slice name)
{
    unsigned lock = (unsigned)(name.data[1] - '0');
    SIM_CHECK(sim_running, k != NULL && lock < LOCKS, "an event of an unknown key");
    return &k->holds[lock];
}

static bool is(const struct value *v, struct fli_slice owner)
{
    return v->len > 0 && fli_bytes_cmp(v->bytes, v->len, owner.data, owner.len) == 0;
}

static void set(struct value *v, struct fli_slice owner)
{
    FLI_ASSERT(owner.len <= VALUE_MAX);
    v->len = (uint8_t)owner.len;
    memcpy(v->bytes, owner.data, owner.len);
}

static void note_release(struct sim_keyed *k, struct hold *h, uint64_t until_ms)
{
    unsigned i = h->releases++ % RELEASES;
    SIM_CHECK(k->sim, h->released[i].until_ms <= k->sim->oracle.last_timestamp_ms,
              "more releases of a key than this account keeps");
    h->released[i].owner = h->owner;
    h->released[i].until_ms = until_ms;
}

static bool was_released(const struct sim_keyed *k, const struct hold *h, struct fli_slice owner)
{
    unsigned i = 0;
    while (i < RELEASES && (!is(&h->released[i].owner, owner) ||
                            h->released[i].until_ms < k->sim->oracle.last_timestamp_ms)) {
        i++;
    }
    return i < RELEASES;
}

/* Its holder hears of it when it asks. */
static void expired(struct sim_keyed *k, const struct hold *h)
{
    unsigned index = (unsigned)(h->owner.bytes[1] - '0');
    char now[VALUE_MAX];
    FLI_ASSERT(index < SIM_SCRIPTERS);
    struct actor *a = &k->actors[index];
    int len = snprintf(now, sizeof now, "k%u.%llu", index, (unsigned long long)a->life);
    a->expired = a->expired || is(&h->owner, (struct fli_slice){(uint8_t *)now, (size_t)len});
    k->sim->marks->keyed_expired++;
}

void sim_keyed_event(struct sim_keyed *k, const struct machine_event *e)
{
    struct hold *h = hold_of(k, e->name);
    struct sim *s = k->sim;
    if (e->type == MACHINE_EVENT_GRANTED) {
        SIM_CHECK(s, h->owner.len == 0 && !h->ended, "key K%td is granted while it is held",
                  h - k->holds);
        SIM_CHECK(s, e->token > s->oracle.token_max, "token %llu is granted after %llu",
                  (unsigned long long)e->token, (unsigned long long)s->oracle.token_max);
        (void)sim_oracle_issue(s, e->token, 0);
        set(&h->owner, e->owner);
        h->token = e->token;
        h->base_at = s->oracle.last_seal.at;
        h->ttl_ms = e->deadline_ms - e->clock_ms;
        h->promised_ms = e->deadline_ms;
        h->granted = true;
        s->marks->keyed_taken++;
        return;
    }
    SIM_CHECK(s, e->type == MACHINE_EVENT_RELEASED || e->type == MACHINE_EVENT_EXPIRED,
              "an event of kind %u of a key", e->type);
    SIM_CHECK(s, h->owner.len > 0 && !h->ended && h->token == e->token,
              "a key is let go that nobody has");
    if (e->type == MACHINE_EVENT_EXPIRED) {
        sim_order_expires(s, e, h->base_at, h->ttl_ms, h->promised_ms);
        expired(k, h);
        h->owner.len = 0;
    }
    h->ended = e->type == MACHINE_EVENT_RELEASED;
}

/* The command's keys, before it, with the owner that it names for each. */
struct keys {
    struct {
        struct hold *hold;
        struct fli_slice owner;
        bool own, free, again;
    } of[MACHINE_NAMES_MAX];
    unsigned n, own, free, again;
};

static void add_key(struct sim_keyed *k, struct keys *keys, const struct machine_command *c,
                    struct fli_slice name, struct fli_slice owner)
{
    FLI_ASSERT(keys->n < MACHINE_NAMES_MAX);
    struct hold *h = hold_of(k, name);
    unsigned i = keys->n++;
    keys->of[i].hold = h;
    keys->of[i].owner = owner;
    keys->of[i].own = is(&h->owner, owner) && !h->granted;
    keys->of[i].free = h->owner.len == 0 || h->granted;
    keys->of[i].again = !keys->of[i].own && c->number > 0 && was_released(k, h, owner);
    keys->own += keys->of[i].own;
    keys->free += keys->of[i].free;
    keys->again += keys->of[i].again;
}

static void find_keys(struct sim_keyed *k, struct keys *keys, const struct machine_command *c)
{
    struct fli_slice names[MACHINE_NAMES_MAX];
    struct fli_reader pairs;
    unsigned n = machine_command_names(c, names);
    keys->n = keys->own = keys->free = keys->again = 0;
    for (unsigned i = 0; i < n; i++) {
        add_key(k, keys, c, names[i], c->owner);
    }
    fli_reader_init(&pairs, c->value.data, c->value.len);
    while (fli_reader_left(&pairs) > 0) {
        struct fli_slice name = fli_read_bytes(&pairs, fli_read_u8(&pairs));
        add_key(k, keys, c, name, fli_read_bytes(&pairs, fli_read_u8(&pairs)));
    }
}

/* Asserts that the events of the command are those that it has to have, and settles the account. */
static void settle(struct sim_keyed *k, struct keys *keys, const struct machine_command *c,
                   bool grants, bool changes)
{
    bool releases = changes && (c->flags & MACHINE_KEYS_RELEASE) != 0;
    uint64_t now_ms = k->sim->oracle.last_timestamp_ms;
    for (unsigned i = 0; i < keys->n; i++) {
        struct hold *h = keys->of[i].hold;
        bool own = keys->of[i].own;
        SIM_CHECK(k->sim, h->granted == grants, "K%td is %sgranted", h - k->holds,
                  grants ? "not " : "");
        SIM_CHECK(k->sim, h->ended == (releases && own), "K%td is %slet go", h - k->holds,
                  h->ended ? "" : "not ");
        if (h->ended && c->number > 0) {
            note_release(k, h, now_ms + c->number);
        }
        h->owner.len = h->ended ? 0 : h->owner.len;
        if (changes && !releases && own) {
            uint64_t until_ms = now_ms + c->ttl_ms;
            bool of_this_term = h->base_at >= k->sim->oracle.term_at;
            bool longer = of_this_term && h->promised_ms > until_ms;
            h->base_at = k->sim->oracle.last_seal.at;
            h->ttl_ms = c->ttl_ms;
            h->promised_ms = longer ? h->promised_ms : until_ms;
        }
        h->granted = h->ended = false;
    }
}

static void check_answer(struct sim_keyed *k, const struct keys *keys,
                         const struct machine_command *c, const struct machine_result *r,
                         bool grants, bool changes)
{
    struct sim *s = k->sim;
    unsigned want = grants                  ? MACHINE_GRANTED
                    : changes               ? MACHINE_DONE
                    : keys->free == keys->n ? MACHINE_NO
                                            : MACHINE_HELD;
    SIM_CHECK(s, r->code == want, "KEYS %u comes to %u, not %u: of %u keys %u were its, %u free",
              c->flags, r->code, want, keys->n, keys->own, keys->free);
    unsigned n = grants ? keys->n : changes ? keys->own + keys->again : 0;
    SIM_CHECK(s, (!grants && !changes) || r->number == n, "KEYS %u changes %u keys and says %u",
              c->flags, n, r->number);
    SIM_CHECK(s, want != MACHINE_HELD || (r->token != 0) == (keys->own == keys->n),
              "KEYS %u says token %llu of %u keys, of which %u were its", c->flags,
              (unsigned long long)r->token, keys->n, keys->own);
    for (unsigned i = 0; i < keys->n; i++) {
        SIM_CHECK(s, (r->each[0] >> i & 1) == (changes && keys->of[i].own),
                  "KEYS %u says of key %u the contrary", c->flags, i);
    }
    s->marks->keyed_again += changes && keys->again > 0;
}

void sim_keyed_applied(struct sim_keyed *k, const struct machine_command *c,
                       const struct machine_result *r)
{
    struct keys keys;
    if (k == NULL || c->op != MACHINE_OP_KEYS || (c->flags & MACHINE_KEYS_COUNT) != 0) {
        return;
    }
    find_keys(k, &keys, c);
    bool limited = r->code == MACHINE_LIMIT &&
                   k->sim->options.limits.locks_max != MACHINE_LIMITS_DEFAULT.locks_max;
    bool all = keys.own + keys.again == keys.n ||
               ((c->flags & MACHINE_KEYS_EACH) != 0 && keys.own + keys.again > 0);
    bool changes =
        !limited && all && (c->flags & (MACHINE_KEYS_EXTEND | MACHINE_KEYS_RELEASE)) != 0;
    bool grants = !limited && !all && keys.free == keys.n && (c->flags & MACHINE_KEYS_GRANT) != 0;
    if (!limited) {
        check_answer(k, &keys, c, r, grants, changes);
    }
    settle(k, &keys, c, grants, changes);
}

/* ---- requests -------------------------------------------------------------------------------- */

static void put_value(const struct actor *a, struct fli_buf *b)
{
    sim_put_word(b, "k%u.%llu", a->base.index, (unsigned long long)a->life);
}

static void put_keys(const struct actor *a, struct fli_buf *b)
{
    for (unsigned i = 0; i < a->n; i++) {
        sim_put_word(b, "K%u", (a->lock + i) % LOCKS);
    }
}

/* Of `renew-each` the last key has a value that nobody has; that of `extend-all` is not the
 * client's, so nothing is to change. */
static void write_request(struct sim_scripter *p, const struct sim_node *to, struct fli_buf *b)
{
    const struct actor *a = actor_of(p);
    const struct sim_keyed *k = sim_keyed_of(p->sim);
    SIM_TRACE(p->sim, "k%u.%llu asks node %u: %u of %u keys from K%u", p->index,
              (unsigned long long)a->life, to->index + 1, a->form, a->n, a->lock);
    bool script = k->scripts[a->form] != NULL;
    bool each = a->form == PROLONG_EACH;
    bool more = each || a->form == PROLONG_ALL;
    bool lease = a->form != GIVE && a->form != GIVE_EACH;
    unsigned words = each ? 6 + 2 * a->n : script ? 4 + a->n + more + lease : 6;
    int rc = fli_resp_array(b, words);
    FLI_ASSERT(rc == 0);
    if (!script) {
        sim_put_word(b, "SET");
        put_keys(a, b);
        put_value(a, b);
        sim_put_word(b, "%s", a->form == TAKE ? "NX" : "XX");
        sim_put_word(b, "PX");
        sim_put_word(b, "%llu", (unsigned long long)a->ttl_ms);
        return;
    }
    sim_put_word(b, "EVAL");
    rc = fli_resp_text(b, k->scripts[a->form]);
    FLI_ASSERT(rc == 0);
    sim_put_word(b, "%u", a->n + more);
    put_keys(a, b);
    if (more) {
        sim_put_word(b, "K%u", (a->lock + a->n) % LOCKS);
    }
    if (each) {
        sim_put_word(b, "%llu", (unsigned long long)a->ttl_ms);
        put_value(a, b);
        for (unsigned i = 1; i < a->n; i++) {
            put_value(a, b);
        }
        sim_put_word(b, "nobody");
        return;
    }
    put_value(a, b);
    if (lease) {
        sim_put_word(b, "%llu", (unsigned long long)a->ttl_ms);
    }
}

/* ---- answers --------------------------------------------------------------------------------- */

/* It does not know what it has: another value takes its place. */
static void become_another(struct actor *a)
{
    a->life++;
    a->has = a->expired = false;
    sim_scripter_rest(&a->base);
}

/* What the client reads for this result. */
static int wording(const struct actor *a, const struct machine_result *r, char *text, size_t size)
{
    bool done = r->code == MACHINE_GRANTED || r->code == MACHINE_DONE;
    if (a->form == TAKE || a->form == PROLONG) {
        return snprintf(text, size, done ? "+OK\r\n" : "$-1\r\n");
    }
    if (a->form != PROLONG_EACH) {
        return snprintf(text, size, ":%u\r\n", done ? r->number : 0);
    }
    int len = snprintf(text, size, "*%u\r\n", a->n + 1);
    for (unsigned i = 0; i <= a->n; i++) {
        len += snprintf(text + len, size - (size_t)len, ":%u\r\n", (unsigned)(r->each[0] >> i & 1));
    }
    return len;
}

/* Its keys were prolonged, with an entry or without: no lease ends before its time. What was
 * promised in an earlier term was so by another clock. */
static void prolonged(struct actor *a, const struct machine_result *r)
{
    struct sim *s = a->base.sim;
    struct sim_keyed *k = sim_keyed_of(s);
    uint64_t until_ms = r->clock_ms + a->ttl_ms;
    char now[VALUE_MAX];
    int len = snprintf(now, sizeof now, "k%u.%llu", a->base.index, (unsigned long long)a->life);
    SIM_CHECK(s, r->deadline_ms >= until_ms, "K%u is prolonged to %llu, asked for was %llu",
              a->lock, (unsigned long long)r->deadline_ms, (unsigned long long)until_ms);
    for (unsigned i = 0; i < a->n; i++) {
        struct hold *h = &k->holds[(a->lock + i) % LOCKS];
        bool own = is(&h->owner, (struct fli_slice){(uint8_t *)now, (size_t)len});
        SIM_CHECK(s, (r->each[0] >> i & 1) == 0 || own || a->expired,
                  "K%u is prolonged for a value that does not have it", (a->lock + i) % LOCKS);
        if ((r->each[0] >> i & 1) == 0 || !own) {
            continue;
        }
        bool longer = h->base_at >= s->oracle.term_at && h->promised_ms > until_ms;
        h->promised_ms = longer ? h->promised_ms : until_ms;
        h->base_at = h->base_at > a->base.asked_at ? h->base_at : a->base.asked_at;
    }
    s->marks->keyed_prolonged++;
}

static void heard(struct actor *a, const struct machine_result *r, const char *data, size_t len)
{
    struct sim *s = a->base.sim;
    char text[64];
    bool gives = a->form == GIVE || a->form == GIVE_EACH;
    bool done = r->code == MACHINE_GRANTED || r->code == MACHINE_DONE;
    if (r->code == MACHINE_LIMIT) {
        SIM_CHECK(s, data[0] == '-', "a limit reads %.*s", (int)len, data);
        a->has ? become_another(a) : sim_scripter_rest(&a->base);
        return;
    }
    int want = wording(a, r, text, sizeof text);
    SIM_CHECK(s, len == (size_t)want && memcmp(text, data, len) == 0,
              "form %u reads %.*s, and %u of %u keys is said", a->form, (int)len, data, r->code,
              r->number);
    bool whole =
        done && (a->form == PROLONG_EACH ? (r->each[0] & ((1u << a->n) - 1)) == (1u << a->n) - 1
                                         : a->n == 1 || r->number == a->n);
    SIM_CHECK(s, !a->has || whole || a->form == PROLONG_ALL || a->expired || a->base.tries > 1,
              "form %u of %u keys that the client has comes to %u, %u", a->form, a->n, r->code,
              r->number);
    if (done && (a->form == PROLONG || a->form == PROLONG_EACH)) {
        prolonged(a, r);
    }
    if (!a->has && !done && a->base.tries > 1) {
        become_another(a); /* it may be its own */
        return;
    }
    if (gives && done && sim_keyed_of(s)->shared && !s->healed &&
        sim_scripter_below(&a->base, 100) < 40) {
        sim_scripter_ask(&a->base); /* at another of its servers */
        return;
    }
    a->has = a->has ? !gives : done;
    bool may_come = gives && a->base.tries > 1; /* once more, and end what it takes next */
    if (a->expired || may_come) {
        become_another(a);
    } else {
        sim_scripter_rest(&a->base);
    }
}

/* r: what the machine said; NULL: nobody knows, or the node has not asked it. */
static void told(struct sim *s, uint64_t serial, const struct machine_result *r, const void *data,
                 size_t len)
{
    struct actor *a = &sim_keyed_of(s)->actors[serial % SIM_SCRIPTERS];
    if (!sim_scripter_hears(&a->base, serial, r, data, len)) {
        return;
    }
    if (r != NULL) {
        heard(a, r, data, len);
    } else if (a->base.tries < TRIES && !s->healed) {
        sim_scripter_ask(&a->base);
    } else {
        become_another(a);
    }
}

/* ---- who asks -------------------------------------------------------------------------------- */

static void act(struct sim_scripter *p)
{
    struct actor *a = actor_of(p);
    struct sim *s = a->base.sim;
    if (a->base.waiting || (!a->has && s->healed)) {
        return;
    }
    if (!a->has) {
        a->lock = (unsigned)sim_scripter_below(&a->base, LOCKS);
        a->n = 1 + (unsigned)sim_scripter_below(&a->base, 2);
        a->ttl_ms = SIM_TTL_MIN_MS + sim_scripter_below(&a->base, s->options.ttl_max_ms + 1000);
        a->form = a->n == 1 && sim_scripter_below(&a->base, 2) == 0 ? TAKE : TAKE_TWO;
    } else if (s->healed && a->form != PROLONG_ALL) {
        a->form = PROLONG_ALL; /* once, and then it gives back what it has */
    } else if (s->healed || sim_scripter_below(&a->base, 100) < 50) {
        a->form = a->n == 1 && sim_scripter_below(&a->base, 2) == 0 ? GIVE : GIVE_EACH;
    } else {
        a->form = a->n == 1 && sim_scripter_below(&a->base, 2) == 0 ? PROLONG : PROLONG_EACH;
    }
    a->base.tries = 0;
    sim_scripter_ask(&a->base);
}

struct sim_keyed *sim_keyed_init(struct sim *s, uint64_t random, struct frontdoor_context *f)
{
    struct sim_random r = {random};
    if (!sim_draw_chance(&r, PERCENT)) {
        return NULL;
    }
    static const struct sim_scripter how = {.act = act, .write = write_request, .told = told};
    struct sim_keyed *k = fli_xcalloc(1, sizeof *k);
    k->sim = s;
    k->shared = f->shared = sim_draw_chance(&r, 50);
    for (unsigned i = 0; i < FORMS; i++) {
        struct fli_slice name = {(const uint8_t *)forms[i],
                                 forms[i] != NULL ? strlen(forms[i]) : 0};
        k->scripts[i] = forms[i] != NULL ? frontdoor_form_find(name)->script : NULL;
    }
    for (unsigned i = 0; i < SIM_SCRIPTERS; i++) {
        struct actor *a = &k->actors[i];
        *a = (struct actor){.life = 1};
        sim_scripter_init(&a->base, &how, s, i, sim_draw(&r));
    }
    return k;
}

void sim_keyed_fini(struct sim_keyed *k)
{
    free(k);
}

void sim_keyed_start(struct sim_keyed *k)
{
    for (unsigned i = 0; k != NULL && i < SIM_SCRIPTERS; i++) {
        sim_scripter_rest(&k->actors[i].base);
    }
}

bool sim_keyed_done(const struct sim_keyed *k)
{
    for (unsigned i = 0; k != NULL && i < SIM_SCRIPTERS; i++) {
        const struct actor *a = &k->actors[i];
        if (a->has || !sim_scripter_is_idle(&a->base)) {
            return false;
        }
    }
    return true;
}

void sim_keyed_end(const struct sim_keyed *k)
{
    for (unsigned i = 0; k != NULL && i < LOCKS; i++) {
        SIM_CHECK(k->sim, k->holds[i].owner.len == 0, "key K%u is held at the end", i);
    }
}
