/* sim_disk.c: see sim_disk.h. */
#include "sim_disk.h"

#include <sqlite3.h>
#include <stdlib.h>
#include <string.h>

#include "../../lib/rng.h"

#define FILES 8u
#define WRITES 4096u
#define SECTOR 512u
#define REGIONS 16u

struct write {
    size_t at, len;
    uint8_t *data; /* NULL: the size became `at` */
};

struct file {
    char name[400]; /* "": no file */
    uint8_t *now, *safe;
    size_t now_len, safe_len;
    struct write writes[WRITES]; /* since the last sync */
    unsigned writes_n;
    bool name_is_safe; /* the file would be there after a cut */
    bool is_deleted;   /* and would not be missed */
    void *regions[REGIONS];
    unsigned opened;
};

struct handle {
    sqlite3_file base;
    struct file *file;
};

static struct file files[FILES];
static uint64_t random_state;
static unsigned calls, fail_at;
static enum sim_fault fault;
static bool power = true, failed;

/* Whether this call, which changes or syncs something, fails: an error of SQLite's, or 0. */
static int count(bool is_sync)
{
    calls++;
    if (!power) {
        return is_sync ? SQLITE_IOERR_FSYNC : SQLITE_IOERR_WRITE;
    }
    bool fits = fault == SIM_POWER || (fault == SIM_SYNC_ERROR) == is_sync;
    if (fail_at == 0 || calls < fail_at || failed || !fits) {
        return 0;
    }
    failed = true;
    power = fault != SIM_POWER;
    return is_sync ? SQLITE_IOERR_FSYNC : fault == SIM_NO_ROOM ? SQLITE_FULL : SQLITE_IOERR_WRITE;
}

static void resize(uint8_t **data, size_t *len, size_t to)
{
    if (to > *len) {
        *data = realloc(*data, to);
        memset(*data + *len, 0, to - *len);
    }
    *len = to;
}

static void apply(uint8_t **data, size_t *len, size_t at, const uint8_t *from, size_t n)
{
    if (at + n > *len) {
        resize(data, len, at + n);
    }
    memcpy(*data + at, from, n);
}

static void drop_writes(struct file *f)
{
    for (unsigned i = 0; i < f->writes_n; i++) {
        free(f->writes[i].data);
    }
    f->writes_n = 0;
}

static void make_safe(struct file *f)
{
    drop_writes(f);
    f->safe = realloc(f->safe, f->now_len + 1);
    if (f->now_len > 0) {
        memcpy(f->safe, f->now, f->now_len);
    }
    f->safe_len = f->now_len;
    f->name_is_safe = true;
}

static void note_write(struct file *f, size_t at, const void *data, size_t len)
{
    struct write *w = &f->writes[f->writes_n++];
    if (f->writes_n == WRITES) {
        abort();
    }
    *w = (struct write){at, len, data == NULL ? NULL : malloc(len)};
    if (data != NULL) {
        memcpy(w->data, data, len);
    }
}

/* ---- files ---- */

static struct file *file_of(sqlite3_file *h)
{
    return ((struct handle *)h)->file;
}

static int f_close(sqlite3_file *h)
{
    file_of(h)->opened--;
    return SQLITE_OK;
}

static int f_read(sqlite3_file *h, void *to, int n, sqlite3_int64 at)
{
    const struct file *f = file_of(h);
    size_t from = (size_t)at;
    size_t has = from >= f->now_len ? 0 : f->now_len - from;
    has = has < (size_t)n ? has : (size_t)n;
    if (!power) {
        return SQLITE_IOERR_READ;
    }
    if (has > 0) {
        memcpy(to, f->now + from, has);
    }
    memset((uint8_t *)to + has, 0, (size_t)n - has);
    return has < (size_t)n ? SQLITE_IOERR_SHORT_READ : SQLITE_OK;
}

static int f_write(sqlite3_file *h, const void *data, int n, sqlite3_int64 at)
{
    struct file *f = file_of(h);
    int rc = count(false);
    if (rc == 0 ||
        (failed && power && fault == SIM_WRITE_ERROR)) { /* it may be done all the same */
        note_write(f, (size_t)at, data, (size_t)n);
        apply(&f->now, &f->now_len, (size_t)at, data, (size_t)n);
    }
    return rc;
}

static int f_truncate(sqlite3_file *h, sqlite3_int64 size)
{
    struct file *f = file_of(h);
    int rc = count(false);
    if (rc == 0) {
        note_write(f, (size_t)size, NULL, 0);
        resize(&f->now, &f->now_len, (size_t)size);
    }
    return rc;
}

static void forget(struct file *f);

/* The first sync of a new file is one of the directory, too. */
static void make_names_safe(void)
{
    for (unsigned i = 0; i < FILES; i++) {
        files[i].name_is_safe = files[i].name[0] != '\0';
        if (files[i].is_deleted) {
            forget(&files[i]);
        }
    }
}

static int f_sync(sqlite3_file *h, int flags)
{
    int rc = count(true);
    if (rc == 0) {
        if (!file_of(h)->name_is_safe) {
            make_names_safe();
        }
        make_safe(file_of(h));
    } else if (power) { /* as Linux does: the pages count as clean from now on, and are not safe */
        drop_writes(file_of(h));
    }
    return rc;
}

static int f_size(sqlite3_file *h, sqlite3_int64 *ret)
{
    *ret = (sqlite3_int64)file_of(h)->now_len;
    return SQLITE_OK;
}

static int f_lock(sqlite3_file *h, int level)
{
    return SQLITE_OK;
}

static int f_check(sqlite3_file *h, int *ret)
{
    *ret = 0;
    return SQLITE_OK;
}

static int f_control(sqlite3_file *h, int op, void *arg)
{
    if (op == SQLITE_FCNTL_MMAP_SIZE) {
        *(sqlite3_int64 *)arg = 0;
        return SQLITE_OK;
    }
    return SQLITE_NOTFOUND;
}

static int f_sector(sqlite3_file *h)
{
    return SECTOR;
}

static int f_device(sqlite3_file *h)
{
    return SQLITE_IOCAP_POWERSAFE_OVERWRITE;
}

static int f_shm_map(sqlite3_file *h, int region, int size, int extend, void volatile **ret)
{
    void **at = &file_of(h)->regions[region];
    if ((unsigned)region >= REGIONS) {
        abort();
    }
    if (*at == NULL && extend) {
        *at = calloc(1, (size_t)size);
    }
    *ret = *at;
    return SQLITE_OK;
}

static int f_shm_lock(sqlite3_file *h, int at, int n, int flags)
{
    return SQLITE_OK;
}

static void f_shm_barrier(sqlite3_file *h)
{
}

static void drop_regions(struct file *f)
{
    for (unsigned i = 0; i < REGIONS; i++) {
        free(f->regions[i]);
        f->regions[i] = NULL;
    }
}

static int f_shm_unmap(sqlite3_file *h, int remove)
{
    if (file_of(h)->opened == 1) {
        drop_regions(file_of(h));
    }
    return SQLITE_OK;
}

static const sqlite3_io_methods methods = {
    .iVersion = 2,
    .xClose = f_close,
    .xRead = f_read,
    .xWrite = f_write,
    .xTruncate = f_truncate,
    .xSync = f_sync,
    .xFileSize = f_size,
    .xLock = f_lock,
    .xUnlock = f_lock,
    .xCheckReservedLock = f_check,
    .xFileControl = f_control,
    .xSectorSize = f_sector,
    .xDeviceCharacteristics = f_device,
    .xShmMap = f_shm_map,
    .xShmLock = f_shm_lock,
    .xShmBarrier = f_shm_barrier,
    .xShmUnmap = f_shm_unmap,
};

/* ---- names ---- */

static struct file *find(const char *name)
{
    for (unsigned i = 0; i < FILES; i++) {
        if (strcmp(files[i].name, name) == 0) {
            return &files[i];
        }
    }
    return NULL;
}

static int v_open(sqlite3_vfs *v, const char *name, sqlite3_file *h, int flags, int *ret_flags)
{
    struct handle *handle = (struct handle *)h;
    memset(h, 0, sizeof(struct handle));
    struct file *f = name == NULL ? NULL : find(name);
    if (f == NULL || f->is_deleted) {
        if (name == NULL || !(flags & SQLITE_OPEN_CREATE) || !power) {
            return SQLITE_CANTOPEN;
        }
        f = f == NULL ? find("") : f;
        if (f == NULL) {
            abort();
        }
        f->is_deleted = false;
        f->now_len = 0;
        drop_writes(f);
        (void)sqlite3_snprintf(sizeof f->name, f->name, "%s", name);
    }
    f->opened++;
    handle->file = f;
    handle->base.pMethods = &methods;
    if (ret_flags != NULL) {
        *ret_flags = flags;
    }
    return SQLITE_OK;
}

static void forget(struct file *f)
{
    drop_writes(f);
    drop_regions(f);
    free(f->now);
    free(f->safe);
    memset(f, 0, sizeof *f);
}

static int v_delete(sqlite3_vfs *v, const char *name, int sync)
{
    struct file *f = find(name);
    int rc = count(false);
    if (f == NULL || rc != 0) {
        return f == NULL ? SQLITE_IOERR_DELETE_NOENT : SQLITE_IOERR_DELETE;
    }
    f->is_deleted = true;
    if (sync || !f->name_is_safe) {
        forget(f);
    }
    return SQLITE_OK;
}

static int v_access(sqlite3_vfs *v, const char *name, int flags, int *ret)
{
    const struct file *f = find(name);
    *ret = f != NULL && !f->is_deleted && (flags != SQLITE_ACCESS_EXISTS || f->now_len > 0);
    return SQLITE_OK;
}

static int v_full(sqlite3_vfs *v, const char *name, int n, char *out)
{
    (void)sqlite3_snprintf(n, out, "%s", name);
    return SQLITE_OK;
}

static int v_random(sqlite3_vfs *v, int n, char *out)
{
    for (int i = 0; i < n; i++) {
        out[i] = (char)rng_below(&random_state, 256);
    }
    return n;
}

static int v_sleep(sqlite3_vfs *v, int us)
{
    return us;
}

static int v_time(sqlite3_vfs *v, double *ret)
{
    *ret = 2460000.5;
    return SQLITE_OK;
}

static int v_error(sqlite3_vfs *v, int n, char *out)
{
    return 0;
}

void sim_disk_install(uint64_t seed)
{
    static sqlite3_vfs vfs = {.iVersion = 1,
                              .szOsFile = sizeof(struct handle),
                              .mxPathname = 399,
                              .zName = "simulated",
                              .xOpen = v_open,
                              .xDelete = v_delete,
                              .xAccess = v_access,
                              .xFullPathname = v_full,
                              .xRandomness = v_random,
                              .xSleep = v_sleep,
                              .xCurrentTime = v_time,
                              .xGetLastError = v_error};
    random_state = seed;
    if (sqlite3_vfs_register(&vfs, 1) != SQLITE_OK) {
        abort();
    }
}

void sim_disk_clear(void)
{
    for (unsigned i = 0; i < FILES; i++) {
        forget(&files[i]);
    }
    calls = fail_at = 0;
    failed = false;
    power = true;
}

void sim_disk_fail(enum sim_fault what, unsigned number)
{
    fault = what;
    fail_at = number;
    calls = 0;
    failed = false;
}

bool sim_disk_failed(void)
{
    return failed;
}

unsigned sim_disk_calls(void)
{
    return calls;
}

/* Each sector of what was not synced is there or is not. */
static void cut(struct file *f)
{
    if ((!f->name_is_safe && rng_below(&random_state, 2) == 0) ||
        (f->is_deleted && rng_below(&random_state, 2) == 0)) {
        forget(f);
        return;
    }
    for (unsigned i = 0; i < f->writes_n; i++) {
        const struct write *w = &f->writes[i];
        if (w->data == NULL && rng_below(&random_state, 2) == 0) {
            resize(&f->safe, &f->safe_len, w->at);
        }
        for (size_t at = 0, n = 0; w->data != NULL && at < w->len; at += n) {
            n = SECTOR - (w->at + at) % SECTOR;
            n = n < w->len - at ? n : w->len - at;
            if (rng_below(&random_state, 2) == 0) {
                apply(&f->safe, &f->safe_len, w->at + at, w->data + at, n);
            }
        }
    }
    drop_writes(f);
    f->is_deleted = false;
    resize(&f->now, &f->now_len, f->safe_len);
    if (f->safe_len > 0) {
        memcpy(f->now, f->safe, f->safe_len);
    }
    f->name_is_safe = true;
    drop_regions(f);
}

void sim_disk_restore_power(void)
{
    for (unsigned i = 0; i < FILES; i++) {
        if (files[i].name[0] != '\0') {
            cut(&files[i]);
        }
    }
    power = true;
    fail_at = 0;
    failed = false;
}
