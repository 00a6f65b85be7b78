/* frontdoor.c: see frontdoor.h. */
#include "server/frontdoor.h"

#include <string.h>

#include "machine/glob.h"
#include "server/gather.h"
#include "server/render.h"
#include "server/sentinel.h"
#include "server/signals.h"
#include "wire/resp.h"

_Static_assert((unsigned)FRONTDOOR_GRANT == MACHINE_KEYS_GRANT &&
                   (unsigned)FRONTDOOR_EXTEND == MACHINE_KEYS_EXTEND &&
                   (unsigned)FRONTDOOR_ADD == MACHINE_KEYS_ADD &&
                   (unsigned)FRONTDOOR_RELEASE == MACHINE_KEYS_RELEASE &&
                   (unsigned)FRONTDOOR_EACH == MACHINE_KEYS_EACH &&
                   (unsigned)FRONTDOOR_SWAP == MACHINE_KEYS_SWAP &&
                   (unsigned)FRONTDOOR_AGAIN == MACHINE_KEYS_AGAIN &&
                   FRONTDOOR_KEYS_MAX == MACHINE_NAMES_MAX &&
                   FRONTDOOR_KEEP_MAX_MS == MACHINE_LEAVE_KEEP_MS,
               "a change is the flags of KEYS");

/* ---- requests -------------------------------------------------------------------------------- */

/* Whether this node serves the keys at all; --front-door decides. */
static bool serves(const struct dispatch_frontdoor *frontdoor, const struct frontdoor_request *q)
{
    uint64_t steps = 0;
    struct fli_slice pattern = {(const uint8_t *)frontdoor->pattern,
                                frontdoor->pattern == NULL ? 0 : strlen(frontdoor->pattern)};
    for (unsigned i = 0; frontdoor->pattern != NULL && i < q->n_keys + q->n_each; i++) {
        struct fli_slice key = i < q->n_keys ? q->keys[i] : q->each_keys[i - q->n_keys];
        if (!machine_glob_match(pattern, key, &steps)) {
            return false;
        }
    }
    return true;
}

/* The commands of a lock that is taken several times, and BREAK. */
static void map_op(const struct frontdoor_request *q, struct machine_command *m)
{
    if (q->op == FRONTDOOR_OP_BREAK) {
        *m = (struct machine_command){.op = MACHINE_OP_BREAK, .name = q->keys[0]};
    } else if (q->op == FRONTDOOR_OP_HOLDS) {
        m->op = MACHINE_OP_HOLDS;
        m->label = q->value;
    } else if (q->op == FRONTDOOR_OP_LEAVE) {
        m->op = MACHINE_OP_LEAVE;
        m->owner = q->value;
        m->ttl_ms = q->ttl_ms;
        m->label = (struct fli_slice){q->latch, q->has_latch ? sizeof q->latch : 0};
        m->number = q->keep_ms;
    } else {
        m->op = MACHINE_OP_REENTER;
        m->flags = q->op == FRONTDOOR_OP_ONCE ? MACHINE_REENTER_ONCE : 0;
        m->owner = q->value;
        m->ttl_ms = q->ttl_ms;
    }
}

static struct machine_command map(const struct frontdoor_request *q,
                                  uint8_t also[MACHINE_ALSO_SIZE])
{
    size_t len = 0;
    for (unsigned i = 1; i < q->n_keys; i++) {
        len = machine_also_add(also, len, q->keys[i]);
    }
    struct machine_command m = {.op = MACHINE_OP_KEY,
                                .n_names = (uint8_t)q->n_keys,
                                .permits = 1,
                                .name = q->keys[0],
                                .also = {also, len}};
    if (q->op != FRONTDOOR_OP_KEYS) {
        map_op(q, &m);
        return m;
    }
    if (q->any) {
        m.op = MACHINE_OP_ANY_KEYS;
        m.ttl_ms = q->ttl_ms;
        return m;
    }
    if (q->change == 0) {
        m.label = q->value;
        return m;
    }
    m.op = MACHINE_OP_KEYS;
    m.flags = q->change;
    m.owner = q->value;
    m.label = q->new_value;
    m.ttl_ms = q->ttl_ms;
    return m;
}

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
    struct machine_command m = {
        .op = MACHINE_OP_KEY, .n_names = 1, .permits = 1, .name = {c->name, c->name_len}};
    if (d->config.set_sender != NULL) {
        d->config.set_sender(d->config.users_ctx, c->request, &m);
    }
    d->counts.in_flight--;
    c->answers = (struct frontdoor_answers){
        .own = FRONTDOOR_VALUE, .other = FRONTDOOR_VALUE, .absent = FRONTDOOR_ERROR_CHANGED};
    int rc = dispatch_submit(c, &m, dispatch_on_result);
    if (rc != 0) {
        dispatch_answer_failure(c, rc);
        dispatch_call_free(c);
    }
}

static void submit(struct dispatch *d, void *request, struct dispatch_slot *slot, int proto,
                   enum fli_command_id id, const struct frontdoor_request *q)
{
    uint8_t also[MACHINE_ALSO_SIZE];
    struct machine_command m = map(q, also);
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
    struct node_status status;
    node->status(node->ctx, &status);
    size_t n_members = node->members(node->ctx, members, MEMBERS_MAX);
    dispatch_finish(
        d, request,
        sentinel_reply(d->config.sink.reply(request), proto, &status, members, n_members, args, n));
}

void dispatch_frontdoor(struct dispatch *d, void *request, struct dispatch_slot *slot, int proto,
                        enum fli_command_id id, const struct fli_slice *args, unsigned n)
{
    const struct dispatch_frontdoor *frontdoor = d->config.frontdoor;
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
    struct frontdoor_context context = {.scripts = frontdoor->scripts,
                                        .shared = frontdoor->shared,
                                        .del = frontdoor->del,
                                        .wall_ms =
                                            frontdoor->wall_ms == NULL ? 0 : frontdoor->wall_ms()};
    int rc = frontdoor_request_parse(&context, id, args, n, &q, errmsg);
    if (rc != 0) {
        dispatch_error(d, request, frontdoor_error_word(rc), errmsg);
    } else if (!serves(frontdoor, &q)) {
        dispatch_error(d, request, "ERR",
                       "this node does not serve that key as Redis does: --front-door says which");
    } else if (q.op == FRONTDOOR_OP_RENEW_EACH) {
        gather_request(d, request, slot, proto, id, &q);
    } else {
        submit(d, request, slot, proto, id, &q);
    }
}

/* ---- answers --------------------------------------------------------------------------------- */

static bool outcome_of(const struct machine_result *r, enum frontdoor_outcome *ret)
{
    switch (r->code) {
    case MACHINE_GRANTED:
        *ret = FRONTDOOR_GRANTED;
        return true;
    case MACHINE_DONE:
        *ret = FRONTDOOR_OWN;
        return true;
    case MACHINE_HELD: /* with a token, the key is this value's, though not as asked for */
        *ret = r->token != 0 ? FRONTDOOR_OWN : FRONTDOOR_OTHER;
        return true;
    case MACHINE_NO:
    case MACHINE_NOTFOUND:
        *ret = FRONTDOOR_ABSENT;
        return true;
    default:
        return false;
    }
}

int dispatch_frontdoor_render(struct fli_buf *b, const struct call *c,
                              const struct machine_result *result, struct fli_slice payload)
{
    struct frontdoor_result r = {
        .count = result->number,
        .token = result->token,
        .left_ms =
            result->deadline_ms > result->clock_ms ? result->deadline_ms - result->clock_ms : 0,
        .value = payload,
        .sent = {c->value, c->value_len},
    };
    if (!outcome_of(result, &r.outcome)) {
        return render_result(b, c->proto, c->id, result, payload);
    }
    return frontdoor_reply(b, c->proto, &c->answers, &r);
}
