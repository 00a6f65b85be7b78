/* output.c: see output.h. Out of memory ends the process: a tool that cannot store a line of text
 * has nothing else to do. */
#include "cli/output.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/escape.h"

/* ---- bytes ----------------------------------------------------------------------------------- */

void cli_put_safe(struct fli_buf *out, struct fl_bytes b)
{
    if (fli_put_shown(out, b.data, b.len, true) != 0) {
        fli_fatal("fencelock: out of memory");
    }
}

void cli_print_safe(FILE *f, struct fl_bytes b)
{
    struct fli_buf out;
    fli_buf_init(&out, SIZE_MAX / 2);
    cli_put_safe(&out, b);
    fwrite(out.data != NULL ? (const void *)out.data : "", 1, out.len, f);
    fli_buf_fini(&out);
}

size_t cli_width(const void *text, size_t len)
{
    const uint8_t *p = text;
    size_t n = 0;
    for (size_t i = 0; i < len; i++) {
        n += (p[i] & 0xc0u) != 0x80u; /* a tail of UTF-8 counts nothing */
    }
    return n;
}

void cli_format_duration(char out[CLI_DURATION_SIZE], uint64_t ms)
{
    uint64_t s = ms / 1000;
    if (ms < 1000) {
        snprintf(out, CLI_DURATION_SIZE, "%" PRIu64 " ms", ms);
    } else if (s < 60) {
        snprintf(out, CLI_DURATION_SIZE, "%" PRIu64 ".%" PRIu64 " s", s, ms % 1000 / 100);
    } else if (s < 3600) {
        snprintf(out, CLI_DURATION_SIZE, "%" PRIu64 " m %" PRIu64 " s", s / 60, s % 60);
    } else if (s < 86400) {
        snprintf(out, CLI_DURATION_SIZE, "%" PRIu64 " h %" PRIu64 " m", s / 3600, s % 3600 / 60);
    } else {
        snprintf(out, CLI_DURATION_SIZE, "%" PRIu64 " d %" PRIu64 " h", s / 86400,
                 s % 86400 / 3600);
    }
}

struct fl_bytes cli_who(struct fl_bytes owner, char room[CLI_WHO_SIZE])
{
    char text[FL_OWNER_MAX + 1] = ""; /* USER@HOST/PID/COMMAND/RANDOM */
    int host = 0;                     /* each: where it ends */
    int pid = 0;
    int command = 0;
    int end = 0;
    if (owner.len <= FL_OWNER_MAX && owner.len > 0) {
        memcpy(text, owner.data, owner.len);
    }
    (void)sscanf(text, "%*[^/@]@%*[^/]%n/%*[0-9]%n/%*[^/]%n/%*32[0-9a-f]%n", &host, &pid, &command,
                 &end);
    if (end - command != 1 + 32 || (size_t)end != owner.len) {
        return owner;
    }
    int len = snprintf(room, CLI_WHO_SIZE, "%.*s %.*s, %.*s", host, text, pid - host - 1,
                       text + host + 1, command - pid - 1, text + pid + 1);
    return (struct fl_bytes){room, (size_t)len};
}

/* ---- JSON or text ---------------------------------------------------------------------------- */

struct cli_out cli_out_begin(FILE *f, bool json, bool no_color)
{
    static struct fli_buf room = {.max = SIZE_MAX / 2};
    const char *variable = getenv("NO_COLOR");
    struct cli_out o = {.f = f, .json = json, .terminal = isatty(fileno(f)) == 1};
    o.colours = o.terminal && !no_color && (variable == NULL || variable[0] == '\0');
    fli_buf_clear(&room);
    fli_json_init(&o.j, &room);
    fli_json_object(&o.j, NULL);
    o.j.rc = json ? o.j.rc : FL_EINVAL; /* with an error it takes no more */
    return o;
}

void cli_out_end(struct cli_out *o)
{
    fli_json_end_object(&o->j);
    FLI_ASSERT(o->j.depth == 0);
    if (o->json && o->j.rc != 0) {
        fli_fatal("fencelock: out of memory");
    }
    if (o->json) {
        fwrite(o->j.out->data, 1, o->j.out->len, o->f);
        fputc('\n', o->f);
    }
}

void cli_json_token(struct cli_out *o, const char *key, fl_token token)
{
    if (token != FL_TOKEN_NONE) {
        fli_json_u64(&o->j, key, token);
    }
}

static const char *const colour_codes[] = {
    [CLI_PLAIN] = "",         [CLI_BOLD] = "\033[1m",    [CLI_DIM] = "\033[2m",
    [CLI_GREEN] = "\033[32m", [CLI_YELLOW] = "\033[33m", [CLI_RED] = "\033[31m",
};

/* The sequence that begins or ends the colour. */
static const char *paint(const struct cli_out *o, enum cli_colour colour, bool begins)
{
    return !o->colours || colour == CLI_PLAIN ? "" : begins ? colour_codes[colour] : "\033[0m";
}

void cli_paint(const struct cli_out *o, enum cli_colour colour, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    if (!o->json) {
        fputs(paint(o, colour, true), o->f);
        vfprintf(o->f, fmt, args);
        fputs(paint(o, colour, false), o->f);
    }
    va_end(args);
}

void cli_paint_safe(const struct cli_out *o, enum cli_colour colour, struct fl_bytes b)
{
    if (!o->json) {
        fputs(paint(o, colour, true), o->f);
        cli_print_safe(o->f, b);
        fputs(paint(o, colour, false), o->f);
    }
}

/* ---- lists ----------------------------------------------------------------------------------- */

void cli_list_begin(struct cli_list *l, struct cli_out *out, const char *key)
{
    *l = (struct cli_list){
        .out = out, .cells = {.max = SIZE_MAX / 2}, .texts = {.max = SIZE_MAX / 2}};
    fli_json_array(&out->j, key);
}

void cli_list_one(struct cli_list *l, struct cli_out *out, int titles)
{
    *l = (struct cli_list){.out = out, .one = true, .titles = titles};
}

void cli_list_row(struct cli_list *l)
{
    if (l->rows++ > 0) {
        fli_json_end_object(&l->out->j);
    }
    fli_json_object(&l->out->j, NULL);
    l->none = false;
    l->at = 0;
}

static void append(struct fli_buf *b, const void *data, size_t len)
{
    if (fli_buf_append(b, data, len) != 0) {
        fli_fatal("fencelock: out of memory");
    }
}

/* The text of the next cell of this column. */
static struct cli_cell new_cell(struct cli_list *l, size_t column, enum cli_colour colour,
                                struct fl_bytes text)
{
    size_t at = l->texts.len;
    cli_put_safe(&l->texts, text);
    size_t width = cli_width(l->texts.data + at, l->texts.len - at);
    width = width < CLI_CELL_WIDTH_MAX ? width : CLI_CELL_WIDTH_MAX;
    append(&l->texts, "", 1);
    if (width > l->columns[column].width) {
        l->columns[column].width = width;
    }
    return (struct cli_cell){.at = at, .colour = colour};
}

static void add_cell(struct cli_list *l, const char *title, bool right, enum cli_colour colour,
                     struct fl_bytes v)
{
    if (l->out->json || title == NULL) {
        return;
    }
    if (l->one) {
        if (v.len > 0 && !l->none) {
            cli_text(l->out, "%-*s", l->titles, title);
            cli_paint_safe(l->out, colour, v);
            cli_text(l->out, "\n");
        }
        return;
    }
    FLI_ASSERT(l->rows > 0 && l->at < (l->rows == 1 ? CLI_COLUMNS_MAX : l->n_columns));
    if (l->rows == 1) {
        l->columns[l->at].title = new_cell(l, l->at, CLI_BOLD, fl_str(title));
        l->columns[l->at].right = right;
        l->n_columns++;
    }
    const struct cli_cell cell =
        new_cell(l, l->at, l->none ? CLI_DIM : colour, l->none ? fl_str("-") : v);
    append(&l->cells, &cell, sizeof cell);
    l->at++;
}

/* Whether a value goes into JSON. */
static bool has_value(struct cli_list *l, const char *key)
{
    if (key != NULL && l->none) {
        fli_json_null(&l->out->j, key);
    }
    return key != NULL && !l->none;
}

void cli_list_shown(struct cli_list *l, const char *key, const char *title, enum cli_colour colour,
                    struct fl_bytes v, struct fl_bytes text)
{
    if (has_value(l, key)) {
        fli_json_bytes(&l->out->j, key, v);
    }
    add_cell(l, title, false, colour, text);
}

void cli_list_number(struct cli_list *l, const char *key, const char *title, enum cli_colour colour,
                     uint64_t v, const char *text)
{
    if (has_value(l, key)) {
        fli_json_u64(&l->out->j, key, v);
    }
    add_cell(l, title, true, colour, fl_str(text));
}

void cli_list_bool(struct cli_list *l, const char *key, const char *title, enum cli_colour colour,
                   bool v, const char *text)
{
    if (has_value(l, key)) {
        fli_json_bool(&l->out->j, key, v);
    }
    add_cell(l, title, false, colour, fl_str(text));
}

void cli_list_u64(struct cli_list *l, const char *key, const char *title, enum cli_colour colour,
                  uint64_t v)
{
    char text[24];
    snprintf(text, sizeof text, "%" PRIu64, v);
    cli_list_number(l, key, title, colour, v, text);
}

void cli_list_ms(struct cli_list *l, const char *key, const char *title, enum cli_colour colour,
                 uint64_t ms)
{
    char text[CLI_DURATION_SIZE];
    cli_format_duration(text, ms);
    cli_list_number(l, key, title, colour, ms, text);
}

void cli_list_say(struct cli_list *l, const char *title, const char *fmt, ...)
{
    char text[5000];
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    add_cell(l, title, false, CLI_PLAIN, fl_str(text));
}

static void print_cell(const struct cli_list *l, size_t column, const struct cli_cell *cell,
                       bool last)
{
    const char *text = (const char *)l->texts.data + cell->at;
    size_t wide = cli_width(text, strlen(text));
    int pad = wide < l->columns[column].width ? (int)(l->columns[column].width - wide) : 0;
    bool right = l->columns[column].right;
    cli_text(l->out, "%*s", right ? pad : 0, "");
    cli_paint(l->out, cell->colour, "%s", text);
    cli_text(l->out, "%*s", last ? 0 : (right ? 0 : pad) + 2, "");
}

/* Without the empty cells at the end, so that no line ends in blanks. */
static void print_row(const struct cli_list *l, const struct cli_cell *row)
{
    size_t n = l->n_columns;
    while (n > 0 && l->texts.data[row[n - 1].at] == '\0') {
        n--;
    }
    for (size_t i = 0; i < n; i++) {
        print_cell(l, i, &row[i], i + 1 == n);
    }
    cli_text(l->out, "\n");
}

static void print_table(const struct cli_list *l)
{
    const struct cli_cell *cells = (const void *)l->cells.data; /* memory of malloc() */
    if (l->texts.data[l->columns[0].title.at] != '\0') {
        for (size_t i = 0; i < l->n_columns; i++) {
            print_cell(l, i, &l->columns[i].title, i + 1 == l->n_columns);
        }
        cli_text(l->out, "\n");
    }
    FLI_ASSERT(l->cells.len == l->rows * l->n_columns * sizeof *cells);
    for (size_t i = 0; i < l->rows; i++) {
        print_row(l, cells + i * l->n_columns);
    }
}

void cli_list_end(struct cli_list *l)
{
    if (l->rows > 0) {
        fli_json_end_object(&l->out->j);
    }
    fli_json_end_array(&l->out->j);
    if (l->cells.len > 0) {
        print_table(l);
    }
    cli_list_free(l);
}

void cli_list_free(struct cli_list *l)
{
    fli_buf_fini(&l->texts);
    fli_buf_fini(&l->cells);
}
