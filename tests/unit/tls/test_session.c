/* test_session.c: handshakes and records between buffers. */
#include "../../lib/unit.h"

#include <malloc.h>
#include <openssl/ssl.h>

#include "certs.h"
#include "tls/tls.h"

#if defined(__SANITIZE_ADDRESS__)
#define UNDER_ASAN 1
#else
#define UNDER_ASAN 0
#endif

#define IDLE_MAX ((size_t)24 << 10) /* bytes of an idle session */
#define BUF_MAX ((size_t)4 << 20)

static char dir[64];

static const char *in_dir(const char *name)
{
    static char text[8][128];
    static unsigned turn;
    char *at = text[turn++ % 8];
    (void)snprintf(at, sizeof text[0], "%s/%s", dir, name);
    return at;
}

static int setup(void **state)
{
    const struct cert expired_ca = {
        .cn = "expired CA", .ca = true, .begins_days = -9, .ends_days = -1};
    (void)certs_dir(dir);
    certs_make(dir, "ca", &(struct cert){.cn = "test CA", .ca = true});
    certs_make(dir, "other-ca", &(struct cert){.cn = "other CA", .ca = true});
    certs_make(dir, "expired-ca", &expired_ca);
    certs_join(dir, "cas", "expired-ca.crt", "ca.crt");
    certs_make(dir, "server",
               &(struct cert){.cn = "server",
                              .san = "DNS:db.example,DNS:*.wild.example,IP:127.0.0.1,IP:::1",
                              .issuer = "ca"});
    certs_make(dir, "expired", &(struct cert){.cn = "db.example", .issuer = "expired-ca"});
    certs_make(dir, "alice", &(struct cert){.cn = "alice", .issuer = "ca"});
    certs_make(dir, "mallory", &(struct cert){.cn = "alice", .issuer = "other-ca"});
    return 0;
}

static int teardown(void **state)
{
    certs_remove(dir);
    return 0;
}

static struct fli_tls_context *make(struct fli_tls_config config)
{
    char errmsg[FLI_TLS_ERRMSG_SIZE];
    struct fli_tls_context *c = NULL;
    if (fli_tls_context_create(&config, &c, errmsg, sizeof errmsg) != 0) {
        fail_msg("%s", errmsg);
    }
    return c;
}

static struct fli_tls_context *server_of(enum fli_tls_auth auth, const char *protocols)
{
    return make((struct fli_tls_config){.server = true,
                                        .cert_file = in_dir("server.crt"),
                                        .key_file = in_dir("server.key"),
                                        .ca_file = in_dir("ca.crt"),
                                        .auth = auth,
                                        .protocols = protocols});
}

/* name: of its certificate, or NULL for none. */
static struct fli_tls_context *client_of(const char *name, const char *ca)
{
    char crt[64];
    char key[64];
    (void)snprintf(crt, sizeof crt, "%s.crt", name == NULL ? "" : name);
    (void)snprintf(key, sizeof key, "%s.key", name == NULL ? "" : name);
    return make((struct fli_tls_config){.cert_file = name == NULL ? NULL : in_dir(crt),
                                        .key_file = name == NULL ? NULL : in_dir(key),
                                        .ca_file = in_dir(ca)});
}

/* Two ends, and what is on its way between them. */
struct end {
    struct fli_tls *tls;
    struct fli_buf out, plain;
    int rc;
};

struct pair {
    struct end client, server;
    size_t step; /* bytes that travel at once; 0: all */
};

static void end_init(struct end *e, struct fli_tls_context *c, const char *name)
{
    e->tls = NULL;
    e->rc = 0;
    fli_buf_init(&e->out, BUF_MAX);
    fli_buf_init(&e->plain, BUF_MAX);
    assert_int_equal(fli_tls_create(c, name, &e->tls), 0);
}

static void end_fini(struct end *e)
{
    fli_tls_destroy(e->tls);
    fli_buf_fini(&e->out);
    fli_buf_fini(&e->plain);
}

static void pair_init(struct pair *p, struct fli_tls_context *client,
                      struct fli_tls_context *server, const char *name, size_t step)
{
    p->step = step;
    end_init(&p->client, client, name);
    end_init(&p->server, server, NULL);
    p->client.rc = fli_tls_read(p->client.tls, NULL, 0, &p->client.plain, &p->client.out);
    assert_int_equal(p->client.rc, 0);
    assert_true(p->client.out.len > 0);
}

static void pair_fini(struct pair *p)
{
    end_fini(&p->client);
    end_fini(&p->server);
}

/* Carries the bytes that one end has written to the other end. */
static bool carry(struct pair *p, struct end *from, struct end *to)
{
    bool moved = from->out.len > 0;
    for (size_t at = 0; at < from->out.len && to->rc == 0;) {
        size_t left = from->out.len - at;
        size_t n = p->step != 0 && p->step < left ? p->step : left;
        to->rc = fli_tls_read(to->tls, from->out.data + at, n, &to->plain, &to->out);
        at += n;
    }
    fli_buf_clear(&from->out);
    return moved;
}

static void settle(struct pair *p)
{
    bool moved = true;
    while (moved) {
        moved = carry(p, &p->client, &p->server);
        moved = carry(p, &p->server, &p->client) || moved;
    }
}

static void assert_open(const struct pair *p)
{
    if (p->client.rc != 0 || p->server.rc != 0) {
        fail_msg("client: '%s', server: '%s'", fli_tls_error(p->client.tls),
                 fli_tls_error(p->server.tls));
    }
    assert_int_equal(fli_tls_state(p->client.tls), FLI_TLS_OPEN);
    assert_int_equal(fli_tls_state(p->server.tls), FLI_TLS_OPEN);
}

static void say(struct pair *p, struct end *from, struct end *to, size_t len)
{
    uint8_t *data = malloc(len + 1);
    assert_non_null(data);
    for (size_t i = 0; i < len; i++) {
        data[i] = (uint8_t)(i * 31 + len);
    }
    fli_buf_clear(&to->plain);
    assert_int_equal(fli_tls_write(from->tls, data, len, &from->out), 0);
    assert_true(from->out.len <= FLI_TLS_CIPHER_MAX(len));
    settle(p);
    assert_int_equal(to->rc, 0);
    assert_int_equal(to->plain.len, len);
    assert_memory_equal(to->plain.data, data, len);
    free(data);
}

TEST(round_trips)
{
    static const char *const versions[] = {"TLSv1.2", "TLSv1.3"};
    static const size_t sizes[] = {1, 2, 100, 16383, 16384, 16385, 100000, 1000000};
    static const size_t steps[] = {0, 1, 7, 1000, 65536};
    for (size_t v = 0; v < 2; v++) {
        struct fli_tls_context *server = server_of(FLI_TLS_AUTH_REQUIRED, versions[v]);
        struct fli_tls_context *client = client_of("alice", "ca.crt");
        for (size_t s = 0; s < sizeof steps / sizeof steps[0]; s++) {
            struct pair p;
            char name[FLI_TLS_NAME_MAX];
            pair_init(&p, client, server, "db.example", steps[s]);
            assert_int_equal(fli_tls_state(p.server.tls), FLI_TLS_SHAKING);
            assert_false(fli_tls_peer_name(p.server.tls, name));
            settle(&p);
            assert_open(&p);
            assert_string_equal(fli_tls_version(p.client.tls), versions[v]);
            for (size_t i = 0; i < (steps[s] == 1 ? 6 : sizeof sizes / sizeof sizes[0]); i++) {
                say(&p, &p.client, &p.server, sizes[i]);
                say(&p, &p.server, &p.client, sizes[i]);
            }
            assert_true(fli_tls_peer_name(p.server.tls, name));
            assert_string_equal(name, "alice");
            assert_true(fli_tls_peer_name(p.client.tls, name));
            assert_string_equal(name, "server");
            pair_fini(&p);
        }
        fli_tls_context_destroy(client);
        fli_tls_context_destroy(server);
    }
}

/* A peer that goes away in the middle leaves nothing behind, wherever that is. Where each handshake
 * takes long, tests/integration/tls_memory.py has only some of the bytes tried. */
TEST(cut_at_every_byte)
{
    struct fli_tls_context *server = server_of(FLI_TLS_AUTH_REQUIRED, NULL);
    struct fli_tls_context *client = client_of("alice", "ca.crt");
    bool whole = false;
    const char *wanted = getenv("FENCELOCK_CUT_STEP");
    size_t step = wanted == NULL ? 1 : strtoul(wanted, NULL, 10);
    assert_true(step > 0);
    size_t at = 0;
    size_t cuts = 0;
    for (; !whole; at += step) {
        struct pair p;
        pair_init(&p, client, server, "db.example", 0);
        size_t left = at;
        while (left > 0 && p.client.out.len > 0) {
            size_t n = left < p.client.out.len ? left : p.client.out.len;
            assert_int_equal(
                fli_tls_read(p.server.tls, p.client.out.data, n, &p.server.plain, &p.server.out),
                0);
            fli_buf_consume(&p.client.out, n);
            left -= n;
            (void)carry(&p, &p.server, &p.client);
        }
        whole = fli_tls_state(p.server.tls) == FLI_TLS_OPEN;
        assert_true(whole || left == 0); /* signatures differ in length by a byte or two */
        if (whole) {
            assert_open(&p);
        }
        cuts++;
        pair_fini(&p);
        whole = whole || at > 20000;
    }
    assert_in_range(at, 500, 19999);
    print_message("cut off: %zu\n", cuts);
    fli_tls_context_destroy(client);
    fli_tls_context_destroy(server);
}

static void assert_client_refuses(struct fli_tls_context *client, struct fli_tls_context *server,
                                  const char *name, const char *why)
{
    struct pair p;
    pair_init(&p, client, server, name, 0);
    settle(&p);
    assert_int_equal(p.client.rc, FL_EPROTO);
    assert_int_equal(fli_tls_state(p.client.tls), FLI_TLS_FAILED);
    if (strstr(fli_tls_error(p.client.tls), why) == NULL) {
        fail_msg("'%s' does not say '%s'", fli_tls_error(p.client.tls), why);
    }
    assert_false(fli_tls_was_refused(p.client.tls));
    assert_true(fli_tls_was_refused(p.server.tls)); /* it has heard why */
    assert_non_null(strstr(fli_tls_error(p.server.tls), "the other side refuses"));
    pair_fini(&p);
}

TEST(names)
{
    struct fli_tls_context *server = server_of(FLI_TLS_AUTH_NO, NULL);
    struct fli_tls_context *client = client_of(NULL, "ca.crt");
    static const char *const good[] = {"db.example", "DB.Example", "a.wild.example", "127.0.0.1",
                                       "::1"};
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        struct pair p;
        pair_init(&p, client, server, good[i], 0);
        settle(&p);
        assert_open(&p);
        assert_true(fli_tls_peer_is(p.client.tls, good[i]));
        assert_false(fli_tls_peer_is(p.client.tls, "evil.example"));
        assert_false(fli_tls_peer_is(p.server.tls, good[i]));
        pair_fini(&p);
    }
    assert_client_refuses(client, server, "evil.example", "hostname mismatch");
    assert_client_refuses(client, server, "a.b.wild.example", "hostname mismatch");
    assert_client_refuses(client, server, "wild.example", "hostname mismatch");
    assert_client_refuses(client, server, "server", "hostname mismatch"); /* a CN is no host */
    assert_client_refuses(client, server, "127.0.0.2", "IP address mismatch");
    fli_tls_context_destroy(client);
    fli_tls_context_destroy(server);
}

TEST(untrusted_servers)
{
    struct fli_tls_context *server = server_of(FLI_TLS_AUTH_NO, NULL);
    struct fli_tls_context *client = client_of(NULL, "other-ca.crt");
    assert_client_refuses(client, server, "db.example", "unable to get local issuer certificate");
    fli_tls_context_destroy(client);
    fli_tls_context_destroy(server);
    server = make((struct fli_tls_config){
        .server = true, .cert_file = in_dir("expired.crt"), .key_file = in_dir("expired.key")});
    client = client_of(NULL, "cas");
    assert_client_refuses(client, server, "db.example", "certificate has expired");
    fli_tls_context_destroy(client);
    fli_tls_context_destroy(server);
}

static void assert_server_refuses(struct fli_tls_context *client, struct fli_tls_context *server,
                                  const char *why, const char *heard)
{
    struct pair p;
    pair_init(&p, client, server, "db.example", 0);
    settle(&p);
    assert_int_equal(p.server.rc, FL_EPROTO);
    if (strstr(fli_tls_error(p.server.tls), why) == NULL) {
        fail_msg("'%s' does not say '%s'", fli_tls_error(p.server.tls), why);
    }
    assert_true(fli_tls_was_refused(p.client.tls));
    if (strstr(fli_tls_error(p.client.tls), heard) == NULL) {
        fail_msg("'%s' does not say '%s'", fli_tls_error(p.client.tls), heard);
    }
    assert_int_equal(p.server.plain.len, 0);
    pair_fini(&p);
}

/* In TLS 1.3 a client is through before the server has seen its certificate. */
TEST(clients)
{
    static const char *const versions[] = {"TLSv1.2", "TLSv1.3"};
    struct fli_tls_context *nobody = client_of(NULL, "ca.crt");
    struct fli_tls_context *mallory = client_of("mallory", "ca.crt");
    struct fli_tls_context *alice = client_of("alice", "ca.crt");
    for (size_t v = 0; v < 2; v++) {
        struct fli_tls_context *server = server_of(FLI_TLS_AUTH_REQUIRED, versions[v]);
        assert_server_refuses(nobody, server, "did not return a certificate",
                              v == 0 ? "handshake failure" : "certificate required");
        assert_server_refuses(mallory, server, "unable to get local issuer certificate",
                              "unknown CA");
        fli_tls_context_destroy(server);
        server = server_of(FLI_TLS_AUTH_OPTIONAL, versions[v]);
        assert_server_refuses(mallory, server, "unable to get local issuer certificate",
                              "unknown CA");
        struct fli_tls_context *const fine[] = {nobody, alice};
        for (size_t i = 0; i < 2; i++) {
            char name[FLI_TLS_NAME_MAX];
            struct pair p;
            pair_init(&p, fine[i], server, "db.example", 0);
            settle(&p);
            assert_open(&p);
            assert_int_equal(fli_tls_peer_name(p.server.tls, name), i == 1);
            pair_fini(&p);
        }
        fli_tls_context_destroy(server);
    }
    fli_tls_context_destroy(nobody);
    fli_tls_context_destroy(mallory);
    fli_tls_context_destroy(alice);
}

TEST(versions_that_differ)
{
    struct fli_tls_context *server = server_of(FLI_TLS_AUTH_NO, "TLSv1.3");
    struct fli_tls_context *client =
        make((struct fli_tls_config){.ca_file = in_dir("ca.crt"), .protocols = "TLSv1.2"});
    struct pair p;
    pair_init(&p, client, server, "db.example", 0);
    settle(&p);
    assert_int_equal(p.server.rc, FL_EPROTO);
    assert_non_null(strstr(fli_tls_error(p.server.tls), "unsupported protocol"));
    assert_non_null(strstr(fli_tls_error(p.client.tls), "protocol version"));
    pair_fini(&p);
    fli_tls_context_destroy(client);
    fli_tls_context_destroy(server);
}

TEST(what_is_no_handshake)
{
    static const char *const words[] = {"PING\r\n",
                                        "*1\r\n$4\r\nPING\r\n",
                                        "GET / HTTP/1.0\r\n\r\n",
                                        "\x16\x03\x01\xff\xff\x01\xff\xff\xff garbage",
                                        "\x80\x2e\x01\x03\x01 an SSLv2 hello, nearly",
                                        "\x17\x03\x03\x00\x05hello",
                                        "\x15\x03\x03\x00\x02\x02\x28"};
    struct fli_tls_context *server = server_of(FLI_TLS_AUTH_NO, NULL);
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        struct end e;
        char filler[20000];
        end_init(&e, server, NULL);
        memset(filler, 'x', sizeof filler);
        size_t len = i >= 3 ? 12 : strlen(words[i]);
        len = i == 6 ? 7 : i == 5 ? 10 : len;
        int rc = fli_tls_read(e.tls, words[i], len, &e.plain, &e.out);
        if (rc == 0) {
            rc = fli_tls_read(e.tls, filler, sizeof filler, &e.plain, &e.out);
        }
        assert_int_equal(rc, FL_EPROTO);
        assert_true(strlen(fli_tls_error(e.tls)) > 0);
        assert_int_equal(e.plain.len, 0);
        end_fini(&e);
    }
    fli_tls_context_destroy(server);
}

/* A peer whose handshake never gets complete is given up after a limited number of bytes. */
TEST(handshake_without_end)
{
    struct fli_tls_context *server = server_of(FLI_TLS_AUTH_NO, NULL);
    struct end e;
    end_init(&e, server, NULL);
    /* A ClientHello that claims 131,000 bytes, in records of one byte. */
    static const uint8_t start[] = {0x16, 3, 1, 0, 4, 1, 1, 0xff, 0x00};
    static const uint8_t more[] = {0x16, 3, 1, 0, 1, 0};
    int rc = fli_tls_read(e.tls, start, sizeof start, &e.plain, &e.out);
    size_t sent = sizeof start;
    while (rc == 0 && sent < 4 * FLI_TLS_HANDSHAKE_MAX) {
        rc = fli_tls_read(e.tls, more, sizeof more, &e.plain, &e.out);
        sent += sizeof more;
    }
    assert_int_equal(rc, FL_EPROTO);
    assert_in_range(sent, 1, FLI_TLS_HANDSHAKE_MAX + sizeof more);
    end_fini(&e);
    fli_tls_context_destroy(server);
}

TEST(orderly_end)
{
    static const char *const versions[] = {"TLSv1.2", "TLSv1.3"};
    for (size_t v = 0; v < 2; v++) {
        struct fli_tls_context *server = server_of(FLI_TLS_AUTH_NO, versions[v]);
        struct fli_tls_context *client = client_of(NULL, "ca.crt");
        struct pair p;
        pair_init(&p, client, server, "db.example", 0);
        fli_tls_end(p.client.tls, &p.server.out); /* too early: nothing is said */
        assert_int_equal(p.server.out.len, 0);
        settle(&p);
        assert_int_equal(fli_tls_write(p.client.tls, "last", 4, &p.client.out), 0);
        fli_tls_end(p.client.tls, &p.client.out);
        settle(&p);
        assert_int_equal(p.server.rc, 0);
        assert_int_equal(fli_tls_state(p.server.tls), FLI_TLS_ENDED);
        assert_int_equal(p.server.plain.len, 4);
        /* The other direction is open still. */
        assert_int_equal(fli_tls_write(p.server.tls, "answer", 6, &p.server.out), 0);
        settle(&p);
        assert_int_equal(p.client.plain.len, 6);
        fli_tls_end(p.server.tls, &p.server.out);
        settle(&p);
        assert_int_equal(fli_tls_state(p.client.tls), FLI_TLS_ENDED);
        pair_fini(&p);
        fli_tls_context_destroy(client);
        fli_tls_context_destroy(server);
    }
}

/* When one bit of a record has changed, no byte of it is passed on. */
TEST(records_with_a_changed_bit)
{
    struct fli_tls_context *server = server_of(FLI_TLS_AUTH_NO, NULL);
    struct fli_tls_context *client = client_of(NULL, "ca.crt");
    for (size_t bit = 0; bit < 8 * 38; bit += 7) {
        struct pair p;
        pair_init(&p, client, server, "db.example", 0);
        settle(&p);
        assert_open(&p);
        assert_int_equal(fli_tls_write(p.client.tls, "RELEASE a lock 7", 16, &p.client.out), 0);
        assert_int_equal(p.client.out.len, 38);
        p.client.out.data[bit / 8] ^= (uint8_t)(1u << bit % 8);
        settle(&p);
        assert_int_equal(p.server.plain.len, 0);
        pair_fini(&p);
    }
    fli_tls_context_destroy(client);
    fli_tls_context_destroy(server);
}

TEST(no_room)
{
    struct fli_tls_context *server = server_of(FLI_TLS_AUTH_NO, NULL);
    struct fli_tls_context *client = client_of(NULL, "ca.crt");
    static const size_t lens[] = {FLI_TLS_RECORD_MAX, FLI_TLS_RECORD_MAX + 1};
    for (unsigned i = 0; i < 2; i++) {
        struct pair p;
        uint8_t data[FLI_TLS_RECORD_MAX + 1];
        memset(data, 'x', sizeof data);
        pair_init(&p, client, server, "db.example", 0);
        settle(&p);
        fli_buf_fini(&p.server.plain);
        fli_buf_init(&p.server.plain, FLI_TLS_RECORD_MAX);
        assert_int_equal(fli_tls_write(p.client.tls, data, lens[i], &p.client.out), 0);
        settle(&p);
        assert_int_equal(p.server.rc, i == 0 ? 0 : FL_ELIMIT);
        pair_fini(&p);
    }
    struct end e;
    end_init(&e, server, NULL);
    fli_buf_init(&e.out, 10); /* too little for a server's first words */
    struct end c;
    end_init(&c, client, "db.example");
    assert_int_equal(fli_tls_read(c.tls, NULL, 0, &c.plain, &c.out), 0);
    assert_int_equal(fli_tls_read(e.tls, c.out.data, c.out.len, &e.plain, &e.out), FL_ELIMIT);
    end_fini(&c);
    end_fini(&e);
    fli_tls_context_destroy(client);
    fli_tls_context_destroy(server);
}

/* A client that asks for what ours never would: OpenSSL itself, between memory BIOs. */
struct raw {
    SSL_CTX *ctx;
    SSL *ssl;
    struct end server;
};

static void raw_carry(struct raw *r)
{
    static uint8_t bytes[65536];
    for (int i = 0; i < 8; i++) {
        int n = BIO_read(SSL_get_wbio(r->ssl), bytes, sizeof bytes);
        if (n > 0 && r->server.rc == 0) {
            r->server.rc =
                fli_tls_read(r->server.tls, bytes, (size_t)n, &r->server.plain, &r->server.out);
        }
        if (r->server.out.len > 0) {
            assert_int_equal(
                BIO_write(SSL_get_rbio(r->ssl), r->server.out.data, (int)r->server.out.len),
                (int)r->server.out.len);
            fli_buf_clear(&r->server.out);
        }
        char text[256];
        (void)!SSL_read(r->ssl, text, sizeof text);
    }
}

static void raw_init(struct raw *r, struct fli_tls_context *server, int version)
{
    r->ctx = SSL_CTX_new(TLS_client_method());
    SSL_CTX_set_max_proto_version(r->ctx, version);
    r->ssl = SSL_new(r->ctx);
    SSL_set_bio(r->ssl, BIO_new(BIO_s_mem()), BIO_new(BIO_s_mem()));
    SSL_set_connect_state(r->ssl);
    end_init(&r->server, server, NULL);
    (void)!SSL_do_handshake(r->ssl);
    raw_carry(r);
    assert_int_equal(fli_tls_state(r->server.tls), FLI_TLS_OPEN);
}

static void raw_fini(struct raw *r)
{
    end_fini(&r->server);
    SSL_free(r->ssl);
    SSL_CTX_free(r->ctx);
}

TEST(renegotiation)
{
    struct fli_tls_context *server = server_of(FLI_TLS_AUTH_NO, NULL);
    struct raw r;
    raw_init(&r, server, TLS1_2_VERSION);
    assert_int_equal(SSL_renegotiate(r.ssl), 1);
    (void)!SSL_do_handshake(r.ssl);
    raw_carry(&r);
    assert_int_not_equal(SSL_do_handshake(r.ssl), 1); /* refused, and the old keys stay */
    raw_fini(&r);
    fli_tls_context_destroy(server);
}

TEST(no_resumption)
{
    static const int versions[] = {TLS1_2_VERSION, TLS1_3_VERSION};
    struct fli_tls_context *server = server_of(FLI_TLS_AUTH_OPTIONAL, NULL);
    for (unsigned i = 0; i < 2; i++) {
        struct raw r;
        raw_init(&r, server, versions[i]);
        SSL_SESSION *session = SSL_get1_session(r.ssl);
        assert_false(SSL_SESSION_is_resumable(session) && SSL_SESSION_has_ticket(session));
        SSL *again = SSL_new(r.ctx);
        SSL_set_bio(again, BIO_new(BIO_s_mem()), BIO_new(BIO_s_mem()));
        assert_int_equal(SSL_set_session(again, session), 1);
        SSL_set_connect_state(again);
        SSL_free(r.ssl);
        r.ssl = again;
        end_fini(&r.server);
        end_init(&r.server, server, NULL);
        (void)!SSL_do_handshake(r.ssl);
        raw_carry(&r);
        assert_int_equal(fli_tls_state(r.server.tls), FLI_TLS_OPEN);
        assert_int_equal(SSL_session_reused(r.ssl), 0);
        SSL_SESSION_free(session);
        raw_fini(&r);
    }
    fli_tls_context_destroy(server);
}

TEST(new_keys)
{
    struct fli_tls_context *server = server_of(FLI_TLS_AUTH_NO, NULL);
    struct raw r;
    raw_init(&r, server, TLS1_3_VERSION);
    for (int i = 0; i < 100; i++) {
        assert_int_equal(SSL_key_update(r.ssl, SSL_KEY_UPDATE_REQUESTED), 1);
        assert_int_equal(SSL_write(r.ssl, "x", 1), 1);
        raw_carry(&r);
    }
    assert_int_equal(r.server.rc, 0);
    assert_int_equal(r.server.plain.len, 100);
    raw_fini(&r);
    fli_tls_context_destroy(server);
}

/* What a connection costs while nothing is said, with a certificate at both ends. */
TEST(idle_memory)
{
    enum { N = 200 };
    static struct pair pairs[N];
    static const char *const versions[] = {"TLSv1.2", "TLSv1.3"};
    if (UNDER_ASAN) {
        skip();
    }
    for (size_t v = 0; v < 2; v++) {
        struct fli_tls_context *server = server_of(FLI_TLS_AUTH_REQUIRED, versions[v]);
        struct fli_tls_context *client = client_of("alice", "ca.crt");
        size_t before = 0;
        for (unsigned i = 0; i < N + 1; i++) {
            if (i == 1) { /* the first one has made what is made once */
                before = mallinfo2().uordblks;
            }
            struct pair *p = &pairs[i == 0 ? 0 : i - 1];
            pair_init(p, client, server, "db.example", 0);
            settle(p);
            assert_open(p);
            say(p, &p->client, &p->server, 100);
            say(p, &p->server, &p->client, 20000);
            end_fini(&p->client);
            fli_buf_fini(&p->server.plain);
            fli_buf_fini(&p->server.out);
            if (i == 0) {
                end_fini(&p->server);
            }
        }
        size_t each = (mallinfo2().uordblks - before) / N;
        print_message("an idle %s session takes %zu bytes\n", versions[v], each);
        assert_in_range(each, 1, IDLE_MAX);
        for (unsigned i = 0; i < N; i++) {
            fli_tls_destroy(pairs[i].server.tls);
        }
        fli_tls_context_destroy(client);
        fli_tls_context_destroy(server);
    }
}

/* Sessions live on when their context is gone. */
TEST(without_its_context)
{
    struct fli_tls_context *server = server_of(FLI_TLS_AUTH_NO, NULL);
    struct fli_tls_context *client = client_of(NULL, "ca.crt");
    struct pair p;
    pair_init(&p, client, server, "db.example", 0);
    fli_tls_context_destroy(client);
    fli_tls_context_destroy(server);
    settle(&p);
    assert_open(&p);
    say(&p, &p.client, &p.server, 5);
    pair_fini(&p);
}

/* With a word: only the tests that it matches. */

int main(int argc, char **argv)
{
    return unit_run(argc, argv, setup, teardown);
}
