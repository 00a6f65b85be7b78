/* disk.c: a node's disk: raft's entries, term, vote and snapshot, and the identity file.
 *
 * It stands in for the library's libuv backend (raft_uv_init) and for the directory functions of
 * identity.h, segments.h and snapshots.h. Writes wait in a list, first in, first out, and are
 * acknowledged once they are on disk. A crash keeps any number of the waiting ones from the front,
 * of the next one perhaps a part of its entries, and nothing behind: an entry of which only a part
 * was written is found torn and cut off when the disk is read, as the backend does by checksum.
 * Term, vote and identity are written at once or not at all. A stalled disk (full, or slow)
 * finishes nothing for a while. An error fails the write and all that follow it until the process
 * ends; whether its bytes are there is open. With the sabotage "no sync" writes are acknowledged
 * before they are on disk. */
#include <raft/uv.h>
#include <stdlib.h>
#include <string.h>

#include "consensus/cut.h"
#include "consensus/segments.h"
#include "consensus/snapshots.h"
#include "sim.h"

#define UNSYNCED_MS 400u

static struct sim_node *node_of(struct raft_io *io)
{
    return io->impl;
}

raft_index sim_disk_last(const struct sim_disk *d)
{
    return d->start + d->n - 1;
}

/* ---- what is on disk ---- */

static void entry_copy(struct sim_entry *dst, const struct raft_entry *src)
{
    *dst = (struct sim_entry){.term = src->term, .type = (int)src->type, .len = src->buf.len};
    dst->data = fli_xmalloc(src->buf.len);
    memcpy(dst->data, src->buf.base, src->buf.len);
}

static void truncate_disk(struct sim_disk *d, raft_index index)
{
    while (d->n > 0 && sim_disk_last(d) >= index) {
        free(d->entries[--d->n].data);
    }
    if (d->n == 0) {
        d->start = index > d->start ? d->start : index;
    }
}

static void append_disk(struct sim_disk *d, struct sim_entry *entries, unsigned n)
{
    d->entries = sim_grow(d->entries, &d->cap, d->n + n, sizeof *d->entries);
    for (unsigned i = 0; i < n; i++) {
        d->entries[d->n++] = entries[i];
        entries[i].data = NULL;
    }
}

static void install_disk(struct sim_disk *d, struct sim_snapshot *snapshot, unsigned trailing)
{
    free(d->snapshot.data);
    d->snapshot = *snapshot;
    d->has_snapshot = true;
    snapshot->data = NULL;
    if (trailing == 0) {
        truncate_disk(d, d->start);
        d->start = d->snapshot.index + 1;
        return;
    }
    size_t gone = 0;
    while (gone < d->n && d->start + gone + trailing <= d->snapshot.index) {
        free(d->entries[gone++].data);
    }
    d->n -= gone;
    d->start += gone;
    memmove(d->entries, d->entries + gone, d->n * sizeof *d->entries);
}

/* ---- writes under way ---- */

static void write_free(struct sim_write *w)
{
    for (unsigned i = 0; i < w->n; i++) {
        free(w->entries[i].data);
    }
    free(w->entries);
    free(w->snapshot.data);
    free(w);
}

static void write_done(struct sim_disk *d, struct sim_write *w)
{
    switch (w->kind) {
    case SIM_WRITE_APPEND:
        append_disk(d, w->entries, w->n);
        break;
    case SIM_WRITE_TRUNCATE:
        truncate_disk(d, w->index);
        break;
    case SIM_WRITE_SNAPSHOT:
        install_disk(d, &w->snapshot, w->trailing);
        break;
    }
}

struct told {
    struct raft_io_append *append;
    raft_io_append_cb append_cb;
    struct raft_io_snapshot_put *put;
    raft_io_snapshot_put_cb put_cb;
    int status;
    struct told *next;
};

static void tell(const struct told *t, int status)
{
    if (t->append != NULL) {
        t->append_cb(t->append, status);
    } else if (t->put != NULL) {
        t->put_cb(t->put, status);
    }
}

static void told_deliver(struct sim_event *e)
{
    struct told *t = e->p;
    struct told copy = *t;
    t->append = NULL;
    t->put = NULL;
    tell(&copy, copy.status);
}

/* A callback that its process did not live to get: raft is owed it while the ghost closes. */
static void told_drop(struct sim_event *e)
{
    struct told *t = e->p;
    tell(t, RAFT_CANCELED);
    free(t);
}

static void acknowledge(struct sim_node *n, struct sim_write *w, int status, uint64_t ms)
{
    if (w->told || (w->append == NULL && w->put == NULL)) {
        return;
    }
    struct told *t = fli_xcalloc(1, sizeof *t);
    *t = (struct told){w->append, w->append_cb, w->put, w->put_cb, status, NULL};
    struct sim_event *e = sim_to_node(n, ms, told_deliver);
    e->p = t;
    e->drop = told_drop;
    w->told = true;
}

static void disk_fire(struct sim *s, struct sim_event *e);

static void wait_for_disk(struct sim_node *n)
{
    struct sim *s = n->sim;
    uint64_t at = n->disk.first->at;
    struct sim_event *e = sim_after(s, at > s->now ? at - s->now : 0, disk_fire);
    e->node = n;
    e->life = n->life;
}

/* The first write of the list is on disk, or has failed. */
static void disk_fire(struct sim *s, struct sim_event *e)
{
    struct sim_node *n = e->node;
    struct sim_disk *d = &n->disk;
    bool mine = e->life == n->life && n->power != SIM_DOWN;
    sim_drop(s, e);
    if (!mine || d->first == NULL || d->first->at > s->now) {
        return;
    }
    if (d->stalled_until > s->now) {
        d->first->at = d->stalled_until;
        wait_for_disk(n);
        return;
    }
    struct sim_write *w = d->first;
    int status = 0;
    bool there = true;
    if (d->error_now || d->errors > 0) {
        there = !d->error_now && sim_below(s, 2) == 0;
        d->errors -= d->errors > 0;
        s->marks->disk_errors += !d->error_now;
        SIM_TRACE(s, "node %u: a write to disk fails", n->index + 1);
        d->error_now = true;
        status = RAFT_IOERR;
    }
    d->first = w->next;
    if (there) {
        write_done(d, w);
    }
    acknowledge(n, w, status, 0);
    write_free(w);
    if (d->first != NULL) {
        wait_for_disk(n);
    }
}

static void enqueue(struct sim_node *n, struct sim_write *w)
{
    struct sim *s = n->sim;
    struct sim_disk *d = &n->disk;
    uint64_t ms = s->options.disk_ms + sim_below(s, s->options.disk_spread_ms + 1);
    bool unsynced = s->orders.sabotage == SIM_SABOTAGE_NO_SYNC;
    if (unsynced) {
        acknowledge(n, w, 0, 0);
        ms = UNSYNCED_MS;
    }
    w->at = s->now + ms;
    if (d->first == NULL) {
        d->first = w;
        wait_for_disk(n);
    } else {
        if (w->at < d->last->at || unsynced) {
            w->at = unsynced ? w->at : d->last->at;
        }
        d->last->next = w;
    }
    d->last = w;
}

void sim_disk_crash(struct sim_node *n)
{
    struct sim *s = n->sim;
    struct sim_disk *d = &n->disk;
    /* Behind a write that has failed, none is tried. */
    bool keep = !d->error_now && sim_below(s, 3) != 0;
    bool part = !d->error_now;
    while (d->first != NULL) {
        struct sim_write *w = d->first;
        d->first = w->next;
        keep = keep && sim_below(s, 2) != 0;
        if (keep) {
            write_done(d, w);
        } else if (w->kind == SIM_WRITE_APPEND && part) {
            unsigned whole = (unsigned)sim_below(s, w->n + 1);
            s->marks->writes_lost++;
            s->marks->writes_torn += whole > 0;
            append_disk(d, w->entries, whole);
        }
        acknowledge(n, w, RAFT_CANCELED, 0);
        write_free(w);
        if (!keep) {
            break;
        }
    }
    while (d->first != NULL) {
        struct sim_write *w = d->first;
        d->first = w->next;
        acknowledge(n, w, RAFT_CANCELED, 0);
        write_free(w);
    }
    d->last = NULL;
    d->errors = 0;
}

void sim_disk_wipe(struct sim_node *n)
{
    struct sim_disk *d = &n->disk;
    FLI_ASSERT(d->first == NULL);
    truncate_disk(d, d->start);
    free(d->snapshot.data);
    struct sim_entry *entries = d->entries;
    size_t cap = d->cap;
    *d = (struct sim_disk){.start = 1, .entries = entries, .cap = cap};
}

/* ---- raft_io ---- */

static int io_init(struct raft_io *io, raft_id id, const char *address)
{
    (void)io;
    (void)id;
    (void)address;
    return 0;
}

static void io_close(struct raft_io *io, raft_io_close_cb cb)
{
    struct sim_node *n = node_of(io);
    struct sim_inbox *boxes[] = {&n->inbox, &n->deferred};
    /* In a graceful end as well, what is not on disk yet is as lost as in a crash. */
    sim_disk_crash(n);
    for (unsigned i = 0; i < 2; i++) {
        for (struct sim_event *e = boxes[i]->first; e != NULL; e = e->next) {
            if (e->deliver == told_deliver) {
                struct told *t = e->p;
                tell(t, RAFT_CANCELED);
                t->append = NULL;
                t->put = NULL;
            }
        }
    }
    for (size_t i = 0; i < n->sim->heap_n; i++) {
        struct sim_event *e = n->sim->heap[i];
        if (e->deliver == told_deliver && e->node == n) {
            struct told *t = e->p;
            tell(t, RAFT_CANCELED);
            t->append = NULL;
            t->put = NULL;
        }
    }
    sim_net_close(n);
    cb(io);
}

static void load_snapshot(struct sim *sim, const struct sim_snapshot *from,
                          struct raft_snapshot **ret)
{
    struct raft_snapshot *s = raft_calloc(1, sizeof *s);
    FLI_ASSERT(s != NULL);
    s->index = from->index;
    s->term = from->term;
    s->configuration_index = from->conf_index;
    raft_configuration_init(&s->configuration);
    for (unsigned i = 0; i < from->n; i++) {
        const char *address = sim->members.list[from->ids[i] - 1].address;
        int rv = raft_configuration_add(&s->configuration, from->ids[i], address, from->roles[i]);
        FLI_ASSERT(rv == 0);
    }
    s->bufs = raft_calloc(1, sizeof *s->bufs);
    FLI_ASSERT(s->bufs != NULL);
    s->n_bufs = 1;
    s->bufs[0].len = from->len;
    s->bufs[0].base = raft_malloc(from->len);
    FLI_ASSERT(s->bufs[0].base != NULL);
    memcpy(s->bufs[0].base, from->data, from->len);
    *ret = s;
}

static struct raft_entry *load_entries(const struct sim_disk *d)
{
    size_t bytes = 0;
    for (size_t i = 0; i < d->n; i++) {
        bytes += d->entries[i].len;
    }
    struct raft_entry *entries = raft_calloc(d->n, sizeof *entries);
    uint8_t *batch = raft_malloc(bytes);
    FLI_ASSERT(entries != NULL && batch != NULL);
    size_t at = 0;
    for (size_t i = 0; i < d->n; i++) {
        const struct sim_entry *from = &d->entries[i];
        memcpy(batch + at, from->data, from->len);
        entries[i].term = from->term;
        entries[i].type = (enum raft_entry_type)from->type;
        entries[i].buf.base = batch + at;
        entries[i].buf.len = from->len;
        entries[i].batch = batch;
        at += from->len;
    }
    return entries;
}

static int io_load(struct raft_io *io, raft_term *term, raft_id *voted_for,
                   struct raft_snapshot **snapshot, raft_index *start_index,
                   struct raft_entry *entries[], size_t *n_entries)
{
    struct sim_node *n = node_of(io);
    struct sim_disk *d = &n->disk;
    *term = d->term;
    *voted_for = d->voted_for;
    *snapshot = NULL;
    *entries = NULL;
    /* A crash between the two halves of installing a snapshot leaves entries that it replaces. */
    if (d->has_snapshot && sim_disk_last(d) < d->snapshot.index) {
        truncate_disk(d, d->start);
        d->start = d->snapshot.index + 1;
    }
    *start_index = d->start;
    *n_entries = d->n;
    if (d->has_snapshot) {
        load_snapshot(n->sim, &d->snapshot, snapshot);
        n->sim->marks->snapshots_started_from++;
    }
    if (d->n > 0) {
        *entries = load_entries(d);
    }
    return 0;
}

static void tick_deliver(struct sim_event *e)
{
    struct sim_node *n = e->node;
    struct node *node = n->node;
    sim_to_node(n, n->tick_ms, tick_deliver);
    if (node != NULL && node->raft_live) {
        n->tick(&node->io);
    }
}

static int io_start(struct raft_io *io, unsigned msecs, raft_io_tick_cb tick, raft_io_recv_cb recv)
{
    struct sim_node *n = node_of(io);
    n->tick = tick;
    n->recv = recv;
    n->tick_ms = msecs;
    sim_to_node(n, msecs, tick_deliver);
    return 0;
}

static int io_bootstrap(struct raft_io *io, const struct raft_configuration *conf)
{
    struct sim_disk *d = &node_of(io)->disk;
    struct raft_entry e = {.term = 1, .type = RAFT_CHANGE};
    struct sim_entry copy;
    FLI_ASSERT(d->term == 0 && d->n == 0);
    int rv = raft_configuration_encode(conf, &e.buf);
    FLI_ASSERT(rv == 0);
    entry_copy(&copy, &e);
    raft_free(e.buf.base);
    append_disk(d, &copy, 1);
    d->term = 1;
    return 0;
}

static int io_recover(struct raft_io *io, const struct raft_configuration *conf)
{
    (void)io;
    (void)conf;
    return RAFT_IOERR;
}

/* A write that does not wait: whether it fails. */
bool sim_disk_fails(struct sim_node *n)
{
    struct sim_disk *d = &n->disk;
    if (d->errors > 0) {
        d->errors--;
        d->error_now = true;
        n->sim->marks->disk_errors++;
    }
    return d->error_now;
}

static int io_set_term(struct raft_io *io, raft_term term)
{
    struct sim_node *n = node_of(io);
    if (n->ghost) {
        return 0;
    }
    if (sim_disk_fails(n)) {
        return RAFT_IOERR;
    }
    SIM_CHECK(n->sim, term >= n->disk.term, "node %u goes back to an older term", n->index + 1);
    n->disk.term = term;
    n->disk.voted_for = 0;
    return 0;
}

static int io_set_vote(struct raft_io *io, raft_id server_id)
{
    struct sim_node *n = node_of(io);
    if (n->ghost) {
        return 0;
    }
    if (sim_disk_fails(n)) {
        return RAFT_IOERR;
    }
    SIM_CHECK(n->sim, n->disk.voted_for == 0 || n->disk.voted_for == server_id,
              "node %u votes twice in term %llu", n->index + 1, n->disk.term);
    n->disk.voted_for = server_id;
    return 0;
}

static int io_send(struct raft_io *io, struct raft_io_send *req, const struct raft_message *message,
                   raft_io_send_cb cb)
{
    struct sim_node *n = node_of(io);
    if (!n->ghost) {
        sim_net_send(n, message);
    }
    cb(req, 0);
    return 0;
}

static int io_append(struct raft_io *io, struct raft_io_append *req,
                     const struct raft_entry entries[], unsigned n_entries, raft_io_append_cb cb)
{
    struct sim_node *n = node_of(io);
    struct sim_write *w = fli_xcalloc(1, sizeof *w);
    w->kind = SIM_WRITE_APPEND;
    w->append = req;
    w->append_cb = cb;
    w->n = n_entries;
    w->entries = fli_xcalloc(n_entries, sizeof *w->entries);
    for (unsigned i = 0; i < n_entries; i++) {
        entry_copy(&w->entries[i], &entries[i]);
        if (entries[i].type == RAFT_COMMAND) {
            sim_oracle_sealed(n, entries[i].buf.base, entries[i].buf.len);
        }
    }
    enqueue(n, w);
    return 0;
}

static int io_truncate(struct raft_io *io, raft_index index)
{
    struct sim_node *n = node_of(io);
    struct sim_write *w = fli_xcalloc(1, sizeof *w);
    w->kind = SIM_WRITE_TRUNCATE;
    w->index = index;
    if (n->disk.first == NULL) {
        /* Nothing to be cut off in most cases: no need to wait for it. */
        if (index > sim_disk_last(&n->disk)) {
            free(w);
            return 0;
        }
    }
    enqueue(n, w);
    return 0;
}

static void copy_snapshot(struct sim_snapshot *dst, const struct raft_snapshot *src)
{
    size_t at = 0;
    *dst = (struct sim_snapshot){.index = src->index,
                                 .term = src->term,
                                 .conf_index = src->configuration_index,
                                 .n = src->configuration.n};
    FLI_ASSERT(dst->n <= SIM_NODES_MAX);
    for (unsigned i = 0; i < dst->n; i++) {
        dst->ids[i] = src->configuration.servers[i].id;
        dst->roles[i] = src->configuration.servers[i].role;
    }
    for (unsigned i = 0; i < src->n_bufs; i++) {
        dst->len += src->bufs[i].len;
    }
    dst->data = fli_xmalloc(dst->len);
    for (unsigned i = 0; i < src->n_bufs; i++) {
        memcpy(dst->data + at, src->bufs[i].base, src->bufs[i].len);
        at += src->bufs[i].len;
    }
}

/* Where the first of what is on disk begins that a write on its way will cut off. */
static raft_index cut_from(const struct sim_disk *d)
{
    raft_index from = UINT64_MAX;
    for (const struct sim_write *w = d->first; w != NULL; w = w->next) {
        if (w->kind == SIM_WRITE_TRUNCATE && w->index < from) {
            from = w->index;
        }
    }
    return from;
}

/* A snapshot has the configuration of the last change that its state contains, or a later one. */
static void check_label(struct sim_node *n, const struct raft_snapshot *snapshot)
{
    const struct sim_disk *d = &n->disk;
    raft_index cut = cut_from(d);
    for (size_t i = 0; i < d->n && d->start + i < cut; i++) {
        raft_index index = d->start + i;
        SIM_CHECK(n->sim,
                  d->entries[i].type != RAFT_CHANGE || index > snapshot->index ||
                      index <= snapshot->configuration_index,
                  "node %u labels a snapshot at %llu with configuration %llu, and %llu is one",
                  n->index + 1, snapshot->index, snapshot->configuration_index, index);
    }
}

/* Of two changes that raft has, the first one is committed, and it must know. */
void sim_disk_check_changes(struct sim_node *n)
{
    const struct raft *r = &n->node->raft;
    const struct sim_disk *d = &n->disk;
    raft_index noted = r->configuration_uncommitted_index;
    if (noted == 0) {
        return;
    }
    raft_index cut = cut_from(d);
    for (size_t i = 0; i < d->n && d->start + i < cut && d->start + i < noted; i++) {
        SIM_CHECK(n->sim,
                  d->entries[i].type != RAFT_CHANGE ||
                      d->start + i <= r->configuration_committed_index,
                  "node %u notes %llu as the change that is not committed, and %llu as the last "
                  "before it, which is %llu",
                  n->index + 1, noted, r->configuration_committed_index, d->start + i);
    }
}

static int io_snapshot_put(struct raft_io *io, unsigned trailing, struct raft_io_snapshot_put *req,
                           const struct raft_snapshot *snapshot, raft_io_snapshot_put_cb cb)
{
    struct sim_node *n = node_of(io);
    struct sim_write *w = fli_xcalloc(1, sizeof *w);
    w->kind = SIM_WRITE_SNAPSHOT;
    w->put = req;
    w->put_cb = cb;
    w->trailing = trailing;
    if (trailing != 0) {
        check_label(n, snapshot);
    }
    copy_snapshot(&w->snapshot, snapshot);
    SIM_TRACE(n->sim, "node %u %s a snapshot at %llu", n->index + 1,
              trailing == 0 ? "installs" : "takes", snapshot->index);
    n->sim->marks->snapshots_taken += trailing != 0;
    n->sim->marks->snapshots_installed += trailing == 0;
    enqueue(n, w);
    return 0;
}

static int io_snapshot_get(struct raft_io *io, struct raft_io_snapshot_get *req,
                           raft_io_snapshot_get_cb cb)
{
    struct sim_node *n = node_of(io);
    struct raft_snapshot *copy;
    FLI_ASSERT(n->disk.has_snapshot);
    load_snapshot(n->sim, &n->disk.snapshot, &copy);
    cb(req, copy, 0);
    return 0;
}

static raft_time io_time(struct raft_io *io)
{
    struct sim_node *n = node_of(io);
    return sim_clock_read(n->sim, &n->clock);
}

static int io_random(struct raft_io *io, int min, int max)
{
    struct sim *s = node_of(io)->sim;
    return min + (int)sim_draw_below(&s->node_random, (uint64_t)(max - min));
}

int raft_uv_init(struct raft_io *io, struct uv_loop_s *loop, const char *dir,
                 struct raft_uv_transport *transport)
{
    (void)dir;
    (void)transport;
    *io = (struct raft_io){
        .version = 2,
        .impl = FLI_CONTAINER_OF(loop, struct sim_node, loop),
        .init = io_init,
        .close = io_close,
        .load = io_load,
        .start = io_start,
        .bootstrap = io_bootstrap,
        .recover = io_recover,
        .set_term = io_set_term,
        .set_vote = io_set_vote,
        .send = io_send,
        .append = io_append,
        .truncate = io_truncate,
        .snapshot_put = io_snapshot_put,
        .snapshot_get = io_snapshot_get,
        .time = io_time,
        .random = io_random,
    };
    return 0;
}

void raft_uv_close(struct raft_io *io)
{
    (void)io;
}

void raft_uv_set_connect_retry_delay(struct raft_io *io, unsigned msecs)
{
    (void)io;
    (void)msecs;
}

void raft_uv_set_tracer(struct raft_io *io, struct raft_tracer *tracer)
{
    (void)io;
    (void)tracer;
}

/* ---- the data directory ---- */

int data_dir_open(const char *path, struct data_dir *ret, char *errmsg, size_t errmsg_size)
{
    (void)errmsg;
    (void)errmsg_size;
    ret->lock_fd = -1;
    snprintf(ret->path, sizeof ret->path, "%s", path);
    snprintf(ret->raft_path, sizeof ret->raft_path, "%s/raft", path);
    return 0;
}

void data_dir_close(struct data_dir *d)
{
    d->path[0] = '\0';
}

/* There are no files that could be damaged. */
int segments_check(const char *path, char *errmsg, size_t errmsg_size)
{
    (void)path;
    (void)errmsg;
    (void)errmsg_size;
    return 0;
}

int snapshots_check(const char *path, char *errmsg, size_t errmsg_size)
{
    (void)path;
    (void)errmsg;
    (void)errmsg_size;
    return 0;
}

/* Cutting the log off is one step of the disk here, which does not fail by itself. */
int cut_begin(const char *path, uint64_t index, char *errmsg, size_t errmsg_size)
{
    (void)path;
    (void)index;
    (void)errmsg;
    (void)errmsg_size;
    return 0;
}

int cut_look(const char *path, uint64_t index, char *errmsg, size_t errmsg_size)
{
    return cut_begin(path, index, errmsg, errmsg_size);
}

int cut_forget(const char *path, char *errmsg, size_t errmsg_size)
{
    return cut_begin(path, 1, errmsg, errmsg_size);
}

int cut_finish(const char *path, uint64_t *ret_index, char *errmsg, size_t errmsg_size)
{
    *ret_index = 0;
    return cut_begin(path, 1, errmsg, errmsg_size);
}

struct sim_node *sim_disk_node(const struct data_dir *d)
{
    unsigned i = 0;
    int fields = sscanf(d->path, "node-%u", &i);
    FLI_ASSERT(fields == 1 && i >= 1 && i <= SIM_NODES_MAX);
    return &sim_world->nodes[i - 1];
}

int identity_open(const struct data_dir *d, uint64_t id, const struct members *members,
                  struct identity *ret, char *errmsg, size_t errmsg_size)
{
    struct sim_node *n = sim_disk_node(d);
    (void)errmsg;
    (void)errmsg_size;
    if (!n->disk.has_identity) {
        n->disk.has_identity = true;
        n->disk.start = 1;
        n->disk.identity = (struct identity){
            .id = id, .incarnation = 1 + sim_draw(&n->sim->node_random) / 2, .members = *members};
    }
    *ret = n->disk.identity;
    return 0;
}

int identity_store(const struct data_dir *d, const struct identity *id)
{
    struct sim_node *n = sim_disk_node(d);
    if (n->ghost) {
        return 0;
    }
    if (sim_disk_fails(n)) {
        return FL_EIO;
    }
    n->disk.identity = *id;
    return 0;
}
