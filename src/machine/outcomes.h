/* outcomes.h (private to machine): the one table of requests that may come again, with the outcome
 * of each. A client that gets no answer sends its request again, perhaps to another node; the table
 * is replicated, so each node answers alike.
 *
 *   kind      what is the same request     number                           known for
 *   attempt   kind of owner, the smallest  the highest number of an         MACHINE_ATTEMPT_KEEP_MS
 *             of its locks, owner          attempt, above 1
 *   leave     key, label or owner          1 if it released the key,        what the release says
 *                                          else 0
 *
 * Each of them is of one user. At most MACHINE_OUTCOMES_MAX are kept, and users share them
 * (base/share.h), for each kind apart: a new one first drops up to two of each kind whose time is
 * over; when the table is full all the same, the user who has the most of one kind loses the oldest
 * of these. So nobody who floods the table makes the machine forget what others have sent. The
 * order of each kind is state, as is the order within each user's, which follows from it.
 *
 * The first attempt leaves no record: without a second one, none can be late. */
#ifndef MACHINE_OUTCOMES_H
#define MACHINE_OUTCOMES_H

#include "base/list.h"
#include "base/map.h"
#include "base/share.h"
#include "machine/machine.h"

#define OUTCOME_KEY_MAX (4 + 1 + 1 + FL_NAME_MAX + FL_OWNER_MAX)

/* In keys, and so in snapshots. */
enum outcome_kind {
    OUTCOME_ATTEMPT, /* of an implicit session */
    OUTCOME_ATTEMPT_EXPLICIT,
    OUTCOME_LEAVE,
    OUTCOME_KINDS
};

/* A user who has outcomes of a kind. */
struct outcome_share {
    struct fli_map_node node;
    struct fli_share share; /* id: the uid, and the kind above its 32 bits */
    struct fli_list list;   /* outcome.of_share, the oldest first */
};

struct outcome {
    struct fli_map_node node;
    struct fli_list link, of_share;
    struct outcome_share *share;
    uint64_t number;
    uint64_t until_ms; /* on the cluster clock */
    size_t key_len;
    uint8_t key[]; /* uid 4, enum outcome_kind 1, name (length 1, bytes), owner or label */
};

struct outcomes {
    struct fli_map by_key, by_share;
    struct fli_list by_kind[OUTCOME_KINDS]; /* outcome.link, the oldest first */
    struct fli_shares shares;
};

struct machine;

void machine_outcomes_init(struct outcomes *t, const uint64_t hash_seed[2]);
void machine_outcomes_fini(struct machine *m);

/* What is known of a request of the sender; NULL: nothing, or no more. */
const struct outcome *machine_outcome_find(struct machine *m, enum outcome_kind kind,
                                           struct fli_slice name, struct fli_slice what);
/* Notes an outcome, in place of a former one. Drops what there is no room for. */
void machine_outcome_note(struct machine *m, enum outcome_kind kind, struct fli_slice name,
                          struct fli_slice what, uint64_t number, uint64_t until_ms);

/* Whether a later attempt of this ACQUIRE has come, and its number. If not, notes this one. */
bool machine_attempt_is_late(struct machine *m, const struct machine_command *c,
                             uint64_t *ret_highest);

/* Loads one from a snapshot, in the snapshot's order. False: it is not valid. */
bool machine_outcome_load(struct machine *m, struct fli_slice key, uint64_t number,
                          uint64_t until_ms);
/* Whether an outcome of this kind may be so. */
bool machine_outcome_fits(const struct machine *m, unsigned kind, uint64_t number,
                          uint64_t until_ms);

static inline const struct outcome *outcome_of(const struct fli_list *link)
{
    return FLI_CONTAINER_OF((struct fli_list *)(uintptr_t)link, struct outcome, link);
}

uint64_t machine_digest_outcome(const struct outcome *o); /* digest.c */

#endif
