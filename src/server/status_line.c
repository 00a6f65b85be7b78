/* status_line.c: see status_line.h. */
#include "server/status_line.h"

#include <stdio.h>

#include "peer/members.h"

void status_line(struct node *n, uint64_t id, size_t clients, char *out, size_t size)
{
    struct node_status st;
    struct node_member members[MEMBERS_MAX];
    char leader[64] = "has no leader";
    if (n == NULL) {
        (void)snprintf(out, size, "node %llu is stopping", (unsigned long long)id);
        return;
    }
    node_get_status(n, &st);
    size_t count = node_members(n, members, MEMBERS_MAX);
    unsigned connected = 0;
    for (size_t i = 0; i < count; i++) {
        connected += members[i].connected;
    }
    if (st.role == NODE_LEADER) {
        (void)snprintf(leader, sizeof leader, "leads, %u of %zu node%s connected", connected, count,
                       fli_s(count));
    } else if (st.leader_id != 0) {
        (void)snprintf(leader, sizeof leader, "follows node %llu",
                       (unsigned long long)st.leader_id);
    }
    (void)snprintf(out, size, "node %llu %s, term %llu, %zu client%s", (unsigned long long)id,
                   leader, (unsigned long long)st.term, clients, fli_s(clients));
}
