/* model_cycle.c: who waits for whom in the model. */
#include "model.h"

#include <string.h>

/* All pairs, all paths. */
bool model_closes_cycle(const struct model *m, unsigned session, const char *names)
{
    static bool waits_for[MODEL_SESSIONS_MAX][MODEL_SESSIONS_MAX];
    memset(waits_for, 0, sizeof waits_for);
    for (unsigned l = 0; l < MODEL_NAMES; l++) {
        unsigned queue[MODEL_WAITS_MAX + 1];
        unsigned sessions[MODEL_WAITS_MAX + 1];
        unsigned n = model_queue(m, (char)('a' + l), queue);
        for (unsigned i = 0; i < n; i++) {
            sessions[i] = m->waits[queue[i]].session;
        }
        if (strchr(names, (char)('a' + l)) != NULL) {
            sessions[n++] = session;
        }
        for (unsigned i = 0; i < n; i++) {
            unsigned holds[MODEL_HOLDS_MAX];
            unsigned n_holds = model_holders(m, (char)('a' + l), holds);
            for (unsigned k = 0; k < n_holds; k++) {
                waits_for[sessions[i]][m->holds[holds[k]].session] = true;
            }
            for (unsigned k = 0; k < i; k++) {
                waits_for[sessions[i]][sessions[k]] = true;
            }
        }
    }
    for (unsigned k = 0; k < MODEL_SESSIONS_MAX; k++) {
        for (unsigned i = 0; i < MODEL_SESSIONS_MAX; i++) {
            for (unsigned j = 0; waits_for[i][k] && j < MODEL_SESSIONS_MAX; j++) {
                waits_for[i][j] = waits_for[i][j] || waits_for[k][j];
            }
        }
    }
    for (unsigned i = 0; i < MODEL_SESSIONS_MAX; i++) {
        if (waits_for[i][i]) {
            return true;
        }
    }
    return false;
}
