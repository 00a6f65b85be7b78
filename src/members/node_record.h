/* node_record.h: writes the record of this node (record.h), and its witness.
 *
 * A worker writes them: the loop waits for a disk only when the node starts or ends, and when it
 * finds that its directory is an older copy. What others wait for is written at once, or when the
 * write before has ended, all that came meanwhile together. What others have told of their disks is
 * written from time to time. */
#ifndef MEMBERS_NODE_RECORD_H
#define MEMBERS_NODE_RECORD_H

#include <pthread.h>

#include "members/data_dir.h"
#include "consensus/replica.h"
#include "peer/host.h"
#include "peer/transport.h"

/* A file with a record, and the copy of it that is written. */
struct node_record_file {
    struct host_work work;
    const struct data_dir *dir;
    const char *path;     /* of a witness; NULL: DIR/identity */
    struct record now;    /* used on the loop only */
    struct record kept;   /* likewise: what of it is on disk */
    uint64_t looked_ms;   /* when it was last looked at for progress */
    bool failing;         /* the last write of a worker has failed */
    pthread_mutex_t lock; /* guards the file and the next fields */
    struct record copy;
    int error;
};

struct node_record {
    const struct host *host;
    struct data_dir dir;
    const struct log *log;         /* set by the owner when it exists, as are the next two */
    const struct replica *replica; /* NULL at first */
    struct transport *transport;   /* checks its callers again when a write has ended */
    struct node_record_file own;
    struct node_record_file witness; /* keeps nobody waiting; path NULL: none */
    bool due;                        /* somebody waits for what is not being written yet */
    bool awaited; /* somebody waits for what is being written: when that fails for good, the node
                     ends */
    bool ended;
};

/* Opens the directory, and the record in it: see data_dir_open() and record_open(). In any case
 * node_record_close() must follow. */
int node_record_open(struct node_record *k, const struct host *host, const char *path, uint64_t id,
                     const struct members *members, bool joins, char *errmsg,
                     size_t errmsg_size) FLI_MUST_USE;

/* Makes the start, unless the directory may not: when the log is loaded, and before another node
 * has heard from this one. witness: NULL: none; reset: it is made anew. 0, or a code with a
 * sentence in errmsg. */
int node_record_begin(struct node_record *k, const char *witness, bool reset, char *errmsg,
                      size_t errmsg_size) FLI_MUST_USE;

int node_record_store(struct node_record *k); /* at once: 0 or an error */
void node_record_save(struct node_record *k); /* has it written; `kept` follows */
void node_record_turn(struct node_record *k); /* after all that a turn of the loop has read */
void node_record_tick(struct node_record *k); /* from time to time */
void node_record_end(struct node_record *k);  /* orderly: the latest progress is worth a write */
void node_record_close(struct node_record *k);

/* The last entry that is committed and on this disk. */
uint64_t node_record_index(const struct node_record *k);
/* What this node tells to all others (starts.h). */
size_t node_record_message(const struct node_record *k, uint8_t out[STARTS_MESSAGE_MAX]);

#endif
