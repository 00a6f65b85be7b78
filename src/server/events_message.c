/* events_message.c: the texts of messages, and the frames that carry them. */
#include <inttypes.h>
#include <stdio.h>

#include "server/events_private.h"
#include "wire/resp.h"

void events_put(struct message *m, const char *key, uint64_t v)
{
    int n = snprintf(m->text + m->text_len, sizeof m->text - m->text_len, " %s=%" PRIu64, key, v);
    FLI_ASSERT(n > 0 && (size_t)n < sizeof m->text - m->text_len);
    m->text_len += (size_t)n;
}

void events_put_bytes(struct message *m, const char *key, struct fli_slice v)
{
    static const char digits[] = "0123456789ABCDEF";
    int n = snprintf(m->text + m->text_len, sizeof m->text - m->text_len, " %s=", key);
    FLI_ASSERT(n > 0);
    m->text_len += (size_t)n;
    FLI_ASSERT(m->text_len + 3 * v.len < sizeof m->text);
    for (size_t i = 0; i < v.len; i++) {
        uint8_t c = v.data[i];
        if (c > ' ' && c < 0x7f && c != '%') {
            m->text[m->text_len++] = (char)c;
        } else {
            m->text[m->text_len++] = '%';
            m->text[m->text_len++] = digits[c >> 4];
            m->text[m->text_len++] = digits[c & 15];
        }
    }
}

void events_begin_wake(struct message *m, struct fli_slice lock, uint8_t name[EVENTS_TOPIC_MAX])
{
    size_t len = sizeof EVENTS_WAKE_PREFIX - 1;
    bool braces = memchr(lock.data, '{', lock.len) == NULL;
    memcpy(name, EVENTS_WAKE_PREFIX, len);
    if (braces) {
        name[len++] = '{';
    }
    memcpy(name + len, lock.data, lock.len);
    len += lock.len;
    if (braces) {
        name[len++] = '}';
    }
    m->channel = (struct fli_slice){name, len};
    m->text[0] = '0';
    m->text_len = 1;
}

void events_begin(struct message *m, struct fli_slice channel, const char *event)
{
    m->channel = channel;
    m->text_len = (size_t)snprintf(m->text, sizeof m->text, "event=%s", event);
}

void events_frame(struct fli_buf *out, int proto, const struct topic *t, const struct message *m)
{
    int rc = fli_resp_push(out, proto, t->is_glob ? 4 : 3);
    rc = rc != 0 ? rc : fli_resp_text(out, t->is_glob ? "pmessage" : "message");
    if (rc == 0 && t->is_glob) {
        rc = fli_resp_bulk(out, t->name, t->len);
    }
    rc = rc != 0 ? rc : fli_resp_bulk(out, m->channel.data, m->channel.len);
    rc = rc != 0 ? rc : fli_resp_bulk(out, m->text, m->text_len);
    if (rc != 0) {
        fli_fatal("out of memory for a message");
    }
}
