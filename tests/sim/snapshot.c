/* snapshot.c: replaces snapshot/child.c, the process that writes a snapshot. The real writer writes
 * the state as it was when the process began, in steps, while its node goes on, is stopped or ends.
 * The process may fail or be killed. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/bytes.h"
#include "log/log_private.h"
#include "node_clock.h"
#include "snapshot/format.h"
#include "steps.h"

#define BYTES_MAX ((size_t)64 << 20)
#define STEPS 3u
#define PAUSE_MS 1000u /* as in node_snapshot.c */

struct sim_child {
    struct sim_node *node;
    struct log_device *device;
    struct snapshot_meta meta;
    struct fli_buf bytes;
    struct snapshot_writer *writer;
    unsigned step;
    bool over, told; /* it has ended; its node turns for that */
    int error;
    struct snapshot_error why;
};

static int take_bytes(void *ctx, const void *bytes, size_t len)
{
    return fli_buf_append(ctx, bytes, len);
}

/* Reads an entry without the shipping code's ways to do so, which would begin a read. False: it has
 * rotted. */
static bool look_at(const struct sim_node *n, uint64_t index, struct log_record *ret)
{
    const struct log *l = n->node->log;
    const struct log_slot *s = log_entries_slot(&l->now.entries, index);
    char name[LOG_NAME_MAX + 1];
    size_t len = 0;
    const struct log_chunk *c = log_chunk_at(l, s->segment, s->offset, log_record_size(s->len));
    if (c != NULL && c->state == LOG_CHUNK_WHOLE) {
        log_record_peek(c->data + (s->offset - c->offset), ret);
        return true;
    }
    log_segment_name(s->segment, name);
    const uint8_t *file = sim_device_data(n->disk.device, name, &len);
    return file != NULL && s->offset < len &&
           log_record_decode(file + s->offset, len - s->offset, ret) && ret->index == index;
}

/* A snapshot has the configuration of the last change that its state contains. Changes that were
 * checked for the snapshot before are not checked again: they were applied, so they stay. */
static void check_label(struct sim_node *n, const struct snapshot_meta *meta)
{
    struct log *l = n->node->log;
    uint64_t index = n->labelled + 1;
    uint64_t change = n->labelled_change;
    if (log_first_index(l) > index) {
        index = log_first_index(l);
        change = 0; /* a change that could not be read the last time is compacted by now */
    }
    for (; index <= meta->index; index++) {
        struct log_record e;
        if (!look_at(n, index, &e)) {
            return;
        }
        if (e.kind == RAFT_CHANGE) {
            change = index;
            SIM_CHECK(n->sim,
                      index != meta->conf_index ||
                          (e.len == meta->conf_len && memcmp(e.data, meta->conf, e.len) == 0),
                      "node %u gives a snapshot another configuration than %llu is", n->index + 1,
                      (unsigned long long)index);
        }
    }
    SIM_CHECK(n->sim, change == 0 || change == meta->conf_index,
              "node %u labels a snapshot at %llu with configuration %llu, and the last is %llu",
              n->index + 1, (unsigned long long)meta->index, (unsigned long long)meta->conf_index,
              (unsigned long long)change);
    n->labelled = meta->index;
    n->labelled_change = meta->conf_index;
}

/* A follower that is being sent a snapshot finds the entries behind it when it has arrived. */
static void check_kept(struct sim_node *n)
{
    for (unsigned i = 0; i < KNOWN_MEMBERS_MAX; i++) {
        uint64_t sent = snapshot_send_index(&n->node->peers.list[i].send);
        n->sim->marks->snapshots_taken_while_sent += sent != 0;
        SIM_CHECK(n->sim, sent == 0 || log_first_index(n->node->log) <= sent + 1,
                  "node %u sends a snapshot at %llu, and its log begins with %llu", n->index + 1,
                  (unsigned long long)sent, (unsigned long long)log_first_index(n->node->log));
    }
}

/* ---- a snapshot that is being opened ---- */

void __real_snapshot_send_start(struct snapshot_send *s, const struct snapshot_send_config *config,
                                uint64_t peer_id, uint64_t index);
void __wrap_snapshot_send_start(struct snapshot_send *s, const struct snapshot_send_config *config,
                                uint64_t peer_id, uint64_t index);
void __real_replica_snapshot_taken(struct replica *r, uint64_t now_ms,
                                   const struct snapshot_meta *meta, uint64_t keep_index);
void __wrap_replica_snapshot_taken(struct replica *r, uint64_t now_ms,
                                   const struct snapshot_meta *meta, uint64_t keep_index);

void __wrap_snapshot_send_start(struct snapshot_send *s, const struct snapshot_send_config *config,
                                uint64_t peer_id, uint64_t index)
{
    struct sim_node *n = sim_running->current;
    bool before = snapshot_send_busy(s);
    __real_snapshot_send_start(s, config, peer_id, index);
    if (!before && snapshot_send_busy(s)) {
        n->opens[peer_id - 1].life = n->life;
        n->opens[peer_id - 1].index = index;
        n->opens[peer_id - 1].failures = s->failures;
    }
}

static void check_keeps(const struct sim_node *n, uint64_t keep_index)
{
    for (unsigned i = 0; i < KNOWN_MEMBERS_MAX && replica_role(n->node->replica) == REPLICA_LEADER;
         i++) {
        const struct peer *p = &n->node->peers.list[i];
        bool opens = members_find(n->node->election.members, p->id) != NULL &&
                     snapshot_send_busy(&p->send) && n->opens[p->id - 1].life == n->life &&
                     n->opens[p->id - 1].failures == p->send.failures;
        uint64_t index = opens ? snapshot_send_index(&p->send) : UINT64_MAX;
        index = index == 0 ? n->opens[p->id - 1].index : index;
        n->sim->marks->snapshots_taken_while_opened += opens;
        SIM_CHECK(n->sim, keep_index <= index,
                  "node %u opens a snapshot at %llu to send it, and keeps its log from %llu on",
                  n->index + 1, (unsigned long long)index, (unsigned long long)keep_index);
    }
}

void __wrap_replica_snapshot_taken(struct replica *r, uint64_t now_ms,
                                   const struct snapshot_meta *meta, uint64_t keep_index)
{
    check_keeps(sim_running->current, keep_index);
    __real_replica_snapshot_taken(r, now_ms, meta, keep_index);
    check_kept(sim_running->current);
}

/* ---- how they end ---- */

static uint32_t crc_of_file(const struct sim_node *n, uint64_t index, uint64_t term)
{
    char name[LOG_NAME_MAX + 1];
    size_t len = 0;
    snapshot_name(index, term, false, name);
    const uint8_t *data = sim_device_data(n->disk.device, name, &len);
    return data == NULL ? 0 : fli_crc32c(0, data, len);
}

static void note_end(struct sim_node *n, const struct sim_child *c)
{
    /* A damaged one may have its name. */
    SIM_CHECK(n->sim, strstr(c->why.text, strerror(EEXIST)) == NULL,
              "node %u does not put a snapshot in the place of another one: %s", n->index + 1,
              c->why.text);
    n->snapshot_end.life = n->life;
    if (c->error != 0) {
        n->snapshot_end.failed_ms = sim_node_ms(n);
    } else {
        n->snapshot_end.failed_ms = 0;
        n->snapshot_end.index = c->meta.index;
        n->snapshot_end.crc = crc_of_file(n, c->meta.index, c->meta.term);
    }
}

/* After one that failed a node waits, so that a full disk costs nothing else. One that is whole is
 * not taken once more. */
static void check_again(const struct sim_node *n, const struct snapshot_meta *meta)
{
    uint64_t failed_ms = n->snapshot_end.failed_ms;
    if (n->snapshot_end.life != n->life) {
        return;
    }
    SIM_CHECK(n->sim, failed_ms == 0 || sim_node_ms(n) - failed_ms >= PAUSE_MS,
              "node %u takes a snapshot %llu ms after one that failed", n->index + 1,
              (unsigned long long)(sim_node_ms(n) - failed_ms));
    SIM_CHECK(n->sim,
              n->snapshot_end.index != meta->index || n->snapshot_end.crc == 0 ||
                  n->snapshot_end.crc != crc_of_file(n, meta->index, meta->term),
              "node %u takes a snapshot at %llu again, and the one that it has is as it was",
              n->index + 1, (unsigned long long)meta->index);
}

static void end_deliver(struct sim_event *e)
{
    struct sim_child *c = e->p;
    if (e->node->child == c) {
        c->told = true;
    }
}

/* The process has ended: the bytes that it wrote stay as they are. */
static void die(struct sim_child *c)
{
    struct sim_disk *d = &c->node->disk;
    bool before = d->frozen;
    if (c->writer != NULL) {
        d->frozen = true;
        (void)!snapshot_writer_end(c->writer, FL_ESYSTEM);
        d->frozen = before;
        c->writer = NULL;
    }
    c->over = true;
}

static int step(struct sim_child *c)
{
    size_t half = c->bytes.len / 2;
    switch (c->step++) {
    case 0: {
        struct snapshot_error none;
        (void)!snapshot_clean_parts(c->device, c->meta.index, &none);
        int rv = snapshot_writer_open(c->device, &c->meta, &c->writer, &c->why);
        if (rv != 0) {
            c->writer = NULL;
            return rv;
        }
        return snapshot_writer_write(c->writer, c->bytes.data, half);
    }
    case 1: {
        int rv = snapshot_writer_write(c->writer, c->bytes.data + half, c->bytes.len - half);
        return rv != 0 ? rv : snapshot_writer_sync(c->writer);
    }
    default: {
        struct snapshot_writer *w = c->writer;
        c->writer = NULL;
        return snapshot_writer_end(w, 0);
    }
    }
}

static void work(struct sim_child *c)
{
    struct sim_node *n = c->node;
    if (n->kill_child) {
        n->kill_child = false;
        die(c);
        c->error = FL_ESYSTEM;
        snprintf(c->why.text, sizeof c->why.text, "the process that writes it was killed");
        return;
    }
    c->error = step(c);
    if (c->error != 0 && c->writer != NULL) {
        (void)!snapshot_writer_end(c->writer, c->error);
        c->writer = NULL;
    }
    c->over = c->error != 0 || c->step == STEPS;
    if (c->over) {
        struct snapshot_error none;
        (void)!snapshot_clean(c->device, c->meta.index, c->error == 0 ? &c->why : &none);
    }
}

/* No other snapshot gets its name while it writes, by which that one would be the newest. */
static void check_alone(const struct sim_node *n)
{
    enum snapshot_install_state state = n->node->snapshots.install.state;
    SIM_CHECK(n->sim, state != INSTALL_DECODING && state != INSTALL_READY,
              "node %u finishes a snapshot of another while a process writes one", n->index + 1);
}

static void child_fire(struct sim *s, struct sim_event *e)
{
    struct sim_node *n = e->node;
    struct sim_child *c = n->child;
    if (n->life != e->life || n->power == SIM_DOWN || c == NULL || e->a != n->child_serial) {
        sim_drop(s, e);
        return;
    }
    if (n->disk.stalled_until > s->now) {
        sim_again(s, e, n->disk.stalled_until - s->now);
        return;
    }
    check_alone(n);
    if (n->child_waits) {
        sim_again(s, e, 10);
        return;
    }
    s->current = n;
    work(c);
    s->current = NULL;
    if (!c->over) {
        uint64_t ms = s->options.child_ms == 0 ? 0 : sim_below(s, s->options.child_ms);
        sim_again(s, e, ms + s->options.disk_ms + sim_below(s, s->options.disk_spread_ms + 1));
        return;
    }
    sim_drop(s, e);
    SIM_TRACE(s, "node %u: a snapshot at %llu %s", n->index + 1, (unsigned long long)c->meta.index,
              c->error == 0 ? "is taken" : c->why.text);
    s->marks->snapshots_taken += c->error == 0;
    s->marks->snapshots_failed += c->error != 0;
    e = sim_to_node(n, 0, end_deliver);
    e->p = c;
}

/* What it has is on this disk, and no other snapshot is being put in its place. */
static void check_begins(const struct sim_node *n, const struct snapshot_meta *meta)
{
    const struct snapshot_install *in = &n->node->snapshots.install;
    uint64_t durable = log_durable_index(n->node->log);
    uint64_t has = replica_snapshot_index(n->node->replica);
    SIM_CHECK(n->sim, meta->index <= durable || meta->index <= has,
              "node %u takes a snapshot at %llu, and has %llu on its disk", n->index + 1,
              (unsigned long long)meta->index, (unsigned long long)durable);
    uint64_t term = sim_steps_term(n->sim, meta->index);
    SIM_CHECK(n->sim, term == 0 || term == meta->term,
              "node %u labels a snapshot at %llu with term %llu, and the entry is of term %llu",
              n->index + 1, (unsigned long long)meta->index, (unsigned long long)meta->term,
              (unsigned long long)term);
    SIM_CHECK(n->sim, !snapshot_install_works(in),
              "node %u takes a snapshot while it installs another", n->index + 1);
    SIM_CHECK(n->sim, n->child == NULL, "node %u takes two snapshots at a time", n->index + 1);
}

/* What is over goes: half-written files, and what a newer one has replaced. */
void sim_snapshot_check_left(const struct sim_node *n)
{
    unsigned whole = 0;
    for (size_t i = 0; n->child == NULL && i < sim_device_files(n->disk.device); i++) {
        const char *name = sim_device_name(n->disk.device, i);
        bool part = strstr(name, ".part") != NULL;
        whole += strncmp(name, "snapshot-", 9) == 0 && !part;
    }
    SIM_CHECK(n->sim, whole <= 4, "node %u keeps %u snapshots", n->index + 1, whole);
}

void sim_snapshot_check_install(const struct sim_node *n)
{
    SIM_CHECK(n->sim, n->child == NULL || n->ghost,
              "node %u installs a snapshot while a process writes its former state", n->index + 1);
}

int snapshot_child_start(struct snapshot_child *ret, struct log_device *device,
                         const struct machine *m, const struct snapshot_meta *meta)
{
    struct sim *s = sim_running;
    struct sim_node *n = s->current;
    check_label(n, meta);
    check_begins(n, meta);
    check_again(n, meta);
    struct sim_child *c = fli_xcalloc(1, sizeof *c);
    c->node = n;
    c->device = device;
    c->meta = *meta;
    fli_buf_init(&c->bytes, BYTES_MAX);
    int rv = machine_snapshot_write(m, take_bytes, &c->bytes);
    FLI_ASSERT(rv == 0);
    n->child = c;
    struct sim_event *e = sim_after(s, sim_below(s, 20), child_fire);
    e->node = n;
    e->life = n->life;
    e->a = ++n->child_serial;
    ret->pid = 1;
    return 0;
}

bool snapshot_child_ended(struct snapshot_child *ret, struct snapshot_verdict *verdict)
{
    struct sim_node *n = sim_running->current;
    struct sim_child *c = n->child;
    if (ret->pid == 0 || !c->told) {
        return false;
    }
    *verdict = (struct snapshot_verdict){.error = c->error, .size = c->bytes.len};
    (void)snprintf(verdict->why, sizeof verdict->why, "%s", c->why.text);
    if (!n->ghost) {
        note_end(n, c);
    }
    fli_buf_fini(&c->bytes);
    free(c);
    n->child = NULL;
    ret->pid = 0;
    return true;
}

void snapshot_child_kill(const struct snapshot_child *killed)
{
    struct sim_child *c = sim_running->current->child;
    if (killed->pid != 0) {
        die(c);
        c->told = true;
    }
}
