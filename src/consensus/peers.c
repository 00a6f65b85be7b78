/* peers.c: see peers.h. */
#include "consensus/peers.h"

#include <string.h>

#include "base/clock.h"
#include "base/fields.h"
#include "consensus/message_codec.h"

struct peer *peers_find(const struct peers *p, uint64_t id)
{
    for (unsigned i = 0; i < KNOWN_MEMBERS_MAX && id != 0; i++) {
        if (p->list[i].id == id) {
            return (struct peer *)(uintptr_t)&p->list[i];
        }
    }
    return NULL;
}

struct peer *peers_place(struct peers *p, uint64_t id)
{
    struct peer *place = peers_find(p, id);
    for (unsigned i = 0; i < KNOWN_MEMBERS_MAX && place == NULL; i++) {
        if (p->list[i].id == 0) {
            place = &p->list[i];
            place->id = id;
        }
    }
    return place;
}

static void leave(struct peer *p)
{
    struct peer rest = {0};
    if (snapshot_send_busy(&p->send)) {
        rest.id = p->id;
        rest.send = p->send;
    }
    FLI_ASSERT(!p->outbound.dialing && p->relay_dials == NULL);
    FLI_ASSERT(p->relay[RELAY_TO_LEADER] == NULL && p->relay[RELAY_OF_FOLLOWER] == NULL);
    outbound_close(&p->outbound);
    *p = rest;
}

void peers_set_members(struct peers *p, const struct members *members)
{
    for (unsigned i = 0; i < KNOWN_MEMBERS_MAX; i++) {
        if (members_find(members, p->list[i].id) == NULL) {
            leave(&p->list[i]);
        }
    }
    for (unsigned i = 0; i < members->n; i++) {
        struct peer *q = peers_place(p, members->list[i].id);
        if (q != NULL && q->id != p->self_id && q->outbound.host == NULL && p->transport != NULL) {
            outbound_open(&q->outbound, p->host, p->transport, q->id);
        }
    }
}

bool peers_is_up(const struct peers *p, uint64_t id)
{
    const struct peer *q = peers_find(p, id);
    return q != NULL && outbound_is_up(&q->outbound);
}

int peers_send(struct peers *p, uint64_t id, uint8_t type, const struct fli_slice *parts,
               unsigned n)
{
    struct peer *q = peers_find(p, id);
    return q == NULL ? FL_EINVAL : outbound_send(&q->outbound, type, parts, n);
}

static void each(struct peers *p, void (*call)(struct outbound *o))
{
    for (unsigned i = 0; i < KNOWN_MEMBERS_MAX; i++) {
        if (p->list[i].outbound.host != NULL) {
            call(&p->list[i].outbound);
        }
    }
}

void peers_turn(struct peers *p)
{
    each(p, outbound_turn);
}

void peers_flush(struct peers *p)
{
    each(p, outbound_flush);
}

void peers_close(struct peers *p)
{
    each(p, outbound_close);
}

uint64_t peers_next_ms(struct peers *p)
{
    uint64_t next_ms = UINT64_MAX;
    for (unsigned i = 0; i < KNOWN_MEMBERS_MAX; i++) {
        struct outbound *o = &p->list[i].outbound;
        uint64_t ms = o->host == NULL ? UINT64_MAX : outbound_next_ms(o);
        next_ms = ms < next_ms ? ms : next_ms;
    }
    return next_ms;
}

/* ---- reports ---- */

_Static_assert(NODE_REPORT_TYPE > MESSAGE_TIMEOUT_NOW, "a type of its own");

#define FIELD(kind, name)                                                                          \
    {                                                                                              \
        kind, offsetof(struct node_report, name)                                                   \
    }
static const struct fli_field fields[] = {
    FIELD(FLI_U8, role),          FIELD(FLI_BOOL, log_waits),
    FIELD(FLI_BOOL, disk_hangs),  FIELD(FLI_BOOL, own_election),
    FIELD(FLI_U8, hash_version),  FIELD(FLI_U64, term),
    FIELD(FLI_U64, commit_index), FIELD(FLI_U64, applied_index),
    FIELD(FLI_U64, disk_bytes),   FIELD(FLI_U64, disk_free_bytes),
    FIELD(FLI_U64, hash_index),   FIELD(FLI_U64, hash),
};
#define FIELDS (sizeof fields / sizeof fields[0])

void node_report_encode(const struct node_report *r, uint8_t out[NODE_REPORT_SIZE])
{
    const uint8_t *end = fli_put_fields(out, fields, FIELDS, r);
    FLI_ASSERT(end == out + NODE_REPORT_SIZE);
}

int node_report_decode(struct fli_slice body, struct node_report *ret)
{
    struct fli_reader r;
    struct node_report report = {0};
    fli_reader_init(&r, body.data, body.len);
    fli_read_fields(&r, fields, FIELDS, &report);
    if (r.bad || fli_reader_left(&r) != 0 || report.role > NODE_STOPPED) {
        return FL_EPROTO;
    }
    *ret = report;
    return 0;
}

const struct node_report *node_report_of_peer(const struct peers *peers, uint64_t id)
{
    const struct peer *p = peers_find(peers, id);
    bool fresh = p != NULL && p->report.at_ms != 0 &&
                 fli_clock_since_ms(p->report.at_ms) < NODE_REPORT_OLD_MS;
    return fresh ? &p->report : NULL;
}

/* A node that has told nothing yet may be as good as any. */
bool node_report_can_lead(const struct peers *p, uint64_t id)
{
    const struct node_report *r = node_report_of_peer(p, id);
    return r == NULL || (!r->disk_hangs && r->lag <= NODE_REPORT_NEAR);
}

uint64_t node_report_differs(const struct peers *p)
{
    uint64_t id = 0;
    for (unsigned i = 0; i < KNOWN_MEMBERS_MAX && id == 0; i++) {
        id = p->list[i].differs ? p->list[i].id : 0;
    }
    return id;
}
