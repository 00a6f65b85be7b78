/* aliases.c: the operator's file of aliases: each line names the form of a script by the script's
 * SHA-1. */
#include <stdio.h>
#include <string.h>

#include "base/bytes.h"
#include "frontdoor/scripts.h"

struct reader {
    struct frontdoor_scripts *scripts;
    unsigned line;
    char *errmsg;
    size_t errmsg_size;
};

static struct fli_slice trim(const uint8_t *p, const uint8_t *end)
{
    while (p < end && (*p == ' ' || *p == '\t')) {
        p++;
    }
    while (end > p && (end[-1] == ' ' || end[-1] == '\t' || end[-1] == '\r')) {
        end--;
    }
    return (struct fli_slice){p, (size_t)(end - p)};
}

static int wrong(struct reader *r, const char *what)
{
    (void)snprintf(r->errmsg, r->errmsg_size, "line %u: %s", r->line, what);
    return FL_EINVAL;
}

static int wrong_form(struct reader *r)
{
    size_t len = 0;
    int n =
        snprintf(r->errmsg, r->errmsg_size, "line %u: there is no such form; there are: ", r->line);
    for (size_t i = 0; n >= 0 && (size_t)n < r->errmsg_size - len && i < frontdoor_forms_len; i++) {
        len += (size_t)n;
        n = snprintf(r->errmsg + len, r->errmsg_size - len, "%s%s", i == 0 ? "" : ", ",
                     frontdoor_forms[i].name);
    }
    return FL_EINVAL;
}

static int read_line(struct reader *r, const uint8_t *p, const uint8_t *end)
{
    uint8_t sha1[FLI_SHA1_SIZE];
    struct fli_slice line =
        trim(p, (const uint8_t *)fli_comment_of((const char *)p, (const char *)end));
    if (line.len == 0) {
        return 0;
    }
    const uint8_t *equals = memchr(line.data, '=', line.len);
    if (equals == NULL) {
        return wrong(r, "write `sha1 = form`");
    }
    if (!fli_sha1_parse(trim(line.data, equals), sha1)) {
        return wrong(r, "write the SHA-1 of a script, 40 hex digits, in front of =");
    }
    const struct frontdoor_form *form = frontdoor_form_find(trim(equals + 1, line.data + line.len));
    if (form == NULL) {
        return wrong_form(r);
    }
    if (frontdoor_scripts_is_text(r->scripts, sha1)) {
        return wrong(r, "this script has a form already");
    }
    return frontdoor_scripts_add_alias(r->scripts, sha1, form)
               ? 0
               : wrong(r, "there are more than 256 aliases");
}

int frontdoor_scripts_alias(struct frontdoor_scripts *s, struct fli_slice text, char *errmsg,
                            size_t errmsg_size)
{
    struct reader r = {.scripts = s, .errmsg = errmsg, .errmsg_size = errmsg_size};
    const uint8_t *p = text.data;
    const uint8_t *end = text.data + text.len;
    while (text.len > 0 && p < end) {
        const uint8_t *feed = memchr(p, '\n', (size_t)(end - p));
        const uint8_t *line_end = feed == NULL ? end : feed;
        r.line++;
        int rc = read_line(&r, p, line_end);
        if (rc != 0) {
            return rc;
        }
        p = feed == NULL ? end : feed + 1;
    }
    return 0;
}
