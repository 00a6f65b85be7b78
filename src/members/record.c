/* record.c: see record.h. */
#include "members/record.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/part.h"
#include "base/write.h"

#define RECORD_VERSION 6u /* no release wrote an earlier version */
#define FIELDS_OFFSET 16u
#define MEMBERS_OFFSET (106u + 48u * KNOWN_MEMBERS_MAX + 8u * MEMBERS_MAX)
#define MEMBERS_SIZE (MEMBERS_MAX * (MEMBER_ADDRESS_MAX + 22u))
#define CRC_OFFSET ((MEMBERS_OFFSET + MEMBERS_SIZE + 7) / 8 * 8)

_Static_assert(CRC_OFFSET + 4 == RECORD_SLOT_SIZE, "a slot is as record.h says");
_Static_assert(RECORD_SLOT_SIZE <= RECORD_SLOT_STEP, "slots do not overlap");

static const uint8_t MAGIC[8] = {'f', 'e', 'n', 'c', 'e', 'n', 'o', 'd'};
/* Versions before 5 were text. */
static const uint8_t TEXT_MAGIC[8] = {'f', 'e', 'n', 'c', 'e', 'l', 'o', 'c'};

/* ---- the founders ---- */

static uint64_t mix(uint64_t h, uint64_t v)
{
    h = (h ^ v) * UINT64_C(0x9e3779b97f4a7c15);
    return h ^ h >> 29;
}

void identity_found(struct identity *id, const uint64_t *incarnations)
{
    uint64_t cluster_id = mix(1, id->begun_crc);
    FLI_ASSERT(id->members.n <= MEMBERS_MAX && !id->joins);
    for (unsigned i = 0; i < id->members.n; i++) {
        id->founders[i] = incarnations[i];
        cluster_id = mix(cluster_id, incarnations[i]);
    }
    id->cluster_id = cluster_id == 0 ? 1 : cluster_id;
}

void identity_configuration(const struct identity *id, struct configuration *ret)
{
    memset(ret, 0, sizeof *ret);
    ret->cluster_id = id->cluster_id;
    for (unsigned i = 0; i < id->members.n; i++) {
        int rv = configuration_add(ret, id->members.list[i].id, id->founders[i],
                                   id->members.list[i].address, CONFIGURATION_VOTER);
        FLI_ASSERT(rv == 0);
    }
}

/* ---- a slot ---- */

/* From the sequence to the counts. */
static const struct fli_field FIELDS[] = {
    {FLI_U64, offsetof(struct record, sequence)},
    {FLI_U64, offsetof(struct record, identity.id)},
    {FLI_U64, offsetof(struct record, identity.incarnation)},
    {FLI_U64, offsetof(struct record, identity.cluster_id)},
    {FLI_BOOL, offsetof(struct record, identity.bootstrapped)},
    {FLI_BOOL, offsetof(struct record, identity.joins)},
    {FLI_U32, offsetof(struct record, identity.begun_crc)},
    {FLI_U64, offsetof(struct record, starts.own.number)},
    {FLI_U64, offsetof(struct record, starts.own.nonce)},
    {FLI_U64, offsetof(struct record, starts.next.number)},
    {FLI_U64, offsetof(struct record, starts.next.nonce)},
    {FLI_U64, offsetof(struct record, starts.term)},
    {FLI_U64, offsetof(struct record, starts.index)},
    {FLI_U32, offsetof(struct record, starts.n)},
};
#define FIELDS_N (sizeof FIELDS / sizeof FIELDS[0])

static bool get_members(const uint8_t *in, struct members *ret)
{
    char text[MEMBERS_SIZE + 1];
    char canonical[MEMBERS_TEXT_MAX] = {0};
    char errmsg[256];
    memcpy(text, in + MEMBERS_OFFSET, MEMBERS_SIZE);
    text[MEMBERS_SIZE] = '\0';
    if (members_parse(text, ret, errmsg, sizeof errmsg) != 0) {
        return false;
    }
    members_format(ret, canonical, sizeof canonical);
    return memcmp(canonical, text, MEMBERS_SIZE) == 0;
}

/* All or none, and each incarnation once. */
static bool founders_fit(const struct identity *id)
{
    bool all = identity_is_founded(id);
    bool fit = !all || id->cluster_id != 0;
    for (unsigned i = 0; fit && i < MEMBERS_MAX; i++) {
        fit = (id->founders[i] != 0) == (all && i < id->members.n);
        for (unsigned k = 0; k < i && i < id->members.n && all; k++) {
            fit = fit && id->founders[i] != id->founders[k];
        }
    }
    return fit;
}

void record_encode(const struct record *r, uint8_t out[RECORD_SLOT_SIZE])
{
    const struct identity *id = &r->identity;
    char text[MEMBERS_TEXT_MAX];
    size_t len = members_format(&id->members, text, sizeof text);
    FLI_ASSERT(len < MEMBERS_SIZE);
    FLI_ASSERT(r->starts.n <= KNOWN_MEMBERS_MAX);
    memset(out, 0, RECORD_SLOT_SIZE);
    memcpy(out, MAGIC, sizeof MAGIC);
    fli_put_u64(out + 8, RECORD_VERSION);
    uint8_t *at = fli_put_fields(out + FIELDS_OFFSET, FIELDS, FIELDS_N, r);
    for (unsigned i = 0; i < KNOWN_MEMBERS_MAX; i++) {
        at = fli_put_fields(at, starts_fields, STARTS_FIELDS, &r->starts.known[i]);
    }
    for (unsigned i = 0; i < MEMBERS_MAX; i++, at += 8) {
        fli_put_u64(at, id->founders[i]);
    }
    FLI_ASSERT(at == out + MEMBERS_OFFSET);
    memcpy(at, text, len);
    fli_put_u32(out + CRC_OFFSET, fli_crc32c(0, out, CRC_OFFSET));
}

int record_decode(const uint8_t in[RECORD_SLOT_SIZE], struct record *ret)
{
    struct identity *id = &ret->identity;
    struct fli_reader r;
    if (memcmp(in, MAGIC, sizeof MAGIC) != 0) {
        return FL_ECORRUPT;
    }
    if (fli_get_u64(in + 8) != RECORD_VERSION) {
        return FL_EVERSION;
    }
    memset(ret, 0, sizeof *ret);
    fli_reader_init(&r, in + FIELDS_OFFSET, MEMBERS_OFFSET - FIELDS_OFFSET);
    fli_read_fields(&r, FIELDS, FIELDS_N, ret);
    for (unsigned i = 0; i < KNOWN_MEMBERS_MAX; i++) {
        fli_read_fields(&r, starts_fields, STARTS_FIELDS, &ret->starts.known[i]);
    }
    for (unsigned i = 0; i < MEMBERS_MAX; i++) {
        id->founders[i] = fli_read_u64(&r);
    }
    return !r.bad && fli_get_u32(in + CRC_OFFSET) == fli_crc32c(0, in, CRC_OFFSET) &&
                   ret->starts.n <= KNOWN_MEMBERS_MAX && id->id != 0 && id->incarnation != 0 &&
                   get_members(in, &id->members) && founders_fit(id) &&
                   members_find(&id->members, id->id) != NULL
               ? 0
               : FL_ECORRUPT;
}

int record_choose(const uint8_t *file, size_t len, struct record *ret)
{
    struct record found[2];
    int rv[2];
    for (unsigned i = 0; i < 2; i++) {
        size_t at = (size_t)i * RECORD_SLOT_STEP;
        rv[i] = len < at + RECORD_SLOT_SIZE ? FL_ECORRUPT : record_decode(file + at, &found[i]);
    }
    if (rv[0] != 0 && rv[1] != 0) {
        bool is_text = len > sizeof TEXT_MAGIC && memcmp(file, TEXT_MAGIC, sizeof TEXT_MAGIC) == 0;
        return is_text || rv[1] == FL_EVERSION ? FL_EVERSION : rv[0];
    }
    bool first = rv[1] != 0 || (rv[0] == 0 && found[0].sequence >= found[1].sequence);
    *ret = first ? found[0] : found[1];
    return 0;
}

/* ---- the file ---- */

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

int record_write(int fd, const char *path, struct record *r)
{
    uint8_t slot[RECORD_SLOT_SIZE];
    int opened = fd < 0 ? open(path, O_WRONLY | O_CLOEXEC) : -1;
    r->sequence++;
    record_encode(r, slot);
    if (fd < 0 && opened < 0) {
        return errno == ENOENT ? create(path, slot) : FL_EIO;
    }
    fd = fd < 0 ? opened : fd;
    int rv = write_slot(fd, slot, 0);
    rv = rv != 0 ? rv : write_slot(fd, slot, RECORD_SLOT_STEP);
    return opened < 0 ? rv : closed(opened, rv);
}
