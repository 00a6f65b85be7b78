/* source.c: see source.h.
 *
 * The worker has one piece of work at a time: to open the file and read its header, to read the
 * next unit, or to close it. Meanwhile it owns all fields but `closing`. */
#include "snapshot/source.h"

#include <stdlib.h>

struct snapshot_source {
    const struct host *host;
    struct log_device *device;
    uint64_t index; /* of the snapshot */
    struct host_work work;
    bool closing;
    struct snapshot_reader *reader;
    struct snapshot_error error;
    struct fli_slice unit; /* what is left of the one that was read last, in the reader */
};

static void read_unit(struct host_work *w)
{
    struct snapshot_source *s = FLI_CONTAINER_OF(w, struct snapshot_source, work);
    struct fli_slice data;
    int rv =
        s->reader != NULL ? 0 : snapshot_reader_open(s->device, s->index, &s->reader, &s->error);
    rv = rv != 0 ? rv : snapshot_reader_next(s->reader, &s->unit, &data, &s->error);
    s->error.code = rv;
}

static void close_file(struct host_work *w)
{
    const struct snapshot_source *s = FLI_CONTAINER_OF(w, struct snapshot_source, work);
    snapshot_reader_close(s->reader);
}

static void closed(struct host_work *w)
{
    free(FLI_CONTAINER_OF(w, struct snapshot_source, work));
}

/* A newer snapshot may have replaced the file. Then closing it frees its blocks, which takes a file
 * system milliseconds, so a worker does it. */
static void finish(struct snapshot_source *s)
{
    if (s->reader != NULL) {
        host_work(s->host, &s->work, close_file, closed);
    } else {
        free(s);
    }
}

static void was_read(struct host_work *w)
{
    struct snapshot_source *s = FLI_CONTAINER_OF(w, struct snapshot_source, work);
    if (s->closing) {
        finish(s);
    }
}

struct snapshot_source *snapshot_source_open(const struct host *host, struct log_device *device,
                                             uint64_t index)
{
    struct snapshot_source *s = calloc(1, sizeof *s);
    if (s != NULL) {
        s->host = host;
        s->device = device;
        s->index = index;
        host_work(host, &s->work, read_unit, was_read);
    }
    return s;
}

int snapshot_source_next(struct snapshot_source *s, size_t most, struct fli_slice *ret,
                         struct snapshot_error *e)
{
    if (s->work.busy) {
        return FL_EBUSY;
    }
    if (s->error.code != 0) {
        *e = s->error;
        return s->error.code;
    }
    *ret = (struct fli_slice){s->unit.data, s->unit.len < most ? s->unit.len : most};
    return 0;
}

void snapshot_source_take(struct snapshot_source *s, size_t len)
{
    s->unit.data += len;
    s->unit.len -= len;
    if (s->unit.len == 0) {
        host_work(s->host, &s->work, read_unit, was_read);
    }
}

const struct snapshot_meta *snapshot_source_meta(const struct snapshot_source *s)
{
    return snapshot_reader_meta(s->reader);
}

void snapshot_source_close(struct snapshot_source *s)
{
    if (s == NULL) {
        return;
    }
    s->closing = true;
    if (!s->work.busy) {
        finish(s);
    }
}
