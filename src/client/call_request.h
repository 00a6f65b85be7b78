/* call_request.h: writes one request of a client, and says what an answer to it means. Pure: it
 * writes bytes and takes parsed replies. */
#ifndef FLI_CLIENT_CALL_REQUEST_H
#define FLI_CLIENT_CALL_REQUEST_H

#include <hiredis/hiredis.h>

#include "base/buf.h"
#include "client/call_state.h"
#include "fencelock/client.h"

#define FLI_CALL_ALSO_MAX 23u

enum fli_call_command {
    FLI_CALL_RENEW = FL_ASK_RENEW,       /* name, token, ttl_ms (0: unchanged) */
    FLI_CALL_RELEASE = FL_ASK_RELEASE,   /* name, token */
    FLI_CALL_CHECK = FL_ASK_CHECK,       /* name, token */
    FLI_CALL_TOKEN = FL_ASK_TOKEN,       /* name */
    FLI_CALL_BREAK = FL_ASK_BREAK,       /* name */
    FLI_CALL_SHOW = FL_ASK_SHOW,         /* name */
    FLI_CALL_LOCKS = FL_ASK_LOCKS,       /* name: glob; cursor; count */
    FLI_CALL_BUSIEST = FL_ASK_BUSIEST,   /* count */
    FLI_CALL_SESSIONS = FL_ASK_SESSIONS, /* cursor; count */
    /* name, owner, value; ttl_ms, or under_session: the owner of that session */
    FLI_CALL_ACQUIRE,
    FLI_CALL_SESSION_OPEN,  /* owner, ttl_ms, lockdelay_ms, value: the label */
    FLI_CALL_SESSION_RENEW, /* owner */
    FLI_CALL_SESSION_CLOSE, /* owner */
    FLI_CALL_SESSION_SHOW,  /* owner */
    FLI_CALL_LEADER,
    FLI_CALL_INFO,
    FLI_CALL_CLAIM, /* lock, token */
    FLI_CALL_GET,   /* name: key; lock and token unless the token is 0 */
    FLI_CALL_SET,   /* as GET; value */
    FLI_CALL_DEL,   /* as GET */
    FLI_CALL_MARK,  /* lock */
    /* name and `also`: the words; a change that may be made twice, or not */
    FLI_CALL_CHANGE,
    FLI_CALL_READ,
    /* begins one; or count: its number, and token: the first byte that is wanted */
    FLI_CALL_BACKUP,
    FLI_CALL_COMMANDS /* how many there are */
};

struct fli_call_request {
    enum fli_call_command command;
    struct fl_bytes name;
    struct fl_bytes lock;
    struct fl_bytes owner;
    struct fl_bytes value;
    struct fl_bytes cursor;
    const struct fl_bytes *also; /* ACQUIRE: the names after the first; at most FLI_CALL_ALSO_MAX */
    size_t also_len;
    fl_token token;
    uint64_t ttl_ms;
    uint64_t lockdelay_ms;
    uint64_t count;
    uint64_t permits;         /* ACQUIRE; 0: none */
    uint64_t attempt;         /* ACQUIRE: the number of this attempt; 0 counts as 1 */
    uint64_t min_validity_ms; /* ACQUIRE of a Redlock; 0: 1 */
    /* RENEW, SESSION_RENEW: leases that came into jeopardy since the last report */
    uint64_t jeopardies;
    uint64_t lost; /* likewise, leases that were lost */
    bool shared;
    bool under_session;
};

enum fli_limit {
    FLI_LIMIT_NONE,
    FLI_LIMIT_NAME,
    FLI_LIMIT_WORD,
    FLI_LIMIT_MATCH,
    FLI_LIMIT_OWNER,
    FLI_LIMIT_VALUE,
    FLI_LIMIT_LABEL,
    FLI_LIMIT_TOKEN,
    FLI_LIMIT_TTL,
    FLI_LIMIT_TIMEOUT,
    FLI_LIMIT_WAIT,
    FLI_LIMIT_LOCKDELAY,
};

/* Whether the value is within the limit; else errmsg gets a sentence. */
bool fli_limit_ok(enum fli_limit limit, uint64_t value, char *errmsg, size_t errmsg_size);
/* Whether all that the request says is. An owner or a TTL that it does not have is not looked
 * at. */
bool fli_call_ok(const struct fli_call_request *request, char *errmsg, size_t errmsg_size);

/* How many bytes the texts of a request have; and a copy of it, with its texts in `room` and the
 * names after the first in `also`, which has room for all of them. */
size_t fli_call_request_size(const struct fli_call_request *request);
void fli_call_request_copy(struct fli_call_request *to, const struct fli_call_request *from,
                           struct fl_bytes *also, char *room);

/* Whether mode, permits and further names make sense together. */
bool fli_acquire_mode_ok(const struct fl_take *o);

/* Appends the request. wait_ms: how much of the wait of an ACQUIRE is left. 0, FL_ENOMEM,
 * FL_ELIMIT. */
int fli_call_encode(const struct fli_call_request *request, uint64_t wait_ms,
                    struct fli_buf *out) FLI_MUST_USE;

/* What a reply to this kind of request means. Sets *ret_code for FLI_EVENT_REFUSED. */
enum fli_call_event fli_call_classify(enum fli_call_command command, const redisReply *reply,
                                      int *ret_code);

/* Whether a reply to LEADER means that the server ignores this connection, including what was sent
 * after LEADER: FL_ELIMIT, since there are too many connections; FL_EDENIED, since it is the wrong
 * kind of connection. 0: neither. */
int fli_call_classify_welcome(const redisReply *reply);

/* What a reply to LEADER says about the node that sent it: ALIVE, or LEADERLESS. */
enum fli_call_event fli_call_classify_probe(const redisReply *reply);

/* Whether this kind of request may be repeated. */
enum fli_call_repeat fli_call_may_repeat(enum fli_call_command command);

/* The code for a plain "no", and what it means in words. */
int fli_call_no_code(enum fli_call_command command);
const char *fli_call_no_text(enum fli_call_command command);

/* Whether a "no" may be the effect of an earlier attempt whose outcome is unknown. */
bool fli_call_no_is_uncertain(enum fli_call_command command);

/* The TTL of the lease that begins with a yes; 0: none begins. */
uint64_t fli_call_lease_ms(const struct fli_call_request *request);

/* The number in the text of a LATE reply, 0 for any other. */
uint64_t fli_call_late(const redisReply *reply);

/* The mark in the text of a STALE reply, FL_TOKEN_NONE when none can be found. */
fl_token fli_call_stale_mark(const char *text, size_t len);

#endif
