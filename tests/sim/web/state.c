/* state.c: all that can be seen, as JSON. */
#include "base/json.h"
#include "web.h"

#define JSON_MAX (1024u * 1024u)

static const char *const phases[] = {
    [WEB_IDLE] = "idle",     [WEB_ASKS] = "asks",         [WEB_HOLDS] = "holds",
    [WEB_READS] = "reads",   [WEB_COMPUTES] = "computes", [WEB_READY] = "ready",
    [WEB_WRITES] = "writes", [WEB_RELEASES] = "releases", [WEB_DONE] = "done"};
static const char *const outcomes[] = {[WEB_NONE] = "",
                                       [WEB_WRITTEN] = "written",
                                       [WEB_REFUSED] = "refused",
                                       [WEB_GAVE_UP] = "gave up"};

static void put_node(struct fli_json *j, struct sim_node *n)
{
    bool runs = n->power == SIM_UP && n->node != NULL && n->failed == 0;
    bool part = n->sim->links[n->index][(n->index + 1) % n->sim->n].cut_until > n->sim->now &&
                n->sim->links[n->index][(n->index + 2) % n->sim->n].cut_until > n->sim->now;
    fli_json_object(j, NULL);
    fli_json_u64(j, "id", n->index + 1);
    fli_json_bool(j, "up", runs);
    fli_json_bool(j, "cut", part);
    if (runs) {
        struct node_status st;
        n->sim->current = n; /* its clock is the one that is read */
        node_get_status(n->node, &st);
        n->sim->current = NULL;
        fli_json_text(j, "role",
                      st.role == NODE_LEADER      ? "leader"
                      : st.role == NODE_CANDIDATE ? "candidate"
                                                  : "follower");
        fli_json_u64(j, "term", st.term);
        fli_json_u64(j, "log", st.last_index);
        fli_json_u64(j, "commit", st.commit_index);
        fli_json_u64(j, "applied", st.applied_index);
    }
    fli_json_end_object(j);
}

static void put_lock(struct fli_json *j)
{
    struct sim *s = web.s;
    const struct sim_lock *l = &s->oracle.locks[WEB_LOCK];
    fli_json_object(j, "lock");
    uint64_t token = l->holders_n > 0 ? l->holders[0] : 0;
    const struct sim_token *t = token == 0 ? NULL : sim_oracle_token(s, token);
    uint64_t ends = t == NULL ? 0 : t->base_at + WEB_TTL_MS;
    fli_json_u64(j, "holder", web_holder());
    fli_json_u64(j, "token", token);
    fli_json_u64(j, "left", ends > s->now ? ends - s->now : 0);
    fli_json_u64(j, "tokens", s->oracle.token_max);
    fli_json_array(j, "queue");
    for (size_t i = 0; i < l->queue_n; i++) {
        const struct web_client *w = web_client_of_owner(l->queue[i].owner);
        fli_json_u64(j, NULL, w == NULL ? 0 : w->number);
    }
    fli_json_end_array(j);
    fli_json_end_object(j);
}

static void put_client(struct fli_json *j, const struct web_client *w)
{
    const struct sim_lane *l = &w->c->lanes[SIM_LANE_MAIN];
    fli_json_object(j, NULL);
    fli_json_u64(j, "id", w->number);
    fli_json_text(j, "phase", phases[w->phase]);
    fli_json_text(j, "outcome", outcomes[w->outcome]);
    fli_json_bool(j, "paused", w->c->paused);
    fli_json_bool(j, "silent", w->silent);
    fli_json_bool(j, "redlock", w->redlock);
    fli_json_bool(j, "believes", w->c->holding && web_lease_left(w) > 0);
    fli_json_u64(j, "left", web_lease_left(w));
    fli_json_u64(j, "token", w->c->token);
    fli_json_u64(j, "adds", w->adds);
    fli_json_u64(j, "value", w->value);
    fli_json_u64(j, "node", l->active && l->conn_open ? l->conn_node + 1 : 0);
    fli_json_bool(j, "held", web.storage.held[w->number - 1] != NULL);
    fli_json_bool(j, "unknown", w->phase == WEB_ASKS && w->asks_again);
    fli_json_array(j, "cut");
    for (unsigned i = 0; i < WEB_REDIS; i++) {
        if ((w->cut >> i & 1) != 0) {
            fli_json_u64(j, NULL, i + 1);
        }
    }
    fli_json_end_array(j);
    fli_json_end_object(j);
}

static void put_storage(struct fli_json *j)
{
    const struct web_storage *st = &web.storage;
    unsigned lost = 0;
    fli_json_object(j, "storage");
    fli_json_u64(j, "value", st->value);
    fli_json_u64(j, "mark", st->mark);
    fli_json_array(j, "writes");
    for (unsigned i = 0; i < st->writes_n; i++) {
        const struct web_write *w = &st->writes[i];
        fli_json_object(j, NULL);
        fli_json_u64(j, "client", w->client);
        fli_json_u64(j, "token", w->token);
        fli_json_u64(j, "from", w->from);
        fli_json_u64(j, "to", w->to);
        fli_json_bool(j, "lost", w->lost);
        fli_json_end_object(j);
        lost += w->lost;
    }
    fli_json_end_array(j);
    fli_json_u64(j, "lost", lost);
    fli_json_end_object(j);
}

static void put_redis(struct fli_json *j, unsigned i)
{
    static const char *const names[] = {"A", "B", "C", "D", "E"};
    uint64_t left_ms;
    uint64_t holder = web_redis_holder(i, &left_ms);
    fli_json_object(j, NULL);
    fli_json_text(j, "name", names[i]);
    fli_json_u64(j, "holder", holder);
    fli_json_u64(j, "left", left_ms);
    fli_json_u64(j, "ahead", (uint64_t)web.s->redis[i].wall_offset);
    fli_json_u64(j, "restarted", web.s->redis[i].up_since > web.begun_at ? 1 : 0);
    fli_json_end_object(j);
}

static void put_messages(struct fli_json *j)
{
    fli_json_array(j, "messages");
    for (unsigned i = 0; i < web.messages_n; i++) {
        const struct web_message *m = &web.messages[i];
        fli_json_object(j, NULL);
        fli_json_u64(j, "sent", m->sent);
        fli_json_u64(j, "arrives", m->arrives);
        fli_json_text(j, "from", m->from);
        fli_json_text(j, "to", m->to);
        fli_json_text(j, "text", m->text);
        fli_json_text(j, "fate", m->fate);
        fli_json_end_object(j);
    }
    fli_json_end_array(j);
}

static void put_spans(struct fli_json *j)
{
    fli_json_array(j, "spans");
    for (unsigned i = 0; i < web.spans_n; i++) {
        const struct web_span *span = &web.spans[i];
        fli_json_object(j, NULL);
        fli_json_text(j, "kind", span->kind);
        fli_json_u64(j, "who", span->who);
        fli_json_u64(j, "from", span->from);
        fli_json_u64(j, "to", span->open ? web_now() : span->to);
        fli_json_bool(j, "open", span->open);
        fli_json_end_object(j);
    }
    fli_json_end_array(j);
}

static void put_trace(struct fli_json *j)
{
    fli_json_array(j, "trace");
    for (unsigned i = 0; i < web.notes_n; i++) {
        const struct web_note *n = &web.notes[i];
        fli_json_object(j, NULL);
        fli_json_u64(j, "at", n->at);
        fli_json_text(j, "kind", n->kind);
        fli_json_u64(j, "client", n->client);
        fli_json_text(j, "text", n->text);
        fli_json_end_object(j);
    }
    fli_json_end_array(j);
    fli_json_array(j, "steps");
    for (unsigned i = 0; i < web.steps_n; i++) {
        fli_json_object(j, NULL);
        fli_json_u64(j, "at", web.steps[i].at);
        fli_json_text(j, "word", web.steps[i].word);
        fli_json_end_object(j);
    }
    fli_json_end_array(j);
}

static void put_switches(struct fli_json *j)
{
    fli_json_u64(j, "seed", web.seed);
    fli_json_u64(j, "at", web_now());
    fli_json_u64(j, "ttl", WEB_TTL_MS);
    fli_json_bool(j, "check", web.check);
    fli_json_bool(j, "claim", web.claim);
    fli_json_bool(j, "redlock", web.redlock);
    fli_json_bool(j, "wait", web.wait);
    fli_json_bool(j, "full", web_full());
    const struct sim_node *leader = sim_leader(web.s);
    fli_json_u64(j, "leader", leader == NULL ? 0 : leader->index + 1);
}

const char *sim_web_state(void)
{
    struct fli_json j;
    if (web.s == NULL) {
        return "{}";
    }
    fli_buf_fini(&web.json);
    fli_buf_init(&web.json, JSON_MAX);
    fli_json_init(&j, &web.json);
    fli_json_object(&j, NULL);
    put_switches(&j);
    fli_json_array(&j, "nodes");
    for (unsigned i = 0; i < web.s->n; i++) {
        put_node(&j, &web.s->nodes[i]);
    }
    fli_json_end_array(&j);
    put_lock(&j);
    fli_json_array(&j, "clients");
    for (unsigned i = 0; i < WEB_CLIENTS; i++) {
        put_client(&j, &web.clients[i]);
    }
    fli_json_end_array(&j);
    put_storage(&j);
    fli_json_array(&j, "redis");
    for (unsigned i = 0; i < WEB_REDIS; i++) {
        put_redis(&j, i);
    }
    fli_json_end_array(&j);
    put_messages(&j);
    put_spans(&j);
    put_trace(&j);
    fli_json_end_object(&j);
    int rc = j.rc != 0 ? j.rc : fli_buf_append(&web.json, "", 1);
    FLI_ASSERT(rc == 0);
    return (const char *)web.json.data;
}
