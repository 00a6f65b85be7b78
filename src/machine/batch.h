/* batch.h: the one entry format of the replicated log.
 *
 * A batch is a header and then `count` commands, all little endian, padded with zeros to a multiple
 * of 8 bytes.
 *
 *   offset size  header
 *   0      2     format version, MACHINE_BATCH_FORMAT and up (version.c)
 *   2      2     flags: bit 0 = term mark (the first batch of a leader's term)
 *   4      4     count: number of commands
 *   8      8     timestamp: cluster clock in ms when the leader sealed the batch
 *   16     8     term: raft term of the leader that proposed it
 *   24     8     sequence: 1, 2, 3... per term; lets the leader find its own batch again
 *   32     4     length: bytes of header and commands, without padding
 *   36     4     CRC-32C of the whole entry up to `length`, this field taken as zero
 *
 *   offset size  command
 *   0      1     op, enum machine_op
 *   1      1     flags of the op
 *   2      2     length of the whole command in bytes, header included
 *   4      ...   with MACHINE_COMMAND_BY in the flags: user 8, address (length 1, bytes)
 *   ...    ...   fields in the order of struct machine_command that the op uses (table in
 *                batch.c)
 *
 * Every ACQUIRE has a count of names, a mode and a number of permits, so logs written before
 * multi-locks, shared mode and semaphores stay readable. A decoder refuses what it does not know
 * with FL_EVERSION, and anything malformed with FL_ECORRUPT. Encoding a command that
 * machine_command_check() accepts fails only by FL_ENOMEM/FL_ELIMIT of the buffer. Pure; any thread
 * on its own data. */
#ifndef MACHINE_BATCH_H
#define MACHINE_BATCH_H

#include <stdbool.h>

#include "base/buf.h"
#include "base/bytes.h"
#include "machine/limits.h"

#define MACHINE_BATCH_FORMAT 1u
#define MACHINE_BATCH_HEADER_SIZE 40u
#define MACHINE_BATCH_TERM_MARK 1u

enum machine_op {
    MACHINE_OP_INIT = 1,   /* cluster id (number) and limits; only the first one counts */
    MACHINE_OP_LIMITS = 4, /* replace the replicated limits */
    MACHINE_OP_ACQUIRE,    /* name, also, owner, ttl_ms, wait_ms, value; number = attempt */
    MACHINE_OP_CANCEL,     /* number = wait id, number2 = its request count: leaves the queue unless
                           the request was repeated since */
    MACHINE_OP_RENEW,      /* name, token, ttl_ms (0 = unchanged) */
    MACHINE_OP_RELEASE,    /* name, token */
    MACHINE_OP_BREAK,      /* name */
    MACHINE_OP_TOKEN,      /* name (only for the record) */
    MACHINE_OP_SESSION_OPEN,  /* owner, ttl_ms, lockdelay_ms, label */
    MACHINE_OP_SESSION_RENEW, /* owner */
    MACHINE_OP_SESSION_CLOSE, /* owner */
    MACHINE_OP_RAISE,       /* number: raise last_token by this step, 1 to MACHINE_RAISE_STEP_MAX */
    MACHINE_OP_USER_SET,    /* owner = the user's name, words (acl.h): makes or changes it */
    MACHINE_OP_USER_DELETE, /* owner = the user's name: deletes the user */
    MACHINE_OP_USERS_SEAL,  /* ends the setup of initial users, see MACHINE_USER_INITIAL */
    MACHINE_OP_EXPIRE,      /* number: of a lease, number2: its deadline; see timers.c. The leader's
                               own, carried out before anything that is due */
    MACHINE_OP_USERS_LOAD = 46, /* value: all users from here on, see users_load.c */
    /* The one conditional operation, see keys.c: name, also, owner (empty: of any), ttl_ms (0:
     * unchanged), label (another owner, or what names a release), number (how long a release is
     * remembered), value (further keys, each with its owner); flags below. */
    MACHINE_OP_KEYS = 24,
    /* Nodes, see nodes.c: number = its id, and for the first two number2 = enum machine_node_flag,
     * value = its address. */
    MACHINE_OP_NODE_ADD = 32,
    MACHINE_OP_NODE_REPLACE,
    MACHINE_OP_NODE_REMOVE,
    MACHINE_OP_NODE_SETTLED,   /* the node has joined, or left, as planned */
    MACHINE_OP_NODE_VERSION,   /* number2 = the highest version that the node knows */
    MACHINE_OP_VERSION_RAISE,  /* number = the cluster's version from here on */
    MACHINE_OP_LIMIT_SET = 40, /* number = enum machine_limit of machine.h, number2 = its value */
    MACHINE_OP_SETTING_SET,    /* number = enum machine_setting, number2 = its value; 0: none */
    /* Queries: never in a batch. The leader answers them from its state, in the order of their
     * submission. */
    MACHINE_OP_CHECK = 128,  /* name, token */
    MACHINE_OP_SHOW,         /* name */
    MACHINE_OP_LOCKS,        /* pattern in value, cursor in name, count in number; empty or "0" is
                                the cursor of the start, count 0 the default */
    MACHINE_OP_SESSION_SHOW, /* owner */
    MACHINE_OP_SESSION_LIST, /* cursor in owner, count in number */
    MACHINE_OP_USERS,        /* all users, see machine_users_next */
    MACHINE_OP_USER,         /* owner = the user's name; a node sends it for a login */
    MACHINE_OP_MAY,          /* number = a right (acl.h), or 0: whether the sender is a known
                                user */
    MACHINE_OP_KEY = 140,    /* name, also, label (an owner, or empty), see keys.c; with COUNT: how
                                often the owner has taken the lock */
};

#define MACHINE_OP_IS_QUERY(op) ((unsigned)(op) >= 128u)

/* Flag of EXPIRE: the lease is of an explicit session, and `number` its serial. Else it is the
 * token of the grant. */
#define MACHINE_EXPIRE_EXPLICIT 1u

/* Flags of ACQUIRE. */
#define MACHINE_ACQUIRE_EXPLICIT 1u /* owner names an explicit session; ttl_ms is 0 */
#define MACHINE_ACQUIRE_ATTEMPT 4u  /* the `number`th attempt, above 1: see outcomes.h */
#define MACHINE_ACQUIRE_WAIT 2u     /* join the queue for wait_ms when it is not free */

/* Whether the command asks for a lock; and whether it only prolongs a lease. */
#define MACHINE_ASKS_FOR_LOCK(c)                                                                   \
    ((c)->op == MACHINE_OP_ACQUIRE ||                                                              \
     ((c)->op == MACHINE_OP_KEYS && ((c)->flags & MACHINE_KEYS_GRANT) != 0))
#define MACHINE_ASKS_FOR_TIME(c)                                                                   \
    ((c)->op == MACHINE_OP_RENEW ||                                                                \
     ((c)->op == MACHINE_OP_KEYS &&                                                                \
      ((c)->flags & (MACHINE_KEYS_GRANT | MACHINE_KEYS_EXTEND)) == MACHINE_KEYS_EXTEND))

/* Flags of KEYS (keys.c): what it does with keys in which state. Valid together are: GRANT, EXTEND
 * or both; EXTEND with ADD or EACH; RELEASE; RELEASE with EACH; RELEASE with a label, and GRANT or
 * not; COUNT with GRANT, with GRANT and EXTEND, or with RELEASE. */
#define MACHINE_KEYS_GRANT 1u   /* all are free: grants each, to `label` when one is given */
#define MACHINE_KEYS_EXTEND 2u  /* all are the owner's: sets leases of ttl_ms */
#define MACHINE_KEYS_ADD 4u     /* with EXTEND: adds ttl_ms to the time left */
#define MACHINE_KEYS_RELEASE 8u /* all are the owner's: releases them */
#define MACHINE_KEYS_EACH 16u   /* those that are the owner's, whatever the others are */
#define MACHINE_KEYS_COUNT 32u  /* one key, which its owner may take several times */

/* Whether it may do nothing but prolong leases, so that it may need no entry: machine_renew(). */
#define MACHINE_IS_RENEWAL(c)                                                                      \
    ((c)->op == MACHINE_OP_RENEW || (c)->op == MACHINE_OP_SESSION_RENEW ||                         \
     ((c)->op == MACHINE_OP_KEYS && ((c)->flags & ~(MACHINE_KEYS_GRANT | MACHINE_KEYS_EACH |       \
                                                    MACHINE_COMMAND_BY)) == MACHINE_KEYS_EXTEND))

/* Whether it needs to know how much is left of the first key's lease, which the leader knows best:
 * `number` then says it (machine_fill_in()). */
#define MACHINE_KEYS_NEED_LEFT(c)                                                                  \
    ((c)->op == MACHINE_OP_KEYS &&                                                                 \
     (((c)->flags & MACHINE_KEYS_ADD) != 0 ||                                                      \
      (((c)->flags & (MACHINE_KEYS_RELEASE | MACHINE_KEYS_COUNT)) == MACHINE_KEYS_RELEASE &&       \
       (c)->label.len > 0 && (c)->ttl_ms == 0)))

/* Flag of USER_SET and USERS_LOAD: the answer is EXISTS, and nothing changes, once users were
 * changed or sealed. */
#define MACHINE_USER_INITIAL 1u

/* Bits of number2 in NODE_ADD and NODE_REPLACE. */
enum machine_node_flag { MACHINE_NODE_LEARNER = 1 /* the node stays a learner */ };
#define MACHINE_NODE_FLAGS 1u

/* Flag of NODE_REMOVE and NODE_REPLACE: the plan is carried out even when the voters that are left
 * have no majority that is up. */
#define MACHINE_NODE_FORCED 1u

/* Flag of every command: the command names its sender. */
#define MACHINE_COMMAND_BY 128u

/* The sender of a command. 0: a client without a login; it counts as the default user while that
 * user needs no password. MACHINE_USER_NODE: a node, which cleans up after a client and needs no
 * rights. Any other value: a user's number and login, put together by machine_user_of(). */
#define MACHINE_USER_NODE UINT64_MAX
#define MACHINE_ADDRESS_MAX 18u /* IPv4 or IPv6 address, port 2 in network order; or empty */
static inline uint64_t machine_user_of(uint32_t uid, uint32_t login)
{
    return (uint64_t)login << 32 | uid;
}

enum machine_mode { MACHINE_MODE_EXCLUSIVE = 0, MACHINE_MODE_SHARED = 1 };

/* One command, decoded. Slices point into the encoded bytes (after decode) or into the caller's
 * (before encode). Fields an op does not use are zero. */
struct machine_command {
    uint8_t op;
    uint8_t flags;
    uint8_t mode;     /* ACQUIRE: enum machine_mode */
    uint8_t n_names;  /* ACQUIRE: 1 to MACHINE_NAMES_MAX; several only in exclusive mode */
    uint32_t permits; /* ACQUIRE: 1 unless it is a semaphore */
    struct fli_slice name;
    struct fli_slice also; /* ACQUIRE: the n_names - 1 further names, see machine_command_names */
    struct fli_slice owner;
    struct fli_slice label;
    struct fli_slice value;
    struct fli_slice words;   /* USER_SET */
    struct fli_slice address; /* of the client, or empty; goes with `user` */
    uint64_t user;
    uint64_t token;
    uint64_t ttl_ms;
    uint64_t wait_ms;
    uint64_t lockdelay_ms;
    uint64_t number;
    uint64_t number2;
    struct machine_limits limits;
};

struct machine_batch_header {
    uint16_t format; /* 0 stands for the format of version 1 */
    uint16_t flags;
    uint32_t count;
    uint64_t timestamp_ms;
    uint64_t term;
    uint64_t sequence;
    uint32_t length;
};

/* Whether every field that the op uses is within its range, and a cursor well formed. Returns 0 or
 * FL_EINVAL. Everything from outside is checked with this before it is encoded. */
int machine_command_check(const struct machine_command *c) FLI_MUST_USE;

/* Splits the names of an ACQUIRE that machine_command_check() accepts; all differ, `name` is the
 * first. Returns their number. `also` holds the further names in a row: each a length byte and its
 * bytes. */
unsigned machine_command_names(const struct machine_command *c,
                               struct fli_slice ret[MACHINE_NAMES_MAX]);

/* Room for `also` of any command. machine_also_add() puts one more name into it and returns the new
 * length. */
#define MACHINE_ALSO_SIZE ((MACHINE_NAMES_MAX - 1) * (1 + FL_NAME_MAX))
size_t machine_also_add(uint8_t also[MACHINE_ALSO_SIZE], size_t len, struct fli_slice name);

bool machine_limits_ok(const struct machine_limits *l);

/* Whether these bytes are a list of users as USERS_LOAD takes it (users_load.c). */
bool machine_users_ok(struct fli_slice users);

/* Appends the encoded command. */
int machine_command_encode(const struct machine_command *c, struct fli_buf *out) FLI_MUST_USE;

/* Decodes the command at p (at most len bytes). Checks ranges. 0, FL_ECORRUPT, FL_EVERSION.
 * *ret_size: bytes it took. *ret means nothing when it fails. */
int machine_command_decode(const uint8_t *p, size_t len, struct machine_command *ret,
                           size_t *ret_size) FLI_MUST_USE;

/* Decodes bytes again that machine_command_decode() has accepted, without checking ranges again.
 * Returns how many bytes the command took. */
size_t machine_command_redecode(const uint8_t *p, size_t len, struct machine_command *ret);

/* Writes the header over the first MACHINE_BATCH_HEADER_SIZE bytes of a buffer that already holds
 * length bytes of header space and commands and has room up to the padded size; fills the padding
 * with zeros and computes the checksum. Returns the padded size. */
size_t machine_batch_seal(uint8_t *data, const struct machine_batch_header *h);

/* Reads and verifies header, length and checksum (not the commands). 0, FL_ECORRUPT, FL_EVERSION.
 */
int machine_batch_open(const void *data, size_t len, struct machine_batch_header *ret) FLI_MUST_USE;

#endif
