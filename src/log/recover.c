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

/* All bytes of a segment. */
struct content {
    uint8_t *data; /* aligned to the device's block */
    size_t cap;
};

struct recovery {
    struct log *l;
    struct log_device *d;
    char *errmsg;
    size_t errmsg_size;
    int error; /* of listing the directory */

    char strange[LOG_NAME_MAX + 1];

    struct log_scan scan;
    struct content read; /* the segment being read */
    struct content last; /* the last segment with a write */
    uint32_t last_begun; /* its number; 0: there is none yet */
    uint64_t last_at;    /* where its last write begins, and ends */
    uint64_t end;
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
        struct log_segment found = {.number = number};
        r->error = log_segments_add(r->l, &found) == 0 ? 0 : no_memory(r);
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
    struct content *to = &r->read;
    size_t need = log_round_up((size_t)f->size, r->d->block);
    if (need > to->cap) {
        free(to->data);
        to->cap = need;
        to->data = aligned_alloc(r->d->block, need);
        if (to->data == NULL) {
            return no_memory(r);
        }
    }
    int64_t n = r->d->ops->read(r->d, file, to->data, need, 0);
    if (n < 0) { /* to name the wrong byte, the slow way is good enough here */
        uint64_t at = 0;
        while (at < f->size && r->d->ops->read(r->d, file, to->data, r->d->block, at) > 0) {
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

/* Whether what was found in this segment may follow what was found before. */
static int check_order(struct recovery *r, uint32_t number, enum log_scan_end found)
{
    if (r->last_begun == 0) {
        return found != LOG_SCAN_CLEAN ? 0
                                       : segment_error(r, FL_ECORRUPT, number, 0,
                                                       "the first write of the log is missing");
    }
    if (found != LOG_SCAN_CLEAN && r->torn != 0) {
        return segment_error(r, FL_ECORRUPT, r->torn, r->torn_at,
                             "this write is not whole, and there are newer ones");
    }
    if (found != LOG_SCAN_CLEAN && number > r->last_begun + 1) {
        return segment_error(r, FL_ECORRUPT, r->last_begun + 1, 0,
                             "this segment is empty, and a newer one is not");
    }
    return 0;
}

/* Applies what is in the segment, and keeps its bytes if there is anything. */
static int apply_segment(struct recovery *r, const struct log_segment *f)
{
    struct log_scan *s = &r->scan;
    s->segment = f->number;
    s->data = r->read.data;
    s->len = (size_t)f->size;
    s->next = 0;
    enum log_scan_end found = log_scan_next(s);
    int rv = check_order(r, f->number, found);
    for (; rv == 0 && found == LOG_SCAN_WRITE; found = log_scan_next(s)) {
        r->last_begun = f->number;
        r->last_at = s->at;
        r->end = s->next;
    }
    if (rv != 0) {
        return rv;
    }
    if (found == LOG_SCAN_MEMORY) {
        return no_memory(r);
    }
    if (found == LOG_SCAN_DAMAGED || found == LOG_SCAN_VERSION) {
        return segment_error(r, found == LOG_SCAN_DAMAGED ? FL_ECORRUPT : FL_EVERSION, f->number,
                             s->at, s->why);
    }
    if (found == LOG_SCAN_TORN) {
        r->torn = f->number;
        r->torn_at = s->at;
        r->torn_end = s->next;
    }
    if (r->last_begun == f->number) {
        struct content older = r->last;
        r->last = r->read;
        r->read = older;
    }
    return 0;
}

static int read_all(struct recovery *r)
{
    r->scan.entries = &r->l->entries;
    int rv = 0;
    for (size_t i = 0; rv == 0 && i < r->l->segments_len; i++) {
        rv = read_segment(r, &r->l->segments[i]);
        rv = rv == 0 ? apply_segment(r, &r->l->segments[i]) : rv;
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
    uint8_t *zeros = calloc(1, len);
    if (zeros == NULL) {
        return no_memory(r);
    }
    int rv = write_synced(r, name, 0, zeros, len, r->torn_at);
    free(zeros);
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

/* The current one, and those that are ready. */
static int open_segments(struct recovery *r)
{
    struct log *l = r->l;
    int rv = 0;
    for (size_t i = l->current - l->segments[0].number; rv == 0 && i < l->segments_len; i++) {
        rv = open_segment(r, l->segments[i].number, LOG_OPEN_WRITE, &l->segments[i].file);
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
    int rv = write_synced(r, name, 0, r->last.data + r->last_at, (size_t)(r->end - r->last_at),
                          r->last_at);
    return rv == 0 ? 0 : io_error(r, "write the end of the log again in", name, rv);
}

/* The segment that is written to stays in memory, if there is enough. */
static void keep_last(struct recovery *r)
{
    struct log *l = r->l;
    size_t len = (size_t)log_segment_size(l, l->current);
    (void)log_chunk_add(l, l->current, 0, len, r->last.data);
    r->last.data = NULL;
    log_trim(l, NULL);
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
    l->hard = r->scan.hard;
    l->chain = r->scan.chain;
    rv = open_segments(r);
    if (rv == 0) {
        rv = write_last_again(r);
    }
    if (rv != 0) {
        return rv;
    }
    keep_last(r);
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
    if (data == NULL || log_segments_add(l, &(struct log_segment){.number = 1}) != 0) {
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
    return 0;
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
        rv = begin_log(r);
    }
    rv = rv == 0 ? read_all(r) : rv;
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
    log_entries_init(&l->entries);
    int rv = recover(&r);
    free(r.read.data);
    free(r.last.data);
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
