/* test_client_list.c: CLIENT LIST of many connections, which goes on over turns of the loop. The
 * name of each listed connection's user is asked for once, so that counts its lines. */
#include "harness.h"

#include "net/client_list.h"
#include "net/conn.h"

enum { MANY = 3 * NET_LISTED_TURN_MAX };

struct service {
    struct fixture f;
    struct net_commands commands;
    unsigned lines, before; /* lines made, and by the end of the last turn */
    int fds[MANY];
    char text[512 * 1024];
    size_t have;
};

static void user_name(void *ctx, const struct net_conn *c, char out[NET_USER_NAME_MAX + 1])
{
    ((struct service *)ctx)->lines++;
    (void)snprintf(out, NET_USER_NAME_MAX + 1, "ann");
}

static void on_request(void *ctx, struct net_request *r, const struct fli_slice *argv,
                       unsigned argc)
{
    struct service *s = ctx;
    const struct fli_command *command = NULL;
    unsigned skip = 0;
    char errmsg[FLI_ERRMSG_SIZE];
    assert_int_equal(
        fli_command_lookup(FLI_SERVICE_LOCK, argv, argc, &command, &skip, errmsg, sizeof errmsg),
        0);
    assert_true(net_connection_command(&s->commands, r, command, argv + skip, argc - skip));
}

static void on_cancel(void *ctx, struct net_request *r)
{
    ((struct service *)ctx)->f.cancelled++;
}

static struct service *start(size_t output_max)
{
    struct service *s = calloc(1, sizeof *s);
    assert_non_null(s);
    assert_int_equal(uv_loop_init(&s->f.loop), 0);
    struct net_callbacks cbs = {.ctx = s, .request = on_request, .cancel = on_cancel};
    struct net_limits limits = test_limits();
    limits.output_max = output_max;
    assert_int_equal(net_server_create(&s->f.loop, &limits, 0, &cbs, &s->f.server), 0);
    char errmsg[256];
    assert_int_equal(net_server_listen(s->f.server, "127.0.0.1:0", errmsg, sizeof errmsg), 0);
    s->f.port = net_server_port(s->f.server);
    s->commands = (struct net_commands){.service = FLI_SERVICE_LOCK,
                                        .server = s->f.server,
                                        .server_name = "fencelock",
                                        .users_ctx = s,
                                        .user_name = user_name};
    return s;
}

/* The clients have the ids 1 and up, in this order. */
static void open_many(struct service *s, unsigned n)
{
    for (unsigned i = 0; i < n; i++) {
        s->fds[i] = client_open(&s->f);
        turn_until(&s->f, net_connections(s->f.server) == i + 1);
    }
}

static void end(struct service *s, unsigned n)
{
    for (unsigned i = 0; i < n; i++) {
        if (s->fds[i] >= 0) {
            client_close(s->fds[i]);
        }
    }
    fixture_end(&s->f);
    free(s);
}

/* A turn, in which lists look at no more connections than they may. */
static void turn_with_share(struct service *s)
{
    turn(&s->f);
    assert_in_range(s->lines - s->before, 0, NET_LISTED_TURN_MAX);
    s->before = s->lines;
}

static void hear(struct service *s, int fd, const char *last)
{
    uint64_t at = deadline();
    while (s->have < strlen(last) ||
           memcmp(s->text + s->have - strlen(last), last, strlen(last)) != 0) {
        turn_with_share(s);
        long n = client_try(fd, s->text + s->have, sizeof s->text - 1 - s->have);
        assert_int_not_equal(n, 0);
        s->have += n > 0 ? (size_t)n : 0;
        check_deadline(at, last, __FILE__, __LINE__);
    }
    s->text[s->have] = '\0';
}

/* Which lines it has: an id in each, in order. Returns their number. */
static unsigned read_ids(const struct service *s, unsigned ids[MANY])
{
    unsigned n = 0;
    for (const char *at = s->text; (at = strstr(at, "id=")) != NULL; at++) {
        assert_in_range(n, 0, MANY - 1);
        ids[n] = (unsigned)strtoul(at + 3, NULL, 10);
        assert_true(n == 0 || ids[n] > ids[n - 1]);
        n++;
    }
    return n;
}

static void expect_no(const unsigned *ids, unsigned n, unsigned id)
{
    for (unsigned i = 0; i < n; i++) {
        assert_int_not_equal(ids[i], id);
    }
}

/* The server ends the connection of this id, when its turn of the loop is over. */
static void cut(struct service *s, uint64_t id)
{
    FLI_LIST_FOREACH(link, &s->f.server->conns)
    {
        struct net_conn *c = FLI_CONTAINER_OF(link, struct net_conn, link);
        if (c->id == id) {
            net_conn_doom(c);
        }
    }
}

/* Each turn makes a part. */
TEST(a_list_goes_on_over_turns)
{
    struct service *s = start(1 << 20);
    unsigned ids[MANY];
    open_many(s, MANY);
    client_say(&s->f, s->fds[5], "CLIENT LIST\r\nPING\r\n");
    hear(s, s->fds[5], "\n\r\n+PONG\r\n");
    assert_int_equal(read_ids(s, ids), MANY);
    assert_int_equal(s->lines, MANY);
    assert_non_null(strstr(s->text, "id=1 addr=127.0.0.1:"));
    end(s, MANY);
}

/* Connections end and come meanwhile, also the one that would be next. */
TEST(connections_come_and_go_meanwhile)
{
    struct service *s = start(1 << 20);
    unsigned ids[MANY];
    open_many(s, MANY);
    client_say(&s->f, s->fds[0], "CLIENT LIST\r\n");
    while (s->lines == 0) {
        turn_with_share(s);
    }
    assert_int_equal(s->lines, NET_LISTED_TURN_MAX);
    cut(s, 2 * NET_LISTED_TURN_MAX + 1); /* the next turn looks at those before it, and ends it */
    cut(s, MANY);
    int late = client_open(&s->f);
    hear(s, s->fds[0], "\n\r\n");
    unsigned n = read_ids(s, ids);
    assert_int_equal(n, MANY - 2);
    expect_no(ids, n, 2 * NET_LISTED_TURN_MAX + 1);
    expect_no(ids, n, MANY);
    expect_no(ids, n, MANY + 1);
    client_close(late);
    end(s, MANY);
}

/* Hears a list, or a refusal. Whether it is a list. */
static bool hear_list(struct service *s, int fd)
{
    unsigned ids[MANY];
    s->have = 0;
    hear(s, fd, "\r\n");
    if (s->text[0] == '-') {
        assert_int_equal(strncmp(s->text, "-BUSY 64 others wait", 20), 0);
        return false;
    }
    if (strchr(s->text, '\n') == s->text + s->have - 1) { /* its head has come, and no more */
        hear(s, fd, "\n\r\n");
    }
    assert_int_equal(read_ids(s, ids), MANY);
    return true;
}

/* One at a time is made, all within one share of a turn, and too many are refused. A list takes
 * three turns, and each turn takes at least one request, however busy the machine is. */
TEST(lists_stand_in_line)
{
    enum { ASK = 2 * NET_LISTS_MAX };
    struct service *s = start(1 << 20);
    unsigned served = 0;
    open_many(s, MANY);
    for (unsigned i = 0; i < ASK; i++) {
        client_say(&s->f, s->fds[i], "CLIENT LIST\r\n");
        client_arrived(&s->f, s->fds[i], 13);
    }
    for (unsigned i = 0; i < ASK; i++) {
        served += hear_list(s, s->fds[i]);
    }
    assert_in_range(served, NET_LISTS_MAX, ASK - 1);
    assert_int_equal(s->lines, served * MANY);
    end(s, MANY);
}

/* Who asked leaves, and the next one is served. */
TEST(who_asked_leaves)
{
    struct service *s = start(1 << 20);
    unsigned ids[MANY];
    open_many(s, MANY);
    client_say(&s->f, s->fds[0], "CLIENT LIST\r\n");
    client_arrived(&s->f, s->fds[0], 13);
    turn_with_share(s);
    client_say(&s->f, s->fds[1], "CLIENT LIST\r\n");
    client_arrived(&s->f, s->fds[1], 13);
    cut(s, 1);
    hear(s, s->fds[1], "\n\r\n");
    assert_int_equal(read_ids(s, ids), MANY - 1);
    assert_int_equal(s->f.cancelled, 1);
    end(s, MANY);
}

/* What does not fit is left out, and the list ends there. */
TEST(a_list_is_bounded)
{
    struct service *s = start(64 * 1024);
    unsigned ids[MANY];
    open_many(s, MANY);
    client_say(&s->f, s->fds[0], "CLIENT LIST\r\n");
    hear(s, s->fds[0], "\n\r\n");
    unsigned n = read_ids(s, ids);
    assert_in_range(s->have, 32 * 1024 - 256, 32 * 1024 + 16);
    assert_int_equal(s->lines, n + 1);
    assert_int_equal(ids[n - 1], n);
    end(s, MANY);
}
