/* words.h: a request written as text, for the tests of the command table and of requests. */
#ifndef TEST_WORDS_H
#define TEST_WORDS_H

#include "../../lib/rng.h"

#include "wire/request.h"
#include "wire/resp.h"

#define WORDS_MAX FLI_RESP_ARGS_MAX

struct words {
    struct fli_slice argv[WORDS_MAX];
    unsigned argc;
};

/* Splits at blanks; '' is an empty argument. The text must outlive the words. */
static inline struct words words_of(const char *text)
{
    struct words w = {.argc = 0};
    while (*text != '\0') {
        size_t len = strcspn(text, " ");
        assert_true(w.argc < WORDS_MAX);
        bool empty = len == 2 && memcmp(text, "''", 2) == 0;
        w.argv[w.argc++] = (struct fli_slice){(const uint8_t *)text, empty ? 0 : len};
        text += len + (text[len] == ' ' ? 1 : 0);
    }
    return w;
}

static inline bool slice_is(const struct fli_slice *s, const char *text)
{
    return s->data != NULL && s->len == strlen(text) && memcmp(s->data, text, s->len) == 0;
}

/* Lookup and parse in one. */
static inline int words_parse(enum fli_service service, const struct words *w,
                              struct fli_request *ret, char errmsg[FLI_ERRMSG_SIZE])
{
    const struct fli_command *c = NULL;
    unsigned used = 0;
    errmsg[0] = '\0';
    int rc = fli_command_lookup(service, w->argv, w->argc, &c, &used, errmsg, FLI_ERRMSG_SIZE);
    if (rc != 0) {
        return rc;
    }
    return fli_request_parse(c, w->argv + used, w->argc - used, ret, errmsg, FLI_ERRMSG_SIZE);
}

/* A message is one line of printable ASCII that ends as a sentence part, not cut off. */
static inline void assert_message(const char *errmsg)
{
    size_t len = strlen(errmsg);
    assert_true(len > 10);
    assert_true(len < FLI_ERRMSG_SIZE - 1);
    for (size_t i = 0; i < len; i++) {
        assert_true(errmsg[i] >= ' ' && errmsg[i] < 0x7f);
    }
}

#endif
