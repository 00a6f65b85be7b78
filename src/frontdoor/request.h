/* request.h: translates a Redis command about keys, or a recognised script, to an operation of the
 * lock machine. Slices point into the arguments. Pure. */
#ifndef FRONTDOOR_REQUEST_H
#define FRONTDOOR_REQUEST_H

#include "base/buf.h"
#include "frontdoor/scripts.h"
#include "machine/machine.h"
#include "wire/commands.h"

struct frontdoor_request {
    uint8_t op;     /* enum machine_op */
    uint8_t change; /* its flags */
    unsigned n_keys;
    struct fli_slice value;     /* the owner; empty: a query about any owner */
    struct fli_slice new_value; /* another owner, to whom a release grants the key */
    uint64_t ttl_ms;            /* 0: unchanged */
    bool fetches;               /* one key: when another value has it, that value is asked for */
    const struct fli_slice *each_keys, *each_values; /* a form of `each`: keys[0] is the first */
    bool has_latch;
    uint8_t latch[FLI_SHA1_SIZE]; /* identifies a release when it is sent again */
    uint64_t keep_ms;             /* how long a release is remembered */
    bool waits;                   /* BLPOP: for the signal keys[0], see signals.h */
    uint64_t wait_ms;
    struct frontdoor_answers answers;
    struct fli_slice keys[MACHINE_NAMES_MAX]; /* n_keys of them; the last field */
};

#define FRONTDOOR_ERRMSG_SIZE 512u

struct frontdoor_context {
    struct frontdoor_scripts *scripts;
    const char *pattern; /* --front-door: of the keys that are served; NULL: all */
    bool shared;         /* --front-door-shared: clients take the nodes for several servers */
    bool del;            /* --front-door-del: DEL, UNLINK and PEXPIRE are served */
    uint64_t wall_ms;    /* this node's wall clock since 1970, for EXAT and PXAT; 0: unknown */
};

/* Whether the command is answered without the machine: SCRIPT, and DEL of a key that Redisson keeps
 * beside a lock for a while. No such key exists here, so DEL deletes nothing. */
bool frontdoor_is_local(enum fli_command_id id, const struct fli_slice *args, unsigned n);

/* Appends the answer of such a command. 0 or the error of the buffer. */
int frontdoor_local(struct frontdoor_scripts *scripts, enum fli_command_id id,
                    const struct fli_slice *args, unsigned n, struct fli_buf *out) FLI_MUST_USE;

/* Reads the arguments of any other command. 0; FL_EINVAL or FL_ENOTFOUND (no such script): errmsg
 * is the text of the error reply without its first word, which frontdoor_error_word() returns. */
int frontdoor_request_parse(const struct frontdoor_context *c, enum fli_command_id id,
                            const struct fli_slice *args, unsigned n, struct frontdoor_request *ret,
                            char errmsg[FRONTDOOR_ERRMSG_SIZE]) FLI_MUST_USE;
const char *frontdoor_error_word(int rc);

/* The machine's command for a request. It points into the request, its arguments and `room`. */
#define FRONTDOOR_ROOM ((size_t)MACHINE_COMMAND_LARGEST - MACHINE_COMMAND_MAX)
struct machine_command frontdoor_command(const struct frontdoor_request *q,
                                         uint8_t room[FRONTDOOR_ROOM]);

/* The query for the value of a key that another value has, and its answers. */
struct machine_command frontdoor_fetch(struct fli_slice key, struct frontdoor_answers *answers);
/* Whether this result of a request that fetches needs that query. */
bool frontdoor_fetches(const struct machine_result *m);

/* ---- answers --------------------------------------------------------------------------------- */

enum frontdoor_outcome { FRONTDOOR_GRANTED, FRONTDOOR_OWN, FRONTDOOR_OTHER, FRONTDOOR_ABSENT };

/* What stands for the value of a key that is taken, while there is no owner to name. */
#define FRONTDOOR_VALUE_TAKEN "(taken)"

struct frontdoor_result {
    enum frontdoor_outcome outcome;
    uint64_t count, left_ms, token;
    uint64_t each[2];       /* a bit for each key that was the owner's */
    struct fli_slice value; /* the owner; empty: see FRONTDOOR_VALUE_TAKEN */
    struct fli_slice sent;  /* the value of the request */
};

/* What the machine's result means, for a request with this value. False: it is no outcome of a
 * lock, and worded as for all other commands. */
bool frontdoor_result_of(const struct machine_result *m, struct fli_slice payload,
                         struct fli_slice sent, struct frontdoor_result *ret) FLI_MUST_USE;

/* Appends the answer for this protocol. 0 or the error of the buffer. */
int frontdoor_reply(struct fli_buf *out, int proto, const struct frontdoor_answers *answers,
                    const struct frontdoor_result *r) FLI_MUST_USE;

#endif
