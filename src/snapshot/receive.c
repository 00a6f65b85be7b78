/* receive.c: writes a snapshot file from the bytes of another node's file, however they
 * are cut. A unit is written once it is complete and verified. */
#include "snapshot/private.h"

#include <stdlib.h>
#include <string.h>

struct snapshot_receiver {
    struct snapshot_part part;
    struct snapshot_stream stream;
    struct snapshot_meta meta;
    size_t have; /* bytes of the unit that is being received */
    uint8_t unit[SNAPSHOT_UNIT_MAX];
};

int snapshot_receiver_open(struct log_device *d, uint64_t index, uint64_t term,
                           struct snapshot_receiver **ret, struct snapshot_error *e)
{
    struct snapshot_receiver *r = malloc(sizeof *r);
    if (r == NULL) {
        return snapshot_fail(e, FL_ENOMEM, "no memory for a snapshot file");
    }
    r->stream = (struct snapshot_stream){0};
    r->have = 0;
    int rv = snapshot_part_open(&r->part, d, index, term, e);
    if (rv != 0) {
        free(r);
        return rv;
    }
    *ret = r;
    return 0;
}

static int wrong(struct snapshot_receiver *r, const char *why, struct snapshot_error *e)
{
    char name[LOG_NAME_MAX + 1];
    snapshot_name(r->part.index, r->part.term, true, name);
    return snapshot_damage(e, r->part.device, name, r->stream.offset, why);
}

static int take_unit(struct snapshot_receiver *r, struct snapshot_error *e)
{
    struct fli_slice data;
    bool header = r->stream.stage == SNAPSHOT_AT_HEADER;
    const char *why = snapshot_take_unit(&r->stream, r->unit, r->have, &r->meta, &data);
    if (why == NULL && header && (r->meta.index != r->part.index || r->meta.term != r->part.term)) {
        why = "what is received is not the snapshot that was offered";
    }
    if (why != NULL) {
        return wrong(r, why, e);
    }
    size_t len = r->have;
    r->have = 0;
    return snapshot_part_write(&r->part, r->unit, len, e);
}

int snapshot_receiver_take(struct snapshot_receiver *r, uint64_t offset, const void *data,
                           size_t len, struct snapshot_error *e)
{
    const uint8_t *p = data;
    if (offset != snapshot_receiver_received(r)) {
        return snapshot_fail(
            e, FL_EINVAL, "bytes of a snapshot from %llu on were received, and %llu is next",
            (unsigned long long)offset, (unsigned long long)snapshot_receiver_received(r));
    }
    while (len > 0) {
        const char *why = NULL;
        size_t need = snapshot_unit_len(&r->stream, r->unit, r->have, &why);
        if (need == 0) {
            return wrong(r, why, e);
        }
        size_t n = need - r->have < len ? need - r->have : len;
        memcpy(r->unit + r->have, p, n);
        r->have += n;
        p += n;
        len -= n;
        need = snapshot_unit_len(&r->stream, r->unit, r->have, &why);
        if (need == 0) {
            return wrong(r, why, e);
        }
        if (need == r->have) {
            int rv = take_unit(r, e);
            if (rv != 0) {
                return rv;
            }
        }
    }
    return 0;
}

uint64_t snapshot_receiver_received(const struct snapshot_receiver *r)
{
    return r->stream.offset + r->have;
}

int snapshot_receiver_sync(struct snapshot_receiver *r, struct snapshot_error *e)
{
    return snapshot_part_sync(&r->part, e);
}

static int check_whole(struct snapshot_receiver *r, struct snapshot_error *e)
{
    return r->stream.stage == SNAPSHOT_AT_END
               ? 0
               : wrong(r, "the snapshot was not received to its end", e);
}

int snapshot_receiver_read(struct snapshot_receiver *r, struct snapshot_reader **ret,
                           struct snapshot_error *e)
{
    int rv = check_whole(r, e);
    return rv != 0 ? rv
                   : snapshot_reader_open_part(r->part.device, r->part.index, r->part.term, ret, e);
}

int snapshot_receiver_finish(struct snapshot_receiver *r, struct snapshot_error *e)
{
    int rv = check_whole(r, e);
    if (rv != 0) {
        snapshot_receiver_abort(r);
        return rv;
    }
    rv = snapshot_part_finish(&r->part, e);
    free(r);
    return rv;
}

void snapshot_receiver_abort(struct snapshot_receiver *r)
{
    snapshot_part_abort(&r->part);
    free(r);
}
