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

#include "fencelock/hold.h"

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

static void ask_about_sessions(fl_client *c)
{
    struct fl_session session;
    struct fl_session_list *list = NULL;
    struct fl_grant grant;
    if (is_done(fl_session_open(c, NULL, &session))) {
        const struct fl_acquire_options under = {.session = &session};
        if (is_done(fl_acquire(c, fl_str("y"), &under, &grant))) {
            assert_int_equal(grant.token, 7);
        }
        (void)is_done(fl_session_renew(c, &session, 0));
        if (is_done(fl_sessions(c, fl_str(""), 0, 0, &list))) {
            assert_int_equal(list->len, 1);
        }
        fl_session_list_free(list);
        (void)is_done(fl_session_close(c, &session, 0));
    }
}

static void scenario_blocking(void)
{
    fl_client *c = NULL;
    struct fl_grant grant;
    struct fl_lock_list *list = NULL;
    if (!is_done(fl_client_create(address, &options, &c))) {
        assert_null(c);
        return;
    }
    if (is_done(fl_acquire(c, fl_str("x"), NULL, &grant))) {
        assert_int_equal(grant.token, 7);
        (void)is_done(fl_renew(c, fl_str("x"), &grant, 0));
        (void)is_done(fl_check(c, fl_str("x"), grant.token, 0));
        (void)is_done(fl_release(c, fl_str("x"), grant.token, 0));
    }
    if (is_done(fl_show(c, fl_str("x"), 0, &list))) {
        assert_int_equal(list->locks[0].queue_len, 1);
    }
    fl_lock_list_free(list);
    list = NULL;
    if (is_done(fl_locks(c, fl_str(""), fl_str(""), 0, 0, &list))) {
        assert_int_equal(list->len, 1);
    }
    fl_lock_list_free(list);
    ask_about_sessions(c);
    fl_client_destroy(c);
}

struct progress {
    fl_lock *lock;
    bool asking;
    enum fl_hold_state state;
};

static void on_acquired(void *arg, int status, const char *error, fl_lock *lock)
{
    struct progress *p = arg;
    assert_int_equal(is_done(status), lock != NULL);
    assert_int_equal(is_done(status), error[0] == '\0');
    p->lock = lock;
    p->asking = false;
}

static void on_shown(void *arg, int status, const char *error, struct fl_lock_list *list)
{
    struct progress *p = arg;
    assert_int_equal(is_done(status), list != NULL);
    fl_lock_list_free(list);
    p->asking = false;
}

static void on_done(void *arg, int status, const char *error)
{
    struct progress *p = arg;
    (void)is_done(status);
    p->asking = false;
}

static void on_change(void *arg, fl_lock *lock, enum fl_hold_state state)
{
    struct progress *p = arg;
    p->state = state;
}

static void go_on(fl_async *a)
{
    struct pollfd p = {.fd = fl_async_fd(a), .events = POLLIN};
    (void)poll(&p, 1, 10);
    fl_async_process(a);
}

static void scenario_async(void)
{
    struct progress p = {.state = FL_HOLD_SAFE};
    const struct fl_acquire_options acquire = {.ttl_ms = 60};
    const struct fl_hold_options hold = {.on_change = on_change, .arg = &p};
    fl_async *a = NULL;
    if (!is_done(fl_async_create(address, &options, &a))) {
        assert_null(a);
        return;
    }
    p.asking = is_done(fl_async_acquire(a, fl_str("x"), &acquire, &hold, on_acquired, &p, NULL));
    while (p.asking) {
        go_on(a);
    }
    if (p.lock != NULL) { /* through one renewal, or what is left when it fails */
        uint64_t first_ms = fl_lock_deadline_ms(p.lock);
        while (fl_lock_state(p.lock) != FL_HOLD_LOST && fl_lock_deadline_ms(p.lock) == first_ms) {
            go_on(a);
        }
        enum fl_hold_state state = fl_lock_state(p.lock); /* and what has changed by now is told */
        assert_int_equal(p.state == FL_HOLD_LOST, state == FL_HOLD_LOST);
    }
    p.asking = is_done(fl_async_show(a, fl_str("x"), 0, on_shown, &p, NULL));
    while (p.asking) {
        go_on(a);
    }
    p.asking = p.lock != NULL && is_done(fl_async_release(p.lock, 0, on_done, &p));
    while (p.asking) {
        go_on(a);
    }
    if (p.lock != NULL) {
        assert_int_equal(fl_lock_reason(p.lock) == FL_LOST_NOT, false);
    }
    fl_lock_free(p.lock);
    fl_async_destroy(a);
}

static void on_token(void *arg, int status, const char *error, fl_token token)
{
    struct progress *p = arg;
    assert_int_equal(is_done(status), token == 7);
    p->asking = false;
}

static void on_issued(void *arg, int status, const char *error, fl_token token)
{
    struct progress *p = arg;
    assert_int_equal(is_done(status), token == 8);
    p->asking = false;
}

static void scenario_async_session(void)
{
    struct progress p = {.state = FL_HOLD_SAFE};
    fl_async *a = NULL;
    if (!is_done(fl_async_create(address, &options, &a))) {
        assert_null(a);
        return;
    }
    p.asking = is_done(fl_async_session(a, NULL, NULL, on_acquired, &p, NULL));
    while (p.asking) {
        go_on(a);
    }
    p.asking = p.lock != NULL &&
               is_done(fl_async_acquire_under(p.lock, fl_str("x"), NULL, on_token, &p, NULL));
    while (p.asking) {
        go_on(a);
    }
    p.asking = is_done(fl_async_issue_token(a, fl_str("x"), 0, on_issued, &p, NULL));
    while (p.asking) {
        go_on(a);
    }
    p.asking =
        p.lock != NULL && is_done(fl_async_release_under(p.lock, fl_str("x"), 7, 0, on_done, &p));
    while (p.asking) {
        go_on(a);
    }
    fl_lock_free(p.lock);
    fl_async_destroy(a);
}

static void scenario_keepalive(void)
{
    fl_keepalive *k = NULL;
    fl_lock *lock = NULL;
    const struct fl_grant grant = {.token = 7, .ttl_ms = 60000, .deadline_ms = fl_now_ms() + 50000};
    if (!is_done(fl_keepalive_start(address, &options, &k))) {
        assert_null(k);
        return;
    }
    if (is_done(fl_keepalive_lock(k, fl_str("x"), &grant, NULL, &lock))) {
        assert_int_equal(fl_lock_state(lock), FL_HOLD_SAFE);
    }
    fl_keepalive_stop(k);
    fl_lock_free(lock);
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

TEST(test_async)
{
    run_with_failures(scenario_async);
}

TEST(test_async_session)
{
    run_with_failures(scenario_async_session);
}

TEST(test_keepalive)
{
    run_with_failures(scenario_keepalive);
}

int main(int argc, char **argv)
{
    return unit_run(argc, argv, start_server, NULL);
}
