/* test_context.c: which certificate files are accepted, and which are refused. */
#include "../../lib/unit.h"

#include <sys/stat.h>
#include <unistd.h>

#include "certs.h"
#include "tls/tls.h"

static char dir[64];
static char path_text[8][128];

static const char *in_dir(const char *name)
{
    static unsigned turn;
    char *text = path_text[turn++ % 8];
    (void)snprintf(text, sizeof path_text[0], "%s/%s", dir, name);
    return text;
}

static int setup(void **state)
{
    const struct cert over_ca = {.cn = "over CA", .ca = true, .begins_days = -9, .ends_days = -1};
    (void)certs_dir(dir);
    certs_make(dir, "ca", &(struct cert){.cn = "test CA", .ca = true});
    certs_make(dir, "other-ca", &(struct cert){.cn = "other CA", .ca = true});
    certs_make(dir, "middle", &(struct cert){.cn = "middle CA", .issuer = "ca", .ca = true});
    certs_make(dir, "server",
               &(struct cert){.cn = "server", .san = "DNS:db.example", .issuer = "ca"});
    certs_make(dir, "leaf", &(struct cert){.cn = "leaf", .issuer = "middle"});
    certs_make(dir, "over",
               &(struct cert){.cn = "over", .issuer = "ca", .begins_days = -5, .ends_days = -1});
    certs_make(dir, "early",
               &(struct cert){.cn = "early", .issuer = "ca", .begins_days = 2, .ends_days = 9});
    certs_make(dir, "over-ca", &over_ca);
    return 0;
}

static int teardown(void **state)
{
    certs_remove(dir);
    return 0;
}

static struct fli_tls_config server_config(const char *name)
{
    char crt[64];
    char key[64];
    (void)snprintf(crt, sizeof crt, "%s.crt", name);
    (void)snprintf(key, sizeof key, "%s.key", name);
    return (struct fli_tls_config){.server = true,
                                   .cert_file = in_dir(crt),
                                   .key_file = in_dir(key),
                                   .ca_file = in_dir("ca.crt"),
                                   .auth = FLI_TLS_AUTH_REQUIRED};
}

static void assert_taken(struct fli_tls_config config)
{
    char errmsg[FLI_TLS_ERRMSG_SIZE];
    struct fli_tls_context *c = NULL;
    if (fli_tls_context_create(&config, &c, errmsg, sizeof errmsg) != 0) {
        fail_msg("%s", errmsg);
    }
    fli_tls_context_destroy(c);
}

static void assert_refused(struct fli_tls_config config, const char *why)
{
    char errmsg[FLI_TLS_ERRMSG_SIZE];
    struct fli_tls_context *c = NULL;
    assert_int_equal(fli_tls_context_create(&config, &c, errmsg, sizeof errmsg), FL_EINVAL);
    assert_null(c);
    if (strstr(errmsg, why) == NULL) {
        fail_msg("'%s' does not say '%s'", errmsg, why);
    }
}

TEST(good_files)
{
    assert_taken(server_config("server"));
    assert_taken((struct fli_tls_config){.ca_file = in_dir("ca.crt")});
    assert_taken((struct fli_tls_config){.server = false}); /* trusts whom the system trusts */
    struct fli_tls_config own = server_config("server");
    own.own_chain = true;
    assert_taken(own);
}

TEST(what_is_missing)
{
    struct fli_tls_config c = server_config("server");
    c.key_file = NULL;
    assert_refused(c, "belong together");
    c = server_config("server");
    c.cert_file = c.key_file = "";
    assert_refused(c, "a server needs a certificate file");
    c = server_config("server");
    c.ca_file = NULL;
    assert_refused(c, "CA file");
    c.auth = FLI_TLS_AUTH_OPTIONAL;
    assert_refused(c, "CA file");
    c.auth = FLI_TLS_AUTH_NO;
    assert_taken(c);
    c.own_chain = true;
    assert_refused(c, "CA file is missing");
    c = server_config("nobody");
    assert_refused(c, "No such file");
    c = server_config("server");
    c.cert_file = dir;
    assert_refused(c, "Is a directory");
}

TEST(what_is_no_pem)
{
    certs_write(dir, "empty", "", 0);
    certs_write(dir, "words", "hello world\n", 12);
    for (unsigned i = 0; i < 2; i++) {
        const char *bad = i == 0 ? "empty" : "words";
        struct fli_tls_config c = server_config("server");
        c.cert_file = in_dir(bad);
        assert_refused(c, "no certificate in PEM");
        c = server_config("server");
        c.key_file = in_dir(bad);
        assert_refused(c, "no private key in PEM");
        c = server_config("server");
        c.ca_file = in_dir(bad);
        assert_refused(c, "no certificate in PEM");
    }
    static const char torn[] = "-----BEGIN CERTIFICATE-----\nMIIB!!!!\n-----END CERTIFICATE-----\n";
    certs_write(dir, "torn", torn, sizeof torn - 1);
    certs_join(dir, "half", "server.crt", "torn");
    struct fli_tls_config c = server_config("server");
    c.cert_file = in_dir("half");
    assert_refused(c, "cannot be read after 1 certificates");
}

TEST(keys)
{
    struct fli_tls_config c = server_config("server");
    c.key_file = in_dir("leaf.key");
    assert_refused(c, "does not fit");
    static const char locked[] =
        "-----BEGIN ENCRYPTED PRIVATE KEY-----\n"
        "MIGHMEsGCSqGSIb3DQEFDTA+MCkGCSqGSIb3DQEFDDAcBAh7vVVlQYpVvgICCAAw\n"
        "DAYIKoZIhvcNAgkFADARBgUrDgMCBwQIr0k0V0F0J7sEOG6p6mO7xq4w6wQmXo5h\n"
        "-----END ENCRYPTED PRIVATE KEY-----\n";
    certs_write(dir, "locked", locked, sizeof locked - 1);
    c.key_file = in_dir("locked");
    assert_refused(c, "key"); /* and nobody is asked on the terminal */
}

TEST(dates)
{
    assert_refused(server_config("over"), "has expired");
    assert_refused(server_config("early"), "not valid yet");
    struct fli_tls_config c = server_config("server");
    c.ca_file = in_dir("over-ca.crt");
    assert_refused(c, "each CA in it has expired");
    certs_join(dir, "two-cas", "over-ca.crt", "ca.crt");
    c.ca_file = in_dir("two-cas");
    assert_taken(c);
}

TEST(chains)
{
    certs_join(dir, "good-chain", "leaf.crt", "middle.crt");
    certs_join(dir, "bad-chain", "leaf.crt", "ca.crt");
    struct fli_tls_config c = server_config("leaf");
    c.own_chain = true;
    assert_refused(c, "peers that trust the CA file would refuse it");
    c.cert_file = in_dir("good-chain");
    assert_taken(c);
    c.cert_file = in_dir("bad-chain");
    assert_refused(c, "certificate 1 is not signed by the one after it");
    c = server_config("server");
    c.ca_file = in_dir("other-ca.crt");
    assert_taken(c); /* clients may have another CA than servers */
    c.own_chain = true;
    assert_refused(c, "peers that trust the CA file would refuse it");
    c.own_chain = false;
    c.ca_file = in_dir("leaf.crt");
    assert_refused(c, "does not belong to a CA");
}

TEST(sizes)
{
    size_t size = FLI_TLS_FILE_MAX + 1;
    char *text = malloc(size);
    assert_non_null(text);
    memset(text, '\n', size);
    FILE *f = fopen(in_dir("server.crt"), "r");
    assert_non_null(f);
    assert_true(fread(text, 1, 4096, f) > 0);
    (void)fclose(f);
    struct fli_tls_config c = server_config("server");
    certs_write(dir, "largest", text, FLI_TLS_FILE_MAX);
    c.cert_file = in_dir("largest");
    assert_taken(c);
    certs_write(dir, "too-large", text, size);
    c.cert_file = in_dir("too-large");
    assert_refused(c, "File too large");
    free(text);
}

TEST(chain_length)
{
    char name[16];
    char issuer[16] = "ca";
    for (unsigned i = 0; i <= FLI_TLS_CHAIN_MAX; i++) {
        (void)snprintf(name, sizeof name, "c%u", i);
        certs_make(dir, name, &(struct cert){.cn = name, .issuer = issuer, .ca = true});
        (void)snprintf(issuer, sizeof issuer, "%s", name);
    }
    certs_join(dir, "long", "c1.crt", "c0.crt");
    for (unsigned i = 2; i < FLI_TLS_CHAIN_MAX; i++) {
        (void)snprintf(name, sizeof name, "c%u.crt", i);
        certs_join(dir, "long", name, "long");
    }
    (void)snprintf(name, sizeof name, "c%u.key", FLI_TLS_CHAIN_MAX - 1);
    struct fli_tls_config c = server_config("server");
    c.ca_file = in_dir("other-ca.crt");
    c.cert_file = in_dir("long");
    c.key_file = in_dir(name);
    assert_taken(c);
    (void)snprintf(name, sizeof name, "c%u.crt", FLI_TLS_CHAIN_MAX);
    certs_join(dir, "long", name, "long");
    assert_refused(c, "has more than 16 certificates");
}

TEST(protocols)
{
    static const char *const good[] = {"TLSv1.2", "TLSv1.3", "TLSv1.2 TLSv1.3", "tlsv1.3,TLSv1.2"};
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        struct fli_tls_config c = server_config("server");
        c.protocols = good[i];
        assert_taken(c);
    }
    static const char *const bad[] = {"TLSv1.1", "TLSv1.2 SSLv3", "TLSv1.33", " ", ","};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct fli_tls_config c = server_config("server");
        c.protocols = bad[i];
        assert_refused(c, "write TLSv1.2, TLSv1.3 or both");
    }
}

TEST(what_is_known)
{
    char errmsg[FLI_TLS_ERRMSG_SIZE];
    struct fli_tls_facts facts;
    struct fli_tls_context *c = NULL;
    struct fli_tls_config config = server_config("server");
    assert_int_equal(fli_tls_context_create(&config, &c, errmsg, sizeof errmsg), 0);
    fli_tls_context_facts(c, &facts);
    assert_true(facts.has_cert && facts.has_ca);
    assert_in_range(facts.cert_days, 9, 10);
    assert_in_range(facts.ca_days, 9, 10);
    assert_string_equal(facts.subject, "/CN=server");
    fli_tls_context_destroy(c);
}

/* A renewed pair is two files, and there is a moment at which only one of them is there. */
TEST(reload)
{
    char errmsg[FLI_TLS_ERRMSG_SIZE];
    struct fli_tls_facts facts;
    struct fli_tls_context *c = NULL;
    certs_make(dir, "renewed", &(struct cert){.cn = "first", .issuer = "ca"});
    struct fli_tls_config config = server_config("renewed");
    assert_int_equal(fli_tls_context_create(&config, &c, errmsg, sizeof errmsg), 0);
    assert_false(fli_tls_context_changed(c));
    certs_make(dir, "second",
               &(struct cert){.cn = "second", .issuer = "ca", .begins_days = -1, .ends_days = 30});
    assert_int_equal(rename(in_dir("second.crt"), in_dir("renewed.crt")), 0);
    assert_true(fli_tls_context_changed(c));
    assert_int_equal(fli_tls_context_reload(c, errmsg, sizeof errmsg), FL_EINVAL);
    assert_non_null(strstr(errmsg, "does not fit"));
    assert_false(fli_tls_context_changed(c)); /* it has been looked at */
    fli_tls_context_facts(c, &facts);
    assert_string_equal(facts.subject, "/CN=first");
    assert_int_equal(facts.failures, 1);
    assert_int_equal(rename(in_dir("second.key"), in_dir("renewed.key")), 0);
    assert_true(fli_tls_context_changed(c));
    assert_int_equal(fli_tls_context_reload(c, errmsg, sizeof errmsg), 0);
    fli_tls_context_facts(c, &facts);
    assert_string_equal(facts.subject, "/CN=second");
    assert_int_equal(facts.reloads, 1);
    assert_in_range(facts.cert_days, 29, 30);
    assert_int_equal(unlink(in_dir("renewed.key")), 0);
    assert_true(fli_tls_context_changed(c));
    assert_int_equal(fli_tls_context_reload(c, errmsg, sizeof errmsg), FL_EINVAL);
    fli_tls_context_facts(c, &facts);
    assert_string_equal(facts.subject, "/CN=second");
    fli_tls_context_destroy(c);
}

int main(int argc, char **argv)
{
    return unit_run(argc, argv, setup, teardown);
}
