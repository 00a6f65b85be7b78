/* gather.c: see gather.h. */
#include "server/gather.h"

#include <stdlib.h>
#include <string.h>

#include "server/render.h"
#include "wire/resp.h"

_Static_assert(FRONTDOOR_EACH_MAX <= FL_NAME_MAX, "a whole has room for what became of each part");
_Static_assert(FRONTDOOR_EACH_MAX *(FL_NAME_MAX + FL_OWNER_MAX) <= UINT16_MAX,
               "an offset is enough");

struct gather_each {
    uint16_t at; /* of the key; the value follows it */
    uint8_t key_len, value_len;
};

struct gather_keys {
    uint64_t ttl_ms;
    uint8_t change;
    struct gather_each each[FRONTDOOR_EACH_MAX];
    uint8_t bytes[];
};

/* ---- the answer ------------------------------------------------------------------------------ */

/* Whether a part has changed something, as far as is known. */
static bool any_done(const struct call *whole)
{
    return memchr(whole->name, 1, whole->n_parts) != NULL;
}

static const char *reason(const struct call *whole)
{
    return whole->parts_status == FL_ENOLEADER ? "NOLEADER"
           : whole->parts_status == FL_EBUSY   ? "BUSY"
           : whole->parts_status != 0          ? fl_err_name(whole->parts_status)
           : whole->odd.code == MACHINE_NOPERM ? "NOPERM"
           : whole->odd.code == MACHINE_NOAUTH ? "NOAUTH"
                                               : "refused";
}

static void answer(struct call *whole)
{
    struct dispatch *d = whole->dispatch;
    bool failed = whole->parts_status != 0 || whole->odd.code != 0;
    bool partly = failed && whole->parts_status != FL_EUNCERTAIN && any_done(whole);
    if (d->config.release != NULL) {
        d->config.release(d->config.ctx, whole->request);
    }
    if (whole->odd.code != 0) { /* also when the answer is another one */
        dispatch_tell_refused(d, whole->request, whole->id, &whole->odd);
    }
    if (whole->parts_status != 0 && !partly) {
        dispatch_answer_failure(whole, whole->parts_status);
        return;
    }
    int proto = whole->proto;
    void *request = dispatch_call_detach(whole);
    struct fli_buf *b = d->config.sink.reply(request);
    if (partly) {
        d->counts.uncertain++;
        /* Each other error word would say that nothing was done. */
        dispatch_finish(d, request,
                        fli_resp_error(b, "UNCERTAIN",
                                       "some of these locks were prolonged and others were not "
                                       "(%s): send it again, or ask with GET who has them",
                                       reason(whole)));
        return;
    }
    if (failed) {
        struct fli_slice none = {NULL, 0};
        dispatch_finish(d, request, render_result(b, proto, whole->id, &whole->odd, none));
        return;
    }
    int rc = fli_resp_array(b, whole->n_parts);
    for (unsigned i = 0; rc == 0 && i < whole->n_parts; i++) {
        rc = fli_resp_int(b, whole->name[i]);
    }
    dispatch_finish(d, request, rc);
}

/* Notes that a part has failed. An unknown outcome stays one, whatever else happens. */
static void fail(struct call *whole, int status)
{
    if (whole->parts_status != FL_EUNCERTAIN &&
        (whole->parts_status == 0 || status == FL_EUNCERTAIN)) {
        whole->parts_status = status;
    }
}

/* ---- parts ----------------------------------------------------------------------------------- */

/* Whether a part that has its result, or none yet, goes on with the next lock. */
static bool goes_on(const struct call *whole)
{
    return whole->request != NULL && whole->parts_status == 0 && whole->odd.code == 0 &&
           whole->parts_next < whole->n_parts;
}

void gather_leave(struct call *whole)
{
    free(whole->keys);
    whole->keys = NULL;
}

/* Frees the part and, with the last one, the whole. */
static void end_part(struct call *part)
{
    struct call *whole = part->whole;
    dispatch_call_free(part);
    FLI_ASSERT(whole->parts_left > 0);
    whole->parts_left--;
    if (whole->parts_left > 0) {
        return;
    }
    if (goes_on(whole)) {
        FLI_ASSERT(whole->dispatch->stopping);
        fail(whole, FL_ENOLEADER);
    }
    if (whole->request != NULL) {
        answer(whole);
    }
    gather_leave(whole);
    dispatch_call_free(whole);
}

static void on_part(struct node_ticket *t, int status, const struct machine_result *result,
                    struct fli_slice payload)
{
    struct call *part = FLI_CONTAINER_OF(t, struct call, ticket);
    struct dispatch *d = part->dispatch;
    struct call *whole = part->whole;
    FLI_ASSERT(d->counts.in_flight > 0);
    d->counts.in_flight--;
    if (status != 0) {
        fail(whole, status);
    } else if (result->code == MACHINE_DONE) {
        whole->name[part->part] = 1;
    } else if (result->code != MACHINE_HELD && result->code != MACHINE_NO) {
        whole->odd = *result;
    }
    if (goes_on(whole) && !d->stopping) {
        fli_list_push(&d->parts, &part->link);
    } else {
        end_part(part);
    }
}

/* Submits the next lock of the whole. */
static void submit(struct call *part)
{
    struct dispatch *d = part->dispatch;
    struct call *whole = part->whole;
    const struct gather_keys *keys = whole->keys;
    const struct gather_each *each = &keys->each[whole->parts_next];
    const uint8_t *at = keys->bytes + each->at;
    struct machine_command m = {.op = MACHINE_OP_KEYS,
                                .flags = keys->change,
                                .n_names = 1,
                                .permits = 1,
                                .name = {at, each->key_len},
                                .owner = {at + each->key_len, each->value_len},
                                .ttl_ms = keys->ttl_ms};
    if (d->config.set_sender != NULL) {
        d->config.set_sender(d->config.users_ctx, whole->request, &m);
    }
    part->part = whole->parts_next++;
    int rc = dispatch_submit(part, &m, on_part);
    if (rc == 0) {
        return;
    }
    whole->parts_next--;
    if (rc != FL_EBUSY || whole->parts_left == 1) {
        fail(whole, rc);
    } /* else another part, which has a place already, tries again when it has its result */
    end_part(part);
}

void gather_turn(struct dispatch *d)
{
    struct fli_list due;
    struct fli_list *link = NULL;
    fli_list_init(&due);
    fli_list_splice(&due, &d->parts);
    while ((link = fli_list_pop(&due)) != NULL) {
        struct call *part = FLI_CONTAINER_OF(link, struct call, link);
        if (goes_on(part->whole) && !d->stopping) {
            submit(part);
        } else {
            end_part(part);
        }
    }
}

/* ---- requests -------------------------------------------------------------------------------- */

static void *copy(void *to, struct fli_slice from)
{
    memcpy(to, from.data, from.len);
    return (uint8_t *)to + from.len;
}

/* Copies what the parts need. *ret_size: the bytes that it takes. NULL: no memory. */
static struct gather_keys *copy_keys(const struct frontdoor_request *q, size_t *ret_size)
{
    size_t size = sizeof(struct gather_keys);
    for (unsigned i = 0; i < q->n_each; i++) {
        size += q->each_keys[i].len + q->each_values[i].len;
    }
    struct gather_keys *keys = malloc(size);
    if (keys == NULL) {
        return NULL;
    }
    uint8_t *at = keys->bytes;
    keys->ttl_ms = q->ttl_ms;
    keys->change = q->change;
    for (unsigned i = 0; i < q->n_each; i++) {
        keys->each[i] = (struct gather_each){.at = (uint16_t)(at - keys->bytes),
                                             .key_len = (uint8_t)q->each_keys[i].len,
                                             .value_len = (uint8_t)q->each_values[i].len};
        at = copy(copy(at, q->each_keys[i]), q->each_values[i]);
    }
    *ret_size = size;
    return keys;
}

void gather_request(struct dispatch *d, void *request, struct dispatch_slot *slot, int proto,
                    enum fli_command_id id, const struct frontdoor_request *q)
{
    FLI_ASSERT(q->n_each >= 1 && q->n_each <= FRONTDOOR_EACH_MAX);
    unsigned parts = q->n_each < GATHER_WINDOW ? q->n_each : GATHER_WINDOW;
    size_t size = 0;
    if (dispatch_is_full(d, request, (size_t)1 + parts)) {
        dispatch_fail(d, request, FL_EBUSY, true);
        return;
    }
    struct gather_keys *keys = copy_keys(q, &size);
    if (keys == NULL) {
        dispatch_fail(d, request, FL_ENOMEM, true);
        return;
    }
    struct call *whole = dispatch_attach(d, request, slot, proto, id);
    whole->keys = keys;
    whole->n_parts = q->n_each;
    whole->parts_left = parts;
    memset(whole->name, 0, q->n_each);
    for (unsigned i = 0; i < parts; i++) {
        struct call *part = dispatch_call_take(d);
        part->whole = whole;
        part->ticket.source = whole->ticket.source;
        fli_list_push(&d->parts, &part->link);
    }
    if (d->config.hold != NULL) {
        d->config.hold(d->config.ctx, request, size + parts * DISPATCH_CALL_MEMORY);
    }
}
