/* attempt.h: one attempt of Redlock over N servers, as a state machine. Pure: events go in, what to
 * do comes out. The files that do the I/O obey (op.c, request.c).
 *
 * An attempt to acquire begins at t0, before its first byte is written. It counts a server only for
 * the +OK to its own SET. It ends as soon as the outcome is certain: a quorum is reached, no quorum
 * is possible any more, or the servers' time is over. What happens later changes what is reported
 * about a server, and never the outcome.
 *
 * Extends and releases are attempts too; the same statuses then mean "extended" or "released". */
#ifndef FLI_REDLOCK_ATTEMPT_H
#define FLI_REDLOCK_ATTEMPT_H

#include <stdbool.h>

#include "base/base.h"
#include "fencelock/redlock.h"

enum fli_attempt_kind { FLI_ATTEMPT_ACQUIRE, FLI_ATTEMPT_EXTEND, FLI_ATTEMPT_RELEASE };

enum fli_verdict {
    FLI_VERDICT_NONE, /* go on */
    FLI_VERDICT_DONE,
    FLI_VERDICT_FAILED /* see code */
};

/* status[i]: FL_REDLOCK_UNASKED while server i may still be asked, FL_REDLOCK_WAITING while its
 * answer may come, then the final status. */
struct fli_attempt {
    enum fli_attempt_kind kind;
    uint32_t n;
    uint64_t t0_ms;
    uint64_t ttl_ms;
    uint64_t min_validity_ms;
    enum fli_verdict verdict;
    /* why the verdict is FLI_VERDICT_FAILED: FL_ENOTHELD (contended; of an extend or a release:
     * lost), FL_ENOCONN, FL_ETIMEOUT or FL_EDENIED, by what most servers are in trouble with */
    int code;
    uint32_t asked; /* bit i: bytes for server i were handed to a connection */
    enum fl_redlock_status status[FL_REDLOCK_SERVERS_MAX];
};

/* 1 <= n <= FL_REDLOCK_SERVERS_MAX. ttl_ms and min_validity_ms do not matter for a release. */
void fli_attempt_init(struct fli_attempt *a, enum fli_attempt_kind kind, uint32_t n, uint64_t t0_ms,
                      uint64_t ttl_ms, uint64_t min_validity_ms);

/* The request to server i is about to be written; its status is FL_REDLOCK_UNASKED. */
void fli_attempt_asked(struct fli_attempt *a, uint32_t i);

/* Server i will not be asked, or has answered, or its connection broke: `status` is its final one,
 * never UNASKED or WAITING. A second answer of the same server is ignored. */
enum fli_verdict fli_attempt_answer(struct fli_attempt *a, uint32_t i,
                                    enum fl_redlock_status status, uint64_t now_ms) FLI_MUST_USE;

/* The servers' time is over: those without an answer are silent, those that were never asked are
 * down. Always ends the attempt. */
enum fli_verdict fli_attempt_timeout(struct fli_attempt *a, uint64_t now_ms) FLI_MUST_USE;

/* Servers where this attempt may have set the lock, so that it has to be released there: all that
 * were asked, once an acquire has failed; none otherwise. Bits as in `asked`. */
uint32_t fli_attempt_to_release(const struct fli_attempt *a);

/* What the code would be if the attempt had failed by now. */
int fli_attempt_blame(const struct fli_attempt *a);

uint32_t fli_attempt_yes(const struct fli_attempt *a);

#endif
