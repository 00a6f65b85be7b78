/* log.c: appending, writing, durability, closing.
 *
 * An append becomes a record of the last batch, at its place in the segment. log_flush() hands the
 * first batch to the device when no write is under way. When the write is done, its positions are
 * durable, and the next batch follows at once if a flush was requested meanwhile. A batch ends
 * where its chunk ends, so more than two exist only while the disk is slow or full. */
#include "log/log_private.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WAIT_MS 10
#define SLOW_NS UINT64_C(1000000)        /* of a write */
#define SLOW_FOR_NS UINT64_C(1000000000) /* so long nobody waits for the disk after a slow write */

void log_message(const struct log *l, enum log_level level, const char *fmt, ...)
{
    char text[512];
    va_list args;
    if (l->config.log == NULL) {
        return;
    }
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    l->config.log(l->config.ctx, level, text);
}

/* --- the present state --- */

struct log_hard_state log_get_hard_state(const struct log *l)
{
    return l->now.hard;
}

uint64_t log_first_index(const struct log *l)
{
    return l->now.entries.first;
}

uint64_t log_last_index(const struct log *l)
{
    return l->now.entries.last;
}

uint64_t log_term_of(const struct log *l, uint64_t index)
{
    return log_entries_term(&l->now.entries, index);
}

uint64_t log_last_term(const struct log *l)
{
    return log_entries_term(&l->now.entries, l->now.entries.last);
}

uint8_t log_kind_of(const struct log *l, uint64_t index)
{
    return log_entries_slot(&l->now.entries, index)->kind;
}

uint64_t log_position(const struct log *l)
{
    return l->position;
}

uint64_t log_durable(const struct log *l)
{
    return l->durable;
}

uint64_t log_durable_index(const struct log *l)
{
    return l->durable_index;
}

uint32_t log_entry_max(const struct log *l)
{
    uint64_t fits = l->config.segment_bytes - LOG_WRITE_HEADER - LOG_RECORD_HEADER;
    return fits < LOG_ENTRY_MAX ? (uint32_t)fits : LOG_ENTRY_MAX;
}

size_t log_room(const struct log *l)
{
    return l->waiting_bytes >= LOG_PENDING_MAX ? 0 : LOG_PENDING_MAX - l->waiting_bytes;
}

/* --- batches --- */

static bool is_under_way(const struct log *l, const struct log_batch *b)
{
    return b == l->head && l->write.busy;
}

/* Whether one more record, of `size` bytes, can be added. */
static bool fits(const struct log *l, const struct log_batch *b, size_t size)
{
    uint64_t end = b->write.offset + log_round_up(b->write.len + size, l->block);
    return !is_under_way(l, b) && b->write.len + size <= LOG_CHUNK_BYTES &&
           end <= b->chunk->offset + b->chunk->len;
}

/* The chunk for a write of `need` bytes at this place. */
static struct log_chunk *chunk_for(struct log *l, uint32_t segment, uint64_t offset, size_t need)
{
    struct log_chunk *c = log_chunk_at(l, segment, offset, need);
    if (c != NULL) {
        return c;
    }
    uint64_t rest = (log_segment_size(l, segment) - offset) / l->block * l->block;
    size_t len = need > LOG_CHUNK_BYTES ? need : LOG_CHUNK_BYTES;
    len = len < rest ? len : (size_t)rest;
    return log_chunk_add(l, segment, offset, len, aligned_alloc(l->block, len));
}

/* A new batch behind the last one, with room for a record of `size` bytes. NULL without memory. */
static struct log_batch *add_batch(struct log *l, size_t size)
{
    size_t need = log_round_up(LOG_WRITE_HEADER + size, l->block);
    uint32_t segment = l->current;
    uint64_t offset = l->offset;
    if (l->tail != NULL) {
        segment = l->tail->write.segment;
        offset = l->tail->write.offset + log_round_up(l->tail->write.len, l->block);
    }
    if (offset + need > log_segment_size(l, segment)) {
        segment++;
        offset = 0;
    }
    struct log_chunk *c = chunk_for(l, segment, offset, need);
    struct log_batch *b = c == NULL ? NULL : calloc(1, sizeof *b);
    if (b == NULL) {
        return NULL;
    }
    c->writes++;
    b->chunk = c;
    b->write = (struct log_write){
        .segment = segment,
        .offset = offset,
        .len = LOG_WRITE_HEADER,
        .before = log_state_of(&l->now),
    };
    if (l->tail == NULL) {
        l->head = b;
    } else {
        l->tail->next = b;
    }
    l->tail = b;
    return b;
}

/* The batch for the next record, of `size` bytes. NULL without memory. */
static struct log_batch *room_for(struct log *l, size_t size)
{
    return l->tail != NULL && fits(l, l->tail, size) ? l->tail : add_batch(l, size);
}

static void end_batch(struct log *l)
{
    struct log_batch *b = l->head;
    l->head = b->next;
    l->tail = l->head == NULL ? NULL : l->tail;
    b->chunk->writes--;
    free(b);
}

/* Appends a record: what it does now is what it will do when the log is recovered. 0: no memory. */
static uint64_t put(struct log *l, struct log_record *r)
{
    size_t size = log_record_size(r->len);
    FLI_ASSERT(!l->closing && log_record_can_follow(&l->now, r));
    struct log_batch *b = room_for(l, size);
    if (b == NULL) {
        return 0;
    }
    log_record_encode(r, log_batch_data(b) + b->write.len);
    log_record_apply(&l->now, r, b->write.segment, b->write.offset + b->write.len);
    b->hard_at = r->type == LOG_RECORD_HARD_STATE ? b->write.len : b->hard_at;
    b->write.len += (uint32_t)size;
    b->last_position = ++l->position;
    l->waiting_bytes += size;
    return l->position;
}

/* --- appending --- */

uint64_t log_append(struct log *l, const struct log_entry *e)
{
    FLI_ASSERT(e->len <= log_entry_max(l));
    if (log_record_size(e->len) > log_room(l) || log_entries_reserve(&l->now.entries) != 0) {
        return 0;
    }
    struct log_record r = {.type = LOG_RECORD_ENTRY,
                           .kind = e->kind,
                           .index = e->index,
                           .term = e->term,
                           .len = e->len,
                           .data = e->data};
    return put(l, &r);
}

uint64_t log_truncate(struct log *l, uint64_t index)
{
    struct log_record r = {
        .type = LOG_RECORD_TRUNCATE, .index = index, .term = log_term_of(l, index - 1)};
    FLI_ASSERT(index >= l->now.entries.first);
    uint64_t position = put(l, &r);
    if (position != 0) {
        l->truncated_at = position;
        l->durable_index = l->durable_index < index ? l->durable_index : index - 1;
    }
    return position;
}

uint64_t log_reset(struct log *l, uint64_t index, uint64_t term)
{
    struct log_record r = {.type = LOG_RECORD_RESET, .index = index, .term = term};
    uint64_t position = put(l, &r);
    if (position != 0) {
        l->truncated_at = position;
        l->durable_index = l->compact_index = index;
    }
    return position;
}

/* A write is on disk as a whole or not at all. So it needs no more than one hard state, and in its
 * place the newest: elections on a full disk need no memory. */
uint64_t log_set_hard_state(struct log *l, const struct log_hard_state *hs)
{
    struct log_record r = {.type = LOG_RECORD_HARD_STATE, .index = hs->vote, .term = hs->term};
    struct log_batch *b = l->tail;
    if (b == NULL || b->hard_at == 0 || is_under_way(l, b)) {
        return put(l, &r);
    }
    log_record_encode(&r, log_batch_data(b) + b->hard_at);
    log_record_apply(&l->now, &r, 0, 0);
    b->last_position = ++l->position;
    return l->position;
}

/* --- writing --- */

bool log_try_again(struct log *l, enum log_lane lane, struct log_io *io)
{
    uint32_t longer = io->delay_ms == 0 ? LOG_RETRY_MIN_MS : io->delay_ms * 2;
    io->delay_ms = longer < LOG_RETRY_MAX_MS ? longer : LOG_RETRY_MAX_MS;
    io->failures++;
    log_start(l, lane, io);
    return (io->failures & (io->failures - 1)) == 0;
}

void log_works_again(struct log *l, struct log_io *io, const char *what)
{
    if (io->failures > 0) {
        log_message(l, LOG_LEVEL_INFO, "%s: %s", l->device->where, what);
    }
    io->failures = 0;
    io->delay_ms = 0;
}

/* A copy-on-write file system can be full although the segment exists. The same bytes may be
 * written to the same place again, whatever part of them has arrived. Any other failure is
 * final. */
static void not_written(struct log *l, int error)
{
    char name[LOG_NAME_MAX + 1];
    char text[512];
    bool full = error == -ENOSPC || error == -EDQUOT;
    log_segment_name(l->current, name);
    snprintf(text, sizeof text, "cannot write %zu bytes of the log to %s/%s at byte %llu: %s",
             l->write.len, l->device->where, name, (unsigned long long)l->write.offset,
             strerror(-error));
    l->waiting = full;
    l->failed = !full;
    if (!full) {
        l->since_ns = 0;
        if (l->config.failed != NULL) {
            l->config.failed(l->config.ctx, FL_EIO, text);
        }
    } else if (log_try_again(l, LOG_LANE_WRITE, &l->write)) {
        log_message(l, LOG_LEVEL_ERROR, "%s; this is tried again, and writes of the log wait",
                    text);
    }
}

/* Entries have places in the order of their indexes, and a truncated one has none: what lies in
 * front of `end`, where the last write ends, is on disk. */
static void note_durable(struct log *l, uint32_t segment, uint64_t end)
{
    for (; l->durable_index < l->now.entries.last; l->durable_index++) {
        const struct log_slot *s = log_entries_slot(&l->now.entries, l->durable_index + 1);
        if (s->segment > segment || (s->segment == segment && s->offset >= end)) {
            break;
        }
    }
}

static void note_written(struct log *l, const struct log_batch *b, uint64_t took_ns)
{
    metrics_observe_ns(&l->write_times, took_ns);
    if (took_ns > l->stats.write_ns_max) {
        l->stats.write_ns_max = took_ns;
    }
    l->durable = b->last_position;
    l->durable_in = l->current;
    note_durable(l, l->current, l->offset);
    uint64_t now_ns = l->device->ops->now_ns(l->device);
    l->slow_ns = now_ns - l->since_ns > SLOW_NS ? now_ns : l->slow_ns;
    l->since_ns = 0;
}

static void written(struct log *l, int result, uint64_t took_ns)
{
    if (result != 0) {
        not_written(l, result);
        return;
    }
    l->waiting = false;
    log_works_again(l, &l->write, "the log can be written again");
    note_written(l, l->head, took_ns);
    end_batch(l);
    log_begin_write(l);
    log_trim(l, NULL);
    log_background(l);
    if (l->config.durable != NULL) {
        l->config.durable(l->config.ctx);
    }
}

static void check_closed(struct log *l)
{
    if (!l->closed && !l->write.busy && !l->background.busy && !l->read.busy) {
        l->closed = true;
        if (l->closed_cb != NULL) {
            l->closed_cb(l->closed_ctx);
        }
    }
}

static void on_done(struct log_io *io, int result, uint64_t took_ns)
{
    struct log *l = io->ctx;
    io->busy = false;
    if (l->closing) {
        check_closed(l);
    } else if (io == &l->write) {
        written(l, result, took_ns);
    } else if (io == &l->background) {
        log_background_done(l, result);
    } else {
        log_read_done(l, result);
    }
}

void log_start(struct log *l, enum log_lane lane, struct log_io *io)
{
    const struct log_device_ops *ops = l->device->ops;
    bool here = lane == LOG_LANE_WRITE && l->here;
    io->device = l->device;
    io->done = on_done;
    io->ctx = l;
    io->busy = true;
    if (here) {
        l->here = false; /* what comes meanwhile is begun as usual */
        ops->perform(l->device, io);
    } else {
        ops->start(l->device, lane, io);
    }
}

static void begin(struct log *l, struct log_batch *b)
{
    struct log_segment *s = log_segment_of(l, l->current);
    struct log_write *w = &b->write;
    uint8_t *data = log_batch_data(b);
    size_t padded = log_round_up(w->len, l->block);
    memset(data + w->len, 0, padded - w->len);
    w->log_id = l->log_id;
    w->number = l->next_number++;
    w->segment_size = s->size;
    w->block = (uint32_t)l->block;
    w->before.chain = l->now.chain;
    l->now.chain = log_write_seal(w, data, padded);
    l->write = (struct log_io){.file = s->file, .data = data, .len = padded, .offset = w->offset};
    l->offset = w->offset + padded;
    l->waiting_bytes -= w->len - LOG_WRITE_HEADER;
    log_start(l, LOG_LANE_WRITE, &l->write);
}

void log_begin_write(struct log *l)
{
    struct log_batch *b = l->head;
    if (l->write.busy || l->failed || l->closing || b == NULL || l->flush_upto <= l->durable) {
        return;
    }
    if (l->since_ns == 0) {
        l->since_ns = l->device->ops->now_ns(l->device);
    }
    l->waiting = b->write.segment != l->current && !log_next_segment(l);
    if (l->waiting) {
        log_background(l);
        return;
    }
    begin(l, b);
}

void log_flush(struct log *l)
{
    l->flush_upto = l->position;
    log_begin_write(l);
}

bool log_flush_here(struct log *l)
{
    uint64_t durable = l->durable;
    l->here = l->slow_ns == 0 || l->device->ops->now_ns(l->device) - l->slow_ns > SLOW_FOR_NS;
    log_flush(l);
    l->here = false;
    l->stats.writes_here += l->durable > durable;
    return l->durable > durable;
}

uint64_t log_writes(const struct log *l)
{
    return l->next_number - 1 - l->write.busy;
}

void log_compact(struct log *l, uint64_t index)
{
    if (index > l->now.entries.last) {
        index = l->now.entries.last;
    }
    if (index > l->compact_index) {
        l->compact_index = index;
    }
    log_background(l);
}

/* --- closing --- */

void log_close(struct log *l, void (*closed)(void *ctx), void *ctx)
{
    FLI_ASSERT(!l->closing);
    l->closing = true;
    l->closed_cb = closed;
    l->closed_ctx = ctx;
    l->device->ops->cancel(l->device);
    check_closed(l);
}

void log_destroy(struct log *l)
{
    FLI_ASSERT(l->closed);
    while (l->head != NULL) {
        end_batch(l);
    }
    log_free_chunks(l);
    if (l->background.file != NULL) { /* made while it closed */
        l->device->ops->close(l->device, l->background.file);
    }
    for (size_t i = 0; i < l->segments_len; i++) {
        log_segment_close(l, &l->segments[i]);
    }
    log_entries_reset(&l->now.entries, 0, 0);
    free(l->segments);
    free(l);
}

/* ---- for callers without a loop ---- */

int log_write_out(struct log *l)
{
    log_flush(l);
    while (!l->failed && l->durable < l->position) {
        (void)log_device_wait(l->device, WAIT_MS);
    }
    return l->failed ? FL_EIO : 0;
}

void log_end(struct log *l)
{
    log_close(l, NULL, NULL);
    while (!l->closed) {
        (void)log_device_wait(l->device, WAIT_MS);
    }
    log_destroy(l);
}

/* ---- for INFO ---- */

void log_get_stats(struct log *l, struct log_stats *ret)
{
    *ret = l->stats;
    ret->engine = l->device->engine;
    ret->writes = metrics_histogram_count(&l->write_times);
    ret->write_ns_sum = l->write_times.sum_us * 1000;
    uint64_t now_ns = l->device->ops->now_ns(l->device);
    ret->age_ns = l->since_ns == 0 ? 0 : now_ns - l->since_ns;
    ret->read_age_ns = l->reading == NULL ? 0 : now_ns - l->read_since_ns;
    ret->waiting_for_segment = l->waiting;
    ret->segments = l->segments_len;
    ret->memory_bytes = 0;
    for (const struct log_chunk *c = l->chunks; c != NULL; c = c->next) {
        ret->memory_bytes += c->len;
    }
}

const struct metrics_histogram *log_write_times(const struct log *l)
{
    return &l->write_times;
}
