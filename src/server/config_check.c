/* config_check.c: checks options that depend on each other. See config_private.h. */
#include "server/config_private.h"

#include <stdio.h>
#include <string.h>

#include "base/address.h"

/* The others are told that this node is where it listens, unless the list of nodes says more. */
static enum config_outcome put_own_address(struct config_reader *r)
{
    struct config *c = r->config;
    char host[NET_HOST_MAX];
    uint16_t port = 0;
    if (net_address_split(c->peer, host, &port) == 0 && fli_host_is_any(host)) {
        return config_wrong(r,
                            "--peer %.128s means every address of this machine, which is no "
                            "address to tell other nodes: name this node in --join too",
                            c->peer);
    }
    return members_put(&c->members, c->id, c->peer)
               ? CONFIG_RUN
               : config_wrong(r, "--join names too many nodes");
}

/* Checks a node that joins a cluster: it is given some of the cluster's nodes, and its own
 * address. */
static enum config_outcome check_join(struct config_reader *r)
{
    struct config *c = r->config;
    if (config_was_given(r, "cluster")) {
        return config_wrong(r, "--cluster begins a new cluster, and --join enters an existing one: "
                               "leave one out");
    }
    if (!config_was_given(r, "id") || c->peer[0] == '\0') {
        return config_wrong(r,
                            "--join needs --id and --peer: the id and the address that you give to "
                            "fencelock cluster add");
    }
    if (members_find(&c->members, c->id) == NULL) {
        return put_own_address(r);
    }
    return c->members.n > 1
               ? CONFIG_RUN
               : config_wrong(r,
                              "--join names node %llu alone, which is this one: name nodes that "
                              "are members",
                              (unsigned long long)c->id);
}

static enum config_outcome check_members(struct config_reader *r)
{
    struct config *c = r->config;
    if (c->joins) {
        return check_join(r);
    }
    if (!config_was_given(r, "cluster")) {
        c->members.n = 1;
        c->members.list[0].id = c->id;
        (void)snprintf(c->members.list[0].address, sizeof c->members.list[0].address, "%s",
                       c->peer[0] != '\0' ? c->peer : CONFIG_PEER_DEFAULT);
        return CONFIG_RUN;
    }
    if (!config_was_given(r, "id") && c->members.n == 1) {
        c->id = c->members.list[0].id;
    } else if (!config_was_given(r, "id")) {
        return config_wrong(
            r, "--id is missing: --cluster has %u nodes, say which of them this one is",
            c->members.n);
    }
    if (members_find(&c->members, c->id) == NULL) {
        return config_wrong(
            r,
            "--cluster has no node %llu, but --id says that this is node %llu: add it to "
            "--cluster, or correct --id",
            (unsigned long long)c->id, (unsigned long long)c->id);
    }
    return CONFIG_RUN;
}

static enum config_outcome check_address(struct config_reader *r, const char *option,
                                         const char *address, bool port_0)
{
    char host[NET_HOST_MAX];
    uint16_t port = 0;
    if (net_address_split(address, host, &port) != 0) {
        return config_wrong(r, "--%s: '%.128s' is not an address: write HOST:PORT, such as %s",
                            option, address, CONFIG_LISTEN_DEFAULT);
    }
    if (port == 0 && !port_0) {
        return config_wrong(r, "--%s: '%.128s' needs a port from 1 to 65535", option, address);
    }
    return CONFIG_RUN;
}

/* Checks which hosts can reach the peer port: anything that is taken for a node can read and change
 * everything. */
static enum config_outcome check_peer_reach(struct config_reader *r, const char *option,
                                            const char *address)
{
    char host[NET_HOST_MAX];
    uint16_t port = 0;
    int rc = net_address_split(address, host, &port);
    FLI_ASSERT(rc == 0);
    if (r->config->tls_cluster || r->config->cluster_secret_file[0] != '\0' ||
        net_host_is_loopback(host)) {
        return CONFIG_RUN;
    }
    return config_wrong(
        r,
        "--%s: the address for other nodes, %.128s, can be reached from other machines, and "
        "nothing there proves who is a node. Add --tls-cluster yes with certificates, or "
        "--cluster-secret-file FILE, the same on all nodes (openssl rand -hex 32 > FILE)",
        option, address);
}

/* An address to listen on is also told to clients, unless another one is given. So it must be one
 * that they can use. */
static enum config_outcome check_advertised(struct config_reader *r, const char *option,
                                            const char *address, const char *advertise_option,
                                            const char *advertised)
{
    char host[NET_HOST_MAX];
    uint16_t port = 0;
    if (advertised[0] != '\0') {
        return check_address(r, advertise_option, advertised, false);
    }
    if (net_address_split(address, host, &port) == 0 && fli_host_is_any(host)) {
        return config_wrong(
            r,
            "--%s %.128s means every address of this machine, which is no address to "
            "tell clients: add --%s HOST:PORT",
            option, address, advertise_option);
    }
    return CONFIG_RUN;
}

static enum config_outcome check_plain(struct config_reader *r)
{
    struct config *c = r->config;
    if (!config_listens_plainly(c)) {
        if (strcmp(c->advertise, "off") == 0) { /* takes back what an image's environment says */
            c->advertise[0] = '\0';
        }
        return c->advertise[0] == '\0'
                   ? CONFIG_RUN
                   : config_wrong(r, "--advertise has no meaning with --listen off: use "
                                     "--tls-advertise, and --advertise off when the environment "
                                     "or the config file has another one");
    }
    enum config_outcome o = check_address(r, "listen", c->listen, true);
    return o != CONFIG_RUN ? o
                           : check_advertised(r, "listen", c->listen, "advertise", c->advertise);
}

static enum config_outcome check_tls_files(struct config_reader *r)
{
    static const char *const files[] = {"tls-cert-file", "tls-key-file", "tls-ca-cert-file"};
    const struct config *c = r->config;
    const char *user = c->tls_cluster ? "tls-cluster" : "tls-port";
    for (size_t i = 0; i < 3; i++) {
        if (c->tls_port[0] == '\0' && !c->tls_cluster && config_was_given(r, files[i])) {
            return config_wrong(
                r, "--%s has no effect without --tls-port or --tls-cluster yes: add one", files[i]);
        }
    }
    if (c->tls_port[0] == '\0' && !c->tls_cluster) {
        return CONFIG_RUN;
    }
    for (size_t i = 0; i < 2; i++) {
        if (!config_was_given(r, files[i])) {
            return config_wrong(r, "--%s needs --%s", user, files[i]);
        }
    }
    if (c->tls_cluster && c->tls_ca_cert_file[0] == '\0') {
        return config_wrong(
            r, "--tls-cluster needs --tls-ca-cert-file, which says whose nodes are let in");
    }
    return CONFIG_RUN;
}

static enum config_outcome check_tls_cluster(struct config_reader *r)
{
    const struct config *c = r->config;
    if (!c->tls_cluster && config_was_given(r, "tls-cluster-name")) {
        return config_wrong(r,
                            "--tls-cluster-name has no effect without --tls-cluster yes: add it");
    }
    if (c->tls_cluster && c->cluster_secret_file[0] != '\0') {
        return config_wrong(
            r, "--cluster-secret-file and --tls-cluster yes: nodes know each other by one "
               "or the other, leave one out");
    }
    if (!security_name_is_valid(c->tls_cluster_name)) {
        return config_wrong(
            r,
            "--tls-cluster-name: '%.64s' is no name: write letters, digits, dots and "
            "dashes",
            c->tls_cluster_name);
    }
    return CONFIG_RUN;
}

static enum config_outcome check_tls_port(struct config_reader *r)
{
    struct config *c = r->config;
    if (c->tls_auth_clients != FLI_TLS_AUTH_NO && c->tls_ca_cert_file[0] == '\0') {
        return config_wrong(
            r, "--tls-port needs --tls-ca-cert-file, which says whose clients are let in; "
               "or --tls-auth-clients no, which lets in everybody");
    }
    (void)net_address_of_port(c->tls_port, c->listen, c->tls_port, sizeof c->tls_port);
    enum config_outcome o = check_address(r, "tls-port", c->tls_port, true);
    if (o == CONFIG_RUN && strlen(c->tls_port) + strlen(c->listen) + strlen(c->advertise) +
                                   strlen(c->tls_advertise) + 16 >
                               MEMBER_ADDRESS_MAX) {
        return config_wrong(r, "the addresses that clients are told are too long together");
    }
    return o != CONFIG_RUN
               ? o
               : check_advertised(r, "tls-port", c->tls_port, "tls-advertise", c->tls_advertise);
}

static enum config_outcome check_tls(struct config_reader *r)
{
    static const char *const needs[] = {"tls-auth-clients", "tls-advertise",
                                        "tls-auth-clients-user"};
    const struct config *c = r->config;
    enum config_outcome o = check_tls_files(r);
    o = o != CONFIG_RUN ? o : check_tls_cluster(r);
    if (o != CONFIG_RUN) {
        return o;
    }
    if (c->tls_port[0] != '\0') {
        return check_tls_port(r);
    }
    for (size_t i = 0; i < sizeof needs / sizeof needs[0]; i++) {
        if (config_was_given(r, needs[i])) {
            return config_wrong(r, "--%s has no effect without --tls-port: add it", needs[i]);
        }
    }
    if (!c->tls_cluster && config_was_given(r, "tls-protocols")) {
        return config_wrong(
            r, "--tls-protocols has no effect without --tls-port or --tls-cluster yes: add "
               "one");
    }
    return config_listens_plainly(c)
               ? CONFIG_RUN
               : config_wrong(r, "--listen off leaves clients no port: add --tls-port");
}

static enum config_outcome check_addresses(struct config_reader *r)
{
    struct config *c = r->config;
    enum config_outcome o = check_plain(r);
    o = o != CONFIG_RUN ? o : check_tls(r);
    o = o != CONFIG_RUN || c->metrics[0] == '\0' ? o
                                                 : check_address(r, "metrics", c->metrics, true);
    if (o == CONFIG_RUN && c->peer[0] != '\0') {
        o = check_address(r, "peer", c->peer, false);
    }
    if (o == CONFIG_RUN && c->peer[0] != '\0') {
        o = check_peer_reach(r, "peer", c->peer);
    }
    return o != CONFIG_RUN ? o
                           : check_peer_reach(r, c->joins ? "peer" : "cluster",
                                              members_find(&c->members, c->id)->address);
}

static enum config_outcome check_users(struct config_reader *r)
{
    const struct config *c = r->config;
    if (c->aclfile[0] != '\0' && c->requirepass[0] != '\0') {
        return config_wrong(r,
                            "--aclfile and --requirepass exclude each other: write the line `user "
                            "default on >PASSWORD ~* +@all` into the file");
    }
    for (const char *p = c->requirepass; *p != '\0'; p++) {
        if (*p <= ' ' || *p == 0x7f) {
            return config_wrong(
                r, "--requirepass: the password must not contain blanks or control characters; "
                   "set this password later with ACL SETUSER");
        }
    }
    return CONFIG_RUN;
}

static enum config_outcome check_times(struct config_reader *r)
{
    const struct config *c = r->config;
    if (c->election_ms != 0 && c->heartbeat_ms != 0 && c->election_ms < 3 * c->heartbeat_ms) {
        return config_wrong(
            r,
            "--heartbeat-ms %u is too slow for --election-ms %u: at least three heartbeats "
            "must fit into the election time",
            c->heartbeat_ms, c->election_ms);
    }
    return CONFIG_RUN;
}

/* Checks the options that make the daemon do one thing instead of serving (--check, --restore,
 * --recover-from): at most one of them is given. */
static enum config_outcome check_actions(struct config_reader *r)
{
    static const struct {
        const char *option, *needs, *or_else, *other; /* other: its name for the other action */
    } rows[] = {
        {"above", "restore", "restore", "tokens-above"},
        {"tokens-above", "recover-from", "recover-from", "above"},
        {"step", "restore", "recover-from", NULL},
        {"witness-reset", "witness", "witness", NULL},
        {"json", "check", "check", NULL},
        {"reset-users", "restore", "recover-from", NULL},
    };
    enum { JSON_ROW = 4 }; /* allowed together with each action */
    const struct config *c = r->config;
    bool begins = c->restore[0] != '\0' || c->recover_from[0] != '\0';
    if (begins && c->check) {
        return config_wrong(r, "--check says what an ordinary start would do, and --restore and "
                               "--recover-from do not start the node: leave one out");
    }
    if (c->restore[0] != '\0' && c->recover_from[0] != '\0') {
        return config_wrong(r, "--restore and --recover-from exclude each other: a new cluster "
                               "begins with a backup, or with what a lost one has left");
    }
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        if (config_was_given(r, rows[i].option) && !config_was_given(r, rows[i].needs) &&
            !config_was_given(r, rows[i].or_else) && !(begins && i == JSON_ROW)) {
            bool renamed = begins && rows[i].other != NULL;
            return config_wrong(r, "--%s has no effect without --%s: %s%s", rows[i].option,
                                rows[i].needs, renamed ? "write --" : "add it",
                                renamed ? rows[i].other : "");
        }
    }
    if (begins && !config_was_given(r, "data")) {
        return config_wrong(r, "--%s needs --data DIR: a new directory for the new cluster",
                            c->restore[0] != '\0' ? "restore" : "recover-from");
    }
    if (c->recover_from[0] != '\0' && c->tokens_above == 0) {
        return config_wrong(r, "--recover-from needs --tokens-above N: the highest token that any "
                               "storage has seen, 1 when none is known");
    }
    return CONFIG_RUN;
}

enum config_outcome config_check(struct config_reader *r)
{
    enum config_outcome o = check_members(r);
    o = o != CONFIG_RUN ? o : check_addresses(r);
    o = o != CONFIG_RUN ? o : check_users(r);
    o = o != CONFIG_RUN ? o : check_actions(r);
    return o != CONFIG_RUN ? o : check_times(r);
}
