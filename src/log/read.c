/* read.c: entries from memory, or read back from their segment by the device while the loop goes
 * on, and verified.
 *
 * One read is under way at a time. Whoever needs an entry that is not in memory is told FL_EBUSY
 * and asks again when `arrived` is called, after any read; others that were asked for meanwhile are
 * read next. So whoever was told FL_EBUSY has a read to wait for.
 *
 * A chunk is found by its place on disk, and what is written there stays what it is until the
 * segment goes: a truncated entry has another place than the one that follows it. So no truncation
 * and no reset needs to know of chunks, and each entry is verified when it is taken. A read whose
 * segment went meanwhile is dropped, whatever it brought. */
#include "log/log_private.h"

#include <stdlib.h>
#include <string.h>

#include "base/write.h"

#define TOO_SHORT 1 /* beside negative errno values */

static void free_chunk(struct log_chunk *c)
{
    if (c != NULL) {
        free(c->data);
        free(c);
    }
}

/* ---- the chunks ---- */

static void take_out(struct log_ahead *a, struct log_chunk *c)
{
    struct log_chunk **p = &a->chunks;
    while (*p != c) {
        p = &(*p)->next;
    }
    *p = c->next;
    a->bytes -= c->len;
}

static void put_first(struct log_ahead *a, struct log_chunk *c)
{
    c->next = a->chunks;
    c->used = true;
    a->chunks = c;
    a->bytes += c->len;
}

static void drop(struct log_ahead *a, struct log_chunk *c)
{
    take_out(a, c);
    free_chunk(c);
}

/* The newest one stays, however large it is. */
static void drop_oldest(struct log_ahead *a)
{
    while (a->bytes > LOG_AHEAD_MAX && a->chunks->next != NULL) {
        struct log_chunk *c = a->chunks;
        while (c->next != NULL) {
            c = c->next;
        }
        drop(a, c);
    }
}

/* NULL: none of them has it. */
static struct log_chunk *chunk_with(struct log_chunk *first, const struct log_slot *s)
{
    uint64_t end = s->offset + log_record_size(s->len);
    for (struct log_chunk *c = first; c != NULL; c = c->next) {
        if (c->segment == s->segment && s->offset >= c->offset && end <= c->offset + c->len) {
            return c;
        }
    }
    return NULL;
}

void log_forget_unused(struct log *l)
{
    struct log_chunk *next;
    for (struct log_chunk *c = l->ahead.chunks; c != NULL; c = next) {
        next = c->next;
        if (!c->used) {
            drop(&l->ahead, c);
        } else {
            c->used = false;
        }
    }
}

void log_read_forget(struct log *l, uint32_t segment)
{
    struct log_chunk *next;
    for (struct log_chunk *c = l->ahead.chunks; c != NULL; c = next) {
        next = c->next;
        if (c->segment == segment) {
            drop(&l->ahead, c);
        }
    }
}

void log_read_fini(struct log *l)
{
    FLI_ASSERT(l->ahead.arriving == NULL);
    while (l->ahead.chunks != NULL) {
        drop(&l->ahead, l->ahead.chunks);
    }
}

/* ---- reading ---- */

static void on_read(struct log_io *io, int result, uint64_t took_ns);

/* What lies in front of this is durable. The write under way may change what is behind it. */
static uint64_t end_of(struct log *l, uint32_t segment)
{
    if (segment != l->current) {
        return log_segment_of(l, segment)->size;
    }
    return l->under_way != NULL ? l->write.offset : l->offset;
}

/* From the beginning of the record's block to the end of the record. */
static size_t needed(const struct log *l, const struct log_slot *s)
{
    return (size_t)(s->offset % l->block) + log_record_size(s->len);
}

/* Reads whole blocks, of which these bytes are taken. */
static void start(struct log *l, size_t taken)
{
    struct log_ahead *a = &l->ahead;
    a->arriving->len = taken;
    a->io = (struct log_io){.type = LOG_IO_READ,
                            .into = a->arriving->data,
                            .len = log_round_up(taken, l->block),
                            .offset = a->arriving->offset,
                            .done = on_read,
                            .ctx = l};
    log_segment_name(a->arriving->segment, a->io.name);
    l->device->ops->start(l->device, LOG_LANE_READ, &a->io);
}

static int begin(struct log *l, const struct log_slot *s)
{
    uint64_t from = s->offset / l->block * l->block;
    size_t need = needed(l, s);
    size_t len = need > LOG_AHEAD_CHUNK ? need : LOG_AHEAD_CHUNK;
    uint64_t end = end_of(l, s->segment);
    FLI_ASSERT(s->segment != LOG_UNPLACED && from + need <= end);
    len = len < end - from ? len : (size_t)(end - from);
    struct log_chunk *c = calloc(1, sizeof *c);
    uint8_t *data = aligned_alloc(l->block, log_round_up(len, l->block));
    if (c == NULL || data == NULL) {
        free(c);
        free(data);
        return FL_ENOMEM;
    }
    *c = (struct log_chunk){.segment = s->segment, .offset = from, .data = data};
    l->ahead.reading = *s;
    l->ahead.since_ns = l->device->ops->now_ns(l->device);
    l->ahead.arriving = c;
    start(l, len);
    return 0;
}

static bool is_missing(const struct log *l, uint64_t index)
{
    return log_entries_has(&l->entries, index) &&
           log_entries_slot(&l->entries, index)->data == NULL &&
           chunk_with(l->ahead.chunks, log_entries_slot(&l->entries, index)) == NULL;
}

/* Without memory none begins: who waits is told when it asks again. */
static void begin_next(struct log *l)
{
    struct log_ahead *a = &l->ahead;
    while (a->arriving == NULL && a->wanted_n > 0) {
        uint64_t index = a->wanted[0];
        memmove(a->wanted, a->wanted + 1, --a->wanted_n * sizeof a->wanted[0]);
        if (is_missing(l, index) && begin(l, log_entries_slot(&l->entries, index)) != 0) {
            return;
        }
    }
}

/* The others of the chunk may be why it failed, and nobody has asked for them: once more without
 * them. */
static bool read_less(struct log *l, int result)
{
    size_t need = needed(l, &l->ahead.reading);
    if (result == 0 || l->ahead.arriving->len <= need) {
        return false;
    }
    start(l, need);
    return true;
}

/* The file is opened for the read, and the machine may have no descriptor left at that moment. */
static bool read_again(struct log *l, int result)
{
    if (!fli_error_passes(-result)) {
        l->read_retry = (struct log_retry){0};
        return false;
    }
    if (log_try_again(l, LOG_LANE_READ, &l->ahead.io, &l->read_retry)) {
        log_message(l, LOG_LEVEL_WARNING, "cannot read %s/%s: %s; this is tried again",
                    l->device->where, l->ahead.io.name, strerror(-result));
    }
    return true;
}

static void take_up(struct log *l, int result)
{
    struct log_ahead *a = &l->ahead;
    struct log_chunk *c = a->arriving;
    a->arriving = NULL;
    c->len = c->len < a->io.len ? c->len : a->io.len;
    if (result != 0 || c->len < needed(l, &a->reading)) {
        a->error = result != 0 ? result : TOO_SHORT;
        a->failed = a->reading;
        free_chunk(c);
        return;
    }
    put_first(a, c);
    drop_oldest(a);
}

static void on_read(struct log_io *io, int result, uint64_t took_ns)
{
    struct log *l = io->ctx;
    struct log_ahead *a = &l->ahead;
    bool gone = a->reading.segment < l->segments[0].number;
    if (l->closing || gone) {
        free_chunk(a->arriving);
        a->arriving = NULL;
    } else if (read_again(l, result) || read_less(l, result)) {
        return;
    } else {
        take_up(l, result);
    }
    if (l->closing) {
        log_check_closed(l);
        return;
    }
    begin_next(l);
    if (l->config.arrived != NULL) {
        l->config.arrived(l->config.ctx);
    }
}

/* ---- asking ---- */

static int trouble(const struct log *l, const struct log_slot *s, int error, const char *what)
{
    char name[LOG_NAME_MAX + 1];
    log_segment_name(s->segment, name);
    log_message(l, LOG_LEVEL_ERROR, "cannot read an entry back from %s/%s at byte %u: %s",
                l->device->where, name, s->offset, what);
    return error;
}

/* Finds the entry in the chunk, verifies it and sets ret->data; ret->term is what it must be. */
static int chunk_entry(const struct log *l, const struct log_chunk *c, uint64_t index,
                       struct log_entry *ret)
{
    const struct log_slot *s = log_entries_slot(&l->entries, index);
    struct log_record r;
    size_t at = (size_t)(s->offset - c->offset);
    if (!log_record_decode(c->data + at, c->len - at, &r) || r.type != LOG_RECORD_ENTRY ||
        r.index != index || r.len != s->len || r.kind != s->kind || r.term != ret->term) {
        return trouble(l, s, FL_ECORRUPT, "what is there is not what was written");
    }
    ret->data = r.data;
    return 0;
}

/* The entry without its data, unless that is in memory. FL_ENOTFOUND. */
static int from_memory(const struct log *l, uint64_t index, struct log_entry *ret)
{
    if (!log_entries_has(&l->entries, index)) {
        return FL_ENOTFOUND;
    }
    const struct log_slot *s = log_entries_slot(&l->entries, index);
    *ret = (struct log_entry){
        .index = index, .term = s->term, .kind = s->kind, .len = s->len, .data = s->data};
    return 0;
}

static bool is_wanted(const struct log_ahead *a, uint64_t index)
{
    unsigned i = 0;
    while (i < a->wanted_n && a->wanted[i] != index) {
        i++;
    }
    return i < a->wanted_n;
}

/* Begins to read the entry, or puts it in line. FL_EBUSY, FL_ENOMEM. */
static int want(struct log *l, uint64_t index)
{
    struct log_ahead *a = &l->ahead;
    const struct log_slot *s = log_entries_slot(&l->entries, index);
    if (a->arriving == NULL) {
        int rv = begin(l, s);
        return rv != 0 ? rv : FL_EBUSY;
    }
    if (chunk_with(a->arriving, s) == NULL && !is_wanted(a, index) &&
        a->wanted_n < LOG_AHEAD_WANTED) {
        a->wanted[a->wanted_n++] = index;
    }
    return FL_EBUSY;
}

/* Whether the read of this entry has failed. It is told once, and then read again. */
static bool has_failed(struct log *l, const struct log_slot *s, int *ret)
{
    struct log_ahead *a = &l->ahead;
    if (a->error == 0 || a->failed.segment != s->segment || a->failed.offset != s->offset) {
        return false;
    }
    bool is_short = a->error == TOO_SHORT;
    *ret = trouble(l, s, is_short ? FL_ECORRUPT : FL_EIO,
                   is_short ? "the file is shorter than it was" : strerror(-a->error));
    a->error = 0;
    return true;
}

static int take(struct log *l, uint64_t index, struct log_entry *ret)
{
    struct log_entry e;
    int rv = from_memory(l, index, &e);
    if (rv == 0 && e.data == NULL) {
        const struct log_slot *s = log_entries_slot(&l->entries, index);
        struct log_chunk *c = chunk_with(l->ahead.chunks, s);
        if (c != NULL) {
            take_out(&l->ahead, c);
            put_first(&l->ahead, c);
            rv = chunk_entry(l, c, index, &e);
        } else if (!has_failed(l, s, &rv)) {
            rv = want(l, index);
        }
    }
    if (rv == 0) {
        *ret = e;
    }
    return rv;
}

int log_take_some(struct log *l, uint64_t index, size_t max_bytes, struct log_entry *entries,
                  unsigned n, unsigned *ret_n)
{
    size_t bytes = 0;
    unsigned got = 0;
    FLI_ASSERT(!l->closing && n > 0);
    for (; got < n; got++, index++) {
        if (got > 0 && log_entries_has(&l->entries, index) &&
            bytes + log_entries_slot(&l->entries, index)->len > max_bytes) {
            break;
        }
        int rv = take(l, index, &entries[got]);
        if (rv != 0 && got == 0) {
            return rv;
        }
        if (rv != 0) {
            break;
        }
        bytes += entries[got].len;
    }
    *ret_n = got;
    return 0;
}

int log_read_some(struct log *l, uint64_t index, size_t max_bytes, struct log_entry *entries,
                  unsigned n, unsigned *ret_n)
{
    int rv;
    while ((rv = log_take_some(l, index, max_bytes, entries, n, ret_n)) == FL_EBUSY) {
        (void)log_device_wait(l->device, -1);
    }
    return rv;
}
