/* queue_watch.c: see queue_watch.h. */
#include "cli/queue_watch.h"

#include <string.h>

#include "base/bytes.h"

#define FIRST_MS UINT64_C(300) /* a lock that is free sooner is worth no question */
#define EVERY_MS UINT64_C(1000)
#define PAUSE_MIN_MS UINT64_C(500)
#define PAUSE_MAX_MS UINT64_C(60000)
#define QUIET_MS UINT64_C(20000)
/* Two requests without an answer make two seconds: then a person is told. */
#define SHOW_TIMEOUT_MS UINT64_C(700)

/* ---- the list -------------------------------------------------------------------------------- */

static size_t count(const struct queue_watch *w)
{
    return w->list.len / sizeof(uint64_t);
}

/* A number that is hardly another owner's: it is for people, who look again. */
static uint64_t number_of(struct fl_bytes owner)
{
    return (uint64_t)owner.len << 32 | fli_crc32c(0, owner.data, owner.len);
}

static size_t find(const struct queue_watch *w, struct fl_bytes owner)
{
    const uint64_t *list = (const void *)w->list.data; /* memory of malloc() */
    size_t i = 0;
    while (i < count(w) && list[i] != number_of(owner)) {
        i++;
    }
    return i;
}

static void append(struct queue_watch *w, struct fl_bytes owner)
{
    uint64_t number = number_of(owner);
    if (w->beyond > 0) {
        w->beyond++;
    } else if (fli_buf_append(&w->list, &number, sizeof number) != 0) {
        fli_fatal("fencelock: out of memory");
    }
}

static void drop(struct queue_watch *w, struct fl_bytes owner)
{
    size_t at = find(w, owner) * sizeof(uint64_t);
    if (at < w->list.len) {
        w->list.len -= sizeof(uint64_t);
        memmove(w->list.data + at, w->list.data + at + sizeof(uint64_t), w->list.len - at);
    } else if (w->beyond > 0) {
        w->beyond--;
    }
}

bool queue_watch_place(const struct queue_watch *w, uint64_t *ret_place, uint64_t *ret_waiters)
{
    size_t i = find(w, w->owner);
    *ret_place = i + 1;
    *ret_waiters = count(w) + w->beyond;
    return i < count(w);
}

/* ---- the question ---------------------------------------------------------------------------- */

static void again_later(struct queue_watch *w)
{
    w->asks = true;
    w->next_ms = fl_now_ms() + w->pause_ms;
    w->pause_ms = w->pause_ms * 2 < PAUSE_MAX_MS ? w->pause_ms * 2 : PAUSE_MAX_MS;
}

static void on_shown(void *arg, const struct fl_result *r)
{
    struct queue_watch *w = arg;
    w->showing = 0;
    fli_buf_clear(&w->list);
    w->beyond = 0;
    if (r->status != 0 && r->status != FL_ENOTFOUND) {
        again_later(w);
        w->on_news(w->ctx, r->status, r->error);
        return;
    }
    const struct fl_lock_info *l = r->status == 0 ? r->locks->locks[0] : NULL;
    for (size_t i = 0; l != NULL && i < l->queue_len; i++) {
        append(w, l->queue[i]->owner);
    }
    w->beyond = l != NULL && l->waiters > count(w) ? l->waiters - count(w) : 0;
    w->next_ms = fl_now_ms() + EVERY_MS;
    w->on_news(w->ctx, 0, "");
}

/* ---- the events ------------------------------------------------------------------------------ */

static void take(struct queue_watch *w, const struct fl_event *e)
{
    if (e->kind == FL_EVENT_QUEUED || e->wait != 0) { /* or it is granted, or has left */
        drop(w, e->owner);
    }
    if (e->kind == FL_EVENT_QUEUED) {
        append(w, e->owner);
    }
    /* Whoever cannot listen asks all the same: a wrong address must not look like a long queue. And
     * when all that were listed are gone, the names of those behind them were never said. */
    w->asks = w->asks || e->kind == FL_EVENT_LISTENS || e->kind == FL_EVENT_MISSED ||
              e->kind == FL_EVENT_INTERRUPTED || (w->list.len == 0 && w->beyond > 0);
}

static bool hear(struct queue_watch *w)
{
    bool heard = false;
    const struct fl_event *e;
    while ((e = fl_watch_poll(w->events)) != NULL) {
        take(w, e);
        heard = true;
    }
    return heard;
}

/* Until a question is answered no event is fetched: the answer may be older than what comes now. */
void queue_watch_process(struct queue_watch *w)
{
    const struct fl_watch_options o = {.names = &w->lock, .names_len = 1, .quiet_ms = QUIET_MS};
    const struct fl_ask show = {
        .what = FL_ASK_SHOW, .name = w->lock, .timeout_ms = SHOW_TIMEOUT_MS};
    int rc = 0;
    if (w->client == NULL || w->showing != 0 || fl_now_ms() < w->next_ms) {
        return;
    }
    w->next_ms = 0;
    if (w->events == NULL) {
        rc = fl_watch_open(w->client, NULL, &o, &w->events);
    } else if (hear(w) && !w->asks) {
        w->next_ms = fl_now_ms() + EVERY_MS;
        w->on_news(w->ctx, 0, "");
    }
    if (w->asks) {
        w->asks = false;
        rc = fl_ask_start(w->client, &show, on_shown, w, &w->showing);
    }
    if (rc != 0) {
        w->showing = 0;
        again_later(w);
    }
}

uint64_t queue_watch_next_ms(const struct queue_watch *w)
{
    return w->next_ms != 0 && w->showing == 0 ? w->next_ms : UINT64_MAX;
}

void queue_watch_begin(struct queue_watch *w)
{
    fli_buf_init(&w->list, SIZE_MAX / 2);
    w->pause_ms = PAUSE_MIN_MS;
    w->next_ms = fl_now_ms() + FIRST_MS;
}

void queue_watch_end(struct queue_watch *w)
{
    if (w->showing != 0) {
        fl_call_cancel(w->client, w->showing);
    }
    fl_watch_close(w->events);
    fli_buf_fini(&w->list);
    *w = (struct queue_watch){.client = NULL};
}
