/* test_commands.c: the connection commands, reply by reply, as bytes on a socket. */
#include "harness.h"

#include "net/connection_commands.h"

struct service {
    struct fixture f;
    struct net_commands commands;
};

static unsigned hello(void *ctx, struct net_hello_field *fields)
{
    fields[0] = (struct net_hello_field){.key = "node", .number = 7};
    fields[1] = (struct net_hello_field){.key = "leader", .text = "127.0.0.1:9"};
    return 2;
}

static void on_request(void *ctx, struct net_request *r, const struct fli_slice *argv,
                       unsigned argc)
{
    struct service *s = ctx;
    const struct fli_command *command = NULL;
    unsigned skip = 0;
    char errmsg[FLI_ERRMSG_SIZE];
    if (fli_command_lookup(FLI_SERVICE_LOCK, argv, argc, &command, &skip, errmsg, sizeof errmsg) !=
        0) {
        assert_int_equal(fli_resp_error(net_reply(r), "ERR", "%s", errmsg), 0);
        net_answer(r);
        return;
    }
    if (!net_connection_command(&s->commands, r, command, argv + skip, argc - skip)) {
        assert_int_equal(fli_resp_simple(net_reply(r), "NOT MINE"), 0);
        net_answer(r);
    }
}

static void on_cancel(void *ctx, struct net_request *r)
{
}

static void start(struct service *s)
{
    memset(s, 0, sizeof *s);
    assert_int_equal(uv_loop_init(&s->f.loop), 0);
    struct net_callbacks cbs = {.ctx = s, .request = on_request, .cancel = on_cancel};
    struct net_limits limits = test_limits();
    assert_int_equal(net_server_create(&s->f.loop, &limits, 0, &cbs, &s->f.server), 0);
    char errmsg[256];
    assert_int_equal(net_server_listen(s->f.server, "127.0.0.1:0", errmsg, sizeof errmsg), 0);
    s->f.port = net_server_port(s->f.server);
    s->commands = (struct net_commands){.service = FLI_SERVICE_LOCK,
                                        .server = s->f.server,
                                        .server_name = "fencelock",
                                        .hello = hello};
}

struct row {
    const char *ask, *want;
};

#define NO_TRACKING                                                                                \
    "-ERR CLIENT TRACKING: write ON OPTIN or OFF; no invalidations are sent, so nothing can be "   \
    "cached\r\n"

TEST(replies)
{
    static const struct row rows[] = {
        {"PING", "+PONG\r\n"},
        {"ping hi", "$2\r\nhi\r\n"},
        {"ECHO x", "$1\r\nx\r\n"},
        {"SELECT 0", "+OK\r\n"},
        {"SELECT 1", "-ERR SELECT: there is only database 0\r\n"},
        {"AUTH secret",
         "-ERR AUTH: there are no users here; connect without user and password\r\n"},
        {"CLIENT ID", ":1\r\n"},
        {"CLIENT GETNAME", "$-1\r\n"},
        {"CLIENT SETNAME worker-1", "+OK\r\n"},
        {"CLIENT GETNAME", "$8\r\nworker-1\r\n"},
        {"CLIENT SETINFO LIB-NAME x", "+OK\r\n"},
        {"client setinfo lib-ver 1.2", "+OK\r\n"},
        {"CLIENT TRACKING ON OPTIN", "+OK\r\n"},
        {"CLIENT TRACKING off", "+OK\r\n"},
        {"CLIENT TRACKING ON", NO_TRACKING},
        {"CLIENT TRACKING ON BCAST", NO_TRACKING},
        {"CLIENT SETINFO COLOUR red", "-ERR CLIENT SETINFO: write LIB-NAME or LIB-VER\r\n"},
        {"HELLO 4", "-NOPROTO HELLO: write 2 or 3 for the protocol version\r\n"},
        {"HELLO 1", "-NOPROTO HELLO: write 2 or 3 for the protocol version\r\n"},
        {"HELLO three", "-NOPROTO HELLO: write 2 or 3 for the protocol version\r\n"},
        {"HELLO 3 AUTH default secret",
         "-ERR AUTH: there are no users here; connect without user and password\r\n"},
        {"HELLO 3 SETNAME",
         "-ERR HELLO: write HELLO [2|3] [AUTH user password] [SETNAME name]\r\n"},
        /* None of the refused ones changed the protocol. */
        {"HELLO", "*18\r\n$6\r\nserver\r\n$9\r\nfencelock\r\n$7\r\nversion\r\n$6\r\n7.0.15\r\n"
                  "$5\r\nproto\r\n:2\r\n$2\r\nid\r\n:1\r\n$4\r\nmode\r\n$10\r\nstandalone\r\n"
                  "$4\r\nrole\r\n$6\r\nmaster\r\n$7\r\nmodules\r\n*0\r\n$4\r\nnode\r\n:7\r\n"
                  "$6\r\nleader\r\n$11\r\n127.0.0.1:9\r\n"},
        {"HELLO 3 SETNAME w2",
         "%9\r\n$6\r\nserver\r\n$9\r\nfencelock\r\n$7\r\nversion\r\n$6\r\n7.0.15\r\n"
         "$5\r\nproto\r\n:3\r\n$2\r\nid\r\n:1\r\n$4\r\nmode\r\n$10\r\nstandalone\r\n"
         "$4\r\nrole\r\n$6\r\nmaster\r\n$7\r\nmodules\r\n*0\r\n$4\r\nnode\r\n:7\r\n"
         "$6\r\nleader\r\n$11\r\n127.0.0.1:9\r\n"},
        {"CLIENT GETNAME", "$2\r\nw2\r\n"},
        {"RESET", "+RESET\r\n"},
        {"CLIENT GETNAME", "$-1\r\n"},
        {"COMMAND INFO nosuch", "*1\r\n*-1\r\n"},
        {"SHOW x", "+NOT MINE\r\n"},
        {"INFO", "+NOT MINE\r\n"},
        {"QUIT", "+OK\r\n"},
    };
    struct service s;
    start(&s);
    int fd = client_open(&s.f);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        client_say(&s.f, fd, rows[i].ask);
        client_say(&s.f, fd, "\r\n");
        client_hear(&s.f, fd, rows[i].want);
    }
    client_expect_end(&s.f, fd);
    client_close(fd);
    fixture_end(&s.f);
}

TEST(null_names_in_resp3)
{
    struct service s;
    start(&s);
    int fd = client_open(&s.f);
    client_say(&s.f, fd, "HELLO 3\r\nCLIENT GETNAME\r\n");
    client_hear(&s.f, fd, "%9\r\n");
    char text[4096];
    size_t have = 0;
    while (have < 3 || memcmp(text + have - 3, "_\r\n", 3) != 0) {
        assert_in_range(have, 0, sizeof text - 1);
        long n = client_try(fd, text + have, 1);
        assert_int_not_equal(n, 0);
        if (n < 0) {
            turn(&s.f);
        } else {
            have++;
        }
    }
    client_close(fd);
    fixture_end(&s.f);
}

TEST(names_at_their_limit)
{
    struct service s;
    start(&s);
    int fd = client_open(&s.f);
    char name[65];
    memset(name, 'n', sizeof name);
    char ask[128];
    (void)snprintf(ask, sizeof ask, "CLIENT SETNAME %.63s\r\n", name);
    client_say(&s.f, fd, ask);
    client_hear(&s.f, fd, "+OK\r\n");
    (void)snprintf(ask, sizeof ask, "CLIENT SETNAME %.64s\r\n", name);
    client_say(&s.f, fd, ask);
    client_hear(&s.f, fd, "-ERR a client name has at most 63 visible characters");
    char rest[64];
    while (client_try(fd, rest, sizeof rest) < 0) {
        turn(&s.f);
    }
    client_say(&s.f, fd, "*3\r\n$6\r\nCLIENT\r\n$7\r\nSETNAME\r\n$3\r\na b\r\n");
    client_hear(&s.f, fd, "-ERR a client name");
    client_close(fd);
    fixture_end(&s.f);
}

TEST(clients_are_listed)
{
    struct service s;
    start(&s);
    int one = client_open(&s.f);
    int two = client_open(&s.f);
    client_say(&s.f, one, "CLIENT SETNAME first\r\n");
    client_hear(&s.f, one, "+OK\r\n");
    client_say(&s.f, two, "CLIENT LIST\r\n");
    char text[1024] = "";
    size_t have = 0;
    uint64_t at = deadline();
    while (strstr(text, "id=2 ") == NULL || strstr(text, "\n\r\n") == NULL) {
        long n = client_try(two, text + have, sizeof text - 1 - have);
        assert_int_not_equal(n, 0);
        have += n > 0 ? (size_t)n : 0;
        text[have] = '\0';
        turn(&s.f);
        check_deadline(at, "the list", __FILE__, __LINE__);
    }
    assert_non_null(strstr(text, "id=1 addr=127.0.0.1:"));
    assert_non_null(strstr(text, "name=first"));
    assert_non_null(strstr(text, "resp=2"));
    client_say(&s.f, one, "CLIENT INFO\r\n");
    client_hear(&s.f, one, "$");
    client_close(one);
    client_close(two);
    fixture_end(&s.f);
}
