/* The peer port with TLS: who is let in by a certificate and by a secret, what strangers learn in
 * each state, and what many of them cost. */
#include "rig.h"

#include <openssl/ssl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "certs.h"
#include "peer/frame.h"
#include "peer/transport_private.h"

#define STORM 200u /* handshakes, of addresses of their own */
#define WAITING 48u
#define FRAMES 12u
#define FRAME_BYTES 16000u /* about a read */
#define FRAME_COST_US 2000u
#define TURNS_WITHOUT 3u /* a frame may come in several reads */

static char dir[64];
static char paths[16][128];

static const char *in_dir(const char *name)
{
    static unsigned turn;
    char *at = paths[turn++ % 16];
    (void)snprintf(at, sizeof paths[0], "%s/%s", dir, name);
    return at;
}

static void make_cert(const char *name, const char *san)
{
    certs_make(dir, name, &(struct cert){.cn = name, .san = san, .issuer = "ca"});
}

static int make_files(void **state)
{
    static const char secret[] = "the secret of this cluster, of many bytes";
    static const char other[] = "another secret, which nobody here believes";
    (void)certs_dir(dir);
    certs_make(dir, "ca", &(struct cert){.cn = "test CA", .ca = true});
    make_cert("one", "DNS:fencelock-node-1");
    make_cert("two", "DNS:fencelock-node-2");
    make_cert("three", "DNS:fencelock-node-3");
    make_cert("nine", "DNS:fencelock-node-9");
    make_cert("alice", "DNS:alice.example");
    certs_write(dir, "none", "", 0);
    certs_write(dir, "zeros", (const char[64]){0}, 64);
    certs_write(dir, "secret", secret, sizeof secret - 1);
    certs_write(dir, "other", other, sizeof other - 1);
    return 0;
}

static int remove_files(void **state)
{
    certs_remove(dir);
    return 0;
}

static struct security_config certificates(const char *name)
{
    char crt[32];
    char key[32];
    (void)snprintf(crt, sizeof crt, "%s.crt", name);
    (void)snprintf(key, sizeof key, "%s.key", name);
    return (struct security_config){
        .cert_file = in_dir(crt), .key_file = in_dir(key), .ca_file = in_dir("ca.crt")};
}

static void restart(struct rig *r, struct side *s, const struct security_config *security)
{
    struct transport_config config;
    if (s->t != NULL) {
        side_stop(s);
    }
    side_config(r, s, &config);
    config.security = *security;
    side_start(r, s, &config);
}

static struct rig *open_with(bool certs)
{
    struct rig *r = rig_open(NULL);
    struct security_config secret = {.secret_file = in_dir("secret")};
    struct security_config one = certificates("one");
    struct security_config two = certificates("two");
    restart(r, &r->a, certs ? &one : &secret);
    restart(r, &r->b, certs ? &two : &secret);
    return r;
}

static int set_up_certs(void **state)
{
    *state = open_with(true);
    return 0;
}

static int set_up_secret(void **state)
{
    *state = open_with(false);
    return 0;
}

static int tear_down(void **state)
{
    rig_close(*state);
    return 0;
}

static struct transport_security security_of(const struct side *s)
{
    struct transport_security ret;
    transport_get_security(s->t, &ret);
    return ret;
}

/* ---- members --------------------------------------------------------------------------------- */

static void exchange(struct rig *r, size_t len)
{
    uint8_t *bytes = test_malloc(len + 1);
    for (size_t i = 0; i < len; i++) {
        bytes[i] = (uint8_t)(i * 131);
    }
    struct fli_slice part = {bytes, len};
    unsigned before = r->mine.frames;
    r->b.streams[0].answer = true;
    assert_int_equal(stream_send(r->mine.s, 5, &part, 1), 0);
    stream_flush(r->mine.s);
    RUN_UNTIL(r, r->mine.frames == before + 1);
    assert_int_equal(r->mine.body.len, len);
    assert_memory_equal(r->mine.body.data, bytes, len);
    RUN_UNTIL(r, stream_unsent(r->mine.s) == 0);
    test_free(bytes);
}

/* What a stream needed for large frames is not kept. */
static void gives_memory_back(struct rig *r)
{
    for (unsigned i = 0; i < 300; i++) {
        stream_flush(r->mine.s); /* quiet turns */
    }
    assert_true(rig_memory(r->mine.s) < 8192);
}

/* The test runs with each way of proving who one is. */
#define EACH_WAY(name)                                                                             \
    TEST_WITH(test_##name##_with_certificates, set_up_certs, tear_down)                            \
    {                                                                                              \
        name(state);                                                                               \
    }                                                                                              \
    TEST_WITH(test_##name##_with_a_secret, set_up_secret, tear_down)                               \
    {                                                                                              \
        name(state);                                                                               \
    }

static void members_talk(void **state)
{
    struct rig *r = *state;
    static const size_t sizes[] = {0, 1, 100, 16384, 65535, 65536, 300000, (size_t)1 << 20};
    rig_pair(r, STREAM_RELAY);
    assert_int_equal(r->mine.peer.node_id, 2);
    assert_int_equal(r->b.streams[0].peer.node_id, 1);
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        exchange(r, sizes[i]);
    }
    gives_memory_back(r);
    assert_int_equal(security_of(&r->b).handshakes, 1);
    assert_int_equal(security_of(&r->b).failed, 0);
}

EACH_WAY(members_talk)

/* More than the kernel takes at once, and than one piece that is encrypted. */
static void much_at_once(void **state)
{
    struct rig *r = *state;
    rig_pair(r, STREAM_RAFT);
    uint8_t *bytes = test_calloc(1, (size_t)1 << 20);
    struct fli_slice part = {bytes, (size_t)1 << 20};
    for (unsigned sent = 0; sent < 24;) {
        while (sent < 24 && stream_send(r->mine.s, 5, &part, 1) == 0) {
            sent++;
        }
        stream_flush(r->mine.s);
        RUN_UNTIL(r, stream_unsent(r->mine.s) < (size_t)2 << 20);
    }
    RUN_UNTIL(r, r->b.streams[0].frames == 24);
    RUN_UNTIL(r, stream_unsent(r->mine.s) == 0);
    gives_memory_back(r);
    test_free(bytes);
}

EACH_WAY(much_at_once)

/* A member that is configured otherwise is told so, as it is a member. */
TEST_WITH(test_members_are_told_why, set_up_certs, tear_down)
{
    struct rig *r = *state;
    r->b.refuse = true;
    rig_dial(r, 2, STREAM_RAFT);
    assert_int_equal(r->status, FL_EDENIED);
    RUN_UNTIL(r, r->a.answered == 1);
    assert_string_equal(r->a.reason, "no: node 1");
}

/* ---- who is no member ------------------------------------------------------------------------ */

static void must_not_reach(struct rig *r, const struct security_config *mine, const char *b_says)
{
    restart(r, &r->a, mine);
    unsigned before = rig_turned_away(&r->b);
    rig_dial(r, 2, STREAM_RAFT);
    assert_true(r->status == FL_ENOCONN);
    RUN_UNTIL(r, rig_turned_away(&r->b) > before);
    assert_int_equal(r->b.judged + r->b.accepted, 0);
    assert_int_equal(r->a.answered, 0);
    if (strstr(r->b.log, b_says) == NULL) {
        fail_msg("b says '%s', not '%s'", r->b.log, b_says);
    }
}

/* Those of the same CA that are no member's have no business here. Node 1 cannot even start with
 * one, so what it calls itself is changed. */
TEST_WITH(test_other_certificates_of_the_ca, set_up_certs, tear_down)
{
    struct rig *r = *state;
    struct security_config alice = certificates("alice");
    struct transport_config config;
    char errmsg[512];
    struct transport *t = NULL;
    side_stop(&r->a);
    side_config(r, &r->a, &config);
    config.security = alice;
    struct transport_callbacks cbs = rig_callbacks(&r->a);
    assert_int_equal(transport_create(&r->loop, &config, &cbs, &t, errmsg, sizeof errmsg),
                     FL_EINVAL);
    assert_non_null(strstr(errmsg, "does not bear the name fencelock-node-1"));
    /* Node 3's certificate does not make node 1 of who has it. */
    struct security_config three = certificates("three");
    config.security = three;
    assert_int_equal(transport_create(&r->loop, &config, &cbs, &t, errmsg, sizeof errmsg),
                     FL_EINVAL);
    struct security_config one = certificates("one");
    restart(r, &r->a, &one);
}

TEST_WITH(test_another_secret, set_up_secret, tear_down)
{
    struct rig *r = *state;
    struct security_config other = {.secret_file = in_dir("other")};
    must_not_reach(r, &other, "was dropped: ");
}

/* As long as a secret, and known to everybody: what a crash may leave of the file. */
TEST(test_a_secret_of_zeros)
{
    struct security_config zeros = {.secret_file = in_dir("zeros")};
    struct security s;
    char errmsg[512];
    assert_int_equal(security_init(&s, &zeros, 1, errmsg, sizeof errmsg), FL_EINVAL);
    assert_non_null(strstr(errmsg, "a secret has a zero byte"));
}

TEST_WITH(test_secret_against_certificates, set_up_certs, tear_down)
{
    struct rig *r = *state;
    struct security_config secret = {.secret_file = in_dir("secret")};
    must_not_reach(r, &secret, "was dropped: ");
}

static void nothing_against_something(void **state)
{
    struct rig *r = *state;
    struct security_config nothing = {.secret_file = NULL};
    must_not_reach(r, &nothing, "was dropped: ");
}

EACH_WAY(nothing_against_something)

/* ---- a stranger with TLS of his own ---------------------------------------------------------- */

/* Speaks TLS over a plain socket, from a context of his choice. */
struct stranger {
    int fd;
    struct fli_tls_context *context;
    struct fli_tls *tls;
    struct fli_buf out, plain;
    bool ended;
};

static void stranger_init(struct stranger *s, struct rig *r, const struct fli_tls_config *config,
                          const char *claim)
{
    char errmsg[FLI_TLS_ERRMSG_SIZE];
    memset(s, 0, sizeof *s);
    fli_buf_init(&s->out, (size_t)1 << 20);
    fli_buf_init(&s->plain, (size_t)1 << 20);
    if (fli_tls_context_create(config, &s->context, errmsg, sizeof errmsg) != 0) {
        fail_msg("%s", errmsg);
    }
    int rv = config->both ? fli_tls_create_end(s->context, true, "fencelock-node-2", claim, &s->tls)
                          : fli_tls_create(s->context, NULL, &s->tls);
    assert_int_equal(rv, 0);
    assert_int_equal(fli_tls_read(s->tls, NULL, 0, &s->plain, &s->out), 0);
    s->fd = plain_connect(r->ports[1]);
}

static void stranger_fini(struct stranger *s)
{
    close(s->fd);
    fli_tls_destroy(s->tls);
    fli_tls_context_destroy(s->context);
    fli_buf_fini(&s->out);
    fli_buf_fini(&s->plain);
}

/* One exchange with the wire; returns whether the other side has ended. */
static bool stranger_turn(struct stranger *s)
{
    uint8_t bytes[16384];
    if (s->out.len > 0) {
        (void)!send(s->fd, s->out.data, s->out.len, MSG_NOSIGNAL);
        fli_buf_clear(&s->out);
    }
    ssize_t n = recv(s->fd, bytes, sizeof bytes, MSG_DONTWAIT);
    if (n > 0) {
        s->ended = fli_tls_read(s->tls, bytes, (size_t)n, &s->plain, &s->out) != 0;
    }
    s->ended = s->ended || n == 0 || (n < 0 && plain_peek(s->fd) == -2);
    return s->ended;
}

static void stranger_say(struct stranger *s, const struct handshake *h)
{
    uint8_t bytes[HANDSHAKE_SIZE];
    handshake_encode(h, &RIG_FORMATS, bytes);
    assert_int_equal(fli_tls_write(s->tls, bytes, sizeof bytes, &s->out), 0);
}

/* Gets through TLS where it can, says a handshake and a frame, and hears nothing at all. */
static void must_hear_nothing(struct rig *r, const struct fli_tls_config *config, const char *claim,
                              uint64_t says_it_is, const char *b_says)
{
    struct stranger s;
    struct handshake h = rig_handshake(r);
    unsigned judged = r->b.judged;
    h.from.node_id = says_it_is;
    stranger_init(&s, r, config, claim);
    RUN_UNTIL(r, stranger_turn(&s) || fli_tls_state(s.tls) == FLI_TLS_OPEN);
    if (!s.ended) {
        stranger_say(&s, &h);
        assert_int_equal(fli_tls_write(s.tls, "a frame, or what may look like one", 34, &s.out), 0);
        RUN_UNTIL(r, stranger_turn(&s));
    }
    assert_int_equal(s.plain.len, 0);
    assert_int_equal(r->b.accepted, 0);
    assert_int_equal(r->b.judged, judged);
    RUN_UNTIL(r, rig_pending(&r->b) == 0);
    if (strstr(r->b.log, b_says) == NULL) {
        fail_msg("b says '%s', not '%s'", r->b.log, b_says);
    }
    stranger_fini(&s);
}

static struct fli_tls_config stranger_with(const char *crt, const char *key)
{
    return (struct fli_tls_config){.both = true,
                                   .cert_file = crt == NULL ? NULL : in_dir(crt),
                                   .key_file = key == NULL ? NULL : in_dir(key),
                                   .ca_file = in_dir("ca.crt")};
}

/* The size of what waits to be sent, when a member asks for new keys again and again and never
 * reads: until the connection ends, or a megabyte waits. */
static size_t asks_for_keys(struct rig *r, struct stranger *s)
{
    uint8_t frame[FRAME_HEADER_SIZE];
    int small = 4096;
    uv_os_fd_t fd;
    struct stream *to = r->b.streams[0].s;
    assert_int_equal(uv_fileno((uv_handle_t *)&to->tcp, &fd), 0);
    (void)setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &small, sizeof small);
    frame_header_encode(1, NULL, 0, frame);
    uint64_t deadline_ms = rig_deadline(r);
    while (r->b.streams[0].lost == 0 && stream_unsent(to) < (size_t)1 << 20) {
        SSL *ssl = *(SSL **)s->tls; /* its first field */
        for (unsigned i = 0; i < 500; i++) {
            assert_int_equal(SSL_key_update(ssl, SSL_KEY_UPDATE_REQUESTED), 1);
            assert_int_equal(fli_tls_write(s->tls, frame, sizeof frame, &s->out), 0);
        }
        ssize_t n = send(s->fd, s->out.data, s->out.len, MSG_NOSIGNAL | MSG_DONTWAIT);
        fli_buf_consume(&s->out, n > 0 ? (size_t)n : 0);
        assert_true(rig_turn(r, deadline_ms));
    }
    return stream_unsent(to);
}

TEST_WITH(test_who_asks_for_keys_and_never_reads_is_cut_off, set_up_certs, tear_down)
{
    struct rig *r = *state;
    struct stranger s;
    struct handshake h = rig_handshake(r);
    struct fli_tls_config one = stranger_with("one.crt", "one.key");
    stranger_init(&s, r, &one, "");
    RUN_UNTIL(r, stranger_turn(&s) || fli_tls_state(s.tls) == FLI_TLS_OPEN);
    stranger_say(&s, &h);
    RUN_UNTIL(r, stranger_turn(&s) || r->b.accepted == 1);
    size_t unsent = asks_for_keys(r, &s);
    assert_true(unsent < (size_t)1 << 20);
    stranger_fini(&s);
}

TEST_WITH(test_strangers_and_certificates, set_up_certs, tear_down)
{
    struct rig *r = *state;
    struct fli_tls_config none = {.ca_file = in_dir("ca.crt")}; /* a client without a certificate */
    struct fli_tls_config alice = stranger_with("alice.crt", "alice.key");
    struct fli_tls_config nine = stranger_with("nine.crt", "nine.key");
    struct fli_tls_config two = stranger_with("two.crt", "two.key");
    struct fli_tls_config three = stranger_with("three.crt", "three.key");
    must_hear_nothing(r, &none, NULL, 1, "did not return a certificate");
    must_hear_nothing(r, &alice, "", 1, "(CN alice) bears no name of another member");
    /* Of a node that is no member here, and does not say so. */
    must_hear_nothing(r, &nine, "", 3, "it says that it is node 3, and has proved to be another");
    must_hear_nothing(r, &two, "", 1, "(CN two) bears no name of another member");
    /* A member, but not the one that it says. */
    must_hear_nothing(r, &three, "", 1, "it says that it is node 1, and has proved to be another");
}

TEST_WITH(test_strangers_and_secrets, set_up_secret, tear_down)
{
    struct rig *r = *state;
    struct fli_tls_config secret = {.both = true, .secret_file = in_dir("secret")};
    struct fli_tls_config other = {.both = true, .secret_file = in_dir("other")};
    must_hear_nothing(r, &other, "fencelock-node-1 to fencelock-node-2", 1, "was dropped: ");
    /* The proof is bound to who calls whom: one for another node is none. */
    must_hear_nothing(r, &secret, "fencelock-node-1 to fencelock-node-3", 1,
                      "it says that it is node 1, and has proved to be another");
    must_hear_nothing(r, &secret, "fencelock-node-2 to fencelock-node-1", 1, "says that it is");
    must_hear_nothing(r, &secret, "other-node-1 to other-node-2", 1, "says that it is");
    must_hear_nothing(r, &secret, "fencelock-node-3 to fencelock-node-2", 1,
                      "it says that it is node 1, and has proved to be another");
}

/* Before anything: plain words, garbage, a hello that is cut off. */
static void strangers_without_tls(void **state)
{
    struct rig *r = *state;
    struct handshake h = rig_handshake(r);
    static const char *const words[] = {"PING\r\n", "\x16\x03\x01\x40\x00\x01",
                                        "GET / HTTP/1.0\r\n"};
    int fd = plain_connect(r->ports[1]);
    plain_say(fd, &h);
    uint8_t bytes[2048];
    RUN_UNTIL(r, plain_peek(fd) != 0 && rig_pending(&r->b) == 0);
    ssize_t n = recv(fd, bytes, sizeof bytes, MSG_DONTWAIT);
    assert_true(n <= 7); /* an alert of TLS at most */
    close(fd);
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        fd = plain_connect(r->ports[1]);
        plain_send(fd, words[i], strlen(words[i]));
        shutdown(fd, SHUT_WR);
        RUN_UNTIL(r, plain_peek(fd) != 0);
        n = recv(fd, bytes, sizeof bytes, MSG_DONTWAIT);
        assert_true(n <= 7);
        close(fd);
    }
    RUN_UNTIL(r, rig_pending(&r->b) == 0);
    assert_int_equal(r->b.judged + r->b.accepted, 0);
}

EACH_WAY(strangers_without_tls)

/* After TLS and the handshake of a member: bytes that were touched on the way end the stream, and
 * what waits to be sent on it is dropped. */
TEST_WITH(test_bytes_are_touched, set_up_certs, tear_down)
{
    static const char record[] = "\x17\x03\x03\x00\x20 no key of this stream made this. ";
    struct rig *r = *state;
    struct fli_slice part = {(const uint8_t *)"waits", 5};
    uv_os_fd_t fd;
    rig_pair(r, STREAM_RELAY);
    RUN_UNTIL(r, stream_unsent(r->b.streams[0].s) == 0);
    assert_int_equal(uv_fileno((uv_handle_t *)&r->b.streams[0].s->tcp, &fd), 0);
    plain_send(fd, record, sizeof record - 1);
    assert_int_equal(stream_send(r->mine.s, 5, &part, 1), 0);
    RUN_UNTIL(r, r->mine.lost == 1);
    assert_int_equal(r->b.streams[0].frames, 0);
    RUN_UNTIL(r, r->b.streams[0].lost == 1);
}

TEST_WITH(test_silence_after_tls, set_up_certs, tear_down)
{
    struct rig *r = *state;
    struct stranger s;
    struct transport_config config;
    struct security_config two = certificates("two");
    struct fli_tls_config three = stranger_with("three.crt", "three.key");
    side_stop(&r->b);
    side_config(r, &r->b, &config);
    config.security = two;
    side_start(r, &r->b, &config);
    r->b.t->pending_ms = 300;
    stranger_init(&s, r, &three, "");
    RUN_UNTIL(r, stranger_turn(&s)); /* the deadline is that of the handshake, TLS included */
    assert_int_equal(s.plain.len, 0);
    assert_int_equal(rig_pending(&r->b), 0);
    stranger_fini(&s);
}

/* ---- many ------------------------------------------------------------------------------------ */

static bool all_ended(struct stranger *s, unsigned n)
{
    unsigned ended = 0;
    for (unsigned i = 0; i < n; i++) {
        ended += s[i].ended || stranger_turn(&s[i]);
    }
    return ended == n;
}

/* In no turn more is worked on than fits, nobody is forgotten, and a member gets through. */
TEST_WITH(test_storm, set_up_certs, tear_down)
{
    struct rig *r = *state;
    struct stranger *s = test_calloc(STORM, sizeof *s);
    struct fli_tls_config alice = stranger_with("alice.crt", "alice.key");
    for (unsigned i = 0; i < STORM; i++) {
        stranger_init(&s[i], r, &alice, "");
        close(s[i].fd);
        s[i].fd = plain_connect_from(INADDR_LOOPBACK + 1 + i, r->ports[1]);
        plain_send(s[i].fd, s[i].out.data, s[i].out.len);
        fli_buf_clear(&s[i].out);
        if (i % 32 == 31) {
            (void)rig_turn(r, rig_deadline(r));
        }
    }
    rig_pair(r, STREAM_RAFT);
    exchange(r, 1000);
    assert_true(security_of(&r->b).handshakes >= 1);
    RUN_UNTIL(r, all_ended(s, STORM));
    assert_int_equal(r->b.accepted, 1);
    for (unsigned i = 0; i < STORM; i++) {
        assert_int_equal(s[i].plain.len, 0);
        stranger_fini(&s[i]);
    }
    test_free(s);
}

/* Many, each from an address of its own. Nothing is sent yet. */
static void strangers_init(struct stranger *s, unsigned n, struct rig *r)
{
    struct fli_tls_config alice = stranger_with("alice.crt", "alice.key");
    for (unsigned i = 0; i < n; i++) {
        stranger_init(&s[i], r, &alice, "");
        close(s[i].fd);
        s[i].fd = plain_connect_from(INADDR_LOOPBACK + 1 + i, r->ports[1]);
    }
}

/* What is put off waits for its turn, also when its node has gone meanwhile. */
TEST_WITH(test_put_off, set_up_certs, tear_down)
{
    struct rig *r = *state;
    struct stranger s[48];
    uint64_t before = security_of(&r->b).deferred;
    for (unsigned round = 0; round < 50 && security_of(&r->b).deferred == before; round++) {
        strangers_init(s, 48, r);
        RUN_UNTIL(r, rig_pending(&r->b) == 48);
        for (unsigned i = 0; i < 48; i++) {
            plain_send(s[i].fd, s[i].out.data, s[i].out.len);
            shutdown(s[i].fd, SHUT_WR);
        }
        RUN_UNTIL(r, rig_pending(&r->b) == 0);
        for (unsigned i = 0; i < 48; i++) {
            stranger_fini(&s[i]);
        }
    }
    assert_true(security_of(&r->b).deferred > before);
}

struct costly {
    struct rig *r;
    unsigned frames;
    bool spares_handshakes;
};

/* Each message takes all that connections may use of a turn. Nothing is left for handshakes, unless
 * they are spared. */
static void costly_frame(void *ctx, uint8_t type, struct fli_slice body)
{
    struct costly *c = ctx;
    struct transport *t = c->r->b.t;
    uint64_t until_ns = fli_clock_ns() + FRAME_COST_US * UINT64_C(1000);
    c->frames++;
    t->shake_ns += c->spares_handshakes ? 0 : UINT64_C(1000000000);
    while (fli_clock_ns() < until_ns) {
    }
}

static void costly_lost(void *ctx, const char *why)
{
}

/* Handshakes that wait are many, and a member that has more to say waits for none of them. */
TEST_WITH(test_members_pass_handshakes, set_up_certs, tear_down)
{
    struct rig *r = *state;
    struct costly c = {.r = r};
    struct stream_callbacks cbs = {.ctx = &c, .frame = costly_frame, .lost = costly_lost};
    struct stranger s[WAITING];
    static const uint8_t bytes[FRAME_BYTES];
    struct fli_slice part = {bytes, sizeof bytes};
    r->b.unstarted = true;
    rig_pair(r, STREAM_RAFT);
    assert_true(stream_start(r->b.streams[0].s, &cbs));
    strangers_init(s, WAITING, r);
    RUN_UNTIL(r, rig_pending(&r->b) == WAITING);
    for (unsigned i = 0; i < FRAMES; i++) {
        assert_int_equal(stream_send(r->mine.s, 5, &part, 1), 0);
    }
    stream_flush(r->mine.s);
    for (unsigned i = 0; i < WAITING; i++) {
        plain_send(s[i].fd, s[i].out.data, s[i].out.len);
    }
    uint64_t before = security_of(&r->b).deferred;
    unsigned idle = 0;
    while (c.frames < FRAMES) {
        unsigned seen = c.frames;
        uv_run(&r->loop, UV_RUN_NOWAIT);
        idle = c.frames > seen ? 0 : idle + 1;
        assert_true(idle <= TURNS_WITHOUT);
    }
    assert_true(security_of(&r->b).deferred - before > WAITING / 2);
    for (unsigned i = 0; i < WAITING; i++) {
        stranger_fini(&s[i]);
    }
    RUN_UNTIL(r, rig_pending(&r->b) == 0);
}

/* Says more in each turn than is read of it. */
static void talk(void *ctx)
{
    struct stream *s = ctx;
    static const uint8_t bytes[FRAME_BYTES];
    struct fli_slice part = {bytes, sizeof bytes};
    while (stream_send(s, 5, &part, 1) == 0) {
    }
    stream_flush(s);
}

/* A member that always has more to say keeps nobody out: handshakes have a share of their own. */
TEST_WITH(test_handshakes_beside_a_talker, set_up_certs, tear_down)
{
    struct rig *r = *state;
    static struct costly c; /* a failure is torn down with it */
    struct stream_callbacks cbs = {.ctx = &c, .frame = costly_frame, .lost = costly_lost};
    c = (struct costly){.r = r, .spares_handshakes = true};
    r->b.unstarted = true;
    rig_pair(r, STREAM_RAFT);
    assert_true(stream_start(r->b.streams[0].s, &cbs));
    r->turn = talk;
    r->turn_ctx = r->mine.s;
    RUN_UNTIL(r, c.frames > 3);
    rig_dial(r, 2, STREAM_RELAY);
    r->turn = NULL;
    stream_close(r->turn_ctx);
    assert_int_equal(r->status, 0);
    assert_int_equal(security_of(&r->b).deferred, 0);
}

/* A transport that closes in the middle of handshakes leaves nothing behind. */
TEST_WITH(test_closing_meanwhile, set_up_certs, tear_down)
{
    struct rig *r = *state;
    struct stranger s[40];
    struct fli_tls_config alice = stranger_with("alice.crt", "alice.key");
    for (unsigned i = 0; i < 40; i++) {
        stranger_init(&s[i], r, &alice, "");
        close(s[i].fd);
        s[i].fd = plain_connect_from(INADDR_LOOPBACK + 1 + i, r->ports[1]);
        plain_send(s[i].fd, s[i].out.data, s[i].out.len);
    }
    RUN_UNTIL(r, rig_pending(&r->b) > 0);
    side_stop(&r->b);
    for (unsigned i = 0; i < 40; i++) {
        stranger_fini(&s[i]);
    }
}

/* ---- files ----------------------------------------------------------------------------------- */

TEST_WITH(test_files, set_up_certs, tear_down)
{
    struct rig *r = *state;
    struct transport_security now = security_of(&r->b);
    assert_int_equal(now.trust, TRANSPORT_TRUSTS_CERTIFICATES);
    assert_in_range(now.facts.cert_days, 9, 10);
    /* One that is another node's changes nothing. */
    certs_join(dir, "two.key", "three.key", "none");
    certs_join(dir, "two.crt", "three.crt", "none");
    transport_reload(r->b.t);
    now = security_of(&r->b);
    assert_int_equal(now.facts.failures, 1);
    assert_int_equal(now.facts.reloads, 0);
    assert_non_null(strstr(r->b.log, "does not bear the name fencelock-node-2"));
    rig_pair(r, STREAM_RAFT);
    exchange(r, 10);
    /* A good one is found without being told. */
    certs_make(dir, "two",
               &(struct cert){.cn = "two",
                              .san = "DNS:fencelock-node-2",
                              .begins_days = -1,
                              .ends_days = 40,
                              .issuer = "ca"});
    RUN_UNTIL(r, (now = security_of(&r->b)).facts.reloads == 1);
    assert_in_range(now.facts.cert_days, 39, 40);
    exchange(r, 10); /* connections that exist go on */
}

int main(int argc, char **argv)
{
    return unit_run(argc, argv, make_files, remove_files);
}
