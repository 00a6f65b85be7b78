/* sim_device.c: see sim_device.h. The files and directories are in sim_files.h. */
#include "sim_device.h"

#include "../../lib/splitmix.h"
#include "sim_faults.h"
#include "sim_files.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHANGES_MAX 256u

struct log_file {
    struct inode *inode;
};

struct sim_device {
    struct log_device base;
    pthread_mutex_t mutex; /* held in synchronous calls, which workers make too */
    bool lies;
    struct late_writes late;
    uint64_t rng;
    uint64_t now_ns;
    struct directory seen, stable;
    struct change changes[CHANGES_MAX];
    size_t changes_len;
    struct log_io *under_way[LOG_LANES];
    uint64_t calls_left; /* in a crash, of the operation that it interrupts */
    bool reads_back;
    struct faults faults;
    uint64_t capacity;
    char misplace_name[LOG_NAME_MAX + 1];
    uint64_t misplace_offset;
    bool fail_in_cache;
    const uint8_t *tear;
};

static struct sim_device *sim_of(struct log_device *d)
{
    return FLI_CONTAINER_OF(d, struct sim_device, base);
}

static uint64_t next(struct sim_device *d)
{
    return splitmix64(&d->rng);
}

uint64_t sim_device_random(struct sim_device *d, uint64_t below)
{
    return below == 0 ? 0 : next(d) % below;
}

static bool coin(struct sim_device *d)
{
    return next(d) >> 63 != 0;
}

/* Counts a call; its error, or 0. */
static int fault(struct sim_device *d, enum sim_call call)
{
    if (d->calls_left == 0) {
        return -EIO;
    }
    d->calls_left--;
    d->now_ns += 1000;
    return count_call(&d->faults, call);
}

/* --- names --- */

static void drop_changes(struct sim_device *d)
{
    for (size_t i = 0; i < d->changes_len; i++) {
        inode_unref(d->changes[i].inode);
    }
    d->changes_len = 0;
}

static void note_change(struct sim_device *d, const char *from, const char *to, struct inode *inode)
{
    struct change *c = d->changes_len == 0 ? NULL : &d->changes[d->changes_len - 1];
    if (to[0] == '\0' && c != NULL && c->from[0] == '\0' && strcmp(c->to, from) == 0) {
        unlink_name(&d->seen, from); /* it was made just now: so there are no two changes */
        inode_unref(c->inode);
        d->changes_len--;
        return;
    }
    FLI_ASSERT(d->changes_len < CHANGES_MAX);
    c = &d->changes[d->changes_len++];
    snprintf(c->from, sizeof c->from, "%s", from);
    snprintf(c->to, sizeof c->to, "%s", to);
    c->inode = inode;
    inode->refs++;
    change_directory(&d->seen, c);
}

/* Whether a file may grow to this length. */
static bool has_room(struct sim_device *d, const struct inode *n, uint64_t len)
{
    return len <= n->seen_len || directory_bytes(&d->seen) - n->seen_len + len <= d->capacity;
}

/* --- synchronous calls --- */

static int sim_list(struct log_device *base, fli_folder_cb *each, void *ctx)
{
    struct sim_device *d = sim_of(base);
    int error = fault(d, SIM_LIST);
    for (size_t i = 0; error == 0 && i < d->seen.len; i++) {
        error = each(ctx, d->seen.names[i].text);
    }
    return error;
}

static int sim_open(struct log_device *base, const char *name, unsigned flags,
                    struct log_file **ret)
{
    struct sim_device *d = sim_of(base);
    int error = fault(d, SIM_OPEN);
    if (error != 0) {
        return error;
    }
    struct name *n = lookup(&d->seen, name);
    if ((flags & LOG_OPEN_CREATE) != 0 && n != NULL) {
        return -EEXIST;
    }
    if ((flags & LOG_OPEN_CREATE) == 0 && n == NULL) {
        return -ENOENT;
    }
    struct inode *inode = n == NULL ? fli_xcalloc(1, sizeof *inode) : n->inode;
    if (n == NULL) {
        note_change(d, "", name, inode);
    }
    struct log_file *f = fli_xmalloc(sizeof *f);
    f->inode = inode;
    inode->refs++;
    *ret = f;
    return 0;
}

static void sim_close(struct log_device *base, struct log_file *f)
{
    inode_unref(f->inode);
    free(f);
}

/* Nobody else has the files of this disk open. */
static int sim_lock(struct log_device *base, struct log_file *f, uint32_t wait_ms)
{
    return fault(sim_of(base), SIM_LOCK);
}

static int sim_size(struct log_device *base, struct log_file *f, uint64_t *ret)
{
    *ret = f->inode->seen_len;
    return fault(sim_of(base), SIM_SIZE);
}

static int64_t sim_read(struct log_device *base, struct log_file *f, void *data, size_t len,
                        uint64_t offset)
{
    struct sim_device *d = sim_of(base);
    int error = d->reads_back ? 0 : fault(d, SIM_READ);
    return error != 0 ? error : inode_read(f->inode, data, len, offset);
}

static int sim_allocate(struct log_device *base, struct log_file *f, uint64_t size)
{
    struct sim_device *d = sim_of(base);
    int error = fault(d, SIM_ALLOCATE);
    if (error == 0 && !has_room(d, f->inode, size)) {
        error = -ENOSPC;
    }
    if (error == 0) {
        inode_resize(f->inode, (size_t)size);
    }
    return error;
}

/* Any blocks of a write that a crash interrupts. */
static void write_some(struct sim_device *d, struct inode *n, const uint8_t *data, size_t len,
                       size_t offset)
{
    for (size_t at = 0; at + LOG_BLOCK <= len && offset + len <= n->seen_len; at += LOG_BLOCK) {
        if (coin(d)) {
            memcpy(n->seen + offset + at, data + at, LOG_BLOCK);
        }
    }
}

static int sim_write(struct log_device *base, struct log_file *f, const void *data, size_t len,
                     uint64_t offset)
{
    struct sim_device *d = sim_of(base);
    if (d->calls_left == 1) {
        write_some(d, f->inode, data, len, (size_t)offset);
        d->calls_left = 0;
    }
    int error = fault(d, SIM_WRITE);
    if (error != 0) {
        return error;
    }
    if (!has_room(d, f->inode, offset + len)) {
        return -ENOSPC;
    }
    if (offset + len > f->inode->seen_len) {
        inode_resize(f->inode, (size_t)offset + len);
    }
    inode_write(f->inode, data, len, (size_t)offset);
    return 0;
}

static int sim_sync(struct log_device *base, struct log_file *f)
{
    int error = fault(sim_of(base), SIM_SYNC);
    if (error == 0) {
        inode_sync(f->inode);
    } else {
        inode_sync_failed(f->inode);
    }
    return error;
}

static int sim_rename(struct log_device *base, const char *from, const char *to, bool replace)
{
    struct sim_device *d = sim_of(base);
    int error = fault(d, SIM_RENAME);
    struct name *n = lookup(&d->seen, from);
    if (error != 0 || n == NULL) {
        return error != 0 ? error : -ENOENT;
    }
    if (!replace && lookup(&d->seen, to) != NULL) {
        return -EEXIST;
    }
    note_change(d, from, to, n->inode);
    return 0;
}

static int sim_remove(struct log_device *base, const char *name)
{
    struct sim_device *d = sim_of(base);
    int error = fault(d, SIM_REMOVE);
    struct name *n = lookup(&d->seen, name);
    if (error != 0 || n == NULL) {
        return error != 0 ? error : -ENOENT;
    }
    note_change(d, name, "", n->inode);
    return 0;
}

static int sim_sync_dir(struct log_device *base)
{
    struct sim_device *d = sim_of(base);
    int error = fault(d, SIM_SYNC_DIR);
    if (error == 0) {
        copy_directory(&d->stable, &d->seen);
        drop_changes(d);
    }
    return error;
}

uint64_t *sim_device_clock(struct sim_device *d)
{
    return &d->now_ns;
}

static uint64_t sim_now_ns(struct log_device *base)
{
    return ++sim_of(base)->now_ns;
}

/* --- operations --- */

static void sim_start(struct log_device *base, enum log_lane lane, struct log_io *io)
{
    struct sim_device *d = sim_of(base);
    FLI_ASSERT(d->under_way[lane] == NULL);
    FLI_ASSERT((io->work == NULL) == (lane == LOG_LANE_WRITE));
    if (lane != LOG_LANE_BACKGROUND) {
        const void *memory = lane == LOG_LANE_READ ? io->into : io->data;
        FLI_ASSERT(io->len > 0 && io->len % base->block == 0 && io->offset % base->block == 0);
        FLI_ASSERT((uintptr_t)memory % base->block == 0);
    }
    if (lane == LOG_LANE_READ) {
        memset(io->into, 0xa5, io->len);
    }
    FLI_ASSERT(lane != LOG_LANE_WRITE || io->offset + io->len <= io->file->inode->seen_len);
    d->under_way[lane] = io;
}

static void sim_perform(struct log_device *base, struct log_io *io)
{
    sim_start(base, LOG_LANE_WRITE, io);
    sim_device_finish(sim_of(base), LOG_LANE_WRITE);
}

static void sim_cancel(struct log_device *base)
{
    atomic_store(&base->cancelled, true);
}

/* Only who waits calls it, and then for a read. */
static void sim_poll(struct log_device *base)
{
    if (sim_device_busy(sim_of(base), LOG_LANE_READ)) {
        sim_device_finish(sim_of(base), LOG_LANE_READ);
    }
}

/* ---- the synchronous calls, one at a time ---- */

#define ONE_AT_A_TIME(type, call, parameters, arguments)                                           \
    static type locked_##call parameters                                                           \
    {                                                                                              \
        pthread_mutex_t *mutex = &sim_of(base)->mutex;                                             \
        pthread_mutex_lock(mutex);                                                                 \
        type rv = sim_##call arguments;                                                            \
        pthread_mutex_unlock(mutex);                                                               \
        return rv;                                                                                 \
    }

ONE_AT_A_TIME(int, list, (struct log_device * base, fli_folder_cb *each, void *ctx),
              (base, each, ctx))
ONE_AT_A_TIME(int, open,
              (struct log_device * base, const char *name, unsigned flags, struct log_file **ret),
              (base, name, flags, ret))
ONE_AT_A_TIME(int, lock, (struct log_device * base, struct log_file *f, uint32_t wait_ms),
              (base, f, wait_ms))
ONE_AT_A_TIME(int, size, (struct log_device * base, struct log_file *f, uint64_t *ret),
              (base, f, ret))
ONE_AT_A_TIME(int, allocate, (struct log_device * base, struct log_file *f, uint64_t size),
              (base, f, size))
ONE_AT_A_TIME(int64_t, read,
              (struct log_device * base, struct log_file *f, void *data, size_t len,
               uint64_t offset),
              (base, f, data, len, offset))
ONE_AT_A_TIME(int, write,
              (struct log_device * base, struct log_file *f, const void *data, size_t len,
               uint64_t offset),
              (base, f, data, len, offset))
ONE_AT_A_TIME(int, sync, (struct log_device * base, struct log_file *f), (base, f))
ONE_AT_A_TIME(int, rename,
              (struct log_device * base, const char *from, const char *to, bool replace),
              (base, from, to, replace))
ONE_AT_A_TIME(int, remove, (struct log_device * base, const char *name), (base, name))
ONE_AT_A_TIME(int, sync_dir, (struct log_device * base), (base))

static void locked_close(struct log_device *base, struct log_file *f)
{
    pthread_mutex_lock(&sim_of(base)->mutex);
    sim_close(base, f);
    pthread_mutex_unlock(&sim_of(base)->mutex);
}

static const struct log_device_ops sim_ops = {
    .list = locked_list,
    .open = locked_open,
    .close = locked_close,
    .lock = locked_lock,
    .size = locked_size,
    .allocate = locked_allocate,
    .read = locked_read,
    .write = locked_write,
    .sync = locked_sync,
    .rename = locked_rename,
    .remove = locked_remove,
    .sync_dir = locked_sync_dir,
    .start = sim_start,
    .perform = sim_perform,
    .cancel = sim_cancel,
    .poll = sim_poll,
    .now_ns = sim_now_ns,
};

/* Of a write that is not done any sectors reach the file, and may reach the disk. */
static void put_some(struct sim_device *d, const struct log_io *io, bool disk)
{
    struct inode *n = io->file->inode;
    unsigned mode = (unsigned)sim_device_random(d, 4); /* 0: nothing, 1: all, else by chance */
    for (size_t at = 0; at < io->len; at += LOG_SECTOR) {
        size_t i = at / LOG_SECTOR;
        bool reaches = d->tear != NULL ? (d->tear[i / 8] >> i % 8 & 1) != 0
                                       : mode == 1 || (mode > 1 && coin(d));
        if (reaches) {
            memcpy(n->seen + io->offset + at, io->data + at, LOG_SECTOR);
        }
        if (reaches && disk) {
            memcpy(n->stable + io->offset + at, io->data + at, LOG_SECTOR);
        }
    }
    d->tear = NULL;
}

void sim_device_lie(struct sim_device *d)
{
    d->lies = true;
}

void sim_device_make_stable(struct sim_device *d)
{
    if (d->late.first != NULL) {
        end_late(&d->late, true);
    }
}

static int finish_write(struct sim_device *d, struct log_io *io)
{
    struct inode *n = io->file->inode;
    uint64_t offset = io->offset;
    int error = fault(d, SIM_LOG_WRITE);
    if (d->fail_in_cache) {
        d->fail_in_cache = false;
        memcpy(n->seen + offset, io->data, io->len);
        n->clean_at = (size_t)offset;
        n->clean_len = io->len;
        return -EIO;
    }
    if (error != 0) {
        put_some(d, io, true);
        return error;
    }
    if (d->misplace_name[0] != '\0') {
        struct name *to = lookup(&d->seen, d->misplace_name);
        d->misplace_name[0] = '\0';
        if (to == NULL || d->misplace_offset + io->len > to->inode->seen_len) {
            return 0;
        }
        n = to->inode;
        offset = d->misplace_offset;
    }
    inode_write(n, io->data, io->len, (size_t)offset);
    if (d->lies) {
        note_late(&d->late, n, (size_t)offset, io->len);
    } else {
        memcpy(n->stable + offset, io->data, io->len);
    }
    return 0;
}

/* Its calls go by way of whoever has replaced those of the device. */
static int finish_work(struct sim_device *d, enum log_lane lane, struct log_io *io)
{
    int rv = fault(d, lane == LOG_LANE_READ ? SIM_READ_IO : SIM_BACKGROUND);
    if (rv == 0) {
        d->reads_back = lane == LOG_LANE_READ;
        rv = io->work(io);
        d->reads_back = false;
    }
    return rv;
}

bool sim_device_busy(const struct sim_device *d, enum log_lane lane)
{
    return d->under_way[lane] != NULL;
}

void sim_device_finish(struct sim_device *d, enum log_lane lane)
{
    struct log_io *io = d->under_way[lane];
    int result = -ECANCELED;
    FLI_ASSERT(io != NULL);
    d->under_way[lane] = NULL;
    if (lane == LOG_LANE_WRITE) {
        result = finish_write(d, io);
    } else if (lane == LOG_LANE_READ || !atomic_load(&d->base.cancelled)) {
        result = finish_work(d, lane, io);
    }
    uint64_t took = 1 + sim_device_random(d, 1000000);
    d->now_ns += took;
    io->done(io, result, took);
}

bool sim_device_step(struct sim_device *d)
{
    enum log_lane busy[LOG_LANES];
    unsigned n = 0;
    for (unsigned i = 0; i < LOG_LANES; i++) {
        if (d->under_way[i] != NULL) {
            busy[n++] = (enum log_lane)i;
        }
    }
    if (n > 0) {
        uint64_t which = n == 1 ? 0 : n == 2 ? coin(d) : sim_device_random(d, n);
        sim_device_finish(d, busy[which]);
    }
    return n > 0;
}

void sim_device_drain(struct sim_device *d)
{
    for (unsigned i = 0; i < 100 && sim_device_step(d); i++) {
    }
}

/* --- crashes --- */

#define CALLS_MAX 10u /* of an operation of lane BACKGROUND */

/* From some call on, none does anything. Returns what the operation does. Only the test closes the
 * log of a process that ends so: the operation has not been cancelled. */
static int crash_background(struct sim_device *d, struct log_io *io)
{
    const struct log_device_ops *ops = d->base.ops;
    bool cancelled = atomic_exchange(&d->base.cancelled, false);
    d->base.ops = &sim_ops;
    d->calls_left = sim_device_random(d, CALLS_MAX);
    int rv = io->work(io);
    d->calls_left = UINT64_MAX;
    atomic_store(&d->base.cancelled, cancelled);
    d->base.ops = ops;
    return rv;
}

static void lose_unsynced(struct sim_device *d, struct inode *n)
{
    inode_forget_clean(n);
    if (coin(d)) {
        n->stable_len = n->seen_len;
    }
    for (size_t at = 0; at < n->cap; at += LOG_BLOCK) {
        size_t len = n->cap - at < LOG_BLOCK ? n->cap - at : LOG_BLOCK;
        if (memcmp(n->seen + at, n->stable + at, len) != 0 && coin(d)) {
            memcpy(n->stable + at, n->seen + at, len);
        }
    }
    if (n->cap > 0) {
        memset(n->stable + n->stable_len, 0, n->cap - n->stable_len);
        memcpy(n->seen, n->stable, n->cap);
    }
    n->seen_len = n->stable_len;
}

static void lose_power(struct sim_device *d)
{
    for (size_t i = 0; i < d->changes_len; i++) {
        if (coin(d)) {
            change_directory(&d->stable, &d->changes[i]);
        }
    }
    drop_changes(d);
    copy_directory(&d->seen, &d->stable);
    for (size_t i = 0; i < d->seen.len; i++) {
        lose_unsynced(d, d->seen.names[i].inode);
    }
}

void sim_device_crash(struct sim_device *d, enum sim_crash how)
{
    struct log_io *write = d->under_way[LOG_LANE_WRITE];
    struct log_io *background = d->under_way[LOG_LANE_BACKGROUND];
    struct log_io *read = d->under_way[LOG_LANE_READ];
    int result = 0;
    memset(d->under_way, 0, sizeof d->under_way);
    memset(&d->faults, 0, sizeof d->faults);
    if (write != NULL) {
        put_some(d, write, how == SIM_CRASH_POWER);
    }
    if (background != NULL) {
        result = crash_background(d, background);
    }
    for (bool kept = how != SIM_CRASH_POWER || coin(d); d->late.first != NULL;) {
        end_late(&d->late, kept);
        kept = kept && (how != SIM_CRASH_POWER || coin(d));
    }
    if (how == SIM_CRASH_POWER) {
        lose_power(d);
    }
    if (write != NULL) {
        write->done(write, -ECANCELED, 0);
    }
    if (background != NULL) {
        background->done(background, result, 0);
    }
    if (read != NULL) {
        read->done(read, -ECANCELED, 0);
    }
}

void sim_device_tear(struct sim_device *d, const uint8_t *mask)
{
    d->tear = mask;
}

/* --- faults --- */

void sim_device_fail(struct sim_device *d, enum sim_call call, unsigned nth, unsigned times,
                     int error)
{
    struct fault *f = &d->faults.of[call];
    f->from = f->calls + nth - 1;
    f->to = f->from + times;
    f->error = error;
}

uint64_t sim_device_calls(const struct sim_device *d, enum sim_call call)
{
    return d->faults.of[call].calls;
}

void sim_device_tick(struct sim_device *d, uint64_t kth, int error)
{
    d->faults.tick = kth;
    d->faults.tick_error = error;
}

bool sim_device_ticked(const struct sim_device *d)
{
    return d->faults.tick == 0;
}

void sim_device_fail_in_cache(struct sim_device *d)
{
    d->fail_in_cache = true;
}

void sim_device_capacity(struct sim_device *d, uint64_t bytes)
{
    d->capacity = bytes;
}

void sim_device_misplace(struct sim_device *d, const char *name, uint64_t offset)
{
    snprintf(d->misplace_name, sizeof d->misplace_name, "%s", name);
    d->misplace_offset = offset;
}

void sim_device_bad_sector(struct sim_device *d, const char *name, uint64_t offset)
{
    struct name *found = lookup(&d->seen, name);
    FLI_ASSERT(found != NULL);
    struct inode *n = found->inode;
    FLI_ASSERT(n->bad_len < sizeof n->bad / sizeof n->bad[0]);
    n->bad[n->bad_len++] = offset / LOG_SECTOR + 1;
}

/* --- the files themselves --- */

uint8_t *sim_device_data(struct sim_device *d, const char *name, size_t *ret_len)
{
    struct name *n = lookup(&d->seen, name);
    if (n == NULL) {
        return NULL;
    }
    if (ret_len != NULL) {
        *ret_len = n->inode->seen_len;
    }
    return n->inode->seen;
}

void sim_device_put(struct sim_device *d, const char *name, const void *data, size_t len)
{
    struct inode *n = fli_xcalloc(1, sizeof *n);
    inode_resize(n, len);
    if (len > 0) {
        memcpy(n->seen, data, len);
    }
    inode_sync(n);
    link_name(&d->seen, name, n);
    link_name(&d->stable, name, n);
}

void sim_device_flip(struct sim_device *d, const char *name, uint64_t offset, unsigned bit)
{
    struct name *n = lookup(&d->seen, name);
    FLI_ASSERT(n != NULL && offset < n->inode->cap && bit < 8);
    n->inode->seen[offset] ^= (uint8_t)(1u << bit);
    n->inode->stable[offset] ^= (uint8_t)(1u << bit);
}

void sim_device_unlink(struct sim_device *d, const char *name)
{
    unlink_name(&d->seen, name);
    unlink_name(&d->stable, name);
}

size_t sim_device_files(const struct sim_device *d)
{
    return d->seen.len;
}

const char *sim_device_name(const struct sim_device *d, size_t i)
{
    return d->seen.names[i].text;
}

/* --- coming and going --- */

struct sim_device *sim_device_create(uint64_t seed)
{
    struct sim_device *d = fli_xcalloc(1, sizeof *d);
    d->base = (struct log_device){.ops = &sim_ops,
                                  .where = "sim",
                                  .engine = "simulated",
                                  .block = LOG_BLOCK,
                                  .keep_fd = -1,
                                  .fds = {-1, -1}};
    int rv = pthread_mutex_init(&d->mutex, NULL);
    FLI_ASSERT(rv == 0);
    d->rng = seed;
    d->capacity = UINT64_MAX;
    d->calls_left = UINT64_MAX;
    return d;
}

void sim_device_destroy(struct sim_device *d)
{
    struct directory none = {.len = 0};
    for (unsigned i = 0; i < LOG_LANES; i++) {
        FLI_ASSERT(d->under_way[i] == NULL);
    }
    while (d->late.first != NULL) {
        end_late(&d->late, false);
    }
    drop_changes(d);
    copy_directory(&d->seen, &none);
    copy_directory(&d->stable, &none);
    free(d->seen.names);
    free(d->stable.names);
    (void)pthread_mutex_destroy(&d->mutex);
    free(d);
}

struct log_device *sim_device_base(struct sim_device *d)
{
    return &d->base;
}

struct sim_device *sim_device_clone(const struct sim_device *d, uint64_t seed, bool stable)
{
    struct sim_device *c = sim_device_create(seed);
    const struct directory *files = stable ? &d->stable : &d->seen;
    for (size_t i = 0; i < files->len; i++) {
        const struct inode *n = files->names[i].inode;
        const uint8_t *data = stable ? n->stable : n->seen;
        sim_device_put(c, files->names[i].text, data, stable ? n->stable_len : n->seen_len);
    }
    for (size_t i = 0; stable && i < d->changes_len; i++) {
        const struct name *gone =
            lookup((struct directory *)(uintptr_t)&d->stable, d->changes[i].from);
        if (d->changes[i].to[0] == '\0' && gone != NULL && gone->inode == d->changes[i].inode) {
            sim_device_unlink(c, d->changes[i].from);
        }
    }
    return c;
}
