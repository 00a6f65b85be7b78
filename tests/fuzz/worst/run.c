/* run.c: plays a case on a machine, in batches as a leader fills them, and notes what the largest
 * of them cost. See worst.h.
 *
 * Steps are the machine's own account. So that what nobody charges is seen as well, the code of the
 * machine, of events and of what they stand on is built with a counter at each branch (trace-pc):
 * it tells the same number at each run of the same build, however busy the computer is. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "../../lib/give_up.h"
#include "../../lib/machine_check.h"
#include "base/turn.h"
#include "machine/budget.h"
#include "machine/machine.h"
#include "server/events.h"
#include "worst.h"

#define BATCH_BYTES (256u << 10) /* as a leader fills it: PROPOSER_BATCH_DEFAULT */
#define REMEMBERED 8192u
#define SUBSCRIBERS 8u
#define DRAINS_MAX 64u
#define LISTS_MAX 8u /* of a case: each takes as long as a thousand other commands */

/* Bits of HOW, beside the two that step. */
enum how {
    STEP_NAME = 1,
    STEP_OWNER = 2,
    EXPLICIT = 4,
    WAITS = 8,
    SHARED = 16,
    PERMITS = 32,
    ALSO_SHIFT = 6, /* 4 bits: further names */
    LONG = 1 << 10, /* a lease or wait of a day, and not of a second */
    ATTEMPT = 1 << 11,
    BY_USER = 1 << 12,
    VALUE = 1 << 13, /* with a value, label, delay or long pattern */
    NEXT = 1 << 14,  /* the name is one further than the owner: chains of waits */
    OLDEST = 1 << 15 /* of what is remembered, the oldest first */
};

struct granted {
    uint16_t name;
    uint64_t token;
};

struct waiting {
    uint64_t wait, asking;
};

struct run {
    struct machine *m;
    struct events events;
    struct events_subscriber *subscriber[SUBSCRIBERS];
    struct fli_buf out;
    struct fli_buf batch, queries, payload;
    uint32_t count, cost, lists;
    uint16_t flags;
    uint64_t clock_ms, sequence, user;
    uint16_t names[MACHINE_BATCH_COMMANDS_MAX]; /* of the commands in the batch */
    struct granted granted[REMEMBERED];
    struct waiting waiting[REMEMBERED];
    size_t granted_n, waiting_n; /* ever */
    uint8_t kind;
    struct worst_result *result;
};

static uint64_t branches;

/* The compiler calls it at each branch of the code that is counted. */
void __sanitizer_cov_trace_pc(void);
void __sanitizer_cov_trace_pc(void)
{
    branches++;
}

static void must(int rc)
{
    if (rc != 0) {
        (void)fprintf(stderr, "worst: error %d\n", rc);
        abort();
    }
}

static uint64_t cpu_ns(void)
{
    struct timespec t;
    must(clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t));
    return (uint64_t)t.tv_sec * UINT64_C(1000000000) + (uint64_t)t.tv_nsec;
}

static void note(struct run *r, enum worst_metric metric, uint64_t value)
{
    struct worst_mark *mark = &r->result->mark[metric];
    if (value > mark->value) {
        *mark = (struct worst_mark){.value = value, .kind = r->kind};
    }
}

/* --- what is told --- */

static int sink_proto(void *ctx, void *to)
{
    return 3;
}

static bool sink_push(void *ctx, void *to, const void *frame, size_t len)
{
    return true;
}

static void on_event(void *ctx, const struct machine_event *event)
{
    struct run *r = ctx;
    if (events_wanted(&r->events)) {
        events_feed(&r->events, event);
    }
}

/* --- batches --- */

static void start(struct run *r)
{
    static const uint8_t room[MACHINE_BATCH_HEADER_SIZE];
    fli_buf_clear(&r->batch);
    fli_buf_clear(&r->queries);
    r->count = r->cost = 0;
    must(fli_buf_append(&r->batch, room, sizeof room));
}

static size_t seal(struct run *r)
{
    struct machine_batch_header h = {.flags = r->flags,
                                     .count = r->count,
                                     .timestamp_ms = r->clock_ms,
                                     .term = 1,
                                     .sequence = ++r->sequence,
                                     .length = (uint32_t)r->batch.len};
    must(fli_buf_reserve(&r->batch, 8));
    r->flags = 0;
    return machine_batch_seal(r->batch.data, &h);
}

static void remember(struct run *r, uint32_t i, const struct machine_result *answer)
{
    if (answer->code == MACHINE_GRANTED) {
        r->granted[r->granted_n++ % REMEMBERED] =
            (struct granted){.name = r->names[i], .token = answer->token};
    } else if (answer->code == MACHINE_QUEUED) {
        r->waiting[r->waiting_n++ % REMEMBERED] =
            (struct waiting){.wait = answer->wait, .asking = answer->token};
    }
}

static void ask_all(struct run *r)
{
    size_t at = 0;
    while (at < r->queries.len) {
        struct machine_command c;
        size_t used = 0;
        must(machine_command_decode(r->queries.data + at, r->queries.len - at, &c, &used));
        struct machine_result answer;
        fli_buf_clear(&r->payload);
        must(machine_query(r->m, &c, 0, &answer, &r->payload));
        at += used;
    }
}

/* One entry, and what the turn of the loop does that applies it. */
static void apply(struct run *r)
{
    uint32_t asked = r->count;
    if (r->flags == 0) { /* before its term mark is applied a leader gives up no lease */
        r->count += give_up_leases(r->m, r->clock_ms, &r->batch, MACHINE_EXPIRIES_MAX);
    }
    size_t len = seal(r);
    struct machine_cursor cursor;
    struct machine_result answer;
    uint64_t began_ns = cpu_ns();
    branches = 0;
    must(machine_begin(r->m, r->batch.data, len, &cursor));
    for (uint32_t i = 0; machine_next(r->m, &cursor, &answer); i++) {
        if (i < asked) {
            remember(r, i, &answer);
        }
    }
    note(r, WORST_APPLY, branches);
    note(r, WORST_STEPS, machine_spent(r->m));
    uint64_t took_ns = cpu_ns() - began_ns;
    r->result->apply_ns = took_ns > r->result->apply_ns ? took_ns : r->result->apply_ns;
    ask_all(r);
    if (events_wanted(&r->events)) {
        events_min_live(&r->events, machine_min_live_token(r->m), machine_clock(r->m));
        (void)events_publish(&r->events, FLI_TURN_EVENT_STEPS);
    }
    note(r, WORST_TURN, branches);
    took_ns = cpu_ns() - began_ns;
    r->result->turn_ns = took_ns > r->result->turn_ns ? took_ns : r->result->turn_ns;
    start(r);
}

static void make_room(struct run *r, uint32_t cost)
{
    if ((r->count > 0 || r->queries.len > 0) &&
        (r->cost + cost > MACHINE_BATCH_COST_MAX ||
         r->batch.len + MACHINE_COMMAND_LARGEST > BATCH_BYTES ||
         r->count == MACHINE_BATCH_COMMANDS_MAX)) {
        apply(r);
    }
}

static void add(struct run *r, const struct machine_command *c, uint16_t name)
{
    if (machine_command_check(c) != 0) {
        return;
    }
    uint32_t cost = machine_command_cost_now(r->m, c);
    if (MACHINE_OP_IS_QUERY(c->op) && machine_command_cost(c) == MACHINE_LIST_COST &&
        r->lists++ >= LISTS_MAX) {
        return;
    }
    make_room(r, cost);
    r->cost += cost;
    r->result->commands++;
    if (MACHINE_OP_IS_QUERY(c->op)) {
        must(machine_command_encode(c, &r->queries));
        return;
    }
    r->names[r->count++] = name;
    must(machine_command_encode(c, &r->batch));
}

/* --- genes --- */

struct words {
    char name[FL_NAME_MAX + 1], owner[64];
    uint8_t also[MACHINE_ALSO_SIZE];
    uint8_t value[FL_VALUE_MAX];
};

/* Names from 40000 on are as long as names can be. */
static struct fli_slice name_text(char text[FL_NAME_MAX + 1], uint16_t name)
{
    int len = snprintf(text, FL_NAME_MAX + 1, "n%05u", (unsigned)name);
    if (name >= 40000) {
        memset(text + len, 'a', FL_NAME_MAX - (size_t)len);
        len = FL_NAME_MAX;
    }
    return (struct fli_slice){(const uint8_t *)text, (size_t)len};
}

static struct fli_slice owner_text(char text[64], uint16_t owner)
{
    int len = snprintf(text, 64, "owner-of-this-%05u", (unsigned)owner);
    return (struct fli_slice){(const uint8_t *)text, (size_t)len};
}

static void set_names(struct machine_command *c, struct words *w, uint16_t name, unsigned how)
{
    char text[FL_NAME_MAX + 1];
    size_t len = 0;
    c->name = name_text(w->name, name);
    c->n_names = (uint8_t)(1 + ((how >> ALSO_SHIFT) & 15u));
    for (unsigned i = 1; i < c->n_names; i++) {
        len = machine_also_add(w->also, len, name_text(text, (uint16_t)(name + i)));
    }
    c->also = (struct fli_slice){w->also, len};
}

static uint64_t ttl_of(unsigned how)
{
    return (how & LONG) != 0 ? FL_TTL_MAX_MS : 1000;
}

static void set_acquire(struct machine_command *c, struct words *w, unsigned how)
{
    c->permits = (how & PERMITS) != 0 ? 1000 : 1;
    c->mode = (how & SHARED) != 0 ? MACHINE_MODE_SHARED : MACHINE_MODE_EXCLUSIVE;
    c->ttl_ms = (how & EXPLICIT) != 0 ? 0 : ttl_of(how);
    c->flags = (how & EXPLICIT) != 0 ? MACHINE_ACQUIRE_EXPLICIT : 0;
    if ((how & WAITS) != 0) {
        c->flags |= MACHINE_ACQUIRE_WAIT;
        c->wait_ms = (how & LONG) != 0 ? FL_WAIT_MAX_MS : 1000;
    }
    if ((how & ATTEMPT) != 0) {
        c->flags |= MACHINE_ACQUIRE_ATTEMPT;
        c->number = 2;
    }
    c->value = (struct fli_slice){w->value, (how & VALUE) != 0 ? sizeof w->value : 0};
}

static void set_held(const struct run *r, struct machine_command *c, struct words *w, unsigned how,
                     uint32_t i)
{
    if (r->granted_n == 0) {
        return;
    }
    size_t n = r->granted_n < REMEMBERED ? r->granted_n : REMEMBERED;
    size_t oldest = r->granted_n - n;
    size_t at = (how & OLDEST) != 0 ? oldest + i % n : r->granted_n - 1 - i % n;
    const struct granted *g = &r->granted[at % REMEMBERED];
    c->name = name_text(w->name, g->name);
    c->token = g->token;
    c->ttl_ms = c->op == MACHINE_OP_RENEW && (how & LONG) != 0 ? ttl_of(how) : 0;
}

static void set_cancel(const struct run *r, struct machine_command *c, unsigned how, uint32_t i)
{
    if (r->waiting_n == 0) {
        return;
    }
    size_t n = r->waiting_n < REMEMBERED ? r->waiting_n : REMEMBERED;
    size_t at = (how & OLDEST) != 0 ? r->waiting_n - n + i % n : r->waiting_n - 1 - i % n;
    c->number = r->waiting[at % REMEMBERED].wait;
    c->number2 = r->waiting[at % REMEMBERED].asking;
}

static struct fli_slice literal(const char *s)
{
    return (struct fli_slice){(const uint8_t *)s, strlen(s)};
}

static void add_user(struct run *r, const char *name, const char *words)
{
    struct machine_command c = {.op = MACHINE_OP_USER_SET,
                                .flags = MACHINE_COMMAND_BY,
                                .user = MACHINE_USER_NODE,
                                .owner = literal(name),
                                .words = literal(words)};
    add(r, &c, 0);
}

/* As an operator does it; then commands may come from that user. */
static void set_somebody(struct run *r, const char *words)
{
    add_user(r, "somebody", words);
    apply(r);
    struct machine_command q = {.op = MACHINE_OP_USER,
                                .flags = MACHINE_COMMAND_BY,
                                .user = MACHINE_USER_NODE,
                                .owner = literal("somebody")};
    struct machine_result answer;
    struct acl_user user;
    fli_buf_clear(&r->payload);
    must(machine_query(r->m, &q, 0, &answer, &r->payload));
    struct fli_slice payload = {r->payload.data, r->payload.len};
    if (answer.code != MACHINE_DONE || machine_users_next(&payload, &r->user, &user) != 1) {
        r->user = 0;
    }
}

static void set_user(struct run *r, const struct worst_gene *g)
{
    static const char *const words[] = {"on nopass ~* +@acquire +@see +@break +@token",
                                        "-@acquire",
                                        "on nopass ~n0* ~*aaaaaaaaaaaaaaaaaaaaaaab +@acquire",
                                        "off",
                                        "on",
                                        "resetkeys"};
    set_somebody(r, words[(g->how >> 2) % 6]);
}

/* What is compared with each byte of a name is as long as a user's patterns can be: one set, or
 * many that have half of all bytes in them. */
static void set_patterns(struct run *r, const struct worst_gene *g)
{
    static const char half[] = "[@-\xbf]";
    char set[243];
    char words[2048];
    memset(set, 'a', sizeof set);
    set[0] = '[';
    set[241] = ']';
    set[242] = '\0';
    for (size_t i = 0; (g->how & EXPLICIT) != 0 && i < 48; i++) {
        memcpy(set + 5 * i, half, sizeof half);
    }
    int len = snprintf(words, sizeof words, "reset on nopass +@acquire");
    for (int last = 'b'; last < 'i'; last++) {
        len += snprintf(words + len, sizeof words - (size_t)len, " ~*%s%c", set, last);
    }
    (void)snprintf(words + len, sizeof words - (size_t)len, " ~n*%s",
                   (g->how & VALUE) != 0 ? " +@see" : "");
    set_somebody(r, words);
}

static void enroll(struct run *r, const struct worst_gene *g)
{
    char name[16];
    for (unsigned i = 0; i < g->times && i < MACHINE_USERS_MAX; i++) {
        (void)snprintf(name, sizeof name, "u%04u", (g->name + i) % 10000);
        add_user(r, name, "");
    }
    apply(r);
}

/* The last ones are there already, and are found behind all others. */
static void give_words(struct run *r, const struct worst_gene *g)
{
    char words[ACL_TEXT_MAX + 1] = "";
    size_t len = 0;
    for (unsigned i = 0; len + 5 < sizeof words; i++) {
        unsigned k = i < 500 ? i : 499 - i % 8;
        len += (size_t)snprintf(words + len, sizeof words - len, "~%c%c ", (int)('A' + k / 26),
                                (int)('a' + k % 26));
    }
    for (unsigned i = 0; i < g->times; i++) {
        add_user(r, "somebody", words);
    }
}

static void dismiss(struct run *r, const struct worst_gene *g)
{
    for (unsigned i = 0; i < g->times; i++) {
        struct machine_command c = {.op = MACHINE_OP_USER_DELETE,
                                    .flags = MACHINE_COMMAND_BY,
                                    .user = MACHINE_USER_NODE,
                                    .owner = literal("nobody")};
        add(r, &c, 0);
    }
}

static void subscribe(struct run *r, const struct worst_gene *g)
{
    char text[EVENTS_GLOB_MAX + 1];
    unsigned literal_len = (g->how & VALUE) != 0 ? 100 : 4;
    for (unsigned i = 0; i < g->times && i < 16; i++) {
        int len = snprintf(
            text, sizeof text, "*%.*s%u*%u", (int)literal_len,
            "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
            "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
            (unsigned)g->name, i);
        struct fli_slice arg = {(const uint8_t *)text, (size_t)len};
        unsigned to = g->owner % SUBSCRIBERS;
        fli_buf_clear(&r->out);
        enum fli_command_id id = (g->how & EXPLICIT) != 0 ? FLI_CMD_SUBSCRIBE : FLI_CMD_PSUBSCRIBE;
        enum events_outcome outcome =
            events_command(&r->events, &r->subscriber[to], r, id, 3, &arg, 1, &r->out);
        (void)outcome; /* beyond a ceiling it is refused, which is as good */
    }
}

static const uint8_t ops[WORST_KINDS] = {
    [WORST_ACQUIRE] = MACHINE_OP_ACQUIRE,
    [WORST_OPEN] = MACHINE_OP_SESSION_OPEN,
    [WORST_RENEW_SESSION] = MACHINE_OP_SESSION_RENEW,
    [WORST_CLOSE] = MACHINE_OP_SESSION_CLOSE,
    [WORST_RENEW] = MACHINE_OP_RENEW,
    [WORST_RELEASE] = MACHINE_OP_RELEASE,
    [WORST_CHECK] = MACHINE_OP_CHECK,
    [WORST_BREAK] = MACHINE_OP_BREAK,
    [WORST_TOKEN] = MACHINE_OP_TOKEN,
    [WORST_CANCEL] = MACHINE_OP_CANCEL,
    [WORST_KEYS] = MACHINE_OP_KEYS,
    [WORST_ANY_KEYS] = MACHINE_OP_KEYS,
    [WORST_REENTER] = MACHINE_OP_KEYS,
    [WORST_LEAVE] = MACHINE_OP_KEYS,
    [WORST_SHOW] = MACHINE_OP_SHOW,
    [WORST_LOCKS] = MACHINE_OP_LOCKS,
    [WORST_SESSION_SHOW] = MACHINE_OP_SESSION_SHOW,
    [WORST_SESSION_LIST] = MACHINE_OP_SESSION_LIST,
    [WORST_KEY] = MACHINE_OP_KEY,
    [WORST_USERS] = MACHINE_OP_USERS,
};

static void set_keys(const struct worst_gene *g, uint16_t name, struct words *w,
                     struct machine_command *c)
{
    static const uint8_t flags[WORST_KINDS] = {
        [WORST_ANY_KEYS] = MACHINE_KEYS_EACH | MACHINE_KEYS_RELEASE,
        [WORST_REENTER] = MACHINE_KEYS_COUNT | MACHINE_KEYS_GRANT | MACHINE_KEYS_EXTEND,
        [WORST_LEAVE] = MACHINE_KEYS_COUNT | MACHINE_KEYS_RELEASE,
    };
    bool one = g->kind == WORST_REENTER || g->kind == WORST_LEAVE;
    bool any = g->kind == WORST_ANY_KEYS || g->kind == WORST_KEY;
    unsigned also = g->kind == WORST_KEYS ? (unsigned)g->owner << ALSO_SHIFT : g->how;
    set_names(c, w, name, one ? 0 : also);
    c->permits = 1;
    c->flags = g->kind == WORST_KEYS ? (uint8_t)((g->how >> 2) & 63u) : flags[g->kind];
    c->ttl_ms = any ? 0 : ttl_of(g->how);
    if (any) {
        c->owner = (struct fli_slice){NULL, 0};
    }
    if (g->kind == WORST_ANY_KEYS && (g->how & WAITS) != 0) {
        c->flags = MACHINE_KEYS_EACH | MACHINE_KEYS_EXTEND;
        c->ttl_ms = ttl_of(g->how);
    }
}

/* Fills what the kind uses. False: it sends nothing. */
static bool fill(struct run *r, const struct worst_gene *g, uint32_t i, struct words *w,
                 struct machine_command *c, uint16_t *ret_name)
{
    uint16_t owner = (uint16_t)(g->owner + ((g->how & STEP_OWNER) != 0 ? i : 0));
    uint16_t name = (uint16_t)(g->name + ((g->how & STEP_NAME) != 0 ? i : 0));
    name = (uint16_t)(name + ((g->how & NEXT) != 0 ? 1 : 0));
    *ret_name = name;
    *c = (struct machine_command){.op = ops[g->kind]};
    switch ((enum worst_kind)g->kind) {
    case WORST_ACQUIRE:
        set_names(c, w, name, g->how);
        c->owner = owner_text(w->owner, owner);
        set_acquire(c, w, g->how);
        break;
    case WORST_OPEN:
        c->owner = owner_text(w->owner, owner);
        c->ttl_ms = ttl_of(g->how);
        c->lockdelay_ms = (g->how & VALUE) != 0 ? 1000 : 0;
        break;
    case WORST_RENEW_SESSION:
    case WORST_CLOSE:
    case WORST_SESSION_SHOW:
        c->owner = owner_text(w->owner, owner);
        break;
    case WORST_RENEW:
    case WORST_RELEASE:
    case WORST_CHECK:
        set_held(r, c, w, g->how, i);
        break;
    case WORST_CANCEL:
        set_cancel(r, c, g->how, i);
        break;
    case WORST_KEYS:
    case WORST_ANY_KEYS:
    case WORST_REENTER:
    case WORST_LEAVE:
    case WORST_KEY:
        c->owner = owner_text(w->owner, owner);
        set_keys(g, name, w, c);
        break;
    case WORST_LOCKS:
        c->value = literal((g->how & VALUE) != 0 ? "*aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaab" : "*");
        c->number = MACHINE_PAGE_COUNT_MAX;
        break;
    case WORST_SESSION_LIST:
        c->number = MACHINE_PAGE_COUNT_MAX;
        break;
    case WORST_USERS:
        break;
    default: /* BREAK, TOKEN, SHOW */
        c->name = name_text(w->name, name);
        break;
    }
    if ((g->how & BY_USER) != 0 && r->user != 0) {
        c->flags |= MACHINE_COMMAND_BY;
        c->user = r->user;
    }
    return ops[g->kind] != 0;
}

static void drain(struct run *r, unsigned times)
{
    for (unsigned i = 0; i < times && i < DRAINS_MAX && machine_has_work(r->m); i++) {
        apply(r);
    }
}

/* What is no command. False: it is one. */
static bool play_other(struct run *r, const struct worst_gene *g)
{
    static const uint32_t scale[] = {1, 100, 10000, 1};
    switch ((enum worst_kind)g->kind) {
    case WORST_USER:
        set_user(r, g);
        return true;
    case WORST_PATTERNS:
        set_patterns(r, g);
        return true;
    case WORST_ENROLL:
        enroll(r, g);
        return true;
    case WORST_WORDS:
        give_words(r, g);
        return true;
    case WORST_DISMISS:
        dismiss(r, g);
        return true;
    case WORST_SUBSCRIBE:
        subscribe(r, g);
        return true;
    case WORST_TIME:
        r->clock_ms += (uint64_t)g->times * scale[(g->how >> 2) % 4];
        return true;
    case WORST_MARK:
        apply(r);
        r->flags = MACHINE_BATCH_TERM_MARK;
        return true;
    case WORST_FLUSH:
        apply(r);
        return true;
    case WORST_DRAIN:
        drain(r, g->times);
        return true;
    default:
        return false;
    }
}

static void play(struct run *r, const struct worst_gene *g)
{
    struct words *w = malloc(sizeof *w);
    struct machine_command c;
    uint16_t name = 0;
    must(w == NULL);
    memset(w->value, 'v', sizeof w->value);
    for (uint32_t i = 0; i < g->times && r->result->commands < WORST_COMMANDS_MAX; i++) {
        if (fill(r, g, i, w, &c, &name)) {
            add(r, &c, name);
        }
    }
    free(w);
}

void worst_run(const struct worst_case *c, bool check, struct worst_result *ret)
{
    static const uint64_t seed[2] = {1, 2};
    struct run *r = calloc(1, sizeof *r);
    must(r == NULL);
    *ret = (struct worst_result){0};
    r->result = ret;
    r->m = machine_create(seed);
    r->clock_ms = 1;
    struct events_sink sink = {.ctx = r, .proto = sink_proto, .push = sink_push};
    events_init(&r->events, &sink, seed);
    machine_set_event_cb(r->m, on_event, r);
    fli_buf_init(&r->batch, MACHINE_BATCH_MAX);
    fli_buf_init(&r->queries, SIZE_MAX);
    fli_buf_init(&r->payload, SIZE_MAX);
    fli_buf_init(&r->out, SIZE_MAX);
    start(r);
    for (unsigned i = 0; i < c->n; i++) {
        r->kind = c->gene[i].kind;
        if (!play_other(r, &c->gene[i])) {
            play(r, &c->gene[i]);
        }
    }
    apply(r);
    drain(r, DRAINS_MAX);
    if (check) {
        machine_check(r->m);
    }
    for (unsigned i = 0; i < SUBSCRIBERS; i++) {
        events_drop(&r->events, r->subscriber[i]);
    }
    events_fini(&r->events);
    machine_destroy(r->m);
    fli_buf_fini(&r->batch);
    fli_buf_fini(&r->queries);
    fli_buf_fini(&r->payload);
    fli_buf_fini(&r->out);
    free(r);
}
