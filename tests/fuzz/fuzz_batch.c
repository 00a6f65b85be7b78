/* fuzz_batch.c: commands and batches of any bytes, on a machine that must stay sound.
 *
 * The input is taken for a whole batch first, as it is. Then it is walked: where a command can be
 * decoded it is collected for the next batch (a query is asked), any other byte is a step of time
 * that seals and applies what was collected; so every input does something.
 * The length of the input decides how many steps a batch has for work; what is left is found in the
 * snapshot as well. */
#include "fuzz.h"

#include "../lib/machine_check.h"
#include "../lib/snapshot_bytes.h"
#include "machine/budget.h"
#include "machine/machine.h"

static const uint64_t seed[2] = {1, 2};

struct run {
    struct machine *m;
    struct fli_buf batch;
    uint32_t count;
    uint64_t clock_ms;
};

static void start(struct run *r)
{
    static const uint8_t room[MACHINE_BATCH_HEADER_SIZE];
    fli_buf_clear(&r->batch);
    r->count = 0;
    FLI_ASSERT(fli_buf_append(&r->batch, room, sizeof room) == 0);
}

static void apply(struct run *r, uint8_t step)
{
    r->clock_ms += step;
    FLI_ASSERT(fli_buf_reserve(&r->batch, 8) == 0);
    struct machine_batch_header h = {
        .flags = step % 8 == 7 ? MACHINE_BATCH_TERM_MARK : 0,
        .count = r->count,
        .timestamp_ms = r->clock_ms,
        .term = 1,
        .length = (uint32_t)r->batch.len,
    };
    size_t len = machine_batch_seal(r->batch.data, &h);
    FLI_ASSERT(machine_apply(r->m, r->batch.data, len, NULL) == 0);
    machine_check(r->m);
    start(r);
}

/* What decodes must be what its command encodes to. */
static void check_encoding(const struct machine_command *c, const uint8_t *data, size_t size)
{
    if (machine_command_check(c) != 0) {
        FLI_ASSERT(c->op == MACHINE_OP_ACQUIRE && c->n_names > 1);
        return;
    }
    struct fli_buf again;
    fli_buf_init(&again, MACHINE_COMMAND_LARGEST);
    FLI_ASSERT(machine_command_encode(c, &again) == 0);
    FLI_ASSERT(fli_bytes_cmp(again.data, again.len, data, size) == 0);
    fli_buf_fini(&again);
}

static void ask(struct run *r, const struct machine_command *c)
{
    struct fli_buf payload;
    struct machine_result result;
    fli_buf_init(&payload, MACHINE_PAGE_SIZE_MAX);
    FLI_ASSERT(machine_query(r->m, c, 0, &result, &payload) == 0);
    fli_buf_fini(&payload);
}

static void walk(struct run *r, const uint8_t *data, size_t size)
{
    size_t i = 0;
    while (i < size) {
        struct machine_command c;
        size_t used = 0;
        if (machine_command_decode(data + i, size - i, &c, &used) != 0) {
            apply(r, data[i++]);
            continue;
        }
        check_encoding(&c, data + i, used);
        if (MACHINE_OP_IS_QUERY(c.op)) {
            ask(r, &c);
        } else if (r->count < 100) {
            FLI_ASSERT(fli_buf_append(&r->batch, data + i, used) == 0);
            r->count++;
        }
        i += used;
    }
    apply(r, 1);
}

static void check_snapshot(const struct machine *m)
{
    struct fli_buf out;
    struct machine *copy = NULL;
    fli_buf_init(&out, SIZE_MAX);
    FLI_ASSERT(machine_snapshot_encode(m, &out) == 0);
    FLI_ASSERT(machine_snapshot_decode(out.data, out.len, seed, &copy) == 0);
    FLI_ASSERT(machine_hash(copy) == machine_hash(m));
    FLI_ASSERT(machine_has_work(copy) == machine_has_work(m));
    machine_check(copy);
    machine_destroy(copy);
    fli_buf_fini(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct run r = {.m = machine_create(seed)};
    fli_buf_init(&r.batch, MACHINE_BATCH_MAX);
    if (size % 3 != 0) {
        const struct budget budget = {.due = 1 + (uint32_t)(size / 3) % 50,
                                      .commands = (uint32_t)(size / 2) % 50,
                                      .search_max = (uint32_t)size % 50};
        machine_set_budget(r.m, &budget);
    }
    (void)(machine_apply(r.m, data, size, NULL) == 0);
    r.clock_ms = machine_clock(r.m);
    /* What such an input may have put into the future leaves room for the steps. */
    if (size <= 16384 && r.clock_ms < MACHINE_CLOCK_MAX_MS / 2) {
        start(&r);
        walk(&r, data, size);
    }
    machine_check(r.m);
    check_snapshot(r.m);
    machine_destroy(r.m);
    fli_buf_fini(&r.batch);
    return 0;
}
