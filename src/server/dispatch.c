/* dispatch.c: see dispatch.h. The life of a request from here on. cleanup.c handles the requests of
 * clients that are gone. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "machine/batch.h"
#include "server/backup.h"
#include "server/cluster_config.h"
#include "server/dispatch_private.h"
#include "server/frontdoor.h"
#include "server/render.h"
#include "wire/request.h"
#include "wire/resp.h"

#define BUSIEST_STEPS_MAX 1000000u /* of comparing names with a user's patterns, in one answer */

/* --- calls --- */

struct call *dispatch_call_take(struct dispatch *d)
{
    struct fli_list *link = fli_list_pop(&d->spare);
    struct call *c =
        link != NULL ? FLI_CONTAINER_OF(link, struct call, link) : fli_xmalloc(sizeof *c);
    d->spare_n -= link != NULL;
    /* The name is left out: it is long, and name_len says that there is none. */
    memset(c, 0, offsetof(struct call, name));
    fli_list_init(&c->link);
    c->dispatch = d;
    d->calls++;
    return c;
}

bool dispatch_is_full(struct dispatch *d, void *request, size_t n)
{
    size_t max = d->config.calls_max;
    if (d->config.in_flight != NULL &&
        d->config.in_flight(d->config.ctx, request) + n - 1 > DISPATCH_FEW) {
        max -= max / 4;
    }
    return d->calls + n > max;
}

void dispatch_call_free(struct call *c)
{
    struct dispatch *d = c->dispatch;
    FLI_ASSERT(c->request == NULL && c->parked.wait == NULL);
    FLI_ASSERT(c->cleanup_sent == CLEANUP_NONE && !fli_list_linked(&c->link));
    if (c->waiter.signal != SIGNAL_NONE) {
        frontdoor_signal_leave(&d->signals, &c->waiter);
    }
    FLI_ASSERT(d->calls > 0);
    d->calls--;
    if (d->spare_n >= DISPATCH_SPARE_MAX) {
        free(c);
        return;
    }
    d->spare_n++;
    fli_list_push(&d->spare, &c->link);
}

/* --- answers --- */

void dispatch_finish(struct dispatch *d, void *request, int rc)
{
    if (rc == 0) {
        d->config.sink.answer(request);
    } else {
        d->config.sink.failed(request);
    }
}

void dispatch_error(struct dispatch *d, void *request, const char *word, const char *text)
{
    d->counts.errors++;
    dispatch_finish(d, request, fli_resp_error(d->config.sink.reply(request), word, "%s", text));
}

void dispatch_fail(struct dispatch *d, void *request, int status, bool retryable)
{
    d->counts.noleader += status == FL_ENOLEADER;
    d->counts.busy += status == FL_EBUSY;
    d->counts.uncertain += status == FL_EUNCERTAIN;
    dispatch_finish(d, request, render_failure(d->config.sink.reply(request), status, retryable));
}

void *dispatch_call_detach(struct call *c)
{
    void *request = c->request;
    FLI_ASSERT(request != NULL && c->slot->call == c);
    c->slot->call = NULL;
    c->slot = NULL;
    c->request = NULL;
    return request;
}

void dispatch_answer_failure(struct call *c, int status)
{
    dispatch_fail(c->dispatch, dispatch_call_detach(c), status, !c->made_owner);
}

void dispatch_answer_news(struct call *c, const struct parked_news *news)
{
    struct dispatch *d = c->dispatch;
    void *request = dispatch_call_detach(c);
    struct fli_buf *b = d->config.sink.reply(request);
    dispatch_finish(d, request,
                    news->end == PARKED_GRANTED ? render_granted(b, news->token)
                                                : render_wait_ended(b, c->proto, news->reason));
}

/* --- results --- */

void dispatch_tell_refused(struct dispatch *d, void *request, enum fli_command_id id,
                           const struct machine_result *result)
{
    bool by_right = result->code == MACHINE_NOPERM;
    if ((by_right || result->code == MACHINE_NOAUTH) && d->config.refused != NULL) {
        d->config.refused(d->config.users_ctx, request, id, by_right);
    }
}

void dispatch_on_result(struct node_ticket *t, int status, const struct machine_result *result,
                        struct fli_slice payload)
{
    struct call *c = FLI_CONTAINER_OF(t, struct call, ticket);
    struct dispatch *d = c->dispatch;
    FLI_ASSERT(d->counts.in_flight > 0);
    d->counts.in_flight--;
    listing_done(c);
    if (c->waits) {
        parked_request_answered(&d->parked);
    }
    if (status == 0 && result->code == MACHINE_QUEUED) {
        dispatch_park(c, result);
        return;
    }
    const struct machine_result *known = status == 0 ? result : NULL;
    if (dispatch_signal_asked(c, known) || dispatch_frontdoor_goes_on(c, known)) {
        return;
    }
    if (c->request == NULL) {
        dispatch_orphan_done(c, status, result);
        return;
    }
    if (status != 0) {
        dispatch_answer_failure(c, status);
    } else {
        void *request = dispatch_call_detach(c);
        dispatch_tell_refused(d, request, c->id, result);
        struct fli_buf *b = d->config.sink.reply(request);
        dispatch_finish(d, request,
                        c->frontdoor ? dispatch_frontdoor_render(b, c, result, payload)
                                     : render_result(b, c->proto, c->id, result, payload));
    }
    dispatch_call_free(c);
}

/* --- submitting --- */

/* Makes 32 hex digits that were never used before. Random bytes are fetched many at a time: a
 * system call for each owner would cost more than everything else here. */
static struct fli_slice make_owner(struct dispatch *d)
{
    static const char digits[] = "0123456789abcdef";
    if (d->random_left < OWNER_RANDOM) {
        fli_random(d->random, sizeof d->random);
        d->random_left = sizeof d->random;
    }
    d->random_left -= OWNER_RANDOM;
    const uint8_t *bytes = d->random + d->random_left;
    for (size_t i = 0; i < OWNER_RANDOM; i++) {
        d->owner[2 * i] = (uint8_t)digits[bytes[i] >> 4];
        d->owner[2 * i + 1] = (uint8_t)digits[bytes[i] & 15];
    }
    return (struct fli_slice){d->owner, sizeof d->owner};
}

static void map_acquire(const struct fli_request *q, uint8_t also[MACHINE_ALSO_SIZE],
                        struct machine_command *m)
{
    size_t len = 0;
    for (unsigned i = 0; i < q->n_also; i++) {
        len = machine_also_add(also, len, q->also[i]);
    }
    m->op = MACHINE_OP_ACQUIRE;
    m->flags = (uint8_t)((q->explicit_session ? MACHINE_ACQUIRE_EXPLICIT : 0) |
                         (q->wait ? MACHINE_ACQUIRE_WAIT : 0) |
                         (q->attempt > 1 ? MACHINE_ACQUIRE_ATTEMPT : 0));
    m->number = q->attempt > 1 ? q->attempt : 0;
    m->mode = q->shared ? MACHINE_MODE_SHARED : MACHINE_MODE_EXCLUSIVE;
    m->n_names = (uint8_t)(1 + q->n_also);
    m->also = (struct fli_slice){also, len};
    m->permits = (uint32_t)q->permits;
    m->wait_ms = q->wait ? q->wait_ms : 0;
}

/* The machine's command for a request that has one; else its op is 0. It points into the request
 * and into `also`. */
static void map(const struct fli_request *q, uint8_t also[MACHINE_ALSO_SIZE],
                struct machine_command *m)
{
    *m = (struct machine_command){.name = q->name,
                                  .owner = q->owner,
                                  .label = q->label,
                                  .value = q->value,
                                  .token = q->token,
                                  .ttl_ms = q->ttl_ms,
                                  .lockdelay_ms = q->lockdelay_ms};
    switch (q->command->id) {
    case FLI_CMD_ACQUIRE:
        map_acquire(q, also, m);
        break;
    case FLI_CMD_RENEW:
        m->op = MACHINE_OP_RENEW;
        break;
    case FLI_CMD_RELEASE:
        m->op = MACHINE_OP_RELEASE;
        break;
    case FLI_CMD_CHECK:
        m->op = MACHINE_OP_CHECK;
        break;
    case FLI_CMD_TOKEN:
        m->op = MACHINE_OP_TOKEN;
        break;
    case FLI_CMD_SHOW:
        m->op = MACHINE_OP_SHOW;
        break;
    case FLI_CMD_BREAK:
        m->op = MACHINE_OP_BREAK;
        break;
    case FLI_CMD_LOCKS:
        m->op = MACHINE_OP_LOCKS;
        m->value = q->pattern;
        m->name = q->cursor;
        m->number = q->number;
        break;
    case FLI_CMD_SESSION_OPEN:
        m->op = MACHINE_OP_SESSION_OPEN;
        break;
    case FLI_CMD_SESSION_RENEW:
        m->op = MACHINE_OP_SESSION_RENEW;
        break;
    case FLI_CMD_SESSION_CLOSE:
        m->op = MACHINE_OP_SESSION_CLOSE;
        break;
    case FLI_CMD_SESSION_SHOW:
        m->op = MACHINE_OP_SESSION_SHOW;
        break;
    case FLI_CMD_SESSION_LIST:
        m->op = MACHINE_OP_SESSION_LIST;
        m->owner = q->cursor;
        m->number = q->number;
        break;
    case FLI_CMD_CLUSTER_CONFIG: {
        char why[CLUSTER_CONFIG_WHY_MAX];
        enum cluster_config_verb verb = cluster_config_read(q, 3, m, why);
        FLI_ASSERT(verb == CLUSTER_CONFIG_SET); /* answer_config() has checked it */
        break;
    }
    default:
        break;
    }
}

int dispatch_submit(struct call *c, const struct machine_command *m, node_ticket_cb cb)
{
    struct dispatch *d = c->dispatch;
    fli_buf_clear(&d->scratch);
    int rc = machine_command_encode(m, &d->scratch);
    return rc != 0 ? rc : dispatch_submit_bytes(c, d->scratch.data, d->scratch.len, cb);
}

int dispatch_submit_bytes(struct call *c, const void *command, size_t len, node_ticket_cb cb)
{
    struct dispatch *d = c->dispatch;
    int rc = d->config.node.submit(d->config.node.ctx, &c->ticket, command, len, cb);
    d->counts.in_flight += rc == 0;
    return rc;
}

struct call *dispatch_attach(struct dispatch *d, void *request, struct dispatch_slot *slot,
                             int proto, enum fli_command_id id)
{
    struct call *c = dispatch_call_take(d);
    c->request = request;
    c->slot = slot;
    c->proto = (uint8_t)proto;
    c->id = id;
    c->ticket.source = d->config.source == NULL ? 0 : d->config.source(d->config.ctx, request);
    slot->call = c;
    return c;
}

/* Whether the user exists, as far as this node knows. */
static bool is_somebody(const struct dispatch *d, uint64_t user)
{
    const struct machine *m = d->config.node.machine(d->config.node.ctx);
    return m == NULL || machine_may(m, user, 0, NULL);
}

void dispatch_set_sender(struct dispatch *d, void *request, struct machine_command *m)
{
    if (d->config.set_sender != NULL) {
        d->config.set_sender(d->config.users_ctx, request, m);
    }
}

struct call *dispatch_begin(struct dispatch *d, void *request, struct dispatch_slot *slot,
                            int proto, enum fli_command_id id, struct machine_command *m)
{
    FLI_ASSERT(m->op != 0);
    dispatch_set_sender(d, request, m);
    if (dispatch_is_full(d, request, 1)) {
        dispatch_fail(d, request, FL_EBUSY, true);
        return NULL;
    }
    return dispatch_attach(d, request, slot, proto, id);
}

bool dispatch_send(struct call *c, const struct machine_command *m)
{
    struct dispatch *d = c->dispatch;
    int rc = listing_is(m) ? listing_submit(c, m, dispatch_on_result)
                           : dispatch_submit(c, m, dispatch_on_result);
    if (rc == 0) {
        c->since = c->waits ? parked_request_sent(&d->parked) : 0;
        c->restores = d->restores;
        return true;
    }
    void *request = dispatch_call_detach(c);
    dispatch_call_free(c);
    if (rc == FL_EINVAL && listing_is(m)) {
        dispatch_error(d, request, "ERR",
                       "CURSOR: write the cursor that the page before gave, or 0 to begin");
    } else if (rc == FL_EINVAL) {
        dispatch_error(d, request, "ERR", "an argument is out of range");
    } else {
        dispatch_fail(d, request, rc, true);
    }
    return false;
}

static void submit_request(struct dispatch *d, void *request, struct dispatch_slot *slot, int proto,
                           const struct fli_request *q)
{
    uint8_t also[MACHINE_ALSO_SIZE];
    struct machine_command m;
    map(q, also, &m);
    struct call *c = dispatch_begin(d, request, slot, proto, q->command->id, &m);
    if (q->jeopardies + q->lost > 0 && is_somebody(d, m.user)) {
        d->counts.jeopardies += q->jeopardies;
        d->counts.lost += q->lost;
    }
    if (c == NULL) {
        return;
    }
    if (m.op == MACHINE_OP_ACQUIRE) {
        c->waits = q->wait;
        c->wait_ms = m.wait_ms;
        c->counted = q->attempt > 1;
        if (m.owner.len == 0) {
            c->made_owner = true;
            m.owner = make_owner(d);
            c->name_len = (uint8_t)m.name.len;
            memcpy(c->name, m.name.data, m.name.len);
        }
    }
    (void)dispatch_send(c, &m);
}

/* --- answers without the machine --- */

static void on_changed(void *ctx, int status)
{
    struct call *c = ctx;
    struct dispatch *d = c->dispatch;
    d->counts.in_flight--;
    if (c->request != NULL) {
        struct node_status s;
        d->config.node.status(d->config.node.ctx, &s);
        void *request = dispatch_call_detach(c);
        struct fli_buf *b = d->config.sink.reply(request);
        dispatch_finish(d, request,
                        c->id == FLI_CMD_CLUSTER_TRANSFER
                            ? render_transfer(b, status, &s)
                            : render_change(b, c->id, status, c->number, &s));
    }
    dispatch_call_free(c);
}

static enum node_change_kind change_of(enum fli_command_id id)
{
    switch (id) {
    case FLI_CMD_CLUSTER_ADD:
        return NODE_CHANGE_ADD;
    case FLI_CMD_CLUSTER_REMOVE:
        return NODE_CHANGE_REMOVE;
    case FLI_CMD_CLUSTER_REPLACE:
        return NODE_CHANGE_REPLACE;
    default:
        FLI_ASSERT(id == FLI_CMD_CLUSTER_MOVE);
        return NODE_CHANGE_MOVE;
    }
}

static int change_member(const struct dispatch_node *node, struct call *c,
                         const struct fli_request *q)
{
    struct node_change wanted = {.kind = change_of(c->id),
                                 .id = q->number,
                                 .incarnation = q->incarnation,
                                 .learner = q->learner,
                                 .force = q->force};
    if (q->value.len > 0 && memchr(q->value.data, 0, q->value.len) != NULL) {
        return FL_EINVAL;
    }
    FLI_ASSERT(q->value.len < sizeof wanted.address);
    if (q->value.len > 0) {
        memcpy(wanted.address, q->value.data, q->value.len);
    }
    return node->change(node->ctx, &wanted, on_changed, c);
}

static void change_cluster(struct dispatch *d, void *request, struct dispatch_slot *slot, int proto,
                           const struct fli_request *q)
{
    const struct dispatch_node *node = &d->config.node;
    struct call *c = dispatch_attach(d, request, slot, proto, q->command->id);
    c->number = q->number;
    d->counts.in_flight++;
    int rc = c->id == FLI_CMD_CLUSTER_TRANSFER ? node->transfer(node->ctx, q->number, on_changed, c)
                                               : change_member(node, c, q);
    if (rc != 0) {
        on_changed(c, rc);
    }
}

static void fill_info(struct dispatch *d, struct info *i)
{
    const struct dispatch_node *node = &d->config.node;
    memset(i, 0, sizeof *i);
    node->status(node->ctx, &i->status);
    i->members_n = node->members(node->ctx, i->members, MEMBERS_MAX);
    i->machine = node->machine(node->ctx);
    dispatch_get_counts(d, &i->counts);
    if (d->config.describe != NULL) {
        d->config.describe(d->config.ctx, &i->server_facts);
    }
}

static void answer_info(struct dispatch *d, void *request, int proto, enum fli_command_id id,
                        const struct fli_slice *sections, unsigned n)
{
    struct info i;
    struct fli_buf text;
    fill_info(d, &i);
    fli_buf_init(&text, INFO_TEXT_MAX);
    int rc =
        id == FLI_CMD_INFO ? info_write(&text, &i, sections, n) : info_write_cluster(&text, &i);
    rc =
        rc != 0 ? rc : fli_resp_verbatim(d->config.sink.reply(request), proto, text.data, text.len);
    fli_buf_fini(&text);
    dispatch_finish(d, request, rc);
}

static void answer_leader(struct dispatch *d, void *request, int proto)
{
    struct node_status s;
    d->config.node.status(d->config.node.ctx, &s);
    dispatch_finish(d, request, render_leader(d->config.sink.reply(request), proto, &s));
}

static void answer_busiest(struct dispatch *d, void *request, int proto,
                           const struct fli_command *command, uint64_t wanted)
{
    const struct dispatch_config *c = &d->config;
    if (c->sees != NULL && !c->sees(c->users_ctx, request, command)) {
        return;
    }
    const struct busiest_entry *top[BUSIEST_COUNTERS];
    const struct busiest *b = c->busiest == NULL ? NULL : c->busiest(c->ctx);
    unsigned all = b == NULL ? 0 : busiest_top(b, top, BUSIEST_COUNTERS);
    unsigned n = 0;
    uint64_t steps = 0;
    for (unsigned i = 0; i < all && n < wanted; i++) {
        struct fli_slice name = {top[i]->name, top[i]->name_len};
        if (c->may_see == NULL || c->may_see(c->ctx, request, name, &steps)) {
            top[n++] = top[i];
        }
        if (steps > BUSIEST_STEPS_MAX) {
            dispatch_error(d, request, "LIMIT",
                           "comparing the names of these locks with the patterns of this user "
                           "takes too long: give the user fewer or shorter patterns (ACL SETUSER)");
            return;
        }
    }
    dispatch_finish(d, request, render_busiest(c->sink.reply(request), proto, top, n));
}

void dispatch_answer_nodes(struct dispatch *d, void *request, int proto,
                           const struct fli_slice *args, unsigned n)
{
    struct node_member members[MEMBERS_MAX];
    struct node_status s;
    const struct dispatch_node *node = &d->config.node;
    size_t len = node->members(node->ctx, members, MEMBERS_MAX);
    struct fli_buf *b = d->config.sink.reply(request);
    node->status(node->ctx, &s);
    dispatch_finish(d, request,
                    args == NULL ? render_nodes(b, proto, members, len)
                                 : render_sentinel(b, proto, s.term, members, len, args, n));
}

static void answer_backup(struct dispatch *d, void *request, const struct fli_request *q,
                          unsigned n)
{
    const struct dispatch_node *node = &d->config.node;
    if (node->backup_begin == NULL) {
        dispatch_error(d, request, "ERR", "there are no backups here");
    } else if (n == 1) {
        dispatch_error(d, request, "ERR", "write both id and offset, or neither to begin one");
    } else {
        struct fli_buf *b = d->config.sink.reply(request);
        dispatch_finish(d, request, n == 0 ? backup_begin(b, node) : backup_read(b, node, q));
    }
}

static void answer_config(struct dispatch *d, void *request, struct dispatch_slot *slot, int proto,
                          const struct fli_request *q, unsigned n)
{
    struct machine_command ignored;
    const struct machine *m = d->config.node.machine(d->config.node.ctx);
    char why[CLUSTER_CONFIG_WHY_MAX] = "";
    enum cluster_config_verb verb = cluster_config_read(q, n, &ignored, why);
    if (verb == CLUSTER_CONFIG_SET) {
        submit_request(d, request, slot, proto, q);
    } else if (verb == CLUSTER_CONFIG_WRONG) {
        dispatch_error(d, request, "ERR", why);
    } else if (m == NULL) {
        dispatch_error(d, request, "NOLEADER", "this node is stopping; ask another one");
    } else {
        struct fli_buf *b = d->config.sink.reply(request);
        dispatch_finish(d, request, cluster_config_render(b, proto, m));
    }
}

/* --- requests --- */

static void serve(struct dispatch *d, void *request, struct dispatch_slot *slot, int proto,
                  const struct fli_request *q, const struct fli_slice *args, unsigned n)
{
    if (q->command->id == FLI_CMD_LOCKS && q->by.len > 0) {
        answer_busiest(d, request, proto, q->command, q->number);
        return;
    }
    switch (q->command->id) {
    case FLI_CMD_ACL_CAT:
    case FLI_CMD_ACL_DELUSER:
    case FLI_CMD_ACL_GETUSER:
    case FLI_CMD_ACL_LIST:
    case FLI_CMD_ACL_LOAD:
    case FLI_CMD_ACL_SAVE:
    case FLI_CMD_ACL_SETUSER:
    case FLI_CMD_ACL_USERS:
    case FLI_CMD_ACL_WHOAMI:
        if (d->config.users == NULL) {
            dispatch_error(d, request, "ERR", "there are no users here");
        } else {
            d->config.users(d->config.users_ctx, request, q->command, args, n);
        }
        break;
    case FLI_CMD_INFO:
    case FLI_CMD_CLUSTER_INFO:
        answer_info(d, request, proto, q->command->id, args, n);
        break;
    case FLI_CMD_LEADER:
        answer_leader(d, request, proto);
        break;
    case FLI_CMD_CLUSTER_MEMBERS:
        dispatch_answer_nodes(d, request, proto, NULL, 0);
        break;
    case FLI_CMD_CLUSTER_CONFIG:
        answer_config(d, request, slot, proto, q, n);
        break;
    case FLI_CMD_CLUSTER_BACKUP:
        answer_backup(d, request, q, n);
        break;
    case FLI_CMD_CLUSTER_TRANSFER:
    case FLI_CMD_CLUSTER_ADD:
    case FLI_CMD_CLUSTER_REMOVE:
    case FLI_CMD_CLUSTER_REPLACE:
    case FLI_CMD_CLUSTER_MOVE:
        change_cluster(d, request, slot, proto, q);
        break;
    default:
        submit_request(d, request, slot, proto, q);
        break;
    }
}

void dispatch_request(struct dispatch *d, void *request, struct dispatch_slot *slot, int proto,
                      const struct fli_slice *argv, unsigned argc)
{
    char errmsg[FLI_ERRMSG_SIZE];
    const struct fli_command *command = NULL;
    unsigned words = 0;
    slot->call = NULL;
    int rc =
        fli_command_lookup(FLI_SERVICE_LOCK, argv, argc, &command, &words, errmsg, sizeof errmsg);
    if (rc == 0 && d->config.gate != NULL &&
        !d->config.gate(d->config.users_ctx, request, command)) {
        return;
    }
    if (rc == 0 && (command->flags & FLI_CMD_CONNECTION) != 0) {
        d->config.connection(d->config.ctx, request, command, argv + words, argc - words);
        return;
    }
    d->counts.commands++;
    if (rc == 0 && (command->flags & FLI_CMD_FRONTDOOR) != 0) {
        dispatch_frontdoor(d, request, slot, proto, command->id, argv + words, argc - words);
        return;
    }
    struct fli_request q;
    if (rc == 0) {
        rc = fli_request_parse(command, argv + words, argc - words, &q, errmsg, sizeof errmsg);
    }
    if (rc != 0) {
        dispatch_error(d, request, fli_request_error_word(rc), errmsg);
        return;
    }
    serve(d, request, slot, proto, &q, argv + words, argc - words);
}

/* --- life --- */

int dispatch_create(const struct dispatch_config *config, struct dispatch **ret)
{
    struct dispatch *d = calloc(1, sizeof *d);
    if (d == NULL) {
        return FL_ENOMEM;
    }
    d->config = *config;
    if (d->config.slack_ms == 0) {
        d->config.slack_ms = DISPATCH_SLACK_DEFAULT_MS;
    }
    if (d->config.calls_max == 0) {
        d->config.calls_max = DISPATCH_CALLS_DEFAULT;
    }
    uint64_t seed[2];
    fli_random(seed, sizeof seed);
    parked_init(&d->parked, seed);
    fli_random(seed, sizeof seed);
    frontdoor_signals_init(&d->signals, seed);
    fli_list_init(&d->spare);
    listing_init(d);
    fli_line_init(&d->cleanup);
    for (unsigned i = 0; i < DISPATCH_CLEANUP_QUEUES; i++) {
        fli_queue_init(&d->cleanup_of[i], &d->cleanup);
    }
    fli_list_init(&d->again);
    fli_buf_init(&d->scratch, MACHINE_COMMAND_LARGEST);
    *ret = d;
    return 0;
}

void dispatch_destroy(struct dispatch *d)
{
    if (d == NULL) {
        return;
    }
    dispatch_drop_all(d);
    FLI_ASSERT(d->calls == 0);
    struct fli_list *link = NULL;
    while ((link = fli_list_pop(&d->spare)) != NULL) {
        free(FLI_CONTAINER_OF(link, struct call, link));
    }
    parked_fini(&d->parked);
    frontdoor_signals_fini(&d->signals);
    listing_fini(d);
    fli_buf_fini(&d->scratch);
    free(d);
}

void dispatch_get_counts(const struct dispatch *d, struct info_counts *ret)
{
    *ret = d->counts;
    ret->parked = d->parked.len + d->signals.n;
}
