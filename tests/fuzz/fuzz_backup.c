/* fuzz_backup.c: a backup of any bytes: it is whole, or there is a sentence, and the same one
 * twice. The first byte says whether its checksums are put right before. */
#include "fuzz.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "../lib/machine_check.h"
#include "snapshot_mend.h"

static int look(const char *path, struct snapshot_error *e)
{
    struct snapshot_meta meta = {0};
    struct machine *m = NULL;
    *e = (struct snapshot_error){0};
    int rc = snapshot_read_backup(path, &meta, &m, e);
    FLI_ASSERT((rc == 0) == (m != NULL));
    FLI_ASSERT(rc == e->code && (rc == 0 || e->text[0] != '\0'));
    if (rc == 0) {
        FLI_ASSERT(meta.file_size > meta.size);
        machine_check(m);
    }
    machine_destroy(m);
    return rc;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char path[64];
    struct snapshot_error e[2];
    struct snapshot_stream s = {0};
    if (size < 1) {
        return 0;
    }
    uint8_t *copy = malloc(size);
    FLI_ASSERT(copy != NULL);
    memcpy(copy, data + 1, size - 1);
    if ((data[0] & 1) != 0) {
        (void)snapshot_mend(copy, size - 1, &s);
    }
    int fd = memfd_create("backup", MFD_CLOEXEC);
    FLI_ASSERT(fd >= 0 && write(fd, copy, size - 1) == (ssize_t)(size - 1));
    (void)snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    FLI_ASSERT(look(path, &e[0]) == look(path, &e[1]));
    FLI_ASSERT(strcmp(e[0].text, e[1].text) == 0);
    (void)close(fd);
    free(copy);
    return 0;
}
