/* deadlock.c: no cycle of sessions that wait for each other.
 *
 * A wait waits for the holders of its lock and for the waits ahead of it in the queue. (One holder
 * of a semaphore would be enough. Each is followed, so a wait may be refused that another holder
 * would have ended.) A session waits for each of its waits. That includes an implicit session that
 * waits for several locks: it waits for the waits ahead of it in one queue and delays those behind
 * it in another. Only explicit sessions can hold one lock while they wait for another. So every
 * cycle has an explicit session in it, and only a request of such a session can close a cycle. A
 * grant closes none: it goes to the head of a queue, and all behind the head waited for it already.
 * So the search runs when a wait is requested. It asks whether the locks' holders and waits lead,
 * by any path, to the requesting session. A machine thus never contains a cycle.
 *
 * The search is a worklist without recursion; it visits each wait and session once. Two rules keep
 * it short in practice. Nobody waits for a session that holds and awaits nothing, so its wait is
 * safe without a search. And a waiter whose only wait is in the queue being walked leads nowhere
 * new; so a queue is walked only when a session in it also waits elsewhere (contention.n_multi), or
 * when the requesting session is in it. What remains is the chain of holders. Beyond
 * MACHINE_SEARCH_STEPS_MAX steps the result is "unknown", and the wait is refused as over a limit:
 * waiting could hang for ever, and the answer DEADLOCK could be wrong. All searches of a batch
 * share its steps, except for a minimum that each has. A session whose search used the most steps
 * has only that minimum for a while.
 *
 * A session that is ending waits for nobody: it loses all its waits. */
#include "machine/state.h"

struct search {
    struct machine *m;
    struct session_explicit *goal;
    struct session_explicit *pending; /* found, not yet followed */
    struct multi_lock *multis;        /* of implicit sessions, likewise */
    /* The lock that the requesting session awaits, when it awaits only one. */
    const struct lock *goal_lock;
    uint32_t visits;
    uint32_t visits_max;
    bool found;
    bool exhausted;
};

/* False when the search has used up its steps. */
static bool step(struct search *s)
{
    s->exhausted = s->exhausted || s->visits == s->visits_max;
    s->visits += !s->exhausted;
    return !s->exhausted;
}

/* Whether it is an implicit session that waits for several locks. */
static bool waits_for_several(struct session *session)
{
    return !session_is_explicit(session) && session->lease.is_multi &&
           session_request(session)->waiting;
}

static void visit_session(struct search *s, struct session *session)
{
    if (waits_for_several(session)) {
        struct multi_lock *g = session_multi_of(session);
        if (g->visited != s->m->search) {
            g->visited = s->m->search;
            g->pending = s->multis;
            s->multis = g;
        }
        return;
    }
    if (!session_is_explicit(session)) {
        return;
    }
    struct session_explicit *e = session_explicit_of(session);
    if (e == s->goal) {
        s->found = true;
        return;
    }
    if (e->n_waits > 0 && e->ending == 0 && e->visited != s->m->search) {
        e->visited = s->m->search;
        e->pending = s->pending;
        s->pending = e;
    }
}

static struct wait *ahead(const struct order *queue, const struct wait *w)
{
    struct order_node *n =
        w == NULL ? machine_order_last(queue) : machine_order_prev(queue, &w->in_queue);
    return n == NULL ? NULL : wait_of_queue(n);
}

/* Visits everything that the wait `from` waits for at this lock (NULL: a new wait at the end of the
 * queue). The walk ends at a wait that this search has visited before: so was everything ahead of
 * that one. */
static void visit_lock(struct search *s, struct lock *lock, const struct wait *from)
{
    struct contention *c = lock_contention(lock);
    if (c != NULL && (c->n_multi > 0 || lock == s->goal_lock)) {
        for (struct wait *w = ahead(&c->queue, from); w != NULL; w = ahead(&c->queue, w)) {
            if (w->visited == s->m->search || !step(s)) {
                return;
            }
            w->visited = s->m->search;
            visit_session(s, request_session(w->request));
        }
    }
    if (c == NULL || c->n_shares == 0) {
        if (lock_holder(lock) != NULL) {
            visit_session(s, request_session(lock_holder(lock)));
        }
        return;
    }
    FLI_LIST_FOREACH(link, &c->shares)
    {
        if (!step(s)) {
            return;
        }
        visit_session(s, request_session(share_of_link(link)->request));
    }
}

static void follow_waits(struct search *s, struct session_explicit *e)
{
    FLI_LIST_FOREACH(link, &e->waits)
    {
        struct request *request = request_of_link(link);
        if (s->found || !step(s)) {
            return;
        }
        visit_lock(s, request->lock, request->at.wait);
    }
}

static void follow_multi(struct search *s, struct multi_lock *g)
{
    for (unsigned i = 0; i < g->n && !s->found && step(s); i++) {
        struct request *request = multi_request(g, i);
        visit_lock(s, request->lock, request->at.wait);
    }
}

/* Takes one of the sessions and multi-locks found so far and follows its waits. False when none is
 * left. */
static bool follow_next(struct search *s)
{
    if (s->pending != NULL) {
        struct session_explicit *e = s->pending;
        s->pending = e->pending;
        follow_waits(s, e);
        return true;
    }
    if (s->multis != NULL) {
        struct multi_lock *g = s->multis;
        s->multis = g->pending;
        follow_multi(s, g);
        return true;
    }
    return false;
}

static uint32_t visits_max(const struct machine *m, const struct session_explicit *session)
{
    const struct budget *b = &m->budget;
    uint32_t more = b->search_max - b->search_min;
    more = m->steps < more ? m->steps : more;
    return b->search_min + (m->clock_ms < session->search_pause_ms ? 0 : more);
}

static void account(struct machine *m, struct session_explicit *session, uint32_t visits)
{
    if (visits > m->budget.search_min) {
        machine_charge(m, visits - m->budget.search_min);
    }
    if (visits == m->budget.search_max) {
        machine_session_pause_search(m, session, m->clock_ms + MACHINE_SEARCH_PAUSE_MS);
    }
}

enum deadlock machine_deadlock_search(struct machine *m, struct session_explicit *session,
                                      struct lock *const *locks, unsigned n)
{
    if (session->n_held == 0 && session->n_waits == 0) {
        return DEADLOCK_NONE;
    }
    m->search++;
    struct search s = {.m = m, .goal = session, .visits_max = visits_max(m, session)};
    if (session->n_waits == 1) {
        s.goal_lock = request_of_link(session->waits.next)->lock;
    }
    for (unsigned i = 0; i < n; i++) {
        if (locks[i] != NULL) {
            visit_lock(&s, locks[i], NULL);
        }
    }
    while (!s.found && !s.exhausted && follow_next(&s)) {
    }
    account(m, session, s.visits);
    if (s.found) {
        return DEADLOCK_CYCLE;
    }
    return s.exhausted ? DEADLOCK_UNKNOWN : DEADLOCK_NONE;
}

/* Checks the whole graph at once (Kahn's sort): removes nodes that nobody waits for until none is
 * left. Nodes are explicit sessions, implicit sessions that wait for several locks, and waits. A
 * session waits for its waits; a wait for the one ahead of it and that one's session; the first in
 * a queue for the holders. */
struct peel {
    struct session_explicit *sessions; /* with nobody waiting for them */
    struct multi_lock *multis;         /* of implicit sessions */
    uint64_t n_multis;
    struct wait *waits;
    uint64_t done;
};

static void peel_session(struct peel *p, struct session *session)
{
    if (waits_for_several(session)) {
        struct multi_lock *g = session_multi_of(session);
        FLI_ASSERT(g->degree > 0);
        if (--g->degree == 0) {
            g->pending = p->multis;
            p->multis = g;
        }
        return;
    }
    if (!session_is_explicit(session)) {
        return;
    }
    struct session_explicit *s = session_explicit_of(session);
    FLI_ASSERT(s->degree > 0);
    if (--s->degree == 0) {
        s->pending = p->sessions;
        p->sessions = s;
    }
}

static void peel_wait(struct peel *p, struct wait *w)
{
    FLI_ASSERT(w->degree > 0);
    if (--w->degree == 0) {
        w->pending = p->waits;
        p->waits = w;
    }
}

/* Calls fn for the session of each holder of the lock. The first wait of its queue waits for
 * these. */
static void each_holder(struct peel *p, struct lock *lock,
                        void (*fn)(struct peel *p, struct session *session))
{
    if (contention_of(lock)->n_shares == 0) {
        if (lock_holder(lock) != NULL) {
            fn(p, request_session(lock_holder(lock)));
        }
        return;
    }
    FLI_LIST_FOREACH(link, &contention_of(lock)->shares)
    {
        fn(p, request_session(share_of_link(link)->request));
    }
}

static void count_session(struct peel *p, struct session *session)
{
    if (waits_for_several(session)) {
        session_multi_of(session)->degree++;
    } else if (session_is_explicit(session)) {
        session_explicit_of(session)->degree++;
    }
}

/* Whether this session's waits are edges of the graph. */
static bool is_followed(struct session *session)
{
    return session_is_explicit(session) ? session_explicit_of(session)->ending == 0
                                        : waits_for_several(session);
}

/* A node's count starts at one more than its edges. The extra one is taken away when the node is
 * first visited. */
static void count_degrees(struct machine *m)
{
    for (struct order_node *n = machine_order_first(&m->opened); n != NULL;
         n = machine_order_next(&m->opened, n)) {
        session_of_opened(n)->degree = 1;
    }
    FLI_LIST_FOREACH(link, &m->waits)
    {
        struct session *s = request_session(wait_of_all(link)->request);
        wait_of_all(link)->degree = 1;
        if (waits_for_several(s)) {
            session_multi_of(s)->degree = 1;
        }
    }
    FLI_LIST_FOREACH(link, &m->waits)
    {
        struct wait *w = wait_of_all(link);
        struct lock *lock = w->request->lock;
        struct wait *next = ahead(&contention_of(lock)->queue, w);
        w->degree += is_followed(request_session(w->request));
        if (next != NULL) {
            next->degree++;
            count_session(NULL, request_session(next->request));
        } else {
            each_holder(NULL, lock, count_session);
        }
    }
}

static void follow_session(struct peel *p, struct session_explicit *s)
{
    p->done++;
    if (!is_followed(&s->base)) {
        return;
    }
    FLI_LIST_FOREACH(link, &s->waits)
    {
        peel_wait(p, request_of_link(link)->at.wait);
    }
}

static void follow_waits_of_multi(struct peel *p, struct multi_lock *g)
{
    p->done++;
    for (unsigned i = 0; i < g->n; i++) {
        peel_wait(p, multi_request(g, i)->at.wait);
    }
}

static void follow_wait(struct peel *p, struct wait *w)
{
    p->done++;
    struct lock *lock = w->request->lock;
    struct wait *next = ahead(&contention_of(lock)->queue, w);
    if (next != NULL) {
        peel_wait(p, next);
        peel_session(p, request_session(next->request));
    } else {
        each_holder(p, lock, peel_session);
    }
}

bool machine_has_no_deadlock(struct machine *m)
{
    struct peel p = {.done = 0};
    count_degrees(m);
    for (struct order_node *n = machine_order_first(&m->opened); n != NULL;
         n = machine_order_next(&m->opened, n)) {
        peel_session(&p, &session_of_opened(n)->base);
    }
    FLI_LIST_FOREACH(link, &m->waits)
    {
        struct request *request = wait_of_all(link)->request;
        peel_wait(&p, wait_of_all(link));
        if (waits_for_several(request_session(request)) && request_part(request, 0) == request) {
            p.n_multis++;
            peel_session(&p, request_session(request));
        }
    }
    while (p.sessions != NULL || p.multis != NULL || p.waits != NULL) {
        if (p.multis != NULL) {
            struct multi_lock *g = p.multis;
            p.multis = g->pending;
            follow_waits_of_multi(&p, g);
        } else if (p.sessions != NULL) {
            struct session_explicit *s = p.sessions;
            p.sessions = s->pending;
            follow_session(&p, s);
        } else {
            struct wait *w = p.waits;
            p.waits = w->pending;
            follow_wait(&p, w);
        }
    }
    return p.done == m->opened.len + p.n_multis + m->waits_by_request.len;
}
