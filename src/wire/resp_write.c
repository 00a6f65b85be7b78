/* resp_write.c: the replies of resp.h. Each function first makes room for everything it writes, so
 * that it appends all or nothing. */
#include "wire/resp.h"

#include <stdarg.h>
#include <stdio.h>

#define NUMBER_MAX 24u /* type, sign, 20 digits, CR LF */
#define ERROR_MAX 1024u

/* Writes the digits of v so that they end before `end`; returns their beginning. */
static uint8_t *digits(uint8_t *end, uint64_t v)
{
    do {
        *--end = (uint8_t)('0' + v % 10);
        v /= 10;
    } while (v > 0);
    return end;
}

/* Appends "<type><number>\r\n" and reserves `more` bytes behind it. */
static int header(struct fli_buf *b, char type, bool negative, uint64_t v, size_t more)
{
    uint8_t text[NUMBER_MAX];
    uint8_t *end = text + sizeof text;
    end[-1] = '\n';
    end[-2] = '\r';
    uint8_t *p = digits(end - 2, v);
    if (negative) {
        *--p = '-';
    }
    *--p = (uint8_t)type;
    size_t len = (size_t)(end - p);
    if (more > SIZE_MAX - len) {
        return FL_ELIMIT;
    }
    int rc = fli_buf_reserve(b, len + more);
    if (FLI_UNLIKELY(rc != 0)) {
        return rc;
    }
    memcpy(b->data + b->len, p, len);
    b->len += len;
    return 0;
}

/* Room was made before. */
static void put(struct fli_buf *b, const void *data, size_t len)
{
    FLI_ASSERT(len <= b->cap - b->len);
    if (len > 0) {
        memcpy(b->data + b->len, data, len);
        b->len += len;
    }
}

static uint8_t one_line(char c)
{
    if (c == '\r' || c == '\n') {
        return ' ';
    }
    return (uint8_t)c < ' ' || c == 0x7f ? '?' : (uint8_t)c;
}

static void put_line(struct fli_buf *b, const char *text, size_t len)
{
    FLI_ASSERT(len <= b->cap - b->len);
    for (size_t i = 0; i < len; i++) {
        b->data[b->len++] = one_line(text[i]);
    }
}

int fli_resp_simple(struct fli_buf *b, const char *text)
{
    size_t len = strlen(text);
    int rc = fli_buf_reserve(b, len + 3);
    if (FLI_UNLIKELY(rc != 0)) {
        return rc;
    }
    put(b, "+", 1);
    put_line(b, text, len);
    put(b, "\r\n", 2);
    return 0;
}

int fli_resp_error(struct fli_buf *b, const char *word, const char *fmt, ...)
{
    char text[ERROR_MAX];
    va_list args;
    va_start(args, fmt);
    int n = vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    size_t len = n < 0 ? 0 : (size_t)n < sizeof text ? (size_t)n : sizeof text - 1;
    size_t word_len = strlen(word);
    int rc = fli_buf_reserve(b, word_len + len + 4);
    if (FLI_UNLIKELY(rc != 0)) {
        return rc;
    }
    put(b, "-", 1);
    put(b, word, word_len);
    put(b, " ", 1);
    put_line(b, text, len);
    put(b, "\r\n", 2);
    return 0;
}

int fli_resp_int(struct fli_buf *b, int64_t v)
{
    return header(b, ':', v < 0, v < 0 ? 0 - (uint64_t)v : (uint64_t)v, 0);
}

int fli_resp_u64(struct fli_buf *b, uint64_t v)
{
    FLI_ASSERT(v <= INT64_MAX);
    return header(b, ':', false, v, 0);
}

int fli_resp_bulk(struct fli_buf *b, const void *data, size_t len)
{
    if (len > SIZE_MAX - 2) {
        return FL_ELIMIT;
    }
    int rc = header(b, '$', false, len, len + 2);
    if (FLI_UNLIKELY(rc != 0)) {
        return rc;
    }
    put(b, data, len);
    put(b, "\r\n", 2);
    return 0;
}

int fli_resp_text(struct fli_buf *b, const char *text)
{
    return fli_resp_bulk(b, text, strlen(text));
}

int fli_resp_verbatim(struct fli_buf *b, int proto, const void *text, size_t len)
{
    if (proto < 3) {
        return fli_resp_bulk(b, text, len);
    }
    if (len > SIZE_MAX - 6) {
        return FL_ELIMIT;
    }
    int rc = header(b, '=', false, len + 4, len + 6);
    if (FLI_UNLIKELY(rc != 0)) {
        return rc;
    }
    put(b, "txt:", 4);
    put(b, text, len);
    put(b, "\r\n", 2);
    return 0;
}

int fli_resp_null(struct fli_buf *b, int proto)
{
    return proto < 3 ? fli_buf_append(b, "$-1\r\n", 5) : fli_buf_append(b, "_\r\n", 3);
}

int fli_resp_null_array(struct fli_buf *b, int proto)
{
    return proto < 3 ? fli_buf_append(b, "*-1\r\n", 5) : fli_buf_append(b, "_\r\n", 3);
}

int fli_resp_bool(struct fli_buf *b, int proto, bool v)
{
    if (proto < 3) {
        return fli_resp_int(b, v ? 1 : 0);
    }
    return fli_buf_append(b, v ? "#t\r\n" : "#f\r\n", 4);
}

int fli_resp_array(struct fli_buf *b, size_t n)
{
    return header(b, '*', false, n, 0);
}

int fli_resp_map(struct fli_buf *b, int proto, size_t pairs)
{
    FLI_ASSERT(pairs <= SIZE_MAX / 2);
    return proto < 3 ? header(b, '*', false, pairs * 2, 0) : header(b, '%', false, pairs, 0);
}

int fli_resp_set(struct fli_buf *b, int proto, size_t n)
{
    return header(b, proto < 3 ? '*' : '~', false, n, 0);
}

int fli_resp_push(struct fli_buf *b, int proto, size_t n)
{
    return header(b, proto < 3 ? '*' : '>', false, n, 0);
}
