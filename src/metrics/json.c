/* json.c: see json.h. */
#include "metrics/json.h"

#include <inttypes.h>
#include <string.h>

#define PUT(j, ...)                                                                                \
    do {                                                                                           \
        if ((j)->rc == 0) {                                                                        \
            (j)->rc = fli_buf_printf((j)->out, __VA_ARGS__);                                       \
        }                                                                                          \
    } while (0)

void json_init(struct json *j, struct fli_buf *out)
{
    *j = (struct json){.out = out};
}

static void put_raw(struct json *j, const char *text, size_t len)
{
    j->rc = j->rc != 0 ? j->rc : fli_buf_append(j->out, text, len);
}

static void put_key(struct json *j, const char *key)
{
    PUT(j, j->comma ? "," : "");
    if (key != NULL) {
        PUT(j, "\"%s\":", key);
    }
    j->comma = true;
}

void json_open(struct json *j, const char *key, char bracket)
{
    FLI_ASSERT(bracket == '{' || bracket == '[');
    put_key(j, key);
    PUT(j, "%c", bracket);
    j->comma = false;
    j->depth++;
}

void json_close(struct json *j, char bracket)
{
    FLI_ASSERT((bracket == '}' || bracket == ']') && j->depth > 0);
    PUT(j, "%c", bracket);
    j->comma = true;
    j->depth--;
}

void json_number(struct json *j, const char *key, uint64_t v)
{
    put_key(j, key);
    PUT(j, "%" PRIu64, v);
}

void json_flag(struct json *j, const char *key, bool v)
{
    put_key(j, key);
    PUT(j, v ? "true" : "false");
}

/* Writes what stands for a byte that does not stand for itself; returns the length, or 0. */
#define ESCAPE_MAX 6u
typedef size_t escape_fn(uint8_t c, char out[ESCAPE_MAX]);

static size_t escape_of_text(uint8_t c, char out[ESCAPE_MAX])
{
    static const char begin[] = {'\\', 'u', '0', '0'};
    if (c >= ' ' && c != '"' && c != '\\' && c != '<') {
        return 0;
    }
    memcpy(out, begin, sizeof begin);
    out[4] = "0123456789abcdef"[c >> 4];
    out[5] = "0123456789abcdef"[c & 15];
    return 6;
}

static size_t escape_of_bytes(uint8_t c, char out[ESCAPE_MAX])
{
    if (c > ' ' && c <= '~' && c != '%' && c != '"' && c != '\\' && c != '<') {
        return 0;
    }
    out[0] = '%';
    out[1] = "0123456789ABCDEF"[c >> 4];
    out[2] = "0123456789ABCDEF"[c & 15];
    return 3;
}

/* A lock can have a page full of waiters, whose names are written here on the loop: so no byte
 * costs a printf. */
static void put_quoted(struct json *j, struct fli_slice v, escape_fn *escape)
{
    char text[256];
    size_t len = 0;
    text[len++] = '"';
    for (size_t i = 0; i < v.len; i++) {
        size_t escaped = escape(v.data[i], text + len);
        if (escaped == 0) {
            text[len++] = (char)v.data[i];
        }
        len += escaped;
        if (len > sizeof text - ESCAPE_MAX - 1) {
            put_raw(j, text, len);
            len = 0;
        }
    }
    text[len++] = '"';
    put_raw(j, text, len);
}

void json_text(struct json *j, const char *key, const char *v)
{
    put_key(j, key);
    if (v == NULL) {
        PUT(j, "null");
        return;
    }
    put_quoted(j, (struct fli_slice){(const uint8_t *)v, strlen(v)}, escape_of_text);
}

void json_bytes(struct json *j, const char *key, struct fli_slice v)
{
    put_key(j, key);
    put_quoted(j, v, escape_of_bytes);
}
