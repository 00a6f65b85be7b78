/* fork_driver.c: handles that exist before fork(), in the parent and in a child at once. Each
 * scenario ends with 0, or names what is wrong. Driven by tests/integration/forks.py.
 *
 *   fork_driver client|async|keepalive|storm NODES [CACERT]
 *   fork_driver store ADDRESS | marks DIR | redlock|redlock_loop SERVERS
 *   fork_driver redlock_tokens SERVERS NODES */
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <uv.h>

#include "client/handle.h"
#include "fencelock/fence.h"
#include "fencelock/redlock.h"
#include "fencelock/store_client.h"

#define PATIENCE_MS UINT64_C(240000)
#define LONG_MS UINT64_C(1200000)
#define KEYS 100
#define WORKERS 4
#define STORMS 100

#define CHECK(ok)                                                                                  \
    do {                                                                                           \
        if (!(ok)) {                                                                               \
            printf("line %d: not so: %s\n", __LINE__, #ok);                                        \
            fflush(stdout);                                                                        \
            _exit(1);                                                                              \
        }                                                                                          \
    } while (0)

static struct fl_tls_options tls;
static struct fl_client_options patient = {.timeout_ms = PATIENCE_MS};

/* ---- two processes --------------------------------------------------------------------------- */

#define FDS 256

static int channel[2];
static ino_t of_parent[FDS]; /* its sockets at the last fork; 0: none */

static ino_t socket_at(int fd)
{
    struct stat st;
    bool is = fd != channel[0] && fd != channel[1] && fstat(fd, &st) == 0 && S_ISSOCK(st.st_mode);
    return is ? st.st_ino : 0;
}

/* Whether this process still has a socket that its parent had. */
static bool has_inherited(void)
{
    for (int fd = 3; fd < FDS; fd++) {
        for (int i = 3; i < FDS; i++) {
            if (of_parent[i] != 0 && socket_at(fd) == of_parent[i]) {
                return true;
            }
        }
    }
    return false;
}

static pid_t fork_child(void)
{
    for (int fd = 3; fd < FDS; fd++) {
        of_parent[fd] = socket_at(fd);
    }
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, channel) == 0);
    pid_t child = fork();
    CHECK(child >= 0);
    (void)alarm(600);
    return child;
}

static void tell(int end)
{
    CHECK(write(channel[end], "x", 1) == 1);
}

static void hear(int end)
{
    char c;
    CHECK(read(channel[end], &c, 1) == 1);
}

static void join(pid_t child)
{
    int status;
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    close(channel[0]);
    close(channel[1]);
}

/* The sockets of this process, but for the channel. */
static unsigned sockets(void)
{
    unsigned n = 0;
    for (int fd = 3; fd < FDS; fd++) {
        n += socket_at(fd) != 0;
    }
    return n;
}

/* The local port of the only socket. */
static unsigned port(void)
{
    for (int fd = 3; fd < 256; fd++) {
        struct sockaddr_in at;
        socklen_t len = sizeof at;
        if (getsockname(fd, (struct sockaddr *)&at, &len) == 0 && at.sin_family == AF_INET) {
            return at.sin_port;
        }
    }
    return 0;
}

/* ---- the blocking client --------------------------------------------------------------------- */

static int ask(fl_client *c, enum fl_asked what, const char *name, fl_token token, uint64_t ttl_ms)
{
    struct fl_result r;
    const struct fl_ask ask = {
        .what = what, .name = fl_str(name), .token = token, .ttl_ms = ttl_ms};
    return fl_ask(c, &ask, &r);
}

static void client_in_child(fl_client *c, fl_lock *held, fl_token token, fl_lock *session)
{
    const struct fl_take long_one = {.ttl_ms = LONG_MS, .unrenewed = true};
    const struct fl_take under = {.session = session};
    fl_lock *mine;
    fl_token newer;
    CHECK(fl_lock_remaining_ms(held) == 0);
    CHECK(ask(c, FL_ASK_RELEASE, "held", token, 0) == FL_ENOTHELD);
    CHECK(strstr(fl_client_error(c), "forked") != NULL);
    CHECK(fl_lock_take(c, "other", &under, &mine) == FL_ENOSESSION);
    CHECK(fl_lock_release(session) == FL_ENOSESSION);
    CHECK(fl_lock_take(c, "held", &long_one, &mine) == FL_ENOTHELD);
    CHECK(sockets() > 0 && !has_inherited());
    CHECK(fl_lock_take(c, "of the child", &long_one, &mine) == 0);
    CHECK(fl_lock_token(mine, &newer) == 0 && newer > token);
    CHECK(ask(c, FL_ASK_RENEW, "held", token, LONG_MS) == FL_ENOTHELD);
    CHECK(fl_lock_release(mine) == 0);
    CHECK(fl_lock_release(held) == FL_ENOTHELD);
}

static void client(const char *nodes, bool connected)
{
    const struct fl_take long_one = {.ttl_ms = LONG_MS, .unrenewed = true};
    const struct fl_take session_options = {.ttl_ms = LONG_MS};
    struct fl_client_options options = patient;
    fl_lock *lock = NULL;
    fl_lock *session;
    fl_client *c;
    fl_token token;
    char owner[FL_OWNER_MAX + 1] = "an-owner-that-the-user-gave";
    options.owner = fl_str(owner);
    CHECK(fl_open(nodes, &options, &c) == 0);
    if (!connected) { /* an owner that is used twice is granted the same token twice */
        pid_t child = fork_child();
        int rc = fl_lock_take(c, "once", &long_one, &lock);
        tell(child == 0 ? 1 : 0);
        hear(child == 0 ? 1 : 0);
        CHECK(rc == 0 || rc == FL_ENOTHELD);
        bool is_owner = memcmp(fl_client_owner(c).data, owner, strlen(owner)) == 0;
        CHECK(is_owner == (child != 0));
        CHECK(rc != 0 || fl_lock_release(lock) == 0);
        if (child == 0) {
            _exit(rc == 0 ? 0 : 1);
        }
        int status;
        CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status));
        CHECK((rc == 0) != (WEXITSTATUS(status) == 0));
        close(channel[0]);
        close(channel[1]);
        fl_close(c);
        return;
    }
    CHECK(fl_lock_take(c, "held", &long_one, &lock) == 0 && fl_lock_token(lock, &token) == 0);
    CHECK(fl_session_open(c, &session_options, &session) == 0);
    fl_watch *watch;
    const struct fl_event *event;
    CHECK(fl_watch_open(c, "held", NULL, &watch) == 0);
    CHECK(fl_watch_next(watch, 0, &event) == 0 && event->kind == FL_EVENT_LISTENS);
    pid_t child = fork_child();
    if (child == 0) {
        CHECK(fl_watch_next(watch, 0, &event) == FL_EINVAL && fl_watch_poll(watch) == NULL);
        fl_watch_close(watch);
        client_in_child(c, lock, token, session);
        fl_close(c);
        _exit(0);
    }
    unsigned before = port();
    for (int i = 0; i < KEYS; i++) {
        CHECK(ask(c, FL_ASK_CHECK, "held", token, 0) == 0);
    }
    join(child);
    child = fork_child();
    if (child == 0) {
        fl_close(c); /* without a single call */
        fl_watch_close(watch);
        _exit(0);
    }
    join(child);
    CHECK(ask(c, FL_ASK_BREAK, "of the child", FL_TOKEN_NONE, 0) == FL_ENOTHELD);
    CHECK(fl_watch_next(watch, 500, &event) == FL_ETIMEOUT); /* it is not interrupted */
    fl_watch_close(watch);
    CHECK(fl_lock_remaining_ms(lock) > 0);
    CHECK(ask(c, FL_ASK_RENEW, "held", token, LONG_MS) == 0);
    CHECK(fl_lock_release(lock) == 0);
    CHECK(fl_lock_release(session) == 0);
    CHECK(port() == before); /* its connection was not ended by a child */
    fl_close(c);
}

/* ---- the storage ----------------------------------------------------------------------------- */

static void work_at_store(fl_store *s, int worker)
{
    char key[32];
    snprintf(key, sizeof key, "lock-%d", worker);
    const struct fl_fencing fencing = {.lock = fl_str(strdup(key)), .token = 1};
    for (int i = 0; i < KEYS; i++) {
        char *value;
        size_t len;
        snprintf(key, sizeof key, "key-%d-%d", worker, i);
        CHECK(fl_store_set(s, fl_str(key), fl_str(key), fencing, 0, NULL) == 0);
        CHECK(fl_store_get(s, fl_str(key), fencing, 0, NULL, &value, &len) == 0);
        CHECK(len == strlen(key) && memcmp(value, key, len) == 0);
        free(value);
    }
    free((void *)(uintptr_t)fencing.lock.data);
}

static void store(const char *address)
{
    fl_store *s;
    pid_t workers[WORKERS];
    CHECK(fl_store_open(address, &(struct fl_client_options){.timeout_ms = PATIENCE_MS}, &s) == 0);
    work_at_store(s, WORKERS); /* so it is connected */
    for (int i = 0; i < WORKERS; i++) {
        workers[i] = fork();
        if (workers[i] == 0) {
            work_at_store(s, i);
            fl_store_close(s);
            _exit(0);
        }
    }
    work_at_store(s, WORKERS);
    for (int i = 0; i < WORKERS; i++) {
        int status;
        CHECK(waitpid(workers[i], &status, 0) == workers[i] && status == 0);
    }
    work_at_store(s, WORKERS);
    fl_store_close(s);
}

/* ---- on an event loop ------------------------------------------------------------------------ */

struct event {
    bool over;
    int status;
    fl_lock *lock;
};

static void on_done(void *arg, const struct fl_result *r)
{
    struct event *e = arg;
    *e = (struct event){true, r->status, r->lock};
}

static void finish(fl_client *c, const struct event *e)
{
    while (!e->over) {
        struct pollfd p = {.fd = fl_fd(c), .events = POLLIN};
        (void)poll(&p, 1, -1);
        fl_process(c);
    }
}

static unsigned changes; /* calls of on_change */

static void on_change(void *arg, fl_lock *lock, enum fl_hold_state state)
{
    changes++;
}

static void take(fl_client *c, const char *name, struct event *e)
{
    const struct fl_take options = {.ttl_ms = LONG_MS, .on_change = on_change};
    *e = (struct event){.over = false};
    CHECK(fl_lock_take_start(c, name, &options, on_done, e, NULL) == 0);
    finish(c, e);
}

static void check_is_lost(fl_lock *lock)
{
    fl_token token;
    struct fl_fencing fencing;
    CHECK(fl_lock_state(lock) == FL_HOLD_LOST && fl_lock_reason(lock) == FL_LOST_INHERITED);
    CHECK(fl_lock_remaining_ms(lock) == 0);
    CHECK(fl_lock_token(lock, &token) == FL_ENOTHELD);
    CHECK(fl_lock_fencing(lock, &fencing) == FL_ENOTHELD);
}

/* The descriptors that an epoll descriptor watches. */
static unsigned watched(int fd)
{
    char path[64];
    char line[256];
    unsigned n = 0;
    snprintf(path, sizeof path, "/proc/self/fdinfo/%d", fd);
    FILE *f = fopen(path, "r");
    CHECK(f != NULL);
    while (fgets(line, sizeof line, f) != NULL) {
        n += strncmp(line, "tfd:", 4) == 0;
    }
    fclose(f);
    return n;
}

/* Waits in the queue of a lock that is held, while the process forks. */
static void async(const char *nodes)
{
    const struct fl_take wait = {.ttl_ms = LONG_MS, .wait_ms = PATIENCE_MS};
    struct fl_client_options options = patient;
    struct event held = {.over = false};
    struct event waiting = {.over = false};
    struct event e = {.over = false};
    fl_client *a;
    fl_client *other;
    fl_call call;
    fl_token token;
    options.own_loop = true;
    CHECK(fl_open(nodes, &options, &a) == 0 && fl_open(nodes, &options, &other) == 0);
    take(other, "awaited", &e);
    fl_lock *awaited = e.lock;
    CHECK(awaited != NULL);
    take(a, "held", &held);
    CHECK(held.status == 0);
    CHECK(fl_lock_take_start(a, "awaited", &wait, on_done, &waiting, &call) == 0);
    take(a, "another", &e); /* now the wait is on its way */
    CHECK(fl_lock_release_start(e.lock, 0, NULL, NULL) == 0);
    pid_t child = fork_child();
    if (child == 0) {
        check_is_lost(held.lock);
        CHECK(fl_lock_release_start(held.lock, 0, on_done, &e) == FL_ENOTHELD);
        take(a, "held", &e);
        CHECK(e.status == FL_ENOTHELD && !waiting.over && changes == 0);
        take(a, "of the child", &e);
        CHECK(e.status == 0 && fl_lock_token(e.lock, &token) == 0);
        fl_call_cancel(a, call); /* of the parent's: it still waits there */
        fl_close(other);         /* without a single call */
        fl_lock_free(awaited);
        fl_close(a);
        fl_lock_free(e.lock);
        _exit(0);
    }
    join(child);
    unsigned before = watched(fl_fd(a));
    child = fork_child();
    if (child == 0) {
        fl_close(a); /* without a single call */
        fl_lock_free(held.lock);
        _exit(0);
    }
    join(child);
    CHECK(watched(fl_fd(a)) == before);
    CHECK(!waiting.over && fl_lock_token(held.lock, &token) == 0);
    e.over = false;
    CHECK(fl_lock_release_start(awaited, 0, on_done, &e) == 0);
    finish(other, &e);
    CHECK(e.status == 0);
    finish(a, &waiting);
    CHECK(waiting.status == 0 && fl_lock_token(waiting.lock, &token) == 0);
    fl_lock_free(waiting.lock);
    fl_lock_free(held.lock);
    fl_close(a);
    fl_close(other);
}

/* ---- with the library's thread --------------------------------------------------------------- */

static void wait_for_renewal(fl_lock *lock)
{
    uint64_t deadline_ms = fl_lock_deadline_ms(lock);
    while (fl_lock_deadline_ms(lock) == deadline_ms) {
        CHECK(fl_lock_state(lock) != FL_HOLD_LOST);
        (void)poll(NULL, 0, 10);
    }
}

/* Its TTL is long, and its first renewal is due at once. */
static fl_lock *keep_ripe(fl_client *c, const char *name)
{
    const struct fl_take options = {.ttl_ms = LONG_MS};
    fl_lock *lock;
    CHECK(fl_lock_take(c, name, &options, &lock) == 0);
    (void)pthread_mutex_lock(&c->mutex);
    lock->lease.renew_ms = 0;
    fli_due_set(&c->engine.dues, &lock->due, 0);
    fli_engine_wake(&c->engine);
    (void)pthread_mutex_unlock(&c->mutex);
    return lock;
}

static void keepalive(const char *nodes)
{
    fl_client *c;
    fl_token token;
    CHECK(fl_open(nodes, &patient, &c) == 0);
    fl_lock *held = keep_ripe(c, "kept");
    wait_for_renewal(held);
    pid_t child = fork_child();
    if (child == 0) {
        check_is_lost(held);
        fl_lock *mine = keep_ripe(c, "kept by the child");
        wait_for_renewal(mine); /* so there is a thread */
        CHECK(fl_lock_release(mine) == 0);
        CHECK(fl_lock_release(held) == FL_ENOTHELD);
        fl_close(c);
        _exit(0);
    }
    join(child);
    child = fork_child();
    if (child == 0) {
        fl_close(c); /* waits for no thread: it has none */
        fl_lock_free(held);
        _exit(0);
    }
    join(child);
    CHECK(fl_lock_token(held, &token) == 0);
    fl_lock *second = keep_ripe(c, "kept afterwards");
    wait_for_renewal(second);
    CHECK(fl_lock_release(held) == 0);
    fl_lock_free(second);
    fl_close(c);
}

static void *look(void *arg)
{
    fl_token token;
    while (fl_lock_token(arg, &token) == 0) {
    }
    return NULL;
}

/* Forks while the library's thread and one of the user's are at work, and stops the library's while
 * the other is inside a call. */
static void storm(const char *nodes)
{
    struct fl_client_options options = patient;
    options.owner = fl_str("the-owner-of-the-storm");
    for (int i = 0; i < STORMS; i++) {
        pthread_t looker;
        fl_client *c;
        CHECK(fl_open(nodes, &options, &c) == 0);
        fl_lock *lock = keep_ripe(c, "storm");
        CHECK(pthread_create(&looker, NULL, look, lock) == 0);
        pid_t child = fork_child();
        if (child == 0) {
            check_is_lost(lock);
            fl_lock_free(lock);
            fl_close(c);
            _exit(0);
        }
        fl_close(c);
        (void)pthread_join(looker, NULL);
        fl_lock_free(lock);
        join(child);
    }
}

/* ---- marks ----------------------------------------------------------------------------------- */

static void marks(const char *dir)
{
    fl_fence *f;
    fl_token mark;
    size_t removed;
    CHECK(fl_fence_open(dir, 0, &f) == 0);
    CHECK(fl_fence_admit(f, "lock", 4, 5, NULL) == 0);
    pid_t child = fork_child();
    if (child == 0) {
        fl_fence *again;
        CHECK(fl_fence_admit(f, "lock", 4, 6, &mark) == FL_EBUSY);
        CHECK(fl_fence_mark(f, "lock", 4, &mark) == FL_EBUSY);
        CHECK(fl_fence_forget(f, 6, 1, &removed) == FL_EBUSY);
        CHECK(fl_fence_open(dir, 0, &again) == FL_EBUSY); /* the parent has it */
        fl_fence_close(f);
        CHECK(fl_fence_open(dir, 0, &again) == FL_EBUSY);
        tell(1);
        hear(1); /* the parent has closed it */
        CHECK(fl_fence_open(dir, 0, &again) == 0);
        CHECK(fl_fence_mark(again, "lock", 4, &mark) == 0 && mark == 7);
        fl_fence_close(again);
        _exit(0);
    }
    hear(0);
    CHECK(fl_fence_admit(f, "lock", 4, 7, NULL) == 0);
    CHECK(fl_fence_admit(f, "lock", 4, 6, &mark) == FL_ESTALE && mark == 7);
    fl_fence_close(f);
    tell(0);
    join(child);
}

/* ---- Redlock --------------------------------------------------------------------------------- */

static struct fl_redlock_options redlock_options(const char *servers)
{
    return (struct fl_redlock_options){.servers = servers,
                                       .restarts_are_safe = true,
                                       .budget_ms = LONG_MS / 20,
                                       .connect_ms = PATIENCE_MS,
                                       .hung_ms = PATIENCE_MS,
                                       .max_ttl_ms = LONG_MS};
}

static const struct fl_take long_redlock = {.ttl_ms = LONG_MS};

static void redlock(const char *servers)
{
    const struct fl_redlock_options options = redlock_options(servers);
    const struct fl_take unrenewed = {.ttl_ms = LONG_MS, .unrenewed = true};
    fl_lock *held;
    fl_lock *mine;
    fl_client *r;
    CHECK(fl_redlock_open(&options, &r) == 0);
    CHECK(fl_lock_take(r, "held", &unrenewed, &held) == 0);
    unsigned before = sockets();
    pid_t child = fork_child();
    if (child == 0) {
        CHECK(fl_lock_state(held) == FL_HOLD_LOST);
        CHECK(fl_lock_release(held) == FL_ENOTHELD);
        CHECK(fl_lock_take(r, "held", &unrenewed, &mine) == FL_ENOTHELD);
        CHECK(fl_lock_take(r, "of the child", &unrenewed, &mine) == 0);
        CHECK(sockets() == before);
        CHECK(fl_lock_release(mine) == 0);
        fl_close(r);
        _exit(0);
    }
    uint64_t deadline_ms = fl_lock_deadline_ms(held);
    char value[FL_REDLOCK_VALUE_LEN + 1] = "";
    memcpy(value, fl_redlock_value(held).data, FL_REDLOCK_VALUE_LEN);
    for (int i = 0; i < KEYS; i++) {
        CHECK(fl_redlock_extend(r, fl_str("held"), value, LONG_MS, &deadline_ms) == 0);
    }
    join(child);
    child = fork_child();
    if (child == 0) {
        fl_close(r); /* without a single call */
        _exit(0);
    }
    join(child);
    CHECK(fl_redlock_extend(r, fl_str("held"), value, LONG_MS, &deadline_ms) == 0);
    CHECK(fl_lock_release(held) == 0);
    fl_close(r);
}

struct redlock_event {
    bool over;
    int result;
    fl_lock *lock;
};

static void on_redlock(void *ctx, const struct fl_result *result)
{
    struct redlock_event *e = ctx;
    *e = (struct redlock_event){true, result->status, result->lock};
}

static void run_until(fl_client *r, const struct redlock_event *e)
{
    while (!e->over) {
        struct pollfd p = {.fd = fl_fd(r), .events = POLLIN};
        CHECK(poll(&p, 1, (int)PATIENCE_MS) == 1);
        fl_process(r);
    }
}

static fl_lock *take_redlock(fl_client *r, const char *name)
{
    struct redlock_event e = {.over = false};
    CHECK(fl_lock_take_start(r, name, &long_redlock, on_redlock, &e, NULL) == 0);
    run_until(r, &e);
    CHECK(e.result == 0);
    return e.lock;
}

/* No descriptor can be opened, and then some can. */
static void call_without_descriptors(fl_client *r)
{
    struct rlimit before;
    struct redlock_event e;
    CHECK(getrlimit(RLIMIT_NOFILE, &before) == 0);
    const struct rlimit none = {.rlim_cur = 0, .rlim_max = before.rlim_max};
    CHECK(setrlimit(RLIMIT_NOFILE, &none) == 0);
    CHECK(fl_lock_take_start(r, "of none", &long_redlock, on_redlock, &e, NULL) == FL_ESYSTEM);
    CHECK(setrlimit(RLIMIT_NOFILE, &before) == 0);
    CHECK(fl_lock_release(take_redlock(r, "of some")) == 0);
}

/* A child that can open no descriptor closes the client all the same. */
static void close_without_descriptors(fl_client *r)
{
    const struct rlimit none = {.rlim_cur = 0, .rlim_max = 0};
    CHECK(setrlimit(RLIMIT_NOFILE, &none) == 0);
}

static void use_redlock(fl_client *r)
{
    CHECK(fl_lock_release(take_redlock(r, "of the child")) == 0);
}

static void redlock_loop(const char *servers)
{
    struct fl_redlock_options options = redlock_options(servers);
    const struct fl_take wait = {.ttl_ms = LONG_MS, .wait_ms = LONG_MS};
    struct redlock_event waiting = {.over = false};
    fl_client *r;
    options.own_loop = true;
    CHECK(fl_redlock_open(&options, &r) == 0);
    fl_lock *held = take_redlock(r, "held");
    CHECK(fl_lock_take_start(r, "held", &wait, on_redlock, &waiting, NULL) == 0);
    void (*const first[])(fl_client *) = {call_without_descriptors, close_without_descriptors,
                                          use_redlock};
    for (size_t i = 0; i < sizeof first / sizeof first[0]; i++) {
        pid_t child = fork_child();
        if (child == 0) {
            first[i](r);
            CHECK(fl_lock_reason(held) == FL_LOST_INHERITED && !waiting.over);
            fl_lock_free(held);
            fl_close(r);
            _exit(0);
        }
        join(child);
    }
    fl_lock *another = take_redlock(r, "another");
    CHECK(!waiting.over && fl_lock_state(held) != FL_HOLD_LOST);
    CHECK(fl_lock_release(held) == 0);
    run_until(r, &waiting); /* the wait ends with the lock */
    CHECK(waiting.result == 0 && fl_lock_release(waiting.lock) == 0);
    CHECK(fl_lock_release(another) == 0);
    fl_close(r);
}

static void take_with_token(fl_client *r)
{
    fl_lock *lock;
    CHECK(fl_lock_take(r, "fenced", &long_redlock, &lock) == 0);
    CHECK(fl_lock_granted(lock) != FL_TOKEN_NONE);
    CHECK(fl_lock_release(lock) == 0);
}

/* The tokens' client has a thread in the parent, and needs another one in the child. */
static void redlock_tokens(const char *servers, const char *nodes)
{
    struct fl_redlock_options options = redlock_options(servers);
    fl_client *r;
    CHECK(fl_open(nodes, &patient, &options.tokens) == 0);
    CHECK(fl_redlock_open(&options, &r) == 0);
    take_with_token(r);
    pid_t child = fork_child();
    if (child != 0) {
        join(child);
    }
    take_with_token(r);
    fl_close(r);
    fl_close(options.tokens);
    if (child == 0) {
        _exit(0);
    }
}

int main(int argc, char **argv)
{
    CHECK(argc >= 3);
    if (argc > 3 && strcmp(argv[1], "redlock_tokens") == 0) {
        redlock_tokens(argv[2], argv[3]);
        puts("right");
        return 0;
    }
    if (argc > 3) {
        tls.ca_file = argv[3];
        patient.tls = &tls;
    }
    const char *at = argv[2];
    if (strcmp(argv[1], "client") == 0) {
        client(at, false);
        client(at, true);
    } else if (strcmp(argv[1], "store") == 0) {
        store(at);
    } else if (strcmp(argv[1], "async") == 0) {
        async(at);
    } else if (strcmp(argv[1], "keepalive") == 0) {
        keepalive(at);
    } else if (strcmp(argv[1], "storm") == 0) {
        storm(at);
    } else if (strcmp(argv[1], "marks") == 0) {
        marks(at);
    } else if (strcmp(argv[1], "redlock") == 0) {
        redlock(at);
    } else {
        CHECK(strcmp(argv[1], "redlock_loop") == 0);
        redlock_loop(at);
    }
    puts("right");
    return 0;
}
