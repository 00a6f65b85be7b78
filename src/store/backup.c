/* backup.c: see backup.h. */
#include "store/backup.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "fence/env.h"
#include "store/record.h"

/* All records of a transaction, in order. */
static int add_records(struct store *s, struct fli_txn *t, struct store_backup_writer *w,
                       fl_token *ret_highest)
{
    uint8_t from[FLI_ENV_KEY_MAX + 1] = {1}; /* the first key behind the head's */
    size_t from_len = 1;
    struct fli_slice key;
    struct fli_slice value;
    int rc;
    while ((rc = fli_txn_next(t, (struct fli_slice){from, from_len}, &key, &value)) == 0) {
        enum store_record_kind kind;
        fl_token mark = FL_TOKEN_NONE;
        rc = store_reader_must_end(s) ? FL_EBUSY : store_record_check(key, value, &kind, &mark);
        rc = rc != 0 ? rc : store_backup_add(w, key, value);
        if (rc != 0) {
            return rc;
        }
        *ret_highest = mark > *ret_highest ? mark : *ret_highest;
        memcpy(from, key.data, key.len); /* behind it is the same with a zero at its end */
        from[key.len] = 0;
        from_len = key.len + 1;
        if (from_len > FLI_ENV_KEY_MAX) {
            return FL_ECORRUPT; /* no key of a storage is that long */
        }
    }
    return rc == FL_ENOTFOUND ? 0 : rc;
}

static int write_all(struct store *s, struct store_backup_writer *w, store_backup_sink sink,
                     void *ctx)
{
    struct fli_txn t;
    fl_token highest = FL_TOKEN_NONE;
    int rc = fli_txn_begin_read(store_env(s), &t);
    if (rc != 0) {
        return rc;
    }
    struct store_backup_facts facts = {
        .made_ms = fli_clock_wall_ms(), .commit = t.head.txnid, .records = t.head.count};
    rc = store_backup_begin(w, &facts, sink, ctx);
    rc = rc != 0 ? rc : add_records(s, &t, w, &highest);
    fli_txn_abort(&t);
    return rc != 0 ? rc : store_backup_end(w, highest);
}

int store_backup_write(struct store *s, store_backup_sink sink, void *ctx)
{
    struct store_backup_writer *w = malloc(sizeof *w);
    if (w == NULL) {
        return FL_ENOMEM;
    }
    store_reader_begin(s);
    int rc = write_all(s, w, sink, ctx);
    store_reader_end(s);
    free(w);
    return rc;
}
