/* parked.c: see parked.h. */
#include "server/parked.h"

#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"

struct parked_wait {
    struct fli_map_node node;
    struct fli_list requests; /* also the link of the spare list */
    struct fli_list told;     /* on parked->told once it has ended */
    struct parked_news news;  /* PARKED_WAITING until then, and so long it is in parked->waits */
    uint64_t id;
    uint64_t times_asked; /* the highest request count known */
    unsigned live;
};

static struct parked_wait *wait_of(const struct fli_map_node *node)
{
    return FLI_CONTAINER_OF(node, struct parked_wait, node);
}

static bool wait_eq(const struct fli_map_node *node, const void *key, size_t key_len)
{
    FLI_ASSERT(key_len == sizeof(uint64_t));
    return wait_of(node)->id == fli_get_u64(key);
}

static struct parked_event *event_of(const struct fli_map_node *node)
{
    return FLI_CONTAINER_OF(node, struct parked_event, node);
}

static bool event_eq(const struct fli_map_node *node, const void *key, size_t key_len)
{
    FLI_ASSERT(key_len == sizeof(uint64_t));
    return event_of(node)->news.wait == fli_get_u64(key);
}

static bool timer_less(const struct fli_heap_node *a, const struct fli_heap_node *b)
{
    const struct parked_request *x = FLI_CONTAINER_OF(a, struct parked_request, timer);
    const struct parked_request *y = FLI_CONTAINER_OF(b, struct parked_request, timer);
    if (x->deadline_ms != y->deadline_ms) {
        return x->deadline_ms < y->deadline_ms;
    }
    return x->order < y->order;
}

void parked_init(struct parked *p, const uint64_t seed[2])
{
    fli_map_init(&p->waits, wait_eq, seed);
    fli_heap_init(&p->timers, timer_less);
    fli_list_init(&p->told);
    fli_list_init(&p->spare);
    fli_list_init(&p->verified);
    fli_list_init(&p->unverified);
    p->spare_n = 0;
    p->order = 0;
    p->len = 0;
    p->unanswered = 0;
    p->events = 0;
    fli_map_init(&p->recent, event_eq, seed);
    memset(p->ring, 0, sizeof p->ring);
}

void parked_fini(struct parked *p)
{
    FLI_ASSERT(p->len == 0 && p->waits.len == 0 && p->unanswered == 0);
    FLI_ASSERT(fli_list_empty(&p->told));
    struct fli_list *link = NULL;
    while ((link = fli_list_pop(&p->spare)) != NULL) {
        free(FLI_CONTAINER_OF(link, struct parked_wait, requests));
    }
    fli_heap_fini(&p->timers);
    fli_map_fini(&p->recent);
    fli_map_fini(&p->waits);
}

uint64_t parked_request_sent(struct parked *p)
{
    p->unanswered++;
    return p->events;
}

void parked_request_answered(struct parked *p)
{
    FLI_ASSERT(p->unanswered > 0);
    p->unanswered--;
}

static struct parked_event *find_event(struct parked *p, uint64_t wait, uint64_t *ret_hash)
{
    uint8_t key[8];
    fli_put_u64(key, wait);
    *ret_hash = fli_map_hash(&p->recent, key, sizeof key);
    struct fli_map_node *node = fli_map_find_hashed(&p->recent, *ret_hash, key, sizeof key);
    return node == NULL ? NULL : event_of(node);
}

static void unlist(struct parked *p, struct parked_event *e)
{
    if (e->listed) {
        fli_map_remove(&p->recent, &e->node);
        e->listed = false;
    }
}

static void remember(struct parked *p, const struct parked_news *news)
{
    if (p->unanswered == 0) {
        return;
    }
    struct parked_event *e = &p->ring[p->events % PARKED_RING];
    uint64_t hash = 0;
    unlist(p, e);
    struct parked_event *same = find_event(p, news->wait, &hash);
    if (same != NULL) {
        unlist(p, same); /* it came twice, and whoever may hear of the first may of this one */
    }
    *e = (struct parked_event){.news = *news, .number = p->events++, .listed = true};
    if (fli_map_insert(&p->recent, &e->node, hash) != 0) {
        fli_fatal("out of memory for an event");
    }
    FLI_ASSERT(p->recent.len <= PARKED_RING);
}

/* What the ring says about a wait, from the event numbered `since` on. */
static struct parked_news recall(struct parked *p, uint64_t wait, uint64_t since)
{
    FLI_ASSERT(since <= p->events);
    uint64_t hash = 0;
    const struct parked_event *e = find_event(p, wait, &hash);
    if (e == NULL || e->number < since) {
        return (struct parked_news){.end = PARKED_WAITING, .wait = wait};
    }
    FLI_ASSERT(e->news.wait == wait && e->number < p->events);
    FLI_ASSERT(p->events - e->number <= PARKED_RING);
    return e->news;
}

bool parked_has_all(const struct parked *p, uint64_t since)
{
    FLI_ASSERT(since <= p->events);
    return p->events - since <= PARKED_RING;
}

static struct parked_wait *find(struct parked *p, uint64_t wait, uint64_t *ret_hash)
{
    uint8_t key[8];
    fli_put_u64(key, wait);
    *ret_hash = fli_map_hash(&p->waits, key, sizeof key);
    struct fli_map_node *node = fli_map_find_hashed(&p->waits, *ret_hash, key, sizeof key);
    return node == NULL ? NULL : wait_of(node);
}

static struct parked_wait *find_or_add(struct parked *p, uint64_t wait)
{
    uint64_t hash = 0;
    struct parked_wait *w = find(p, wait, &hash);
    if (w != NULL) {
        return w;
    }
    struct fli_list *link = fli_list_pop(&p->spare);
    w = link != NULL ? FLI_CONTAINER_OF(link, struct parked_wait, requests)
                     : fli_xmalloc(sizeof *w);
    p->spare_n -= link != NULL;
    fli_list_init(&w->requests);
    fli_list_init(&w->told);
    w->news = (struct parked_news){.end = PARKED_WAITING, .wait = wait};
    w->id = wait;
    w->times_asked = 0;
    w->live = 0;
    if (fli_map_insert(&p->waits, &w->node, hash) != 0) {
        fli_fatal("out of memory for a waiting request");
    }
    return w;
}

struct parked_news parked_add(struct parked *p, struct parked_request *r, uint64_t wait,
                              uint64_t times_asked, uint64_t since, uint64_t deadline_ms)
{
    FLI_ASSERT(wait != 0);
    struct parked_news news = recall(p, wait, since);
    if (news.end != PARKED_WAITING) {
        return news;
    }
    struct parked_wait *w = find_or_add(p, wait);
    w->times_asked = times_asked > w->times_asked ? times_asked : w->times_asked;
    w->live++;
    fli_list_push(&w->requests, &r->link);
    fli_list_push(&p->verified, &r->verified);
    r->wait = w;
    r->live = true;
    r->deadline_ms = deadline_ms;
    r->order = p->order++;
    fli_heap_node_init(&r->timer);
    if (fli_heap_insert(&p->timers, &r->timer) != 0) {
        fli_fatal("out of memory for a waiting request");
    }
    p->len++;
    return news;
}

bool parked_leave(struct parked *p, struct parked_request *r, uint64_t *ret_times_asked)
{
    FLI_ASSERT(r->wait != NULL && r->wait->news.end == PARKED_WAITING);
    if (!r->live) {
        return false;
    }
    r->live = false;
    FLI_ASSERT(r->wait->live > 0);
    r->wait->live--;
    if (r->wait->live > 0) {
        return false;
    }
    *ret_times_asked = r->wait->times_asked;
    return true;
}

bool parked_is_told(const struct parked_request *r)
{
    FLI_ASSERT(r->wait != NULL);
    return r->wait->news.end != PARKED_WAITING;
}

/* Nothing is parked on it any more. */
static void forget(struct parked *p, struct parked_wait *w)
{
    FLI_ASSERT(w->live == 0 && fli_list_linked(&w->told) == (w->news.end != PARKED_WAITING));
    if (w->news.end == PARKED_WAITING) {
        fli_map_remove(&p->waits, &w->node);
    } else {
        fli_list_remove(&w->told);
    }
    if (p->spare_n >= PARKED_SPARE_MAX) {
        free(w);
        return;
    }
    p->spare_n++;
    fli_list_push(&p->spare, &w->requests);
}

struct parked_news parked_remove(struct parked *p, struct parked_request *r)
{
    struct parked_wait *w = r->wait;
    FLI_ASSERT(w != NULL && p->len > 0);
    struct parked_news news = w->news;
    p->len--;
    w->live -= r->live;
    r->wait = NULL;
    r->live = false;
    fli_list_remove(&r->link);
    fli_list_remove(&r->verified);
    fli_heap_remove(&p->timers, &r->timer);
    if (fli_list_empty(&w->requests)) {
        forget(p, w);
    }
    return news;
}

void parked_end(struct parked *p, const struct parked_news *news)
{
    FLI_ASSERT(news->end != PARKED_WAITING && news->wait != 0);
    /* Also when a request is parked on it: the QUEUED of another one may be under way. */
    remember(p, news);
    uint64_t hash = 0;
    struct parked_wait *w = p->len == 0 ? NULL : find(p, news->wait, &hash);
    if (w == NULL) {
        return; /* nobody waits here, or an earlier event has told of it */
    }
    FLI_ASSERT(w->news.end == PARKED_WAITING && !fli_list_empty(&w->requests));
    fli_map_remove(&p->waits, &w->node);
    w->news = *news;
    fli_list_push(&p->told, &w->told);
}

struct parked_request *parked_take_told(struct parked *p, struct parked_news *ret)
{
    struct fli_list *first = fli_list_pop(&p->told);
    if (first == NULL) {
        return NULL;
    }
    struct parked_wait *w = FLI_CONTAINER_OF(first, struct parked_wait, told);
    fli_list_push(&p->told, &w->told); /* until all waits have had a turn */
    struct fli_list *link = fli_list_first(&w->requests);
    FLI_ASSERT(link != NULL);
    struct parked_request *r = FLI_CONTAINER_OF(link, struct parked_request, link);
    *ret = parked_remove(p, r);
    return r;
}

void parked_skipped(struct parked *p)
{
    fli_list_splice(&p->unverified, &p->verified);
}

void parked_verify(struct parked *p, unsigned max, bool (*goes_on)(void *ctx, uint64_t wait),
                   void *ctx)
{
    struct fli_list *link = NULL;
    while (max-- > 0 && (link = fli_list_pop(&p->unverified)) != NULL) {
        struct parked_request *r = FLI_CONTAINER_OF(link, struct parked_request, verified);
        fli_list_push(&p->verified, &r->verified);
        if (!parked_is_told(r) && !goes_on(ctx, r->wait->id)) {
            r->deadline_ms = 0;
            fli_heap_update(&p->timers, &r->timer);
        }
    }
}

static uint64_t first_deadline(const struct parked *p)
{
    struct fli_heap_node *min = fli_heap_min(&p->timers);
    return min == NULL ? UINT64_MAX
                       : FLI_CONTAINER_OF(min, struct parked_request, timer)->deadline_ms;
}

struct parked_request *parked_take_any(struct parked *p, struct parked_news *ret)
{
    struct fli_heap_node *min = fli_heap_min(&p->timers);
    if (min == NULL) {
        return NULL;
    }
    struct parked_request *r = FLI_CONTAINER_OF(min, struct parked_request, timer);
    *ret = parked_remove(p, r);
    return r;
}

struct parked_request *parked_take_due(struct parked *p, uint64_t now_ms, struct parked_news *ret)
{
    return first_deadline(p) <= now_ms ? parked_take_any(p, ret) : NULL;
}

uint64_t parked_next_deadline(const struct parked *p)
{
    return fli_list_empty(&p->unverified) && fli_list_empty(&p->told) ? first_deadline(p) : 0;
}
