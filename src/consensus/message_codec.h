/* message_codec.h: Raft's messages as bodies of frames (peer/frame.h), and back. Pure.
 *
 *   type            body, little endian
 *   APPEND          8 term, 8 previous index, 8 previous term, 8 commit index, 4 entries,
 *                   then for each entry: 8 term, 1 kind, 3 zero, 4 length, the bytes
 *   APPEND_RESULT   8 term, 8 rejected index (0: taken), 8 last index
 *   VOTE            8 term, 8 candidate, 8 last index, 8 last term, 1 disrupts the leader,
 *                   1 pre-vote
 *   VOTE_RESULT     8 term, 1 granted, 1 pre-vote
 *   TIMEOUT_NOW     8 term, 8 last index, 8 last term
 *   ROUND           8 term, 8 number: a leader asks whether it is followed (replica_round.c)
 *   ROUND_RESULT    8 term, 8 number: yes, in that term
 *
 * A snapshot is never a message: see snapshot/send.h. The decoder's input came over a socket: it
 * checks lengths before it uses them, and returns FL_EPROTO when they are wrong. Entries stay where
 * they are in the body. */
#ifndef CONSENSUS_MESSAGE_CODEC_H
#define CONSENSUS_MESSAGE_CODEC_H

#include <raft.h>

#include "base/base.h"

#define MESSAGE_ENTRIES_MAX 31u /* two parts each, and the head, fit in STREAM_PARTS_MAX */
/* The most bytes of the entries in one message, unless its first entry alone is larger. */
#define MESSAGE_BYTES_MAX ((size_t)1 << 20)
#define MESSAGE_HEAD_MAX 40u
#define MESSAGE_ENTRY_HEAD 16u
/* A log entry is at most a batch of the machine; see the assertion in message_codec.c. */
#define MESSAGE_ENTRY_MAX (((size_t)4 << 20) + 4096u)
#define MESSAGE_BODY_MAX                                                                           \
    (MESSAGE_HEAD_MAX + MESSAGE_ENTRIES_MAX * MESSAGE_ENTRY_HEAD + MESSAGE_BYTES_MAX +             \
     MESSAGE_ENTRY_MAX)

/* Types of frames on a stream of Raft messages. The values are sent and must not change. */
enum message_type {
    MESSAGE_APPEND = 1,
    MESSAGE_APPEND_RESULT = 2,
    MESSAGE_VOTE = 3,
    MESSAGE_VOTE_RESULT = 4,
    MESSAGE_TIMEOUT_NOW = 6,
    MESSAGE_ROUND = 7,
    MESSAGE_ROUND_RESULT = 8
};

/* The two messages of a round, which are not for the core. Their term and number are found in
 * timeout_now.term and timeout_now.last_log_index. */
#define RAFT_ROUND ((enum raft_message_type)MESSAGE_ROUND)
#define RAFT_ROUND_RESULT ((enum raft_message_type)MESSAGE_ROUND_RESULT)

/* A body in pieces: `parts[0]` is the head, and each entry adds two. Too large for the stack of a
 * deep call. */
struct message_body {
    uint8_t type; /* enum message_type */
    unsigned entries, n;
    size_t bytes; /* of entries */
    uint8_t head[MESSAGE_HEAD_MAX];
    uint8_t entry_heads[MESSAGE_ENTRIES_MAX][MESSAGE_ENTRY_HEAD];
    struct fli_slice parts[1 + 2 * MESSAGE_ENTRIES_MAX];
};

/* Encodes the head of a message; entries are added afterwards. FL_EINVAL: a message of this type is
 * never sent. */
int message_encode(const struct raft_message *m, struct message_body *ret) FLI_MUST_USE;

/* Adds one entry to an APPEND; the data must stay valid until the body is sent. False: it is
 * full. */
bool message_add_entry(struct message_body *b, uint64_t term, uint8_t kind, struct fli_slice data);

/* 0 or FL_EPROTO. Entries go to `entries` (MESSAGE_ENTRIES_MAX of them), their bytes point into
 * `body`. Sets neither sender nor address. */
int message_decode(uint8_t type, struct fli_slice body, struct raft_entry *entries,
                   struct raft_message *ret) FLI_MUST_USE;

#endif
