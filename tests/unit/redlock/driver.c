/* driver.c: a process that does with the library what lines on standard input say, for the tests in
 * tests/integration/redlock_*.py. Answers are lines of JSON.
 *
 *     redlock_driver blocking|loop SERVERS [option=value]...
 *
 *     acquire SLOT NAME TTL WAIT MIN         locks are kept in slots, 0 to SLOTS - 1
 *     fenced SLOT NAME TTL WAIT MIN RESULT TOKEN DELAY   the issuer answers so after DELAY ms
 *     extend SLOT NAME TTL / release SLOT NAME / left SLOT / copy FROM TO / check
 *     cancel / keep SLOT NAME MAX_HOLD / unkeep / close          (loop only)
 *     contend CLIENTS ROUNDS NAME TTL WAIT HOLD                  (loop only; handles of its own)
 *     status                    threads, descriptors, tokens that were asked for and answered
 *
 * On a loop the answers come as they come; each names its command. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <uv.h>

#include "fencelock/redlock.h"

#define SLOTS 16
#define LINE 4096
#define CLIENTS_MAX 64

static fl_redlock *handle;
static uv_loop_t *loop; /* NULL: blocking */
static struct fl_redlock_options options;
static struct fl_redlock_login login;
static struct fl_redlock_lock slots[SLOTS];
static fl_redlock_keeper *keeper;
static uint64_t last_id;

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

static void print_lock(const struct fl_redlock_lock *lock)
{
    (void)printf(", \"value\": \"%s\", \"left\": %llu, \"deadline\": %llu, \"ttl\": %llu, "
                 "\"token\": %llu",
                 lock->value, (unsigned long long)fl_redlock_remaining_ms(lock),
                 (unsigned long long)lock->deadline_ms, (unsigned long long)lock->ttl_ms,
                 (unsigned long long)lock->token);
}

static void print_report(const struct fl_redlock_report *r)
{
    (void)printf(", \"cause\": %d, \"yes\": %u, \"quorum\": %u, \"attempts\": %u, "
                 "\"elapsed_us\": %llu, \"servers\": [",
                 (int)r->cause, r->yes, r->quorum, r->attempts, (unsigned long long)r->elapsed_us);
    for (uint32_t i = 0; i < r->servers; i++) {
        (void)printf("%s[%d, %llu, ", i == 0 ? "" : ", ", (int)r->server[i].status,
                     (unsigned long long)r->server[i].rtt_us);
        print_string(r->server[i].error);
        (void)printf("]");
    }
    (void)printf("]");
}

static void answer(const char *command, int result, const struct fl_redlock_lock *lock,
                   const struct fl_redlock_report *report)
{
    (void)printf("{\"command\": \"%s\", \"result\": \"%s\"", command,
                 result == 0 ? "OK" : fl_err_name(result));
    if (lock != NULL) {
        print_lock(lock);
    }
    if (report != NULL && report->servers > 0) {
        print_report(report);
    }
    if (loop == NULL) {
        (void)printf(", \"error\": ");
        print_string(fl_redlock_error(handle));
    }
    end_line();
}

/* ---- calls of a loop ------------------------------------------------------------------------- */

struct call {
    const char *command;
    int slot;
};

static struct call *new_call(const char *command, int slot)
{
    struct call *c = calloc(1, sizeof *c);
    if (c == NULL) {
        abort();
    }
    c->command = command;
    c->slot = slot;
    return c;
}

static void on_done(void *ctx, int result, const struct fl_redlock_lock *lock,
                    const struct fl_redlock_report *report)
{
    struct call *c = ctx;
    if (lock != NULL) {
        slots[c->slot] = *lock;
    }
    answer(c->command, result, lock, report);
    free(c);
}

static void started(struct call *c, int rc)
{
    if (rc != 0) {
        answer(c->command, rc, NULL, NULL);
        free(c);
    }
}

/* ---- issuing tokens -------------------------------------------------------------------------- */

struct issuer {
    int result;
    fl_token token;
    uint64_t delay_ms;
    uint64_t timeout_ms; /* as it was asked with */
    unsigned asked, answered;
    uv_timer_t timer;
    fl_redlock_issued *issued;
    void *issued_ctx;
};

static struct issuer issuer;

static int issue(void *ctx, struct fl_bytes name, uint64_t timeout_ms, fl_token *ret)
{
    struct issuer *i = ctx;
    i->timeout_ms = timeout_ms;
    i->asked++;
    uv_sleep((unsigned)i->delay_ms);
    i->answered++;
    if (i->result == 0) {
        *ret = i->token;
    }
    return i->result;
}

static void on_issue_timer(uv_timer_t *timer)
{
    struct issuer *i = timer->data;
    i->answered++;
    i->issued(i->issued_ctx, i->result, i->token);
}

static void issue_start(void *ctx, struct fl_bytes name, uint64_t timeout_ms,
                        fl_redlock_issued *issued, void *issued_ctx)
{
    struct issuer *i = ctx;
    i->timeout_ms = timeout_ms;
    i->issued = issued;
    i->issued_ctx = issued_ctx;
    i->asked++;
    if (i->delay_ms == 0) {
        i->answered++;
        issued(issued_ctx, i->result, i->token);
        return;
    }
    (void)uv_timer_start(&i->timer, on_issue_timer, i->delay_ms, 0);
}

/* ---- contention ------------------------------------------------------------------------------ */

struct contender {
    fl_redlock *r;
    struct contest *contest;
    uv_timer_t timer;
    struct fl_redlock_lock lock;
    unsigned rounds_left;
    unsigned grants;
};

struct contest {
    struct contender c[CLIENTS_MAX];
    unsigned n;
    char name[256];
    struct fl_redlock_acquire_options acquire;
    uint64_t hold_ms;
    unsigned running;
    struct contender *holder; /* who believes it, as far as its deadline goes */
    unsigned overlaps;
    unsigned failures;
    unsigned attempts;
};

static struct contest contest;

static void compete(struct contender *c);

static void on_contender_closed(void *ctx)
{
    struct contender *c = ctx;
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

static void on_contender_released(void *ctx, int result, const struct fl_redlock_lock *lock,
                                  const struct fl_redlock_report *report)
{
    struct contender *c = ctx;
    if (--c->rounds_left == 0) {
        fl_redlock_close(c->r, on_contender_closed, c);
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
    if (fl_redlock_release_start(c->r, fl_str(c->contest->name), &c->lock, on_contender_released,
                                 c) != 0) {
        abort();
    }
}

static void on_contender_acquired(void *ctx, int result, const struct fl_redlock_lock *lock,
                                  const struct fl_redlock_report *report)
{
    struct contender *c = ctx;
    struct contest *t = c->contest;
    t->attempts += report->attempts;
    if (result != 0) {
        t->failures++;
        on_contender_released(c, 0, NULL, NULL);
        return;
    }
    t->overlaps += t->holder != NULL && fl_redlock_remaining_ms(&t->holder->lock) > 0;
    c->grants++;
    c->lock = *lock;
    t->holder = c;
    (void)uv_timer_start(&c->timer, on_hold_timer, t->hold_ms, 0);
}

static void compete(struct contender *c)
{
    if (fl_redlock_acquire_start(c->r, fl_str(c->contest->name), &c->contest->acquire,
                                 on_contender_acquired, c, NULL) != 0) {
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
        if (uv_timer_init(loop, &c->timer) != 0 ||
            fl_redlock_create(loop, &options, &c->r, NULL, 0) != 0) {
            abort();
        }
        compete(c);
    }
}

/* ---- keeping, checking, status --------------------------------------------------------------- */

static void on_ended(void *ctx, enum fl_redlock_end why, const struct fl_redlock_lock *lock)
{
    (void)printf("{\"command\": \"keep\", \"why\": %d", (int)why);
    print_lock(lock);
    end_line();
}

static void print_findings(int result, const struct fl_redlock_check_report *found)
{
    (void)printf("{\"command\": \"check\", \"result\": \"%s\", \"findings\": [",
                 result == 0 ? "OK" : fl_err_name(result));
    for (size_t i = 0; i < found->len; i++) {
        const struct fl_redlock_finding *f = &found->finding[i];
        (void)printf("%s[%d, %d, %d, ", i == 0 ? "" : ", ", (int)f->kind, f->refuses, f->server);
        print_string(f->text);
        (void)printf("]");
    }
    (void)printf("]");
    end_line();
}

static void on_checked(void *ctx, int result, const struct fl_redlock_check_report *found)
{
    print_findings(result, found);
}

static void check(void)
{
    static struct fl_redlock_check_report report;
    if (loop != NULL) {
        if (fl_redlock_check_start(handle, NULL, on_checked, NULL) != 0) {
            abort();
        }
        return;
    }
    int rc = fl_redlock_check(handle, NULL, &report);
    print_findings(rc, &report);
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
                 count_entries("/proc/self/task"), count_entries("/proc/self/fd") - 1, issuer.asked,
                 issuer.answered);
    end_line();
}

/* ---- lines ----------------------------------------------------------------------------------- */

static void do_acquire(char **w, int n)
{
    int slot = (int)strtol(w[1], NULL, 10) % SLOTS;
    const struct fl_redlock_acquire_options o = {.ttl_ms = strtoull(w[3], NULL, 10),
                                                 .wait_ms = strtoull(w[4], NULL, 10),
                                                 .min_validity_ms = strtoull(w[5], NULL, 10)};
    bool fenced = strcmp(w[0], "fenced") == 0 && n >= 9;
    struct fl_redlock_lock lock = {.token = 0};
    int rc;
    if (fenced) {
        issuer.result = (int)strtol(w[6], NULL, 10);
        issuer.token = strtoull(w[7], NULL, 10);
        issuer.delay_ms = strtoull(w[8], NULL, 10);
    }
    if (loop != NULL) {
        struct call *c = new_call(fenced ? "fenced" : "acquire", slot);
        if (fenced) {
            rc = fl_redlock_acquire_fenced_start(handle, fl_str(w[2]), &o, issue_start, &issuer,
                                                 on_done, c, &last_id);
        } else {
            rc = fl_redlock_acquire_start(handle, fl_str(w[2]), &o, on_done, c, &last_id);
        }
        started(c, rc);
        return;
    }
    if (fenced) {
        rc = fl_redlock_acquire_fenced(handle, fl_str(w[2]), &o, issue, &issuer, &lock);
    } else {
        rc = fl_redlock_acquire(handle, fl_str(w[2]), &o, &lock);
    }
    if (rc == 0) {
        slots[slot] = lock;
    }
    answer(w[0], rc, rc == 0 ? &lock : NULL, fl_redlock_last(handle));
}

static void do_extend(char **w)
{
    int slot = (int)strtol(w[1], NULL, 10) % SLOTS;
    uint64_t ttl_ms = strtoull(w[3], NULL, 10);
    if (loop != NULL) {
        struct call *c = new_call("extend", slot);
        started(c, fl_redlock_extend_start(handle, fl_str(w[2]), &slots[slot], ttl_ms, on_done, c));
        return;
    }
    int rc = fl_redlock_extend(handle, fl_str(w[2]), ttl_ms, &slots[slot]);
    answer("extend", rc, &slots[slot], fl_redlock_last(handle));
}

static void do_release(char **w)
{
    int slot = (int)strtol(w[1], NULL, 10) % SLOTS;
    if (loop != NULL) {
        struct call *c = new_call("release", slot);
        started(c, fl_redlock_release_start(handle, fl_str(w[2]), &slots[slot], on_done, c));
        return;
    }
    int rc = fl_redlock_release(handle, fl_str(w[2]), &slots[slot]);
    answer("release", rc, NULL, fl_redlock_last(handle));
}

static void do_contend(char **w)
{
    contest.n = (unsigned)strtoul(w[1], NULL, 10);
    (void)snprintf(contest.name, sizeof contest.name, "%s", w[3]);
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

static void close_handle(void)
{
    fl_redlock_keep_stop(keeper);
    keeper = NULL;
    fl_redlock_close(handle, NULL, NULL);
    handle = NULL;
}

static bool do_keep(char **w, int n)
{
    if (strcmp(w[0], "keep") == 0 && n == 4) {
        int slot = (int)strtol(w[1], NULL, 10) % SLOTS;
        if (fl_redlock_keep_start(handle, fl_str(w[2]), &slots[slot], strtoull(w[3], NULL, 10),
                                  on_ended, NULL, &keeper) != 0) {
            abort();
        }
    } else if (strcmp(w[0], "unkeep") == 0) {
        fl_redlock_keep_copy(keeper, &slots[0]);
        fl_redlock_keep_stop(keeper);
        keeper = NULL;
    } else {
        return false;
    }
    return true;
}

static bool do_loop_only(char **w, int n)
{
    if (strcmp(w[0], "cancel") == 0) {
        fl_redlock_cancel(handle, last_id);
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
    char *w[10];
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
        answer("left", 0, &slots[strtol(w[1], NULL, 10) % SLOTS], NULL);
    } else if (strcmp(w[0], "copy") == 0 && n == 3) {
        slots[strtol(w[2], NULL, 10) % SLOTS] = slots[strtol(w[1], NULL, 10) % SLOTS];
    } else if (strcmp(w[0], "check") == 0) {
        check();
    } else if (strcmp(w[0], "status") == 0) {
        status();
    } else if (!do_keep(w, n) && (loop == NULL || !do_loop_only(w, n))) {
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
        login.username = value;
    } else if (IS("password")) {
        login.password = value;
    } else if (IS("database")) {
        login.database = (uint32_t)strtoul(value, NULL, 10);
    } else if (IS("format")) {
        options.key_format = value;
    } else {
        (void)fprintf(stderr, "what is %s?\n", text);
        exit(2);
    }
#undef IS
}

static char pending[LINE];
static size_t pending_len;

static void on_alloc(uv_handle_t *h, size_t size, uv_buf_t *buf)
{
    *buf = uv_buf_init(pending + pending_len, (unsigned)(sizeof pending - pending_len - 1));
}

static void on_input(uv_stream_t *stream, ssize_t n, const uv_buf_t *buf)
{
    if (n < 0) {
        close_handle();
        uv_close((uv_handle_t *)stream, NULL);
        uv_close((uv_handle_t *)&issuer.timer, NULL);
        return;
    }
    pending_len += (size_t)n;
    char *end;
    while ((end = memchr(pending, '\n', pending_len)) != NULL) {
        char line[LINE];
        size_t len = (size_t)(end - pending) + 1;
        memcpy(line, pending, len);
        line[len] = '\0';
        pending_len -= len;
        memmove(pending, end + 1, pending_len);
        do_line(line);
    }
}

static int run_loop(void)
{
    uv_pipe_t input;
    issuer.timer.data = &issuer;
    if (uv_timer_init(loop, &issuer.timer) != 0 || uv_pipe_init(loop, &input, 0) != 0 ||
        uv_pipe_open(&input, 0) != 0 ||
        uv_read_start((uv_stream_t *)&input, on_alloc, on_input) != 0) {
        return 2;
    }
    (void)uv_run(loop, UV_RUN_DEFAULT);
    return uv_loop_close(loop) == 0 ? 0 : 3;
}

int main(int argc, char **argv)
{
    char errmsg[256] = "";
    static uv_loop_t own;
    if (argc < 3) {
        return 2;
    }
    options.servers = argv[2];
    for (int i = 3; i < argc; i++) {
        take_option(argv[i]);
    }
    options.login = login;
    if (strcmp(argv[1], "loop") == 0) {
        loop = &own;
        if (uv_loop_init(loop) != 0) {
            return 2;
        }
    }
    int rc = fl_redlock_create(loop, &options, &handle, errmsg, sizeof errmsg);
    if (rc != 0) {
        (void)fprintf(stderr, "%s: %s\n", fl_err_name(rc), errmsg);
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
