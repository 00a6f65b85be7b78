/* test_config.c: every source, every rule, every sentence that says no. */
#include "../../lib/unit.h"

#include <unistd.h>

#include "server/config.h"

struct got {
    enum config_outcome outcome;
    struct config config;
    char errmsg[CONFIG_ERRMSG_MAX];
};

/* Words separated by blanks. */
static struct got *read_words(const char *line, const char *const *env)
{
    static struct got got;
    const char *argv[64];
    int argc = 0;
    char *copy = strdup(line);
    for (char *save = NULL, *word = strtok_r(copy, " ", &save); word != NULL;
         word = strtok_r(NULL, " ", &save)) {
        argv[argc++] = word;
    }
    got.outcome = config_read(argc, argv, env, &got.config, got.errmsg);
    free(copy);
    return &got;
}

static void must_run(const struct got *g)
{
    if (g->outcome != CONFIG_RUN) {
        fail_msg("%s", g->errmsg);
    }
}

static void must_say(const struct got *g, const char *text)
{
    assert_int_equal(g->outcome, CONFIG_WRONG);
    if (strstr(g->errmsg, text) == NULL) {
        fail_msg("'%s' does not say '%s'", g->errmsg, text);
    }
}

TEST(no_options_at_all)
{
    const struct got *g = read_words("", NULL);
    must_run(g);
    assert_int_equal(g->config.id, 1);
    assert_string_equal(g->config.listen, "127.0.0.1:7401");
    assert_string_equal(g->config.data, "fencelock-data");
    assert_int_equal(g->config.members.n, 1);
    assert_int_equal(g->config.members.list[0].id, 1);
    assert_string_equal(g->config.members.list[0].address, "127.0.0.1:7501");
    assert_int_equal(g->config.log_level, 3);
    assert_true(g->config.protected_mode);
    assert_int_equal(g->config.limits.locks_max, 2000000);
    assert_int_equal(g->config.snapshot_bytes, 32 << 20);
}

TEST(three_nodes)
{
    const struct got *g = read_words(
        "--id 2 --data /x --listen 127.0.0.1:0 --peer 127.0.0.1:7502 --cluster "
        "1=127.0.0.1:7501,2=127.0.0.1:7502,3=127.0.0.1:7503 --election-ms=300 --heartbeat-ms 100 "
        "--hold-ms 900 --log-level debug --connections-max 5 --address-connections 4 "
        "--address-memory 77 --locks-max 10 --waits-max=3",
        NULL);
    must_run(g);
    assert_int_equal(g->config.id, 2);
    assert_int_equal(g->config.members.n, 3);
    assert_int_equal(g->config.election_ms, 300);
    assert_int_equal(g->config.heartbeat_ms, 100);
    assert_int_equal(g->config.hold_ms, 900);
    assert_int_equal(g->config.log_level, 4);
    assert_int_equal(g->config.connections_max, 5);
    assert_int_equal(g->config.address_connections, 4);
    assert_int_equal(g->config.address_memory, 77);
    assert_int_equal(g->config.limits.locks_max, 10);
    assert_int_equal(g->config.limits.waits_max, 3);
}

TEST(one_node_of_another_id)
{
    const struct got *g = read_words("--id 7 --peer 127.0.0.1:9", NULL);
    must_run(g);
    assert_int_equal(g->config.members.list[0].id, 7);
    assert_string_equal(g->config.members.list[0].address, "127.0.0.1:9");
    /* A node that joins is told to the others as it listens, or as the list has it. */
    g = read_words("--id 2 --peer 127.0.0.1:2 --join 1=127.0.0.1:1", NULL);
    must_run(g);
    assert_true(g->config.joins);
    assert_string_equal(members_find(&g->config.members, 2)->address, "127.0.0.1:2");
    g = read_words("--id 2 --peer 0.0.0.0:7501 --cluster-secret-file s --join 1=a:1,2=b:2", NULL);
    must_run(g);
    assert_string_equal(members_find(&g->config.members, 2)->address, "b:2");
    assert_string_equal(g->config.peer, "0.0.0.0:7501");
    g = read_words("--cluster 4=127.0.0.1:9", NULL);
    must_run(g);
    assert_int_equal(g->config.id, 4);
}

TEST(help_and_version)
{
    assert_int_equal(read_words("--help", NULL)->outcome, CONFIG_HELP);
    assert_int_equal(read_words("--id 3 -h", NULL)->outcome, CONFIG_HELP);
    assert_int_equal(read_words("--version", NULL)->outcome, CONFIG_VERSION);
    assert_non_null(strstr(config_help(), "--cluster"));
}

TEST(wrong_command_lines)
{
    static const struct {
        const char *line, *says;
    } rows[] = {
        {"--electon-ms 3", "there is no option --electon-ms; did you mean --election-ms?"},
        {"--frobnicate 3", "there is no option --frobnicate; --help lists them"},
        {"7401", "'7401' is not an option"},
        {"-p 7401", "'-p' is not an option"},
        {"--id", "--id needs a value"},
        {"--id 1 --id 2", "--id is given twice"},
        {"--id 0", "--id: '0' is not a whole number from 1 to"},
        {"--id x", "--id: 'x' is not a whole number"},
        {"--election-ms 19", "--election-ms: '19' is not a whole number from 20 to 60000"},
        {"--election-ms 60001", "--election-ms"},
        {"--log-level loud", "--log-level: 'loud' is none of error, warning, info and debug"},
        {"--protected-mode=perhaps", "--protected-mode: 'perhaps' is neither yes nor no"},
        {"--allow-remote", "there is no option 'allow-remote' any more; what it did is said by "
                           "protected-mode no"},
        {"--listen 7401", "--listen: '7401' is not an address: write HOST:PORT"},
        {"--peer 127.0.0.1:0", "--peer: '127.0.0.1:0' needs a port"},
        {"--listen 0.0.0.0:7401", "add --advertise HOST:PORT"},
        {"--aclfile f --requirepass p", "--aclfile and --requirepass exclude each other"},
        {"--requirepass=a\tb", "--requirepass"},
        {"--tls-auth-clients-user OU", "'OU' is none of off, CN and SAN"},
        {"--tls-auth-clients-user CN", "no effect without --tls-port"},
        {"--tls-auth-clients-user SAN", "no effect without --tls-port"},
        {"--peer 10.1.2.3:7501", "--peer: the address for other nodes, 10.1.2.3:7501, can be"},
        {"--protected-mode no --peer 10.1.2.3:7501", "or --cluster-secret-file FILE"},
        {"--id 1 --cluster 1=10.1.2.3:7501,2=10.1.2.4:7501", "Add --tls-cluster yes"},
        {"--peer 127.0.0.1:1 --id 1 --cluster 1=10.1.2.3:7501,2=10.1.2.4:7501", "--cluster: the"},
        {"--protected-mode no --listen 0.0.0.0:7401", "add --advertise HOST:PORT"},
        {"--cluster 1=127.0.0.1:1,2=127.0.0.1:2", "--id is missing: --cluster has 2 nodes"},
        {"--id 3 --cluster 1=127.0.0.1:1,2=127.0.0.1:2", "--cluster has no node 3"},
        {"--cluster nonsense", "--cluster: "},
        {"--join 1=127.0.0.1:1 --id 2", "--join needs --id and --peer"},
        {"--join 1=127.0.0.1:1 --peer 127.0.0.1:2", "--join needs --id and --peer"},
        {"--join 1=127.0.0.1:1 --cluster 1=127.0.0.1:1", "leave one out"},
        {"--id 1 --peer 127.0.0.1:1 --join 1=127.0.0.1:1", "names node 1 alone"},
        {"--id 4 --peer 0.0.0.0:1 --join 1=127.0.0.1:1", "name this node in --join too"},
        {"--heartbeat-ms 200 --election-ms 300", "--heartbeat-ms 200 is too slow"},
        {"--config /no/such/file",
         "--config: cannot open the config file /no/such/file: No such file"},
        {"--locks-max 4294967296", "--locks-max: '4294967296' is not a whole number"},
        {"--snapshot-bytes 65535",
         "--snapshot-bytes: '65535' is not a whole number from 65536 to 1073741824"},
        {"--snapshot-bytes 1073741825", "--snapshot-bytes: '1073741825' is not a whole number"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        must_say(read_words(rows[i].line, NULL), rows[i].says);
    }
}

TEST(remote_when_allowed)
{
    must_run(read_words("--listen 10.1.2.3:7401", NULL)); /* whom it serves is access.c's */
    must_run(read_words("--protected-mode no --listen 10.1.2.3:7401", NULL));
    must_run(
        read_words("--protected-mode no --listen 0.0.0.0:7401 --advertise 10.1.2.3:7401", NULL));
    must_run(read_words("--listen localhost:7401", NULL));
    must_run(read_words("--listen [::1]:7401", NULL));
    /* The others' addresses are their own business. */
    must_run(read_words("--id 1 --cluster 1=127.0.0.1:1,2=10.1.2.3:2", NULL));
}

TEST(between_nodes)
{
    const struct got *g = read_words("--id 1 --cluster 1=10.1.2.3:1,2=10.1.2.4:1 "
                                     "--cluster-secret-file s",
                                     NULL);
    must_run(g);
    assert_string_equal(g->config.cluster_secret_file, "s");
    assert_false(g->config.tls_cluster);
    g = read_words("--peer 10.1.2.3:1 --tls-cluster yes --tls-cert-file c --tls-key-file k "
                   "--tls-ca-cert-file a --tls-protocols TLSv1.3",
                   NULL);
    must_run(g);
    assert_true(g->config.tls_cluster);
    assert_string_equal(g->config.tls_cluster_name, "fencelock");
    static const struct {
        const char *line, *says;
    } rows[] = {
        {"--tls-cluster yes", "--tls-cluster needs --tls-cert-file"},
        {"--tls-cluster yes --tls-cert-file c", "--tls-cluster needs --tls-key-file"},
        {"--tls-cluster yes --tls-cert-file c --tls-key-file k",
         "--tls-cluster needs --tls-ca-cert-file"},
        {"--tls-cluster-name x", "--tls-cluster-name has no effect without --tls-cluster yes"},
        {"--tls-cluster yes --tls-cert-file c --tls-key-file k --tls-ca-cert-file a "
         "--tls-cluster-name a/b",
         "'a/b' is no name"},
        {"--tls-cluster yes --tls-cert-file c --tls-key-file k --tls-ca-cert-file a "
         "--cluster-secret-file s",
         "by one or the other"},
        {"--tls-cluster perhaps", "is neither yes nor no"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        must_say(read_words(rows[i].line, NULL), rows[i].says);
    }
}

#define FILES "--tls-cert-file c --tls-key-file k "
#define ALL_FILES FILES "--tls-ca-cert-file a "

TEST(tls)
{
    const struct got *g = read_words("--tls-port 7402 " ALL_FILES, NULL);
    must_run(g);
    assert_string_equal(g->config.tls_port, "127.0.0.1:7402");
    assert_int_equal(g->config.tls_auth_clients, FLI_TLS_AUTH_REQUIRED);
    assert_true(config_listens_plainly(&g->config));
    g = read_words("--listen [::1]:7401 --tls-port 7402 " ALL_FILES, NULL);
    must_run(g);
    assert_string_equal(g->config.tls_port, "[::1]:7402");
    g = read_words("--listen off --tls-port 7402 " FILES "--tls-auth-clients no", NULL);
    must_run(g);
    assert_string_equal(g->config.tls_port, "127.0.0.1:7402");
    assert_int_equal(g->config.tls_auth_clients, FLI_TLS_AUTH_NO);
    assert_false(config_listens_plainly(&g->config));
    /* Certificates of clients are what lets other machines in. */
    must_run(read_words("--tls-port 10.1.2.3:7402 " ALL_FILES, NULL));
    must_run(read_words("--tls-port 0.0.0.0:7402 --tls-advertise h:1 " ALL_FILES, NULL));
    static const char *const surroundings[] = {"FENCELOCK_ADVERTISE=127.0.0.1:7401", NULL};
    must_run(read_words("--listen off --advertise off --tls-port 1 " ALL_FILES, surroundings));
    must_run(read_words(
        "--protected-mode no --tls-port 10.1.2.3:7402 " FILES "--tls-auth-clients no", NULL));
    static const struct {
        const char *line, *says;
    } rows[] = {
        {"--listen off", "leaves clients no port: add --tls-port"},
        {"--listen off --advertise h:1 --tls-port 1 " ALL_FILES, "use --tls-advertise"},
        {"--advertise off", "is not an address: write HOST:PORT"},
        {"--tls-port 7402", "--tls-port needs --tls-cert-file"},
        {"--tls-port 7402 --tls-cert-file c", "--tls-port needs --tls-key-file"},
        {"--tls-port 7402 " FILES, "--tls-port needs --tls-ca-cert-file"},
        {"--tls-port 7402 --tls-auth-clients optional " FILES, "--tls-port needs --tls-ca-cert"},
        {"--tls-port 7402 --tls-auth-clients maybe " FILES, "is none of no, optional and yes"},
        {"--tls-port 65536 " ALL_FILES, "is not an address"},
        {"--tls-port 0.0.0.0:7402 " ALL_FILES, "add --tls-advertise HOST:PORT"},
        {"--tls-cert-file c", "--tls-cert-file has no effect without --tls-port"},
        {"--tls-protocols TLSv1.3", "--tls-protocols has no effect without --tls-port"},
        {"--tls-prot 7402", "did you mean --tls-port?"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        must_say(read_words(rows[i].line, NULL), rows[i].says);
    }
}

/* Both addresses go into the one text that nodes tell each other. */
TEST(addresses_too_long_together)
{
    char host[128];
    char line[512];
    memset(host, 'h', sizeof host - 1);
    host[sizeof host - 1] = '\0';
    for (unsigned i = 0; i < 2; i++) {
        int len = i == 0 ? 90 : 120;
        (void)snprintf(line, sizeof line,
                       "--advertise %.*s:7401 --tls-port 1 --tls-advertise %.*s:7402 " ALL_FILES,
                       len, host, len, host);
        const struct got *g = read_words(line, NULL);
        if (i == 0) {
            must_run(g);
        } else {
            must_say(g, "are too long together");
        }
    }
}

TEST(values_at_their_limits)
{
    must_run(read_words("--election-ms 20", NULL));
    must_run(read_words("--election-ms 60000", NULL));
    must_run(read_words("--locks-max 4294967295", NULL));
    must_run(read_words("--snapshot-bytes 65536", NULL));
    const struct got *g = read_words("--snapshot-bytes 1073741824", NULL);
    must_run(g);
    assert_int_equal(g->config.snapshot_bytes, 1073741824);
    must_run(read_words("--id 9223372036854775807", NULL));
    must_say(read_words("--id 9223372036854775808", NULL), "--id");
    static char line[CONFIG_PATH_MAX + 32];
    memset(line, 'd', sizeof line);
    memcpy(line, "--data ", 7);
    line[7 + CONFIG_PATH_MAX - 1] = '\0';
    must_run(read_words(line, NULL));
    memset(line + 7, 'd', CONFIG_PATH_MAX);
    line[7 + CONFIG_PATH_MAX] = '\0';
    must_say(read_words(line, NULL), "data must have 1 to 4095 bytes, not 4096");
}

TEST(environment)
{
    const char *env[] = {"HOME=/",
                         "FENCELOCK_ID=5",
                         "FENCELOCK_ELECTION_MS=400",
                         "FENCELOCK_PROTECTED_MODE=no",
                         "FENCELOCK_NODES=a:1,b:2",
                         "FENCELOCK_SEED=12",
                         NULL};
    const struct got *g = read_words("--id 6", env);
    must_run(g);
    assert_int_equal(g->config.id, 6); /* the command line counts first */
    assert_int_equal(g->config.election_ms, 400);
    assert_false(g->config.protected_mode);
    const char *slip[] = {"FENCELOCK_ELECTON_MS=400", NULL};
    must_say(read_words("", slip), "FENCELOCK_ELECTON_MS in the environment: there is no option "
                                   "'electon-ms'; did you mean 'election-ms'?");
    const char *bad[] = {"FENCELOCK_ID=none", NULL};
    must_say(read_words("", bad), "FENCELOCK_ID in the environment: 'none' is not");
}

struct file {
    char path[64];
};

static void file_write(struct file *f, const char *text, size_t len)
{
    (void)snprintf(f->path, sizeof f->path,
                   "fencelock-config-XXXXXX"); /* in the test's own directory */
    int fd = mkstemp(f->path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, len), len);
    assert_int_equal(close(fd), 0);
}

static struct got *read_file_bytes(const char *text, size_t len, const char *more,
                                   const char *const *env, struct file *f)
{
    char line[256];
    file_write(f, text, len);
    (void)snprintf(line, sizeof line, "--config %s %s", f->path, more);
    struct got *g = read_words(line, env);
    assert_int_equal(unlink(f->path), 0);
    return g;
}

static struct got *read_file_text(const char *text, const char *more, const char *const *env,
                                  struct file *f)
{
    return read_file_bytes(text, strlen(text), more, env, f);
}

TEST(config_file)
{
    struct file f;
    const char *env[] = {"FENCELOCK_HOLD_MS=77", NULL};
    const struct got *g = read_file_text("# a comment\n"
                                         "\n"
                                         "id = 3   # and another\r\n"
                                         "\telection-ms=500\n"
                                         "hold-ms = 88\n"
                                         "data = /var/lib/fence lock\n"
                                         "protected-mode = no\n"
                                         "log-level = warning",
                                         "--election-ms 600", env, &f);
    must_run(g);
    assert_int_equal(g->config.id, 3);
    assert_int_equal(g->config.election_ms, 600); /* command line */
    assert_int_equal(g->config.hold_ms, 77);      /* environment */
    assert_string_equal(g->config.data, "/var/lib/fence lock");
    assert_int_equal(g->config.log_level, 2);
    assert_string_equal(g->config.file, f.path);
}

TEST(wrong_config_files)
{
    static const struct {
        const char *text, *says;
    } rows[] = {
        {"id = 1\nlisen = 127.0.0.1:1\n", ":2: there is no option 'lisen'; did you mean 'listen'?"},
        {"\n\nid 1\n", ":3: write `option = value`"},
        {"id = 1\nid = 2\n", ":2: 'id' is given twice"},
        {"id = -1\n", ":1: '-1' is not a whole number"},
        {"id =\n", ":1: '' is not a whole number"},
        {"data =\n", ":1: data must have 1 to"},
        {"config = other\n", ":1: a config file cannot name another one"},
        {"= 3\n", ":1: there is no option ''"},
        {"cluster = 1=x\n", ":1: "},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct file f;
        const struct got *g = read_file_text(rows[i].text, "", NULL, &f);
        must_say(g, rows[i].says);
        assert_memory_equal(g->errmsg, f.path, strlen(f.path));
    }
}

/* A value is taken whole, or refused. */
TEST(values_are_whole)
{
    static const char zero[] = "data = /srv/team\0-b\nid = 3\n";
    struct file f;
    const struct got *g = read_file_text("requirepass = kite#2026-long\n"
                                         "data = /srv/team#1 # the first team\n"
                                         "witness = /srv/w#\t# a tab, too\n"
                                         "\t # id = 9\n"
                                         "metrics = 127.0.0.1:1#\n",
                                         "--metrics 127.0.0.1:9", NULL, &f);
    must_run(g);
    assert_string_equal(g->config.requirepass, "kite#2026-long");
    assert_string_equal(g->config.data, "/srv/team#1");
    assert_string_equal(g->config.witness, "/srv/w#");
    assert_int_equal(g->config.id, 1);
    must_say(read_file_text("id = 3#4\n", "", NULL, &f), ":1: '3#4' is not a whole number");
    must_say(read_file_bytes(zero, sizeof zero - 1, "", NULL, &f), ":1: it has a zero byte");
}

TEST(long_lines)
{
    static char text[2 * CONFIG_LINE_MAX];
    struct file f;
    memset(text, '#', CONFIG_LINE_MAX - 2);
    memcpy(text + CONFIG_LINE_MAX - 2, "\nid = 9\n", 9);
    const struct got *g = read_file_text(text, "", NULL, &f);
    must_run(g);
    assert_int_equal(g->config.id, 9);
    memset(text, '#', CONFIG_LINE_MAX - 1);
    memcpy(text + CONFIG_LINE_MAX - 1, "\nid = 9\n", 9);
    must_say(read_file_text(text, "", NULL, &f), "it is too long: a line has at most 4094 bytes");
}

/* What is for one start alone, and what all options are. */

struct told {
    unsigned n;
    char id[128], level[128], password[128];
};

static void on_told(void *ctx, const char *name, const char *value, const char *where)
{
    struct told *t = ctx;
    char text[128];
    (void)snprintf(text, sizeof text, "%.32s from %.64s", value, where);
    t->n++;
    if (strcmp(name, "id") == 0) {
        memcpy(t->id, text, sizeof text);
    } else if (strcmp(name, "log-level") == 0) {
        memcpy(t->level, text, sizeof text);
    } else if (strcmp(name, "requirepass") == 0) {
        memcpy(t->password, text, sizeof text);
    }
}

TEST(options_are_listed)
{
    const char *env[] = {"FENCELOCK_REQUIREPASS=secret", NULL};
    const char *argv[] = {"--id=1", "--check"};
    struct told told = {0};
    assert_int_equal(config_list(2, argv, env, on_told, &told), CONFIG_RUN);
    assert_true(told.n > 30);
    assert_string_equal(told.id, "1 from --id");
    assert_string_equal(told.level, "info from default");
    assert_string_equal(told.password, "(not shown) from FENCELOCK_REQUIREPASS in the environment");
}

TEST(nothing_is_listed_of_a_wrong_one)
{
    const char *argv[] = {"--id", "0"};
    struct told told = {0};
    assert_int_equal(config_list(2, argv, NULL, on_told, &told), CONFIG_WRONG);
    assert_int_equal(told.n, 0);
}

TEST(for_one_start_alone)
{
    const char *env[] = {"FENCELOCK_CHECK=yes", NULL};
    struct file f;
    must_run(read_words("--check --json", NULL));
    must_say(read_words("", env), "write it on the command line, as --check");
    must_say(read_file_text("check = yes\n", "", NULL, &f), "as --check");
    must_say(read_words("--json", NULL), "without --check");
    must_run(read_words("--restore f --data d --json --above 7", NULL));
    must_run(read_words("--recover-from o --data d --tokens-above 1", NULL));
    must_say(read_words("--restore f --data d --check", NULL), "leave one out");
    must_say(read_words("--restore f", NULL), "needs --data");
    must_say(read_words("--recover-from o --data d", NULL), "needs --tokens-above");
    must_say(read_words("--restore f --recover-from o --data d", NULL), "exclude each other");
    must_say(read_words("--recover-from o --data d --above 1", NULL), "write --tokens-above");
    must_say(read_words("--restore f --data d --tokens-above 1", NULL), "write --above");
    must_say(read_words("--above 1", NULL), "--restore: add it");
    must_say(read_words("--step 1000000000", NULL), "without --restore");
    must_run(read_words("--restore f --data d --step 1000000000", NULL));
    must_say(read_words("--restore f --data d --step 999999999", NULL), "not a whole number");
}
