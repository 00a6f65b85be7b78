/* queue_watch.c: see queue_watch.h. */
#include "cli/queue_watch.h"

#include <stdlib.h>
#include <string.h>

#define FIRST_MS UINT64_C(300) /* a lock that is free sooner is worth no question */
#define PAUSE_MIN_MS UINT64_C(500)
#define PAUSE_MAX_MS UINT64_C(60000)
#define QUIET_MS UINT64_C(20000)
/* Two requests without an answer make two seconds: then a person is told. */
#define SHOW_TIMEOUT_MS UINT64_C(700)

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

static void on_shown(void *arg, const struct fl_result *r)
{
    struct queue_watch *w = arg;
    bool answered = r->status == 0 || r->status == FL_ENOTFOUND;
    w->showing = NULL;
    w->events.holds = false;
    w->on_silence(w->ctx, r->status, answered ? NULL : r->error);
    if (!answered && w->events.step == SUBSCRIPTION_LISTENS) {
        subscription_fail(&w->events, r->status, "it does not say who waits");
    }
    if (!answered) {
        return;
    }
    const struct fl_lock_info *l = r->status == 0 ? r->locks->locks[0] : NULL;
    w->known = true;
    w->n_list = 0;
    w->beyond = 0;
    for (size_t i = 0; l != NULL && i < l->queue_len; i++) {
        append(w, l->queue[i]->owner);
    }
    w->beyond = l != NULL && l->waiters > w->n_list ? l->waiters - w->n_list : 0;
}

/* Until it is answered no event is read: the answer may be older than what comes now. Without
 * memory for it, the place is not known. */
static void ask_who_waits(struct queue_watch *w)
{
    w->known = false;
    if (w->showing == NULL &&
        fl_show_start(w->client, w->lock, SHOW_TIMEOUT_MS, on_shown, w, &w->showing) != 0) {
        w->showing = NULL;
    }
    w->events.holds = w->showing != NULL;
}

/* ---- the events ------------------------------------------------------------------------------ */

static void on_event(void *ctx, const struct watch_event *e)
{
    struct queue_watch *w = ctx;
    if (watch_event_is_gap(e)) {
        ask_who_waits(w);
    } else if (e->has_owner && strcmp(e->event, "queued") == 0) {
        drop(w, e->owner);
        append(w, e->owner);
    } else if (e->has_owner && e->has_wait) { /* it is granted, or has left */
        drop(w, e->owner);
    }
    /* All that were listed are gone, and who is behind them was never said. */
    if (w->n_list == 0 && w->beyond > 0) {
        ask_who_waits(w);
    }
}

/* Whoever cannot listen asks all the same: a wrong address must not look like a long queue. */
void queue_watch_process(struct queue_watch *w)
{
    bool listened = w->events.step == SUBSCRIPTION_LISTENS;
    enum subscription_news news = subscription_process(&w->events);
    if (news == SUBSCRIPTION_BEGUN || (news == SUBSCRIPTION_FAILED && !listened)) {
        ask_who_waits(w);
    }
}

int queue_watch_begin(struct queue_watch *w, const struct cli_args *a,
                      const struct cli_access *with)
{
    const char *name = w->lock.data;
    w->events = (struct subscription){.on_event = on_event,
                                      .ctx = w,
                                      .first_ms = FIRST_MS,
                                      .pause_ms = PAUSE_MIN_MS,
                                      .pause_max_ms = PAUSE_MAX_MS,
                                      .quiet_ms = QUIET_MS};
    return subscription_begin(&w->events, a, with, &name, 1);
}

void queue_watch_end(struct queue_watch *w)
{
    if (w->showing != NULL) {
        fl_call_cancel(w->showing);
    }
    subscription_end(&w->events);
    free(w->list);
    *w = (struct queue_watch){.known = false};
}
