/* recover.c: log_open(): recovers the log in a directory, and makes an empty directory into a log.
 *
 * All segments are read once, in order, and their records are applied in the order in which they
 * were appended. Nothing on disk changes before everything was checked. Then the remains of a torn
 * last write are zeroed, half-made segments are removed, the last whole write is written again, and
 * all is synced: the bytes read may have been in a cache of the system or the disk, and what is
 * built on them must not be more durable than they are.
 *
 * The last write of a process that was killed may still be under way in the kernel. Each segment is
 * locked by who writes to it, and read only when that lock is gone. */
#include "log/log_private.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LOCK_QUIET_MS 1000u /* as after most kills, and while a child of fork() still closes it */
#define LOCK_WAIT_S 30u     /* as long as a disk may take that is not broken */

struct recovery {
    struct log *l;
    struct log_device *d;
    char *errmsg;
    size_t errmsg_size;
    int error; /* of listing the directory */

    char strange[LOG_NAME_MAX + 1];

    struct log_scan scan;
    uint32_t reading; /* number of the segment being read */
    uint8_t *buffer;
    size_t buffer_cap;
    bool begun;          /* some segment had a write */
    uint32_t last_begun; /* the last segment with a write */
    uint64_t end;        /* of the log in that segment */
    uint64_t last_at;    /* where its last write begins */
    uint8_t *last;       /* that write as it was read, up to `end` */
    size_t last_cap;
    uint32_t torn; /* the segment with a torn write; 0: none */
    uint64_t torn_at, torn_end;
};

static int explain(struct recovery *r, int error, const char *fmt, ...) FLI_PRINTF(3, 4);

static int explain(struct recovery *r, int error, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    vsnprintf(r->errmsg, r->errmsg_size, fmt, args);
    va_end(args);
    return error;
}

static int no_memory(struct recovery *r)
{
    return explain(r, FL_ENOMEM, "%s: no memory for the log", r->d->where);
}

static int io_error(struct recovery *r, const char *what, const char *name, int error)
{
    return explain(r, error == -ENOMEM ? FL_ENOMEM : FL_EIO, "cannot %s %s%s%s: %s", what,
                   r->d->where, name[0] == '\0' ? "" : "/", name, strerror(-error));
}

static int segment_error(struct recovery *r, int error, uint32_t number, uint64_t at,
                         const char *why)
{
    char name[LOG_NAME_MAX + 1];
    log_segment_name(number, name);
    return explain(r, error, "%s/%s: at byte %" PRIu64 ": %s", r->d->where, name, at, why);
}

/* --- what is there --- */

static bool is_part(void *ctx, const char *name)
{
    const char *end = strrchr(name, '.');
    return strncmp(name, "segment-", 8) == 0 && end != NULL && strcmp(end, ".part") == 0;
}

static int on_name(void *ctx, const char *name)
{
    struct recovery *r = ctx;
    uint32_t number = 0;
    if (log_segment_parse(name, &number)) {
        r->error = log_segments_add(r->l, number, 0) == 0 ? 0 : no_memory(r);
    } else if (name[0] != '.' && !is_part(NULL, name) && strncmp(name, "snapshot-", 9) != 0 &&
               strcmp(name, "lost+found") != 0) {
        snprintf(r->strange, sizeof r->strange, "%s", name);
    }
    return r->error;
}

static int by_number(const void *a, const void *b)
{
    const struct log_segment *x = a;
    const struct log_segment *y = b;
    return x->number < y->number ? -1 : x->number > y->number;
}

static int list_files(struct recovery *r)
{
    struct log *l = r->l;
    int rv = r->d->ops->list(r->d, on_name, r);
    if (r->error != 0) {
        return r->error;
    }
    if (rv != 0) {
        return io_error(r, "read the directory", "", rv);
    }
    if (r->strange[0] != '\0') {
        log_message(r->l, LOG_LEVEL_WARNING, "%s/%s is not a file of the log, and is ignored",
                    r->d->where, r->strange);
    }
    if (l->segments_len > 0) {
        qsort(l->segments, l->segments_len, sizeof *l->segments, by_number);
    }
    for (size_t i = 1; i < l->segments_len; i++) {
        if (l->segments[i].number != l->segments[i - 1].number + 1) {
            return segment_error(r, FL_ECORRUPT, l->segments[i - 1].number + 1, 0,
                                 "this segment is missing, and there are older and newer ones");
        }
    }
    return 0;
}

/* --- reading --- */

/* Waits until no write to the segment is under way that another process has begun. */
static int lock_segment(struct recovery *r, const char *name, struct log_file *f)
{
    int rv = r->d->ops->lock(r->d, f, LOCK_QUIET_MS);
    if (rv == -EWOULDBLOCK) {
        log_message(r->l, LOG_LEVEL_WARNING,
                    "%s/%s is still being written for a process that has ended, or another process "
                    "has locked it; this is waited for, for up to %u s",
                    r->d->where, name, LOCK_WAIT_S);
        rv = r->d->ops->lock(r->d, f, LOCK_WAIT_S * 1000);
    }
    if (rv == -EWOULDBLOCK) {
        return explain(r, FL_EIO,
                       "%s/%s is still being written for a process that has ended, or another "
                       "process has locked it: see whether the disk works, and start again",
                       r->d->where, name);
    }
    return rv == 0 ? 0 : io_error(r, "lock", name, rv);
}

static int open_segment(struct recovery *r, uint32_t number, unsigned flags, struct log_file **ret)
{
    char name[LOG_NAME_MAX + 1];
    log_segment_name(number, name);
    int rv = r->d->ops->open(r->d, name, flags | LOG_OPEN_DIRECT, ret);
    if (rv != 0) {
        return io_error(r, "open", name, rv);
    }
    rv = lock_segment(r, name, *ret);
    if (rv != 0) {
        r->d->ops->close(r->d, *ret);
        *ret = NULL;
    }
    return rv;
}

static int on_begun(void *ctx, const struct log_write *first)
{
    struct recovery *r = ctx;
    log_entries_reset(&r->l->entries, first->before.last_index, first->before.last_term);
    return 0;
}

static int on_entry(struct log *l, const struct recovery *r, const struct log_record *rec,
                    uint64_t offset)
{
    struct log_entry e = {.index = rec->index,
                          .term = rec->term,
                          .kind = rec->kind,
                          .len = rec->len,
                          .data = rec->data};
    if (log_entries_add(&l->entries, &e) != 0) {
        return FL_ENOMEM;
    }
    struct log_slot *s = log_entries_slot(&l->entries, e.index);
    s->segment = r->reading;
    s->offset = (uint32_t)offset;
    log_entries_evict(&l->entries, e.index);
    return 0;
}

static int on_record(void *ctx, const struct log_record *rec, uint64_t offset)
{
    struct recovery *r = ctx;
    struct log_entries *t = &r->l->entries;
    switch (rec->type) {
    case LOG_RECORD_ENTRY:
        return on_entry(r->l, r, rec, offset);
    case LOG_RECORD_TRUNCATE:
        if (rec->index < t->first) {
            log_entries_reset(t, rec->index - 1, rec->term);
            return 0;
        }
        if (log_entries_term(t, rec->index - 1) != rec->term) {
            return FL_ECORRUPT;
        }
        log_entries_truncate(t, rec->index);
        return 0;
    case LOG_RECORD_RESET:
        log_entries_reset(t, rec->index, rec->term);
        return 0;
    default:
        return 0;
    }
}

static int measure(struct recovery *r, struct log_segment *f, const char *name,
                   struct log_file *file)
{
    int rv = r->d->ops->size(r->d, file, &f->size);
    if (rv != 0) {
        return io_error(r, "learn the length of", name, rv);
    }
    if (f->size < LOG_SEGMENT_MIN || f->size > LOG_SEGMENT_MAX || f->size % LOG_BLOCK != 0) {
        return segment_error(r, FL_ECORRUPT, f->number, f->size,
                             "the file has a length that no segment has");
    }
    r->l->stats.bytes += f->size;
    return 0;
}

static int read_bytes(struct recovery *r, const struct log_segment *f, const char *name,
                      struct log_file *file)
{
    size_t need = log_round_up((size_t)f->size, r->d->block);
    if (need > r->buffer_cap) {
        free(r->buffer);
        r->buffer_cap = need;
        r->buffer = aligned_alloc(r->d->block, need);
        if (r->buffer == NULL) {
            return no_memory(r);
        }
    }
    int64_t n = r->d->ops->read(r->d, file, r->buffer, need, 0);
    if (n < 0) { /* to name the wrong byte, the slow way is good enough here */
        uint64_t at = 0;
        while (at < f->size && r->d->ops->read(r->d, file, r->buffer, r->d->block, at) > 0) {
            at += r->d->block;
        }
        return segment_error(r, FL_EIO, f->number, at, strerror((int)-n));
    }
    return (uint64_t)n == f->size ? 0 : io_error(r, "read all of", name, -EIO);
}

static int read_segment(struct recovery *r, struct log_segment *f)
{
    char name[LOG_NAME_MAX + 1];
    struct log_file *file = NULL;
    log_segment_name(f->number, name);
    int rv = open_segment(r, f->number, LOG_OPEN_READ, &file);
    if (rv != 0) {
        return rv;
    }
    rv = measure(r, f, name, file);
    rv = rv == 0 ? read_bytes(r, f, name, file) : rv;
    r->d->ops->close(r->d, file);
    return rv;
}

/* Keeps the last write, since the next segment is read over it. */
static int keep_last(struct recovery *r, uint64_t at, uint64_t end)
{
    size_t len = (size_t)(end - at);
    if (len > r->last_cap) {
        free(r->last);
        r->last_cap = len;
        r->last = malloc(len);
        if (r->last == NULL) {
            return no_memory(r);
        }
    }
    memcpy(r->last, r->buffer + at, len);
    r->last_at = at;
    r->end = end;
    return 0;
}

/* Scans one segment and checks that it continues those before. */
static int check_segment(struct recovery *r, const struct log_segment *f)
{
    r->reading = f->number;
    enum log_scan_end end = log_scan_segment(&r->scan, f->number, r->buffer, (size_t)f->size);
    bool anything = r->scan.writes > 0 || end != LOG_SCAN_CLEAN;
    if (r->torn != 0 && anything) {
        return segment_error(r, FL_ECORRUPT, r->torn, r->torn_at,
                             "this write is not whole, and there are newer ones");
    }
    switch (end) {
    case LOG_SCAN_DAMAGED:
        return segment_error(r, FL_ECORRUPT, f->number, r->scan.at, r->scan.why);
    case LOG_SCAN_VERSION:
        return segment_error(r, FL_EVERSION, f->number, r->scan.at, r->scan.why);
    case LOG_SCAN_STOPPED:
        if (r->scan.stopped == FL_ECORRUPT) {
            return segment_error(r, FL_ECORRUPT, f->number, r->scan.at,
                                 "a truncation does not fit the entries before it");
        }
        return no_memory(r);
    case LOG_SCAN_CLEAN:
    case LOG_SCAN_TORN:
        break;
    }
    if (r->begun && f->number > r->last_begun + 1 && anything) {
        return segment_error(r, FL_ECORRUPT, r->last_begun + 1, 0,
                             "this segment is empty, and a newer one is not");
    }
    if (!r->begun && r->scan.writes == 0) {
        return segment_error(r, FL_ECORRUPT, f->number, 0, "the first write of the log is missing");
    }
    if (end == LOG_SCAN_TORN) {
        r->torn = f->number;
        r->torn_at = r->scan.at;
        r->torn_end = r->scan.torn_end;
    }
    if (r->scan.writes == 0) {
        return 0;
    }
    r->begun = true;
    r->last_begun = f->number;
    return keep_last(r, r->scan.last_at, r->scan.at);
}

static int read_all(struct recovery *r)
{
    r->scan = (struct log_scan){.begun = on_begun, .record = on_record, .ctx = r};
    int rv = 0;
    for (size_t i = 0; rv == 0 && i < r->l->segments_len; i++) {
        rv = read_segment(r, &r->l->segments[i]);
        rv = rv == 0 ? check_segment(r, &r->l->segments[i]) : rv;
    }
    return rv;
}

/* --- repairing --- */

/* Writes and syncs bytes of a segment, which `flags` may create. */
static int write_synced(struct recovery *r, const char *name, unsigned flags, const uint8_t *data,
                        size_t len, uint64_t at)
{
    struct log_file *f = NULL;
    int rv = r->d->ops->open(r->d, name, LOG_OPEN_WRITE | flags, &f);
    if (rv != 0) {
        return rv;
    }
    rv = r->d->ops->write(r->d, f, data, len, at);
    rv = rv != 0 ? rv : r->d->ops->sync(r->d, f);
    r->d->ops->close(r->d, f);
    return rv;
}

static int truncate_torn_write(struct recovery *r)
{
    char name[LOG_NAME_MAX + 1];
    if (r->torn == 0) {
        return 0;
    }
    log_segment_name(r->torn, name);
    log_message(r->l, LOG_LEVEL_WARNING,
                "%s/%s: bytes %" PRIu64 " to %" PRIu64 " are of a write that a crash interrupted; "
                "nobody was told that it is done, and it is cut off",
                r->d->where, name, r->torn_at, r->torn_end);
    size_t len = (size_t)(r->torn_end - r->torn_at);
    FLI_ASSERT(len <= r->buffer_cap);
    memset(r->buffer, 0, len); /* all segments were read */
    int rv = write_synced(r, name, 0, r->buffer, len, r->torn_at);
    return rv == 0 ? 0 : io_error(r, "cut off a torn write in", name, rv);
}

static int remove_file(struct recovery *r, const char *name)
{
    int rv = r->d->ops->remove(r->d, name);
    return rv == 0 || rv == -ENOENT ? 0 : io_error(r, "remove", name, rv);
}

/* Removes half-made segments. There is one after most crashes, and never more than a few. */
static int remove_parts(struct recovery *r)
{
    char name[LOG_NAME_MAX + 1];
    int rv = log_device_remove(r->d, is_part, NULL, name);
    return rv == 0 ? 0 : io_error(r, name[0] == '\0' ? "read the directory" : "remove", name, rv);
}

/* Removes ready segments that are too many, or not of the size wanted now. */
static int remove_surplus(struct recovery *r)
{
    struct log *l = r->l;
    size_t kept = 0;
    while (kept < l->segments_len && l->segments[kept].number <= r->last_begun) {
        kept++;
    }
    for (unsigned n = 0; n < LOG_READY && kept < l->segments_len; n++, kept++) {
        if (l->segments[kept].size != l->config.segment_bytes) {
            break;
        }
    }
    while (l->segments_len > kept) {
        char name[LOG_NAME_MAX + 1];
        struct log_segment *s = &l->segments[l->segments_len - 1];
        log_segment_name(s->number, name);
        int rv = remove_file(r, name);
        if (rv != 0) {
            return rv;
        }
        l->stats.bytes -= s->size;
        l->segments_len--;
    }
    return 0;
}

static int open_segments(struct recovery *r)
{
    struct log *l = r->l;
    int rv = open_segment(r, l->current, LOG_OPEN_WRITE, &l->file);
    for (uint32_t n = l->current + 1; rv == 0 && n <= l->segments[l->segments_len - 1].number;
         n++) {
        rv = open_segment(r, n, LOG_OPEN_WRITE, &l->ready[l->ready_len]);
        l->ready_len += rv == 0;
    }
    return rv;
}

/* The last write may have failed in the process before, and have been read from the cache, which
 * believes that it is on disk: a sync alone would do nothing. The same bytes over themselves put
 * nothing at risk. */
static int write_last_again(struct recovery *r)
{
    char name[LOG_NAME_MAX + 1];
    log_segment_name(r->last_begun, name);
    int rv = write_synced(r, name, 0, r->last, (size_t)(r->end - r->last_at), r->last_at);
    return rv == 0 ? 0 : io_error(r, "write the end of the log again in", name, rv);
}

static int finish_recovery(struct recovery *r)
{
    struct log *l = r->l;
    int rv = truncate_torn_write(r);
    if (rv == 0) {
        rv = remove_parts(r);
    }
    if (rv == 0) {
        rv = remove_surplus(r);
    }
    if (rv != 0) {
        return rv;
    }
    l->current = r->last_begun;
    l->durable_in = l->current;
    /* If it was written with smaller blocks than possible now, the next write begins a new
     * segment. */
    l->offset = r->end % l->block == 0 ? r->end : log_segment_of(l, l->current)->size;
    l->log_id = r->scan.log_id;
    l->next_number = r->scan.next_number;
    l->hard = r->scan.state.hard;
    l->chain = r->scan.state.chain;
    FLI_ASSERT(l->entries.last == r->scan.state.last_index);
    FLI_ASSERT(log_last_term(l) == r->scan.state.last_term);
    rv = open_segments(r);
    if (rv == 0) {
        rv = write_last_again(r);
    }
    if (rv != 0) {
        return rv;
    }
    rv = l->device->ops->sync_dir(l->device);
    return rv == 0 ? 0 : io_error(r, "sync", "", rv);
}

/* --- an empty directory --- */

/* Makes the first segment, with a write of no records in it that carries the log's id. */
static int begin_log(struct recovery *r)
{
    struct log *l = r->l;
    char name[LOG_NAME_MAX + 1];
    char part[LOG_NAME_MAX + 1] = "segment-0000000001.part";
    uint64_t size =
        l->config.segment_bytes < LOG_FIRST_BYTES ? l->config.segment_bytes : LOG_FIRST_BYTES;
    struct log_write w = {.number = 1,
                          .segment = 1,
                          .segment_size = size,
                          .block = (uint32_t)l->block,
                          .len = LOG_WRITE_HEADER};
    int rv = remove_parts(r);
    if (rv != 0) {
        return rv;
    }
    uint8_t *data = calloc(1, (size_t)size);
    if (data == NULL || log_segments_add(l, 1, size) != 0) {
        free(data);
        return no_memory(r);
    }
    l->device->ops->random(l->device, &w.log_id, sizeof w.log_id);
    log_write_seal(&w, data, l->block);
    rv = write_synced(r, part, LOG_OPEN_CREATE, data, (size_t)size, 0);
    free(data);
    log_segment_name(1, name);
    if (rv == 0) {
        rv = r->d->ops->rename(r->d, part, name, false);
    }
    if (rv == 0) {
        rv = r->d->ops->sync_dir(r->d);
    }
    if (rv != 0) {
        (void)!r->d->ops->remove(r->d, part);
        return io_error(r, "begin a log in", "", rv);
    }
    l->current = l->durable_in = 1;
    l->offset = l->block;
    l->log_id = w.log_id;
    l->next_number = 2;
    return open_segment(r, 1, LOG_OPEN_WRITE, &l->file);
}

/* --- opening --- */

static int check_config(struct recovery *r, const struct log_config *c)
{
    if (c->segment_bytes < LOG_SEGMENT_MIN || c->segment_bytes > LOG_SEGMENT_MAX ||
        c->segment_bytes % c->device->block != 0) {
        return explain(r, FL_EINVAL,
                       "a segment of %" PRIu64 " bytes: it has %" PRIu64 " to %" PRIu64
                       ", a multiple of %zu",
                       c->segment_bytes, LOG_SEGMENT_MIN, LOG_SEGMENT_MAX, c->device->block);
    }
    return 0;
}

static int recover(struct recovery *r)
{
    int rv = check_config(r, &r->l->config);
    if (rv == 0) {
        rv = list_files(r);
    }
    if (rv != 0) {
        return rv;
    }
    if (r->l->segments_len == 0 && r->l->config.must_exist) {
        return explain(r, FL_ENOTFOUND, "%s has no segment of a log", r->d->where);
    }
    if (r->l->segments_len == 0) {
        return begin_log(r);
    }
    rv = read_all(r);
    return rv == 0 ? finish_recovery(r) : rv;
}

int log_open(const struct log_config *config, struct log **ret, char *errmsg, size_t errmsg_size)
{
    struct log *l = calloc(1, sizeof *l);
    struct recovery r = {.l = l, .d = config->device, .errmsg = errmsg, .errmsg_size = errmsg_size};
    if (l == NULL) {
        return no_memory(&r);
    }
    l->config = *config;
    metrics_histogram_init(&l->write_times, METRICS_RANGE_FAST);
    if (l->config.cache_bytes == 0) {
        l->config.cache_bytes = LOG_CACHE_DEFAULT;
    }
    if (l->config.segment_bytes == 0) {
        l->config.segment_bytes = LOG_SEGMENT_DEFAULT;
    }
    l->device = config->device;
    l->block = l->device->block;
    log_entries_init(&l->entries, l->config.cache_bytes);
    int rv = recover(&r);
    free(r.buffer);
    free(r.last);
    if (rv != 0) {
        l->closed = true;
        log_destroy(l);
        return rv;
    }
    l->durable_index = l->entries.last;
    l->compact_index = l->entries.first - 1;
    *ret = l;
    return 0;
}
