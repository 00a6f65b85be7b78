/* report.c: see report.h. */
#include "consensus/report.h"

#include "base/clock.h"
#include "base/fields.h"
#include "consensus/message_codec.h"
#include "consensus/peers.h"

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
