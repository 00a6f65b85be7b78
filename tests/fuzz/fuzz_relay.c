/* fuzz_relay.c: bodies of relay frames of any bytes. The first byte chooses which of them the rest
 * is taken for. An event must encode to the very same bytes; an answer, whose bytes behind the code
 * and status nobody reads, to one that means the same. */
#include "fuzz.h"

#include <string.h>

#include "base/buf.h"
#include "commands/relay_codec.h"

static void check_within(struct fli_slice part, struct fli_slice body)
{
    FLI_ASSERT(part.len <= body.len);
    FLI_ASSERT(part.len == 0 ||
               (part.data >= body.data && part.data + part.len <= body.data + body.len));
}

static void check_same(const struct relay_answer *a, const struct relay_answer *b)
{
    FLI_ASSERT(a->sequence == b->sequence && a->status == b->status);
    FLI_ASSERT(fli_bytes_cmp(a->payload.data, a->payload.len, b->payload.data, b->payload.len) ==
               0);
    if (a->status != 0) {
        return;
    }
    FLI_ASSERT(a->result.code == b->result.code && a->result.number == b->result.number);
    FLI_ASSERT(a->result.token == b->result.token && a->result.wait == b->result.wait);
    FLI_ASSERT(a->result.deadline_ms == b->result.deadline_ms);
    FLI_ASSERT(a->result.clock_ms == b->result.clock_ms);
}

static void check_answer(struct fli_slice body)
{
    struct relay_answer a;
    struct relay_answer again;
    uint8_t head[RELAY_RESULT_SIZE];
    struct fli_buf out;
    if (relay_result_decode(body, &a) != 0) {
        return;
    }
    FLI_ASSERT(a.status == 0 || a.status == FL_ENOLEADER || a.status == FL_EBUSY ||
               a.status == FL_EINVAL || a.status == FL_ENOMEM || a.status == FL_EUNCERTAIN);
    FLI_ASSERT(a.status != 0 ||
               (a.result.code >= MACHINE_DONE && a.result.code <= MACHINE_CODE_MAX));
    FLI_ASSERT(a.status == 0 || a.payload.len == 0);
    FLI_ASSERT(a.payload.len == body.len - RELAY_RESULT_SIZE);
    check_within(a.payload, body);
    relay_result_encode(a.sequence, a.status, &a.result, head);
    fli_buf_init(&out, SIZE_MAX);
    FLI_ASSERT(fli_buf_append(&out, head, sizeof head) == 0);
    FLI_ASSERT(fli_buf_append(&out, a.payload.data, a.payload.len) == 0);
    FLI_ASSERT(relay_result_decode((struct fli_slice){out.data, out.len}, &again) == 0);
    check_same(&a, &again);
    fli_buf_fini(&out);
}

static void check_event(struct fli_slice body)
{
    struct machine_event e;
    uint8_t again[RELAY_EVENT_SIZE];
    if (relay_event_decode(body, &e) != 0) {
        return;
    }
    FLI_ASSERT(e.type >= 1 && e.type <= MACHINE_EVENT_SESSION_ENDED);
    FLI_ASSERT(e.reason <= MACHINE_REASON_MAX);
    FLI_ASSERT(e.name.len <= FL_NAME_MAX && e.owner.len <= FL_OWNER_MAX);
    check_within(e.name, body);
    check_within(e.owner, body);
    FLI_ASSERT(relay_event_encode(&e, again) == body.len);
    FLI_ASSERT(memcmp(again, body.data, body.len) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 1) {
        return 0;
    }
    struct fli_slice body = {data + 1, size - 1};
    if (data[0] % 2 == 0) {
        check_answer(body);
    } else {
        check_event(body);
    }
    return 0;
}
