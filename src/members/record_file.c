/* record_file.c: reads and writes the file of record.h. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "base/part.h"
#include "base/write.h"
#include "members/record.h"

static int closed(int fd, int rv)
{
    int saved = errno;
    close(fd);
    errno = saved;
    return rv;
}

static int read_fd(int fd, struct record *ret)
{
    uint8_t file[RECORD_FILE_SIZE];
    size_t len = 0;
    ssize_t n = 1;
    while (n > 0 && len < sizeof file) {
        n = read(fd, file + len, sizeof file - len);
        len += n > 0 ? (size_t)n : 0;
    }
    return n < 0 ? FL_ESYSTEM : record_choose(file, len, ret);
}

int record_peek(const char *path, struct record *ret)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return errno == ENOENT ? FL_ENOTFOUND : FL_ESYSTEM;
    }
    return closed(fd, read_fd(fd, ret));
}

/* The folder of a witness may be closed to this user. */
int record_read(const char *path, struct record *ret)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return errno == ENOENT ? FL_ENOTFOUND : FL_ESYSTEM;
    }
    bool durable =
        fsync(fd) == 0 && (fli_sync_folder_of(path) == 0 || errno == EACCES || errno == EPERM);
    return closed(fd, durable ? read_fd(fd, ret) : FL_ESYSTEM);
}

/* Makes the file so that it exists whole or not at all. */
static int create(const char *path, const uint8_t slot[RECORD_SLOT_SIZE])
{
    uint8_t file[RECORD_FILE_SIZE] = {0};
    memcpy(file, slot, RECORD_SLOT_SIZE);
    memcpy(file + RECORD_SLOT_STEP, slot, RECORD_SLOT_SIZE);
    return fli_replace_file(path, file, sizeof file);
}

static int write_slot(int fd, const uint8_t slot[RECORD_SLOT_SIZE], off_t at)
{
    ssize_t n = pwrite(fd, slot, RECORD_SLOT_SIZE, at);
    if (n >= 0 && (size_t)n != RECORD_SLOT_SIZE) {
        errno = ENOSPC;
    }
    return n == (ssize_t)RECORD_SLOT_SIZE && fdatasync(fd) == 0 ? 0 : FL_EIO;
}

int record_write_fd(int fd, struct record *r)
{
    uint8_t slot[RECORD_SLOT_SIZE];
    r->sequence++;
    record_encode(r, slot);
    int rv = write_slot(fd, slot, 0);
    return rv != 0 ? rv : write_slot(fd, slot, RECORD_SLOT_STEP);
}

int record_write(const char *path, struct record *r)
{
    uint8_t slot[RECORD_SLOT_SIZE];
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd >= 0) {
        return closed(fd, record_write_fd(fd, r));
    }
    r->sequence++;
    record_encode(r, slot);
    return errno == ENOENT ? create(path, slot) : FL_EIO;
}
