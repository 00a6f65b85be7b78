/* store.c: see store.h. The rows of keys, beside the guard's tables (fence/db.h). */
#include "store/store.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/bytes.h"
#include "fence/backup.h"

#define KIND "store"
#define HASH_OF_ENTRY UINT64_C(3)

/* lock NULL: bound to none. value NULL: deleted. sum: the hash of the rest. The value is the last,
 * so that the others are read without it. */
static const char schema[] =
    "CREATE TABLE IF NOT EXISTS entry (key TEXT PRIMARY KEY NOT NULL, lock TEXT,"
    " sum INTEGER NOT NULL, value BLOB) WITHOUT ROWID;";

static uint64_t hash_of(struct fli_slice key, struct fli_slice lock, const struct fli_slice *value)
{
    uint64_t hash = fli_db_hash(fli_db_hash(HASH_OF_ENTRY, key), lock);
    return value == NULL ? hash : fli_db_hash(hash, *value);
}

/* Of each row at opening. */
static int add_row(struct store *s, sqlite3_stmt *row, uint64_t *sum)
{
    struct fli_slice value = fli_db_column(row, 3);
    bool present = sqlite3_column_type(row, 3) != SQLITE_NULL;
    uint64_t hash = hash_of(fli_db_column(row, 0), fli_db_column(row, 1), present ? &value : NULL);
    s->now.keys += present;
    s->now.tombstones += !present;
    *sum += hash;
    return hash == (uint64_t)sqlite3_column_int64(row, 2) ? 0 : FL_ECORRUPT;
}

static int add(void *ctx, struct fli_db *db, uint64_t *sum)
{
    struct store *s = ctx;
    sqlite3_stmt *stmt = NULL;
    s->now.keys = s->now.tombstones = 0; /* a restore reads them twice */
    int rc = fli_db_prepare(db, "SELECT key, lock, sum, value FROM entry", &stmt);
    while (rc == 0 && (rc = fli_db_step(db, stmt)) == 1) {
        rc = add_row(s, stmt, sum);
    }
    (void)sqlite3_finalize(stmt);
    return rc;
}

static int prepare_all(struct store *s)
{
    const struct {
        sqlite3_stmt **stmt;
        const char *text;
    } all[] = {
        {&s->get_entry, "SELECT lock, sum, length(value) FROM entry WHERE key = ?1"},
        {&s->get_value, "SELECT value, lock, sum FROM entry WHERE key = ?1"},
        {&s->insert_entry, "INSERT INTO entry VALUES (?1, ?2, ?3, ?4)"},
        {&s->update_entry, "UPDATE entry SET lock = ?2, sum = ?3, value = ?4 WHERE key = ?1"},
    };
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < sizeof(all) / sizeof(all[0]); i++) {
        rc = fli_db_prepare(&s->db, all[i].text, all[i].stmt);
    }
    return rc;
}

static struct fli_db_options options_of(struct store *s, size_t size_max)
{
    return (struct fli_db_options){
        .kind = KIND, .schema = schema, .size_max = size_max, .add = add, .ctx = s};
}

int store_open(const char *dir, size_t size_max, bool fencing, struct store **ret, char *errmsg,
               size_t errmsg_size)
{
    struct store *s = calloc(1, sizeof(*s));
    if (s == NULL) {
        (void)snprintf(errmsg, errmsg_size, "out of memory");
        return FL_ENOMEM;
    }
    const struct fli_db_options options = options_of(s, size_max);
    s->fencing = fencing;
    fli_buf_init(&s->value, STORE_VALUE_MAX);
    s->recent = fli_xcalloc(STORE_RECENT, sizeof(*s->recent));
    int rc = fli_db_open(dir, &options, &s->db, errmsg, errmsg_size);
    if (rc == 0 && (rc = prepare_all(s)) != 0) {
        (void)snprintf(errmsg, errmsg_size, "%s: %s", dir, fl_strerror(rc));
        fli_db_close(&s->db);
    }
    if (rc != 0) {
        free(s->recent);
        free(s);
        return rc;
    }
    s->committed = s->now;
    *ret = s;
    return 0;
}

void store_close(struct store *s)
{
    if (s != NULL) {
        fli_db_close(&s->db);
        fli_buf_fini(&s->value);
        free(s->recent);
        free(s);
    }
}

/* ---- backups ---- */

/* What was found in the file at `path`. */
static void note_facts(const struct store *s, const char *path, struct store_facts *ret)
{
    struct stat st = {0};
    (void)stat(path, &st);
    *ret = (struct store_facts){.commit = s->db.now.commit,
                                .keys = s->now.keys,
                                .tombstones = s->now.tombstones,
                                .marks = s->db.now.marks,
                                .highest_mark = s->db.highest,
                                .bytes = (uint64_t)st.st_size};
}

int store_backup(const char *dir, const char *path, struct store_facts *ret, char *errmsg,
                 size_t errmsg_size)
{
    struct store s = {.fencing = true};
    const struct fli_db_options options = options_of(&s, 0);
    int rc = fli_db_backup(dir, &options, path, &s.db, errmsg, errmsg_size);
    note_facts(&s, path, ret);
    return rc;
}

int store_verify(const char *path, struct store_facts *ret, char *errmsg, size_t errmsg_size)
{
    struct store s = {.fencing = true};
    const struct fli_db_options options = options_of(&s, 0);
    int rc = fli_db_verify(path, &options, &s.db, errmsg, errmsg_size);
    note_facts(&s, path, ret);
    return rc;
}

int store_restore(const char *path, const char *dir, size_t size_max, fl_token above,
                  struct store_facts *ret, char *errmsg, size_t errmsg_size)
{
    struct store s = {.fencing = true};
    const struct fli_db_options options = options_of(&s, size_max);
    int rc = fli_db_restore(path, dir, &options, above, &s.db, errmsg, errmsg_size);
    note_facts(&s, path, ret);
    return rc;
}

/* ---- transactions ---- */

int store_begin(struct store *s)
{
    return fli_db_begin(&s->db);
}

static void forget_changes(struct store *s)
{
    s->now = s->committed;
    memset(s->recent, 0, STORE_RECENT * sizeof(*s->recent));
}

int store_commit(struct store *s)
{
    s->now.commits += s->db.dirty;
    s->now.ops_written = s->db.dirty ? s->now.ops_written : s->committed.ops_written;
    int rc = fli_db_commit(&s->db);
    if (rc == 0) {
        s->committed = s->now;
    } else {
        forget_changes(s);
    }
    return rc;
}

void store_rollback(struct store *s)
{
    fli_db_rollback(&s->db);
    forget_changes(s);
}

/* ---- entries ---- */

static int bind_text(struct store *s, sqlite3_stmt *stmt, int at, struct fli_slice text)
{
    return fli_db_code(
        &s->db, sqlite3_bind_text(stmt, at, (const char *)text.data, (int)text.len, SQLITE_STATIC));
}

/* NULL: the key is too long to be kept. */
static struct store_recent *recent_of(struct store *s, struct fli_slice key)
{
    return key.len > STORE_RECENT_KEY ? NULL
                                      : &s->recent[fli_db_hash(HASH_OF_ENTRY, key) % STORE_RECENT];
}

static void note_recent(struct store *s, struct fli_slice key, const struct store_entry *e)
{
    struct store_recent *r = recent_of(s, key);
    if (r != NULL) {
        r->len = (uint8_t)key.len;
        memcpy(r->key, key.data, key.len);
        r->entry = *e;
    }
}

static int set_lock(struct store_entry *e, struct fli_slice lock)
{
    bool fits = lock.len <= FL_NAME_MAX;
    e->lock.len = fits ? lock.len : 0;
    memcpy(e->lock.bytes, lock.len > 0 ? lock.data : (const uint8_t *)"", e->lock.len);
    return fits ? 0 : FL_ECORRUPT;
}

static int read_entry(struct store *s, struct fli_slice key, struct store_entry *ret)
{
    sqlite3_stmt *row = s->get_entry;
    *ret = (struct store_entry){.exists = false};
    int rc = bind_text(s, row, 1, key);
    rc = rc != 0 ? rc : fli_db_step(&s->db, row);
    if (rc == 1) {
        ret->exists = true;
        rc = set_lock(ret, fli_db_column(row, 0));
        ret->hash = (uint64_t)sqlite3_column_int64(row, 1);
        ret->present = sqlite3_column_type(row, 2) != SQLITE_NULL;
        ret->value_len = (size_t)sqlite3_column_int64(row, 2);
        (void)sqlite3_reset(row);
    }
    return rc;
}

int store_get_entry(struct store *s, struct fli_slice key, struct fli_slice lock,
                    struct store_entry *ret)
{
    const struct store_recent *r = recent_of(s, key);
    int rc = 0;
    if (r != NULL && fli_bytes_cmp(r->key, r->len, key.data, key.len) == 0) {
        *ret = r->entry;
    } else if ((rc = read_entry(s, key, ret)) == 0) {
        note_recent(s, key, ret);
    }
    ret->mark = FL_TOKEN_NONE;
    return rc != 0 || lock.len == 0 ? rc : fli_db_get_mark(&s->db, lock, &ret->mark);
}

int store_get_value(struct store *s, struct fli_slice key, struct fli_slice *ret)
{
    sqlite3_stmt *row = s->get_value;
    int rc = bind_text(s, row, 1, key);
    rc = rc != 0 ? rc : fli_db_step(&s->db, row);
    if (rc != 1) {
        return rc == 0 ? FL_ECORRUPT : rc;
    }
    struct fli_slice value = fli_db_column(row, 0);
    uint64_t hash = hash_of(key, fli_db_column(row, 1), &value);
    fli_buf_clear(&s->value);
    rc = hash == (uint64_t)sqlite3_column_int64(row, 2)
             ? fli_buf_append(&s->value, value.data, value.len)
             : FL_ECORRUPT;
    (void)sqlite3_reset(row);
    *ret = (struct fli_slice){s->value.data, s->value.len};
    return rc == FL_ELIMIT ? FL_ECORRUPT : rc;
}

bool store_has_room(struct store *s, struct fli_slice key, const struct store_entry *old,
                    const struct fli_slice *value)
{
    size_t more = old->exists ? 0 : key.len;
    more += value->len > old->value_len ? value->len - old->value_len : 0;
    return more == 0 || fli_db_has_room(&s->db, more);
}

int store_put_entry(struct store *s, struct fli_slice key, const struct store_entry *old,
                    struct fli_slice lock, const struct fli_slice *value)
{
    sqlite3_stmt *stmt = old->exists ? s->update_entry : s->insert_entry;
    uint64_t hash = hash_of(key, lock, value);
    int rc = bind_text(s, stmt, 1, key);
    rc = rc != 0 ? rc : bind_text(s, stmt, 2, lock);
    rc = rc != 0 ? rc : fli_db_code(&s->db, sqlite3_bind_int64(stmt, 3, (int64_t)hash));
    if (rc == 0) {
        const void *data = value == NULL         ? NULL
                           : value->data == NULL ? ""
                                                 : (const void *)value->data;
        int len = value == NULL ? 0 : (int)value->len;
        rc = fli_db_code(&s->db, sqlite3_bind_blob(stmt, 4, data, len, SQLITE_STATIC));
    }
    rc = rc != 0 ? rc : fli_db_step(&s->db, stmt);
    FLI_ASSERT(rc != 0 || sqlite3_changes(s->db.sql) == 1);
    if (rc == 0) {
        struct store_entry e = {.exists = true,
                                .present = value != NULL,
                                .value_len = value == NULL ? 0 : value->len,
                                .hash = hash};
        rc = set_lock(&e, lock);
        note_recent(s, key, &e);
        fli_db_changed(&s->db, old->hash, hash);
        s->now.keys += (value != NULL) - (uint64_t)old->present;
        s->now.tombstones += (value == NULL) - (uint64_t)(old->exists && !old->present);
    }
    return rc;
}
