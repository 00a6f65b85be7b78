/* message_codec.c: see message_codec.h. */
#include "consensus/message_codec.h"

#include <string.h>

#include "base/fields.h"
#include "machine/batch.h"

enum { APPEND_HEAD = 36, ROUND_SIZE = 16 };

/* The fields of each message, in their order, and the version that the library puts into it (raft
 * 0.22). The entries of an APPEND follow. */
#define NUMBER(name)                                                                               \
    {                                                                                              \
        FLI_U64, offsetof(struct raft_message, name)                                               \
    }
#define FLAG(name)                                                                                 \
    {                                                                                              \
        FLI_BOOL, offsetof(struct raft_message, name)                                              \
    }
static const struct kind {
    enum message_type type;
    enum raft_message_type of_core;
    uint8_t version;
    unsigned n;
    struct fli_field fields[6];
} kinds[] = {
    {MESSAGE_APPEND,
     RAFT_APPEND_ENTRIES,
     0,
     4,
     {NUMBER(append_entries.term), NUMBER(append_entries.prev_log_index),
      NUMBER(append_entries.prev_log_term), NUMBER(append_entries.leader_commit)}},
    {MESSAGE_APPEND_RESULT,
     RAFT_APPEND_ENTRIES_RESULT,
     2,
     3,
     {NUMBER(append_entries_result.term), NUMBER(append_entries_result.rejected),
      NUMBER(append_entries_result.last_log_index)}},
    {MESSAGE_VOTE,
     RAFT_REQUEST_VOTE,
     2,
     6,
     {NUMBER(request_vote.term), NUMBER(request_vote.candidate_id),
      NUMBER(request_vote.last_log_index), NUMBER(request_vote.last_log_term),
      FLAG(request_vote.disrupt_leader), FLAG(request_vote.pre_vote)}},
    {MESSAGE_VOTE_RESULT,
     RAFT_REQUEST_VOTE_RESULT,
     2,
     3,
     {NUMBER(request_vote_result.term), FLAG(request_vote_result.vote_granted),
      FLAG(request_vote_result.pre_vote)}},
    {MESSAGE_TIMEOUT_NOW,
     RAFT_TIMEOUT_NOW,
     0,
     3,
     {NUMBER(timeout_now.term), NUMBER(timeout_now.last_log_index),
      NUMBER(timeout_now.last_log_term)}},
};
#define KINDS (sizeof kinds / sizeof kinds[0])

_Static_assert(MACHINE_BATCH_MAX <= MESSAGE_ENTRY_MAX, "a batch fits a message");
_Static_assert(APPEND_HEAD <= MESSAGE_HEAD_MAX, "every head fits");

static void set_head(struct message_body *b, size_t len)
{
    b->entries = 0;
    b->bytes = 0;
    b->n = 1;
    b->parts[0] = (struct fli_slice){b->head, len};
}

int message_encode(const struct raft_message *m, struct message_body *ret)
{
    unsigned i = 0;
    while (i < KINDS && kinds[i].of_core != m->type) {
        i++;
    }
    if (i == KINDS) {
        return FL_EINVAL;
    }
    uint8_t *end = fli_put_fields(ret->head, kinds[i].fields, kinds[i].n, m);
    ret->type = (uint8_t)kinds[i].type;
    if (ret->type == MESSAGE_APPEND) {
        fli_put_u32(end, 0);
        end += 4;
    }
    set_head(ret, (size_t)(end - ret->head));
    return 0;
}

void message_encode_round(enum message_type type, const struct message_round *m,
                          struct message_body *ret)
{
    FLI_ASSERT(type == MESSAGE_ROUND || type == MESSAGE_ROUND_RESULT);
    ret->type = (uint8_t)type;
    fli_put_u64(ret->head, m->term);
    fli_put_u64(ret->head + 8, m->number);
    set_head(ret, ROUND_SIZE);
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
    memset(head, 0, MESSAGE_ENTRY_HEAD);
    fli_put_u64(head, term);
    head[8] = kind;
    fli_put_u32(head + 12, (uint32_t)data.len);
    b->parts[b->n++] = (struct fli_slice){head, MESSAGE_ENTRY_HEAD};
    b->parts[b->n++] = data;
    b->bytes += data.len;
    b->entries++;
    fli_put_u32(b->head + APPEND_HEAD - 4, b->entries);
    return true;
}

/* ---- decoding ---- */

static int decode_entry(struct fli_slice body, size_t *at, struct raft_entry *ret)
{
    if (body.len - *at < MESSAGE_ENTRY_HEAD) {
        return FL_EPROTO;
    }
    const uint8_t *head = body.data + *at;
    uint8_t kind = head[8];
    size_t len = fli_get_u32(head + 12);
    *at += MESSAGE_ENTRY_HEAD;
    bool known = kind == RAFT_COMMAND || kind == RAFT_BARRIER || kind == RAFT_CHANGE;
    bool zeros = (head[9] | head[10] | head[11]) == 0;
    if (!known || !zeros || len > MESSAGE_ENTRY_MAX || body.len - *at < len ||
        fli_get_u64(head) == 0) {
        return FL_EPROTO;
    }
    *ret = (struct raft_entry){.term = fli_get_u64(head), .type = (enum raft_entry_type)kind};
    /* The cast drops const; the library only reads the bytes. */
    ret->buf.base = (void *)(uintptr_t)(body.data + *at);
    ret->buf.len = len;
    *at += len;
    return 0;
}

static int decode_entries(struct fli_slice body, struct raft_entry *entries,
                          struct raft_append_entries *m)
{
    size_t at = APPEND_HEAD;
    uint64_t term = m->prev_log_term;
    m->n_entries = fli_get_u32(body.data + APPEND_HEAD - 4);
    m->entries = entries;
    if (m->n_entries > MESSAGE_ENTRIES_MAX) {
        return FL_EPROTO;
    }
    for (unsigned i = 0; i < m->n_entries; i++) {
        int rv = decode_entry(body, &at, &entries[i]);
        if (rv != 0 || entries[i].term < term || entries[i].term > m->term) {
            return FL_EPROTO; /* terms never fall along a log */
        }
        term = entries[i].term;
    }
    bool begins = (m->prev_log_index == 0) == (m->prev_log_term == 0);
    bool ends = m->prev_log_index <= UINT64_MAX - m->n_entries - 1;
    return at == body.len && begins && ends && m->prev_log_term <= m->term ? 0 : FL_EPROTO;
}

int message_decode(uint8_t type, struct fli_slice body, struct raft_entry *entries,
                   struct raft_message *ret)
{
    unsigned i = 0;
    while (i < KINDS && kinds[i].type != type) {
        i++;
    }
    if (i == KINDS) {
        return FL_EPROTO;
    }
    struct fli_reader r;
    struct raft_message m = {.type = kinds[i].of_core};
    m.append_entries.version = kinds[i].version; /* stands first in each message */
    fli_reader_init(&r, body.data, body.len);
    fli_read_fields(&r, kinds[i].fields, kinds[i].n, &m);
    if (type == MESSAGE_APPEND) {
        r.bad = body.len < APPEND_HEAD || decode_entries(body, entries, &m.append_entries) != 0;
    } else {
        r.bad = r.bad || fli_reader_left(&r) != 0;
    }
    if (!r.bad) {
        *ret = m;
    }
    return r.bad ? FL_EPROTO : 0;
}

int message_decode_round(struct fli_slice body, struct message_round *ret)
{
    if (body.len != ROUND_SIZE) {
        return FL_EPROTO;
    }
    *ret = (struct message_round){fli_get_u64(body.data), fli_get_u64(body.data + 8)};
    return 0;
}
