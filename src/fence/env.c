/* env.c: see env.h.
 *
 * Records, as LMDB sees them:
 *
 *   key   1 to 511 bytes; the one-byte key 0 is the head
 *   value the caller's bytes | crc u32: CRC-32C over the key and the caller's bytes
 *
 *   head  magic u32 | format u32 | txnid u64 | count u64 | sum u64 | crc u32
 *
 * Numbers are little endian. `sum` is the sum modulo 2^64 of SipHash over (key, length of the
 * value, its crc) of all records but the head, so a put or delete changes it by a difference. txnid
 * is the number of the commit. LMDB's own meta pages must have the same numbers, that of the
 * current commit and that of the one before; otherwise the tree is an older one. (After a failed
 * write of a meta page, LMDB leaves the two in disagreement. Then the last commit is unknown, and
 * opening is refused.)
 *
 * A new database is made in the subdirectory `new` and renamed at the end. So a data file in its
 * place was complete once, and one that is too short has been damaged. */
#include "fence/env.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/map.h"
#include "fence/pages.h"
#include "fence/room.h"

#define DATA_FILE "data.mdb"
#define NEW_DIR "new"
#define HEAD_MAGIC 0x31454C46u /* "FLE1" */
#define HEAD_FORMAT 1u
#define HEAD_SIZE 32u
#define CRC_SIZE 4u

static const uint8_t head_key_byte[1] = {0};
static const struct fli_slice head_key = {head_key_byte, 1};

static MDB_val val_of(struct fli_slice s)
{
    /* LMDB's type has no const, but it does not write through keys. */
    return (MDB_val){.mv_size = s.len, .mv_data = (void *)(uintptr_t)s.data};
}

static struct fli_slice slice_of(const MDB_val *v)
{
    return (struct fli_slice){v->mv_data, v->mv_size};
}

static bool key_valid(struct fli_slice key)
{
    return key.len >= 1 && key.len <= FLI_ENV_KEY_MAX && key.data[0] != 0;
}

/* The part of the sum that one record adds. */
static uint64_t record_sum(struct fli_slice key, uint64_t size, const uint8_t crc[CRC_SIZE])
{
    static const uint64_t seed[2] = {UINT64_C(0x66656e63656c6f63), UINT64_C(0x6b656e7673756d31)};
    uint8_t raw[FLI_ENV_KEY_MAX + 8 + CRC_SIZE];
    FLI_ASSERT(key.len <= FLI_ENV_KEY_MAX);
    memcpy(raw, key.data, key.len);
    fli_put_u64(raw + key.len, size);
    memcpy(raw + key.len + 8, crc, CRC_SIZE);
    return fli_siphash(seed, raw, key.len + 8 + CRC_SIZE);
}

static uint32_t record_crc(struct fli_slice key, struct fli_slice value)
{
    return fli_crc32c(fli_crc32c(0, key.data, key.len), value.data, value.len);
}

/* Verifies the checksum of a stored value and strips it off. */
static int unwrap(struct fli_slice key, struct fli_slice stored, struct fli_slice *ret)
{
    if (stored.len < CRC_SIZE) {
        return FL_ECORRUPT;
    }
    struct fli_slice value = {stored.data, stored.len - CRC_SIZE};
    if (fli_get_u32(stored.data + value.len) != record_crc(key, value)) {
        return FL_ECORRUPT;
    }
    *ret = value;
    return 0;
}

static void encode_head(const struct fli_env_head *h, uint8_t raw[HEAD_SIZE])
{
    fli_put_u32(raw, HEAD_MAGIC);
    fli_put_u32(raw + 4, HEAD_FORMAT);
    fli_put_u64(raw + 8, h->txnid);
    fli_put_u64(raw + 16, h->count);
    fli_put_u64(raw + 24, h->sum);
}

static int decode_head(struct fli_slice value, struct fli_env_head *ret)
{
    if (value.len < 8 || fli_get_u32(value.data) != HEAD_MAGIC) {
        return FL_ECORRUPT;
    }
    if (fli_get_u32(value.data + 4) != HEAD_FORMAT) {
        return FL_EVERSION;
    }
    if (value.len != HEAD_SIZE) {
        return FL_ECORRUPT;
    }
    *ret = (struct fli_env_head){.txnid = fli_get_u64(value.data + 8),
                                 .count = fli_get_u64(value.data + 16),
                                 .sum = fli_get_u64(value.data + 24)};
    return 0;
}

static int translate(int rc)
{
    switch (rc) {
    case 0:
        return 0;
    case MDB_NOTFOUND:
        return FL_ENOTFOUND;
    case MDB_MAP_FULL:
    case MDB_TXN_FULL:
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
        return FL_ELIMIT;
    case ENOMEM:
        return FL_ENOMEM;
    case MDB_CORRUPTED:
    case MDB_PAGE_NOTFOUND:
    case MDB_CURSOR_FULL:
    case MDB_PAGE_FULL:
    case MDB_INCOMPATIBLE:
    case MDB_INVALID:
        return FL_ECORRUPT;
    case MDB_VERSION_MISMATCH:
        return FL_EVERSION;
    default:
        return FL_EIO;
    }
}

/* Of a call that writes. */
static int wrote(struct fli_env *e, int rc)
{
    e->no_page_free = e->no_page_free || rc == MDB_MAP_FULL;
    return translate(rc);
}

static void set_broken(struct fli_env *e, int code)
{
    pthread_mutex_lock(&e->lock);
    if (e->broken == 0) {
        e->broken = code;
    }
    pthread_mutex_unlock(&e->lock);
}

/* A read that found damage breaks the environment; other results pass through. */
static int checked(struct fli_env *e, int code)
{
    if (code == FL_ECORRUPT || code == FL_EIO) {
        set_broken(e, code);
    }
    return code;
}

/* ---- opening ---- */

struct opening {
    struct fli_env_head head;     /* as in the head record */
    struct fli_env_head previous; /* as in the head record of the commit before */
    bool has_head;
    uint64_t count; /* as counted */
    uint64_t sum;
    fli_env_visit visit;
    void *ctx;
    char *errmsg;
    size_t errmsg_size;
};

static int open_fail(struct opening *o, int code, const char *text)
{
    (void)snprintf(o->errmsg, o->errmsg_size, "%s", text);
    return code;
}

static bool is_head(const struct fli_pages_record *r)
{
    return r->head.len == r->size && r->key.len == 1 && r->key.data[0] == 0;
}

static int visit_head(struct opening *o, struct fli_slice stored, struct fli_env_head *ret)
{
    struct fli_slice value;
    int rc = unwrap(head_key, stored, &value);
    if (rc == 0) {
        rc = decode_head(value, ret);
    }
    if (rc != 0) {
        return open_fail(o, rc,
                         rc == FL_EVERSION ? "the database has a format of another version"
                                           : "the head record is damaged");
    }
    return 0;
}

static int visit_previous(void *ctx, const struct fli_pages_record *r)
{
    struct opening *o = ctx;
    if (!is_head(r)) {
        return open_fail(o, FL_ECORRUPT, "the head record of the commit before is missing");
    }
    return visit_head(o, r->head, &o->previous);
}

static int visit_record(void *ctx, const struct fli_pages_record *r)
{
    struct opening *o = ctx;
    bool whole = r->head.len == r->size;
    if (is_head(r)) {
        o->has_head = true;
        return visit_head(o, r->head, &o->head);
    }
    struct fli_slice value;
    if (!key_valid(r->key) || r->size < CRC_SIZE ||
        (whole && unwrap(r->key, r->head, &value) != 0)) {
        return open_fail(o, FL_ECORRUPT, "a record does not match its checksum");
    }
    o->count++;
    o->sum += record_sum(r->key, r->size - CRC_SIZE, r->tail);
    if (o->visit == NULL) {
        return 0;
    }
    size_t len = whole ? r->head.len - CRC_SIZE : r->head.len;
    int rc = o->visit(o->ctx, r->key, (struct fli_slice){r->head.data, len});
    return rc == 0 ? 0 : open_fail(o, rc, "a record cannot be understood");
}

/* Reads the whole file. Its bytes are made durable first: the process that wrote them may have been
 * killed before its sync. */
static int check_data(int fd, struct opening *o, struct fli_pages_info *ret)
{
    if (fsync(fd) != 0) {
        return open_fail(o, FL_EIO, "the data file cannot be synced");
    }
    int rc = fli_pages_check(fd, visit_record, visit_previous, o, ret, o->errmsg, o->errmsg_size);
    if (rc != 0) {
        return rc;
    }
    if (!o->has_head) {
        return open_fail(o, FL_ECORRUPT, "the head record is missing");
    }
    if (o->head.txnid != ret->txnid || o->previous.txnid != ret->previous_txnid) {
        return open_fail(o, FL_ECORRUPT, "the records are not those of the last commit");
    }
    if (o->head.count != o->count || o->head.sum != o->sum) {
        return open_fail(o, FL_ECORRUPT, "records are missing or have been exchanged");
    }
    return 0;
}

static int mdb_failed(const char *what, int rc, char *errmsg, size_t errmsg_size)
{
    (void)snprintf(errmsg, errmsg_size, "cannot %s the database: %s", what, mdb_strerror(rc));
    return translate(rc);
}

static int open_mdb(const char *path, size_t map_size, MDB_env **ret, char *errmsg,
                    size_t errmsg_size)
{
    MDB_env *mdb;
    int rc = mdb_env_create(&mdb);
    if (rc != 0) {
        return mdb_failed("create", rc, errmsg, errmsg_size);
    }
    rc = mdb_env_set_mapsize(mdb, map_size);
    rc = rc != 0 ? rc : fli_room_take_lock_file(path);
    if (rc == 0) {
        rc = mdb_env_open(mdb, path, MDB_NOTLS, 0600);
    }
    if (rc != 0) {
        mdb_env_close(mdb);
        return mdb_failed("open", rc, errmsg, errmsg_size);
    }
    *ret = mdb;
    return 0;
}

static int put_head(MDB_txn *txn, MDB_dbi dbi, const struct fli_env_head *head)
{
    uint8_t raw[HEAD_SIZE + CRC_SIZE];
    encode_head(head, raw);
    fli_put_u32(raw + HEAD_SIZE, record_crc(head_key, (struct fli_slice){raw, HEAD_SIZE}));
    MDB_val key = val_of(head_key);
    MDB_val value = {.mv_size = sizeof(raw), .mv_data = raw};
    return mdb_put(txn, dbi, &key, &value, 0);
}

/* Writes the first commit: only a head. */
static int write_first(MDB_env *mdb)
{
    MDB_txn *txn;
    MDB_dbi dbi;
    int rc = mdb_txn_begin(mdb, NULL, 0, &txn);
    if (rc != 0) {
        return rc;
    }
    rc = mdb_dbi_open(txn, NULL, 0, &dbi);
    if (rc == 0) {
        struct fli_env_head head = {.txnid = mdb_txn_id(txn)};
        rc = put_head(txn, dbi, &head);
    }
    if (rc != 0) {
        mdb_txn_abort(txn);
        return rc;
    }
    return mdb_txn_commit(txn);
}

static int create_data(struct fli_env *e, char *errmsg, size_t errmsg_size)
{
    char path[4096];
    int n = snprintf(path, sizeof(path), "%s/%s", e->dir, NEW_DIR);
    if (n < 0 || (size_t)n >= sizeof(path)) {
        (void)snprintf(errmsg, errmsg_size, "the directory's name is too long");
        return FL_EINVAL;
    }
    int dir_fd = e->data_dir.dir_fd;
    (void)unlinkat(dir_fd, NEW_DIR "/" DATA_FILE, 0); /* a crash may have left it */
    (void)unlinkat(dir_fd, NEW_DIR "/lock.mdb", 0);
    if (mkdirat(dir_fd, NEW_DIR, 0700) != 0 && errno != EEXIST) {
        (void)snprintf(errmsg, errmsg_size, "cannot create %s: %s", path, strerror(errno));
        return FL_EIO;
    }
    MDB_env *mdb;
    int rc = open_mdb(path, FLI_ENV_SIZE_MIN, &mdb, errmsg, errmsg_size);
    if (rc != 0) {
        return rc;
    }
    rc = write_first(mdb);
    mdb_env_close(mdb);
    if (rc != 0) {
        int lack = fli_room_lack(dir_fd, 0);
        rc = rc == EIO && lack != 0 ? lack : rc;
        return mdb_failed("create", rc, errmsg, errmsg_size);
    }
    if (renameat(dir_fd, NEW_DIR "/" DATA_FILE, dir_fd, DATA_FILE) != 0) {
        (void)snprintf(errmsg, errmsg_size, "cannot rename in %s: %s", path, strerror(errno));
        return FL_EIO;
    }
    (void)unlinkat(dir_fd, NEW_DIR "/lock.mdb", 0);
    (void)unlinkat(dir_fd, NEW_DIR, AT_REMOVEDIR);
    return 0;
}

static int open_data(struct fli_env *e, char *errmsg, size_t errmsg_size, int *ret_fd)
{
    int fd = openat(e->data_dir.dir_fd, DATA_FILE, O_RDWR | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT) {
        if (e->data_dir.established) {
            (void)snprintf(errmsg, errmsg_size, "its file %s has disappeared", DATA_FILE);
            return FL_ECORRUPT;
        }
        int rc = create_data(e, errmsg, errmsg_size);
        if (rc != 0) {
            return rc;
        }
        fd = openat(e->data_dir.dir_fd, DATA_FILE, O_RDWR | O_CLOEXEC);
    }
    if (fd < 0 || fsync(e->data_dir.dir_fd) != 0) {
        (void)snprintf(errmsg, errmsg_size, "cannot open %s: %s", DATA_FILE, strerror(errno));
        if (fd >= 0) {
            (void)close(fd);
        }
        return FL_EIO;
    }
    *ret_fd = fd;
    return 0;
}

static int check_and_load(struct fli_env *e, struct opening *o)
{
    int fd;
    int rc = open_data(e, o->errmsg, o->errmsg_size, &fd);
    if (rc != 0) {
        return rc;
    }
    struct fli_pages_info info;
    rc = check_data(fd, o, &info);
    (void)close(fd);
    if (rc == FL_ECORRUPT && !e->data_dir.established) {
        return FL_EVERSION; /* nothing shows that the directory was ever ours */
    }
    if (rc != 0) {
        return rc;
    }
    e->head = o->head;
    e->page_size = info.page_size;
    e->file_size = (size_t)info.pages * info.page_size;
    return 0;
}

/* The number of pages that records take. */
static int record_pages(MDB_txn *txn, MDB_dbi dbi, size_t *ret)
{
    MDB_stat st = {0};
    int rc = translate(mdb_stat(txn, dbi, &st));
    *ret = st.ms_branch_pages + st.ms_leaf_pages + st.ms_overflow_pages;
    return rc;
}

static int start_mdb(struct fli_env *e, char *errmsg, size_t errmsg_size)
{
    size_t headroom = e->size_max / FLI_ENV_HEADROOM_SHARE / 65536 * 65536;
    headroom = headroom < FLI_ENV_HEADROOM_MIN ? FLI_ENV_HEADROOM_MIN : headroom;
    /* The limit may be lower than last time; there must still be room to delete. */
    size_t size = e->file_size > e->size_max ? e->file_size : e->size_max;
    int rc = open_mdb(e->dir, size + headroom, &e->mdb, errmsg, errmsg_size);
    if (rc != 0) {
        return rc;
    }
    rc = mdb_txn_begin(e->mdb, NULL, MDB_RDONLY, &e->reader);
    if (rc == 0) {
        rc = mdb_dbi_open(e->reader, NULL, 0, &e->dbi);
    }
    if (rc != 0) {
        return mdb_failed("read", rc, errmsg, errmsg_size);
    }
    rc = record_pages(e->reader, e->dbi, &e->pages);
    mdb_txn_reset(e->reader);
    return rc;
}

static int open_steps(struct fli_env *e, const char *kind, struct opening *o)
{
    int rc = fli_data_dir_open(e->dir, kind, &e->data_dir, o->errmsg, o->errmsg_size);
    if (rc != 0) {
        return rc;
    }
    char detail[256] = "";
    struct opening inner = *o;
    inner.errmsg = detail;
    inner.errmsg_size = sizeof(detail);
    rc = check_and_load(e, &inner);
    if (rc == 0) {
        rc = start_mdb(e, detail, sizeof(detail));
    }
    if (rc == 0 && !e->data_dir.established) {
        rc = fli_data_dir_establish(&e->data_dir, kind, detail, sizeof(detail));
    }
    if (rc != 0) {
        (void)snprintf(o->errmsg, o->errmsg_size, "%s: %s (%s)", e->dir, detail, fl_strerror(rc));
    }
    return rc;
}

int fli_env_open(const char *dir, const char *kind, size_t size_max, fli_env_visit visit, void *ctx,
                 struct fli_env **ret, char *errmsg, size_t errmsg_size)
{
    if (dir[0] == '\0' || size_max < FLI_ENV_SIZE_MIN || size_max > SIZE_MAX / 4) {
        (void)snprintf(errmsg, errmsg_size, "the directory is empty or the size below %zu",
                       FLI_ENV_SIZE_MIN);
        return FL_EINVAL;
    }
    struct fli_env *e = calloc(1, sizeof(*e));
    if (e == NULL) {
        return FL_ENOMEM;
    }
    e->data_dir = (struct fli_data_dir){.dir_fd = -1, .owner_fd = -1};
    e->size_max = size_max / 65536 * 65536; /* a multiple of any page size */
    e->dir = strdup(dir);
    if (e->dir == NULL || pthread_mutex_init(&e->lock, NULL) != 0) {
        free(e->dir);
        free(e);
        return FL_ENOMEM;
    }
    struct opening o = {.visit = visit, .ctx = ctx, .errmsg = errmsg, .errmsg_size = errmsg_size};
    int rc = open_steps(e, kind, &o);
    if (rc != 0) {
        fli_env_close(e);
        return rc;
    }
    *ret = e;
    return 0;
}

void fli_env_close(struct fli_env *e)
{
    if (e == NULL) {
        return;
    }
    if (e->reader != NULL) {
        mdb_txn_abort(e->reader);
    }
    if (e->mdb != NULL) {
        mdb_env_close(e->mdb);
    }
    fli_data_dir_close(&e->data_dir);
    pthread_mutex_destroy(&e->lock);
    free(e->dir);
    free(e);
}

void fli_env_abandon(struct fli_env *e)
{
    int fd;
    if (mdb_env_get_fd(e->mdb, &fd) == 0) {
        (void)close(fd);
    }
    fli_data_dir_close(&e->data_dir);
}

/* ---- reading ---- */

static int get_stored(MDB_txn *txn, MDB_dbi dbi, struct fli_slice key, struct fli_slice *ret)
{
    MDB_val k = val_of(key);
    MDB_val v;
    int rc = mdb_get(txn, dbi, &k, &v);
    if (rc != 0) {
        return translate(rc);
    }
    return unwrap(key, slice_of(&v), ret);
}

static int read_locked(struct fli_env *e, struct fli_slice key, void *buf, size_t cap,
                       size_t *ret_len)
{
    if (e->broken != 0) {
        return e->broken;
    }
    int rc = translate(mdb_txn_renew(e->reader));
    if (rc != 0) {
        return rc;
    }
    struct fli_slice value;
    rc = get_stored(e->reader, e->dbi, key, &value);
    if (rc == 0 && value.len > cap) {
        rc = FL_ECORRUPT;
    }
    if (rc == 0) {
        memcpy(buf, value.data, value.len);
        *ret_len = value.len;
    }
    mdb_txn_reset(e->reader);
    return rc;
}

int fli_env_read(struct fli_env *e, struct fli_slice key, void *buf, size_t cap, size_t *ret_len)
{
    FLI_ASSERT(key_valid(key));
    pthread_mutex_lock(&e->lock);
    int rc = read_locked(e, key, buf, cap, ret_len);
    if ((rc == FL_ECORRUPT || rc == FL_EIO) && e->broken == 0) {
        e->broken = rc;
    }
    pthread_mutex_unlock(&e->lock);
    return rc;
}

uint64_t fli_env_bytes(const struct fli_env *e)
{
    return (uint64_t)e->pages * e->page_size;
}

uint64_t fli_env_file_bytes(const struct fli_env *e)
{
    MDB_envinfo info;
    if (mdb_env_info(e->mdb, &info) != 0) {
        return 0;
    }
    return ((uint64_t)info.me_last_pgno + 1) * e->page_size;
}

/* ---- writing ---- */

static int begin(struct fli_env *e, unsigned flags, MDB_txn **ret)
{
    pthread_mutex_lock(&e->lock);
    int rc = e->broken;
    pthread_mutex_unlock(&e->lock);
    return rc != 0 ? rc : checked(e, translate(mdb_txn_begin(e->mdb, NULL, flags, ret)));
}

int fli_txn_begin_read(struct fli_env *e, struct fli_txn *ret)
{
    MDB_txn *mdb;
    MDB_stat st = {0};
    int rc = begin(e, MDB_RDONLY, &mdb);
    if (rc != 0) {
        return rc;
    }
    *ret = (struct fli_txn){.env = e, .mdb = mdb, .head = {.txnid = mdb_txn_id(mdb)}};
    rc = checked(e, translate(mdb_stat(mdb, e->dbi, &st)));
    ret->head.count = st.ms_entries - (st.ms_entries > 0); /* without the head */
    if (rc != 0) {
        fli_txn_abort(ret);
    }
    return rc;
}

int fli_txn_begin(struct fli_env *e, struct fli_txn *ret)
{
    MDB_txn *mdb;
    e->no_page_free = false;
    int rc = begin(e, 0, &mdb);
    if (rc != 0) {
        return rc;
    }
    *ret = (struct fli_txn){.env = e, .mdb = mdb, .head = e->head, .pages = e->pages};
    return 0;
}

int fli_txn_get(struct fli_txn *t, struct fli_slice key, struct fli_slice *ret)
{
    FLI_ASSERT(key_valid(key));
    if (t->failed != 0) {
        return t->failed;
    }
    return checked(t->env, get_stored(t->mdb, t->env->dbi, key, ret));
}

/* Subtracts the record that is stored now, if any, from the count and the sum. */
static int forget_old(struct fli_txn *t, struct fli_slice key)
{
    MDB_val k = val_of(key);
    MDB_val v;
    int rc = mdb_get(t->mdb, t->env->dbi, &k, &v);
    if (rc != 0) {
        return translate(rc);
    }
    if (v.mv_size < CRC_SIZE || t->head.count == 0) {
        return FL_ECORRUPT;
    }
    struct fli_slice stored = slice_of(&v);
    size_t size = stored.len - CRC_SIZE;
    t->head.count--;
    t->head.sum -= record_sum(key, size, stored.data + size);
    return 0;
}

static int put_steps(struct fli_txn *t, struct fli_slice key, const struct fli_slice *parts,
                     size_t n)
{
    int rc = forget_old(t, key);
    if (rc != 0 && rc != FL_ENOTFOUND) {
        return rc;
    }
    size_t size = 0;
    for (size_t i = 0; i < n; i++) {
        size += parts[i].len;
    }
    MDB_val k = val_of(key);
    MDB_val v = {.mv_size = size + CRC_SIZE};
    rc = wrote(t->env, mdb_put(t->mdb, t->env->dbi, &k, &v, MDB_RESERVE));
    if (rc != 0) {
        return rc;
    }
    uint8_t *to = v.mv_data;
    uint32_t crc = fli_crc32c(0, key.data, key.len);
    for (size_t i = 0; i < n; i++) {
        if (parts[i].len > 0) {
            memcpy(to, parts[i].data, parts[i].len);
        }
        crc = fli_crc32c(crc, parts[i].data, parts[i].len);
        to += parts[i].len;
    }
    fli_put_u32(to, crc);
    t->head.count++;
    t->head.sum += record_sum(key, size, to);
    return 0;
}

int fli_txn_put(struct fli_txn *t, struct fli_slice key, const struct fli_slice *parts, size_t n)
{
    FLI_ASSERT(key_valid(key));
    if (t->failed == 0) {
        t->dirty = true;
        t->failed = checked(t->env, put_steps(t, key, parts, n));
    }
    return t->failed;
}

int fli_txn_del(struct fli_txn *t, struct fli_slice key)
{
    FLI_ASSERT(key_valid(key));
    if (t->failed != 0) {
        return t->failed;
    }
    int rc = forget_old(t, key);
    if (rc == 0) {
        MDB_val k = val_of(key);
        t->dirty = true;
        rc = wrote(t->env, mdb_del(t->mdb, t->env->dbi, &k, NULL));
    }
    if (rc != 0 && rc != FL_ENOTFOUND) {
        t->failed = checked(t->env, rc);
    }
    return rc;
}

int fli_txn_next(struct fli_txn *t, struct fli_slice from, struct fli_slice *ret_key,
                 struct fli_slice *ret_value)
{
    FLI_ASSERT(key_valid(from));
    if (t->failed != 0) {
        return t->failed;
    }
    MDB_cursor *cursor;
    int rc = translate(mdb_cursor_open(t->mdb, t->env->dbi, &cursor));
    if (rc != 0) {
        return checked(t->env, rc);
    }
    MDB_val k = val_of(from);
    MDB_val v;
    rc = translate(mdb_cursor_get(cursor, &k, &v, MDB_SET_RANGE));
    mdb_cursor_close(cursor);
    struct fli_slice value;
    if (rc == 0) {
        rc = unwrap(slice_of(&k), slice_of(&v), &value);
    }
    if (rc != 0) {
        return checked(t->env, rc);
    }
    *ret_key = slice_of(&k);
    *ret_value = value;
    return 0;
}

/* Classifies a failed commit. LMDB writes the pages, syncs, and only then writes the meta page. If
 * it got as far as the meta page, it refuses all further transactions, and the outcome is unknown.
 * Otherwise nothing changed, and lack of room is an ordinary refusal. */
static int commit_failed(struct fli_env *e, int rc)
{
    MDB_txn *probe;
    int begun = mdb_txn_begin(e->mdb, NULL, 0, &probe);
    if (begun == 0) {
        mdb_txn_abort(probe);
    }
    int code = wrote(e, rc);
    if (code == FL_EIO && begun == 0 &&
        fli_room_lack(e->data_dir.dir_fd, fli_env_file_bytes(e)) != 0) {
        code = FL_ELIMIT;
    }
    if (begun != 0 || (code != FL_ELIMIT && code != FL_ENOMEM)) {
        code = code == FL_ECORRUPT ? FL_ECORRUPT : FL_EIO;
        set_broken(e, code);
    }
    return code;
}

/* Whether the size limit allows the transaction's records. */
static int check_size(struct fli_txn *t)
{
    const struct fli_env *e = t->env;
    int rc = record_pages(t->mdb, e->dbi, &t->pages);
    if (rc != 0) {
        return rc;
    }
    return t->pages > e->pages && t->pages > e->size_max / e->page_size ? FL_ELIMIT : 0;
}

int fli_txn_commit(struct fli_txn *t)
{
    struct fli_env *e = t->env;
    int rc = t->failed;
    if (rc == 0 && t->dirty) {
        t->head.txnid = mdb_txn_id(t->mdb);
        rc = wrote(e, put_head(t->mdb, e->dbi, &t->head));
        rc = checked(e, rc == 0 ? check_size(t) : rc);
    }
    if (rc != 0 || !t->dirty) {
        fli_txn_abort(t);
        return rc;
    }
    rc = mdb_txn_commit(t->mdb);
    t->mdb = NULL;
    if (rc != 0) {
        return commit_failed(e, rc);
    }
    e->head = t->head;
    e->pages = t->pages;
    return 0;
}

void fli_txn_abort(struct fli_txn *t)
{
    if (t->mdb != NULL) {
        mdb_txn_abort(t->mdb);
        t->mdb = NULL;
    }
}
