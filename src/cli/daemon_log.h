/* daemon_log.h: the lines that fencelockd and fencelock-store write to stderr.
 *
 *     2026-11-22T19:20:21.042Z info    cluster this node leads term=5
 *     {"time":"2026-11-22T19:20:21.042Z","level":"info","part":"cluster","message":"this node
 *      leads","term":5}
 *
 * A message is a text that ends with `key=value` fields for programs. A value is a number, a word,
 * or "quoted" with \ before " and \. Callers pass the whole as one text; JSON output splits the
 * fields off again. The time is the wall clock in UTC, for people alone: nothing in fencelock
 * decides by it.
 *
 * Lines that differ only in their numbers count as the same message. The first LOG_BURST lines
 * of a message are written, then one in LOG_EVERY_MS. The next line written says how many were
 * left out (`left_out=N`). Errors are always written. */
#ifndef CLI_DAEMON_LOG_H
#define CLI_DAEMON_LOG_H

#include <stdio.h>

#include "base/base.h"

enum log_severity {
    LOG_SEVERITY_ERROR = 1,
    LOG_SEVERITY_WARNING,
    LOG_SEVERITY_INFO,
    LOG_SEVERITY_DEBUG
};
enum log_style { LOG_TEXT, LOG_JSON };

#define LOG_LINE_MAX 4096u /* a pipe never tears one write() of this size; longer text is cut */
#define LOG_MESSAGES 64u   /* so many messages are told apart by the limit */
#define LOG_BURST 10u
#define LOG_EVERY_MS UINT64_C(10000)
#define LOG_WALL_MAX_MS UINT64_C(253402300799999) /* the end of the year 9999 */

/* ---- pure ------------------------------------------------------------------------------------ */

struct log_limit {
    struct {
        uint32_t crc;     /* of the message without its numbers; 0: unused */
        uint64_t full_ms; /* when a whole burst of it may be written again */
        uint64_t left_out;
    } messages[LOG_MESSAGES];
};

/* Whether a line is to be written now. *left_out: how many lines of the same message were dropped
 * since one was written. */
bool log_limit_allows(struct log_limit *l, const char *part, const char *message, uint64_t now_ms,
                      uint64_t *left_out);

struct log_entry_text {
    enum log_style style;
    uint64_t wall_ms; /* since 1970; at most LOG_WALL_MAX_MS */
    enum log_severity level;
    const char *part, *message;
    uint64_t left_out;
    bool colours;
};

/* Writes the line and its line feed to out; returns the length. Control characters become \xNN, and
 * in a text that is not UTF-8 every byte beyond ASCII too: no lock name can forge a line. */
size_t log_format_line(char out[LOG_LINE_MAX], const struct log_entry_text *e);

/* ---- the log of this process ----------------------------------------------------------------- */

struct daemon_log {
    enum log_style style;
    enum log_severity configured, level;
    bool colours, journal; /* stderr is a terminal; it is the journal of systemd */
    struct log_limit limit;
    uint64_t lost; /* lines since the last one that stderr took */
};

/* Finds out whether stderr is a terminal or the journal. */
void daemon_log_init(struct daemon_log *l, enum log_style style, enum log_severity level);

void daemon_log_write(struct daemon_log *l, enum log_severity level, const char *part,
                      const char *message);
void daemon_log_printf(struct daemon_log *l, enum log_severity level, const char *part,
                       const char *fmt, ...) FLI_PRINTF(4, 5);

/* Sets the level, and logs that it did. */
void daemon_log_configure(struct daemon_log *l, enum log_severity level);

/* SIGUSR1: switches to debug, and back to the configured level (to info, if that is debug). Logs
 * that it did. */
void daemon_log_toggle(struct daemon_log *l);

#endif
