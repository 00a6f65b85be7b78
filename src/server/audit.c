/* audit.c: see audit.h. There are two buffers: the loop fills one while the thread writes the
 * other. */
#include "server/audit.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <syslog.h>
#include <time.h>
#include <unistd.h>

#include "auth/worker.h"
#include "base/clock.h"
#include "base/write.h"
#include "server/render.h"

#define LINE_MAX_BYTES 8192u

struct audit {
    struct auth_worker *worker;
    struct auth_job job;
    uint64_t node_id;
    bool to_syslog, writing, closing;
    struct fli_buf filling, line;
    uint64_t lost; /* lines that found no room and were not reported yet */
    struct audit_counts counts;
    void (*cb)(void *ctx);
    void *ctx;
    /* Used by the thread while it writes. */
    struct fli_buf out;
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
    return fli_write_all(a->fd, a->out.data, a->out.len) == 0;
}

static void write_syslog(const struct audit *a)
{
    const uint8_t *p = a->out.data;
    const uint8_t *end = p + a->out.len;
    while (p < end) {
        const uint8_t *eol = memchr(p, '\n', (size_t)(end - p));
        eol = eol == NULL ? end : eol;
        syslog(LOG_AUTHPRIV | LOG_NOTICE, "%.*s", (int)(eol - p), (const char *)p);
        p = eol + 1;
    }
}

static void work_write(struct auth_job *job)
{
    struct audit *a = FLI_CONTAINER_OF(job, struct audit, job);
    a->failed = false;
    if (a->to_syslog) {
        write_syslog(a);
    } else {
        a->failed = !write_file(a);
    }
    if (!a->failed) {
        fli_buf_clear(&a->out);
    }
}

/* ---- the loop -------------------------------------------------------------------------------- */

static void start(struct audit *a);

static void closed(void *ctx)
{
    struct audit *a = ctx;
    void (*cb)(void *) = a->cb;
    void *cb_ctx = a->ctx;
    if (a->fd >= 0) {
        (void)close(a->fd);
    }
    if (a->to_syslog) {
        closelog();
    }
    fli_buf_fini(&a->filling);
    fli_buf_fini(&a->line);
    fli_buf_fini(&a->out);
    free(a);
    cb(cb_ctx);
}

static void done_write(struct auth_job *job)
{
    struct audit *a = FLI_CONTAINER_OF(job, struct audit, job);
    a->writing = false;
    if (a->closing && !a->failed && a->out.len > 0) { /* writing it has not begun */
        work_write(job);
    }
    if (a->out.len > 0) { /* it is not written again, since a part of it may be in the file */
        for (size_t i = 0; i < a->out.len; i++) {
            a->counts.failures += a->out.data[i] == '\n';
        }
        fli_buf_clear(&a->out);
    }
    start(a);
}

/* Hands the filled buffer to the thread. */
static void start(struct audit *a)
{
    if (a->writing || a->closing || a->filling.len == 0) {
        return;
    }
    struct fli_buf empty = a->out;
    a->out = a->filling;
    a->filling = empty;
    a->writing = true;
    a->failed = false;
    a->job.work = work_write;
    a->job.done = done_write;
    int rc = auth_worker_submit(a->worker, &a->job);
    FLI_ASSERT(rc == 0); /* it has one job at a time */
}

static int put_time(struct fli_buf *b)
{
    uint64_t now_ms = fli_clock_wall_ms();
    time_t seconds = (time_t)(now_ms / 1000);
    struct tm utc;
    char text[32];
    (void)gmtime_r(&seconds, &utc);
    (void)strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &utc);
    return fli_buf_printf(b, "{\"time\":\"%s.%03uZ\"", text, (unsigned)(now_ms % 1000));
}

/* Writes bytes as a string of JSON. A byte that is not ASCII becomes the code point of its number,
 * so that any name can be read back byte by byte. */
static int put_text(struct fli_buf *b, const char *key, struct fli_slice v)
{
    int rc = fli_buf_printf(b, ",\"%s\":\"", key);
    for (size_t i = 0; i < v.len && rc == 0; i++) {
        uint8_t c = v.data[i];
        if (c == '"' || c == '\\') {
            rc = fli_buf_printf(b, "\\%c", c);
        } else if (c < ' ' || c >= 0x7f) {
            rc = fli_buf_printf(b, "\\u%04x", c);
        } else {
            rc = fli_buf_append(b, &c, 1);
        }
    }
    return rc != 0 ? rc : fli_buf_append(b, "\"", 1);
}

static struct fli_slice slice_of(const char *text)
{
    return (struct fli_slice){(const uint8_t *)text, strlen(text)};
}

static int put_origin(struct fli_buf *b, const char *user_key, struct fli_slice user,
                      const char *address_key, struct fli_slice address)
{
    char text[RENDER_ADDRESS_MAX];
    render_address(address, text);
    int rc = put_text(b, user_key, user.len > 0 ? user : slice_of("default"));
    return rc != 0 || text[0] == '\0' ? rc : put_text(b, address_key, slice_of(text));
}

static int begin(struct audit *a, const char *event)
{
    fli_buf_clear(&a->line);
    int rc = put_time(&a->line);
    rc = rc != 0 ? rc : fli_buf_printf(&a->line, ",\"node\":%" PRIu64, a->node_id);
    return rc != 0 ? rc : put_text(&a->line, "event", slice_of(event));
}

static bool fits(const struct audit *a, size_t len)
{
    return a->filling.len + len <= AUDIT_ROOM;
}

static void end(struct audit *a, int rc)
{
    rc = rc != 0 ? rc : fli_buf_append(&a->line, "}\n", 2);
    if (rc != 0 || !fits(a, a->line.len) ||
        fli_buf_append(&a->filling, a->line.data, a->line.len) != 0) {
        a->lost++;
        a->counts.dropped++;
    } else {
        a->counts.lines++;
    }
    start(a);
}

/* Written before the first line that fits again. */
static void log_lost(struct audit *a)
{
    uint64_t lost = a->lost;
    if (lost == 0 || !fits(a, LINE_MAX_BYTES)) {
        return;
    }
    a->lost = 0;
    int rc = begin(a, "dropped");
    end(a, rc != 0 ? rc : fli_buf_printf(&a->line, ",\"lines\":%" PRIu64, lost));
}

static const char *event_word(const struct machine_event *e)
{
    switch (e->type) {
    case MACHINE_EVENT_GRANTED:
        return "granted";
    case MACHINE_EVENT_RELEASED:
        return "released";
    case MACHINE_EVENT_EXPIRED:
        return "expired";
    case MACHINE_EVENT_BROKEN:
        return "broken";
    case MACHINE_EVENT_WAIT_ENDED:
        return e->reason == MACHINE_REASON_DENIED ? "denied" : NULL;
    case MACHINE_EVENT_USER_CHANGED:
        return e->reason == MACHINE_REASON_CLOSE ? "user_deleted" : "user_changed";
    default:
        return NULL;
    }
}

void audit_event(struct audit *a, const struct machine_event *e, bool again)
{
    const char *word = event_word(e);
    bool of_user = e->type == MACHINE_EVENT_USER_CHANGED;
    if (word == NULL) {
        return;
    }
    log_lost(a);
    struct fli_buf *b = &a->line;
    int rc = begin(a, word);
    if (of_user) {
        rc = rc != 0 ? rc : put_text(b, "changed", e->owner);
    } else {
        rc = rc != 0 ? rc : put_text(b, "lock", e->name);
        rc = rc != 0 || e->token == 0 ? rc : fli_buf_printf(b, ",\"token\":%" PRIu64, e->token);
        rc = rc != 0 ? rc : put_origin(b, "user", e->user, "address", e->address);
        rc = rc != 0 ? rc : put_text(b, "owner", e->owner);
    }
    if (of_user || e->type == MACHINE_EVENT_BROKEN) {
        rc = rc != 0 ? rc : put_origin(b, "by", e->by, "by_address", e->by_address);
    }
    rc = rc != 0 ? rc : fli_buf_printf(b, ",\"clock\":%" PRIu64, e->clock_ms);
    end(a, rc != 0 || !again ? rc : fli_buf_printf(b, ",\"again\":true"));
}

void audit_refusal(struct audit *a, const char *user, struct fli_slice address, const char *command,
                   const char *why)
{
    log_lost(a);
    int rc = begin(a, "refused");
    rc = rc != 0 ? rc : put_text(&a->line, "command", slice_of(command));
    rc = rc != 0 ? rc : put_text(&a->line, "why", slice_of(why));
    end(a, rc != 0 ? rc : put_origin(&a->line, "user", slice_of(user), "address", address));
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
    fli_buf_init(&a->line, LINE_MAX_BYTES);
    if (a->to_syslog) {
        openlog("fencelockd", LOG_PID, LOG_AUTHPRIV);
    } else if (!open_file(a)) {
        (void)snprintf(errmsg, errmsg_size, "cannot open the audit log %.256s: %s", target,
                       strerror(errno));
        free(a);
        return FL_EINVAL;
    }
    int rc = auth_worker_create(loop, 1, &a->worker);
    if (rc != 0) {
        (void)snprintf(errmsg, errmsg_size, "no thread can be made for the audit log");
        free(a);
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
        struct fli_buf empty = a->out;
        a->out = a->filling;
        a->filling = empty;
        work_write(&a->job);
    }
}
