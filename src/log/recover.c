/* recover.c: log_open(): recovers the log in a directory, and makes an empty directory into a log.
 *
 * All segments are read once, in order, and their records are applied in the order in which they
 * were appended. Nothing on disk changes before everything was checked. Then the last whole write
 * is written again, what is torn behind it is made zeros, and all is synced: the bytes read may
 * have been in a cache of the system or the disk, and what is built on them must not be more
 * durable than they are.
 *
 * The last write of a process that was killed may still be under way in the kernel. Each segment is
 * locked by who writes to it, and read only when that lock is gone. */
#include "log/log_private.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"

#define LOCK_QUIET_MS 1000u /* as after most kills, and while a child of fork() still closes it */
#define LOCK_WAIT_S 30u     /* as long as a disk may take that is not broken */

struct recovery {
    struct log *l;
    struct log_device *d;
    char *errmsg;
    size_t errmsg_size;
    struct log_scan scan;
    struct log_chunk *last; /* the segment of the last write */
};

#define REFUSE(r, error, ...) fli_refuse((r)->errmsg, (r)->errmsg_size, error, __VA_ARGS__)

static int no_memory(struct recovery *r)
{
    return REFUSE(r, FL_ENOMEM, "%s: no memory for the log", r->d->where);
}

static int io_error(struct recovery *r, const char *what, const char *name, int error)
{
    return error == 0
               ? 0
               : REFUSE(r, error == -ENOMEM ? FL_ENOMEM : FL_EIO, "cannot %s %s%s%s: %s", what,
                        r->d->where, name[0] == '\0' ? "" : "/", name, strerror(-error));
}

static int segment_error(struct recovery *r, int error, uint32_t number, uint64_t at,
                         const char *why)
{
    char name[LOG_NAME_MAX + 1];
    log_segment_name(number, name);
    return REFUSE(r, error, "%s/%s: at byte %" PRIu64 ": %s", r->d->where, name, at, why);
}

/* --- what is there --- */

/* A half-made segment is no file of the log yet: who makes that segment next removes it. */
static int on_name(void *ctx, const char *name)
{
    struct recovery *r = ctx;
    uint32_t number = 0;
    if (log_segment_parse(name, &number)) {
        struct log_segment found = {.number = number};
        return log_segments_add(r->l, &found) == 0 ? 0 : -ENOMEM;
    }
    const char *end = strrchr(name, '.');
    bool part = strncmp(name, "segment-", 8) == 0 && end != NULL && strcmp(end, ".part") == 0;
    if (name[0] != '.' && !part && strncmp(name, "snapshot-", 9) != 0 &&
        strcmp(name, "lost+found") != 0) {
        log_message(r->l, LOG_LEVEL_WARNING, "%s/%s is not a file of the log, and is ignored",
                    r->d->where, name);
    }
    return 0;
}

static int list_files(struct recovery *r)
{
    struct log *l = r->l;
    int rv = r->d->ops->list(r->d, on_name, r);
    if (rv != 0) {
        return io_error(r, "read the directory", "", rv);
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
        return REFUSE(r, FL_EIO,
                      "%s/%s is still being written for a process that has ended, or another "
                      "process has locked it: see whether the disk works, and start again",
                      r->d->where, name);
    }
    return io_error(r, "lock", name, rv);
}

/* Opens it and learns its length. */
static int open_segment(struct recovery *r, struct log_segment *s)
{
    char name[LOG_NAME_MAX + 1];
    log_segment_name(s->number, name);
    int rv = r->d->ops->open(r->d, name, LOG_OPEN_WRITE | LOG_OPEN_DIRECT, &s->file);
    if (rv != 0) {
        return io_error(r, "open", name, rv);
    }
    rv = lock_segment(r, name, s->file);
    if (rv == 0) {
        rv = r->d->ops->size(r->d, s->file, &s->size);
        rv = io_error(r, "learn the length of", name, rv);
    }
    if (rv != 0) {
        return rv;
    }
    r->l->stats.bytes += s->size;
    return s->size >= LOG_SEGMENT_MIN && s->size <= LOG_SEGMENT_MAX && s->size % LOG_BLOCK == 0
               ? 0
               : segment_error(r, FL_ECORRUPT, s->number, s->size,
                               "the file has a length that no segment has");
}

static int read_bytes(struct recovery *r, const struct log_segment *s, uint8_t *data, size_t len)
{
    int64_t n = r->d->ops->read(r->d, s->file, data, len, 0);
    if ((uint64_t)n == s->size) {
        return 0;
    }
    /* To name the wrong byte, the slow way is good enough here. */
    uint64_t at = 0;
    while (at < s->size && r->d->ops->read(r->d, s->file, data, r->d->block, at) > 0) {
        at += r->d->block;
    }
    return segment_error(r, FL_EIO, s->number, at, strerror(n < 0 ? (int)-n : EIO));
}

/* Applies what is in the segment. The one with the last write stays in memory, and it and those
 * behind it stay open. */
static int read_segment(struct recovery *r, struct log_segment *s)
{
    struct log *l = r->l;
    int rv = open_segment(r, s);
    if (rv != 0) {
        return rv;
    }
    size_t len = log_round_up((size_t)s->size, l->block);
    uint8_t *data = aligned_alloc(l->block, len);
    struct log_chunk *c = log_chunk_add(l, s->number, 0, (size_t)s->size, data);
    if (c == NULL) {
        return no_memory(r);
    }
    rv = read_bytes(r, s, data, len);
    if (rv != 0) {
        return rv;
    }
    rv = log_scan_segment(&r->scan, s->number, data, (size_t)s->size);
    if (rv != 0) {
        return rv == FL_ENOMEM ? no_memory(r)
                               : segment_error(r, rv, r->scan.segment, r->scan.at, r->scan.why);
    }
    if (r->scan.last_in == s->number) {
        struct log_chunk *before = r->last;
        r->last = c;
        c = before;
    }
    if (c != NULL && c->segment < r->scan.last_in) {
        log_segment_close(l, log_segment_of(l, c->segment));
    }
    if (c != NULL) {
        log_chunk_drop(l, c);
    }
    return 0;
}

/* --- repairing --- */

/* Removes ready segments that are too many, not of the size wanted now, or not all zeros. The
 * newest goes first and durably, so no crash leaves a gap. */
static int remove_surplus(struct recovery *r)
{
    struct log *l = r->l;
    size_t kept = r->scan.last_in + 1 - l->segments[0].number;
    for (unsigned n = 0; n < LOG_READY && kept < l->segments_len; n++, kept++) {
        const struct log_segment *s = &l->segments[kept];
        if (s->size != l->config.segment_bytes || s->number == r->scan.torn_in) {
            break;
        }
    }
    while (l->segments_len > kept) {
        struct log_io io = {.device = r->d};
        struct log_segment *s = &l->segments[l->segments_len - 1];
        log_segment_name(s->number, io.name);
        log_segment_close(l, s);
        int rv = log_segment_remove(&io);
        if (rv != 0) {
            return io_error(r, "remove", io.name, rv);
        }
        l->stats.bytes -= s->size;
        l->segments_len--;
    }
    return 0;
}

/* The last write may have failed in the process before, and have been read from the cache, which
 * believes that it is on disk: a sync alone would do nothing. The same bytes over themselves put
 * nothing at risk. Behind them, what is torn becomes zeros. */
static int write_end_again(struct recovery *r)
{
    const struct log_scan *s = &r->scan;
    struct log_file *f = NULL;
    char name[LOG_NAME_MAX + 1];
    size_t end = s->end;
    if (s->torn_in != 0) {
        log_segment_name(s->torn_in, name);
        log_message(r->l, LOG_LEVEL_WARNING,
                    "%s/%s: bytes %zu to %zu are of a write that a crash interrupted; nobody was "
                    "told that it is done, and it is cut off",
                    r->d->where, name, s->torn_at, s->torn_end);
    }
    log_segment_name(s->last_in, name);
    if (s->torn_in == s->last_in) {
        end = s->torn_end;
        memset(r->last->data + s->end, 0, end - s->end);
    }
    int rv = r->d->ops->open(r->d, name, LOG_OPEN_WRITE, &f);
    if (rv == 0) {
        rv = r->d->ops->write(r->d, f, r->last->data + s->last_at, end - s->last_at, s->last_at);
        rv = rv == 0 ? r->d->ops->sync(r->d, f) : rv;
        r->d->ops->close(r->d, f);
    }
    return io_error(r, "write the end of the log again in", name, rv);
}

static int finish_recovery(struct recovery *r)
{
    struct log *l = r->l;
    int rv = remove_surplus(r);
    rv = rv == 0 ? write_end_again(r) : rv;
    if (rv != 0) {
        return rv;
    }
    l->current = l->durable_in = r->scan.last_in;
    /* If it was written with smaller blocks than possible now, the next write begins a new
     * segment. */
    l->offset = r->scan.end % l->block == 0 ? r->scan.end : log_segment_size(l, l->current);
    l->log_id = r->scan.log_id;
    l->next_number = r->scan.next_number;
    log_trim(l, NULL);
    return io_error(r, "sync", "", r->d->ops->sync_dir(r->d));
}

/* --- an empty directory --- */

/* Makes the first segment, with a write of no records in it that carries the log's id. */
static int begin_log(struct recovery *r)
{
    struct log *l = r->l;
    uint64_t wanted = l->config.segment_bytes;
    struct log_io io = {.device = r->d,
                        .size = wanted < LOG_FIRST_BYTES ? wanted : LOG_FIRST_BYTES,
                        .len = l->block};
    struct log_write w = {.number = 1,
                          .segment = 1,
                          .segment_size = io.size,
                          .block = (uint32_t)l->block,
                          .len = LOG_WRITE_HEADER};
    uint8_t *data = aligned_alloc(l->block, l->block);
    if (data == NULL || log_segments_add(l, &(struct log_segment){.number = 1}) != 0) {
        free(data);
        return no_memory(r);
    }
    memset(data, 0, l->block);
    fli_random(&w.log_id, sizeof w.log_id);
    (void)log_write_seal(&w, data, l->block);
    io.data = data;
    log_segment_name(1, io.name);
    int rv = log_segment_make(&io);
    free(data);
    if (rv == 0) {
        r->d->ops->close(r->d, io.file);
    }
    return io_error(r, "begin a log in", "", rv);
}

/* --- opening --- */

static int recover(struct recovery *r)
{
    struct log *l = r->l;
    int rv = list_files(r);
    if (rv == 0 && l->segments_len == 0) {
        rv = l->config.must_exist
                 ? REFUSE(r, FL_ENOTFOUND, "%s has no segment of a log", r->d->where)
                 : begin_log(r);
    }
    for (size_t i = 0; rv == 0 && i < l->segments_len; i++) {
        rv = read_segment(r, &l->segments[i]);
    }
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
    l->config.cache_bytes = config->cache_bytes != 0 ? config->cache_bytes : LOG_CACHE_DEFAULT;
    l->config.segment_bytes =
        config->segment_bytes != 0 ? config->segment_bytes : LOG_SEGMENT_DEFAULT;
    metrics_histogram_init(&l->write_times, METRICS_RANGE_FAST);
    l->device = config->device;
    l->block = l->device->block;
    FLI_ASSERT(l->config.segment_bytes >= LOG_SEGMENT_MIN &&
               l->config.segment_bytes <= LOG_SEGMENT_MAX &&
               l->config.segment_bytes % l->block == 0);
    atomic_store(&l->device->cancelled, false);
    log_entries_reset(&l->now.entries, 0, 0);
    r.scan.now = &l->now;
    int rv = recover(&r);
    if (rv != 0) {
        l->closed = true;
        log_destroy(l);
        return rv;
    }
    l->durable_index = l->now.entries.last;
    l->compact_index = l->now.entries.first - 1;
    *ret = l;
    return 0;
}
