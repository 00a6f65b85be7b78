/* node_backup.c: a backup that a client reads (node.h). */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "node/node_private.h"

struct backup_counts node_backup_counts(const struct node *n)
{
    struct backup_counts counts = n->backup.counts;
    counts.age_ms = counts.made > 0 ? fli_clock_ms() - n->backup.read_at_ms : 0;
    return counts;
}

static void drop(struct node_backup *b)
{
    snapshot_source_close(b->source);
    b->source = NULL;
    b->id = 0;
}

int node_backup_begin(struct node *n, uint64_t *ret_id)
{
    struct node_backup *b = &n->backup;
    if (b->id != 0) {
        return FL_EBUSY;
    }
    if (!node_running(n) || replica_leader(n->replica) == 0 ||
        machine_cluster_id(fsm_machine(n->fsm)) == 0) {
        return FL_ENOLEADER;
    }
    *b = (struct node_backup){
        .wanted = true,
        .used_ms = fli_clock_ms(),
        .counts = b->counts,
        .read_at_ms = b->read_at_ms,
    };
    fli_random(&b->id, sizeof b->id);
    b->id = b->id >> 2 | 1; /* a number that every client can read */
    *ret_id = b->id;
    node_wake(n);
    return 0;
}

bool node_backup_is_wanted(const struct node *n)
{
    return n->backup.wanted && n->backup.id != 0;
}

void node_backup_began(struct node *n)
{
    n->backup.wanted = false;
}

static void fail(struct node_backup *b, const char *why)
{
    b->counts.failed++;
    snprintf(b->why, sizeof b->why, "%s", why);
}

void node_backup_ended(struct node *n, int error, const char *why)
{
    struct node_backup *b = &n->backup;
    if (b->id == 0 || b->wanted || b->source != NULL || b->why[0] != '\0') {
        return; /* it waits for none, or for the next one */
    }
    if (error != 0) {
        fail(b, why);
        return;
    }
    b->source = snapshot_source_open(&n->snapshots.host, n->loop.device, n->snapshots.meta.index);
    if (b->source == NULL) {
        fail(b, fl_strerror(FL_ENOMEM));
    }
}

static int read_some(struct node_backup *b, void *data, size_t len, size_t *ret_len,
                     struct snapshot_error *e)
{
    struct fli_slice bytes;
    int rv = snapshot_source_next(b->source, len, &bytes, e);
    if (rv == 0 && bytes.len > 0) {
        memcpy(data, bytes.data, bytes.len);
        snapshot_source_take(b->source, bytes.len);
        b->offset += bytes.len;
        *ret_len = bytes.len;
    }
    return rv;
}

int node_backup_read(struct node *n, uint64_t id, uint64_t offset, void *data, size_t len,
                     size_t *ret_len, const char **ret_why)
{
    struct node_backup *b = &n->backup;
    struct snapshot_error e = {0};
    *ret_len = 0;
    *ret_why = "";
    if (b->id == 0 || b->id != id) {
        return FL_ENOTFOUND;
    }
    b->used_ms = fli_clock_ms();
    if (b->why[0] != '\0') {
        *ret_why = b->why;
        drop(b);
        return FL_EIO;
    }
    if (b->source == NULL) {
        return FL_EBUSY;
    }
    if (offset != b->offset) {
        return FL_EINVAL;
    }
    int rv = read_some(b, data, len, ret_len, &e);
    if (rv != 0 && rv != FL_EBUSY) {
        fail(b, e.text);
        *ret_why = b->why;
        drop(b);
        rv = rv == FL_ENOTFOUND || rv == FL_EVERSION ? FL_EIO : rv; /* the file, not the backup */
    } else if (rv == 0 && *ret_len == 0) {
        b->counts.made++;
        b->read_at_ms = fli_clock_ms();
        drop(b);
    }
    return rv;
}

/* A client that stopped reading must not keep others from their backups. */
void node_backup_tick(struct node *n)
{
    struct node_backup *b = &n->backup;
    if (b->id != 0 && fli_clock_since_ms(b->used_ms) > BACKUP_IDLE_MS) {
        b->counts.failed += b->why[0] == '\0';
        host_log(&n->host, 2, "a backup that nobody reads any more is given up");
        drop(b);
    }
}

void node_backup_stop(struct node *n)
{
    drop(&n->backup);
}
