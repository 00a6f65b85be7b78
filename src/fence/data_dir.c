/* data_dir.c: see data_dir.h. */
#include "fence/data_dir.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/write.h"

#define OWNER_FILE "owner"
#define LINE_MAX 64u
#define OLD_DATABASE "data.mdb" /* of the first format, which nobody reads any more */
#define NOTE_FORMAT "commit %020" PRIu64 " %08" PRIx32 "\n"
#define NOTE_LEN 37u

static int system_error(const char *what, const char *name, char *errmsg, size_t errmsg_size)
{
    return fli_refuse(errmsg, errmsg_size, FL_EIO, "cannot %s %s: %s", what, name, strerror(errno));
}

/* Until the line says that the database exists, since an earlier start may have been killed after
 * it had made the directory. The parent of one that an operator has made may be closed to us, or of
 * a file system that cannot do it. */
static int sync_name(const char *dir, bool made, char *errmsg, size_t errmsg_size)
{
    if (fli_sync_folder_of(dir) == 0) {
        return 0;
    }
    bool cannot = errno == EACCES || errno == EPERM || errno == EROFS || errno == EINVAL;
    return cannot && !made ? 0 : system_error("sync the parent of", dir, errmsg, errmsg_size);
}

static int open_directory(const char *dir, bool *ret_made, char *errmsg, size_t errmsg_size,
                          int *ret_fd)
{
    *ret_made = mkdir(dir, 0700) == 0;
    if (!*ret_made && errno != EEXIST) {
        return system_error("create the directory", dir, errmsg, errmsg_size);
    }
    int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) {
        return system_error("open the directory", dir, errmsg, errmsg_size);
    }
    *ret_fd = fd;
    return 0;
}

static int line_of(const char *kind, char line[LINE_MAX])
{
    int n = snprintf(line, LINE_MAX, "fencelock %s 2\n", kind);
    FLI_ASSERT(n > 0);
    FLI_ASSERT((unsigned)n < LINE_MAX);
    return n;
}

static void note_of(uint64_t commit, char note[NOTE_LEN + 1])
{
    uint8_t raw[8];
    fli_put_u64(raw, commit);
    int n = snprintf(note, NOTE_LEN + 1, NOTE_FORMAT, commit, fli_crc32c(0, raw, sizeof(raw)));
    FLI_ASSERT(n == (int)NOTE_LEN);
}

/* A file that was cut short names no commit; one that was damaged may name any. */
static int read_note(struct fli_data_dir *d, const char *dir, const char *have, size_t len,
                     char *errmsg, size_t errmsg_size)
{
    char want[NOTE_LEN + 1];
    if (len < NOTE_LEN) {
        return 0;
    }
    bool is_number = fli_parse_u64(have + 7, 20, UINT64_MAX, &d->noted);
    note_of(is_number ? d->noted : 0, want);
    if (is_number && len == NOTE_LEN && memcmp(have, want, NOTE_LEN) == 0) {
        return 0;
    }
    return fli_refuse(errmsg, errmsg_size, FL_ECORRUPT,
                      "the file %s in %s is damaged: restore a backup", OWNER_FILE, dir);
}

static int refuse_version(const struct fli_data_dir *d, const char *dir, const char *kind,
                          char *errmsg, size_t errmsg_size)
{
    if (faccessat(d->dir_fd, OLD_DATABASE, F_OK, 0) == 0) {
        return fli_refuse(errmsg, errmsg_size, FL_EVERSION,
                          "%s holds data of an older format (%s), which this version does not "
                          "read: begin with an empty directory",
                          dir, OLD_DATABASE);
    }
    return fli_refuse(errmsg, errmsg_size, FL_EVERSION,
                      "%s is not a fencelock %s directory of this version (see its file %s)", dir,
                      kind, OWNER_FILE);
}

/* A crash while the lines were being written leaves a part of them, or zeros. That counts as none,
 * since they are written last. Any other content was not written by fencelock. */
static int read_lines(struct fli_data_dir *d, const char *dir, const char *kind, char *errmsg,
                      size_t errmsg_size)
{
    char want[LINE_MAX] = {0};
    char have[LINE_MAX + NOTE_LEN + 1] = {0};
    size_t len = (size_t)line_of(kind, want);
    ssize_t n = pread(d->owner_fd, have, sizeof(have), 0);
    if (n < 0) {
        return system_error("read the owner file in", dir, errmsg, errmsg_size);
    }
    d->note_at = (unsigned)len;
    d->established = (size_t)n >= len && memcmp(have, want, len) == 0;
    if (d->established) {
        return read_note(d, dir, have + len, (size_t)n - len, errmsg, errmsg_size);
    }
    size_t text = strnlen(have, (size_t)n);
    bool torn = (size_t)n <= len + NOTE_LEN && text <= len && memcmp(have, want, text) == 0;
    for (size_t i = text; torn && i < (size_t)n; i++) {
        torn = have[i] == '\0';
    }
    bool is_old = faccessat(d->dir_fd, OLD_DATABASE, F_OK, 0) == 0;
    return torn && !is_old ? 0 : refuse_version(d, dir, kind, errmsg, errmsg_size);
}

/* The process that has locked the file; 0: the kernel does not say. */
static long locked_by(int fd)
{
    char line[256];
    char kind[16];
    struct stat st;
    long pid;
    unsigned long inode;
    long found = 0;
    unsigned n = 0;
    FILE *f = fstat(fd, &st) == 0 ? fopen("/proc/locks", "re") : NULL;
    /* 1: FLOCK  ADVISORY  WRITE 4711 08:01:131073 0 EOF */
    while (f != NULL && fgets(line, sizeof(line), f) != NULL) {
        if (sscanf(line, "%*s %15s %*s %*s %ld %*x:%*x:%lu", kind, &pid, &inode) == 3 &&
            strcmp(kind, "FLOCK") == 0 && inode == st.st_ino && pid > 0) {
            found = pid;
            n++;
        }
    }
    if (f != NULL) {
        (void)fclose(f);
    }
    return n == 1 ? found : 0; /* two: files of two file systems have the number */
}

static int refuse_locked(int fd, const char *dir, char *errmsg, size_t errmsg_size)
{
    char whose[32] = "";
    long pid = locked_by(fd);
    if (pid > 0) {
        (void)snprintf(whose, sizeof(whose), " (pid %ld)", pid);
    }
    return fli_refuse(errmsg, errmsg_size, FL_EBUSY,
                      "another process%s is using %s: stop that one, or use a directory of its own",
                      whose, dir);
}

static int take(struct fli_data_dir *d, const char *dir, const char *kind, char *errmsg,
                size_t errmsg_size)
{
    d->owner_fd = openat(d->dir_fd, OWNER_FILE, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (d->owner_fd < 0) {
        return system_error("open the owner file in", dir, errmsg, errmsg_size);
    }
    if (flock(d->owner_fd, LOCK_EX | LOCK_NB) != 0) {
        if (errno == EWOULDBLOCK) {
            return refuse_locked(d->owner_fd, dir, errmsg, errmsg_size);
        }
        return system_error("lock the owner file in", dir, errmsg, errmsg_size);
    }
    return read_lines(d, dir, kind, errmsg, errmsg_size);
}

int fli_data_dir_open(const char *dir, const char *kind, struct fli_data_dir *ret, char *errmsg,
                      size_t errmsg_size)
{
    struct fli_data_dir d = {.dir_fd = -1, .owner_fd = -1};
    bool made = false;
    int rc = open_directory(dir, &made, errmsg, errmsg_size, &d.dir_fd);
    if (rc == 0) {
        rc = take(&d, dir, kind, errmsg, errmsg_size);
    }
    if (rc == 0 && !d.established) {
        rc = sync_name(dir, made, errmsg, errmsg_size);
    }
    if (rc != 0) {
        fli_data_dir_close(&d);
        return rc;
    }
    *ret = d;
    return 0;
}

int fli_data_dir_establish(struct fli_data_dir *d, const char *kind, char *errmsg,
                           size_t errmsg_size)
{
    char lines[LINE_MAX + NOTE_LEN + 1] = {0};
    size_t len = (size_t)line_of(kind, lines);
    note_of(d->noted, lines + len);
    len += NOTE_LEN;
    ssize_t n = pwrite(d->owner_fd, lines, len, 0);
    if (n >= 0 && (size_t)n != len) {
        errno = ENOSPC;
    }
    if (n < 0 || (size_t)n != len || ftruncate(d->owner_fd, (off_t)len) != 0 ||
        fsync(d->owner_fd) != 0 || fsync(d->dir_fd) != 0) {
        return system_error("write", "the owner file", errmsg, errmsg_size);
    }
    d->established = true;
    return 0;
}

void fli_data_dir_note(struct fli_data_dir *d, uint64_t commit)
{
    char note[NOTE_LEN + 1];
    note_of(commit, note);
    d->noted = commit;
    (void)!pwrite(d->owner_fd, note, NOTE_LEN, (off_t)d->note_at);
}

void fli_data_dir_close(struct fli_data_dir *d)
{
    if (d->owner_fd >= 0) {
        (void)close(d->owner_fd);
    }
    if (d->dir_fd >= 0) {
        (void)close(d->dir_fd);
    }
    d->owner_fd = -1;
    d->dir_fd = -1;
}
