/* fuzz_backup.c: a backup of any bytes: it is whole, or there is a sentence, and the same one
 * twice. The first byte says what is put right before: the header's checksum (bit 0), its magic
 * and version too (bit 1). */
#include "fuzz.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "../lib/machine_check.h"
#include "base/bytes.h"
#include "consensus/backup_file.h"

#define ERROR_SIZE 512

static void mend(uint8_t *data, size_t len, unsigned what)
{
    if (len < BACKUP_HEADER) {
        return;
    }
    if ((what & 2) != 0) {
        memcpy(data, "FLBACKUP\1\0\0\0", 12);
    }
    if ((what & 1) != 0) {
        uint32_t crc = fli_crc32c(fli_crc32c(0, data, 12), data + 16, BACKUP_HEADER - 16);
        fli_put_u32(data + 12, crc);
    }
}

static int look(const char *path, char error[ERROR_SIZE])
{
    struct backup_header h;
    struct machine *m = NULL;
    error[0] = '\0';
    int rc = backup_file_read(path, &h, &m, error, ERROR_SIZE);
    FLI_ASSERT((rc == 0) == (m != NULL));
    FLI_ASSERT(rc == 0 || error[0] != '\0');
    if (rc == 0) {
        FLI_ASSERT(machine_last_token(m) == h.last_token && machine_cluster_id(m) == h.cluster_id);
        machine_check(m);
    }
    machine_destroy(m);
    return rc;
}

static void header_round_trip(const uint8_t *data)
{
    struct backup_header h;
    uint8_t again[BACKUP_HEADER];
    const char *why = NULL;
    if (backup_header_decode(data, &h, &why) == 0) {
        backup_header_encode(&h, again);
        FLI_ASSERT(memcmp(again, data, BACKUP_HEADER) == 0);
    } else {
        FLI_ASSERT(why != NULL);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char path[64];
    char error[2][ERROR_SIZE];
    if (size < 1) {
        return 0;
    }
    uint8_t *copy = malloc(size);
    FLI_ASSERT(copy != NULL);
    memcpy(copy, data + 1, size - 1);
    mend(copy, size - 1, data[0]);
    if (size - 1 >= BACKUP_HEADER) {
        header_round_trip(copy);
    }
    int fd = memfd_create("backup", MFD_CLOEXEC);
    FLI_ASSERT(fd >= 0 && write(fd, copy, size - 1) == (ssize_t)(size - 1));
    (void)snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    FLI_ASSERT(look(path, error[0]) == look(path, error[1]));
    FLI_ASSERT(strcmp(error[0], error[1]) == 0);
    (void)close(fd);
    free(copy);
    return 0;
}
