/* request.h: a parsed request: the typed and range-checked arguments of each command, ready to be
 * mapped to the machine or the store. Pure. Slices point into the argv that was parsed.
 *
 * The fields that each command fills, besides `command`. All others are zero, and a slice that was
 * not given has NULL data:
 *
 *   ACQUIRE                name owner value ttl_ms wait_ms explicit_session wait mode shared
 *                          permits attempt also n_also
 *   RENEW                  name token ttl_ms (0: unchanged) jeopardies lost
 *   RELEASE, CHECK         name token
 *   TOKEN, SHOW, BREAK     name
 *   LOCKS                  pattern cursor number (COUNT); or by and number
 *   SESSION OPEN           owner ttl_ms lockdelay_ms label
 *   SESSION RENEW, CLOSE, SHOW  owner and, for RENEW, jeopardies lost
 *   SESSION LIST           cursor number (COUNT)
 *   CLUSTER TRANSFER       number (0: any node)
 *   CLUSTER ADD, REPLACE   number value (the address) learner, or force
 *   CLUSTER REMOVE         number force             CLUSTER MOVE    number value force
 *   CLUSTER CONFIG         by (GET or SET) label (the name) value
 *   CLUSTER BACKUP         number (the id; 0: none given) offset
 *   CLAIM                  lock token               MARK            lock
 *   GET, DEL, SET          name (the key) value (SET) and, when fenced, lock token
 *   HELLO                  number (0: none given) owner (user) value (password) label (SETNAME)
 *   AUTH                   owner (user) value (password)
 *   CLIENT SETNAME         label                    CLIENT SETINFO  label (attribute) value
 *   CLIENT TRACKING        label (ON or OFF)
 *   PING, ECHO             value                    SELECT          number
 *   INFO                   pattern (the first section)
 */
#ifndef FLI_REQUEST_H
#define FLI_REQUEST_H

#include <stdbool.h>

#include "wire/commands.h"

#define FLI_COUNT_DEFAULT UINT64_C(100) /* COUNT of LOCKS and SESSION LIST */
#define FLI_COUNT_MAX UINT64_C(1000)
#define FLI_CURSOR_MAX 64u      /* bytes of a CURSOR that the server gave out */
#define FLI_KEY_MAX 400u        /* bytes of a key of GET, SET and DEL, so that its record fits */
#define FLI_CLIENT_NAME_MAX 63u /* bytes of CLIENT SETNAME */
#define FLI_NODE_ID_MAX ((uint64_t)INT64_MAX)
#define FLI_NODE_ADDRESS_MAX 263u
#define FLI_ALSO_MAX 15u /* further names of ACQUIRE */

struct fli_request {
    const struct fli_command *command;
    struct fli_slice name;  /* lock; store: key of GET/SET/DEL */
    struct fli_slice lock;  /* store: the lock of FENCE, CLAIM, MARK */
    struct fli_slice owner; /* OWNER, SESSION, SESSION subcommands; empty when absent */
    struct fli_slice label;
    struct fli_slice value;
    struct fli_slice pattern; /* LOCKS MATCH; empty when absent */
    struct fli_slice cursor;
    struct fli_slice mode; /* as the client wrote it; also the last word of CLUSTER ADD and so on */
    struct fli_slice by;   /* LOCKS BY: WAIT, in any case; CLUSTER CONFIG: GET or SET */
    uint64_t incarnation;  /* CLUSTER REPLACE OF: which one of the node; 0 when absent */
    uint64_t token;
    uint64_t ttl_ms; /* 0 when absent (and no default applies) */
    uint64_t wait_ms;
    uint64_t lockdelay_ms;
    uint64_t permits;           /* ACQUIRE: 1 when absent */
    uint64_t attempt;           /* ACQUIRE: 1 when absent */
    uint64_t offset;            /* CLUSTER BACKUP */
    uint64_t number;            /* COUNT, node id, HELLO version... */
    uint64_t jeopardies, lost;  /* RENEW, SESSION RENEW: the client's report about its leases */
    bool explicit_session;      /* ACQUIRE SESSION */
    bool shared;                /* ACQUIRE MODE SHARED */
    bool learner, force;        /* CLUSTER ADD LEARNER; REMOVE, REPLACE and MOVE FORCE */
    bool wait;                  /* ACQUIRE WAIT with more than 0 */
    bool fenced;                /* store: FENCE given */
    unsigned n_also;            /* ACQUIRE: number of further names, all different */
    struct fli_slice last_also; /* of the parser */
    struct fli_slice also[FLI_ALSO_MAX];
};

/* Parses the arguments after the lookup. 0; FL_EINVAL with the text of the error reply without its
 * first word: what is wrong, in which argument, what to write instead. FL_EVERSION: HELLO asks for
 * a protocol other than 2 and 3. Options may come in any order and any case; an option given twice
 * is an error, except ALSO. SET and DEL without FENCE are no error here: `fenced` is false, and the
 * store answers NOTOKEN. *ret means nothing when it fails. */
int fli_request_parse(const struct fli_command *command, const struct fli_slice *args, unsigned n,
                      struct fli_request *ret, char *errmsg, size_t errmsg_size) FLI_MUST_USE;

/* The first word of the error reply after lookup or parse has failed with rc. */
const char *fli_request_error_word(int rc);

#endif
