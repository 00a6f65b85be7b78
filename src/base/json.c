/* json.c: see json.h. */
#include "base/json.h"

#include <inttypes.h>
#include <string.h>

#include "base/escape.h"

#define PUT(j, ...)                                                                                \
    do {                                                                                           \
        if ((j)->rc == 0) {                                                                        \
            (j)->rc = fli_buf_printf((j)->out, __VA_ARGS__);                                       \
        }                                                                                          \
    } while (0)

void fli_json_init(struct fli_json *j, struct fli_buf *out)
{
    *j = (struct fli_json){.out = out};
}

static void put_raw(struct fli_json *j, const char *text, size_t len)
{
    j->rc = j->rc != 0 ? j->rc : fli_buf_append(j->out, text, len);
}

static void put_key(struct fli_json *j, const char *key)
{
    PUT(j, j->comma ? "," : "");
    if (key != NULL) {
        PUT(j, "\"%s\":", key);
    }
    j->comma = true;
}

/* ---- structure and numbers ------------------------------------------------------------------- */

static void descend(struct fli_json *j, const char *key, const char *bracket)
{
    put_key(j, key);
    put_raw(j, bracket, 1);
    j->comma = false;
    j->depth++;
}

static void ascend(struct fli_json *j, const char *bracket)
{
    FLI_ASSERT(j->depth > 0);
    put_raw(j, bracket, 1);
    j->comma = true;
    j->depth--;
}

void fli_json_object(struct fli_json *j, const char *key)
{
    descend(j, key, "{");
}

void fli_json_end_object(struct fli_json *j)
{
    ascend(j, "}");
}

void fli_json_array(struct fli_json *j, const char *key)
{
    descend(j, key, "[");
}

void fli_json_end_array(struct fli_json *j)
{
    ascend(j, "]");
}

void fli_json_u64(struct fli_json *j, const char *key, uint64_t v)
{
    put_key(j, key);
    PUT(j, "%" PRIu64, v);
}

void fli_json_bool(struct fli_json *j, const char *key, bool v)
{
    put_key(j, key);
    PUT(j, v ? "true" : "false");
}

void fli_json_null(struct fli_json *j, const char *key)
{
    put_key(j, key);
    PUT(j, "null");
}

/* ---- texts ----------------------------------------------------------------------------------- */

/* Takes the character or byte at p: writes what stands for it, and says how long that is. Returns
 * how many bytes it has taken. */
#define STANDS_MAX 6u
typedef size_t take_fn(const uint8_t *p, size_t left, char out[STANDS_MAX], size_t *ret_len);

static size_t put_code(uint32_t code, char out[STANDS_MAX])
{
    static const char hex[] = "0123456789abcdef";
    out[0] = '\\';
    out[1] = 'u';
    for (unsigned i = 0; i < 4; i++) {
        out[2 + i] = hex[code >> (12 - 4 * i) & 15];
    }
    return 6;
}

/* The number of a character of at most three bytes. */
static uint32_t code_of(const uint8_t *p, size_t n)
{
    FLI_ASSERT(n <= 3);
    return n == 1   ? p[0]
           : n == 2 ? (uint32_t)(p[0] & 0x1f) << 6 | (p[1] & 0x3f)
                    : (uint32_t)(p[0] & 0x0f) << 12 | (uint32_t)(p[1] & 0x3f) << 6 | (p[2] & 0x3f);
}

static size_t take_text(const uint8_t *p, size_t left, char out[STANDS_MAX], size_t *ret_len)
{
    size_t n = fli_utf8_len(p, left);
    if (n == 0) {
        *ret_len = put_code(0xfffd, out);
        return 1;
    }
    if (p[0] == '"' || p[0] == '\\') {
        out[0] = '\\';
        out[1] = (char)p[0];
        *ret_len = 2;
    } else if (p[0] == '<' || fli_shown_len(p, left) == 0) { /* a page may have it in its source */
        *ret_len = put_code(code_of(p, n), out);
    } else {
        memcpy(out, p, n);
        *ret_len = n;
    }
    return n;
}

static size_t take_percent(const uint8_t *p, size_t left, char out[STANDS_MAX], size_t *ret_len)
{
    static const char hex[] = "0123456789ABCDEF";
    uint8_t c = p[0];
    bool stands = c > ' ' && c <= '~' && c != '%' && c != '"' && c != '\\' && c != '<';
    out[0] = stands ? (char)c : '%';
    out[1] = hex[c >> 4];
    out[2] = hex[c & 15];
    *ret_len = stands ? 1 : 3;
    return 1;
}

static size_t take_latin1(const uint8_t *p, size_t left, char out[STANDS_MAX], size_t *ret_len)
{
    if (p[0] < 0x80) {
        return take_text(p, 1, out, ret_len);
    }
    *ret_len = put_code(p[0], out);
    return 1;
}

/* A lock can have a page full of waiters, whose names are written here on the loop: so no byte
 * costs a call of the buffer. */
static void put_string(struct fli_json *j, const uint8_t *p, size_t len, take_fn *take)
{
    char text[256];
    size_t n = 0;
    text[n++] = '"';
    for (size_t i = 0; i < len;) {
        size_t stands = 0;
        i += take(p + i, len - i, text + n, &stands);
        if (j->stop != 0 && j->out->len + n + stands > j->stop) {
            break;
        }
        n += stands;
        if (n > sizeof text - STANDS_MAX - 1) {
            put_raw(j, text, n);
            n = 0;
        }
    }
    text[n++] = '"';
    put_raw(j, text, n);
}

void fli_json_text_len(struct fli_json *j, const char *key, const void *v, size_t len)
{
    put_key(j, key);
    put_string(j, v, len, take_text);
}

void fli_json_text(struct fli_json *j, const char *key, const char *v)
{
    if (v == NULL) {
        fli_json_null(j, key);
    } else {
        fli_json_text_len(j, key, v, strlen(v));
    }
}

static void put_base64(struct fli_json *j, const uint8_t *p, size_t len)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    put_raw(j, "\"", 1);
    for (size_t i = 0; i < len; i += 3) {
        size_t left = len - i;
        uint32_t v = (uint32_t)p[i] << 16;
        v |= left > 1 ? (uint32_t)p[i + 1] << 8 : 0;
        v |= left > 2 ? (uint32_t)p[i + 2] : 0;
        const char four[4] = {digits[v >> 18], digits[(v >> 12) & 63],
                              left > 1 ? digits[(v >> 6) & 63] : '=',
                              left > 2 ? digits[v & 63] : '='};
        put_raw(j, four, sizeof four);
    }
    put_raw(j, "\"", 1);
}

void fli_json_bytes(struct fli_json *j, const char *key, struct fl_bytes v)
{
    fli_json_text_len(j, key, v.data, v.len);
    if (key != NULL && !fli_is_utf8(v.data, v.len)) {
        PUT(j, ",\"%s_base64\":", key);
        put_base64(j, v.data, v.len);
    }
}

void fli_json_percent(struct fli_json *j, const char *key, struct fli_slice v)
{
    put_key(j, key);
    put_string(j, v.data, v.len, take_percent);
}

void fli_json_latin1(struct fli_json *j, const char *key, struct fli_slice v)
{
    put_key(j, key);
    put_string(j, v.data, v.len, take_latin1);
}
