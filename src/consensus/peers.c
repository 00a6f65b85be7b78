/* peers.c: see peers.h. */
#include "consensus/peers.h"

#include <string.h>

struct peer *peers_find(const struct peers *p, uint64_t id)
{
    for (unsigned i = 0; i < KNOWN_MEMBERS_MAX && id != 0; i++) {
        if (p->list[i].id == id) {
            return (struct peer *)(uintptr_t)&p->list[i];
        }
    }
    return NULL;
}

struct peer *peers_place(struct peers *p, uint64_t id)
{
    struct peer *place = peers_find(p, id);
    for (unsigned i = 0; i < KNOWN_MEMBERS_MAX && place == NULL; i++) {
        if (p->list[i].id == 0) {
            place = &p->list[i];
            place->id = id;
        }
    }
    return place;
}

static void leave(struct peer *p)
{
    struct peer rest = {.calling = p->calling,
                        .relay = p->relay,
                        .relay_dials = p->relay_dials,
                        .relay_left = p->relay_dials != NULL,
                        .send = p->send};
    bool busy = rest.calling || rest.relay != NULL || rest.relay_left || rest.send != NULL;
    rest.id = busy ? p->id : 0;
    *p = rest;
}

void peers_set_members(struct peers *p, const struct members *members)
{
    for (unsigned i = 0; i < KNOWN_MEMBERS_MAX; i++) {
        if (members_find(members, p->list[i].id) == NULL) {
            leave(&p->list[i]);
        }
    }
    for (unsigned i = 0; i < members->n; i++) {
        (void)peers_place(p, members->list[i].id);
    }
}
