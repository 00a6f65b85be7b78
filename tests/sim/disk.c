/* disk.c: a node's disk: the real log and the real snapshot files on a simulated device, and the
 * record of the node.
 *
 * It replaces device_files.c and the directory functions of data_dir.h. Operations of the log end
 * after a while, as events. Everything else is done at once, and is lost in a crash unless it was
 * synced (tests/unit/log/sim_device.h). The seed decides what each crash keeps: of a write under
 * way nothing, all, or any sectors. A stalled disk finishes nothing for a while; a full one takes
 * nothing new. An error fails one write of the log, after which the process ends. Any other call
 * may fail once, too, while the node runs or starts. The record is written at once or not at
 * all. While the memory of an ended process is cleaned up, its device is frozen and changes
 * nothing.
 *
 * Rot: a flipped bit, a sector that cannot be read, a write that is acknowledged and lands
 * elsewhere. A node that refuses to start because of rot gets an empty disk and is forgotten, as an
 * operator would do. The next write behind a misplaced one reveals it. If the process ends before
 * that write, the disk is replaced as well, since no log can detect it.
 *
 * With the sabotage "no sync", writes of the log are acknowledged before they are on disk. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "../lib/splitmix.h"
#include "log/log_private.h"
#include "sim.h"
#include "steps.h"

#define UNSYNCED_MS 400u
#define READ_STALLED_MS 10u
#define PREPARE_MS 20u
#define READ_SLOW_MS 1000u /* some reads take so long at most, before all is healed */
#define TEAR_BYTES ((size_t)2048)
#define STARTS_TROUBLED 8u /* in one of so many */
#define STARTS_FAIL 4u     /* of so many writes of starts, where they do */
#define START_CALLS 60u    /* a start makes fewer */

static struct log_device_ops ops;
static const struct log_device_ops *base;

static struct sim_node *node_of(struct log_device *d)
{
    for (unsigned i = 0; i < sim_running->n; i++) {
        struct sim_node *n = &sim_running->nodes[i];
        if (n->disk.device != NULL && sim_device_base(n->disk.device) == d) {
            return n;
        }
    }
    sim_fail(sim_running, "a device of no node");
}

/* ---- operations ---- */

static void told(struct sim_node *n)
{
    struct sim_disk *d = &n->disk;
    struct sim *s = n->sim;
    if (s->orders.sabotage != SIM_SABOTAGE_NO_SYNC && d->errors > 0) {
        d->errors--;
        d->error_now = true;
        s->marks->disk_errors++;
        SIM_TRACE(s, "node %u: a write to disk fails", n->index + 1);
        sim_device_fail(d->device, SIM_LOG_WRITE, 1, 1, -EIO);
    }
    if (d->misplacing) {
        d->misplacing = false;
        d->unseen = true;
    } else {
        d->unseen = false;
    }
}

static void settle_fire(struct sim *s, struct sim_event *e)
{
    if (e->node->life == e->life) {
        sim_device_make_stable(e->node->disk.device);
    }
    sim_drop(s, e);
}

/* No entry counts as durable that waits to be written, also in the place of one that was. */
static void check_durable(const struct sim_node *n)
{
    const struct log *l = n->node->log;
    uint64_t first = UINT64_MAX;
    for (const struct log_batch *b = l->head; b != NULL; b = b->next) {
        struct log_record r;
        for (size_t at = LOG_WRITE_HEADER; at < b->write.len; at += log_record_size(r.len)) {
            log_record_peek(log_batch_data(b) + at, &r);
            first = r.type == LOG_RECORD_RESET ? UINT64_MAX : first;
            first = r.type == LOG_RECORD_ENTRY && r.index < first ? r.index : first;
        }
    }
    SIM_CHECK(n->sim, log_durable_index(l) < first,
              "node %u counts entry %llu as on its disk, and entry %llu is not yet there",
              n->index + 1, ull(log_durable_index(l)), ull(first));
}

static void finish(struct sim_node *n, enum log_lane lane)
{
    if (lane == LOG_LANE_WRITE) {
        told(n);
    }
    sim_device_finish(n->disk.device, lane);
    if (lane == LOG_LANE_WRITE && n->node != NULL && n->node->log != NULL) {
        check_durable(n);
    }
    if (lane == LOG_LANE_WRITE && n->sim->orders.sabotage == SIM_SABOTAGE_NO_SYNC) {
        struct sim_event *e = sim_after(n->sim, UNSYNCED_MS, settle_fire);
        e->node = n;
        e->life = n->life;
    }
}

static bool is_current(const struct sim_event *e)
{
    const struct sim_disk *d = &e->node->disk;
    return e->b == d->serial[e->a] && sim_device_busy(d->device, (enum log_lane)e->a);
}

static void disk_deliver(struct sim_event *e)
{
    if (is_current(e)) {
        finish(e->node, (enum log_lane)e->a);
    }
}

static void disk_fire(struct sim *s, struct sim_event *e)
{
    struct sim_node *n = e->node;
    if (n->life != e->life || n->power == SIM_DOWN || !is_current(e)) {
        sim_drop(s, e);
    } else if (n->disk.stalled_until > s->now) {
        sim_again(s, e, n->disk.stalled_until - s->now);
    } else if (e->a == LOG_LANE_READ && n->reads_stalled_until > s->now) {
        sim_again(s, e, READ_STALLED_MS); /* it may be over earlier */
    } else if (sim_late_ms(n, SIM_LATE_DISK) != 0) {
        e->c = e->c == 0 ? sim_late_moment(n) : e->c;
        sim_again(s, e, sim_late_ms(n, SIM_LATE_DISK));
    } else {
        if (e->c != 0) {
            sim_late_came(n, SIM_LATE_DISK, false, e->c);
        }
        sim_node_fire(s, e);
    }
}

static void plan(struct sim_node *n, enum log_lane lane, uint64_t ms)
{
    struct sim_event *e = sim_after(n->sim, ms, disk_fire);
    e->node = n;
    e->life = n->life;
    e->deliver = disk_deliver;
    e->a = lane;
    e->b = ++n->disk.serial[lane];
}

static uint64_t duration(struct sim *s)
{
    return s->options.disk_ms + sim_below(s, s->options.disk_spread_ms + 1);
}

static void device_start(struct log_device *d, enum log_lane lane, struct log_io *io)
{
    struct sim_node *n = node_of(d);
    struct sim *s = n->sim;
    sim_point(n);
    FLI_ASSERT(!n->disk.frozen || n->cut);
    base->start(d, lane, io);
    if (n->cut) {
        n->disk.unwritten = n->disk.unwritten || lane == LOG_LANE_WRITE;
        return;
    }
    if (lane == LOG_LANE_BACKGROUND) {
        plan(n, lane, io->delay_ms + duration(s) + sim_below(s, PREPARE_MS));
    } else if (lane == LOG_LANE_READ) {
        bool slow = !s->healed && sim_below(s, 4) == 0;
        s->marks->reads++;
        plan(n, lane, duration(s) + (slow ? sim_below(s, READ_SLOW_MS) : 0));
    } else {
        plan(n, lane, s->orders.sabotage == SIM_SABOTAGE_NO_SYNC ? 0 : duration(s));
    }
}

/* Each other time it is done at once, unless a fault is to strike it. */
static void device_perform(struct log_device *d, struct log_io *io)
{
    struct sim_node *n = node_of(d);
    struct sim *s = n->sim;
    device_start(d, LOG_LANE_WRITE, io);
    if (!n->cut && n->disk.stalled_until <= s->now && s->orders.sabotage != SIM_SABOTAGE_NO_SYNC &&
        sim_below(s, 2) == 0) {
        finish(n, LOG_LANE_WRITE);
    }
}

static void device_cancel(struct log_device *d)
{
    struct sim_node *n = node_of(d);
    base->cancel(d);
    if (!n->disk.frozen) {
        plan(n, LOG_LANE_BACKGROUND, 1);
    }
}

/* Only node_create() calls it, which waits outside of the loop's turns. */
static void device_poll(struct log_device *d)
{
    struct sim_node *n = node_of(d);
    for (unsigned lane = 0; lane < LOG_LANES; lane++) {
        if (sim_device_busy(n->disk.device, (enum log_lane)lane)) {
            finish(n, (enum log_lane)lane);
        }
    }
}

static uint64_t device_now_ns(struct log_device *d)
{
    return sim_running->now * 1000000;
}

/* ---- operations that are done at once ---- */

/* Whether this disk is frozen. */
static bool ends_here(struct log_device *d)
{
    struct sim_node *n = node_of(d);
    sim_point(n);
    return n->disk.frozen;
}

/* Notes which half-written snapshots somebody has open. */
static void note_part(struct sim_disk *disk, const char *name, const struct log_file *f)
{
    if (strncmp(name, "snapshot-", 9) != 0 || strstr(name, ".part") == NULL) {
        return;
    }
    for (unsigned i = 0; i < SIM_PARTS_MAX; i++) {
        struct sim_part *p = &disk->parts[i];
        if (p->file == NULL) {
            p->file = f;
            (void)snprintf(p->name, sizeof p->name, "%s", name);
            return;
        }
    }
    sim_fail(sim_running, "more than %u snapshots are written at a time", SIM_PARTS_MAX);
}

static int device_open(struct log_device *d, const char *name, unsigned flags,
                       struct log_file **ret)
{
    bool makes = (flags & LOG_OPEN_CREATE) != 0;
    struct sim_disk *disk = &node_of(d)->disk;
    if (makes) {
        sim_point(node_of(d));
    }
    int rv = makes && disk->frozen ? -EIO : base->open(d, name, flags, ret);
    if (rv == 0 && makes) {
        note_part(disk, name, *ret);
    }
    return rv;
}

static void device_close(struct log_device *d, struct log_file *f)
{
    struct sim_disk *disk = &node_of(d)->disk;
    for (unsigned i = 0; i < SIM_PARTS_MAX; i++) {
        disk->parts[i].file = disk->parts[i].file == f ? NULL : disk->parts[i].file;
    }
    base->close(d, f);
}

/* What somebody writes is not taken away under its hands. */
static void check_not_written(const struct sim_node *n, const char *name)
{
    for (unsigned i = 0; i < SIM_PARTS_MAX; i++) {
        const struct sim_part *p = &n->disk.parts[i];
        SIM_CHECK(n->sim, p->file == NULL || strcmp(p->name, name) != 0,
                  "node %u removes %s, which is being written", n->index + 1, name);
    }
}

static int device_write(struct log_device *d, struct log_file *f, const void *data, size_t len,
                        uint64_t offset)
{
    return ends_here(d) ? -EIO : base->write(d, f, data, len, offset);
}

static int device_sync(struct log_device *d, struct log_file *f)
{
    return ends_here(d) ? -EIO : base->sync(d, f);
}

static int device_rename(struct log_device *d, const char *from, const char *to, bool replace)
{
    if (ends_here(d)) {
        return -EIO;
    }
    if (strstr(from, ".part") == NULL) {
        sim_steps_read_back(node_of(d))->removed++;
    }
    return base->rename(d, from, to, replace);
}

static int device_remove(struct log_device *d, const char *name)
{
    struct sim_node *n = node_of(d);
    if (ends_here(d)) {
        return -EIO;
    }
    check_not_written(n, name);
    if (strstr(name, ".part") == NULL) {
        sim_steps_read_back(n)->removed++;
    }
    return base->remove(d, name);
}

static int device_sync_dir(struct log_device *d)
{
    return ends_here(d) ? -EIO : base->sync_dir(d);
}

static void give_device(struct sim_node *n, struct sim_device *given)
{
    struct sim_disk *d = &n->disk;
    d->device = given;
    struct log_device *device = sim_device_base(d->device);
    base = base == NULL ? device->ops : base;
    ops = *base;
    ops.start = device_start;
    ops.perform = device_perform;
    ops.cancel = device_cancel;
    ops.poll = device_poll;
    ops.now_ns = device_now_ns;
    ops.open = device_open;
    ops.close = device_close;
    ops.write = device_write;
    ops.sync = device_sync;
    ops.rename = device_rename;
    ops.remove = device_remove;
    ops.sync_dir = device_sync_dir;
    device->ops = &ops;
    snprintf(d->where, sizeof d->where, "node-%u/log", n->index + 1);
    device->where = d->where;
    if (n->sim->orders.sabotage == SIM_SABOTAGE_NO_SYNC) {
        sim_device_lie(d->device);
    }
}

static struct sim_node *node_named(const char *path)
{
    unsigned i = 0;
    int fields = sscanf(path, "node-%u", &i);
    FLI_ASSERT(fields == 1 && i >= 1 && i <= SIM_NODES_MAX);
    return &sim_running->nodes[i - 1];
}

/* In some starts one call fails, each in its turn; not in the first, which the run waits for. The
 * draw is none of those that the seed gives to the rest. */
static void trouble_start(struct sim_node *n)
{
    const struct sim *s = n->sim;
    uint64_t state = s->orders.seed * SIM_NODES_MAX + n->index + (n->life << 32);
    uint64_t draw = splitmix64(&state);
    n->disk.troubled = n->life > 1 && s->orders.scene == SIM_SCENE_NONE &&
                       s->orders.scenario == SIM_SCENARIO_NONE && !s->healed &&
                       draw % STARTS_TROUBLED == 0;
    if (n->disk.troubled) {
        sim_device_tick(n->disk.device, 1 + draw / STARTS_TROUBLED % START_CALLS, -EIO);
    }
}

int log_files_create(const char *dir, unsigned engine, struct log_device **ret, char *errmsg,
                     size_t errmsg_size)
{
    struct sim_node *n = node_named(dir);
    if (n->disk.device == NULL) {
        give_device(n, sim_device_create(sim_draw(&n->sim->random)));
    }
    *ret = sim_device_base(n->disk.device);
    trouble_start(n);
    return 0;
}

void log_files_destroy(struct log_device *d)
{
}

/* ---- ends and losses ---- */

void sim_disk_crash(struct sim_node *n, bool power)
{
    static uint8_t tear[TEAR_BYTES];
    struct sim *s = n->sim;
    struct sim_disk *d = &n->disk;
    unsigned mode = (unsigned)sim_below(s, 4); /* 0: nothing, 1: all, else any sectors */
    mode = d->unwritten ? 0 : mode;
    d->unwritten = false;
    if (d->device == NULL) {
        return;
    }
    if (sim_device_busy(d->device, LOG_LANE_WRITE)) {
        for (size_t i = 0; i < sizeof tear; i++) {
            tear[i] = mode == 0 ? 0 : mode == 1 ? 0xff : (uint8_t)sim_below(s, 256);
        }
        s->marks->writes_lost += mode != 1;
        s->marks->writes_torn += mode > 1;
        sim_device_tear(d->device, tear);
    }
    sim_device_crash(d->device, power ? SIM_CRASH_POWER : SIM_CRASH_PROCESS);
    sim_device_tear(d->device, NULL);
    sim_device_capacity(d->device, UINT64_MAX);
    sim_device_misplace(d->device, "", 0);
    d->misplacing = false;
    d->errors = 0;
}

void sim_disk_wipe(struct sim_node *n)
{
    struct sim_disk *d = &n->disk;
    if (d->device != NULL) {
        sim_device_destroy(d->device);
    }
    *d = (struct sim_disk){.device = NULL};
}

void sim_disk_adopt(struct sim_node *n, struct sim_device *device, const struct record *record)
{
    sim_disk_wipe(n);
    give_device(n, device);
    n->disk.has_record = true;
    n->disk.record = *record;
}

bool sim_disk_has_snapshot(const struct sim_node *n)
{
    const struct sim_device *d = n->disk.device;
    for (size_t i = 0; d != NULL && i < sim_device_files(d); i++) {
        const char *name = sim_device_name(d, i);
        if (strncmp(name, "snapshot-", 9) == 0 && strstr(name, ".part") == NULL) {
            return true;
        }
    }
    return false;
}

/* Whether a write that does not wait for the disk fails. */
static bool fails(struct sim_node *n)
{
    struct sim_disk *d = &n->disk;
    if (d->errors > 0) {
        d->errors--;
        d->error_now = true;
        n->sim->marks->disk_errors++;
    }
    return d->error_now;
}

/* ---- trouble ---- */

static void room_fire(struct sim *s, struct sim_event *e)
{
    if (e->node->life == e->life && e->node->disk.device != NULL) {
        sim_device_capacity(e->node->disk.device, UINT64_MAX);
    }
    sim_drop(s, e);
}

/* Leaves no room for new bytes, for a while. */
void sim_disk_fill(struct sim_node *n, uint64_t ms)
{
    struct sim *s = n->sim;
    if (!sim_node_runs(n)) {
        return;
    }
    s->marks->disks_full++;
    sim_device_capacity(n->disk.device, 0);
    struct sim_event *e = sim_after(s, ms, room_fire);
    e->node = n;
    e->life = n->life;
}

/* Makes one call fail once, or kills the process that writes a snapshot. */
void sim_disk_trouble(struct sim_node *n, unsigned how)
{
    static const enum sim_call calls[] = {
        SIM_WRITE, SIM_SYNC, SIM_RENAME, SIM_SYNC_DIR, SIM_OPEN,       SIM_READ,   SIM_LIST,
        SIM_LOCK,  SIM_SIZE, SIM_REMOVE, SIM_ALLOCATE, SIM_BACKGROUND, SIM_READ_IO};
    enum { CALLS = sizeof calls / sizeof calls[0] };
    if (!sim_node_runs(n)) {
        return;
    }
    n->sim->marks->snapshot_troubles++;
    if (how % (CALLS + 1) == CALLS) {
        n->kill_child = true;
    } else {
        n->disk.troubled = true;
        sim_device_fail(n->disk.device, calls[how % (CALLS + 1)], 1, 1, -EIO);
    }
}

void sim_disk_trouble_over(struct sim_node *n)
{
    struct sim_disk *d = &n->disk;
    if (d->device != NULL) {
        d->troubled = d->troubled && sim_device_ticked(d->device);
        sim_device_tick(d->device, 0, 0);
    }
}

/* From now on no call fails, also none that was to fail when it comes. */
void sim_disk_heal(struct sim_node *n)
{
    struct sim_disk *d = &n->disk;
    d->stalled_until = 0;
    d->errors = 0;
    d->troubled = d->troubled || d->error_now; /* of which the node may not have heard yet */
    d->error_now = false;
    n->kill_child = false;
    if (d->device != NULL) {
        sim_device_capacity(d->device, UINT64_MAX);
        sim_device_tick(d->device, 0, 0);
        for (unsigned call = 0; call < SIM_CALLS; call++) {
            sim_device_fail(d->device, (enum sim_call)call, 1, 0, 0);
        }
    }
}

static void misplace(struct sim_node *n)
{
    struct sim *s = n->sim;
    struct sim_device *d = n->disk.device;
    uint64_t blocks = s->options.segment_bytes / LOG_BLOCK;
    for (size_t i = 0; i < sim_device_files(d); i++) {
        const char *name = sim_device_name(d, i);
        if (strncmp(name, "segment-", 8) == 0 && strstr(name, ".part") == NULL) {
            sim_device_misplace(d, name, sim_below(s, blocks - blocks / 2) * LOG_BLOCK);
            n->disk.misplacing = true;
            return;
        }
    }
}

void sim_disk_rot(struct sim_node *n, unsigned how)
{
    struct sim *s = n->sim;
    struct sim_device *d = n->disk.device;
    size_t len = 0;
    if (d == NULL || sim_device_files(d) == 0) {
        return;
    }
    s->marks->rot++;
    n->rotten = true;
    if (how % 3 == 0 && sim_node_runs(n)) {
        misplace(n);
        return;
    }
    const char *name = sim_device_name(d, sim_below(s, sim_device_files(d)));
    (void)!sim_device_data(d, name, &len);
    if (len == 0) {
        return;
    }
    /* Most of a segment is zeros: half of the time, choose a place with content. */
    uint64_t at = sim_below(s, len);
    if (sim_below(s, 2) == 0) {
        at = sim_below(s, len < 8 * LOG_BLOCK ? len : 8 * LOG_BLOCK);
    }
    if (how % 3 == 1) {
        sim_device_bad_sector(d, name, at);
    } else {
        sim_device_flip(d, name, at, (unsigned)sim_below(s, 8));
    }
    SIM_TRACE(s, "node %u: %s rots at byte %llu", n->index + 1, name, (unsigned long long)at);
}

/* ---- the data directory ---- */

int data_dir_open(const char *path, struct data_dir *ret, char *errmsg, size_t errmsg_size)
{
    ret->lock_fd = ret->record_fd = -1;
    snprintf(ret->path, sizeof ret->path, "%s", path);
    snprintf(ret->log_path, sizeof ret->log_path, "%s/log", path);
    return 0;
}

void data_dir_close(struct data_dir *d)
{
    d->path[0] = '\0';
}

int record_open(struct data_dir *d, uint64_t id, const struct members *members, bool joins,
                struct record *ret, char *errmsg, size_t errmsg_size)
{
    struct sim_node *n = node_named(d->path);
    if (!n->disk.has_record) {
        n->disk.has_record = true;
        n->disk.record =
            (struct record){.identity = {.id = id,
                                         .incarnation = 1 + sim_draw(&n->sim->node_random) / 2,
                                         .joins = joins,
                                         .begun_crc = joins ? 0 : 1,
                                         .members = *members}};
    }
    /* A log whose making was interrupted is begun anew. */
    if (!n->disk.record.identity.bootstrapped && n->disk.device != NULL) {
        sim_device_destroy(n->disk.device);
        n->disk.device = NULL;
    }
    *ret = n->disk.record;
    return 0;
}

int identity_refuse_members(const struct data_dir *d, const struct members *found,
                            const struct members *given, char *errmsg, size_t errmsg_size)
{
    snprintf(errmsg, errmsg_size, "it is of another cluster");
    return FL_EDENIED;
}

int identity_refuse_lost_log(const struct data_dir *d, const struct identity *id, char *errmsg,
                             size_t errmsg_size)
{
    snprintf(errmsg, errmsg_size, "the log is gone");
    return FL_EDENIED;
}

/* Whether a write of a thread fails for now, for want of memory or room. The draw is none of those
 * that the seed gives to the rest. */
static bool fails_for_now(const struct sim_node *n, const struct record *r)
{
    const struct sim *sim = n->sim;
    uint64_t state = sim->orders.seed * SIM_NODES_MAX + n->index + (r->sequence << 32);
    return sim->options.starts_fail && n->by_thread && !sim->healed &&
           splitmix64(&state) % STARTS_FAIL == 0;
}

int record_store(const struct data_dir *d, struct record *r)
{
    struct sim_node *n = node_named(d->path);
    r->sequence++;
    sim_point(n);
    if (n->disk.frozen) {
        return 0;
    }
    if (fails_for_now(n, r)) {
        n->sim->marks->starts_delayed++;
        errno = ENOSPC;
        return FL_EIO;
    }
    if (fails(n)) {
        errno = EIO;
        return FL_EIO;
    }
    sim_steps_stored(n, r);
    n->disk.record = *r;
    return 0;
}
