/* query.c: queries. They change nothing, and each visits a bounded number of elements, so that one
 * client's queries cannot hold up the others. */
#include "machine/glob.h"
#include "machine/page.h"
#include "machine/state.h"

static uint64_t left_ms(const struct machine *m, uint64_t deadline_ms)
{
    return deadline_ms > m->query_ms ? deadline_ms - m->query_ms : 0;
}

static uint8_t view_mode(const struct lock *lock)
{
    switch (lock_slots(lock)) {
    case 1:
        return MACHINE_LOCK_EXCLUSIVE;
    case SLOTS_SHARED:
        return MACHINE_LOCK_SHARED;
    default:
        return MACHINE_LOCK_PERMITS;
    }
}

/* A view of the lock with one of its holders; NULL when it has none, or all have lost it. */
static struct machine_lock_view view_lock(const struct machine *m, const struct lock *lock,
                                          struct request *request)
{
    const struct contention *c = lock_contention(lock);
    struct machine_lock_view v = {.state = MACHINE_LOCK_QUEUED, .name = lock_name(lock)};
    v.waiters = c == NULL ? 0 : (uint32_t)c->queue.len;
    v.holders = request == NULL ? 0 : lock_holders(lock);
    v.permits = lock_permits(lock);
    v.mode = request == NULL ? MACHINE_LOCK_NONE : view_mode(lock);
    v.together = 1;
    if (c != NULL && c->is_delayed) {
        v.state = MACHINE_LOCK_DELAYED;
        v.ttl_left_ms = left_ms(m, c->delay.at_ms);
    }
    if (request != NULL) {
        v.state = MACHINE_LOCK_HELD;
        v.together = (uint8_t)request_parts(request);
        v.session_explicit = session_is_explicit(request_session(request));
        v.owner = machine_session_owner(request_session(request));
        v.count = machine_request_count(request);
        v.value = v.count > 0 ? (struct fli_slice){NULL, 0} : machine_request_value(request);
        v.token = request_token(request);
        v.since_ms = request->since_ms;
        v.renewals = request_session(request)->renewals;
        v.ttl_left_ms = left_ms(m, machine_lease_until(m, request_session(request)));
    }
    if (v.session_explicit) {
        const struct session_explicit *s = session_explicit_of(request_session(request));
        v.label = (struct fli_slice){s->label, s->label_len};
    }
    if (request != NULL) {
        v.user = machine_uid_name(m, machine_session_uid(request_session(request)));
        v.address = machine_session_address(request_session(request));
    }
    return v;
}

/* A waiting implicit session has no lease, so its time left is 0. */
static struct machine_session_view view_session(const struct machine *m, struct session *session,
                                                uint8_t together)
{
    const struct timer *lease = &session->lease;
    struct machine_session_view v = {
        .session_explicit = session_is_explicit(session),
        .owner = machine_session_owner(session),
        .ttl_ms = lease->ttl_ms,
        .together = together,
        .user = machine_uid_name(m, machine_session_uid(session)),
        .address = machine_session_address(session),
        .ttl_left_ms =
            machine_timer_is_set(lease) ? left_ms(m, machine_lease_until(m, session)) : 0,
    };
    if (v.session_explicit) {
        const struct session_explicit *s = session_explicit_of(session);
        v.label = (struct fli_slice){s->label, s->label_len};
        v.lockdelay_ms = s->lockdelay_ms;
        v.locks = s->n_held;
        v.waits = s->n_waits;
    } else {
        struct request *request = session_request(session);
        uint32_t n = request_parts(request);
        v.lock = lock_name(request->lock);
        v.locks = request->waiting ? 0 : n;
        v.waits = request->waiting ? n : 0;
    }
    return v;
}

static int check(struct machine *m, const struct machine_command *q, struct machine_result *r)
{
    uint64_t hash;
    uint64_t steps = 0;
    struct lock *lock = machine_lock_find(m, q->name, &hash);
    struct request *request = lock == NULL ? NULL : machine_lock_held_under(m, lock, q->token);
    /* A user may always query its own grant, whatever its rights. */
    bool own = request != NULL && machine_sender_owns(m, request_session(request));
    if (!own && !machine_sender_may(m, ACL_SEE, q->name, &steps)) {
        machine_refuse(r, ACL_SEE);
        return 0;
    }
    if (request == NULL || machine_request_is_over(m, request)) {
        r->code = MACHINE_NO;
        return 0;
    }
    r->code = MACHINE_DONE;
    r->token = q->token;
    r->deadline_ms = machine_lease_until(m, request_session(request));
    return 0;
}

struct request *machine_lock_oldest(const struct machine *m, const struct lock *lock,
                                    bool *ret_more)
{
    struct request *oldest = lock_holder(lock);
    *ret_more = false;
    if (oldest == NULL || !machine_request_is_over(m, oldest)) {
        return oldest;
    }
    const struct contention *c = lock_contention(lock);
    *ret_more = c != NULL && c->n_shares > 1 && !c->is_broken;
    return NULL;
}

/* The holders that SHOW visits. Thousands that are over may stand in front of one that is not. So
 * visits are counted, and a search that ended early does not say that it found nobody. */
struct holders {
    const struct machine *m;
    const struct contention *c;
    struct fli_list *at; /* the next share; NULL: all were visited */
    unsigned visited;
};

/* The next holder that still holds the lock. NULL: there is none; or, while `at` is set, the visits
 * are used up. */
static struct request *holders_next(struct holders *h)
{
    while (h->at != NULL && h->visited < MACHINE_SHOW_SCAN_MAX) {
        struct request *request = share_of_link(h->at)->request;
        h->at = h->at->next == &h->c->shares ? NULL : h->at->next;
        h->visited++;
        if (!machine_request_is_over(h->m, request)) {
            return request;
        }
    }
    return NULL;
}

/* Finds the first holder; the others follow from *h. False: whether there is one cannot be told. */
static bool holders_first(const struct machine *m, const struct lock *lock, struct holders *h,
                          struct request **ret)
{
    bool more = false;
    const struct contention *c = lock_contention(lock);
    *h = (struct holders){.m = m, .c = c};
    *ret = machine_lock_oldest(m, lock, &more);
    if ((*ret == NULL && !more) || c == NULL || c->n_shares == 0) {
        return true;
    }
    h->at = c->shares.next;
    *ret = holders_next(h);
    return *ret != NULL || h->at == NULL;
}

/* Adds all holders but the first. False when there are too many to show or to visit. */
static bool show_shares(struct machine *m, const struct lock *lock, struct holders *h,
                        struct page_writer *w)
{
    struct request *request = NULL;
    while ((request = holders_next(h)) != NULL) {
        struct machine_lock_view v = view_lock(m, lock, request);
        if (!machine_page_add_lock(w, &v)) {
            return false;
        }
    }
    return h->at == NULL;
}

static int show(struct machine *m, const struct machine_command *q, struct machine_result *r,
                struct fli_buf *payload)
{
    uint64_t hash;
    struct lock *lock = machine_lock_find(m, q->name, &hash);
    struct request *first = NULL;
    struct holders h;
    if (lock != NULL && !holders_first(m, lock, &h, &first)) {
        r->code = MACHINE_LIMIT; /* not counted: a query changes nothing */
        r->number = MACHINE_LIMIT_HOLDERS;
        return 0;
    }
    const struct contention *c = lock == NULL ? NULL : lock_contention(lock);
    if (lock == NULL || (first == NULL && (c == NULL || (c->queue.len == 0 && !c->is_delayed)))) {
        r->code = MACHINE_NOTFOUND;
        return 0;
    }
    struct page_writer w;
    machine_page_begin(&w, payload, PAGE_KIND_SHOW);
    struct machine_lock_view v = view_lock(m, lock, first);
    bool room = machine_page_add_lock(&w, &v) && show_shares(m, lock, &h, &w);
    bool whole = room;
    const struct order *queue = c == NULL ? NULL : &c->queue;
    struct order_node *n = queue == NULL ? NULL : machine_order_first(queue);
    while (room && n != NULL) {
        struct request *request = wait_of_queue(n)->request;
        struct machine_session_view s =
            view_session(m, request_session(request), (uint8_t)request_parts(request));
        room = machine_page_add_session(&w, &s);
        n = room ? machine_order_next(queue, n) : n;
    }
    r->code = MACHINE_DONE;
    return machine_page_end(&w, !whole || n != NULL, 0, 0);
}

/* One page of a walk: its remaining budget, and where the walk is. */
struct walk {
    struct machine *m;
    struct page_writer page;
    struct fli_slice pattern;
    uint64_t steps; /* spent on matching */
    uint32_t count_max;
    uint32_t scanned;
    char phase;
    uint64_t key; /* of the last element that was handled */
};

static void walk_begin(struct walk *w, struct machine *m, const struct machine_command *q,
                       struct fli_buf *payload, uint8_t kind)
{
    *w = (struct walk){.m = m, .pattern = q->value};
    w->count_max = q->number == 0                       ? MACHINE_PAGE_COUNT_DEFAULT
                   : q->number < MACHINE_PAGE_COUNT_MAX ? (uint32_t)q->number
                                                        : MACHINE_PAGE_COUNT_MAX;
    machine_page_begin(&w->page, payload, kind);
}

/* Whether another element may be looked at. The first always may, so that every page moves on. */
static bool walk_goes_on(const struct walk *w)
{
    return w->page.error == 0 && w->page.count < w->count_max &&
           w->scanned < MACHINE_PAGE_SCAN_MAX && w->steps < MACHINE_PAGE_MATCH_MAX;
}

/* False when the lock matches but had no room: the next page begins with it. */
static bool walk_lock(struct walk *w, const struct lock *lock, struct request *request)
{
    w->scanned++;
    if (request != NULL && machine_request_is_over(w->m, request)) {
        return true;
    }
    if (w->pattern.len > 0 && !machine_glob_match(w->pattern, lock_name(lock), &w->steps)) {
        return true;
    }
    if (!machine_sender_may(w->m, ACL_SEE, lock_name(lock), &w->steps)) {
        return true;
    }
    struct machine_lock_view v = view_lock(w->m, lock, request);
    return machine_page_add_lock(&w->page, &v);
}

/* Walks one order from the first element behind w->key. True when its end was reached. */
static bool walk_locks(struct walk *w, const struct order *o)
{
    struct order_node *n = machine_order_seek(o, w->key);
    while (n != NULL && walk_goes_on(w)) {
        struct request *request = w->phase == MACHINE_CURSOR_HELD ? request_of_held(n) : NULL;
        if (!walk_lock(w, request != NULL ? request->lock : contention_of_idle(n)->lock, request)) {
            break;
        }
        w->key = n->key;
        n = machine_order_next(o, n);
    }
    return n == NULL;
}

static int locks(struct machine *m, const struct machine_command *q, struct machine_result *r,
                 struct fli_buf *payload)
{
    struct walk w;
    walk_begin(&w, m, q, payload, PAGE_KIND_LOCKS);
    bool ok = machine_cursor_parse(q->name, MACHINE_CURSOR_LOCKS, &w.phase, &w.key);
    FLI_ASSERT(ok);
    bool end = false;
    if (w.phase == MACHINE_CURSOR_HELD && walk_locks(&w, &m->held)) {
        w.phase = MACHINE_CURSOR_IDLE;
        w.key = 0;
    }
    if (w.phase == MACHINE_CURSOR_IDLE) {
        end = walk_locks(&w, &m->idle);
    }
    r->code = MACHINE_DONE;
    return machine_page_end(&w.page, !end, end ? 0 : w.phase, w.key);
}

/* A pattern of lock names cannot match a session. So sessions are shown to users who may see every
 * lock, and each session to its own user. */
static bool may_see_session(const struct machine *m, struct session *s)
{
    return machine_sender_may_all(m, ACL_SEE) || machine_sender_owns(m, s);
}

static int session_show(struct machine *m, const struct machine_command *q,
                        struct machine_result *r, struct fli_buf *payload)
{
    struct session_explicit *s = machine_session_find(m, q->owner);
    if (s == NULL || machine_session_is_over(m, &s->base) || !may_see_session(m, &s->base)) {
        r->code = MACHINE_NOTFOUND;
        return 0;
    }
    struct page_writer w;
    machine_page_begin(&w, payload, PAGE_KIND_SESSIONS);
    struct machine_session_view v = view_session(m, &s->base, 0);
    machine_page_add_session(&w, &v);
    r->code = MACHINE_DONE;
    return machine_page_end(&w, false, 0, 0);
}

static int session_list(struct machine *m, const struct machine_command *q,
                        struct machine_result *r, struct fli_buf *payload)
{
    struct walk w;
    walk_begin(&w, m, q, payload, PAGE_KIND_SESSIONS);
    bool ok = machine_cursor_parse(q->owner, MACHINE_CURSOR_SESSIONS, &w.phase, &w.key);
    FLI_ASSERT(ok);
    struct order_node *n = machine_order_seek(&m->opened, w.key);
    while (n != NULL && walk_goes_on(&w)) {
        struct session *s = &session_of_opened(n)->base;
        bool hidden =
            (machine_is_behind(m) && machine_session_is_over(m, s)) || !may_see_session(m, s);
        struct machine_session_view v = view_session(m, s, 0);
        if (!hidden && !machine_page_add_session(&w.page, &v)) {
            break;
        }
        w.scanned++;
        w.key = n->key;
        n = machine_order_next(&m->opened, n);
    }
    r->code = MACHINE_DONE;
    return machine_page_end(&w.page, n != NULL, n == NULL ? 0 : w.phase, w.key);
}

static int answer(struct machine *m, const struct machine_command *query, struct machine_result *r,
                  struct fli_buf *payload)
{
    switch ((enum machine_op)query->op) {
    case MACHINE_OP_CHECK:
        return check(m, query, r);
    case MACHINE_OP_SHOW:
        return show(m, query, r, payload);
    case MACHINE_OP_KEY:
        return machine_key(m, query, r, payload);
    case MACHINE_OP_LOCKS:
        return locks(m, query, r, payload);
    case MACHINE_OP_SESSION_SHOW:
        return session_show(m, query, r, payload);
    case MACHINE_OP_SESSION_LIST:
        return session_list(m, query, r, payload);
    case MACHINE_OP_USERS:
    case MACHINE_OP_USER:
        return machine_users_query(m, query, r, payload);
    default:
        FLI_ASSERT(query->op == MACHINE_OP_MAY);
        r->code = MACHINE_DONE;
        return 0;
    }
}

int machine_query(struct machine *m, const struct machine_command *query, uint64_t now_ms,
                  struct machine_result *ret, struct fli_buf *payload)
{
    if (!MACHINE_OP_IS_QUERY(query->op) || machine_command_check(query) != 0) {
        return FL_EINVAL;
    }
    m->query_ms = now_ms > m->clock_ms ? now_ms : m->clock_ms;
    struct machine_result r = {.clock_ms = m->query_ms};
    int rc = machine_sender_enter(m, query, &r) ? answer(m, query, &r, payload) : 0;
    machine_sender_leave(m);
    if (rc == 0) {
        *ret = r;
    }
    return rc;
}
