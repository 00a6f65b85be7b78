/* json.c: see json.h. */
#include "metrics/json.h"

#include <inttypes.h>

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

void json_text(struct json *j, const char *key, const char *v)
{
    put_key(j, key);
    if (v == NULL) {
        PUT(j, "null");
        return;
    }
    PUT(j, "\"");
    for (; *v != '\0' && j->rc == 0; v++) {
        unsigned char c = (unsigned char)*v;
        if (c < ' ' || c == '"' || c == '\\' || c == '<') {
            PUT(j, "\\u%04x", c);
        } else {
            PUT(j, "%c", c);
        }
    }
    PUT(j, "\"");
}

void json_bytes(struct json *j, const char *key, struct fli_slice v)
{
    put_key(j, key);
    PUT(j, "\"");
    for (size_t i = 0; i < v.len && j->rc == 0; i++) {
        uint8_t c = v.data[i];
        if (c <= ' ' || c > '~' || c == '%' || c == '"' || c == '\\' || c == '<') {
            PUT(j, "%%%02X", c);
        } else {
            PUT(j, "%c", c);
        }
    }
    PUT(j, "\"");
}
