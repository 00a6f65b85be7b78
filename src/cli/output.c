/* output.c: see output.h. Out of memory ends the process: a tool that cannot store a line of text
 * has nothing else to do. */
#include "cli/output.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

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

/* ---- JSON ------------------------------------------------------------------------------------ */

struct fli_json cli_json_begin(void)
{
    static struct fli_buf out = {.max = SIZE_MAX / 2};
    struct fli_json j;
    fli_buf_clear(&out);
    fli_json_init(&j, &out);
    fli_json_object(&j, NULL);
    return j;
}

void cli_json_print(struct fli_json *j, FILE *f)
{
    fli_json_end_object(j);
    FLI_ASSERT(j->depth == 0);
    if (j->rc != 0) {
        fli_fatal("fencelock: out of memory");
    }
    fwrite(j->out->data, 1, j->out->len, f);
    fputc('\n', f);
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
    if (fli_buf_append(&text, "", 1) != 0) {
        fli_fatal("fencelock: out of memory");
    }
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
        n += ((uint8_t)*text & 0xc0u) != 0x80u; /* a tail of UTF-8 counts nothing */
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
