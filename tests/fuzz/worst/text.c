/* text.c: cases as text. See worst.h. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "worst.h"

static const char *const names[WORST_KINDS] = {
    [WORST_ACQUIRE] = "acquire",
    [WORST_OPEN] = "open",
    [WORST_RENEW_SESSION] = "renew-session",
    [WORST_CLOSE] = "close",
    [WORST_RENEW] = "renew",
    [WORST_RELEASE] = "release",
    [WORST_CHECK] = "check",
    [WORST_BREAK] = "break",
    [WORST_TOKEN] = "token",
    [WORST_CANCEL] = "cancel",
    [WORST_KEYS] = "keys",
    [WORST_ANY_KEYS] = "any-keys",
    [WORST_REENTER] = "reenter",
    [WORST_LEAVE] = "leave",
    [WORST_USER] = "user",
    [WORST_TIME] = "time",
    [WORST_MARK] = "mark",
    [WORST_FLUSH] = "flush",
    [WORST_DRAIN] = "drain",
    [WORST_SHOW] = "show",
    [WORST_LOCKS] = "locks",
    [WORST_SESSION_SHOW] = "session-show",
    [WORST_SESSION_LIST] = "session-list",
    [WORST_KEY] = "key",
    [WORST_SUBSCRIBE] = "subscribe",
    [WORST_ENROLL] = "enroll",
    [WORST_USERS] = "users",
    [WORST_PATTERNS] = "patterns",
    [WORST_WORDS] = "words",
    [WORST_DISMISS] = "dismiss",
};

const char *worst_kind_name(unsigned kind)
{
    return kind < WORST_KINDS ? names[kind] : "none";
}

static bool parse_line(const char *line, struct worst_gene *ret)
{
    char kind[32];
    unsigned name = 0;
    unsigned owner = 0;
    unsigned how = 0;
    unsigned times = 0;
    int end = 0;
    if (sscanf(line, "%31s %u %u %u %u%n", kind, &name, &owner, &how, &times, &end) != 5 ||
        (line[end] != '\n' && line[end] != '\0') || name > UINT16_MAX || owner > UINT16_MAX ||
        how > UINT16_MAX || times > WORST_TIMES_MAX) {
        return false;
    }
    for (unsigned k = 0; k < WORST_KINDS; k++) {
        if (strcmp(kind, names[k]) == 0) {
            *ret = (struct worst_gene){.kind = (uint8_t)k,
                                       .name = (uint16_t)name,
                                       .owner = (uint16_t)owner,
                                       .how = (uint16_t)how,
                                       .times = (uint16_t)times};
            return true;
        }
    }
    return false;
}

bool worst_parse(const char *text, struct worst_case *ret, unsigned *ret_line)
{
    ret->n = 0;
    *ret_line = 0;
    while (*text != '\0') {
        const char *end = strchr(text, '\n');
        ++*ret_line;
        if (*text != '#' && *text != '\n') {
            if (ret->n == WORST_GENES_MAX || !parse_line(text, &ret->gene[ret->n])) {
                return false;
            }
            ret->n++;
        }
        if (end == NULL) {
            break;
        }
        text = end + 1;
    }
    return true;
}

size_t worst_print(const struct worst_case *c, char *out, size_t size)
{
    size_t len = 0;
    for (unsigned i = 0; i < c->n; i++) {
        const struct worst_gene *g = &c->gene[i];
        int n =
            snprintf(out + len, size - len, "%s %u %u %u %u\n", worst_kind_name(g->kind),
                     (unsigned)g->name, (unsigned)g->owner, (unsigned)g->how, (unsigned)g->times);
        if (n < 0 || (size_t)n >= size - len) {
            break;
        }
        len += (size_t)n;
    }
    return len;
}
