/* bytes.c: numbers in text and the bounded reader; see bytes.h. */
#include "base/bytes.h"

#include <string.h>

bool fli_parse_u64(const void *text, size_t len, uint64_t max, uint64_t *ret)
{
    const uint8_t *p = text;
    if (len == 0) {
        return false;
    }
    uint64_t v = 0;
    for (size_t i = 0; i < len; i++) {
        uint64_t digit = (uint64_t)p[i] - '0';
        if (digit > 9) { /* What stands below '0' wraps around to a large number. */
            return false;
        }
        if (v > max / 10 || digit > max - v * 10) {
            return false;
        }
        v = v * 10 + digit;
    }
    *ret = v;
    return true;
}

bool fli_percent_decode(const char *from, size_t len, char *to, size_t *ret_len)
{
    size_t n = 0;
    for (size_t i = 0; i < len; i++) {
        char c = from[i];
        if (c == '%') {
            int high = len - i > 2 ? fli_hex_digit((uint8_t)from[i + 1]) : -1;
            int low = len - i > 2 ? fli_hex_digit((uint8_t)from[i + 2]) : -1;
            if (high < 0 || low < 0) {
                return false;
            }
            c = (char)(unsigned char)(high * 16 + low);
            i += 2;
        }
        to[n++] = c;
    }
    *ret_len = n;
    return true;
}

bool fli_parse_duration(const char *text, uint64_t *ret_ms)
{
    static const struct {
        const char *unit;
        uint64_t ms;
    } units[] = {{"", 1}, {"ms", 1}, {"s", 1000}, {"m", 60000}, {"h", 3600000}};
    size_t digits = strspn(text, "0123456789");
    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++) {
        uint64_t v;
        if (strcmp(text + digits, units[i].unit) == 0 &&
            fli_parse_u64(text, digits, UINT64_MAX / units[i].ms, &v)) {
            *ret_ms = v * units[i].ms;
            return true;
        }
    }
    return false;
}

const char *fli_comment_of(const char *start, const char *end)
{
    const char *p = start;
    while (p < end && (*p != '#' || (p > start && p[-1] != ' ' && p[-1] != '\t'))) {
        p++;
    }
    return p;
}
