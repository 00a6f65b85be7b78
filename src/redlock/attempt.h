/* attempt.h: one attempt of Redlock over N servers, as a state machine. Pure: events go in, what to
 * do comes out. The shell talks.
 *
 * An attempt to acquire begins at t0, before its first byte is written, and counts a server only
 * for the +OK to its own SET. It ends as soon as the outcome is certain: with a quorum, without the
 * chance of one, or when the timer says that the servers have had their time. What happens after
 * the end changes what is reported about a server and never the outcome.
 *
 * Extends and releases are attempts too, with other words for the answers. */
#ifndef FLI_REDLOCK_ATTEMPT_H
#define FLI_REDLOCK_ATTEMPT_H

#include <stdbool.h>

#include "base/base.h"
#include "fencelock/redlock.h"

enum fli_attempt_kind { FLI_ATTEMPT_ACQUIRE, FLI_ATTEMPT_EXTEND, FLI_ATTEMPT_RELEASE };

enum fli_verdict {
    FLI_VERDICT_NONE, /* go on */
    FLI_VERDICT_DONE,
    FLI_VERDICT_FAILED /* see cause */
};

/* A server's status is FL_REDLOCK_UNASKED while it may still be asked, FL_REDLOCK_WAITING while an
 * answer may come, else the last word about it. */
struct fli_attempt {
    enum fli_attempt_kind kind;
    uint32_t n;
    uint64_t t0_ms;
    uint64_t ttl_ms;
    uint64_t min_validity_ms;
    enum fli_verdict verdict;
    enum fl_redlock_cause cause; /* of FLI_VERDICT_FAILED */
    uint32_t asked;              /* bit i: bytes for server i were handed to a connection */
    enum fl_redlock_status status[FL_REDLOCK_SERVERS_MAX];
};

/* 1 <= n <= FL_REDLOCK_SERVERS_MAX. ttl_ms and min_validity_ms do not matter for a release. */
void fli_attempt_init(struct fli_attempt *a, enum fli_attempt_kind kind, uint32_t n, uint64_t t0_ms,
                      uint64_t ttl_ms, uint64_t min_validity_ms);

/* The request to server i is about to be written; its status is FL_REDLOCK_UNASKED. */
void fli_attempt_asked(struct fli_attempt *a, uint32_t i);

/* Server i will not be asked, or has answered, or its connection broke. status is none of UNASKED
 * and WAITING. A second answer of the same server is ignored. */
enum fli_verdict fli_attempt_answer(struct fli_attempt *a, uint32_t i,
                                    enum fl_redlock_status status, uint64_t now_ms) FLI_MUST_USE;

/* The budget of the servers is used up: those without an answer are silent, those that were never
 * asked are down. Ends the attempt for certain. */
enum fli_verdict fli_attempt_timeout(struct fli_attempt *a, uint64_t now_ms) FLI_MUST_USE;

/* Ends it by order of the caller. */
void fli_attempt_cancel(struct fli_attempt *a);

/* Where the lock may have been set by this attempt and has to be released: every server asked, once
 * an acquire has failed; nowhere otherwise. Bits as `asked`. */
uint32_t fli_attempt_to_release(const struct fli_attempt *a);

uint32_t fli_attempt_yes(const struct fli_attempt *a);

/* The result code for a cause. */
int fli_cause_code(enum fl_redlock_cause cause);

#endif
