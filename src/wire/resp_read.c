/* resp_read.c: the requests of resp.h.
 *
 * A request is "*N\r\n", then N times "$L\r\n", L bytes and "\r\n". `pos` is the start of the first
 * header line whose argument is not there as a whole. That line of at most 22 bytes is scanned
 * again when more has come, and the bytes of arguments never. So the cost is linear however the
 * bytes are cut.
 *
 * Failures. Framing that cannot be understood is BROKEN, for good. A request over a limit is
 * TOOBIG; then, with `skipping` set, the rest of it is skipped header by header and not kept. */
#include "wire/resp.h"

#define DIGITS_MAX 19u /* of a length: they fit into 64 bits */

enum line { LINE_OK, LINE_MORE, LINE_BAD };

void fli_resp_parser_init(struct fli_resp_parser *p, struct fli_resp_limits limits)
{
    FLI_ASSERT(limits.arg_max > 0);
    FLI_ASSERT(limits.request_max > 0);
    FLI_ASSERT(limits.request_max <= UINT32_MAX); /* places of arguments are kept in 32 bits */
    p->limits = limits;
    p->argc = 0;
    p->error = NULL;
    p->pos = 0;
    p->size = 0;
    p->args_left = -1;
    p->skip_left = 0;
    p->found = 0;
    p->skipping = false;
    p->broken = false;
}

static enum fli_resp_status broken(struct fli_resp_parser *p, const char *error)
{
    p->broken = true;
    p->error = error;
    return FLI_RESP_BROKEN;
}

/* Everything up to pos is parsed; the caller must consume it. */
static enum fli_resp_status found(struct fli_resp_parser *p, enum fli_resp_status status)
{
    FLI_ASSERT(p->pos > 0);
    p->size = p->pos;
    return status;
}

static enum fli_resp_status too_big(struct fli_resp_parser *p, const char *error)
{
    p->skipping = true;
    p->error = error;
    return found(p, FLI_RESP_TOOBIG);
}

size_t fli_resp_consume(struct fli_resp_parser *p)
{
    FLI_ASSERT(p->size > 0);
    size_t size = p->size;
    p->size = 0;
    p->pos = 0;
    p->argc = 0;
    p->found = 0;
    if (!p->skipping) {
        p->args_left = -1;
    }
    return size;
}

/* Reads "<type><number>\r\n", of which the first `skip` bytes were checked, at *pos, and moves *pos
 * behind it. */
static enum line read_header(const uint8_t *data, size_t len, size_t skip, size_t *pos,
                             uint64_t *ret)
{
    size_t i = *pos + skip;
    size_t start = i;
    uint64_t v = 0;
    for (; i < len && (uint8_t)(data[i] - '0') <= 9; i++) {
        if (i - start == DIGITS_MAX - 1) {
            return LINE_BAD;
        }
        v = v * 10 + (uint64_t)(data[i] - '0');
    }
    if (i == len) {
        return LINE_MORE;
    }
    if (i == start || data[i] != '\r') {
        return LINE_BAD;
    }
    if (i + 1 == len) {
        return LINE_MORE;
    }
    if (data[i + 1] != '\n') {
        return LINE_BAD;
    }
    *ret = v;
    *pos = i + 2;
    return LINE_OK;
}

static const char bad_array[] = "Protocol error: invalid multibulk length; a request begins with "
                                "*<number of arguments> and CR LF";
static const char bad_arg[] = "Protocol error: expected '$', the length of an argument in bytes, "
                              "and CR LF";
static const char bad_end[] = "Protocol error: an argument is not followed by CR LF; its length is "
                              "wrong";
static const char too_many[] = "too many arguments: a request may have 256";
static const char too_long_arg[] = "an argument is longer than this server accepts";
static const char too_long[] = "the request is longer than this server accepts";

/* Reads the header of an argument at *pos, as read_header(). LINE_OK: *ret is its length. */
static enum line read_arg_header(const uint8_t *data, size_t len, size_t *pos, uint64_t *ret)
{
    if (*pos == len) {
        return LINE_MORE;
    }
    if (data[*pos] != '$') {
        return LINE_BAD;
    }
    enum line line = read_header(data, len, 1, pos, ret);
    return line == LINE_OK && *ret > FLI_RESP_SKIP_ARG_MAX ? LINE_BAD : line;
}

/* Skips the argument being discarded, of which skip_left bytes are still to come, with CR and LF.
 * False when those two are not there. */
static bool skip_arg(struct fli_resp_parser *p, const uint8_t *data, size_t len)
{
    if (p->skip_left > 2) {
        uint64_t here = len - p->pos;
        uint64_t n = p->skip_left - 2 < here ? p->skip_left - 2 : here;
        p->pos += (size_t)n;
        p->skip_left -= n;
    }
    for (; p->skip_left > 0 && p->skip_left <= 2 && p->pos < len; p->skip_left--, p->pos++) {
        if (data[p->pos] != (p->skip_left == 2 ? '\r' : '\n')) {
            return false;
        }
    }
    return true;
}

/* Discards what has come of an oversized request. EMPTY while there is something to consume. */
static enum fli_resp_status skip(struct fli_resp_parser *p, const uint8_t *data, size_t len)
{
    for (;;) {
        if (!skip_arg(p, data, len)) {
            return broken(p, bad_end);
        }
        if (p->skip_left > 0) {
            break;
        }
        if (p->args_left == 0) {
            p->skipping = false;
            break;
        }
        uint64_t size = 0;
        enum line line = read_arg_header(data, len, &p->pos, &size);
        if (line == LINE_BAD) {
            return broken(p, bad_arg);
        }
        if (line == LINE_MORE) {
            break;
        }
        p->skip_left = size + 2;
        p->args_left--;
    }
    return p->pos == 0 ? FLI_RESP_MORE : found(p, FLI_RESP_EMPTY);
}

static enum fli_resp_status read_args(struct fli_resp_parser *p, const uint8_t *data, size_t len)
{
    while (p->args_left > 0) {
        size_t at = p->pos;
        uint64_t size = 0;
        enum line line = read_arg_header(data, len, &at, &size);
        if (line != LINE_OK) {
            return line == LINE_MORE ? FLI_RESP_MORE : broken(p, bad_arg);
        }
        bool long_arg = size > p->limits.arg_max;
        if (long_arg || at + size + 2 > p->limits.request_max) {
            p->pos = at;
            p->skip_left = size + 2;
            p->args_left--;
            return too_big(p, long_arg ? too_long_arg : too_long);
        }
        if (len - at < size + 2) {
            return FLI_RESP_MORE;
        }
        const uint8_t *end = data + at + size;
        if (end[0] != '\r' || end[1] != '\n') {
            return broken(p, bad_end);
        }
        p->offsets[p->found] = (uint32_t)at;
        p->lengths[p->found] = (uint32_t)size;
        p->pos = at + (size_t)size + 2;
        p->found++;
        p->args_left--;
    }
    for (unsigned i = 0; i < p->found; i++) {
        p->argv[i] = (struct fli_slice){data + p->offsets[i], p->lengths[i]};
    }
    p->argc = p->found;
    return found(p, FLI_RESP_REQUEST);
}

static enum fli_resp_status read_array(struct fli_resp_parser *p, const uint8_t *data, size_t len)
{
    uint64_t n = 0;
    bool negative = len > 1 && data[1] == '-'; /* any of them means no array */
    enum line line = read_header(data, len, negative ? 2 : 1, &p->pos, &n);
    if (line == LINE_MORE) {
        return FLI_RESP_MORE;
    }
    if (line == LINE_BAD || (n > FLI_RESP_SKIP_ARGS_MAX && !negative)) {
        return broken(p, bad_array);
    }
    if (n == 0 || negative) {
        return found(p, FLI_RESP_EMPTY);
    }
    p->args_left = (int64_t)n;
    if (n > FLI_RESP_ARGS_MAX) {
        return too_big(p, too_many);
    }
    return read_args(p, data, len);
}

static bool is_blank(uint8_t c)
{
    return c == ' ' || c == '\t';
}

/* A web page can make a browser post any text to a port on its own machine. HTTP's header lines
 * around that text reveal it; Redis checks the same. */
static bool looks_like_http(const struct fli_resp_parser *p)
{
    const struct fli_slice *first = &p->argv[0];
    const struct fli_slice *last = &p->argv[p->argc - 1];
    if (first->len == 5 && (first->data[0] | 0x20) == 'h' &&
        memcmp(first->data + 1, "ost:", 4) == 0) {
        return true;
    }
    return p->argc == 3 && last->len >= 5 && memcmp(last->data, "HTTP/", 5) == 0;
}

/* Splits the line data[0..len) into words. */
static enum fli_resp_status split_line(struct fli_resp_parser *p, const uint8_t *data, size_t len)
{
    const char *error = NULL;
    p->argc = 0;
    size_t i = 0;
    while (error == NULL) {
        while (i < len && is_blank(data[i])) {
            i++;
        }
        if (i == len) {
            break;
        }
        size_t start = i;
        while (i < len && !is_blank(data[i])) {
            i++;
        }
        if (p->argc == FLI_RESP_ARGS_MAX) {
            error = too_many;
        } else if (i - start > p->limits.arg_max) {
            error = too_long_arg;
        } else {
            p->argv[p->argc++] = (struct fli_slice){data + start, i - start};
        }
    }
    if (error != NULL) {
        p->error = error;
        return found(p, FLI_RESP_TOOBIG);
    }
    if (p->argc == 0) {
        return found(p, FLI_RESP_EMPTY);
    }
    if (looks_like_http(p)) {
        return broken(p, "Protocol error: this is not a web server; it speaks the Redis protocol");
    }
    return found(p, FLI_RESP_REQUEST);
}

static enum fli_resp_status read_line(struct fli_resp_parser *p, const uint8_t *data, size_t len)
{
    size_t max =
        p->limits.request_max < FLI_RESP_INLINE_MAX ? p->limits.request_max : FLI_RESP_INLINE_MAX;
    const uint8_t *end = memchr(data + p->pos, '\n', len - p->pos);
    size_t line_len = end == NULL ? len : (size_t)(end - data);
    if (line_len > 0 && data[line_len - 1] == '\r') {
        line_len--;
    }
    if (line_len > max) {
        return broken(p, "Protocol error: too big inline request; a line may have 4096 bytes");
    }
    if (end == NULL) {
        p->pos = len;
        return FLI_RESP_MORE;
    }
    p->pos = (size_t)(end - data) + 1;
    return split_line(p, data, line_len);
}

enum fli_resp_status fli_resp_next(struct fli_resp_parser *p, const uint8_t *data, size_t len)
{
    FLI_ASSERT(p->size == 0); /* the last request was consumed */
    FLI_ASSERT(p->pos <= len);
    if (p->broken) {
        return FLI_RESP_BROKEN;
    }
    if (len == 0) {
        return FLI_RESP_MORE;
    }
    if (p->skipping) {
        return skip(p, data, len);
    }
    if (p->args_left >= 0) {
        return read_args(p, data, len);
    }
    uint8_t c = data[0];
    if (c == '*') {
        return read_array(p, data, len);
    }
    bool text = (c > ' ' && c < 0x7f) || is_blank(c) || c == '\r' || c == '\n';
    if (!text) { /* perhaps a TLS hello: an error now is better than a time-out later */
        return broken(p, "Protocol error: a request begins with '*' or is a line of plain text");
    }
    return read_line(p, data, len);
}
