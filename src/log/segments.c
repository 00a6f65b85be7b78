/* segments.c: segments are prepared, written, and reused or removed.
 *
 *   segment-0000000007        numbers without a gap, in the order of writing: old segments, the
 *                             current one, at most LOG_READY ready ones, which are all zero
 *   segment-0000000008.part   being filled with zeros
 *
 * The name and the zeros of a ready segment are on stable storage before a write needs it, so going
 * from one segment to the next touches no metadata. A segment that a snapshot has made superfluous
 * stays until its file is reused for the next ready segment. When there are more than LOG_USED_KEPT
 * of them, the oldest is removed. The oldest always goes first and durably, so no crash leaves a
 * gap. */
#include "log/log_private.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"

static const char prefix[] = "segment-";
#define DIGITS 10
#define NUMBER_MAX (UINT32_MAX - 1)
#define FILL_BYTES ((size_t)128 << 10) /* of zeros in one write */
#define LOCK_NEW_MS 1000u /* a child after fork() has the file open, too, until it closes all */

void log_segment_name(uint32_t number, char out[LOG_NAME_MAX + 1])
{
    snprintf(out, LOG_NAME_MAX + 1, "%s%0*" PRIu32, prefix, DIGITS, number);
}

bool log_segment_parse(const char *name, uint32_t *ret)
{
    size_t head = sizeof prefix - 1;
    uint64_t number = 0;
    if (strncmp(name, prefix, head) != 0 || strlen(name) != head + DIGITS ||
        !fli_parse_u64(name + head, DIGITS, NUMBER_MAX, &number) || number == 0) {
        return false;
    }
    *ret = (uint32_t)number;
    return true;
}

/* ---- work of lane BACKGROUND ---- */

/* Zeros, but for what the file begins with. */
static int fill(const struct log_io *io)
{
    struct log_device *d = io->device;
    uint8_t *zeros = aligned_alloc(LOG_BLOCK_MAX, FILL_BYTES);
    int rv = zeros == NULL ? -ENOMEM : d->ops->allocate(d, io->file, io->size);
    if (rv == 0) {
        memset(zeros, 0, FILL_BYTES);
    }
    for (uint64_t at = 0; rv == 0 && at < io->size; at += FILL_BYTES) {
        size_t n = io->size - at < FILL_BYTES ? (size_t)(io->size - at) : FILL_BYTES;
        rv = atomic_load(&d->cancelled) ? -ECANCELED : d->ops->write(d, io->file, zeros, n, at);
    }
    free(zeros);
    if (rv == 0 && io->len > 0) {
        rv = d->ops->write(d, io->file, io->data, io->len, 0);
    }
    return rv == 0 ? d->ops->sync(d, io->file) : rv;
}

/* Opens `name`.part: the file `from`, or else a new one. */
static int open_part(struct log_io *io, const char *part)
{
    struct log_device *d = io->device;
    unsigned flags = LOG_OPEN_WRITE | LOG_OPEN_DIRECT;
    int rv = io->from[0] == '\0' ? -ENOENT : d->ops->rename(d, io->from, part, true);
    if (rv == -ENOENT) {
        flags |= LOG_OPEN_CREATE;
        rv = d->ops->remove(d, part);
        rv = rv == -ENOENT ? 0 : rv;
    }
    if (rv == 0 && io->from[0] != '\0') {
        /* The old name must be gone before the content is overwritten, and before another goes. */
        rv = d->ops->sync_dir(d);
        io->from[0] = rv == 0 ? '\0' : io->from[0];
    }
    return rv == 0 ? d->ops->open(d, part, flags, &io->file) : rv;
}

int log_segment_make(struct log_io *io)
{
    struct log_device *d = io->device;
    char part[LOG_NAME_MAX + 8];
    bool named = false;
    snprintf(part, sizeof part, "%s.part", io->name);
    io->file = NULL;
    int rv = open_part(io, part);
    rv = rv == 0 ? d->ops->lock(d, io->file, LOCK_NEW_MS) : rv;
    rv = rv == 0 ? fill(io) : rv;
    if (rv == 0) {
        rv = d->ops->rename(d, part, io->name, false);
        named = rv == 0;
        rv = named ? d->ops->sync_dir(d) : rv;
    }
    if (rv == 0) {
        return 0;
    }
    if (io->file != NULL) {
        d->ops->close(d, io->file);
        io->file = NULL;
    }
    /* Its space may be needed. A file that keeps its name is what the next attempt uses up. */
    if (d->ops->remove(d, named ? io->name : part) != 0 && named) {
        memcpy(io->from, io->name, sizeof io->from);
    }
    return rv;
}

int log_segment_remove(struct log_io *io)
{
    struct log_device *d = io->device;
    int rv = d->ops->remove(d, io->name);
    return rv == 0 || rv == -ENOENT ? d->ops->sync_dir(d) : rv;
}

/* ---- which there are ---- */

static int reserve(struct log *l)
{
    if (l->segments_len < l->segments_cap) {
        return 0;
    }
    size_t cap = l->segments_cap == 0 ? 16 : l->segments_cap * 2;
    struct log_segment *fresh = realloc(l->segments, cap * sizeof *fresh);
    if (fresh == NULL) {
        return FL_ENOMEM;
    }
    l->segments = fresh;
    l->segments_cap = cap;
    return 0;
}

int log_segments_add(struct log *l, const struct log_segment *s)
{
    if (reserve(l) != 0) {
        return FL_ENOMEM;
    }
    size_t i = l->segments_len++;
    for (; i > 0 && l->segments[i - 1].number > s->number; i--) {
        l->segments[i] = l->segments[i - 1];
    }
    l->segments[i] = *s;
    l->stats.bytes += s->size;
    return 0;
}

static uint32_t newest(const struct log *l)
{
    return l->segments[l->segments_len - 1].number;
}

static uint32_t ready(const struct log *l)
{
    return newest(l) - l->current;
}

struct log_segment *log_segment_of(const struct log *l, uint32_t number)
{
    FLI_ASSERT(l->segments_len > 0 && number >= l->segments[0].number);
    size_t i = number - l->segments[0].number;
    FLI_ASSERT(i < l->segments_len && l->segments[i].number == number);
    return &l->segments[i];
}

uint64_t log_segment_size(const struct log *l, uint32_t number)
{
    return number > newest(l) ? l->config.segment_bytes : log_segment_of(l, number)->size;
}

void log_segment_close(struct log *l, struct log_segment *s)
{
    if (s->file != NULL) {
        l->device->ops->close(l->device, s->file);
        s->file = NULL;
    }
}

bool log_next_segment(struct log *l)
{
    if (ready(l) == 0) {
        return false;
    }
    log_segment_close(l, log_segment_of(l, l->current));
    l->current++;
    l->offset = 0;
    return true;
}

/* Segments below this one are superfluous: they hold nothing above the snapshot, and a later
 * segment on disk has the state at their end. */
static uint32_t keep_from(const struct log *l)
{
    const struct log_entries *t = &l->now.entries;
    if (l->durable < l->truncated_at) {
        return l->segments[0].number;
    }
    uint32_t keep = l->durable_in;
    uint64_t next = l->compact_index + 1;
    if (next < t->first) {
        next = t->first;
    }
    if (log_entries_has(t, next) && log_entries_slot(t, next)->segment < keep) {
        keep = log_entries_slot(t, next)->segment;
    }
    return keep;
}

static uint32_t superfluous(const struct log *l)
{
    return keep_from(l) - l->segments[0].number;
}

/* The oldest segment is about to be removed, and its entries with it. */
static void take_oldest(struct log *l, char name[LOG_NAME_MAX + 1])
{
    struct log_entries *t = &l->now.entries;
    struct log_segment gone = l->segments[0];
    uint64_t first = t->first;
    while (first <= t->last && log_entries_slot(t, first)->segment == gone.number) {
        first++;
    }
    FLI_ASSERT(first <= l->compact_index + 1 || first == t->first);
    log_segment_name(gone.number, name);
    log_entries_drop(t, first);
    l->segments_len--;
    memmove(l->segments, l->segments + 1, l->segments_len * sizeof *l->segments);
    l->stats.bytes -= gone.size;
}

/* The segment that is made, is made out of a superfluous one. */
static void reuse_oldest(struct log *l)
{
    if (superfluous(l) > 0) {
        take_oldest(l, l->background.from);
        l->stats.recycled++;
    }
}

/* On a full disk, what has become superfluous meanwhile may be all the room that there is. */
static void retry(struct log *l, int error)
{
    struct log_io *io = &l->background;
    if (io->work == log_segment_make && io->from[0] == '\0') {
        reuse_oldest(l);
    }
    if (log_try_again(l, LOG_LANE_BACKGROUND, io)) {
        log_message(l, ready(l) == 0 ? LOG_LEVEL_ERROR : LOG_LEVEL_WARNING,
                    "cannot %s %s/%s: %s: %s; this is tried again",
                    io->work == log_segment_make ? "make ready" : "remove", l->device->where,
                    io->name, strerror(-error),
                    ready(l) == 0 ? "writes of the log wait as soon as its segment is full"
                                  : "there is room for some more writes");
    }
}

void log_background_done(struct log *l, int result)
{
    struct log_io *io = &l->background;
    if (result != 0) {
        retry(l, result);
        return;
    }
    log_works_again(l, io, "segments of the log can be made ready again");
    if (io->file != NULL) {
        struct log_segment made = {.number = newest(l) + 1, .size = io->size, .file = io->file};
        int rv = log_segments_add(l, &made);
        FLI_ASSERT(rv == 0); /* room was made before the operation began */
        io->file = NULL;
    }
    log_background(l);
    log_begin_write(l);
}

/* A new directory gets its second segment only when the first one, which is small, is in use:
 * filling it must not slow down the start. */
static bool too_early(struct log *l)
{
    struct log_segment *s = log_segment_of(l, l->current);
    return s->size < l->config.segment_bytes && ready(l) == 0 && !l->waiting &&
           l->offset < s->size / 16;
}

/* The oldest segment is used up for a new one, or goes when too many like it wait for that. */
void log_background(struct log *l)
{
    struct log_io *io = &l->background;
    if (io->busy || l->closing || l->failed) {
        return;
    }
    bool makes = ready(l) < LOG_READY && !too_early(l) && reserve(l) == 0;
    if (!makes && superfluous(l) <= LOG_USED_KEPT) {
        return; /* without memory the next write tries again */
    }
    io->work = makes ? log_segment_make : log_segment_remove;
    io->from[0] = '\0';
    if (makes) {
        reuse_oldest(l);
        FLI_ASSERT(newest(l) < NUMBER_MAX);
        io->size = l->config.segment_bytes;
        log_segment_name(newest(l) + 1, io->name);
    } else {
        take_oldest(l, io->name);
    }
    log_start(l, LOG_LANE_BACKGROUND, io);
}
