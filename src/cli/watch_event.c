/* watch_event.c: see watch_event.h. */
#include "cli/watch_event.h"

#include <inttypes.h>
#include <string.h>

static enum cli_colour colour_of(const struct fl_event *e)
{
    switch (e->kind) {
    case FL_EVENT_GRANTED:
        return CLI_GREEN;
    case FL_EVENT_QUEUED:
        return CLI_YELLOW;
    case FL_EVENT_EXPIRED:
    case FL_EVENT_BROKEN:
    case FL_EVENT_MISSED:
        return CLI_RED;
    case FL_EVENT_LEFT:
        return CLI_DIM;
    default:
        return CLI_PLAIN;
    }
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

void watch_event_print(const struct fl_event *e, uint64_t wall_ms, FILE *f, bool colours,
                       size_t *width)
{
    struct fli_buf name;
    fli_buf_init(&name, 4 * FL_NAME_MAX);
    cli_put_safe(&name, e->name.len > 0 ? e->name : fl_str("-"));
    size_t wide = width_of(bytes_of(&name));
    if (wide > *width) {
        *width = wide < WATCH_NAME_WIDTH_MAX ? wide : WATCH_NAME_WIDTH_MAX;
    }
    enum cli_colour colour = colour_of(e);
    char when[FLI_UTC_SIZE];
    fli_utc(when, wall_ms);
    fprintf(f, "%s%s%s  %s", cli_colour_on(CLI_DIM, colours), when,
            cli_colour_off(CLI_DIM, colours), cli_colour_on(colour, colours));
    size_t shown = strlen(e->word);
    cli_print_safe(f, fl_str(e->word));
    fprintf(f, "%s%*s  ", cli_colour_off(colour, colours), shown < 8 ? (int)(8 - shown) : 0, "");
    fwrite(name.data, 1, name.len, f);
    if (e->token != FL_TOKEN_NONE) {
        fprintf(f, "%*s  token %s%" PRIu64 "%s", wide < *width ? (int)(*width - wide) : 0, "",
                cli_colour_on(CLI_BOLD, colours), e->token, cli_colour_off(CLI_BOLD, colours));
    } else if (e->owner.len > 0) {
        fprintf(f, "%*s", wide < *width ? (int)(*width - wide) : 0, "");
    }
    if (e->owner.len > 0) {
        char who[CLI_WHO_SIZE];
        fputs("  owner ", f);
        cli_print_safe(f, cli_who(e->owner, who));
    }
    if (e->reason[0] != '\0') {
        fputs("  because: ", f);
        cli_print_safe(f, fl_str(e->reason));
    }
    fputs(e->kind == FL_EVENT_MISSED ? "  events were missed: see fencelock show\n" : "\n", f);
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
void watch_event_print_plain(const struct fl_event *e, uint64_t wall_ms, FILE *f)
{
    const char *at = e->text;
    const char *end = at + strlen(at);
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
    fli_utc(when, wall_ms);
    fprintf(f, " time=%s\n", when);
}

void watch_event_print_json(const struct fl_event *e, uint64_t wall_ms, FILE *f)
{
    struct fli_json j = cli_json_begin();
    fli_json_text(&j, "event", e->word);
    if (e->name.len > 0) {
        fli_json_bytes(&j, "lock", e->name);
    }
    if (e->token != FL_TOKEN_NONE) {
        fli_json_u64(&j, "token", e->token);
    }
    if (e->owner.len > 0) {
        fli_json_bytes(&j, "owner", e->owner);
    }
    if (e->wait != 0) {
        fli_json_u64(&j, "wait", e->wait);
    }
    if (e->reason[0] != '\0') {
        fli_json_text(&j, "reason", e->reason);
    }
    char when[FLI_UTC_SIZE];
    fli_utc(when, wall_ms);
    fli_json_u64(&j, "clock_ms", e->clock_ms);
    fli_json_text(&j, "time", when);
    cli_json_print(&j, f);
}
