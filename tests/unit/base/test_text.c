/* test_text.c: base/address.h, base/distance.h and the words of base/base.h, row by row. */
#include "../../lib/unit.h"

#include <errno.h>
#include <unistd.h>

#include "base/address.h"
#include "base/bytes.h"
#include "base/distance.h"
#include "base/lines.h"

static const char *split(const char *text, struct fli_address *ret)
{
    return fli_address_split((struct fli_slice){(const uint8_t *)text, strlen(text)}, ret);
}

TEST(test_addresses)
{
    static const struct {
        const char *text, *host;
        uint16_t port;
    } good[] = {
        {"localhost:7401", "localhost", 7401},
        {"10.0.0.1:1", "10.0.0.1", 1},
        {"[::1]:65535", "::1", 65535},
        {"[fe80::1%eth0]:80", "fe80::1%eth0", 80},
        {"a:0", "a", 0},
        {"a:00080", "a", 80},
    };
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        struct fli_address a;
        assert_null(split(good[i].text, &a));
        assert_int_equal(a.host.len, strlen(good[i].host));
        assert_memory_equal(a.host.data, good[i].host, a.host.len);
        assert_int_equal(a.port, good[i].port);
    }
}

TEST(test_no_addresses)
{
    static const struct {
        const char *text, *why;
    } bad[] = {
        {"", "port"},       {"host", "port"},       {"::1", "colon"},      {"::1:80", "colon"},
        {"a:b:1", "colon"}, {"a:", "65535"},        {"a:65536", "65535"},  {"a:-1", "65535"},
        {"a:+1", "65535"},  {"a:1 ", "65535"},      {"a:000080", "65535"}, {":80", "host"},
        {"[]:80", "host"},  {"a b:80", "host"},     {"a\tb:80", "host"},   {"[a:80", "host"},
        {"a]:80", "host"},  {"[[::1]]:80", "host"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct fli_address a;
        const char *why = split(bad[i].text, &a);
        assert_non_null(why);
        assert_non_null(strstr(why, bad[i].why));
    }
    struct fli_address a;
    assert_non_null(fli_address_split((struct fli_slice){(const uint8_t *)"a\0b:80", 6}, &a));
    assert_non_null(fli_address_split((struct fli_slice){NULL, 0}, &a));
}

TEST(test_remedies)
{
    assert_non_null(strstr(fli_files_remedy(strerror(EMFILE)), "ulimit -n"));
    assert_non_null(strstr(fli_files_remedy(strerror(ENFILE)), "ulimit -n"));
    assert_non_null(strstr(fli_files_remedy("x: too many open files"), "ulimit -n"));
    assert_string_equal(fli_files_remedy(strerror(EACCES)), "");
    assert_string_equal(fli_s(0), "s");
    assert_string_equal(fli_s(1), "");
    assert_string_equal(fli_s(2), "s");
}

TEST(test_distance)
{
    static const struct {
        const char *a, *b;
        size_t distance;
    } rows[] = {
        {"", "", 0},         {"", "abc", 3},           {"abc", "abc", 0},       {"abc", "abd", 1},
        {"abc", "ab", 1},    {"kitten", "sitting", 3}, {"listen", "lsiten", 1}, {"ab", "ba", 1},
        {"jsno", "json", 1}, {"jsno", "sni", 2},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        assert_int_equal(fli_distance(rows[i].a, rows[i].b), rows[i].distance);
        assert_int_equal(fli_distance(rows[i].b, rows[i].a), rows[i].distance);
    }
    char longest[FLI_DISTANCE_WORD_MAX + 2];
    memset(longest, 'x', sizeof longest);
    longest[FLI_DISTANCE_WORD_MAX] = '\0';
    assert_int_equal(fli_distance(longest, ""), FLI_DISTANCE_WORD_MAX);
    assert_int_equal(fli_distance("", longest), FLI_DISTANCE_WORD_MAX);
    longest[FLI_DISTANCE_WORD_MAX] = 'x';
    longest[FLI_DISTANCE_WORD_MAX + 1] = '\0';
    assert_true(fli_distance(longest, longest) == SIZE_MAX);
}

TEST(test_comments)
{
    static const struct {
        const char *line;
        size_t length; /* without the comment */
    } rows[] = {
        {"", 0},     {"#", 0},      {"# a", 0},     {"a", 1},    {"a#b", 3},       {"a #b", 2},
        {"a# b", 4}, {"a\t# b", 2}, {"a##b #c", 5}, {" # a", 1}, {"a=b#c # d", 6},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const char *line = rows[i].line;
        assert_ptr_equal(fli_comment_of(line, line + strlen(line)), line + rows[i].length);
    }
}

/* The first line of a file of these bytes; NULL: why says what is wrong. */
static const char *first_line(const char *bytes, size_t len, char *why, size_t why_size)
{
    static char room[9];
    char path[] = "fencelock-lines-XXXXXX"; /* in the test's own directory */
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, bytes, len), len);
    assert_int_equal(close(fd), 0);
    int rc = fli_line_first(path, room, sizeof room, why, why_size);
    assert_int_equal(unlink(path), 0);
    assert_true(rc == 0 || (rc == FL_EINVAL && room[0] == '\0'));
    return rc == 0 ? room : NULL;
}

/* A password is taken whole, or refused. */
TEST(test_first_lines)
{
    static const struct {
        const char *bytes, *line, *says;
        size_t len;
    } rows[] = {
        {"kite#26\n", "kite#26", "", 8},
        {"kite\r\nmore", "kite", "", 10},
        {"kite\r", "kite", "", 5},
        {"ki\rte\n", "ki\rte", "", 6},
        {" k #t \n", " k #t ", "", 7},
        {"12345678", "12345678", "", 8},
        {"123456789", NULL, "of 1 to 8 bytes: it is too long", 9},
        {"kite\0\0\n", NULL, "it has a zero byte", 7},
        {"", NULL, "it is empty", 0},
        {"\nkite", NULL, "it is empty", 5},
        {"\r\n", NULL, "it is empty", 2},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char why[256] = "";
        const char *line = first_line(rows[i].bytes, rows[i].len, why, sizeof why);
        assert_true((line == NULL) == (rows[i].line == NULL));
        assert_true(line == NULL || strcmp(line, rows[i].line) == 0);
        assert_non_null(strstr(why, rows[i].says));
    }
    char why[256];
    char room[9];
    assert_int_equal(fli_line_first("/nowhere/at/all", room, sizeof room, why, sizeof why),
                     FL_EINVAL);
    assert_string_equal(why, "cannot open /nowhere/at/all: No such file or directory");
    assert_int_equal(fli_line_first("/", room, sizeof room, why, sizeof why), FL_EINVAL);
    assert_non_null(strstr(why, "Is a directory"));
}
