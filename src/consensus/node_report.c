/* node_report.c: see node_report.h. A thread of libuv's pool asks for the disk's size: a disk that
 * hangs must not hold up the loop. */
#include "consensus/node_report.h"

#include <inttypes.h>
#include <string.h>
#include <sys/statvfs.h>

#include "base/clock.h"
#include "base/fields.h"
#include "consensus/message_codec.h"
#include "consensus/node_private.h"

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

/* ---- the disk -------------------------------------------------------------------------------- */

static void disk_work(uv_work_t *req)
{
    struct node_disk *d = req->data;
    struct statvfs v;
    d->found = statvfs(d->path, &v) == 0;
    if (d->found) {
        d->bytes = (uint64_t)v.f_blocks * v.f_frsize;
        d->free_bytes = (uint64_t)v.f_bavail * v.f_frsize;
    }
}

static void disk_done(uv_work_t *req, int status)
{
    struct node_disk *d = req->data;
    struct node *n = d->node;
    struct node_report *own = &n->own_report;
    own->disk_bytes = status == 0 && d->found ? d->bytes : 0;
    own->disk_free_bytes = status == 0 && d->found ? d->free_bytes : 0;
    d->asked = false;
    node_closed_one(n);
}

static void ask_disk(struct node *n)
{
    struct node_disk *d = &n->report_disk;
    if (d->asked) {
        return; /* the last answer is kept until another comes */
    }
    d->node = n;
    d->path = n->dir.path;
    d->work.data = d;
    if (uv_queue_work(n->loop, &d->work, disk_work, disk_done) == 0) {
        d->asked = true;
        n->open++;
    }
}

/* ---- telling and hearing --------------------------------------------------------------------- */

void node_report_tick(struct node *n)
{
    uint64_t now_ms = fli_clock_ms();
    if (n->reported_ms != 0 && now_ms - n->reported_ms < NODE_REPORT_MS) {
        return;
    }
    n->reported_ms = now_ms;
    ask_disk(n);
    struct node_status s;
    node_get_status(n, &s);
    struct node_report *own = &n->own_report;
    own->role = (uint8_t)s.role;
    own->log_waits = s.log.waiting_for_segment;
    own->disk_hangs = n->disk_hangs;
    own->own_election = n->own_election;
    own->term = s.term;
    own->commit_index = s.commit_index;
    own->applied_index = s.applied_index;
    own->hash_version = MACHINE_HASH_VERSION;
    own->hash_index = replica_hash_index(n->replica);
    if (!replica_hash_at(n->replica, own->hash_index, &own->hash)) {
        own->hash = 0;
    }
    if (s.role == NODE_LEADER) {
        own->lag = s.commit_index - s.applied_index;
    }
    uint8_t body[NODE_REPORT_SIZE];
    node_report_encode(own, body);
    const struct fli_slice part = {body, sizeof body};
    uint8_t bytes[STARTS_MESSAGE_MAX];
    const struct fli_slice starts = {bytes, node_record_message(n, bytes)};
    for (unsigned i = 0; i < KNOWN_MEMBERS_MAX; i++) {
        struct outbound *o = &n->peers.list[i].outbound;
        if (outbound_send(o, NODE_REPORT_TYPE, &part, 1) != 0 ||
            outbound_send(o, STARTS_MESSAGE_TYPE, &starts, 1) != 0) {
            continue; /* the next ones will be newer */
        }
    }
}

/* Reports come only once a second. So the lag is computed when one arrives, while both of its
 * values are from the same moment. */
static void reckon_lag(struct node *n, struct node_report *r)
{
    struct node_status s;
    node_get_status(n, &s);
    r->lag = s.commit_index > r->applied_index ? s.commit_index - r->applied_index : 0;
    if (r->role == NODE_LEADER) {
        bool behind = r->commit_index > s.applied_index;
        n->own_report.lag = behind ? r->commit_index - s.applied_index : 0;
    }
}

/* ---- comparing states ------------------------------------------------------------------------ */

static void note_difference(struct node *n, struct peer *t, uint64_t index)
{
    if (!t->differs) {
        host_log(&n->host, 1,
                 "the states of node %" PRIu64 " and of this one differ at entry %" PRIu64
                 ": one of the two is damaged; the one that differs from a majority ends",
                 t->id, index);
    }
    t->differs = true;
}

/* A node that was not heard of lately does not count, whatever it once had. */
static unsigned voters_that_differ(const struct node *n, unsigned *ret_voters)
{
    const struct configuration *c = replica_configuration(n->replica);
    unsigned count = 0;
    for (unsigned i = 0; i < KNOWN_MEMBERS_MAX; i++) {
        const struct peer *t = &n->peers.list[i];
        const struct configuration_server *s = t->id == 0 ? NULL : configuration_find(c, t->id);
        count += s != NULL && s->role == CONFIGURATION_VOTER && t->differs &&
                 node_report_of(n, t->id) != NULL;
    }
    *ret_voters = configuration_voters(c);
    return count;
}

/* All replicas have the same state behind the same entry. If not, one of them has met a fault of
 * its memory, or a defect of the program. It ends when a majority of the voters, and more than one,
 * differs from it: so whatever befalls a minority, or a voter alone, this ends no other node. */
static void compare_states(struct node *n, struct peer *t)
{
    const struct node_report *r = &t->report;
    unsigned voters;
    uint64_t own;
    if (r->hash_version != MACHINE_HASH_VERSION || r->hash_index == 0) {
        t->differs = false; /* it may have a new disk */
        return;
    }
    if (!replica_hash_at(n->replica, r->hash_index, &own)) {
        return;
    }
    if (own == r->hash) {
        t->differs = false;
        return;
    }
    note_difference(n, t, r->hash_index);
    node_snapshot_review(n);
    unsigned differ = voters_that_differ(n, &voters);
    if (differ > voters / 2 && differ > 1) {
        host_fail(&n->host, FL_ECORRUPT,
                  "the state of this node differs from the state of %u of %u voters, behind entry "
                  "%" PRIu64 ": move %s away, run fencelock cluster replace %" PRIu64
                  ", and start with an empty one; have the machine's memory tested",
                  differ, voters, r->hash_index, n->dir.path, n->id);
    }
}

uint64_t node_report_differs(const struct peers *p)
{
    uint64_t id = 0;
    for (unsigned i = 0; i < KNOWN_MEMBERS_MAX && id == 0; i++) {
        id = p->list[i].differs ? p->list[i].id : 0;
    }
    return id;
}

void node_report_installed(struct node *n)
{
    for (unsigned i = 0; i < KNOWN_MEMBERS_MAX; i++) {
        n->peers.list[i].differs = false;
    }
}

int node_report_receive(struct node *n, uint64_t from, struct fli_slice body)
{
    struct node_report r;
    int rc = node_report_decode(body, &r);
    struct peer *t = peers_find(&n->peers, from);
    if (rc == 0 && t != NULL) {
        reckon_lag(n, &r);
        t->reported_ms = fli_clock_ms();
        t->report = r;
        compare_states(n, t);
    }
    return rc;
}

static const struct node_report *fresh(const struct node_report *r, uint64_t at_ms)
{
    return at_ms != 0 && fli_clock_since_ms(at_ms) < NODE_REPORT_OLD_MS ? r : NULL;
}

static const struct node_report *report_of_peer(const struct peers *peers, uint64_t id)
{
    const struct peer *p = peers_find(peers, id);
    return p == NULL ? NULL : fresh(&p->report, p->reported_ms);
}

const struct node_report *node_report_of(const struct node *n, uint64_t id)
{
    return id == n->id ? fresh(&n->own_report, n->reported_ms) : report_of_peer(&n->peers, id);
}

/* A node that has told nothing yet may be as good as any. */
bool node_report_can_lead(const struct peers *p, uint64_t id)
{
    const struct node_report *r = report_of_peer(p, id);
    return r == NULL || (!r->disk_hangs && r->lag <= NODE_REPORT_NEAR);
}
