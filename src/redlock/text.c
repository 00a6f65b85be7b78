/* text.c: texts for results of calls and for what servers say. */
#include <stdio.h>
#include <string.h>

#include "redlock/redlock_private.h"

static const char *cause_of(enum fli_attempt_kind kind, int result)
{
    switch (result) {
    case FL_ENOTHELD:
        return kind == FLI_ATTEMPT_ACQUIRE ? "contended: others hold the lock"
                                           : "lost: too many servers no longer hold it for us";
    case FL_ENOCONN:
        return "unreachable: too few servers can be connected to";
    case FL_ETIMEOUT:
        return "too slow: too few servers answered in time";
    case FL_EDENIED:
        return "refused: too many servers refuse or do not count";
    default:
        return fl_strerror(result);
    }
}

void fli_redlock_explain(const struct fli_redlock *r, enum fli_attempt_kind kind, int result,
                         const char *token_error, struct fl_redlock_report *report)
{
    char out[FL_REDLOCK_TEXT_MAX] = "";
    const size_t size = sizeof out;
    const char *cause = token_error != NULL
                            ? "no token: the quorum was held, but no token could be had"
                            : cause_of(kind, result);
    size_t len = (size_t)snprintf(out, size, "%s (%u of %u, %u needed)%s%s", cause, report->yes,
                                  report->servers, report->quorum, token_error != NULL ? "; " : "",
                                  token_error != NULL ? token_error : "");
    bool about_servers = token_error == NULL && result != FL_ENOTHELD;
    for (uint32_t i = 0; i < report->servers && len < size && about_servers; i++) {
        const struct fl_redlock_server_report *s = &report->server[i];
        if (s->status != FL_REDLOCK_YES) {
            len += (size_t)snprintf(
                out + len, size - len, "; %s: %s%s%s", r->engine->nodes[i].place.node.text,
                fl_redlock_status_text(s->status), s->error[0] != '\0' ? ": " : "", s->error);
        }
    }
    memcpy(report->text, out, sizeof out);
}

const char *fl_redlock_status_text(enum fl_redlock_status status)
{
    static const char *const texts[] = {
        [FL_REDLOCK_UNASKED] = "not asked",
        [FL_REDLOCK_WAITING] = "no answer before it was decided",
        [FL_REDLOCK_YES] = "yes",
        [FL_REDLOCK_HELD] = "held by another",
        [FL_REDLOCK_FOREIGN] = "a key of another type is there",
        [FL_REDLOCK_NOTOURS] = "gone, or another's",
        [FL_REDLOCK_ERROR] = "error",
        [FL_REDLOCK_DOWN] = "no connection",
        [FL_REDLOCK_SILENT] = "no answer in time",
        [FL_REDLOCK_YOUNG] = "restarted too recently to count",
        [FL_REDLOCK_REPLICA] = "a replica",
        [FL_REDLOCK_TWICE] = "the same server as another one",
    };
    return (size_t)status < sizeof texts / sizeof texts[0] ? texts[status] : "?";
}
