/* kept_options.c: a copy of a handle's options, for a second handle to the same servers. */
#include <stdlib.h>
#include <string.h>

#include "redlock/redlock_private.h"

/* The texts are moved from the caller's memory to ours, or, when memory runs out, all are freed. */
struct copying {
    bool failed;
};

static const char *copy_text(struct copying *c, const char *text)
{
    char *copy = text != NULL ? strdup(text) : NULL;
    c->failed = c->failed || (text != NULL && copy == NULL);
    return copy;
}

static void free_text(const char *text)
{
    if (text != NULL) {
        explicit_bzero((void *)(uintptr_t)text, strlen(text));
        free((void *)(uintptr_t)text);
    }
}

static struct fl_redlock_login copy_login(struct copying *c, const struct fl_redlock_login *l)
{
    return (struct fl_redlock_login){.username = copy_text(c, l->username),
                                     .password = copy_text(c, l->password),
                                     .database = l->database};
}

static void free_login(const struct fl_redlock_login *l)
{
    free_text(l->username);
    free_text(l->password);
}

static struct fl_redlock_login *copy_each(struct copying *c, const struct fl_redlock_login *each,
                                          uint32_t servers)
{
    struct fl_redlock_login *copy = each != NULL ? calloc(servers, sizeof *copy) : NULL;
    c->failed = c->failed || (each != NULL && copy == NULL);
    for (uint32_t i = 0; copy != NULL && i < servers; i++) {
        copy[i] = copy_login(c, &each[i]);
    }
    return copy;
}

static struct fl_tls_options *copy_tls(struct copying *c, const struct fl_tls_options *t)
{
    struct fl_tls_options *copy = t != NULL ? calloc(1, sizeof *copy) : NULL;
    c->failed = c->failed || (t != NULL && copy == NULL);
    if (copy != NULL) {
        *copy = (struct fl_tls_options){.ca_file = copy_text(c, t->ca_file),
                                        .cert_file = copy_text(c, t->cert_file),
                                        .key_file = copy_text(c, t->key_file),
                                        .server_name = copy_text(c, t->server_name)};
    }
    return copy;
}

struct fl_redlock_options *fli_options_copy(const struct fl_redlock_options *o, uint32_t servers)
{
    struct copying c = {.failed = false};
    struct fl_redlock_options *copy = calloc(1, sizeof *copy);
    if (copy == NULL) {
        return NULL;
    }
    *copy = *o;
    copy->servers = copy_text(&c, o->servers);
    copy->key_format = copy_text(&c, o->key_format);
    copy->login = copy_login(&c, &o->login);
    copy->each = copy_each(&c, o->each, servers);
    copy->tls = copy_tls(&c, o->tls);
    if (c.failed) {
        fli_options_free(copy, servers);
        return NULL;
    }
    return copy;
}

void fli_options_free(struct fl_redlock_options *o, uint32_t servers)
{
    if (o == NULL) {
        return;
    }
    free_text(o->servers);
    free_text(o->key_format);
    free_login(&o->login);
    for (uint32_t i = 0; o->each != NULL && i < servers; i++) {
        free_login(&o->each[i]);
    }
    free((void *)(uintptr_t)o->each);
    if (o->tls != NULL) {
        free_text(o->tls->ca_file);
        free_text(o->tls->cert_file);
        free_text(o->tls->key_file);
        free_text(o->tls->server_name);
        free((void *)(uintptr_t)o->tls);
    }
    free(o);
}
