/* output.h: prints JSON, aligned tables and colours for the command line tool, and makes bytes from
 * elsewhere safe to print (base/escape.h).
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

/* Writes "950 ms", "9.9 s", "2 m 5 s", "3 h 4 m", "2 d 3 h" to out. */
#define CLI_DURATION_SIZE 32u
void cli_format_duration(char out[CLI_DURATION_SIZE], uint64_t ms);

/* Who an owner is for people: `user@host pid, command` for one that `fencelock run` has made; else
 * the owner. The result may point into room. */
#define CLI_WHO_SIZE (FL_OWNER_MAX + 4u)
struct fl_bytes cli_who(struct fl_bytes owner, char room[CLI_WHO_SIZE]);

/* ---- JSON ------------------------------------------------------------------------------------ */

/* Begins one object, in memory, so that an error in its middle leaves nothing on stdout. There is
 * one at a time. */
struct fli_json cli_json_begin(void);
/* Ends the object and the line, and prints it. Every object and array in it must have been
 * ended. */
void cli_json_print(struct fli_json *j, FILE *f);

/* ---- tables ---------------------------------------------------------------------------------- */

enum cli_colour { CLI_PLAIN, CLI_BOLD, CLI_DIM, CLI_GREEN, CLI_YELLOW, CLI_RED };

#define CLI_COLUMNS_MAX 12u
#define CLI_CELL_WIDTH_MAX 40u /* what is wider moves the rest of its own row only */

struct cli_column {
    const char *title;
    bool right; /* aligned to the right: numbers */
};

struct cli_cell {
    char *text;
    enum cli_colour colour;
};

struct cli_table {
    const struct cli_column *columns;
    size_t n_columns;
    struct cli_cell *cells;
    size_t n_cells;
    size_t cap;
};

/* columns must stay where they are. Cells are filled row by row, from left to right. */
void cli_table_init(struct cli_table *t, const struct cli_column *columns, size_t n_columns);
void cli_table_fini(struct cli_table *t);
void cli_table_bytes(struct cli_table *t, enum cli_colour colour, struct fl_bytes b);
void cli_table_text(struct cli_table *t, enum cli_colour colour, const char *text);
void cli_table_u64(struct cli_table *t, enum cli_colour colour, uint64_t v);
void cli_table_duration(struct cli_table *t, enum cli_colour colour, uint64_t ms);
/* Every row must be complete. */
void cli_table_print(const struct cli_table *t, FILE *f, bool colours);

/* Escape sequences, or "" without colours. */
const char *cli_colour_on(enum cli_colour colour, bool colours);
const char *cli_colour_off(enum cli_colour colour, bool colours);

#endif
