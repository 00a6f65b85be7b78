/* backup_target.c: see backup_target.h. */
#include "cli/backup_target.h"

#include <dirent.h>
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

static int sync_folder(struct backup_target *t)
{
    char folder[BACKUP_PATH_SIZE];
    const char *slash = strrchr(t->path, '/');
    int len = slash == NULL ? 0 : (int)(slash - t->path);
    (void)snprintf(folder, sizeof folder, "%.*s", len, t->path);
    const char *name = slash == NULL ? "." : len == 0 ? "/" : folder;
    int fd = open(name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    bool good = fd >= 0 && fsync(fd) == 0;
    int rc = good ? 0 : disk_error(t, "sync", name);
    if (fd >= 0) {
        close(fd);
    }
    return rc;
}

int backup_target_check(struct backup_target *t)
{
    struct stat st;
    bool there = stat(t->path, &st) == 0;
    if (t->path[0] == '\0') {
        (void)snprintf(t->error, sizeof t->error, "the name of the FILE is empty");
    } else if (there && S_ISDIR(st.st_mode)) {
        (void)snprintf(t->error, sizeof t->error,
                       "%.900s is a directory: name a file in it, or say --keep N", t->path);
    } else if (there && !S_ISREG(st.st_mode)) {
        (void)snprintf(t->error, sizeof t->error,
                       "%.900s is no regular file, and would be replaced by one: name a new file",
                       t->path);
    } else {
        return 0;
    }
    return FL_EINVAL;
}

int backup_target_open(struct backup_target *t)
{
    (void)snprintf(t->part, sizeof t->part, "%.4000s.part", t->path);
    /* The file names locks and users: only its owner may read it. */
    t->fd = open(t->part, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    t->bytes = 0;
    t->synced = 0;
    return t->fd >= 0 ? 0 : disk_error(t, "make", t->part);
}

int backup_target_close(struct backup_target *t, int rc)
{
    if (rc == 0 && fsync(t->fd) != 0) {
        rc = disk_error(t, "sync", t->part);
    }
    close(t->fd);
    return rc;
}

/* ---- older backups in the same folder -------------------------------------------------------- */

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static bool is_backup(const char *name, const char *start)
{
    size_t len = strlen(name);
    return strncmp(name, start, strlen(start)) == 0 && len > sizeof BACKUP_SUFFIX &&
           strcmp(name + len - (sizeof BACKUP_SUFFIX - 1), BACKUP_SUFFIX) == 0;
}

/* The backups whose names begin with `start`, sorted by name, and so by time. */
static size_t list_folder(const char *folder, const char *start, char **names)
{
    size_t n = 0;
    DIR *dir = opendir(folder);
    for (struct dirent *e = dir == NULL ? NULL : readdir(dir); e != NULL && n < KEPT_MAX;
         e = readdir(dir)) {
        if (is_backup(e->d_name, start) && (names[n] = strdup(e->d_name)) != NULL) {
            n++;
        }
    }
    if (dir != NULL) {
        closedir(dir);
    }
    qsort(names, n, sizeof *names, by_name);
    return n;
}

int backup_target_keep(struct backup_target *t, const char *folder, const char *start,
                       uint64_t keep, uint64_t *ret_removed)
{
    static char *names[KEPT_MAX];
    char path[BACKUP_PATH_SIZE];
    size_t n = list_folder(folder, start, names);
    int rc = 0;
    for (size_t i = 0; i < n; i++) {
        (void)snprintf(path, sizeof path, "%.3000s/%.255s", folder, names[i]);
        if (i + keep < n && rc == 0) {
            rc = unlink(path) == 0 ? 0 : disk_error(t, "remove", path);
            *ret_removed += rc == 0;
        }
        free(names[i]);
    }
    return rc;
}

/* ---- the name of a backup -------------------------------------------------------------------- */

int backup_target_rename(struct backup_target *t)
{
    if (rename(t->part, t->path) != 0) {
        return disk_error(t, "rename", t->part);
    }
    return sync_folder(t);
}

static struct tm utc_of(uint64_t made_ms)
{
    time_t seconds = (time_t)(made_ms / 1000);
    struct tm utc;
    (void)gmtime_r(&seconds, &utc);
    return utc;
}

void backup_format_time(uint64_t made_ms, char out[BACKUP_WHEN_SIZE])
{
    struct tm utc = utc_of(made_ms);
    (void)strftime(out, BACKUP_WHEN_SIZE, "%Y-%m-%dT%H:%M:%SZ", &utc);
}

void backup_format_file_time(uint64_t made_ms, char out[BACKUP_WHEN_SIZE])
{
    struct tm utc = utc_of(made_ms);
    (void)strftime(out, BACKUP_WHEN_SIZE, "%Y%m%dT%H%M%SZ", &utc);
}
