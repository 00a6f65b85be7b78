/* ballot.c: see ballot.h. The library's files (uv_metadata.c of 0.22.1) are words of 8, little
 * endian: 1, version, term, vote. Odd versions stand in metadata1, even ones in metadata2; the
 * newer one counts, and a file that is too short does not. */
#include "consensus/ballot.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/bytes.h"
#include "consensus/durable.h"
#include "consensus/segments.h"

#define MAGIC "FLBALLOT"
#define CHECKED 32 /* bytes of a slot */
#define FORMAT 1   /* of the library's files */
#define FILE_PATH_MAX (sizeof((struct data_dir *)0)->raft_path + 32)

void ballot_encode(const struct ballot *b, uint8_t slot[BALLOT_SLOT_LEN])
{
    memcpy(slot, MAGIC, 8);
    fli_put_u64(slot + 8, b->number);
    fli_put_u64(slot + 16, b->term);
    fli_put_u64(slot + 24, b->vote);
    fli_put_u32(slot + CHECKED, fli_crc32c(0, slot, CHECKED));
}

/* The slot of odd numbers is the second one. */
static bool slot_decode(const struct ballot_files *f, unsigned odd, struct ballot *ret)
{
    size_t at = odd * BALLOT_SLOT_AT;
    const uint8_t *slot = f->own + at;
    if (f->own_len < at + BALLOT_SLOT_LEN || memcmp(slot, MAGIC, 8) != 0 ||
        fli_get_u32(slot + CHECKED) != fli_crc32c(0, slot, CHECKED)) {
        return false;
    }
    ret->number = fli_get_u64(slot + 8);
    ret->term = fli_get_u64(slot + 16);
    ret->vote = fli_get_u64(slot + 24);
    return ret->number % 2 == odd;
}

/* What the library will take for its term and vote; false when it would refuse its files, or when
 * they are not as it leaves them. The version is in ret->number. */
static bool library_reads(const struct ballot_files *f, struct ballot *ret)
{
    struct ballot found[2] = {{.fd = -1}, {.fd = -1}};
    for (unsigned i = 0; i < 2; i++) {
        const uint8_t *p = f->meta[i];
        if (f->meta_len[i] < BALLOT_META_LEN) {
            continue;
        }
        found[i].number = fli_get_u64(p + 8);
        found[i].term = fli_get_u64(p + 16);
        found[i].vote = fli_get_u64(p + 24);
        if (f->meta_len[i] > BALLOT_META_LEN || fli_get_u64(p) != FORMAT || found[i].number == 0 ||
            found[i].number % 2 != (i == 0)) {
            return false;
        }
    }
    uint64_t a = found[0].number, b = found[1].number;
    if (a == 0 && b == 0) {
        return false;
    }
    if (a != 0 && b != 0 && a + 1 != b && b + 1 != a) {
        return false;
    }
    *ret = found[a > b ? 0 : 1];
    return true;
}

enum ballot_verdict ballot_judge(const struct ballot_files *files, struct ballot *ret)
{
    struct ballot slots[2], library = {0};
    bool whole[2] = {slot_decode(files, 0, &slots[0]), slot_decode(files, 1, &slots[1])};
    bool reads = library_reads(files, &library);
    unsigned newest = whole[1] && (!whole[0] || slots[1].number > slots[0].number);
    if (files->own_len == 0) {
        if (!reads) {
            return BALLOT_DAMAGED;
        }
        *ret = (struct ballot){.fd = -1, .term = library.term, .vote = library.vote};
        return BALLOT_RENEW;
    }
    if (!whole[newest]) {
        return BALLOT_DAMAGED;
    }
    bool both = whole[1 - newest] && slots[1 - newest].number + 1 == slots[newest].number;
    bool agrees = reads && library.term == slots[newest].term && library.vote == slots[newest].vote;
    if (!both && !agrees) {
        return BALLOT_DAMAGED;
    }
    *ret = slots[newest];
    ret->fd = -1;
    if (!agrees) {
        return BALLOT_CORRECT;
    }
    return both ? BALLOT_AGREES : BALLOT_RENEW;
}

/* ---- files ---- */

/* 0 with at most max bytes; an absent file has none. */
static int read_upto(const char *path, uint8_t *out, size_t max, size_t *ret_len)
{
    size_t len = 0;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        *ret_len = 0;
        return errno == ENOENT ? 0 : FL_EIO;
    }
    ssize_t n = 1;
    while (len < max && n > 0) {
        n = read(fd, out + len, max - len);
        len += n > 0 ? (size_t)n : 0;
    }
    int saved = errno;
    close(fd);
    errno = saved;
    *ret_len = len;
    return n < 0 ? FL_EIO : 0;
}

/* The file is not there, or one slot is not whole and the library confirms the other. */
static int renew(const struct data_dir *d, struct ballot *b)
{
    uint8_t file[BALLOT_FILE_LEN] = {0};
    for (unsigned i = 0; i < 2; i++) {
        b->number++;
        ballot_encode(b, file + b->number % 2 * BALLOT_SLOT_AT);
    }
    return durable_replace(d->path, "ballot", file, sizeof file);
}

/* A power cut on the way leaves what the next start corrects again. */
static int correct(const struct data_dir *d, const struct ballot *b)
{
    uint8_t meta[BALLOT_META_LEN];
    fli_put_u64(meta, FORMAT);
    fli_put_u64(meta + 8, 1);
    fli_put_u64(meta + 16, b->term);
    fli_put_u64(meta + 24, b->vote);
    int rv = durable_replace(d->raft_path, "metadata1", meta, sizeof meta);
    return rv != 0 ? rv : durable_remove(d->raft_path, "metadata2");
}

static int read_files(const struct data_dir *d, const char *own, struct ballot_files *ret)
{
    char path[FILE_PATH_MAX];
    int rv = read_upto(own, ret->own, sizeof ret->own, &ret->own_len);
    for (unsigned i = 0; rv == 0 && i < 2; i++) {
        snprintf(path, sizeof path, "%s/metadata%u", d->raft_path, i + 1);
        rv = read_upto(path, ret->meta[i], sizeof ret->meta[i], &ret->meta_len[i]);
    }
    return rv;
}

void ballot_init(struct ballot *b)
{
    *b = (struct ballot){.fd = -1};
}

int ballot_forget(const struct data_dir *d, char *errmsg, size_t errmsg_size)
{
    char path[FILE_PATH_MAX];
    snprintf(path, sizeof path, "%s/ballot", d->path);
    if (unlink(path) != 0 && errno != ENOENT) {
        snprintf(errmsg, errmsg_size, "cannot remove %s: %s", path, strerror(errno));
        return FL_EIO;
    }
    return 0;
}

int ballot_open(const struct data_dir *d, struct ballot *ret, bool *ret_corrected, char *errmsg,
                size_t errmsg_size)
{
    char path[FILE_PATH_MAX];
    struct ballot_files files = {0};
    struct ballot found;
    snprintf(path, sizeof path, "%s/ballot", d->path);
    int rv = read_files(d, path, &files);
    enum ballot_verdict verdict = rv == 0 ? ballot_judge(&files, &found) : BALLOT_AGREES;
    if (rv == 0 && verdict == BALLOT_DAMAGED) {
        snprintf(errmsg, errmsg_size,
                 "the record of term and vote is damaged: %s, or metadata1 and metadata2 in "
                 "%s; " SEGMENTS_REMEDY,
                 path, d->raft_path);
        return FL_ECORRUPT;
    }
    if (rv == 0 && verdict == BALLOT_RENEW) {
        rv = renew(d, &found);
    } else if (rv == 0 && verdict == BALLOT_CORRECT) {
        rv = correct(d, &found);
    }
    if (rv == 0) {
        found.fd = open(path, O_WRONLY | O_DSYNC | O_CLOEXEC);
        rv = found.fd < 0 ? FL_EIO : 0;
    }
    if (rv != 0) {
        snprintf(errmsg, errmsg_size, "cannot read or write %s, the record of term and vote: %s",
                 path, strerror(errno));
        return rv;
    }
    *ret = found;
    *ret_corrected = verdict == BALLOT_CORRECT;
    return 0;
}

void ballot_close(struct ballot *b)
{
    if (b->fd >= 0) {
        close(b->fd);
    }
    b->fd = -1;
}

static int store(struct ballot *b, uint64_t term, uint64_t vote, char *errmsg, size_t errmsg_size)
{
    uint8_t slot[BALLOT_SLOT_LEN];
    struct ballot next = {.fd = b->fd, .number = b->number + 1, .term = term, .vote = vote};
    if (b->fd < 0) {
        return 0;
    }
    ballot_encode(&next, slot);
    errno = ENOSPC; /* of a write that is short */
    ssize_t n = pwrite(b->fd, slot, sizeof slot, (off_t)(next.number % 2 * BALLOT_SLOT_AT));
    if (n != (ssize_t)sizeof slot) {
        snprintf(errmsg, errmsg_size, "write ballot: %s", strerror(errno));
        return FL_EIO;
    }
    *b = next;
    return 0;
}

int ballot_set_term(struct ballot *b, uint64_t term, char *errmsg, size_t errmsg_size)
{
    return b == NULL ? 0 : store(b, term, 0, errmsg, errmsg_size);
}

int ballot_set_vote(struct ballot *b, uint64_t vote, char *errmsg, size_t errmsg_size)
{
    return b == NULL ? 0 : store(b, b->term, vote, errmsg, errmsg_size);
}
