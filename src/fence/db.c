/* db.c: see db.h.
 *
 * Opening: everything is read and checked, and then the WAL is copied into the file and synced.
 * What a process wrote before it was killed may be seen then and not yet be on disk, and nobody may
 * be shown what a loss of power could take back.
 *
 * Failures: SQLite's answer to a failed statement may be to undo the whole transaction. So a
 * failure other than a refusal ends the transaction here, always. When a commit fails, its frames
 * may be in the WAL, and a later opening may find them there; only a lack of room is known to come
 * before that. */
#include "fence/db.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/map.h"
#include "fence/guard_sql.h"

#define HASH_OF_MARK UINT64_C(1)
#define HASH_OF_FLOOR UINT64_C(2)
#define WRITES (SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE)
#define SPARE_PAGES 256u /* for what needs no room of its own; or a sixteenth of the limit */

static const char total_sql[] =
    "CREATE TABLE IF NOT EXISTS fence_total (one INTEGER PRIMARY KEY CHECK (one = 1),"
    " number INTEGER NOT NULL, sum INTEGER NOT NULL);"
    "INSERT OR IGNORE INTO fence_total VALUES (1, 0, 0);";

/* Set, and then read back. Those of the file come first; it keeps them. */
static const struct setting {
    const char *name, *value;
    bool of_file;
} settings[] = {
    {"page_size", "4096", true},        {"auto_vacuum", "0", true},
    {"encoding", "UTF-8", true},        {"application_id", "1718382445", true}, /* "flkm" */
    {"user_version", "2", true},        {"journal_mode", "wal", false},
    {"synchronous", "2", false},        {"cell_size_check", "1", false},
    {"recursive_triggers", "1", false}, {"temp_store", "2", false},
    {"cache_spill", "0", false}, /* a transaction writes when it commits, and not before */
    {"cache_size", "-32768", false},    {"mmap_size", "0", false},
};

/* ---- errors ---- */

/* A write that would make the file longer than it may be fails like one that the disk refused. The
 * file that was written last: the WAL, or with SQLITE_FCNTL_FILE_POINTER the file itself. */
static bool is_lack_of_room(sqlite3 *sql, int rc, int which)
{
    sqlite3_file *file = NULL;
    int error = 0;
    if (rc == SQLITE_IOERR_WRITE &&
        sqlite3_file_control(sql, "main", which, (void *)&file) == SQLITE_OK && file != NULL &&
        file->pMethods != NULL) {
        (void)file->pMethods->xFileControl(file, SQLITE_FCNTL_LAST_ERRNO, &error);
    }
    return (rc & 0xff) == SQLITE_FULL || error == EFBIG || error == EDQUOT;
}

static int code_of(sqlite3 *sql, int rc)
{
    if (is_lack_of_room(sql, rc, SQLITE_FCNTL_JOURNAL_POINTER)) {
        return FL_ELIMIT;
    }
    switch (rc == SQLITE_IOERR_NOMEM ? SQLITE_NOMEM : rc & 0xff) {
    case SQLITE_OK:
    case SQLITE_ROW:
    case SQLITE_DONE:
        return 0;
    case SQLITE_NOMEM:
        return FL_ENOMEM;
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
        return FL_EBUSY;
    case SQLITE_IOERR:
    case SQLITE_CANTOPEN:
    case SQLITE_PERM:
    case SQLITE_READONLY:
        return FL_EIO;
    default: /* also a constraint, which correct rows meet */
        return FL_ECORRUPT;
    }
}

static int note_broken(struct fli_db *db, int code)
{
    db->broken = code == FL_EIO || code == FL_ECORRUPT ? code : db->broken;
    return code;
}

int fli_db_code(struct fli_db *db, int rc)
{
    return note_broken(db, code_of(db->sql, rc));
}

/* ---- statements ---- */

static int prepare(sqlite3 *sql, const char *text, sqlite3_stmt **ret)
{
    return code_of(sql, sqlite3_prepare_v3(sql, text, -1, SQLITE_PREPARE_PERSISTENT, ret, NULL));
}

int fli_db_prepare(struct fli_db *db, const char *sql, sqlite3_stmt **ret)
{
    return prepare(db->sql, sql, ret);
}

static int step(sqlite3 *sql, sqlite3_stmt *stmt)
{
    int rc = sqlite3_step(stmt);
    if (rc == SQLITE_ROW) {
        return 1;
    }
    int code = code_of(sql, rc);
    (void)sqlite3_reset(stmt); /* repeats the error */
    return code;
}

int fli_db_step(struct fli_db *db, sqlite3_stmt *stmt)
{
    return note_broken(db, step(db->sql, stmt));
}

struct fli_slice fli_db_column(sqlite3_stmt *stmt, int column)
{
    const uint8_t *data = sqlite3_column_blob(stmt, column); /* before its length */
    size_t len = (size_t)sqlite3_column_bytes(stmt, column);
    return (struct fli_slice){data == NULL ? (const uint8_t *)"" : data, len};
}

/* For a statement without parameters, whose one row has one number. */
static int number_of(sqlite3 *sql, sqlite3_stmt *stmt, int64_t *ret)
{
    int rc = step(sql, stmt);
    if (rc != 1) {
        return rc == 0 ? FL_ECORRUPT : rc;
    }
    *ret = sqlite3_column_int64(stmt, 0);
    return code_of(sql, sqlite3_reset(stmt));
}

static int bind_lock(sqlite3 *sql, sqlite3_stmt *stmt, struct fli_slice lock)
{
    const char *text = lock.len == 0 ? "" : (const char *)lock.data;
    return code_of(sql, sqlite3_bind_text(stmt, 1, text, (int)lock.len, SQLITE_STATIC));
}

/* ---- rows ---- */

uint64_t fli_db_hash(uint64_t hash, struct fli_slice column)
{
    const uint64_t seed[2] = {hash, UINT64_C(0x66656e63656c6f63)};
    return fli_siphash(seed, column.data, column.len);
}

static uint64_t hash_of_number(uint64_t hash, uint64_t number)
{
    uint8_t raw[8];
    fli_put_u64(raw, number);
    return fli_db_hash(hash, (struct fli_slice){raw, sizeof(raw)});
}

static uint64_t hash_of_mark(struct fli_slice lock, fl_token mark)
{
    return mark == FL_TOKEN_NONE ? 0 : hash_of_number(fli_db_hash(HASH_OF_MARK, lock), mark);
}

static uint64_t hash_of_floor(fl_token floor)
{
    return floor == FL_TOKEN_NONE ? 0 : hash_of_number(HASH_OF_FLOOR, floor);
}

/* The guard's floor is 1 when there is none. */
static fl_token floor_of(int64_t stored)
{
    return stored <= 1 ? FL_TOKEN_NONE : (fl_token)stored;
}

void fli_db_changed(struct fli_db *db, uint64_t old_hash, uint64_t new_hash)
{
    db->dirty = true;
    db->now.sum += new_hash - old_hash;
}

static bool count_pages(struct fli_db *db)
{
    int64_t all = 0;
    int64_t free = 0;
    bool ok = number_of(db->sql, db->page_count, &all) == 0 &&
              number_of(db->sql, db->free_count, &free) == 0 && all >= free;
    db->pages = ok ? (uint64_t)(all - free) : db->pages;
    return ok;
}

bool fli_db_has_room(struct fli_db *db, size_t bytes)
{
    uint64_t need = 1 + bytes / FLI_DB_PAGE;
    if (db->pages + need > db->pages_max &&
        !(count_pages(db) && db->pages + need <= db->pages_max)) {
        return false;
    }
    db->pages += need;
    return true;
}

uint64_t fli_db_bytes(struct fli_db *db)
{
    return count_pages(db) ? db->pages * FLI_DB_PAGE : 0;
}

uint64_t fli_db_file_bytes(struct fli_db *db)
{
    int64_t n = 0;
    return number_of(db->sql, db->page_count, &n) == 0 ? (uint64_t)n * FLI_DB_PAGE : 0;
}

/* ---- marks ---- */

static struct fli_db_recent *recent_of(struct fli_db *db, struct fli_slice lock)
{
    return lock.len == 0 || lock.len > FLI_DB_RECENT_NAME
               ? NULL
               : &db->recent[fli_db_hash(HASH_OF_MARK, lock) % FLI_DB_RECENT];
}

static void note_recent(struct fli_db *db, struct fli_slice lock, fl_token mark)
{
    struct fli_db_recent *r = recent_of(db, lock);
    if (r != NULL) {
        r->len = (uint8_t)lock.len;
        memcpy(r->lock, lock.data, lock.len);
        r->mark = mark;
    }
}

int fli_db_get_mark(struct fli_db *db, struct fli_slice lock, fl_token *ret)
{
    const struct fli_db_recent *r = recent_of(db, lock);
    if (r != NULL && fli_bytes_cmp(r->lock, r->len, lock.data, lock.len) == 0) {
        *ret = r->mark;
        return 0;
    }
    int rc = bind_lock(db->sql, db->get_mark, lock);
    rc = rc != 0 ? rc : fli_db_step(db, db->get_mark);
    *ret = rc == 1 ? (fl_token)sqlite3_column_int64(db->get_mark, 0) : FL_TOKEN_NONE;
    if (rc == 1) {
        rc = code_of(db->sql, sqlite3_reset(db->get_mark));
        rc = rc == 0 && !fli_fence_token_valid(*ret) ? note_broken(db, FL_ECORRUPT) : rc;
    }
    if (rc == 0) {
        note_recent(db, lock, *ret);
    }
    return rc;
}

int fli_db_put_mark(struct fli_db *db, struct fli_slice lock, fl_token old, fl_token mark)
{
    FLI_ASSERT(mark > old);
    if (old == FL_TOKEN_NONE && !fli_db_has_room(db, lock.len)) {
        return FL_ELIMIT;
    }
    int rc = bind_lock(db->sql, db->put_mark, lock);
    rc = rc != 0 ? rc : code_of(db->sql, sqlite3_bind_int64(db->put_mark, 2, (int64_t)mark));
    rc = rc != 0 ? rc : fli_db_step(db, db->put_mark);
    if (rc == 0) {
        fli_db_changed(db, hash_of_mark(lock, old), hash_of_mark(lock, mark));
        note_recent(db, lock, mark);
        db->now.marks += old == FL_TOKEN_NONE;
    }
    return rc;
}

int fli_db_raise_floor(struct fli_db *db, fl_token floor)
{
    if (floor <= db->now.floor || floor <= 1) {
        return 0;
    }
    int rc = code_of(db->sql, sqlite3_bind_int64(db->put_floor, 1, (int64_t)floor));
    rc = rc != 0 ? rc : fli_db_step(db, db->put_floor);
    if (rc == 0) {
        fli_db_changed(db, hash_of_floor(db->now.floor), hash_of_floor(floor));
        db->now.floor = floor;
    }
    return rc;
}

int fli_db_forget_next(struct fli_db *db, struct fli_db_name *at)
{
    sqlite3_stmt *next = db->next_mark;
    int rc = bind_lock(db->sql, next, (struct fli_slice){at->bytes, at->len});
    rc = rc != 0 ? rc : code_of(db->sql, sqlite3_bind_int64(next, 2, (int64_t)db->now.floor));
    rc = rc != 0 ? rc : fli_db_step(db, next);
    if (rc != 1) {
        return rc == 0 ? FL_ENOTFOUND : rc;
    }
    struct fli_slice lock = fli_db_column(next, 0);
    fl_token mark = (fl_token)sqlite3_column_int64(next, 1);
    bool fits = lock.len >= 1 && lock.len <= FL_NAME_MAX;
    at->len = fits ? lock.len : 0;
    memcpy(at->bytes, lock.data, at->len);
    (void)sqlite3_reset(next);
    lock = (struct fli_slice){at->bytes, at->len};
    rc = fits ? bind_lock(db->sql, db->delete_mark, lock) : note_broken(db, FL_ECORRUPT);
    rc = rc != 0 ? rc : fli_db_step(db, db->delete_mark);
    if (rc == 0) {
        fli_db_changed(db, hash_of_mark(lock, mark), 0);
        note_recent(db, lock, FL_TOKEN_NONE);
        db->now.marks--;
    }
    return rc;
}

int fli_db_read_mark(struct fli_db *db, struct fli_slice lock, fl_token *ret)
{
    if (db->broken != 0) {
        return db->broken;
    }
    int rc = bind_lock(db->reader, db->read_mark, lock);
    rc = rc != 0 ? rc : step(db->reader, db->read_mark);
    if (rc != 1) {
        return rc == 0 ? FL_ECORRUPT : rc;
    }
    fl_token floor = floor_of(sqlite3_column_int64(db->read_mark, 0));
    *ret = fli_fence_effective((fl_token)sqlite3_column_int64(db->read_mark, 1), floor);
    return code_of(db->reader, sqlite3_reset(db->read_mark));
}

/* ---- transactions ---- */

int fli_db_begin(struct fli_db *db)
{
    int64_t version = db->version;
    int rc = db->broken != 0 ? db->broken : fli_db_step(db, db->begin);
    if (rc != 0) {
        return rc;
    }
    rc = note_broken(db, number_of(db->sql, db->data_version, &version));
    if (rc == 0 && version != db->version) { /* it knows nothing of our sums */
        rc = note_broken(db, FL_ECORRUPT);
    }
    if (rc != 0) {
        fli_db_rollback(db);
    }
    return rc;
}

void fli_db_rollback(struct fli_db *db)
{
    if (!sqlite3_get_autocommit(db->sql)) {
        (void)step(db->sql, db->rollback); /* without it, begin would fail */
    }
    db->now = db->committed;
    db->dirty = false;
    db->pages = UINT64_MAX / 2; /* counted again */
    memset(db->recent, 0, sizeof(db->recent));
}

bool fli_db_is_open(const struct fli_db *db)
{
    return !sqlite3_get_autocommit(db->sql);
}

static int put_total(struct fli_db *db)
{
    sqlite3_stmt *stmt = db->put_total;
    db->now.commit++;
    int rc = code_of(db->sql, sqlite3_bind_int64(stmt, 1, (int64_t)db->now.commit));
    rc = rc != 0 ? rc : code_of(db->sql, sqlite3_bind_int64(stmt, 2, (int64_t)db->now.sum));
    return rc != 0 ? rc : fli_db_step(db, stmt);
}

int fli_db_commit(struct fli_db *db)
{
    int rc = db->dirty ? put_total(db) : 0;
    if (rc == 0) {
        rc = step(db->sql, db->commit);
        rc = rc == 0 || rc == FL_ELIMIT || !db->dirty ? rc : note_broken(db, FL_EIO);
        db->wal_pages = rc == FL_ELIMIT ? FLI_DB_WAL_PAGES : db->wal_pages; /* it may be too long */
    }
    if (rc != 0) {
        fli_db_rollback(db);
        return rc;
    }
    if (db->dirty) {
        fli_data_dir_note(&db->dir, db->now.commit);
    }
    db->committed = db->now;
    db->dirty = false;
    return 0;
}

static int wal_cb(void *ctx, sqlite3 *sql, const char *name, int pages)
{
    struct fli_db *db = ctx;
    db->wal_pages = pages;
    return SQLITE_OK;
}

int fli_db_checkpoint(struct fli_db *db)
{
    if (db->wal_pages < FLI_DB_WAL_PAGES || db->broken != 0) {
        return db->broken;
    }
    db->wal_pages = 0; /* the next commit tells */
    int rc = sqlite3_wal_checkpoint_v2(db->sql, NULL, SQLITE_CHECKPOINT_PASSIVE, NULL, NULL);
    int code =
        is_lack_of_room(db->sql, rc, SQLITE_FCNTL_FILE_POINTER) ? FL_ELIMIT : code_of(db->sql, rc);
    /* Without room or memory, or beside a reader, it can wait: all is in the WAL. */
    bool waits = code == FL_ELIMIT || code == FL_ENOMEM || code == FL_EBUSY;
    return waits ? 0 : note_broken(db, code);
}

/* ---- opening ---- */

struct opening {
    struct fli_db *db;
    const struct fli_db_options *options;
    char path[4096];
    char *errmsg;
    size_t errmsg_size;
};

static int sql_error(const struct opening *o, sqlite3 *sql, int code)
{
    return fli_refuse(o->errmsg, o->errmsg_size, code, "%s: %s", o->path,
                      sql == NULL ? "out of memory" : sqlite3_errmsg(sql));
}

static int damaged(const struct opening *o, const char *what)
{
    return fli_refuse(o->errmsg, o->errmsg_size, FL_ECORRUPT,
                      "%s is damaged (%s): restore a backup", o->path, what);
}

static int exec(const struct opening *o, sqlite3 *sql, const char *text)
{
    int rc = code_of(sql, sqlite3_exec(sql, text, NULL, NULL, NULL));
    return rc == 0 ? 0 : sql_error(o, sql, rc);
}

static int open_sql(const struct opening *o, const char *path, int flags, sqlite3 **ret)
{
    int rc = sqlite3_open_v2(path, ret, flags | SQLITE_OPEN_NOMUTEX, NULL);
    if (rc != SQLITE_OK) {
        return sql_error(o, *ret, *ret == NULL ? FL_ENOMEM : code_of(*ret, rc));
    }
    (void)sqlite3_extended_result_codes(*ret, 1); /* neither can fail */
    (void)sqlite3_busy_timeout(*ret, FLI_DB_BUSY_MS);
    return 0;
}

/* Whether the first row of a query is this text; *ret_text: what it is otherwise. */
static int is_text(sqlite3 *sql, const char *query, const char *want, bool *ret, char ret_text[128])
{
    sqlite3_stmt *stmt = NULL;
    int rc = prepare(sql, query, &stmt);
    rc = rc != 0 ? rc : step(sql, stmt);
    if (rc == 1) {
        const char *text = (const char *)sqlite3_column_text(stmt, 0);
        (void)snprintf(ret_text, 128, "%s", text == NULL ? "" : text);
        *ret = strcmp(ret_text, want) == 0;
        rc = 0;
    }
    (void)sqlite3_finalize(stmt);
    return rc;
}

static int check_setting(const struct opening *o, const struct setting *s)
{
    char text[128];
    char is[128] = "nothing";
    bool right = false;
    (void)snprintf(text, sizeof(text), "PRAGMA %s", s->name);
    int rc = is_text(o->db->sql, text, s->value, &right, is);
    if (rc != 0) {
        return sql_error(o, o->db->sql, rc);
    }
    (void)snprintf(text, sizeof(text), "%s is %.50s and not %s", s->name, is, s->value);
    return right ? 0 : damaged(o, text);
}

static int set_up(const struct opening *o, const struct setting *s)
{
    char text[128];
    int rc = 0;
    if (!s->of_file || !o->db->dir.established) {
        (void)snprintf(text, sizeof(text), "PRAGMA %s = '%s'", s->name, s->value);
        rc = exec(o, o->db->sql, text);
    }
    return rc != 0 ? rc : check_setting(o, s);
}

static int make_tables(const struct opening *o, sqlite3 *sql)
{
    int rc = exec(o, sql, (const char *)fli_guard_sql);
    rc = rc != 0 ? rc : exec(o, sql, "BEGIN IMMEDIATE");
    rc = rc != 0 ? rc : exec(o, sql, total_sql);
    rc = rc != 0 ? rc : exec(o, sql, o->options->schema);
    return rc != 0 ? rc : exec(o, sql, "COMMIT");
}

static int schema_hash(const struct opening *o, sqlite3 *sql, uint64_t *ret)
{
    sqlite3_stmt *stmt = NULL;
    int rc = prepare(sql,
                     "SELECT type || name || tbl_name || coalesce(sql, '') FROM sqlite_master"
                     " ORDER BY type, name",
                     &stmt);
    *ret = 0;
    while (rc == 0 && (rc = step(sql, stmt)) == 1) {
        *ret = fli_db_hash(*ret, fli_db_column(stmt, 0));
        rc = 0;
    }
    (void)sqlite3_finalize(stmt);
    return rc == 0 ? 0 : sql_error(o, sql, rc);
}

/* Whether the tables and triggers are those of this version, and no others. */
static int check_schema(const struct opening *o, bool *ret)
{
    sqlite3 *fresh = NULL;
    uint64_t want = 0;
    uint64_t is = 0;
    int rc = open_sql(o, ":memory:", WRITES, &fresh);
    rc = rc != 0 ? rc : make_tables(o, fresh);
    rc = rc != 0 ? rc : schema_hash(o, fresh, &want);
    rc = rc != 0 ? rc : schema_hash(o, o->db->sql, &is);
    (void)sqlite3_close(fresh);
    *ret = is == want;
    return rc;
}

/* A directory that was filled has its tables: to make them again could hide or add damage. */
static int make_schema(const struct opening *o)
{
    bool right = false;
    int rc = o->db->dir.established ? 0 : make_tables(o, o->db->sql);
    rc = rc != 0 ? rc : check_schema(o, &right);
    return rc != 0 || right ? rc : damaged(o, "this version makes other tables");
}

static int prepare_all(const struct opening *o)
{
    struct fli_db *db = o->db;
    const struct {
        sqlite3 *sql;
        sqlite3_stmt **stmt;
        const char *text;
    } all[] = {
        {db->sql, &db->begin, "BEGIN IMMEDIATE"},
        {db->sql, &db->commit, "COMMIT"},
        {db->sql, &db->rollback, "ROLLBACK"},
        {db->sql, &db->data_version, "PRAGMA data_version"},
        {db->sql, &db->page_count, "PRAGMA page_count"},
        {db->sql, &db->free_count, "PRAGMA freelist_count"},
        {db->sql, &db->get_mark, "SELECT mark FROM fence_mark WHERE lock = ?1"},
        {db->sql, &db->put_mark,
         "INSERT INTO fence_mark VALUES (?1, ?2)"
         " ON CONFLICT (lock) DO UPDATE SET mark = excluded.mark"},
        {db->sql, &db->next_mark,
         "SELECT lock, mark FROM fence_mark WHERE lock > ?1 AND mark < ?2 ORDER BY lock LIMIT 1"},
        {db->sql, &db->delete_mark, "DELETE FROM fence_mark WHERE lock = ?1"},
        {db->sql, &db->put_floor, "UPDATE fence_origin SET floor = ?1"},
        {db->sql, &db->put_total, "UPDATE fence_total SET number = ?1, sum = ?2"},
        {db->reader, &db->read_mark,
         "SELECT floor, coalesce((SELECT mark FROM fence_mark WHERE lock = ?1), 0)"
         " FROM fence_origin"},
    };
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        int rc = prepare(all[i].sql, all[i].text, all[i].stmt);
        if (rc != 0) {
            return sql_error(o, all[i].sql, rc);
        }
    }
    return 0;
}

/* Adds up the marks and the floor. */
static int add_marks(struct fli_db *db)
{
    sqlite3_stmt *stmt = NULL;
    int64_t floor = 0;
    int rc = prepare(db->sql, "SELECT lock, mark FROM fence_mark", &stmt);
    while (rc == 0 && (rc = step(db->sql, stmt)) == 1) {
        fl_token mark = (fl_token)sqlite3_column_int64(stmt, 1);
        db->now.sum += hash_of_mark(fli_db_column(stmt, 0), mark);
        db->now.marks++;
        db->highest = mark > db->highest ? mark : db->highest;
        rc = 0;
    }
    (void)sqlite3_finalize(stmt);
    stmt = NULL;
    rc = rc != 0 ? rc : prepare(db->sql, "SELECT floor FROM fence_origin", &stmt);
    rc = rc != 0 ? rc : number_of(db->sql, stmt, &floor);
    (void)sqlite3_finalize(stmt);
    db->now.floor = floor_of(floor);
    db->now.sum += hash_of_floor(db->now.floor);
    return rc;
}

static int read_total(struct fli_db *db, uint64_t *ret_sum)
{
    sqlite3_stmt *stmt = NULL;
    int rc = prepare(db->sql, "SELECT number, sum FROM fence_total", &stmt);
    rc = rc != 0 ? rc : step(db->sql, stmt);
    if (rc == 1) {
        db->now.commit = (uint64_t)sqlite3_column_int64(stmt, 0);
        *ret_sum = (uint64_t)sqlite3_column_int64(stmt, 1);
    }
    (void)sqlite3_finalize(stmt);
    return rc == 1 ? 0 : rc == 0 ? FL_ECORRUPT : rc;
}

static int check_rows(const struct opening *o)
{
    struct fli_db *db = o->db;
    uint64_t sum = 0;
    int rc = add_marks(db);
    if (rc == 0 && o->options->add != NULL) {
        rc = o->options->add(o->options->ctx, db, &db->now.sum);
    }
    rc = rc != 0 ? rc : read_total(db, &sum);
    if (rc == FL_ECORRUPT || (rc == 0 && sum != db->now.sum)) {
        return damaged(o, "its rows are not those that were written");
    }
    if (rc == 0 && db->dir.noted > db->now.commit) {
        return damaged(o, "the last commits are missing");
    }
    db->committed = db->now;
    return rc == 0 ? 0 : sql_error(o, db->sql, rc);
}

static int check_pages(const struct opening *o)
{
    bool right = false;
    char is[128] = "";
    int rc = is_text(o->db->sql, "PRAGMA quick_check(1)", "ok", &right, is);
    if (rc != 0) {
        return rc == FL_ECORRUPT ? damaged(o, sqlite3_errmsg(o->db->sql))
                                 : sql_error(o, o->db->sql, rc);
    }
    return right ? 0 : damaged(o, is);
}

/* What was read may be no safer than the memory of the kernel: now it is on disk. */
static int make_durable(const struct opening *o)
{
    sqlite3 *sql = o->db->sql;
    int rc =
        code_of(sql, sqlite3_wal_checkpoint_v2(sql, NULL, SQLITE_CHECKPOINT_TRUNCATE, NULL, NULL));
    if (rc == FL_EBUSY) {
        return fli_refuse(o->errmsg, o->errmsg_size, rc,
                          "another program reads or writes %s: let it end its transaction",
                          o->path);
    }
    return rc == 0 ? 0 : sql_error(o, sql, rc);
}

static int limit_pages(const struct opening *o)
{
    char text[64];
    struct fli_db *db = o->db;
    db->pages_max = o->options->size_max / FLI_DB_PAGE;
    db->pages = UINT64_MAX / 2;
    uint64_t spare = db->pages_max / 16 > SPARE_PAGES ? db->pages_max / 16 : SPARE_PAGES;
    uint64_t all = db->pages_max + spare < INT32_MAX ? db->pages_max + spare : INT32_MAX;
    (void)snprintf(text, sizeof(text), "PRAGMA max_page_count = %llu", (unsigned long long)all);
    return exec(o, db->sql, text);
}

static int open_file(const struct opening *o)
{
    struct fli_db *db = o->db;
    if (db->dir.established && faccessat(db->dir.dir_fd, FLI_DB_FILE, F_OK, 0) != 0) {
        return fli_refuse(o->errmsg, o->errmsg_size, FL_ECORRUPT,
                          "%s has disappeared: restore a backup", o->path);
    }
    /* SQLite would let everybody read it. */
    int fd = openat(db->dir.dir_fd, FLI_DB_FILE, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0 || close(fd) != 0) {
        return fli_refuse(o->errmsg, o->errmsg_size, FL_EIO, "cannot open %s: %s", o->path,
                          strerror(errno));
    }
    int rc = open_sql(o, o->path, WRITES, &db->sql);
    for (size_t i = 0; rc == 0 && i < sizeof(settings) / sizeof(settings[0]); i++) {
        rc = set_up(o, &settings[i]);
    }
    if (rc == 0 && sqlite3_db_readonly(db->sql, "main") != 0) {
        rc = damaged(o, "it cannot be written to");
    }
    rc = rc != 0 ? rc : check_pages(o);
    rc = rc != 0 ? rc : make_schema(o);
    rc = rc != 0 ? rc : limit_pages(o);
    rc = rc != 0 ? rc : check_rows(o);
    rc = rc != 0 ? rc : make_durable(o);
    rc = rc != 0 ? rc : open_sql(o, o->path, WRITES, &db->reader);
    rc = rc != 0 ? rc : prepare_all(o);
    if (rc == 0 && (rc = number_of(db->sql, db->data_version, &db->version)) != 0) {
        rc = sql_error(o, db->sql, rc);
    }
    (void)sqlite3_wal_hook(db->sql, wal_cb, db);
    return rc;
}

/* Closing moves the WAL into the file and removes it. Not where something is wrong: what a human or
 * a tool can still save is then in both. */
static void keep_wal(sqlite3 *sql)
{
    if (sql != NULL) {
        (void)sqlite3_db_config(sql, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, NULL);
    }
}

int fli_db_open(const char *dir, const struct fli_db_options *options, struct fli_db *ret,
                char *errmsg, size_t errmsg_size)
{
    struct opening o = {
        .db = ret, .options = options, .errmsg = errmsg, .errmsg_size = errmsg_size};
    *ret = (struct fli_db){.dir = {.dir_fd = -1, .owner_fd = -1}};
    /* A relative name is no URI. */
    int n =
        snprintf(o.path, sizeof(o.path), "%s%s/%s", dir[0] == '/' ? "" : "./", dir, FLI_DB_FILE);
    if (dir[0] == '\0' || n >= (int)sizeof(o.path) || options->size_max < FLI_DB_SIZE_MIN) {
        return fli_refuse(errmsg, errmsg_size, FL_EINVAL, "a directory or a size is out of range");
    }
    int rc = fli_data_dir_open(dir, options->kind, &ret->dir, errmsg, errmsg_size);
    if (rc != 0) {
        return rc;
    }
    rc = open_file(&o);
    if (rc == 0 && !ret->dir.established) {
        ret->dir.noted = ret->now.commit;
        rc = fli_data_dir_establish(&ret->dir, options->kind, errmsg, errmsg_size);
    }
    if (rc != 0) {
        keep_wal(ret->sql);
        fli_db_close(ret);
    }
    return rc;
}

static void close_sql(sqlite3 *sql)
{
    sqlite3_stmt *stmt = NULL;
    while (sql != NULL && (stmt = sqlite3_next_stmt(sql, NULL)) != NULL) {
        (void)sqlite3_finalize(stmt);
    }
    (void)sqlite3_close(sql);
}

int fli_db_verify(const char *path, const struct fli_db_options *options, struct fli_db *ret,
                  char *errmsg, size_t errmsg_size)
{
    struct opening o = {
        .db = ret, .options = options, .errmsg = errmsg, .errmsg_size = errmsg_size};
    bool right = false;
    *ret = (struct fli_db){.dir = {.dir_fd = -1, .owner_fd = -1}};
    (void)snprintf(o.path, sizeof(o.path), "%s%s", path[0] == '/' ? "" : "./", path);
    int rc = open_sql(&o, o.path, SQLITE_OPEN_READONLY, &ret->sql);
    for (size_t i = 0; rc == 0 && i < sizeof(settings) / sizeof(settings[0]); i++) {
        rc = settings[i].of_file ? check_setting(&o, &settings[i]) : 0;
    }
    rc = rc != 0 ? rc : check_pages(&o);
    rc = rc != 0 ? rc : check_schema(&o, &right);
    rc = rc != 0 || right ? rc : damaged(&o, "this version makes other tables");
    rc = rc != 0 ? rc : check_rows(&o);
    close_sql(ret->sql);
    ret->sql = NULL;
    return rc;
}

void fli_db_close(struct fli_db *db)
{
    if (db->broken != 0) {
        keep_wal(db->sql);
    }
    close_sql(db->reader);
    close_sql(db->sql);
    fli_data_dir_close(&db->dir);
    *db = (struct fli_db){.dir = {.dir_fd = -1, .owner_fd = -1}};
}

void fli_db_abandon(struct fli_db *db)
{
    fli_data_dir_close(&db->dir);
}
