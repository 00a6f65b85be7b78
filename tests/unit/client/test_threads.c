/* Threads that share a client: 8 of them take, look at, release and free 1,000 locks, whose
 * callbacks call back, and the client is closed at any moment. client_memory.py runs it under
 * ThreadSanitizer as well.
 *
 * The test plays the node, on a thread of its own: it grants everything, and says of every third
 * lock that it is not held any more when it is renewed. */
#include "../../lib/unit.h"

#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "client/caller.h"
#include "fencelock/client.h"

#define THREADS 8
#define LOCKS 125 /* of each thread */
#define CONNECTIONS 64
#define ROUNDS 4
#define SHORT_MS 40 /* a TTL: it is renewed before that is over, or lost */

/* ---- the node -------------------------------------------------------------------------------- */

struct conn {
    int fd;
    size_t len;
    char data[1 << 16];
};

static struct conn conns[CONNECTIONS];
static char address[32];
static atomic_uint tokens;
static atomic_bool sessions_end; /* when they are renewed */

/* The end of a whole request at `at`; NULL: it has not come. words: the first two. */
static char *request_end(char *at, const char *end, char words[2][64])
{
    char *p = at;
    if (memchr(p, '\n', (size_t)(end - p)) == NULL) {
        return NULL;
    }
    long n = strtol(p + 1, &p, 10);
    p += 2;
    words[0][0] = words[1][0] = '\0';
    for (long i = 0; i < n; i++) {
        if (p >= end || memchr(p, '\n', (size_t)(end - p)) == NULL) {
            return NULL;
        }
        long len = strtol(p + 1, &p, 10);
        p += 2;
        if (p + len + 2 > end) {
            return NULL;
        }
        if (i < 2) {
            snprintf(words[i], sizeof words[i], "%.*s", (int)len, p);
        }
        p += len + 2;
    }
    return p;
}

static void answer(int fd, const char *word, const char *name)
{
    char text[64] = ":1\r\n";
    if (strcmp(word, "ACQUIRE") == 0) {
        snprintf(text, sizeof text, ":%u\r\n", atomic_fetch_add(&tokens, 1) + 1);
    } else if (strcmp(word, "LEADER") == 0) {
        snprintf(text, sizeof text, "*-1\r\n");
    } else if (strcmp(word, "SESSION") == 0 && strcmp(name, "OPEN") == 0) {
        snprintf(text, sizeof text, "+OK\r\n");
    } else if ((strcmp(word, "RENEW") == 0 && name[strlen(name) - 1] == '0') ||
               (strcmp(name, "RENEW") == 0 && atomic_load(&sessions_end))) {
        snprintf(text, sizeof text, ":0\r\n");
    }
    (void)send(fd, text, strlen(text), MSG_NOSIGNAL);
}

/* False: it has ended. */
static bool serve(struct conn *c)
{
    ssize_t n = recv(c->fd, c->data + c->len, sizeof c->data - 1 - c->len, 0);
    if (n <= 0) {
        close(c->fd);
        return false;
    }
    c->len += (size_t)n;
    c->data[c->len] = '\0';
    char *at = c->data;
    char *next;
    char words[2][64];
    while (at < c->data + c->len && (next = request_end(at, c->data + c->len, words)) != NULL) {
        answer(c->fd, words[0], words[1]);
        at = next;
    }
    c->len -= (size_t)(at - c->data);
    memmove(c->data, at, c->len);
    return true;
}

static void *run_node(void *arg)
{
    const int *listener = arg;
    struct pollfd p[CONNECTIONS + 1] = {{.fd = *listener, .events = POLLIN}};
    for (int i = 0; i < CONNECTIONS; i++) {
        conns[i].fd = -1;
        p[i + 1] = (struct pollfd){.fd = -1, .events = POLLIN};
    }
    for (;;) {
        (void)poll(p, CONNECTIONS + 1, -1);
        for (int i = 0; i < CONNECTIONS; i++) {
            if (p[i + 1].fd >= 0 && p[i + 1].revents != 0 && !serve(&conns[i])) {
                p[i + 1].fd = -1;
            }
        }
        for (int i = 0; p[0].revents != 0 && i < CONNECTIONS; i++) {
            if (p[i + 1].fd < 0) {
                conns[i].fd = p[i + 1].fd = accept(*listener, NULL, NULL);
                conns[i].len = 0;
                break;
            }
        }
    }
    return NULL;
}

static int start_node(void **state)
{
    static int listener;
    static pthread_t thread;
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof a;
    listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (bind(listener, (struct sockaddr *)&a, sizeof a) != 0 || listen(listener, 64) != 0 ||
        getsockname(listener, (struct sockaddr *)&a, &size) != 0) {
        return -1;
    }
    snprintf(address, sizeof address, "127.0.0.1:%u", (unsigned)ntohs(a.sin_port));
    return pthread_create(&thread, NULL, run_node, &listener);
}

/* ---- the user -------------------------------------------------------------------------------- */

static fl_client *client;
static fl_lock *first; /* as long as it is not freed, a client that is closed may be called */
static atomic_uint changes, calls, lines;
/* The user's own: held around calls of the library, and taken in its callbacks. */
static pthread_mutex_t mine = PTHREAD_MUTEX_INITIALIZER;

static void on_checked(void *arg, const struct fl_result *r)
{
    atomic_fetch_add(&calls, 1);
}

static void on_change(void *arg, fl_lock *lock, enum fl_hold_state state)
{
    fl_token token;
    (void)pthread_mutex_lock(&mine);
    atomic_fetch_add(&changes, 1);
    assert_true(state != FL_HOLD_LOST || fl_lock_token(lock, &token) == FL_ENOTHELD);
    (void)!fl_lock_token(first, &token);
    const struct fl_ask ask = {.what = FL_ASK_CHECK, .name = fl_lock_name(lock), .token = 1};
    (void)!fl_ask_start(client, &ask, on_checked, NULL, NULL);
    (void)pthread_mutex_unlock(&mine);
}

static void on_log(void *arg, const char *text)
{
    (void)pthread_mutex_lock(&mine);
    atomic_fetch_add(&lines, text[0] != '\0');
    (void)pthread_mutex_unlock(&mine);
}

/* Locks with a lease of their own, locks that share a session, and both ends. */
static void *work(void *arg)
{
    fl_lock *locks[LOCKS];
    unsigned thread = (unsigned)(uintptr_t)arg;
    unsigned n = 0;
    for (unsigned i = 0; i < LOCKS; i++) {
        char name[32];
        fl_token token;
        const struct fl_take how = {.ttl_ms = i % 2 == 0 ? SHORT_MS : 0, .on_change = on_change};
        snprintf(name, sizeof name, "lock-%u-%u", thread, i);
        int rc = fl_lock_take(client, name, &how, &locks[n]);
        if (rc != 0) { /* closed, or slower than the TTL */
            assert_true(fl_client_error(client)[0] != '\0');
            continue;
        }
        (void)pthread_mutex_lock(&mine);
        (void)!fl_lock_token(locks[n], &token);
        (void)!fl_lock_token(first, &token);
        (void)pthread_mutex_unlock(&mine);
        n++;
    }
    for (unsigned i = 0; i < n; i++) {
        if (i % 3 == 0) {
            fl_lock_free(locks[i]);
        } else {
            (void)fl_lock_release(locks[i]);
        }
    }
    return NULL;
}

static void one_round(unsigned pause_ms)
{
    const struct fl_client_options options = {.timeout_ms = 60000, .on_log = on_log};
    pthread_t threads[THREADS];
    assert_int_equal(fl_open(address, &options, &client), 0);
    assert_int_equal(fl_lock_take(client, "first", NULL, &first), 0);
    for (unsigned i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, work, (void *)(uintptr_t)i), 0);
    }
    (void)poll(NULL, 0, (int)pause_ms);
    bool waits = pause_ms == 0;
    for (unsigned i = 0; waits && i < THREADS; i++) {
        (void)pthread_join(threads[i], NULL);
    }
    fl_close(client);
    for (unsigned i = 0; !waits && i < THREADS; i++) {
        (void)pthread_join(threads[i], NULL);
    }
    assert_int_equal(fl_lock_state(first), FL_HOLD_LOST);
    fl_lock_free(first);
}

TEST_WITH(threads_share_a_client, start_node, NULL)
{
    one_round(0);
    assert_true(atomic_load(&changes) > 0);
    for (unsigned i = 1; i <= ROUNDS; i++) {
        one_round(i * 7); /* closed while the others are at it */
    }
}

/* ---- a mutex of the user's ------------------------------------------------------------------- */

struct waiting {
    pthread_mutex_t mutex;
    atomic_bool called;
};

static void takes_the_mutex(void *arg, fl_lock *lock, enum fl_hold_state state)
{
    struct waiting *w = arg;
    (void)pthread_mutex_lock(&w->mutex);
    atomic_store(&w->called, true);
    (void)pthread_mutex_unlock(&w->mutex);
}

static void calls_back(void *arg, uint64_t without_ms, const char *text)
{
    atomic_bool *called = arg;
    fl_process(client); /* needs the handle's mutex */
    atomic_store(called, true);
}

/* The callback of our own tools as well. */
TEST(a_trouble_is_told_outside_of_all_locks)
{
    atomic_bool called = false;
    assert_int_equal(fl_open("127.0.0.1:1", NULL, &client), 0);
    fli_client_on_trouble(client, calls_back, &called);
    while (!atomic_load(&called)) {
        struct fl_result r;
        const struct fl_ask ask = {
            .what = FL_ASK_CHECK, .name = fl_str("x"), .token = 1, .timeout_ms = 100};
        assert_int_equal(fl_ask(client, &ask, &r), FL_ENOCONN);
    }
    fl_close(client);
}

/* A callback waits for a mutex that is held around a call: the call does not wait for it. */
TEST(a_callback_is_outside_of_all_locks)
{
    struct waiting w = {.mutex = PTHREAD_MUTEX_INITIALIZER};
    const struct fl_take how = {.ttl_ms = SHORT_MS, .on_change = takes_the_mutex, .arg = &w};
    const struct fl_take once = {.ttl_ms = 60000, .unrenewed = true};
    fl_lock *lock;
    fl_lock *other;
    fl_token token;
    assert_int_equal(fl_open(address, NULL, &client), 0);
    int rc = fl_lock_take(client, "gone-0", &how, &lock);
    while (rc != 0) { /* it was slower than the TTL */
        rc = fl_lock_take(client, "gone-0", &how, &lock);
    }
    (void)pthread_mutex_lock(&w.mutex);
    while (fl_lock_token(lock, &token) == 0) {
        (void)poll(NULL, 0, 1); /* until the node has said that it is not held */
    }
    assert_int_equal(fl_lock_take(client, "another", &once, &other), 0);
    assert_false(atomic_load(&w.called));
    (void)pthread_mutex_unlock(&w.mutex);
    while (!atomic_load(&w.called)) {
        (void)poll(NULL, 0, 1);
    }
    assert_int_equal(fl_lock_release(other), 0);
    fl_lock_free(lock);
    fl_close(client);
}

static void *release_it(void *arg)
{
    (void)!fl_lock_release(arg);
    return NULL;
}

/* A release waits for a callback, and the session of its lock is lost, and freed meanwhile. */
TEST(a_session_ends_while_a_release_waits)
{
    struct waiting w = {.mutex = PTHREAD_MUTEX_INITIALIZER};
    const struct fl_take how = {
        .shares = true, .ttl_ms = 300, .on_change = takes_the_mutex, .arg = &w};
    fl_lock *lock;
    fl_lock *other;
    fl_token token;
    pthread_t thread;
    assert_int_equal(fl_open(address, NULL, &client), 0);
    assert_int_equal(fl_lock_take(client, "held", &how, &lock), 0);
    (void)pthread_mutex_lock(&w.mutex);
    atomic_store(&sessions_end, true);
    while (fl_lock_token(lock, &token) == 0) {
        (void)poll(NULL, 0, 1);
    }
    (void)poll(NULL, 0, 50); /* until it is called back */
    atomic_store(&sessions_end, false);
    assert_int_equal(pthread_create(&thread, NULL, release_it, lock), 0);
    (void)poll(NULL, 0, 50); /* until it waits for the callback */
    assert_int_equal(fl_lock_take(client, "other", &how, &other), 0);
    (void)pthread_mutex_unlock(&w.mutex);
    (void)pthread_join(thread, NULL);
    fl_lock_free(other);
    fl_close(client);
}
