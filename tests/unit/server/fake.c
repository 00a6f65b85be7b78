/* fake.c: see fake.h. */
#include "fake.h"

#include "wire/resp.h"

static struct fli_buf *sink_reply(void *request)
{
    struct asked *a = request;
    assert_false(a->answered || a->failed);
    return &a->reply;
}

static void sink_answer(void *request)
{
    struct asked *a = request;
    assert_false(a->answered || a->failed);
    assert_null(a->slot.call);
    a->answered = true;
}

static void sink_failed(void *request)
{
    struct asked *a = request;
    assert_false(a->answered || a->failed);
    a->failed = true;
}

static int submit(void *ctx, struct node_ticket *t, const void *command, size_t len,
                  node_ticket_cb cb)
{
    struct fake *f = ctx;
    if (f->submit_rc != 0) {
        return f->submit_rc;
    }
    assert_in_range(f->sent_n, 0, SENT_MAX - 1);
    struct sent *s = &f->sent[f->sent_n++];
    size_t size = 0;
    memcpy(s->bytes, command, len);
    assert_int_equal(machine_command_decode(s->bytes, len, &s->command, &size), 0);
    assert_int_equal(size, len);
    s->ticket = t;
    s->cb = cb;
    return 0;
}

static void status(void *ctx, struct node_status *ret)
{
    *ret = ((struct fake *)ctx)->status;
}

static size_t members(void *ctx, struct node_member *ret, size_t max)
{
    struct fake *f = ctx;
    assert_true(f->members_n <= max);
    memcpy(ret, f->members, f->members_n * sizeof *ret);
    return f->members_n;
}

static int change(void *ctx, uint64_t id, void (*cb)(void *ctx, int status), void *cb_ctx)
{
    struct fake *f = ctx;
    f->change_id = id;
    f->change_cb = cb;
    f->change_ctx = cb_ctx;
    return f->change_rc;
}

static int change_member(void *ctx, const struct node_change *wanted,
                         void (*cb)(void *ctx, int status), void *cb_ctx)
{
    struct fake *f = ctx;
    f->wanted = *wanted;
    return change(ctx, wanted->id, cb, cb_ctx);
}

static struct machine *machine(void *ctx)
{
    return ((struct fake *)ctx)->machine;
}

static uint64_t now_ms(void *ctx)
{
    return ((struct fake *)ctx)->now_ms;
}

static void connection(void *ctx, void *request, const struct fli_command *command,
                       const struct fli_slice *args, unsigned n)
{
    struct fake *f = ctx;
    f->connection_commands++;
    assert_int_equal(fli_resp_simple(sink_reply(request), command->name), 0);
    sink_answer(request);
}

static void describe(void *ctx, struct info_server *ret)
{
    *ret = (struct info_server){.listen_address = "127.0.0.1:1", .port = 1, .connections = 5};
}

void fake_start(struct fake *f)
{
    fake_start_with(f, 0);
}

void fake_start_with(struct fake *f, size_t calls_max)
{
    memset(f, 0, sizeof *f);
    f->now_ms = 1000;
    f->reply_max = 1 << 20;
    struct dispatch_config config = {
        .sink = {.reply = sink_reply, .answer = sink_answer, .failed = sink_failed},
        .node = {.ctx = f,
                 .submit = submit,
                 .status = status,
                 .members = members,
                 .transfer = change,
                 .change = change_member,
                 .machine = machine},
        .ctx = f,
        .now_ms = now_ms,
        .connection = connection,
        .describe = describe,
        .calls_max = calls_max,
    };
    assert_int_equal(dispatch_create(&config, &f->d), 0);
}

void fake_end(struct fake *f)
{
    for (unsigned i = 0; i < f->sent_n; i++) {
        assert_null(f->sent[i].ticket);
    }
    for (unsigned i = 0; i < f->asked_n; i++) {
        assert_null(f->asked[i].slot.call);
        fli_buf_fini(&f->asked[i].reply);
    }
    struct info_counts counts;
    dispatch_get_counts(f->d, &counts);
    assert_int_equal(counts.in_flight, 0);
    dispatch_destroy(f->d);
}

int fake_setup(void **state)
{
    *state = malloc(sizeof(struct fake));
    fake_start(*state);
    return 0;
}

int fake_teardown(void **state)
{
    fake_end(*state);
    free(*state);
    return 0;
}

struct asked *ask(struct fake *f, int proto, const char *line)
{
    struct fli_slice argv[FLI_RESP_ARGS_MAX];
    unsigned argc = 0;
    /* A copy that goes away: nothing may be remembered by its address. */
    char *copy = strdup(line);
    for (char *save = NULL, *word = strtok_r(copy, " ", &save); word != NULL;
         word = strtok_r(NULL, " ", &save)) {
        argv[argc++] = (struct fli_slice){(const uint8_t *)word, strlen(word)};
    }
    assert_in_range(f->asked_n, 0, ASKED_MAX - 1);
    struct asked *a = &f->asked[f->asked_n++];
    a->fake = f;
    fli_buf_init(&a->reply, f->reply_max);
    dispatch_request(f->d, a, &a->slot, proto, argv, argc);
    memset(copy, 0xee, strlen(line));
    free(copy);
    return a;
}

void expect(struct asked *a, const char *reply)
{
    assert_true(a->answered);
    assert_int_equal(fli_buf_append(&a->reply, "", 1), 0);
    assert_string_equal((const char *)a->reply.data, reply);
    a->reply.len--;
}

void expect_nothing(const struct asked *a)
{
    assert_false(a->answered || a->failed);
    assert_int_equal(a->reply.len, 0);
}

struct sent *last_sent(struct fake *f)
{
    assert_true(f->sent_n > 0);
    return &f->sent[f->sent_n - 1];
}

void result_payload(struct sent *s, struct machine_result r, struct fli_slice payload)
{
    struct node_ticket *t = s->ticket;
    assert_non_null(t);
    s->ticket = NULL;
    s->cb(t, 0, &r, payload);
}

void result(struct sent *s, struct machine_result r)
{
    result_payload(s, r, (struct fli_slice){NULL, 0});
}

void failure(struct sent *s, int code)
{
    struct node_ticket *t = s->ticket;
    assert_non_null(t);
    s->ticket = NULL;
    s->cb(t, code, NULL, (struct fli_slice){NULL, 0});
}

void event(struct fake *f, uint8_t type, uint64_t wait, uint64_t token, uint8_t reason)
{
    apply_event(f, type, wait, token, reason);
    dispatch_turn(f->d);
}

void apply_event(struct fake *f, uint8_t type, uint64_t wait, uint64_t token, uint8_t reason)
{
    struct machine_event e = {.type = type, .wait = wait, .token = token, .reason = reason};
    dispatch_event(f->d, &e);
}
