/* test_auth.c: passwords and their hashes, the throttle of failed logins, the worker thread. */
#include "../../lib/unit.h"

#include <malloc.h>
#include <pthread.h>
#include <semaphore.h>

#include "../../lib/scratch.h"
#include "auth/aclfile.h"
#include "auth/hash.h"
#include "auth/throttle.h"
#include "auth/worker.h"
#include "base/lines.h"
#include "machine/batch.h"

static struct fli_slice slice(const char *text)
{
    return (struct fli_slice){(const uint8_t *)text, strlen(text)};
}

TEST(a_hash_knows_its_password)
{
    struct acl_hash a;
    struct acl_hash b;
    assert_int_equal(auth_hash(slice("sesame"), &a), 0);
    assert_int_equal(auth_hash(slice("sesame"), &b), 0);
    assert_true(memcmp(a.salt, b.salt, sizeof a.salt) != 0);
    assert_true(memcmp(a.key, b.key, sizeof a.key) != 0);
    assert_true(auth_verify(&a, slice("sesame")));
    assert_false(auth_verify(&a, slice("Sesame")) || auth_verify(&a, slice("")));
}

/* The vector is from another implementation (Python's hashlib.scrypt). */
TEST(it_is_scrypt)
{
    struct acl_hash known;
    const char *text = "scrypt:14:8:1:536f6469756d43686c6f726964650000:"
                       "f7d2bd1befac5a5bd950e569afa233d06ab554e25b451d4027f2142013beaea3";
    assert_true(acl_hash_parse(slice(text), &known));
    assert_true(auth_verify(&known, slice("pleaseletmein")));
    assert_false(auth_verify(&known, slice("pleaseletmeou")));
}

TEST(words_have_no_passwords_left)
{
    struct fli_slice args[] = {slice("on"), slice(">pass word"), slice("~a*"), slice("+@see")};
    struct fli_slice less[] = {slice("<pass word")};
    struct fli_slice wrong[] = {slice("<secret")};
    struct fli_slice none[] = {slice(">")};
    struct acl_user u;
    struct fli_buf b;
    char why[200];
    fli_buf_init(&b, ACL_TEXT_MAX);
    acl_user_init(&u, slice("ann"));
    assert_int_equal(auth_words(args, 4, &u, &b, why, sizeof why), 0);
    assert_null(memmem(b.data, b.len, "pass", 4));
    struct fli_slice words = {b.data, b.len};
    assert_int_equal(acl_apply(&u, words, ACL_LOCK_RIGHTS, why, sizeof why), 0);
    assert_true(auth_may_log_in(&u, slice("pass word")));
    assert_false(auth_may_log_in(&u, slice("pass")) || auth_may_log_in(NULL, slice("pass word")));
    fli_buf_clear(&b);
    assert_int_equal(auth_words(wrong, 1, &u, &b, why, sizeof why), FL_EINVAL);
    assert_null(strstr(why, "secret"));
    fli_buf_clear(&b);
    assert_int_equal(auth_words(none, 1, &u, &b, why, sizeof why), FL_EINVAL);
    fli_buf_clear(&b);
    assert_int_equal(auth_words(less, 1, &u, &b, why, sizeof why), 0);
    words = (struct fli_slice){b.data, b.len};
    assert_int_equal(acl_apply(&u, words, ACL_LOCK_RIGHTS, why, sizeof why), 0);
    assert_false(auth_may_log_in(&u, slice("pass word")));
    fli_buf_fini(&b);
}

/* A name with a blank that a program puts behind ~ must not end there and bring a right along. */
TEST(an_argument_is_one_word)
{
    static const char *const wrong[] = {
        "~x allkeys",       "~ann smith",   " allkeys",  "on >secret",
        "(~x +@see) +@all", "(~x >secret)", "(~x +@see", "~x )"};
    static const char *const right[] = {"(~x +@see)", "(~x +@see )", "(~x)", "("};
    char why[200];
    struct fli_buf b;
    fli_buf_init(&b, ACL_TEXT_MAX);
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        struct fli_slice arg = slice(wrong[i]);
        assert_int_equal(auth_words(&arg, 1, NULL, &b, why, sizeof why), FL_EINVAL);
        assert_null(strstr(why, "secret"));
        fli_buf_clear(&b);
    }
    for (size_t i = 0; i < sizeof right / sizeof right[0]; i++) {
        struct fli_slice arg = slice(right[i]);
        assert_int_equal(auth_words(&arg, 1, NULL, &b, why, sizeof why), 0);
        fli_buf_clear(&b);
    }
    fli_buf_fini(&b);
}

TEST(a_user_that_is_off_cannot_log_in)
{
    struct acl_user u;
    char why[200];
    acl_user_init(&u, slice("ann"));
    assert_int_equal(acl_apply(&u, slice("nopass"), ACL_LOCK_RIGHTS, why, sizeof why), 0);
    assert_false(auth_may_log_in(&u, slice("x")));
    assert_int_equal(acl_apply(&u, slice("on"), ACL_LOCK_RIGHTS, why, sizeof why), 0);
    assert_true(auth_may_log_in(&u, slice("x")));
    assert_int_equal(acl_apply(&u, slice("resetpass"), ACL_LOCK_RIGHTS, why, sizeof why), 0);
    assert_false(auth_may_log_in(&u, slice("")));
}

/* ---- the throttle ---- */

static const uint8_t NO_TAG[AUTH_TAG_SIZE];
static struct throttle throttle;

static int throttle_setup(void **state)
{
    throttle_init(&throttle);
    return 0;
}

static int throttle_teardown(void **state)
{
    throttle_fini(&throttle);
    return 0;
}

/* An attempt from 10.0.x.y. */
static struct throttle_who by(unsigned address, const char *user)
{
    static uint8_t bytes[8][4];
    static unsigned next;
    uint8_t *at = bytes[next++ % 8];
    at[0] = 10;
    at[1] = 0;
    fli_put_u16(at + 2, (uint16_t)address);
    return (struct throttle_who){{at, 4}, slice(user), NO_TAG, true};
}

static uint64_t ask(unsigned address, const char *user, uint64_t now_ms)
{
    struct throttle_who who = by(address, user);
    return throttle_ask(&throttle, &who, now_ms);
}

static void failed(unsigned address, const char *user, uint64_t now_ms)
{
    struct throttle_who who = by(address, user);
    throttle_failed(&throttle, &who, now_ms);
}

static void succeeded(unsigned address, const char *user, uint64_t now_ms)
{
    struct throttle_who who = by(address, user);
    who.tag = (const uint8_t *)"the password that was right once"; /* not the one of ask() */
    throttle_succeeded(&throttle, &who, now_ms);
}

TEST_WITH(failures_wait_longer_each_time, throttle_setup, throttle_teardown)
{
    uint64_t now = 1000;
    for (unsigned i = 0; i < THROTTLE_FREE; i++) {
        assert_int_equal(ask(1, "ann", now), now);
        failed(1, "ann", now);
    }
    uint64_t first = ask(1, "ann", now);
    uint64_t second = ask(1, "ann", now); /* logins at the same time are spread out */
    assert_int_equal(first, now + THROTTLE_STEP_MS);
    assert_int_equal(second, first + THROTTLE_STEP_MS);
    failed(1, "ann", now);
    assert_int_equal(ask(2, "ann", now), now);
    uint64_t third = ask(1, "ann", now);
    assert_int_equal(ask(1, "ann", now), third + 2 * THROTTLE_STEP_MS);
    uint64_t at = now;
    while (at != UINT64_MAX) {
        assert_true(at <= now + THROTTLE_AHEAD_MS);
        at = ask(1, "ann", now);
    }
    assert_int_equal(throttle.failures, THROTTLE_FREE + 1);
    now += THROTTLE_AHEAD_MS;
    succeeded(1, "ann", now);
    assert_true(ask(1, "ann", now) <= now + THROTTLE_STEP_MS); /* what the address still owes */
    assert_int_equal(ask(1, "ann", now + THROTTLE_FORGET_MS + 1), now + THROTTLE_FORGET_MS + 1);
}

/* A login of one's own in between does not make guesses at another's password free. */
TEST_WITH(a_login_forgives_its_own_failures_only, throttle_setup, throttle_teardown)
{
    static char longest[ACL_NAME_MAX + 1];
    uint64_t now = 1000;
    memset(longest, 'n', ACL_NAME_MAX);
    for (unsigned i = 0; i < THROTTLE_FREE + 3; i++) {
        failed(1, longest, now);
        succeeded(1, "me", now);
        succeeded(1, longest + 1, now);
    }
    assert_int_equal(ask(1, longest, now), now + 8 * THROTTLE_STEP_MS);
}

static struct throttle_who ann_with(const uint8_t tag[AUTH_TAG_SIZE])
{
    struct throttle_who ann = by(1, "ann");
    ann.tag = tag;
    return ann;
}

/* Guessers at invented names, and a few at a user's own, keep that user out of nothing. */
TEST_WITH(who_has_logged_in_goes_first, throttle_setup, throttle_teardown)
{
    uint8_t tag[AUTH_TAG_SIZE];
    char name[24];
    uint64_t now = 1000;
    auth_tag(throttle.key, slice("secret"), tag);
    struct throttle_who ann = ann_with(tag);
    throttle_succeeded(&throttle, &ann, now);
    for (unsigned i = 0; i < 1000; i++) {
        (void)snprintf(name, sizeof name, "nobody-%u", i);
        failed(1, name, now);
        failed(1, "ann", now);
    }
    for (unsigned i = 0; i < 10; i++) {
        (void)ask(1, "ann", now);
    }
    assert_int_equal(ask(1, "ann", now), UINT64_MAX); /* another password */
    ann = ann_with(tag);
    assert_int_equal(throttle_ask(&throttle, &ann, now), now);
    assert_int_equal(throttle_ask(&throttle, &ann, now), now);
    throttle_failed(&throttle, &ann, now); /* it is not the password any more */
    assert_int_equal(throttle_ask(&throttle, &ann, now), UINT64_MAX);
}

/* The password that does not wait is the right one: so many guesses are told that at once, however
 * often the user logs in meanwhile, and no more. */
TEST_WITH(who_goes_first_is_an_answer, throttle_setup, throttle_teardown)
{
    uint8_t right[AUTH_TAG_SIZE];
    uint8_t wrong[AUTH_TAG_SIZE];
    char guess[24];
    uint64_t now = 1000;
    auth_tag(throttle.key, slice("secret"), right);
    struct throttle_who ann = ann_with(right);
    throttle_succeeded(&throttle, &ann, now);
    for (unsigned i = 0; i < 200; i++) { /* so the address has no turn left */
        (void)snprintf(guess, sizeof guess, "nobody-%u", i);
        failed(1, guess, now);
        (void)ask(1, guess, now);
    }
    for (unsigned i = 0; i <= THROTTLE_JUDGED_MAX; i++) {
        ann = ann_with(right);
        assert_int_equal(throttle_ask(&throttle, &ann, now), now);
        throttle_succeeded(&throttle, &ann, now);
        (void)snprintf(guess, sizeof guess, "guess-%u", i);
        auth_tag(throttle.key, slice(guess), wrong);
        ann = ann_with(wrong);
        assert_int_equal(throttle_ask(&throttle, &ann, now), UINT64_MAX);
    }
    ann = ann_with(right);
    assert_int_equal(throttle_ask(&throttle, &ann, now), UINT64_MAX);
    now += THROTTLE_FORGET_MS + 1; /* one that had to wait like others makes it known again */
    throttle_succeeded(&throttle, &ann, now);
    assert_true(throttle.logged_in.shares.taken == 1);
}

/* Who has not logged in from an address waits behind each of its guessers once, not for ever. Where
 * these have taken all turns it is refused. */
TEST_WITH(invented_names_are_one_share, throttle_setup, throttle_teardown)
{
    enum { MOST = THROTTLE_AHEAD_MS / THROTTLE_STEP_MS };
    char name[24];
    uint64_t now = 1000;
    for (unsigned k = 0; k < THROTTLE_FREE; k++) {
        failed(1, "nobody", now - THROTTLE_STEP_MS);
    }
    for (unsigned i = 0; i < 30; i++) { /* each guesser waits for an answer, then guesses again */
        uint64_t at[MOST];
        for (unsigned k = 0; k < MOST; k++) {
            (void)snprintf(name, sizeof name, "nobody-%u-%u", i, k);
            at[k] = ask(1, name, now);
            assert_int_equal(at[k], now + k * THROTTLE_STEP_MS);
        }
        assert_int_equal(ask(1, "ann", now), now + THROTTLE_AHEAD_MS);
        assert_int_equal(ask(1, "ben", now), UINT64_MAX); /* one guesser too many */
        assert_int_equal(ask(2, "ann", now), now);
        for (unsigned k = 0; k < MOST; k++) {
            (void)snprintf(name, sizeof name, "nobody-%u-%u", i, k);
            failed(1, name, at[k]);
        }
        succeeded(1, "ann", now + THROTTLE_AHEAD_MS);
        succeeded(2, "ann", now);
        now += THROTTLE_AHEAD_MS + THROTTLE_STEP_MS;
    }
}

/* Of attempts that come at once no more are free than of those that come one by one. */
TEST_WITH(attempts_under_way_may_fail, throttle_setup, throttle_teardown)
{
    uint64_t now = 1000;
    for (unsigned i = 0; i < THROTTLE_FREE; i++) {
        assert_int_equal(ask(1, "ann", now), now);
    }
    unsigned more = 0;
    while (ask(1, "ann", now) != UINT64_MAX) {
        more++;
        assert_true(more <= THROTTLE_AHEAD_MS / THROTTLE_STEP_MS);
    }
    assert_int_equal(more, THROTTLE_AHEAD_MS / THROTTLE_STEP_MS);
    assert_int_equal(ask(1, "ben", now), UINT64_MAX);
    for (unsigned i = 0; i < THROTTLE_FREE + more; i++) { /* none was checked: nothing is left */
        struct throttle_who who = by(1, "ann");
        throttle_left(&throttle, &who);
    }
    assert_true(throttle.failed.shares.taken == 0);
    assert_int_equal(ask(1, "ann", now), now);
    succeeded(1, "ann", now);
    assert_true(throttle.failed.shares.taken == 0);
}

/* An address that fails under many names makes the table forget its own failures. */
TEST_WITH(addresses_share_the_table, throttle_setup, throttle_teardown)
{
    char name[24];
    for (unsigned k = 0; k < THROTTLE_FREE; k++) {
        failed(1, "ann", 1000);
    }
    for (unsigned i = 0; i < 3 * THROTTLE_MAX; i++) {
        (void)snprintf(name, sizeof name, "nobody-%u", i);
        failed(2, name, 1001);
    }
    assert_true(ask(1, "ann", 1001) > 1001);
    assert_true(throttle.failed.shares.taken == THROTTLE_MAX);
}

TEST_WITH(old_failures_are_forgotten, throttle_setup, throttle_teardown)
{
    for (unsigned i = 0; i < 2 * THROTTLE_MAX; i++) {
        for (unsigned k = 0; k < THROTTLE_FREE; k++) {
            failed(i, "", 1000 + i);
        }
    }
    uint64_t now = 1000 + 2 * THROTTLE_MAX;
    assert_true(throttle.failed.shares.taken == THROTTLE_MAX);
    assert_true(ask(2 * THROTTLE_MAX - 1, "", now) > now ||
                ask(2 * THROTTLE_MAX - 1, "", now) > now);
    struct throttle_who who = by(2 * THROTTLE_MAX - 1, "");
    throttle_left(&throttle, &who);
    throttle_left(&throttle, &who);
    now += THROTTLE_FORGET_MS + 1;
    assert_int_equal(ask(2 * THROTTLE_MAX - 1, "", now), now);
}

struct counted {
    struct auth_job job;
    unsigned worked, done;
};

static void count_work(struct auth_job *job)
{
    FLI_CONTAINER_OF(job, struct counted, job)->worked++;
}

static void count_done(struct auth_job *job)
{
    FLI_CONTAINER_OF(job, struct counted, job)->done++;
}

static void note(void *ctx)
{
    *(bool *)ctx = true;
}

TEST(jobs_are_done_and_told)
{
    uv_loop_t loop;
    struct auth_worker *w = NULL;
    struct counted jobs[64];
    unsigned taken = 0;
    bool closed = false;
    memset(jobs, 0, sizeof jobs);
    assert_int_equal(uv_loop_init(&loop), 0);
    assert_int_equal(auth_worker_create(&loop, 32, &w), 0);
    for (unsigned i = 0; i < 64; i++) {
        jobs[i].job.work = count_work;
        jobs[i].job.done = count_done;
        taken += auth_worker_submit(w, &jobs[i].job) == 0;
    }
    assert_true(taken >= 32);
    auth_worker_close(w, note, &closed);
    while (!closed) {
        (void)uv_run(&loop, UV_RUN_ONCE);
    }
    unsigned done = 0;
    for (unsigned i = 0; i < 64; i++) {
        assert_true(jobs[i].worked <= jobs[i].done && jobs[i].done <= 1);
        done += jobs[i].done;
    }
    assert_int_equal(done, taken);
    assert_int_equal(uv_loop_close(&loop), 0);
}

/* A job that waits until it is let go, and those behind it, which note their order. */
static pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;
static sem_t at_end;
static unsigned order[8];
static unsigned order_n;

struct numbered {
    struct auth_job job;
    unsigned number;
};

static void wait_at_gate(struct auth_job *job)
{
    pthread_mutex_lock(&gate);
    pthread_mutex_unlock(&gate);
}

static void note_number(struct auth_job *job)
{
    order[order_n++] = FLI_CONTAINER_OF(job, struct numbered, job)->number;
}

static void tell_end(struct auth_job *job)
{
    (void)sem_post(&at_end);
}

static void nothing(struct auth_job *job)
{
}

/* Whoever has many logins under way does not hold up another. */
TEST(sources_take_turns)
{
    static const uint64_t sources[] = {7, 7, 7, 7, 8, 9, 8};
    static const unsigned expected[] = {0, 4, 5, 1, 6, 2, 3};
    uv_loop_t loop;
    struct auth_worker *w = NULL;
    struct numbered jobs[7];
    struct auth_job first = {.work = wait_at_gate, .done = nothing, .source = 1};
    struct auth_job last = {.work = tell_end, .done = nothing, .source = 7};
    bool closed = false;
    memset(jobs, 0, sizeof jobs);
    assert_int_equal(uv_loop_init(&loop), 0);
    assert_int_equal(auth_worker_create(&loop, 32, &w), 0);
    pthread_mutex_lock(&gate);
    assert_int_equal(auth_worker_submit(w, &first), 0);
    for (unsigned i = 0; i < 7; i++) {
        jobs[i].job.work = note_number;
        jobs[i].job.done = nothing;
        jobs[i].job.source = sources[i];
        jobs[i].number = i;
        assert_int_equal(auth_worker_submit(w, &jobs[i].job), 0);
    }
    assert_int_equal(sem_init(&at_end, 0, 0), 0);
    assert_int_equal(auth_worker_submit(w, &last), 0);
    pthread_mutex_unlock(&gate);
    while (sem_wait(&at_end) != 0) {
    }
    assert_int_equal(order_n, 7);
    assert_memory_equal(order, expected, sizeof expected);
    auth_worker_close(w, note, &closed);
    while (!closed) {
        (void)uv_run(&loop, UV_RUN_ONCE);
    }
    assert_int_equal(uv_loop_close(&loop), 0);
}

struct again {
    struct numbered numbered;
    struct auth_worker *worker;
    struct again *next; /* NULL: none */
};

/* On the thread, as if a client came again as soon as it has its answer. */
static void come_again(struct auth_job *job)
{
    const struct again *a = FLI_CONTAINER_OF(job, struct again, numbered.job);
    if (a->next != NULL) {
        assert_int_equal(auth_worker_submit(a->worker, &a->next->numbered.job), 0);
    }
    note_number(job);
    (void)sem_post(&at_end);
}

/* Two sources that come again and again do not keep the second job of another waiting. */
TEST(every_turn_ends)
{
    enum { N = 7, SECOND = N };
    uv_loop_t loop;
    struct auth_worker *w = NULL;
    struct again a[N + 1]; /* the last is the second job of source 7 */
    struct auth_job gated = {.work = wait_at_gate, .done = nothing, .source = 1};
    struct auth_job first = {.work = nothing, .done = nothing, .source = 7};
    bool closed = false;
    memset(a, 0, sizeof a);
    order_n = 0;
    assert_int_equal(uv_loop_init(&loop), 0);
    assert_int_equal(auth_worker_create(&loop, 32, &w), 0);
    assert_int_equal(sem_init(&at_end, 0, 0), 0);
    for (unsigned i = 0; i <= N; i++) {
        a[i].worker = w;
        a[i].next = i + 1 < N ? &a[i + 1] : NULL;
        a[i].numbered.number = i;
        a[i].numbered.job.work = come_again;
        a[i].numbered.job.done = nothing;
        a[i].numbered.job.source = i == SECOND ? 7 : 10 + i % 2;
    }
    pthread_mutex_lock(&gate);
    assert_int_equal(auth_worker_submit(w, &gated), 0);
    assert_int_equal(auth_worker_submit(w, &first), 0);
    assert_int_equal(auth_worker_submit(w, &a[SECOND].numbered.job), 0);
    assert_int_equal(auth_worker_submit(w, &a[0].numbered.job), 0);
    pthread_mutex_unlock(&gate);
    for (unsigned done = 0; done <= N;) {
        done += sem_wait(&at_end) == 0;
    }
    assert_int_equal(order[0], 0);
    assert_int_equal(order[1], SECOND);
    auth_worker_close(w, note, &closed);
    while (!closed) {
        (void)uv_run(&loop, UV_RUN_ONCE);
    }
    assert_int_equal(uv_loop_close(&loop), 0);
}

/* What ACL SAVE writes of the largest user there can be, with hundreds of patterns that came one
 * command after the other. */
TEST(a_user_of_many_patterns_can_be_read_again)
{
    struct acl_user u;
    struct acl_hash h;
    struct aclfile file;
    struct fli_buf text;
    char word[32];
    char why[256] = "";
    unsigned n = 0;
    memset(&h, 0, sizeof h);
    h.log2_n = 14;
    h.r = 8;
    h.p = 1;
    acl_user_init(&u, slice("ann"));
    do {
        (void)snprintf(word, sizeof word, "~%c%c", (char)('A' + n / 26), (char)('a' + n % 26));
        n++;
    } while (acl_apply(&u, slice(word), ACL_LOCK_RIGHTS, why, sizeof why) == 0);
    assert_true(n > 500);
    assert_int_equal(acl_apply(&u, slice("-@break"), ACL_LOCK_RIGHTS, why, sizeof why), 0);
    fli_buf_init(&text, ACLFILE_SIZE_MAX);
    for (unsigned i = 0; i < ACL_PASSWORDS_MAX; i++) {
        h.key[0]++;
        fli_buf_clear(&text);
        assert_int_equal(fli_buf_append(&text, "#", 1), 0);
        assert_int_equal(acl_print_hash(&h, &text), 0);
        struct fli_slice words = {text.data, text.len};
        assert_int_equal(acl_apply(&u, words, ACL_LOCK_RIGHTS, why, sizeof why), 0);
    }
    fli_buf_clear(&text);
    assert_int_equal(fli_buf_printf(&text, "user ann "), 0);
    assert_int_equal(acl_print(&u, &text), 0);
    struct fli_slice all = {text.data, text.len};
    if (aclfile_parse("f", all, ACL_LOCK_RIGHTS, &file, why, sizeof why) != 0) {
        fail_msg("%s", why);
    }
    aclfile_free(&file);
    fli_buf_fini(&text);
}

/* A word is taken whole, or the file is refused: also one whose end a crash filled with zeros. */
TEST(a_word_of_a_file_is_taken_whole)
{
    static const char zeros[] = "user ann on >kite\0\0\0\n";
    struct aclfile file;
    char why[256] = "";
    assert_int_equal(aclfile_parse("f", slice("user ann on >kite#2026 ~team#1\n # bob\n"),
                                   ACL_LOCK_RIGHTS, &file, why, sizeof why),
                     0);
    struct fli_slice words = {file.users[0].words.data, file.users[0].words.len};
    assert_int_equal(file.n, 1);
    assert_non_null(memmem(words.data, words.len, "~team#1", 7));
    aclfile_free(&file);
    assert_int_equal(aclfile_parse("f",
                                   (struct fli_slice){(const uint8_t *)zeros, sizeof zeros - 1},
                                   ACL_LOCK_RIGHTS, &file, why, sizeof why),
                     FL_EINVAL);
    assert_string_equal(why, "f:1: the line has a zero byte: write the file anew");
    aclfile_free(&file);
}

/* As many users as one entry of the log can bring, and as many bytes as a cluster keeps. */
TEST(as_many_users_as_a_cluster_keeps_can_be_read)
{
    struct aclfile file;
    struct fli_buf text;
    struct fli_buf packed;
    char why[256] = "";
    fli_buf_init(&text, ACLFILE_SIZE_MAX);
    fli_buf_init(&packed, MACHINE_USERS_BYTES_MAX);
    assert_int_equal(fli_buf_printf(&text, "user default on nopass ~* +@all\n"), 0);
    for (unsigned i = 1; i < MACHINE_USERS_MAX; i++) {
        assert_int_equal(fli_buf_printf(&text, "user u%04u off\n", i), 0);
    }
    struct fli_slice all = {text.data, text.len};
    if (aclfile_parse("f", all, ACL_LOCK_RIGHTS, &file, why, sizeof why) != 0) {
        fail_msg("%s", why);
    }
    assert_int_equal(aclfile_pack(&file, &packed), 0);
    assert_true(machine_users_ok((struct fli_slice){packed.data, packed.len}));
    aclfile_free(&file);
    fli_buf_fini(&text);
    fli_buf_fini(&packed);
}

/* What is cut off in a line may be another user: +@all without the -@admin behind it. */
TEST(a_file_that_may_have_been_cut_off_is_refused)
{
    static const char text[] = "user boss on >p ~* +@all\nuser bob on >p ~* +@all -@admin\n";
    char *folder = scratch_make();
    char *path = scratch_path(folder, "users.acl");
    struct aclfile file;
    char why[512];
    scratch_write(path, text, sizeof text - 1);
    assert_int_equal(aclfile_read(path, ACL_LOCK_RIGHTS, &file, why, sizeof why), 0);
    assert_int_equal(file.n, 2);
    aclfile_free(&file);
    scratch_write(path, text, sizeof text - 2);
    assert_int_equal(aclfile_read(path, ACL_LOCK_RIGHTS, &file, why, sizeof why), FL_EINVAL);
    assert_non_null(strstr(why, "end it with a newline"));
    aclfile_free(&file);
    free(path);
    scratch_remove(folder);
}

#ifndef __SANITIZE_ADDRESS__
static const char *watched; /* NULL: nothing */
static unsigned freed_with;

void __libc_free(void *p);

/* In place of the C library's, for it as well: looks for a password in what is freed. */
__attribute__((visibility("default"))) void free(void *p)
{
    if (p != NULL && watched != NULL) {
        freed_with += memmem(p, malloc_usable_size(p), watched, strlen(watched)) != NULL;
    }
    __libc_free(p);
}

/* Neither one that is taken nor one that is refused. */
TEST(a_file_leaves_no_password_in_memory)
{
    static const char text[] = "secret-26\nuser bob on >secret-26 ~*";
    char *folder = scratch_make();
    char *path = scratch_path(folder, "users.acl");
    struct aclfile file;
    char room[64];
    char why[512];
    scratch_write(path, text, sizeof text - 1);
    watched = "secret-26";
    int users = aclfile_read(path, ACL_LOCK_RIGHTS, &file, why, sizeof why);
    unsigned of_users = freed_with;
    int line = fli_line_first(path, room, sizeof room, why, sizeof why);
    watched = NULL;
    assert_int_equal(users, FL_EINVAL);
    assert_int_equal(line, 0);
    assert_int_equal(of_users, 0);
    assert_int_equal(freed_with, 0);
    free(path);
    scratch_remove(folder);
}
#endif
