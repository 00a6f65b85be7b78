/* starts_file.c: reads and writes the file of starts.h. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/part.h"
#include "base/write.h"
#include "consensus/starts.h"

static int closed(int fd, int rv)
{
    int saved = errno;
    close(fd);
    errno = saved;
    return rv;
}

int starts_read(const char *path, struct starts *ret)
{
    uint8_t file[STARTS_FILE_SIZE];
    size_t len = 0;
    ssize_t n = 1;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return errno == ENOENT ? FL_ENOTFOUND : FL_ESYSTEM;
    }
    while (n > 0 && len < sizeof file) {
        n = read(fd, file + len, sizeof file - len);
        len += n > 0 ? (size_t)n : 0;
    }
    /* Who made the file may have been killed. A witness's folder may be closed to this user. */
    if (n < 0 || (fli_sync_folder_of(path) != 0 && errno != EACCES && errno != EPERM)) {
        return closed(fd, FL_ESYSTEM);
    }
    return closed(fd, starts_choose(file, len, ret));
}

/* Makes the file so that it exists whole or not at all. */
static int create(const char *path, const uint8_t slot[STARTS_SLOT_SIZE])
{
    uint8_t file[STARTS_FILE_SIZE] = {0};
    memcpy(file, slot, STARTS_SLOT_SIZE);
    memcpy(file + STARTS_SLOT_STEP, slot, STARTS_SLOT_SIZE);
    return fli_replace_file(path, file, sizeof file);
}

static int write_slot(int fd, const uint8_t slot[STARTS_SLOT_SIZE], off_t at)
{
    ssize_t n = pwrite(fd, slot, STARTS_SLOT_SIZE, at);
    if (n >= 0 && (size_t)n != STARTS_SLOT_SIZE) {
        errno = ENOSPC;
    }
    return n == (ssize_t)STARTS_SLOT_SIZE && fdatasync(fd) == 0 ? 0 : FL_EIO;
}

int starts_write_fd(int fd, struct starts *s)
{
    uint8_t slot[STARTS_SLOT_SIZE];
    s->sequence++;
    starts_encode(s, slot);
    int rv = write_slot(fd, slot, 0);
    return rv != 0 ? rv : write_slot(fd, slot, STARTS_SLOT_STEP);
}

int starts_write(const char *path, struct starts *s)
{
    uint8_t slot[STARTS_SLOT_SIZE];
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd >= 0) {
        return closed(fd, starts_write_fd(fd, s));
    }
    s->sequence++;
    starts_encode(s, slot);
    return errno == ENOENT ? create(path, slot) : FL_EIO;
}
