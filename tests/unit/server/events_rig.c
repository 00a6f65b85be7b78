/* events_rig.c: see events_rig.h. */
#include "events_rig.h"

#include <stdlib.h>

static int sink_proto(void *ctx, void *to)
{
    return ((struct client *)to)->proto;
}

static bool sink_push(void *ctx, void *to, const void *frame, size_t len)
{
    struct client *c = to;
    assert_int_equal(c->dropped, 0);
    if (c->full) {
        return false;
    }
    assert_int_equal(fli_buf_append(&c->heard, frame, len), 0);
    return true;
}

static void sink_dropped(void *ctx, void *to)
{
    struct client *c = to;
    c->dropped++;
    c->subscriber = NULL;
}

void start_many(struct fixture *f, unsigned clients)
{
    static const uint64_t seed[2] = {1, 2};
    memset(f, 0, sizeof *f);
    struct events_sink sink = {
        .ctx = f, .proto = sink_proto, .push = sink_push, .dropped = sink_dropped};
    events_init(&f->e, &sink, seed);
    f->clients = clients;
    f->client = calloc(clients, sizeof *f->client);
    assert_non_null(f->client);
    for (unsigned i = 0; i < f->clients; i++) {
        f->client[i].proto = i % 2 == 0 ? 2 : 3;
        fli_buf_init(&f->client[i].heard, OUT_MAX);
    }
}

void start(struct fixture *f)
{
    start_many(f, CLIENTS);
}

void end(struct fixture *f)
{
    for (unsigned i = 0; i < f->clients; i++) {
        events_drop(&f->e, f->client[i].subscriber);
        fli_buf_fini(&f->client[i].heard);
    }
    assert_false(events_wanted(&f->e));
    struct events_counts counts;
    events_get_counts(&f->e, &counts);
    assert_int_equal(counts.subscribers + counts.channels + counts.patterns, 0);
    free(f->client);
    events_fini(&f->e);
}

struct fli_slice text(const char *s)
{
    return (struct fli_slice){(const uint8_t *)s, strlen(s)};
}

enum events_outcome say(struct fixture *f, struct client *c, enum fli_command_id id,
                        const char *words)
{
    struct fli_slice args[64];
    unsigned n = 0;
    char *copy = strdup(words);
    for (char *save = NULL, *w = strtok_r(copy, " ", &save); w != NULL;
         w = strtok_r(NULL, " ", &save)) {
        args[n++] = text(w);
    }
    enum events_outcome outcome =
        events_command(&f->e, &c->subscriber, c, id, c->proto, args, n, &c->heard);
    free(copy);
    return outcome;
}

void assert_heard(struct client *c, const char *want)
{
    assert_int_equal(fli_buf_append(&c->heard, "", 1), 0);
    assert_string_equal((const char *)c->heard.data, want);
    fli_buf_clear(&c->heard);
}

unsigned count_heard(const struct client *c, const char *what)
{
    unsigned n = 0;
    const uint8_t *p = c->heard.data;
    size_t left = c->heard.len;
    const uint8_t *found;
    while (left > 0 && (found = memmem(p, left, what, strlen(what))) != NULL) {
        n++;
        left -= (size_t)(found - p) + 1;
        p = found + 1;
    }
    return n;
}
