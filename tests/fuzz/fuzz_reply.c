/* fuzz_reply.c: what a server may answer to our clients: any bytes, read by hiredis as the
 * libraries read them, and every judgement about a reply on each of them; the text of an INFO also
 * without a reply around it. The first byte chooses what is asked of a reply that is taken over. */
#include "fuzz.h"

#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "client/call_request.h"
#include "client/lists.h"
#include "redlock/answer.h"

static void read_info(const char *text, size_t len)
{
    char copy[16];
    struct fl_node_status status;
    struct fli_facts facts;
    fli_status_of_info(text, len, &status, sizeof status);
    fli_facts_init(&facts);
    fli_facts_take_info(&facts, text, len);
    FLI_ASSERT(memchr(facts.run_id, '\0', sizeof facts.run_id) != NULL);
    FLI_ASSERT(memchr(facts.role, '\0', sizeof facts.role) != NULL);
    FLI_ASSERT(memchr(facts.policy, '\0', sizeof facts.policy) != NULL);
    FLI_ASSERT(memchr(facts.fsync, '\0', sizeof facts.fsync) != NULL);
    FLI_ASSERT(facts.aof >= -1 && facts.aof <= 1 && facts.uptime_s >= -1);
    fli_copy_text(copy, sizeof copy, text, len);
    FLI_ASSERT(memchr(copy, '\0', sizeof copy) != NULL);
    for (size_t i = 0; copy[i] != '\0'; i++) {
        FLI_ASSERT(copy[i] >= ' ' && copy[i] <= '~');
    }
}

static void classify(const redisReply *reply)
{
    char error[64];
    int code = 0;
    for (int command = 0; command < FLI_CALL_COMMANDS; command++) {
        (void)fli_call_classify((enum fli_call_command)command, reply, &code);
    }
    (void)fli_call_classify_probe(reply);
    (void)fli_set_status(reply, error, sizeof error);
    FLI_ASSERT(memchr(error, '\0', sizeof error) != NULL);
    (void)fli_script_status(reply, error, sizeof error);
    FLI_ASSERT(memchr(error, '\0', sizeof error) != NULL);
    (void)fli_delete_how(reply);
    if (reply->str != NULL) {
        (void)fli_call_stale_mark(reply->str, reply->len);
        read_info(reply->str, reply->len);
    }
    if (fli_is_error(reply, "NOAUTH")) {
        FLI_ASSERT(fli_delete_how(reply) == FLI_DELETE_SCRIPT);
    }
}

/* Which of them takes the reply over. */
static void take(redisReply *reply, uint8_t how)
{
    struct fl_lock_list *locks = NULL;
    struct fl_session_list *sessions = NULL;
    switch (how % 4) {
    case 0:
        if (fli_list_read(FLI_LIST_ONE, reply, &locks) == 0) {
            fl_lock_list_free(locks);
        }
        return;
    case 1:
        if (fli_list_read(FLI_LIST_LOCKS, reply, &locks) == 0) {
            fl_lock_list_free(locks);
        }
        return;
    case 2:
        if (fli_list_read(FLI_LIST_SESSIONS, reply, &sessions) == 0) {
            fl_session_list_free(sessions);
        }
        return;
    default:
        freeReplyObject(reply);
    }
}

/* hiredis 0.14 makes room at once for as many elements as are announced; that is its own affair. */
static bool announces_many(const uint8_t *data, size_t size)
{
    size_t digits = 0;
    bool counting = false;
    for (size_t i = 0; i < size; i++) {
        bool digit = data[i] >= '0' && data[i] <= '9';
        digits = counting && digit ? digits + 1 : 0;
        counting = data[i] == '*' || (counting && (digit || data[i] == '-' || data[i] == '+'));
        if (digits > 5) {
            return true;
        }
    }
    return false;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 1 || announces_many(data + 1, size - 1)) {
        return 0;
    }
    read_info((const char *)data + 1, size - 1); /* with no zero byte behind it */
    redisReader *reader = redisReaderCreate();
    FLI_ASSERT(reader != NULL);
    (void)redisReaderFeed(reader, (const char *)data + 1, size - 1);
    void *reply = NULL;
    while (redisReaderGetReply(reader, &reply) == REDIS_OK && reply != NULL) {
        classify(reply);
        take(reply, data[0]);
        reply = NULL;
    }
    redisReaderFree(reader);
    return 0;
}
