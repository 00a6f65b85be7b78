/* driver.c: a process that does with the library what lines on standard input say, for the tests in
 * tests/integration/redlock_*.py. Answers are lines of JSON.
 *
 *     redlock_driver blocking|loop SERVERS [option=value]...
 *
 *     acquire SLOT NAME TTL WAIT MIN         locks are kept in slots, 0 to SLOTS - 1
 *     fenced SLOT NAME TTL WAIT MIN RESULT TOKEN DELAY   the issuer answers so after DELAY ms
 *     extend SLOT NAME TTL / release SLOT NAME / left SLOT / check
 *     keep SLOT NAME TTL WAIT MAX_HOLD / unkeep                  the one that is renewed
 *     cancel / close                                             (loop only)
 *     contend CLIENTS ROUNDS NAME TTL WAIT HOLD                  (loop only; clients of its own)
 *     status                    threads, descriptors, tokens that were asked for and answered
 *
 * On a loop the answers come as they come; each names its command. */
#include <dirent.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <uv.h>

#include "fencelock/redlock.h"
#include "fencelock/uv.h"
#include "redlock/redlock_private.h"

#define SLOTS 16
#define LINE 4096
#define CLIENTS_MAX 64

struct slot {
    char value[FL_REDLOCK_VALUE_LEN + 1];
    uint64_t ttl_ms, deadline_ms;
    fl_token token;
};

static fl_client *handle;
static uv_loop_t *loop; /* NULL: blocking */
static struct fl_uv on_loop;
static struct fl_redlock_options options;
static struct slot slots[SLOTS];
static fl_lock *kept;
static fl_call pending; /* an acquire; 0: none */
static struct acquiring *acquiring;
static pthread_mutex_t printing = PTHREAD_MUTEX_INITIALIZER;

static void print_string(const char *text)
{
    (void)putchar('"');
    for (; *text != '\0'; text++) {
        if (*text == '"' || *text == '\\') {
            (void)putchar('\\');
        }
        (void)putchar(*text);
    }
    (void)putchar('"');
}

static void end_line(void)
{
    (void)printf("}\n");
    (void)fflush(stdout);
}

static uint64_t left_ms(uint64_t deadline_ms)
{
    uint64_t now_ms = fl_now_ms();
    return deadline_ms > now_ms ? deadline_ms - now_ms : 0;
}

static void print_lock(const struct slot *lock)
{
    (void)printf(", \"value\": \"%s\", \"left\": %llu, \"deadline\": %llu, \"ttl\": %llu, "
                 "\"token\": %llu",
                 lock->value, (unsigned long long)left_ms(lock->deadline_ms),
                 (unsigned long long)lock->deadline_ms, (unsigned long long)lock->ttl_ms,
                 (unsigned long long)lock->token);
}

/* CAUSES in redlock_lab.py. */
enum cause { NONE, CONTENDED, UNREACHABLE, TOO_SLOW, REFUSED, LOST, NOTOKEN, CANCELLED };

static enum cause cause_of(const char *command, int result, const struct fl_redlock_report *r)
{
    if (r->no_token) {
        return NOTOKEN;
    }
    switch (result) {
    case FL_ENOTHELD:
        return strcmp(command, "extend") == 0 || strcmp(command, "release") == 0 ? LOST : CONTENDED;
    case FL_ENOCONN:
        return UNREACHABLE;
    case FL_ETIMEOUT:
        return TOO_SLOW;
    case FL_EDENIED:
        return REFUSED;
    default:
        return NONE;
    }
}

static void print_report(enum cause cause, const struct fl_redlock_report *r)
{
    (void)printf(", \"cause\": %d, \"yes\": %u, \"quorum\": %u, \"attempts\": %u, "
                 "\"elapsed_us\": %llu, \"servers\": [",
                 (int)cause, r->yes, r->quorum, r->attempts, (unsigned long long)r->elapsed_us);
    for (uint32_t i = 0; i < r->servers; i++) {
        (void)printf("%s[%d, %llu, ", i == 0 ? "" : ", ", (int)r->server[i].status,
                     (unsigned long long)r->server[i].rtt_us);
        print_string(r->server[i].error);
        (void)printf("]");
    }
    (void)printf("]");
}

static void answer(const char *command, int result, const struct slot *lock,
                   const struct fl_redlock_report *report)
{
    (void)pthread_mutex_lock(&printing);
    (void)printf("{\"command\": \"%s\", \"result\": \"%s\"", command,
                 result == 0 ? "OK" : fl_err_name(result));
    if (lock != NULL) {
        print_lock(lock);
    }
    if (report != NULL && report->servers > 0) {
        print_report(cause_of(command, result, report), report);
    }
    if (loop == NULL) {
        (void)printf(", \"error\": ");
        print_string(fl_client_error(handle));
    }
    end_line();
    (void)pthread_mutex_unlock(&printing);
}

/* Fills the slot. */
static struct slot *take_slot(int slot, fl_lock *lock)
{
    struct slot *s = &slots[slot];
    *s = (struct slot){.ttl_ms = fl_lock_ttl_ms(lock),
                       .deadline_ms = fl_lock_deadline_ms(lock),
                       .token = fl_lock_granted(lock)};
    memcpy(s->value, fl_redlock_value(lock).data, FL_REDLOCK_VALUE_LEN);
    return s;
}

/* ---- calls of a loop ------------------------------------------------------------------------- */

struct acquiring {
    const char *command;
    int slot;
    bool keeps;
};

static void on_acquired(void *arg, const struct fl_result *result)
{
    struct acquiring *c = arg;
    struct slot *slot = result->status == 0 ? take_slot(c->slot, result->lock) : NULL;
    pending = 0;
    answer(c->command, result->status, slot, result->report);
    if (c->keeps) {
        kept = result->lock;
    } else {
        fl_lock_free(result->lock);
    }
    free(c);
}

static void give_up_pending(void)
{
    if (pending != 0) {
        fl_call_cancel(handle, pending);
        pending = 0;
        (void)printf("{\"command\": \"%s\", \"result\": \"ENOTHELD\", \"cause\": %d",
                     acquiring->command, (int)CANCELLED);
        end_line();
        free(acquiring);
    }
}

/* ---- issuing tokens -------------------------------------------------------------------------- */

/* Answers on a thread of its own, after delay_ms. */
struct issuer {
    int result;
    fl_token token;
    uint64_t delay_ms;
    fl_done done;
    void *arg;
};

static struct issuer issuer;
static atomic_uint asked, answered;

static void *issue_late(void *arg)
{
    struct issuer *i = arg;
    const struct fl_result result = {
        .status = i->result, .token = i->token, .error = fl_strerror(i->result)};
    uv_sleep((unsigned)i->delay_ms);
    i->done(i->arg, &result);
    answered++;
    free(i);
    return NULL;
}

static int issue(struct fli_redlock *r, struct fl_bytes name, uint64_t timeout_ms, fl_done done,
                 void *arg, fl_call *ret_call)
{
    pthread_t thread;
    struct issuer *i = malloc(sizeof *i);
    if (i == NULL) {
        abort();
    }
    *i = issuer;
    i->done = done;
    i->arg = arg;
    asked++;
    if (pthread_create(&thread, NULL, issue_late, i) != 0) {
        abort();
    }
    (void)pthread_detach(thread);
    return 0;
}

/* ---- contention ------------------------------------------------------------------------------ */

struct contender {
    fl_client *r;
    struct fl_uv on_loop;
    struct contest *contest;
    uv_timer_t timer;
    fl_lock *lock;
    unsigned rounds_left;
    unsigned grants;
};

struct contest {
    struct contender c[CLIENTS_MAX];
    unsigned n;
    char name[256];
    struct fl_take acquire;
    uint64_t hold_ms;
    unsigned running;
    struct contender *holder; /* who believes it, as far as its deadline goes */
    unsigned overlaps;
    unsigned failures;
    unsigned attempts;
};

static struct contest contest;

static void compete(struct contender *c);

static void on_contender_closed(uv_handle_t *h)
{
    struct contender *c = h->data;
    fl_close(c->r);
    uv_close((uv_handle_t *)&c->timer, NULL);
    if (--c->contest->running == 0) {
        const struct contest *t = c->contest;
        (void)printf("{\"command\": \"contend\", \"overlaps\": %u, \"failures\": %u, "
                     "\"attempts\": %u, \"grants\": [",
                     t->overlaps, t->failures, t->attempts);
        for (unsigned i = 0; i < t->n; i++) {
            (void)printf("%s%u", i == 0 ? "" : ", ", t->c[i].grants);
        }
        (void)printf("]");
        end_line();
    }
}

static void on_contender_released(void *ctx, const struct fl_result *result)
{
    struct contender *c = ctx;
    if (--c->rounds_left == 0) {
        c->on_loop.poll.data = c;
        fl_uv_stop(&c->on_loop, on_contender_closed);
    } else {
        compete(c);
    }
}

static void on_hold_timer(uv_timer_t *timer)
{
    struct contender *c = timer->data;
    if (c->contest->holder == c) {
        c->contest->holder = NULL;
    }
    if (fl_lock_release_start(c->lock, 0, on_contender_released, c) != 0) {
        abort();
    }
}

static void on_contender_acquired(void *ctx, const struct fl_result *result)
{
    struct contender *c = ctx;
    struct contest *t = c->contest;
    t->attempts += result->report->attempts;
    if (result->status != 0) {
        t->failures++;
        on_contender_released(c, result);
        return;
    }
    t->overlaps += t->holder != NULL && fl_lock_remaining_ms(t->holder->lock) > 0;
    c->grants++;
    c->lock = result->lock;
    t->holder = c;
    (void)uv_timer_start(&c->timer, on_hold_timer, t->hold_ms, 0);
}

static void compete(struct contender *c)
{
    if (fl_lock_take_start(c->r, c->contest->name, &c->contest->acquire, on_contender_acquired, c,
                           NULL) != 0) {
        abort();
    }
}

static void start_contest(unsigned rounds)
{
    contest.running = contest.n;
    for (unsigned i = 0; i < contest.n; i++) {
        struct contender *c = &contest.c[i];
        c->contest = &contest;
        c->rounds_left = rounds;
        c->grants = 0;
        c->timer.data = c;
        if (uv_timer_init(loop, &c->timer) != 0 || fl_redlock_open(&options, &c->r) != 0 ||
            fl_uv_start(&c->on_loop, loop, c->r) != 0) {
            abort();
        }
        compete(c);
    }
}

/* ---- keeping, checking, status --------------------------------------------------------------- */

static void on_change(void *arg, fl_lock *lock, enum fl_hold_state state)
{
    static const int whys[] = {/* ENDS in redlock_lab.py */
                               [FL_LOST_TAKEN] = 0,
                               [FL_LOST_DEADLINE] = 1,
                               [FL_LOST_MAX_HOLD] = 2,
                               [FL_LOST_RELEASED] = 3};
    struct slot now = *(const struct slot *)arg;
    if (state != FL_HOLD_LOST) {
        return;
    }
    now.deadline_ms = fl_lock_reason(lock) == FL_LOST_TAKEN ? 0 : fl_lock_deadline_ms(lock);
    (void)pthread_mutex_lock(&printing);
    (void)printf("{\"command\": \"keep\", \"why\": %d", whys[fl_lock_reason(lock)]);
    print_lock(&now);
    end_line();
    (void)pthread_mutex_unlock(&printing);
}

static void check(void)
{
    static struct fl_redlock_check_report found;
    int rc = fl_redlock_check(handle, NULL, &found);
    (void)printf("{\"command\": \"check\", \"result\": \"%s\", \"findings\": [",
                 rc == 0 ? "OK" : fl_err_name(rc));
    for (size_t i = 0; i < found.len; i++) {
        const struct fl_redlock_finding *f = &found.finding[i];
        (void)printf("%s[%d, %d, %d, ", i == 0 ? "" : ", ", (int)f->kind, f->refuses, f->server);
        print_string(f->text);
        (void)printf("]");
    }
    (void)printf("]");
    end_line();
}

static unsigned count_entries(const char *path)
{
    unsigned n = 0;
    DIR *dir = opendir(path);
    while (dir != NULL && readdir(dir) != NULL) {
        n++;
    }
    if (dir != NULL) {
        (void)closedir(dir);
    }
    return n - 2;
}

static void status(void)
{
    (void)printf("{\"command\": \"status\", \"threads\": %u, \"descriptors\": %u, "
                 "\"asked\": %u, \"answered\": %u",
                 count_entries("/proc/self/task"), count_entries("/proc/self/fd") - 1, asked,
                 answered);
    end_line();
}

/* ---- lines ----------------------------------------------------------------------------------- */

static int slot_of(char **w)
{
    return (int)strtol(w[1], NULL, 10) % SLOTS;
}

static void take(char **w, const struct fl_take *o, bool keeps)
{
    const char *command = keeps ? "acquire" : strcmp(w[0], "fenced") == 0 ? "fenced" : "acquire";
    int slot = slot_of(w);
    fl_lock *lock = NULL;
    if (loop != NULL) {
        struct acquiring *c = malloc(sizeof *c);
        if (c == NULL) {
            abort();
        }
        *c = (struct acquiring){command, slot, keeps};
        acquiring = c;
        int rc = fl_lock_take_start(handle, w[2], o, on_acquired, c, &pending);
        if (rc != 0) {
            answer(command, rc, NULL, NULL);
            free(c);
        }
        return;
    }
    int rc = fl_lock_take(handle, w[2], o, &lock);
    answer(command, rc, rc == 0 ? take_slot(slot, lock) : NULL, fl_redlock_last(handle));
    if (keeps) {
        kept = lock;
    } else {
        fl_lock_free(lock);
    }
}

static void do_acquire(char **w, int n)
{
    const struct fl_take o = {.ttl_ms = strtoull(w[3], NULL, 10),
                              .wait_ms = strtoull(w[4], NULL, 10),
                              .min_validity_ms = strtoull(w[5], NULL, 10),
                              .unrenewed = true};
    bool fenced = n >= 9;
    fli_redlock_of(handle)->issue = fenced ? issue : NULL;
    if (fenced) {
        issuer.result = (int)strtol(w[6], NULL, 10);
        issuer.token = strtoull(w[7], NULL, 10);
        issuer.delay_ms = strtoull(w[8], NULL, 10);
    }
    take(w, &o, false);
}

static void do_keep(char **w)
{
    const struct fl_take o = {.ttl_ms = strtoull(w[3], NULL, 10),
                              .wait_ms = strtoull(w[4], NULL, 10),
                              .max_hold_ms = strtoull(w[5], NULL, 10),
                              .on_change = on_change,
                              .arg = &slots[slot_of(w)]};
    fli_redlock_of(handle)->issue = NULL;
    take(w, &o, true);
}

static void do_extend(char **w)
{
    struct slot *s = &slots[slot_of(w)];
    uint64_t ttl_ms = strtoull(w[3], NULL, 10);
    ttl_ms = ttl_ms != 0 ? ttl_ms : s->ttl_ms;
    int rc = fl_redlock_extend(handle, fl_str(w[2]), s->value, ttl_ms, &s->deadline_ms);
    s->ttl_ms = rc == 0 ? ttl_ms : s->ttl_ms;
    answer("extend", rc, s, fl_redlock_last(handle));
}

static void do_release(char **w)
{
    int rc = fl_redlock_release(handle, fl_str(w[2]), slots[slot_of(w)].value);
    answer("release", rc, NULL, fl_redlock_last(handle));
}

static void do_contend(char **w)
{
    contest.n = (unsigned)strtoul(w[1], NULL, 10);
    (void)snprintf(contest.name, sizeof contest.name, "%s", w[3]);
    contest.acquire.unrenewed = true;
    contest.acquire.ttl_ms = strtoull(w[4], NULL, 10);
    contest.acquire.wait_ms = strtoull(w[5], NULL, 10);
    contest.hold_ms = strtoull(w[6], NULL, 10);
    contest.overlaps = contest.failures = contest.attempts = 0;
    contest.holder = NULL;
    if (contest.n == 0 || contest.n > CLIENTS_MAX) {
        abort();
    }
    start_contest((unsigned)strtoul(w[2], NULL, 10));
}

static void on_stopped(uv_handle_t *h)
{
    fl_close(handle);
    handle = NULL;
}

static void close_handle(void)
{
    if (handle == NULL) {
        return;
    }
    fl_lock_free(kept);
    kept = NULL;
    if (loop == NULL) {
        fl_close(handle);
        handle = NULL;
        return;
    }
    give_up_pending();
    if (uv_is_closing((uv_handle_t *)&on_loop.poll) == 0) {
        fl_uv_stop(&on_loop, on_stopped);
    }
}

static bool do_loop_only(char **w, int n)
{
    if (strcmp(w[0], "cancel") == 0) {
        give_up_pending();
    } else if (strcmp(w[0], "close") == 0) {
        close_handle();
    } else if (strcmp(w[0], "contend") == 0 && n == 7) {
        do_contend(w);
    } else {
        return false;
    }
    return true;
}

static void do_line(char *line)
{
    char *w[10] = {NULL};
    int n = 0;
    char *rest = line;
    char *word;
    while (n < 10 && (word = strtok_r(n == 0 ? line : NULL, " \n", &rest)) != NULL) {
        w[n++] = word;
    }
    if (n == 0) {
        return;
    }
    if ((strcmp(w[0], "acquire") == 0 && n == 6) || (strcmp(w[0], "fenced") == 0 && n == 9)) {
        do_acquire(w, n);
    } else if (strcmp(w[0], "extend") == 0 && n == 4) {
        do_extend(w);
    } else if (strcmp(w[0], "release") == 0 && n == 3) {
        do_release(w);
    } else if (strcmp(w[0], "left") == 0 && n == 2) {
        answer("left", 0, &slots[slot_of(w)], NULL);
    } else if (strcmp(w[0], "keep") == 0 && n == 6) {
        do_keep(w);
    } else if (strcmp(w[0], "unkeep") == 0) {
        fl_lock_free(kept);
        kept = NULL;
    } else if (strcmp(w[0], "check") == 0) {
        check();
    } else if (strcmp(w[0], "status") == 0) {
        status();
    } else if (loop == NULL || !do_loop_only(w, n)) {
        (void)fprintf(stderr, "what is \"%s\" with %d words?\n", w[0], n);
        exit(2);
    }
}

/* ---- main ------------------------------------------------------------------------------------ */

static void take_option(const char *text)
{
    const struct {
        const char *name;
        uint64_t *to;
    } times[] = {
        {"max_ttl", &options.max_ttl_ms}, {"budget", &options.budget_ms},
        {"connect", &options.connect_ms}, {"hung", &options.hung_ms},
        {"retry", &options.retry_ms},     {"retry_cap", &options.retry_cap_ms},
    };
    const char *value = strchr(text, '=');
    size_t len = value == NULL ? 0 : (size_t)(value++ - text);
#define IS(word) (len == sizeof(word) - 1 && memcmp(text, word, len) == 0)
    for (size_t i = 0; i < sizeof times / sizeof times[0]; i++) {
        if (len == strlen(times[i].name) && memcmp(text, times[i].name, len) == 0) {
            *times[i].to = strtoull(value, NULL, 10);
            return;
        }
    }
    if (IS("safe")) {
        options.restarts_are_safe = value[0] == '1';
    } else if (IS("user")) {
        options.user = value;
    } else if (IS("password")) {
        options.password = value;
    } else if (IS("database")) {
        options.database = (uint32_t)strtoul(value, NULL, 10);
    } else if (IS("format")) {
        options.key_format = value;
    } else {
        (void)fprintf(stderr, "what is %s?\n", text);
        exit(2);
    }
#undef IS
}

static char input_text[LINE];
static size_t input_len;

static void on_alloc(uv_handle_t *h, size_t size, uv_buf_t *buf)
{
    *buf = uv_buf_init(input_text + input_len, (unsigned)(sizeof input_text - input_len - 1));
}

static void on_input(uv_stream_t *stream, ssize_t n, const uv_buf_t *buf)
{
    if (n < 0) {
        close_handle();
        uv_close((uv_handle_t *)stream, NULL);
        return;
    }
    input_len += (size_t)n;
    char *end;
    while ((end = memchr(input_text, '\n', input_len)) != NULL) {
        char line[LINE];
        size_t len = (size_t)(end - input_text) + 1;
        memcpy(line, input_text, len);
        line[len] = '\0';
        input_len -= len;
        memmove(input_text, end + 1, input_len);
        do_line(line);
    }
}

static int run_loop(void)
{
    uv_pipe_t input;
    if (fl_uv_start(&on_loop, loop, handle) != 0 || uv_pipe_init(loop, &input, 0) != 0 ||
        uv_pipe_open(&input, 0) != 0 ||
        uv_read_start((uv_stream_t *)&input, on_alloc, on_input) != 0) {
        return 2;
    }
    (void)uv_run(loop, UV_RUN_DEFAULT);
    return uv_loop_close(loop) == 0 ? 0 : 3;
}

int main(int argc, char **argv)
{
    static uv_loop_t own;
    if (argc < 3) {
        return 2;
    }
    options.servers = argv[2];
    for (int i = 3; i < argc; i++) {
        take_option(argv[i]);
    }
    if (strcmp(argv[1], "loop") == 0) {
        loop = &own;
        options.own_loop = true;
        if (uv_loop_init(loop) != 0) {
            return 2;
        }
    }
    int rc = fl_redlock_open(&options, &handle);
    if (rc != 0) {
        (void)fprintf(stderr, "%s: %s\n", fl_err_name(rc), fl_client_error(NULL));
        return 1;
    }
    if (loop != NULL) {
        return run_loop();
    }
    char line[LINE];
    while (fgets(line, sizeof line, stdin) != NULL) {
        do_line(line);
    }
    close_handle();
    return 0;
}
