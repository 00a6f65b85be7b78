/* test_commands.c: the table is whole and sorted, every row is found whatever its case, wrong
 * numbers of arguments and wrong names get a message that helps. */
#include "words.h"

static const enum fli_service services[] = {FLI_SERVICE_LOCK, FLI_SERVICE_STORE};

static bool is_upper(const char *word)
{
    for (; *word != '\0'; word++) {
        if (*word < 'A' || *word > 'Z') {
            return false;
        }
    }
    return true;
}

TEST(test_table)
{
    unsigned seen[FLI_CMD_ID_MAX + 1] = {0};
    for (size_t i = 0; i < fli_commands_len; i++) {
        const struct fli_command *c = &fli_commands[i];
        assert_true(c->id > FLI_CMD_NONE && c->id <= FLI_CMD_ID_MAX);
        seen[c->id]++;
        assert_true(is_upper(c->name));
        assert_true(c->subcommand == NULL || is_upper(c->subcommand));
        assert_true(c->arity_min >= 0);
        assert_true(c->arity_max == -1 || c->arity_max >= c->arity_min);
        assert_true(c->arity_max < (int)FLI_RESP_ARGS_MAX);
        assert_true((c->flags & (FLI_CMD_LOCK | FLI_CMD_STORE)) != 0);
        unsigned what = c->flags & (FLI_CMD_LOCAL | FLI_CMD_QUERY | FLI_CMD_WRITE);
        assert_true(what == FLI_CMD_LOCAL || what == FLI_CMD_QUERY || what == FLI_CMD_WRITE);
        assert_true((c->arity_max == 0) == (c->syntax[0] == '\0') || c->id == FLI_CMD_QUIT);
        assert_true(strlen(c->reply) > 1);
        assert_int_equal(c->help[strlen(c->help) - 1], '.');
        assert_true(c->help[0] >= 'A' && c->help[0] <= 'Z');
        assert_non_null(fli_command_group(c));
        if (i == 0) {
            continue;
        }
        const struct fli_command *before = &fli_commands[i - 1];
        int order = strcmp(before->name, c->name);
        if (order == 0 && c->subcommand == NULL) { /* a row for each service */
            assert_int_equal(before->flags & 3u, FLI_CMD_LOCK);
            assert_int_equal(c->flags & 3u, FLI_CMD_STORE);
            order = -1;
        } else if (order == 0) {
            assert_non_null(c->subcommand);
            order = before->subcommand == NULL ? -1 : strcmp(before->subcommand, c->subcommand);
            assert_int_equal(before->flags & 3u, c->flags & 3u); /* a family has one home */
        }
        assert_true(order < 0);
    }
    for (int id = FLI_CMD_NONE + 1; id <= FLI_CMD_ID_MAX; id++) {
        assert_int_equal(seen[id], 1);
    }
}

/* Fills w with the words of a command and n arguments. */
static void compose(struct words *w, const struct fli_command *c, const char *name,
                    const char *subcommand, unsigned n)
{
    w->argc = 0;
    w->argv[w->argc++] = (struct fli_slice){(const uint8_t *)name, strlen(name)};
    if (c->subcommand != NULL) {
        w->argv[w->argc++] = (struct fli_slice){(const uint8_t *)subcommand, strlen(subcommand)};
    }
    for (unsigned i = 0; i < n; i++) {
        w->argv[w->argc++] = (struct fli_slice){(const uint8_t *)"x", 1};
    }
}

static void lower(char *out, const char *text)
{
    for (; text != NULL && *text != '\0'; text++) {
        *out++ = (char)(*text + ('a' - 'A'));
    }
    *out = '\0';
}

static void check_found(const struct fli_command *c, enum fli_service service, const char *name,
                        const char *subcommand, int n)
{
    struct words w;
    const struct fli_command *got = NULL;
    unsigned used = 0;
    char errmsg[FLI_ERRMSG_SIZE];
    compose(&w, c, name, subcommand, (unsigned)n);
    int rc = fli_command_lookup(service, w.argv, w.argc, &got, &used, errmsg, sizeof errmsg);
    if (!fli_command_served(c, service) && fli_command_find(service, c->name, NULL) != NULL) {
        assert_true(got == NULL || got != c); /* it means something else there */
    } else if (!fli_command_served(c, service)) {
        assert_int_equal(rc, FL_ENOTFOUND);
        assert_non_null(strstr(errmsg, "it is served by"));
        assert_message(errmsg);
    } else if (n < c->arity_min || (c->arity_max >= 0 && n > c->arity_max)) {
        assert_message(errmsg);
        if (c->id == FLI_CMD_COMMAND && n > 0) {
            assert_int_equal(rc, FL_ENOTFOUND); /* "x" counts as a subcommand */
            return;
        }
        assert_int_equal(rc, FL_EINVAL);
        assert_non_null(strstr(errmsg, "wrong number of arguments"));
        assert_non_null(strstr(errmsg, c->name));
        assert_non_null(strstr(errmsg, c->syntax));
    } else {
        assert_int_equal(rc, 0);
        assert_ptr_equal(got, c);
        assert_int_equal(used, c->subcommand == NULL ? 1 : 2);
    }
}

TEST(test_lookup)
{
    for (size_t i = 0; i < fli_commands_len; i++) {
        const struct fli_command *c = &fli_commands[i];
        char name[32];
        char subcommand[32];
        lower(name, c->name);
        lower(subcommand, c->subcommand);
        int max = c->arity_max < 0 ? 40 : c->arity_max;
        for (int n = 0; n <= max + 1; n++) {
            for (size_t s = 0; s < 2; s++) {
                check_found(c, services[s], c->name, c->subcommand, n);
                check_found(c, services[s], name, subcommand, n);
                name[0] = c->name[0]; /* mixed */
                check_found(c, services[s], name, subcommand, n);
            }
        }
        enum fli_service home =
            fli_command_served(c, FLI_SERVICE_LOCK) ? FLI_SERVICE_LOCK : FLI_SERVICE_STORE;
        assert_ptr_equal(fli_command_find(home, name, c->subcommand == NULL ? NULL : subcommand),
                         c);
    }
    assert_null(fli_command_find(FLI_SERVICE_LOCK, "SESSION", NULL));
    assert_null(fli_command_find(FLI_SERVICE_LOCK, "PING", "x"));
    assert_null(fli_command_find(FLI_SERVICE_LOCK, "", NULL));
    assert_null(fli_command_find(FLI_SERVICE_LOCK, "acquire-a-very-long-name-indeed", NULL));
}

static void check_message(enum fli_service service, const char *request, int want_rc,
                          const char *want)
{
    struct words w = words_of(request);
    const struct fli_command *c = NULL;
    unsigned used = 99;
    char errmsg[FLI_ERRMSG_SIZE];
    int rc = fli_command_lookup(service, w.argv, w.argc, &c, &used, errmsg, sizeof errmsg);
    assert_int_equal(rc, want_rc);
    assert_string_equal(errmsg, want);
    assert_null(c);
    assert_int_equal(used, 99);
}

TEST(test_hints)
{
    check_message(FLI_SERVICE_LOCK, "ACQIRE a", FL_ENOTFOUND,
                  "unknown command 'ACQIRE': did you mean ACQUIRE?");
    check_message(FLI_SERVICE_LOCK, "aqcuire a", FL_ENOTFOUND,
                  "unknown command 'aqcuire': did you mean ACQUIRE?");
    check_message(FLI_SERVICE_LOCK, "RELEASES a 1", FL_ENOTFOUND,
                  "unknown command 'RELEASES': did you mean RELEASE?");
    check_message(FLI_SERVICE_LOCK, "PIGN", FL_ENOTFOUND,
                  "unknown command 'PIGN': did you mean PING?");
    check_message(FLI_SERVICE_LOCK, "lock a", FL_ENOTFOUND,
                  "unknown command 'lock': did you mean ACQUIRE?");
    check_message(FLI_SERVICE_LOCK, "unlock a", FL_ENOTFOUND,
                  "unknown command 'unlock': did you mean RELEASE?");
    check_message(FLI_SERVICE_STORE, "lock a", FL_ENOTFOUND,
                  "unknown command 'lock': COMMAND LIST names those this server has");
    check_message(FLI_SERVICE_STORE, "GTE a", FL_ENOTFOUND,
                  "unknown command 'GTE': did you mean GET?");
    check_message(FLI_SERVICE_LOCK, "x", FL_ENOTFOUND,
                  "unknown command 'x': COMMAND LIST names those this server has");
    check_message(FLI_SERVICE_LOCK, "'' x", FL_ENOTFOUND,
                  "unknown command '': COMMAND LIST names those this server has");
    check_message(FLI_SERVICE_LOCK, "CLAIM a 1", FL_ENOTFOUND,
                  "unknown command 'CLAIM': it is served by fencelock-store, not by this server");
    check_message(FLI_SERVICE_STORE, "acquire a", FL_ENOTFOUND,
                  "unknown command 'acquire': it is served by fencelockd, not by this server");
    check_message(FLI_SERVICE_STORE, "SESSION", FL_ENOTFOUND,
                  "unknown command 'SESSION': it is served by fencelockd, not by this server");
    check_message(FLI_SERVICE_LOCK, "SESSION", FL_EINVAL,
                  "SESSION needs a subcommand: CLOSE, LIST, OPEN, RENEW or SHOW");
    check_message(FLI_SERVICE_LOCK, "session opne x", FL_ENOTFOUND,
                  "unknown subcommand 'opne' of SESSION: did you mean SESSION OPEN?");
    check_message(FLI_SERVICE_LOCK, "CLUSTER STATES", FL_ENOTFOUND,
                  "unknown subcommand 'STATES' of CLUSTER: write ADD, BACKUP, CONFIG, INFO, "
                  "MEMBERS, MOVE, REMOVE, REPLACE or TRANSFER");
    check_message(FLI_SERVICE_LOCK, "RELEASE a", FL_EINVAL,
                  "wrong number of arguments for 'RELEASE' command: write RELEASE name token");
    check_message(
        FLI_SERVICE_LOCK, "SESSION CLOSE", FL_EINVAL,
        "wrong number of arguments for 'SESSION CLOSE' command: write SESSION CLOSE owner");
    check_message(FLI_SERVICE_LOCK, "LEADER now", FL_EINVAL,
                  "wrong number of arguments for 'LEADER' command: write LEADER");
}

/* All that clients for a Redis Cluster ask before they give up, at a node and at a storage. */
TEST(test_clients_for_a_redis_cluster)
{
    static const char *const asked[] = {"CLUSTER COUNTKEYSINSLOT 1",
                                        "CLUSTER GETKEYSINSLOT 1 2",
                                        "CLUSTER HELP",
                                        "CLUSTER KEYSLOT x",
                                        "CLUSTER LINKS",
                                        "CLUSTER MYID",
                                        "CLUSTER MYSHARDID",
                                        "CLUSTER NODES",
                                        "CLUSTER REPLICAS x",
                                        "CLUSTER SHARDS",
                                        "CLUSTER SLAVES x",
                                        "cluster slots",
                                        "ASKING",
                                        "READONLY",
                                        "READWRITE"};
    for (size_t i = 0; i < sizeof asked / sizeof asked[0]; i++) {
        for (unsigned s = 0; s < 2; s++) {
            check_message(s == 0 ? FLI_SERVICE_LOCK : FLI_SERVICE_STORE, asked[i], FL_ENOTFOUND,
                          "This instance has cluster support disabled: it is not a Redis cluster. "
                          "Give the client one address, and leave its cluster mode out");
        }
    }
    check_message(FLI_SERVICE_STORE, "CLUSTER ADD", FL_ENOTFOUND,
                  "unknown command 'CLUSTER': it is served by fencelockd, not by this server");
}

TEST(test_unprintable_names)
{
    static const uint8_t name[] = "PI\0NG\r\n'\xff\\";
    struct fli_slice argv = {name, sizeof name - 1};
    const struct fli_command *c;
    unsigned used;
    char errmsg[FLI_ERRMSG_SIZE];
    assert_int_equal(
        fli_command_lookup(FLI_SERVICE_LOCK, &argv, 1, &c, &used, errmsg, sizeof errmsg),
        FL_ENOTFOUND);
    assert_string_equal(errmsg,
                        "unknown command 'PI\\x00NG\\x0d\\x0a\\x27\\xff\\x5c': COMMAND LIST "
                        "names those this server has");
}

/* Whatever comes, the message is printable, ends within its room, and nothing else is touched. */
TEST(test_random_names)
{
    uint64_t rng = rng_seed();
    for (int i = 0; i < 20000; i++) {
        uint8_t bytes[2][80];
        struct fli_slice argv[2];
        for (int k = 0; k < 2; k++) {
            size_t n = (size_t)rng_below(&rng, rng_below(&rng, 2) == 0 ? 80 : 8);
            for (size_t j = 0; j < n; j++) {
                bytes[k][j] =
                    (uint8_t)(rng_below(&rng, 3) == 0 ? rng_next(&rng) : 'A' + rng_below(&rng, 26));
            }
            argv[k] = (struct fli_slice){bytes[k], n};
        }
        if (rng_below(&rng, 2) == 0) {
            argv[0] = (struct fli_slice){(const uint8_t *)"SESSION", 7};
        }
        char errmsg[FLI_ERRMSG_SIZE + 1];
        size_t size = rng_below(&rng, 4) == 0 ? 1 + (size_t)rng_below(&rng, 60) : FLI_ERRMSG_SIZE;
        memset(errmsg, '#', sizeof errmsg);
        const struct fli_command *c = NULL;
        unsigned used = 0;
        enum fli_service service = services[rng_below(&rng, 2)];
        int rc = fli_command_lookup(service, argv, 2, &c, &used, errmsg, size);
        assert_int_equal(errmsg[size], '#');
        if (rc != 0) {
            assert_null(c);
            assert_true(memchr(errmsg, '\0', size) != NULL);
            assert_true(size < FLI_ERRMSG_SIZE || strlen(errmsg) > 10);
        }
        if (rc != 0 && size == FLI_ERRMSG_SIZE) {
            assert_message(errmsg);
        }
    }
}
