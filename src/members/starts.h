/* starts.h: detects a data directory that is an older copy (docs/adr/0041).
 *
 * Each start of a node has a number, one more than the start before, and a random nonce. Both are
 * on its disk before it sends anything, and it tells them to every node. Each node records about
 * the others: the newest start of each, and the term and entry that were on its disk. A directory
 * that was put back names a start that is over, or one whose number belongs to another start; or it
 * lacks entries, or a term, that the node had told.
 *
 * A start that nobody else has recorded yet is resumed by the next one, with its number and nonce.
 * Otherwise an older copy that meets nobody could be started until its number is a new one.
 *
 * They are part of the record of the node (record.h).
 *
 * A witness is a file on another disk, which records the newest start of a data directory, and up
 * to which term and entry its log went. It is for a cluster of one node, where no other node can
 * tell that the directory is an older copy; and for a cluster whose nodes may all be put back at
 * once. A start takes three writes: the witness records the start about to be made, the directory
 * records the start, the witness records that it was made. Wherever the process is killed, the next
 * start finds two files that fit each other. */
#ifndef MEMBERS_STARTS_H
#define MEMBERS_STARTS_H

#include <stdbool.h>

#include "base/fields.h"
#include "consensus/configuration.h"
#include "peer/handshake.h"

/* The `number` of `next` when this directory was refused as an older copy. Each start raises the
 * number, so without this the next start might count as a newer one. */
#define STARTS_REFUSED UINT64_MAX
/* The `number` of `next` when another node, or a witness, has recorded `own`. */
#define STARTS_RECORDED (UINT64_MAX - 1)

/* What is known about another data directory. */
struct starts_known {
    uint64_t id; /* of its node, a label */
    uint64_t incarnation;
    struct start start; /* the newest */
    uint64_t term;      /* at least this term was on its disk... */
    uint64_t index;     /* ... and all committed entries up to this one */
};
/* As they are written; of these the first STARTS_TOLD are told to others. */
#define STARTS_FIELDS 6u
#define STARTS_TOLD 4u
extern const struct fli_field starts_fields[STARTS_FIELDS];

struct starts {
    struct start own, next;
    uint64_t term, index; /* of a node's own file: 0, and log_writes() */
    unsigned n;
    struct starts_known known[KNOWN_MEMBERS_MAX];
};

/* NULL: nothing is known of this incarnation. */
struct starts_known *starts_find(const struct starts *s, uint64_t incarnation);

/* Records a start; true when it is new. A start that is not newer than the recorded one changes
 * nothing. */
bool starts_record(struct starts *s, uint64_t id, uint64_t incarnation, struct start start);
/* Records the progress of a node whose start is recorded. True when it is new. */
bool starts_record_progress(struct starts *s, uint64_t incarnation, uint64_t term, uint64_t index);
/* Forgets those that are no members, when there is no room for another one. */
void starts_make_room(struct starts *s, const struct configuration *members);

/* The start that a directory makes now; `nonce` is a random one, for a start with a new number. */
struct start starts_next(const struct starts *s, uint64_t nonce);

static inline bool start_is(struct start a, struct start b)
{
    return a.number == b.number && a.nonce == b.nonce;
}
/* Whether `a` is over, or is not the start with this number, given that `b` is known. */
static inline bool start_is_past(struct start a, struct start b)
{
    return a.number < b.number || (a.number == b.number && a.nonce != b.nonce);
}

/* What a leader knows of a follower's disk in its own term; match 0: nothing. */
struct starts_follower {
    uint64_t term, match;
};

/* Whether a caller's directory is an older copy. `first`: of this start it is the first handshake
 * that is looked at. */
bool starts_went_back(const struct starts *s, const struct peer_identity *peer, bool first,
                      struct starts_follower follower) FLI_MUST_USE;

/* Each node tells this to all others once a second, on the stream of Raft's messages: term and
 * index that are on its disk, and the starts that it knows, its own first.
 *   8 term, 8 index, 8 count, then 32 each: id, incarnation, number, nonce */
#define STARTS_MESSAGE_TYPE 33u
#define STARTS_MESSAGE_MAX (24u + 32u * (KNOWN_MEMBERS_MAX + 1u))
struct starts_message {
    uint64_t term, index;
    unsigned n;
    struct starts_known list[KNOWN_MEMBERS_MAX + 1];
};
size_t starts_message_encode(const struct starts *s, uint64_t id, uint64_t incarnation,
                             uint64_t term, uint64_t index, uint8_t out[STARTS_MESSAGE_MAX]);
int starts_message_decode(struct fli_slice body,
                          struct starts_message *ret) FLI_MUST_USE; /* FL_EPROTO */

/* ---- the witness ---- */

struct record;

struct witness {
    const char *path, *directory; /* of the directory that it watches */
    const struct record *record;  /* from the directory */
    bool is_new;                  /* the directory was just made */
    uint64_t term, last_index;    /* of its log */
    struct record *now;           /* what is on disk, when a function has returned 0 */
    char *errmsg;                 /* else: what is wrong and what to do */
    size_t errmsg_size;
};

/* Runs before a start is made, and blocks on the disk. reset: the witness is written anew, whatever
 * it says. 0, FL_EDENIED, FL_ECORRUPT, FL_ESYSTEM, FL_EIO. */
int witness_begin(const struct witness *w, bool reset, struct start next) FLI_MUST_USE;
/* Runs when the directory has recorded the start. 0 or FL_EIO. */
int witness_settle(const struct witness *w) FLI_MUST_USE;

#endif
