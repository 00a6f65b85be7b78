/* test_message_codec.c: Raft's messages as bytes: each type, every cut, the extremes. */
#include "../../lib/unit.h"

#include "base/bytes.h"
#include "consensus/message_codec.h"
#include "peer/frame.h"
#include "peer/stream.h"

_Static_assert(1 + 2 * MESSAGE_ENTRIES_MAX <= STREAM_PARTS_MAX, "a message fits a frame's parts");
_Static_assert(MESSAGE_BODY_MAX <= FRAME_MAX, "a message fits a frame");

static struct message_body body;
static struct raft_entry entries[MESSAGE_ENTRIES_MAX];

/* The parts, one behind the other, in memory of just that size. */
static struct fli_slice joined(const struct message_body *b)
{
    size_t len = 0;
    for (unsigned i = 0; i < b->n; i++) {
        len += b->parts[i].len;
    }
    uint8_t *bytes = malloc(len + (len == 0));
    assert_non_null(bytes);
    size_t at = 0;
    for (unsigned i = 0; i < b->n; i++) {
        if (b->parts[i].len > 0) {
            memcpy(bytes + at, b->parts[i].data, b->parts[i].len);
        }
        at += b->parts[i].len;
    }
    return (struct fli_slice){bytes, len};
}

static void drop(struct fli_slice bytes)
{
    free((void *)(uintptr_t)bytes.data);
}

/* Encodes m, and decodes what it became. */
static struct raft_message round_trip(const struct raft_message *m)
{
    struct raft_message back;
    assert_int_equal(message_encode(m, &body), 0);
    struct fli_slice bytes = joined(&body);
    assert_int_equal(message_decode(body.type, bytes, entries, &back), 0);
    assert_int_equal(back.type, m->type);
    drop(bytes);
    return back;
}

TEST(append_results)
{
    struct raft_message m = {.type = RAFT_APPEND_ENTRIES_RESULT};
    m.append_entries_result.term = UINT64_MAX;
    m.append_entries_result.rejected = 2;
    m.append_entries_result.last_log_index = UINT64_MAX - 1;
    struct raft_message back = round_trip(&m);
    assert_true(back.append_entries_result.term == UINT64_MAX);
    assert_int_equal(back.append_entries_result.rejected, 2);
    assert_true(back.append_entries_result.last_log_index == UINT64_MAX - 1);
    assert_int_equal(back.append_entries_result.features, 0);
    assert_int_equal(back.append_entries_result.capacity, 0);
}

TEST(votes)
{
    for (unsigned i = 0; i < 4; i++) {
        struct raft_message m = {.type = RAFT_REQUEST_VOTE};
        m.request_vote = (struct raft_request_vote){.term = 1,
                                                    .candidate_id = UINT64_MAX,
                                                    .last_log_index = 3,
                                                    .last_log_term = UINT64_MAX,
                                                    .disrupt_leader = (i & 1) != 0,
                                                    .pre_vote = (i & 2) != 0};
        struct raft_message back = round_trip(&m);
        assert_int_equal(back.request_vote.term, 1);
        assert_true(back.request_vote.candidate_id == UINT64_MAX);
        assert_int_equal(back.request_vote.last_log_index, 3);
        assert_true(back.request_vote.last_log_term == UINT64_MAX);
        assert_int_equal(back.request_vote.disrupt_leader, (i & 1) != 0);
        assert_int_equal(back.request_vote.pre_vote, (i & 2) != 0);
        /* Below 2 the core takes a pre-vote's answer for a vote's. */
        assert_true(back.request_vote.version >= 2);

        struct raft_message r = {.type = RAFT_REQUEST_VOTE_RESULT};
        r.request_vote_result.term = 7;
        r.request_vote_result.vote_granted = (i & 1) != 0;
        r.request_vote_result.pre_vote = (i & 2) != 0;
        back = round_trip(&r);
        assert_int_equal(back.request_vote_result.term, 7);
        assert_int_equal(back.request_vote_result.vote_granted, (i & 1) != 0);
        assert_int_equal(back.request_vote_result.pre_vote, (i & 2) != 0);
        assert_true(back.request_vote_result.version >= 2);
    }
}

TEST(the_word_to_take_over)
{
    struct raft_message m = {.type = RAFT_TIMEOUT_NOW};
    m.timeout_now.term = 1;
    m.timeout_now.last_log_index = UINT64_MAX;
    m.timeout_now.last_log_term = 3;
    struct raft_message back = round_trip(&m);
    assert_int_equal(back.timeout_now.term, 1);
    assert_true(back.timeout_now.last_log_index == UINT64_MAX);
    assert_int_equal(back.timeout_now.last_log_term, 3);
}

TEST(snapshots_are_no_messages)
{
    struct raft_message m = {.type = RAFT_INSTALL_SNAPSHOT};
    struct raft_message back;
    uint8_t bytes[256] = {0};
    assert_int_equal(message_encode(&m, &body), FL_EINVAL);
    static const uint8_t TYPES[] = {0, 5, 9, 255};
    for (size_t i = 0; i < sizeof TYPES; i++) {
        for (size_t len = 0; len <= sizeof bytes; len++) {
            assert_int_equal(
                message_decode(TYPES[i], (struct fli_slice){bytes, len}, entries, &back),
                FL_EPROTO);
        }
    }
}

static struct raft_message append_of(uint64_t term, uint64_t prev, uint64_t prev_term)
{
    struct raft_message m = {.type = RAFT_APPEND_ENTRIES};
    m.append_entries.term = term;
    m.append_entries.prev_log_index = prev;
    m.append_entries.prev_log_term = prev_term;
    m.append_entries.leader_commit = UINT64_MAX;
    return m;
}

static const uint8_t DATA[64] = "the bytes of an entry of the log";

/* Entries of 8, 0 and 64 bytes, of terms 2, 2 and 5. */
static void add_three(void)
{
    assert_true(message_add_entry(&body, 2, RAFT_COMMAND, (struct fli_slice){DATA, 8}));
    assert_true(message_add_entry(&body, 2, RAFT_BARRIER, (struct fli_slice){DATA, 0}));
    assert_true(message_add_entry(&body, 5, RAFT_CHANGE, (struct fli_slice){DATA, sizeof DATA}));
}

TEST(appends)
{
    struct raft_message m = append_of(5, 9, 2);
    struct raft_message back = round_trip(&m);
    assert_int_equal(back.append_entries.n_entries, 0);
    assert_int_equal(back.append_entries.term, 5);
    assert_int_equal(back.append_entries.prev_log_index, 9);
    assert_int_equal(back.append_entries.prev_log_term, 2);
    assert_true(back.append_entries.leader_commit == UINT64_MAX);

    assert_int_equal(message_encode(&m, &body), 0);
    add_three();
    struct fli_slice bytes = joined(&body);
    assert_int_equal(message_decode(body.type, bytes, entries, &back), 0);
    assert_int_equal(back.append_entries.n_entries, 3);
    assert_ptr_equal(back.append_entries.entries, entries);
    static const uint64_t TERMS[] = {2, 2, 5};
    static const enum raft_entry_type TYPES[] = {RAFT_COMMAND, RAFT_BARRIER, RAFT_CHANGE};
    static const size_t LENS[] = {8, 0, sizeof DATA};
    for (unsigned i = 0; i < 3; i++) {
        assert_int_equal(entries[i].term, TERMS[i]);
        assert_int_equal(entries[i].type, TYPES[i]);
        assert_int_equal(entries[i].buf.len, LENS[i]);
        assert_memory_equal(entries[i].buf.base, DATA, LENS[i]);
        assert_null(entries[i].batch);
    }
    drop(bytes);
}

/* Every cut of every type, and a byte too many, from memory of just that size. */
static void expect_whole(uint8_t type, struct fli_slice whole)
{
    struct raft_message back;
    for (size_t cut = 0; cut <= whole.len + 1; cut++) {
        uint8_t *exact = calloc(1, cut + (cut == 0));
        assert_non_null(exact);
        memcpy(exact, whole.data, cut < whole.len ? cut : whole.len);
        assert_int_equal(message_decode(type, (struct fli_slice){exact, cut}, entries, &back),
                         cut == whole.len ? 0 : FL_EPROTO);
        free(exact);
    }
}

TEST(no_part_is_taken_for_the_whole)
{
    static const enum raft_message_type ALL[] = {RAFT_APPEND_ENTRIES_RESULT, RAFT_REQUEST_VOTE,
                                                 RAFT_REQUEST_VOTE_RESULT, RAFT_TIMEOUT_NOW};
    for (size_t i = 0; i < sizeof ALL / sizeof ALL[0]; i++) {
        struct raft_message m = {.type = ALL[i]};
        assert_int_equal(message_encode(&m, &body), 0);
        struct fli_slice bytes = joined(&body);
        expect_whole(body.type, bytes);
        drop(bytes);
    }
    struct raft_message m = append_of(5, 9, 2);
    assert_int_equal(message_encode(&m, &body), 0);
    struct fli_slice bytes = joined(&body);
    expect_whole(body.type, bytes);
    drop(bytes);
    add_three();
    bytes = joined(&body);
    expect_whole(body.type, bytes);
    drop(bytes);
}

/* An APPEND with three entries, in which one number is set; w: how many bytes it has. */
static int decode_with(size_t at, unsigned w, uint64_t value)
{
    struct raft_message m = append_of(5, 9, 2);
    struct raft_message back;
    assert_int_equal(message_encode(&m, &body), 0);
    add_three();
    struct fli_slice bytes = joined(&body);
    uint8_t *p = (uint8_t *)(uintptr_t)bytes.data + at;
    if (w == 8) {
        fli_put_u64(p, value);
    } else if (w == 4) {
        fli_put_u32(p, (uint32_t)value);
    } else {
        *p = (uint8_t)value;
    }
    int rv = message_decode(body.type, bytes, entries, &back);
    drop(bytes);
    return rv;
}

TEST(fields_have_ranges)
{
    enum { FIRST = 36, SECOND = FIRST + 16 + 8, THIRD = SECOND + 16 };
    static const struct {
        size_t at;
        unsigned w;
        uint64_t value;
        int rv;
    } ROWS[] = {
        {0, 8, 5, 0},
        {0, 8, 4, FL_EPROTO}, /* the third entry has a newer term than its leader */
        {0, 8, UINT64_MAX, 0},
        {8, 8, 0, FL_EPROTO}, /* nothing before, and a term of it */
        {8, 8, UINT64_MAX, FL_EPROTO},
        {8, 8, UINT64_MAX - 3, FL_EPROTO}, /* no index is left for what follows the last */
        {8, 8, UINT64_MAX - 4, 0},
        {16, 8, 0, FL_EPROTO},
        {16, 8, 3, FL_EPROTO}, /* terms fall */
        {16, 8, 1, 0},
        {24, 8, 0, 0},
        {32, 4, 0, FL_EPROTO}, /* bytes are left */
        {32, 4, 2, FL_EPROTO},
        {32, 4, 4, FL_EPROTO}, /* and too few */
        {32, 4, MESSAGE_ENTRIES_MAX + 1, FL_EPROTO},
        {32, 4, UINT32_MAX, FL_EPROTO},
        {FIRST, 8, 0, FL_EPROTO},
        {FIRST, 8, 3, FL_EPROTO},
        {FIRST + 8, 1, 0, FL_EPROTO},
        {FIRST + 8, 1, 4, FL_EPROTO},
        {FIRST + 8, 1, RAFT_CHANGE, 0},
        {FIRST + 9, 1, 1, FL_EPROTO}, /* what must be zero */
        {FIRST + 11, 1, 1, FL_EPROTO},
        {FIRST + 12, 4, 9, FL_EPROTO},
        {FIRST + 12, 4, 7, FL_EPROTO},
        {FIRST + 12, 4, UINT32_MAX, FL_EPROTO},
        {SECOND, 8, 1, FL_EPROTO},
        {THIRD, 8, 6, FL_EPROTO},
        {THIRD + 12, 4, sizeof DATA + 1, FL_EPROTO},
        {THIRD + 12, 4, UINT32_MAX - 15, FL_EPROTO},
    };
    for (size_t i = 0; i < sizeof ROWS / sizeof ROWS[0]; i++) {
        int rv = decode_with(ROWS[i].at, ROWS[i].w, ROWS[i].value);
        if (rv != ROWS[i].rv) {
            fail_msg("row %zu: %d", i, rv);
        }
    }
}

TEST(unknown_flags_are_refused)
{
    static const struct {
        enum raft_message_type type;
        size_t at;
    } ROWS[] = {{RAFT_REQUEST_VOTE, 32},
                {RAFT_REQUEST_VOTE, 33},
                {RAFT_REQUEST_VOTE_RESULT, 8},
                {RAFT_REQUEST_VOTE_RESULT, 9}};
    for (unsigned i = 0; i < 4; i++) {
        struct raft_message m = {.type = ROWS[i].type};
        struct raft_message back;
        assert_int_equal(message_encode(&m, &body), 0);
        for (unsigned flags = 0; flags < 256; flags++) {
            body.head[ROWS[i].at] = (uint8_t)flags;
            assert_int_equal(message_decode(body.type, body.parts[0], entries, &back),
                             flags < 2 ? 0 : FL_EPROTO);
        }
    }
}

/* As many entries as there may be, and one more. */
TEST(entries_are_counted)
{
    struct raft_message m = append_of(5, 9, 2);
    struct raft_message back;
    assert_int_equal(message_encode(&m, &body), 0);
    for (unsigned i = 0; i < MESSAGE_ENTRIES_MAX; i++) {
        assert_true(message_add_entry(&body, 5, RAFT_COMMAND, (struct fli_slice){DATA, i}));
    }
    assert_false(message_add_entry(&body, 5, RAFT_COMMAND, (struct fli_slice){DATA, 0}));
    struct fli_slice bytes = joined(&body);
    assert_int_equal(message_decode(body.type, bytes, entries, &back), 0);
    assert_int_equal(back.append_entries.n_entries, MESSAGE_ENTRIES_MAX);
    drop(bytes);
    /* Its own frame once more: nothing is left of the former message. */
    back = round_trip(&m);
    assert_int_equal(back.append_entries.n_entries, 0);
}

/* As many bytes as there may be; and one entry with more, which goes alone. */
TEST(bytes_are_counted)
{
    static uint8_t large[MESSAGE_ENTRY_MAX];
    struct raft_message m = append_of(5, 9, 2);
    struct raft_message back;
    assert_int_equal(message_encode(&m, &body), 0);
    struct fli_slice half = {large, MESSAGE_BYTES_MAX / 2};
    assert_true(message_add_entry(&body, 5, RAFT_COMMAND, half));
    assert_true(message_add_entry(&body, 5, RAFT_COMMAND, half));
    assert_false(message_add_entry(&body, 5, RAFT_COMMAND, (struct fli_slice){DATA, 1}));
    assert_true(message_add_entry(&body, 5, RAFT_COMMAND, (struct fli_slice){DATA, 0}));

    assert_int_equal(message_encode(&m, &body), 0);
    assert_true(message_add_entry(&body, 5, RAFT_COMMAND, (struct fli_slice){large, sizeof large}));
    assert_false(message_add_entry(&body, 5, RAFT_COMMAND, (struct fli_slice){DATA, 1}));
    struct fli_slice bytes = joined(&body);
    assert_true(bytes.len <= MESSAGE_BODY_MAX);
    assert_int_equal(message_decode(body.type, bytes, entries, &back), 0);
    assert_int_equal(entries[0].buf.len, sizeof large);
    drop(bytes);
    /* One byte more is no entry. */
    uint8_t *beyond = calloc(1, 36 + 16 + sizeof large + 1);
    assert_non_null(beyond);
    memcpy(beyond, body.head, 36);
    memcpy(beyond + 36, body.entry_heads[0], 16);
    fli_put_u32(beyond + 36 + 12, (uint32_t)sizeof large + 1);
    bytes = (struct fli_slice){beyond, 36 + 16 + sizeof large + 1};
    assert_int_equal(message_decode(body.type, bytes, entries, &back), FL_EPROTO);
    free(beyond);
}
