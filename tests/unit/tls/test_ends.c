/* test_ends.c: connections between equals: certificates that must bear a name, and secrets that are
 * proved without being sent. Also handshakes of all kinds that are cut off, at every byte. */
#include "../../lib/unit.h"

#include "certs.h"
#include "tls/tls.h"

#define BUF_MAX ((size_t)4 << 20)
#define PSK_CONTEXT "x-node-1 to x-node-2"
#define SECRET_A "0123456789abcdef0123456789abcdef"
#define SECRET_B "another secret, of the same length!"

static char dir[64];

static const char *in_dir(const char *name)
{
    static char text[8][128];
    static unsigned turn;
    char *at = text[turn++ % 8];
    (void)snprintf(at, sizeof text[0], "%s/%s", dir, name);
    return at;
}

static void write_text(const char *name, const char *text)
{
    certs_write(dir, name, text, strlen(text));
}

static int setup(void **state)
{
    (void)certs_dir(dir);
    certs_make(dir, "ca", &(struct cert){.cn = "test CA", .ca = true});
    certs_make(dir, "other-ca", &(struct cert){.cn = "other CA", .ca = true});
    certs_make(dir, "one", &(struct cert){.cn = "one", .san = "DNS:x-node-1", .issuer = "ca"});
    certs_make(dir, "two",
               &(struct cert){.cn = "two", .san = "DNS:db.example,DNS:x-node-2", .issuer = "ca"});
    certs_make(dir, "wild", &(struct cert){.cn = "w", .san = "DNS:*.example", .issuer = "ca"});
    certs_make(dir, "cn", &(struct cert){.cn = "x-node-2", .issuer = "ca"});
    certs_make(dir, "evil",
               &(struct cert){.cn = "evil", .san = "DNS:x-node-2", .issuer = "other-ca"});
    certs_make(dir, "late",
               &(struct cert){.cn = "late",
                              .san = "DNS:x-node-2",
                              .begins_days = -9,
                              .ends_days = -1,
                              .issuer = "ca"});
    write_text("a", SECRET_A "\n");
    write_text("b", "# a comment\n\n  " SECRET_B " \r\n");
    write_text("ab", SECRET_A "\n" SECRET_B "\n");
    return 0;
}

static int teardown(void **state)
{
    certs_remove(dir);
    return 0;
}

static int try_make(struct fli_tls_config config, struct fli_tls_context **ret, char *errmsg)
{
    config.both = true;
    return fli_tls_context_create(&config, ret, errmsg, FLI_TLS_ERRMSG_SIZE);
}

static struct fli_tls_context *make(struct fli_tls_config config)
{
    char errmsg[FLI_TLS_ERRMSG_SIZE];
    struct fli_tls_context *c = NULL;
    if (try_make(config, &c, errmsg) != 0) {
        fail_msg("%s", errmsg);
    }
    return c;
}

static struct fli_tls_context *by_secret(const char *file)
{
    return make((struct fli_tls_config){.secret_file = in_dir(file)});
}

static struct fli_tls_config cert_config(const char *name, const char *ca)
{
    char crt[64];
    char key[64];
    (void)snprintf(crt, sizeof crt, "%s.crt", name);
    (void)snprintf(key, sizeof key, "%s.key", name);
    return (struct fli_tls_config){
        .cert_file = in_dir(crt), .key_file = in_dir(key), .ca_file = in_dir(ca)};
}

static struct fli_tls_context *by_cert(const char *name)
{
    return make(cert_config(name, "ca.crt"));
}

/* The one that calls, and the one that is called. */
struct end {
    struct fli_tls *tls;
    struct fli_buf out, plain;
    int rc;
};

struct pair {
    struct end a, b;
};

static void end_init(struct end *e)
{
    e->rc = 0;
    fli_buf_init(&e->out, BUF_MAX);
    fli_buf_init(&e->plain, BUF_MAX);
}

static void end_fini(struct end *e)
{
    fli_tls_destroy(e->tls);
    fli_buf_fini(&e->out);
    fli_buf_fini(&e->plain);
}

static void pair_init(struct pair *p, struct fli_tls_context *a, struct fli_tls_context *b,
                      const char *name)
{
    end_init(&p->a);
    end_init(&p->b);
    assert_int_equal(fli_tls_create_end(a, true, name, PSK_CONTEXT, &p->a.tls), 0);
    assert_int_equal(fli_tls_create_end(b, false, NULL, NULL, &p->b.tls), 0);
    assert_int_equal(fli_tls_read(p->a.tls, NULL, 0, &p->a.plain, &p->a.out), 0);
}

static void pair_fini(struct pair *p)
{
    end_fini(&p->a);
    end_fini(&p->b);
}

/* Carries at most *budget bytes of what one has to say to the other. */
static bool carry(struct end *from, struct end *to, size_t *budget)
{
    size_t n = from->out.len < *budget ? from->out.len : *budget;
    if (n == 0) {
        return false;
    }
    if (to->rc == 0) {
        to->rc = fli_tls_read(to->tls, from->out.data, n, &to->plain, &to->out);
    }
    fli_buf_consume(&from->out, n);
    *budget -= n;
    return true;
}

static void settle(struct pair *p, size_t from_a, size_t from_b)
{
    bool moved = true;
    while (moved) {
        moved = carry(&p->a, &p->b, &from_a);
        moved = carry(&p->b, &p->a, &from_b) || moved;
    }
}

static bool is_open(const struct pair *p)
{
    return p->a.rc == 0 && p->b.rc == 0 && fli_tls_state(p->a.tls) == FLI_TLS_OPEN &&
           fli_tls_state(p->b.tls) == FLI_TLS_OPEN;
}

static void must_open(struct fli_tls_context *a, struct fli_tls_context *b, const char *psk_context)
{
    struct pair p;
    pair_init(&p, a, b, "x-node-2");
    settle(&p, SIZE_MAX, SIZE_MAX);
    if (!is_open(&p)) {
        fail_msg("a: '%s', b: '%s'", fli_tls_error(p.a.tls), fli_tls_error(p.b.tls));
    }
    assert_string_equal(fli_tls_version(p.b.tls), "TLSv1.3");
    assert_null(fli_tls_peer_psk_context(p.a.tls));
    if (psk_context == NULL) {
        assert_null(fli_tls_peer_psk_context(p.b.tls));
    } else {
        assert_string_equal(fli_tls_peer_psk_context(p.b.tls), psk_context);
    }
    assert_int_equal(fli_tls_write(p.a.tls, "ping", 4, &p.a.out), 0);
    assert_int_equal(fli_tls_write(p.b.tls, "pong", 4, &p.b.out), 0);
    settle(&p, SIZE_MAX, SIZE_MAX);
    assert_memory_equal(p.a.plain.data, "pong", 4);
    assert_memory_equal(p.b.plain.data, "ping", 4);
    pair_fini(&p);
}

static void must_fail(struct fli_tls_context *a, struct fli_tls_context *b, const char *a_says,
                      const char *b_says)
{
    struct pair p;
    pair_init(&p, a, b, "x-node-2");
    settle(&p, SIZE_MAX, SIZE_MAX);
    assert_false(is_open(&p));
    assert_true(p.a.rc != 0 && p.b.rc != 0);
    if (strstr(fli_tls_error(p.a.tls), a_says) == NULL ||
        strstr(fli_tls_error(p.b.tls), b_says) == NULL) {
        fail_msg("a: '%s', b: '%s'", fli_tls_error(p.a.tls), fli_tls_error(p.b.tls));
    }
    assert_int_equal(p.a.plain.len + p.b.plain.len, 0);
    assert_null(fli_tls_peer_psk_context(p.b.tls));
    pair_fini(&p);
}

TEST(the_same_secret)
{
    struct fli_tls_context *a = by_secret("a");
    struct fli_tls_context *b = by_secret("b");
    struct fli_tls_context *ab = by_secret("ab");
    must_open(a, a, PSK_CONTEXT);
    must_open(b, b, PSK_CONTEXT);
    /* While it is being changed: who calls uses the first, who is called takes either. */
    must_open(a, ab, PSK_CONTEXT);
    must_open(b, ab, PSK_CONTEXT);
    must_open(ab, a, PSK_CONTEXT);
    must_fail(ab, b, "handshake failure", "");
    fli_tls_context_destroy(a);
    fli_tls_context_destroy(b);
    fli_tls_context_destroy(ab);
}

TEST(another_secret)
{
    struct fli_tls_context *a = by_secret("a");
    struct fli_tls_context *b = by_secret("b");
    must_fail(a, b, "handshake failure", "");
    must_fail(b, a, "handshake failure", "");
    fli_tls_context_destroy(a);
    fli_tls_context_destroy(b);
}

/* An end with a secret refuses an end that has only a certificate, of whatever CA, and the other
 * way round. */
TEST(a_secret_and_a_certificate)
{
    struct fli_tls_context *a = by_secret("a");
    struct fli_tls_context *two = by_cert("two");
    must_fail(two, a, "handshake failure", "");
    must_fail(a, two, "", "");
    fli_tls_context_destroy(a);
    fli_tls_context_destroy(two);
}

/* The name of the secret is known to who listens. Without the secret it is of no use. */
TEST(a_proof_without_the_secret)
{
    struct fli_tls_context *a = by_secret("a");
    for (unsigned bit = 0; bit < 8 * 32; bit += 11) {
        struct pair p;
        pair_init(&p, a, a, "x-node-2");
        assert_true(p.a.out.len > 64);
        p.a.out.data[p.a.out.len - 1 - bit / 8] ^= (uint8_t)(1u << bit % 8); /* the proof is last */
        settle(&p, SIZE_MAX, SIZE_MAX);
        assert_int_equal(p.b.rc, FL_EPROTO);
        assert_null(fli_tls_peer_psk_context(p.b.tls));
        pair_fini(&p);
    }
    fli_tls_context_destroy(a);
}

/* The claim is covered by the proof. */
TEST(a_psk_context_that_was_changed)
{
    struct fli_tls_context *a = by_secret("a");
    struct pair p;
    pair_init(&p, a, a, "x-node-2");
    char *at = memmem(p.a.out.data, p.a.out.len, PSK_CONTEXT, strlen(PSK_CONTEXT));
    assert_non_null(at);
    at[strlen("x-node-")] = '3';
    settle(&p, SIZE_MAX, SIZE_MAX);
    assert_int_equal(p.b.rc, FL_EPROTO);
    assert_null(fli_tls_peer_psk_context(p.b.tls));
    pair_fini(&p);
    fli_tls_context_destroy(a);
}

/* What was recorded of one connection opens no other. */
TEST(a_handshake_that_was_recorded)
{
    struct fli_tls_context *a = by_secret("a");
    struct fli_buf said;
    struct pair p;
    fli_buf_init(&said, BUF_MAX);
    pair_init(&p, a, a, "x-node-2");
    bool moved = true;
    while (moved) {
        size_t all = SIZE_MAX;
        assert_int_equal(fli_buf_append(&said, p.a.out.data, p.a.out.len), 0);
        moved = carry(&p.a, &p.b, &all);
        moved = carry(&p.b, &p.a, &all) || moved;
    }
    assert_true(is_open(&p));
    pair_fini(&p);
    struct end e;
    end_init(&e);
    assert_int_equal(fli_tls_create_end(a, false, NULL, NULL, &e.tls), 0);
    assert_int_equal(fli_tls_read(e.tls, said.data, said.len, &e.plain, &e.out), FL_EPROTO);
    assert_null(fli_tls_peer_psk_context(e.tls));
    end_fini(&e);
    fli_buf_fini(&said);
    fli_tls_context_destroy(a);
}

TEST(names)
{
    struct fli_tls_context *one = by_cert("one");
    struct fli_tls_context *two = by_cert("two");
    struct fli_tls_context *wild = by_cert("wild");
    struct fli_tls_context *cn = by_cert("cn");
    struct pair p;
    must_open(one, two, NULL);
    must_fail(one, one, "hostname mismatch", "refuses");
    must_fail(one, cn, "hostname mismatch", "refuses"); /* a CN is no name of a node */
    pair_init(&p, one, wild, "a.example");              /* nor is a wildcard */
    settle(&p, SIZE_MAX, SIZE_MAX);
    assert_int_equal(p.a.rc, FL_EPROTO);
    pair_fini(&p);
    pair_init(&p, one, two, "x-node-2");
    settle(&p, SIZE_MAX, SIZE_MAX);
    assert_true(fli_tls_peer_bears(p.b.tls, "x-node-1"));
    assert_false(fli_tls_peer_bears(p.b.tls, "x-node-11"));
    assert_false(fli_tls_peer_bears(p.b.tls, "one"));
    assert_true(fli_tls_peer_bears(p.a.tls, "db.example"));
    pair_fini(&p);
    fli_tls_context_destroy(one);
    fli_tls_context_destroy(two);
    fli_tls_context_destroy(wild);
    fli_tls_context_destroy(cn);
}

/* Certificates that are not fit for use are not taken into use in the first place, so a stranger's
 * context is made with another CA. */
TEST(strangers)
{
    struct fli_tls_context *one = by_cert("one");
    struct fli_tls_context *evil = make(cert_config("evil", "other-ca.crt"));
    must_fail(one, evil, "unable to get local issuer", "refuses");
    must_fail(evil, one, "unable to get local issuer", "refuses");
    fli_tls_context_destroy(one);
    fli_tls_context_destroy(evil);
}

TEST(wrong_files)
{
    static const char many[] = SECRET_A "\n" SECRET_B "\n" SECRET_A "x\n" SECRET_A "y\n";
    char errmsg[FLI_TLS_ERRMSG_SIZE];
    struct fli_tls_context *c = NULL;
    char longest[FLI_TLS_SECRET_MAX + 2];
    memset(longest, 'x', sizeof longest);
    longest[FLI_TLS_SECRET_MAX + 1] = '\0';
    write_text("too-long", longest);
    longest[FLI_TLS_SECRET_MAX] = '\0';
    write_text("longest", longest);
    longest[FLI_TLS_SECRET_MIN - 1] = '\0';
    write_text("too-short", longest);
    write_text("empty", "\n# nothing\n");
    write_text("most", many);
    certs_join(dir, "too-many", "most", "a");
    static const struct {
        const char *file, *says;
    } rows[] = {{"too-long", "not 1025"},
                {"too-short", "not 31: make one with 'openssl rand -hex 32'"},
                {"empty", "is empty"},
                {"too-many", "more than 4 secrets"},
                {"missing", "No such file"}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct fli_tls_config config = {.secret_file = in_dir(rows[i].file)};
        assert_int_equal(try_make(config, &c, errmsg), FL_EINVAL);
        if (strstr(errmsg, rows[i].says) == NULL || strstr(errmsg, "secret file") == NULL) {
            fail_msg("'%s' does not say '%s'", errmsg, rows[i].says);
        }
    }
    fli_tls_context_destroy(by_secret("longest"));
    fli_tls_context_destroy(by_secret("most"));
    struct fli_tls_config config = cert_config("one", "ca.crt");
    config.own_name = "x-node-2";
    assert_int_equal(try_make(config, &c, errmsg), FL_EINVAL);
    assert_non_null(strstr(errmsg, "does not bear the name x-node-2"));
    config.own_name = "x-node-1";
    fli_tls_context_destroy(make(config));
    config.secret_file = in_dir("a");
    assert_int_equal(try_make(config, &c, errmsg), FL_EINVAL);
    assert_int_equal(try_make(cert_config("late", "ca.crt"), &c, errmsg), FL_EINVAL);
    assert_int_equal(try_make(cert_config("evil", "ca.crt"), &c, errmsg), FL_EINVAL);
    assert_int_equal(try_make((struct fli_tls_config){.server = true}, &c, errmsg), FL_EINVAL);
    config = cert_config("one", "ca.crt");
    config.ca_file = NULL;
    assert_int_equal(try_make(config, &c, errmsg), FL_EINVAL);
}

/* A handshake under way goes on with what it began with. */
TEST(reload)
{
    char errmsg[FLI_TLS_ERRMSG_SIZE];
    struct fli_tls_facts facts;
    struct fli_tls_context *b = by_secret("b");
    write_text("now", SECRET_A);
    struct fli_tls_context *c = by_secret("now");
    struct pair p;
    pair_init(&p, c, c, "x-node-2");
    write_text("now", SECRET_B);
    assert_true(fli_tls_context_changed(c));
    assert_int_equal(fli_tls_context_reload(c, errmsg, sizeof errmsg), 0);
    assert_false(fli_tls_context_changed(c));
    settle(&p, SIZE_MAX, SIZE_MAX);
    assert_true(is_open(&p));
    pair_fini(&p);
    must_open(c, b, PSK_CONTEXT);
    write_text("now", "short");
    assert_int_equal(fli_tls_context_reload(c, errmsg, sizeof errmsg), FL_EINVAL);
    must_open(b, c, PSK_CONTEXT);
    fli_tls_context_facts(c, &facts);
    assert_int_equal(facts.reloads, 1);
    assert_int_equal(facts.failures, 1);
    assert_false(facts.has_cert);
    fli_tls_context_destroy(b);
    fli_tls_context_destroy(c);
}

/* A handshake that ends after any byte leaks nothing and opens no session. Where handshakes take
 * long, tests/integration/tls_memory.py tries only some of the bytes. */
TEST(cut_at_every_byte)
{
    struct fli_tls_context *const kinds[2][2] = {{by_secret("a"), by_secret("ab")},
                                                 {by_cert("one"), by_cert("two")}};
    const char *wanted = getenv("FENCELOCK_CUT_STEP");
    size_t step = wanted == NULL ? 1 : strtoul(wanted, NULL, 10);
    assert_true(step > 0);
    size_t all = 0;
    for (size_t kind = 0; kind < 2; kind++) {
        for (unsigned side = 0; side < 2; side++) {
            size_t at = 0;
            bool whole = false;
            while (!whole && at < 20000) {
                struct pair p;
                pair_init(&p, kinds[kind][0], kinds[kind][1], "x-node-2");
                settle(&p, side == 0 ? at : SIZE_MAX, side == 1 ? at : SIZE_MAX);
                whole = is_open(&p);
                assert_int_equal(p.a.rc, 0);
                assert_int_equal(p.b.rc, 0);
                pair_fini(&p);
                at += step;
            }
            assert_in_range(at, 100, 19999);
            all += at / step;
        }
        fli_tls_context_destroy(kinds[kind][0]);
        fli_tls_context_destroy(kinds[kind][1]);
    }
    print_message("cut off: %zu\n", all);
}

/* With a word: only the tests that it matches. */
int main(int argc, char **argv)
{
    return unit_run(argc, argv, setup, teardown);
}
