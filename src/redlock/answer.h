/* answer.h: writes requests to Redis servers and classifies their answers. Pure, except that
 * replies are hiredis's structs. */
#ifndef FLI_REDLOCK_ANSWER_H
#define FLI_REDLOCK_ANSWER_H

#include <hiredis/hiredis.h>
#include <stdbool.h>

#include "base/buf.h"
#include "fencelock/redlock.h"

/* How a server can delete a key that holds a value. */
enum fli_delete_how {
    FLI_DELETE_SCRIPT,
    FLI_DELETE_DELEX,  /* Redis 8.4: DELEX key IFEQ value */
    FLI_DELETE_DELIFEQ /* Valkey 9.0: DELIFEQ key value */
};

/* Each appends one request. */
int fli_put_words(struct fli_buf *b, size_t argc, const char *const *argv) FLI_MUST_USE;
int fli_put_set(struct fli_buf *b, struct fli_slice key, const char *value,
                uint64_t ttl_ms) FLI_MUST_USE;
int fli_put_extend(struct fli_buf *b, struct fli_slice key, const char *value,
                   uint64_t ttl_ms) FLI_MUST_USE;
int fli_put_release(struct fli_buf *b, struct fli_slice key, const char *value,
                    enum fli_delete_how how) FLI_MUST_USE;

/* Classifies the answer to a SET NX; to a release or an extend. error gets the server's text, or
 * what is odd about the reply; otherwise it is empty. */
enum fl_redlock_status fli_set_status(const redisReply *reply, char *error, size_t error_size);
enum fl_redlock_status fli_script_status(const redisReply *reply, char *error, size_t error_size);

/* Whether the reply is an error that begins with this word. */
bool fli_is_error(const redisReply *reply, const char *word);

/* Reads the reply to COMMAND INFO delex delifeq. */
enum fli_delete_how fli_delete_how(const redisReply *reply);

/* What a server tells about itself. An unknown fact is empty or -1. */
struct fli_facts {
    bool heard;    /* it answered at all */
    bool informed; /* it answered INFO, with fields */
    bool is_redis; /* the fields are those of a Redis */
    bool is_node;  /* ... of fencelockd */
    char error[FL_REDLOCK_ERROR_MAX];
    char run_id[64];
    char role[16];
    int64_t uptime_s;
    char policy[32]; /* maxmemory_policy */
    int aof;         /* aof_enabled: 0, 1, -1 */
    char fsync[16];  /* appendfsync */
    /* What it refused of a lock on a scratch key (NULL: nothing), and its error. A user who may not
     * touch that key may still be allowed those of locks. */
    const char *refused;
    char refusal[FL_REDLOCK_ERROR_MAX];
    bool refused_key;
    uint64_t young_ms; /* for how long it does not count yet, since it was restarted */
};

void fli_facts_init(struct fli_facts *f);
/* Takes the facts that are in the text of an INFO; other facts stay. The text may be any bytes. */
void fli_facts_take_info(struct fli_facts *f, const char *text, size_t len);

/* Copies as much as fits, with `?` for what cannot be printed and a zero byte at the end. */
void fli_copy_text(char *to, size_t size, const char *text, size_t len);

#endif
