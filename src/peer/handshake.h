/* handshake.h: the first bytes of each side of a stream between two nodes. Pure.
 * Its bytes stand at the head of handshake.c.
 *
 * Decoding checks magic and checksum before anything else is used. The strings are printable ASCII,
 * since they are logged. Nodes of different versions do not talk to each other: one of them could
 * lead and write entries that the other does not know.
 *
 * A refusal says who is refused and why, and tells nothing about the refusing node: the members'
 * checksum, cluster id, node id, incarnation, index, addresses and all fields behind them are 0.
 * The three version numbers are in every handshake. */
#ifndef PEER_HANDSHAKE_H
#define PEER_HANDSHAKE_H

#include "peer/members.h"

#define HANDSHAKE_SIZE 808u
/* The version of what streams carry. It also rises when log entries get a new command, flag or
 * field, since a node stops at an entry that it does not know. Numbers from 256 up stand for older
 * layouts of the handshake. */
#define HANDSHAKE_PROTOCOL 9u
#define HANDSHAKE_REASON_MAX 176u /* bytes of a reason, NUL included */

/* The values are sent and must not change. */
enum stream_kind {
    STREAM_RAFT = 1,    /* messages of the dialing node; the other side never sends */
    STREAM_RELAY = 2,   /* commands of a follower's clients, and their answers */
    STREAM_SNAPSHOT = 3 /* a snapshot in pieces, and the bytes taken so far */
};
#define STREAM_KINDS 3u

/* The values are sent and must not change. */
enum handshake_verdict {
    HANDSHAKE_UNDECIDED = 0, /* never sent: this node is to write something first */
    HANDSHAKE_WELCOME = 1,
    HANDSHAKE_STRANGER = 2, /* not a member, or not yet a member again, or not the node that was
                               called */
    HANDSHAKE_OTHER_CLUSTER = 3,     /* another cluster id */
    HANDSHAKE_OTHER_MEMBERS = 4,     /* configured with other members */
    HANDSHAKE_OTHER_INCARNATION = 5, /* an empty one, while the node is a member with its data */
    HANDSHAKE_OTHER_VERSION = 6,     /* of the protocol or of a format */
    HANDSHAKE_REMOVED = 7,           /* it was a member, and is none any more */
    HANDSHAKE_WENT_BACK = 8          /* its data directory is an older copy */
};

/* One start of a node: they are counted, and each has a random nonce. Number 0: none. */
struct start {
    uint64_t number, nonce;
};

/* What a node tells about itself. */
struct peer_identity {
    uint64_t node_id, incarnation, cluster_id;
    /* Of the canonical text of the members that the cluster began with. They make the first entry
     * of the log, so nodes with different ones must not meet. 0: the node has begun no cluster, and
     * joins. */
    uint32_t members_crc;
    /* of the newest configuration in its log in which it is a member; 0: none */
    uint64_t member_index;
    uint16_t version;                        /* the highest that it knows; sent with the
                                                formats */
    char client_address[MEMBER_ADDRESS_MAX]; /* printable ASCII; may be "" */
    char peer_address[MEMBER_ADDRESS_MAX];   /* likewise */
    bool guesses; /* that address is as its log has it, and has another port than it listens at */
    struct start start;
    uint64_t term, last_index; /* of its log, on disk at its start */
    bool asks_raft; /* not sent: the call is for a stream of Raft's messages, so the node has
                       none */
    bool welcomes;  /* not sent: it is the answer to this node's call */
    bool waited;    /* not sent: it was looked at before, and was undecided; what is known of the
                       node may be newer than its handshake by now */
};

/* The versions of log and snapshots that a node knows (machine/version.c). Two nodes without a
 * common one do not talk to each other. */
struct handshake_formats {
    uint16_t low, high;
};

struct handshake {
    enum stream_kind kind;
    uint8_t verdict; /* 0 or enum handshake_verdict */
    uint64_t target;
    struct peer_identity from; /* all 0 in a refusal */
    char reason[HANDSHAKE_REASON_MAX];
};

void handshake_encode(const struct handshake *h, const struct handshake_formats *formats,
                      uint8_t out[HANDSHAKE_SIZE]);

/* 0; FL_EPROTO: not a handshake; FL_EVERSION: of another version (*ret is not set). */
int handshake_decode(const uint8_t in[HANDSHAKE_SIZE], const struct handshake_formats *formats,
                     struct handshake *ret) FLI_MUST_USE;

/* After FL_EVERSION: writes which version the sender has, and which this node. Always
 * NUL-terminated; 176 bytes are enough. */
void handshake_explain_version(const uint8_t in[HANDSHAKE_SIZE],
                               const struct handshake_formats *formats, char *out, size_t size);

/* What a verdict means that was told without a reason, as two of them are. Never NULL. */
const char *handshake_verdict_text(enum handshake_verdict verdict);

#endif
