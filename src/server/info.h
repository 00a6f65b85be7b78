/* info.h: the text of INFO and of CLUSTER INFO: sections of `key:value` lines in Redis' form, which
 * monitoring can read already. Pure except for the size of the process. */
#ifndef SERVER_INFO_H
#define SERVER_INFO_H

#include "node/node.h"
#include "net/net.h"
#include "server/events.h"

/* Counts of dispatch, since start unless said otherwise. */
struct info_counts {
    uint64_t commands; /* requests for this service, refused ones included */
    uint64_t errors;   /* refused because of their content */
    uint64_t noleader, busy, uncertain;
    uint64_t in_flight;  /* now */
    uint64_t parked;     /* now */
    uint64_t timeouts;   /* waits whose end never came */
    uint64_t jeopardies; /* leases that clients could not renew for half their TTL, as they
                            reported */
    uint64_t lost;       /* leases that clients gave up as lost, as they reported */
    uint64_t orphans;    /* requests whose connection went away in flight */
    uint64_t cleaned_up; /* grants and waits of clients that were gone */
};

/* Facts that only the server knows. Strings may be NULL. */
struct info_server {
    const char *listen_address, *peer_address, *data_dir, *config_file;
    uint16_t port;
    uint16_t tls_port; /* 0: none */
    struct fli_tls_facts tls;
    struct transport_security peers;
    uint64_t uptime_ms;
    uint64_t connections, connections_max;
    struct net_stats net;
    struct net_memory memory;
    size_t events_memory; /* of events that wait to be told */
    struct fli_turn_stats turn;
    struct events_counts events;
    uint64_t audit_lines, audit_dropped, audit_failures;
    uint64_t logins, login_failures, logins_delayed, denied;
};

struct info {
    struct node_status status;
    struct node_member members[MEMBERS_MAX];
    size_t members_n;
    struct machine *machine; /* NULL: its sections stay short */
    struct info_counts counts;
    struct info_server server_facts;
};

#define INFO_TEXT_MAX (64u * 1024u)

/* Appends the sections asked for; all of them for none, "all", "default" or "everything". Unknown
 * ones give nothing, as in Redis. 0, FL_ELIMIT, FL_ENOMEM. */
int info_write(struct fli_buf *b, const struct info *i, const struct fli_slice *sections,
               unsigned n) FLI_MUST_USE;

/* Appends the answer to CLUSTER INFO. */
int info_write_cluster(struct fli_buf *b, const struct info *i) FLI_MUST_USE;

#endif
