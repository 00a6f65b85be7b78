/* What fencelockd's options do not use, or only in part; test_config.c has the rest. */
#include "../../lib/unit.h"

#include "base/option_rows.h"

enum colour { RED = 1, GREEN, BLUE };

struct values {
    uint64_t size;
    uint32_t small;
    const char *path;
    enum colour colour;
    bool on;
    unsigned own;
};

static struct values values;
static char errmsg[256];

static int set_own(struct fli_options *o, const struct fli_given *g)
{
    struct values *v = o->values;
    if (strcmp(g->text, "ten") != 0) {
        return fli_options_wrong(o, "%s: '%s' is not ten", g->where, g->text);
    }
    v->own = 10;
    return 0;
}

#define OPTION_VALUES struct values
static const char *const colours[] = {"red", "green", "blue", NULL};
static const char *const replaced[] = {"colour blue", NULL};
static const struct fli_option table[] = {
    {"size", FLI_OPTION_SIZE, FIELD(size), .min = 1024, .max = UINT64_C(1) << 40},
    {"small", FLI_OPTION_NUMBER, FIELD(small), .min = 0, .max = UINT32_MAX},
    {"path", FLI_OPTION_POINTER, FIELD(path)},
    {"colour", FLI_OPTION_WORD, FIELD(colour), .min = RED, .words = colours},
    {"on", FLI_OPTION_FLAG, FIELD(on)},
    {"own", FLI_OPTION_OWN, .set = set_own},
    {"color", FLI_OPTION_GONE, .words = replaced},
    {"now", FLI_OPTION_FLAG, FIELD(on), .once = true},
};
#define ROWS (sizeof table / sizeof table[0])

static struct fli_options o;

static int read_all(const char *const *argv, const char *const *env)
{
    int argc = 0;
    while (argv[argc] != NULL) {
        argc++;
    }
    fli_options_fini(&o);
    values = (struct values){.colour = GREEN};
    errmsg[0] = '\0';
    o = (struct fli_options){.table = table,
                             .n = ROWS,
                             .prefix = "A_PROGRAM_",
                             .empty_is_none = true,
                             .values = &values,
                             .errmsg = errmsg,
                             .errmsg_size = sizeof errmsg};
    int rc = fli_options_arguments(&o, argc, argv);
    rc = rc == 0 ? fli_options_environment(&o, env) : rc;
    return rc == 0 ? fli_options_set(&o) : rc;
}

#define ARGS(...) ((const char *const[]){__VA_ARGS__, NULL})

static void good(const char *const *argv)
{
    if (read_all(argv, NULL) != 0) {
        fail_msg("%s", errmsg);
    }
}

static void bad(const char *const *argv, const char *const *env, const char *says)
{
    assert_int_equal(read_all(argv, env), FL_EINVAL);
    assert_string_equal(errmsg, says);
}

TEST(sizes)
{
    good(ARGS("--size", "1024"));
    assert_int_equal(values.size, 1024);
    good(ARGS("--size=1k"));
    assert_int_equal(values.size, 1024);
    good(ARGS("--size", "64M"));
    assert_int_equal(values.size, 64 << 20);
    good(ARGS("--size", "1024G"));
    assert_true(values.size == UINT64_C(1) << 40);
    for (const char *const *at =
             ARGS("1023", "", "K", "1025G", "1T", "1KK", "-1", "1 K", "18446744073709551615G");
         *at != NULL; at++) {
        assert_int_equal(read_all(ARGS("--size", *at), NULL), FL_EINVAL);
        assert_non_null(
            strstr(errmsg, "is not a whole number from 1024 to 1099511627776, in bytes"));
    }
    good(ARGS("--small", "4294967295"));
    assert_int_equal(values.small, UINT32_MAX);
    bad(ARGS("--small", "4K"), NULL, "--small: '4K' is not a whole number from 0 to 4294967295");
}

TEST(words)
{
    char text[32];
    good(ARGS("--colour", "red"));
    assert_int_equal(values.colour, RED);
    good(ARGS("--colour=blue"));
    assert_int_equal(values.colour, BLUE);
    fli_option_text(&o, &table[3], text, sizeof text);
    assert_string_equal(text, "blue");
    bad(ARGS("--colour", "Red"), NULL, "--colour: 'Red' is none of red, green and blue");
    bad(ARGS("--colour", ""), NULL, "--colour: '' is none of red, green and blue");
    bad(ARGS("--color", "red"), NULL,
        "--color: there is no option 'color' any more; what it did is said by colour blue");
    bad(ARGS("--own", "nine"), NULL, "--own: 'nine' is not ten");
    good(ARGS("--own", "ten"));
    assert_int_equal(values.own, 10);
}

TEST(a_dash_is_no_name)
{
    bad(ARGS("--path", "-"), NULL, "--path: '-' is neither read nor written here: write a name");
    good(ARGS("--path", "./-"));
    assert_string_equal(values.path, "./-");
}

TEST(sources)
{
    static const char *const env[] = {"A_PROGRAM_PATH=there", "A_PROGRAM_COLOUR=", "A_PROGRAM_ON=0",
                                      "A_PROGRAM_SIZE=2K",    "ANOTHER_ON=yes",    NULL};
    assert_int_equal(read_all(ARGS("--size", "3K", "--on"), env), 0);
    assert_string_equal(values.path, "there");
    assert_int_equal(values.colour, GREEN); /* an empty variable is none */
    assert_true(values.on);
    assert_int_equal(values.size, 3072);
    assert_string_equal(fli_options_given(&o, "path")->where, "A_PROGRAM_PATH in the environment");
    assert_string_equal(fli_options_given(&o, "size")->where, "--size");
    assert_null(fli_options_given(&o, "colour")->text);
    good(ARGS("--path", ""));
    assert_string_equal(values.path, "");
    bad(ARGS("--on"), ARGS("A_PROGRAM_COLOR=x"),
        "A_PROGRAM_COLOR in the environment: there is no option 'color' any more; what it did is "
        "said by colour blue");
    bad(ARGS("--on"), ARGS("A_PROGRAM_NOW=1"),
        "A_PROGRAM_NOW in the environment: 'now' is for one start alone: write it on the command "
        "line, as --now");
    bad(ARGS("--on"), ARGS("A_PROGRAM_COLOURS=red"),
        "A_PROGRAM_COLOURS in the environment: there is no option 'colours'; did you mean "
        "'colour'?");
}

static int end(void **state)
{
    fli_options_fini(&o);
    return 0;
}

int main(int argc, char **argv)
{
    return unit_run(argc, argv, NULL, end);
}
