/* glob.c: see glob.h. The match backtracks only to the last star met: whatever an earlier star
 * could match differently, the last one can make up for. So there is no recursion, and the cost is
 * at most pattern times text. */
#include "machine/glob.h"

/* Matches one byte against the set that begins behind `[` at *ret_next, which moves behind `]`.
 * *ret_closed: whether there is a `]`; without one, *ret_next stays. */
static bool match_set(struct fli_slice pattern, size_t *ret_next, uint8_t byte, bool *ret_closed)
{
    size_t i = *ret_next;
    bool negated = i < pattern.len && pattern.data[i] == '^';
    i += negated;
    bool found = false;
    *ret_closed = false;
    for (bool first = true; i < pattern.len; first = false) {
        if (pattern.data[i] == ']' && !first) {
            *ret_closed = true;
            *ret_next = i + 1;
            return found != negated;
        }
        i += pattern.data[i] == '\\' && i + 1 < pattern.len;
        uint8_t low = pattern.data[i++];
        uint8_t high = low;
        if (i + 1 < pattern.len && pattern.data[i] == '-' && pattern.data[i + 1] != ']') {
            i++;
            i += pattern.data[i] == '\\' && i + 1 < pattern.len;
            high = pattern.data[i++];
        }
        found = found || (low <= byte && byte <= high) || (high <= byte && byte <= low);
    }
    return false;
}

/* Matches one byte against the element at *ret_next, which is not a star, and moves behind it. */
static bool match_one(struct fli_slice pattern, size_t *ret_next, uint8_t byte, uint64_t *steps)
{
    size_t i = *ret_next;
    uint8_t c = pattern.data[i++];
    if (c == '?') {
        *ret_next = i;
        return true;
    }
    if (c == '[') {
        bool closed = false;
        size_t next = i;
        bool match = match_set(pattern, &next, byte, &closed);
        *steps += (closed ? next : pattern.len) - i;
        if (closed) {
            *ret_next = next;
            return match;
        }
    }
    if (c == '\\' && i < pattern.len) {
        c = pattern.data[i++];
    }
    *ret_next = i;
    return c == byte;
}

bool machine_glob_match(struct fli_slice pattern, struct fli_slice text, uint64_t *steps)
{
    size_t p = 0;
    size_t t = 0;
    bool star = false;
    size_t star_p = 0; /* behind the last star */
    size_t star_t = 0; /* where the text continues behind the bytes matched by that star */
    while (t < text.len) {
        ++*steps;
        if (p < pattern.len && pattern.data[p] == '*') {
            star = true;
            star_p = ++p;
            star_t = t;
        } else if (p < pattern.len && match_one(pattern, &p, text.data[t], steps)) {
            t++;
        } else if (star) {
            p = star_p;
            t = ++star_t;
        } else {
            return false;
        }
    }
    while (p < pattern.len && pattern.data[p] == '*') {
        p++;
        ++*steps;
    }
    return p == pattern.len;
}
