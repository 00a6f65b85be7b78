/* json.h: writes JSON: objects, arrays, numbers, texts. For the tool, the status page, the audit
 * log and the daemons' logs. Pure.
 *
 * Keys are ASCII words of ours. What may not be printed as it stands (escape.h) is written \uXXXX
 * in every text, so that a value does no harm where it is only looked at. The first failure of the
 * buffer is kept, and everything after it is left out. */
#ifndef FLI_BASE_JSON_H
#define FLI_BASE_JSON_H

#include "base/buf.h"

struct fli_json {
    struct fli_buf *out;
    bool comma; /* the next value needs a comma in front */
    unsigned depth;
    int rc;      /* 0, FL_ELIMIT, FL_ENOMEM */
    size_t stop; /* texts are cut where `out` would become longer; 0: nowhere */
};

void fli_json_init(struct fli_json *j, struct fli_buf *out);

/* key: NULL inside an array and at the top. */
void fli_json_object(struct fli_json *j, const char *key);
void fli_json_end_object(struct fli_json *j);
void fli_json_array(struct fli_json *j, const char *key);
void fli_json_end_array(struct fli_json *j);
void fli_json_u64(struct fli_json *j, const char *key, uint64_t v);
void fli_json_bool(struct fli_json *j, const char *key, bool v);
void fli_json_null(struct fli_json *j, const char *key);

/* UTF-8; a byte that is none becomes U+FFFD. NULL: null. */
void fli_json_text(struct fli_json *j, const char *key, const char *v);
void fli_json_text_len(struct fli_json *j, const char *key, const void *v, size_t len);

/* Names and owners are any bytes. What is no UTF-8 has a second member, KEY_base64. */
void fli_json_bytes(struct fli_json *j, const char *key, struct fl_bytes v);
/* Each byte that is not visible ASCII, and `%`, as %XX, as events do: a page decodes it like a
 * URL. */
void fli_json_percent(struct fli_json *j, const char *key, struct fli_slice v);
/* Each byte that is not ASCII as the code point of its number, so that any name can be read back
 * byte by byte. */
void fli_json_latin1(struct fli_json *j, const char *key, struct fli_slice v);

#endif
