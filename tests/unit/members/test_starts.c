/* Starts of nodes: what a damaged file still says, which start is over, and whether a directory and
 * its witness fit wherever the process was killed. */
#include "../../lib/unit.h"

#include "base/bytes.h"
#include "members/record.h"
#include "../../lib/scratch.h"

static struct record full(void)
{
    struct record r = {.sequence = 7,
                       .identity = {.id = 2, .incarnation = UINT64_MAX - 1},
                       .starts = {.own = {9, 10}, .next = {11, 12}, .term = 13, .index = 14}};
    assert_true(members_put(&r.identity.members, 2, "a:1"));
    for (uint64_t i = 1; i <= KNOWN_MEMBERS_MAX; i++) {
        assert_true(starts_record(&r.starts, i, 100 + i, (struct start){i, 200 + i}));
        assert_true(starts_record_progress(&r.starts, 100 + i, 300 + i, 400 + i));
    }
    return r;
}

TEST(there_and_back)
{
    uint8_t slot[RECORD_SLOT_SIZE];
    struct record r = full();
    struct record again;
    record_encode(&r, slot);
    assert_int_equal(record_decode(slot, &again), 0);
    assert_memory_equal(&r, &again, sizeof r);
    for (unsigned bit = 0; bit < 8 * RECORD_SLOT_SIZE; bit++) {
        slot[bit / 8] ^= (uint8_t)(1u << bit % 8);
        bool in_version = bit / 64 == 1;
        assert_int_equal(record_decode(slot, &again), in_version ? FL_EVERSION : FL_ECORRUPT);
        slot[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
}

/* A write is torn at any byte of either slot: what is left is the new content, or the one that was
 * told last. */
TEST(torn_at_each_byte)
{
    static uint8_t file[RECORD_FILE_SIZE];
    uint8_t before[RECORD_SLOT_SIZE];
    uint8_t after[RECORD_SLOT_SIZE];
    struct record r = full();
    struct record found;
    record_encode(&r, before);
    r.sequence++;
    r.starts.own = (struct start){10, 77};
    record_encode(&r, after);
    for (unsigned slot = 0; slot < 2; slot++) {
        for (size_t n = 0; n <= RECORD_SLOT_SIZE; n++) {
            memcpy(file, slot == 0 ? before : after, RECORD_SLOT_SIZE);
            memcpy(file + RECORD_SLOT_STEP, before, RECORD_SLOT_SIZE);
            memcpy(file + (size_t)slot * RECORD_SLOT_STEP, after, n);
            assert_int_equal(record_choose(file, sizeof file, &found), 0);
            bool is_new = slot == 1 || n == RECORD_SLOT_SIZE;
            bool same = memcmp(before, after, n) == 0; /* nothing is different yet */
            if (!same || n == RECORD_SLOT_SIZE) {
                assert_int_equal(found.starts.own.number, is_new ? 10 : 9);
            }
        }
    }
    /* Both written, and one of them is lost: it is still the new one. */
    for (unsigned slot = 0; slot < 2; slot++) {
        memcpy(file, after, RECORD_SLOT_SIZE);
        memcpy(file + RECORD_SLOT_STEP, after, RECORD_SLOT_SIZE);
        file[(size_t)slot * RECORD_SLOT_STEP + 30] ^= 1;
        assert_int_equal(record_choose(file, sizeof file, &found), 0);
        assert_int_equal(found.starts.own.number, 10);
    }
    memset(file, 0, sizeof file);
    assert_int_equal(record_choose(file, sizeof file, &found), FL_ECORRUPT);
    assert_int_equal(record_choose(after, RECORD_SLOT_SIZE - 1, &found), FL_ECORRUPT);
    assert_int_equal(record_choose(after, RECORD_SLOT_SIZE, &found), 0);
}

/* One slot of a later version is damaged: the other one still tells who has written it. */
TEST(of_a_later_version)
{
    static uint8_t file[RECORD_FILE_SIZE];
    struct record r = full();
    struct record found;
    for (unsigned slot = 0; slot < 2; slot++) {
        memset(file, 0, sizeof file);
        record_encode(&r, file + (size_t)slot * RECORD_SLOT_STEP);
        file[(size_t)slot * RECORD_SLOT_STEP + 8]++;
        assert_int_equal(record_choose(file, sizeof file, &found), FL_EVERSION);
    }
}

TEST(on_disk)
{
    char *folder = scratch_make();
    char *path = scratch_path(folder, "identity");
    struct record r = full();
    struct record found;
    assert_int_equal(record_read(path, &found), FL_ENOTFOUND);
    for (unsigned i = 0; i < 3; i++) {
        r.starts.own.number++;
        assert_int_equal(record_write(-1, path, &r), 0);
        assert_int_equal(record_read(path, &found), 0);
        assert_memory_equal(&r, &found, sizeof r);
    }
    scratch_write(path, "something else", 14);
    assert_int_equal(record_read(path, &found), FL_ECORRUPT);
    free(path);
    scratch_remove(folder);
}

TEST(what_counts)
{
    struct starts s = {0};
    assert_true(starts_record(&s, 2, 20, (struct start){5, 50}));
    assert_false(starts_record(&s, 2, 20, (struct start){4, 40}));
    assert_false(starts_record(&s, 2, 20, (struct start){5, 51})); /* the first one counts */
    const struct starts_known *k = starts_find(&s, 20);
    assert_true(start_is(k->start, (struct start){5, 50}));
    assert_true(start_is_past((struct start){4, 40}, k->start));
    assert_true(start_is_past((struct start){5, 51}, k->start));
    assert_false(start_is_past((struct start){5, 50}, k->start));
    assert_false(start_is_past((struct start){6, 1}, k->start));
    assert_true(starts_record_progress(&s, 20, 3, 30));
    assert_true(starts_record_progress(&s, 20, 4, 29)); /* each by itself, and never back */
    assert_true(k->term == 4 && k->index == 30);
    assert_false(starts_record_progress(&s, 20, 4, 30));
    assert_false(starts_record_progress(&s, 21, 9, 90));
    assert_true(starts_record(&s, 2, 20, (struct start){6, 60}));
    assert_true(k->term == 4 && k->index == 30); /* a start loses nothing */
    assert_true(starts_record(&s, 2, 21, (struct start){1, 10}));
    const struct starts_known *other = starts_find(&s, 21); /* another one of the node */
    assert_true(other->term == 0 && other->index == 0);
    assert_true(k->term == 4 && k->index == 30);
    assert_false(starts_record(&s, 2, 22, (struct start){0, 10})); /* no start */
    assert_null(starts_find(&s, 22));
}

/* What is known of a caller is start 5 with term 3 and entry 30. */
TEST(older_copies)
{
    static const struct {
        struct start start;
        uint64_t term, index;
        const char *call; /* first, asks for messages of Raft, waited */
        struct starts_follower follower;
        bool went_back;
    } rows[] = {
        {{5, 50}, 3, 30, "fa", {0, 0}, false},
        {{6, 60}, 3, 30, "fa", {0, 0}, false},
        {{4, 40}, 9, 90, "", {0, 0}, true},  /* a start that is over, whatever it has */
        {{5, 51}, 9, 90, "w", {0, 0}, true}, /* another one with its number */
        {{6, 60}, 3, 29, "f", {0, 0}, true}, /* entries are gone */
        {{6, 60}, 2, 31, "a", {0, 0}, true}, /* a term is */
        {{6, 60}, 2, 29, "", {0, 0}, false}, /* it may be older than what it told since */
        {{6, 60}, 2, 29, "fw", {0, 0}, false},
        {{5, 50}, 4, 39, "a", {4, 40}, true}, /* its leader knows more than it told */
        {{5, 50}, 4, 40, "a", {4, 40}, false},
        {{5, 50}, 3, 40, "a", {4, 40}, true},
        {{5, 50}, 5, 30, "a", {4, 40}, false}, /* another leader may have truncated its log */
        {{5, 50}, 3, 30, "a", {4, 0}, false},  /* this leader knows nothing of it */
    };
    struct starts s = {0};
    assert_true(starts_record(&s, 2, 20, (struct start){5, 50}));
    assert_true(starts_record_progress(&s, 20, 3, 30));
    for (unsigned i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct peer_identity peer = {.node_id = 2,
                                     .incarnation = 20,
                                     .start = rows[i].start,
                                     .term = rows[i].term,
                                     .last_index = rows[i].index,
                                     .asks_raft = strchr(rows[i].call, 'a') != NULL,
                                     .waited = strchr(rows[i].call, 'w') != NULL};
        bool first = strchr(rows[i].call, 'f') != NULL;
        if (starts_went_back(&s, &peer, first, rows[i].follower) != rows[i].went_back) {
            fail_msg("row %u", i);
        }
        peer.incarnation++; /* nothing is known of another directory */
        bool by_leader = rows[i].follower.match > 0 && rows[i].went_back;
        assert_int_equal(starts_went_back(&s, &peer, first, rows[i].follower), by_leader);
    }
}

/* A start gets a number of its own when somebody else has recorded the one before. */
TEST(numbers)
{
    struct starts s = {0};
    assert_true(start_is(starts_next(&s, 10), (struct start){1, 10}));
    s.own = (struct start){1, 10};
    assert_true(start_is(starts_next(&s, 11), s.own));
    s.next.number = STARTS_RECORDED;
    assert_true(start_is(starts_next(&s, 12), (struct start){2, 12}));
}

TEST(no_more_than_there_is_room_for)
{
    struct starts s = full().starts;
    struct configuration members = {0};
    assert_false(starts_record(&s, 1000, 1, (struct start){1, 1}));
    assert_int_equal(configuration_add(&members, 3, 103, "a:1", CONFIGURATION_VOTER), 0);
    starts_make_room(&s, &members);
    assert_int_equal(s.n, 1);
    assert_non_null(starts_find(&s, 103));
    assert_true(starts_record(&s, 1000, 1, (struct start){1, 1}));
}

TEST(telling)
{
    uint8_t bytes[STARTS_MESSAGE_MAX];
    struct starts s = full().starts;
    struct starts_message told;
    size_t len = starts_message_encode(&s, 55, 56, 66, 77, bytes);
    assert_int_equal(len, STARTS_MESSAGE_MAX);
    assert_int_equal(starts_message_decode((struct fli_slice){bytes, len}, &told), 0);
    assert_true(told.term == 66 && told.index == 77 && told.n == KNOWN_MEMBERS_MAX + 1);
    assert_true(told.list[0].id == 55 && told.list[0].incarnation == 56 &&
                start_is(told.list[0].start, s.own));
    assert_int_equal(told.list[KNOWN_MEMBERS_MAX].incarnation, 100 + KNOWN_MEMBERS_MAX);
    for (size_t n = 0; n < len; n++) {
        assert_int_equal(starts_message_decode((struct fli_slice){bytes, n}, &told), FL_EPROTO);
    }
    memset(bytes + 24, 0, 8); /* nobody */
    assert_int_equal(starts_message_decode((struct fli_slice){bytes, len}, &told), FL_EPROTO);
    fli_put_u64(bytes + 16, UINT64_MAX / 32);
    assert_int_equal(starts_message_decode((struct fli_slice){bytes, len}, &told), FL_EPROTO);
}

/* ---- the witness ---- */

struct pair {
    struct record directory;
    uint64_t term, last_index;
    bool is_new;
    char *folder, *path;
    char errmsg[1024];
};

/* One start, killed after so many of its three writes. Whether it was let in. */
static bool begin(struct pair *p, unsigned writes, bool reset)
{
    struct record w;
    struct record before;
    const struct witness witness = {.path = p->path,
                                    .directory = "dir",
                                    .record = &p->directory,
                                    .is_new = p->is_new,
                                    .term = p->term,
                                    .last_index = p->last_index,
                                    .now = &w,
                                    .errmsg = p->errmsg,
                                    .errmsg_size = sizeof p->errmsg};
    struct start next = {p->directory.starts.own.number + 1, p->directory.sequence++ + 1000};
    bool there = record_read(p->path, &before) == 0;
    if (witness_begin(&witness, reset, next) != 0) {
        return false;
    }
    if (writes == 0) { /* it never came to that */
        assert_true(there);
        assert_int_equal(record_write(-1, p->path, &before), 0);
        return true;
    }
    if (writes > 1) {
        p->directory.starts.own = next;
        p->is_new = false;
    }
    if (writes > 2) {
        assert_int_equal(witness_settle(&witness), 0);
    }
    return true;
}

static int set_up(void **state)
{
    struct pair *p = test_calloc(1, sizeof *p);
    p->folder = scratch_make();
    p->path = scratch_path(p->folder, "witness");
    p->directory = full();
    p->directory.starts = (struct starts){0};
    p->is_new = true;
    *state = p;
    return 0;
}

static int tear_down(void **state)
{
    struct pair *p = *state;
    scratch_remove(p->folder);
    free(p->path);
    test_free(p);
    return 0;
}

/* Every sequence of three starts, each killed after none, one, two or all three of its writes. */
TEST_WITH(killed_anywhere, set_up, tear_down)
{
    struct pair *p = *state;
    assert_true(begin(p, 3, false));
    for (unsigned way = 0; way < 4 * 4 * 4; way++) {
        for (unsigned rest = way, i = 0; i < 3; i++, rest /= 4) {
            if (!begin(p, rest % 4, false)) {
                fail_msg("way %u, start %u: %s", way, i, p->errmsg);
            }
        }
    }
}

TEST_WITH(an_older_directory, set_up, tear_down)
{
    struct pair *p = *state;
    assert_true(begin(p, 3, false));
    struct record old = p->directory;
    assert_true(begin(p, 3, false));
    struct record newest = p->directory;
    for (unsigned i = 0; i < 2; i++) { /* once, and when it was tried before */
        p->directory = old;
        assert_false(begin(p, 3, false));
        assert_non_null(strstr(p->errmsg, "is an older copy"));
    }
    p->directory = newest;
    assert_true(begin(p, 3, false));
    /* The last start, but not all of its log. */
    struct record w;
    assert_int_equal(record_read(p->path, &w), 0);
    w.starts.term = 3;
    w.starts.index = 30;
    assert_int_equal(record_write(-1, p->path, &w), 0);
    p->term = 3;
    p->last_index = 29;
    assert_false(begin(p, 3, false));
    p->term = 2;
    p->last_index = 31;
    assert_false(begin(p, 3, false));
    p->term = 3;
    p->last_index = 30;
    assert_true(begin(p, 3, false));
}

TEST_WITH(an_older_witness, set_up, tear_down)
{
    struct pair *p = *state;
    struct record old;
    assert_true(begin(p, 3, false));
    assert_int_equal(record_read(p->path, &old), 0);
    assert_true(begin(p, 3, false));
    assert_true(begin(p, 3, false));
    assert_int_equal(record_write(-1, p->path, &old), 0);
    assert_false(begin(p, 3, false));
    assert_non_null(strstr(p->errmsg, "--witness-reset"));
    assert_true(begin(p, 3, true));
    assert_true(begin(p, 3, false));
    scratch_write(p->path, "x", 1);
    assert_false(begin(p, 3, false));
    assert_true(begin(p, 3, true));
    p->directory.identity.incarnation++;
    assert_false(begin(p, 3, false));
    assert_non_null(strstr(p->errmsg, "another data directory"));
}
