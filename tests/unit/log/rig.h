/* rig.h: a log on the simulated disk, and what its tests share. */
#ifndef TEST_LOG_RIG_H
#define TEST_LOG_RIG_H

#include "../../lib/rng.h"
#include "log/log_private.h"
#include "sim_device.h"

struct rig {
    struct sim_device *sim;
    struct log *log;
    struct log_config config;
    unsigned durable_calls, failed_calls, closed_calls;
    unsigned said[5]; /* by level */
    char last_said[512];
    char failure[512];
    char errmsg[512];
};

void rig_init(struct rig *r, uint64_t seed, uint64_t segment_bytes);
void rig_fini(struct rig *r); /* closes what is open */
int rig_try_open(struct rig *r);
void rig_open(struct rig *r);
void rig_close(struct rig *r); /* in order; what is not flushed is lost */
void rig_crash(struct rig *r, enum sim_crash how);

/* Entries whose data follows from index, term and len. */
void rig_fill(uint8_t *data, uint64_t index, uint64_t term, size_t len);
uint64_t rig_append(struct rig *r, uint64_t term, size_t len);
void rig_sync(struct rig *r); /* all that was appended becomes durable */
int rig_read(struct log *l, uint64_t index, struct log_entry *ret); /* waits for the disk */
bool rig_entry_ok(struct rig *r, uint64_t index); /* reads it and looks at its data */

#endif
