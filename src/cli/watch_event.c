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

static void print_for_people(const struct fl_event *e, const char *when, const struct cli_out *o,
                             size_t *width)
{
    struct fli_buf name;
    char who[CLI_WHO_SIZE];
    fli_buf_init(&name, 4 * FL_NAME_MAX);
    cli_put_safe(&name, e->name.len > 0 ? e->name : fl_str("-"));
    size_t wide = cli_width(name.data, name.len);
    if (wide > *width) {
        *width = wide < WATCH_NAME_WIDTH_MAX ? wide : WATCH_NAME_WIDTH_MAX;
    }
    bool more = e->token != FL_TOKEN_NONE || e->owner.len > 0;
    cli_paint(o, CLI_DIM, "%s", when);
    cli_text(o, "  ");
    cli_paint_safe(o, colour_of(e), fl_str(e->word));
    cli_text(o, "%*s  ", strlen(e->word) < 8 ? (int)(8 - strlen(e->word)) : 0, "");
    fwrite(name.data, 1, name.len, o->f);
    cli_text(o, "%*s", more && wide < *width ? (int)(*width - wide) : 0, "");
    if (e->token != FL_TOKEN_NONE) {
        cli_text(o, "  token ");
        cli_paint(o, CLI_BOLD, "%" PRIu64, e->token);
    }
    if (e->owner.len > 0) {
        cli_text(o, "  owner ");
        cli_text_safe(o, cli_who(e->owner, who));
    }
    if (e->reason[0] != '\0') {
        cli_text(o, "  because: ");
        cli_text_safe(o, fl_str(e->reason));
    }
    cli_text(o, e->kind == FL_EVENT_MISSED ? "  events were missed: see fencelock show\n" : "\n");
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

/* Only a broken node can send what is not visible ASCII. */
static void print_visible(FILE *f, const char *text, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        fputc(text[i] >= ' ' && text[i] < 0x7f ? text[i] : '?', f);
    }
}

/* The words as they came, with the lock after the first, and the time at the end. */
static void print_words(const struct fl_event *e, const char *when, FILE *f)
{
    size_t first = strcspn(e->text, " ");
    print_visible(f, e->text, first);
    if (e->name.len > 0) {
        fputs(" lock=", f);
        print_encoded(f, e->name);
    }
    print_visible(f, e->text + first, strlen(e->text + first));
    fprintf(f, " time=%s\n", when);
}

void watch_event_print(const struct fl_event *e, uint64_t wall_ms, struct cli_out *o, size_t *width)
{
    char when[FLI_UTC_SIZE];
    fli_utc(when, wall_ms);
    if (o->terminal && !o->json) {
        print_for_people(e, when, o, width);
        return;
    }
    if (!o->json) {
        print_words(e, when, o->f);
        return;
    }
    fli_json_text(&o->j, "event", e->word);
    if (e->name.len > 0) {
        fli_json_bytes(&o->j, "lock", e->name);
    }
    cli_json_token(o, "token", e->token);
    if (e->owner.len > 0) {
        fli_json_bytes(&o->j, "owner", e->owner);
    }
    if (e->wait != 0) {
        fli_json_u64(&o->j, "wait", e->wait);
    }
    if (e->reason[0] != '\0') {
        fli_json_text(&o->j, "reason", e->reason);
    }
    fli_json_u64(&o->j, "clock_ms", e->clock_ms);
    fli_json_text(&o->j, "time", when);
}
