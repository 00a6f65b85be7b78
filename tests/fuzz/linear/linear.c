/* linear.c: the normaliser of scripts (src/frontdoor/normal.c) takes time in proportion to the
 * text.
 *
 * Time is counted in branches of its code and in bytes that it has memchr, memcmp and memcpy look
 * at, so the number is the same at each run. Texts are pieces that a scanner may go back for,
 * repeated, alone and in pairs; and the corpus of fuzz_script.c, repeated. Eight times the text may
 * cost eight times as much, and a byte no more than so many steps.
 *
 *     linear CORPUS */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "frontdoor/normal.h"

#define SHORT ((size_t)1024)
#define TIMES ((size_t)8)
#define STEPS_PER_BYTE 540u /* three times the costliest text that is known; compilers differ */

static uint64_t steps;
static uint64_t costliest;

/* The compiler calls it at each branch of the code that is counted. */
void __sanitizer_cov_trace_pc(void);
void __sanitizer_cov_trace_pc(void)
{
    steps++;
}

void *__real_memchr(const void *p, int c, size_t n);
void *__wrap_memchr(const void *p, int c, size_t n);
int __real_memcmp(const void *a, const void *b, size_t n);
int __wrap_memcmp(const void *a, const void *b, size_t n);
void *__real_memcpy(void *to, const void *from, size_t n);
void *__wrap_memcpy(void *to, const void *from, size_t n);

void *__wrap_memchr(const void *p, int c, size_t n)
{
    const char *found = __real_memchr(p, c, n);
    steps += found == NULL ? n : (size_t)(found - (const char *)p);
    return (void *)(uintptr_t)found;
}

int __wrap_memcmp(const void *a, const void *b, size_t n)
{
    steps += n;
    return __real_memcmp(a, b, n);
}

void *__wrap_memcpy(void *to, const void *from, size_t n)
{
    steps += n;
    return __real_memcpy(to, from, n);
}

static uint64_t cost(const char *text, size_t len)
{
    uint8_t name[FLI_SHA1_SIZE];
    steps = 0;
    bool read = frontdoor_normal((struct fli_slice){(const uint8_t *)text, len}, name);
    (void)read;
    return steps;
}

/* What stands in front, and then the piece, until the text has this size. */
static void repeat(char *out, size_t size, const char *front, const char *piece, size_t len)
{
    size_t at = strlen(front);
    memcpy(out, front, at);
    for (; at < size; at++) {
        out[at] = piece[(at - strlen(front)) % len];
    }
}

static int judge(const char *front, const char *piece, size_t len)
{
    static char text[SHORT * TIMES];
    if (len == 0) {
        return 0;
    }
    repeat(text, sizeof text, front, piece, len);
    uint64_t few = cost(text, SHORT);
    uint64_t many = cost(text, sizeof text);
    costliest = many / sizeof text > costliest ? many / sizeof text : costliest;
    /* A text that ends in the middle of the short one costs nothing more in the long one. */
    if (many > few * TIMES * 5 / 4 || many > STEPS_PER_BYTE * sizeof text) {
        fprintf(stderr, "linear: %zu bytes take %llu steps, %zu take %llu: \"%s\", then \"%.*s\"\n",
                SHORT, (unsigned long long)few, sizeof text, (unsigned long long)many, front,
                (int)(len > 40 ? 40 : len), piece);
        return 1;
    }
    return 0;
}

static int judge_pieces(void)
{
    static const char *const pieces[] = {"[",
                                         "[=",
                                         "[==",
                                         "]",
                                         "]=",
                                         "]]",
                                         "--",
                                         "--[",
                                         "--[[",
                                         "--[=[",
                                         "'",
                                         "\"",
                                         "\\",
                                         "\n",
                                         "'a'",
                                         "\"a'",
                                         "(",
                                         ")",
                                         "()",
                                         ";",
                                         "; (",
                                         ".",
                                         "..",
                                         "-",
                                         "- ",
                                         "e+",
                                         "1e+",
                                         "0.",
                                         "a",
                                         "redis",
                                         "a ",
                                         "a=",
                                         "=",
                                         "{",
                                         "nil ",
                                         " ",
                                         "\r\n",
                                         "--\n",
                                         "[[]]",
                                         "--[[]]",
                                         "'\\",
                                         "]=]",
                                         "[=[]",
                                         ",",
                                         "'PX'",
                                         "\xff",
                                         "redis.",
                                         "call(",
                                         "redis.call('GET',",
                                         "[====================",
                                         "]====================",
                                         "'\\\\'",
                                         "[[\n]]",
                                         "[[\\]]"};
    static const char *const fronts[] = {"",       "[[", "[=[", "--[[",
                                         "--[==[", "'",  "\"",  "redis.call("};
    const size_t n = sizeof pieces / sizeof pieces[0];
    int wrong = 0;
    for (size_t f = 0; f < sizeof fronts / sizeof fronts[0]; f++) {
        for (size_t i = 0; i < n; i++) {
            wrong += judge(fronts[f], pieces[i], strlen(pieces[i]));
        }
    }
    for (size_t i = 0; i < n * n; i++) {
        char two[64];
        int len = snprintf(two, sizeof two, "%s%s", pieces[i / n], pieces[i % n]);
        wrong += judge("", two, (size_t)len);
    }
    return wrong;
}

static int judge_corpus(const char *path, unsigned *files)
{
    static char text[SHORT];
    DIR *d = opendir(path);
    int wrong = 0;
    for (struct dirent *e; d != NULL && (e = readdir(d)) != NULL;) {
        char name[1024];
        snprintf(name, sizeof name, "%s/%s", path, e->d_name);
        FILE *f = e->d_name[0] == '.' ? NULL : fopen(name, "re");
        if (f != NULL) {
            size_t len = fread(text, 1, sizeof text, f);
            wrong += judge("", text, len);
            *files += 1;
            (void)fclose(f);
        }
    }
    if (d != NULL) {
        (void)closedir(d);
    }
    return wrong;
}

int main(int argc, char **argv)
{
    unsigned files = 0;
    int wrong = judge_pieces();
    wrong += argc == 2 ? judge_corpus(argv[1], &files) : 0;
    printf("%u files of the corpus; the costliest text takes %llu steps a byte\n", files,
           (unsigned long long)costliest);
    return wrong == 0 && files > 0 ? 0 : 1;
}
