/* queue_watch.c: see queue_watch.h. */
#include "cli/queue_watch.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "cli/watch_event.h"
#include "wire/resp.h"

#define FIRST_MS UINT64_C(300) /* a lock that is free sooner is worth no question */
#define PAUSE_MIN_MS UINT64_C(500)
#define PAUSE_MAX_MS UINT64_C(60000)
#define STEP_MS UINT64_C(2000)
#define PING_EVERY_MS UINT64_C(20000)
/* Two requests without an answer make two seconds: then a person is told. */
#define ASK_TIMEOUT_MS UINT64_C(700)
#define REQUEST_MAX 1024u
#define NEVER_MS UINT64_MAX

/* ---- the list -------------------------------------------------------------------------------- */

static size_t find(const struct queue_watch *w, struct fl_bytes owner)
{
    size_t i = 0;
    while (i < w->n_list &&
           (w->list[i].len != owner.len || memcmp(w->list[i].data, owner.data, owner.len) != 0)) {
        i++;
    }
    return i;
}

static void append(struct queue_watch *w, struct fl_bytes owner)
{
    if (w->beyond > 0 || owner.len > FL_OWNER_MAX) {
        w->beyond++;
        return;
    }
    if (w->n_list == w->cap_list) {
        size_t cap = w->cap_list == 0 ? 16 : w->cap_list * 2;
        struct queue_owner *list = realloc(w->list, cap * sizeof *list);
        if (list == NULL) {
            fli_fatal("fencelock: out of memory");
        }
        w->list = list;
        w->cap_list = cap;
    }
    struct queue_owner *o = &w->list[w->n_list++];
    o->len = owner.len;
    memcpy(o->data, owner.data, owner.len);
}

static void drop(struct queue_watch *w, struct fl_bytes owner)
{
    size_t i = find(w, owner);
    if (i < w->n_list) {
        w->n_list--;
        memmove(&w->list[i], &w->list[i + 1], (w->n_list - i) * sizeof w->list[0]);
    } else if (w->beyond > 0) {
        w->beyond--;
    }
}

bool queue_watch_place(const struct queue_watch *w, uint64_t *ret_place, uint64_t *ret_waiters)
{
    size_t i = w->known ? find(w, w->owner) : w->n_list;
    *ret_place = i + 1;
    *ret_waiters = w->n_list + w->beyond;
    return i < w->n_list;
}

/* ---- the question ---------------------------------------------------------------------------- */

static void rest(struct queue_watch *w)
{
    fli_link_close(&w->link);
    w->step = QUEUE_RESTS;
    w->until_ms = fl_now_ms() + w->pause_ms;
    w->pause_ms = w->pause_ms * 2 < PAUSE_MAX_MS ? w->pause_ms * 2 : PAUSE_MAX_MS;
}

static void on_shown(void *arg, int status, const char *error, struct fl_lock_list *list)
{
    struct queue_watch *w = arg;
    bool answered = status == 0 || status == FL_ENOTFOUND;
    w->showing = NULL;
    w->on_silence(w->ctx, status, answered ? NULL : error);
    if (!answered && w->step != QUEUE_RESTS) {
        rest(w);
    }
    if (!answered) {
        return;
    }
    const struct fl_lock_info *l = status == 0 ? &list->locks[0] : NULL;
    w->known = true;
    w->n_list = 0;
    w->beyond = 0;
    for (size_t i = 0; l != NULL && i < l->queue_len; i++) {
        append(w, l->queue[i].owner);
    }
    w->beyond = l != NULL && l->waiters > w->n_list ? l->waiters - w->n_list : 0;
    fl_lock_list_free(list);
}

/* Without memory for it, the place is not known. */
static void ask_who_waits(struct queue_watch *w)
{
    w->known = false;
    if (w->showing == NULL &&
        fl_async_show(w->async, w->lock, ASK_TIMEOUT_MS, on_shown, w, &w->showing) != 0) {
        w->showing = NULL;
    }
}

/* ---- the subscription ------------------------------------------------------------------------ */

/* Whoever cannot listen asks all the same: a wrong address must not look like a long queue. */
static void fail(struct queue_watch *w)
{
    bool listened = w->step == QUEUE_LISTENS;
    w->at = (w->at + 1) % w->n_places;
    rest(w);
    if (!listened) {
        ask_who_waits(w);
    }
}

static void connect_next(struct queue_watch *w)
{
    struct fli_place *p = &w->places[w->at];
    w->step = QUEUE_CONNECTS;
    w->until_ms = fl_now_ms() + STEP_MS;
    w->sent = 0;
    w->pinged = false;
    if (!fli_place_connect(p, &w->link, &w->security)) {
        fail(w);
    }
    p->turn++;
}

static int take_event(struct queue_watch *w, const redisReply *r)
{
    static struct watch_event e; /* large */
    struct fl_bytes channel = {r->element[1]->str, r->element[1]->len};
    struct fl_bytes text = {r->element[2]->str, r->element[2]->len};
    if (!watch_event_parse(channel, text, &e)) {
        return FL_EPROTO;
    }
    if (watch_event_is_gap(&e)) {
        ask_who_waits(w);
    } else if (e.has_owner && strcmp(e.event, "queued") == 0) {
        drop(w, e.owner);
        append(w, e.owner);
    } else if (e.has_owner && e.has_wait) { /* it is granted, or has left */
        drop(w, e.owner);
    }
    /* All that were listed are gone, and who is behind them was never said. */
    if (w->n_list == 0 && w->beyond > 0) {
        ask_who_waits(w);
    }
    return 0;
}

static bool is_text(const redisReply *r, size_t i, const char *text)
{
    return i < r->elements && r->element[i]->type == REDIS_REPLY_STRING &&
           (text == NULL || strcmp(r->element[i]->str, text) == 0);
}

static int take_frame(struct queue_watch *w, const redisReply *r)
{
    w->pinged = false;
    if (r->type != REDIS_REPLY_ARRAY) {
        return r->type == REDIS_REPLY_ERROR ? FL_EDENIED : FL_EPROTO;
    }
    if (w->step == QUEUE_ASKS && is_text(r, 0, "subscribe")) {
        w->step = QUEUE_LISTENS;
        w->until_ms = fl_now_ms() + PING_EVERY_MS;
        ask_who_waits(w);
        return 0;
    }
    if (is_text(r, 0, "message") && is_text(r, 1, NULL) && is_text(r, 2, NULL)) {
        return take_event(w, r);
    }
    return is_text(r, 0, "pong") ? 0 : FL_EPROTO;
}

/* While the question is on its way nothing is read: its answer may be older than what comes now. */
static int listen_to_it(struct queue_watch *w)
{
    int rc = w->showing != NULL ? 0 : fli_link_read(&w->link);
    redisReply *r = NULL;
    while (rc >= 0 && w->showing == NULL && (rc = fli_link_next(&w->link, &r)) == 1) {
        rc = take_frame(w, r);
        freeReplyObject(r);
    }
    return rc < 0 ? rc : 0;
}

static int take_step(struct queue_watch *w)
{
    int rc = 0;
    if (w->step == QUEUE_CONNECTS) {
        rc = fli_link_finish(&w->link);
        w->step = rc == 0 ? QUEUE_ASKS : w->step;
    }
    if (w->step == QUEUE_ASKS && w->sent < w->request.len) {
        rc = fli_link_push(&w->link, w->request.data, w->request.len, &w->sent);
    }
    return rc != 0 || w->step == QUEUE_CONNECTS ? rc : listen_to_it(w);
}

/* No event comes for long while nobody comes or goes: does the node still answer? */
static int ping(struct queue_watch *w)
{
    static const char text[] = "*1\r\n$4\r\nPING\r\n";
    size_t at = 0;
    if (w->pinged || w->step != QUEUE_LISTENS) {
        return FL_ETIMEOUT;
    }
    w->pinged = true;
    w->until_ms = fl_now_ms() + PING_EVERY_MS;
    return fli_link_push(&w->link, text, sizeof text - 1, &at);
}

void queue_watch_process(struct queue_watch *w)
{
    bool due = fl_now_ms() >= w->until_ms && w->showing == NULL;
    if (w->step == QUEUE_OFF || (w->step == QUEUE_RESTS && !due)) {
        return;
    }
    if (w->step == QUEUE_RESTS) {
        connect_next(w);
        return;
    }
    int rc = take_step(w);
    if (rc == 0 || rc == FL_EBUSY) {
        rc = due ? ping(w) : 0;
    }
    if (rc != 0) {
        fail(w);
    }
}

struct pollfd queue_watch_poll(const struct queue_watch *w)
{
    bool writes = (w->step == QUEUE_CONNECTS && !w->link.wants_read) ||
                  (w->step == QUEUE_ASKS && w->sent < w->request.len);
    bool listens = w->step != QUEUE_OFF && w->step != QUEUE_RESTS && w->showing == NULL;
    return (struct pollfd){.fd = listens ? w->link.fd : -1,
                           .events = (short)(writes ? POLLOUT : POLLIN)};
}

uint64_t queue_watch_next_ms(const struct queue_watch *w)
{
    if (w->step == QUEUE_OFF || w->showing != NULL) {
        return NEVER_MS; /* a question ends by itself */
    }
    bool again = w->step == QUEUE_CONNECTS && w->link.again_ms < w->until_ms;
    return again ? w->link.again_ms : w->until_ms;
}

/* ---- life ------------------------------------------------------------------------------------ */

int queue_watch_begin(struct queue_watch *w, const struct cli_args *a,
                      const struct cli_access *with)
{
    char channel[FL_NAME_MAX + 16];
    uint64_t first;
    int code = cli_security_of(a, with, &w->security);
    if (code != 0) {
        return code;
    }
    fli_link_init(&w->link);
    fli_buf_init(&w->request, REQUEST_MAX);
    snprintf(channel, sizeof channel, "lock:%.*s", (int)w->lock.len, (const char *)w->lock.data);
    int rc = fli_resp_array(&w->request, 2);
    rc = rc == 0 ? fli_resp_text(&w->request, "SUBSCRIBE") : rc;
    rc = rc == 0 ? fli_resp_text(&w->request, channel) : rc;
    if (rc != 0) {
        fli_fatal("fencelock: out of memory");
    }
    w->n_places = with->n;
    w->places = fli_xcalloc(with->n, sizeof *w->places);
    for (uint32_t i = 0; i < with->n; i++) {
        w->places[i].node = with->nodes[i];
        fli_place_resolve(&w->places[i], false);
    }
    fli_random(&first, sizeof first);
    w->at = (uint32_t)(first % with->n);
    w->step = QUEUE_RESTS;
    w->until_ms = fl_now_ms() + FIRST_MS;
    w->pause_ms = PAUSE_MIN_MS;
    return 0;
}

void queue_watch_end(struct queue_watch *w)
{
    if (w->step == QUEUE_OFF) {
        return;
    }
    if (w->showing != NULL) {
        fl_call_cancel(w->showing);
    }
    fli_link_close(&w->link);
    fli_link_security_fini(&w->security);
    fli_buf_fini(&w->request);
    free(w->places);
    free(w->list);
    *w = (struct queue_watch){.step = QUEUE_OFF};
}
