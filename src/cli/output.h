/* output.h: what a command prints on stdout: one JSON object, or text with aligned tables and
 * colours. Bytes from elsewhere are made safe to print (base/escape.h).
 *
 * Bytes in JSON: valid UTF-8 becomes a string. Anything else becomes a string with U+FFFD for
 * each invalid byte, and a second member, whose key has "_base64" appended, has the exact bytes.
 * In text, bytes that may not be printed, and backslashes, become \xNN. */
#ifndef CLI_OUTPUT_H
#define CLI_OUTPUT_H

#include <stdbool.h>
#include <stdio.h>

#include "base/json.h"
#include "base/utc.h"
#include "fencelock/client.h"

/* ---- bytes ----------------------------------------------------------------------------------- */

/* Appends the bytes as text that is safe to print; prints them so. */
void cli_put_safe(struct fli_buf *out, struct fl_bytes b);
void cli_print_safe(FILE *f, struct fl_bytes b);

/* The width in characters; a wide one counts as one. */
size_t cli_width(const void *text, size_t len);

/* Writes "950 ms", "9.9 s", "2 m 5 s", "3 h 4 m", "2 d 3 h" to out. */
#define CLI_DURATION_SIZE 32u
void cli_format_duration(char out[CLI_DURATION_SIZE], uint64_t ms);

/* Who an owner is for people: `user@host pid, command` for one that `fencelock run` has made; else
 * the owner. The result may point into room. */
#define CLI_WHO_SIZE (FL_OWNER_MAX + 4u)
struct fl_bytes cli_who(struct fl_bytes owner, char room[CLI_WHO_SIZE]);

/* ---- JSON or text ---------------------------------------------------------------------------- */

enum cli_colour { CLI_PLAIN, CLI_BOLD, CLI_DIM, CLI_GREEN, CLI_YELLOW, CLI_RED };

/* A command says both in one go: members of the object go into `j`, which takes none unless JSON is
 * wanted, and text is printed unless it is. */
struct cli_out {
    FILE *f;
    bool json, terminal, colours; /* of a terminal whose user has not said NO_COLOR */
    struct fli_json j;            /* in memory, so that an error leaves half an object nowhere */
};

/* There is one object at a time. */
struct cli_out cli_out_begin(FILE *f, bool json, bool no_color);
/* Prints the object and ends its line. Every object and array in it must have been ended. */
void cli_out_end(struct cli_out *o);

/* A member of the object, unless there is no token. */
void cli_json_token(struct cli_out *o, const char *key, fl_token token);

void cli_paint(const struct cli_out *o, enum cli_colour colour, const char *fmt, ...)
    FLI_PRINTF(3, 4);
void cli_paint_safe(const struct cli_out *o, enum cli_colour colour, struct fl_bytes b);
#define cli_text(o, ...) cli_paint(o, CLI_PLAIN, __VA_ARGS__)
#define cli_text_safe(o, b) cli_paint_safe(o, CLI_PLAIN, b)

/* ---- lists ----------------------------------------------------------------------------------- */

#define CLI_COLUMNS_MAX 12u
#define CLI_CELL_WIDTH_MAX 40u /* what is wider moves the rest of its own row only */

struct cli_cell {
    size_t at; /* of its text, in `texts` */
    enum cli_colour colour;
};

/* A list of things, as a table or as an array of JSON objects: each of their fields is named once.
 * The first row says what the columns of the table are. When the title of the first is "", there is
 * no line of titles.
 *
 * Or one thing, whose fields are members of the object that is being written, and in text a line
 * each with its title, unless it is empty: cli_list_one(). */
struct cli_list {
    struct cli_out *out;
    bool one;
    int titles; /* of one thing: their width */
    size_t rows;
    bool none; /* the values that follow in this row are null, and dashes: there are none */
    struct {
        struct cli_cell title;
        bool right; /* aligned to the right: numbers */
        size_t width;
    } columns[CLI_COLUMNS_MAX];
    size_t n_columns;
    size_t at;            /* the column of the next cell */
    struct fli_buf cells; /* of struct cli_cell, row by row, from left to right */
    struct fli_buf texts; /* of all cells, each with a zero byte behind it */
};

void cli_list_one(struct cli_list *l, struct cli_out *out, int titles); /* no end is needed */

/* key: of the array in the object. */
void cli_list_begin(struct cli_list *l, struct cli_out *out, const char *key);
void cli_list_row(struct cli_list *l); /* begins the next one */

/* key: in JSON; NULL: not there. title: of the column; NULL: it is not in the table. text: what
 * the table says in place of the value. */
void cli_list_shown(struct cli_list *l, const char *key, const char *title, enum cli_colour colour,
                    struct fl_bytes v, struct fl_bytes text);
void cli_list_number(struct cli_list *l, const char *key, const char *title, enum cli_colour colour,
                     uint64_t v, const char *text);
void cli_list_bool(struct cli_list *l, const char *key, const char *title, enum cli_colour colour,
                   bool v, const char *text);
void cli_list_u64(struct cli_list *l, const char *key, const char *title, enum cli_colour colour,
                  uint64_t v);
/* "9.9 s" in the table, milliseconds in JSON. */
void cli_list_ms(struct cli_list *l, const char *key, const char *title, enum cli_colour colour,
                 uint64_t ms);
/* In the table alone. */
void cli_list_say(struct cli_list *l, const char *title, const char *fmt, ...) FLI_PRINTF(3, 4);
#define cli_list_bytes(l, key, title, colour, v) cli_list_shown(l, key, title, colour, v, v)
#define cli_list_text(l, key, title, colour, v) cli_list_bytes(l, key, title, colour, fl_str(v))
#define cli_list_count(l, key, v) cli_list_number(l, key, NULL, CLI_PLAIN, v, "") /* JSON alone */

/* Ends the array; or prints the table, unless it has no rows. Frees the list. */
void cli_list_end(struct cli_list *l);
void cli_list_free(struct cli_list *l); /* without printing it */

#endif
