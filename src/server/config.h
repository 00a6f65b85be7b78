/* config.h: the configuration of fencelockd: command line, environment, config file, defaults.
 *
 * An option has the same name everywhere: `--election-ms 300` on the command line,
 * FENCELOCK_ELECTION_MS=300 in the environment, `election-ms = 300` in the file. The first source
 * in that order that gives an option wins. Nothing is guessed: an unknown option or an impossible
 * value is refused with a sentence that names it, its source, and what to write. */
#ifndef SERVER_CONFIG_H
#define SERVER_CONFIG_H

#include <stdbool.h>

#include "recovery/beginning.h"
#include "peer/members.h"
#include "peer/security.h"
#include "machine/limits.h"
#include "net/address.h"
#include "tls/tls.h"

#define CONFIG_PATH_MAX 4096u
#define CONFIG_ERRMSG_MAX 1024u
#define CONFIG_LINE_MAX 4096u /* bytes of a line of the file */
#define CONFIG_LISTEN_DEFAULT "127.0.0.1:7401"
#define CONFIG_PEER_DEFAULT "127.0.0.1:7501"
#define CONFIG_DATA_DEFAULT "fencelock-data"
#define CONFIG_SNAPSHOT_BYTES_MIN (UINT64_C(64) << 10)
#define CONFIG_SNAPSHOT_BYTES_MAX (UINT64_C(1) << 30)
#define CONFIG_SNAPSHOT_BYTES_DEFAULT (UINT64_C(32) << 20)
#define CONFIG_STEP_MIN BEGINNING_STEP_MIN

struct config {
    uint64_t id;
    char data[CONFIG_PATH_MAX];
    char file[CONFIG_PATH_MAX];      /* the config file; "" for none */
    char listen[NET_ADDRESS_MAX];    /* for clients; port 0 picks one; "off" */
    char advertise[NET_ADDRESS_MAX]; /* the address told to clients and nodes instead; "" for
                                        listen */
    char peer[NET_ADDRESS_MAX];      /* to listen on for other nodes; "" for the one in the
                                        cluster */
    struct members members; /* how to begin: the cluster; or some of its nodes, and this one */
    bool joins;
    unsigned election_ms, heartbeat_ms, hold_ms; /* 0: the default of consensus */
    unsigned drain_ms;
    unsigned connections_max;
    uint64_t client_memory;       /* bytes for all clients together */
    unsigned address_connections; /* of one address; 0: three quarters of connections_max */
    uint64_t address_memory;      /* likewise, of client_memory */
    unsigned idle_first_ms;
    char witness[CONFIG_PATH_MAX]; /* a file on another disk; "" for none */
    bool witness_reset;
    uint64_t snapshot_bytes;             /* of log, between two snapshots while the state is
                                            small */
    char tls_port[NET_ADDRESS_MAX];      /* HOST:PORT for clients with TLS; "" for none */
    char tls_advertise[NET_ADDRESS_MAX]; /* the address told to them instead; "" for tls_port */
    char tls_cert_file[CONFIG_PATH_MAX], tls_key_file[CONFIG_PATH_MAX];
    char tls_ca_cert_file[CONFIG_PATH_MAX];
    char tls_protocols[64]; /* "" for the default */
    enum fli_tls_auth tls_auth_clients;
    char metrics[NET_ADDRESS_MAX]; /* HOST:PORT of the listener for monitoring; "" for none */
    bool tls_cluster;              /* nodes identify each other by certificates */
    char tls_cluster_name[SECURITY_NAME_MAX];  /* the prefix of the nodes' names */
    char cluster_secret_file[CONFIG_PATH_MAX]; /* or by this secret; "" for neither */
    unsigned log_level;                        /* 1 error, 2 warning, 3 info, 4 debug */
    bool log_json;                             /* one object a line */
    bool protected_mode;
    char aclfile[CONFIG_PATH_MAX];           /* the users of a new cluster; "" for none */
    char requirepass[513];                   /* of the default user of a new cluster; "" for none */
    char auditlog[CONFIG_PATH_MAX];          /* a path, or "syslog"; "" for none */
    enum fli_tls_user tls_auth_clients_user; /* which part of a certificate names its user */
    char front_door[NET_ADDRESS_MAX];        /* yes, no, or the pattern of the keys it serves */
    char front_door_aliases[CONFIG_PATH_MAX]; /* "" for none */
    bool front_door_shared, front_door_del;
    struct machine_limits limits; /* of a new cluster */

    /* Actions instead of serving; only the command line can ask for them. */
    bool check, json;
    char restore[CONFIG_PATH_MAX];      /* a backup; "" for none */
    char recover_from[CONFIG_PATH_MAX]; /* a directory of a cluster that is lost; "" for none */
    uint64_t above, tokens_above;       /* 0: not given */
    uint64_t step;
    bool reset_users;
};

enum config_outcome { CONFIG_RUN, CONFIG_HELP, CONFIG_VERSION, CONFIG_WRONG };

/* argv without the program's name; env as in environ (NULL for none). CONFIG_WRONG: *errmsg is the
 * reason, and *ret must not be used. */
enum config_outcome config_read(int argc, const char *const *argv, const char *const *env,
                                struct config *ret, char errmsg[CONFIG_ERRMSG_MAX]) FLI_MUST_USE;

/* Reads the same once more, and calls cb for each option with the value in force ("" for none; a
 * password is left out) and its source. Without the outcome CONFIG_RUN, cb is not called. */
typedef void (*config_value_cb)(void *ctx, const char *name, const char *value, const char *where);
enum config_outcome config_list(int argc, const char *const *argv, const char *const *env,
                                config_value_cb cb, void *ctx) FLI_MUST_USE;

/* Whether there is a port for clients without TLS. */
bool config_listens_plainly(const struct config *c);

/* The default share of one address: so large that a site behind one address does not notice it, and
 * so small that one machine cannot shut out all others. */
uint64_t config_address_share(uint64_t given, uint64_t all);

/* The text of --help; ends with a line feed. */
const char *config_help(void);

#endif
