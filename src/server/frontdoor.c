/* frontdoor.c: see frontdoor.h. */
#include "server/frontdoor.h"

#include <string.h>

#include "server/render.h"

/* Keeps for the answer what it needs of its request. */
static void note(struct call *c, const struct frontdoor_request *q)
{
    c->frontdoor = !q->waits;
    c->answers = q->answers;
    c->fetches = q->fetches;
    if (q->answers.own == FRONTDOOR_SENT) {
        c->value_len = (uint8_t)q->value.len;
        memcpy(c->value, q->value.data, q->value.len);
    }
    if (q->fetches || q->waits) {
        c->name_len = (uint8_t)q->keys[0].len;
        memcpy(c->name, q->keys[0].data, q->keys[0].len);
    }
}

static void submit(struct dispatch *d, void *request, struct dispatch_slot *slot, int proto,
                   enum fli_command_id id, const struct frontdoor_request *q)
{
    uint8_t room[FRONTDOOR_ROOM];
    struct machine_command m = frontdoor_command(q, room);
    struct call *c = dispatch_begin(d, request, slot, proto, id, &m);
    if (c == NULL) {
        return;
    }
    note(c, q);
    if (!q->waits || dispatch_signal_begin(c, q->wait_ms)) {
        (void)dispatch_send(c, &m);
    }
}

void dispatch_frontdoor(struct dispatch *d, void *request, struct dispatch_slot *slot, int proto,
                        enum fli_command_id id, const struct fli_slice *args, unsigned n)
{
    const struct dispatch_config *config = &d->config;
    char errmsg[FRONTDOOR_ERRMSG_SIZE];
    struct frontdoor_request q;
    if (config->frontdoor == NULL) {
        dispatch_error(d, request, "ERR",
                       "this node does not answer as Redis does (--front-door no)");
        return;
    }
    struct frontdoor_context context = *config->frontdoor;
    context.wall_ms = config->wall_ms == NULL ? 0 : config->wall_ms();
    if (id == FLI_CMD_SENTINEL) {
        dispatch_answer_nodes(d, request, proto, args, n);
        return;
    }
    if (frontdoor_is_local(id, args, n)) {
        struct fli_buf *b = config->sink.reply(request);
        dispatch_finish(d, request, frontdoor_local(context.scripts, id, args, n, b));
        return;
    }
    int rc = frontdoor_request_parse(&context, id, args, n, &q, errmsg);
    if (rc != 0) {
        dispatch_error(d, request, frontdoor_error_word(rc), errmsg);
    } else {
        submit(d, request, slot, proto, id, &q);
    }
}

bool dispatch_frontdoor_goes_on(struct call *c, const struct machine_result *result)
{
    if (!c->fetches || c->request == NULL || result == NULL || !frontdoor_fetches(result)) {
        return false;
    }
    struct machine_command m =
        frontdoor_fetch((struct fli_slice){c->name, c->name_len}, &c->answers);
    c->fetches = false;
    dispatch_set_sender(c->dispatch, c->request, &m);
    (void)dispatch_send(c, &m);
    return true;
}

int dispatch_frontdoor_render(struct fli_buf *b, const struct call *c,
                              const struct machine_result *result, struct fli_slice payload)
{
    struct fli_slice sent = {c->value, c->value_len};
    struct frontdoor_result r;
    return frontdoor_result_of(result, payload, sent, &r)
               ? frontdoor_reply(b, c->proto, &c->answers, &r)
               : render_result(b, c->proto, c->id, result, payload);
}
