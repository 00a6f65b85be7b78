/* deadlock.c: no cycle of sessions that wait for each other.
 *
 * A wait waits for the holders of its lock and for the waits ahead of it in the queue. (Of several
 * holders of a semaphore one is enough, but each is followed, so a wait may be refused that one of
 * the others would have ended.) Only explicit
 * sessions can hold one lock while they wait for another, so only they can be part of a cycle. A
 * cycle can only be closed by a new wait: grants go to the head of a queue, which everybody behind
 * waited for already. So it is enough to look when a wait is asked for, whether what it would wait
 * for waits, by any path, for the session that asks; and a machine never contains a cycle.
 *
 * The search is a worklist, no recursion, and each wait and session is visited once. Two things
 * keep it short in practice. A session that holds and awaits nothing has nobody behind it, so its
 * wait is safe without a look. And a waiter whose only wait is in the queue being walked leads
 * nowhere that the walk does not lead anyway; so queues are walked only when somebody in them also
 * waits elsewhere (crowd.n_multi), or when the session that asks is itself in them. What remains is
 * the chain of holders. Beyond MACHINE_DEADLOCK_VISITS_MAX steps the answer is "unknown" and the
 * wait is refused as over a limit: waiting without knowing could hang for ever, and calling it a
 * deadlock could be a lie. */
#include "machine/state.h"

struct search {
    struct machine *m;
    struct session_explicit *goal;
    struct session_explicit *pending; /* found, to be followed */
    const struct lock *goal_lock;     /* where the goal waits, when that is its only wait */
    uint32_t visits;
    bool found;
    bool exhausted;
};

/* False when no further step may be made. */
static bool step(struct search *s)
{
    s->exhausted = s->exhausted || s->visits == MACHINE_DEADLOCK_VISITS_MAX;
    s->visits += !s->exhausted;
    return !s->exhausted;
}

static void visit_session(struct search *s, struct session *session)
{
    if (!session_is_explicit(session)) {
        return;
    }
    struct session_explicit *e = session_explicit_of(session);
    if (e == s->goal) {
        s->found = true;
        return;
    }
    if (e->n_waits > 0 && e->mark != s->m->search) {
        e->mark = s->m->search;
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

/* Visits whom a wait at `from` waits for (NULL: one at the end of the queue). A marked wait was
 * walked over before, and with it all that is ahead of it. */
static void visit_lock(struct search *s, struct lock *lock, const struct wait *from)
{
    struct crowd *c = lock->crowd;
    if (c != NULL && (c->n_multi > 0 || lock == s->goal_lock)) {
        for (struct wait *w = ahead(&c->queue, from); w != NULL; w = ahead(&c->queue, w)) {
            if (w->mark == s->m->search || !step(s)) {
                return;
            }
            w->mark = s->m->search;
            visit_session(s, w->seat->session);
        }
    }
    if (c == NULL || c->n_shares == 0) {
        if (lock->holder != NULL) {
            visit_session(s, lock->holder->session);
        }
        return;
    }
    FLI_LIST_FOREACH(link, &c->shares)
    {
        if (!step(s)) {
            return;
        }
        visit_session(s, share_of_link(link)->seat->session);
    }
}

static void follow_waits(struct search *s, struct session_explicit *e)
{
    FLI_LIST_FOREACH(link, &e->waits)
    {
        struct seat *seat = seat_of_link(link);
        if (s->found || !step(s)) {
            return;
        }
        visit_lock(s, seat->lock, seat->at.wait);
    }
}

enum deadlock machine_deadlock_search(struct machine *m, struct session_explicit *session,
                                      struct lock *lock)
{
    if (session->n_held == 0 && session->n_waits == 0) {
        return DEADLOCK_NONE;
    }
    m->search++;
    struct search s = {.m = m, .goal = session};
    if (session->n_waits == 1) {
        s.goal_lock = seat_of_link(session->waits.next)->lock;
    }
    visit_lock(&s, lock, NULL);
    while (s.pending != NULL && !s.found && !s.exhausted) {
        struct session_explicit *e = s.pending;
        s.pending = e->pending;
        follow_waits(&s, e);
    }
    if (s.found) {
        return DEADLOCK_CYCLE;
    }
    return s.exhausted ? DEADLOCK_UNKNOWN : DEADLOCK_NONE;
}

/* The whole graph at once, by taking away what nobody waits for until nothing is left (Kahn's
 * sort). Nodes are explicit sessions and waits; a session waits for each of its waits, a wait for
 * the one ahead of it and for that one's session, the first of a queue for the holders. */
struct peel {
    struct session_explicit *sessions; /* with nobody waiting for them */
    struct wait *waits;
    uint64_t done;
};

static void peel_session(struct peel *p, struct session *session)
{
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

/* Calls fn for each explicit session that the first wait of a queue waits for. */
static void each_holder(struct peel *p, struct lock *lock,
                        void (*fn)(struct peel *p, struct session *session))
{
    if (lock->crowd->n_shares == 0) {
        if (lock->holder != NULL) {
            fn(p, lock->holder->session);
        }
        return;
    }
    FLI_LIST_FOREACH(link, &lock->crowd->shares)
    {
        fn(p, share_of_link(link)->seat->session);
    }
}

static void count_session(struct peel *p, struct session *session)
{
    (void)p;
    if (session_is_explicit(session)) {
        session_explicit_of(session)->degree++;
    }
}

/* Every node starts with one more than its edges, which is then peeled from each in turn. */
static void count_degrees(struct machine *m)
{
    for (struct order_node *n = machine_order_first(&m->opened); n != NULL;
         n = machine_order_next(&m->opened, n)) {
        session_of_opened(n)->degree = 1;
    }
    FLI_LIST_FOREACH(link, &m->waits)
    {
        wait_of_all(link)->degree = 1;
    }
    FLI_LIST_FOREACH(link, &m->waits)
    {
        struct wait *w = wait_of_all(link);
        struct lock *lock = w->seat->lock;
        struct wait *next = ahead(&lock->crowd->queue, w);
        w->degree += session_is_explicit(w->seat->session);
        if (next != NULL) {
            next->degree++;
            count_session(NULL, next->seat->session);
        } else {
            each_holder(NULL, lock, count_session);
        }
    }
}

static void follow_session(struct peel *p, struct session_explicit *s)
{
    p->done++;
    FLI_LIST_FOREACH(link, &s->waits)
    {
        peel_wait(p, seat_of_link(link)->at.wait);
    }
}

static void follow_wait(struct peel *p, struct wait *w)
{
    p->done++;
    struct lock *lock = w->seat->lock;
    struct wait *next = ahead(&lock->crowd->queue, w);
    if (next != NULL) {
        peel_wait(p, next);
        peel_session(p, next->seat->session);
    } else {
        each_holder(p, lock, peel_session);
    }
}

bool machine_deadlock_free(struct machine *m)
{
    struct peel p = {.done = 0};
    count_degrees(m);
    for (struct order_node *n = machine_order_first(&m->opened); n != NULL;
         n = machine_order_next(&m->opened, n)) {
        peel_session(&p, &session_of_opened(n)->base);
    }
    FLI_LIST_FOREACH(link, &m->waits)
    {
        peel_wait(&p, wait_of_all(link));
    }
    while (p.sessions != NULL || p.waits != NULL) {
        if (p.sessions != NULL) {
            struct session_explicit *s = p.sessions;
            p.sessions = s->pending;
            follow_session(&p, s);
        } else {
            struct wait *w = p.waits;
            p.waits = w->pending;
            follow_wait(&p, w);
        }
    }
    return p.done == m->opened.len + m->waits_by_id.len;
}
