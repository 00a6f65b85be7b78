/* demo_writer.c: one writer; see demo.h for what it is told and what it answers. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/bytes.h"
#include "cli/demo.h"
#include "fencelock/redlock.h"

#define WAIT_MS UINT64_C(30000)
#define SHORT_WAIT_MS UINT64_C(5000)

struct writer {
    const struct demo_writer_config *config;
    fl_redlock *redlock;
    fl_client *tokens;
    fl_store *store;
    struct fl_redlock_lock lock;
    uint64_t value; /* as read */
    fl_token mark;  /* of the last refusal */
};

static int open_all(struct writer *w)
{
    const struct demo_writer_config *c = w->config;
    /* The servers are said to keep their keys over a restart, which is not true of these: that is
     * one of the faults. Told the truth, the library would not count them for a while. */
    const struct fl_redlock_options options = {.servers = c->redis,
                                               .restarts_are_safe = true,
                                               .budget_ms = 250,
                                               .retry_ms = 4,
                                               .retry_cap_ms = 30};
    const struct fl_client_options client = {.timeout_ms = WAIT_MS};
    int rc = fl_redlock_create(NULL, &options, &w->redlock, NULL, 0);
    if (rc == 0) {
        rc = fl_client_create(c->nodes, &client, &w->tokens);
    }
    if (rc == 0) {
        rc = fl_store_create(c->store, DEMO_DEADLINE_MS * 2, &w->store);
    }
    return rc;
}

static struct fl_fencing fencing(const struct writer *w)
{
    return (struct fl_fencing){fl_str(w->config->name), w->lock.token};
}

static int acquire_once(struct writer *w, uint64_t ttl_ms, uint64_t wait_ms)
{
    const struct fl_redlock_acquire_options options = {.ttl_ms = ttl_ms, .wait_ms = wait_ms};
    struct fl_bytes name = fl_str(w->config->name);
    if (w->config->mode == DEMO_OFF) {
        return fl_redlock_acquire(w->redlock, name, &options, &w->lock);
    }
    return fl_redlock_acquire_fenced(w->redlock, name, &options, fl_issue_token_from, w->tokens,
                                     &w->lock);
}

/* On a busy machine a token may come too late for the lock's validity, which ends a call at once.
 * With a short TTL that may go on and on: then the answer is no, and we are told a longer one. */
static int acquire(struct writer *w, uint64_t ttl_ms)
{
    uint64_t wait_ms = ttl_ms < DEMO_TTL_MS ? SHORT_WAIT_MS : WAIT_MS;
    uint64_t until_ms = fl_now_ms() + wait_ms;
    int rc = FL_ETIMEOUT;
    for (uint64_t now_ms = fl_now_ms(); rc != 0 && now_ms < until_ms; now_ms = fl_now_ms()) {
        rc = acquire_once(w, ttl_ms, until_ms - now_ms);
    }
    return rc;
}

/* A claim comes before the first read: from then on no older token is accepted. DEMO_WRITES leaves
 * it out and reads without the token, so a write of the holder before is still accepted between
 * our read and our write. */
static int claim_and_read(struct writer *w)
{
    char *text = NULL;
    size_t len = 0;
    int rc = 0;
    bool claims = w->config->mode == DEMO_ON;
    struct fl_fencing with = fencing(w);
    if (!claims) {
        with.token = FL_TOKEN_NONE;
    }
    if (claims) {
        rc = fl_store_claim(w->store, fl_str(w->config->name), w->lock.token, 0, &w->mark);
    }
    if (rc == 0) {
        rc = fl_store_get(w->store, fl_str(w->config->key), with, 0, &w->mark, &text, &len);
    }
    if (rc == FL_ENOTFOUND) {
        w->value = 0;
        return 0;
    }
    if (rc == 0 && !fli_parse_u64(text, len, UINT64_MAX, &w->value)) {
        rc = FL_ECORRUPT;
    }
    free(text);
    return rc;
}

static int write_next(struct writer *w)
{
    char text[24];
    snprintf(text, sizeof text, "%" PRIu64, w->value + 1);
    int rc = fl_store_set(w->store, fl_str(w->config->key), fl_str(text), fencing(w), 0, &w->mark);
    if (rc == 0) {
        w->value++;
    }
    return rc;
}

static void release(struct writer *w)
{
    /* Lost or not, there is nothing more to be done about it. */
    int rc = fl_redlock_release(w->redlock, fl_str(w->config->name), &w->lock);
    (void)rc;
}

/* Once more and once more, until one update has been acknowledged. */
static bool add(struct writer *w, uint64_t ttl_ms, uint64_t *ret_tries)
{
    uint64_t until_ms = fl_now_ms() + WAIT_MS;
    for (*ret_tries = 1; fl_now_ms() < until_ms; ++*ret_tries) {
        int rc = acquire(w, ttl_ms);
        if (rc != 0) {
            continue;
        }
        rc = claim_and_read(w);
        if (rc == 0) {
            rc = fl_redlock_remaining_ms(&w->lock) > 0 ? write_next(w) : FL_ENOTHELD;
        }
        release(w);
        if (rc == 0) {
            return true;
        }
        if (rc != FL_ESTALE && rc != FL_ENOTHELD) {
            return false;
        }
    }
    return false;
}

static void answer(const char *word, uint64_t a, uint64_t b)
{
    char line[96];
    snprintf(line, sizeof line, "%s %" PRIu64 " %" PRIu64, word, a, b);
    if (!demo_write_line(STDOUT_FILENO, line)) {
        _exit(1);
    }
}

static void obey(struct writer *w, const char *command, uint64_t ttl_ms)
{
    uint64_t tries = 0;
    w->mark = FL_TOKEN_NONE;
    if (strcmp(command, "acquire") == 0) {
        int rc = acquire(w, ttl_ms);
        answer(rc == 0 ? "acquired" : "failed", rc == 0 ? w->lock.token : (uint64_t)-rc,
               rc == 0 ? fl_redlock_remaining_ms(&w->lock) : 0);
    } else if (strcmp(command, "read") == 0) {
        int rc = claim_and_read(w);
        answer(rc == 0           ? "read"
               : rc == FL_ESTALE ? "refused"
                                 : "failed",
               rc == 0 ? w->value : 0, w->mark);
    } else if (strcmp(command, "look") == 0) {
        uint64_t left_ms = fl_redlock_remaining_ms(&w->lock);
        answer(left_ms > 0 ? "valid" : "over", left_ms, 0);
    } else if (strcmp(command, "write") == 0) {
        int rc = write_next(w);
        answer(rc == 0           ? "written"
               : rc == FL_ESTALE ? "refused"
                                 : "unknown",
               rc == 0 ? w->value : 0, w->mark);
    } else if (strcmp(command, "release") == 0) {
        release(w);
        answer("released", 0, 0);
    } else {
        bool added = add(w, ttl_ms, &tries);
        answer(added ? "added" : "failed", w->value, tries);
    }
}

int demo_writer(const struct demo_writer_config *config)
{
    struct writer w = {.config = config};
    if (open_all(&w) != 0) {
        return 1;
    }
    char line[64];
    while (demo_read_line(STDIN_FILENO, line, sizeof line)) {
        char *blank = strchr(line, ' ');
        uint64_t ttl_ms = DEMO_TTL_MS;
        if (blank != NULL) {
            *blank = '\0';
            (void)fli_parse_u64(blank + 1, strlen(blank + 1), UINT64_MAX, &ttl_ms);
        }
        obey(&w, line, ttl_ms);
    }
    fl_store_destroy(w.store);
    fl_client_destroy(w.tokens);
    fl_redlock_close(w.redlock, NULL, NULL);
    return 0;
}
