/* read.c: entries from memory, or read back from their segment and verified.
 *
 * Reads from disk come in chunks, so that the entries behind the requested one are there already.
 * Chunks live until the batch of reads ends. */
#include "log/log_private.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"

#define CHUNK ((size_t)128 << 10)

void log_forget_file(struct log *l, uint32_t segment)
{
    if (l->read_file != NULL && l->read_segment == segment) {
        l->device->ops->close(l->device, l->read_file);
        l->read_file = NULL;
    }
}

void log_read_done(struct log *l)
{
    while (l->chunks != NULL) {
        struct log_chunk *c = l->chunks;
        l->chunks = c->next;
        free(c->data);
        free(c);
    }
    l->chunks_bytes = 0;
}

void log_read_fini(struct log *l)
{
    log_read_done(l);
    log_forget_file(l, l->read_segment);
}

int log_read_trouble(const struct log *l, const struct log_slot *s, int error, const char *what)
{
    char name[LOG_NAME_MAX + 1];
    log_segment_name(s->segment, name);
    log_message(l, LOG_LEVEL_ERROR, "cannot read an entry back from %s/%s at byte %u: %s",
                l->device->where, name, s->offset, what);
    return error;
}

static int file_of(struct log *l, const struct log_slot *s, struct log_file **ret)
{
    if (s->segment == l->current) {
        *ret = l->file;
        return 0;
    }
    if (l->read_file == NULL || l->read_segment != s->segment) {
        char name[LOG_NAME_MAX + 1];
        struct log_file *f = NULL;
        log_segment_name(s->segment, name);
        int rv = l->device->ops->open(l->device, name, LOG_OPEN_READ | LOG_OPEN_DIRECT, &f);
        if (rv != 0) {
            return rv == -ENOMEM ? FL_ENOMEM : log_read_trouble(l, s, FL_EIO, strerror(-rv));
        }
        log_forget_file(l, l->read_segment);
        l->read_file = f;
        l->read_segment = s->segment;
    }
    *ret = l->read_file;
    return 0;
}

struct log_chunk *log_chunk_with(struct log_chunk *first, const struct log_slot *s)
{
    uint64_t end = s->offset + log_record_size(s->len);
    for (struct log_chunk *c = first; c != NULL; c = c->next) {
        if (c->segment == s->segment && s->offset >= c->offset && end <= c->offset + c->len) {
            return c;
        }
    }
    return NULL;
}

/* Reads from the record's block on. FL_ELIMIT: the batch has reached its limit. */
static int read_chunk(struct log *l, const struct log_slot *s, struct log_chunk **ret)
{
    struct log_file *f = NULL;
    int rv = file_of(l, s, &f);
    if (rv != 0) {
        return rv;
    }
    uint64_t from = s->offset / l->block * l->block;
    size_t need = (size_t)(s->offset - from) + log_record_size(s->len);
    size_t len = log_round_up(need < CHUNK ? CHUNK : need, l->block);
    if (l->chunks != NULL && l->chunks_bytes + len > LOG_READ_MAX) {
        return FL_ELIMIT;
    }
    struct log_chunk *c = calloc(1, sizeof *c);
    uint8_t *data = aligned_alloc(l->block, len);
    if (c == NULL || data == NULL) {
        free(c);
        free(data);
        return FL_ENOMEM;
    }
    int64_t n = l->device->ops->read(l->device, f, data, len, from);
    if (n < 0 || (size_t)n < need) {
        free(c);
        free(data);
        return log_read_trouble(l, s, n < 0 ? FL_EIO : FL_ECORRUPT,
                                n < 0 ? strerror((int)-n) : "the file is shorter than it was");
    }
    *c = (struct log_chunk){
        .next = l->chunks, .segment = s->segment, .offset = from, .len = (size_t)n, .data = data};
    l->chunks = c;
    l->chunks_bytes += len;
    *ret = c;
    return 0;
}

int log_chunk_entry(const struct log *l, const struct log_chunk *c, uint64_t index,
                    struct log_entry *ret)
{
    const struct log_slot *s = log_entries_slot(&l->entries, index);
    struct log_record r;
    size_t at = (size_t)(s->offset - c->offset);
    if (!log_record_decode(c->data + at, c->len - at, &r) || r.type != LOG_RECORD_ENTRY ||
        r.index != index || r.len != s->len || r.kind != s->kind || r.term != ret->term) {
        return log_read_trouble(l, s, FL_ECORRUPT, "what is there is not what was written");
    }
    ret->data = r.data;
    return 0;
}

static int read_back(struct log *l, uint64_t index, struct log_entry *ret)
{
    const struct log_slot *s = log_entries_slot(&l->entries, index);
    FLI_ASSERT(s->segment != LOG_UNPLACED);
    struct log_chunk *c = log_chunk_with(l->chunks, s);
    int rv = c != NULL ? 0 : read_chunk(l, s, &c);
    return rv != 0 ? rv : log_chunk_entry(l, c, index, ret);
}

int log_read_memory(const struct log *l, uint64_t index, struct log_entry *ret)
{
    if (!log_entries_has(&l->entries, index)) {
        return FL_ENOTFOUND;
    }
    const struct log_slot *s = log_entries_slot(&l->entries, index);
    *ret = (struct log_entry){.index = index,
                              .term = log_entries_term(&l->entries, index),
                              .kind = s->kind,
                              .len = s->len,
                              .data = log_entries_data(&l->entries, index)};
    return 0;
}

int log_read(struct log *l, uint64_t index, struct log_entry *ret)
{
    struct log_entry e;
    int rv = log_read_memory(l, index, &e);
    if (rv == 0 && e.data == NULL) {
        rv = read_back(l, index, &e);
    }
    if (rv == 0) {
        *ret = e;
    }
    return rv;
}

int log_read_batch(struct log *l, uint64_t index, size_t max_bytes, struct log_entry *entries,
                   unsigned n, unsigned *ret_n, log_read_one *one)
{
    size_t bytes = 0;
    unsigned got = 0;
    FLI_ASSERT(n > 0);
    for (; got < n; got++, index++) {
        if (got > 0 && log_entries_has(&l->entries, index) &&
            bytes + log_entries_slot(&l->entries, index)->len > max_bytes) {
            break;
        }
        int rv = one(l, index, &entries[got]);
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
    return log_read_batch(l, index, max_bytes, entries, n, ret_n, log_read);
}
