/* server_log.c: callbacks of the node that pass its log messages, and a changed log level, on to
 * the program. */
#include "server/server_private.h"

void server_on_node_log(void *ctx, int level, const char *part, const char *message)
{
    struct server *s = ctx;
    s->cbs.log(s->cbs.ctx, level, part, message);
}

void server_on_settings(void *ctx, const struct machine_settings *settings)
{
    struct server *s = ctx;
    if (s->cbs.log_level != NULL) {
        s->cbs.log_level(s->cbs.ctx, settings->log_level);
    }
}
