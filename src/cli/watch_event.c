/* watch_event.c: see watch_event.h. */
#include "cli/watch_event.h"

#include <inttypes.h>
#include <string.h>

#include "base/bytes.h"

static bool is_text(struct fl_bytes b, const char *text)
{
    return b.len == strlen(text) && memcmp(b.data, text, b.len) == 0;
}

static int hex_of(char c)
{
    static const char digits[] = "0123456789ABCDEF";
    const char *at = c == '\0' ? NULL : strchr(digits, c);
    return at == NULL ? -1 : (int)(at - digits);
}

/* Decodes the %XX in a value. False: it is malformed. */
static bool decode(struct fl_bytes value, char *to, size_t *ret_len)
{
    const char *from = value.data;
    size_t len = 0;
    for (size_t i = 0; i < value.len; i++) {
        if (from[i] != '%') {
            to[len++] = from[i];
            continue;
        }
        bool whole = i + 2 < value.len;
        int high = whole ? hex_of(from[i + 1]) : -1;
        int low = whole ? hex_of(from[i + 2]) : -1;
        if (high < 0 || low < 0) {
            return false;
        }
        to[len++] = (char)(unsigned char)(high * 16 + low);
        i += 2;
    }
    *ret_len = len;
    return true;
}

static bool take_number(struct fl_bytes value, uint64_t *ret)
{
    return fli_parse_u64(value.data, value.len, UINT64_MAX, ret);
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
static bool take_pair(struct watch_event *e, struct fl_bytes key, struct fl_bytes value)
{
    if (is_text(key, "event")) {
        return take_word(value, e->event, sizeof e->event);
    }
    if (is_text(key, "reason")) {
        return take_word(value, e->reason, sizeof e->reason);
    }
    if (is_text(key, "clock")) {
        return take_number(value, &e->clock_ms);
    }
    if (is_text(key, "token")) {
        e->has_token = true;
        return take_number(value, &e->token);
    }
    if (is_text(key, "wait")) {
        e->has_wait = true;
        return take_number(value, &e->wait);
    }
    if (is_text(key, "owner")) {
        e->has_owner = true;
        e->owner.data = e->bytes;
        return decode(value, e->bytes, &e->owner.len);
    }
    return true;
}

bool watch_event_parse(struct fl_bytes channel, struct fl_bytes text, struct watch_event *ret)
{
    static const char prefix[] = "lock:";
    const size_t prefix_len = sizeof prefix - 1;
    const char *at = text.data;
    const char *end = at + text.len;
    if (text.len == 0 || text.len > WATCH_TEXT_MAX || memchr(at, '\0', text.len) != NULL) {
        return false;
    }
    *ret = (struct watch_event){.text = text, .name = {"", 0}, .owner = {"", 0}};
    if (channel.len >= prefix_len && memcmp(channel.data, prefix, prefix_len) == 0) {
        ret->name.data = (const char *)channel.data + prefix_len;
        ret->name.len = channel.len - prefix_len;
    }
    while (at < end) {
        const char *blank = memchr(at, ' ', (size_t)(end - at));
        const char *stop = blank != NULL ? blank : end;
        const char *equals = memchr(at, '=', (size_t)(stop - at));
        if (equals == NULL) {
            return false;
        }
        struct fl_bytes key = {at, (size_t)(equals - at)};
        struct fl_bytes value = {equals + 1, (size_t)(stop - equals - 1)};
        if (!take_pair(ret, key, value)) {
            return false;
        }
        at = stop < end ? stop + 1 : end;
    }
    return ret->event[0] != '\0';
}

bool watch_event_is_gap(const struct watch_event *e)
{
    return strcmp(e->event, "resync") == 0;
}

/* ---- showing --------------------------------------------------------------------------------- */

static enum cli_colour colour_of(const char *event)
{
    static const struct {
        const char *event;
        enum cli_colour colour;
    } colours[] = {{"granted", CLI_GREEN}, {"queued", CLI_YELLOW}, {"expired", CLI_RED},
                   {"broken", CLI_RED},    {"resync", CLI_RED},    {"left", CLI_DIM}};
    for (size_t i = 0; i < sizeof colours / sizeof colours[0]; i++) {
        if (strcmp(colours[i].event, event) == 0) {
            return colours[i].colour;
        }
    }
    return CLI_PLAIN;
}

static struct fl_bytes bytes_of(const struct fli_buf *b)
{
    return (struct fl_bytes){b->data, b->len};
}

/* The width in characters: continuation bytes of UTF-8 do not count. */
static size_t width_of(struct fl_bytes b)
{
    const uint8_t *p = b.data;
    size_t n = 0;
    for (size_t i = 0; i < b.len; i++) {
        n += (p[i] & 0xc0u) != 0x80u ? 1 : 0;
    }
    return n;
}

void watch_event_print(const struct watch_event *e, FILE *f, bool colours, size_t *width)
{
    struct fli_buf name;
    fli_buf_init(&name, 4 * WATCH_TEXT_MAX);
    cli_put_safe(&name, e->name.len > 0 ? e->name : fl_str("-"));
    size_t wide = width_of(bytes_of(&name));
    if (wide > *width) {
        *width = wide < WATCH_NAME_WIDTH_MAX ? wide : WATCH_NAME_WIDTH_MAX;
    }
    enum cli_colour colour = colour_of(e->event);
    char when[FLI_UTC_SIZE];
    fli_utc(when, e->wall_ms);
    fprintf(f, "%s%s%s  %s", cli_colour_on(CLI_DIM, colours), when,
            cli_colour_off(CLI_DIM, colours), cli_colour_on(colour, colours));
    size_t shown = strlen(e->event);
    cli_print_safe(f, fl_str(e->event));
    fprintf(f, "%s%*s  ", cli_colour_off(colour, colours), shown < 8 ? (int)(8 - shown) : 0, "");
    fwrite(name.data, 1, name.len, f);
    if (e->has_token) {
        fprintf(f, "%*s  token %s%" PRIu64 "%s", wide < *width ? (int)(*width - wide) : 0, "",
                cli_colour_on(CLI_BOLD, colours), e->token, cli_colour_off(CLI_BOLD, colours));
    } else if (e->has_owner) {
        fprintf(f, "%*s", wide < *width ? (int)(*width - wide) : 0, "");
    }
    if (e->has_owner) {
        char who[CLI_WHO_SIZE];
        fputs("  owner ", f);
        cli_print_safe(f, cli_who(e->owner, who));
    }
    if (e->reason[0] != '\0') {
        fputs("  because: ", f);
        cli_print_safe(f, fl_str(e->reason));
    }
    fputs(watch_event_is_gap(e) ? "  events were missed: see fencelock show\n" : "\n", f);
    fli_buf_fini(&name);
}

static void print_encoded(FILE *f, struct fl_bytes b)
{
    const uint8_t *p = b.data;
    for (size_t i = 0; i < b.len; i++) {
        if (p[i] > ' ' && p[i] < 0x7f && p[i] != '%') {
            fputc(p[i], f);
        } else {
            fprintf(f, "%%%02X", (unsigned)p[i]);
        }
    }
}

/* The words as they came, with the lock after the first, and the time at the end. Only a broken
 * node can send what is not visible ASCII; it is encoded in any case. */
void watch_event_print_plain(const struct watch_event *e, FILE *f)
{
    const char *at = e->text.data;
    const char *end = at + e->text.len;
    bool first = true;
    char when[FLI_UTC_SIZE];
    while (at < end) {
        const char *blank = memchr(at, ' ', (size_t)(end - at));
        const char *stop = blank != NULL ? blank : end;
        for (const char *p = at; p < stop; p++) {
            fputc(*p > ' ' && *p < 0x7f ? *p : '?', f);
        }
        if (first && e->name.len > 0) {
            fputs(" lock=", f);
            print_encoded(f, e->name);
        }
        first = false;
        fputs(stop < end ? " " : "", f);
        at = stop < end ? stop + 1 : end;
    }
    fli_utc(when, e->wall_ms);
    fprintf(f, " time=%s\n", when);
}

void watch_event_print_json(const struct watch_event *e, FILE *f)
{
    struct fli_json j = cli_json_begin();
    fli_json_text(&j, "event", e->event);
    if (e->name.len > 0) {
        fli_json_bytes(&j, "lock", e->name);
    }
    if (e->has_token) {
        fli_json_u64(&j, "token", e->token);
    }
    if (e->has_owner) {
        fli_json_bytes(&j, "owner", e->owner);
    }
    if (e->has_wait) {
        fli_json_u64(&j, "wait", e->wait);
    }
    if (e->reason[0] != '\0') {
        fli_json_text(&j, "reason", e->reason);
    }
    char when[FLI_UTC_SIZE];
    fli_utc(when, e->wall_ms);
    fli_json_u64(&j, "clock_ms", e->clock_ms);
    fli_json_text(&j, "time", when);
    cli_json_print(&j, f);
}
