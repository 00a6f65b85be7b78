/* fixture.c: see fixture.h. */
#include "fixture.h"

#include "../../lib/give_up.h"

static const char *const event_names[] = {
    [MACHINE_EVENT_GRANTED] = "granted",
    [MACHINE_EVENT_QUEUED] = "queued",
    [MACHINE_EVENT_RELEASED] = "released",
    [MACHINE_EVENT_EXPIRED] = "expired",
    [MACHINE_EVENT_BROKEN] = "broken",
    [MACHINE_EVENT_WAIT_ENDED] = "wait_ended",
    [MACHINE_EVENT_SESSION_OPENED] = "session_opened",
    [MACHINE_EVENT_SESSION_ENDED] = "session_ended",
    [MACHINE_EVENT_USER_CHANGED] = "user_changed",
};

static const char *const reason_names[] = {
    [MACHINE_REASON_NONE] = "none",       [MACHINE_REASON_DEADLINE] = "deadline",
    [MACHINE_REASON_CANCEL] = "cancel",   [MACHINE_REASON_CLOSE] = "close",
    [MACHINE_REASON_SESSION] = "session", [MACHINE_REASON_BREAK] = "break",
    [MACHINE_REASON_RELEASE] = "release", [MACHINE_REASON_DENIED] = "denied",
};

static void must(int rc)
{
    assert_int_equal(rc, 0);
}

static void record(void *ctx, const struct machine_event *e)
{
    struct fixture *k = ctx;
    struct fli_buf *b = &k->events;
    assert_int_equal(e->clock_ms, machine_clock(k->m));
    must(fli_buf_printf(b, "%s", event_names[e->type]));
    if (e->reason != MACHINE_REASON_NONE) {
        must(fli_buf_printf(b, ":%s", reason_names[e->reason]));
    }
    if (e->name.len > 0) {
        must(fli_buf_printf(b, " %.*s", (int)e->name.len, (const char *)e->name.data));
    }
    must(fli_buf_printf(b, " %.*s%s", (int)e->owner.len, (const char *)e->owner.data,
                        e->session_explicit ? "*" : ""));
    if (e->token != 0) {
        must(fli_buf_printf(b, " token=%llu", (unsigned long long)e->token));
    }
    if (e->wait != 0) {
        must(fli_buf_printf(b, " wait=%llu", (unsigned long long)e->wait));
    }
    if (e->deadline_ms != 0) {
        must(fli_buf_printf(b, " until=%llu", (unsigned long long)e->deadline_ms));
    }
    must(fli_buf_append(b, "\n", 1));
}

void fixture_init(struct fixture *k)
{
    *k = (struct fixture){.clock_ms = 1000, .check = true};
    k->m = machine_create(FIXTURE_SEED);
    machine_set_event_cb(k->m, record, k);
    fli_buf_init(&k->batch, MACHINE_BATCH_MAX + 8);
    fli_buf_init(&k->events, SIZE_MAX);
    fli_buf_init(&k->payload, SIZE_MAX);
    fixture_tick(k, k->clock_ms);
}

void fixture_fini(struct fixture *k)
{
    machine_destroy(k->m);
    fli_buf_fini(&k->batch);
    fli_buf_fini(&k->events);
    fli_buf_fini(&k->payload);
}

void fixture_start(struct fixture *k)
{
    static const uint8_t room[MACHINE_BATCH_HEADER_SIZE];
    fli_buf_clear(&k->batch);
    k->count = 0;
    must(fli_buf_append(&k->batch, room, sizeof room));
}

void fixture_add(struct fixture *k, struct machine_command c)
{
    must(machine_command_encode(&c, &k->batch));
    k->count++;
}

size_t fixture_seal(struct fixture *k)
{
    struct machine_batch_header h = {
        .flags = k->flags,
        .count = k->count,
        .timestamp_ms = k->clock_ms,
        .term = 3,
        .sequence = ++k->sequence,
        .length = (uint32_t)k->batch.len,
    };
    must(fli_buf_reserve(&k->batch, 8));
    k->flags = 0;
    return machine_batch_seal(k->batch.data, &h);
}

#define FIXTURE_COMMANDS 65000u /* in one batch */

/* As the leader does, which watches the leases once its term mark is applied. */
void fixture_give_up(struct fixture *k)
{
    uint64_t clock_ms = k->clock_ms > machine_clock(k->m) ? k->clock_ms : machine_clock(k->m);
    if (k->flags == 0) {
        k->count += give_up_leases(k->m, clock_ms, &k->batch, FIXTURE_COMMANDS - k->count);
    }
}

void fixture_apply(struct fixture *k, struct machine_result *results)
{
    struct machine_cursor cursor;
    struct machine_result r;
    uint32_t count = k->count;
    fixture_give_up(k);
    size_t len = fixture_seal(k); /* may move the data */
    must(machine_begin(k->m, k->batch.data, len, &cursor));
    for (uint32_t i = 0; machine_next(k->m, &cursor, &r); i++) {
        if (results != NULL && i < count) {
            results[i] = r;
        }
    }
    if (k->check) {
        machine_check(k->m);
    }
}

struct machine_result fixture_run(struct fixture *k, struct machine_command c)
{
    struct machine_result r;
    fixture_start(k);
    fixture_add(k, c);
    fixture_apply(k, &r);
    assert_int_equal(r.clock_ms, machine_clock(k->m));
    return r;
}

void fixture_tick(struct fixture *k, uint64_t clock_ms)
{
    k->clock_ms = clock_ms;
    fixture_start(k);
    fixture_apply(k, NULL);
}

uint64_t fixture_next_deadline(struct fixture *k)
{
    uint64_t timer_ms = machine_next_deadline(k->m);
    uint64_t lease_ms =
        machine_mark_waits(k->m) ? UINT64_MAX : machine_next_lease(k->m, machine_clock(k->m));
    return timer_ms < lease_ms ? timer_ms : lease_ms;
}

unsigned fixture_drain(struct fixture *k)
{
    unsigned n = 0;
    for (; machine_has_work(k->m); n++) {
        assert_int_equal(machine_next_deadline(k->m), machine_clock(k->m));
        fixture_tick(k, k->clock_ms);
    }
    return n;
}

void fixture_mark(struct fixture *k, uint64_t clock_ms)
{
    k->flags = MACHINE_BATCH_TERM_MARK;
    fixture_tick(k, clock_ms);
}

struct machine_result fixture_query(struct fixture *k, struct machine_command c)
{
    struct machine_result r;
    uint64_t hash = machine_hash(k->m);
    fli_buf_clear(&k->payload);
    must(machine_query(k->m, &c, 0, &r, &k->payload));
    assert_int_equal(hash, machine_hash(k->m));
    return r;
}

struct machine_page fixture_page(struct fixture *k)
{
    struct machine_page page;
    assert_true(k->payload.len <= MACHINE_PAGE_SIZE_MAX);
    must(machine_page_open(k->payload.data, k->payload.len, &page));
    return page;
}

void fixture_expect_events(struct fixture *k, const char *text)
{
    must(fli_buf_append(&k->events, "", 1));
    assert_string_equal((const char *)k->events.data, text);
    fli_buf_clear(&k->events);
}

void fixture_forget_events(struct fixture *k)
{
    fli_buf_clear(&k->events);
}

void fixture_reload(struct fixture *k)
{
    struct fli_buf out;
    struct machine *m = NULL;
    fli_buf_init(&out, SIZE_MAX);
    must(machine_snapshot_encode(k->m, &out));
    must(machine_snapshot_decode(out.data, out.len, (const uint64_t[2]){11, 13}, &m));
    assert_int_equal(machine_hash(m), machine_hash(k->m));
    machine_check(m);
    machine_destroy(k->m);
    machine_set_event_cb(m, record, k);
    k->m = m;
    fli_buf_fini(&out);
}

struct fli_slice fixture_slice(const char *text)
{
    return (struct fli_slice){(const uint8_t *)text, strlen(text)};
}

struct machine_command cmd_acquire(const char *name, const char *owner, uint64_t ttl_ms)
{
    return (struct machine_command){.op = MACHINE_OP_ACQUIRE,
                                    .n_names = 1,
                                    .permits = 1,
                                    .name = fixture_slice(name),
                                    .owner = fixture_slice(owner),
                                    .ttl_ms = ttl_ms};
}

struct machine_command cmd_wait(const char *name, const char *owner, uint64_t ttl_ms,
                                uint64_t wait_ms)
{
    struct machine_command c = cmd_acquire(name, owner, ttl_ms);
    c.flags |= MACHINE_ACQUIRE_WAIT;
    c.wait_ms = wait_ms;
    return c;
}

struct machine_command cmd_acquire_x(const char *name, const char *owner)
{
    struct machine_command c = cmd_acquire(name, owner, 0);
    c.flags |= MACHINE_ACQUIRE_EXPLICIT;
    return c;
}

struct machine_command cmd_wait_x(const char *name, const char *owner, uint64_t wait_ms)
{
    struct machine_command c = cmd_wait(name, owner, 0, wait_ms);
    c.flags |= MACHINE_ACQUIRE_EXPLICIT;
    return c;
}

struct machine_command cmd_name(unsigned op, const char *name)
{
    return (struct machine_command){.op = (uint8_t)op, .name = fixture_slice(name)};
}

struct machine_command cmd_held(unsigned op, const char *name, uint64_t token, uint64_t ttl_ms)
{
    return (struct machine_command){
        .op = (uint8_t)op, .name = fixture_slice(name), .token = token, .ttl_ms = ttl_ms};
}

struct machine_command cmd_number(unsigned op, uint64_t number, uint64_t number2)
{
    return (struct machine_command){.op = (uint8_t)op, .number = number, .number2 = number2};
}

struct machine_command cmd_owner(unsigned op, const char *owner)
{
    return (struct machine_command){.op = (uint8_t)op, .owner = fixture_slice(owner)};
}

struct machine_command cmd_open(const char *owner, uint64_t ttl_ms, uint64_t lockdelay_ms,
                                const char *label)
{
    return (struct machine_command){.op = MACHINE_OP_SESSION_OPEN,
                                    .owner = fixture_slice(owner),
                                    .ttl_ms = ttl_ms,
                                    .lockdelay_ms = lockdelay_ms,
                                    .label = fixture_slice(label)};
}

struct machine_command cmd_limits(unsigned op, uint64_t number, struct machine_limits limits)
{
    return (struct machine_command){.op = (uint8_t)op, .number = number, .limits = limits};
}

uint64_t fixture_rounds(uint64_t usual)
{
    const char *times = getenv("FENCELOCK_ROUNDS");
    uint64_t n = times == NULL ? 1 : strtoull(times, NULL, 10);
    return usual * (n == 0 ? 1 : n);
}

int fixture_setup(void **state)
{
    struct fixture *k = malloc(sizeof *k);
    fixture_init(k);
    *state = k;
    return 0;
}

int fixture_teardown(void **state)
{
    fixture_fini(*state);
    free(*state);
    return 0;
}
