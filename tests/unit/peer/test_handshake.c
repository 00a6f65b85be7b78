/* The first bytes between two nodes: what they carry, what is refused, what a refusal tells. */
#include "../../lib/unit.h"

#include "base/bytes.h"
#include "peer/handshake.h"

static const struct handshake_formats FORMATS = {.low = 3, .high = 5};

static struct handshake full(void)
{
    struct handshake h;
    memset(&h, 0, sizeof h);
    h.kind = STREAM_SNAPSHOT;
    h.verdict = HANDSHAKE_WELCOME;
    h.target = UINT64_MAX;
    h.from.node_id = UINT64_MAX - 1;
    h.from.incarnation = UINT64_MAX - 2;
    h.from.cluster_id = UINT64_MAX - 3;
    h.from.member_index = UINT64_MAX - 4;
    h.from.version = FORMATS.high;
    h.from.members_crc = UINT32_MAX - 5;
    h.from.start = (struct start){UINT64_MAX - 6, UINT64_MAX - 7};
    h.from.term = UINT64_MAX - 8;
    h.from.guesses = true;
    h.from.last_index = UINT64_MAX - 9;
    memset(h.from.client_address, '~', sizeof h.from.client_address - 1);
    memset(h.reason, ' ', sizeof h.reason - 1);
    return h;
}

static struct handshake refusal(void)
{
    struct handshake h;
    memset(&h, 0, sizeof h);
    h.kind = STREAM_RAFT;
    h.verdict = HANDSHAKE_OTHER_INCARNATION;
    h.target = 4;
    snprintf(h.reason, sizeof h.reason, "no");
    return h;
}

/* Puts the checksum right. */
static void seal(uint8_t bytes[HANDSHAKE_SIZE])
{
    fli_put_u32(bytes + 8, fli_crc32c(0, bytes + 12, HANDSHAKE_SIZE - 12));
}

TEST(test_there_and_back)
{
    struct handshake all[2] = {full(), refusal()};
    for (unsigned i = 0; i < 2; i++) {
        uint8_t bytes[HANDSHAKE_SIZE];
        uint8_t again[HANDSHAKE_SIZE];
        struct handshake h;
        memset(&h, 0xff, sizeof h);
        handshake_encode(&all[i], &FORMATS, bytes);
        assert_int_equal(handshake_decode(bytes, &FORMATS, &h), 0);
        assert_int_equal(h.kind, all[i].kind);
        assert_int_equal(h.verdict, all[i].verdict);
        assert_int_equal(h.target, all[i].target);
        assert_memory_equal(&h.from, &all[i].from, sizeof h.from);
        assert_string_equal(h.reason, all[i].reason);
        handshake_encode(&h, &FORMATS, again);
        assert_memory_equal(bytes, again, sizeof bytes);
    }
}

TEST(test_each_bit)
{
    struct handshake h = full();
    uint8_t bytes[HANDSHAKE_SIZE];
    handshake_encode(&h, &FORMATS, bytes);
    for (unsigned bit = 0; bit < 8 * HANDSHAKE_SIZE; bit++) {
        bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
        assert_int_equal(handshake_decode(bytes, &FORMATS, &h), FL_EPROTO);
        bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
    assert_int_equal(handshake_decode(bytes, &FORMATS, &h), 0);
}

struct edit {
    const char *what;
    unsigned at, size;
    uint64_t value;
    int rc;
};

static const struct edit EDITS[] = {
    {"magic", 0, 1, 'F', FL_EPROTO},
    {"protocol", 12, 2, HANDSHAKE_PROTOCOL + 1, FL_EVERSION},
    {"an older layout", 12, 2, 0x0321, FL_EVERSION},
    {"lowest version", 14, 2, 6, FL_EVERSION},
    {"highest version", 16, 2, 2, FL_EVERSION},
    {"kind 0", 18, 1, 0, FL_EPROTO},
    {"kind 1", 18, 1, 1, 0},
    {"kind beyond", 18, 1, STREAM_KINDS + 1, FL_EPROTO},
    {"no verdict", 19, 1, 0, 0},
    {"a refusal that names its sender", 19, 1, HANDSHAKE_STRANGER, FL_EPROTO},
    {"verdict beyond", 19, 1, HANDSHAKE_WENT_BACK + 1, FL_EPROTO},
    {"nobody", 32, 8, 0, FL_EPROTO},
    {"no incarnation", 40, 8, 0, FL_EPROTO},
    {"no start", 776, 8, 0, FL_EPROTO},
    {"address one longer", 64, 2, MEMBER_ADDRESS_MAX, FL_EPROTO},
    {"address one shorter", 64, 2, MEMBER_ADDRESS_MAX - 2, FL_EPROTO}, /* no zero behind it */
    {"address far longer", 64, 2, 65535, FL_EPROTO},
    {"reason one longer", 66, 2, HANDSHAKE_REASON_MAX, FL_EPROTO},
    {"reason far longer", 66, 2, 65535, FL_EPROTO},
    {"no guess", 70, 1, 0, 0},
    {"guess beyond", 70, 1, 2, FL_EPROTO},
    {"zero", 71, 1, 1, FL_EPROTO},
    {"a control character in the address", 80, 1, 0x1f, FL_EPROTO},
    {"a zero in the address", 80, 1, 0, FL_EPROTO},
    {"a byte beyond ASCII in the reason", 340, 1, 0x80, FL_EPROTO},
    {"DEL in the reason", 340, 1, 0x7f, FL_EPROTO},
    {"behind the peer address", 775, 1, 'x', FL_EPROTO},
};

TEST(test_fields)
{
    for (size_t i = 0; i < sizeof EDITS / sizeof EDITS[0]; i++) {
        const struct edit *e = &EDITS[i];
        struct handshake h = full();
        uint8_t bytes[HANDSHAKE_SIZE];
        handshake_encode(&h, &FORMATS, bytes);
        for (unsigned b = 0; b < e->size; b++) {
            bytes[e->at + b] = (uint8_t)(e->value >> 8 * b);
        }
        seal(bytes);
        memset(&h, 0x77, sizeof h);
        int rc = handshake_decode(bytes, &FORMATS, &h);
        if (rc != e->rc) {
            fail_msg("%s: %d instead of %d", e->what, rc, e->rc);
        }
        if (rc != 0) {
            assert_int_equal(h.verdict, 0x77);
        }
    }
}

/* A refusal that has anything of its sender in it is no refusal. */
TEST(test_a_refusal_names_nobody)
{
    static const unsigned OF_THE_SENDER[] = {20, 24, 32, 40, 56, 776, 784, 792, 800};
    for (size_t i = 0; i < sizeof OF_THE_SENDER / sizeof OF_THE_SENDER[0]; i++) {
        struct handshake h = refusal();
        uint8_t bytes[HANDSHAKE_SIZE];
        h.verdict = HANDSHAKE_STRANGER; /* who is a member is told with the index */
        handshake_encode(&h, &FORMATS, bytes);
        bytes[OF_THE_SENDER[i]] = 1;
        seal(bytes);
        assert_int_equal(handshake_decode(bytes, &FORMATS, &h), FL_EPROTO);
    }
    struct handshake h = refusal();
    uint8_t bytes[HANDSHAKE_SIZE];
    handshake_encode(&h, &FORMATS, bytes);
    bytes[64] = 1;
    bytes[72] = 'a';
    seal(bytes);
    assert_int_equal(handshake_decode(bytes, &FORMATS, &h), FL_EPROTO);
}

TEST(test_versions_are_explained)
{
    struct handshake h = full();
    uint8_t bytes[HANDSHAKE_SIZE];
    char text[HANDSHAKE_REASON_MAX];
    char room[1024];
    handshake_encode(&h, &FORMATS, bytes);
    fli_put_u16(bytes + 14, 65535);
    fli_put_u16(bytes + 16, 65534);
    handshake_explain_version(bytes, &FORMATS, text, sizeof text);
    handshake_explain_version(bytes, &FORMATS, room, sizeof room);
    assert_string_equal(text, room);
    assert_non_null(strstr(text, "versions 65535 to 65534 of log and snapshots"));
    assert_non_null(strstr(text, "this node 3 to 5"));
    fli_put_u16(bytes + 12, 65535);
    handshake_explain_version(bytes, &FORMATS, text, sizeof text);
    assert_non_null(strstr(text, "protocol 65535"));
}

/* A node tells these two without a reason, to one that may be a stranger. */
TEST(test_verdicts_without_a_reason)
{
    assert_non_null(strstr(handshake_verdict_text(HANDSHAKE_OTHER_CLUSTER), "another cluster"));
    assert_non_null(strstr(handshake_verdict_text(HANDSHAKE_OTHER_MEMBERS), "other members"));
    assert_string_equal(handshake_verdict_text(HANDSHAKE_WELCOME), "it tells no reason");
}
