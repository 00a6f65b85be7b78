/* gather.c: see gather.h. */
#include "server/gather.h"

#include <string.h>

#include "server/render.h"
#include "wire/resp.h"

_Static_assert(FACE_EACH_MAX <= FL_NAME_MAX, "a whole has room for what became of each part");

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

/* Notes that one part has its result. */
static void part_done(struct call *whole)
{
    FLI_ASSERT(whole->parts_left > 0);
    whole->parts_left--;
    if (whole->parts_left > 0) {
        return;
    }
    if (whole->request != NULL) {
        answer(whole);
    }
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
    dispatch_call_free(part);
    part_done(whole);
}

static void submit_part(struct call *whole, void *request, const struct face_request *q, unsigned i)
{
    struct dispatch *d = whole->dispatch;
    struct machine_command m = {.op = MACHINE_OP_KEYS,
                                .flags = q->change,
                                .n_names = 1,
                                .permits = 1,
                                .name = q->each_keys[i],
                                .owner = q->each_values[i],
                                .ttl_ms = q->ttl_ms};
    if (d->config.set_sender != NULL) {
        d->config.set_sender(d->config.users_ctx, request, &m);
    }
    struct call *part = dispatch_call_take(d);
    part->whole = whole;
    part->part = i;
    part->ticket.source = whole->ticket.source;
    whole->parts_left++;
    int rc = dispatch_submit(part, &m, on_part);
    if (rc != 0) {
        fail(whole, rc);
        whole->parts_left--;
        dispatch_call_free(part);
    }
}

void gather_request(struct dispatch *d, void *request, struct dispatch_slot *slot, int proto,
                    enum fli_command_id id, const struct face_request *q)
{
    FLI_ASSERT(q->n_each >= 1 && q->n_each <= FACE_EACH_MAX);
    if (d->calls + q->n_each >= d->config.calls_max) {
        dispatch_fail(d, request, FL_EBUSY, true);
        return;
    }
    struct call *whole = dispatch_attach(d, request, slot, proto, id);
    whole->n_parts = q->n_each;
    whole->parts_left = 1; /* this one keeps the whole alive until all are submitted */
    memset(whole->name, 0, q->n_each);
    for (unsigned i = 0; i < q->n_each && whole->parts_status == 0; i++) {
        submit_part(whole, request, q, i);
    }
    part_done(whole);
}
