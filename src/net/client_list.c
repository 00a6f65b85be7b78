/* client_list.c: see client_list.h. */
#include "net/client_list.h"

#include <stdlib.h>

#include "net/conn.h"

struct net_client_list {
    struct fli_list link; /* server->lists; the first one is being made */
    const struct net_commands *commands;
    struct net_request *request;
    bool begun;
    struct net_conn *next; /* NULL: there are no more */
    uint64_t last_id;      /* of the newest connection when it was begun */
    struct fli_buf text;
};

static int client_line(const struct net_commands *commands, struct net_conn *c,
                       struct fli_buf *text)
{
    struct net_conn_info info;
    char user[NET_USER_NAME_MAX + 1] = "default";
    net_conn_info(c, &info);
    if (commands->user_name != NULL) {
        commands->user_name(commands->users_ctx, c, user);
    }
    return fli_buf_printf(text,
                          "id=%llu addr=%s name=%s age=%llu idle=%llu flags=N db=0 in-flight=%u "
                          "omem=%zu requests=%llu user=%s resp=%d\n",
                          (unsigned long long)info.id, info.peer, info.name,
                          (unsigned long long)(info.age_ms / 1000),
                          (unsigned long long)(info.idle_ms / 1000), info.in_flight,
                          info.output_bytes, (unsigned long long)info.requests, user, info.proto);
}

bool net_client_info(const struct net_commands *commands, struct net_conn *c, struct fli_buf *b)
{
    struct fli_buf text;
    fli_buf_init(&text, c->server->limits.output_max / 2);
    bool ok = client_line(commands, c, &text) == 0 &&
              fli_resp_verbatim(b, c->proto, text.data, text.len) == 0;
    fli_buf_fini(&text);
    return ok;
}

/* ---- the line of lists ----------------------------------------------------------------------- */

static struct net_client_list *first(const struct net_server *s)
{
    struct fli_list *link = fli_list_first(&s->lists);
    return link == NULL ? NULL : FLI_CONTAINER_OF(link, struct net_client_list, link);
}

void net_list_leave(struct net_request *r)
{
    struct net_client_list *l = r->list;
    if (l != NULL) {
        r->list = NULL;
        fli_list_remove(&l->link);
        r->conn->server->lists_n--;
        fli_buf_fini(&l->text);
        free(l);
    }
}

/* Connections are in the order of their ids. */
static struct net_conn *after(const struct net_server *s, const struct net_conn *c)
{
    const struct fli_list *link = c->link.next;
    return link == &s->conns
               ? NULL
               : FLI_CONTAINER_OF((struct fli_list *)(uintptr_t)link, struct net_conn, link);
}

void net_list_skip(const struct net_conn *c)
{
    struct net_client_list *l = first(c->server);
    if (l != NULL && l->next == c) {
        l->next = after(c->server, c);
    }
}

static void begin(struct net_server *s, struct net_client_list *l)
{
    struct fli_list *oldest = fli_list_first(&s->conns);
    FLI_ASSERT(oldest != NULL); /* the one that asks */
    l->begun = true;
    l->next = FLI_CONTAINER_OF(oldest, struct net_conn, link);
    l->last_id = s->next_id;
}

/* Makes lines while the turn has a share left. Whether the list is complete, or full: what does not
 * fit is left out. */
static bool make_lines(struct net_server *s, struct net_client_list *l)
{
    while (l->next != NULL && l->next->id <= l->last_id) {
        struct net_conn *c = l->next;
        if (s->listed >= NET_LISTED_TURN_MAX) {
            return false;
        }
        s->listed++;
        if (c->admitted && client_line(l->commands, c, &l->text) != 0) {
            return true;
        }
        l->next = after(s, c);
    }
    return true;
}

static void answer(struct net_client_list *l)
{
    struct net_request *r = l->request;
    struct net_conn *c = r->conn;
    int rc = fli_resp_verbatim(net_reply(r), c->proto, l->text.data, l->text.len);
    net_list_leave(r);
    net_conn_release(c);
    if (rc == 0) {
        net_answer(r);
    } else {
        net_answer_failed(r);
    }
}

/* False: the turn has no share left for it. */
static bool go_on(struct net_server *s, struct net_client_list *l)
{
    if (l->request->conn->doomed) {
        net_list_leave(l->request);
        return true;
    }
    if (!l->begun) {
        begin(s, l);
    }
    bool done = make_lines(s, l);
    net_request_keeps(l->request, sizeof *l + l->text.cap);
    if (done) {
        answer(l);
    }
    return done;
}

static void serve(struct net_server *s)
{
    struct net_client_list *l = NULL;
    while (s->listed < NET_LISTED_TURN_MAX && (l = first(s)) != NULL && go_on(s, l)) {
    }
    if (!fli_list_empty(&s->lists)) {
        net_server_stay_awake(s);
    }
}

void net_lists_turn(struct net_server *s)
{
    s->listed = 0;
    if (fli_list_empty(&s->lists)) {
        return;
    }
    enum fli_turn_part part = fli_turn_enter(&s->turn, FLI_TURN_REQUESTS);
    uint64_t began_ns = fli_clock_ns();
    serve(s);
    s->take_ns += fli_clock_ns() - began_ns;
    fli_turn_leave(&s->turn, part);
}

static void refuse(struct net_request *r)
{
    if (fli_resp_error(net_reply(r), "BUSY",
                       "%u others wait for the list of clients: ask again in a moment",
                       NET_LISTS_MAX) == 0) {
        net_answer(r);
    } else {
        net_answer_failed(r);
    }
}

void net_client_list(const struct net_commands *commands, struct net_request *r)
{
    struct net_server *s = r->conn->server;
    struct net_client_list *l = s->lists_n < NET_LISTS_MAX ? calloc(1, sizeof *l) : NULL;
    if (l == NULL) {
        refuse(r);
        return;
    }
    l->commands = commands;
    l->request = r;
    fli_buf_init(&l->text, s->limits.output_max / 2);
    fli_list_init(&l->link);
    fli_list_push(&s->lists, &l->link);
    s->lists_n++;
    r->list = l;
    net_conn_hold(r->conn);
    serve(s);
}
