/* attempt.c: refuses a late attempt: an ACQUIRE that is carried out after a later one of the same
 * request.
 *
 * A client that gets no answer sends its request again, to another node. The first attempt may be
 * carried out much later: it may lie in the socket of a node that was stopped. By then the client
 * may have got its lock by the second attempt and have released it, and the first one would take
 * the lock for nobody. So each attempt at one request (user, kind of owner, first lock, owner) has
 * a larger number than the one before. An attempt without a number is the first. An attempt with a
 * smaller number than one that has come already is answered LATE.
 *
 * The first attempt leaves no record: without a second one, none can be late. All others leave one.
 * At most MACHINE_ATTEMPTS_MAX records are kept, each for MACHINE_ATTEMPT_KEEP_MS of the cluster
 * clock unless its user has the most and that many newer ones push it out (seen.h). */
#include "machine/state.h"

static size_t make_key(const struct machine *m, const struct machine_command *c,
                       uint8_t key[SEEN_KEY_MAX])
{
    bool is_explicit = (c->flags & MACHINE_ACQUIRE_EXPLICIT) != 0;
    return machine_seen_key(m, is_explicit ? SEEN_EXPLICIT : SEEN_IMPLICIT, c->name, c->owner, key);
}

bool machine_attempt_is_late(struct machine *m, const struct machine_command *c,
                             uint64_t *ret_highest)
{
    uint64_t number = (c->flags & MACHINE_ACQUIRE_ATTEMPT) != 0 ? c->number : 1;
    if (number == 1 && m->attempts.by_key.len == 0) {
        return false;
    }
    uint8_t bytes[SEEN_KEY_MAX];
    struct fli_slice key = {bytes, make_key(m, c, bytes)};
    struct seen *s = machine_seen_find(&m->attempts, key);
    if (s != NULL && number < s->number) {
        *ret_highest = s->number;
        return true;
    }
    if (s != NULL) {
        machine_seen_renew(m, &m->attempts, s, number, m->clock_ms);
    } else if (number > 1) {
        machine_seen_add(m, &m->attempts, key, number, m->clock_ms);
    }
    return false;
}

bool machine_attempt_load(struct machine *m, struct fli_slice key, uint64_t highest, uint64_t at_ms)
{
    struct seen_table *t = &m->attempts;
    uint64_t last_ms = fli_list_empty(&t->list) ? 0 : seen_of(t->list.prev)->at_ms;
    if (highest < 2 || highest > MACHINE_ATTEMPT_MAX || at_ms < last_ms || at_ms > m->clock_ms ||
        t->by_key.len == t->max || machine_seen_find(t, key) != NULL) {
        return false;
    }
    machine_seen_load(m, t, key, highest, at_ms);
    return true;
}
