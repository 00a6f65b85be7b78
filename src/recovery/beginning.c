/* beginning.c: see beginning.h. The record is written last. Every start refuses a directory that
 * has a log and no record, so a half-made one does no harm. */
#include "recovery/beginning.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/bytes.h"
#include "base/clock.h"
#include "consensus/configuration.h"
#include "members/data_dir.h"
#include "log/log.h"
#include "snapshot/format.h"

#include <raft.h>

#define READ_BYTES ((size_t)4 << 20)
#define READ_ENTRIES 256u

/* A directory with its log: the one that is made, or the one that is read. */
struct place {
    struct data_dir dir;
    struct log_device *device;
    struct log *log;
};

struct maker {
    const struct beginning *b;
    struct beginning_result *result;
    struct machine *old;
    struct snapshot_meta meta; /* of the new snapshot */
    char *errmsg;
    size_t errmsg_size;
};

#define REFUSE(k, code, ...) fli_refuse((k)->errmsg, (k)->errmsg_size, code, __VA_ARGS__)

/* Checks, before anything else, whether the directory may be used. */
static int check(const struct maker *k)
{
    struct directory_summary summary;
    int rv = identity_peek(k->b->data, &summary, k->errmsg, k->errmsg_size);
    if (summary.is_used) {
        return REFUSE(k, FL_EBUSY,
                      "data directory %s is in use by another process: name a new directory",
                      k->b->data);
    }
    if (summary.exists && !summary.is_empty) {
        return REFUSE(k, FL_EDENIED,
                      "data directory %s is not empty: a new cluster begins in a new directory; "
                      "move the old one out of the way, and keep it until all is well",
                      k->b->data);
    }
    return rv;
}

static void log_failed(void *ctx, int error, const char *message)
{
    (void)REFUSE((const struct maker *)ctx, error, "%s", message);
}

static void log_message(void *ctx, enum log_level level, const char *message)
{
    if (level == LOG_LEVEL_ERROR) {
        log_failed(ctx, FL_EIO, message);
    }
}

static int open_place(struct maker *k, struct place *p, const char *path, bool is_new)
{
    *p = (struct place){.dir = {.lock_fd = -1, .record_fd = -1}};
    int rv = data_dir_open(path, &p->dir, k->errmsg, k->errmsg_size);
    if (rv == 0 && is_new && mkdir(p->dir.log_path, 0700) != 0) {
        rv = REFUSE(k, FL_ESYSTEM, "cannot make %s: %s", p->dir.log_path, strerror(errno));
    }
    return rv != 0 ? rv
                   : log_files_create(p->dir.log_path, LOG_ENGINE_BEST, &p->device, k->errmsg,
                                      k->errmsg_size);
}

static int open_log(struct maker *k, struct place *p)
{
    const struct log_config config = {
        .device = p->device, .ctx = k, .failed = log_failed, .log = log_message};
    return log_open(&config, &p->log, k->errmsg, k->errmsg_size);
}

static void close_place(struct place *p)
{
    if (p->log != NULL) {
        log_end(p->log);
    }
    if (p->device != NULL) {
        log_files_destroy(p->device);
    }
    data_dir_close(&p->dir);
}

/* ---- what a lost cluster has left ----
 *
 * All entries count, committed or not: it is unknown which of them were. An entry too many does no
 * harm. It only ends a hold of which no client was told, or skips a token. */

static int read_snapshot(struct maker *k, struct place *p)
{
    struct snapshot_meta meta = {0};
    struct snapshot_error error = {0};
    uint64_t seed[2];
    fli_random(seed, sizeof seed);
    int rv = snapshot_load(p->device, &meta, &k->old, &error);
    if (rv == FL_ENOTFOUND) {
        k->old = machine_create(seed);
        return 0;
    }
    k->result->index = meta.index;
    k->result->term = meta.term;
    return rv == 0 ? 0
                   : REFUSE(k, rv,
                            "the snapshot in %s cannot be read: %s; try the directory of another "
                            "node, or a backup",
                            p->dir.log_path, error.text);
}

static int apply(struct maker *k, const struct place *p, const struct log_entry *e)
{
    int rv = e->kind == RAFT_COMMAND ? machine_apply(k->old, e->data, e->len, NULL) : 0;
    k->result->index = e->index;
    k->result->term = e->term;
    return rv == 0 ? 0
                   : REFUSE(k, rv,
                            "entry %" PRIu64 " of the log in %s cannot be applied: %s; try the "
                            "directory of another node, or a backup",
                            e->index, p->dir.log_path, fl_strerror(rv));
}

static int read_log(struct maker *k, struct place *p)
{
    struct log_entry some[READ_ENTRIES];
    struct beginning_result *r = k->result;
    int rv = 0;
    if (log_first_index(p->log) > r->index + 1) {
        return REFUSE(k, FL_ECORRUPT,
                      "the log in %s begins with entry %" PRIu64
                      ", and what came before is missing",
                      p->dir.log_path, log_first_index(p->log));
    }
    while (rv == 0 && r->index < log_last_index(p->log)) {
        unsigned n = 0;
        rv = log_read_some(p->log, r->index + 1, READ_BYTES, some, READ_ENTRIES, &n);
        for (unsigned i = 0; i < n && rv == 0; i++) {
            rv = apply(k, p, &some[i]);
        }
    }
    if (log_get_hard_state(p->log).term > r->term) {
        r->term = log_get_hard_state(p->log).term;
    }
    r->lost_after = r->index;
    return rv;
}

static int read_directory(struct maker *k, const char *old_data)
{
    struct place p;
    struct directory_summary summary;
    int rv = identity_peek(old_data, &summary, k->errmsg, k->errmsg_size);
    if (rv == 0 && !summary.has_identity) {
        rv =
            REFUSE(k, FL_EINVAL, "%s is no data directory of a node: it has no identity", old_data);
    }
    if (rv != 0) {
        return rv;
    }
    rv = open_place(k, &p, old_data, false);
    rv = rv != 0 ? rv : open_log(k, &p);
    rv = rv != 0 ? rv : read_snapshot(k, &p);
    rv = rv != 0 ? rv : read_log(k, &p);
    if (rv == 0 && machine_cluster_id(k->old) == 0) {
        rv = REFUSE(k, FL_EINVAL,
                    "the cluster of %s was never formed, so there is nothing to recover: start "
                    "anew",
                    p.dir.path);
    }
    close_place(&p);
    return rv;
}

/* ---- the new directory ---- */

static int choose_token(struct maker *k)
{
    fl_token last = machine_last_token(k->old);
    fl_token base = last > k->b->above ? last : k->b->above;
    FLI_ASSERT(k->b->step >= BEGINNING_STEP_MIN);
    if (base > MACHINE_RAISE_TO_MAX || k->b->step > MACHINE_RAISE_TO_MAX - base) {
        return REFUSE(k, FL_ELIMIT,
                      "tokens would begin above %" PRIu64 " + %" PRIu64
                      ", and the largest token of a cluster is %" PRIu64 ": name smaller numbers",
                      base, k->b->step, (uint64_t)FL_TOKEN_MAX);
    }
    k->result->old_token = last;
    k->result->new_token = base + k->b->step;
    return 0;
}

/* The new log begins with the entry behind the old ones, in the next term. Its members have to meet
 * before there is a configuration (membership.h). */
static int choose_entry(struct maker *k)
{
    struct configuration none = {0};
    uint64_t index = k->result->index;
    uint64_t term = k->result->term;
    if (index >= SNAPSHOT_INDEX_MAX || term >= SNAPSHOT_TERM_MAX) {
        return REFUSE(k, FL_ECORRUPT,
                      "the old state claims to be of entry %" PRIu64 ", term %" PRIu64
                      ", and no log comes so far",
                      index, term);
    }
    k->meta = (struct snapshot_meta){.index = index + 1,
                                     .term = term + 1,
                                     .conf_index = index + 1,
                                     .node_id = k->b->id,
                                     .made_ms = fli_clock_wall_ms()};
    k->meta.conf_len = (uint32_t)configuration_encode(&none, k->meta.conf);
    return 0;
}

static int write_state(struct maker *k, const struct place *p)
{
    struct snapshot_writer *w = NULL;
    struct snapshot_error error = {0};
    int rv = snapshot_writer_open(p->device, &k->meta, &w, &error);
    if (rv == 0) {
        rv = snapshot_writer_end(
            w, machine_snapshot_write_heir(k->old, k->result->new_token, snapshot_writer_write, w));
    }
    return rv == 0 ? 0 : REFUSE(k, rv, "%s", error.text);
}

/* Writes an empty log that continues behind the state. */
static int write_log(struct maker *k, struct place *p)
{
    struct log_hard_state hs = {.term = k->meta.term};
    int rv = open_log(k, p);
    if (rv != 0) {
        return rv;
    }
    bool good =
        log_set_hard_state(p->log, &hs) != 0 && log_reset(p->log, k->meta.index, k->meta.term) != 0;
    return good ? log_write_out(p->log) : FL_ENOMEM;
}

/* Members that begin with different states must refuse each other before their cluster is formed.
 * So must those with the same state of another entry: each writes its first entry behind that. */
static uint32_t begun_crc(const struct maker *k)
{
    char text[MEMBERS_TEXT_MAX];
    const uint64_t state[] = {machine_hash(k->old), k->result->new_token, k->meta.index,
                              k->meta.term};
    uint32_t crc = fli_crc32c(0, text, members_format(k->b->members, text, sizeof text));
    for (size_t i = 0; i < sizeof state / sizeof state[0]; i++) {
        uint8_t bytes[8];
        fli_put_u64(bytes, state[i]);
        crc = fli_crc32c(crc, bytes, sizeof bytes);
    }
    return crc == 0 ? 1 : crc;
}

static int write_record(struct maker *k, const struct place *p)
{
    struct record record;
    record_begin(&record, k->b->id, k->b->members);
    record.identity.bootstrapped = true;
    record.identity.begun_crc = begun_crc(k);
    int rv = record_store(&p->dir, &record);
    return rv == 0
               ? 0
               : REFUSE(k, rv, "cannot write the identity in %s: %s", p->dir.path, strerror(errno));
}

static int make_directory(struct maker *k)
{
    struct place p;
    int rv = open_place(k, &p, k->b->data, true);
    rv = rv != 0 ? rv : write_state(k, &p);
    rv = rv != 0 ? rv : write_log(k, &p);
    rv = rv != 0 ? rv : write_record(k, &p);
    close_place(&p);
    return rv;
}

static int make(struct maker *k)
{
    struct machine_counts counts;
    int rv = choose_entry(k);
    rv = rv != 0 ? rv : choose_token(k);
    if (rv != 0) {
        return rv;
    }
    if (k->b->reset_users) {
        machine_reset_users(k->old);
    }
    rv = make_directory(k);
    machine_get_counts(k->old, &counts);
    k->result->old_cluster_id = machine_cluster_id(k->old);
    k->result->ended_holds = counts.locks_held;
    k->result->ended_waits = counts.waits;
    return rv;
}

static int read_backup(struct maker *k, const char *backup)
{
    struct snapshot_meta meta;
    struct snapshot_error error;
    int rv = snapshot_read_backup(backup, &meta, &k->old, &error);
    if (rv != 0) {
        return REFUSE(k, rv, "%s", error.text);
    }
    k->result->index = meta.index;
    k->result->term = meta.term;
    k->result->made_ms = meta.made_ms;
    return 0;
}

int beginning_make(const struct beginning *b, struct beginning_result *ret, char *errmsg,
                   size_t errmsg_size)
{
    struct maker k = {.b = b, .result = ret, .errmsg = errmsg, .errmsg_size = errmsg_size};
    memset(ret, 0, sizeof *ret);
    (void)REFUSE(&k, FL_ENOMEM, "out of memory");
    int rv = check(&k);
    if (rv == 0) {
        rv = b->backup != NULL ? read_backup(&k, b->backup) : read_directory(&k, b->old_data);
    }
    rv = rv != 0 ? rv : make(&k);
    machine_destroy(k.old);
    return rv;
}
