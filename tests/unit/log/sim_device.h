/* sim_device.h: a disk in memory that does to the log what disks do, from a seed.
 *
 * Each file has what reads see and what is on stable storage; likewise the directory. A write of
 * the log (struct log_io) takes effect when the test completes it, and is then stable by itself;
 * all else is stable only after a sync. A crash of the process loses nothing but operations under
 * way; a crash of the power loses any blocks, sizes and names that were not synced, and of a write
 * under way any sectors. */
#ifndef TEST_SIM_DEVICE_H
#define TEST_SIM_DEVICE_H

#include "log/device.h"

struct sim_device;

struct sim_device *sim_device_create(uint64_t seed);
void sim_device_destroy(struct sim_device *d);
struct log_device *sim_device_base(struct sim_device *d);

/* A copy of all files with nothing under way and no handle open, with a seed of its own. stable: as
 * they are after a crash of the power that takes all that was not synced but removals. */
struct sim_device *sim_device_clone(const struct sim_device *d, uint64_t seed, bool stable);

/* --- completing --- */

bool sim_device_busy(const struct sim_device *d, enum log_lane lane);
void sim_device_finish(struct sim_device *d, enum log_lane lane); /* the one under way there */
bool sim_device_step(struct sim_device *d); /* one of those under way, by chance; false: none is */
/* Steps until none is under way; at most 100 times, since some fail again and again. */
void sim_device_drain(struct sim_device *d);

/* --- crashes --- */

enum sim_crash { SIM_CRASH_PROCESS, SIM_CRASH_POWER };

/* The operations under way end with -ECANCELED, so that the log on the device can be destroyed:
 * call log_close() before, and log_destroy() afterwards. */
void sim_device_crash(struct sim_device *d, enum sim_crash how);

/* Of the write under way exactly these sectors (bit i of mask[i / 8]) reach the disk at the crash.
 */
void sim_device_tear(struct sim_device *d, const uint8_t *mask);

/* --- faults --- */

enum sim_call {
    SIM_LOG_WRITE,
    SIM_BACKGROUND, /* operations of that lane, which make further calls */
    SIM_OPEN,
    SIM_LOCK,
    SIM_READ,
    SIM_WRITE,
    SIM_SYNC,
    SIM_RENAME,
    SIM_REMOVE,
    SIM_SYNC_DIR,
    SIM_LIST,
    SIM_SIZE,
    SIM_ALLOCATE,
    SIM_READ_IO, /* of lane READ; SIM_READ are those for which the caller waits */
    SIM_CALLS
};

/* The nth call from now on (1: the next) and the `times` - 1 after it fail with a negative errno.
 * Of a write of the log that fails any sectors reach the disk. What a sync that fails has not
 * written no later one writes, as a kernel does it. */
void sim_device_fail(struct sim_device *d, enum sim_call call, unsigned nth, unsigned times,
                     int error);
uint64_t sim_device_calls(const struct sim_device *d, enum sim_call call);

uint64_t *sim_device_clock(struct sim_device *d); /* in ns; a test may let it go on */

/* The kth call from now on (1: the next) fails, of whatever kind it is. 0: none does. A test makes
 * each call of what it does fail, one after another, until none has failed. */
void sim_device_tick(struct sim_device *d, uint64_t kth, int error);
bool sim_device_ticked(const struct sim_device *d); /* whether that call has come */

/* The next write of the log fails with -EIO as one through the page cache does: reads find all of
 * it, a sync has nothing to write there, and the power takes it, unless it is written again. */
void sim_device_fail_in_cache(struct sim_device *d);

/* Bytes that all files together may have; UINT64_MAX: any. Beyond, -ENOSPC. */
void sim_device_capacity(struct sim_device *d, uint64_t bytes);

/* The next write of the log is acknowledged and lands here instead; where it does not fit, nowhere.
 * An empty name takes this back. */
void sim_device_misplace(struct sim_device *d, const char *name, uint64_t offset);

/* From now on writes of the log are acknowledged and not stable: a crash of the power keeps any
 * number of the oldest. Each call of sim_device_make_stable() makes the oldest stable. */
void sim_device_lie(struct sim_device *d);
void sim_device_make_stable(struct sim_device *d);

/* Reads that touch this byte's sector fail with -EIO. */
void sim_device_bad_sector(struct sim_device *d, const char *name, uint64_t offset);

/* --- the files themselves, seen and stable at once --- */

uint8_t *sim_device_data(struct sim_device *d, const char *name, size_t *ret_len); /* NULL: none */
void sim_device_put(struct sim_device *d, const char *name, const void *data, size_t len);
void sim_device_flip(struct sim_device *d, const char *name, uint64_t offset, unsigned bit);
void sim_device_unlink(struct sim_device *d, const char *name);
uint64_t sim_device_random(struct sim_device *d, uint64_t below);
size_t sim_device_files(const struct sim_device *d);
const char *sim_device_name(const struct sim_device *d, size_t i);

#endif
