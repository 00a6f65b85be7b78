/* test_secure.c: the TLS port over real sockets, with clients that are TLS sessions of our own. */
#include "harness.h"

#include <sys/socket.h>
#include <unistd.h>

#include "certs.h"
#include "net/conn.h"

#define BUF_MAX ((size_t)64 << 20)

static char dir[64];
static struct fli_tls_context *client_context;

static const char *in_dir(const char *name)
{
    static char text[8][128];
    static unsigned used;
    char *at = text[used++ % 8];
    (void)snprintf(at, sizeof text[0], "%s/%s", dir, name);
    return at;
}

static int setup(void **state)
{
    char errmsg[FLI_TLS_ERRMSG_SIZE];
    (void)certs_dir(dir);
    certs_make(dir, "ca", &(struct cert){.cn = "test CA", .ca = true});
    certs_make(dir, "server", &(struct cert){.cn = "s", .san = "IP:127.0.0.1", .issuer = "ca"});
    certs_make(dir, "alice", &(struct cert){.cn = "alice", .issuer = "ca"});
    const struct fli_tls_config config = {.cert_file = in_dir("alice.crt"),
                                          .key_file = in_dir("alice.key"),
                                          .ca_file = in_dir("ca.crt")};
    return fli_tls_context_create(&config, &client_context, errmsg, sizeof errmsg);
}

static int teardown(void **state)
{
    fli_tls_context_destroy(client_context);
    certs_remove(dir);
    return 0;
}

static void start(struct fixture *f, struct net_limits limits, enum fli_tls_auth auth)
{
    char errmsg[256];
    const struct fli_tls_config config = {.server = true,
                                          .cert_file = in_dir("server.crt"),
                                          .key_file = in_dir("server.key"),
                                          .ca_file = in_dir("ca.crt"),
                                          .auth = auth};
    fixture_start(f, limits);
    if (net_server_listen_tls(f->server, "127.0.0.1:0", &config, errmsg, sizeof errmsg) != 0) {
        fail_msg("%s", errmsg);
    }
    assert_int_not_equal(net_server_tls_port(f->server), f->port);
    assert_int_equal(net_server_port(f->server), f->port);
    f->port = net_server_tls_port(f->server);
}

struct client {
    int fd;
    struct fli_tls *tls;
    struct fli_buf plain, out;
    bool over; /* the server has ended the connection */
};

static void push_out(struct fixture *f, struct client *c, size_t step)
{
    for (size_t at = 0; at < c->out.len;) {
        size_t n = step != 0 && step < c->out.len - at ? step : c->out.len - at;
        client_send(f, c->fd, (const char *)c->out.data + at, n);
        at += n;
        if (step != 0) {
            turn(f);
        }
    }
    fli_buf_clear(&c->out);
}

static int pull(struct client *c)
{
    char data[65536];
    long n = client_try(c->fd, data, sizeof data);
    if (n == 0) {
        c->over = true;
    }
    return n <= 0 ? 0 : fli_tls_read(c->tls, data, (size_t)n, &c->plain, &c->out);
}

static void begin_from(struct fixture *f, struct client *c, const char *address)
{
    *c = (struct client){.fd = client_open_from(f, address)};
    fli_buf_init(&c->plain, BUF_MAX);
    fli_buf_init(&c->out, BUF_MAX);
    assert_int_equal(fli_tls_create(client_context, "127.0.0.1", &c->tls), 0);
    assert_int_equal(fli_tls_read(c->tls, NULL, 0, &c->plain, &c->out), 0);
}

static void begin(struct fixture *f, struct client *c)
{
    begin_from(f, c, "127.0.0.1");
}

static void shake(struct fixture *f, struct client *c, size_t step)
{
    uint64_t at = deadline();
    while (fli_tls_state(c->tls) == FLI_TLS_SHAKING) {
        push_out(f, c, step);
        turn(f);
        assert_int_equal(pull(c), 0);
        check_deadline(at, "a handshake", __FILE__, __LINE__);
    }
    push_out(f, c, step);
    assert_int_equal(fli_tls_state(c->tls), FLI_TLS_OPEN);
}

static void leave(struct client *c)
{
    client_close(c->fd);
    fli_tls_destroy(c->tls);
    fli_buf_fini(&c->plain);
    fli_buf_fini(&c->out);
}

static void ask(struct fixture *f, struct client *c, const void *text, size_t len, size_t step)
{
    assert_int_equal(fli_tls_write(c->tls, text, len, &c->out), 0);
    push_out(f, c, step);
}

static void hear(struct fixture *f, struct client *c, const char *text, size_t len)
{
    uint64_t at = deadline();
    while (c->plain.len < len) {
        turn(f);
        assert_int_equal(pull(c), 0);
        check_deadline(at, "an answer", __FILE__, __LINE__);
    }
    assert_memory_equal(c->plain.data, text, len);
    fli_buf_consume(&c->plain, len);
}

TEST(byte_by_byte)
{
    struct fixture f;
    struct client c;
    start(&f, test_limits(), FLI_TLS_AUTH_REQUIRED);
    begin(&f, &c);
    shake(&f, &c, 1);
    const char request[] = "*2\r\n$4\r\nECHO\r\n$5\r\nhello\r\nECHO inline\r\n";
    ask(&f, &c, request, sizeof request - 1, 1);
    hear(&f, &c, "$5\r\nhello\r\n$6\r\ninline\r\n", 23);
    struct net_stats stats;
    net_get_stats(f.server, &stats);
    assert_int_equal(stats.tls_handshakes, 1);
    assert_int_equal(stats.tls_failed, 0);
    leave(&c);
    fixture_end(&f);
}

TEST(pipeline_of_thousands)
{
    enum { N = 20000 };
    struct fixture f;
    struct client c;
    char *text = malloc(N * 40);
    char *want = malloc(N * 40);
    size_t len = 0;
    size_t want_len = 0;
    for (int i = 0; i < N; i++) {
        len += (size_t)snprintf(text + len, 40, "*2\r\n$4\r\nECHO\r\n$6\r\n%06d\r\n", i);
        want_len += (size_t)snprintf(want + want_len, 40, "$6\r\n%06d\r\n", i);
    }
    start(&f, test_limits(), FLI_TLS_AUTH_REQUIRED);
    begin(&f, &c);
    shake(&f, &c, 0);
    ask(&f, &c, text, len, 0);
    hear(&f, &c, want, want_len);
    assert_int_equal(f.requests, N);
    leave(&c);
    fixture_end(&f);
    free(text);
    free(want);
}

static void note_waiting(void *ctx, struct net_conn *c)
{
    size_t *ret = ctx;
    *ret += c->secure == NULL ? 0 : c->secure->in.len;
}

/* Each record is work, however little it brings. So once the share of a turn is used up, what was
 * read waits as ciphertext. */
TEST(decrypting_is_part_of_the_share)
{
    enum { N = 500 };
    struct fixture f;
    struct client c;
    size_t waiting = 0;
    start(&f, test_limits(), FLI_TLS_AUTH_REQUIRED);
    begin(&f, &c);
    shake(&f, &c, 0);
    ask(&f, &c, "ECHO a\r\n", 8, 0);
    hear(&f, &c, "$1\r\na\r\n", 7);
    unsigned before = f.requests;
    assert_int_equal(fli_tls_write(c.tls, "SPIN\r\n", 6, &c.out), 0);
    for (int i = 0; i < N; i++) {
        assert_int_equal(fli_tls_write(c.tls, "\n", 1, &c.out), 0);
    }
    assert_int_equal(fli_tls_write(c.tls, "ECHO b\r\n", 8, &c.out), 0);
    size_t sent = c.out.len;
    push_out(&f, &c, 0);
    client_arrived(&f, c.fd, sent);
    turn_until(&f, f.requests > before); /* one read takes all */
    assert_int_equal(f.requests, before + 1);
    net_each_conn(f.server, note_waiting, &waiting);
    assert_true(waiting > sent / 2 && waiting < sent);
    hear(&f, &c, "+OK\r\n$1\r\nb\r\n", 12);
    leave(&c);
    fixture_end(&f);
}

/* Requests whose bytes come in a record each, from many clients: all are answered, in order. */
TEST(a_byte_a_record)
{
    enum { CLIENTS = 8, N = 1500 };
    static struct client clients[CLIENTS];
    struct fixture f;
    start(&f, test_limits(), FLI_TLS_AUTH_REQUIRED);
    for (unsigned i = 0; i < CLIENTS; i++) {
        begin(&f, &clients[i]);
        shake(&f, &clients[i], 0);
        for (unsigned k = 0; k < N; k++) {
            char text[32];
            int len = snprintf(text, sizeof text, "ECHO %04u\r\n", k);
            for (int at = 0; at < len; at++) {
                assert_int_equal(fli_tls_write(clients[i].tls, text + at, 1, &clients[i].out), 0);
            }
        }
        fli_tls_end(clients[i].tls, &clients[i].out);
    }
    for (unsigned i = 0; i < CLIENTS; i++) {
        push_out(&f, &clients[i], 0);
    }
    for (unsigned i = 0; i < CLIENTS; i++) {
        for (unsigned k = 0; k < N; k++) {
            char want[32];
            int len = snprintf(want, sizeof want, "$4\r\n%04u\r\n", k);
            hear(&f, &clients[i], want, (size_t)len);
        }
        leave(&clients[i]);
    }
    assert_int_equal(f.requests, CLIENTS * N);
    turn_until(&f, net_connections(f.server) == 0);
    fixture_end(&f);
}

/* A client that ends while its requests are still held up gets its answers. */
TEST(ends_while_paused)
{
    struct fixture f;
    struct client c;
    struct net_limits limits = test_limits();
    limits.pipeline_max = 2;
    start(&f, limits, FLI_TLS_AUTH_REQUIRED);
    begin(&f, &c);
    shake(&f, &c, 0);
    const char late[] = "LATER\r\nLATER\r\nLATER\r\nLATER\r\nLATER\r\nECHO last\r\n";
    assert_int_equal(fli_tls_write(c.tls, late, sizeof late - 1, &c.out), 0);
    fli_tls_end(c.tls, &c.out);
    push_out(&f, &c, 0);
    for (unsigned i = 0; i < 5; i++) {
        turn_until(&f, f.kept_n > i);
        answer_kept(&f, i, "x");
    }
    for (unsigned i = 0; i < 5; i++) {
        hear(&f, &c, "$1\r\nx\r\n", 7);
    }
    hear(&f, &c, "$4\r\nlast\r\n", 10);
    while (!c.over) {
        turn(&f);
        assert_int_equal(pull(&c), 0);
    }
    assert_int_equal(fli_tls_state(c.tls), FLI_TLS_ENDED); /* in order */
    leave(&c);
    fixture_end(&f);
}

TEST(large_answers)
{
    struct fixture f;
    struct client c;
    static char want[200000];
    start(&f, test_limits(), FLI_TLS_AUTH_REQUIRED);
    begin(&f, &c);
    shake(&f, &c, 0);
    memset(want, 'x', sizeof want);
    for (int i = 0; i < 20; i++) {
        ask(&f, &c, "BIG 200000\r\n", 12, 0);
        hear(&f, &c, "$200000\r\n", 9);
        hear(&f, &c, want, 200000);
        hear(&f, &c, "\r\n", 2);
    }
    leave(&c);
    fixture_end(&f);
}

TEST(drop_is_orderly)
{
    struct fixture f;
    struct client c;
    start(&f, test_limits(), FLI_TLS_AUTH_REQUIRED);
    begin(&f, &c);
    shake(&f, &c, 0);
    ask(&f, &c, "DROP\r\nECHO never\r\n", 18, 0);
    hear(&f, &c, "$3\r\nbye\r\n", 9);
    while (!c.over) {
        turn(&f);
        assert_int_equal(pull(&c), 0);
    }
    assert_int_equal(fli_tls_state(c.tls), FLI_TLS_ENDED);
    leave(&c);
    fixture_end(&f);
}

TEST(plain_client)
{
    struct fixture f;
    start(&f, test_limits(), FLI_TLS_AUTH_REQUIRED);
    int fd = client_open(&f);
    client_say(&f, fd, "*1\r\n$4\r\nPING\r\n");
    client_hear(&f, fd, "-DENIED this port takes TLS only");
    client_expect_clean_end(&f, fd);
    client_close(fd);
    fd = client_open(&f);
    client_send(&f, fd, "\x16\x03\x01\xff\xff\x01garbage", 13);
    client_expect_end(&f, fd);
    client_close(fd);
    assert_int_equal(f.requests, 0);
    struct net_stats stats;
    net_get_stats(f.server, &stats);
    assert_int_equal(stats.tls_failed, 2);
    fixture_end(&f);
}

/* Over the limit: no handshake is made, so that refusing is cheap. */
TEST(too_many)
{
    struct fixture f;
    struct client c;
    struct net_limits limits = test_limits();
    limits.connections_max = 1;
    start(&f, limits, FLI_TLS_AUTH_REQUIRED);
    begin(&f, &c);
    shake(&f, &c, 0);
    int fd = client_open(&f);
    client_expect_end(&f, fd);
    client_close(fd);
    ask(&f, &c, "ECHO still\r\n", 12, 0);
    hear(&f, &c, "$5\r\nstill\r\n", 11);
    leave(&c);
    fixture_end(&f);
}

/* Handshakes that come all at once are spread over turns, and a client that is there already is
 * served between them. */
TEST(storm)
{
    enum { N = 40 };
    static struct client clients[N];
    struct fixture f;
    struct client old;
    struct net_stats stats;
    start(&f, test_limits(), FLI_TLS_AUTH_REQUIRED);
    begin(&f, &old);
    shake(&f, &old, 0);
    for (unsigned i = 0; i < N; i++) {
        begin(&f, &clients[i]);
        turn(&f);
    }
    turn_until(&f, net_connections(f.server) == N + 1);
    for (unsigned i = 0; i < N; i++) { /* without a turn in between */
        assert_int_equal(send(clients[i].fd, clients[i].out.data, clients[i].out.len, 0),
                         (long)clients[i].out.len);
        fli_buf_clear(&clients[i].out);
    }
    ask(&f, &old, "ECHO me\r\n", 9, 0);
    hear(&f, &old, "$2\r\nme\r\n", 8);
    net_get_stats(f.server, &stats);
    assert_in_range(stats.tls_deferred, 1, N);
    for (unsigned i = 0; i < N; i++) {
        shake(&f, &clients[i], 0);
        ask(&f, &clients[i], "ECHO hi\r\n", 9, 0);
    }
    for (unsigned i = 0; i < N; i++) {
        hear(&f, &clients[i], "$2\r\nhi\r\n", 8);
        leave(&clients[i]);
    }
    net_get_stats(f.server, &stats);
    assert_int_equal(stats.tls_handshakes, N + 1);
    leave(&old);
    fixture_end(&f);
}

/* Whose address has no other handshake in line does not wait for all of another. */
TEST(addresses_take_turns)
{
    enum { N = 240 };
    static struct client many[N];
    struct fixture f;
    struct client good;
    unsigned answered = 0;
    start(&f, test_limits(), FLI_TLS_AUTH_REQUIRED);
    for (unsigned i = 0; i < N; i++) {
        begin_from(&f, &many[i], "127.0.0.2");
        turn(&f);
    }
    begin_from(&f, &good, "127.0.0.3");
    turn_until(&f, net_connections(f.server) == N + 1);
    for (unsigned i = 0; i < N; i++) { /* without a turn in between */
        assert_int_equal(send(many[i].fd, many[i].out.data, many[i].out.len, 0),
                         (long)many[i].out.len);
        fli_buf_clear(&many[i].out);
    }
    shake(&f, &good, 0);
    for (unsigned i = 0; i < N; i++) {
        answered += recv(many[i].fd, &(char){0}, 1, MSG_PEEK | MSG_DONTWAIT) == 1;
    }
    assert_true(answered < N / 2);
    leave(&good);
    for (unsigned i = 0; i < N; i++) {
        shake(&f, &many[i], 0);
        leave(&many[i]);
    }
    fixture_end(&f);
}

/* Clients that go away in the middle of their handshakes, deferred ones too. */
TEST(cut_off_everywhere)
{
    struct fixture f;
    start(&f, test_limits(), FLI_TLS_AUTH_REQUIRED);
    for (unsigned round = 0; round < 40; round++) {
        struct client c[16];
        for (unsigned i = 0; i < 16; i++) {
            begin(&f, &c[i]);
            size_t n = (round * 16 + i) % c[i].out.len;
            if (n > 0) {
                client_send(&f, c[i].fd, (const char *)c[i].out.data, n);
            }
        }
        turn(&f);
        for (unsigned i = 0; i < 16; i++) {
            leave(&c[i]);
        }
    }
    turn_until(&f, net_connections(f.server) == 0);
    fixture_end(&f);
}

/* What was begun under the old files goes on; new connections get the new ones. */
TEST(reload)
{
    struct fixture f;
    struct client c;
    struct client d;
    struct fli_tls_facts facts;
    start(&f, test_limits(), FLI_TLS_AUTH_REQUIRED);
    begin(&f, &c);
    shake(&f, &c, 0);
    certs_write(dir, "server.key", "rubbish", 7);
    net_server_tls_reload(f.server);
    assert_true(net_server_tls_facts(f.server, &facts));
    assert_int_equal(facts.failures, 1);
    begin(&f, &d);
    shake(&f, &d, 0);
    leave(&d);
    certs_make(dir, "server", &(struct cert){.cn = "new", .san = "IP:127.0.0.1", .issuer = "ca"});
    turn_until(&f, net_server_tls_facts(f.server, &facts) && facts.reloads == 1); /* by itself */
    begin(&f, &d);
    shake(&f, &d, 0);
    char name[FLI_TLS_NAME_MAX];
    assert_true(fli_tls_peer_name(d.tls, name));
    assert_string_equal(name, "new");
    ask(&f, &c, "ECHO old\r\n", 10, 0);
    hear(&f, &c, "$3\r\nold\r\n", 9);
    leave(&c);
    leave(&d);
    fixture_end(&f);
}

int main(int argc, char **argv)
{
    return unit_run(argc, argv, setup, teardown);
}
