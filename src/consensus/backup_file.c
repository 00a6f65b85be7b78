/* backup_file.c: see backup_file.h. Behind the header of the backup stands a snapshot, which is
 * read as any other. */
#include "consensus/backup_file.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "base/clock.h"
#include "log/device.h"
#include "snapshot/decode.h"

/* A device that is one file, read from its beginning to its end. */
struct source {
    struct log_device base;
    FILE *file;
};

static int64_t source_read(struct log_device *d, struct log_file *file, void *data, size_t len,
                           uint64_t offset)
{
    struct source *s = FLI_CONTAINER_OF(d, struct source, base);
    size_t n = fread(data, 1, len, s->file);
    return ferror(s->file) != 0 ? -errno : (int64_t)n;
}

static void source_close(struct log_device *d, struct log_file *file)
{
}

static const struct log_device_ops source_ops = {.read = source_read, .close = source_close};

static int damaged(const struct source *s, int code, uint64_t at, const char *why,
                   struct snapshot_error *e)
{
    e->code = code;
    (void)snprintf(e->text, sizeof e->text, "%s: at byte %" PRIu64 ": %s", s->base.where, at, why);
    return code;
}

static int io_error(const struct source *s, const char *what, int error, struct snapshot_error *e)
{
    (void)snprintf(e->text, sizeof e->text, "cannot %s %s: %s", what, s->base.where,
                   strerror(error));
    return e->code = FL_EIO;
}

static int read_header(struct source *s, struct backup_header *ret, struct snapshot_error *e)
{
    uint8_t bytes[BACKUP_HEADER];
    const char *why = NULL;
    int64_t n = source_read(&s->base, NULL, bytes, sizeof bytes, 0);
    if (n < 0) {
        return io_error(s, "read", (int)-n, e);
    }
    if ((size_t)n < sizeof bytes) {
        return damaged(s, FL_ECORRUPT, (uint64_t)n, "the file ends in the middle", e);
    }
    int rv = backup_header_decode(bytes, ret, &why);
    return rv == 0 ? 0 : damaged(s, rv, 0, why, e);
}

static bool agrees(const struct backup_header *h, const struct snapshot_meta *meta,
                   const struct machine *m)
{
    return meta->index == h->index && meta->term == h->term &&
           machine_cluster_id(m) == h->cluster_id && machine_last_token(m) == h->last_token;
}

static int read_state(struct source *s, const struct backup_header *h, struct machine **ret,
                      struct snapshot_error *e)
{
    struct snapshot_reader *reader;
    uint64_t seed[2];
    fli_random(seed, sizeof seed);
    int rv = snapshot_reader_open_within(&s->base, NULL, BACKUP_HEADER, h->body, &reader, e);
    if (rv != 0) {
        return rv;
    }
    struct snapshot_meta meta = *snapshot_reader_meta(reader);
    rv = snapshot_decode(reader, seed, ret, e);
    snapshot_reader_close(reader);
    if (rv == 0 && fgetc(s->file) != EOF) {
        rv = damaged(s, FL_ECORRUPT, BACKUP_HEADER + h->body, "there are bytes behind its end", e);
    } else if (rv == 0 && !agrees(h, &meta, *ret)) {
        rv = damaged(s, FL_ECORRUPT, 0, "header and content are of two backups", e);
    }
    return rv;
}

int backup_file_read(const char *path, struct backup_header *ret, struct machine **ret_machine,
                     char *errmsg, size_t errmsg_size)
{
    struct snapshot_error e = {0};
    struct source s = {.base = {.ops = &source_ops, .where = path}, .file = fopen(path, "rbe")};
    *ret_machine = NULL;
    int rv = s.file == NULL ? io_error(&s, "open", errno, &e) : read_header(&s, ret, &e);
    rv = rv != 0 ? rv : read_state(&s, ret, ret_machine, &e);
    if (rv != 0) {
        machine_destroy(*ret_machine);
        *ret_machine = NULL;
        (void)snprintf(errmsg, errmsg_size, "%s", e.text);
    }
    if (s.file != NULL) {
        (void)fclose(s.file);
    }
    return rv;
}
