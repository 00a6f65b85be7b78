/* backup_file.c: see backup_file.h. */
#include "consensus/backup_file.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "snapshot/format.h"

struct backup_reader {
    FILE *file;
    const char *path;
    struct backup_header header;
    struct snapshot_stream stream;
    struct snapshot_meta meta;
    struct machine_restore *restore;
    char *errmsg;
    size_t errmsg_size;
    uint8_t unit[SNAPSHOT_UNIT_MAX];
};

static int damaged(const struct backup_reader *r, int code, uint64_t at, const char *why)
{
    snprintf(r->errmsg, r->errmsg_size, "%s cannot be used: at byte %" PRIu64 ": %s", r->path, at,
             why);
    return code;
}

static int read_exactly(struct backup_reader *r, void *to, size_t len, uint64_t at)
{
    size_t n = fread(to, 1, len, r->file);
    if (n == len) {
        return 0;
    }
    if (ferror(r->file)) {
        snprintf(r->errmsg, r->errmsg_size, "cannot read %s: %s", r->path, strerror(errno));
        return FL_EIO;
    }
    return damaged(r, FL_ECORRUPT, at + n, "the file ends in the middle");
}

static int read_header(struct backup_reader *r)
{
    uint8_t bytes[BACKUP_HEADER];
    const char *why = NULL;
    int rv = read_exactly(r, bytes, sizeof bytes, 0);
    if (rv != 0) {
        return rv;
    }
    rv = backup_header_decode(bytes, &r->header, &why);
    return rv == 0 ? 0 : damaged(r, rv, 0, why);
}

/* Reads the next unit of the snapshot: its header, a piece, or the trailer. */
static int read_unit(struct backup_reader *r, struct fli_slice *ret_data)
{
    const char *why = NULL;
    uint64_t at = BACKUP_HEADER + r->stream.offset;
    bool first = r->stream.stage == SNAPSHOT_AT_HEADER;
    struct snapshot_meta meta;
    size_t have = 0;
    for (;;) {
        size_t need = snapshot_unit_len(&r->stream, r->unit, have, &why);
        if (need == 0) {
            return damaged(r, FL_ECORRUPT, at, why);
        }
        if (need == have) {
            break;
        }
        int rv = read_exactly(r, r->unit + have, need - have, at + have);
        if (rv != 0) {
            return rv;
        }
        have = need;
    }
    why = snapshot_take_unit(&r->stream, r->unit, have, &meta, ret_data);
    if (why != NULL) {
        return damaged(r, why == snapshot_other_version ? FL_EVERSION : FL_ECORRUPT, at, why);
    }
    if (first) {
        r->meta = meta;
    }
    return 0;
}

static int read_body(struct backup_reader *r)
{
    struct fli_slice data = {NULL, 0};
    int rv = read_unit(r, &data);
    if (rv == 0 && (r->meta.index != r->header.index || r->meta.term != r->header.term)) {
        rv = damaged(r, FL_ECORRUPT, BACKUP_HEADER, "header and content are of two backups");
    }
    while (rv == 0) {
        uint64_t at = BACKUP_HEADER + r->stream.offset;
        rv = read_unit(r, &data);
        if (rv != 0 || r->stream.stage == SNAPSHOT_AT_END) {
            break;
        }
        if (machine_restore_feed(r->restore, data.data, data.len) != 0) {
            rv = damaged(r, FL_ECORRUPT, at, "a record of the state makes no sense");
        }
    }
    if (rv == 0 && (r->stream.offset != r->header.body || fgetc(r->file) != EOF)) {
        rv = damaged(r, FL_ECORRUPT, BACKUP_HEADER + r->stream.offset,
                     "there are bytes behind its end");
    }
    return rv;
}

static int finish(struct backup_reader *r, struct machine **ret)
{
    struct machine *m = NULL;
    int rv = machine_restore_finish(r->restore, &m);
    r->restore = NULL;
    if (rv != 0) {
        return damaged(r, rv, BACKUP_HEADER,
                       rv == FL_EVERSION ? "the state is of another version of fencelock"
                                         : "the state makes no sense as a whole");
    }
    if (machine_cluster_id(m) != r->header.cluster_id ||
        machine_last_token(m) != r->header.last_token) {
        machine_destroy(m);
        return damaged(r, FL_ECORRUPT, 0, "header and content are of two backups");
    }
    *ret = m;
    return 0;
}

static int read_all(struct backup_reader *r, struct machine **ret)
{
    uint64_t seed[2];
    fli_random(seed, sizeof seed);
    r->file = fopen(r->path, "rbe");
    if (r->file == NULL) {
        snprintf(r->errmsg, r->errmsg_size, "cannot open %s: %s", r->path, strerror(errno));
        return FL_EIO;
    }
    int rv = read_header(r);
    rv = rv != 0 ? rv : machine_restore_begin(seed, &r->restore);
    rv = rv != 0 ? rv : read_body(r);
    return rv != 0 ? rv : finish(r, ret);
}

int backup_file_read(const char *path, struct backup_header *ret, struct machine **ret_machine,
                     char *errmsg, size_t errmsg_size)
{
    struct machine *m = NULL;
    struct backup_reader *r = calloc(1, sizeof *r);
    if (r == NULL) {
        snprintf(errmsg, errmsg_size, "out of memory");
        return FL_ENOMEM;
    }
    r->path = path;
    r->errmsg = errmsg;
    r->errmsg_size = errmsg_size;
    int rv = read_all(r, &m);
    if (rv == 0) {
        *ret = r->header;
    }
    if (r->file != NULL) {
        (void)fclose(r->file);
    }
    machine_restore_abort(r->restore);
    free(r);
    if (rv == 0 && ret_machine != NULL) {
        *ret_machine = m;
    } else {
        machine_destroy(m);
    }
    return rv;
}
