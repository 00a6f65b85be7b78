#include "rig.h"

static void on_durable(void *ctx)
{
    struct rig *r = ctx;
    r->durable_calls++;
}

static void on_failed(void *ctx, int error, const char *message)
{
    struct rig *r = ctx;
    assert_int_equal(error, FL_EIO);
    r->failed_calls++;
    snprintf(r->failure, sizeof r->failure, "%s", message);
}

static void on_say(void *ctx, enum log_level level, const char *message)
{
    struct rig *r = ctx;
    r->said[level]++;
    snprintf(r->last_said, sizeof r->last_said, "%s", message);
}

static void on_closed(void *ctx)
{
    struct rig *r = ctx;
    r->closed_calls++;
}

void rig_init(struct rig *r, uint64_t seed, uint64_t segment_bytes)
{
    memset(r, 0, sizeof *r);
    r->sim = sim_device_create(seed);
    r->config = (struct log_config){.device = sim_device_base(r->sim),
                                    .segment_bytes = segment_bytes,
                                    .ctx = r,
                                    .durable = on_durable,
                                    .failed = on_failed,
                                    .log = on_say};
}

int rig_try_open(struct rig *r)
{
    assert_null(r->log);
    r->config.device = sim_device_base(r->sim);
    r->errmsg[0] = '\0';
    return log_open(&r->config, &r->log, r->errmsg, sizeof r->errmsg);
}

void rig_open(struct rig *r)
{
    int rv = rig_try_open(r);
    if (rv != 0) {
        print_message("log_open: %d: %s\n", rv, r->errmsg);
    }
    assert_int_equal(rv, 0);
}

void rig_close(struct rig *r)
{
    unsigned before = r->closed_calls;
    log_close(r->log, on_closed, r);
    sim_device_drain(r->sim);
    assert_int_equal(r->closed_calls, before + 1);
    log_destroy(r->log);
    r->log = NULL;
}

void rig_crash(struct rig *r, enum sim_crash how)
{
    unsigned before = r->closed_calls;
    log_close(r->log, on_closed, r);
    sim_device_crash(r->sim, how);
    assert_int_equal(r->closed_calls, before + 1);
    log_destroy(r->log);
    r->log = NULL;
}

void rig_fini(struct rig *r)
{
    if (r->log != NULL) {
        rig_close(r);
    }
    sim_device_destroy(r->sim);
}

/* With stretches of zeros, which look like sectors that were not written. */
void rig_fill(uint8_t *data, uint64_t index, uint64_t term, size_t len)
{
    uint64_t state = index * 1000003 + term * 7919 + len;
    for (size_t i = 0; i < len; i++) {
        if (i % 700 == 0) {
            (void)rng_next(&state);
        }
        uint64_t byte = state >> i % 8 * 8 ^ i;
        data[i] = (uint8_t)((state & 3) == 0 ? 0 : byte);
    }
}

uint64_t rig_append(struct rig *r, uint64_t term, size_t len)
{
    uint8_t *data = malloc(len == 0 ? 1 : len);
    assert_non_null(data);
    struct log_entry e = {.index = log_last_index(r->log) + 1,
                          .term = term,
                          .kind = (uint8_t)(1 + len % 255),
                          .len = (uint32_t)len,
                          .data = data};
    rig_fill(data, e.index, term, len);
    uint64_t position = log_append(r->log, &e);
    free(data);
    return position;
}

void rig_sync(struct rig *r)
{
    log_flush(r->log);
    for (unsigned i = 0; log_durable(r->log) < log_position(r->log); i++) {
        assert_true(i < 10000 && sim_device_step(r->sim));
    }
}

int rig_read(struct log *l, uint64_t index, struct log_entry *ret)
{
    unsigned n = 0;
    return log_read_some(l, index, 0, ret, 1, &n);
}

bool rig_entry_ok(struct rig *r, uint64_t index)
{
    struct log_entry e;
    if (rig_read(r->log, index, &e) != 0) {
        return false;
    }
    uint8_t *data = malloc(e.len + 1);
    assert_non_null(data);
    rig_fill(data, index, e.term, e.len);
    bool ok = e.index == index && e.kind == 1 + e.len % 255 &&
              e.term == log_term_of(r->log, index) &&
              (e.len == 0 || memcmp(data, e.data, e.len) == 0);
    free(data);
    return ok;
}
