/* render.c: see render.h. */
#include "server/render_private.h"

#include <arpa/inet.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "machine/view.h"
#include "server/cluster_config.h"
#include "wire/resp.h"

/* --- errors --- */

int render_failure(struct fli_buf *b, int status, bool retryable)
{
    switch (status) {
    case FL_ENOLEADER:
        return render_no_leader(b);
    case FL_EBUSY:
        return fli_resp_error(b, "BUSY",
                              "too many commands are pending; nothing was done, try again in a "
                              "moment");
    case FL_EUNCERTAIN:
        return fli_resp_error(
            b, "UNCERTAIN", "the outcome is unknown: it may or may not have been carried out; %s",
            retryable ? "send it again (ACQUIRE with the same OWNER) to find out"
                      : "without OWNER it cannot be asked for again; a lock that was granted ends "
                        "with its TTL (name an OWNER next time)");
    default:
        return fli_resp_error(b, "ERR", "%s (%s)", fl_strerror(status), fl_err_name(status));
    }
}

static int limit(struct fli_buf *b, uint32_t which)
{
    static const char *const what[] = {
        [MACHINE_LIMIT_LOCKS] =
            "locks-max: as many locks as allowed are held or awaited; release some",
        [MACHINE_LIMIT_SESSIONS] = "sessions-max: as many sessions as allowed exist; close some",
        [MACHINE_LIMIT_WAITS] =
            "waits-max: as many requests as allowed are waiting; try again later",
        [MACHINE_LIMIT_LOCK_WAITS] =
            "lock-waits-max: as many requests as allowed wait for this lock; try again later",
        [MACHINE_LIMIT_SESSION_LOCKS] =
            "session-locks-max: this session holds or awaits as many locks as allowed; release "
            "some",
        [MACHINE_LIMIT_TOKENS] = "tokens: all of them have been issued; this cluster cannot grant "
                                 "any more",
        [MACHINE_LIMIT_NODES] = "nodes: the cluster has as many members as allowed",
        [MACHINE_LIMIT_USERS] = "users: there are as many users as there is room for, or this one "
                                "has too many passwords, patterns or selectors; take some away",
        [MACHINE_LIMIT_HOLDERS] = "holders: so many leases of this lock have just ended that it "
                                  "cannot be told yet who holds it; ask again in a moment",
    };
    size_t n = sizeof what / sizeof what[0];
    return fli_resp_error(b, "LIMIT", "%s",
                          which < n && what[which] != NULL ? what[which] : "a limit is reached");
}

/* Names the missing right, and nothing about the state. */
static int no_permission(struct fli_buf *b, uint32_t right)
{
    if (right == 0) {
        return fli_resp_error(b, "NOPERM", "it belongs to another user");
    }
    return fli_resp_error(b, "NOPERM", "this user lacks the right @%s%s", acl_right_name(right),
                          right == ACL_ADMIN ? "" : " there");
}

static int no_login(struct fli_buf *b)
{
    return fli_resp_error(b, "NOAUTH", "Authentication required.");
}

static int no_session(struct fli_buf *b)
{
    return fli_resp_error(b, "NOSESSION",
                          "there is no such session: it was closed, has expired, or was never "
                          "opened; open one with SESSION OPEN");
}

static int mismatch(struct fli_buf *b, uint32_t permits)
{
    if (permits == 0) {
        return fli_resp_error(
            b, "MISMATCH",
            "this owner holds or awaits the lock in another mode or together with "
            "other locks; ask in the same way, or release it first");
    }
    return fli_resp_error(
        b, "MISMATCH",
        "the lock is in use with PERMITS %" PRIu32
        " (1 when none are given); ask for it with the same, or when nobody holds "
        "or awaits it any more",
        permits);
}

static int late(struct fli_buf *b, uint64_t highest)
{
    return fli_resp_error(b, "LATE",
                          "attempt %" PRIu64 " of this owner has come before this one, so nothing "
                          "was done; if this is the newest, send it with a larger ATTEMPT",
                          highest);
}

static int corrupt(struct fli_buf *b)
{
    return fli_resp_error(b, "ERR", "the leader's answer could not be read; nothing was changed");
}

/* --- views --- */

static const char *state_word(uint8_t state)
{
    switch (state) {
    case MACHINE_LOCK_HELD:
        return "held";
    case MACHINE_LOCK_DELAYED:
        return "delayed";
    case MACHINE_LOCK_QUEUED:
        return "queued";
    default:
        return "unknown";
    }
}

static const char *mode_word(uint8_t mode)
{
    switch (mode) {
    case MACHINE_LOCK_EXCLUSIVE:
        return "exclusive";
    case MACHINE_LOCK_SHARED:
        return "shared";
    default:
        return "permits";
    }
}

void render_address(struct fli_slice address, char out[RENDER_ADDRESS_MAX])
{
    char host[48] = "";
    uint16_t port = 0;
    out[0] = '\0';
    if (address.len == 6 || address.len == MACHINE_ADDRESS_MAX) {
        bool v6 = address.len != 6;
        (void)inet_ntop(v6 ? AF_INET6 : AF_INET, address.data, host, sizeof host);
        memcpy(&port, address.data + address.len - 2, sizeof port);
        (void)snprintf(out, RENDER_ADDRESS_MAX, v6 ? "[%s]:%u" : "%s:%u", host, ntohs(port));
    }
}

#define LOCK_PAIRS 18u
#define HOLDER_PAIRS 12u

/* The user and the address of a grant. The default user is named too; an unknown address is nil. */
static int origin(struct fli_buf *b, int proto, bool any, struct fli_slice user,
                  struct fli_slice address)
{
    char text_of[RENDER_ADDRESS_MAX];
    render_address(address, text_of);
    int rc = !any           ? null(b, proto, "user")
             : user.len > 0 ? bytes(b, "user", user)
                            : text(b, "user", "default");
    return rc != 0              ? rc
           : text_of[0] == '\0' ? null(b, proto, "address")
                                : text(b, "address", text_of);
}

static int holder_pairs(struct fli_buf *b, int proto, const struct machine_lock_view *v,
                        uint64_t clock_ms)
{
    bool held = v->state == MACHINE_LOCK_HELD;
    uint64_t age_ms = held && clock_ms > v->since_ms ? clock_ms - v->since_ms : 0;
    int rc = held ? number(b, "token", v->token) : null(b, proto, "token");
    rc = rc != 0 ? rc : held ? bytes(b, "owner", v->owner) : null(b, proto, "owner");
    rc = rc != 0 ? rc : truth(b, proto, "session", v->session_explicit);
    rc = rc != 0 ? rc : bytes(b, "label", v->label);
    rc = rc != 0 ? rc : bytes(b, "value", v->value);
    rc = rc != 0 ? rc : number(b, "since_ms", v->since_ms);
    rc = rc != 0 ? rc : number(b, "age_ms", age_ms);
    rc = rc != 0 ? rc : number(b, "ttl_left_ms", v->ttl_left_ms);
    rc = rc != 0 ? rc : number(b, "renewals", v->renewals);
    rc = rc != 0 ? rc : number(b, "together", v->together);
    return rc != 0 ? rc : origin(b, proto, held, v->user, v->address);
}

static int lock_pairs(struct fli_buf *b, int proto, const struct machine_lock_view *v,
                      uint64_t clock_ms)
{
    int rc = bytes(b, "name", v->name);
    rc = rc != 0 ? rc : text(b, "state", state_word(v->state));
    rc = rc != 0 ? rc : holder_pairs(b, proto, v, clock_ms);
    rc = rc != 0 ? rc : number(b, "waiters", v->waiters);
    rc = rc != 0                        ? rc
         : v->mode == MACHINE_LOCK_NONE ? null(b, proto, "mode")
                                        : text(b, "mode", mode_word(v->mode));
    rc = rc != 0 ? rc : number(b, "permits", v->permits);
    return rc != 0 ? rc : number(b, "holders", v->holders);
}

/* One waiter of SHOW's queue. */
static int waiter(struct fli_buf *b, int proto, const struct machine_session_view *v)
{
    int rc = fli_resp_map(b, proto, 6);
    rc = rc != 0 ? rc : bytes(b, "owner", v->owner);
    rc = rc != 0 ? rc : bytes(b, "label", v->label);
    rc = rc != 0 ? rc : truth(b, proto, "session", v->session_explicit);
    rc = rc != 0 ? rc : number(b, "together", v->together);
    return rc != 0 ? rc : origin(b, proto, true, v->user, v->address);
}

static int session(struct fli_buf *b, int proto, const struct machine_session_view *v)
{
    int rc = fli_resp_map(b, proto, 9);
    rc = rc != 0 ? rc : bytes(b, "owner", v->owner);
    rc = rc != 0 ? rc : bytes(b, "label", v->label);
    rc = rc != 0 ? rc : number(b, "ttl_ms", v->ttl_ms);
    rc = rc != 0 ? rc : number(b, "ttl_left_ms", v->ttl_left_ms);
    rc = rc != 0 ? rc : number(b, "lockdelay_ms", v->lockdelay_ms);
    rc = rc != 0 ? rc : number(b, "locks", v->locks);
    rc = rc != 0 ? rc : number(b, "waits", v->waits);
    return rc != 0 ? rc : origin(b, proto, true, v->user, v->address);
}

/* A payload is walked twice: first to check that it is complete, because the number of elements is
 * written before them. */
static bool locks_are_whole(struct machine_page page)
{
    struct machine_lock_view v;
    int rc = 0;
    do {
        rc = machine_page_next_lock(&page, &v);
    } while (rc == 1);
    return rc == 0;
}

static bool sessions_are_whole(struct machine_page page)
{
    struct machine_session_view v;
    int rc = 0;
    do {
        rc = machine_page_next_session(&page, &v);
    } while (rc == 1);
    return rc == 0;
}

/* Counts the records of holders in SHOW: all of them, unless the page was full or some of them have
 * lost the lock. False when the records are not complete. */
static bool count_holders(struct machine_page page, struct machine_lock_view *ret_first,
                          uint32_t *ret_n)
{
    struct machine_lock_view v;
    if (machine_page_next_lock(&page, ret_first) != 1) {
        return false;
    }
    *ret_n = ret_first->state == MACHINE_LOCK_HELD;
    for (; *ret_n < ret_first->holders && machine_page_is_at_lock(&page); ++*ret_n) {
        if (machine_page_next_lock(&page, &v) != 1) {
            return false;
        }
    }
    return sessions_are_whole(page);
}

static int held_by(struct fli_buf *b, int proto, struct machine_page *page, uint32_t n,
                   uint64_t clock_ms)
{
    struct machine_lock_view v;
    int rc = fli_resp_array(b, n);
    for (uint32_t i = 0; rc == 0 && i < n; i++) {
        int more = machine_page_next_lock(page, &v);
        FLI_ASSERT(more == 1); /* the first walk counted it */
        rc = fli_resp_map(b, proto, HOLDER_PAIRS);
        rc = rc != 0 ? rc : holder_pairs(b, proto, &v, clock_ms);
    }
    return rc;
}

static int show(struct fli_buf *b, int proto, const struct machine_result *r,
                struct fli_slice payload)
{
    struct machine_page page;
    struct machine_lock_view lock;
    struct machine_lock_view skipped;
    uint32_t n = 0;
    if (machine_page_open(payload.data, payload.len, &page) != 0 ||
        !count_holders(page, &lock, &n) ||
        (n == 0 && machine_page_next_lock(&page, &skipped) != 1)) {
        return corrupt(b);
    }
    int rc = fli_resp_map(b, proto, LOCK_PAIRS + 2);
    rc = rc != 0 ? rc : lock_pairs(b, proto, &lock, r->clock_ms);
    rc = rc != 0 ? rc : key(b, "held_by");
    rc = rc != 0 ? rc : held_by(b, proto, &page, n, r->clock_ms);
    rc = rc != 0 ? rc : key(b, "queue");
    rc = rc != 0 ? rc : fli_resp_array(b, page.count);
    struct machine_session_view v;
    while (rc == 0 && machine_page_next_session(&page, &v) == 1) {
        rc = waiter(b, proto, &v);
    }
    return rc;
}

static int page_head(struct fli_buf *b, const struct machine_page *page)
{
    struct fli_slice cursor = page->more ? page->cursor : (struct fli_slice){NULL, 0};
    int rc = fli_resp_array(b, 2);
    rc = rc != 0 ? rc : fli_resp_bulk(b, cursor.data, cursor.len);
    return rc != 0 ? rc : fli_resp_array(b, page->count);
}

static int locks(struct fli_buf *b, int proto, const struct machine_result *r,
                 struct fli_slice payload)
{
    struct machine_page page;
    if (machine_page_open(payload.data, payload.len, &page) != 0 || !locks_are_whole(page)) {
        return corrupt(b);
    }
    struct machine_lock_view v;
    int rc = page_head(b, &page);
    while (rc == 0 && machine_page_next_lock(&page, &v) == 1) {
        rc = fli_resp_map(b, proto, LOCK_PAIRS);
        rc = rc != 0 ? rc : lock_pairs(b, proto, &v, r->clock_ms);
    }
    return rc;
}

static int sessions(struct fli_buf *b, int proto, struct fli_slice payload)
{
    struct machine_page page;
    if (machine_page_open(payload.data, payload.len, &page) != 0 || !sessions_are_whole(page)) {
        return corrupt(b);
    }
    struct machine_session_view v;
    int rc = page_head(b, &page);
    while (rc == 0 && machine_page_next_session(&page, &v) == 1) {
        rc = session(b, proto, &v);
    }
    return rc;
}

static int one_session(struct fli_buf *b, int proto, struct fli_slice payload)
{
    struct machine_page page;
    struct machine_session_view v;
    if (machine_page_open(payload.data, payload.len, &page) != 0 ||
        machine_page_next_session(&page, &v) != 1) {
        return corrupt(b);
    }
    return session(b, proto, &v);
}

/* --- results --- */

int render_granted(struct fli_buf *b, uint64_t token)
{
    FLI_ASSERT(token != FL_TOKEN_NONE && token <= FL_TOKEN_MAX);
    return fli_resp_u64(b, token);
}

int render_wait_ended(struct fli_buf *b, int proto, uint8_t reason)
{
    if (reason == MACHINE_REASON_DENIED) {
        return no_permission(b, ACL_ACQUIRE);
    }
    /* The end of a session is no contention, so the answer differs from "still held". */
    return reason == MACHINE_REASON_SESSION ? no_session(b) : fli_resp_null(b, proto);
}

static int acquire(struct fli_buf *b, int proto, const struct machine_result *r)
{
    if (r->code == MACHINE_GRANTED) {
        return render_granted(b, r->token);
    }
    if (r->code == MACHINE_HELD) {
        return fli_resp_null(b, proto);
    }
    return fli_resp_error(b, "ERR", "unexpected result %u of ACQUIRE", (unsigned)r->code);
}

static int done(struct fli_buf *b, int proto, enum fli_command_id id,
                const struct machine_result *r, struct fli_slice payload)
{
    switch (id) {
    case FLI_CMD_TOKEN:
    case FLI_CMD_BREAK: /* the one burnt */
        return render_granted(b, r->token);
    case FLI_CMD_SESSION_OPEN:
        return fli_resp_simple(b, "OK");
    case FLI_CMD_SHOW:
        return show(b, proto, r, payload);
    case FLI_CMD_LOCKS:
        return locks(b, proto, r, payload);
    case FLI_CMD_SESSION_SHOW:
        return one_session(b, proto, payload);
    case FLI_CMD_SESSION_LIST:
        return sessions(b, proto, payload);
    default:
        return fli_resp_int(b, 1);
    }
}

int render_result(struct fli_buf *b, int proto, enum fli_command_id id,
                  const struct machine_result *r, struct fli_slice payload)
{
    FLI_ASSERT(r->code != MACHINE_QUEUED);
    if (id == FLI_CMD_CLUSTER_CONFIG &&
        (r->code == MACHINE_DONE || r->code == MACHINE_LIMIT || r->code == MACHINE_MISMATCH)) {
        return cluster_config_render_set(b, r);
    }
    switch (r->code) {
    case MACHINE_DEADLOCK:
        return fli_resp_error(b, "DEADLOCK",
                              "waiting for this lock would close a circle of sessions that wait "
                              "for each other; release a lock this session holds and try again");
    case MACHINE_LIMIT:
        return limit(b, r->number);
    case MACHINE_UNSUPPORTED:
        return fli_resp_error(b, "ERR", "this version of fencelock cannot carry that out");
    case MACHINE_MISMATCH:
        return mismatch(b, r->number);
    case MACHINE_LATE:
        return late(b, r->token);
    case MACHINE_NOPERM:
        return no_permission(b, r->number);
    case MACHINE_NOAUTH:
        return no_login(b);
    case MACHINE_NOSESSION:
        return id == FLI_CMD_ACQUIRE ? no_session(b) : fli_resp_int(b, 0);
    case MACHINE_NOTFOUND:
        return fli_resp_null(b, proto);
    case MACHINE_NO:
        return fli_resp_int(b, 0);
    default:
        break;
    }
    return id == FLI_CMD_ACQUIRE ? acquire(b, proto, r) : done(b, proto, id, r, payload);
}
