/* fence_backend.c: a storage of files, one a key, that refuses stale writers.
 *   fence_backend DIR claim LOCK TOKEN          before the first read of a new holder
 *   fence_backend DIR put LOCK TOKEN KEY VALUE  write
 * One process at a time may have it open, so nobody else is admitted until the write has ended. */
#include <fcntl.h>
#include <fencelock/fence.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Whole or not at all: written aside, synced, renamed, and the name synced too. */
static int put(int dir, const char *key, const char *value)
{
    ssize_t len = (ssize_t)strlen(value);
    int fd = openat(dir, ".new", O_WRONLY | O_CREAT | O_TRUNC, 0600);
    int bad = fd < 0 || write(fd, value, strlen(value)) != len || fsync(fd) || close(fd);
    return bad || renameat(dir, ".new", dir, key) || fsync(dir) ? FL_EIO : 0;
}

int main(int argc, char **argv)
{
    fl_fence *fence;
    fl_token mark, token = argc > 4 ? strtoull(argv[4], NULL, 10) : 0;
    int is_put = argc == 7 && !strcmp(argv[2], "put") && argv[5][0] != '.' && !strchr(argv[5], '/');
    if (!is_put && (argc != 5 || strcmp(argv[2], "claim") != 0)) {
        fputs("usage: fence_backend DIR claim LOCK TOKEN | DIR put LOCK TOKEN KEY VALUE\n", stderr);
        return 2;
    }
    int rc = chdir(argv[1]) ? FL_EIO : fl_fence_open(".marks", 0, &fence);
    if (rc == 0) {
        rc = fl_fence_admit(fence, argv[3], strlen(argv[3]), token, &mark);
        rc = rc == 0 && is_put ? put(open(".", O_RDONLY), argv[5], argv[6]) : rc;
        fl_fence_close(fence); /* only now may the next one be admitted */
    }
    if (rc == FL_ESTALE) {
        fprintf(stderr, "token %s is below the mark %llu\n", argv[4], (unsigned long long)mark);
    }
    return rc == 0 ? 0 : rc == FL_ESTALE ? 1 : 2;
}
