/* transfer.h: a snapshot on its way from node 1 to node 2, over loopback, between two simulated
 * disks. The sender is the real one, or a test's own, which may break the rules. Two functions are
 * wrapped, for a clock that runs ahead and memory that is short. */
#ifndef TEST_SNAPSHOT_TRANSFER_H
#define TEST_SNAPSHOT_TRANSFER_H

#include "../peer/rig.h"

#include "../log/sim_device.h"
#include "snapshot/install.h"
#include "snapshot/send.h"

#define LOCKS 3000u

struct fixture {
    struct rig *r;
    struct sim_device *from, *to;
    struct machine *machine;
    struct snapshot_send_config sending;
    struct snapshot_send send[1];
    struct snapshot_install install[1];
    bool own;          /* node 2 writes a snapshot of its own */
    unsigned accepted; /* streams given to `install` */
    unsigned readies, damaged;
    struct host host, send_host;
    unsigned holds; /* work of both that is under way */
    int take;       /* of one that is ready: 0 installs it, FL_EBUSY leaves it, else refuses */
    uint64_t hash, index;
    uint64_t applied; /* by node 2 */
    char log[512];    /* the last line; and that of each */
    char sent_log[512], install_log[512];
    struct fli_buf file; /* of the snapshot */
};

extern uint64_t ahead_ms;        /* of the loop's clock, for all who ask it */
void stop_clock(uint64_t at_ms); /* until it is started, or stopped at another time */
void start_clock(void);
extern unsigned done_lost; /* frames DONE for which there is no memory */
extern unsigned taken_sent;

int transfer_set_up(void **state);
int transfer_tear_down(void **state); /* from whatever state they are in */

void start_send(struct fixture *f, uint64_t index);
void send_turn(struct fixture *f);
void install_turn(struct fixture *f);

/* One turn of the loop, and what has called goes to the part that is for it. */
bool turn(struct fixture *f, uint64_t deadline_ms);

#define UNTIL(f, condition)                                                                        \
    do {                                                                                           \
        uint64_t deadline_ = rig_deadline((f)->r);                                                 \
        while (!(condition)) {                                                                     \
            if (!turn(f, deadline_)) {                                                             \
                fail_msg("never came: %s (%s)", #condition, (f)->log);                             \
            }                                                                                      \
        }                                                                                          \
    } while (0)

/* Node 1's newest snapshot is of this entry. */
void write_snapshot(struct fixture *f, uint64_t index);
/* The bytes of the file are right; no node can start from it. */
void write_snapshot_without_state(struct fixture *f, uint64_t index);
void write_snapshot_without_members(struct fixture *f, uint64_t index);
void set_now(struct fixture *f, uint64_t now_ms);

unsigned whole(struct fixture *f); /* snapshots that node 2 has */
void expect_nothing_left(struct fixture *f);
void send_until_it_is_there(struct fixture *f);
void expect_installed(struct fixture *f);

/* The test's own sender. */
void call(struct fixture *f);
void say(struct fixture *f, uint8_t type, const void *a, size_t a_len, const void *b, size_t b_len);
void say_begin(struct fixture *f, uint64_t index, uint64_t term, uint64_t size);
void say_data(struct fixture *f, uint64_t offset, const void *data, size_t len);
/* It is told that this was wrong, with this code, and nothing stays. */
void expect_refused(struct fixture *f, int error);
void first_piece_is_taken(struct fixture *f);

#endif
