/* transport_shake.c: the handshake of a connection, whichever side has opened it.
 *
 * The side that dialed says its handshake first; the other one checks it and answers, and the first
 * checks the answer. Between check and answer, and behind the answer, a connection may wait for
 * this node's disk: then transport_check_again() checks it anew.
 *
 * The answer leaves at once, since a new socket has room for it. The dialer sends nothing between
 * its handshake and the answer. So closing after a refusal leaves no unread bytes behind, and the
 * reason arrives. */
#include <stdio.h>
#include <string.h>

#include "peer/transport_private.h"

static unsigned long long peer_of(const struct stream *s)
{
    return s->peer_id;
}

static const char *address_of(const struct stream *s)
{
    const struct member *m = members_find(&s->t->members, s->peer_id);
    return m == NULL ? "" : m->address;
}

/* ---- what this node says ---- */

/* A refusal tells nothing about this node (handshake.h). False: the connection is lost. */
static bool say(struct stream *s, enum stream_kind kind, enum handshake_verdict verdict,
                uint64_t target, const char *reason)
{
    struct handshake h;
    uint8_t bytes[HANDSHAKE_SIZE];
    memset(&h, 0, sizeof h);
    h.kind = kind;
    h.verdict = (uint8_t)verdict;
    h.target = target;
    snprintf(h.reason, sizeof h.reason, "%s", reason);
    if (s->dialed || verdict == HANDSHAKE_WELCOME) {
        h.from = s->t->self;
    }
    handshake_encode(&h, &s->t->formats, bytes);
    if (fli_buf_append(&s->gather, bytes, sizeof bytes) != 0) {
        stream_lose(s, "out of memory");
    }
    stream_push(s);
    return !s->closing;
}

void shake_ask(struct stream *s)
{
    deadline_set(s->t, &s->deadline, s->t->answer_ms);
    (void)say(s, s->kind, 0, s->peer_id, "");
}

/* Tells the caller a verdict, and drops the connection. */
static void answer_refusal(struct stream *s, enum stream_kind kind, uint64_t target,
                           enum handshake_verdict verdict, const char *reason)
{
    if (say(s, kind, verdict, target, reason)) {
        accept_turn_away(s);
    }
}

/* ---- ends without a stream ---- */

/* The peer is no member, or claims to be another node than it has proved: it gets no answer. */
static void cut_off(struct stream *s, const char *why)
{
    transport_log(s->t, 2, "a connection from %s to the peer port was refused: %s", s->address,
                  why);
    accept_turn_away(s);
}

static void dial_refused(struct stream *s, enum handshake_verdict verdict, const char *reason)
{
    struct transport *t = s->t;
    uint64_t id = s->peer_id;
    transport_log(t, 2, "node %llu at %s refused this node: %s", peer_of(s), address_of(s), reason);
    dial_end(s, FL_EDENIED);
    t->cbs.answered(t->cbs.ctx, id, verdict, reason);
}

/* This node refuses the peer, or cannot read its answer. */
static void dial_reject(struct stream *s, const char *reason)
{
    transport_log(s->t, 2, "hung up on node %llu at %s: %s", peer_of(s), address_of(s), reason);
    dial_end(s, FL_EDENIED);
}

/* ---- the stream ---- */

/* Loses the oldest stream of a node and kind, when there is one too many. */
static void make_place(const struct stream *newest)
{
    struct transport *t = newest->t;
    struct stream *oldest = NULL;
    unsigned n = 0;
    FLI_LIST_FOREACH(pos, &t->all)
    {
        struct stream *s = stream_of(pos);
        if (!s->closing && s->given > 0 && s->peer_id == newest->peer_id &&
            s->kind == newest->kind) {
            oldest = n++ == 0 || s->given < oldest->given ? s : oldest;
        }
    }
    if (n > TRANSPORT_ACCEPTED_MAX) {
        stream_lose(oldest, "a newer stream of the same node took its place");
    }
}

static void welcome_call(struct stream *s, const struct handshake *h)
{
    struct transport *t = s->t;
    if (say(s, h->kind, HANDSHAKE_WELCOME, h->from.node_id, "")) {
        stream_give(s, h->kind, h->from.node_id);
        s->given = ++t->given;
        make_place(s);
        t->cbs.accepted(t->cbs.ctx, h->kind, &h->from, s);
    }
}

static void welcome_answer(struct stream *s, const struct handshake *h)
{
    struct transport *t = s->t;
    uint64_t id = s->peer_id;
    stream_give(s, s->kind, id);
    s->dialed_cb(s->dialed_ctx, 0, &h->from, s);
    t->cbs.answered(t->cbs.ctx, id, HANDSHAKE_WELCOME, "");
}

/* ---- checks ---- */

/* Whether the handshake of a caller may be decided about. */
static bool is_call(struct stream *s, int rv, const struct handshake *h)
{
    struct transport *t = s->t;
    char reason[HANDSHAKE_REASON_MAX];
    if (rv == FL_EVERSION) {
        handshake_explain_version(s->greeting.data, &t->formats, reason, sizeof reason);
        transport_log(t, 2, "a node of another version at %s was refused: %s", s->address, reason);
        answer_refusal(s, STREAM_RAFT, 0, HANDSHAKE_OTHER_VERSION, "");
        return false;
    }
    if (rv != 0 || h->verdict != 0) {
        stream_break(s, "not a node");
        return false;
    }
    if (t->security != NULL && !security_is(t->security, s->tls, h->from.node_id)) {
        (void)snprintf(reason, sizeof reason,
                       "it says that it is node %llu, and has proved to be another",
                       (unsigned long long)h->from.node_id);
        cut_off(s, reason);
        return false;
    }
    return true;
}

/* Whether an answer is a welcome of the node that was called. */
static bool is_welcome(struct stream *s, int rv, const struct handshake *h)
{
    enum handshake_verdict verdict = (enum handshake_verdict)h->verdict;
    char reason[HANDSHAKE_REASON_MAX];
    if (rv == FL_EVERSION) {
        handshake_explain_version(s->greeting.data, &s->t->formats, reason, sizeof reason);
        dial_refused(s, HANDSHAKE_OTHER_VERSION, reason);
    } else if (rv != 0 || verdict == HANDSHAKE_UNDECIDED) {
        dial_reject(s, "its answer is not one of a node");
    } else if (verdict != HANDSHAKE_WELCOME) {
        dial_refused(s, verdict,
                     h->reason[0] != '\0' ? h->reason : handshake_verdict_text(verdict));
    } else if (h->from.node_id != s->peer_id || h->kind != s->kind) {
        (void)snprintf(reason, sizeof reason, "node %llu answered where node %llu was called",
                       (unsigned long long)h->from.node_id, peer_of(s));
        dial_reject(s, reason);
    } else {
        return true;
    }
    return false;
}

/* A caller is read on, since it may hang up. A called node is not: it may send as soon as it has
 * answered. */
static void wait_for_disk(struct stream *s)
{
    s->phase = STREAM_UNDECIDED;
    if (s->dialed) {
        stream_read_stop(s);
        deadline_set(s->t, &s->deadline, s->t->answer_ms);
    } else if (s->greeting.len > HANDSHAKE_SIZE) {
        stream_break(s, "not a node"); /* it would wait for the answer */
    }
}

static void refuse(struct stream *s, const struct handshake *h, enum handshake_verdict verdict,
                   const char *reason, bool alike)
{
    if (s->dialed) {
        dial_reject(s, reason);
        return;
    }
    transport_log(s->t, 2, "refused node %llu at %s: %s", (unsigned long long)h->from.node_id,
                  s->address, reason);
    answer_refusal(s, h->kind, h->from.node_id, verdict, alike ? reason : "");
}

void shake_check(struct stream *s)
{
    struct handshake h = {.verdict = 0};
    char reason[HANDSHAKE_REASON_MAX] = {0};
    bool alike;
    int rv = handshake_decode(s->greeting.data, &s->t->formats, &h);
    if (s->dialed ? !is_welcome(s, rv, &h) : !is_call(s, rv, &h)) {
        return;
    }
    h.from.welcomes = s->dialed;
    h.from.waited = s->phase == STREAM_UNDECIDED;
    enum handshake_verdict verdict = transport_check(s->t, &h, &alike, reason);
    if (s->closing) {
        return; /* the check has ended it */
    }
    if (verdict == HANDSHAKE_UNDECIDED) {
        wait_for_disk(s);
    } else if (verdict != HANDSHAKE_WELCOME) {
        refuse(s, &h, verdict, reason, alike);
    } else if (s->dialed) {
        welcome_answer(s, &h);
    } else {
        welcome_call(s, &h);
    }
}

/* ---- what the other side says ---- */

void shake_secured(struct stream *s)
{
    char why[FLI_TLS_ERRMSG_SIZE];
    if (s->dialed) {
        shake_ask(s);
    } else if (!security_is_member(s->t->security, s->tls, why, sizeof why)) {
        cut_off(s, why);
    }
}

void shake_bytes(struct stream *s, const uint8_t *data, size_t len)
{
    if (s->phase == STREAM_UNDECIDED) {
        stream_break(s, "not a node");
    } else if (fli_buf_append(&s->greeting, data, len) != 0) {
        stream_lose(s, "out of memory");
    } else if (s->greeting.len >= HANDSHAKE_SIZE) {
        shake_check(s);
    }
}
