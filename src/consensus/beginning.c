/* beginning.c: see beginning.h. The record is written last. Every start refuses a directory that
 * has a log and no record, so a half-made one does no harm. */
#include "consensus/beginning.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/bytes.h"
#include "base/clock.h"
#include "consensus/backup_file.h"
#include "consensus/configuration.h"
#include "consensus/data_dir.h"
#include "log/log.h"
#include "snapshot/format.h"

struct maker {
    const struct beginning *b;
    const struct machine *old;
    struct snapshot_meta meta;
    fl_token last_token;
    uint32_t state_crc;
    struct data_dir dir;
    struct log_device *device;
    char *errmsg;
    size_t errmsg_size;
};

int beginning_check(const struct beginning *b, char *errmsg, size_t errmsg_size)
{
    struct directory_summary summary;
    int rv = identity_peek(b->data, &summary, errmsg, errmsg_size);
    if (summary.is_used) {
        snprintf(errmsg, errmsg_size,
                 "data directory %s is in use by another process: name a new "
                 "directory",
                 b->data);
        return FL_EBUSY;
    }
    if (summary.exists && !summary.is_empty) {
        snprintf(errmsg, errmsg_size,
                 "data directory %s is not empty: a new cluster begins in a new directory; move "
                 "the old one out of the way, and keep it until all is well",
                 b->data);
        return FL_EDENIED;
    }
    return rv;
}

static int choose_token(struct maker *k)
{
    fl_token last = machine_last_token(k->old);
    fl_token base = last > k->b->above ? last : k->b->above;
    FLI_ASSERT(k->b->step >= BEGINNING_STEP_MIN);
    if (base > MACHINE_RAISE_TO_MAX || k->b->step > MACHINE_RAISE_TO_MAX - base) {
        snprintf(k->errmsg, k->errmsg_size,
                 "tokens would begin above %" PRIu64 " + %" PRIu64
                 ", and the largest token of a cluster is %" PRIu64 ": name smaller numbers",
                 base, k->b->step, (uint64_t)FL_TOKEN_MAX);
        return FL_ELIMIT;
    }
    k->last_token = base + k->b->step;
    return 0;
}

/* The new log begins with the entry behind the old ones, in the next term. */
static int choose_entry(struct maker *k, uint64_t index, uint64_t term)
{
    if (index >= SNAPSHOT_INDEX_MAX || term >= SNAPSHOT_TERM_MAX) {
        snprintf(k->errmsg, k->errmsg_size,
                 "the old state claims to be of entry %" PRIu64 ", term %" PRIu64
                 ", and no log comes so far",
                 index, term);
        return FL_ECORRUPT;
    }
    k->meta.index = index + 1;
    k->meta.term = term + 1;
    return 0;
}

/* The members have to meet before there is a configuration (membership.h). */
static void fill_configuration(struct maker *k)
{
    struct configuration c = {0};
    k->meta.conf_index = k->meta.index;
    k->meta.conf_len = (uint32_t)configuration_encode(&c, k->meta.conf);
}

struct sink {
    struct snapshot_writer *writer;
    struct snapshot_error error;
    uint32_t crc;
};

static int take_bytes(void *ctx, const void *bytes, size_t len)
{
    struct sink *s = ctx;
    /* The last bytes are the CRC of all others; without the factor, all states would have the same
     * CRC. */
    s->crc = fli_crc32c(s->crc * UINT32_C(2654435761) + 1, bytes, len);
    return snapshot_writer_write(s->writer, bytes, len, &s->error);
}

static int write_state(struct maker *k)
{
    struct sink s = {0};
    int rv = snapshot_writer_open(k->device, &k->meta, &s.writer, &s.error);
    if (rv == 0) {
        rv = machine_snapshot_write_heir(k->old, k->last_token, take_bytes, &s);
        if (rv == 0) {
            rv = snapshot_writer_finish(s.writer, &s.error);
        } else {
            snapshot_writer_abort(s.writer);
        }
    }
    if (rv != 0) {
        snprintf(k->errmsg, k->errmsg_size, "%s", s.error.text);
    }
    k->state_crc = s.crc;
    return rv;
}

static void log_failed(void *ctx, int error, const char *message)
{
    struct maker *k = ctx;
    snprintf(k->errmsg, k->errmsg_size, "%s", message);
}

/* Writes an empty log that continues behind the state. */
static int write_log(struct maker *k)
{
    struct log *log = NULL;
    struct log_hard_state hs = {.term = k->meta.term};
    const struct log_config config = {.device = k->device, .ctx = k, .failed = log_failed};
    int rv = log_open(&config, &log, k->errmsg, k->errmsg_size);
    if (rv != 0) {
        return rv;
    }
    bool good =
        log_set_hard_state(log, &hs) != 0 && log_reset(log, k->meta.index, k->meta.term) != 0;
    rv = good ? log_write_out(log) : FL_ENOMEM;
    log_end(log);
    return rv;
}

/* Members that begin with different states must refuse each other before their cluster is formed.
 * So must those with the same state of another entry: each writes its first entry behind that. */
static uint32_t begun_crc(const struct maker *k)
{
    char text[MEMBERS_TEXT_MAX];
    uint8_t state[20];
    uint32_t crc = fli_crc32c(0, text, members_format(k->b->members, text, sizeof text));
    fli_put_u32(state, k->state_crc);
    fli_put_u64(state + 4, k->meta.index);
    fli_put_u64(state + 12, k->meta.term);
    crc = fli_crc32c(crc, state, sizeof state);
    return crc == 0 ? 1 : crc;
}

static int write_record(struct maker *k)
{
    struct record record = {.identity = {.id = k->b->id,
                                         .members = *k->b->members,
                                         .bootstrapped = true,
                                         .begun_crc = begun_crc(k)}};
    while (record.identity.incarnation == 0) {
        fli_random(&record.identity.incarnation, sizeof record.identity.incarnation);
    }
    int rv = record_store(&k->dir, &record);
    if (rv != 0) {
        snprintf(k->errmsg, k->errmsg_size, "cannot write the identity in %s: %s", k->dir.path,
                 strerror(errno));
    }
    return rv;
}

static int fill_directory(struct maker *k)
{
    if (mkdir(k->dir.log_path, 0700) != 0) {
        snprintf(k->errmsg, k->errmsg_size, "cannot make %s: %s", k->dir.log_path, strerror(errno));
        return FL_ESYSTEM;
    }
    int rv =
        log_files_create(k->dir.log_path, LOG_ENGINE_BEST, &k->device, k->errmsg, k->errmsg_size);
    if (rv != 0) {
        return rv;
    }
    rv = write_state(k);
    rv = rv != 0 ? rv : write_log(k);
    log_files_destroy(k->device);
    return rv != 0 ? rv : write_record(k);
}

int beginning_make(const struct beginning *b, struct machine *old, uint64_t index, uint64_t term,
                   struct beginning_result *ret, char *errmsg, size_t errmsg_size)
{
    struct machine_counts counts;
    struct maker k = {.b = b, .old = old, .errmsg = errmsg, .errmsg_size = errmsg_size};
    snprintf(errmsg, errmsg_size, "out of memory");
    int rv = choose_entry(&k, index, term);
    rv = rv != 0 ? rv : choose_token(&k);
    fill_configuration(&k);
    rv = rv != 0 ? rv : data_dir_open(b->data, &k.dir, errmsg, errmsg_size);
    if (rv != 0) {
        return rv;
    }
    if (b->reset_users) {
        machine_reset_users(old);
    }
    rv = fill_directory(&k);
    data_dir_close(&k.dir);
    machine_get_counts(old, &counts);
    ret->old_cluster_id = machine_cluster_id(old);
    ret->index = index;
    ret->term = term;
    ret->old_token = machine_last_token(old);
    ret->new_token = k.last_token;
    ret->ended_holds = counts.locks_held;
    ret->ended_waits = counts.waits;
    return rv;
}

int beginning_restore(const struct beginning *b, const char *backup, struct beginning_result *ret,
                      char *errmsg, size_t errmsg_size)
{
    struct backup_header header;
    struct machine *old = NULL;
    memset(ret, 0, sizeof *ret);
    int rv = beginning_check(b, errmsg, errmsg_size);
    rv = rv != 0 ? rv : backup_file_read(backup, &header, &old, errmsg, errmsg_size);
    if (rv == 0) {
        ret->made_ms = header.made_ms;
        rv = beginning_make(b, old, header.index, header.term, ret, errmsg, errmsg_size);
    }
    machine_destroy(old);
    return rv;
}
