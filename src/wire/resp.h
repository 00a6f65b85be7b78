/* resp.h: RESP2 and RESP3, incremental and bounded. Pure: bytes in, views out; bytes out into a
 * buffer with a ceiling.
 *
 * Requests. The caller owns one input buffer per connection, appends what it reads, and asks for
 * the next request. A request is an array of bulk strings, or an inline line (words separated by
 * blanks) for people with netcat. Nothing is allocated per request or element: the slices of a
 * request point into the input buffer and are valid until more is appended. Every length is checked
 * against the limits before it is used. The parser keeps its place between calls, so a request that
 * arrives byte by byte costs linear time.
 *
 * A request over a limit whose end can still be found is answered with an error at once (TOOBIG).
 * Then it is discarded piece by piece as it arrives (EMPTY, consume, and so on), so it needs no
 * memory and the connection stays open. */
#ifndef FLI_RESP_H
#define FLI_RESP_H

#include <stdbool.h>

#include "base/buf.h"
#include "base/bytes.h"

#define FLI_RESP_ARGS_MAX 256u    /* arguments of a request, command word included */
#define FLI_RESP_INLINE_MAX 4096u /* bytes of an inline request, without its line end */
/* An array with more elements is BROKEN, not skipped. */
#define FLI_RESP_SKIP_ARGS_MAX UINT64_C(1048576)
/* So is an argument with more bytes (Redis' own limit). */
#define FLI_RESP_SKIP_ARG_MAX UINT64_C(536870912)

struct fli_resp_limits {
    size_t arg_max;     /* bytes of one argument */
    size_t request_max; /* bytes of one whole request on the wire; the input buffer needs at least
                           this many, or a request can wait for bytes that find no room */
};

enum fli_resp_status {
    FLI_RESP_MORE,    /* not complete: feed more */
    FLI_RESP_REQUEST, /* one request in argv/argc; consume() it before asking for the next */
    FLI_RESP_EMPTY,   /* an empty line or array, or a piece of a discarded request: consume(),
                         answer nothing and continue */
    FLI_RESP_TOOBIG,  /* over a limit, but framing is kept: send an error reply, then consume() */
    FLI_RESP_BROKEN,  /* framing is lost: send the error, then close */
};

struct fli_resp_parser {
    struct fli_resp_limits limits;
    unsigned argc;
    struct fli_slice argv[FLI_RESP_ARGS_MAX];
    const char *error; /* static text after TOOBIG and BROKEN, ready for an error reply (without the
                          leading word) */
    /* private: the state of the scan, relative to the start of the unconsumed input */
    size_t pos;
    size_t size;        /* bytes of the request that was found, for consume */
    int64_t args_left;  /* -1: header not read */
    uint64_t skip_left; /* bytes of an oversized request still to be discarded */
    unsigned found;     /* arguments found so far */
    bool skipping;
    bool broken;
    uint32_t offsets[FLI_RESP_ARGS_MAX];
    uint32_t lengths[FLI_RESP_ARGS_MAX];
};

void fli_resp_parser_init(struct fli_resp_parser *p, struct fli_resp_limits limits);

/* Scans data[0..len), the unconsumed input (the same bytes as last time, plus more at the end).
 * BROKEN is final. */
enum fli_resp_status fli_resp_next(struct fli_resp_parser *p, const uint8_t *data, size_t len);

/* The number of bytes to drop from the front of the input after REQUEST, EMPTY or TOOBIG. Prepares
 * the parser for what follows. Never 0. */
size_t fli_resp_consume(struct fli_resp_parser *p);

/* Replies: `proto` is 2 or 3; RESP3 types fall back to RESP2 forms (maps to flat arrays, sets and
 * pushes to arrays, nulls to $-1 or *-1, booleans to integers, verbatim to bulk). All return 0,
 * FL_ELIMIT, FL_ENOMEM, and append all or nothing. */
int fli_resp_simple(struct fli_buf *b,
                    const char *text) FLI_MUST_USE; /* +text; CR and LF become blanks */
/* -WORD text. CR and LF become blanks, other control characters question marks; a text of more than
 * 1023 bytes is cut. */
int fli_resp_error(struct fli_buf *b, const char *word, const char *fmt, ...)
    FLI_PRINTF(3, 4) FLI_MUST_USE;
int fli_resp_int(struct fli_buf *b, int64_t v) FLI_MUST_USE;
int fli_resp_u64(struct fli_buf *b, uint64_t v) FLI_MUST_USE; /* must be below 2^63 */
int fli_resp_bulk(struct fli_buf *b, const void *data, size_t len) FLI_MUST_USE;
int fli_resp_text(struct fli_buf *b, const char *text) FLI_MUST_USE; /* bulk of a C string */
int fli_resp_verbatim(struct fli_buf *b, int proto, const void *text,
                      size_t len) FLI_MUST_USE; /* text for people, such as INFO */
int fli_resp_null(struct fli_buf *b, int proto) FLI_MUST_USE;
int fli_resp_null_array(struct fli_buf *b, int proto) FLI_MUST_USE;
int fli_resp_bool(struct fli_buf *b, int proto, bool v) FLI_MUST_USE;
int fli_resp_array(struct fli_buf *b, size_t n) FLI_MUST_USE;
int fli_resp_map(struct fli_buf *b, int proto, size_t pairs) FLI_MUST_USE;
int fli_resp_set(struct fli_buf *b, int proto, size_t n) FLI_MUST_USE;
int fli_resp_push(struct fli_buf *b, int proto, size_t n) FLI_MUST_USE;

#endif
