/* request.h: translates a Redis command about keys, or a recognised script, to an operation of the
 * lock machine. Slices point into the arguments. Pure. */
#ifndef FACE_REQUEST_H
#define FACE_REQUEST_H

#include "base/buf.h"
#include "face/scripts.h"
#include "wire/commands.h"

struct face_request {
    uint8_t op;     /* enum face_op */
    uint8_t change; /* enum face_change; 0: a query */
    unsigned n_keys;
    struct fli_slice keys[FACE_KEYS_MAX];
    struct fli_slice value;     /* the owner; empty: a query about any owner */
    struct fli_slice new_value; /* FACE_SWAP */
    uint64_t ttl_ms;            /* 0: unchanged */
    bool any;                   /* ends the keys of any owner or, with ttl_ms, prolongs them */
    bool fetches;               /* one key: when another value has it, that value is asked for */
    const struct fli_slice *each_keys, *each_values; /* FACE_OP_RENEW_EACH, which has no keys */
    unsigned n_each;
    bool has_latch;
    uint8_t latch[FACE_SHA1_SIZE]; /* FACE_OP_LEAVE: identifies it when it is sent again */
    uint64_t keep_ms;              /* how long that is remembered */
    struct face_answers answers;
};

#define FACE_ERRMSG_SIZE 512u
#define FACE_KEEP_MAX_MS 60000u /* the most of `keep_ms` */

struct face_context {
    struct face_scripts *scripts;
    bool shared;      /* --redis-face-shared: clients take the nodes for several servers */
    bool del;         /* --redis-face-del: DEL, UNLINK and PEXPIRE are served */
    uint64_t wall_ms; /* this node's wall clock since 1970, for EXAT and PXAT; 0: unknown */
};

/* Whether it is DEL of a key that Redisson keeps beside a lock for a while. No such key exists
 * here, so DEL deletes nothing. */
bool face_is_latch(enum fli_command_id id, const struct fli_slice *args, unsigned n);

/* Whether the command is answered without the machine: SCRIPT. */
bool face_is_local(enum fli_command_id id);

/* Appends the answer of such a command. 0 or the error of the buffer. */
int face_local(struct face_scripts *scripts, enum fli_command_id id, const struct fli_slice *args,
               unsigned n, struct fli_buf *out) FLI_MUST_USE;

/* Reads the arguments of any other command. 0; FL_EINVAL or FL_ENOTFOUND (no such script): errmsg
 * is the text of the error reply without its first word, which face_error_word() returns. */
int face_request_parse(const struct face_context *c, enum fli_command_id id,
                       const struct fli_slice *args, unsigned n, struct face_request *ret,
                       char errmsg[FACE_ERRMSG_SIZE]) FLI_MUST_USE;
const char *face_error_word(int rc);

/* ---- answers --------------------------------------------------------------------------------- */

enum face_outcome { FACE_GRANTED, FACE_OWN, FACE_OTHER, FACE_ABSENT };

/* What stands for the value of a key that is taken, while there is no owner to name. */
#define FACE_VALUE_TAKEN "(taken)"

struct face_result {
    enum face_outcome outcome;
    uint64_t count, left_ms, token;
    struct fli_slice value; /* the owner; empty: see FACE_VALUE_TAKEN */
    struct fli_slice sent;  /* the value of the request */
};

/* Appends the answer for this protocol. 0 or the error of the buffer. */
int face_reply(struct fli_buf *out, int proto, const struct face_answers *answers,
               const struct face_result *r) FLI_MUST_USE;

#endif
