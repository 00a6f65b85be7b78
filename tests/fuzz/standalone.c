/* standalone.c: runs a fuzz target over the files it is given, and over the files in the
 * directories it is given: each input whole, and each of its prefixes, since a truncated input is
 * the likeliest of all bad ones. For compilers without libFuzzer, and for the normal test run. */
#include "fuzz.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define FILE_MAX_SIZE (1u << 20)
#define PREFIXES_MAX 4096u /* longer inputs are cut at this many places only */

static size_t files;

/* A copy of exactly this size, so that ASan sees a read too far. */
static void run_one(const uint8_t *data, size_t size)
{
    uint8_t *copy = malloc(size == 0 ? 1 : size);
    if (copy == NULL) {
        fprintf(stderr, "out of memory\n");
        exit(2);
    }
    if (size > 0) {
        memcpy(copy, data, size);
    }
    (void)LLVMFuzzerTestOneInput(copy, size);
    free(copy);
}

static void run_file(const char *path)
{
    static uint8_t data[FILE_MAX_SIZE];
    FILE *f = fopen(path, "rb");
    if (f == NULL) {
        fprintf(stderr, "%s: %s\n", path, strerror(errno));
        exit(2);
    }
    size_t size = fread(data, 1, sizeof data, f);
    if (ferror(f) != 0 || fgetc(f) != EOF) {
        fprintf(stderr, "%s: cannot be read, or is larger than %u bytes\n", path, FILE_MAX_SIZE);
        exit(2);
    }
    (void)fclose(f);
    size_t step = size / PREFIXES_MAX + 1;
    for (size_t n = 0; n < size; n += step) {
        run_one(data, n);
    }
    run_one(data, size);
    files++;
}

static void run_dir(const char *path)
{
    DIR *dir = opendir(path);
    if (dir == NULL) {
        fprintf(stderr, "%s: %s\n", path, strerror(errno));
        exit(2);
    }
    struct dirent *entry;
    while ((entry = readdir(dir)) != NULL) {
        char file[4096];
        int n = snprintf(file, sizeof file, "%s/%s", path, entry->d_name);
        if (entry->d_name[0] != '.' && n > 0 && (size_t)n < sizeof file) {
            run_file(file);
        }
    }
    (void)closedir(dir);
}

int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        struct stat st;
        if (stat(argv[i], &st) == 0 && S_ISDIR(st.st_mode)) {
            run_dir(argv[i]);
        } else {
            run_file(argv[i]);
        }
    }
    if (files == 0) {
        fprintf(stderr, "usage: %s FILE|DIRECTORY...; there was no input\n", argv[0]);
        return 2;
    }
    printf("%zu inputs and their prefixes\n", files);
    return 0;
}
