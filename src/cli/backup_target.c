/* backup_target.c: see backup_target.h. */
#include "cli/backup_target.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/folder.h"
#include "base/part.h"
#include "base/utc.h"
#include "base/write.h"

#define KEPT_MAX 10000u
#define NICE_VALUE 10
#define SYNC_BYTES (UINT64_C(1) << 20)
#define PAUSE_MAX_NS UINT64_C(50000000)

void backup_lower_priority(void)
{
    (void)sched_setscheduler(0, SCHED_BATCH, &(struct sched_param){0});
    (void)setpriority(PRIO_PROCESS, 0, NICE_VALUE);
}

/* ---- the file -------------------------------------------------------------------------------- */

static int disk_error(struct backup_target *t, const char *what, const char *path)
{
    (void)snprintf(t->error, sizeof t->error, "cannot %s %.900s: %s", what, path, strerror(errno));
    return FL_EIO;
}

/* One sync of the whole file at the end would hold up the log of a node on the same disk. */
static int sync_and_pause(struct backup_target *t)
{
    uint64_t start_ns = fli_clock_ns();
    if (fdatasync(t->fd) != 0) {
        return disk_error(t, "sync", t->part);
    }
    uint64_t pause_ns = fli_clock_ns() - start_ns;
    pause_ns = pause_ns < PAUSE_MAX_NS ? pause_ns : PAUSE_MAX_NS;
    struct timespec pause = {.tv_nsec = (long)pause_ns};
    (void)nanosleep(&pause, NULL);
    t->synced = t->bytes;
    return 0;
}

int backup_target_write(void *arg, const void *data, size_t len)
{
    struct backup_target *t = arg;
    if (fli_write_all(t->fd, data, len) != 0) {
        return disk_error(t, "write", t->part);
    }
    t->bytes += len;
    return t->bytes - t->synced < SYNC_BYTES ? 0 : sync_and_pause(t);
}

void backup_target_init(struct backup_target *t, bool replace)
{
    *t = (struct backup_target){.fd = -1, .replace = replace};
}

static int refuse(struct backup_target *t, int code, const char *remedy)
{
    (void)snprintf(t->error, sizeof t->error, "%.800s %s", t->path, remedy);
    return code;
}

int backup_target_check(struct backup_target *t)
{
    struct stat st;
    if (lstat(t->path, &st) != 0) {
        return 0; /* whatever is wrong with the name, making the file says it */
    }
    if (S_ISDIR(st.st_mode)) {
        return refuse(t, FL_EINVAL, "is a folder: name a file in it, or add --keep N");
    }
    if (!t->replace) {
        return refuse(t, FL_EEXISTS,
                      "exists, and may be the only good backup: choose another name, let --keep N "
                      "FOLDER choose one, or add --replace");
    }
    return S_ISREG(st.st_mode) ? 0 : refuse(t, FL_EINVAL, "is no regular file: choose another");
}

int backup_target_open(struct backup_target *t)
{
    t->bytes = 0;
    t->synced = 0;
    if (t->fd >= 0) {
        bool empty = ftruncate(t->fd, 0) == 0 && lseek(t->fd, 0, SEEK_SET) == 0;
        return empty ? 0 : disk_error(t, "empty", t->part);
    }
    t->fd = fli_part_open(t->part);
    if (t->fd < 0 && errno == EBUSY) {
        return refuse(t, FL_EBUSY, "is being written by another process");
    }
    return t->fd >= 0 ? 0 : disk_error(t, "make", t->part);
}

int backup_target_sync(struct backup_target *t, int rc)
{
    return rc == 0 && fsync(t->fd) != 0 ? disk_error(t, "sync", t->part) : rc;
}

void backup_target_fini(struct backup_target *t)
{
    if (t->fd >= 0) {
        (void)unlink(t->part);
        (void)close(t->fd);
        t->fd = -1;
    }
}

/* ---- older backups in the same folder -------------------------------------------------------- */

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Where the number at the end of the name begins. It has the same number of digits in all. */
static const char *number_of(const char *name)
{
    const char *dash = strrchr(name, '-');
    return dash != NULL ? dash : name;
}

static int by_number(const void *a, const void *b)
{
    int order = strcmp(number_of(*(char *const *)a), number_of(*(char *const *)b));
    return order != 0 ? order : by_name(a, b);
}

static bool is_backup(const char *name, const char *start)
{
    size_t len = strlen(name);
    return strncmp(name, start, strlen(start)) == 0 && len > sizeof BACKUP_SUFFIX &&
           strcmp(name + len - (sizeof BACKUP_SUFFIX - 1), BACKUP_SUFFIX) == 0;
}

/* The backups whose names begin with `start`, without `made`, the one that was just made. */
struct listing {
    const char *start, *made;
    size_t n;
    char *names[KEPT_MAX];
};

static int list_one(void *ctx, const char *name)
{
    struct listing *l = ctx;
    if (!is_backup(name, l->start) || strcmp(name, l->made) == 0 || l->n == KEPT_MAX) {
        return 0;
    }
    l->names[l->n] = strdup(name);
    if (l->names[l->n] == NULL) {
        return -ENOMEM;
    }
    l->n++;
    return 0;
}

int backup_target_keep(struct backup_target *t, const char *folder, const char *start,
                       bool by_index, uint64_t keep, uint64_t *ret_removed)
{
    static struct listing l;
    char path[BACKUP_PATH_SIZE];
    FLI_ASSERT(keep > 0);
    l = (struct listing){.start = start, .made = strrchr(t->path, '/') + 1};
    int rv = fli_folder_each(AT_FDCWD, folder, list_one, &l);
    char **names = l.names;
    size_t n = l.n;
    uint64_t surplus = n > keep - 1 ? n - (keep - 1) : 0;
    errno = -rv;
    int rc = rv == 0 ? 0 : disk_error(t, "read the folder", folder);
    qsort(names, n, sizeof *names, by_index ? by_number : by_name);
    for (size_t i = 0; i < n; i++) {
        (void)snprintf(path, sizeof path, "%.3000s/%.255s", folder, names[i]);
        if (i < surplus && rc == 0) {
            rc = unlink(path) == 0 ? 0 : disk_error(t, "remove the old backup", path);
            *ret_removed += rc == 0;
        }
        free(names[i]);
    }
    return rc;
}

/* ---- the name of a backup -------------------------------------------------------------------- */

int backup_target_rename(struct backup_target *t)
{
    if (fli_part_publish(t->part, t->path, t->replace) != 0) {
        return errno == EEXIST ? backup_target_check(t) : disk_error(t, "rename or sync", t->path);
    }
    (void)close(t->fd); /* `part` is a name that another process may take now */
    t->fd = -1;
    return 0;
}

void backup_format_time(uint64_t made_ms, char out[BACKUP_WHEN_SIZE])
{
    fli_utc(out, made_ms - made_ms % 1000);
    char *fraction = strchr(out, '.');
    memcpy(fraction, "Z", 2);
}

void backup_format_file_time(uint64_t made_ms, char out[BACKUP_WHEN_SIZE])
{
    size_t n = 0;
    backup_format_time(made_ms, out);
    for (const char *p = out; *p != '\0'; p++) {
        out[n] = *p;
        n += *p != '-' && *p != ':';
    }
    out[n] = '\0';
}
