/* monitor.c: see monitor.h. A line is: seconds, [database address] or [database lua], then words in
 * quotes, with \n \r \t \a \b \" \\ and \xNN for what cannot be printed. */
#include "frontdoor/monitor.h"

#include <stdio.h>
#include <string.h>

#include "base/bytes.h"

/* Reads what follows a backslash. NULL when it is no valid escape. */
static const uint8_t *read_escape(const uint8_t *p, const uint8_t *end, uint8_t *ret)
{
    static const char letters[] = "nrtab\"\\";
    static const char bytes[] = "\n\r\t\a\b\"\\";
    if (p == end) {
        return NULL;
    }
    if (*p == 'x' && end - p >= 3 && fli_hex_digit(p[1]) >= 0 && fli_hex_digit(p[2]) >= 0) {
        *ret = (uint8_t)(fli_hex_digit(p[1]) << 4 | fli_hex_digit(p[2]));
        return p + 3;
    }
    const char *at = *p == '\0' ? NULL : strchr(letters, *p);
    if (at == NULL) {
        return NULL;
    }
    *ret = (uint8_t)bytes[at - letters];
    return p + 1;
}

/* Reads a word behind its opening quote; NULL when the word does not end. */
static const uint8_t *read_word(const uint8_t *p, const uint8_t *end, uint8_t *room,
                                size_t *ret_len)
{
    size_t n = 0;
    while (p != NULL && p < end && *p != '"') {
        if (*p == '\\') {
            p = read_escape(p + 1, end, &room[n++]);
        } else {
            room[n++] = *p++;
        }
    }
    *ret_len = n;
    return p == NULL || p == end ? NULL : p + 1;
}

bool frontdoor_monitor_read(struct fli_slice line, uint8_t *room, struct frontdoor_monitored *ret)
{
    const uint8_t *end = line.data + line.len;
    const uint8_t *open = line.len == 0 ? NULL : memchr(line.data, '[', line.len);
    const uint8_t *close = open == NULL ? NULL : memchr(open, ']', (size_t)(end - open));
    if (close == NULL) {
        return false;
    }
    *ret = (struct frontdoor_monitored){.n = 0};
    ret->script = close - open >= 4 && memcmp(close - 4, " lua", 4) == 0;
    for (const uint8_t *p = close + 1; p < end;) {
        size_t len = 0;
        if (end - p < 2 || p[0] != ' ' || p[1] != '"') {
            return false;
        }
        p = read_word(p + 2, end, room, &len);
        if (p == NULL) {
            return false;
        }
        if (ret->n < FLI_RESP_ARGS_MAX) {
            ret->words[ret->n++] = (struct fli_slice){room, len};
        }
        room += len;
    }
    return ret->n > 0;
}

static bool runs_script(const struct frontdoor_monitored *m)
{
    return frontdoor_is_word(m->words[0], "EVAL") || frontdoor_is_word(m->words[0], "EVALSHA");
}

struct fli_slice frontdoor_monitor_key(const struct frontdoor_monitored *m)
{
    static const char *const none[] = {"AUTH", "CLIENT", "COMMAND", "CONFIG", "ECHO",     "HELLO",
                                       "INFO", "PING",   "QUIT",    "SCRIPT", "SENTINEL", "SELECT"};
    for (size_t i = 0; i < sizeof none / sizeof none[0]; i++) {
        if (frontdoor_is_word(m->words[0], none[i])) {
            return (struct fli_slice){NULL, 0};
        }
    }
    unsigned at = runs_script(m) ? 3 : 1;
    return at < m->n ? m->words[at] : (struct fli_slice){NULL, 0};
}

/* Writes "release", or the SHA-1 of a script that is no form. */
static void name_script(const struct frontdoor_context *c, const struct frontdoor_monitored *m,
                        struct frontdoor_verdict *ret)
{
    uint8_t sha1[FLI_SHA1_SIZE];
    char text[FLI_SHA1_HEX + 1] = "";
    const struct frontdoor_form *f = NULL;
    bool named = true;
    if (frontdoor_is_word(m->words[0], "EVAL")) {
        f = frontdoor_scripts_load(c->scripts, m->words[1], sha1);
    } else {
        named = fli_sha1_parse(m->words[1], sha1);
        f = named ? frontdoor_scripts_find(c->scripts, sha1) : NULL;
    }
    if (named) {
        fli_sha1_text(sha1, text);
    }
    (void)snprintf(ret->what, sizeof ret->what, "script %s", f != NULL ? f->name : text);
}

static void check_keys(const struct frontdoor_context *c, const struct fli_command *command,
                       const struct frontdoor_monitored *m, unsigned words,
                       struct frontdoor_verdict *ret)
{
    struct frontdoor_request unused;
    if (runs_script(m)) {
        name_script(c, m, ret);
    }
    if (command->id == FLI_CMD_SCRIPT_LOAD) {
        uint8_t sha1[FLI_SHA1_SIZE];
        ret->served = frontdoor_scripts_load(c->scripts, m->words[words], sha1) != NULL;
        if (!ret->served) {
            char text[FLI_SHA1_HEX + 1];
            fli_sha1_text(sha1, text);
            (void)snprintf(ret->why, sizeof ret->why, "script %s is none of those that are served",
                           text);
        }
        return;
    }
    if (command->id == FLI_CMD_SENTINEL ||
        frontdoor_is_local(command->id, m->words + words, m->n - words)) {
        ret->served = true;
        return;
    }
    int rc =
        frontdoor_request_parse(c, command->id, m->words + words, m->n - words, &unused, ret->why);
    ret->served = rc == 0;
    if (rc == FL_ENOTFOUND) {
        (void)snprintf(ret->why, sizeof ret->why,
                       "its text was not seen; look at what loads it, or name it in a file of "
                       "aliases");
    }
}

void frontdoor_monitor_check(const struct frontdoor_context *c, const struct frontdoor_monitored *m,
                             struct frontdoor_verdict *ret)
{
    const struct fli_command *command = NULL;
    unsigned words = 0;
    FLI_ASSERT(m->n > 0);
    *ret = (struct frontdoor_verdict){.served = false};
    int rc = fli_command_lookup(FLI_SERVICE_LOCK, m->words, m->n, &command, &words, ret->why,
                                sizeof ret->why);
    if (rc != 0) {
        size_t len = m->words[0].len < 32 ? m->words[0].len : 32;
        for (size_t i = 0; i < len; i++) {
            uint8_t b = m->words[0].data[i];
            b = b >= 'a' && b <= 'z' ? (uint8_t)(b - ('a' - 'A')) : b;
            ret->what[i] = b > ' ' && b < 0x7f ? (char)b : '?';
        }
        return;
    }
    (void)snprintf(ret->what, sizeof ret->what, "%s%s%s", command->name,
                   command->subcommand == NULL ? "" : " ",
                   command->subcommand == NULL ? "" : command->subcommand);
    if ((command->flags & FLI_CMD_FRONTDOOR) != 0) {
        check_keys(c, command, m, words, ret);
    } else {
        ret->served = true;
    }
}
