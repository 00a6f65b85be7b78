/* attempt.c: see attempt.h. */
#include "redlock/attempt.h"

#include <string.h>

#include "redlock/quorum.h"

/* How many servers are in which class; together they decide the outcome. */
struct tally {
    uint32_t yes;
    uint32_t open; /* no final status yet */
    uint32_t no;   /* works, and says no: held by another, or not by us */
    uint32_t down;
    uint32_t silent;
    uint32_t refused;
};

static struct tally count(const struct fli_attempt *a)
{
    struct tally t = {0};
    for (uint32_t i = 0; i < a->n; i++) {
        switch (a->status[i]) {
        case FL_REDLOCK_UNASKED:
        case FL_REDLOCK_WAITING:
            t.open++;
            break;
        case FL_REDLOCK_YES:
            t.yes++;
            break;
        case FL_REDLOCK_HELD:
        case FL_REDLOCK_FOREIGN:
        case FL_REDLOCK_NOTOURS:
            t.no++;
            break;
        case FL_REDLOCK_DOWN:
            t.down++;
            break;
        case FL_REDLOCK_SILENT:
            t.silent++;
            break;
        case FL_REDLOCK_ERROR:
        case FL_REDLOCK_YOUNG:
        case FL_REDLOCK_REPLICA:
        case FL_REDLOCK_TWICE:
            t.refused++;
            break;
        }
    }
    return t;
}

void fli_attempt_init(struct fli_attempt *a, enum fli_attempt_kind kind, uint32_t n, uint64_t t0_ms,
                      uint64_t ttl_ms, uint64_t min_validity_ms)
{
    FLI_ASSERT(n > 0 && n <= FL_REDLOCK_SERVERS_MAX);
    memset(a, 0, sizeof *a);
    a->kind = kind;
    a->n = n;
    a->t0_ms = t0_ms;
    a->ttl_ms = ttl_ms;
    a->min_validity_ms = min_validity_ms;
}

void fli_attempt_asked(struct fli_attempt *a, uint32_t i)
{
    FLI_ASSERT(i < a->n && a->status[i] == FL_REDLOCK_UNASKED);
    FLI_ASSERT(a->verdict == FLI_VERDICT_NONE);
    a->status[i] = FL_REDLOCK_WAITING;
    a->asked |= UINT32_C(1) << i;
}

/* The commonest trouble of the servers that did not answer as they should. */
static int outage(const struct tally *t)
{
    if (t->refused >= t->down && t->refused >= t->silent) {
        return FL_EDENIED;
    }
    return t->down >= t->silent ? FL_ENOCONN : FL_ETIMEOUT;
}

/* Why there is no quorum. It is contention when the servers in trouble could not have
 * prevented a quorum by themselves: then trying again makes sense. A failed extend means
 * "lost" only when that is certain, since the caller then gives the lock up. */
static int blame(const struct fli_attempt *a, const struct tally *t)
{
    uint32_t spare = a->n - fli_quorum(a->n);
    if (a->kind == FLI_ATTEMPT_ACQUIRE) {
        return t->down + t->silent + t->refused <= spare ? FL_ENOTHELD : outage(t);
    }
    return t->no > spare ? FL_ENOTHELD : outage(t);
}

int fli_attempt_blame(const struct fli_attempt *a)
{
    const struct tally t = count(a);
    return blame(a, &t);
}

static enum fli_verdict end(struct fli_attempt *a, int code)
{
    a->verdict = code == 0 ? FLI_VERDICT_DONE : FLI_VERDICT_FAILED;
    a->code = code;
    return a->verdict;
}

/* A release has succeeded when a quorum is free of the lock. */
static enum fli_verdict decide_release(struct fli_attempt *a, const struct tally *t)
{
    uint32_t quorum = fli_quorum(a->n);
    if (t->yes >= quorum) {
        return end(a, 0);
    }
    if (t->no > a->n - quorum) {
        return end(a, FL_ENOTHELD);
    }
    if (t->open > 0) {
        return FLI_VERDICT_NONE;
    }
    return end(a, t->yes + t->no >= quorum ? 0 : outage(t));
}

static enum fli_verdict decide(struct fli_attempt *a, uint64_t now_ms)
{
    const struct tally t = count(a);
    if (a->kind == FLI_ATTEMPT_RELEASE) {
        return decide_release(a, &t);
    }
    if (t.yes >= fli_quorum(a->n)) {
        bool valid = fli_is_valid(a->t0_ms, a->ttl_ms, a->min_validity_ms, now_ms);
        return end(a, valid ? 0 : FL_ETIMEOUT);
    }
    if (t.yes + t.open < fli_quorum(a->n)) {
        return end(a, blame(a, &t));
    }
    return FLI_VERDICT_NONE;
}

enum fli_verdict fli_attempt_answer(struct fli_attempt *a, uint32_t i,
                                    enum fl_redlock_status status, uint64_t now_ms)
{
    FLI_ASSERT(i < a->n && status != FL_REDLOCK_UNASKED && status != FL_REDLOCK_WAITING);
    if (a->status[i] != FL_REDLOCK_UNASKED && a->status[i] != FL_REDLOCK_WAITING) {
        return a->verdict;
    }
    FLI_ASSERT(status != FL_REDLOCK_YES || a->status[i] == FL_REDLOCK_WAITING);
    a->status[i] = status;
    return a->verdict == FLI_VERDICT_NONE ? decide(a, now_ms) : a->verdict;
}

enum fli_verdict fli_attempt_timeout(struct fli_attempt *a, uint64_t now_ms)
{
    if (a->verdict != FLI_VERDICT_NONE) {
        return a->verdict;
    }
    for (uint32_t i = 0; i < a->n; i++) {
        if (a->status[i] == FL_REDLOCK_UNASKED) {
            a->status[i] = FL_REDLOCK_DOWN;
        } else if (a->status[i] == FL_REDLOCK_WAITING) {
            a->status[i] = FL_REDLOCK_SILENT;
        }
    }
    enum fli_verdict verdict = decide(a, now_ms);
    FLI_ASSERT(verdict != FLI_VERDICT_NONE);
    return verdict;
}

uint32_t fli_attempt_to_release(const struct fli_attempt *a)
{
    bool failed = a->kind == FLI_ATTEMPT_ACQUIRE && a->verdict == FLI_VERDICT_FAILED;
    return failed ? a->asked : 0;
}

uint32_t fli_attempt_yes(const struct fli_attempt *a)
{
    return count(a).yes;
}
