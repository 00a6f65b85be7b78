/* process.c: see listener.h. Values that /proc does not have are left out, not reported as 0. */
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/folder.h"
#include "metrics/listener.h"

static void memory(struct metrics_text *t)
{
    unsigned long long size = 0;
    unsigned long long resident = 0;
    FILE *f = fopen("/proc/self/statm", "re");
    if (f == NULL) {
        return;
    }
    bool read = fscanf(f, "%llu %llu", &size, &resident) == 2;
    (void)fclose(f);
    if (read) {
        uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
        metrics_gauge(t, "process_resident_memory_bytes", "Memory of this process that is in RAM.",
                      resident * page);
        metrics_gauge(t, "process_virtual_memory_bytes", "Addresses that this process has mapped.",
                      size * page);
    }
}

static void cpu(struct metrics_text *t)
{
    struct rusage u;
    if (getrusage(RUSAGE_SELF, &u) != 0) {
        return;
    }
    metrics_family(t, "process_cpu_seconds_total", "counter", "CPU time, user and system.");
    metrics_real(t, NULL,
                 (double)u.ru_utime.tv_sec + (double)u.ru_stime.tv_sec +
                     ((double)u.ru_utime.tv_usec + (double)u.ru_stime.tv_usec) / 1e6);
}

static int count_one(void *ctx, const char *name)
{
    *(uint64_t *)ctx += 1;
    return 0;
}

static void descriptors(struct metrics_text *t)
{
    struct rlimit files;
    uint64_t n = 0;
    if (fli_folder_each(AT_FDCWD, "/proc/self/fd", count_one, &n) != 0) {
        return;
    }
    metrics_gauge(t, "process_open_fds", "Open file descriptors.", n - 1); /* one of them was the
                                                                              folder's */
    if (getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur != RLIM_INFINITY) {
        metrics_gauge(t, "process_max_fds", "File descriptors that may be open.", files.rlim_cur);
    }
}

/* Field 22 of /proc/self/stat, in ticks since boot; 0 when it cannot be read. */
static unsigned long long start_ticks(void)
{
    char line[1024];
    unsigned long long ticks = 0;
    FILE *f = fopen("/proc/self/stat", "re");
    if (f == NULL) {
        return 0;
    }
    const char *p = fgets(line, sizeof line, f) == NULL ? NULL : strrchr(line, ')');
    for (int field = 2; p != NULL && field < 22; field++) {
        p = strchr(p + 1, ' ');
    }
    if (p != NULL && sscanf(p, "%llu", &ticks) != 1) {
        ticks = 0;
    }
    (void)fclose(f);
    return ticks;
}

static unsigned long long boot_seconds(void)
{
    char line[4096];
    unsigned long long seconds = 0;
    FILE *f = fopen("/proc/stat", "re");
    if (f == NULL) {
        return 0;
    }
    while (seconds == 0 && fgets(line, sizeof line, f) != NULL) {
        if (strncmp(line, "btime ", 6) == 0 && sscanf(line + 6, "%llu", &seconds) != 1) {
            break;
        }
    }
    (void)fclose(f);
    return seconds;
}

static void start_time(struct metrics_text *t)
{
    unsigned long long ticks = start_ticks();
    unsigned long long boot = boot_seconds();
    if (ticks > 0 && boot > 0) {
        metrics_family(t, "process_start_time_seconds", "gauge",
                       "When this process began, in seconds of Unix time.");
        metrics_milli(t, NULL, boot * 1000 + ticks * 1000 / (uint64_t)sysconf(_SC_CLK_TCK));
    }
}

void metrics_process(struct metrics_text *t)
{
    cpu(t);
    memory(t);
    descriptors(t);
    start_time(t);
}

bool metrics_disk(const char *path, uint64_t *ret_size, uint64_t *ret_free)
{
    struct statvfs v;
    if (statvfs(path, &v) != 0) {
        return false;
    }
    *ret_size = (uint64_t)v.f_blocks * v.f_frsize;
    *ret_free = (uint64_t)v.f_bavail * v.f_frsize;
    return true;
}
