/* text.c: the texts for causes and statuses. */
#include "fencelock/redlock.h"

const char *fl_redlock_cause_text(enum fl_redlock_cause cause)
{
    switch (cause) {
    case FL_REDLOCK_NONE:
        return "no failure";
    case FL_REDLOCK_CONTENDED:
        return "contended: others hold the lock";
    case FL_REDLOCK_UNREACHABLE:
        return "unreachable: too few servers can be connected to";
    case FL_REDLOCK_TOO_SLOW:
        return "too slow: too few servers answered in time";
    case FL_REDLOCK_REFUSED:
        return "refused: too many servers refuse or do not count";
    case FL_REDLOCK_LOST:
        return "lost: too many servers no longer hold it for us";
    case FL_REDLOCK_NOTOKEN:
        return "no token: the quorum was held, but no token could be had";
    case FL_REDLOCK_CANCELLED:
        return "cancelled";
    }
    return "?";
}

const char *fl_redlock_status_text(enum fl_redlock_status status)
{
    switch (status) {
    case FL_REDLOCK_UNASKED:
        return "not asked";
    case FL_REDLOCK_WAITING:
        return "no answer before it was decided";
    case FL_REDLOCK_YES:
        return "yes";
    case FL_REDLOCK_HELD:
        return "held by another";
    case FL_REDLOCK_FOREIGN:
        return "a key of another type is there";
    case FL_REDLOCK_NOTOURS:
        return "gone, or another's";
    case FL_REDLOCK_ERROR:
        return "error";
    case FL_REDLOCK_DOWN:
        return "no connection";
    case FL_REDLOCK_SILENT:
        return "no answer in time";
    case FL_REDLOCK_YOUNG:
        return "restarted too recently to count";
    case FL_REDLOCK_REPLICA:
        return "a replica";
    case FL_REDLOCK_TWICE:
        return "the same server as another one";
    }
    return "?";
}
