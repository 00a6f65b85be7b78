/* scripts.c: see scripts.h. */
#include "frontdoor/scripts.h"

#include <stdlib.h>
#include <string.h>

#include "frontdoor/normal.h"

struct entry {
    uint8_t sha1[FLI_SHA1_SIZE];
    const struct frontdoor_form *form;
};

#define KNOWN_MAX 256u

struct frontdoor_scripts {
    struct entry texts[KNOWN_MAX + FRONTDOOR_ALIASES_MAX], tokens[KNOWN_MAX]; /* sorted */
    size_t n_texts, n_tokens, n_aliases;
    struct entry loaded[FRONTDOOR_LOADED_MAX]; /* the oldest is replaced first */
    size_t n_loaded, next_loaded;
};

static int compare(const void *a, const void *b)
{
    return memcmp(((const struct entry *)a)->sha1, ((const struct entry *)b)->sha1, FLI_SHA1_SIZE);
}

static const struct frontdoor_form *find(const struct entry *list, size_t n,
                                         const uint8_t sha1[FLI_SHA1_SIZE])
{
    struct entry key = {.form = NULL};
    memcpy(key.sha1, sha1, FLI_SHA1_SIZE);
    const struct entry *e = n == 0 ? NULL : bsearch(&key, list, n, sizeof key, compare);
    return e == NULL ? NULL : e->form;
}

static struct fli_slice slice(const char *text)
{
    return (struct fli_slice){(const uint8_t *)text, strlen(text)};
}

static size_t add_known(struct entry *list, size_t n, const struct frontdoor_known *known,
                        size_t len)
{
    FLI_ASSERT(n + len <= KNOWN_MAX);
    for (size_t i = 0; i < len; i++) {
        bool ok = fli_sha1_parse(slice(known[i].sha1), list[n].sha1);
        list[n].form = frontdoor_form_find(slice(known[i].form));
        FLI_ASSERT(ok && list[n].form != NULL);
        n++;
    }
    return n;
}

/* Adds our own wording of each form. */
static size_t add_forms(struct entry *list, size_t n)
{
    FLI_ASSERT(n + frontdoor_forms_len <= KNOWN_MAX);
    for (size_t i = 0; i < frontdoor_forms_len; i++) {
        bool ok = frontdoor_normal(slice(frontdoor_forms[i].script), list[n].sha1);
        FLI_ASSERT(ok);
        list[n++].form = &frontdoor_forms[i];
    }
    return n;
}

int frontdoor_scripts_create(struct frontdoor_scripts **ret)
{
    struct frontdoor_scripts *s = calloc(1, sizeof *s);
    if (s == NULL) {
        return FL_ENOMEM;
    }
    s->n_texts = add_known(s->texts, 0, frontdoor_known_texts, frontdoor_known_texts_len);
    s->n_tokens = add_known(s->tokens, 0, frontdoor_known_tokens, frontdoor_known_tokens_len);
    s->n_tokens = add_forms(s->tokens, s->n_tokens);
    qsort(s->texts, s->n_texts, sizeof s->texts[0], compare);
    qsort(s->tokens, s->n_tokens, sizeof s->tokens[0], compare);
    *ret = s;
    return 0;
}

void frontdoor_scripts_destroy(struct frontdoor_scripts *s)
{
    free(s);
}

const struct frontdoor_form *frontdoor_scripts_find(const struct frontdoor_scripts *s,
                                                    const uint8_t sha1[FLI_SHA1_SIZE])
{
    const struct frontdoor_form *form = find(s->texts, s->n_texts, sha1);
    for (size_t i = 0; form == NULL && i < s->n_loaded; i++) {
        if (memcmp(s->loaded[i].sha1, sha1, FLI_SHA1_SIZE) == 0) {
            form = s->loaded[i].form;
        }
    }
    return form;
}

static void remember(struct frontdoor_scripts *s, const uint8_t sha1[FLI_SHA1_SIZE],
                     const struct frontdoor_form *form)
{
    struct entry *e = &s->loaded[s->next_loaded];
    memcpy(e->sha1, sha1, FLI_SHA1_SIZE);
    e->form = form;
    s->next_loaded = (s->next_loaded + 1) % FRONTDOOR_LOADED_MAX;
    s->n_loaded += s->n_loaded < FRONTDOOR_LOADED_MAX;
}

const struct frontdoor_form *frontdoor_scripts_load(struct frontdoor_scripts *s,
                                                    struct fli_slice text,
                                                    uint8_t sha1[FLI_SHA1_SIZE])
{
    uint8_t tokens[FLI_SHA1_SIZE];
    fli_sha1_of(text.data, text.len, sha1);
    const struct frontdoor_form *form = frontdoor_scripts_find(s, sha1);
    if (form != NULL || !frontdoor_normal(text, tokens)) {
        return form;
    }
    form = find(s->tokens, s->n_tokens, tokens);
    if (form != NULL) {
        remember(s, sha1, form);
    }
    return form;
}

void frontdoor_scripts_flush(struct frontdoor_scripts *s)
{
    s->n_loaded = 0;
    s->next_loaded = 0;
}

bool frontdoor_scripts_add_alias(struct frontdoor_scripts *s, const uint8_t sha1[FLI_SHA1_SIZE],
                                 const struct frontdoor_form *form)
{
    if (s->n_aliases == FRONTDOOR_ALIASES_MAX) {
        return false;
    }
    struct entry *e = &s->texts[s->n_texts++];
    memcpy(e->sha1, sha1, FLI_SHA1_SIZE);
    e->form = form;
    s->n_aliases++;
    qsort(s->texts, s->n_texts, sizeof s->texts[0], compare);
    return true;
}

bool frontdoor_scripts_is_text(const struct frontdoor_scripts *s, const uint8_t sha1[FLI_SHA1_SIZE])
{
    return find(s->texts, s->n_texts, sha1) != NULL;
}
