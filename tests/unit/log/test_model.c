/* test_model.c: random histories on the simulated disk, with crashes, against a naive model: an
 * array of entries after each position. What a crash leaves must be the state after some position
 * that is not below the last one reported as durable, and not above the last one written.
 *
 * FENCELOCK_WORLDS: how many histories (2000); FENCELOCK_SEED gives the same ones again. */
#include <errno.h>

#include "rig.h"

#define ENTRIES_MAX 4096u
#define PENDING_MAX 4096u

struct item {
    uint64_t term;
    uint32_t len;
};

/* Entries base + 1 to last; items[i - base - 1] is entry i. */
struct state {
    struct log_hard_state hard;
    uint64_t base, base_term, last;
    struct item items[ENTRIES_MAX];
};

enum change_type { APPEND, TRUNCATE, HARD_STATE, RESET };

struct change {
    enum change_type type;
    uint64_t index, term;
    uint32_t len;
    struct log_hard_state hard;
};

struct world {
    uint64_t rng;
    struct rig rig;
    struct state now;    /* in force */
    struct state stable; /* after position `stable_position` */
    uint64_t stable_position;
    struct change changes[PENDING_MAX]; /* after that */
    uint64_t changes_len;
    uint64_t term;
    uint64_t compacted; /* what was given to log_compact, or the reset's index */
    unsigned crashes;
};

static void apply(struct state *s, const struct change *c)
{
    switch (c->type) {
    case APPEND:
        assert_int_equal(c->index, s->last + 1);
        s->items[s->last - s->base] = (struct item){.term = c->term, .len = c->len};
        s->last++;
        break;
    case TRUNCATE:
        s->last = c->index - 1;
        break;
    case HARD_STATE:
        s->hard = c->hard;
        break;
    case RESET:
        s->base = s->last = c->index;
        s->base_term = c->term;
        break;
    }
}

static uint64_t term_at(const struct state *s, uint64_t index)
{
    return index == s->base ? s->base_term : s->items[index - s->base - 1].term;
}

static void note(struct world *w, const struct change *c, uint64_t position)
{
    assert_int_not_equal(position, 0);
    assert_true(w->changes_len < PENDING_MAX);
    w->changes[w->changes_len++] = *c;
    apply(&w->now, c);
    assert_int_equal(position, w->stable_position + w->changes_len);
}

/* Takes up what became durable. */
static void settle(struct world *w)
{
    uint64_t n = log_durable(w->rig.log) - w->stable_position;
    assert_true(n <= w->changes_len);
    for (uint64_t i = 0; i < n; i++) {
        apply(&w->stable, &w->changes[i]);
    }
    w->changes_len -= n;
    memmove(w->changes, w->changes + n, w->changes_len * sizeof w->changes[0]);
    w->stable_position += n;
}

static bool matches(struct world *w, const struct state *s)
{
    struct log *l = w->rig.log;
    struct log_hard_state hard = log_get_hard_state(l);
    if (hard.term != s->hard.term || hard.vote != s->hard.vote || log_last_index(l) != s->last) {
        return false;
    }
    for (uint64_t i = log_first_index(l); i <= s->last; i++) {
        struct log_entry e;
        if (i <= s->base || rig_read(l, i, &e) != 0 || e.term != term_at(s, i) ||
            e.len != s->items[i - s->base - 1].len || !rig_entry_ok(&w->rig, i)) {
            return false;
        }
    }
    uint64_t before = log_first_index(l) - 1;
    uint64_t term = log_term_of(l, before);
    return before >= s->base && (term == 0 || term == term_at(s, before));
}

/* Takes it from memory, or sees to it that it is being read. */
static void check_taken(struct world *w, uint64_t index)
{
    struct log_entry e;
    unsigned n = 0;
    int rv = log_take_some(w->rig.log, index, SIZE_MAX, &e, 1, &n);
    if (rv == FL_EBUSY) {
        assert_true(sim_device_busy(w->rig.sim, LOG_LANE_READ));
        return;
    }
    assert_int_equal(rv, 0);
    uint8_t *data = fli_xmalloc(e.len + 1);
    rig_fill(data, index, term_at(&w->now, index), e.len);
    assert_int_equal(e.term, term_at(&w->now, index));
    assert_memory_equal(e.data, data, e.len);
    free(data);
}

/* What must be so at any time. */
static void check(struct world *w)
{
    struct log *l = w->rig.log;
    struct state *s = &w->now;
    assert_int_equal(log_last_index(l), s->last);
    assert_int_equal(log_get_hard_state(l).term, s->hard.term);
    assert_int_equal(log_get_hard_state(l).vote, s->hard.vote);
    assert_true(log_first_index(l) > s->base && log_first_index(l) <= s->last + 1);
    assert_true(log_first_index(l) <= w->compacted + 1);
    assert_true(log_durable(l) <= log_position(l));
    assert_true(log_durable_index(l) <= s->last);
    if (s->last > s->base) {
        uint64_t i = log_first_index(l) - 1 + rng_below(&w->rng, s->last + 2 - log_first_index(l));
        uint64_t term = log_term_of(l, i);
        assert_true(term == term_at(s, i) || (term == 0 && i < log_first_index(l)));
        if (i >= log_first_index(l)) {
            assert_true(rig_entry_ok(&w->rig, i));
            check_taken(w, i);
        }
    }
    assert_int_equal(log_term_of(l, s->last + 1), 0);
    struct log_stats stats;
    log_get_stats(l, &stats);
    assert_true(stats.memory_bytes <= w->rig.config.cache_bytes + 64000 || stats.age_ns > 0 ||
                log_durable(l) < log_position(l));
}

/* --- what happens --- */

static void append(struct world *w)
{
    uint64_t n = 1 + rng_below(&w->rng, rng_below(&w->rng, 8) == 0 ? 40 : 4);
    for (; n > 0 && w->now.last - w->now.base < ENTRIES_MAX - 1 && w->changes_len < PENDING_MAX - 8;
         n--) {
        uint32_t max = log_entry_max(w->rig.log);
        uint32_t len = (uint32_t)rng_below(&w->rng, rng_below(&w->rng, 30) == 0 ? max + 1 : 300);
        if (log_record_size(len) > log_room(w->rig.log)) {
            return;
        }
        w->term += rng_below(&w->rng, 20) == 0;
        if (w->term < w->now.base_term) {
            w->term = w->now.base_term;
        }
        struct change c = {.type = APPEND, .index = w->now.last + 1, .term = w->term, .len = len};
        note(w, &c, rig_append(&w->rig, w->term, len));
    }
}

static void truncate(struct world *w)
{
    uint64_t low = log_first_index(w->rig.log);
    if (low < w->compacted + 1) {
        low = w->compacted + 1;
    }
    if (low > w->now.last + 1) {
        return;
    }
    struct change c = {.type = TRUNCATE, .index = low + rng_below(&w->rng, w->now.last + 2 - low)};
    note(w, &c, log_truncate(w->rig.log, c.index));
    w->term++;
}

static void set_hard_state(struct world *w)
{
    struct change c = {
        .type = HARD_STATE,
        .hard = {.term = w->now.hard.term + rng_below(&w->rng, 3), .vote = rng_below(&w->rng, 4)}};
    note(w, &c, log_set_hard_state(w->rig.log, &c.hard));
}

static void reset(struct world *w)
{
    struct change c = {.type = RESET,
                       .index = w->now.last + rng_below(&w->rng, 50),
                       .term = w->term + rng_below(&w->rng, 2)};
    note(w, &c, log_reset(w->rig.log, c.index, c.term));
    w->compacted = c.index;
}

/* Raft compacts what is committed, so what is durable. */
static void compact(struct world *w)
{
    uint64_t to = log_durable_index(w->rig.log);
    if (to > w->compacted) {
        w->compacted += 1 + rng_below(&w->rng, to - w->compacted);
        log_compact(w->rig.log, w->compacted);
    }
}

/* Segments are made and removed with these calls. */
static const enum sim_call background_calls[] = {
    SIM_BACKGROUND, SIM_ALLOCATE, SIM_WRITE, SIM_SYNC, SIM_RENAME, SIM_REMOVE, SIM_SYNC_DIR};
#define BACKGROUND_CALLS (sizeof background_calls / sizeof background_calls[0])

static void fail_calls(struct world *w)
{
    sim_device_fail(w->rig.sim, background_calls[rng_below(&w->rng, BACKGROUND_CALLS)], 1,
                    1 + (unsigned)rng_below(&w->rng, 3),
                    rng_below(&w->rng, 2) == 0 ? -EIO : -ENOSPC);
}

/* A start takes no failure. */
static void fail_no_calls(struct world *w)
{
    for (unsigned i = 0; i < BACKGROUND_CALLS; i++) {
        sim_device_fail(w->rig.sim, background_calls[i], 1, 0, 0);
    }
}

static void reopen(struct world *w)
{
    uint64_t durable_index = 0;
    uint64_t reset_pending = 0;
    struct log *l = w->rig.log;
    settle(w);
    fail_no_calls(w);
    sim_device_capacity(w->rig.sim, UINT64_MAX);
    durable_index = log_durable_index(l);
    for (uint64_t i = 0; i < w->changes_len; i++) {
        reset_pending |= w->changes[i].type == RESET;
    }
    switch (rng_below(&w->rng, 3)) {
    case 0:
        rig_close(&w->rig);
        break;
    case 1:
        rig_crash(&w->rig, SIM_CRASH_PROCESS);
        break;
    default:
        rig_crash(&w->rig, SIM_CRASH_POWER);
        break;
    }
    w->crashes++;
    w->rig.config.cache_bytes = 1 + rng_below(&w->rng, 30000);
    rig_open(&w->rig);
    l = w->rig.log;
    if (!reset_pending) {
        assert_true(log_last_index(l) >= durable_index);
        for (uint64_t i = log_first_index(l); i <= durable_index; i++) {
            assert_int_equal(log_term_of(l, i), term_at(&w->now, i));
        }
    }
    uint64_t n = 0;
    while (!matches(w, &w->stable)) {
        assert_true(n < w->changes_len); /* else nothing that ever was */
        apply(&w->stable, &w->changes[n++]);
    }
    memcpy(&w->now, &w->stable, sizeof w->now);
    w->stable_position = 0;
    w->changes_len = 0;
    assert_int_equal(log_durable(l), 0);
    assert_int_equal(log_durable_index(l), log_last_index(l));
    if (w->compacted > w->now.last || w->compacted < w->now.base) {
        w->compacted = log_first_index(l) - 1; /* a reset that did not survive */
    }
    if (w->compacted > w->now.base) {
        log_compact(l, w->compacted);
    }
    uint64_t last_term = log_last_term(l);
    w->term = w->term < last_term ? last_term : w->term;
}

static void step(struct world *w)
{
    uint64_t what = rng_below(&w->rng, 1000);
    struct log *l = w->rig.log;
    if (what < 350) {
        append(w);
    } else if (what < 400) {
        truncate(w);
    } else if (what < 460) {
        set_hard_state(w);
    } else if (what < 465) {
        reset(w);
    } else if (what < 490) {
        compact(w);
    } else if (what < 630) {
        log_flush(l);
    } else if (what < 700) {
        *sim_device_clock(w->rig.sim) += rng_below(&w->rng, 2000000000);
        (void)log_flush_here(l);
        settle(w);
    } else if (what < 980) {
        if (sim_device_step(w->rig.sim)) {
            settle(w);
        }
    } else if (what < 982) {
        struct log_stats stats;
        log_get_stats(l, &stats);
        sim_device_capacity(w->rig.sim, stats.bytes + rng_below(&w->rng, 3) * LOG_BLOCK * 8);
    } else if (what < 984) {
        sim_device_capacity(w->rig.sim, UINT64_MAX);
    } else if (what < 990) {
        fail_calls(w);
    } else {
        reopen(w);
    }
}

static void run_world(uint64_t seed, unsigned steps)
{
    struct world *w = test_calloc(1, sizeof *w);
    w->rng = seed;
    w->term = 1;
    uint64_t segment = (4 + rng_below(&w->rng, 12)) * LOG_BLOCK;
    rig_init(&w->rig, rng_next(&w->rng), segment);
    w->rig.config.cache_bytes = 1 + rng_below(&w->rng, 30000);
    rig_open(&w->rig);
    for (unsigned i = 0; i < steps; i++) {
        step(w);
        check(w);
        assert_int_equal(w->rig.failed_calls, 0);
        assert_true(sim_device_files(w->rig.sim) < 60);
        if (w->now.last - w->now.base > ENTRIES_MAX - 100) {
            reset(w);
        }
    }
    fail_no_calls(w);
    sim_device_capacity(w->rig.sim, UINT64_MAX);
    /* In the end all can be made durable, and is found again. */
    rig_sync(&w->rig);
    settle(w);
    assert_int_equal(w->changes_len, 0);
    rig_crash(&w->rig, SIM_CRASH_POWER);
    rig_open(&w->rig);
    assert_true(matches(w, &w->stable));
    rig_fini(&w->rig);
    test_free(w);
}

TEST(histories)
{
    const char *given = getenv("FENCELOCK_WORLDS");
    unsigned worlds = given == NULL ? 300 : (unsigned)strtoul(given, NULL, 0);
    uint64_t rng = rng_seed();
    for (unsigned i = 0; i < worlds; i++) {
        uint64_t seed = i == 0 ? rng : rng_next(&rng);
        if (getenv("FENCELOCK_VERBOSE") != NULL) {
            print_message("world %u: FENCELOCK_SEED=%llu FENCELOCK_WORLDS=1\n", i,
                          (unsigned long long)seed);
        }
        run_world(seed, 400);
    }
}
