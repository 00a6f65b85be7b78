/* fuzz_request.c: everything a server does with bytes before it acts on them: parse, find the
 * command, parse its arguments, write the error or COMMAND's answer. Whatever the bytes, an error
 * is one well-formed line, and a result is within its ranges. */
#include "fuzz.h"

#include "wire/command_reply.h"
#include "wire/request.h"
#include "wire/resp.h"

#define OUT_MAX (1u << 18)

static void check_ranges(const struct fli_request *r)
{
    FLI_ASSERT(r->ttl_ms == 0 || (r->ttl_ms >= FL_TTL_MIN_MS && r->ttl_ms <= FL_TTL_MAX_MS));
    FLI_ASSERT(r->wait_ms <= FL_WAIT_MAX_MS);
    FLI_ASSERT(r->lockdelay_ms <= FL_LOCKDELAY_MAX_MS);
    FLI_ASSERT(r->token <= FL_TOKEN_MAX);
    FLI_ASSERT(r->name.len <= FL_NAME_MAX);
    FLI_ASSERT(r->lock.len <= FL_NAME_MAX);
    FLI_ASSERT(r->pattern.data == NULL || r->command->id == FLI_CMD_INFO ||
               r->pattern.len <= FL_NAME_MAX);
    FLI_ASSERT(r->cursor.len <= FLI_CURSOR_MAX);
    if (r->command->id == FLI_CMD_ACQUIRE) {
        FLI_ASSERT(r->name.len >= 1);
        FLI_ASSERT(r->explicit_session == (r->ttl_ms == 0));
        FLI_ASSERT(r->owner.len <= FL_OWNER_MAX);
        FLI_ASSERT(r->value.len <= FL_VALUE_MAX);
        FLI_ASSERT(r->wait == (r->wait_ms > 0));
    }
}

/* "-WORD text\r\n", printable, one line. */
static void check_error(struct fli_buf *out, const char *word, const char *errmsg)
{
    FLI_ASSERT(strlen(errmsg) > 0 && strlen(errmsg) < FLI_ERRMSG_SIZE - 1);
    FLI_ASSERT(fli_resp_error(out, word, "%s", errmsg) == 0);
    FLI_ASSERT(out->data[0] == '-');
    FLI_ASSERT(memcmp(out->data + out->len - 2, "\r\n", 2) == 0);
    for (size_t i = 0; i + 2 < out->len; i++) {
        FLI_ASSERT(out->data[i] >= ' ' && out->data[i] < 0x7f);
    }
}

static void handle(enum fli_service service, const struct fli_slice *argv, unsigned argc)
{
    const struct fli_command *c = NULL;
    unsigned used = 0;
    char errmsg[FLI_ERRMSG_SIZE] = "";
    struct fli_request request;
    struct fli_buf out;
    fli_buf_init(&out, OUT_MAX);
    int rc = fli_command_lookup(service, argv, argc, &c, &used, errmsg, sizeof errmsg);
    if (rc == 0) {
        FLI_ASSERT(used >= 1 && used <= 2 && used <= argc);
        FLI_ASSERT(fli_command_served(c, service));
        rc = fli_request_parse(c, argv + used, argc - used, &request, errmsg, sizeof errmsg);
    }
    if (rc != 0) {
        check_error(&out, fli_request_error_word(rc), errmsg);
    } else {
        check_ranges(&request);
    }
    if (rc == 0 && strcmp(c->name, "COMMAND") == 0) {
        for (int proto = 2; proto <= 3; proto++) {
            FLI_ASSERT(fli_command_reply(&out, proto, service, c->id, argv + used, argc - used) ==
                       0);
        }
    }
    fli_buf_fini(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fli_resp_parser p;
    fli_resp_parser_init(&p, (struct fli_resp_limits){2048, 4096});
    for (;;) {
        enum fli_resp_status status = fli_resp_next(&p, data, size);
        if (status == FLI_RESP_MORE || status == FLI_RESP_BROKEN) {
            return 0;
        }
        if (status == FLI_RESP_REQUEST) {
            handle(FLI_SERVICE_LOCK, p.argv, p.argc);
            handle(FLI_SERVICE_STORE, p.argv, p.argc);
        }
        size_t consumed = fli_resp_consume(&p);
        data += consumed;
        size -= consumed;
    }
}
