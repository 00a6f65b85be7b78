/* install.h: receives a snapshot from another node (send.h has the frames).
 *
 *   stream  ->  pieces wait (SNAPSHOT_WINDOW at most)  ->  a worker writes them to a file
 *   all there  ->  the worker syncs the file, reads it back and decodes it into a fresh machine
 *   decoded  ->  the owner replaces its own machine when it can
 *
 * None of this stops the loop, and the node goes on with its old state meanwhile. There is one
 * snapshot at a time: a newer stream of any node ends an older transfer that is not complete. One
 * whose sender is silent for SNAPSHOT_SILENCE_MS, or that the node's own state has overtaken, is
 * given up. A failed transfer leaves nothing behind but a line in the log. One thread, the
 * loop's. */
#ifndef SNAPSHOT_INSTALL_H
#define SNAPSHOT_INSTALL_H

#include "snapshot/send.h"
#include "machine/machine.h"

enum snapshot_install_state {
    INSTALL_IDLE,
    INSTALL_RECEIVING,
    INSTALL_DECODING,
    INSTALL_READY,
    INSTALL_DROPPING
};

/* All zeros at first, but for what the owner sets. Others read `state`, `failures` and, in
 * INSTALL_READY, `meta` and `machine`. */
struct snapshot_install {
    /* set by the owner */
    const struct host *host; /* its node does not end while a worker is at work */
    struct log_device *device;
    bool (*is_sound)(const struct snapshot_meta *meta); /* a log may go on behind it; any thread */

    enum snapshot_install_state state;
    bool installed;         /* while it is dropped: the snapshots before it are of no use */
    uint64_t applied;       /* the last entry of the node's own state */
    uint64_t from;          /* the sender */
    struct stream *stream;  /* NULL: it is lost */
    uint64_t index, term;   /* of the snapshot */
    uint64_t size;          /* of its file */
    uint64_t received;      /* bytes that have come */
    uint64_t taken;         /* bytes that the worker has written */
    uint64_t sent_ms;       /* when SNAPSHOT_TAKEN was sent last */
    struct fli_buf waiting; /* bytes for the worker */
    uint64_t failures;

    /* A piece of work for the worker, which has all that follows while it is busy. */
    struct host_work work;
    enum snapshot_install_state works_in; /* the state when it began */
    struct snapshot_part part;            /* the file */
    struct fli_buf bytes;                 /* to be written */
    uint64_t synced;
    struct snapshot_meta meta;
    struct machine *machine; /* decoded; or to be destroyed */
    struct snapshot_error error;
};

/* Takes over a stream of kind STREAM_SNAPSHOT, or closes it while it has no use for one: then the
 * sender calls again after a pause. */
void snapshot_install_accept(struct snapshot_install *s, uint64_t from, struct stream *stream);

/* Goes on, in each turn of the loop. applied: see above. own: another snapshot of this node is
 * being written: one that has come gets its name, by which it is the newest, only behind that.
 * True in INSTALL_READY: the snapshot is on disk and decoded, and waits for
 * snapshot_install_taken(). */
bool snapshot_install_turn(struct snapshot_install *s, uint64_t applied, bool own);

/* In INSTALL_READY. A worker destroys `garbage`: the machine that was replaced, or the fresh one
 * when it is of no use. error 0: the snapshot is in place; else the error that the sender gets. */
void snapshot_install_taken(struct snapshot_install *s, int error, struct machine *garbage);

/* Once. Then no streams come, and it is idle when its worker has ended. */
void snapshot_install_stop(struct snapshot_install *s);

/* The index of the snapshot that is being received, which has a half-written file: the node had not
 * applied that entry when it began. 0: none is. */
static inline uint64_t snapshot_install_receives(const struct snapshot_install *s)
{
    return s->state == INSTALL_RECEIVING ? s->index : 0;
}

/* Whether no other snapshot of this node may be written: one has come, and is decoded, waits to be
 * installed, or what is left of it is removed. */
static inline bool snapshot_install_works(const struct snapshot_install *s)
{
    return s->state != INSTALL_IDLE && s->state != INSTALL_RECEIVING;
}

#endif
