/* ballot.h: a second record of this node's term and vote, with a checksum.
 *
 *   DIR/ballot   two slots, written in turns: "FLBALLOT", number, term, vote (8 bytes each, little
 *                endian), CRC-32C of these 32 bytes
 *
 * The raft library (0.22.1) keeps term and vote in raft/metadata1 and metadata2, whose numbers
 * nothing protects: a bit turned around in them takes the term back or forgets the vote, and the
 * node may then vote twice in a term, which can elect two leaders.
 *
 * Here both are written and synced before the library writes them, and so before anybody is told.
 * Hence the newest slot is never older than what the library has. When both slots are whole and
 * the library says something else, whatever the reason (a power cut in between, damage), the newest
 * slot is given to the library: at worst it is a term that nobody heard of or a vote that was not
 * sent, and to keep these is always right. When one slot is not whole, either it was being written
 * when the power went, or it is damaged. If the library says what the other slot says, that is the
 * truth in both cases; anything else is refused.
 *
 * A file that is gone as a whole is made again from what the library has: directories of older
 * versions have none, so its loss is not noticed. */
#ifndef CONSENSUS_BALLOT_H
#define CONSENSUS_BALLOT_H

#include "consensus/identity.h"

#define BALLOT_SLOT_AT ((size_t)4096) /* of the second slot: no sector holds a part of both */
#define BALLOT_SLOT_LEN ((size_t)36)
#define BALLOT_FILE_LEN (BALLOT_SLOT_AT + BALLOT_SLOT_LEN)
#define BALLOT_META_LEN ((size_t)32) /* of a file of the library */

struct ballot {
    int fd; /* -1: not open */
    uint64_t number, term, vote;
};

/* What stands on disk; a length of 0 is an absent file. */
struct ballot_files {
    uint8_t own[BALLOT_FILE_LEN];
    size_t own_len;
    uint8_t meta[2][BALLOT_META_LEN + 1]; /* one byte more, to see that a file is too long */
    size_t meta_len[2];
};

enum ballot_verdict {
    BALLOT_AGREES,
    BALLOT_RENEW,   /* the library agrees; a slot is to be written again */
    BALLOT_CORRECT, /* the library's files are to be replaced by the newest slot */
    BALLOT_DAMAGED
};

/* Pure: what to believe. On DAMAGED nothing is set; fd never is. */
enum ballot_verdict ballot_judge(const struct ballot_files *files, struct ballot *ret);
void ballot_encode(const struct ballot *b, uint8_t slot[BALLOT_SLOT_LEN]);

void ballot_init(struct ballot *b);

/* Before the library is bootstrapped: a file that a former life of the directory left goes. */
FLI_MUST_USE int ballot_forget(const struct data_dir *d, char *errmsg, size_t errmsg_size);

/* Before the library reads its files, of a directory in which it has been bootstrapped. 0;
 * FL_ECORRUPT, FL_EIO with a message. ret_corrected: the library's files were replaced. */
FLI_MUST_USE int ballot_open(const struct data_dir *d, struct ballot *ret, bool *ret_corrected,
                             char *errmsg, size_t errmsg_size);
void ballot_close(struct ballot *b);

/* On disk when it returns 0, otherwise FL_EIO with a message. A ballot that is not open (it is not
 * while the library is bootstrapped), or none, keeps nothing. A new term has no vote. */
FLI_MUST_USE int ballot_set_term(struct ballot *b, uint64_t term, char *errmsg, size_t errmsg_size);
FLI_MUST_USE int ballot_set_vote(struct ballot *b, uint64_t vote, char *errmsg, size_t errmsg_size);

#endif
