/* frontdoor.c: see frontdoor.h. */
#include "server/frontdoor.h"

#include <string.h>

#include "frontdoor/sentinel.h"
#include "server/render.h"
#include "server/signals.h"
#include "wire/resp.h"

static void copy(uint8_t *to, struct fli_slice from)
{
    if (from.len > 0) {
        memcpy(to, from.data, from.len);
    }
}

static void note_request(struct call *c, const struct frontdoor_request *q)
{
    c->frontdoor = true;
    c->answers = q->answers;
    c->fetches = q->fetches;
    c->value_len = (uint8_t)q->value.len;
    copy(c->value, q->value);
    c->name_len = (uint8_t)q->keys[0].len;
    copy(c->name, q->keys[0]);
}

/* SET ... GET of a key that has another value: the value needs a query of its own. */
static void on_change(struct node_ticket *t, int status, const struct machine_result *result,
                      struct fli_slice payload)
{
    struct call *c = FLI_CONTAINER_OF(t, struct call, ticket);
    struct dispatch *d = c->dispatch;
    if (c->request == NULL || status != 0 || result->code != MACHINE_HELD || result->token != 0) {
        dispatch_on_result(t, status, result, payload);
        return;
    }
    struct machine_command m =
        frontdoor_fetch((struct fli_slice){c->name, c->name_len}, &c->answers);
    if (d->config.set_sender != NULL) {
        d->config.set_sender(d->config.users_ctx, c->request, &m);
    }
    d->counts.in_flight--;
    int rc = dispatch_submit(c, &m, dispatch_on_result);
    if (rc != 0) {
        dispatch_answer_failure(c, rc);
        dispatch_call_free(c);
    }
}

static void submit(struct dispatch *d, void *request, struct dispatch_slot *slot, int proto,
                   enum fli_command_id id, const struct frontdoor_request *q)
{
    uint8_t room[FRONTDOOR_ROOM];
    struct machine_command m = frontdoor_command(q, room);
    if (d->config.set_sender != NULL) {
        d->config.set_sender(d->config.users_ctx, request, &m);
    }
    if (dispatch_is_full(d, request, 1)) {
        dispatch_fail(d, request, FL_EBUSY, true);
        return;
    }
    struct call *c = dispatch_attach(d, request, slot, proto, id);
    note_request(c, q);
    int rc = dispatch_submit(c, &m, q->fetches ? on_change : dispatch_on_result);
    if (rc == 0) {
        c->restores = d->restores;
        return;
    }
    (void)dispatch_call_detach(c);
    dispatch_call_free(c);
    dispatch_fail(d, request, rc, true);
}

static void answer_sentinel(struct dispatch *d, void *request, int proto,
                            const struct fli_slice *args, unsigned n)
{
    const struct dispatch_node *node = &d->config.node;
    struct node_member members[MEMBERS_MAX];
    struct frontdoor_node nodes[MEMBERS_MAX];
    struct node_status status;
    node->status(node->ctx, &status);
    size_t n_nodes = node->members(node->ctx, members, MEMBERS_MAX);
    for (size_t i = 0; i < n_nodes; i++) {
        nodes[i] = (struct frontdoor_node){members[i].id, members[i].client_address,
                                           members[i].leader, members[i].self};
    }
    dispatch_finish(d, request,
                    frontdoor_sentinel(d->config.sink.reply(request), proto, status.term, nodes,
                                       n_nodes, args, n));
}

void dispatch_frontdoor(struct dispatch *d, void *request, struct dispatch_slot *slot, int proto,
                        enum fli_command_id id, const struct fli_slice *args, unsigned n)
{
    const struct frontdoor_context *frontdoor = d->config.frontdoor;
    char errmsg[FRONTDOOR_ERRMSG_SIZE];
    struct frontdoor_request q;
    if (frontdoor == NULL) {
        dispatch_error(d, request, "ERR",
                       "this node does not answer as Redis does (--front-door no)");
        return;
    }
    if (id == FLI_CMD_SENTINEL) {
        answer_sentinel(d, request, proto, args, n);
        return;
    }
    if (frontdoor_is_latch(id, args, n)) {
        dispatch_finish(d, request, fli_resp_int(d->config.sink.reply(request), 0));
        return;
    }
    if (id == FLI_CMD_BLPOP) {
        signals_request(d, request, slot, proto, args, n);
        return;
    }
    if (frontdoor_is_local(id)) {
        struct fli_buf *b = d->config.sink.reply(request);
        dispatch_finish(d, request, frontdoor_local(frontdoor->scripts, id, args, n, b));
        return;
    }
    struct frontdoor_context context = *frontdoor;
    context.wall_ms = d->config.wall_ms == NULL ? 0 : d->config.wall_ms();
    int rc = frontdoor_request_parse(&context, id, args, n, &q, errmsg);
    if (rc != 0) {
        dispatch_error(d, request, frontdoor_error_word(rc), errmsg);
    } else {
        submit(d, request, slot, proto, id, &q);
    }
}

/* ---- answers --------------------------------------------------------------------------------- */

int dispatch_frontdoor_render(struct fli_buf *b, const struct call *c,
                              const struct machine_result *result, struct fli_slice payload)
{
    struct fli_slice sent = {c->value, c->value_len};
    struct frontdoor_result r;
    return frontdoor_result_of(result, payload, sent, &r)
               ? frontdoor_reply(b, c->proto, &c->answers, &r)
               : render_result(b, c->proto, c->id, result, payload);
}
