/* demo_run.c: one run of the demonstration.
 *
 * In each round one writer is the holder that a fault hits, and another one acquires the lock while
 * the first still believes to hold it. The order of the steps is the same in every run; the faults
 * are real:
 *
 *     first: acquire, (claim,) read, look at the time: still valid
 *            ... the fault ...
 *     next:  acquire, (claim,) read
 *     first: write                  (or these two the other way round)
 *     next:  write
 *
 * Without tokens both writes are accepted, and one update is lost. With them the claim of the next
 * holder makes the storage refuse the first one's write, which then does its update anew. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/clock.h"
#include "cli/demo.h"

#define PAUSE_TTL_MS UINT64_C(300)
#define TTL_TRIES 6u /* doubled each time: a busy machine may need longer to get that far */
#define AGAIN 1      /* of a round: the lock ran out before the fault */

struct writer {
    pid_t pid;
    int to, from;
    uint64_t deadline_ms;
};

struct run {
    struct demo_lab *lab;
    struct demo_result *result;
    struct writer writer[DEMO_WRITERS_MAX];
    char name[DEMO_NAME_SIZE], key[DEMO_NAME_SIZE];
    uint64_t began_ns;
    unsigned round;
};

struct answer {
    char word[16];
    uint64_t a, b;
};

static void note(struct run *r, enum demo_event_kind kind, unsigned who, uint64_t number,
                 uint64_t more)
{
    struct demo_result *x = r->result;
    if (x->events < DEMO_EVENTS_MAX) {
        x->event[x->events++] = (struct demo_event){.kind = kind,
                                                    .t_us = (fli_clock_ns() - r->began_ns) / 1000,
                                                    .round = r->round,
                                                    .who = who,
                                                    .number = number,
                                                    .more = more};
    }
}

/* Of the two storages, the one that checks tokens or the one that does not. */
static unsigned store_of(const struct run *r)
{
    return r->result->mode == DEMO_OFF ? 0 : 1;
}

/* ---- talking to writers and to the proxy ----------------------------------------------------- */

static int wait_readable(struct run *r, int fd, const char *whom)
{
    uint64_t until_ms = fl_now_ms() + DEMO_DEADLINE_MS;
    while (fl_now_ms() < until_ms && demo_interrupted == 0) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        if (poll(&p, 1, 100) > 0) {
            return 0;
        }
    }
    return demo_lab_fail(r->lab, demo_interrupted != 0 ? "interrupted" : "%s did not answer", whom);
}

static int tell(struct run *r, unsigned w, const char *command, uint64_t ttl_ms)
{
    char line[64];
    snprintf(line, sizeof line, "%s %" PRIu64, command, ttl_ms);
    return demo_write_line(r->writer[w].to, line)
               ? 0
               : demo_lab_fail(r->lab, "writer %u has ended", w + 1);
}

static int hear(struct run *r, unsigned w, struct answer *ret)
{
    char whom[32];
    char line[96];
    snprintf(whom, sizeof whom, "writer %u", w + 1);
    int rc = wait_readable(r, r->writer[w].from, whom);
    if (rc != 0) {
        return rc;
    }
    if (!demo_read_line(r->writer[w].from, line, sizeof line) ||
        sscanf(line, "%15s %" SCNu64 " %" SCNu64, ret->word, &ret->a, &ret->b) != 3) {
        return demo_lab_fail(r->lab, "writer %u has ended", w + 1);
    }
    return 0;
}

static int ask(struct run *r, unsigned w, const char *command, uint64_t ttl_ms, struct answer *ret)
{
    int rc = tell(r, w, command, ttl_ms);
    return rc == 0 ? hear(r, w, ret) : rc;
}

static int unexpected(struct run *r, unsigned w, const char *asked, const struct answer *a)
{
    return demo_lab_fail(r->lab, "writer %u was told to %s and said: %s", w + 1, asked, a->word);
}

static int expect(struct run *r, unsigned w, const char *command, uint64_t ttl_ms, const char *word,
                  struct answer *ret)
{
    int rc = ask(r, w, command, ttl_ms, ret);
    return rc == 0 && strcmp(ret->word, word) != 0 ? unexpected(r, w, command, ret) : rc;
}

static int tell_proxy(struct run *r, char what, unsigned w)
{
    const struct demo_proxy *p = &r->lab->proxy[store_of(r)];
    const char line[] = {what, (char)('0' + w), '\0'};
    char got[8];
    int rc = demo_write_line(p->to, line) ? wait_readable(r, p->from, "the proxy") : FL_ESYSTEM;
    if (rc != 0 || !demo_read_line(p->from, got, sizeof got)) {
        return demo_lab_fail(r->lab, "the proxy has ended");
    }
    return 0;
}

/* ---- steps ----------------------------------------------------------------------------------- */

static int add_one(struct run *r, unsigned w)
{
    struct answer a;
    int rc = hear(r, w, &a);
    if (rc == 0 && strcmp(a.word, "added") != 0) {
        rc = unexpected(r, w, "add", &a);
    }
    if (rc == 0) {
        r->result->acknowledged++;
        r->result->grants += (unsigned)a.b;
    }
    return rc;
}

/* All writers at once, undisturbed. */
static int add_together(struct run *r)
{
    const struct demo_plan *plan = &r->result->plan;
    unsigned adds = plan->round[r->round].adds;
    int rc = 0;
    for (unsigned i = 0; i < adds; i++) {
        for (unsigned w = 0; w < plan->writers && rc == 0; w++) {
            rc = tell(r, w, "add", DEMO_TTL_MS);
        }
        for (unsigned w = 0; w < plan->writers && rc == 0; w++) {
            rc = add_one(r, w);
        }
    }
    if (adds > 0 && rc == 0) {
        note(r, DEMO_EV_ADDED, 0, (uint64_t)adds * plan->writers, 0);
    }
    return rc;
}

/* AGAIN: not with so short a TTL. */
static int acquire(struct run *r, unsigned w, uint64_t ttl_ms)
{
    struct answer a;
    int rc = ask(r, w, "acquire", ttl_ms, &a);
    if (rc == 0 && strcmp(a.word, "failed") == 0 && ttl_ms < DEMO_TTL_MS) {
        return AGAIN;
    }
    if (rc == 0 && strcmp(a.word, "acquired") != 0) {
        return demo_lab_fail(r->lab, "writer %u cannot acquire the lock: %s", w + 1,
                             fl_strerror(-(int)a.a));
    }
    if (rc == 0) {
        r->writer[w].deadline_ms = fl_now_ms() + a.b;
        r->result->grants++;
        note(r, DEMO_EV_ACQUIRED, w, a.a, a.b);
    }
    return rc;
}

static int claim_and_read(struct run *r, unsigned w)
{
    struct answer a;
    int rc = expect(r, w, "read", 0, "read", &a);
    if (rc == 0) {
        note(r, DEMO_EV_READ, w, a.a, 0);
    }
    return rc;
}

/* What became of a write that was sent. */
static int hear_of_write(struct run *r, unsigned w, bool *ret_refused)
{
    struct answer a;
    int rc = hear(r, w, &a);
    if (rc != 0) {
        return rc;
    }
    *ret_refused = strcmp(a.word, "refused") == 0;
    if (strcmp(a.word, "written") == 0) {
        r->result->acknowledged++;
        note(r, DEMO_EV_WRITTEN, w, a.a, 0);
    } else if (*ret_refused) {
        r->result->refused++;
        note(r, DEMO_EV_REFUSED, w, 0, a.b);
    } else {
        r->result->unknown++;
    }
    return 0;
}

static int write_next(struct run *r, unsigned w)
{
    bool refused = false;
    int rc = tell(r, w, "write", 0);
    return rc == 0 ? hear_of_write(r, w, &refused) : rc;
}

static int stop(struct run *r, unsigned w)
{
    siginfo_t info;
    if (kill(r->writer[w].pid, SIGSTOP) != 0 ||
        waitid(P_PID, (id_t)r->writer[w].pid, &info, WSTOPPED) != 0) {
        return demo_lab_fail(r->lab, "writer %u cannot be stopped", w + 1);
    }
    note(r, DEMO_EV_STOPPED, w, 0, 0);
    return 0;
}

static int hold_back_write(struct run *r, unsigned w)
{
    const struct demo_proxy *p = &r->lab->proxy[store_of(r)];
    char line[8];
    int rc = tell_proxy(r, 'h', w);
    if (rc == 0) {
        rc = tell(r, w, "write", 0);
    }
    if (rc == 0) {
        rc = wait_readable(r, p->from, "the proxy");
    }
    if (rc == 0 && (!demo_read_line(p->from, line, sizeof line) || line[0] != 'h')) {
        rc = demo_lab_fail(r->lab, "the proxy has ended");
    }
    if (rc == 0) {
        note(r, DEMO_EV_HELD_BACK, w, 0, 0);
    }
    return rc;
}

/* ---- Redis ----------------------------------------------------------------------------------- */

static bool hits_redis(enum demo_fault fault)
{
    return fault == DEMO_RESTART || fault == DEMO_CLOCK;
}

static void take_two_away(struct run *r, const struct demo_round *d)
{
    for (unsigned i = 0; i < 2; i++) {
        demo_redis_kill(r->lab, d->away[i]);
        note(r, DEMO_EV_DOWN, d->away[i], 0, 0);
    }
}

static int bring_back(struct run *r, unsigned redis)
{
    int rc = demo_redis_wait(r->lab, redis);
    if (rc == 0) {
        note(r, DEMO_EV_UP, redis, 0, 0);
    }
    return rc;
}

/* Three of five held the lock. One of them forgets it, and the two that were away come back: now a
 * quorum is free. */
static int lose_a_lock(struct run *r, const struct demo_round *d)
{
    int rc = 0;
    if (d->fault == DEMO_RESTART) {
        demo_redis_kill(r->lab, d->loses);
        note(r, DEMO_EV_FORGETS, d->loses, 0, 0);
        rc = demo_redis_start(r->lab, d->loses);
    } else {
        rc = demo_clock_jump(r->lab, 4 * DEMO_TTL_MS / 1000);
        note(r, DEMO_EV_JUMPS, d->loses, 4 * DEMO_TTL_MS / 1000, 0);
    }
    for (unsigned i = 0; i < 2 && rc == 0; i++) {
        rc = demo_redis_start(r->lab, d->away[i]);
    }
    for (unsigned i = 0; i < 2 && rc == 0; i++) {
        rc = bring_back(r, d->away[i]);
    }
    return rc == 0 && d->fault == DEMO_RESTART ? bring_back(r, d->loses) : rc;
}

/* ---- a round --------------------------------------------------------------------------------- */

/* The first holder, up to the moment before its write, and the fault. AGAIN: it took too long, and
 * the holder has seen so itself. */
static int begin_round(struct run *r, const struct demo_round *d, uint64_t ttl_ms)
{
    struct answer a;
    int rc = acquire(r, d->first, ttl_ms);
    if (rc == 0) {
        rc = claim_and_read(r, d->first);
    }
    if (rc == 0) {
        rc = ask(r, d->first, "look", 0, &a);
    }
    if (rc != 0) {
        return rc;
    }
    if (strcmp(a.word, "valid") != 0) {
        rc = expect(r, d->first, "release", 0, "released", &a);
        return rc == 0 ? AGAIN : rc;
    }
    switch (d->fault) {
    case DEMO_PAUSE:
        return stop(r, d->first);
    case DEMO_DELAY:
        return hold_back_write(r, d->first);
    default:
        return lose_a_lock(r, d);
    }
}

static int finish_first(struct run *r, const struct demo_round *d, bool *ret_refused)
{
    int rc = 0;
    if (d->fault == DEMO_DELAY) {
        note(r, DEMO_EV_LET_GO, d->first, 0, 0);
        rc = tell_proxy(r, 'p', d->first);
    } else {
        rc = tell(r, d->first, "write", 0);
    }
    if (d->fault == DEMO_PAUSE) {
        note(r, DEMO_EV_CONTINUED, d->first, 0, 0);
        (void)kill(r->writer[d->first].pid, SIGCONT);
    }
    return rc == 0 ? hear_of_write(r, d->first, ret_refused) : rc;
}

static int both_write(struct run *r, const struct demo_round *d, bool *ret_refused)
{
    int rc = 0;
    if (!d->late_write_first) {
        rc = write_next(r, d->next);
    }
    if (rc == 0) {
        rc = finish_first(r, d, ret_refused);
    }
    return rc == 0 && d->late_write_first ? write_next(r, d->next) : rc;
}

static int release_both(struct run *r, const struct demo_round *d)
{
    struct answer a;
    int rc = expect(r, d->next, "release", 0, "released", &a);
    return rc == 0 ? expect(r, d->first, "release", 0, "released", &a) : rc;
}

static int read_counter(struct run *r, uint64_t *ret)
{
    fl_store *store;
    char *text = NULL;
    size_t len = 0;
    int rc = fl_store_create(r->lab->store_address[store_of(r)], 0, &store);
    if (rc != 0) {
        return demo_lab_fail(r->lab, "%s", fl_strerror(rc));
    }
    const struct fl_fencing nobody = {fl_str(r->name), FL_TOKEN_NONE};
    rc = fl_store_get(store, fl_str(r->key), nobody, DEMO_DEADLINE_MS, NULL, &text, &len);
    if (rc == FL_ENOTFOUND) {
        *ret = 0;
        rc = 0;
    } else if (rc != 0 || !fli_parse_u64(text, len, UINT64_MAX, ret)) {
        rc = demo_lab_fail(r->lab, "the counter cannot be read: %s", fl_store_error(store));
    }
    free(text);
    fl_store_destroy(store);
    return rc;
}

static int faulty_update(struct run *r, const struct demo_round *d)
{
    struct demo_round_result *x = &r->result->round[r->round];
    int rc = AGAIN;
    uint64_t ttl_ms = hits_redis(d->fault) ? DEMO_TTL_MS : PAUSE_TTL_MS;
    if (hits_redis(d->fault)) {
        take_two_away(r, d);
    }
    for (unsigned i = 0; i < TTL_TRIES && rc == AGAIN; i++, ttl_ms *= 2) {
        r->result->retries += i > 0 ? 1 : 0;
        rc = begin_round(r, d, ttl_ms);
    }
    if (rc != 0) {
        return rc == AGAIN
                   ? demo_lab_fail(r->lab, "this machine is too busy: locks run out at once")
                   : rc;
    }
    rc = acquire(r, d->next, DEMO_TTL_MS);
    x->two_at_once = rc == 0;
    x->both_valid = fl_now_ms() < r->writer[d->first].deadline_ms;
    if (rc == 0) {
        rc = claim_and_read(r, d->next);
    }
    if (rc == 0) {
        rc = both_write(r, d, &x->refused);
    }
    r->result->two_at_once += x->two_at_once ? 1 : 0;
    return rc == 0 ? release_both(r, d) : rc;
}

static int do_round(struct run *r)
{
    const struct demo_round *d = &r->result->plan.round[r->round];
    struct demo_round_result *x = &r->result->round[r->round];
    uint64_t acknowledged = r->result->acknowledged;
    uint64_t before;
    int rc = read_counter(r, &before);
    if (rc == 0) {
        rc = add_together(r);
    }
    if (rc == 0) {
        rc = faulty_update(r, d);
    }
    if (rc == 0 && x->refused) {
        note(r, DEMO_EV_AGAIN, d->first, 0, 0);
        rc = tell(r, d->first, "add", DEMO_TTL_MS);
        rc = rc == 0 ? add_one(r, d->first) : rc;
    }
    if (rc == 0) {
        rc = read_counter(r, &x->counter);
    }
    if (rc != 0) {
        return rc;
    }
    x->acknowledged = r->result->acknowledged - acknowledged;
    x->lost = before + x->acknowledged > x->counter ? before + x->acknowledged - x->counter : 0;
    note(r, DEMO_EV_RESULT, 0, x->counter, r->result->acknowledged);
    return 0;
}

/* ---- the whole ------------------------------------------------------------------------------- */

static int start_writer(struct run *r, unsigned w)
{
    struct demo_writer_config config = {
        .redis = r->lab->redis_list,
        .nodes = r->lab->nodes,
        .store = r->lab->proxy[store_of(r)].address[w],
        .mode = r->result->mode,
    };
    memcpy(config.name, r->name, sizeof config.name);
    memcpy(config.key, r->key, sizeof config.key);
    int down[2] = {-1, -1};
    int up[2] = {-1, -1};
    if (pipe2(down, O_CLOEXEC) != 0 || pipe2(up, O_CLOEXEC) != 0) {
        return demo_lab_fail(r->lab, "no pipes to be had");
    }
    struct writer *x = &r->writer[w];
    x->pid = demo_fork(r->lab, NULL);
    if (x->pid == 0) {
        (void)dup2(down[0], STDIN_FILENO);
        (void)dup2(up[1], STDOUT_FILENO);
        (void)close_range(STDERR_FILENO + 1, ~0U, 0);
        _exit(demo_writer(&config));
    }
    close(down[0]);
    close(up[1]);
    x->to = down[1];
    x->from = up[0];
    return x->pid > 0 ? 0 : demo_lab_fail(r->lab, "no process to be had for a writer");
}

static void end_writers(struct run *r)
{
    for (unsigned w = 0; w < r->result->plan.writers; w++) {
        demo_kill(&r->writer[w].pid);
        if (r->writer[w].to > 0) {
            close(r->writer[w].to);
            close(r->writer[w].from);
        }
    }
}

int demo_run(struct demo_lab *lab, const struct demo_plan *plan, enum demo_mode mode,
             struct demo_result *ret)
{
    memset(ret, 0, sizeof *ret);
    ret->plan = *plan;
    ret->mode = mode;
    struct run r = {.lab = lab, .result = ret, .began_ns = fli_clock_ns()};
    snprintf(r.name, sizeof r.name, "demo-%" PRIu64, plan->seed);
    snprintf(r.key, sizeof r.key, "counter-%" PRIu64, plan->seed);
    int rc = 0;
    for (unsigned w = 0; w < plan->writers && rc == 0; w++) {
        rc = start_writer(&r, w);
    }
    for (r.round = 0; r.round < plan->rounds && rc == 0; r.round++) {
        rc = do_round(&r);
    }
    end_writers(&r);
    if (rc == 0) {
        rc = read_counter(&r, &ret->counter);
    }
    ret->lost = ret->acknowledged > ret->counter ? ret->acknowledged - ret->counter : 0;
    ret->elapsed_ms = (fli_clock_ns() - r.began_ns) / 1000000;
    return rc;
}
