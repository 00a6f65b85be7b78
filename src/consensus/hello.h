/* hello.h: the first bytes of each side of a stream between two nodes. Pure.
 *
 *   offset size   little endian
 *   0      8      "fencelok"
 *   8      4      CRC-32C of bytes 12 to 511
 *   12     2      version: snapshot format * 256 + format of log entries * 16 + HELLO_PROTOCOL
 *   14     1      kind of stream
 *   15     1      verdict: 0 in the dialer's hello, enum transport_verdict in the answer
 *   16     8      cluster id, 0 when not known yet
 *   24     8      sender's node id
 *   32     8      sender's incarnation
 *   40     8      node id of the one that is meant
 *   48     4      checksum of the members
 *   52     2      length of the client address
 *   54     2      length of the reason
 *   56     264    client address, then zeros
 *   320    184    reason, then zeros
 *   504    8      index at which the sender knows itself to be a member, or 0
 *
 * Decoding checks magic and checksum before anything else is believed; both strings hold only
 * printable ASCII, since they end up in logs. Nodes of different versions do not talk to each
 * other: one could lead and write what the other must stop at. */
#ifndef CONSENSUS_HELLO_H
#define CONSENSUS_HELLO_H

#include "consensus/transport.h"

#define HELLO_SIZE 512u
/* Of what is said on streams. Raised also when a command, a flag or a field is new to log entries:
 * a node that meets one it does not know stops. */
#define HELLO_PROTOCOL 1u

enum hello_kind { HELLO_RAFT = 1, HELLO_LINK = 2 };

struct hello {
    uint8_t kind;
    uint8_t verdict;
    uint64_t target;
    struct transport_identity from;
    char reason[TRANSPORT_REASON_MAX];
};

void hello_encode(const struct hello *h, uint8_t out[HELLO_SIZE]);

uint16_t hello_version(void); /* of this program */

/* What the sender of a hello of another version has, and what this program has. */
void hello_explain_version(const uint8_t in[HELLO_SIZE], char *out, size_t size);

/* 0; FL_EPROTO: not a hello; FL_EVERSION: a hello of another version (nothing is returned). */
int hello_decode(const uint8_t in[HELLO_SIZE], struct hello *ret) FLI_MUST_USE;

#endif
