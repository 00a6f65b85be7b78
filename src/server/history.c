/* history.c: see history.h. */
#include "server/history.h"

#include <stdlib.h>
#include <string.h>

struct history_lock {
    struct fli_map_node by_name;
    struct fli_list recent;
    struct history_event events[HISTORY_EVENTS];
    uint64_t n; /* ever; the next one goes to n % HISTORY_EVENTS */
    uint8_t name_len;
    uint8_t name[FL_NAME_MAX];
};

static bool name_eq(const struct fli_map_node *node, const void *key, size_t len)
{
    const struct history_lock *l =
        (const struct history_lock *)(const void *)((const char *)node -
                                                    offsetof(struct history_lock, by_name));
    return l->name_len == len && memcmp(l->name, key, len) == 0;
}

void history_init(struct history *h, bool on, const uint64_t hash_seed[2])
{
    memset(h, 0, sizeof *h);
    fli_map_init(&h->names, name_eq, hash_seed);
    fli_list_init(&h->recent);
    h->on = on;
}

static void forget(struct history *h, struct history_lock *l)
{
    fli_map_remove(&h->names, &l->by_name);
    fli_list_remove(&l->recent);
    h->n--;
}

void history_clear(struct history *h)
{
    struct fli_list *first;
    while ((first = fli_list_first(&h->recent)) != NULL) {
        struct history_lock *l = FLI_CONTAINER_OF(first, struct history_lock, recent);
        forget(h, l);
        free(l);
    }
    FLI_ASSERT(h->n == 0 && h->names.len == 0);
}

void history_fini(struct history *h)
{
    history_clear(h);
    fli_map_fini(&h->names);
}

static struct history_lock *find(struct history *h, struct fli_slice name)
{
    struct fli_map_node *n = fli_map_find(&h->names, name.data, name.len);
    return n == NULL ? NULL : FLI_CONTAINER_OF(n, struct history_lock, by_name);
}

static struct history_lock *follow(struct history *h, struct fli_slice name)
{
    struct history_lock *l = find(h, name);
    if (l != NULL) {
        return l;
    }
    if (h->n < HISTORY_LOCKS) {
        l = fli_xmalloc(sizeof *l);
    } else {
        l = FLI_CONTAINER_OF(fli_list_first(&h->recent), struct history_lock, recent);
        forget(h, l);
    }
    FLI_ASSERT(name.len > 0 && name.len <= FL_NAME_MAX);
    l->n = 0;
    l->name_len = (uint8_t)name.len;
    memcpy(l->name, name.data, name.len);
    fli_list_init(&l->recent);
    fli_list_push(&h->recent, &l->recent);
    if (fli_map_insert(&h->names, &l->by_name, fli_map_hash(&h->names, name.data, name.len)) != 0) {
        fli_fatal("out of memory for the history of a lock");
    }
    h->n++;
    return l;
}

static struct history_event *add(struct history *h, struct history_lock *l, struct fli_slice owner)
{
    struct history_event *e = &l->events[l->n++ % HISTORY_EVENTS];
    size_t len = owner.len < HISTORY_OWNER_MAX ? owner.len : HISTORY_OWNER_MAX;
    *e = (struct history_event){.owner_len = (uint8_t)len};
    if (len > 0) {
        memcpy(e->owner, owner.data, len);
    }
    fli_list_remove(&l->recent);
    fli_list_push(&h->recent, &l->recent);
    return e;
}

static uint8_t what_of(uint8_t type)
{
    switch (type) {
    case MACHINE_EVENT_GRANTED:
        return HISTORY_GRANTED;
    case MACHINE_EVENT_QUEUED:
        return HISTORY_QUEUED;
    case MACHINE_EVENT_RELEASED:
        return HISTORY_RELEASED;
    case MACHINE_EVENT_EXPIRED:
        return HISTORY_EXPIRED;
    case MACHINE_EVENT_BROKEN:
        return HISTORY_BROKEN;
    case MACHINE_EVENT_WAIT_ENDED:
        return HISTORY_LEFT;
    default:
        return 0; /* it is about a session */
    }
}

void history_event(struct history *h, const struct machine_event *e)
{
    uint8_t what = what_of(e->type);
    if (!h->on || what == 0) {
        return;
    }
    bool trouble = what == HISTORY_QUEUED || what == HISTORY_EXPIRED || what == HISTORY_BROKEN;
    struct history_lock *l = trouble ? follow(h, e->name) : find(h, e->name);
    if (l == NULL) {
        return;
    }
    struct history_event *to = add(h, l, e->owner);
    to->what = what;
    to->reason = e->reason;
    to->clock_ms = e->clock_ms;
    to->since_ms = e->since_ms;
    to->token = e->token;
    to->wait = e->wait;
}

void history_refused(struct history *h, const struct machine_command *c,
                     const struct machine_result *r)
{
    if (!h->on || c->name.len == 0) {
        return;
    }
    struct history_event *to = add(h, follow(h, c->name), c->owner);
    to->what = MACHINE_ASKS_FOR_LOCK(c)   ? HISTORY_REFUSED
               : MACHINE_ASKS_FOR_TIME(c) ? HISTORY_STALE_RENEW
                                          : HISTORY_STALE_RELEASE;
    to->clock_ms = r->clock_ms;
    to->token = MACHINE_ASKS_FOR_LOCK(c) ? 0 : c->token;
}

void history_follow(struct history *h, struct fli_slice name)
{
    if (h->on && name.len > 0 && name.len <= FL_NAME_MAX) {
        (void)follow(h, name);
    }
}

unsigned history_get(struct history *h, struct fli_slice name,
                     struct history_event ret[HISTORY_EVENTS])
{
    const struct history_lock *l = find(h, name);
    if (l == NULL) {
        return 0;
    }
    unsigned n = l->n < HISTORY_EVENTS ? (unsigned)l->n : HISTORY_EVENTS;
    for (unsigned i = 0; i < n; i++) {
        ret[i] = l->events[(l->n - n + i) % HISTORY_EVENTS];
    }
    return n;
}

const char *history_what_name(uint8_t what)
{
    static const char *const names[] = {
        "",       "granted", "queued",  "released",    "expired",
        "broken", "left",    "refused", "stale renew", "stale release"};
    FLI_ASSERT(what < sizeof names / sizeof names[0]);
    return names[what];
}
