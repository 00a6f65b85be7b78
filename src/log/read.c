/* read.c: entries from memory, or read back from their segment by the device while the loop goes
 * on, and verified.
 *
 * Who needs an entry that is not in memory is told FL_EBUSY, and asks again when `arrived` is
 * called, after any read. One read is under way at a time; what was wanted first is read next.
 *
 * A chunk is found by its place on disk, and what is written there stays what it is until the
 * segment goes: a truncated entry has another place than the one that follows it. So no truncation
 * and no reset needs to know of chunks. One whose segment went is not found any more, whatever a
 * read brought. */
#include "log/log_private.h"

#include <stdlib.h>
#include <string.h>

#include "base/write.h"

#define TOO_SHORT 1 /* beside negative errno values */

/* ---- chunks ---- */

struct log_chunk *log_chunk_at(const struct log *l, uint32_t segment, uint64_t offset, size_t len)
{
    struct log_chunk *c = l->chunks;
    while (c != NULL &&
           (c->segment != segment || offset < c->offset || offset + len > c->offset + c->len)) {
        c = c->next;
    }
    return c;
}

struct log_chunk *log_chunk_add(struct log *l, uint32_t segment, uint64_t offset, size_t len,
                                uint8_t *data)
{
    struct log_chunk *c = data == NULL ? NULL : calloc(1, sizeof *c);
    if (c == NULL) {
        free(data);
        return NULL;
    }
    *c = (struct log_chunk){
        .next = l->chunks, .segment = segment, .offset = offset, .len = len, .data = data};
    l->chunks = c;
    return c;
}

static void take_out(struct log *l, const struct log_chunk *c)
{
    struct log_chunk **p = &l->chunks;
    while (*p != c) {
        p = &(*p)->next;
    }
    *p = c->next;
}

static void use(struct log *l, struct log_chunk *c)
{
    take_out(l, c);
    c->next = l->chunks;
    l->chunks = c;
}

void log_chunk_drop(struct log *l, struct log_chunk *c)
{
    take_out(l, c);
    free(c->data);
    free(c);
}

void log_trim(struct log *l, const struct log_chunk *kept)
{
    size_t bytes = 0;
    struct log_chunk *next;
    for (struct log_chunk *c = l->chunks; c != NULL; c = next) {
        next = c->next;
        bool in_use = c->writes > 0 || c->state == LOG_CHUNK_WANTED;
        bytes += in_use ? 0 : c->len;
        if (!in_use && c != kept && bytes > l->config.cache_bytes) {
            log_chunk_drop(l, c);
        }
    }
}

void log_free_chunks(struct log *l)
{
    while (l->chunks != NULL) {
        log_chunk_drop(l, l->chunks);
    }
}

/* ---- reading ---- */

/* Work of lane READ: on success len is what was read, less only at the end of the file. Whatever is
 * done with the file meanwhile, it is closed by the thread: a file without a name frees its blocks
 * then. */
static int read_back(struct log_io *io)
{
    struct log_device *d = io->device;
    struct log_file *file = NULL;
    int rv = d->ops->open(d, io->name, LOG_OPEN_READ | LOG_OPEN_DIRECT, &file);
    if (rv != 0) {
        return rv;
    }
    int64_t n = d->ops->read(d, file, io->into, io->len, io->offset);
    d->ops->close(d, file);
    io->len = n < 0 ? io->len : (size_t)n;
    return n < 0 ? (int)n : 0;
}

/* Reads whole blocks, of which these bytes are taken. */
static void start(struct log *l, size_t taken)
{
    struct log_chunk *c = l->reading;
    c->len = taken;
    l->read = (struct log_io){.work = read_back,
                              .into = c->data,
                              .len = log_round_up(taken, l->block),
                              .offset = c->offset};
    log_segment_name(c->segment, l->read.name);
    log_start(l, LOG_LANE_READ, &l->read);
}

static void read_next(struct log *l)
{
    struct log_chunk *first = NULL;
    for (struct log_chunk *c = l->chunks; c != NULL; c = c->next) {
        first = c->state == LOG_CHUNK_WANTED ? c : first;
    }
    if (l->reading == NULL && first != NULL) {
        l->reading = first;
        l->read_since_ns = l->device->ops->now_ns(l->device);
        start(l, first->len);
    }
}

/* The file is opened for the read, and the machine may have no descriptor left at that moment. */
static bool read_again(struct log *l, int result)
{
    if (!fli_error_passes(-result)) {
        return false;
    }
    if (log_try_again(l, LOG_LANE_READ, &l->read)) {
        log_message(l, LOG_LEVEL_WARNING, "cannot read %s/%s: %s; this is tried again",
                    l->device->where, l->read.name, strerror(-result));
    }
    return true;
}

/* The others of the chunk may be why it failed, and nobody has asked for them: once more without
 * them. */
static bool read_less(struct log *l, int result)
{
    if (result == 0 || l->reading->len <= l->reading->need) {
        return false;
    }
    start(l, l->reading->need);
    return true;
}

void log_read_done(struct log *l, int result)
{
    struct log_chunk *c = l->reading;
    bool gone = c->segment < l->segments[0].number;
    if (!gone && (read_again(l, result) || read_less(l, result))) {
        return;
    }
    l->reading = NULL;
    c->len = l->read.len < c->len ? l->read.len : c->len;
    c->error = result != 0 ? result : c->len < c->need ? TOO_SHORT : 0;
    c->state = LOG_CHUNK_READ;
    c->len = c->error != 0 ? c->need : c->len;
    log_trim(l, c);
    read_next(l);
    if (l->config.arrived != NULL) {
        l->config.arrived(l->config.ctx);
    }
}

/* What lies in front of this is durable. The write under way may change what is behind it. */
static uint64_t end_of(const struct log *l, uint32_t segment)
{
    if (segment != l->current) {
        return log_segment_size(l, segment);
    }
    return l->write.busy ? l->write.offset : l->offset;
}

/* Begins to read the entry and what follows it, or puts that in line. FL_EBUSY, FL_ENOMEM. */
static int want(struct log *l, const struct log_slot *s)
{
    uint64_t from = s->offset / l->block * l->block;
    size_t need = (size_t)(s->offset - from) + log_record_size(s->len);
    size_t len = need > LOG_CHUNK_BYTES ? need : LOG_CHUNK_BYTES;
    uint64_t end = end_of(l, s->segment);
    FLI_ASSERT(from + need <= end);
    len = len < end - from ? len : (size_t)(end - from);
    struct log_chunk *c = log_chunk_add(l, s->segment, from, len,
                                        aligned_alloc(l->block, log_round_up(len, l->block)));
    if (c == NULL) {
        return FL_ENOMEM;
    }
    c->state = LOG_CHUNK_WANTED;
    c->need = need;
    read_next(l);
    return FL_EBUSY;
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

static bool is_entry(const uint8_t *data, uint64_t index, const struct log_slot *s)
{
    struct log_record r;
    return log_record_decode(data, log_record_size(s->len), &r) && r.type == LOG_RECORD_ENTRY &&
           r.index == index && r.len == s->len && r.kind == s->kind && r.term == s->term;
}

static int take(struct log *l, uint64_t index, struct log_entry *ret)
{
    if (!log_entries_has(&l->now.entries, index)) {
        return FL_ENOTFOUND;
    }
    const struct log_slot *s = log_entries_slot(&l->now.entries, index);
    struct log_chunk *c = log_chunk_at(l, s->segment, s->offset, log_record_size(s->len));
    if (c == NULL) {
        return want(l, s);
    }
    if (c->state == LOG_CHUNK_WANTED) {
        return FL_EBUSY;
    }
    if (c->error != 0) {
        int error = c->error;
        log_chunk_drop(l, c); /* it is told once, and then read again */
        return error == TOO_SHORT ? trouble(l, s, FL_ECORRUPT, "the file is shorter than it was")
                                  : trouble(l, s, FL_EIO, strerror(-error));
    }
    const uint8_t *data = c->data + (s->offset - c->offset);
    if (c->state == LOG_CHUNK_READ && !is_entry(data, index, s)) {
        return trouble(l, s, FL_ECORRUPT, "what is there is not what was written");
    }
    use(l, c);
    *ret = (struct log_entry){.index = index,
                              .term = s->term,
                              .kind = s->kind,
                              .len = s->len,
                              .data = data + LOG_RECORD_HEADER};
    return 0;
}

int log_take_some(struct log *l, uint64_t index, size_t max_bytes, struct log_entry *entries,
                  unsigned n, unsigned *ret_n)
{
    size_t bytes = 0;
    unsigned got = 0;
    FLI_ASSERT(!l->closing && n > 0);
    for (; got < n; got++, index++) {
        if (got > 0 && log_entries_has(&l->now.entries, index) &&
            bytes + log_entries_slot(&l->now.entries, index)->len > max_bytes) {
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
