/* fence_backend.c: a storage of files, one a key, that refuses stale writers. It knows nothing of
 * fencelock but fence.h.
 *
 *   fence_backend DIR claim LOCK TOKEN          before the first read of a new holder
 *   fence_backend DIR put LOCK TOKEN KEY VALUE  write
 *
 * fl_fence_open() lets one process at a time in, so between an admission and the end of its write
 * nobody else is admitted: that is what the library asks of a storage without transactions.
 * Exit code: 0 done, 1 stale, 2 anything else. */
#include <fencelock/fence.h>

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Whole or not at all: written aside, synced, renamed, and the name synced too. */
static int put(int dir, const char *key, const char *value)
{
    size_t len = strlen(value);
    int fd = openat(dir, ".new", O_WRONLY | O_CREAT | O_TRUNC, 0600);
    if (fd < 0 || write(fd, value, len) != (ssize_t)len || fsync(fd) != 0 || close(fd) != 0) {
        return -1;
    }
    return renameat(dir, ".new", dir, key) != 0 ? -1 : fsync(dir);
}

int main(int argc, char **argv)
{
    int is_put = argc == 7 && strcmp(argv[2], "put") == 0;
    if (is_put ? argv[5][0] == '.' || strchr(argv[5], '/') != NULL
               : argc != 5 || strcmp(argv[2], "claim") != 0) {
        fprintf(stderr, "usage: %s DIR claim LOCK TOKEN | DIR put LOCK TOKEN KEY VALUE\n", argv[0]);
        return 2;
    }
    char marks[512];
    snprintf(marks, sizeof(marks), "%s/.marks", argv[1]);
    fl_fence *fence;
    fl_token mark = FL_TOKEN_NONE;
    int rc = fl_fence_open(marks, 0, &fence);
    if (rc == 0) {
        fl_token token = strtoull(argv[4], NULL, 10);
        rc = fl_fence_admit(fence, argv[3], strlen(argv[3]), token, &mark);
        if (rc == 0 && is_put && put(open(argv[1], O_RDONLY), argv[5], argv[6]) != 0) {
            rc = FL_EIO;
        }
        fl_fence_close(fence); /* only now may the next one be admitted */
    }
    if (rc == FL_ESTALE) {
        fprintf(stderr, "refused: token %s is below the mark %" PRIu64 "\n", argv[4], mark);
    } else if (rc != 0) {
        fprintf(stderr, "failed: %s\n", fl_strerror(rc));
    }
    return rc == 0 ? 0 : rc == FL_ESTALE ? 1 : 2;
}
