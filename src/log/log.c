/* log.c: appending, writing, durability, closing.
 *
 * An append becomes a record in the last of the waiting buffers. log_flush() hands the first buffer
 * to the device when no write is under way. When the write is done, its positions are durable, and
 * the next buffer follows at once if a flush was requested meanwhile. A buffer takes
 * LOG_BUFFER_FULL bytes or one record, so more than two exist only while the disk is slow or
 * full. */
#include "log/log_private.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BUFFER_MIN ((size_t)64 << 10)
#define WAIT_MS 10

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
    return l->hard;
}

uint64_t log_first_index(const struct log *l)
{
    return l->entries.first;
}

uint64_t log_last_index(const struct log *l)
{
    return l->entries.last;
}

uint64_t log_term_of(const struct log *l, uint64_t index)
{
    return log_entries_term(&l->entries, index);
}

uint64_t log_last_term(const struct log *l)
{
    return log_entries_term(&l->entries, l->entries.last);
}

uint8_t log_kind_of(const struct log *l, uint64_t index)
{
    return log_entries_slot(&l->entries, index)->kind;
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

/* --- buffers --- */

static void buffer_destroy(struct log_buffer *b)
{
    free(b->data);
    free(b);
}

/* Makes room for `size` bytes behind the buffer's content; false without memory. */
static bool buffer_reserve(struct log *l, struct log_buffer *b, size_t size)
{
    size_t need = log_round_up(b->len + size, l->block);
    if (need <= b->cap) {
        return true;
    }
    size_t cap = b->cap == 0 ? BUFFER_MIN : b->cap;
    while (cap < need) {
        cap *= 2;
    }
    uint8_t *fresh = aligned_alloc(l->block, cap);
    if (fresh == NULL) {
        return false;
    }
    if (b->data != NULL) {
        memcpy(fresh, b->data, b->len);
        free(b->data);
    }
    b->data = fresh;
    b->cap = cap;
    return true;
}

static struct log_state state_now(const struct log *l)
{
    return (struct log_state){.last_index = l->entries.last,
                              .last_term = log_last_term(l),
                              .hard = l->hard,
                              .chain = l->chain};
}

/* Returns a spare buffer or a new one, with room for a record of `size`; NULL without memory. */
static struct log_buffer *buffer_get(struct log *l, size_t size)
{
    struct log_buffer *b = l->spare;
    if (b == NULL) {
        b = calloc(1, sizeof *b);
    } else {
        l->spare = b->next;
        *b = (struct log_buffer){.data = b->data, .cap = b->cap};
    }
    if (b == NULL) {
        return NULL;
    }
    b->len = LOG_WRITE_HEADER;
    b->keep = UINT64_MAX;
    b->before = state_now(l);
    b->after = b->before;
    if (!buffer_reserve(l, b, size)) {
        buffer_destroy(b);
        return NULL;
    }
    return b;
}

/* Two buffers are kept, one to write and one to fill; a large one is freed. */
static void buffer_put(struct log *l, struct log_buffer *b)
{
    if (b->cap > 2 * LOG_BUFFER_FULL || (l->spare != NULL && l->spare->next != NULL)) {
        buffer_destroy(b);
        return;
    }
    b->next = l->spare;
    l->spare = b;
}

/* The buffer for the next record, of `size` bytes, with room for it. NULL without memory. */
static struct log_buffer *room_for(struct log *l, size_t size)
{
    size_t full = LOG_BUFFER_FULL;
    if (full > l->config.segment_bytes) {
        full = (size_t)l->config.segment_bytes;
    }
    struct log_buffer *b = l->tail;
    if (b != NULL && b->len + size <= full) {
        return buffer_reserve(l, b, size) ? b : NULL;
    }
    b = buffer_get(l, size);
    if (b == NULL) {
        return NULL;
    }
    if (l->tail == NULL) {
        l->head = b;
    } else {
        l->tail->next = b;
    }
    l->tail = b;
    return b;
}

/* Puts a record into the room that room_for() made. Returns its position. */
static uint64_t put_record(struct log *l, struct log_buffer *b, struct log_record *r)
{
    size_t size = log_record_size(r->len);
    FLI_ASSERT(b == l->tail && b->len + size <= b->cap);
    r->crc_before = l->chain;
    l->chain = log_record_encode(r, b->data + b->len);
    b->hard_at = r->type == LOG_RECORD_HARD_STATE ? b->len : 0;
    b->len += size;
    b->records++;
    b->entries += r->type == LOG_RECORD_ENTRY;
    b->last_position = ++l->position;
    b->after = state_now(l);
    l->waiting_bytes += size;
    return l->position;
}

/* --- appending --- */

uint64_t log_append(struct log *l, const struct log_entry *e)
{
    size_t size = log_record_size(e->len);
    FLI_ASSERT(!l->closing && e->index == l->entries.last + 1);
    FLI_ASSERT(e->index <= LOG_INDEX_MAX && e->term != 0 && e->term >= log_last_term(l) &&
               e->kind != 0);
    FLI_ASSERT(e->len <= log_entry_max(l));
    if (size > log_room(l)) {
        return 0;
    }
    struct log_buffer *b = room_for(l, size);
    if (b == NULL || log_entries_add(&l->entries, e) != 0) {
        return 0;
    }
    struct log_record r = {.type = LOG_RECORD_ENTRY,
                           .kind = e->kind,
                           .index = e->index,
                           .term = e->term,
                           .len = e->len,
                           .data = e->data};
    return put_record(l, b, &r);
}

uint64_t log_truncate(struct log *l, uint64_t index)
{
    struct log_entries *t = &l->entries;
    FLI_ASSERT(!l->closing && index >= t->first && index <= t->last + 1);
    struct log_buffer *b = room_for(l, LOG_RECORD_HEADER);
    if (b == NULL) {
        return 0;
    }
    log_entries_truncate(t, index);
    if (l->durable_index > t->last) {
        l->durable_index = t->last;
    }
    if (b->keep > t->last) {
        b->keep = t->last;
    }
    struct log_record r = {.type = LOG_RECORD_TRUNCATE, .index = index, .term = log_last_term(l)};
    l->truncated_at = put_record(l, b, &r);
    return l->truncated_at;
}

uint64_t log_reset(struct log *l, uint64_t index, uint64_t term)
{
    FLI_ASSERT(!l->closing && index <= LOG_INDEX_MAX);
    struct log_buffer *b = room_for(l, LOG_RECORD_HEADER);
    if (b == NULL) {
        return 0;
    }
    log_entries_reset(&l->entries, index, term);
    l->durable_index = index;
    l->compact_index = index;
    b->keep = index;
    b->reset = true;
    struct log_record r = {.type = LOG_RECORD_RESET, .index = index, .term = term};
    l->truncated_at = put_record(l, b, &r);
    return l->truncated_at;
}

/* If the last record is a hard state that no write has taken, the new hard state replaces it. So
 * elections on a full disk need no memory. */
static void replace_hard_state(struct log *l, struct log_buffer *b)
{
    struct log_record r;
    bool whole = log_record_decode(b->data + b->hard_at, b->len - b->hard_at, &r);
    FLI_ASSERT(whole && r.type == LOG_RECORD_HARD_STATE);
    r.index = l->hard.vote;
    r.term = l->hard.term;
    l->chain = log_record_encode(&r, b->data + b->hard_at);
    b->last_position = ++l->position;
    b->after = state_now(l);
}

uint64_t log_set_hard_state(struct log *l, const struct log_hard_state *hs)
{
    FLI_ASSERT(!l->closing);
    if (l->tail != NULL && l->tail->hard_at != 0) {
        l->hard = *hs;
        replace_hard_state(l, l->tail);
        return l->position;
    }
    struct log_buffer *b = room_for(l, LOG_RECORD_HEADER);
    if (b == NULL) {
        return 0;
    }
    l->hard = *hs;
    struct log_record r = {.type = LOG_RECORD_HARD_STATE, .index = hs->vote, .term = hs->term};
    return put_record(l, b, &r);
}

/* --- writing --- */

/* Records where the entries of a buffer are on disk. If an entry was truncated since and appended
 * again, a later buffer holds it and corrects its slot before it can be read from disk. */
static void place_entries(struct log *l, const struct log_buffer *b)
{
    for (size_t at = LOG_WRITE_HEADER; at < b->len;) {
        struct log_record r;
        log_record_peek(b->data + at, &r);
        if (r.type == LOG_RECORD_ENTRY && log_entries_has(&l->entries, r.index)) {
            struct log_slot *s = log_entries_slot(&l->entries, r.index);
            s->segment = l->current;
            s->offset = (uint32_t)(l->offset + at);
        }
        at += log_record_size(r.len);
        FLI_ASSERT(at <= b->len);
    }
}

static void describe_failure(const struct log *l, int error, char *text, size_t size)
{
    char name[LOG_NAME_MAX + 1];
    log_segment_name(l->current, name);
    snprintf(text, size, "cannot write %zu bytes of the log to %s/%s at byte %llu: %s",
             l->write_len, l->device->where, name, (unsigned long long)l->write.offset,
             strerror(-error));
}

static void fail(struct log *l, int error)
{
    char text[512];
    describe_failure(l, error, text, sizeof text);
    l->failed = true;
    if (l->config.failed != NULL) {
        l->config.failed(l->config.ctx, FL_EIO, text);
    }
}

bool log_try_again(struct log *l, enum log_lane lane, struct log_io *io, struct log_retry *r)
{
    uint32_t longer = r->pause_ms == 0 ? LOG_RETRY_MIN_MS : r->pause_ms * 2;
    r->pause_ms = longer < LOG_RETRY_MAX_MS ? longer : LOG_RETRY_MAX_MS;
    r->failures++;
    io->delay_ms = r->pause_ms;
    l->device->ops->start(l->device, lane, io);
    return (r->failures & (r->failures - 1)) == 0;
}

void log_works_again(struct log *l, struct log_retry *r, const char *what)
{
    if (r->failures > 0) {
        log_message(l, LOG_LEVEL_INFO, "%s: %s", l->device->where, what);
        *r = (struct log_retry){0};
    }
}

/* A copy-on-write file system can be full although the segment exists. The same bytes may be
 * written to the same place again, whatever part of them has arrived. */
static void write_again(struct log *l, int error)
{
    l->waiting = true;
    if (log_try_again(l, LOG_LANE_WRITE, &l->write, &l->write_retry)) {
        char text[512];
        describe_failure(l, error, text, sizeof text);
        log_message(l, LOG_LEVEL_ERROR, "%s; this is tried again, and writes of the log wait",
                    text);
    }
}

static bool is_full(int result)
{
    return result == -ENOSPC || result == -EDQUOT;
}

/* The last entry that is durable once buffer b is. Entries that a later buffer truncates do not
 * count. */
static uint64_t durable_index_after(const struct log *l, const struct log_buffer *b)
{
    uint64_t index = b->after.last_index;
    for (const struct log_buffer *p = l->head; p != NULL; p = p->next) {
        if (p->reset || p->keep < index) {
            index = p->keep;
        }
    }
    return index;
}

static void note_written(struct log *l, const struct log_buffer *b, uint64_t took_ns)
{
    l->stats.writes++;
    l->stats.entries += b->entries;
    l->stats.bytes_written += l->write_len;
    l->stats.write_ns_sum += took_ns;
    metrics_observe_ns(&l->write_times, took_ns);
    if (took_ns > l->stats.write_ns_max) {
        l->stats.write_ns_max = took_ns;
    }
    l->durable = b->last_position;
    l->durable_index = durable_index_after(l, b);
    l->durable_in = l->current;
}

static void on_written(struct log_io *io, int result, uint64_t took_ns)
{
    struct log *l = io->ctx;
    struct log_buffer *b = l->under_way;
    if (is_full(result) && !l->closing) {
        write_again(l, result);
        return;
    }
    l->under_way = NULL;
    l->since_ns = 0;
    if (result != 0) {
        buffer_put(l, b);
        if (l->closing) {
            l->failed = true;
            log_check_closed(l);
        } else {
            fail(l, result);
        }
        return;
    }
    l->waiting = false;
    log_works_again(l, &l->write_retry, "the log can be written again");
    note_written(l, b, took_ns);
    buffer_put(l, b);
    if (l->closing) {
        log_check_closed(l);
        return;
    }
    if (l->flush_upto > l->durable) {
        log_begin_write(l);
    }
    log_entries_evict(&l->entries, l->durable_index);
    log_background(l);
    if (l->config.durable != NULL) {
        l->config.durable(l->config.ctx);
    }
}

static void begin(struct log *l, struct log_buffer *b, size_t padded)
{
    struct log_segment *s = log_segment_of(l, l->current);
    l->head = b->next;
    if (l->head == NULL) {
        l->tail = NULL;
    }
    l->waiting_bytes -= b->len - LOG_WRITE_HEADER;
    place_entries(l, b);
    memset(b->data + b->len, 0, padded - b->len);
    struct log_write w = {
        .log_id = l->log_id,
        .number = l->next_number++,
        .segment = s->number,
        .segment_size = s->size,
        .offset = l->offset,
        .block = (uint32_t)l->block,
        .len = (uint32_t)b->len,
        .records = b->records,
        .before = b->before,
        .chain_after = b->after.chain,
    };
    log_write_seal(&w, b->data, padded);
    l->write = (struct log_io){.type = LOG_IO_WRITE,
                               .file = l->file,
                               .data = b->data,
                               .len = padded,
                               .offset = l->offset,
                               .done = on_written,
                               .ctx = l};
    l->write_len = padded;
    l->offset += padded;
    l->under_way = b;
    l->device->ops->start(l->device, LOG_LANE_WRITE, &l->write);
}

void log_begin_write(struct log *l)
{
    struct log_buffer *b = l->head;
    if (l->under_way != NULL || l->failed || l->closing || b == NULL ||
        l->flush_upto <= l->durable) {
        return;
    }
    if (l->since_ns == 0) {
        l->since_ns = l->device->ops->now_ns(l->device);
    }
    size_t padded = log_round_up(b->len, l->block);
    if (l->offset + padded > log_segment_of(l, l->current)->size && !log_next_segment(l)) {
        l->waiting = true;
        log_background(l);
        return;
    }
    l->waiting = false;
    begin(l, b, padded);
}

void log_flush(struct log *l)
{
    l->flush_upto = l->position;
    log_begin_write(l);
}

uint64_t log_writes(const struct log *l)
{
    return l->next_number - 1 - (l->under_way != NULL);
}

void log_compact(struct log *l, uint64_t index)
{
    if (index > l->entries.last) {
        index = l->entries.last;
    }
    if (index > l->compact_index) {
        l->compact_index = index;
    }
    log_background(l);
}

/* --- closing --- */

void log_check_closed(struct log *l)
{
    if (l->closing && !l->closed && l->under_way == NULL && !l->background_busy &&
        l->ahead.arriving == NULL) {
        l->closed = true;
        l->closed_cb(l->closed_ctx);
    }
}

void log_close(struct log *l, void (*closed)(void *ctx), void *ctx)
{
    FLI_ASSERT(!l->closing);
    l->closing = true;
    l->closed_cb = closed;
    l->closed_ctx = ctx;
    if (l->background_busy || l->under_way != NULL || l->ahead.arriving != NULL) {
        l->device->ops->cancel(l->device);
    }
    log_check_closed(l);
}

static void destroy_buffers(struct log_buffer *b)
{
    while (b != NULL) {
        struct log_buffer *next = b->next;
        buffer_destroy(b);
        b = next;
    }
}

void log_destroy(struct log *l)
{
    FLI_ASSERT(l->closed);
    log_read_fini(l);
    for (unsigned i = 0; i < l->ready_len; i++) {
        l->device->ops->close(l->device, l->ready[i]);
    }
    if (l->file != NULL) {
        l->device->ops->close(l->device, l->file);
    }
    destroy_buffers(l->head);
    destroy_buffers(l->spare);
    log_entries_fini(&l->entries);
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

static void note_closed(void *ctx)
{
    bool *closed = ctx;
    *closed = true;
}

void log_end(struct log *l)
{
    bool closed = false;
    log_close(l, note_closed, &closed);
    while (!closed) {
        (void)log_device_wait(l->device, WAIT_MS);
    }
    log_destroy(l);
}

/* ---- for INFO ---- */

void log_get_stats(struct log *l, struct log_stats *ret)
{
    *ret = l->stats;
    ret->engine = l->device->engine;
    uint64_t now_ns = l->device->ops->now_ns(l->device);
    ret->age_ns = l->since_ns == 0 ? 0 : now_ns - l->since_ns;
    ret->read_age_ns = l->ahead.arriving == NULL ? 0 : now_ns - l->ahead.since_ns;
    ret->waiting_for_segment = l->waiting;
    ret->segments = l->segments_len;
    ret->cache_bytes = l->entries.cache_used;
    ret->pending_bytes = l->waiting_bytes;
    ret->ahead_bytes = l->ahead.bytes;
    ret->ahead_bytes += l->ahead.arriving != NULL ? l->ahead.arriving->len : 0;
    if (l->under_way != NULL) {
        ret->pending_bytes += l->under_way->len - LOG_WRITE_HEADER;
    }
}

const struct metrics_histogram *log_write_times(const struct log *l)
{
    return &l->write_times;
}
