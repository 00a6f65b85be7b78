/* test_fsm.c: what is applied, who hears of it, and a state that takes the place of another. */
#include "../../lib/give_up.h"
#include "../../lib/snapshot_bytes.h"
#include "../../lib/unit.h"

#include "base/bytes.h"
#include "base/crc32c.h"
#include "consensus/fsm.h"

#define OWNER "owner-of-16-bytes-a"

/* The caller frees the bytes. */
struct entry {
    uint8_t *data;
    size_t len;
};

struct rig {
    struct fsm *fsm;
    unsigned fatals, restores, events;
    int error;
    uint64_t sequence;
    /* The observer's diary: b, digit of the command, e. */
    char diary[32];
    bool ours;
};

static void on_fatal(void *ctx, int error, const char *message)
{
    struct rig *r = ctx;
    assert_non_null(message);
    r->fatals++;
    r->error = error;
}

static void on_restored(void *ctx)
{
    struct rig *r = ctx;
    r->restores++;
}

static void write_down(struct rig *r, char c)
{
    size_t n = strlen(r->diary);
    assert_true(n + 1 < sizeof r->diary);
    r->diary[n] = c;
}

static void on_event(void *ctx, const struct machine_event *e)
{
    struct rig *r = ctx;
    r->events++;
    write_down(r, e->type == MACHINE_EVENT_GRANTED   ? 'g'
                  : e->type == MACHINE_EVENT_EXPIRED ? 'x'
                                                     : '.');
}

static bool on_begin(void *ctx, const struct machine_batch_header *h)
{
    struct rig *r = ctx;
    assert_int_equal(h->sequence, r->sequence);
    assert_int_equal(h->term, 3);
    write_down(r, 'b');
    return r->ours;
}

static void on_command(void *ctx, uint32_t index, const struct machine_result *result)
{
    write_down(ctx, (char)('0' + index));
}

static void on_end(void *ctx)
{
    write_down(ctx, 'e');
}

static struct rig rig;

static int setup(void **state)
{
    struct rig *r = &rig;
    memset(r, 0, sizeof *r);
    struct fsm_config config = {.event = on_event,
                                .event_ctx = r,
                                .host = {.ctx = r, .fail = on_fatal},
                                .restored = on_restored,
                                .ctx = r};
    assert_int_equal(fsm_create(&config, NULL, &r->fsm), 0);
    r->fsm->observer = (struct fsm_observer){r, on_begin, on_command, on_end};
    *state = r;
    return 0;
}

static int teardown(void **state)
{
    struct rig *r = *state;
    fsm_destroy(r->fsm);
    return 0;
}

/* One batch of `count` acquires of one lock with the given ttl. */
static struct entry batch(struct rig *r, uint64_t timestamp_ms, unsigned count, uint64_t ttl_ms)
{
    struct fli_buf b;
    uint8_t header[MACHINE_BATCH_HEADER_SIZE] = {0};
    fli_buf_init(&b, 65536);
    assert_int_equal(fli_buf_append(&b, header, sizeof header), 0);
    for (unsigned i = 0; i < count; i++) {
        char name = (char)('a' + i);
        struct machine_command c = {.op = MACHINE_OP_ACQUIRE,
                                    .n_names = 1,
                                    .permits = 1,
                                    .name = {(const uint8_t *)&name, 1},
                                    .owner = {(const uint8_t *)OWNER, strlen(OWNER)},
                                    .ttl_ms = ttl_ms};
        assert_int_equal(machine_command_encode(&c, &b), 0);
    }
    count += give_up_leases(fsm_machine(r->fsm), timestamp_ms, &b, UINT32_MAX);
    assert_int_equal(fli_buf_reserve(&b, 8), 0);
    struct machine_batch_header h = {.count = count,
                                     .timestamp_ms = timestamp_ms,
                                     .term = 3,
                                     .sequence = ++r->sequence,
                                     .length = (uint32_t)b.len};
    size_t size = machine_batch_seal(b.data, &h);
    return (struct entry){b.data, size};
}

static int apply(struct rig *r, struct entry e)
{
    memset(r->diary, 0, sizeof r->diary);
    int rv = fsm_apply(r->fsm, e.data, e.len);
    free(e.data);
    return rv;
}

TEST_WITH(asks_the_leader_between_the_commands, setup, teardown)
{
    struct rig *r = *state;
    r->ours = true;
    assert_int_equal(apply(r, batch(r, 100, 3, 50)), 0);
    assert_string_equal(r->diary, "bg0g1g2e");
    /* What is due expires before the leader is asked. */
    assert_int_equal(apply(r, batch(r, 200, 1, 50)), 0);
    assert_string_equal(r->diary, "xxxbg0123e"); /* and the three EXPIRE, which are done */
    assert_int_equal(apply(r, batch(r, 200, 0, 50)), 0);
    assert_string_equal(r->diary, "be");
}

TEST_WITH(leaves_the_leader_alone_with_batches_of_others, setup, teardown)
{
    struct rig *r = *state;
    assert_int_equal(apply(r, batch(r, 100, 2, 5000)), 0);
    assert_string_equal(r->diary, "bgg");
    r->fsm->observer = (struct fsm_observer){0};
    assert_int_equal(apply(r, batch(r, 100, 1, 5000)), 0);
    assert_string_equal(r->diary, "");
}

TEST_WITH(halts_at_a_corrupt_entry, setup, teardown)
{
    struct rig *r = *state;
    assert_int_equal(apply(r, batch(r, 100, 1, 5000)), 0);
    uint64_t hash = machine_hash(fsm_machine(r->fsm));
    struct entry bad = batch(r, 200, 1, 50);
    bad.data[bad.len / 2] ^= 1;
    assert_int_not_equal(apply(r, bad), 0);
    assert_int_equal(r->fatals, 1);
    assert_int_equal(r->error, FL_ECORRUPT);
    assert_string_equal(r->diary, "");
    /* Nothing is applied behind the hole, and nothing is told twice. */
    assert_int_not_equal(apply(r, batch(r, 300, 1, 50)), 0);
    assert_int_equal(r->fatals, 1);
    assert_true(machine_hash(fsm_machine(r->fsm)) == hash);
}

TEST_WITH(halts_at_an_unknown_version, setup, teardown)
{
    struct rig *r = *state;
    struct entry bad = batch(r, 200, 1, 50);
    uint8_t *p = bad.data;
    p[0] = 77;
    fli_put_u32(p + 36, 0);
    fli_put_u32(p + 36, fli_crc32c(0, p, fli_get_u32(p + 32)));
    assert_int_not_equal(apply(r, bad), 0);
    assert_int_equal(r->error, FL_EVERSION);
}

static struct machine *machine_of_a_snapshot(struct machine *of)
{
    static const uint64_t seed[2] = {3, 4};
    struct fli_buf bytes;
    struct machine *m;
    fli_buf_init(&bytes, 65536);
    assert_int_equal(machine_snapshot_encode(of, &bytes), 0);
    assert_int_equal(machine_snapshot_decode(bytes.data, bytes.len, seed, &m), 0);
    fli_buf_fini(&bytes);
    return m;
}

TEST_WITH(another_state_takes_its_place, setup, teardown)
{
    struct rig *r = *state;
    struct entry one = batch(r, 100, 3, 5000);
    size_t len = one.len;
    assert_int_equal(apply(r, one), 0);
    struct machine *fresh = machine_of_a_snapshot(fsm_machine(r->fsm));
    uint64_t hash = machine_hash(fresh);
    assert_int_equal(apply(r, batch(r, 200, 4, 5000)), 0);
    assert_true(machine_hash(fsm_machine(r->fsm)) != hash);
    struct machine *before = fsm_machine(r->fsm);
    struct machine *old = fsm_replace(r->fsm, fresh);
    assert_ptr_equal(old, before);
    assert_ptr_equal(fsm_machine(r->fsm), fresh);
    assert_int_equal(r->restores, 1);
    assert_true(machine_hash(fsm_machine(r->fsm)) == hash);
    assert_int_equal(r->fsm->entries, 2);
    assert_true(r->fsm->bytes > len);
    assert_int_equal(r->fsm->restores, 1);
    /* Events of the new machine go where those of the old one went, and the old one is silent. */
    r->ours = true;
    assert_int_equal(apply(r, batch(r, 300, 4, 5000)), 0);
    assert_string_equal(r->diary, "b012g3e");
    unsigned events = r->events;
    machine_destroy(old);
    assert_int_equal(r->events, events);
    assert_int_equal(r->fatals, 0);
}
