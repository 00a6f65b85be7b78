/* event.c: see event.h. */
#include "client/event.h"

#include <string.h>

#include "base/bytes.h"

static bool is_text(struct fl_bytes b, const char *text)
{
    return b.len == strlen(text) && memcmp(b.data, text, b.len) == 0;
}

static bool take_word(struct fl_bytes value, char *to, size_t size)
{
    if (value.len == 0 || value.len >= size) {
        return false;
    }
    memcpy(to, value.data, value.len);
    to[value.len] = '\0';
    return true;
}

/* Keys that this version does not know are skipped. */
static bool take_pair(struct fl_event *e, struct fli_event_room *room, struct fl_bytes key,
                      struct fl_bytes value)
{
    const struct {
        const char *key;
        uint64_t *to;
    } numbers[] = {{"clock", &e->clock_ms}, {"token", &e->token}, {"wait", &e->wait}};
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        if (is_text(key, numbers[i].key)) {
            return fli_parse_u64(value.data, value.len, UINT64_MAX, numbers[i].to);
        }
    }
    if (is_text(key, "event")) {
        return take_word(value, room->word, sizeof room->word);
    }
    if (is_text(key, "reason")) {
        return take_word(value, room->reason, sizeof room->reason);
    }
    return !is_text(key, "owner") ||
           fli_percent_decode(value.data, value.len, room->owner, &e->owner.len);
}

static enum fl_event_kind kind_of(const char *word)
{
    static const struct {
        const char *word;
        enum fl_event_kind kind;
    } kinds[] = {{"granted", FL_EVENT_GRANTED},   {"queued", FL_EVENT_QUEUED},
                 {"released", FL_EVENT_RELEASED}, {"expired", FL_EVENT_EXPIRED},
                 {"broken", FL_EVENT_BROKEN},     {"left", FL_EVENT_LEFT},
                 {"resync", FL_EVENT_MISSED}};
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        if (strcmp(kinds[i].word, word) == 0) {
            return kinds[i].kind;
        }
    }
    return FL_EVENT_OTHER;
}

static bool take_name(struct fl_bytes channel, struct fli_event_room *room, struct fl_bytes *ret)
{
    static const char prefix[] = "lock:";
    const size_t prefix_len = sizeof prefix - 1;
    if (channel.len < prefix_len || memcmp(channel.data, prefix, prefix_len) != 0) {
        return true; /* of no lock */
    }
    ret->len = channel.len - prefix_len;
    if (ret->len > sizeof room->name) {
        return false;
    }
    memcpy(room->name, (const char *)channel.data + prefix_len, ret->len);
    return true;
}

bool fli_event_parse(struct fl_bytes channel, struct fl_bytes text, struct fli_event_room *room,
                     struct fl_event *ret)
{
    if (text.len == 0 || text.len > FLI_EVENT_TEXT_MAX ||
        memchr(text.data, '\0', text.len) != NULL) {
        return false;
    }
    memcpy(room->text, text.data, text.len);
    room->text[text.len] = '\0';
    room->word[0] = room->reason[0] = '\0';
    *ret = (struct fl_event){.word = room->word,
                             .text = room->text,
                             .node = "",
                             .reason = room->reason,
                             .name = {room->name, 0},
                             .owner = {room->owner, 0}};
    bool good = take_name(channel, room, &ret->name);
    const char *at = room->text;
    const char *end = at + text.len;
    while (good && at < end) {
        const char *blank = memchr(at, ' ', (size_t)(end - at));
        const char *stop = blank != NULL ? blank : end;
        const char *equals = memchr(at, '=', (size_t)(stop - at));
        good =
            equals != NULL && take_pair(ret, room, (struct fl_bytes){at, (size_t)(equals - at)},
                                        (struct fl_bytes){equals + 1, (size_t)(stop - equals - 1)});
        at = stop < end ? stop + 1 : end;
    }
    ret->kind = kind_of(room->word);
    return good && room->word[0] != '\0';
}
