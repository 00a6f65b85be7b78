/* server.c: see server.h.
 *
 *   net --request--> dispatch --submit--> node
 *    ^                  |  ^               |
 *    '-----answer-------'  '--result,event-'
 *
 * The node is made last: it needs the port for clients. It stops together with net, which reads no
 * more; the node answers what it can, and each connection closes when it has its answers. */
#include "server/server.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "base/clock.h"
#include "members/data_dir.h"
#include "node/node.h"
#include "server/server_private.h"
#include "server/status_line.h"

#define ARG_MAX_BYTES 4096u
#define REQUEST_MAX_BYTES 32768u
#define OUTPUT_MAX_BYTES (1024u * 1024u)
#define PIPELINE_MAX 1024u
#define SUBSCRIBER_UNSENT_MAX                                                                      \
    (OUTPUT_MAX_BYTES / 2)               /* with more unsent, a subscriber is cut
                                                        off */
#define CONFIRM_MAX_BYTES (128u * 1024u) /* confirmations of 256 channels */
#define FILES_RESERVED 64u               /* descriptors for log segments, peers, listeners */

static void FLI_PRINTF(3, 4) log_message(const struct server *s, int level, const char *fmt, ...)
{
    char text[512];
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    s->cbs.log(s->cbs.ctx, level, "server", text);
}

/* The record kept with each request. */
struct request_slot {
    struct dispatch_slot dispatch;
    struct access_slot access;
};

/* --- net to dispatch --- */

static struct dispatch_slot *slot_of(struct net_request *r)
{
    return &((struct request_slot *)(void *)r->user)->dispatch;
}

static struct access_slot *access_slot_of(struct net_request *r)
{
    return &((struct request_slot *)(void *)r->user)->access;
}

static void finish(struct net_request *r, int rc)
{
    if (rc == 0) {
        net_answer(r);
    } else {
        net_answer_failed(r);
    }
}

/* With subscriptions in RESP2, only few commands are served. True: it was answered here. */
static bool answer_subscribed(struct net_request *r, const struct fli_slice *argv, unsigned argc)
{
    char errmsg[FLI_ERRMSG_SIZE];
    const struct fli_command *command = NULL;
    unsigned words = 0;
    int rc =
        fli_command_lookup(FLI_SERVICE_LOCK, argv, argc, &command, &words, errmsg, sizeof errmsg);
    if (rc != 0 || (events_may_send(command->id) && command->id != FLI_CMD_PING)) {
        return false;
    }
    struct fli_buf *b = net_reply(r);
    if (command->id == FLI_CMD_PING) {
        rc = fli_resp_array(b, 2);
        rc = rc != 0 ? rc : fli_resp_text(b, "pong");
        finish(r, rc != 0 ? rc
                          : fli_resp_bulk(b, argc > words ? argv[words].data : (const uint8_t *)"",
                                          argc > words ? argv[words].len : 0));
        return true;
    }
    finish(r, fli_resp_error(
                  b, "ERR",
                  "Can't execute '%s': only (P)SUBSCRIBE / (P)UNSUBSCRIBE / PING / "
                  "LEADER / QUIT / RESET are allowed in this context; unsubscribe first, or use "
                  "HELLO 3 or another connection",
                  command->name));
    return true;
}

static void on_request(void *ctx, struct net_request *r, const struct fli_slice *argv,
                       unsigned argc)
{
    struct server *s = ctx;
    s->asked_with_tls = net_conn_is_tls(r->conn);
    *access_slot_of(r) = (struct access_slot){.call = NULL};
    bool subscribed = net_conn_user(r->conn) != NULL && net_conn_proto(r->conn) == 2;
    if (subscribed && answer_subscribed(r, argv, argc)) {
        return;
    }
    dispatch_request(s->dispatch, r, slot_of(r), net_conn_proto(r->conn), argv, argc);
}

static void on_cancel(void *ctx, struct net_request *r)
{
    struct server *s = ctx;
    access_cancel(s->access, r);
    dispatch_cancel(s->dispatch, slot_of(r));
}

static void on_hangup(void *ctx, struct net_request *r)
{
    struct server *s = ctx;
    dispatch_hangup(s->dispatch, slot_of(r));
}

static void on_closed(void *ctx, struct net_conn *c)
{
    struct server *s = ctx;
    events_drop(&s->events, net_conn_user(c));
    net_conn_set_user(c, NULL);
    net_conn_set_subscribed(c, 0);
    access_closed(s->access, c);
}

static void on_shaken(void *ctx, struct net_conn *c)
{
    struct server *s = ctx;
    access_shaken(s->access, c);
}

static void on_net_log(void *ctx, int level, const char *message)
{
    struct server *s = ctx;
    s->cbs.log(s->cbs.ctx, level, "clients", message);
}

/* --- dispatch to net --- */

static struct fli_buf *sink_reply(void *request)
{
    return net_reply(request);
}

static void sink_answer(void *request)
{
    net_answer(request);
}

static void sink_failed(void *request)
{
    net_answer_failed(request);
}

static bool sink_behind(void *request)
{
    const struct net_request *r = request;
    return net_conn_output_bytes(r->conn) > OUTPUT_MAX_BYTES / 4;
}

/* In RESP3, confirmations are pushes like the messages, and are sent in one order with them. */
static void change_subscriptions(struct server *s, struct net_request *r, enum fli_command_id id,
                                 const struct fli_slice *args, unsigned n)
{
    struct net_conn *c = r->conn;
    struct events_subscriber *subscriber = net_conn_user(c);
    int proto = net_conn_proto(c);
    fli_buf_clear(&s->confirm);
    enum events_outcome outcome =
        events_command(&s->events, &subscriber, c, id, proto, args, n, &s->confirm);
    net_conn_set_user(c, subscriber);
    net_conn_set_subscribed(c, events_memory_of(subscriber));
    const struct fli_buf *b = &s->confirm;
    if (outcome == EVENTS_FAILED) {
        net_answer_failed(r);
    } else if (outcome == EVENTS_CONFIRMED && proto == 3) {
        finish(r, net_push(c, b->data, b->len) ? 0 : FL_ELIMIT);
    } else {
        finish(r, fli_buf_append(net_reply(r), b->data, b->len));
    }
}

static int events_proto(void *ctx, void *to)
{
    return net_conn_proto(to);
}

static bool events_push(void *ctx, void *to, const void *frame, size_t len)
{
    struct net_conn *c = to;
    if (net_conn_output_bytes(c) + len <= SUBSCRIBER_UNSENT_MAX) {
        return net_push(c, frame, len);
    }
    static const char last_word[] =
        "-LIMIT events ended: this client does not read them as fast as they come; reconnect, "
        "subscribe again, and look at what you missed with SHOW\r\n";
    net_conn_cut_off(c, "it does not read its events", last_word, sizeof last_word - 1);
    return false;
}

static bool events_may_see(void *ctx, void *to, struct fli_slice lock, uint64_t *steps)
{
    struct server *s = ctx;
    return access_may_see(s->access, to, lock, steps);
}

static void events_dropped(void *ctx, void *to)
{
    net_conn_set_user(to, NULL);
}

static void on_connection_command(void *ctx, void *request, const struct fli_command *command,
                                  const struct fli_slice *args, unsigned n)
{
    struct server *s = ctx;
    struct net_request *r = request;
    if (command->id == FLI_CMD_RESET) {
        on_closed(s, r->conn);
    }
    if (!net_connection_command(&s->commands, r, command, args, n)) {
        change_subscriptions(s, r, command->id, args, n);
    }
}

static unsigned on_hello(void *ctx, struct net_hello_field *fields)
{
    struct server *s = ctx;
    struct node_status status = {.id = s->config->id};
    if (s->node != NULL) {
        node_get_status(s->node, &status);
    }
    if (server_pick_address(s, status.leader_client_address, s->leader_address) == NULL) {
        s->leader_address[0] = '\0';
    }
    fields[0] = (struct net_hello_field){.key = "fencelock_version", .text = FENCELOCK_VERSION};
    fields[1] = (struct net_hello_field){.key = "node_id", .number = (int64_t)s->config->id};
    fields[2] = (struct net_hello_field){.key = "leader_id", .number = (int64_t)status.leader_id};
    fields[3] = (struct net_hello_field){.key = "leader_address", .text = s->leader_address};
    return 4;
}

static void on_describe(void *ctx, struct info_server *ret)
{
    const struct server *s = ctx;
    *ret = (struct info_server){
        .listen_address = s->address,
        .peer_address = s->config->peer[0] != '\0'
                            ? s->config->peer
                            : members_find(&s->config->members, s->config->id)->address,
        .data_dir = s->config->data,
        .config_file = s->config->file,
        .port = net_server_port(s->net),
        .tls_port = net_server_tls_port(s->net),
        .uptime_ms = fli_clock_ms() - s->started_ms,
        .connections = net_connections(s->net),
        .connections_max = s->connections_max,
    };
    net_get_stats(s->net, &ret->net);
    net_get_memory(s->net, &ret->memory);
    ret->events_memory = events_queued_bytes(&s->events);
    ret->turn = net_server_turn(s->net)->stats;
    (void)net_server_tls_facts(s->net, &ret->tls);
    if (s->node != NULL) {
        node_get_security(s->node, &ret->peers);
    }
    events_get_counts(&s->events, &ret->events);
    struct access_counts access;
    access_get_counts(s->access, &access);
    ret->logins = access.logins;
    ret->login_failures = access.failures;
    ret->logins_delayed = access.delayed;
    ret->denied = access.denied;
    ret->audit_lines = access.audit.lines;
    ret->audit_dropped = access.audit.dropped;
    ret->audit_failures = access.audit.failures;
}

static const struct busiest *on_busiest(void *ctx)
{
    const struct server *s = ctx;
    return s->monitor == NULL ? NULL : monitor_busiest(s->monitor);
}

static bool on_may_see(void *ctx, void *request, struct fli_slice lock, uint64_t *steps)
{
    struct server *s = ctx;
    const struct net_request *r = request;
    return access_may_see(s->access, r->conn, lock, steps);
}

static uint64_t on_now(void *ctx)
{
    return fli_clock_ms();
}

/* --- dispatch to node --- */

static int submit(void *ctx, struct node_ticket *t, const void *command, size_t len,
                  node_ticket_cb cb)
{
    struct server *s = ctx;
    return s->node == NULL ? FL_ENOLEADER : node_submit(s->node, t, command, len, cb);
}

static void status(void *ctx, struct node_status *ret)
{
    struct server *s = ctx;
    if (s->node == NULL) {
        *ret = (struct node_status){.id = s->config->id, .role = NODE_STOPPED};
        return;
    }
    node_get_status(s->node, ret);
    ret->leader_client_address =
        server_pick_address(s, ret->leader_client_address, s->leader_address);
}

static size_t members(void *ctx, struct node_member *ret, size_t max)
{
    struct server *s = ctx;
    size_t n = s->node == NULL ? 0 : node_members(s->node, ret, max);
    for (size_t i = 0; i < n; i++) {
        ret[i].client_address = server_pick_address(s, ret[i].client_address, s->member_address[i]);
    }
    return n;
}

static int transfer(void *ctx, uint64_t id, void (*cb)(void *ctx, int status), void *cb_ctx)
{
    struct server *s = ctx;
    return s->node == NULL ? FL_ENOLEADER : node_transfer(s->node, id, cb, cb_ctx);
}

static int change(void *ctx, const struct node_change *wanted, void (*cb)(void *ctx, int status),
                  void *cb_ctx)
{
    struct server *s = ctx;
    return s->node == NULL ? FL_ENOLEADER : node_change(s->node, wanted, cb, cb_ctx);
}

static int backup_begin(void *ctx, uint64_t *ret_id)
{
    struct server *s = ctx;
    return s->node == NULL ? FL_ENOLEADER : node_backup_begin(s->node, ret_id);
}

static int backup_read(void *ctx, uint64_t id, uint64_t offset, void *data, size_t len,
                       size_t *ret_len, const char **ret_why)
{
    struct server *s = ctx;
    *ret_why = "";
    return s->node == NULL ? FL_ENOTFOUND
                           : node_backup_read(s->node, id, offset, data, len, ret_len, ret_why);
}

static struct machine *machine(void *ctx)
{
    struct server *s = ctx;
    return s->node == NULL ? NULL : node_machine(s->node);
}

/* --- node to dispatch --- */

static void on_event(void *ctx, const struct machine_event *event)
{
    struct server *s = ctx;
    uint64_t began_ns = node_applying_since_ns(s->node);
    monitor_event(s->monitor, event, node_serves(s->node),
                  began_ns == 0 || event->wait == 0 ? 0 : fli_clock_ns() - began_ns);
    dispatch_event(s->dispatch, event);
    access_event(s->access, event);
    if (events_wanted(&s->events)) {
        events_feed(&s->events, event);
    }
}

static void on_refused(void *ctx, const struct machine_command *c, const struct machine_result *r)
{
    struct server *s = ctx;
    monitor_refused(s->monitor, c, r, node_serves(s->node));
}

/* The log brings the same event again; subscribers get it then, in its place. */
static void on_push(void *ctx, const struct machine_event *event)
{
    struct server *s = ctx;
    dispatch_event(s->dispatch, event);
}

static void on_restored(void *ctx)
{
    struct server *s = ctx;
    dispatch_restored(s->dispatch);
    monitor_restored(s->monitor);
    if (events_wanted(&s->events)) {
        events_resync(&s->events, machine_clock(node_machine(s->node)));
    }
}

static void on_fatal(void *ctx, int error, const char *message)
{
    struct server *s = ctx;
    char text[512];
    (void)snprintf(text, sizeof text, "%s (%s)", message, fl_err_name(error));
    s->cbs.fatal(s->cbs.ctx, text);
}

/* --- time --- */

static void timer_cb(uv_timer_t *timer)
{
    struct server *s = timer->data;
    s->timer_at_ms = UINT64_MAX; /* the timer only wakes the loop: prepare does the work */
}

static uint64_t next_turn_ms(const struct server *s)
{
    uint64_t next = dispatch_next_turn_ms(s->dispatch);
    uint64_t access = access_next_turn_ms(s->access);
    return access < next ? access : next;
}

/* True: more events wait. */
static bool send_events(struct server *s)
{
    enum fli_turn_part part = fli_turn_enter(net_server_turn(s->net), FLI_TURN_EVENTS);
    const struct machine *m = node_machine(s->node);
    events_min_live(&s->events, machine_min_live_token(m), machine_clock(m));
    events_rights(&s->events, machine_users_digest(m));
    bool more = events_publish(&s->events, FLI_TURN_EVENT_STEPS);
    fli_turn_leave(net_server_turn(s->net), part);
    net_flush(s->net);
    return more;
}

static void prepare_cb(uv_prepare_t *prepare)
{
    struct server *s = prepare->data;
    uint64_t now = fli_clock_ms();
    bool more = events_wanted(&s->events) && s->node != NULL && send_events(s);
    if (next_turn_ms(s) <= now) {
        enum fli_turn_part part = fli_turn_enter(net_server_turn(s->net), FLI_TURN_ANSWERS);
        dispatch_turn(s->dispatch);
        fli_turn_leave(net_server_turn(s->net), part);
        access_turn(s->access);
        net_flush(s->net);
    }
    uint64_t next = more ? now : next_turn_ms(s);
    if (next < s->timer_at_ms) {
        s->timer_at_ms = next;
        int rc = uv_timer_start(&s->timer, timer_cb, next > now ? next - now : 0, 0);
        FLI_ASSERT(rc == 0);
    }
}

/* --- starting --- */

/* Lowers the number of clients to what the descriptors allow. */
static unsigned fit_connections(const struct server *s, unsigned wanted)
{
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files) != 0 || files.rlim_cur == RLIM_INFINITY ||
        files.rlim_cur >= (rlim_t)wanted + FILES_RESERVED) {
        return wanted;
    }
    rlim_t most =
        files.rlim_cur > 2 * FILES_RESERVED ? files.rlim_cur - FILES_RESERVED : files.rlim_cur / 2;
    unsigned fits = most < 1 ? 1 : (unsigned)most;
    log_message(s, 3, "connections-max is %u, not %u: the limit on open files is %llu (ulimit -n)",
                fits, wanted, (unsigned long long)files.rlim_cur);
    return fits;
}

static int make_dispatch(struct server *s)
{
    struct dispatch_config dc = {
        .sink = {.reply = sink_reply,
                 .answer = sink_answer,
                 .failed = sink_failed,
                 .behind = sink_behind},
        .node = {.ctx = s,
                 .submit = submit,
                 .status = status,
                 .members = members,
                 .transfer = transfer,
                 .change = change,
                 .backup_begin = backup_begin,
                 .backup_read = backup_read,
                 .machine = machine},
        .ctx = s,
        .now_ms = on_now,
        .connection = on_connection_command,
        .source = server_source,
        .address = server_client_address,
        .in_flight = server_in_flight,
        .users_ctx = s->access,
        .gate = access_gate,
        .set_sender = access_set_sender,
        .sees = access_sees,
        .users = access_command,
        .refused = access_refused_by_machine,
        .describe = on_describe,
        .busiest = on_busiest,
        .may_see = on_may_see,
        .frontdoor = s->frontdoor.scripts == NULL ? NULL : &s->frontdoor,
        .wall_ms = fli_clock_wall_ms,
    };
    return dispatch_create(&dc, &s->dispatch);
}

static int make_access(struct server *s, char *errmsg, size_t errmsg_size)
{
    struct access_config ac = {
        .loop = s->loop,
        .config = s->config,
        .node = {.ctx = s, .submit = submit, .status = status, .machine = machine},
        .commands = &s->commands,
        .ctx = s,
        .log = on_net_log,
        .slot = access_slot_of,
    };
    return access_create(&ac, &s->access, errmsg, errmsg_size);
}

static void make_events(struct server *s)
{
    struct events_sink sink = {.ctx = s,
                               .proto = events_proto,
                               .push = events_push,
                               .may_see = events_may_see,
                               .user = server_conn_user,
                               .address = server_conn_address,
                               .dropped = events_dropped};
    uint64_t seed[2];
    fli_random(seed, sizeof seed);
    events_init(&s->events, &sink, seed);
    fli_buf_init(&s->confirm, CONFIRM_MAX_BYTES);
}

static int make_net(struct server *s)
{
    s->connections_max = fit_connections(s, s->config->connections_max);
    struct net_limits limits = {
        .resp = {.arg_max = ARG_MAX_BYTES, .request_max = REQUEST_MAX_BYTES},
        .connections_max = s->connections_max,
        .pipeline_max = PIPELINE_MAX,
        .output_max = OUTPUT_MAX_BYTES,
        .request_memory = DISPATCH_CALL_MEMORY,
        .memory_max = (size_t)s->config->client_memory,
        .address_connections_max =
            (unsigned)config_address_share(s->config->address_connections, s->connections_max),
        .address_memory_max =
            (size_t)config_address_share(s->config->address_memory, s->config->client_memory),
        .idle_first_ms = s->config->idle_first_ms,
        .unread_ms = NET_UNREAD_MS,
    };
    struct net_callbacks cbs = {.ctx = s,
                                .request = on_request,
                                .cancel = on_cancel,
                                .hangup = on_hangup,
                                .closed = on_closed,
                                .shaken = on_shaken,
                                .log = on_net_log};
    int rc = net_server_create(s->loop, &limits, sizeof(struct request_slot), &cbs, &s->net);
    if (rc == 0) {
        s->commands = (struct net_commands){.service = FLI_SERVICE_LOCK,
                                            .server = s->net,
                                            .server_name = "fencelock",
                                            .ctx = s,
                                            .hello = on_hello,
                                            .users_ctx = s->access,
                                            .user_name = access_user_name,
                                            .is_known = access_is_known,
                                            .auth = access_auth};
    }
    return rc;
}

static int make_node(struct server *s, char *errmsg, size_t errmsg_size)
{
    const struct config *c = s->config;
    struct node_config nc = {
        .id = c->id,
        .data_dir = c->data,
        .peer_address = c->peer[0] == '\0' ? NULL : c->peer,
        .client_address = s->advertised,
        .members = &c->members,
        .joins = c->joins,
        .limits = c->limits,
        .turn = net_server_turn(s->net),
        .heartbeat_ms = c->heartbeat_ms,
        .election_ms = c->election_ms,
        .hold_ms = c->hold_ms,
        .snapshot_bytes = c->snapshot_bytes,
        .witness = c->witness[0] == '\0' ? NULL : c->witness,
        .witness_reset = c->witness_reset,
        .security = {.name = c->tls_cluster_name, .secret_file = c->cluster_secret_file},
    };
    if (c->tls_cluster) {
        nc.security.cert_file = c->tls_cert_file;
        nc.security.key_file = c->tls_key_file;
        nc.security.ca_file = c->tls_ca_cert_file;
        nc.security.protocols = c->tls_protocols;
    }
    struct node_callbacks cbs = {.ctx = s,
                                 .event = on_event,
                                 .refused = on_refused,
                                 .restored = on_restored,
                                 .push = on_push,
                                 .fatal = on_fatal,
                                 .log = server_on_node_log,
                                 .settings = server_on_settings};
    return node_create(s->loop, &nc, &cbs, &s->node, errmsg, errmsg_size);
}

/* --- monitoring --- */

static void fill_info(void *ctx, struct info *ret)
{
    struct server *s = ctx;
    memset(ret, 0, sizeof *ret);
    bool asked_with_tls = s->asked_with_tls;
    s->asked_with_tls = s->address[0] == '\0';
    status(s, &ret->status);
    ret->members_n = members(s, ret->members, MEMBERS_MAX);
    ret->machine = ret->status.role == NODE_STOPPED ? NULL : machine(s);
    dispatch_get_counts(s->dispatch, &ret->counts);
    on_describe(s, &ret->server_facts);
    s->asked_with_tls = asked_with_tls;
}

static bool fill_times(void *ctx, struct node_times *ret)
{
    const struct server *s = ctx;
    struct node_status now = {0};
    if (s->node != NULL) {
        node_get_status(s->node, &now);
    }
    if (s->node == NULL || now.role == NODE_STOPPED) {
        return false;
    }
    node_get_times(s->node, ret);
    return true;
}

static bool is_stopping(void *ctx)
{
    const struct server *s = ctx;
    return s->stopping > 0;
}

static int make_monitor(struct server *s, char *errmsg, size_t errmsg_size)
{
    struct monitor_config mc = {.loop = s->loop,
                                .config = s->config,
                                .ctx = s,
                                .fill = fill_info,
                                .times = fill_times,
                                .stopping = is_stopping,
                                .log = on_net_log};
    return monitor_create(&mc, &s->monitor, errmsg, errmsg_size);
}

static void start_handles(struct server *s)
{
    int rc = uv_prepare_init(s->loop, &s->prepare);
    rc = rc != 0 ? rc : uv_timer_init(s->loop, &s->timer);
    rc = rc != 0 ? rc : uv_prepare_start(&s->prepare, prepare_cb);
    FLI_ASSERT(rc == 0); /* none of these can fail on a live loop */
    s->prepare.data = s->timer.data = s;
    s->timer_at_ms = UINT64_MAX;
}

int server_create(uv_loop_t *loop, const struct config *config, const struct server_callbacks *cbs,
                  struct server **ret, char *errmsg, size_t errmsg_size)
{
    struct server *s = fli_xcalloc(1, sizeof *s);
    s->loop = loop;
    s->config = config;
    s->cbs = *cbs;
    s->started_ms = fli_clock_ms();
    (void)snprintf(errmsg, errmsg_size, "out of memory");
    make_events(s);
    int rc = make_access(s, errmsg, errmsg_size);
    rc = rc != 0 ? rc : frontdoor_open(config, &s->frontdoor, errmsg, errmsg_size);
    rc = rc != 0 ? rc : make_dispatch(s);
    rc = rc != 0 ? rc : make_net(s);
    data_dir_await_child(config->data);
    rc = rc != 0 ? rc : server_listen_for_clients(s, errmsg, errmsg_size);
    rc = rc != 0 ? rc : make_monitor(s, errmsg, errmsg_size);
    rc = rc != 0 ? rc : make_node(s, errmsg, errmsg_size);
    if (rc != 0) {
        /* What net has opened cannot be closed without running the loop; it ends with the
         * process. */
        return rc;
    }
    access_opened(s->access);
    start_handles(s);
    *ret = s;
    return 0;
}

const char *server_address(const struct server *s)
{
    return s->address;
}

const char *server_tls_address(const struct server *s)
{
    return s->tls_address;
}

void server_describe(struct server *s, char *out, size_t size)
{
    status_line(s->stopping > 0 ? NULL : s->node, s->config->id, net_connections(s->net), out,
                size);
}

void server_reload(struct server *s)
{
    net_server_tls_reload(s->net);
    node_reload(s->node);
}

/* --- stopping --- */

static void part_stopped(struct server *s)
{
    FLI_ASSERT(s->stopping > 0);
    if (--s->stopping == 0) {
        s->stop_cb(s->stop_ctx);
    }
}

static void handle_closed(uv_handle_t *handle)
{
    part_stopped(handle->data);
}

static void part_stopped_cb(void *ctx)
{
    part_stopped(ctx);
}

static void access_stopped(void *ctx)
{
    part_stopped(ctx);
}

/* The monitor goes on answering while the node drains. */
static void node_stopped(void *ctx)
{
    struct server *s = ctx;
    monitor_stop(s->monitor, part_stopped_cb, s);
    uv_close((uv_handle_t *)&s->prepare, handle_closed);
    uv_close((uv_handle_t *)&s->timer, handle_closed);
    access_end(s->access, access_stopped, s); /* the node will report nothing more */
}

void server_stop(struct server *s, void (*cb)(void *ctx), void *ctx)
{
    FLI_ASSERT(s->stopping == 0);
    s->stop_cb = cb;
    s->stop_ctx = ctx;
    s->stopping = 6; /* net, node, monitor, prepare, timer, access */
    /* Connections outlive the node a little, so that its last answers reach them. */
    net_server_stop(s->net, s->config->drain_ms + s->config->drain_ms / 4, part_stopped_cb, s);
    dispatch_stop(s->dispatch);
    access_stop(s->access, access_stopped, s);
    node_stop(s->node, s->config->drain_ms, node_stopped, s);
}

void server_destroy(struct server *s)
{
    if (s == NULL) {
        return;
    }
    FLI_ASSERT(s->stopping == 0);
    node_destroy(s->node);
    net_server_destroy(s->net);
    dispatch_destroy(s->dispatch);
    frontdoor_close(&s->frontdoor);
    monitor_destroy(s->monitor);
    access_destroy(s->access);
    events_fini(&s->events);
    fli_buf_fini(&s->confirm);
    free(s);
}
