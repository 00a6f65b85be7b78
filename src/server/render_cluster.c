/* render_cluster.c: answers about the cluster itself, and the locks that were waited for most. */
#include <inttypes.h>

#include "frontdoor/sentinel.h"
#include "server/render_private.h"

int render_leader(struct fli_buf *b, int proto, const struct node_status *s)
{
    if (s->leader_id == 0) {
        return fli_resp_null(b, proto);
    }
    int rc = fli_resp_array(b, 2);
    rc = rc != 0 ? rc : fli_resp_u64(b, s->leader_id);
    if (rc != 0) {
        return rc;
    }
    return s->leader_client_address == NULL ? fli_resp_null(b, proto)
                                            : fli_resp_text(b, s->leader_client_address);
}

static const char *state_of(const struct node_member *m)
{
    switch (m->plan) {
    case MACHINE_PLAN_ADD:
        return "joining";
    case MACHINE_PLAN_REMOVE:
        return "leaving";
    case MACHINE_PLAN_REPLACE:
        return "being replaced";
    default:
        return m->voter ? "voter" : m->member ? "learner" : "not a member";
    }
}

static int node(struct fli_buf *b, int proto, const struct node_member *m)
{
    char incarnation[17];
    (void)snprintf(incarnation, sizeof incarnation, "%016" PRIx64, m->incarnation);
    int rc = fli_resp_map(b, proto, 13);
    rc = rc != 0 ? rc : number(b, "id", m->id);
    rc = rc != 0 ? rc : text(b, "role", m->leader ? "leader" : "follower");
    rc = rc != 0 ? rc : text(b, "peer_address", m->peer_address);
    rc = rc != 0                     ? rc
         : m->client_address != NULL ? text(b, "client_address", m->client_address)
                                     : null(b, proto, "client_address");
    rc = rc != 0 ? rc : truth(b, proto, "self", m->self);
    rc = rc != 0 ? rc : truth(b, proto, "voter", m->voter);
    rc = rc != 0 ? rc : truth(b, proto, "connected", m->connected);
    rc = rc != 0 ? rc : number(b, "match_index", m->match_index);
    rc = rc != 0 ? rc : text(b, "state", state_of(m));
    rc = rc != 0 ? rc : number(b, "version", m->version);
    rc = rc != 0 ? rc : number(b, "starts", m->starts);
    rc = rc != 0 ? rc : number(b, "kept_index", m->kept_index);
    return rc != 0               ? rc
           : m->incarnation != 0 ? text(b, "incarnation", incarnation)
                                 : null(b, proto, "incarnation");
}

int render_nodes(struct fli_buf *b, int proto, const struct node_member *members, size_t n)
{
    int rc = fli_resp_array(b, n);
    for (size_t i = 0; rc == 0 && i < n; i++) {
        rc = node(b, proto, &members[i]);
    }
    return rc;
}

int render_sentinel(struct fli_buf *b, int proto, uint64_t term, const struct node_member *members,
                    size_t n_members, const struct fli_slice *args, unsigned n)
{
    struct frontdoor_node nodes[MEMBERS_MAX];
    for (size_t i = 0; i < n_members; i++) {
        nodes[i] = (struct frontdoor_node){members[i].id, members[i].client_address,
                                           members[i].leader, members[i].self};
    }
    return frontdoor_sentinel(b, proto, term, nodes, n_members, args, n);
}

static int busy_lock(struct fli_buf *b, int proto, const struct busiest_entry *e)
{
    int rc = fli_resp_map(b, proto, 6);
    rc = rc != 0 ? rc : bytes(b, "name", (struct fli_slice){e->name, e->name_len});
    rc = rc != 0 ? rc : number(b, "waited_ms", e->weight);
    rc = rc != 0 ? rc : number(b, "waited_over_ms", e->over);
    rc = rc != 0 ? rc : number(b, "waits", e->waits);
    rc = rc != 0 ? rc : number(b, "longest_ms", e->longest);
    return rc != 0 ? rc : number(b, "refused", e->refused);
}

int render_busiest(struct fli_buf *b, int proto, const struct busiest_entry *const *top, unsigned n)
{
    int rc = fli_resp_array(b, 2);
    rc = rc != 0 ? rc : fli_resp_text(b, "");
    rc = rc != 0 ? rc : fli_resp_array(b, n);
    for (unsigned i = 0; rc == 0 && i < n; i++) {
        rc = busy_lock(b, proto, top[i]);
    }
    return rc;
}

static int no_member(struct fli_buf *b, uint64_t id)
{
    return fli_resp_error(b, "ERR", "node %" PRIu64 " is not a member; CLUSTER MEMBERS lists them",
                          id);
}

static int not_leading(struct fli_buf *b, const struct node_status *s)
{
    if (s->leader_id == 0) {
        return render_no_leader(b);
    }
    return fli_resp_error(
        b, "NOLEADER", "this node does not lead; send it to the leader, node %" PRIu64 " at %s",
        s->leader_id,
        s->leader_client_address == NULL ? "an address not known here" : s->leader_client_address);
}

int render_transfer(struct fli_buf *b, int code, const struct node_status *s)
{
    switch (code) {
    case 0:
        return fli_resp_simple(b, "OK");
    case FL_ENOLEADER:
        return not_leading(b, s);
    case FL_ENOTFOUND:
        return fli_resp_error(b, "ERR",
                              "there is no such node to hand leadership to; CLUSTER MEMBERS lists "
                              "them");
    case FL_EBUSY:
        return fli_resp_error(b, "BUSY", "leadership is being handed over already");
    case FL_ETIMEOUT:
        return fli_resp_error(b, "UNCERTAIN",
                              "leadership was not taken over in time; LEADER tells who leads now");
    default:
        return render_failure(b, code, true);
    }
}

static int mismatch(struct fli_buf *b, enum fli_command_id id, uint64_t node)
{
    if (id == FLI_CMD_CLUSTER_ADD) {
        return fli_resp_error(b, "ERR",
                              "there is a node %" PRIu64 ", or another one with this address; "
                              "CLUSTER MEMBERS lists them",
                              node);
    }
    return fli_resp_error(b, "ERR", "another node has this address; CLUSTER MEMBERS lists them");
}

int render_change(struct fli_buf *b, enum fli_command_id id, int code, uint64_t node,
                  const struct node_status *s)
{
    switch (code) {
    case 0:
        return fli_resp_simple(b, "OK");
    case FL_ENOLEADER:
        return not_leading(b, s);
    case FL_ENOTFOUND:
        return no_member(b, node);
    case FL_EINVAL:
        return fli_resp_error(b, "ERR",
                              "the address is not HOST:PORT for other nodes to call (write "
                              "[ADDRESS]:PORT for IPv6; 0.0.0.0 and :: are of every machine)");
    case FL_EMISMATCH:
        return mismatch(b, id, node);
    case FL_ELIMIT:
        return fli_resp_error(b, "LIMIT", "a cluster has at most %u members", MEMBERS_MAX);
    case FL_EEXISTS:
        if (id == FLI_CMD_CLUSTER_MOVE) {
            return fli_resp_error(b, "ERR",
                                  "node %" PRIu64 " has not joined yet: remove it, and add it "
                                  "with the right address",
                                  node);
        }
        return fli_resp_error(b, "ERR",
                              "node %" PRIu64 " is another incarnation by now: the one that is "
                              "named was replaced already, or never was this node",
                              node);
    case FL_EBUSY:
        if (id == FLI_CMD_CLUSTER_REPLACE) {
            return fli_resp_error(b, "BUSY",
                                  "node %" PRIu64 " is connected, or another change of the cluster "
                                  "is in progress, or this node has just begun to lead. Stop it, "
                                  "name the address of its successor, or try again in a moment",
                                  node);
        }
        return fli_resp_error(
            b, "BUSY",
            "another change of the cluster is in progress, or this node has just "
            "begun to lead; try again in a moment (CLUSTER MEMBERS lists changes)");
    case FL_EDENIED:
        if (id == FLI_CMD_CLUSTER_MOVE) {
            return fli_resp_error(b, "ERR",
                                  "without node %" PRIu64 " no majority of voters would be "
                                  "connected until it is started at its new address; say FORCE if "
                                  "it will be at once",
                                  node);
        }
        return fli_resp_error(b, "ERR",
                              "without node %" PRIu64 " no majority of voters would be connected, "
                              "and the cluster would stop. Bring the others up first, or say FORCE "
                              "(which does not help the only voter)",
                              node);
    default:
        return render_failure(b, code, true);
    }
}
