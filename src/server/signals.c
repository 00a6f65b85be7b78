/* signals.c: see signals.h. */
#include "server/signals.h"

#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/clock.h"
#include "server/frontdoor.h"
#include "server/render.h"
#include "wire/resp.h"

#define SIGNAL "lock-signal:"
#define LOCK "lock:"
#define SIGNAL_LEN (sizeof SIGNAL - 1)
#define LOCK_LEN (sizeof LOCK - 1)
#define WAIT_MAX_MS FL_WAIT_MAX_MS
#define POLL_MS UINT64_C(20) /* the longest time between two checks for timeouts */

/* An owner that cannot exist, so that the query needs no more rights than acquiring the lock. */
static const uint8_t nobody[] = "\n";

static uint64_t now(const struct dispatch *d)
{
    return d->config.now_ms(d->config.ctx);
}

/* One client may not have all places, which others need as well, for as long as a day. */
static bool is_full(struct dispatch *d, void *request, uint64_t address)
{
    const struct dispatch_config *c = &d->config;
    bool all_here = c->in_flight != NULL && c->in_flight(c->ctx, request) > SIGNALS_CONNECTION_MAX;
    return all_here || d->signals.n >= SIGNALS_MAX ||
           d->signals.of_address[address % SIGNALS_ADDRESSES] >= SIGNALS_ADDRESS_MAX;
}

/* ---- the locks that are waited for ----------------------------------------------------------- */

static bool name_eq(const struct fli_map_node *node, const void *key, size_t key_len)
{
    const struct signal_name *name =
        FLI_CONTAINER_OF((struct fli_map_node *)(uintptr_t)node, struct signal_name, node);
    const struct call *c = FLI_CONTAINER_OF(name->calls.next, struct call, link);
    FLI_ASSERT(!fli_list_empty(&name->calls));
    return c->name_len == key_len && memcmp(c->name, key, key_len) == 0;
}

void signals_init(struct signals *s)
{
    fli_random(s->seed, sizeof s->seed);
    fli_map_init(&s->names, name_eq, s->seed);
    fli_list_init(&s->waiting);
    fli_list_init(&s->fired);
    fli_list_init(&s->ended);
    fli_list_init(&s->spare);
    s->next_ms = UINT64_MAX;
}

void signals_fini(struct signals *s)
{
    struct fli_list *link = NULL;
    FLI_ASSERT(s->n == 0 && s->names.len == 0);
    while ((link = fli_list_pop(&s->spare)) != NULL) {
        free(FLI_CONTAINER_OF(link, struct signal_name, spare));
    }
    fli_map_fini(&s->names);
}

static struct signal_name *find(struct signals *s, struct fli_slice name, uint64_t *ret_hash)
{
    *ret_hash = fli_map_hash(&s->names, name.data, name.len);
    struct fli_map_node *node = fli_map_find_hashed(&s->names, *ret_hash, name.data, name.len);
    return node == NULL ? NULL : FLI_CONTAINER_OF(node, struct signal_name, node);
}

static void enter(struct call *c)
{
    struct dispatch *d = c->dispatch;
    struct signals *s = &d->signals;
    uint64_t hash = 0;
    struct signal_name *name = find(s, (struct fli_slice){c->name, c->name_len}, &hash);
    if (name == NULL) {
        struct fli_list *link = fli_list_pop(&s->spare);
        name = link != NULL ? FLI_CONTAINER_OF(link, struct signal_name, spare)
                            : fli_xmalloc(sizeof *name);
        fli_list_init(&name->calls);
        fli_list_init(&name->spare);
        if (fli_map_insert(&s->names, &name->node, hash) != 0) {
            fli_fatal("out of memory for a waiting request");
        }
    }
    c->signal = SIGNAL_ASKED;
    c->awaited = name;
    fli_list_push(&name->calls, &c->link);
    fli_list_push(&s->waiting, &c->waiting);
    s->of_address[c->address % SIGNALS_ADDRESSES]++;
    s->n++;
}

/* From here on, no event and no timeout finds the call. */
static void forget(struct call *c)
{
    struct signals *s = &c->dispatch->signals;
    struct signal_name *name = c->awaited;
    c->awaited = NULL;
    fli_list_remove(&c->link);
    fli_list_remove(&c->waiting);
    if (fli_list_empty(&name->calls)) {
        fli_map_remove(&s->names, &name->node);
        fli_list_push(&s->spare, &name->spare);
    }
}

static void leave(struct call *c)
{
    struct signals *s = &c->dispatch->signals;
    FLI_ASSERT(c->signal != SIGNAL_NONE && s->n > 0);
    if (c->awaited != NULL) {
        forget(c);
    }
    fli_list_remove(&c->link);
    s->of_address[c->address % SIGNALS_ADDRESSES]--;
    s->n--;
    c->signal = SIGNAL_NONE;
}

/* ---- answers --------------------------------------------------------------------------------- */

static int render_woken(struct fli_buf *b, const struct call *c)
{
    uint8_t key[SIGNAL_LEN + FL_NAME_MAX];
    size_t rest = (size_t)c->name_len - LOCK_LEN;
    memcpy(key, SIGNAL, SIGNAL_LEN);
    memcpy(key + SIGNAL_LEN, c->name + LOCK_LEN, rest);
    int rc = fli_resp_array(b, 2);
    rc = rc != 0 ? rc : fli_resp_bulk(b, key, SIGNAL_LEN + rest);
    return rc != 0 ? rc : fli_resp_text(b, "1");
}

/* Ends the wait and frees the call. */
static void answer(struct call *c, bool woken)
{
    struct dispatch *d = c->dispatch;
    int proto = c->proto;
    leave(c);
    if (c->request != NULL) {
        struct fli_buf *b = d->config.sink.reply(c->request);
        int rc = woken ? render_woken(b, c) : fli_resp_null_array(b, proto);
        dispatch_finish(d, dispatch_call_detach(c), rc);
    }
    dispatch_call_free(c);
}

static void park(struct call *c)
{
    struct dispatch *d = c->dispatch;
    c->signal = SIGNAL_PARKED;
    d->signals.next_ms = c->again_ms < d->signals.next_ms ? c->again_ms : d->signals.next_ms;
}

static void on_asked(struct node_ticket *t, int status, const struct machine_result *result,
                     struct fli_slice payload)
{
    struct call *c = FLI_CONTAINER_OF(t, struct call, ticket);
    struct dispatch *d = c->dispatch;
    FLI_ASSERT(d->counts.in_flight > 0);
    d->counts.in_flight--;
    bool held = status == 0 && (result->code == MACHINE_HELD || result->code == MACHINE_DONE);
    bool free = status == 0 && result->code == MACHINE_NOTFOUND;
    if (c->request == NULL || free || (held && c->signal == SIGNAL_FIRED)) {
        answer(c, true);
        return;
    }
    if (held && !c->hung_up && !d->stopping && c->restores == d->restores) {
        park(c);
        return;
    }
    if (held) {
        answer(c, false);
        return;
    }
    leave(c);
    if (status != 0) {
        dispatch_answer_failure(c, status);
    } else {
        void *request = dispatch_call_detach(c);
        dispatch_tell_refused(d, request, c->id, result);
        dispatch_finish(
            d, request,
            render_result(d->config.sink.reply(request), c->proto, c->id, result, payload));
    }
    dispatch_call_free(c);
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

static bool is_signal(struct fli_slice key)
{
    return key.len > SIGNAL_LEN && memcmp(key.data, SIGNAL, SIGNAL_LEN) == 0 &&
           key.len - SIGNAL_LEN + LOCK_LEN <= FL_NAME_MAX;
}

static void submit(struct call *c, void *request)
{
    struct dispatch *d = c->dispatch;
    struct machine_command m = {.op = MACHINE_OP_KEY,
                                .n_names = 1,
                                .permits = 1,
                                .name = {c->name, c->name_len},
                                .label = {nobody, 1}};
    if (d->config.set_sender != NULL) {
        d->config.set_sender(d->config.users_ctx, request, &m);
    }
    enter(c); /* before the query, so that no end of a hold is missed from here on */
    int rc = dispatch_submit(c, &m, on_asked);
    if (rc != 0) {
        leave(c);
        (void)dispatch_call_detach(c);
        dispatch_call_free(c);
        dispatch_fail(d, request, rc, true);
    }
}

void signals_request(struct dispatch *d, void *request, struct dispatch_slot *slot, int proto,
                     const struct fli_slice *args, unsigned n)
{
    uint64_t wait_ms = 0;
    if (n != 2 || !is_signal(args[0])) {
        dispatch_error(d, request, "ERR",
                       "BLPOP is served for the signals of python-redis-lock only: one key that "
                       "begins with lock-signal:");
        return;
    }
    if (!read_seconds(args[1], &wait_ms)) {
        dispatch_error(d, request, "ERR", "timeout is not a float or out of range");
        return;
    }
    uint64_t address = d->config.address == NULL ? 0 : d->config.address(d->config.ctx, request);
    if (dispatch_is_full(d, request, 1) || is_full(d, request, address)) {
        dispatch_fail(d, request, FL_EBUSY, true);
        return;
    }
    struct call *c = dispatch_attach(d, request, slot, proto, FLI_CMD_BLPOP);
    c->restores = d->restores;
    c->address = address;
    c->again_ms = now(d) + wait_ms;
    c->name_len = (uint8_t)(args[0].len - SIGNAL_LEN + LOCK_LEN);
    memcpy(c->name, LOCK, LOCK_LEN);
    memcpy(c->name + LOCK_LEN, args[0].data + SIGNAL_LEN, c->name_len - LOCK_LEN);
    submit(c, request);
}

/* ---- the end of a wait ----------------------------------------------------------------------- */

/* The wait of a parked call is over, since the lock was let go or since its time is over. */
static void end(struct call *c, enum call_signal how)
{
    FLI_ASSERT(c->signal == SIGNAL_PARKED);
    forget(c);
    c->signal = (uint8_t)how;
    fli_list_push(&c->dispatch->signals.ended, &c->link);
}

/* The lock was let go: a parked call is answered in a turn, another one with its query. */
static void fire(struct call *c)
{
    if (c->signal == SIGNAL_PARKED) {
        end(c, SIGNAL_WOKEN);
        return;
    }
    forget(c);
    c->signal = SIGNAL_FIRED;
    fli_list_push(&c->dispatch->signals.fired, &c->link);
}

void signals_event(struct dispatch *d, const struct machine_event *event)
{
    if (event->type == MACHINE_EVENT_USER_CHANGED) {
        signals_wake_all(d); /* each asks again, and hears it when it may no longer */
        return;
    }
    bool ends = event->type == MACHINE_EVENT_RELEASED || event->type == MACHINE_EVENT_EXPIRED ||
                event->type == MACHINE_EVENT_BROKEN;
    if (!ends || d->signals.n == 0) {
        return;
    }
    uint64_t hash = 0;
    struct signal_name *name = find(&d->signals, event->name, &hash);
    if (name == NULL) {
        return;
    }
    struct fli_list *link = NULL;
    while ((link = fli_list_first(&name->calls)) != NULL) {
        fire(FLI_CONTAINER_OF(link, struct call, link));
    }
}

bool signals_ends(const struct call *c)
{
    return c->signal == SIGNAL_PARKED || c->signal == SIGNAL_WOKEN || c->signal == SIGNAL_OVER;
}

void signals_leave(struct call *c)
{
    if (signals_ends(c)) {
        answer(c, c->signal == SIGNAL_WOKEN);
    }
}

static void find_due(struct signals *s, uint64_t now_ms)
{
    s->next_ms = UINT64_MAX;
    FLI_LIST_FOREACH_SAFE(waiting, tmp, &s->waiting)
    {
        struct call *c = FLI_CONTAINER_OF(waiting, struct call, waiting);
        if (c->signal != SIGNAL_PARKED) {
            continue;
        }
        if (c->again_ms <= now_ms) {
            end(c, SIGNAL_OVER);
        } else {
            s->next_ms = c->again_ms < s->next_ms ? c->again_ms : s->next_ms;
        }
    }
    s->next_ms = s->next_ms < now_ms + POLL_MS ? now_ms + POLL_MS : s->next_ms;
}

/* An answer may remove others from the list, so each is taken from the front. */
static void answer_ended(struct signals *s, unsigned max)
{
    struct fli_list *link = NULL;
    for (unsigned n = 0; n < max && (link = fli_list_first(&s->ended)) != NULL; n++) {
        signals_leave(FLI_CONTAINER_OF(link, struct call, link));
    }
}

void signals_turn(struct dispatch *d)
{
    uint64_t now_ms = now(d);
    if (now_ms >= d->signals.next_ms) {
        find_due(&d->signals, now_ms);
    }
    answer_ended(&d->signals, DISPATCH_TOLD_MAX);
}

uint64_t signals_next_turn_ms(const struct dispatch *d)
{
    const struct signals *s = &d->signals;
    return s->n == 0 ? UINT64_MAX : fli_list_empty(&s->ended) ? s->next_ms : 0;
}

void signals_wake_all(struct dispatch *d)
{
    struct fli_list *waiting = NULL;
    while ((waiting = fli_list_first(&d->signals.waiting)) != NULL) {
        fire(FLI_CONTAINER_OF(waiting, struct call, waiting));
    }
}

void signals_stop(struct dispatch *d)
{
    signals_wake_all(d);
    answer_ended(&d->signals, SIGNALS_MAX);
}
