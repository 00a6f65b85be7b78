/* backup_format.c: see backup_format.h. */
#include "store/backup_format.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "store/record.h"

#define FORMAT 1u
#define HEAD_SIZE 6u
#define VALUE_MAX (STORE_VALUE_MAX + 2u + FL_NAME_MAX)

static const uint8_t MAGIC[8] = {'f', 'e', 'n', 'c', 'e', 's', 't', 'b'};

/* ---- writing ---- */

static int put(struct store_backup_writer *w, const void *data, size_t len)
{
    const uint8_t *p = data;
    int rc = 0;
    w->bytes += len;
    while (len > 0 && rc == 0) {
        size_t n = sizeof w->piece - w->len < len ? sizeof w->piece - w->len : len;
        memcpy(w->piece + w->len, p, n);
        w->len += n;
        p += n;
        len -= n;
        if (w->len == sizeof w->piece) {
            rc = w->sink(w->ctx, w->piece, w->len);
            w->len = 0;
        }
    }
    return rc;
}

static int put_checked(struct store_backup_writer *w, struct fli_slice s)
{
    w->crc = fli_crc32c(w->crc, s.data, s.len);
    return put(w, s.data, s.len);
}

static int put_record(struct store_backup_writer *w, struct fli_slice key, struct fli_slice value)
{
    uint8_t head[HEAD_SIZE];
    uint8_t crc[4];
    fli_put_u16(head, (uint16_t)key.len);
    fli_put_u32(head + 2, (uint32_t)value.len);
    int rc = put_checked(w, (struct fli_slice){head, sizeof head});
    rc = rc != 0 ? rc : put_checked(w, key);
    rc = rc != 0 ? rc : put_checked(w, value);
    fli_put_u32(crc, w->crc);
    return rc != 0 ? rc : put(w, crc, sizeof crc);
}

int store_backup_begin(struct store_backup_writer *w, const struct store_backup_facts *facts,
                       store_backup_sink sink, void *ctx)
{
    uint8_t h[STORE_BACKUP_HEADER] = {0};
    w->sink = sink;
    w->ctx = ctx;
    w->len = 0;
    w->bytes = 0;
    memcpy(h, MAGIC, sizeof MAGIC);
    fli_put_u32(h + 8, FORMAT);
    fli_put_u64(h + 16, facts->made_ms);
    fli_put_u64(h + 24, facts->commit);
    fli_put_u64(h + 32, facts->records);
    w->crc = fli_crc32c(0, h + 16, sizeof h - 16);
    fli_put_u32(h + 12, w->crc);
    return put(w, h, sizeof h);
}

int store_backup_add(struct store_backup_writer *w, struct fli_slice key, struct fli_slice value)
{
    FLI_ASSERT(key.len > 0 && key.len <= UINT16_MAX && value.len <= VALUE_MAX);
    return put_record(w, key, value);
}

int store_backup_end(struct store_backup_writer *w, fl_token highest_mark)
{
    uint8_t mark[8];
    fli_put_u64(mark, highest_mark);
    int rc = put_record(w, (struct fli_slice){NULL, 0}, (struct fli_slice){mark, sizeof mark});
    if (rc == 0 && w->len > 0) {
        rc = w->sink(w->ctx, w->piece, w->len);
        w->len = 0;
    }
    return rc;
}

/* ---- reading ---- */

struct reading {
    FILE *file;
    const char *path;
    uint64_t at; /* the next byte */
    uint32_t crc;
    uint8_t *value; /* VALUE_MAX */
    uint8_t key[UINT8_MAX * 2 + 2];
    uint8_t last[UINT8_MAX * 2 + 2];
    size_t last_len;
    struct store_backup_facts facts;
    char *errmsg;
    size_t errmsg_size;
};

static int wrong(struct reading *r, uint64_t at, const char *what)
{
    snprintf(r->errmsg, r->errmsg_size, "%s is damaged at byte %" PRIu64 ": %s; use another backup",
             r->path, at, what);
    return FL_ECORRUPT;
}

/* Reads exactly len bytes. */
static int take(struct reading *r, void *to, size_t len)
{
    if (fread(to, 1, len, r->file) == len) {
        r->at += len;
        return 0;
    }
    if (ferror(r->file)) {
        snprintf(r->errmsg, r->errmsg_size, "cannot read %s: %s", r->path, strerror(errno));
        return FL_EIO;
    }
    return wrong(r, r->at, "it ends too early");
}

static int take_header(struct reading *r)
{
    uint8_t h[STORE_BACKUP_HEADER];
    int rc = take(r, h, sizeof h);
    if (rc != 0) {
        return rc;
    }
    if (memcmp(h, MAGIC, sizeof MAGIC) != 0) {
        return wrong(r, 0, "it is no backup of a storage");
    }
    r->crc = fli_crc32c(0, h + 16, sizeof h - 16);
    if (fli_get_u32(h + 12) != r->crc || fli_get_u64(h + 40) != 0) {
        return wrong(r, 12, "its header does not fit its checksum");
    }
    if (fli_get_u32(h + 8) != FORMAT) {
        snprintf(r->errmsg, r->errmsg_size,
                 "%s was written by another version of fencelock-store: use that version", r->path);
        return FL_EVERSION;
    }
    r->facts.made_ms = fli_get_u64(h + 16);
    r->facts.commit = fli_get_u64(h + 24);
    r->facts.records = fli_get_u64(h + 32);
    return 0;
}

static int note(struct reading *r, uint64_t at, struct fli_slice key, struct fli_slice value)
{
    enum store_record_kind kind;
    fl_token mark = FL_TOKEN_NONE;
    if (store_record_check(key, value, &kind, &mark) != 0) {
        return wrong(r, at, "a record cannot be understood");
    }
    if (fli_bytes_cmp(key.data, key.len, r->last, r->last_len) <= 0) {
        return wrong(r, at, "records are not in order");
    }
    memcpy(r->last, key.data, key.len);
    r->last_len = key.len;
    r->facts.keys += kind == STORE_RECORD_KEY;
    r->facts.tombstones += kind == STORE_RECORD_DELETED;
    r->facts.marks += kind == STORE_RECORD_MARK;
    r->facts.highest_mark = mark > r->facts.highest_mark ? mark : r->facts.highest_mark;
    return 0;
}

/* Reads one record and compares it with its checksum. */
static int take_record(struct reading *r, size_t *ret_key, size_t *ret_value)
{
    uint8_t head[HEAD_SIZE];
    uint8_t crc[4];
    uint64_t at = r->at;
    int rc = take(r, head, sizeof head);
    *ret_key = rc == 0 ? fli_get_u16(head) : 0;
    *ret_value = rc == 0 ? fli_get_u32(head + 2) : 0;
    if (rc == 0 && (*ret_key > sizeof r->key || *ret_value > VALUE_MAX)) {
        return wrong(r, at, "a length makes no sense");
    }
    rc = rc != 0 ? rc : take(r, r->key, *ret_key);
    rc = rc != 0 ? rc : take(r, r->value, *ret_value);
    rc = rc != 0 ? rc : take(r, crc, sizeof crc);
    if (rc != 0) {
        return rc;
    }
    r->crc = fli_crc32c(r->crc, head, sizeof head);
    r->crc = fli_crc32c(r->crc, r->key, *ret_key);
    r->crc = fli_crc32c(r->crc, r->value, *ret_value);
    return fli_get_u32(crc) == r->crc ? 0 : wrong(r, at, "a record does not fit its checksum");
}

static int take_end(struct reading *r, uint64_t at, uint64_t records, size_t value_len)
{
    if (value_len != 8 || fli_get_u64(r->value) != r->facts.highest_mark ||
        records != r->facts.records) {
        return wrong(r, at, "its end does not fit its records");
    }
    uint8_t more;
    if (fread(&more, 1, 1, r->file) != 0) {
        return wrong(r, r->at, "there are bytes behind its end");
    }
    r->facts.bytes = r->at;
    return 0;
}

static int take_all(struct reading *r, store_backup_visit visit, void *ctx)
{
    uint64_t records = 0;
    int rc = take_header(r);
    while (rc == 0) {
        size_t key_len;
        size_t value_len;
        uint64_t at = r->at;
        rc = take_record(r, &key_len, &value_len);
        if (rc == 0 && key_len == 0) {
            return take_end(r, at, records, value_len);
        }
        struct fli_slice key = {r->key, key_len};
        struct fli_slice value = {r->value, value_len};
        rc = rc != 0 ? rc : note(r, at, key, value);
        rc = rc != 0 || visit == NULL ? rc : visit(ctx, key, value);
        records++;
    }
    return rc;
}

int store_backup_read(const char *path, store_backup_visit visit, void *ctx,
                      struct store_backup_facts *ret, char *errmsg, size_t errmsg_size)
{
    struct reading *r = calloc(1, sizeof *r);
    uint8_t *value = malloc(VALUE_MAX);
    int rc = FL_ENOMEM;
    snprintf(errmsg, errmsg_size, "out of memory");
    if (r != NULL && value != NULL) {
        r->file = fopen(path, "re");
        r->path = path;
        r->value = value;
        r->errmsg = errmsg;
        r->errmsg_size = errmsg_size;
        if (r->file == NULL) {
            snprintf(errmsg, errmsg_size, "cannot open %s: %s", path, strerror(errno));
            rc = FL_EIO;
        } else {
            rc = take_all(r, visit, ctx);
            *ret = r->facts;
            (void)fclose(r->file);
        }
    }
    free(value);
    free(r);
    return rc;
}
