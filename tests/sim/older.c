/* older.c: an older copy of a node's disk comes back: a snapshot of a virtual machine, or a
 * directory that was copied last week.
 *
 * A copy is taken, while the node runs or after a crash. Later, when the node has been started
 * again and every other node has that on its disk, the copy is put in the place of the disk. From
 * there on the cluster must refuse the node, whoever it meets first, and it ends. Sometimes it is
 * started again, and has to be refused for what it has noted. Then an operator gives it an empty
 * disk and has it forgotten, as after a lost disk (tend_wiped in faults.c).
 *
 * What nobody could know is not asked for: a copy of a start that some node has not heard of, or of
 * the newest one (docs/adr/0041); nor two disks that are lost at a time.
 *
 * With the sabotage "older-copies" nobody looks. */
#include "members.h"

#include "members/membership_private.h"

#define BACK_MS 100u

int __real_membership_receive_starts(struct membership *m, uint64_t from, struct fli_slice body);
int __wrap_membership_receive_starts(struct membership *m, uint64_t from, struct fli_slice body);
bool __real_starts_went_back(const struct starts *s, const struct peer_identity *peer, bool first,
                             struct starts_follower follower);
bool __wrap_starts_went_back(const struct starts *s, const struct peer_identity *peer, bool first,
                             struct starts_follower follower);

int __wrap_membership_receive_starts(struct membership *m, uint64_t from, struct fli_slice body)
{
    if (sim_running->orders.sabotage == SIM_SABOTAGE_OLDER_COPIES) {
        return 0;
    }
    struct starts before = membership_now(m)->starts;
    int rv = __real_membership_receive_starts(m, from, body);
    sim_members_check_starts(m, &before);
    return rv;
}

bool __wrap_starts_went_back(const struct starts *s, const struct peer_identity *peer, bool first,
                             struct starts_follower follower)
{
    return sim_running->orders.sabotage != SIM_SABOTAGE_OLDER_COPIES &&
           __real_starts_went_back(s, peer, first, follower);
}

void sim_older_forget(struct sim_node *n)
{
    if (n->older.device != NULL) {
        sim_device_destroy(n->older.device);
    }
    n->older = (struct sim_older){.phase = SIM_OLDER_NONE};
}

void sim_older_begin(struct sim_node *n, const struct sim_fault *f)
{
    struct sim *s = n->sim;
    const struct sim_disk *d = &n->disk;
    if (n->older.phase != SIM_OLDER_NONE || d->device == NULL || !d->record.identity.bootstrapped ||
        n->wiped || n->rotten) {
        return;
    }
    if (f->both && sim_node_runs(n)) {
        sim_node_crash(n, false);
        n->restart_at = s->now + BACK_MS;
        if (d->device == NULL) { /* it had to be exchanged */
            return;
        }
    }
    n->older =
        (struct sim_older){.phase = SIM_OLDER_COPIED,
                           .device = sim_device_clone(d->device, sim_draw(&s->random), false),
                           .record = d->record,
                           .at = s->now + f->ms,
                           .insists = f->k % 2 == 1};
    SIM_TRACE(s, "node %u: its disk is copied at start %llu", n->index + 1,
              (unsigned long long)d->record.starts.own.number);
}

/* Whether every other node has on its disk that the copy is over. */
static bool is_known(const struct sim_node *n)
{
    const struct sim *s = n->sim;
    for (unsigned i = 0; i < s->n; i++) {
        const struct sim_disk *d = &s->nodes[i].disk;
        const struct starts_known *k =
            starts_find(&d->record.starts, n->older.record.identity.incarnation);
        if (i != n->index && (k == NULL || k->start.number <= n->older.record.starts.own.number)) {
            return false;
        }
    }
    return true;
}

static bool all_are_whole(const struct sim_node *n)
{
    for (unsigned i = 0; i < n->sim->n; i++) {
        const struct sim_node *o = &n->sim->nodes[i];
        if (o->wiped || o->rotten || o->change != SIM_CHANGE_NONE || o->disk.unseen) {
            return false;
        }
    }
    return true;
}

static void put_back(struct sim_node *n)
{
    struct sim *s = n->sim;
    SIM_TRACE(s, "node %u: the copy comes back, newer is start %llu", n->index + 1,
              (unsigned long long)n->disk.record.starts.own.number);
    if (sim_node_runs(n)) {
        sim_node_crash(n, false);
    }
    sim_disk_adopt(n, n->older.device, &n->older.record);
    n->older.device = NULL;
    n->older.phase = SIM_OLDER_BACK;
    n->wiped = true;
    n->restart_at = s->now + BACK_MS;
    s->marks->older_copies++;
}

static void tend_copied(struct sim_node *n)
{
    struct sim *s = n->sim;
    if (s->healed || n->disk.record.identity.incarnation != n->older.record.identity.incarnation) {
        sim_older_forget(n); /* too late, or another disk has taken its place */
    } else if (n->older.at <= s->now && !n->replacing && n->dismiss_until <= s->now &&
               all_are_whole(n)) {
        if (is_known(n)) {
            put_back(n);
        } else if (sim_node_runs(n) &&
                   n->disk.record.starts.own.number == n->older.record.starts.own.number) {
            sim_node_crash(n, false);
            n->restart_at = s->now + BACK_MS;
        }
    }
}

/* It must not get anywhere. */
static void tend_back(struct sim_node *n)
{
    struct sim *s = n->sim;
    const struct sim_node *leader = sim_leader(s);
    bool runs = n->power == SIM_UP && n->failed == 0;
    SIM_CHECK(s, !runs || leader != n, "node %u leads on an older copy of its disk", n->index + 1);
    bool follows = runs && leader != NULL &&
                   replica_leader(n->node->replica) == leader->index + 1 &&
                   replica_term(n->node->replica) == replica_term(leader->node->replica);
    SIM_CHECK(s, !follows, "node %u was let in with an older copy of its disk", n->index + 1);
}

void sim_older_refused(struct sim_node *n)
{
    if (n->older.phase == SIM_OLDER_BACK) {
        n->older.phase = SIM_OLDER_REFUSED;
        n->sim->marks->older_copies_refused++;
    }
}

bool sim_older_is_back(const struct sim_node *n)
{
    return n->older.phase >= SIM_OLDER_BACK;
}

static void tend_refused(struct sim_node *n)
{
    struct sim *s = n->sim;
    if (sim_node_runs(n)) {
        return; /* it is about to end */
    }
    if (n->older.insists) { /* a service manager starts it again: it refuses by itself */
        n->older.insists = false;
        n->restart_at = s->now;
        return;
    }
    if (n->restart_at == SIM_NEVER || n->restart_at > s->now) {
        sim_older_forget(n);
        sim_disk_wipe(n);
        n->restart_at = s->now + BACK_MS;
    }
}

void sim_older_tend(struct sim_node *n)
{
    switch (n->older.phase) {
    case SIM_OLDER_NONE:
        break;
    case SIM_OLDER_COPIED:
        tend_copied(n);
        break;
    case SIM_OLDER_BACK:
        tend_back(n);
        break;
    case SIM_OLDER_REFUSED:
        tend_refused(n);
        break;
    }
}
