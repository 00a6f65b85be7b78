/* daemon_log.c: see daemon_log.h. */
#include "cli/daemon_log.h"

#include <poll.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/escape.h"
#include "base/json.h"
#include "base/options.h"
#include "base/utc.h"

#define LOG_ERROR_WAIT_MS 100

static const char *severity_word(enum log_severity level)
{
    FLI_ASSERT(level >= LOG_SEVERITY_ERROR && level <= LOG_SEVERITY_DEBUG);
    return fli_words_log_level[level - LOG_SEVERITY_ERROR];
}

/* ---- the limit ------------------------------------------------------------------------------- */

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* A checksum of the message without its numbers; never 0. */
static uint32_t kind_of(const char *part, const char *message)
{
    uint32_t crc = fli_crc32c(0, part, strlen(part) + 1);
    while (*message != '\0') {
        size_t words = strcspn(message, "0123456789");
        crc = fli_crc32c(crc, message, words);
        message += words;
        if (is_digit(*message)) {
            crc = fli_crc32c(crc, "0", 1);
            message += strspn(message, "0123456789");
        }
    }
    return crc != 0 ? crc : 1;
}

bool log_limit_allows(struct log_limit *l, const char *part, const char *message, uint64_t now_ms,
                      uint64_t *left_out)
{
    uint32_t crc = kind_of(part, message);
    unsigned at = LOG_MESSAGES;
    unsigned oldest = 0;
    for (unsigned i = 0; i < LOG_MESSAGES && at == LOG_MESSAGES; i++) {
        if (l->messages[i].crc == crc) {
            at = i;
        } else if (l->messages[i].full_ms < l->messages[oldest].full_ms) {
            oldest = i;
        }
    }
    if (at == LOG_MESSAGES) {
        at = oldest;
        l->messages[at].crc = crc;
        l->messages[at].full_ms = 0;
        l->messages[at].left_out = 0;
    }
    uint64_t full_ms = l->messages[at].full_ms > now_ms ? l->messages[at].full_ms : now_ms;
    if (full_ms - now_ms > (LOG_BURST - 1) * LOG_EVERY_MS) {
        l->messages[at].left_out++;
        return false;
    }
    l->messages[at].full_ms = full_ms + LOG_EVERY_MS;
    *left_out = l->messages[at].left_out;
    l->messages[at].left_out = 0;
    return true;
}

/* ---- words and fields ------------------------------------------------------------------------ */

struct field {
    const char *key, *value; /* of a quoted value: what is between the quotes, escapes included */
    size_t key_len, value_len;
    bool quoted;
};

static bool is_key_byte(char c, bool first)
{
    return (c >= 'a' && c <= 'z') || (!first && (c == '_' || is_digit(c)));
}

/* Parses one `key=value` at p. Returns the byte after it, or NULL: there is none. */
static const char *take_field(const char *p, struct field *ret)
{
    ret->key = p;
    while (is_key_byte(*p, p == ret->key)) {
        p++;
    }
    ret->key_len = (size_t)(p - ret->key);
    if (ret->key_len == 0 || *p != '=') {
        return NULL;
    }
    p++;
    ret->quoted = *p == '"';
    p += ret->quoted;
    ret->value = p;
    while (*p != '\0' && (ret->quoted ? *p != '"' : *p != ' ' && *p != '"')) {
        p += ret->quoted && p[0] == '\\' && p[1] != '\0' ? 2 : 1;
    }
    ret->value_len = (size_t)(p - ret->value);
    if (ret->quoted ? *p != '"' : ret->value_len == 0) {
        return NULL;
    }
    return p + ret->quoted;
}

/* The first of the fields at the end of the message; its end if there are none. */
static const char *fields_of(const char *message)
{
    const char *first = NULL;
    const char *p = message;
    while (*p != '\0') {
        struct field f;
        const char *end = take_field(p, &f);
        if (end != NULL && (*end == ' ' || *end == '\0')) {
            first = first != NULL ? first : p;
        } else {
            end = p + strcspn(p, " ");
            first = NULL;
        }
        p = end + (*end == ' ');
    }
    return first != NULL ? first : p;
}

/* ---- lines ----------------------------------------------------------------------------------- */

#define LINE_ROOM (LOG_LINE_MAX - 1u) /* the line feed comes last */
#define CLOSING_ROOM 64u              /* for what stands behind the message */
#define ESCAPE_MAX 6u                 /* bytes that one may become in JSON */

/* What does not fit is left out. */
static void put(struct fli_buf *line, const char *fmt, ...) FLI_PRINTF(2, 3);
static void put(struct fli_buf *line, const char *fmt, ...)
{
    char text[96];
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    int rc = fli_buf_append(line, text, strlen(text));
    FLI_ASSERT(rc == 0 || rc == FL_ELIMIT);
}

static void put_plain(struct fli_buf *line, const struct log_entry_text *e)
{
    static const char *const colours[] = {"", "\033[31m", "\033[33m", "", "\033[2m"};
    const char *colour = e->colours ? colours[e->level] : "";
    char when[FLI_UTC_SIZE];
    fli_utc(when, e->wall_ms);
    put(line, "%s %s%-7s%s %-8.16s ", when, colour, severity_word(e->level),
        colour[0] != '\0' ? "\033[0m" : "", e->part);
    line->cap = line->max = LINE_ROOM - CLOSING_ROOM;
    /* A message that is too long is cut; its backslashes belong to its fields. */
    int rc = fli_put_shown(line, e->message, strlen(e->message), false);
    FLI_ASSERT(rc == 0 || rc == FL_ELIMIT);
    line->cap = line->max = LINE_ROOM;
    if (e->left_out > 0) {
        put(line, " left_out=%llu", (unsigned long long)e->left_out);
    }
}

/* Whether it is a number that every reader of JSON keeps exactly. */
static bool is_number(const struct field *f)
{
    size_t i = 0;
    while (i < f->value_len && is_digit(f->value[i])) {
        i++;
    }
    return !f->quoted && i == f->value_len && i <= 15 && (i == 1 || f->value[0] != '0');
}

static void put_field(struct fli_json *j, const struct field *f)
{
    char key[64];
    char value[LOG_LINE_MAX];
    size_t len = 0;
    (void)snprintf(key, sizeof key, "%.*s", (int)f->key_len, f->key);
    for (size_t i = 0; i < f->value_len && len < sizeof value; i++) {
        i += f->quoted && f->value[i] == '\\' && i + 1 < f->value_len;
        value[len++] = f->value[i];
    }
    if (is_number(f)) {
        fli_json_u64(j, key, strtoull(f->value, NULL, 10));
    } else {
        fli_json_text_len(j, key, value, len);
    }
}

static void put_json(struct fli_buf *line, const struct log_entry_text *e)
{
    const char *p = fields_of(e->message);
    size_t words = (size_t)(p - e->message);
    char when[FLI_UTC_SIZE];
    struct field f;
    struct fli_json j;
    fli_utc(when, e->wall_ms);
    fli_json_init(&j, line);
    fli_json_object(&j, NULL);
    fli_json_text(&j, "time", when);
    fli_json_text(&j, "level", severity_word(e->level));
    fli_json_text(&j, "part", e->part);
    j.stop = LINE_ROOM - CLOSING_ROOM;
    fli_json_text_len(&j, "message", e->message, words > 0 && *p != '\0' ? words - 1 : words);
    while (*p != '\0') {
        p = take_field(p, &f);
        FLI_ASSERT(p != NULL);
        if (line->len + f.key_len + ESCAPE_MAX * f.value_len + 2 * CLOSING_ROOM > LINE_ROOM) {
            break; /* the line is whole without this field */
        }
        put_field(&j, &f);
        p += *p == ' ';
    }
    if (e->left_out > 0) {
        fli_json_u64(&j, "left_out", e->left_out);
    }
    fli_json_end_object(&j);
    FLI_ASSERT(j.rc == 0);
}

size_t log_format_line(char out[LOG_LINE_MAX], const struct log_entry_text *e)
{
    /* It never grows: a line about a lack of memory needs none. */
    struct fli_buf line = {.data = (uint8_t *)out, .cap = LINE_ROOM, .max = LINE_ROOM};
    FLI_ASSERT(e->level >= LOG_SEVERITY_ERROR && e->level <= LOG_SEVERITY_DEBUG);
    if (e->style == LOG_JSON) {
        put_json(&line, e);
    } else {
        put_plain(&line, e);
    }
    out[line.len++] = '\n';
    FLI_ASSERT(line.len <= LOG_LINE_MAX);
    return line.len;
}

/* ---- the log of this process ----------------------------------------------------------------- */

/* systemd puts the journal's file into JOURNAL_STREAM; stderr may have been redirected since. */
static bool stderr_is_journal(void)
{
    const char *given = getenv("JOURNAL_STREAM");
    char own[64];
    struct stat st;
    if (given == NULL || fstat(STDERR_FILENO, &st) != 0) {
        return false;
    }
    (void)snprintf(own, sizeof own, "%llu:%llu", (unsigned long long)st.st_dev,
                   (unsigned long long)st.st_ino);
    return strcmp(own, given) == 0;
}

void daemon_log_init(struct daemon_log *l, enum log_style style, enum log_severity level)
{
    const char *no_color = getenv("NO_COLOR");
    memset(l, 0, sizeof *l);
    l->style = style;
    l->configured = l->level = level;
    l->journal = stderr_is_journal();
    l->colours = isatty(STDERR_FILENO) == 1 && (no_color == NULL || no_color[0] == '\0');
}

/* A pipe that nobody empties, or a terminal that was stopped, must not stop the daemon too. Only
 * the first line of an error waits a moment: it may be the last. */
static bool can_write(const struct daemon_log *l, enum log_severity level)
{
    struct pollfd p = {.fd = STDERR_FILENO, .events = POLLOUT};
    int rc = poll(&p, 1, level == LOG_SEVERITY_ERROR && l->lost == 0 ? LOG_ERROR_WAIT_MS : 0);
    return rc != 0; /* an error is for write() to find */
}

static void write_line(struct daemon_log *l, enum log_severity level, const char *part,
                       const char *message, uint64_t left_out)
{
    static const char *const priorities[] = {"", "<3>", "<4>", "<6>", "<7>"}; /* sd-daemon(3) */
    char line[LOG_LINE_MAX + 3];
    uint64_t wall_ms = fli_clock_wall_ms();
    const struct log_entry_text e = {.style = l->style,
                                     .wall_ms =
                                         wall_ms < LOG_WALL_MAX_MS ? wall_ms : LOG_WALL_MAX_MS,
                                     .level = level,
                                     .part = part,
                                     .message = message,
                                     .left_out = left_out,
                                     .colours = l->colours};
    size_t before = l->journal ? 3 : 0;
    memcpy(line, priorities[level], before);
    size_t len = before + log_format_line(line + before, &e);
    /* one write(), so that lines of several processes do not mix */
    (void)!write(STDERR_FILENO, line, len);
}

void daemon_log_write(struct daemon_log *l, enum log_severity level, const char *part,
                      const char *message)
{
    char text[96];
    uint64_t left_out = 0;
    if (level > l->level ||
        (!log_limit_allows(&l->limit, part, message, fli_clock_ms(), &left_out) &&
         level > LOG_SEVERITY_ERROR)) {
        return;
    }
    if (!can_write(l, level)) {
        l->lost++;
        return;
    }
    if (l->lost > 0) {
        (void)snprintf(text, sizeof text, "lines were lost: nobody read the log lines=%llu",
                       (unsigned long long)l->lost);
        l->lost = 0;
        write_line(l, LOG_SEVERITY_WARNING, "daemon", text, 0);
    }
    write_line(l, level, part, message, left_out);
}

void daemon_log_printf(struct daemon_log *l, enum log_severity level, const char *part,
                       const char *fmt, ...)
{
    char text[1024];
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    daemon_log_write(l, level, part, text);
}

static void set_level(struct daemon_log *l, enum log_severity level, const char *by)
{
    /* so that this line itself is written */
    l->level = level > LOG_SEVERITY_INFO ? level : LOG_SEVERITY_INFO;
    daemon_log_printf(l, LOG_SEVERITY_INFO, "daemon",
                      "%s: the level of the log is changed level=%s", by, severity_word(level));
    l->level = level;
}

void daemon_log_configure(struct daemon_log *l, enum log_severity level)
{
    if (level != l->configured) {
        set_level(l, level, "CLUSTER CONFIG");
        l->configured = level;
    }
}

void daemon_log_toggle(struct daemon_log *l)
{
    enum log_severity usual =
        l->configured == LOG_SEVERITY_DEBUG ? LOG_SEVERITY_INFO : l->configured;
    set_level(l, l->level == LOG_SEVERITY_DEBUG ? usual : LOG_SEVERITY_DEBUG, "SIGUSR1");
}
