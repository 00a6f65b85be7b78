/* subscription.c: see subscription.h. */
#include "cli/subscription.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "wire/resp.h"

#define STEP_MS UINT64_C(2000) /* to connect and to subscribe, at each node */
#define REQUEST_MAX 65536u
#define NEVER_MS UINT64_MAX

const char *subscription_node(const struct subscription *s)
{
    return s->places[s->at].node.text;
}

void subscription_fail(struct subscription *s, int code, const char *why)
{
    uint64_t pause_ms = 0;
    s->code = code;
    snprintf(s->error, sizeof s->error, "%.100s: %.140s", subscription_node(s), why);
    fli_link_close(&s->link);
    s->more = false;
    s->at = (s->at + 1) % s->n_places;
    if (++s->tried % s->n_places == 0) { /* half of it at random, so that not all come at once */
        fli_random(&pause_ms, sizeof pause_ms);
        pause_ms = s->pause_ms / 2 + pause_ms % (s->pause_ms / 2);
        s->pause_ms = s->pause_ms * 2 < s->pause_max_ms ? s->pause_ms * 2 : s->pause_max_ms;
    }
    s->step = SUBSCRIPTION_RESTS;
    s->until_ms = fl_now_ms() + pause_ms;
}

static int connect_next(struct subscription *s)
{
    struct fli_place *p = &s->places[s->at];
    s->step = SUBSCRIPTION_CONNECTS;
    s->until_ms = fl_now_ms() + STEP_MS;
    s->sent = 0;
    s->confirmed = 0;
    s->pinged = false;
    s->more = false;
    if (s->resolves_again) {
        fli_place_resolve(p, false);
    }
    bool begun = fli_place_connect(p, &s->link, &s->security);
    p->turn++;
    return begun ? 0 : FL_ENOCONN;
}

static bool is_text(const redisReply *r, size_t i, const char *text)
{
    return i < r->elements && r->element[i]->type == REDIS_REPLY_STRING &&
           (text == NULL || strcmp(r->element[i]->str, text) == 0);
}

static int refuse(struct subscription *s, int code, const char *why)
{
    subscription_fail(s, code, why);
    return code;
}

static int take_confirmation(struct subscription *s, const redisReply *r)
{
    if (!is_text(r, 0, "subscribe") && !is_text(r, 0, "psubscribe")) {
        bool error = r->type == REDIS_REPLY_ERROR;
        return refuse(s, error && strncmp(r->str, "LIMIT", 5) == 0 ? FL_ELIMIT : FL_EPROTO,
                      error ? r->str : "its answer makes no sense");
    }
    if (++s->confirmed == s->n_requests) {
        s->step = SUBSCRIPTION_LISTENS;
        s->until_ms = fl_now_ms() + s->quiet_ms;
    }
    return 0;
}

static int take_frame(struct subscription *s, const redisReply *r)
{
    static struct watch_event e; /* large */
    if (s->step == SUBSCRIPTION_ASKS) {
        return take_confirmation(s, r);
    }
    s->pinged = false;
    if (r->type == REDIS_REPLY_ERROR) {
        return refuse(s, FL_EIO, r->str); /* this client was too slow, for example */
    }
    if (is_text(r, 0, "pong")) {
        return 0;
    }
    size_t n = is_text(r, 0, "message") ? 3 : is_text(r, 0, "pmessage") ? 4 : 0;
    if (n == 0 || r->elements != n || !is_text(r, n - 2, NULL) || !is_text(r, n - 1, NULL)) {
        return refuse(s, FL_EPROTO, "what it sends makes no sense");
    }
    const redisReply *channel = r->element[n - 2];
    const redisReply *text = r->element[n - 1];
    if (!watch_event_parse((struct fl_bytes){channel->str, channel->len},
                           (struct fl_bytes){text->str, text->len}, &e)) {
        return refuse(s, FL_EPROTO, "an event makes no sense");
    }
    s->on_event(s->ctx, &e);
    return 0;
}

/* 0; or a code, after which the step is RESTS if the reason is said already. */
static int read_frames(struct subscription *s)
{
    redisReply *r = NULL;
    enum subscription_step step = s->step;
    int rc = s->more ? 0 : fli_link_read(&s->link);
    while (rc >= 0 && !s->holds && s->step == step && (rc = fli_link_next(&s->link, &r)) == 1) {
        rc = take_frame(s, r);
        freeReplyObject(r);
    }
    /* the owner hears first that it listens */
    s->more = rc >= 0 && (s->holds || s->step != step);
    return rc < 0 ? rc : 0;
}

static int take_step(struct subscription *s)
{
    int rc = 0;
    if (s->step == SUBSCRIPTION_CONNECTS) {
        rc = fli_link_finish(&s->link);
        s->step = rc == 0 ? SUBSCRIPTION_ASKS : s->step;
    }
    if (s->step == SUBSCRIPTION_ASKS && s->sent < s->request.len) {
        rc = fli_link_push(&s->link, s->request.data, s->request.len, &s->sent);
    }
    rc = rc == FL_EBUSY ? 0 : rc;
    return rc != 0 || s->step == SUBSCRIPTION_CONNECTS ? rc : read_frames(s);
}

/* No event comes for long while nobody comes or goes: does the node still answer? */
static int ping(struct subscription *s)
{
    static const char text[] = "*1\r\n$4\r\nPING\r\n";
    size_t at = 0;
    if (s->pinged || s->step != SUBSCRIPTION_LISTENS) {
        return refuse(s,
                      s->pinged                          ? FL_EIO
                      : s->step == SUBSCRIPTION_CONNECTS ? FL_ENOCONN
                                                         : FL_ETIMEOUT,
                      "no answer");
    }
    s->pinged = true;
    s->until_ms = fl_now_ms() + s->quiet_ms;
    return fli_link_push(&s->link, text, sizeof text - 1, &at);
}

enum subscription_news subscription_process(struct subscription *s)
{
    enum subscription_step before = s->step;
    bool due = fl_now_ms() >= s->until_ms && !s->holds;
    if (s->step == SUBSCRIPTION_OFF || s->holds || (s->step == SUBSCRIPTION_RESTS && !due)) {
        return SUBSCRIPTION_NOTHING;
    }
    int rc = s->step == SUBSCRIPTION_RESTS ? connect_next(s) : take_step(s);
    bool listens = s->step == SUBSCRIPTION_LISTENS && before == SUBSCRIPTION_LISTENS;
    if (rc == 0 && due && before != SUBSCRIPTION_RESTS && s->step == before) {
        rc = ping(s);
    }
    if (rc != 0 && s->step != SUBSCRIPTION_RESTS) {
        subscription_fail(s, rc == FL_EDENIED || listens ? rc : FL_ENOCONN, s->link.error);
    }
    return rc != 0                                                             ? SUBSCRIPTION_FAILED
           : s->step == SUBSCRIPTION_LISTENS && before != SUBSCRIPTION_LISTENS ? SUBSCRIPTION_BEGUN
           : listens && due                                                    ? SUBSCRIPTION_QUIET
                            : SUBSCRIPTION_NOTHING;
}

struct pollfd subscription_poll(const struct subscription *s)
{
    bool writes = (s->step == SUBSCRIPTION_CONNECTS && !s->link.wants_read) ||
                  (s->step == SUBSCRIPTION_ASKS && s->sent < s->request.len);
    bool is_open = s->step >= SUBSCRIPTION_CONNECTS && !s->holds;
    return (struct pollfd){.fd = is_open ? s->link.fd : -1,
                           .events = (short)(writes ? POLLOUT : POLLIN)};
}

uint64_t subscription_next_ms(const struct subscription *s)
{
    if (s->step == SUBSCRIPTION_OFF || s->holds) {
        return NEVER_MS;
    }
    if (s->more) {
        return 0;
    }
    bool again = s->step == SUBSCRIPTION_CONNECTS && s->link.again_ms < s->until_ms;
    return again ? s->link.again_ms : s->until_ms;
}

/* ---- life ------------------------------------------------------------------------------------ */

static int put_word(struct subscription *s, const char *word)
{
    char channel[FL_NAME_MAX + 16];
    bool is_pattern = s->patterns && strpbrk(word, "*?[") != NULL;
    snprintf(channel, sizeof channel, "lock:%s", word);
    int rc = fli_resp_array(&s->request, 2);
    rc = rc == 0 ? fli_resp_text(&s->request, is_pattern ? "PSUBSCRIBE" : "SUBSCRIBE") : rc;
    return rc == 0 ? fli_resp_text(&s->request, channel) : rc;
}

int subscription_begin(struct subscription *s, const struct cli_args *a,
                       const struct cli_access *with, const char *const *words, unsigned n)
{
    uint64_t first;
    int code = cli_security_of(a, with, &s->security);
    if (code != 0) {
        return code;
    }
    fli_link_init(&s->link);
    fli_buf_init(&s->request, REQUEST_MAX);
    for (s->n_requests = 0; s->n_requests < n; s->n_requests++) {
        if (put_word(s, words[s->n_requests]) != 0) {
            fli_fatal("fencelock: out of memory");
        }
    }
    s->n_places = with->n;
    s->places = fli_xcalloc(with->n, sizeof *s->places);
    for (uint32_t i = 0; i < with->n; i++) {
        s->places[i].node = with->nodes[i];
        if (!s->resolves_again) {
            fli_place_resolve(&s->places[i], false);
        }
    }
    fli_random(&first, sizeof first);
    s->at = (uint32_t)(first % with->n);
    s->step = SUBSCRIPTION_RESTS;
    s->until_ms = fl_now_ms() + s->first_ms;
    return 0;
}

void subscription_end(struct subscription *s)
{
    if (s->step == SUBSCRIPTION_OFF) {
        return;
    }
    fli_link_close(&s->link);
    fli_link_security_fini(&s->security);
    fli_buf_fini(&s->request);
    free(s->places);
    *s = (struct subscription){.step = SUBSCRIPTION_OFF};
}
