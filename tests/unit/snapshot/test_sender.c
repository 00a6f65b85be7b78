/* test_sender.c: a snapshot from a sender that begins again, falls silent, or breaks the
 * rules. */
#include "transfer.h"

#include "base/bytes.h"

static bool takes(const struct held_stream *m, size_t at)
{
    bool taken = m->frames > 0 && m->type == SNAPSHOT_TAKEN && m->body.len == 8;
    return at <= SNAPSHOT_WINDOW / 2 ||
           (taken && fli_get_u64(m->body.data) + SNAPSHOT_WINDOW / 2 >= at);
}

static bool is_done(const struct held_stream *m)
{
    return m->frames > 0 && m->type == SNAPSHOT_DONE;
}

/* Sends all of a file, as far as it is wanted. */
static void say_file(struct fixture *f, const uint8_t *data)
{
    const struct held_stream *m = &f->r->mine;
    size_t at = 0;
    while (at < f->file.len && !is_done(m)) {
        size_t n = f->file.len - at < 60000 ? f->file.len - at : 60000;
        say_data(f, at, data + at, n);
        at += n;
        UNTIL(f, takes(m, at) || is_done(m));
    }
}

/* It is noticed when all of it is decoded. */
TEST_WITH(a_piece_that_is_damaged, transfer_set_up, transfer_tear_down)
{
    struct fixture *f = *state;
    static const size_t AT[] = {3, 50, 5000, 300000};
    for (size_t i = 0; i < sizeof AT / sizeof AT[0]; i++) {
        uint8_t *copy = malloc(f->file.len);
        assert_non_null(copy);
        memcpy(copy, f->file.data, f->file.len);
        copy[AT[i]] ^= 4;
        call(f);
        say_begin(f, 70, 3, f->file.len);
        say_file(f, copy);
        expect_refused(f, FL_ECORRUPT);
        free(copy);
    }
    assert_int_equal(f->readies, 0);
}

TEST_WITH(another_one_than_was_announced, transfer_set_up, transfer_tear_down)
{
    struct fixture *f = *state;
    static const struct {
        uint64_t index, term;
    } ROWS[] = {{71, 3}, {70, 4}};
    for (size_t i = 0; i < 2; i++) {
        call(f);
        say_begin(f, ROWS[i].index, ROWS[i].term, f->file.len);
        say_file(f, f->file.data);
        expect_refused(f, FL_ECORRUPT);
    }
}

TEST_WITH(one_that_ends_too_soon, transfer_set_up, transfer_tear_down)
{
    struct fixture *f = *state;
    call(f);
    say_begin(f, 70, 3, 60000); /* its size is said wrong */
    say_data(f, 0, f->file.data, 60000);
    expect_refused(f, FL_ECORRUPT);
}

TEST_WITH(pieces_out_of_order, transfer_set_up, transfer_tear_down)
{
    struct fixture *f = *state;
    const uint8_t *data = f->file.data;
    call(f);
    say_begin(f, 70, 3, f->file.len);
    say_data(f, 1, data, 1000);
    expect_refused(f, FL_EPROTO);
    call(f);
    say_begin(f, 70, 3, f->file.len);
    say_data(f, 0, data, 1000);
    say_data(f, 0, data, 1000);
    expect_refused(f, FL_EPROTO);
    call(f);
    say_begin(f, 70, 3, f->file.len);
    say_data(f, 0, data, 0); /* nothing */
    expect_refused(f, FL_EPROTO);
    call(f);
    say_begin(f, 70, 3, 1000);
    say_data(f, 0, data, 1001); /* more than was announced */
    expect_refused(f, FL_EPROTO);
}

/* Pieces of any size wait side by side, so the window bounds their memory. */
TEST_WITH(pieces_of_one_byte, transfer_set_up, transfer_tear_down)
{
    struct fixture *f = *state;
    call(f);
    say_begin(f, 70, 3, f->file.len);
    for (size_t at = 0; at < 4000; at++) {
        uint8_t head[8];
        struct fli_slice parts[2] = {{head, sizeof head}, {f->file.data + at, 1}};
        fli_put_u64(head, at);
        assert_int_equal(stream_send(f->r->mine.s, SNAPSHOT_DATA, parts, 2), 0);
    }
    stream_flush(f->r->mine.s);
    say_data(f, 4000, f->file.data + 4000, 60000);
    UNTIL(f, f->r->mine.frames > 0 && f->r->mine.type == SNAPSHOT_TAKEN &&
                 fli_get_u64(f->r->mine.body.data) == 64000);
    assert_int_equal(f->install->failures, 0);
}

TEST_WITH(frames_that_mean_nothing, transfer_set_up, transfer_tear_down)
{
    struct fixture *f = *state;
    uint8_t bytes[64] = {0};
    call(f);
    say_data(f, 0, bytes, sizeof bytes); /* of nothing: passed over */
    say(f, SNAPSHOT_TAKEN, bytes, 8, NULL, 0);
    say(f, SNAPSHOT_DONE, bytes, 4, NULL, 0);
    say(f, 99, bytes, 64, NULL, 0);
    say(f, SNAPSHOT_BEGIN, bytes, 23, NULL, 0);
    expect_refused(f, FL_EBUSY);
    assert_int_equal(f->readies, 0);
    /* An index and a term of 0, and a size beyond all disks. */
    call(f);
    say_begin(f, 0, 0, UINT64_MAX);
    say_data(f, 0, f->file.data, 60000);
    UNTIL(f, f->r->mine.frames > 0);
    held_close(&f->r->mine);
    expect_nothing_left(f);
    send_until_it_is_there(f);
}

/* The one that was begun is given up, and the second attempt of its sender counts. */
TEST_WITH(a_sender_that_begins_again, transfer_set_up, transfer_tear_down)
{
    struct fixture *f = *state;
    first_piece_is_taken(f);
    send_until_it_is_there(f);
    assert_int_equal(f->install->failures, 1);
    assert_true(f->r->mine.lost > 0);
}

static unsigned taken_sent_in_seconds(struct fixture *f)
{
    unsigned before = taken_sent;
    for (unsigned i = 0; i < 8; i++) {
        ahead_ms += 501;
        install_turn(f);
    }
    return taken_sent - before;
}

/* It says that it is alive while it has something to do, and not while it waits for a piece: when
 * that is lost, both would wait for ever. */
TEST_WITH(a_piece_that_never_comes, transfer_set_up, transfer_tear_down)
{
    struct fixture *f = *state;
    first_piece_is_taken(f);
    assert_int_equal(taken_sent_in_seconds(f), 0);
    f->take = FL_EBUSY;
    UNTIL(f, (start_send(f, 70), f->readies > 0));
    assert_int_equal(taken_sent_in_seconds(f), 8);
}

/* Its connection stays, and nothing comes: its machine is gone, or it never meant to send. What
 * keeps the file and the place for another is given up, as long after the last piece, or the answer
 * to it, as the sender would wait. */
TEST_WITH(a_sender_that_is_silent, transfer_set_up, transfer_tear_down)
{
    struct fixture *f = *state;
    first_piece_is_taken(f);
    ahead_ms += SNAPSHOT_SILENCE_MS / 2;
    install_turn(f);
    assert_int_equal(snapshot_install_receives(f->install), 70);
    ahead_ms += SNAPSHOT_SILENCE_MS / 2 + 1;
    install_turn(f);
    assert_int_equal(snapshot_install_receives(f->install), 0);
    assert_int_equal(f->install->failures, 1);
    assert_non_null(strstr(f->install_log, "silence"));
    expect_nothing_left(f);
    UNTIL(f, f->r->mine.lost > 0);
    send_until_it_is_there(f);
}

/* What the node has applied meanwhile, from a leader that has the entries, is of no use to it. */
TEST_WITH(one_that_comes_too_late, transfer_set_up, transfer_tear_down)
{
    struct fixture *f = *state;
    first_piece_is_taken(f);
    f->applied = 69;
    install_turn(f);
    assert_int_equal(snapshot_install_receives(f->install), 70);
    f->applied = 70;
    install_turn(f);
    expect_refused(f, FL_EINVAL);
    assert_int_equal(f->install->failures, 1);
    call(f);
    say_begin(f, 70, 3, f->file.len);
    expect_refused(f, FL_EINVAL);
    f->applied = 69;
    send_until_it_is_there(f);
}
