/* daemon_log.c: see daemon_log.h. */
#include "cli/daemon_log.h"

#include <poll.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/options.h"

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

static bool all_fields(const char *p)
{
    struct field f;
    for (;;) {
        p = take_field(p, &f);
        if (p == NULL || *p == '\0') {
            return p != NULL;
        }
        if (*p++ != ' ') {
            return false;
        }
    }
}

/* The first of the fields at the end of the message; its end if there are none. */
static const char *fields_of(const char *message)
{
    const char *p = message;
    while (*p != '\0') {
        if ((p == message || p[-1] == ' ') && all_fields(p)) {
            return p;
        }
        p++;
    }
    return p;
}

/* ---- bytes ----------------------------------------------------------------------------------- */

struct line {
    char *out;
    size_t len;
    bool json;
    bool utf8;
};

#define LINE_ROOM (LOG_LINE_MAX - 8u)
#define CLOSING_ROOM 64u /* room for the end of the line, in JSON */

static void put(struct line *l, const char *text, size_t len)
{
    size_t room = LINE_ROOM - l->len;
    len = len < room ? len : room;
    memcpy(l->out + l->len, text, len);
    l->len += len;
}

static void put_text(struct line *l, const char *text)
{
    put(l, text, strlen(text));
}

/* Length of the UTF-8 character at p; 0: there is none. Readers refuse overlong forms by
 * themselves. */
static size_t utf8_len(const unsigned char *p)
{
    size_t n = p[0] < 0x80                   ? 1
               : p[0] >= 0xc2 && p[0] < 0xe0 ? 2
               : p[0] >= 0xe0 && p[0] < 0xf0 ? 3
               : p[0] >= 0xf0 && p[0] < 0xf5 ? 4
                                             : 0;
    for (size_t i = 1; i < n; i++) {
        if ((p[i] & 0xc0) != 0x80) {
            return 0;
        }
    }
    return n;
}

static bool is_utf8(const char *text)
{
    const unsigned char *p = (const unsigned char *)text;
    while (*p != '\0') {
        size_t n = utf8_len(p);
        if (n == 0) {
            return false;
        }
        p += n;
    }
    return true;
}

static void put_byte(struct line *l, char c)
{
    char code[8];
    unsigned char u = (unsigned char)c;
    if (u < 0x20 || u == 0x7f || (u >= 0x80 && !l->utf8)) {
        /* JSON needs a backslash before that of \xNN */
        (void)snprintf(code, sizeof code, "%s\\x%02x", l->json ? "\\" : "", u);
        put_text(l, code);
    } else if (l->json && (c == '"' || c == '\\')) {
        code[0] = '\\';
        code[1] = c;
        put(l, code, 2);
    } else {
        put(l, &c, 1);
    }
}

/* Never cuts a character, so that a cut line stays UTF-8. */
static void put_bytes(struct line *l, const char *text, size_t len)
{
    for (size_t i = 0; i < len && l->len + CLOSING_ROOM <= LINE_ROOM;) {
        size_t n = l->utf8 ? utf8_len((const unsigned char *)text + i) : 1;
        for (size_t j = 0; j < n && i + j < len; j++) {
            put_byte(l, text[i + j]);
        }
        i += n > 0 ? n : 1;
    }
}

/* ---- lines ----------------------------------------------------------------------------------- */

static void put_time(struct line *l, uint64_t wall_ms)
{
    char text[40];
    struct tm utc;
    time_t seconds = (time_t)(wall_ms / 1000);
    FLI_ASSERT(wall_ms <= LOG_WALL_MAX_MS);
    if (gmtime_r(&seconds, &utc) == NULL) {
        memset(&utc, 0, sizeof utc);
    }
    size_t n = strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &utc);
    (void)snprintf(text + n, sizeof text - n, ".%03uZ", (unsigned)(wall_ms % 1000));
    put_text(l, text);
}

static void put_left_out(struct line *l, uint64_t left_out)
{
    char text[48];
    if (left_out > 0) {
        (void)snprintf(text, sizeof text, l->json ? ",\"left_out\":%llu" : " left_out=%llu",
                       (unsigned long long)left_out);
        put_text(l, text);
    }
}

static void put_plain(struct line *l, const struct log_entry_text *e)
{
    static const char *const colours[] = {"", "\033[31m", "\033[33m", "", "\033[2m"};
    char text[48];
    const char *colour = e->colours ? colours[e->level] : "";
    put_time(l, e->wall_ms);
    (void)snprintf(text, sizeof text, " %s%-7s%s %-8.16s ", colour, severity_word(e->level),
                   colour[0] != '\0' ? "\033[0m" : "", e->part);
    put_text(l, text);
    put_bytes(l, e->message, strlen(e->message));
    put_left_out(l, e->left_out);
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

static void put_value(struct line *l, const struct field *f)
{
    if (is_number(f)) {
        put(l, f->value, f->value_len);
        return;
    }
    put_text(l, "\"");
    for (size_t i = 0; i < f->value_len; i++) {
        bool escaped = f->quoted && f->value[i] == '\\' && i + 1 < f->value_len;
        size_t from = escaped ? ++i : i;
        size_t n = l->utf8 ? utf8_len((const unsigned char *)f->value + from) : 1;
        put_bytes(l, f->value + from, n);
        i = from + (n > 0 ? n : 1) - 1;
    }
    put_text(l, "\"");
}

static void put_json(struct line *l, const struct log_entry_text *e)
{
    const char *p = fields_of(e->message);
    size_t words = (size_t)(p - e->message);
    struct field f;
    put_text(l, "{\"time\":\"");
    put_time(l, e->wall_ms);
    put_text(l, "\",\"level\":\"");
    put_text(l, severity_word(e->level));
    put_text(l, "\",\"part\":\"");
    put_text(l, e->part);
    put_text(l, "\",\"message\":\"");
    put_bytes(l, e->message, words > 0 && *p != '\0' ? words - 1 : words);
    put_text(l, "\"");
    while (*p != '\0') {
        p = take_field(p, &f);
        FLI_ASSERT(p != NULL);
        if (l->len + f.key_len + 5 * f.value_len + 2 * CLOSING_ROOM > LINE_ROOM) {
            break; /* the line is whole without this field */
        }
        put_text(l, ",\"");
        put(l, f.key, f.key_len);
        put_text(l, "\":");
        put_value(l, &f);
        p += *p == ' ';
    }
    put_left_out(l, e->left_out);
    put_text(l, "}");
}

size_t log_format_line(char out[LOG_LINE_MAX], const struct log_entry_text *e)
{
    struct line l = {.out = out, .json = e->style == LOG_JSON, .utf8 = is_utf8(e->message)};
    FLI_ASSERT(e->level >= LOG_SEVERITY_ERROR && e->level <= LOG_SEVERITY_DEBUG);
    if (l.json) {
        put_json(&l, e);
    } else {
        put_plain(&l, e);
    }
    out[l.len++] = '\n';
    FLI_ASSERT(l.len <= LOG_LINE_MAX);
    return l.len;
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

static void write_line(struct daemon_log *l, struct log_entry_text *e)
{
    static const char *const priorities[] = {"", "<3>", "<4>", "<6>", "<7>"}; /* sd-daemon(3) */
    char line[LOG_LINE_MAX + 3];
    uint64_t wall_ms = fli_clock_wall_ms();
    e->wall_ms = wall_ms < LOG_WALL_MAX_MS ? wall_ms : LOG_WALL_MAX_MS;
    size_t before = l->journal ? 3 : 0;
    memcpy(line, priorities[e->level], before);
    size_t len = before + log_format_line(line + before, e);
    /* one write(), so that lines of several processes do not mix */
    (void)!write(STDERR_FILENO, line, len);
}

static void write_lost(struct daemon_log *l)
{
    char text[96];
    struct log_entry_text e = {.style = l->style,
                               .level = LOG_SEVERITY_WARNING,
                               .part = "daemon",
                               .message = text,
                               .colours = l->colours};
    (void)snprintf(text, sizeof text, "lines were lost: nobody read the log lines=%llu",
                   (unsigned long long)l->lost);
    l->lost = 0;
    write_line(l, &e);
}

void daemon_log_write(struct daemon_log *l, enum log_severity level, const char *part,
                      const char *message)
{
    struct log_entry_text e = {
        .style = l->style, .level = level, .part = part, .message = message, .colours = l->colours};
    if (level > l->level ||
        (!log_limit_allows(&l->limit, part, message, fli_clock_ms(), &e.left_out) &&
         level > LOG_SEVERITY_ERROR)) {
        return;
    }
    if (!can_write(l, level)) {
        l->lost++;
        return;
    }
    if (l->lost > 0) {
        write_lost(l);
    }
    write_line(l, &e);
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

void daemon_log_configure(struct daemon_log *l, enum log_severity level)
{
    if (level == l->configured) {
        return;
    }
    /* so that this line itself is written */
    l->level = level > LOG_SEVERITY_INFO ? level : LOG_SEVERITY_INFO;
    daemon_log_printf(l, LOG_SEVERITY_INFO, "daemon",
                      "CLUSTER CONFIG: the level of the log is changed level=%s",
                      severity_word(level));
    l->configured = l->level = level;
}

void daemon_log_toggle(struct daemon_log *l)
{
    enum log_severity usual =
        l->configured == LOG_SEVERITY_DEBUG ? LOG_SEVERITY_INFO : l->configured;
    enum log_severity next = l->level == LOG_SEVERITY_DEBUG ? usual : LOG_SEVERITY_DEBUG;
    l->level = next > LOG_SEVERITY_INFO
                   ? next
                   : LOG_SEVERITY_INFO; /* so that this line itself is written */
    daemon_log_printf(l, LOG_SEVERITY_INFO, "daemon",
                      "SIGUSR1: the level of the log is changed level=%s", severity_word(next));
    l->level = next;
}
