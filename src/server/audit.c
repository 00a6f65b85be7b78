/* audit.c: see audit.h. There are two buffers of notes: the loop fills one while the thread makes
 * lines of the other and writes them, some at a time. */
#include "server/audit.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <syslog.h>
#include <unistd.h>

#include "auth/worker.h"
#include "base/clock.h"
#include "base/write.h"
#include "server/audit_record.h"

#define LINES_SIZE ((size_t)64 << 10) /* bytes of lines that are written at once, about */

struct audit {
    struct auth_worker *worker;
    struct auth_job job;
    uint64_t node_id;
    bool to_syslog, writing, closing;
    struct fli_buf filling; /* notes */
    size_t filling_n;
    uint64_t lost; /* lines that found no room and were not reported yet */
    struct audit_counts counts;
    void (*cb)(void *ctx);
    void *ctx;
    /* Used by the thread while it writes. */
    struct fli_buf out; /* notes */
    size_t out_done;    /* bytes of them whose lines are written */
    size_t out_left;    /* lines that are not */
    struct fli_buf lines;
    int fd;
    bool failed;
    char path[4096];
};

/* ---- the thread ------------------------------------------------------------------------------ */

static bool open_file(struct audit *a)
{
    a->fd = open(a->path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    return a->fd >= 0;
}

/* Whether the path still names the open file. */
static bool is_same_file(const struct audit *a)
{
    struct stat named;
    struct stat own;
    return a->fd >= 0 && stat(a->path, &named) == 0 && fstat(a->fd, &own) == 0 &&
           named.st_dev == own.st_dev && named.st_ino == own.st_ino;
}

static bool write_file(struct audit *a)
{
    if (!is_same_file(a)) {
        if (a->fd >= 0) {
            (void)close(a->fd);
        }
        if (!open_file(a)) {
            return false;
        }
    }
    return fli_write_all(a->fd, a->lines.data, a->lines.len) == 0;
}

static void write_syslog(const struct audit *a)
{
    const uint8_t *p = a->lines.data;
    const uint8_t *end = p + a->lines.len;
    while (p < end) {
        const uint8_t *eol = memchr(p, '\n', (size_t)(end - p));
        eol = eol == NULL ? end : eol;
        syslog(LOG_AUTHPRIV | LOG_NOTICE, "%.*s", (int)(eol - p), (const char *)p);
        p = eol + 1;
    }
}

/* Makes the lines of the notes from *at on, as many as are written at once, and moves *at behind
 * them. Returns their number. */
static size_t make_lines(struct audit *a, size_t *at)
{
    struct audit_record r;
    size_t n = 0;
    fli_buf_clear(&a->lines);
    while (*at < a->out.len && a->lines.len < LINES_SIZE) {
        *at += audit_record_read(a->out.data + *at, &r);
        int rc = audit_record_line(&a->lines, a->node_id, &r);
        FLI_ASSERT(rc == 0); /* they have room for one more */
        n++;
    }
    return n;
}

static bool write_some(struct audit *a)
{
    size_t at = a->out_done;
    size_t n = make_lines(a, &at);
    if (a->to_syslog) {
        write_syslog(a);
    } else if (!write_file(a)) {
        return false;
    }
    a->out_done = at;
    a->out_left -= n;
    return true;
}

static void work_write(struct auth_job *job)
{
    struct audit *a = FLI_CONTAINER_OF(job, struct audit, job);
    a->failed = false;
    while (a->out_left > 0 && !a->failed) {
        a->failed = !write_some(a);
    }
}

/* ---- the loop -------------------------------------------------------------------------------- */

static void start(struct audit *a);

static void release(struct audit *a)
{
    if (a->fd >= 0) {
        (void)close(a->fd);
    }
    fli_buf_fini(&a->filling);
    fli_buf_fini(&a->lines);
    fli_buf_fini(&a->out);
    free(a);
}

static void closed(void *ctx)
{
    struct audit *a = ctx;
    void (*cb)(void *) = a->cb;
    void *cb_ctx = a->ctx;
    if (a->to_syslog) {
        closelog();
    }
    release(a);
    cb(cb_ctx);
}

static void done_write(struct auth_job *job)
{
    struct audit *a = FLI_CONTAINER_OF(job, struct audit, job);
    a->writing = false;
    if (a->closing && !a->failed) { /* writing it has not begun */
        work_write(job);
    }
    /* They are not written again, since a part of them may be in the file. */
    a->counts.failures += a->out_left;
    a->out_left = 0;
    fli_buf_clear(&a->out);
    start(a);
}

static void swap(struct audit *a)
{
    struct fli_buf empty = a->out;
    a->out = a->filling;
    a->filling = empty;
    a->out_done = 0;
    a->out_left = a->filling_n;
    a->filling_n = 0;
}

/* Hands the filled buffer to the thread. */
static void start(struct audit *a)
{
    if (a->writing || a->closing || a->filling.len == 0) {
        return;
    }
    swap(a);
    a->writing = true;
    a->failed = false;
    a->job.work = work_write;
    a->job.done = done_write;
    int rc = auth_worker_submit(a->worker, &a->job);
    FLI_ASSERT(rc == 0); /* it has one job at a time */
}

static bool fits(const struct audit *a, size_t size)
{
    return a->filling.len + size <= AUDIT_ROOM;
}

/* Called in apply for each event: it copies, and no more. What finds no room costs nothing. */
static void note(struct audit *a, struct audit_record *r)
{
    r->wall_ms = fli_clock_wall_ms();
    if (!fits(a, audit_record_size(r)) || audit_record_note(&a->filling, r) != 0) {
        a->lost++;
        a->counts.dropped++;
    } else {
        a->counts.lines++;
        a->filling_n++;
    }
    start(a);
}

/* Before the first line that fits again. */
static void note_lost(struct audit *a)
{
    struct audit_record r = {.word = AUDIT_DROPPED, .number = a->lost};
    if (a->lost > 0 && fits(a, 2 * (size_t)AUDIT_RECORD_MAX)) {
        a->lost = 0;
        note(a, &r);
    }
}

/* False: nothing is written about it. */
static bool find_word(const struct machine_event *e, enum audit_word *ret)
{
    switch (e->type) {
    case MACHINE_EVENT_GRANTED:
        *ret = AUDIT_GRANTED;
        return true;
    case MACHINE_EVENT_RELEASED:
        *ret = AUDIT_RELEASED;
        return true;
    case MACHINE_EVENT_EXPIRED:
        *ret = AUDIT_EXPIRED;
        return true;
    case MACHINE_EVENT_BROKEN:
        *ret = AUDIT_BROKEN;
        return true;
    case MACHINE_EVENT_WAIT_ENDED:
        *ret = AUDIT_DENIED;
        return e->reason == MACHINE_REASON_DENIED;
    case MACHINE_EVENT_USER_CHANGED:
        *ret = e->reason == MACHINE_REASON_CLOSE ? AUDIT_USER_DELETED : AUDIT_USER_CHANGED;
        return true;
    default:
        return false;
    }
}

static bool is_done_by(enum audit_word word)
{
    return word == AUDIT_BROKEN || word == AUDIT_USER_CHANGED || word == AUDIT_USER_DELETED;
}

void audit_event(struct audit *a, const struct machine_event *e, bool again)
{
    struct audit_record r = {.again = again,
                             .clock_ms = e->clock_ms,
                             .number = e->token,
                             .texts = {[AUDIT_NAME] = e->name,
                                       [AUDIT_OWNER] = e->owner,
                                       [AUDIT_USER] = e->user,
                                       [AUDIT_ADDRESS] = e->address}};
    if (!find_word(e, &r.word)) {
        return;
    }
    if (is_done_by(r.word)) {
        r.texts[AUDIT_BY] = e->by;
        r.texts[AUDIT_BY_ADDRESS] = e->by_address;
    }
    note_lost(a);
    note(a, &r);
}

static struct fli_slice slice_of(const char *text)
{
    return (struct fli_slice){(const uint8_t *)text, strlen(text)};
}

void audit_refusal(struct audit *a, const char *user, struct fli_slice address, const char *command,
                   const char *why)
{
    struct audit_record r = {.word = AUDIT_REFUSED,
                             .texts = {[AUDIT_NAME] = slice_of(command),
                                       [AUDIT_OWNER] = slice_of(why),
                                       [AUDIT_USER] = slice_of(user),
                                       [AUDIT_ADDRESS] = address}};
    note_lost(a);
    note(a, &r);
}

void audit_get_counts(const struct audit *a, struct audit_counts *ret)
{
    *ret = a->counts;
}

/* ---- start and end --------------------------------------------------------------------------- */

int audit_create(uv_loop_t *loop, const char *target, uint64_t node_id, struct audit **ret,
                 char *errmsg, size_t errmsg_size)
{
    struct audit *a = calloc(1, sizeof *a);
    if (a == NULL) {
        return FL_ENOMEM;
    }
    a->node_id = node_id;
    a->fd = -1;
    a->to_syslog = strcmp(target, "syslog") == 0;
    (void)snprintf(a->path, sizeof a->path, "%s", target);
    fli_buf_init(&a->filling, AUDIT_ROOM);
    fli_buf_init(&a->out, AUDIT_ROOM);
    fli_buf_init(&a->lines, LINES_SIZE + AUDIT_LINE_MAX);
    int rc = fli_buf_reserve(&a->lines, a->lines.max); /* the thread never lacks it */
    if (rc != 0) {
        release(a);
        return rc;
    }
    if (a->to_syslog) {
        openlog("fencelockd", LOG_PID, LOG_AUTHPRIV);
    } else if (!open_file(a)) {
        (void)snprintf(errmsg, errmsg_size, "cannot open the audit log %.256s: %s", target,
                       strerror(errno));
        release(a);
        return FL_EINVAL;
    }
    rc = auth_worker_create(loop, 1, &a->worker);
    if (rc != 0) {
        (void)snprintf(errmsg, errmsg_size, "no thread can be made for the audit log");
        release(a);
        return rc;
    }
    *ret = a;
    return 0;
}

/* The loop itself writes what waits, since it has nothing else left to do. */
void audit_close(struct audit *a, void (*cb)(void *ctx), void *ctx)
{
    a->cb = cb;
    a->ctx = ctx;
    a->closing = true;
    struct auth_worker *w = a->worker;
    a->worker = NULL;
    /* The loop calls `closed` later; the worker has ended when this returns. */
    auth_worker_close(w, closed, a);
    if (a->filling.len > 0) {
        swap(a);
        work_write(&a->job);
    }
}
