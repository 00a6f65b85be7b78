/* channel_listen.c: a channel that a listener has for itself; see channel.h. */
#include <stdio.h>

#include "base/clock.h"
#include "client/channel.h"

void fli_channel_unlisten(struct fli_channel *ch)
{
    ch->listener = NULL;
    ch->engine->nodes[ch->node].place.turn++; /* if it was of no use, another address may be */
    fli_channel_shut(ch);
}

void fli_channel_end_listening(struct fli_channel *ch, int code)
{
    struct fli_listener *l = ch->listener;
    char text[FLI_LINK_ERROR_SIZE];
    snprintf(text, sizeof text, "%s", ch->link.error);
    if (!ch->useful) {
        fli_channel_note_failure(ch);
    }
    fli_channel_unlisten(ch);
    l->ended(l, code, text);
}

bool fli_channel_hear(struct fli_channel *ch, redisReply **ret)
{
    int n = ch->held ? fli_link_next(&ch->link, ret) : 0;
    if (n < 0) {
        fli_channel_break(ch, n);
    } else if (n == 0) {
        ch->held = false;
        fli_channel_watch(ch);
    }
    ch->heard_ms = fli_clock_ms();
    return n == 1;
}
