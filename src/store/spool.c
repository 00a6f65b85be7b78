/* spool.c: see spool.h.
 *
 *   NONE --begin--> WRITING --whole--> READ --read to its end, or given up--> NONE
 *                      '-------------> FAILED --told, or never asked for-----> NONE
 *
 * The worker has one piece of work at a time: it closes the file of the last backup, or it writes
 * the next one. A backup that is begun while it closes waits for that. */
#include "store/spool.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/base.h"
#include "base/clock.h"
#include "base/write.h"
#include "fence/env.h"
#include "store/backup.h"
#include "wire/resp.h"

#define NAME "backup.spool" /* used for a moment, on file systems without nameless files */
#define WHY_SIZE 256u

enum phase { SPOOL_NONE, SPOOL_WRITING, SPOOL_READ, SPOOL_FAILED };

struct spool {
    uv_loop_t *loop;
    struct store *store;
    void (*log)(void *ctx, int level, const char *message);
    void *ctx;
    enum phase phase;
    uint64_t id, offset;
    uint64_t used_ms, read_at_ms;
    uint64_t made, failed;
    uv_work_t work;
    uv_timer_t timer;
    uint64_t db_bytes; /* of the database, when the backup was begun */
    int fd;            /* -1: no file. The worker's while it writes. */
    int old_fd;        /* to be closed; -1: none. The worker's while it closes. */
    bool working;
    bool writes; /* what is under way, or was last: else it closes */
    int result;
    int error;           /* errno of the worker */
    atomic_bool closing; /* the worker reads it, too */
    bool timer_closed;
};

/* ---- the worker ---- */

static bool disk_is_short(int fd, uint64_t wanted)
{
    struct statvfs vfs;
    return fstatvfs(fd, &vfs) == 0 && (uint64_t)vfs.f_bavail * vfs.f_frsize < wanted + SPOOL_SPARE;
}

/* Opens a file that disappears with the process, however the process ends. */
static int open_nameless(int dir)
{
    int fd = openat(dir, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (fd < 0 && (errno == EOPNOTSUPP || errno == EISDIR)) {
        (void)unlinkat(dir, NAME, 0); /* left by a process that was killed at this point */
        fd = openat(dir, NAME, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        (void)unlinkat(dir, NAME, 0);
    }
    return fd;
}

static int fail(struct spool *s, int code)
{
    s->error = errno;
    return code;
}

static int write_out(void *ctx, const void *data, size_t len)
{
    struct spool *s = ctx;
    if (atomic_load(&s->closing)) {
        return FL_EBUSY;
    }
    if (disk_is_short(s->fd, 0)) {
        errno = ENOSPC;
        return fail(s, FL_ELIMIT);
    }
    /* The file system is full, or the file too large: the database is not broken. */
    return fli_write_all(s->fd, data, len) == 0 ? 0 : fail(s, FL_ELIMIT);
}

static void write_file(struct spool *s)
{
    struct fli_env *e = store_env(s->store);
    s->error = 0;
    s->fd = open_nameless(e->data_dir.dir_fd);
    if (s->fd < 0) {
        s->result = fail(s, FL_ELIMIT);
    } else if (disk_is_short(s->fd, s->db_bytes)) {
        s->error = ENOSPC;
        s->result = FL_ELIMIT;
    } else {
        s->result = store_backup_write(s->store, write_out, s);
    }
    if (s->result != 0 && s->fd >= 0) {
        close(s->fd);
        s->fd = -1;
    }
}

static void work_cb(uv_work_t *work)
{
    struct spool *s = FLI_CONTAINER_OF(work, struct spool, work);
    if (s->writes) {
        write_file(s);
    } else {
        close(s->old_fd);
        s->old_fd = -1;
    }
}

/* ---- the loop ---- */

static void after_work_cb(uv_work_t *work, int status);

static void start_work(struct spool *s, bool writes)
{
    s->working = true;
    s->writes = writes;
    int rc = uv_queue_work(s->loop, &s->work, work_cb, after_work_cb);
    FLI_ASSERT(rc == 0); /* fails only without a callback */
}

/* The file has no name, so its blocks are freed when it is closed. That takes a file system seconds
 * when the backup is large. */
static void drop(struct spool *s)
{
    FLI_ASSERT(s->phase != SPOOL_WRITING);
    s->phase = SPOOL_NONE;
    if (s->fd >= 0) {
        s->old_fd = s->fd;
        s->fd = -1;
        start_work(s, false);
    }
    if (!atomic_load(&s->closing)) {
        (void)uv_timer_stop(&s->timer);
    }
}

static void free_when_over(struct spool *s)
{
    if (!atomic_load(&s->closing) || !s->timer_closed || s->working) {
        return;
    }
    s->phase = SPOOL_NONE; /* also of one that was to be written next */
    drop(s);
    if (!s->working) {
        free(s);
    }
}

static void after_work_cb(uv_work_t *work, int status)
{
    struct spool *s = FLI_CONTAINER_OF(work, struct spool, work);
    FLI_ASSERT(status == 0); /* it is never cancelled */
    s->working = false;
    if (s->writes) {
        s->phase = s->result == 0 ? SPOOL_READ : SPOOL_FAILED;
        s->failed += s->result != 0;
        s->used_ms = fli_clock_ms();
    } else if (s->phase == SPOOL_WRITING && !atomic_load(&s->closing)) {
        start_work(s, true);
    }
    free_when_over(s);
}

/* A client that stopped reading must not keep others from their backups. */
static void idle_cb(uv_timer_t *timer)
{
    struct spool *s = FLI_CONTAINER_OF(timer, struct spool, timer);
    if (s->phase == SPOOL_WRITING || fli_clock_ms() - s->used_ms < SPOOL_IDLE_MS) {
        return;
    }
    s->failed += s->phase == SPOOL_READ;
    s->log(s->ctx, 2, "a backup that nobody reads any more is given up");
    drop(s);
}

static bool begin(struct spool *s, struct fli_buf *b, uint64_t db_bytes)
{
    if (s->phase == SPOOL_READ && fli_clock_ms() - s->used_ms >= SPOOL_STALE_MS) {
        s->failed++;
        drop(s);
    } else if (s->phase == SPOOL_FAILED) { /* and nobody has asked why */
        drop(s);
    }
    if (s->phase != SPOOL_NONE) {
        return fli_resp_error(b, "BUSY",
                              "another backup is being made; try again when that is done") == 0;
    }
    fli_random(&s->id, sizeof s->id);
    s->id = s->id >> 2 | 1; /* a number that every client can read */
    s->offset = 0;
    s->used_ms = fli_clock_ms();
    s->db_bytes = db_bytes;
    s->phase = SPOOL_WRITING;
    if (!s->working) {
        start_work(s, true);
    }
    (void)uv_timer_start(&s->timer, idle_cb, SPOOL_IDLE_MS / 4, SPOOL_IDLE_MS / 4);
    return fli_resp_u64(b, s->id) == 0;
}

static bool answer_failure(struct spool *s, struct fli_buf *b)
{
    char why[WHY_SIZE];
    if (s->result == FL_EBUSY) {
        (void)snprintf(why, sizeof why,
                       "the writes of meanwhile left no room in the database, and come first; try "
                       "when there are fewer, or with a larger --size-max");
    } else {
        (void)snprintf(why, sizeof why, "%s",
                       s->error != 0 ? strerror(s->error) : fl_strerror(s->result));
    }
    int rc = fli_resp_error(b, "ERR", "the backup failed: %s%s", why,
                            s->error == ENOSPC ? " beside the database, where it is made" : "");
    drop(s);
    return rc == 0;
}

static bool answer_piece(struct spool *s, struct fli_buf *b)
{
    static uint8_t piece[SPOOL_PIECE];
    ssize_t n = pread(s->fd, piece, sizeof piece, (off_t)s->offset);
    if (n < 0) {
        s->result = FL_EIO;
        s->error = errno;
        s->failed++;
        return answer_failure(s, b);
    }
    s->offset += (uint64_t)n;
    if (n == 0) {
        s->made++;
        s->read_at_ms = fli_clock_ms();
        drop(s);
    }
    return fli_resp_bulk(b, piece, (size_t)n) == 0;
}

bool spool_answer(struct spool *s, struct fli_buf *b, const struct fli_request *q,
                  uint64_t db_bytes)
{
    if (q->number == 0) {
        return begin(s, b, db_bytes);
    }
    if (s->phase == SPOOL_NONE || s->id != q->number) {
        return fli_resp_error(b, "NOTFOUND",
                              "there is no such backup (any more); begin another one") == 0;
    }
    s->used_ms = fli_clock_ms();
    switch (s->phase) {
    case SPOOL_WRITING:
        return fli_resp_null(b, 2) == 0;
    case SPOOL_FAILED:
        return answer_failure(s, b);
    default:
        break;
    }
    if (q->offset != s->offset) {
        return fli_resp_error(b, "ERR", "offset: a backup is read from its beginning to its end") ==
               0;
    }
    return answer_piece(s, b);
}

void spool_get_counts(const struct spool *s, struct spool_counts *ret)
{
    *ret = (struct spool_counts){
        .made = s->made,
        .failed = s->failed,
        .age_ms = s->made > 0 ? fli_clock_ms() - s->read_at_ms : 0,
    };
}

/* ---- start and end ---- */

int spool_create(uv_loop_t *loop, struct store *store,
                 void (*log)(void *ctx, int level, const char *message), void *ctx,
                 struct spool **ret)
{
    struct spool *s = calloc(1, sizeof *s);
    if (s == NULL) {
        return FL_ENOMEM;
    }
    s->loop = loop;
    s->store = store;
    s->log = log;
    s->ctx = ctx;
    s->fd = -1;
    s->old_fd = -1;
    (void)uv_timer_init(loop, &s->timer); /* cannot fail */
    *ret = s;
    return 0;
}

static void closed_cb(uv_handle_t *handle)
{
    struct spool *s = FLI_CONTAINER_OF((uv_timer_t *)handle, struct spool, timer);
    s->timer_closed = true;
    free_when_over(s);
}

void spool_close(struct spool *s)
{
    if (s != NULL) {
        atomic_store(&s->closing, true);
        uv_close((uv_handle_t *)&s->timer, closed_cb);
    }
}
