/* frontdoor.c: see frontdoor.h. */
#include "server/frontdoor.h"

#include <string.h>

#include "frontdoor/sentinel.h"
#include "server/render.h"
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

/* ---- BLPOP ----------------------------------------------------------------------------------- */

static uint64_t now(const struct dispatch *d)
{
    return d->config.now_ms(d->config.ctx);
}

/* Ends the wait and frees the call. */
static void answer_signal(struct call *c, bool woken)
{
    struct dispatch *d = c->dispatch;
    frontdoor_signal_leave(&d->signals, &c->waiter);
    if (c->request != NULL) {
        struct fli_buf *b = d->config.sink.reply(c->request);
        int rc = frontdoor_signal_reply(b, c->proto, c->waiter.name, woken);
        dispatch_finish(d, dispatch_call_detach(c), rc);
    }
    dispatch_call_free(c);
}

static void on_asked(struct node_ticket *t, int status, const struct machine_result *result,
                     struct fli_slice payload)
{
    struct call *c = FLI_CONTAINER_OF(t, struct call, ticket);
    struct dispatch *d = c->dispatch;
    bool held = status == 0 && (result->code == MACHINE_HELD || result->code == MACHINE_DONE);
    bool free = status == 0 && result->code == MACHINE_NOTFOUND;
    bool fired = c->waiter.signal == SIGNAL_FIRED;
    if (c->request != NULL && !held && !free) {
        frontdoor_signal_leave(&d->signals, &c->waiter);
        dispatch_on_result(t, status, result, payload);
        return;
    }
    FLI_ASSERT(d->counts.in_flight > 0);
    d->counts.in_flight--;
    bool stays = !c->hung_up && !d->stopping && c->restores == d->restores;
    if (c->request == NULL || free || fired || !stays) {
        answer_signal(c, free || fired);
    } else {
        bool parked = frontdoor_signal_park(&d->signals, &c->waiter);
        FLI_ASSERT(parked);
    }
}

static void wait_for_signal(struct dispatch *d, void *request, struct dispatch_slot *slot,
                            int proto, const struct fli_slice *args, unsigned n)
{
    const struct dispatch_config *config = &d->config;
    uint8_t name[FL_NAME_MAX];
    struct frontdoor_waiter w = {.signal = SIGNAL_NONE};
    const char *wrong = frontdoor_signal_parse(args, n, name, &w.name, &w.until_ms);
    if (wrong != NULL) {
        dispatch_error(d, request, "ERR", wrong);
        return;
    }
    w.address = config->address == NULL ? 0 : config->address(config->ctx, request);
    bool all_here = config->in_flight != NULL &&
                    config->in_flight(config->ctx, request) > SIGNALS_CONNECTION_MAX;
    if (all_here || dispatch_is_full(d, request, 1) ||
        frontdoor_signals_full(&d->signals, w.address)) {
        dispatch_fail(d, request, FL_EBUSY, true);
        return;
    }
    struct call *c = dispatch_attach(d, request, slot, proto, FLI_CMD_BLPOP);
    copy(c->name, w.name);
    c->restores = d->restores;
    c->waiter = w;
    c->waiter.name.data = c->name;
    c->waiter.until_ms += now(d);
    struct machine_command m = frontdoor_signal_query(&c->waiter);
    if (config->set_sender != NULL) {
        config->set_sender(config->users_ctx, request, &m);
    }
    frontdoor_signal_enter(&d->signals, &c->waiter);
    int rc = dispatch_submit(c, &m, on_asked);
    if (rc != 0) {
        frontdoor_signal_leave(&d->signals, &c->waiter);
        (void)dispatch_call_detach(c);
        dispatch_call_free(c);
        dispatch_fail(d, request, rc, true);
    }
}

bool dispatch_frontdoor_leave(struct call *c)
{
    bool ends = frontdoor_signal_ends(&c->waiter);
    if (ends) {
        answer_signal(c, c->waiter.signal == SIGNAL_WOKEN);
    }
    return ends;
}

void dispatch_frontdoor_turn(struct dispatch *d, unsigned max)
{
    uint64_t now_ms = now(d);
    struct frontdoor_waiter *w = NULL;
    for (unsigned i = 0; i < max && (w = frontdoor_signals_due(&d->signals, now_ms)) != NULL; i++) {
        (void)dispatch_frontdoor_leave(FLI_CONTAINER_OF(w, struct call, waiter));
    }
}

/* ---- requests -------------------------------------------------------------------------------- */

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
        wait_for_signal(d, request, slot, proto, args, n);
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
