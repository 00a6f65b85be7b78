/* The command line of `fencelock`. */
#include "../../lib/unit.h"

#include "cli/fencelock_options.h"

static int run_nothing(const struct cli_args *a)
{
    return 0;
}

#define NODES CLI_BIT(CLI_OPT_NODES)

static const struct cli_command commands[] = {
    {"take", "NAME", 1, 1, NODES | CLI_BIT(CLI_OPT_TTL) | CLI_BIT(CLI_OPT_OWNER), "Takes.", NULL,
     .run = run_nothing},
    {"list", "", 0, 0, NODES | CLI_BIT(CLI_OPT_LIMIT), "Lists.", NULL, .run = run_nothing},
    {"box open", "A [B]", 1, 2, CLI_BIT(CLI_OPT_TOKEN) | CLI_BIT(CLI_OPT_LOCK), "Opens.", NULL,
     .run = run_nothing},
    {"box shut", "", 0, 0, 0, "Shuts.", NULL, .run = run_nothing},
    {"wrap", "NAME [--] COMMAND...", 1, CLI_ARGS_REST, CLI_BIT(CLI_OPT_TTL), "Wraps.", NULL,
     .run = run_nothing},
    {.name = NULL},
};

static const char *no_environment(const char *name)
{
    return NULL;
}

static const char *some_environment(const char *name)
{
    if (strcmp(name, "FENCELOCK_NODES") == 0) {
        return "from-env:1";
    }
    if (strcmp(name, "FENCELOCK_TOKEN") == 0) {
        return "not-a-number";
    }
    return "";
}

static const char *patient_environment(const char *name)
{
    return strcmp(name, "FENCELOCK_TIMEOUT") == 0 ? "60s" : NULL;
}

static const char *hasty_environment(const char *name)
{
    return strcmp(name, "FENCELOCK_TIMEOUT") == 0 ? "0" : NULL;
}

static char errmsg[512];

/* Splits at blanks; "_" stands for an empty word. */
static int parse(const char *line, const char *(*environment)(const char *), struct cli_args *ret)
{
    static char copy[256];
    static const char *argv[16]; /* what is parsed points into it */
    memset(argv, 0, sizeof argv);
    argv[0] = "fencelock";
    int argc = 1;
    snprintf(copy, sizeof copy, "%s", line);
    for (char *p = copy; *p != '\0';) {
        char *end = p + strcspn(p, " ");
        char *next = *end == '\0' ? end : end + 1;
        *end = '\0';
        argv[argc++] = strcmp(p, "_") == 0 ? "" : p;
        p = next;
    }
    errmsg[0] = '\0';
    memset(ret, 0xa5, sizeof *ret);
    return cli_parse(commands, argc, argv, environment, ret, errmsg, sizeof errmsg);
}

TEST(test_good_lines)
{
    struct cli_args a;
    assert_int_equal(parse("take x", no_environment, &a), 0);
    assert_ptr_equal(a.command, &commands[0]);
    assert_int_equal(a.n_args, 1);
    assert_string_equal(a.arg[0], "x");
    assert_int_equal(a.given, 0);

    assert_int_equal(parse("--nodes h:1 take --ttl=5s x --json", no_environment, &a), 0);
    assert_string_equal(a.text[CLI_OPT_NODES], "h:1");
    assert_int_equal(a.number[CLI_OPT_TTL], 5000);
    assert_int_equal(a.given, NODES | CLI_BIT(CLI_OPT_TTL) | CLI_BIT(CLI_OPT_JSON));

    assert_int_equal(parse("box --token 9 open a b", no_environment, &a), 0);
    assert_ptr_equal(a.command, &commands[2]);
    assert_int_equal(a.n_args, 2);
    assert_int_equal(a.number[CLI_OPT_TOKEN], 9);

    assert_int_equal(parse("take -- --ttl", no_environment, &a), 0);
    assert_string_equal(a.arg[0], "--ttl");
    assert_int_equal(parse("take -", no_environment, &a), 0);
    assert_string_equal(a.arg[0], "-");
    assert_int_equal(parse("take _", no_environment, &a), 0);
    assert_string_equal(a.arg[0], "");
    assert_int_equal(parse("take x --owner=a=b", no_environment, &a), 0);
    assert_string_equal(a.text[CLI_OPT_OWNER], "a=b");
}

TEST(test_help_and_version)
{
    static const char *const lines[] = {"--help",      "-h",       "--version", "take --help",
                                        "take -h x y", "box open", "box --help"};
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        struct cli_args a;
        int expected = strcmp(lines[i], "take -h x y") == 0 || strcmp(lines[i], "box open") == 0
                           ? FL_EINVAL
                           : 0;
        assert_int_equal(parse(lines[i], no_environment, &a), expected);
    }
}

TEST(test_wrong_lines)
{
    static const struct {
        const char *line, *needle;
    } rows[] = {
        {"", "what shall be done"},
        {"tke x", "did you mean 'take'"},
        {"frobnicate", "no command 'frobnicate'"},
        {"take", "write fencelock take NAME"},
        {"take x y", "'y' is one argument too many"},
        {"take x --tt 5", "did you mean --ttl"},
        {"take x --frobnicate", "there is no option --frobnicate"},
        {"take x --ttl", "--ttl needs a value"},
        {"take x --ttl=", "'' is not a time"},
        {"take x --ttl 5x", "is not a time"},
        {"take x --ttl 5s --ttl 5s", "given twice"},
        {"take x --ttl 5", "--ttl: '5' is not a time from 10ms to 24h"},
        {"take x --ttl 25h", "--ttl: '25h' is not a time from 10ms to 24h"},
        {"take x -1", "no option -1, and no number here is below 0"},
        {"take x --json=1", "takes no value"},
        {"take x --limit 5", "take takes no --limit"},
        {"list --limit x", "not a whole number"},
        {"list --limit 9007199254740992", "not a whole number"},
        {"box", "box what? One of: open, shut"},
        {"box opn a", "did you mean 'box open'"},
        {"box zzz", "there are: open, shut"},
        {"box open a b c", "'c' is one argument too many"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct cli_args a;
        assert_int_equal(parse(rows[i].line, no_environment, &a), FL_EINVAL);
        assert_non_null(strstr(errmsg, rows[i].needle));
        assert_int_equal(a.n_args, 0xa5a5a5a5); /* untouched */
    }
}

TEST(test_environment)
{
    struct cli_args a;
    assert_int_equal(parse("list", some_environment, &a), 0);
    assert_string_equal(a.text[CLI_OPT_NODES], "from-env:1");
    assert_int_equal(parse("list --nodes h:1", some_environment, &a), 0);
    assert_string_equal(a.text[CLI_OPT_NODES], "h:1");
    /* Only what the command takes is looked up; an empty value counts as none. */
    assert_int_equal(parse("box shut", some_environment, &a), 0);
    assert_int_equal(a.given, 0);
    assert_int_equal(parse("box open a", some_environment, &a), FL_EINVAL);
    assert_non_null(strstr(errmsg, "FENCELOCK_TOKEN"));
    assert_int_equal(parse("box open a --token 1", some_environment, &a), 0);
    assert_int_equal(a.given, CLI_BIT(CLI_OPT_TOKEN));
}

TEST(test_timeout_of_the_environment)
{
    struct cli_args a;
    assert_int_equal(parse("list", no_environment, &a), 0);
    assert_int_equal(cli_timeout_ms(&a), FL_TIMEOUT_DEFAULT_MS);
    assert_int_equal(parse("list", patient_environment, &a), 0);
    assert_int_equal(cli_timeout_ms(&a), 60000);
    assert_int_equal(parse("list --timeout 1s", patient_environment, &a), 0);
    assert_int_equal(cli_timeout_ms(&a), 1000);
    assert_int_equal(parse("list", hasty_environment, &a), FL_EINVAL);
    assert_non_null(strstr(errmsg, "FENCELOCK_TIMEOUT"));
}

TEST(test_long_words)
{
    char line[250];
    memset(line, 'z', sizeof line - 1);
    line[sizeof line - 1] = '\0';
    struct cli_args a;
    assert_int_equal(parse(line, no_environment, &a), FL_EINVAL);
    memcpy(line, "take --", 7);
    assert_int_equal(parse(line, no_environment, &a), FL_EINVAL);
    memcpy(line, "box ", 4);
    assert_int_equal(parse(line, no_environment, &a), FL_EINVAL);
}

TEST(test_exit_codes)
{
    static const struct {
        int code;
        enum cli_exit exit;
    } rows[] = {
        {0, CLI_EXIT_DONE},
        {FL_ENOTHELD, CLI_EXIT_NO},
        {FL_ENOTFOUND, CLI_EXIT_NO},
        {FL_ESTALE, CLI_EXIT_NO},
        {FL_EWRONGLOCK, CLI_EXIT_NO},
        {FL_ENOTOKEN, CLI_EXIT_NO},
        {FL_EDEADLOCK, CLI_EXIT_NO},
        {FL_ELIMIT, CLI_EXIT_NO},
        {FL_EDENIED, CLI_EXIT_NO},
        {FL_EINVAL, CLI_EXIT_USAGE},
        {FL_ENOLEADER, CLI_EXIT_UNKNOWN},
        {FL_ENOCONN, CLI_EXIT_UNKNOWN},
        {FL_EBUSY, CLI_EXIT_UNKNOWN},
        {FL_EUNCERTAIN, CLI_EXIT_UNKNOWN},
        {FL_ETIMEOUT, CLI_EXIT_UNKNOWN},
        {FL_EPROTO, CLI_EXIT_UNKNOWN},
        {FL_ENOMEM, CLI_EXIT_UNKNOWN},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        assert_int_equal(cli_exit_of(rows[i].code), rows[i].exit);
    }
}

static void expect_rest(const char *line, const char *first, const char *last, size_t n)
{
    struct cli_args a;
    assert_int_equal(parse(line, no_environment, &a), 0);
    assert_int_equal(a.n_args, 1);
    assert_string_equal(a.arg[0], "x");
    size_t len = 0;
    while (a.rest[len] != NULL) {
        len++;
    }
    assert_int_equal(len, n);
    assert_string_equal(a.rest[0], first);
    assert_string_equal(a.rest[n - 1], last);
}

/* A number without a unit that is likely meant as seconds. */
TEST(test_warning)
{
    struct cli_args a;
    static const struct {
        const char *line;
        bool warns;
    } rows[] = {{"take x --ttl 30", true},   {"take x --ttl 99", true},
                {"take x --ttl 100", false}, {"take x --ttl 99ms", false},
                {"take x --ttl 30s", false}, {"take x", false}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        assert_int_equal(parse(rows[i].line, no_environment, &a), 0);
        assert_int_equal(a.warning[0] != '\0', rows[i].warns);
    }
    assert_int_equal(parse("take x --ttl 30", no_environment, &a), 0);
    assert_string_equal(a.warning,
                        "--ttl 30 is 30 milliseconds: write 30s if seconds are meant, or 30ms");
}

TEST(test_the_rest_is_a_command_line)
{
    expect_rest("wrap x ls", "ls", "ls", 1);
    expect_rest("wrap x -- ls", "ls", "ls", 1);
    expect_rest("wrap x --ttl 5s -- ls --ttl 9s", "ls", "9s", 3);
    expect_rest("wrap --ttl 5s x ls -- --help", "ls", "--help", 3);
    expect_rest("wrap -- x -- -h --", "-h", "--", 2);
    struct cli_args a;
    assert_int_equal(parse("wrap -- echo hi", no_environment, &a), FL_EINVAL);
    assert_non_null(strstr(errmsg, "write fencelock wrap NAME -- echo"));
    assert_int_equal(parse("wrap -- echo", no_environment, &a), FL_EINVAL);
    assert_int_equal(parse("wrap -- echo --", no_environment, &a), FL_EINVAL);
    assert_int_equal(parse("wrap x --ttl 5s ls --ttl 9s", no_environment, &a), 0);
    assert_int_equal(a.number[CLI_OPT_TTL], 5000);
    assert_int_equal(parse("wrap x", no_environment, &a), FL_EINVAL);
    assert_int_equal(parse("wrap x --", no_environment, &a), FL_EINVAL);
    assert_int_equal(parse("wrap", no_environment, &a), FL_EINVAL);
    assert_int_equal(parse("wrap x --ttl 5s", no_environment, &a), FL_EINVAL);
    assert_int_equal(parse("wrap --help", no_environment, &a), 0);
}
