/* The library when memory runs out: every scenario is run again and again, and each time another
 * allocation of this thread fails, hiredis's and getaddrinfo()'s among them, until none is left to
 * fail. Nothing may crash, leak, or call a failure a success.
 *
 * malloc() and its kin are replaced, so this does not go together with sanitizers. */
#include "../../lib/unit.h"

#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

#include "fencelock/redlock.h"

void *__libc_malloc(size_t size);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *p, size_t size);
void __libc_free(void *p);

/* Seen by shared libraries as well. */
#define SEEN __attribute__((visibility("default")))
SEEN void *malloc(size_t size);
SEEN void *calloc(size_t n, size_t size);
SEEN void *realloc(void *p, size_t size);
SEEN void free(void *p);

static _Thread_local bool counting;
static _Thread_local long allocations; /* while counting */
static _Thread_local long fail_at;     /* 0: none */
static _Thread_local long live;

static bool fails(void)
{
    return counting && ++allocations == fail_at;
}

static void *counted(void *p)
{
    live += counting && p != NULL ? 1 : 0;
    return p;
}

void *malloc(size_t size)
{
    return fails() ? NULL : counted(__libc_malloc(size));
}

void *calloc(size_t n, size_t size)
{
    return fails() ? NULL : counted(__libc_calloc(n, size));
}

void *realloc(void *p, size_t size)
{
    if (p == NULL) {
        return malloc(size);
    }
    return fails() ? NULL : __libc_realloc(p, size);
}

void free(void *p)
{
    live -= counting && p != NULL ? 1 : 0;
    __libc_free(p);
}

/* ---- a server on a thread of its own --------------------------------------------------------- */

#define CONNECTIONS 64

static char address[32];

static const char *answer_to(const char *word, const char *second)
{
    static const struct {
        const char *word;
        const char *answer;
    } answers[] = {
        {"ACQUIRE", ":7\r\n"},
        {"TOKEN", ":8\r\n"},
        {"LEADER", "*-1\r\n"},
        {"PING", "+PONG\r\n"},
        {"SHOW", "*6\r\n$4\r\nname\r\n$1\r\nx\r\n$5\r\nstate\r\n$4\r\nheld\r\n$5\r\nqueue\r\n"
                 "*1\r\n*2\r\n$5\r\nowner\r\n$3\r\nabc\r\n"},
        {"LOCKS", "*2\r\n$0\r\n\r\n*1\r\n*2\r\n$4\r\nname\r\n$1\r\nx\r\n"},
    };
    if (strcmp(word, "SESSION") == 0) {
        if (strcmp(second, "LIST") == 0) {
            return "*2\r\n$0\r\n\r\n*1\r\n*2\r\n$5\r\nowner\r\n$3\r\nabc\r\n";
        }
        return strcmp(second, "OPEN") == 0 ? "+OK\r\n" : ":1\r\n";
    }
    for (size_t i = 0; i < sizeof answers / sizeof answers[0]; i++) {
        if (strcmp(answers[i].word, word) == 0) {
            return answers[i].answer;
        }
    }
    return ":1\r\n";
}

/* The next word of a request: its length in a line, then the bytes. */
static const char *next_word(char **at)
{
    long len = strtol(*at + 1, at, 10);
    char *word = *at + 2;
    *at = word + len + 2;
    word[len] = '\0';
    return word;
}

/* Requests are small and come whole. */
static void serve(int fd)
{
    char data[4096];
    ssize_t n = recv(fd, data, sizeof data - 1, 0);
    if (n <= 0) {
        close(fd);
        return;
    }
    data[n] = '\0';
    for (char *at = data; *at == '*';) {
        long words = strtol(at + 1, &at, 10);
        at += 2;
        const char *word = next_word(&at);
        const char *second = words > 1 ? next_word(&at) : "";
        for (long i = 2; i < words; i++) {
            (void)next_word(&at);
        }
        const char *answer = answer_to(word, second);
        (void)send(fd, answer, strlen(answer), MSG_NOSIGNAL);
    }
}

static void *run_server(void *arg)
{
    const int *listener = arg;
    struct pollfd p[CONNECTIONS] = {{.fd = *listener, .events = POLLIN}};
    nfds_t n = 1;
    for (;;) {
        (void)poll(p, n, -1);
        for (nfds_t i = n; i-- > 1;) {
            char byte;
            if (p[i].revents == 0) {
                continue;
            }
            bool ends = recv(p[i].fd, &byte, 1, MSG_PEEK) <= 0;
            serve(p[i].fd);
            if (ends) {
                p[i] = p[--n];
            }
        }
        if (p[0].revents != 0 && n < CONNECTIONS) {
            p[n++] = (struct pollfd){.fd = accept(*listener, NULL, NULL), .events = POLLIN};
        }
    }
    return NULL;
}

static int start_server(void **state)
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
    return pthread_create(&thread, NULL, run_server, &listener);
}

/* ---- scenarios ------------------------------------------------------------------------------- */

static const struct fl_client_options options = {.timeout_ms = 100, .attempt_ms = 50};

/* A result is a success or a code of ours. Returns whether it is a success. */
static bool is_done(int rc)
{
    assert_true(rc == 0 || strcmp(fl_err_name(rc), "?") != 0);
    return rc == 0;
}

static struct fl_result ask(fl_client *c, enum fl_asked what, const char *name, fl_token token)
{
    struct fl_result r;
    const struct fl_ask ask = {.what = what, .name = fl_str(name), .token = token};
    (void)is_done(fl_ask(c, &ask, &r));
    return r;
}

static void ask_about_sessions(fl_client *c)
{
    struct fl_result r = ask(c, FL_ASK_SESSIONS, "", FL_TOKEN_NONE);
    assert_true(r.status != 0 || r.sessions->len == 1);
    fl_session_list_free(r.sessions);
}

static void scenario_blocking(void)
{
    const struct fl_take once = {.unrenewed = true};
    fl_client *c = NULL;
    fl_lock *lock;
    fl_token token = FL_TOKEN_NONE;
    struct fl_result r;
    if (!is_done(fl_open(address, &options, &c))) {
        assert_null(c);
        return;
    }
    if (is_done(fl_lock_take(c, "x", &once, &lock))) {
        assert_int_equal(fl_lock_token(lock, &token), 0);
        assert_int_equal(token, 7);
        (void)ask(c, FL_ASK_RENEW, "x", token);
        (void)ask(c, FL_ASK_CHECK, "x", token);
        (void)is_done(fl_lock_release(lock));
    }
    r = ask(c, FL_ASK_SHOW, "x", FL_TOKEN_NONE);
    assert_true(r.status != 0 || r.locks->locks[0]->queue_len == 1);
    fl_lock_list_free(r.locks);
    r = ask(c, FL_ASK_LOCKS, "", FL_TOKEN_NONE);
    assert_true(r.status != 0 || r.locks->len == 1);
    fl_lock_list_free(r.locks);
    ask_about_sessions(c);
    fl_close(c);
}

static const struct fl_client_options on_loop = {
    .timeout_ms = 100, .attempt_ms = 50, .own_loop = true};

struct progress {
    fl_lock *lock;
    bool asking;
    enum fl_hold_state state;
};

static void on_taken(void *arg, const struct fl_result *r)
{
    struct progress *p = arg;
    assert_int_equal(is_done(r->status), r->lock != NULL);
    assert_int_equal(is_done(r->status), r->error[0] == '\0');
    p->lock = r->lock;
    p->asking = false;
}

static void on_shown(void *arg, const struct fl_result *r)
{
    struct progress *p = arg;
    assert_int_equal(is_done(r->status), r->locks != NULL);
    p->asking = false;
}

static void on_done(void *arg, const struct fl_result *r)
{
    struct progress *p = arg;
    (void)is_done(r->status);
    p->asking = false;
}

static void on_change(void *arg, fl_lock *lock, enum fl_hold_state state)
{
    struct progress *p = arg;
    p->state = state;
}

static void go_on(fl_client *c)
{
    struct pollfd p = {.fd = fl_fd(c), .events = POLLIN};
    (void)poll(&p, 1, 10);
    fl_process(c);
}

static void finish(fl_client *c, const struct progress *p)
{
    while (p->asking) {
        go_on(c);
    }
}

static void scenario_loop(void)
{
    const struct fl_ask show = {.what = FL_ASK_SHOW, .name = fl_str("x")};
    struct progress p = {.state = FL_HOLD_SAFE};
    const struct fl_take how = {.ttl_ms = 60, .on_change = on_change, .arg = &p};
    fl_client *c = NULL;
    if (!is_done(fl_open(address, &on_loop, &c))) {
        assert_null(c);
        return;
    }
    p.asking = is_done(fl_lock_take_start(c, "x", &how, on_taken, &p, NULL));
    finish(c, &p);
    if (p.lock != NULL) { /* through one renewal, or what is left when it fails */
        uint64_t first_ms = fl_lock_deadline_ms(p.lock);
        while (fl_lock_state(p.lock) != FL_HOLD_LOST && fl_lock_deadline_ms(p.lock) == first_ms) {
            go_on(c);
        }
        while (fl_lock_state(p.lock) == FL_HOLD_LOST && p.state != FL_HOLD_LOST) {
            go_on(c); /* what has changed by now is told */
        }
    }
    p.asking = is_done(fl_ask_start(c, &show, on_shown, &p, NULL));
    finish(c, &p);
    p.asking = p.lock != NULL && is_done(fl_lock_release_start(p.lock, 0, on_done, &p));
    finish(c, &p);
    fl_close(c);
}

static void on_issued(void *arg, const struct fl_result *r)
{
    struct progress *p = arg;
    assert_int_equal(is_done(r->status), r->token == 8);
    p->asking = false;
}

static void scenario_session(void)
{
    const struct fl_ask token = {.what = FL_ASK_TOKEN, .name = fl_str("x")};
    struct progress p = {.state = FL_HOLD_SAFE};
    struct progress under = {.state = FL_HOLD_SAFE};
    fl_client *c = NULL;
    if (!is_done(fl_open(address, &on_loop, &c))) {
        assert_null(c);
        return;
    }
    p.asking = is_done(fl_session_open_start(c, NULL, on_taken, &p, NULL));
    finish(c, &p);
    const struct fl_take how = {.session = p.lock};
    under.asking =
        p.lock != NULL && is_done(fl_lock_take_start(c, "x", &how, on_taken, &under, NULL));
    finish(c, &under);
    p.asking = is_done(fl_ask_start(c, &token, on_issued, &p, NULL));
    finish(c, &p);
    p.asking = under.lock != NULL && is_done(fl_lock_release_start(under.lock, 0, on_done, &p));
    finish(c, &p);
    fl_lock_free(p.lock);
    fl_close(c);
}

/* Two locks under the session that they share. */
static void scenario_shared(void)
{
    struct progress p[2] = {{.state = FL_HOLD_SAFE}, {.state = FL_HOLD_SAFE}};
    fl_client *c = NULL;
    if (!is_done(fl_open(address, &on_loop, &c))) {
        assert_null(c);
        return;
    }
    p[0].asking = is_done(fl_lock_take_start(c, "x", NULL, on_taken, &p[0], NULL));
    p[1].asking = is_done(fl_lock_take_start(c, "y", NULL, on_taken, &p[1], NULL));
    finish(c, &p[0]);
    finish(c, &p[1]);
    fl_lock_free(p[0].lock);
    fl_close(c);
    fl_lock_free(p[1].lock);
}

/* Whoever opens a client, hears why there is none. */
static void scenario_redlock(void)
{
    const struct fl_redlock_options servers = {.servers = "127.0.0.1:1,127.0.0.1:2"};
    fl_client *c = NULL;
    bool opened = is_done(fl_redlock_open(&servers, &c));
    assert_int_equal(opened, c != NULL);
    assert_int_equal(opened, fl_client_error(NULL)[0] == '\0');
    fl_close(c);
}

static void run_with_failures(void (*scenario)(void))
{
    scenario(); /* what libraries allocate once for ever */
    long k = 0;
    do {
        k++;
        allocations = 0;
        fail_at = k;
        live = 0;
        counting = true;
        scenario();
        counting = false;
        if (live != 0) {
            fail_msg("%ld blocks are left when allocation %ld fails", live, k);
        }
    } while (allocations >= k);
    printf("%ld allocations failed, one at a time\n", k - 1);
    assert_true(k > 2);
}

TEST(test_blocking)
{
    run_with_failures(scenario_blocking);
}

TEST(test_loop)
{
    run_with_failures(scenario_loop);
}

TEST(test_session)
{
    run_with_failures(scenario_session);
}

TEST(test_shared)
{
    run_with_failures(scenario_shared);
}

TEST(test_redlock)
{
    run_with_failures(scenario_redlock);
}

int main(int argc, char **argv)
{
    return unit_run(argc, argv, start_server, NULL);
}
