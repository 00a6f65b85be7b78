/* work.c: work that may need more steps than one batch has.
 *
 * A release can let in twenty thousand readers, a session can hold a hundred thousand locks, and a
 * fail-over can end a million leases in one millisecond. One batch takes a bounded number of steps
 * for such work. The rest stays on a list, which is state. The next batch does it before anything
 * else that is due. Work that arises from a piece of work goes in front of it. So everything
 * happens in the same order as without a bound, spread over several batches, as long as no commands
 * come in between.
 *
 * Only the check of all waits after a change of users is last, behind what is due: it begins again
 * with each such change, so whoever changes users in a loop would keep everything else from its
 * steps. It can wait, since a wait is checked once more when its turn comes.
 *
 * What commands see meanwhile: A session that is ending is gone. A lock that such a session holds,
 * that is broken, or whose lease is over is no longer held (CHECK, RENEW, RELEASE) and not yet free
 * (ACQUIRE), as if it were delayed. A session that requests again a lock that it has lost in this
 * way first loses the old record. A lock that could go to the first in its queue goes to nobody
 * else.
 *
 * Leases with a deadline before the clock are over only up to due_ms. due_ms reaches the clock as
 * soon as nothing with an earlier deadline is left. A term mark, which lengthens all leases, waits
 * for the same moment: so a lease that was over stays over. */
#include "machine/state.h"

void machine_set_budget(struct machine *m, const struct budget *budget)
{
    FLI_ASSERT(budget->due > 0 && budget->search_min <= budget->search_max);
    m->budget = *budget;
}

void machine_set_last_token(struct machine *m, fl_token token)
{
    FLI_ASSERT(token >= m->last_token && token <= FL_TOKEN_MAX);
    m->last_token = token;
}

uint64_t machine_spent(const struct machine *m)
{
    return m->spent;
}

bool machine_has_work(const struct machine *m)
{
    return machine_is_behind(m);
}

void machine_charge(struct machine *m, uint32_t steps)
{
    m->spent += steps;
    m->steps -= steps < m->steps ? steps : m->steps;
}

void machine_work_init(struct work *w, enum work_kind kind)
{
    fli_list_init(&w->link);
    w->kind = kind;
}

static struct work *work_of(struct fli_list *link)
{
    return FLI_CONTAINER_OF(link, struct work, link);
}

struct session_explicit *machine_work_session(struct work *w)
{
    FLI_ASSERT(w->kind == WORK_SESSION);
    return FLI_CONTAINER_OF(w, struct session_explicit, work);
}

struct multi_lock *machine_work_multi(struct work *w)
{
    FLI_ASSERT(w->kind == WORK_MULTI);
    return FLI_CONTAINER_OF(w, struct multi_lock, work);
}

struct contention *machine_work_contention(struct work *w)
{
    FLI_ASSERT(w->kind == WORK_LOCK);
    return FLI_CONTAINER_OF(w, struct contention, work);
}

void machine_work_later(struct machine *m, struct work *w)
{
    FLI_ASSERT(w->kind != WORK_USERS);
    if (fli_list_linked(&w->link)) {
        fli_list_remove(&w->link);
    } else {
        m->n_work++;
        m->digest += machine_digest_work(w);
    }
    fli_list_insert_before(m->work.next, &w->link);
}

void machine_work_last(struct machine *m, struct work *w)
{
    FLI_ASSERT(!fli_list_linked(&w->link));
    struct fli_list *users = &m->users.work.link;
    m->n_work++;
    m->digest += machine_digest_work(w);
    fli_list_insert_before(fli_list_linked(users) ? users : &m->work, &w->link);
}

void machine_work_forget(struct machine *m, struct work *w)
{
    if (fli_list_linked(&w->link)) {
        m->digest -= machine_digest_work(w);
        fli_list_remove(&w->link);
        m->n_work--;
    }
}

static void work_once(struct machine *m, struct work *w)
{
    switch (w->kind) {
    case WORK_SESSION:
        machine_session_work(m, machine_work_session(w));
        break;
    case WORK_MULTI:
        machine_lock_end(m, multi_request(machine_work_multi(w), 0), MACHINE_EVENT_RELEASED,
                         MACHINE_REASON_RELEASE, 0);
        break;
    default:
        machine_lock_work(m, machine_work_contention(w));
        break;
    }
}

/* The check of waits, which machine_users_work() does, is the last of the list. */
static bool has_other_work(const struct machine *m)
{
    return !fli_list_empty(&m->work) && work_of(m->work.next)->kind != WORK_USERS;
}

/* The loop terminates: each round does one piece of work and takes at least one step. */
void machine_work(struct machine *m)
{
    while (m->steps > 0 && has_other_work(m)) {
        work_once(m, work_of(m->work.next));
        machine_charge(m, 1);
    }
}
