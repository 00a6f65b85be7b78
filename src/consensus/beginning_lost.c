/* beginning_lost.c: reads what a cluster that lost its majority has left in one directory. All
 * entries count, committed or not: it is unknown which of them were. An entry too many does no
 * harm. It only ends a hold of which no client was told, or skips a token. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "consensus/beginning.h"
#include "consensus/data_dir.h"
#include "snapshot/decode.h"
#include "log/log.h"

#include <raft.h>

#define READ_BYTES ((size_t)4 << 20)
#define READ_ENTRIES 256u

struct remains {
    struct data_dir dir;
    struct log_device *device;
    struct log *log;
    struct machine *machine;
    uint64_t index, term; /* applied */
    char *errmsg;
    size_t errmsg_size;
};

static void log_message(void *ctx, enum log_level level, const char *message)
{
    struct remains *m = ctx;
    if (level == LOG_LEVEL_ERROR) {
        snprintf(m->errmsg, m->errmsg_size, "%s", message);
    }
}

static int read_snapshot(struct remains *m)
{
    struct snapshot_reader *reader = NULL;
    struct snapshot_error error = {0};
    uint64_t seed[2];
    fli_random(seed, sizeof seed);
    int rv = snapshot_reader_open(m->device, 0, &reader, &error);
    if (rv == FL_ENOTFOUND) {
        m->machine = machine_create(seed);
        return 0;
    }
    if (rv == 0) {
        m->index = snapshot_reader_meta(reader)->index;
        m->term = snapshot_reader_meta(reader)->term;
        rv = snapshot_decode(reader, seed, &m->machine, &error);
        snapshot_reader_close(reader);
    }
    if (rv != 0) {
        snprintf(m->errmsg, m->errmsg_size,
                 "the snapshot in %s cannot be read: %s; try the "
                 "directory of another node, or a backup",
                 m->dir.log_path, error.text);
    }
    return rv;
}

static int apply(struct remains *m, const struct log_entry *e)
{
    int rv = e->kind == RAFT_COMMAND ? machine_apply(m->machine, e->data, e->len, NULL) : 0;
    if (rv != 0) {
        snprintf(m->errmsg, m->errmsg_size,
                 "entry %" PRIu64 " of the log in %s cannot be applied: %s; try the directory of "
                 "another node, or a backup",
                 e->index, m->dir.log_path, fl_strerror(rv));
    }
    m->index = e->index;
    m->term = e->term;
    return rv;
}

static int read_log(struct remains *m)
{
    struct log_entry some[READ_ENTRIES];
    int rv = 0;
    if (log_first_index(m->log) > m->index + 1) {
        snprintf(m->errmsg, m->errmsg_size,
                 "the log in %s begins with entry %" PRIu64 ", and what came before is missing",
                 m->dir.log_path, log_first_index(m->log));
        return FL_ECORRUPT;
    }
    while (rv == 0 && m->index < log_last_index(m->log)) {
        unsigned n = 0;
        rv = log_read_some(m->log, m->index + 1, READ_BYTES, some, READ_ENTRIES, &n);
        for (unsigned i = 0; i < n && rv == 0; i++) {
            rv = apply(m, &some[i]);
        }
    }
    return rv;
}

static void close_log(struct remains *m)
{
    if (m->log != NULL) {
        log_end(m->log);
    }
    if (m->device != NULL) {
        log_files_destroy(m->device);
    }
}

static int read_all(struct remains *m)
{
    struct log_config config = {.ctx = m, .log = log_message};
    int rv =
        log_files_create(m->dir.log_path, LOG_ENGINE_BEST, &m->device, m->errmsg, m->errmsg_size);
    config.device = m->device;
    rv = rv != 0 ? rv : log_open(&config, &m->log, m->errmsg, m->errmsg_size);
    rv = rv != 0 ? rv : read_snapshot(m);
    rv = rv != 0 ? rv : read_log(m);
    if (rv == 0 && machine_cluster_id(m->machine) == 0) {
        snprintf(m->errmsg, m->errmsg_size,
                 "the cluster of %s was never formed, so there is nothing to recover: start anew",
                 m->dir.path);
        rv = FL_EINVAL;
    }
    if (rv == 0 && log_get_hard_state(m->log).term > m->term) {
        m->term = log_get_hard_state(m->log).term;
    }
    close_log(m);
    return rv;
}

static int open_old(struct remains *m, const char *old_data)
{
    struct directory_summary summary;
    int rv = identity_peek(old_data, &summary, m->errmsg, m->errmsg_size);
    if (rv != 0) {
        return rv;
    }
    if (!summary.has_identity) {
        snprintf(m->errmsg, m->errmsg_size, "%s is no data directory of a node: it has no identity",
                 old_data);
        return FL_EINVAL;
    }
    return data_dir_open(old_data, &m->dir, m->errmsg, m->errmsg_size);
}

int beginning_recover(const struct beginning *b, const char *old_data, struct beginning_result *ret,
                      char *errmsg, size_t errmsg_size)
{
    struct remains m = {
        .errmsg = errmsg, .errmsg_size = errmsg_size, .dir = {.lock_fd = -1, .record_fd = -1}};
    memset(ret, 0, sizeof *ret);
    snprintf(errmsg, errmsg_size, "out of memory");
    int rv = beginning_check(b, errmsg, errmsg_size);
    rv = rv != 0 ? rv : open_old(&m, old_data);
    rv = rv != 0 ? rv : read_all(&m);
    if (rv == 0) {
        rv = beginning_make(b, m.machine, m.index, m.term, ret, errmsg, errmsg_size);
        ret->lost_after = m.index;
    }
    machine_destroy(m.machine);
    data_dir_close(&m.dir);
    return rv;
}
