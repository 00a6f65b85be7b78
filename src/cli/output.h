/* output.h: prints JSON, aligned tables and colours for the command line tool, and makes bytes from
 * elsewhere safe to print.
 *
 * Bytes in JSON: valid UTF-8 becomes a string. Anything else becomes a string with U+FFFD for
 * each invalid byte, and a second member, whose key has "_base64" appended, has the exact bytes.
 * Bytes in text: control characters, bytes that are not UTF-8, and backslashes become \xNN, so
 * that no lock name can control a terminal. */
#ifndef CLI_OUTPUT_H
#define CLI_OUTPUT_H

#include <stdbool.h>
#include <stdio.h>

#include "base/buf.h"
#include "fencelock/client.h"

/* ---- bytes ----------------------------------------------------------------------------------- */

bool cli_is_utf8(struct fl_bytes b);

/* Appends the bytes as text that is safe to print. */
void cli_put_safe(struct fli_buf *out, struct fl_bytes b);
void cli_print_safe(FILE *f, struct fl_bytes b);

/* Writes "950 ms", "9.9 s", "2 m 5 s", "3 h 4 m", "2 d 3 h" to out. */
#define CLI_DURATION_SIZE 32u
void cli_format_duration(char out[CLI_DURATION_SIZE], uint64_t ms);

/* Who an owner is for people: `user@host pid, command` for one that `fencelock run` has made; else
 * the owner. The result may point into room. */
#define CLI_WHO_SIZE (FL_OWNER_MAX + 4u)
struct fl_bytes cli_who(struct fl_bytes owner, char room[CLI_WHO_SIZE]);

/* The time of a wall clock in UTC, as logs write it: "2026-11-28T03:49:17.123Z". */
#define CLI_UTC_SIZE 40u
void cli_format_utc(char out[CLI_UTC_SIZE], uint64_t wall_ms);

/* ---- JSON ------------------------------------------------------------------------------------ */

#define CLI_JSON_DEPTH_MAX 16u

/* Writes one object, member by member, with the commas between. Keys are ASCII words of ours. */
struct cli_json {
    FILE *f;
    unsigned depth;
    bool has_members[CLI_JSON_DEPTH_MAX];
};

struct cli_json cli_json_begin(FILE *f);
/* key: NULL in an array. */
void cli_json_object(struct cli_json *j, const char *key);
void cli_json_array(struct cli_json *j, const char *key);
void cli_json_end_object(struct cli_json *j);
void cli_json_end_array(struct cli_json *j);
void cli_json_bytes(struct cli_json *j, const char *key, struct fl_bytes b);
void cli_json_text(struct cli_json *j, const char *key, const char *text);
void cli_json_u64(struct cli_json *j, const char *key, uint64_t v);
void cli_json_bool(struct cli_json *j, const char *key, bool v);
void cli_json_null(struct cli_json *j, const char *key);
/* Ends the object and the line. Every object and array in it must have been ended. */
void cli_json_finish(struct cli_json *j);

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
