/* model_find.c: what there is in the model: sessions, holders, queues, counts. */
#include "model.h"

#include <stdlib.h>

int model_find_session(const struct model *m, bool is_explicit, char owner, char name)
{
    for (unsigned i = 0; i < MODEL_SESSIONS_MAX; i++) {
        const struct model_session *s = &m->sessions[i];
        if (s->exists && s->is_explicit == is_explicit && s->owner == owner && s->name == name) {
            return (int)i;
        }
    }
    return -1;
}

unsigned model_new_session(struct model *m, bool is_explicit, char owner, char name)
{
    for (unsigned i = 0; i < MODEL_SESSIONS_MAX; i++) {
        if (!m->sessions[i].exists) {
            m->sessions[i] = (struct model_session){
                .exists = true, .is_explicit = is_explicit, .owner = owner, .name = name};
            return i;
        }
    }
    abort();
}

uint64_t model_count_sessions(const struct model *m, bool only_explicit)
{
    uint64_t n = 0;
    for (unsigned i = 0; i < MODEL_SESSIONS_MAX; i++) {
        n += m->sessions[i].exists && (!only_explicit || m->sessions[i].is_explicit);
    }
    return n;
}

unsigned model_queue(const struct model *m, char name, unsigned queue[MODEL_WAITS_MAX])
{
    unsigned n = 0;
    for (unsigned i = 0; i < MODEL_WAITS_MAX; i++) {
        if (!m->waits[i].exists || m->waits[i].name != name) {
            continue;
        }
        unsigned k = n++;
        while (k > 0 && m->waits[queue[k - 1]].id > m->waits[i].id) {
            queue[k] = queue[k - 1];
            k--;
        }
        queue[k] = i;
    }
    return n;
}

unsigned model_holders(const struct model *m, char name, unsigned holds[MODEL_HOLDS_MAX])
{
    unsigned n = 0;
    uint64_t last = 0;
    for (;;) {
        int best = -1;
        for (unsigned i = 0; i < MODEL_HOLDS_MAX; i++) {
            const struct model_hold *h = &m->holds[i];
            if (h->exists && h->name == name && h->token > last &&
                (best < 0 || h->token < m->holds[best].token)) {
                best = (int)i;
            }
        }
        if (best < 0) {
            return n;
        }
        last = m->holds[best].token;
        holds[n++] = (unsigned)best;
    }
}

unsigned model_count_holders(const struct model *m, char name)
{
    unsigned holds[MODEL_HOLDS_MAX];
    return model_holders(m, name, holds);
}

bool model_in_use(const struct model *m, char name)
{
    return model_count_holders(m, name) > 0 || m->locks[name - 'a'].idle;
}

/* The hold of a session on a lock; -1 when there is none. */
int model_find_hold(const struct model *m, int session, char name)
{
    for (unsigned i = 0; i < MODEL_HOLDS_MAX; i++) {
        const struct model_hold *h = &m->holds[i];
        if (h->exists && h->name == name && (int)h->session == session) {
            return (int)i;
        }
    }
    return -1;
}

uint64_t model_count_waits(const struct model *m)
{
    uint64_t n = 0;
    for (unsigned i = 0; i < MODEL_WAITS_MAX; i++) {
        n += m->waits[i].exists;
    }
    return n;
}

struct machine_counts model_counts(const struct model *m)
{
    struct machine_counts c = m->counts;
    for (char name = 'a'; name < (char)('a' + MODEL_NAMES); name++) {
        c.locks_held += model_count_holders(m, name);
        c.locks += model_in_use(m, name);
    }
    c.sessions = model_count_sessions(m, false);
    c.sessions_explicit = model_count_sessions(m, true);
    c.waits = model_count_waits(m);
    return c;
}
