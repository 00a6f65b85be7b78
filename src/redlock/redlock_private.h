/* redlock_private.h: what the files of a handle share.
 *
 *   redlock.c    the handle: options, the loop, time, closing
 *   alarm.c      wakes it
 *   op.c         acquire, extend, release as a series of attempts
 *   request.c    their requests
 *   check.c      the check of the servers
 *   keepalive.c  extends a lock again and again
 *   blocking.c   calls that block
 *
 * One place, leave(), calls the user's callbacks, when everything else of the current event
 * is done: so they may call anything, also close the handle. A callback of libuv's runs between
 * fli_enter() and leave(), a public call between fli_enter() and fli_leave_call(). */
#ifndef FLI_REDLOCK_PRIVATE_H
#define FLI_REDLOCK_PRIVATE_H

#include "base/due.h"
#include "base/list.h"
#include "redlock/alarm.h"
#include "redlock/attempt.h"
#include "redlock/server.h"

#define FLI_REDIS_KEY_MAX (FL_REDLOCK_KEY_FORMAT_MAX + FL_NAME_MAX)
#define FLI_OP_TEXT_MAX ((size_t)2048) /* a request with the longest key and the longer script */

/* A callback of the user's that waits for leave(). */
struct fli_note {
    struct fli_list node;
    void (*deliver)(struct fli_note *n);
};

struct fl_redlock {
    struct fli_server_owner owner;
    uv_loop_t own_loop;
    bool is_private;
    struct fli_alarm alarm;
    uint64_t armed_ms; /* UINT64_MAX: the alarm is not set */
    uint32_t n;
    struct fli_server servers[FL_REDLOCK_SERVERS_MAX];

    uint64_t budget_ms;
    uint64_t retry_ms;
    uint64_t retry_cap_ms;
    char prefix[FL_REDLOCK_KEY_FORMAT_MAX + 1]; /* the part of the key format before the name */
    char suffix[FL_REDLOCK_KEY_FORMAT_MAX + 1];

    struct fli_list ops; /* all that exist, also ended ones that wait for late answers */
    struct fli_op_text { /* the request written last: all servers get the same bytes */
        uint64_t op_id;  /* 0: none */
        uint32_t serial;
        int kind;
        int how;
        bool by_text; /* with the text of its script, not its SHA-1 */
        struct fli_buf bytes;
    } text;
    uint32_t in_flight;
    uint64_t last_id;
    struct fli_list checks;
    struct fli_list keepers;
    struct fli_dues due;
    struct fli_list notes;

    /* of a handle whose calls block; NULL: none */
    struct fl_redlock_options *options; /* those it was made with */
    struct fli_keep_thread *keep_thread;

    uint64_t process; /* whose it is */
    uint32_t depth;   /* of fli_enter() */
    bool closing;
    void (*closed)(void *ctx);
    void *closed_ctx;

    int stop_fd;                   /* cancels a blocking acquire when it is readable; -1: none */
    struct fl_redlock_report last; /* of the last blocking call */
    char error[512];
};

/* ---- redlock.c ------------------------------------------------------------------------------- */

void fli_enter(struct fl_redlock *r); /* and fli_own() */
/* In a child of fork() that has inherited the handle, makes it the child's. FL_ESYSTEM: there is no
 * descriptor for an alarm; then nothing may be begun, and what the parent had begun has ended. */
int fli_own(struct fl_redlock *r) FLI_MUST_USE;
void fli_leave_call(struct fl_redlock *r); /* for public calls */
/* d->fire() is called then. And: not any more. */
void fli_redlock_due(struct fl_redlock *r, struct fli_due *d, uint64_t due_ms);
void fli_redlock_not_due(struct fl_redlock *r, struct fli_due *d);
void fli_note_add(struct fl_redlock *r, struct fli_note *n);
/* 0 or FL_EINVAL. */
int fli_check_name(struct fl_bytes name) FLI_MUST_USE;
size_t fli_make_key(const struct fl_redlock *r, struct fl_bytes name, char *key);
/* A value that no other lock has. */
void fli_value_make(char value[FL_REDLOCK_VALUE_LEN + 1]);
/* Whether the first attempt may begin: every connection has been made or has failed, or enough
 * servers are ready. */
bool fli_may_begin(const struct fl_redlock *r);

/* ---- op.c ------------------------------------------------------------------------------------ */

void fli_ops_ready(struct fl_redlock *r, struct fli_server *s);
void fli_ops_down(struct fl_redlock *r, struct fli_server *s);
void fli_ops_close(struct fl_redlock *r);  /* ends all; their callbacks are queued */
void fli_ops_forget(struct fl_redlock *r); /* the handle is about to be freed */
void fli_deferred_drop(struct fli_server *s);

/* ---- check.c, keepalive.c -------------------------------------------------------------------- */

void fli_checks_ready(struct fl_redlock *r, struct fli_server *s);
void fli_checks_down(struct fl_redlock *r, struct fli_server *s);
void fli_checks_close(struct fl_redlock *r);
void fli_keepers_close(struct fl_redlock *r);
/* From now on it is told of each new deadline. */
void fli_keeper_watch(fl_redlock_keeper *k,
                      void (*moved)(void *ctx, const struct fl_redlock_lock *lock), void *ctx);

/* ---- kept_options.c -------------------------------------------------------------------------- */

/* A copy, in memory of its own. NULL: there is none. */
struct fl_redlock_options *fli_options_copy(const struct fl_redlock_options *o,
                                            uint32_t servers) FLI_MUST_USE;
void fli_options_free(struct fl_redlock_options *o, uint32_t servers); /* NULL is fine */

#endif
