/* types.h: what every part of fencelock shares: tokens, sizes, error codes.
 *
 * Errors. Every function that can fail returns 0 or a negative `enum fl_err`, and its result must
 * be used. There are three classes, and a caller usually needs only the class (fl_err_class()):
 *
 *   refused   surely not done; sending it again is safe
 *   unknown   may have been done; send it again with the same owner to find out
 *   fault     this process, its disk or its peer is broken; repeating will not help by itself
 */
#ifndef FENCELOCK_TYPES_H
#define FENCELOCK_TYPES_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

#define FENCELOCK_VERSION "0.1.0"

#if defined(__GNUC__)
#define FL_API __attribute__((visibility("default")))
#define FL_MUST_USE __attribute__((warn_unused_result))
#else
#define FL_API
#define FL_MUST_USE
#endif

/* A fencing token. 0 is never issued. All tokens are below 2^53, so that languages whose numbers
 * are doubles (JavaScript, Lua) can hold one exactly. */
typedef uint64_t fl_token;
#define FL_TOKEN_NONE ((fl_token)0)
#define FL_TOKEN_MAX ((fl_token)((UINT64_C(1) << 53) - 1))

/* Sizes in bytes. */
#define FL_NAME_MAX 255u        /* a lock's name: 1 to 255, any bytes */
#define FL_PERMITS_MAX 1000000u /* the most holders of a semaphore */
#define FL_NAMES_MAX 16u        /* the most locks that one request may take together */
#define FL_OWNER_MAX 255u       /* a session's owner id */
#define FL_OWNER_MIN 16u        /* the least for native commands */
#define FL_LABEL_MAX 255u       /* a session's label */
#define FL_VALUE_MAX 1024u      /* a grant's VALUE */

/* Times in milliseconds. */
#define FL_TTL_MIN_MS UINT64_C(10)
#define FL_TTL_MAX_MS UINT64_C(86400000)
#define FL_TTL_DEFAULT_MS UINT64_C(10000)
#define FL_WAIT_MAX_MS UINT64_C(86400000)
#define FL_LOCKDELAY_MAX_MS UINT64_C(60000)

/* Bytes owned by the caller; names may hold any bytes, including zeros. */
struct fl_bytes {
    const void *data;
    size_t len;
};

/* The bytes of a C string without its terminator. */
static inline struct fl_bytes fl_str(const char *text)
{
    struct fl_bytes b;
    b.data = text;
    b.len = text == NULL ? 0 : strlen(text);
    return b;
}

/* name, code, class, text */
#define FL_ERR_MAP(X)                                                                              \
    X(EINVAL, -1001, REFUSED, "invalid argument")                                                  \
    X(ENOMEM, -1002, REFUSED, "out of memory")                                                     \
    X(ELIMIT, -1003, REFUSED, "a limit is reached")                                                \
    X(ENOLEADER, -1004, REFUSED, "no leader within the time allowed")                              \
    X(EBUSY, -1005, REFUSED, "too much is pending")                                                \
    X(ESTALE, -1006, REFUSED, "the token is below the mark")                                       \
    X(EWRONGLOCK, -1007, REFUSED, "the key belongs to another lock")                               \
    X(ENOTOKEN, -1008, REFUSED, "the key is fenced and no token was given")                        \
    X(EDEADLOCK, -1009, REFUSED, "waiting would close a cycle of waiting sessions")                \
    X(ENOSESSION, -1010, REFUSED, "no such session")                                               \
    X(ENOTFOUND, -1011, REFUSED, "not found")                                                      \
    X(EEXISTS, -1012, REFUSED, "exists already")                                                   \
    X(ENOTHELD, -1013, REFUSED, "not held")                                                        \
    X(ENOCONN, -1014, REFUSED, "cannot connect")                                                   \
    X(EDENIED, -1015, REFUSED, "not allowed")                                                      \
    X(EMISMATCH, -1016, REFUSED, "in use in another mode or with other permits")                   \
    X(EUNCERTAIN, -1101, UNKNOWN, "the outcome is unknown")                                        \
    X(ETIMEOUT, -1102, UNKNOWN, "no answer within the time allowed")                               \
    X(EIO, -1201, FAULT, "input/output error")                                                     \
    X(ECORRUPT, -1202, FAULT, "data is corrupt")                                                   \
    X(EPROTO, -1203, FAULT, "the peer broke the protocol")                                         \
    X(EVERSION, -1204, FAULT, "written by an unknown version")                                     \
    X(ESYSTEM, -1205, FAULT, "the operating system refused")

enum fl_err {
    FL_OK = 0,
#define FL_ERR_ENUM_(name, code, class, text) FL_##name = (code),
    FL_ERR_MAP(FL_ERR_ENUM_)
#undef FL_ERR_ENUM_
};

enum fl_err_class { FL_CLASS_OK, FL_CLASS_REFUSED, FL_CLASS_UNKNOWN, FL_CLASS_FAULT };

/* The version of the library that the program runs with; FENCELOCK_VERSION is the version of the
 * headers that it was compiled with. Any thread. */
FL_API const char *fl_version(void);

/* The class of a code; an unknown code counts as a fault. Any thread. */
FL_API enum fl_err_class fl_err_class(int code);

/* A short English text for a code, never NULL, valid for ever. Any thread. */
FL_API const char *fl_strerror(int code);

/* The symbolic name, such as "ENOLEADER"; "?" for an unknown code. Any thread. */
FL_API const char *fl_err_name(int code);

#ifdef __cplusplus
}
#endif
#endif
