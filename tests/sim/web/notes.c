/* notes.c: what is told of a run: one line for whatever the reader should see, and each message
 * between clients, storage and servers. */
#include <stdarg.h>
#include <string.h>

#include "web.h"

uint64_t web_now(void)
{
    return web.s->now - web.begun_at;
}

/* A step adds some dozen at most, so one that begins below this has room. */
bool web_full(void)
{
    return web.notes_n > WEB_NOTES_MAX - 100 || web.messages_n > WEB_MESSAGES_MAX - 100 ||
           web.storage.writes_n > WEB_WRITES_MAX - 10;
}

void web_note(const char *kind, unsigned client, const char *fmt, ...)
{
    va_list args;
    if (web.notes_n == WEB_NOTES_MAX) {
        return;
    }
    struct web_note *n = &web.notes[web.notes_n++];
    n->at = web_now();
    n->kind = kind;
    n->client = client;
    va_start(args, fmt);
    vsnprintf(n->text, sizeof n->text, fmt, args);
    va_end(args);
}

unsigned web_message(const char *from, const char *to, uint64_t ms, const char *fmt, ...)
{
    va_list args;
    if (web.messages_n == WEB_MESSAGES_MAX) {
        return WEB_MESSAGES_MAX;
    }
    struct web_message *m = &web.messages[web.messages_n];
    m->from = from;
    m->to = to;
    m->fate = "";
    m->sent = web_now();
    m->arrives = ms == 0 ? 0 : web_now() + ms;
    va_start(args, fmt);
    vsnprintf(m->text, sizeof m->text, fmt, args);
    va_end(args);
    return web.messages_n++;
}

void web_span(const char *kind, unsigned who, bool now)
{
    struct web_span *last = NULL;
    for (unsigned i = web.spans_n; i > 0 && last == NULL; i--) {
        struct web_span *span = &web.spans[i - 1];
        last = strcmp(span->kind, kind) == 0 && span->who == who ? span : NULL;
    }
    bool lasts = last != NULL && last->open;
    if (lasts && !now) {
        last->to = web_now();
        last->open = false;
    } else if (!lasts && now && web.spans_n < WEB_SPANS_MAX) {
        web.spans[web.spans_n++] = (struct web_span){kind, who, web_now(), web_now(), true};
    }
}

void web_fate(unsigned message, const char *fate)
{
    if (message < WEB_MESSAGES_MAX) {
        web.messages[message].fate = fate;
        web.messages[message].arrives = web_now();
    }
}
