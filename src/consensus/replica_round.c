/* replica_round.c: whether this server still leads, asked in rounds, without the disk.
 *
 * A leader may have been replaced without knowing it yet, so what it has applied may be old. It
 * asks its followers: do you follow me in this term? A follower in this very term says yes. When a
 * majority of the voters has said so, this one counted, no later leader was elected before the
 * round began, since a majority must give it their votes and leave the term for that. What was
 * committed when the round began is then all that anybody can have seen (dissertation, section
 * 6.4; "ReadIndex" in etcd).
 *
 * Everybody who asks while a round is on its way shares the next one. Answers carry the number of
 * the round, so one that comes late confirms nothing. A question or an answer that was lost is
 * asked for again after a heartbeat. */
#include "consensus/replica_private.h"

static bool is_under_way(const struct replica *r)
{
    return r->round.number > r->round.confirmed && replica_leads(r) &&
           r->round.term == replica_term(r);
}

/* Its own answer counts without a question. */
static bool has_answered(struct replica *r, uint64_t server)
{
    return server == r->config.incarnation ||
           raft_edge_peer(&r->edge, server)->round == r->round.number;
}

static bool has_majority(struct replica *r)
{
    const struct configuration *c = replica_configuration(r);
    unsigned answers = 0;
    for (unsigned i = 0; i < c->n; i++) {
        const struct configuration_server *s = &c->servers[i];
        answers += s->role == CONFIGURATION_VOTER && has_answered(r, s->incarnation);
    }
    return answers > configuration_voters(c) / 2;
}

static void say(struct replica *r, enum raft_message_type type, uint64_t to, uint64_t number)
{
    struct raft_message m = {.type = type, .server_id = to};
    m.timeout_now.term = replica_term(r);
    m.timeout_now.last_log_index = number;
    replica_send_now(r, &m);
}

/* Asks those who have not answered. */
static void ask(struct replica *r)
{
    const struct configuration *c = replica_configuration(r);
    r->round.sent_ms = r->edge.now_ms;
    for (unsigned i = 0; i < c->n; i++) {
        const struct configuration_server *s = &c->servers[i];
        if (s->role == CONFIGURATION_VOTER && !has_answered(r, s->incarnation)) {
            say(r, RAFT_ROUND, s->incarnation, r->round.number);
        }
    }
}

static void begin(struct replica *r)
{
    struct replica_round *round = &r->round;
    round->number++;
    round->term = replica_term(r);
    round->wanted = false;
    if (has_majority(r)) { /* the only voter has it by itself */
        round->confirmed = round->number;
    } else {
        ask(r);
    }
}

uint64_t replica_round(struct replica *r, uint64_t now_ms)
{
    replica_set_now(r, now_ms);
    if (!replica_leads(r)) {
        return UINT64_MAX;
    }
    if (is_under_way(r)) {
        r->round.wanted = true;
        return r->round.number + 1;
    }
    begin(r);
    return r->round.number;
}

uint64_t replica_round_confirmed(const struct replica *r)
{
    return r->round.confirmed;
}

static void confirm(struct replica *r)
{
    r->round.confirmed = r->round.number;
    if (r->round.wanted) {
        begin(r);
    }
}

static void take_answer(struct replica *r, uint64_t from, uint64_t term, uint64_t number)
{
    if (!is_under_way(r) || term != r->round.term || number != r->round.number ||
        configuration_server(replica_configuration(r), from) == NULL) {
        return;
    }
    raft_edge_peer(&r->edge, from)->round = r->round.number;
    if (has_majority(r)) {
        confirm(r);
    }
}

int replica_round_receive(struct replica *r, const struct raft_message *m)
{
    uint64_t term = m->timeout_now.term;
    uint64_t number = m->timeout_now.last_log_index;
    if (m->type == RAFT_ROUND_RESULT) {
        take_answer(r, m->server_id, term, number);
        return 0;
    }
    if (term != replica_term(r)) {
        return 0; /* of an old leader, who hears of the new term from its heartbeats; or of a new
                     one, whose heartbeats are on their way */
    }
    if (replica_role(r) == REPLICA_LEADER) {
        return FL_EPROTO; /* a term has one leader */
    }
    say(r, RAFT_ROUND_RESULT, m->server_id, number);
    return 0;
}

uint64_t replica_round_due_ms(const struct replica *r)
{
    return is_under_way(r) ? r->round.sent_ms + r->edge.heartbeat_ms : UINT64_MAX;
}

/* When the configuration has changed meanwhile, those who have answered may be a majority of it. */
void replica_round_turn(struct replica *r)
{
    if (r->edge.now_ms < replica_round_due_ms(r)) {
        return;
    }
    if (has_majority(r)) {
        confirm(r);
    } else {
        ask(r);
    }
}
