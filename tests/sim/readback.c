/* readback.c: a node's disk as it would be if the power went now, with all lost that was not
 * synced, is read by the code that starts a node. What it gives back is compared with what the
 * node, which goes on, believes to have on its disk, and with what was applied anywhere.
 *
 *   - The log can be opened, and its writes are as many as the record says. It has what the
 *     node calls durable: terms, bytes, term and vote. Whatever the node has promised is in it.
 *   - The newest snapshot can be decoded. It is the state at its index, and the log goes on there.
 *   - The identity is not ahead of both.
 *
 * This is done now and then, whenever some files were removed or used for others, and at the next
 * writes after a log was truncated or begun anew. */
#include "base/bytes.h"
#include "consensus/replica_private.h"
#include "machine/batch.h"
#include "snapshot/file.h"
#include "promises.h"

#define EACH 48u    /* of turns after which more is on the disk */
#define REMOVED 3u  /* files */
#define CHECKS 3u   /* after what is hard to keep */
#define ENTRIES 64u /* that are compared, from the last on */
#define CRC_AT 36u  /* of a batch, as oracle.c notes it */
#define SEED UINT64_C(0x1d2f)

/* A write of the log has failed, which ends its node, or something rots: what is on the disk
 * then is another matter. Any other call that fails leaves what a start needs. */
static bool is_sound(const struct sim_node *n)
{
    const struct sim_disk *d = &n->disk;
    return d->device != NULL && !d->frozen && !d->error_now && !d->unseen && !d->misplacing &&
           !n->rotten && d->has_record && d->record.identity.bootstrapped &&
           n->older.phase < SIM_OLDER_BACK && n->sim->orders.sabotage == SIM_SABOTAGE_NONE;
}

/* ---- the snapshot ---- */

static void check_state(const struct sim_node *n, const struct snapshot_meta *meta,
                        struct machine *m)
{
    const struct sim_oracle *o = &n->sim->oracle;
    uint64_t at = meta->index < o->max_index ? meta->index : o->max_index;
    while (at > 0 && o->applied[at].event_digest == 0) {
        at--; /* an entry of raft's own changes nothing */
    }
    machine_check(m);
    SIM_CHECK(n->sim, at == 0 || machine_hash(m) == o->applied[at].machine_hash,
              "node %u has a snapshot at %llu on its disk that is another state", n->index + 1,
              ull(meta->index));
}

/* The index of the newest; 0: there is none. */
static uint64_t read_snapshot(struct sim_node *n, struct log_device *d)
{
    static const uint64_t hash_seed[2] = {1, 2};
    struct sim_read_back *k = sim_steps_read_back(n);
    struct snapshot_reader *reader;
    struct snapshot_error error = {0};
    struct machine *m = NULL;
    int rv = snapshot_reader_open(d, 0, &reader, &error);
    if (rv == FL_ENOTFOUND) {
        return 0;
    }
    SIM_CHECK(n->sim, rv == 0, "the snapshot of node %u cannot be opened after a power cut: %s",
              n->index + 1, error.text);
    struct snapshot_meta meta = *snapshot_reader_meta(reader);
    if (meta.index == k->snapshot) {
        snapshot_reader_close(reader);
        return meta.index;
    }
    rv = snapshot_decode(reader, hash_seed, &meta, &m, &error);
    SIM_CHECK(n->sim, rv == 0, "the snapshot of node %u cannot be read after a power cut: %s",
              n->index + 1, error.text);
    check_state(n, &meta, m);
    machine_destroy(m);
    k->snapshot = meta.index;
    return meta.index;
}

/* ---- the log ---- */

static void check_bytes(const struct sim_node *n, struct log *l, uint64_t index)
{
    const struct sim_oracle *o = &n->sim->oracle;
    struct log_entry e;
    if (index > o->max_index || o->applied[index].event_digest == 0) {
        return;
    }
    unsigned got = 0;
    int rv = log_read_some(l, index, 0, &e, 1, &got);
    SIM_CHECK(n->sim, rv == 0, "entry %llu of node %u cannot be read after a power cut", ull(index),
              n->index + 1);
    bool committed = e.term == sim_steps_term(n->sim, index);
    struct machine_batch_header h;
    bool whole = e.len > CRC_AT && machine_batch_open(e.data, e.len, &h) == 0;
    SIM_CHECK(n->sim,
              !committed || (whole && fli_get_u32(e.data + CRC_AT) == o->applied[index].crc),
              "node %u has other bytes of entry %llu on its disk", n->index + 1, ull(index));
}

static void check_entries(const struct sim_node *n, struct log *l)
{
    const struct log *is = n->node->log;
    uint64_t durable = log_durable_index(is);
    uint64_t from = durable > ENTRIES ? durable - ENTRIES : 1;
    from = from < log_first_index(l) ? log_first_index(l) : from;
    from = from < log_first_index(is) ? log_first_index(is) : from;
    SIM_CHECK(n->sim, log_last_index(l) >= durable,
              "node %u counts entry %llu as on its disk, which ends with %llu", n->index + 1,
              ull(durable), ull(log_last_index(l)));
    for (uint64_t i = from; i <= durable; i++) {
        SIM_CHECK(n->sim, log_term_of(l, i) == log_term_of(is, i),
                  "node %u has entry %llu of term %llu on its disk, and takes it for one of %llu",
                  n->index + 1, ull(i), ull(log_term_of(l, i)), ull(log_term_of(is, i)));
        check_bytes(n, l, i);
    }
}

/* While a log is begun anew behind a snapshot that has come, its index counts as durable. */
static void check_log(const struct sim_node *n, struct log *l, uint64_t snapshot)
{
    const struct log *is = n->node->log;
    struct log_hard_state a = log_get_hard_state(l);
    struct log_hard_state b = log_get_hard_state(is);
    uint64_t last = log_last_index(l) > snapshot ? log_last_index(l) : snapshot;
    bool begins = log_durable(is) < n->node->replica->promised_at ||
                  log_first_index(is) > log_last_index(l) + 1;
    SIM_CHECK(n->sim, log_writes(l) >= n->disk.record.starts.index,
              "node %u has noted %llu writes of its log, and a power cut leaves %llu", n->index + 1,
              ull(n->disk.record.starts.index), ull(log_writes(l)));
    SIM_CHECK(n->sim, log_first_index(l) <= snapshot + 1,
              "the log of node %u begins with %llu after a power cut, behind a snapshot of %llu",
              n->index + 1, ull(log_first_index(l)), ull(snapshot));
    if (!begins) {
        check_entries(n, l);
    }
    bool all = !begins && log_durable(is) == log_position(is);
    SIM_CHECK(n->sim, !all || log_last_index(l) == log_last_index(is),
              "node %u has nothing to write, and %llu entries of %llu on its disk", n->index + 1,
              ull(log_last_index(l)), ull(log_last_index(is)));
    SIM_CHECK(n->sim, !all || (a.term == b.term && a.vote == b.vote),
              "node %u has nothing to write, and term %llu and vote %llu on its disk", n->index + 1,
              ull(a.term), ull(a.vote));
    sim_promises_kept(n, l, last, "would be started");
}

static void closed(void *ctx)
{
    *(bool *)ctx = true;
}

static void nothing(void *ctx)
{
    (void)ctx;
}

void sim_read_back(struct sim_node *n)
{
    char why[512] = "";
    struct log *l;
    bool over = false;
    if (!is_sound(n)) {
        return;
    }
    struct sim_device *device = sim_device_clone(n->disk.device, SEED + n->index, true);
    struct log_config config = {.device = sim_device_base(device),
                                .segment_bytes = n->sim->options.segment_bytes,
                                .must_exist = true,
                                .durable = nothing};
    uint64_t snapshot = read_snapshot(n, config.device);
    SIM_CHECK(n->sim, snapshot >= replica_snapshot_index(n->node->replica),
              "node %u counts a snapshot at %llu as its own, and a power cut leaves %llu",
              n->index + 1, ull(replica_snapshot_index(n->node->replica)), ull(snapshot));
    int rv = log_open(&config, &l, why, sizeof why);
    SIM_CHECK(n->sim, rv == 0, "the log of node %u cannot be opened after a power cut: %s",
              n->index + 1, why);
    check_log(n, l, snapshot);
    log_close(l, closed, &over);
    FLI_ASSERT(over);
    log_destroy(l);
    sim_device_destroy(device);
    n->sim->marks->read_back++;
}

/* ---- when ---- */

uint64_t __real_log_truncate(struct log *l, uint64_t index);
uint64_t __wrap_log_truncate(struct log *l, uint64_t index);
uint64_t __real_log_reset(struct log *l, uint64_t index, uint64_t term);
uint64_t __wrap_log_reset(struct log *l, uint64_t index, uint64_t term);

uint64_t __wrap_log_truncate(struct log *l, uint64_t index)
{
    sim_steps_read_back(sim_running->current)->checks_due = CHECKS;
    return __real_log_truncate(l, index);
}

uint64_t __wrap_log_reset(struct log *l, uint64_t index, uint64_t term)
{
    sim_steps_read_back(sim_running->current)->checks_due = CHECKS;
    return __real_log_reset(l, index, term);
}

void sim_read_back_node(struct sim_node *n)
{
    struct sim_read_back *k = sim_steps_read_back(n);
    uint64_t position = log_durable(n->node->log);
    if (k->removed >= REMOVED) {
        k->removed = 0;
        sim_read_back(n);
        return;
    }
    if (position == k->position) {
        return;
    }
    k->position = position;
    if (k->checks_due > 0) {
        k->checks_due--;
        sim_read_back(n);
    } else if (++k->turns % EACH == 0) {
        sim_read_back(n);
    }
}
