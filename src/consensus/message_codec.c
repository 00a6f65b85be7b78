/* message_codec.c: see message_codec.h. */
#include "consensus/message_codec.h"

#include <string.h>

#include "base/fields.h"
#include "machine/batch.h"

_Static_assert((int)MESSAGE_APPEND == RAFT_APPEND_ENTRIES &&
                   (int)MESSAGE_APPEND_RESULT == RAFT_APPEND_ENTRIES_RESULT &&
                   (int)MESSAGE_VOTE == RAFT_REQUEST_VOTE &&
                   (int)MESSAGE_VOTE_RESULT == RAFT_REQUEST_VOTE_RESULT &&
                   (int)MESSAGE_TIMEOUT_NOW == RAFT_TIMEOUT_NOW,
               "the types are the library's");

/* The fields of each message, by its type, in their order. The entries of an APPEND follow, whose
 * number comes last. */
#define NUMBER(name) FIELD(FLI_U64, name)
#define FLAG(name) FIELD(FLI_BOOL, name)
#define FIELD(kind, name)                                                                          \
    {                                                                                              \
        kind, offsetof(struct raft_message, name)                                                  \
    }
static const struct {
    unsigned n;
    struct fli_field fields[6];
} kinds[] = {
    [MESSAGE_APPEND] = {5,
                        {NUMBER(append_entries.term), NUMBER(append_entries.prev_log_index),
                         NUMBER(append_entries.prev_log_term), NUMBER(append_entries.leader_commit),
                         FIELD(FLI_U32, append_entries.n_entries)}},
    [MESSAGE_APPEND_RESULT] = {3,
                               {NUMBER(append_entries_result.term),
                                NUMBER(append_entries_result.rejected),
                                NUMBER(append_entries_result.last_log_index)}},
    [MESSAGE_VOTE] = {6,
                      {NUMBER(request_vote.term), NUMBER(request_vote.candidate_id),
                       NUMBER(request_vote.last_log_index), NUMBER(request_vote.last_log_term),
                       FLAG(request_vote.disrupt_leader), FLAG(request_vote.pre_vote)}},
    [MESSAGE_VOTE_RESULT] = {3,
                             {NUMBER(request_vote_result.term),
                              FLAG(request_vote_result.vote_granted),
                              FLAG(request_vote_result.pre_vote)}},
    [MESSAGE_TIMEOUT_NOW] = {3,
                             {NUMBER(timeout_now.term), NUMBER(timeout_now.last_log_index),
                              NUMBER(timeout_now.last_log_term)}},
    [MESSAGE_ROUND] = {2, {NUMBER(timeout_now.term), NUMBER(timeout_now.last_log_index)}},
    [MESSAGE_ROUND_RESULT] = {2, {NUMBER(timeout_now.term), NUMBER(timeout_now.last_log_index)}},
};
#define KINDS (sizeof kinds / sizeof kinds[0])

_Static_assert(MACHINE_BATCH_MAX <= MESSAGE_ENTRY_MAX, "a batch fits a message");

int message_encode(const struct raft_message *m, struct message_body *ret)
{
    size_t type = (size_t)m->type;
    if (type >= KINDS || kinds[type].n == 0) {
        return FL_EINVAL;
    }
    const uint8_t *end = fli_put_fields(ret->head, kinds[type].fields, kinds[type].n, m);
    size_t len = (size_t)(end - ret->head);
    FLI_ASSERT(len <= MESSAGE_HEAD_MAX);
    ret->type = (uint8_t)type;
    ret->entries = 0;
    ret->bytes = 0;
    ret->n = 1;
    ret->parts[0] = (struct fli_slice){ret->head, len};
    if (ret->type == MESSAGE_APPEND) {
        fli_put_u32(ret->head + len - 4, 0);
    }
    return 0;
}

bool message_add_entry(struct message_body *b, uint64_t term, uint8_t kind, struct fli_slice data)
{
    FLI_ASSERT(b->type == MESSAGE_APPEND && data.len <= MESSAGE_ENTRY_MAX);
    bool full = b->entries == MESSAGE_ENTRIES_MAX ||
                (b->entries > 0 && b->bytes + data.len > MESSAGE_BYTES_MAX);
    if (full) {
        return false;
    }
    uint8_t *head = b->entry_heads[b->entries];
    fli_put_u64(head, term);
    fli_put_u32(head + 8, kind); /* and three zeros */
    fli_put_u32(head + 12, (uint32_t)data.len);
    b->parts[b->n++] = (struct fli_slice){head, MESSAGE_ENTRY_HEAD};
    b->parts[b->n++] = data;
    b->bytes += data.len;
    b->entries++;
    fli_put_u32(b->head + b->parts[0].len - 4, b->entries);
    return true;
}

/* ---- decoding ---- */

static bool decode_entry(struct fli_reader *r, struct raft_entry *ret)
{
    uint64_t term = fli_read_u64(r);
    uint32_t kind = fli_read_u32(r); /* a byte, and three zeros */
    uint32_t len = fli_read_u32(r);
    struct fli_slice data = fli_read_bytes(r, len);
    bool known = kind == RAFT_COMMAND || kind == RAFT_BARRIER || kind == RAFT_CHANGE;
    *ret = (struct raft_entry){.term = term, .type = (enum raft_entry_type)kind};
    /* The cast drops const; the library only reads the bytes. */
    ret->buf = (struct raft_buffer){(void *)(uintptr_t)data.data, data.len};
    return !r->bad && known && term != 0 && len <= MESSAGE_ENTRY_MAX;
}

static bool decode_entries(struct fli_reader *r, struct raft_entry *entries,
                           struct raft_append_entries *m)
{
    uint64_t term = m->prev_log_term;
    bool begins = (m->prev_log_index == 0) == (m->prev_log_term == 0);
    bool ends = m->prev_log_index <= UINT64_MAX - m->n_entries - 1;
    bool sound = begins && ends && term <= m->term && m->n_entries <= MESSAGE_ENTRIES_MAX;
    m->entries = entries;
    for (unsigned i = 0; i < m->n_entries && sound; i++) {
        /* Terms never fall along a log. */
        sound =
            decode_entry(r, &entries[i]) && entries[i].term >= term && entries[i].term <= m->term;
        term = entries[i].term;
    }
    return sound;
}

int message_decode(uint8_t type, struct fli_slice body, struct raft_entry *entries,
                   struct raft_message *ret)
{
    struct fli_reader r;
    struct raft_message m = {.type = (enum raft_message_type)type};
    if (type >= KINDS || kinds[type].n == 0) {
        return FL_EPROTO;
    }
    m.append_entries.version =
        2; /* stands first in each message; the library looks at it in votes */
    fli_reader_init(&r, body.data, body.len);
    fli_read_fields(&r, kinds[type].fields, kinds[type].n, &m);
    bool sound =
        !r.bad && (type != MESSAGE_APPEND || decode_entries(&r, entries, &m.append_entries));
    if (!sound || fli_reader_left(&r) != 0) {
        return FL_EPROTO;
    }
    *ret = m;
    return 0;
}
