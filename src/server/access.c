/* access.c: see access.h. Logins, and the checks of each request. access_users.c has the ACL
 * commands. */
#include "server/access.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/access_private.h"
#include "server/render.h"
#include "wire/resp.h"

struct machine *access_machine(const struct access *a)
{
    return a->config.node.machine(a->config.node.ctx);
}

/* ---- calls ----------------------------------------------------------------------------------- */

/* Whether one more call fits, and the address that it is for has room for it. */
static bool has_room(const struct access *a, uint64_t origin)
{
    unsigned of_origin = 0;
    FLI_LIST_FOREACH(link, &a->calls)
    {
        of_origin += FLI_CONTAINER_OF(link, struct access_call, all)->origin == origin;
    }
    return !a->stopping && a->calls_n < ACCESS_CALLS_MAX && of_origin < ACCESS_ADDRESS_MAX;
}

struct access_call *access_take(struct access *a, const struct net_conn *conn,
                                enum fli_command_id id)
{
    uint64_t origin = conn == NULL ? 0 : net_conn_origin(conn);
    struct access_call *c = has_room(a, origin) ? calloc(1, sizeof *c) : NULL;
    if (c == NULL) {
        return NULL;
    }
    a->calls_n++;
    fli_list_init(&c->link);
    fli_list_init(&c->all);
    fli_list_push(&a->calls, &c->all);
    fli_buf_init(&c->text, ACLFILE_SIZE_MAX);
    c->access = a;
    c->id = id;
    c->origin = c->job.source = origin;
    return c;
}

struct access_call *access_take_request(struct access *a, struct net_request *r,
                                        enum fli_command_id id)
{
    struct fli_slice address = net_conn_address(r->conn);
    struct access_call *c = access_take(a, r->conn, id);
    if (c == NULL) {
        return NULL;
    }
    c->r = r;
    c->proto = net_conn_proto(r->conn);
    c->login = net_conn_login(r->conn);
    if (c->login != 0 || !net_conn_is_local(r->conn)) {
        c->address_len = (uint8_t)address.len;
        memcpy(c->address, address.data, address.len);
    }
    a->config.slot(r)->call = c;
    return c;
}

void access_free(struct access_call *c)
{
    FLI_ASSERT(c->r == NULL && c->parts_left == 0 && c->access->calls_n > 0);
    if (fli_list_linked(&c->link)) {
        fli_list_remove(&c->link);
    }
    fli_list_remove(&c->all);
    c->access->calls_n--;
    fli_buf_fini(&c->text);
    free(c->parts);
    free(c->args);
    explicit_bzero(c, sizeof *c);
    free(c);
}

struct net_request *access_detach(struct access_call *c)
{
    struct net_request *r = c->r;
    if (r != NULL) {
        c->access->config.slot(r)->call = NULL;
    }
    c->r = NULL;
    return r;
}

void access_finish(struct net_request *r, int rc)
{
    if (rc == 0) {
        net_answer(r);
    } else {
        net_answer_failed(r);
    }
}

void access_error(struct access_call *c, const char *word, const char *text)
{
    struct net_request *r = access_detach(c);
    if (r != NULL) {
        access_finish(r, fli_resp_error(net_reply(r), word, "%s", text));
    }
}

static void answer_busy(struct net_request *r)
{
    access_finish(r, fli_resp_error(net_reply(r), "BUSY",
                                    "too many changes of users are under way; try again in a "
                                    "moment"));
}

void access_cancel(struct access *a, struct net_request *r)
{
    struct access_call *c = a->config.slot(r)->call;
    if (c != NULL) {
        (void)access_detach(c);
    }
    auth_logins_cancel(&a->logins, r);
}

int access_submit(struct access *a, struct machine_command *m, struct node_ticket *t,
                  node_ticket_cb cb)
{
    if (m->user != 0 || m->address.len > 0) {
        m->flags |= MACHINE_COMMAND_BY;
    }
    fli_buf_clear(&a->scratch);
    int rc = machine_command_encode(m, &a->scratch);
    return rc != 0
               ? rc
               : a->config.node.submit(a->config.node.ctx, t, a->scratch.data, a->scratch.len, cb);
}

bool access_answer_refusal(struct access_call *c, int status, const struct machine_result *result)
{
    struct fli_slice none = {NULL, 0};
    bool refused = status == 0 && (result->code == MACHINE_NOPERM ||
                                   result->code == MACHINE_NOAUTH || result->code == MACHINE_LIMIT);
    if (status == 0 && !refused) {
        return false;
    }
    struct net_request *r = access_detach(c);
    if (r != NULL) {
        struct fli_buf *b = net_reply(r);
        access_finish(r, status != 0 ? render_failure(b, status, true)
                                     : render_result(b, c->proto, c->id, result, none));
    }
    return true;
}

bool access_local_user(struct access *a, const char *name, struct acl_user *ret)
{
    struct machine *m = access_machine(a);
    struct machine_command q = {.op = MACHINE_OP_USER,
                                .flags = MACHINE_COMMAND_BY,
                                .user = MACHINE_USER_NODE,
                                .owner = {(const uint8_t *)name, strlen(name)}};
    struct machine_result result;
    struct fli_buf payload;
    uint64_t login = 0;
    bool found = false;
    fli_buf_init(&payload, 65536);
    if (m != NULL && machine_query(m, &q, 0, &result, &payload) == 0 &&
        result.code == MACHINE_DONE) {
        struct fli_slice rest = {payload.data, payload.len};
        found = machine_users_next(&rest, &login, ret) == 1;
    }
    fli_buf_fini(&payload);
    return found;
}

/* ---- checks of each request -------------------------------------------------------------- */

/* The right that is needed for a command that this node answers by itself. */
static unsigned right_of(const struct fli_command *command)
{
    bool subscribes = command->id == FLI_CMD_SUBSCRIBE || command->id == FLI_CMD_PSUBSCRIBE;
    return (command->flags & FLI_CMD_ADMIN) != 0 ? ACL_ADMIN : subscribes ? ACL_SEE : 0;
}

static void audit_one(struct access *a, const struct net_conn *c, const char *user,
                      const char *command, const char *why)
{
    char own[NET_USER_NAME_MAX + 1];
    if (a->audit != NULL) {
        access_user_name(a, c, own);
        audit_refusal(a->audit, user != NULL ? user : own, net_conn_address(c), command, why);
    }
}

void access_refused_by_machine(void *ctx, void *request, enum fli_command_id id, bool by_right)
{
    struct access *a = ctx;
    const struct net_request *r = request;
    a->denied++;
    audit_one(a, r->conn, NULL, fli_command_name(id), by_right ? "NOPERM" : "NOAUTH");
}

/* Whether the entry being applied was in the log when this process began. */
static bool is_replayed(struct access *a)
{
    struct node_status s;
    if (a->known_index != 0 && a->known_index != UINT64_MAX) {
        a->config.node.status(a->config.node.ctx, &s);
        a->known_index = s.applied_index >= a->known_index ? 0 : a->known_index;
    }
    return a->known_index != 0;
}

void access_event(struct access *a, const struct machine_event *event)
{
    if (a->audit != NULL) {
        audit_event(a->audit, event, is_replayed(a));
    }
}

void access_opened(struct access *a)
{
    struct node_status s;
    a->config.node.status(a->config.node.ctx, &s);
    a->known_index = s.last_index;
}

void access_end(struct access *a, void (*cb)(void *ctx), void *ctx)
{
    struct audit *audit = a->audit;
    a->audit = NULL;
    if (audit == NULL) {
        cb(ctx);
    } else {
        audit_close(audit, cb, ctx);
    }
}

static bool deny(struct access *a, struct net_request *r, const struct fli_command *command,
                 const char *word, const char *text)
{
    a->denied++;
    audit_one(a, r->conn, NULL, command->name, word);
    access_finish(r, fli_resp_error(net_reply(r), word, "%s", text));
    return false;
}

/* Whether protected mode refuses this client: it is remote and has shown neither a login nor a
 * certificate, and the default user needs no password. */
static bool is_stranger(const struct access *a, const struct net_conn *c, const struct machine *m)
{
    char name[FLI_TLS_NAME_MAX];
    return net_conn_login(c) == 0 && !net_conn_is_local(c) && a->config.config->protected_mode &&
           machine_may(m, 0, 0, NULL) && !net_conn_cert_name(c, name);
}

bool access_is_known(void *ctx, const struct net_conn *c)
{
    const struct access *a = ctx;
    const struct machine *m = access_machine(a);
    return m == NULL || (machine_may(m, net_conn_login(c), 0, NULL) && !is_stranger(a, c, m));
}

/* Whether this user has a right that this node asks for by itself. */
static bool has_right(struct access *a, struct net_request *r, const struct fli_command *command,
                      unsigned right)
{
    const struct machine *m = access_machine(a);
    uint64_t login = net_conn_login(r->conn);
    if (!machine_may(m, login, 0, NULL)) {
        /* the leader lets a client log in whose user this node may hear of a moment later */
        bool unheard =
            login != 0 && login != NET_LOGIN_NOBODY && machine_user_name(m, login).len == 0;
        return deny(a, r, command, "NOAUTH",
                    unheard ? "this node has not heard of this user yet, or the user is gone; "
                              "try again in a moment"
                            : "Authentication required.");
    }
    if (right != 0 && !machine_may(m, login, right, NULL)) {
        return deny(a, r, command, "NOPERM",
                    right == ACL_ADMIN ? "this user lacks the right @admin"
                                       : "this user lacks the right @see");
    }
    return true;
}

bool access_sees(void *ctx, void *request, const struct fli_command *command)
{
    struct access *a = ctx;
    return access_machine(a) == NULL || has_right(a, request, command, ACL_SEE);
}

bool access_gate(void *ctx, void *request, const struct fli_command *command)
{
    struct access *a = ctx;
    struct net_request *r = request;
    const struct machine *m = access_machine(a);
    uint64_t login = net_conn_login(r->conn);
    /* The front door answers some requests before the machine is asked, and remembers what it was
     * sent. Of a login this node may not have heard yet, so whoever has one is left to the
     * machine. */
    bool acts_here = login == 0 && (command->flags & FLI_CMD_FRONTDOOR) != 0;
    bool machine_asks = (command->flags & (FLI_CMD_LOCAL | FLI_CMD_CONNECTION)) == 0 && !acts_here;
    if (machine_asks && !a->needs_users && net_conn_is_local(r->conn)) {
        /* the machine checks it; without users nearly every command ends here */
        return true;
    }
    if (m == NULL || command->id == FLI_CMD_QUIT || command->id == FLI_CMD_RESET) {
        return true;
    }
    if (login == 0 && a->needs_users && machine_users_are_new(m)) {
        return deny(a, r, command, "NOAUTH",
                    "the users of this cluster are being set up, or this node has not heard of "
                    "them yet; try again in a moment");
    }
    if (command->id == FLI_CMD_AUTH || command->id == FLI_CMD_HELLO) {
        return true;
    }
    if (is_stranger(a, r->conn, m)) {
        return deny(a, r, command, "DENIED",
                    "protected mode: clients of other machines are not served while the default "
                    "user needs no password. From this machine, give it one (ACL SETUSER default "
                    ">PASSWORD) or make users and switch it off (ACL SETUSER default off). Or "
                    "start with --protected-mode no if the network is trusted");
    }
    return machine_asks || has_right(a, r, command, right_of(command));
}

/* The default user on this machine is not recorded: without users nearly every command is its
 * own. */
void access_set_sender(void *ctx, void *request, struct machine_command *m)
{
    const struct net_request *r = request;
    m->user = net_conn_login(r->conn);
    if (m->user != 0 || !net_conn_is_local(r->conn)) {
        m->address = net_conn_address(r->conn);
        m->flags |= MACHINE_COMMAND_BY;
    }
}

void access_user_name(void *ctx, const struct net_conn *c, char out[NET_USER_NAME_MAX + 1])
{
    const struct access *a = ctx;
    const struct machine *m = access_machine(a);
    struct fli_slice name = {NULL, 0};
    if (m != NULL) {
        name = machine_user_name(m, net_conn_login(c));
    }
    FLI_ASSERT(name.len <= NET_USER_NAME_MAX);
    (void)snprintf(out, NET_USER_NAME_MAX + 1, "%.*s", (int)name.len, (const char *)name.data);
}

bool access_may_see(struct access *a, const struct net_conn *c, struct fli_slice lock,
                    uint64_t *steps)
{
    const struct machine *m = access_machine(a);
    return m != NULL && machine_may_see(m, net_conn_login(c), lock, steps);
}

/* ---- logging in ------------------------------------------------------------------------------ */

/* What a login has in its room while the leader is asked. */
struct login_query {
    struct node_ticket ticket;
    struct auth_login *login;
};

static bool take_user(const struct machine_result *result, struct fli_slice payload,
                      uint64_t *ret_login, struct acl_user *ret)
{
    return result->code == MACHINE_DONE && machine_users_next(&payload, ret_login, ret) == 1;
}

static int ask_user(struct access *a, const char *name, struct node_ticket *t, node_ticket_cb cb)
{
    struct machine_command q = {.op = MACHINE_OP_USER,
                                .user = MACHINE_USER_NODE,
                                .owner = {(const uint8_t *)name, strlen(name)}};
    return access_submit(a, &q, t, cb);
}

static void on_user(struct node_ticket *t, int status, const struct machine_result *result,
                    struct fli_slice payload)
{
    struct auth_login *l = FLI_CONTAINER_OF(t, struct login_query, ticket)->login;
    l->found = status == 0 && take_user(result, payload, &l->login, &l->acl);
    auth_login_go_on(l, status);
}

static struct auth_login **login_slot(void *ctx, struct net_request *r)
{
    const struct access *a = ctx;
    return &a->config.slot(r)->login;
}

static void find_user(void *ctx, struct auth_login *l)
{
    struct login_query *q = (struct login_query *)(void *)l->room;
    q->login = l;
    int rc = ask_user(ctx, l->user, &q->ticket, on_user);
    if (rc != 0) { /* FL_EINVAL: no user can have this name, and checking takes as long */
        auth_login_go_on(l, rc == FL_EINVAL ? 0 : rc);
    }
}

static void login_failed(void *ctx, struct net_request *r, int status)
{
    access_finish(r, render_failure(net_reply(r), status, true));
}

static void wrong_password(void *ctx, const struct net_conn *c, const char *user)
{
    audit_one(ctx, c, user, "AUTH", "WRONGPASS");
}

void access_auth(void *ctx, struct net_request *r, const struct net_auth *auth)
{
    struct access *a = ctx;
    auth_logins_begin(&a->logins, r, auth);
}

/* ---- certificates ---------------------------------------------------------------------------- */

static bool users_are_to_come(const struct access *a)
{
    const struct machine *m = access_machine(a);
    return a->needs_users && (m == NULL || machine_users_are_new(m));
}

static void on_cert_user(struct node_ticket *t, int status, const struct machine_result *result,
                         struct fli_slice payload)
{
    struct access_call *c = FLI_CONTAINER_OF(t, struct access_call, ticket);
    struct net_conn *conn = c->conn;
    if (conn != NULL && status != 0) {
        net_conn_close_after_answers(conn); /* better no user than a wrong one */
        net_conn_release(conn);
    } else if (conn != NULL) {
        c->found = take_user(result, payload, &c->found_login, &c->acl);
        if (c->found) { /* one that is off is refused at each command */
            net_conn_set_login(conn, c->found_login);
            c->access->logins.counts.logins += c->acl.on;
        } else if (users_are_to_come(c->access)) {
            net_conn_close_after_answers(conn); /* its user may be among them */
        }
        net_conn_release(conn);
    }
    access_free(c);
}

void access_shaken(struct access *a, struct net_conn *conn)
{
    char name[FLI_TLS_NAME_MAX];
    enum fli_tls_user by = a->config.config->tls_auth_clients_user;
    if (by == FLI_TLS_USER_OFF || !net_conn_has_cert(conn)) {
        return;
    }
    net_conn_set_login(conn, NET_LOGIN_NOBODY); /* nor the default user, if it is no user's */
    if (!net_conn_cert_user(conn, by, name) ||
        !acl_name_ok((struct fli_slice){(const uint8_t *)name, strlen(name)})) {
        return;
    }
    struct access_call *c = access_take(a, conn, FLI_CMD_AUTH);
    if (c == NULL) {
        net_conn_close_after_answers(conn);
        return;
    }
    c->conn = conn;
    memcpy(c->user, name, strlen(name)); /* acl_name_ok() */
    fli_list_push(&a->certs, &c->link);
    net_conn_hold(conn);
    if (ask_user(a, c->user, &c->ticket, on_cert_user) != 0) {
        net_conn_close_after_answers(conn);
        net_conn_release(conn);
        access_free(c);
    }
}

void access_closed(struct access *a, const struct net_conn *conn)
{
    FLI_LIST_FOREACH(link, &a->certs)
    {
        struct access_call *c = FLI_CONTAINER_OF(link, struct access_call, link);
        c->conn = c->conn == conn ? NULL : c->conn;
    }
}

/* ---- commands -------------------------------------------------------------------------------- */

void access_command(void *ctx, void *request, const struct fli_command *command,
                    const struct fli_slice *args, unsigned n)
{
    struct access *a = ctx;
    struct net_request *r = request;
    if (command->id == FLI_CMD_ACL_WHOAMI) {
        char name[NET_USER_NAME_MAX + 1];
        access_user_name(a, r->conn, name);
        access_finish(r, fli_resp_text(net_reply(r), name));
        return;
    }
    struct access_call *c = access_take_request(a, r, command->id);
    if (c == NULL) {
        answer_busy(r);
        return;
    }
    access_users_command(c, args, n);
}

/* ---- time ------------------------------------------------------------------------------------ */

void access_turn(struct access *a)
{
    auth_logins_turn(&a->logins);
    access_initial(a);
}

uint64_t access_next_turn_ms(const struct access *a)
{
    uint64_t next = auth_logins_next_ms(&a->logins);
    if (a->needs_users && a->initial == NULL && !a->stopping && a->initial_ms < next) {
        next = a->initial_ms;
    }
    return next;
}

void access_get_counts(const struct access *a, struct access_counts *ret)
{
    *ret = (struct access_counts){.logins = a->logins.counts.logins,
                                  .failures = a->logins.counts.failures,
                                  .delayed = a->logins.counts.delayed,
                                  .denied = a->denied};
    if (a->audit != NULL) {
        audit_get_counts(a->audit, &ret->audit);
    }
}

/* ---- start and end --------------------------------------------------------------------------- */

static int parse_password(const char *password, struct aclfile *ret, char *errmsg,
                          size_t errmsg_size)
{
    char line[AUTH_PASSWORD_MAX + 64];
    (void)snprintf(line, sizeof line, "user default on ~* +@all >%s\n", password);
    int rc = aclfile_parse("requirepass", (struct fli_slice){(uint8_t *)line, strlen(line)},
                           ACL_LOCK_RIGHTS, ret, errmsg, errmsg_size);
    explicit_bzero(line, sizeof line);
    return rc;
}

static int read_users(struct access *a, char *errmsg, size_t errmsg_size)
{
    const struct config *c = a->config.config;
    struct aclfile file = {.users = NULL};
    int rc = 0;
    if (c->aclfile[0] != '\0') {
        rc = aclfile_read_administered(c->aclfile, c->tls_auth_clients_user != FLI_TLS_USER_OFF,
                                       &file, errmsg, errmsg_size);
    } else if (c->requirepass[0] != '\0') {
        rc = parse_password(c->requirepass, &file, errmsg, errmsg_size);
    } else {
        return 0;
    }
    a->needs_users = true;
    rc = rc != 0 ? rc : aclfile_pack(&file, &a->users);
    aclfile_free(&file);
    return rc;
}

int access_create(const struct access_config *config, struct access **ret, char *errmsg,
                  size_t errmsg_size)
{
    struct access *a = calloc(1, sizeof *a);
    if (a == NULL) {
        return FL_ENOMEM;
    }
    a->config = *config;
    fli_list_init(&a->certs);
    fli_list_init(&a->calls);
    fli_buf_init(&a->scratch, MACHINE_COMMAND_LARGEST);
    fli_buf_init(&a->users, MACHINE_USERS_BYTES_MAX);
    a->known_index = UINT64_MAX; /* until the node is open, every entry counts as known */
    int rc = read_users(a, errmsg, errmsg_size);
    if (rc == 0 && config->config->auditlog[0] != '\0') {
        rc = audit_create(config->loop, config->config->auditlog, config->config->id, &a->audit,
                          errmsg, errmsg_size);
    }
    if (rc == 0) {
        (void)snprintf(errmsg, errmsg_size, "no thread can be made for passwords");
        rc = auth_worker_create(config->loop, ACCESS_CALLS_MAX + AUTH_LOGINS_MAX, &a->worker);
        rc = rc != 0 ? rc : auth_worker_create(config->loop, ACCESS_CALLS_MAX, &a->files);
    }
    const struct auth_logins_config logins = {.commands = config->commands,
                                              .worker = a->worker,
                                              .room = sizeof(struct login_query),
                                              .ctx = a,
                                              .slot = login_slot,
                                              .find = find_user,
                                              .failed = login_failed,
                                              .wrong = wrong_password};
    auth_logins_init(&a->logins, &logins);
    if (rc != 0) {
        access_destroy(a);
        return rc;
    }
    *ret = a;
    return 0;
}

static void worker_closed(void *ctx)
{
    struct access *a = ctx;
    struct auth_worker *files = a->files;
    a->files = NULL;
    auth_worker_close(files, a->stop_cb, a->stop_ctx);
}

void access_stop(struct access *a, void (*cb)(void *ctx), void *ctx)
{
    struct auth_worker *worker = a->worker;
    a->stopping = true;
    a->stop_cb = cb;
    a->stop_ctx = ctx;
    auth_logins_stop(&a->logins);
    a->worker = NULL;
    auth_worker_close(worker, worker_closed, a);
}

void access_destroy(struct access *a)
{
    if (a == NULL) {
        return;
    }
    FLI_ASSERT(a->calls_n == 0);
    fli_buf_fini(&a->users);
    fli_buf_fini(&a->scratch);
    auth_logins_fini(&a->logins);
    free(a);
}
