/* raft_guard_change.c: see raft_guard_change.h. */
#include "consensus/raft_guard_change.h"

bool guard_copy_configuration(const struct raft_configuration *from, struct raft_configuration *to)
{
    raft_configuration_init(to);
    for (unsigned i = 0; i < from->n; i++) {
        const struct raft_server *server = &from->servers[i];
        if (raft_configuration_add(to, server->id, server->address, server->role) != 0) {
            raft_configuration_close(to);
            return false;
        }
    }
    return true;
}

static bool decode_configuration(const struct raft_buffer *buf, struct raft_configuration *ret)
{
#if RAFT_VERSION_NUMBER >= 2000
    return raft_configuration_decode(buf, ret) == 0;
#else
    (void)buf;
    (void)ret;
    return false;
#endif
}

/* It is in the message itself, or the one that raft has noted as not committed. The latter is told
 * from one that the message cuts off by its index: what is not behind prev_log_index stays. */
void guard_find_former(const struct raft *r, const struct raft_append_entries *m,
                       struct guard_former *ret)
{
    raft_index noted = r->configuration_uncommitted_index;
    unsigned last = m->n_entries;
    *ret = (struct guard_former){0};
    while (last > 0 && m->entries[last - 1].type != RAFT_CHANGE) {
        last--;
    }
    if (last == 0) {
        return;
    }
    unsigned before = last - 1;
    while (before > 0 && m->entries[before - 1].type != RAFT_CHANGE) {
        before--;
    }
    ret->next = m->prev_log_index + last;
    bool found = false;
    if (before > 0) {
        ret->index = m->prev_log_index + before;
        found = decode_configuration(&m->entries[before - 1].buf, &ret->conf);
    } else if (noted != 0 && noted <= m->prev_log_index) {
        ret->index = noted;
        found = guard_copy_configuration(&r->configuration, &ret->conf);
    }
    ret->index = found ? ret->index : 0;
}

/* A leader changes nothing before the change before is committed, so that one is, if raft has taken
 * the last one in. Raft concludes the same when it reads its log at start. */
bool guard_note_former(struct raft *r, struct guard_former *f)
{
#if RAFT_VERSION_NUMBER >= 2000 /* before that raft keeps no copy of the configuration */
    if (r->configuration_uncommitted_index == f->next &&
        r->configuration_committed_index < f->index) {
        raft_configuration_close(&r->configuration_committed);
        r->configuration_committed = f->conf;
        r->configuration_committed_index = f->index;
        return true;
    }
#else
    (void)r;
#endif
    raft_configuration_close(&f->conf);
    return false;
}
