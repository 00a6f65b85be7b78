/* json.h: writes JSON for the status page: objects, arrays, numbers, texts. Pure.
 *
 * Names and owners are any bytes. json_bytes() writes each byte that is not visible ASCII, and `%`,
 * as %XX, as events do. The page decodes it like a URL and sends it back unchanged. The first
 * failure of the buffer is kept, and everything after it is left out. */
#ifndef METRICS_JSON_H
#define METRICS_JSON_H

#include <stdbool.h>

#include "base/buf.h"

struct json {
    struct fli_buf *out;
    bool comma; /* the next value needs a comma in front */
    unsigned depth;
    int rc; /* 0, FL_ELIMIT, FL_ENOMEM */
};

void json_init(struct json *j, struct fli_buf *out);

/* key: NULL inside an array and at the top. */
void json_open(struct json *j, const char *key, char bracket); /* '{' or '[' */
void json_close(struct json *j, char bracket);                 /* '}' or ']' */
void json_number(struct json *j, const char *key, uint64_t v);
void json_flag(struct json *j, const char *key, bool v);
void json_text(struct json *j, const char *key, const char *v); /* ASCII or UTF-8; NULL: null */
void json_bytes(struct json *j, const char *key, struct fli_slice v);

#endif
