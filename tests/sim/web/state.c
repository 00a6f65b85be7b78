/* state.c: all that can be seen, as JSON. */
#include "metrics/json.h"
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

static void put_node(struct json *j, struct sim_node *n)
{
    bool runs = n->power == SIM_UP && n->node != NULL && n->failed == 0;
    bool part = n->sim->links[n->index][(n->index + 1) % n->sim->n].cut_until > n->sim->now &&
                n->sim->links[n->index][(n->index + 2) % n->sim->n].cut_until > n->sim->now;
    json_open(j, NULL, '{');
    json_number(j, "id", n->index + 1);
    json_flag(j, "up", runs);
    json_flag(j, "cut", part);
    if (runs) {
        struct node_status st;
        n->sim->current = n; /* its clock is the one that is read */
        node_get_status(n->node, &st);
        n->sim->current = NULL;
        json_text(j, "role",
                  st.role == NODE_LEADER      ? "leader"
                  : st.role == NODE_CANDIDATE ? "candidate"
                                              : "follower");
        json_number(j, "term", st.term);
        json_number(j, "log", st.last_index);
        json_number(j, "commit", st.commit_index);
        json_number(j, "applied", st.applied_index);
    }
    json_close(j, '}');
}

static void put_lock(struct json *j)
{
    struct sim *s = web.s;
    const struct sim_lock *l = &s->oracle.locks[WEB_LOCK];
    json_open(j, "lock", '{');
    uint64_t token = l->holders_n > 0 ? l->holders[0] : 0;
    const struct sim_token *t = token == 0 ? NULL : sim_oracle_token(s, token);
    const struct web_client *w = t == NULL ? NULL : web_client_of_owner(t->owner);
    uint64_t ends = t == NULL ? 0 : t->base_at + WEB_TTL_MS;
    json_number(j, "holder", w == NULL ? 0 : w->number);
    json_number(j, "token", token);
    json_number(j, "left", ends > s->now ? ends - s->now : 0);
    json_number(j, "tokens", s->oracle.token_max);
    json_open(j, "queue", '[');
    for (size_t i = 0; i < l->queue_n; i++) {
        w = web_client_of_owner(l->queue[i].owner);
        json_number(j, NULL, w == NULL ? 0 : w->number);
    }
    json_close(j, ']');
    json_close(j, '}');
}

static void put_client(struct json *j, const struct web_client *w)
{
    const struct sim_lane *l = &w->c->lanes[SIM_LANE_MAIN];
    json_open(j, NULL, '{');
    json_number(j, "id", w->number);
    json_text(j, "phase", phases[w->phase]);
    json_text(j, "outcome", outcomes[w->outcome]);
    json_flag(j, "paused", w->c->paused);
    json_flag(j, "silent", w->silent);
    json_flag(j, "redlock", w->redlock);
    json_flag(j, "believes", w->c->holding && web_lease_left(w) > 0);
    json_number(j, "left", web_lease_left(w));
    json_number(j, "token", w->c->token);
    json_number(j, "adds", w->adds);
    json_number(j, "value", w->value);
    json_number(j, "node", l->active && l->conn_open ? l->conn_node + 1 : 0);
    json_flag(j, "held", web.storage.held[w->number - 1] != NULL);
    json_flag(j, "unknown", w->phase == WEB_ASKS && w->asks_again);
    json_open(j, "cut", '[');
    for (unsigned i = 0; i < WEB_REDIS; i++) {
        if ((w->cut >> i & 1) != 0) {
            json_number(j, NULL, i + 1);
        }
    }
    json_close(j, ']');
    json_close(j, '}');
}

static void put_storage(struct json *j)
{
    const struct web_storage *st = &web.storage;
    unsigned lost = 0;
    json_open(j, "storage", '{');
    json_number(j, "value", st->value);
    json_number(j, "mark", st->mark);
    json_open(j, "writes", '[');
    for (unsigned i = 0; i < st->writes_n; i++) {
        const struct web_write *w = &st->writes[i];
        json_open(j, NULL, '{');
        json_number(j, "client", w->client);
        json_number(j, "token", w->token);
        json_number(j, "from", w->from);
        json_number(j, "to", w->to);
        json_flag(j, "lost", w->lost);
        json_close(j, '}');
        lost += w->lost;
    }
    json_close(j, ']');
    json_number(j, "lost", lost);
    json_close(j, '}');
}

static void put_redis(struct json *j, unsigned i)
{
    static const char *const names[] = {"A", "B", "C", "D", "E"};
    uint64_t left_ms;
    uint64_t holder = web_redis_holder(i, &left_ms);
    json_open(j, NULL, '{');
    json_text(j, "name", names[i]);
    json_number(j, "holder", holder);
    json_number(j, "left", left_ms);
    json_number(j, "ahead", (uint64_t)web.s->redis[i].wall_offset);
    json_number(j, "restarted", web.s->redis[i].up_since > web.begun_at ? 1 : 0);
    json_close(j, '}');
}

static void put_messages(struct json *j)
{
    json_open(j, "messages", '[');
    for (unsigned i = 0; i < web.messages_n; i++) {
        const struct web_message *m = &web.messages[i];
        json_open(j, NULL, '{');
        json_number(j, "sent", m->sent);
        json_number(j, "arrives", m->arrives);
        json_text(j, "from", m->from);
        json_text(j, "to", m->to);
        json_text(j, "text", m->text);
        json_text(j, "fate", m->fate);
        json_close(j, '}');
    }
    json_close(j, ']');
}

static void put_trace(struct json *j)
{
    json_open(j, "trace", '[');
    for (unsigned i = 0; i < web.notes_n; i++) {
        const struct web_note *n = &web.notes[i];
        json_open(j, NULL, '{');
        json_number(j, "at", n->at);
        json_text(j, "kind", n->kind);
        json_number(j, "client", n->client);
        json_text(j, "text", n->text);
        json_close(j, '}');
    }
    json_close(j, ']');
    json_open(j, "steps", '[');
    for (unsigned i = 0; i < web.steps_n; i++) {
        json_open(j, NULL, '{');
        json_number(j, "at", web.steps[i].at);
        json_text(j, "word", web.steps[i].word);
        json_close(j, '}');
    }
    json_close(j, ']');
}

static void put_switches(struct json *j)
{
    json_number(j, "seed", web.seed);
    json_number(j, "at", web_now());
    json_number(j, "ttl", WEB_TTL_MS);
    json_flag(j, "check", web.check);
    json_flag(j, "claim", web.claim);
    json_flag(j, "redlock", web.redlock);
    json_flag(j, "wait", web.wait);
    json_flag(j, "full", web_full());
    const struct sim_node *leader = sim_leader(web.s);
    json_number(j, "leader", leader == NULL ? 0 : leader->index + 1);
}

const char *sim_web_state(void)
{
    struct json j;
    if (web.s == NULL) {
        return "{}";
    }
    fli_buf_fini(&web.json);
    fli_buf_init(&web.json, JSON_MAX);
    json_init(&j, &web.json);
    json_open(&j, NULL, '{');
    put_switches(&j);
    json_open(&j, "nodes", '[');
    for (unsigned i = 0; i < web.s->n; i++) {
        put_node(&j, &web.s->nodes[i]);
    }
    json_close(&j, ']');
    put_lock(&j);
    json_open(&j, "clients", '[');
    for (unsigned i = 0; i < WEB_CLIENTS; i++) {
        put_client(&j, &web.clients[i]);
    }
    json_close(&j, ']');
    put_storage(&j);
    json_open(&j, "redis", '[');
    for (unsigned i = 0; i < WEB_REDIS; i++) {
        put_redis(&j, i);
    }
    json_close(&j, ']');
    put_messages(&j);
    put_trace(&j);
    json_close(&j, '}');
    int rc = j.rc != 0 ? j.rc : fli_buf_append(&web.json, "", 1);
    FLI_ASSERT(rc == 0);
    return (const char *)web.json.data;
}
