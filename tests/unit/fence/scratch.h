/* scratch.h: a temporary directory per test. Header only, for the tests of fence and store. */
#ifndef TEST_SCRATCH_H
#define TEST_SCRATCH_H

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../../lib/rng.h"

struct scratch {
    char path[256];
    char data[300]; /* path of the database's directory, not created */
};

/* In memory, where there is a file system there: nothing here cuts the power, and a test of damage
 * opens thousands of databases, which waits for the disk each time. */
__attribute__((unused)) static void scratch_init(struct scratch *s)
{
    const char *memory = access("/dev/shm", W_OK | X_OK) == 0 ? "/dev/shm" : "/tmp";
    const char *base = getenv("TMPDIR");
    (void)snprintf(s->path, sizeof(s->path), "%s/fencelock-test-XXXXXX",
                   base != NULL ? base : memory);
    assert_non_null(mkdtemp(s->path));
    (void)snprintf(s->data, sizeof(s->data), "%s/d", s->path);
}

/* Removes a directory and what is in it, at most `depth` levels deep. */
__attribute__((unused)) static void scratch_remove(const char *path, unsigned depth)
{
    DIR *dir = opendir(path);
    if (dir == NULL) {
        return;
    }
    struct dirent *entry;
    while ((entry = readdir(dir)) != NULL) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) {
            continue;
        }
        char child[1024];
        (void)snprintf(child, sizeof(child), "%s/%s", path, entry->d_name);
        if (unlink(child) != 0 && depth > 0) {
            scratch_remove(child, depth - 1);
        }
    }
    (void)closedir(dir);
    (void)rmdir(path);
}

__attribute__((unused)) static void scratch_fini(struct scratch *s)
{
    scratch_remove(s->path, 3);
}

/* A whole small file in memory. The caller frees. */
__attribute__((unused)) static uint8_t *scratch_load(const char *dir, const char *name,
                                                     size_t *ret_len)
{
    char path[400];
    struct stat st;
    (void)snprintf(path, sizeof(path), "%s/%s", dir, name);
    int fd = open(path, O_RDONLY);
    assert_true(fd >= 0);
    assert_int_equal(fstat(fd, &st), 0);
    uint8_t *data = malloc((size_t)st.st_size + 1);
    assert_non_null(data);
    assert_int_equal(read(fd, data, (size_t)st.st_size), st.st_size);
    (void)close(fd);
    *ret_len = (size_t)st.st_size;
    return data;
}

__attribute__((unused)) static void scratch_store(const char *dir, const char *name,
                                                  const void *data, size_t len)
{
    char path[400];
    (void)snprintf(path, sizeof(path), "%s/%s", dir, name);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, data, len), (ssize_t)len);
    (void)close(fd);
}

#endif
