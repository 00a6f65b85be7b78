/* disk_ballot.c: stands in for src/consensus/ballot.c. */
#include "sim.h"

/* Its file is written before the backend's record, so a write that fails in between leaves it ahead
 * of that; when the node starts again, the backend is given what it says. */
void ballot_init(struct ballot *b)
{
    *b = (struct ballot){.fd = -1};
}

int ballot_forget(const struct data_dir *d, char *errmsg, size_t errmsg_size)
{
    (void)errmsg;
    (void)errmsg_size;
    sim_disk_node(d)->disk.has_ballot = false;
    return 0;
}

int ballot_open(const struct data_dir *d, struct ballot *ret, bool *ret_corrected, char *errmsg,
                size_t errmsg_size)
{
    struct sim_node *n = sim_disk_node(d);
    struct sim_disk *disk = &n->disk;
    (void)errmsg;
    (void)errmsg_size;
    if (!disk->has_ballot) {
        disk->has_ballot = true;
        disk->ballot_term = disk->term;
        disk->ballot_vote = disk->voted_for;
    }
    *ret_corrected = disk->ballot_term != disk->term || disk->ballot_vote != disk->voted_for;
    SIM_CHECK(n->sim, disk->ballot_term >= disk->term, "node %u: the ballot is behind",
              n->index + 1);
    disk->term = disk->ballot_term;
    disk->voted_for = disk->ballot_vote;
    *ret = (struct ballot){.term = disk->term, .vote = disk->voted_for};
    ret->fd = (int)n->index;
    return 0;
}

void ballot_close(struct ballot *b)
{
    b->fd = -1;
}

static int ballot_put(struct ballot *b, uint64_t term, uint64_t vote)
{
    if (b == NULL || b->fd < 0 || sim_world->nodes[b->fd].ghost) {
        return 0;
    }
    struct sim_node *n = &sim_world->nodes[b->fd];
    bool may_fail = n->disk.errors > 0 || n->disk.error_now;
    if (may_fail && sim_draw_chance(&n->sim->node_random, 50) && sim_disk_fails(n)) {
        return FL_EIO;
    }
    b->term = n->disk.ballot_term = term;
    b->vote = n->disk.ballot_vote = vote;
    return 0;
}

int ballot_set_term(struct ballot *b, uint64_t term, char *errmsg, size_t errmsg_size)
{
    (void)errmsg;
    (void)errmsg_size;
    return ballot_put(b, term, 0);
}

int ballot_set_vote(struct ballot *b, uint64_t vote, char *errmsg, size_t errmsg_size)
{
    (void)errmsg;
    (void)errmsg_size;
    return ballot_put(b, b == NULL ? 0 : b->term, vote);
}
