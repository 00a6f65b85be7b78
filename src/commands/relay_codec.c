/* relay_codec.c: see relay_codec.h for the byte table. */
#include "commands/relay_codec.h"

#include "base/fields.h"

void relay_result_encode(uint64_t sequence, int status, const struct machine_result *result,
                         uint8_t out[RELAY_RESULT_SIZE])
{
    FLI_ASSERT(status <= 0);
    FLI_ASSERT(status != 0 || result != NULL);
    memset(out, 0, RELAY_RESULT_SIZE);
    fli_put_u64(out, sequence);
    fli_put_u32(out + 8, (uint32_t)-status);
    if (status == 0) {
        out[12] = result->code;
        fli_put_u32(out + 16, result->number);
        fli_put_u64(out + 20, result->token);
        fli_put_u64(out + 28, result->wait);
        fli_put_u64(out + 36, result->deadline_ms);
        fli_put_u64(out + 44, result->clock_ms);
        fli_put_u64(out + 52, result->each[0]);
        fli_put_u64(out + 60, result->each[1]);
    }
}

/* Accepts only codes that a leader sends; any other leaves the outcome unknown. */
static int known_status(uint32_t negated)
{
    switch (-(int64_t)negated) {
    case 0:
    case FL_ENOLEADER:
    case FL_EBUSY:
    case FL_EINVAL:
    case FL_ELIMIT:
    case FL_ENOMEM:
    case FL_EUNCERTAIN:
        return -(int)negated;
    default:
        return FL_EUNCERTAIN;
    }
}

int relay_result_decode(struct fli_slice body, struct relay_answer *ret)
{
    struct fli_reader r;
    struct relay_answer a;
    memset(&a, 0, sizeof a);
    fli_reader_init(&r, body.data, body.len);
    a.sequence = fli_read_u64(&r);
    a.status = known_status(fli_read_u32(&r));
    a.result.code = fli_read_u8(&r);
    (void)fli_read_bytes(&r, 3);
    a.result.number = fli_read_u32(&r);
    a.result.token = fli_read_u64(&r);
    a.result.wait = fli_read_u64(&r);
    a.result.deadline_ms = fli_read_u64(&r);
    a.result.clock_ms = fli_read_u64(&r);
    a.result.each[0] = fli_read_u64(&r);
    a.result.each[1] = fli_read_u64(&r);
    a.payload = fli_read_bytes(&r, fli_reader_left(&r));
    bool has_code = a.result.code >= MACHINE_DONE && a.result.code <= MACHINE_CODE_MAX;
    if (r.bad || (a.status == 0 && !has_code) || (a.status != 0 && a.payload.len != 0)) {
        return FL_EPROTO;
    }
    *ret = a;
    return 0;
}

#define FIELD(kind, name)                                                                          \
    {                                                                                              \
        kind, offsetof(struct machine_event, name)                                                 \
    }
static const struct fli_field event[] = {
    FIELD(FLI_U8, type),      FIELD(FLI_U8, reason),  FIELD(FLI_BOOL, session_explicit),
    FIELD(FLI_U64, token),    FIELD(FLI_U64, wait),   FIELD(FLI_U64, deadline_ms),
    FIELD(FLI_U64, clock_ms), FIELD(FLI_SHORT, name), FIELD(FLI_SHORT, owner),
};
#define EVENT (sizeof event / sizeof event[0])

_Static_assert(FL_NAME_MAX <= UINT8_MAX && FL_OWNER_MAX <= UINT8_MAX, "their lengths fit a byte");

size_t relay_event_encode(const struct machine_event *e, uint8_t out[RELAY_EVENT_SIZE])
{
    return (size_t)(fli_put_fields(out, event, EVENT, e) - out);
}

int relay_event_decode(struct fli_slice body, struct machine_event *ret)
{
    struct fli_reader r;
    struct machine_event e = {0};
    fli_reader_init(&r, body.data, body.len);
    fli_read_fields(&r, event, EVENT, &e);
    if (r.bad || fli_reader_left(&r) != 0 || e.type == 0 || e.type > MACHINE_EVENT_SESSION_ENDED ||
        e.reason > MACHINE_REASON_MAX) {
        return FL_EPROTO;
    }
    *ret = e;
    return 0;
}

int relay_command_decode(struct fli_slice body, uint64_t *ret_sequence, uint64_t *ret_source,
                         struct fli_slice *ret_command)
{
    if (body.len < RELAY_COMMAND_HEAD_SIZE) {
        return FL_EPROTO;
    }
    *ret_sequence = fli_get_u64(body.data);
    *ret_source = fli_get_u64(body.data + 8);
    *ret_command =
        (struct fli_slice){body.data + RELAY_COMMAND_HEAD_SIZE, body.len - RELAY_COMMAND_HEAD_SIZE};
    return 0;
}
