/* hold_driver.c: locks held by a client, driven line by line over stdin: renewed by the client's
 * thread, on a loop of poll(), or on one of libuv.
 *
 *   hold_driver thread|poll|uv NODES [STORE]
 *   take NAME TTL WAIT RESERVE MAXHOLD | look NAME | release NAME | free NAME | stop
 *   open OWNER TTL | under OWNER NAME WAIT
 *   watch NAME PATTERN | hush NAME
 *   thread only: hammer NAME | claimed NAME TTL [ALSO] | write NAME KEY VALUE
 *
 *   taken NAME RESULT TOKEN
 *   change NAME STATE REASON NOW       from on_change, NOW by fl_now_ms()
 *   look NAME STATE REASON REMAINING RESULT TOKEN, or none
 *   released NAME RESULT
 *   wrote NAME RESULT
 *   event NAME WORD LOCK TOKEN STATUS OWNER
 *
 * hammer asks for the token on a thread of its own until the lock is lost, then prints
 * "hammered NAME NOW". */
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fencelock/store_client.h"
#include "fencelock/uv.h"

#define SLOTS 16
#define WORDS_MAX 8

struct slot {
    char name[64];
    fl_lock *lock;
    fl_watch *watch;
    pthread_t hammer;
    bool hammered;
};

static struct slot slots[SLOTS];
static fl_client *client;
static fl_store *store;
static bool blocks;
static struct fl_uv uv;
static bool over;

static const char *word_of(int rc)
{
    return rc == 0 ? "OK" : fl_err_name(rc);
}

static struct slot *slot_of(const char *name)
{
    for (int i = 0; i < SLOTS; i++) {
        if (strcmp(slots[i].name, name) == 0) {
            return &slots[i];
        }
        if (slots[i].name[0] == '\0') {
            snprintf(slots[i].name, sizeof slots[i].name, "%s", name);
            return &slots[i];
        }
    }
    abort();
}

static uint64_t number(const char *text)
{
    return strtoull(text, NULL, 10);
}

static void on_change(void *arg, fl_lock *lock, enum fl_hold_state state)
{
    const struct slot *s = arg;
    printf("change %s %s %d %" PRIu64 "\n", s->name, fl_hold_state_name(state),
           (int)fl_lock_reason(lock), fl_now_ms());
    fflush(stdout);
}

static void taken(struct slot *s, int rc, fl_lock *lock)
{
    fl_token token = FL_TOKEN_NONE;
    s->lock = lock;
    if (lock != NULL && fl_lock_token(lock, &token) != 0) {
        token = FL_TOKEN_NONE;
    }
    printf("taken %s %s %" PRIu64 "\n", s->name, word_of(rc), token);
    fflush(stdout);
}

static void on_acquired(void *arg, const struct fl_result *r)
{
    if ((r->status == 0) != (r->error[0] == '\0') || (r->status == 0) != (r->lock != NULL)) {
        abort();
    }
    taken(arg, r->status, r->lock);
}

static void released(const struct slot *s, int status)
{
    printf("released %s %s\n", s->name, word_of(status));
    fflush(stdout);
}

static void on_released(void *arg, const struct fl_result *r)
{
    released(arg, r->status);
}

static void take_with(struct slot *s, const struct fl_take *options)
{
    fl_lock *lock = NULL;
    int rc = blocks ? fl_lock_take(client, s->name, options, &lock)
                    : fl_lock_take_start(client, s->name, options, on_acquired, s, NULL);
    if (blocks || rc != 0) {
        taken(s, rc, lock);
    }
}

static void take(struct slot *s, char **w)
{
    const struct fl_take options = {.ttl_ms = number(w[2]),
                                    .wait_ms = number(w[3]),
                                    .reserve_ms = number(w[4]),
                                    .max_hold_ms = number(w[5]),
                                    .on_change = on_change,
                                    .arg = s};
    take_with(s, &options);
}

static void open_session(struct slot *s, char **w)
{
    const struct fl_take options = {
        .ttl_ms = number(w[2]), .owner = fl_str(s->name), .on_change = on_change, .arg = s};
    fl_lock *lock = NULL;
    int rc = blocks ? fl_session_open(client, &options, &lock)
                    : fl_session_open_start(client, &options, on_acquired, s, NULL);
    if (blocks || rc != 0) {
        taken(s, rc, lock);
    }
}

/* A lock under a session is as good as the session. */
static void acquire_under(struct slot *s, char **w)
{
    const struct fl_take options = {.wait_ms = number(w[3]), .session = s->lock};
    take_with(slot_of(w[2]), &options);
}

static void release(struct slot *s)
{
    fl_lock *lock = s->lock;
    s->lock = NULL;
    if (blocks) {
        released(s, fl_lock_release(lock));
    } else if (fl_lock_release_start(lock, 0, on_released, s) != 0) {
        abort();
    }
}

static void take_claimed(struct slot *s, char **w)
{
    const struct fl_bytes also = fl_str(w[3]);
    const struct fl_take options = {.ttl_ms = number(w[2]),
                                    .also = &also,
                                    .also_len = w[3] != NULL ? 1 : 0,
                                    .on_change = on_change,
                                    .arg = s};
    fl_lock *lock = NULL;
    bool store_failed;
    int rc = fl_lock_take_claimed(client, store, s->name, &options, 500, &store_failed, &lock);
    if (store_failed && (rc == 0 || fl_store_error(store)[0] == '\0')) {
        abort();
    }
    taken(s, rc, lock);
}

static void write_key(struct slot *s, char **w)
{
    struct fl_fencing fencing;
    int rc = fl_lock_fencing(s->lock, &fencing);
    if (rc == 0) {
        rc = fl_store_set(store, fl_str(w[2]), fl_str(w[3]), fencing, 0, NULL);
    }
    printf("wrote %s %s\n", s->name, word_of(rc));
    fflush(stdout);
}

static void look(struct slot *s)
{
    fl_token token = FL_TOKEN_NONE;
    if (s->lock == NULL) {
        printf("look %s none\n", s->name);
        fflush(stdout);
        return;
    }
    /* The operation comes first: what it may do must not depend on anybody having asked before. */
    int rc = fl_lock_token(s->lock, &token);
    printf("look %s %s %d %" PRIu64 " %s %" PRIu64 "\n", s->name,
           fl_hold_state_name(fl_lock_state(s->lock)), (int)fl_lock_reason(s->lock),
           fl_lock_remaining_ms(s->lock), word_of(rc), token);
    fflush(stdout);
}

static void *hammer(void *arg)
{
    const struct slot *s = arg;
    fl_token token;
    while (fl_lock_token(s->lock, &token) == 0) {
        if (fl_lock_remaining_ms(s->lock) > 0 && token == FL_TOKEN_NONE) {
            abort();
        }
    }
    printf("hammered %s %" PRIu64 "\n", s->name, fl_now_ms());
    fflush(stdout);
    return NULL;
}

static void hush(struct slot *s)
{
    fl_watch_close(s->watch);
    s->watch = NULL;
    printf("hushed %s\n", s->name);
    fflush(stdout);
}

static void tell(struct slot *s, const struct fl_event *e)
{
    int len = (int)e->name.len;
    printf("event %s %s %.*s %" PRIu64 " %s %.*s\n", s->name, e->word, len == 0 ? 1 : len,
           len == 0 ? "-" : (const char *)e->name.data, e->token, word_of(e->status),
           (int)e->owner.len, (const char *)e->owner.data);
    fflush(stdout);
}

/* Those that have come by now. */
static void tell_events(void)
{
    for (struct slot *s = slots; s < slots + SLOTS; s++) {
        const struct fl_event *e = NULL;
        do {
            if (s->watch == NULL || (blocks && fl_watch_next(s->watch, 1, &e) != 0)) {
                break;
            }
            e = blocks ? e : fl_watch_poll(s->watch);
            if (e != NULL) {
                tell(s, e);
            }
        } while (e != NULL);
    }
}

static bool watches(void)
{
    bool any = false;
    for (int i = 0; i < SLOTS; i++) {
        any = any || slots[i].watch != NULL;
    }
    return any;
}

static void watch(struct slot *s, char **w)
{
    fl_watch *unused;
    if (fl_watch_open(client, w[2], NULL, &s->watch) != 0 ||
        fl_watch_open(client, NULL, NULL, &unused) != FL_EINVAL || unused != NULL) {
        abort();
    }
}

static void obey(char **w)
{
    struct slot *s = w[1] != NULL ? slot_of(w[1]) : NULL;
    if (strcmp(w[0], "stop") == 0) {
        over = true;
    } else if (strcmp(w[0], "take") == 0) {
        take(s, w);
    } else if (strcmp(w[0], "open") == 0) {
        open_session(s, w);
    } else if (strcmp(w[0], "under") == 0) {
        acquire_under(s, w);
    } else if (strcmp(w[0], "claimed") == 0) {
        take_claimed(s, w);
    } else if (strcmp(w[0], "write") == 0) {
        write_key(s, w);
    } else if (strcmp(w[0], "look") == 0) {
        look(s);
    } else if (strcmp(w[0], "watch") == 0) {
        watch(s, w);
    } else if (strcmp(w[0], "hush") == 0) {
        hush(s);
    } else if (strcmp(w[0], "hammer") == 0) {
        s->hammered = pthread_create(&s->hammer, NULL, hammer, s) == 0;
    } else if (strcmp(w[0], "free") == 0) {
        fl_lock_free(s->lock);
        s->lock = NULL;
    } else if (strcmp(w[0], "release") == 0) {
        release(s);
    } else {
        abort();
    }
}

static void obey_line(char *line)
{
    char *w[WORDS_MAX] = {NULL};
    char *save = NULL;
    int n = 0;
    for (char *p = strtok_r(line, " ", &save); p != NULL && n < WORDS_MAX - 1;
         p = strtok_r(NULL, " ", &save)) {
        w[n++] = p;
    }
    if (n > 0) {
        obey(w);
    }
}

static void read_input(void)
{
    static char line[512];
    static size_t len;
    char c;
    ssize_t n;
    do { /* a character at a time, so that nothing hides in a buffer from poll() */
        n = read(STDIN_FILENO, &c, 1);
        if (n == 1 && c != '\n' && len < sizeof line - 1) {
            line[len++] = c;
        }
    } while (n == 1 && c != '\n');
    over = n != 1;
    line[len] = '\0';
    len = 0;
    obey_line(line);
}

static uv_prepare_t prepare;

static void on_prepare(uv_prepare_t *handle)
{
    tell_events();
}

static void on_input(uv_poll_t *handle, int status, int events)
{
    read_input();
    if (over) {
        uv_close((uv_handle_t *)handle, NULL);
        uv_close((uv_handle_t *)&prepare, NULL);
        fl_uv_stop(&uv, NULL);
    }
}

static void run_uv(void)
{
    uv_loop_t loop;
    uv_poll_t input;
    if (uv_loop_init(&loop) != 0 || fl_uv_start(&uv, &loop, client) != 0 ||
        uv_poll_init(&loop, &input, STDIN_FILENO) != 0 ||
        uv_poll_start(&input, UV_READABLE, on_input) != 0 ||
        uv_prepare_init(&loop, &prepare) != 0 || uv_prepare_start(&prepare, on_prepare) != 0) {
        abort();
    }
    (void)uv_run(&loop, UV_RUN_DEFAULT);
    if (uv_loop_close(&loop) != 0) {
        abort();
    }
}

static void run_poll(void)
{
    while (!over) {
        struct pollfd p[] = {{.fd = STDIN_FILENO, .events = POLLIN},
                             {.fd = blocks ? -1 : fl_fd(client), .events = POLLIN}};
        if (poll(p, 2, blocks && watches() ? 10 : -1) < 0) {
            continue;
        }
        if (p[0].revents != 0) {
            read_input();
        }
        if (p[1].revents != 0) {
            fl_process(client);
        }
        tell_events();
    }
}

int main(int argc, char **argv)
{
    if (argc < 3 || argc > 4 || (argc == 4 && fl_store_open(argv[3], NULL, &store) != 0)) {
        return 2;
    }
    const char *attempt_ms = getenv("DRIVER_ATTEMPT_MS");
    struct fl_client_options options = {.timeout_ms = 5000};
    if (attempt_ms != NULL) { /* all the time there is for one attempt */
        options.attempt_ms = strtoull(attempt_ms, NULL, 10);
        options.timeout_ms = options.attempt_ms;
    }
    blocks = strcmp(argv[1], "thread") == 0;
    options.own_loop = !blocks;
    int rc = fl_open(argv[2], &options, &client);
    if (rc != 0) {
        fprintf(stderr, "hold_driver: %s\n", fl_strerror(rc));
        return 1;
    }
    if (strcmp(argv[1], "uv") == 0) {
        run_uv();
    } else {
        run_poll();
    }
    fl_close(client);
    for (int i = 0; i < SLOTS; i++) {
        if (slots[i].hammered) {
            (void)pthread_join(slots[i].hammer, NULL);
        }
    }
    for (int i = 0; i < SLOTS; i++) {
        /* Locks outlive their client, lost. */
        if (slots[i].lock != NULL && fl_lock_state(slots[i].lock) != FL_HOLD_LOST) {
            abort();
        }
        fl_lock_free(slots[i].lock);
        fl_watch_close(slots[i].watch);
    }
    fl_store_close(store);
    return 0;
}
