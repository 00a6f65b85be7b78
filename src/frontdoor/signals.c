/* signals.c: see signals.h. */
#include "frontdoor/signals.h"

#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "wire/resp.h"

#define SIGNAL "lock-signal:"
#define LOCK "lock:"
#define SIGNAL_LEN (sizeof SIGNAL - 1)
#define LOCK_LEN (sizeof LOCK - 1)
#define WAIT_MAX_MS FL_WAIT_MAX_MS
#define POLL_MS UINT64_C(20) /* the longest time between two checks for timeouts */

static struct frontdoor_waiter *of_link(struct fli_list *link)
{
    return FLI_CONTAINER_OF(link, struct frontdoor_waiter, link);
}

static bool name_eq(const struct fli_map_node *node, const void *key, size_t key_len)
{
    struct signal_name *name =
        FLI_CONTAINER_OF((struct fli_map_node *)(uintptr_t)node, struct signal_name, node);
    FLI_ASSERT(!fli_list_empty(&name->waiters));
    struct fli_slice own = of_link(name->waiters.next)->name;
    return fli_bytes_cmp(own.data, own.len, key, key_len) == 0;
}

void frontdoor_signals_init(struct frontdoor_signals *s, const uint64_t seed[2])
{
    memcpy(s->seed, seed, sizeof s->seed);
    fli_map_init(&s->names, name_eq, s->seed);
    fli_list_init(&s->waiting);
    fli_list_init(&s->fired);
    fli_list_init(&s->ended);
    fli_list_init(&s->spare);
    s->next_ms = UINT64_MAX;
}

void frontdoor_signals_fini(struct frontdoor_signals *s)
{
    struct fli_list *link = NULL;
    FLI_ASSERT(s->n == 0 && s->names.len == 0);
    while ((link = fli_list_pop(&s->spare)) != NULL) {
        free(FLI_CONTAINER_OF(link, struct signal_name, spare));
    }
    fli_map_fini(&s->names);
}

bool frontdoor_signals_full(const struct frontdoor_signals *s, uint64_t address, unsigned in_flight)
{
    return in_flight > SIGNALS_CONNECTION_MAX || s->n >= SIGNALS_MAX ||
           s->of_address[address % SIGNALS_ADDRESSES] >= SIGNALS_ADDRESS_MAX;
}

/* ---- requests -------------------------------------------------------------------------------- */

/* Reads seconds with a fraction; digits below a millisecond are ignored. 0 means for ever, which is
 * a day here. */
static bool read_seconds(struct fli_slice s, uint64_t *ret_ms)
{
    const uint8_t *dot = s.len == 0 ? NULL : memchr(s.data, '.', s.len);
    size_t whole = dot == NULL ? s.len : (size_t)(dot - s.data);
    uint64_t seconds = 0;
    uint64_t ms = 0;
    uint64_t unit = 100;
    if (!fli_parse_u64(s.data, whole, INT64_MAX, &seconds)) {
        return false;
    }
    for (size_t i = whole + 1; dot != NULL && i < s.len; i++, unit /= 10) {
        if (s.data[i] < '0' || s.data[i] > '9') {
            return false;
        }
        ms += (uint64_t)(s.data[i] - '0') * unit;
    }
    seconds = seconds > WAIT_MAX_MS / 1000 ? WAIT_MAX_MS / 1000 : seconds;
    ms += seconds * 1000;
    *ret_ms = ms == 0 || ms > WAIT_MAX_MS ? WAIT_MAX_MS : ms;
    return true;
}

const char *frontdoor_signal_parse(const struct fli_slice *args, unsigned n,
                                   struct fli_slice *ret_name, uint64_t *ret_wait_ms)
{
    if (n != 2 || args[0].len <= SIGNAL_LEN || memcmp(args[0].data, SIGNAL, SIGNAL_LEN) != 0 ||
        args[0].len - SIGNAL_LEN + LOCK_LEN > FL_NAME_MAX) {
        return "BLPOP is served for the signals of python-redis-lock only: one key that begins "
               "with lock-signal:";
    }
    if (!read_seconds(args[1], ret_wait_ms)) {
        return "timeout is not a float or out of range";
    }
    *ret_name = (struct fli_slice){args[0].data + SIGNAL_LEN, args[0].len - SIGNAL_LEN};
    return NULL;
}

struct machine_command frontdoor_signal_query(struct fli_slice name, uint8_t room[FL_NAME_MAX])
{
    /* An owner that cannot exist, so that the query needs no more rights than acquiring the
     * lock. */
    static const uint8_t nobody[] = "\n";
    memcpy(room, LOCK, LOCK_LEN);
    memcpy(room + LOCK_LEN, name.data, name.len);
    return (struct machine_command){.op = MACHINE_OP_KEY,
                                    .n_names = 1,
                                    .permits = 1,
                                    .name = {room, LOCK_LEN + name.len},
                                    .label = {nobody, 1}};
}

int frontdoor_signal_reply(struct fli_buf *out, int proto, struct fli_slice name, bool woken)
{
    uint8_t key[SIGNAL_LEN + FL_NAME_MAX];
    if (!woken) {
        return fli_resp_null_array(out, proto);
    }
    memcpy(key, SIGNAL, SIGNAL_LEN);
    memcpy(key + SIGNAL_LEN, name.data, name.len);
    int rc = fli_resp_array(out, 2);
    rc = rc != 0 ? rc : fli_resp_bulk(out, key, SIGNAL_LEN + name.len);
    return rc != 0 ? rc : fli_resp_text(out, "1");
}

/* ---- waits ----------------------------------------------------------------------------------- */

static struct signal_name *find(struct frontdoor_signals *s, struct fli_slice name,
                                uint64_t *ret_hash)
{
    *ret_hash = fli_map_hash(&s->names, name.data, name.len);
    struct fli_map_node *node = fli_map_find_hashed(&s->names, *ret_hash, name.data, name.len);
    return node == NULL ? NULL : FLI_CONTAINER_OF(node, struct signal_name, node);
}

void frontdoor_signal_enter(struct frontdoor_signals *s, struct frontdoor_waiter *w)
{
    uint64_t hash = 0;
    struct signal_name *name = find(s, w->name, &hash);
    if (name == NULL) {
        struct fli_list *link = fli_list_pop(&s->spare);
        name = link != NULL ? FLI_CONTAINER_OF(link, struct signal_name, spare)
                            : fli_xmalloc(sizeof *name);
        fli_list_init(&name->waiters);
        fli_list_init(&name->spare);
        if (fli_map_insert(&s->names, &name->node, hash) != 0) {
            fli_fatal("out of memory for a waiting request");
        }
    }
    w->signal = SIGNAL_ASKED;
    w->awaited = name;
    fli_list_push(&name->waiters, &w->link);
    fli_list_push(&s->waiting, &w->waiting);
    s->of_address[w->address % SIGNALS_ADDRESSES]++;
    s->n++;
}

/* From here on, no event and no timeout finds it. */
static void forget(struct frontdoor_signals *s, struct frontdoor_waiter *w)
{
    struct signal_name *name = w->awaited;
    w->awaited = NULL;
    fli_list_remove(&w->link);
    fli_list_remove(&w->waiting);
    if (fli_list_empty(&name->waiters)) {
        fli_map_remove(&s->names, &name->node);
        fli_list_push(&s->spare, &name->spare);
    }
}

void frontdoor_signal_leave(struct frontdoor_signals *s, struct frontdoor_waiter *w)
{
    FLI_ASSERT(w->signal != SIGNAL_NONE && s->n > 0);
    if (w->awaited != NULL) {
        forget(s, w);
    }
    fli_list_remove(&w->link);
    s->of_address[w->address % SIGNALS_ADDRESSES]--;
    s->n--;
    w->signal = SIGNAL_NONE;
}

enum frontdoor_signal frontdoor_signal_asked(struct frontdoor_signals *s,
                                             struct frontdoor_waiter *w,
                                             const struct machine_result *result, bool stays)
{
    bool free = result != NULL && result->code == MACHINE_NOTFOUND;
    bool held = result != NULL && (result->code == MACHINE_HELD || result->code == MACHINE_DONE);
    if (!free && !held) {
        return SIGNAL_NONE;
    }
    if (free || w->signal == SIGNAL_FIRED || !stays) {
        return free || w->signal == SIGNAL_FIRED ? SIGNAL_WOKEN : SIGNAL_OVER;
    }
    w->signal = SIGNAL_PARKED;
    s->next_ms = w->until_ms < s->next_ms ? w->until_ms : s->next_ms;
    return SIGNAL_PARKED;
}

bool frontdoor_signal_ends(const struct frontdoor_waiter *w)
{
    return w->signal == SIGNAL_PARKED || w->signal == SIGNAL_WOKEN || w->signal == SIGNAL_OVER;
}

static void end(struct frontdoor_signals *s, struct frontdoor_waiter *w, enum frontdoor_signal how)
{
    bool parked = w->signal == SIGNAL_PARKED;
    forget(s, w);
    w->signal = (uint8_t)how;
    fli_list_push(parked ? &s->ended : &s->fired, &w->link);
}

/* The lock was let go: one that is parked is answered in a turn, another one with its query. */
static void fire(struct frontdoor_signals *s, struct frontdoor_waiter *w)
{
    end(s, w, w->signal == SIGNAL_PARKED ? SIGNAL_WOKEN : SIGNAL_FIRED);
}

void frontdoor_signals_event(struct frontdoor_signals *s, const struct machine_event *event)
{
    uint64_t hash = 0;
    if (event->type == MACHINE_EVENT_USER_CHANGED) {
        frontdoor_signals_wake_all(s); /* each asks again, and hears it when it may no longer */
        return;
    }
    bool ends = event->type == MACHINE_EVENT_RELEASED || event->type == MACHINE_EVENT_EXPIRED ||
                event->type == MACHINE_EVENT_BROKEN;
    struct signal_name *name = NULL;
    if (ends && s->n > 0 && event->name.len > LOCK_LEN &&
        memcmp(event->name.data, LOCK, LOCK_LEN) == 0) {
        name = find(s, (struct fli_slice){event->name.data + LOCK_LEN, event->name.len - LOCK_LEN},
                    &hash);
    }
    struct fli_list *link = NULL;
    while (name != NULL && (link = fli_list_first(&name->waiters)) != NULL) {
        fire(s, of_link(link));
    }
}

void frontdoor_signals_wake_all(struct frontdoor_signals *s)
{
    struct fli_list *link = NULL;
    while ((link = fli_list_first(&s->waiting)) != NULL) {
        fire(s, FLI_CONTAINER_OF(link, struct frontdoor_waiter, waiting));
    }
}

static void find_due(struct frontdoor_signals *s, uint64_t now_ms)
{
    s->next_ms = UINT64_MAX;
    FLI_LIST_FOREACH_SAFE(waiting, tmp, &s->waiting)
    {
        struct frontdoor_waiter *w = FLI_CONTAINER_OF(waiting, struct frontdoor_waiter, waiting);
        if (w->signal != SIGNAL_PARKED) {
            continue;
        }
        if (w->until_ms <= now_ms) {
            end(s, w, SIGNAL_OVER);
        } else {
            s->next_ms = w->until_ms < s->next_ms ? w->until_ms : s->next_ms;
        }
    }
    s->next_ms = s->next_ms < now_ms + POLL_MS ? now_ms + POLL_MS : s->next_ms;
}

struct frontdoor_waiter *frontdoor_signals_due(struct frontdoor_signals *s, uint64_t now_ms)
{
    if (now_ms >= s->next_ms) {
        find_due(s, now_ms);
    }
    struct fli_list *link = fli_list_first(&s->ended);
    return link == NULL ? NULL : of_link(link);
}

uint64_t frontdoor_signals_next_ms(const struct frontdoor_signals *s)
{
    return s->n == 0 ? UINT64_MAX : fli_list_empty(&s->ended) ? s->next_ms : 0;
}
