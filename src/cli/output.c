/* output.c: see output.h. Out of memory ends the process: a tool that cannot store a line of text
 * has nothing else to do. */
#include "cli/output.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ---- bytes ----------------------------------------------------------------------------------- */

static bool is_tail(uint8_t c)
{
    return (c & 0xc0) == 0x80;
}

/* Length of the UTF-8 character at p; 0: there is none. Well-formed sequences by the Unicode
 * Standard (chapter 3, table 3-7). */
static size_t utf8_len(const uint8_t *p, size_t left)
{
    FLI_ASSERT(left > 0);
    uint8_t c = p[0];
    if (c < 0x80) {
        return 1;
    }
    if (c >= 0xc2 && c <= 0xdf) {
        return left >= 2 && is_tail(p[1]) ? 2 : 0;
    }
    if (c >= 0xe0 && c <= 0xef) {
        uint8_t low = c == 0xe0 ? 0xa0 : 0x80;
        uint8_t high = c == 0xed ? 0x9f : 0xbf;
        return left >= 3 && p[1] >= low && p[1] <= high && is_tail(p[2]) ? 3 : 0;
    }
    if (c >= 0xf0 && c <= 0xf4) {
        uint8_t low = c == 0xf0 ? 0x90 : 0x80;
        uint8_t high = c == 0xf4 ? 0x8f : 0xbf;
        bool good = left >= 4 && p[1] >= low && p[1] <= high && is_tail(p[2]) && is_tail(p[3]);
        return good ? 4 : 0;
    }
    return 0;
}

bool cli_is_utf8(struct fl_bytes b)
{
    const uint8_t *p = b.data;
    for (size_t i = 0; i < b.len;) {
        size_t n = utf8_len(p + i, b.len - i);
        if (n == 0) {
            return false;
        }
        i += n;
    }
    return true;
}

static void put(struct fli_buf *out, const void *data, size_t len)
{
    if (fli_buf_append(out, data, len) != 0) {
        fli_fatal("fencelock: out of memory");
    }
}

/* C0, DEL, and C1 as two bytes move cursors and set colours. */
static bool is_control(const uint8_t *p, size_t n)
{
    return (n == 1 && (p[0] < 0x20 || p[0] == 0x7f)) || (n == 2 && p[0] == 0xc2 && p[1] < 0xa0);
}

void cli_put_safe(struct fli_buf *out, struct fl_bytes b)
{
    static const char hex[] = "0123456789abcdef";
    const uint8_t *p = b.data;
    for (size_t i = 0; i < b.len;) {
        size_t n = utf8_len(p + i, b.len - i);
        if (n != 0 && !is_control(p + i, n) && p[i] != '\\') {
            put(out, p + i, n);
            i += n;
            continue;
        }
        for (size_t k = 0; k < (n == 0 ? 1 : n); k++, i++) {
            const char escape[4] = {'\\', 'x', hex[p[i] >> 4], hex[p[i] & 15]};
            put(out, escape, sizeof escape);
        }
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

/* Cuts the text at its last slash; returns what stood behind that, or NULL. */
static char *cut_last(char *text)
{
    char *slash = strrchr(text, '/');
    if (slash == NULL) {
        return NULL;
    }
    *slash = '\0';
    return slash + 1;
}

struct fl_bytes cli_who(struct fl_bytes owner, char room[CLI_WHO_SIZE])
{
    char text[FL_OWNER_MAX + 1] = ""; /* USER@HOST/PID/COMMAND/RANDOM */
    if (owner.len <= FL_OWNER_MAX && owner.len > 0) {
        memcpy(text, owner.data, owner.len);
    }
    bool whole = strlen(text) == owner.len;
    const char *random = cut_last(text);
    const char *command = random == NULL ? NULL : cut_last(text);
    const char *pid = command == NULL ? NULL : cut_last(text);
    bool is = whole && pid != NULL && pid[0] != '\0' && strspn(pid, "0123456789") == strlen(pid) &&
              strchr(text, '@') != NULL && strlen(random) == 32 &&
              strspn(random, "0123456789abcdef") == 32;
    if (!is) {
        return owner;
    }
    int len = snprintf(room, CLI_WHO_SIZE, "%s %s, %s", text, pid, command);
    return (struct fl_bytes){room, (size_t)len};
}

void cli_format_utc(char out[CLI_UTC_SIZE], uint64_t wall_ms)
{
    struct tm tm = {0};
    time_t seconds = (time_t)(wall_ms / 1000);
    (void)gmtime_r(&seconds, &tm);
    size_t len = strftime(out, CLI_UTC_SIZE, "%Y-%m-%dT%H:%M:%S", &tm);
    (void)snprintf(out + len, CLI_UTC_SIZE - len, ".%03uZ", (unsigned)(wall_ms % 1000));
}

/* ---- JSON ------------------------------------------------------------------------------------ */

static void print_string(FILE *f, struct fl_bytes b)
{
    const uint8_t *p = b.data;
    fputc('"', f);
    for (size_t i = 0; i < b.len;) {
        size_t n = utf8_len(p + i, b.len - i);
        if (n == 0) {
            fputs("\\ufffd", f);
            i++;
        } else if (n == 1 && (p[i] < 0x20 || p[i] == 0x7f)) {
            fprintf(f, "\\u%04x", p[i++]);
        } else if (n == 1 && (p[i] == '"' || p[i] == '\\')) {
            fprintf(f, "\\%c", p[i++]);
        } else {
            fwrite(p + i, 1, n, f);
            i += n;
        }
    }
    fputc('"', f);
}

static void print_base64(FILE *f, struct fl_bytes b)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const uint8_t *p = b.data;
    fputc('"', f);
    for (size_t i = 0; i < b.len; i += 3) {
        size_t left = b.len - i;
        uint32_t v = (uint32_t)p[i] << 16;
        v |= left > 1 ? (uint32_t)p[i + 1] << 8 : 0;
        v |= left > 2 ? (uint32_t)p[i + 2] : 0;
        fputc(digits[v >> 18], f);
        fputc(digits[(v >> 12) & 63], f);
        fputc(left > 1 ? digits[(v >> 6) & 63] : '=', f);
        fputc(left > 2 ? digits[v & 63] : '=', f);
    }
    fputc('"', f);
}

static void next_member(struct cli_json *j, const char *key)
{
    FLI_ASSERT(j->depth < CLI_JSON_DEPTH_MAX);
    if (j->has_members[j->depth]) {
        fputc(',', j->f);
    }
    j->has_members[j->depth] = true;
    if (key != NULL) {
        print_string(j->f, fl_str(key));
        fputc(':', j->f);
    }
}

static void descend(struct cli_json *j, const char *key, char bracket)
{
    next_member(j, key);
    fputc(bracket, j->f);
    j->depth++;
    FLI_ASSERT(j->depth < CLI_JSON_DEPTH_MAX);
    j->has_members[j->depth] = false;
}

static void ascend(struct cli_json *j, char bracket)
{
    FLI_ASSERT(j->depth > 0);
    j->depth--;
    fputc(bracket, j->f);
}

struct cli_json cli_json_begin(FILE *f)
{
    struct cli_json j = {.f = f};
    cli_json_object(&j, NULL);
    return j;
}

void cli_json_object(struct cli_json *j, const char *key)
{
    descend(j, key, '{');
}

void cli_json_array(struct cli_json *j, const char *key)
{
    descend(j, key, '[');
}

void cli_json_end_object(struct cli_json *j)
{
    ascend(j, '}');
}

void cli_json_end_array(struct cli_json *j)
{
    ascend(j, ']');
}

void cli_json_bytes(struct cli_json *j, const char *key, struct fl_bytes b)
{
    next_member(j, key);
    print_string(j->f, b);
    if (key != NULL && !cli_is_utf8(b)) {
        fprintf(j->f, ",\"%s_base64\":", key);
        print_base64(j->f, b);
    }
}

void cli_json_text(struct cli_json *j, const char *key, const char *text)
{
    next_member(j, key);
    print_string(j->f, fl_str(text));
}

void cli_json_u64(struct cli_json *j, const char *key, uint64_t v)
{
    next_member(j, key);
    fprintf(j->f, "%" PRIu64, v);
}

void cli_json_bool(struct cli_json *j, const char *key, bool v)
{
    next_member(j, key);
    fputs(v ? "true" : "false", j->f);
}

void cli_json_null(struct cli_json *j, const char *key)
{
    next_member(j, key);
    fputs("null", j->f);
}

void cli_json_finish(struct cli_json *j)
{
    cli_json_end_object(j);
    FLI_ASSERT(j->depth == 0);
    fputc('\n', j->f);
}

/* ---- tables ---------------------------------------------------------------------------------- */

static const char *const colour_codes[] = {
    [CLI_PLAIN] = "",         [CLI_BOLD] = "\033[1m",    [CLI_DIM] = "\033[2m",
    [CLI_GREEN] = "\033[32m", [CLI_YELLOW] = "\033[33m", [CLI_RED] = "\033[31m",
};

const char *cli_colour_on(enum cli_colour colour, bool colours)
{
    return colours ? colour_codes[colour] : "";
}

const char *cli_colour_off(enum cli_colour colour, bool colours)
{
    return colours && colour != CLI_PLAIN ? "\033[0m" : "";
}

void cli_table_init(struct cli_table *t, const struct cli_column *columns, size_t n_columns)
{
    FLI_ASSERT(n_columns >= 1 && n_columns <= CLI_COLUMNS_MAX);
    *t = (struct cli_table){.columns = columns, .n_columns = n_columns};
}

void cli_table_fini(struct cli_table *t)
{
    for (size_t i = 0; i < t->n_cells; i++) {
        free(t->cells[i].text);
    }
    free(t->cells);
    *t = (struct cli_table){.columns = NULL};
}

void cli_table_bytes(struct cli_table *t, enum cli_colour colour, struct fl_bytes b)
{
    if (t->n_cells == t->cap) {
        t->cap = t->cap == 0 ? 64 : t->cap * 2;
        struct cli_cell *cells = realloc(t->cells, t->cap * sizeof *cells);
        if (cells == NULL) {
            fli_fatal("fencelock: out of memory");
        }
        t->cells = cells;
    }
    struct fli_buf text;
    fli_buf_init(&text, SIZE_MAX / 2);
    cli_put_safe(&text, b);
    put(&text, "", 1);
    t->cells[t->n_cells++] = (struct cli_cell){.text = (char *)text.data, .colour = colour};
}

void cli_table_text(struct cli_table *t, enum cli_colour colour, const char *text)
{
    cli_table_bytes(t, colour, fl_str(text));
}

void cli_table_u64(struct cli_table *t, enum cli_colour colour, uint64_t v)
{
    char text[24];
    snprintf(text, sizeof text, "%" PRIu64, v);
    cli_table_text(t, colour, text);
}

void cli_table_duration(struct cli_table *t, enum cli_colour colour, uint64_t ms)
{
    char text[CLI_DURATION_SIZE];
    cli_format_duration(text, ms);
    cli_table_text(t, colour, text);
}

/* The width in characters; a wide one counts as one. */
static size_t width_of(const char *text)
{
    size_t n = 0;
    for (; *text != '\0'; text++) {
        n += is_tail((uint8_t)*text) ? 0 : 1;
    }
    return n;
}

static void print_row(const struct cli_table *t, const struct cli_cell *row, const size_t *widths,
                      FILE *f, bool colours)
{
    size_t n = t->n_columns; /* without empty ones at the end, so that no line ends in blanks */
    while (n > 0 && row[n - 1].text[0] == '\0') {
        n--;
    }
    for (size_t i = 0; i < n; i++) {
        size_t width = width_of(row[i].text);
        int pad = width < widths[i] ? (int)(widths[i] - width) : 0;
        bool right = t->columns[i].right;
        fprintf(f, "%*s%s%s%s", right ? pad : 0, "", cli_colour_on(row[i].colour, colours),
                row[i].text, cli_colour_off(row[i].colour, colours));
        if (i + 1 < n) {
            fprintf(f, "%*s", (right ? 0 : pad) + 2, "");
        }
    }
    fputc('\n', f);
}

void cli_table_print(const struct cli_table *t, FILE *f, bool colours)
{
    FLI_ASSERT(t->n_cells % t->n_columns == 0);
    size_t widths[CLI_COLUMNS_MAX];
    struct cli_cell titles[CLI_COLUMNS_MAX];
    char texts[CLI_COLUMNS_MAX][32];
    for (size_t c = 0; c < t->n_columns; c++) {
        snprintf(texts[c], sizeof texts[c], "%s", t->columns[c].title);
        titles[c] = (struct cli_cell){.text = texts[c], .colour = CLI_BOLD};
        widths[c] = width_of(texts[c]);
    }
    for (size_t i = 0; i < t->n_cells; i++) {
        size_t w = width_of(t->cells[i].text);
        w = w < CLI_CELL_WIDTH_MAX ? w : CLI_CELL_WIDTH_MAX;
        widths[i % t->n_columns] = w > widths[i % t->n_columns] ? w : widths[i % t->n_columns];
    }
    print_row(t, titles, widths, f, colours);
    for (size_t i = 0; i < t->n_cells; i += t->n_columns) {
        print_row(t, t->cells + i, widths, f, colours);
    }
}
