/* founders.c: what a cluster is made of: the incarnations of all nodes that form it. The part of
 * identity.h that uses no disk. */
#include <string.h>

#include "consensus/identity.h"

static uint64_t mix(uint64_t h, uint64_t v)
{
    h = (h ^ v) * UINT64_C(0x9e3779b97f4a7c15);
    return h ^ h >> 29;
}

void identity_found(struct identity *id, const uint64_t *incarnations)
{
    uint64_t cluster_id = mix(1, id->begun_crc);
    FLI_ASSERT(id->members.n <= MEMBERS_MAX && !id->joins);
    id->n_founders = id->members.n;
    for (unsigned i = 0; i < id->n_founders; i++) {
        id->founders[i] = (struct identity_founder){id->members.list[i].id, incarnations[i]};
        cluster_id = mix(cluster_id, incarnations[i]);
    }
    id->cluster_id = cluster_id == 0 ? 1 : cluster_id;
}

void identity_configuration(const struct identity *id, struct configuration *ret)
{
    memset(ret, 0, sizeof *ret);
    ret->cluster_id = id->cluster_id;
    for (unsigned i = 0; i < id->n_founders; i++) {
        int rv = configuration_add(ret, id->founders[i].id, id->founders[i].incarnation,
                                   id->members.list[i].address, CONFIGURATION_VOTER);
        FLI_ASSERT(rv == 0);
    }
}
