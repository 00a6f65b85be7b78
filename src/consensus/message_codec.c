/* message_codec.c: see message_codec.h. */
#include "consensus/message_codec.h"

#include <string.h>

#include "base/bytes.h"
#include "machine/batch.h"

/* The versions that the library puts into its messages (raft 0.22). */
#define VERSION_APPEND 0u
#define VERSION_APPEND_RESULT 2u
#define VERSION_VOTE 2u
#define VERSION_VOTE_RESULT 2u

enum {
    APPEND_HEAD = 36,
    APPEND_RESULT_SIZE = 24,
    VOTE_SIZE = 33,
    VOTE_RESULT_SIZE = 9,
    TIMEOUT_SIZE = 24,
    ROUND_SIZE = 16
};
enum { FLAG_FIRST = 1, FLAG_PRE_VOTE = 2, FLAGS_ALL = 3 };

_Static_assert(MACHINE_BATCH_MAX <= MESSAGE_ENTRY_MAX, "a batch fits a message");
_Static_assert(APPEND_HEAD <= MESSAGE_HEAD_MAX, "every head fits");

static size_t encode_append(const struct raft_append_entries *m, uint8_t *out)
{
    fli_put_u64(out, m->term);
    fli_put_u64(out + 8, m->prev_log_index);
    fli_put_u64(out + 16, m->prev_log_term);
    fli_put_u64(out + 24, m->leader_commit);
    fli_put_u32(out + 32, 0);
    return APPEND_HEAD;
}

static size_t encode_vote(const struct raft_request_vote *m, uint8_t *out)
{
    fli_put_u64(out, m->term);
    fli_put_u64(out + 8, m->candidate_id);
    fli_put_u64(out + 16, m->last_log_index);
    fli_put_u64(out + 24, m->last_log_term);
    out[32] = (uint8_t)((m->disrupt_leader ? FLAG_FIRST : 0) | (m->pre_vote ? FLAG_PRE_VOTE : 0));
    return VOTE_SIZE;
}

static size_t encode_three(uint64_t a, uint64_t b, uint64_t c, uint8_t *out)
{
    fli_put_u64(out, a);
    fli_put_u64(out + 8, b);
    fli_put_u64(out + 16, c);
    return 24;
}

static void set_head(struct message_body *b, size_t len)
{
    b->entries = 0;
    b->bytes = 0;
    b->n = 1;
    b->parts[0] = (struct fli_slice){b->head, len};
}

int message_encode(const struct raft_message *m, struct message_body *ret)
{
    size_t len;
    switch (m->type) {
    case RAFT_APPEND_ENTRIES:
        ret->type = MESSAGE_APPEND;
        len = encode_append(&m->append_entries, ret->head);
        break;
    case RAFT_APPEND_ENTRIES_RESULT:
        ret->type = MESSAGE_APPEND_RESULT;
        len = encode_three(m->append_entries_result.term, m->append_entries_result.rejected,
                           m->append_entries_result.last_log_index, ret->head);
        break;
    case RAFT_REQUEST_VOTE:
        ret->type = MESSAGE_VOTE;
        len = encode_vote(&m->request_vote, ret->head);
        break;
    case RAFT_REQUEST_VOTE_RESULT:
        ret->type = MESSAGE_VOTE_RESULT;
        fli_put_u64(ret->head, m->request_vote_result.term);
        ret->head[8] = (uint8_t)((m->request_vote_result.vote_granted ? FLAG_FIRST : 0) |
                                 (m->request_vote_result.pre_vote ? FLAG_PRE_VOTE : 0));
        len = VOTE_RESULT_SIZE;
        break;
    case RAFT_TIMEOUT_NOW:
        ret->type = MESSAGE_TIMEOUT_NOW;
        len = encode_three(m->timeout_now.term, m->timeout_now.last_log_index,
                           m->timeout_now.last_log_term, ret->head);
        break;
    default:
        return FL_EINVAL;
    }
    set_head(ret, len);
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
    fli_put_u32(b->head + 32, b->entries);
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

static int decode_append(struct fli_slice body, struct raft_entry *entries,
                         struct raft_append_entries *m)
{
    if (body.len < APPEND_HEAD || fli_get_u32(body.data + 32) > MESSAGE_ENTRIES_MAX) {
        return FL_EPROTO;
    }
    *m = (struct raft_append_entries){
        .version = VERSION_APPEND,
        .term = fli_get_u64(body.data),
        .prev_log_index = fli_get_u64(body.data + 8),
        .prev_log_term = fli_get_u64(body.data + 16),
        .leader_commit = fli_get_u64(body.data + 24),
        .entries = entries,
        .n_entries = fli_get_u32(body.data + 32),
    };
    size_t at = APPEND_HEAD;
    uint64_t term = m->prev_log_term;
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

static int decode_vote(struct fli_slice body, struct raft_request_vote *m)
{
    if (body.len != VOTE_SIZE || (body.data[32] & ~FLAGS_ALL) != 0) {
        return FL_EPROTO;
    }
    *m = (struct raft_request_vote){
        .version = VERSION_VOTE,
        .term = fli_get_u64(body.data),
        .candidate_id = fli_get_u64(body.data + 8),
        .last_log_index = fli_get_u64(body.data + 16),
        .last_log_term = fli_get_u64(body.data + 24),
        .disrupt_leader = (body.data[32] & FLAG_FIRST) != 0,
        .pre_vote = (body.data[32] & FLAG_PRE_VOTE) != 0,
    };
    return 0;
}

static int decode_vote_result(struct fli_slice body, struct raft_request_vote_result *m)
{
    if (body.len != VOTE_RESULT_SIZE || (body.data[8] & ~FLAGS_ALL) != 0) {
        return FL_EPROTO;
    }
    *m = (struct raft_request_vote_result){
        .version = VERSION_VOTE_RESULT,
        .term = fli_get_u64(body.data),
        .vote_granted = (body.data[8] & FLAG_FIRST) != 0,
        .pre_vote = (body.data[8] & FLAG_PRE_VOTE) != 0,
    };
    return 0;
}

int message_decode(uint8_t type, struct fli_slice body, struct raft_entry *entries,
                   struct raft_message *ret)
{
    int rv = FL_EPROTO;
    struct raft_message m = {0};
    switch (type) {
    case MESSAGE_APPEND:
        m.type = RAFT_APPEND_ENTRIES;
        rv = decode_append(body, entries, &m.append_entries);
        break;
    case MESSAGE_APPEND_RESULT:
        m.type = RAFT_APPEND_ENTRIES_RESULT;
        if (body.len == APPEND_RESULT_SIZE) {
            m.append_entries_result = (struct raft_append_entries_result){
                .version = VERSION_APPEND_RESULT,
                .term = fli_get_u64(body.data),
                .rejected = fli_get_u64(body.data + 8),
                .last_log_index = fli_get_u64(body.data + 16),
            };
            rv = 0;
        }
        break;
    case MESSAGE_VOTE:
        m.type = RAFT_REQUEST_VOTE;
        rv = decode_vote(body, &m.request_vote);
        break;
    case MESSAGE_VOTE_RESULT:
        m.type = RAFT_REQUEST_VOTE_RESULT;
        rv = decode_vote_result(body, &m.request_vote_result);
        break;
    case MESSAGE_TIMEOUT_NOW:
        m.type = RAFT_TIMEOUT_NOW;
        if (body.len == TIMEOUT_SIZE) {
            m.timeout_now = (struct raft_timeout_now){

                .term = fli_get_u64(body.data),
                .last_log_index = fli_get_u64(body.data + 8),
                .last_log_term = fli_get_u64(body.data + 16),
            };
            rv = 0;
        }
        break;
    default:
        break;
    }
    if (rv == 0) {
        *ret = m;
    }
    return rv;
}

int message_decode_round(struct fli_slice body, struct message_round *ret)
{
    if (body.len != ROUND_SIZE) {
        return FL_EPROTO;
    }
    *ret = (struct message_round){fli_get_u64(body.data), fli_get_u64(body.data + 8)};
    return 0;
}
