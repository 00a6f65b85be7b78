/* micro.c: what one command costs in each layer, without log, disk or sockets.
 *
 *     micro               a table: nanoseconds and allocations for each command
 *     micro LAYER N       does N turns of one layer and prints nothing, for counting instructions
 *                         (tests/bench/instructions)
 *
 * A turn is 32 ACQUIRE of free locks and the 32 RELEASE of them. The layers:
 *
 *   parse     bytes of the connection to words
 *   dispatch  words to a command of the machine, and its result to the bytes of the answer
 *   batch     commands to a sealed entry of the log
 *   apply     an entry to results
 *   all       all of these, one after the other, as a server does it
 *   frontdoor the same, with SET NX PX in the place of ACQUIRE
 *   tls       the requests and answers, each a record of its own, through both ends of TLS: by 32
 *             connections, one after the other
 *
 * Judges nothing; timings are no assertions. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "certs.h"
#include "machine/batch.h"
#include "server/dispatch.h"
#include "tls/tls.h"
#include "wire/resp.h"

#define BATCH 32u
#define TURNS 20000u
#define NAME_LEN 32u
#define BATCH_MAX ((size_t)64 << 10)

/* ---- allocations: the linker sends ours here ------------------------------------------------- */

static uint64_t allocations;

void *__real_malloc(size_t size);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t size);

void *__wrap_malloc(size_t size)
{
    allocations++;
    return __real_malloc(size);
}

void *__wrap_calloc(size_t n, size_t size)
{
    allocations++;
    return __real_calloc(n, size);
}

void *__wrap_realloc(void *p, size_t size)
{
    allocations++;
    return __real_realloc(p, size);
}

/* ---- a server without sockets, and a node without a log -------------------------------------- */

struct request {
    struct dispatch_slot slot;
    struct fli_buf ask;
    struct fli_buf answer;
    bool done;
};

struct sent {
    struct node_ticket *ticket;
    node_ticket_cb cb;
};

struct ends {
    struct fli_tls *server, *client;
};

struct bench {
    struct ends ends[BATCH];
    struct fli_buf plain, cipher, back;
    struct machine *machine;
    struct dispatch *dispatch;
    struct fli_buf entry; /* a batch: room for the header, commands */
    uint32_t count;       /* of these */
    struct fli_resp_parser parser;
    struct request acquires[BATCH];
    struct request releases[BATCH];
    struct sent sent[BATCH];
    unsigned n_sent;
    bool keeps; /* commands go into the batch */
    uint64_t clock_ms;
    char names[BATCH][40];
    char owners[BATCH][40];
};

static struct bench bench;

static struct fli_buf *sink_reply(void *request)
{
    struct request *r = request;
    return &r->answer;
}

static void sink_answer(void *request)
{
    struct request *r = request;
    r->done = true;
}

static void sink_failed(void *request)
{
    abort();
}

static uint64_t now_ms(void *ctx)
{
    return 1;
}

static int batch_append(struct bench *b, const void *command, size_t len)
{
    b->count++;
    return fli_buf_append(&b->entry, command, len);
}

static int submit(void *ctx, struct node_ticket *t, const void *command, size_t len,
                  node_ticket_cb cb)
{
    struct bench *b = ctx;
    b->sent[b->n_sent++] = (struct sent){t, cb};
    return b->keeps ? batch_append(b, command, len) : 0;
}

static void status(void *ctx, struct node_status *ret)
{
    *ret = (struct node_status){.id = 1, .role = NODE_LEADER};
}

static size_t members(void *ctx, struct node_member *ret, size_t max)
{
    return 0;
}

static int transfer(void *ctx, uint64_t id, void (*cb)(void *ctx, int status), void *cb_ctx)
{
    return FL_ENOLEADER;
}

static int change(void *ctx, const struct node_change *wanted, void (*cb)(void *ctx, int status),
                  void *cb_ctx)
{
    return FL_ENOLEADER;
}

static struct machine *get_machine(void *ctx)
{
    struct bench *b = ctx;
    return b->machine;
}

static void must(int rc)
{
    if (rc != 0) {
        fprintf(stderr, "micro: %s\n", fl_strerror(rc));
        exit(1);
    }
}

static void ask(struct request *r, unsigned argc, const char *const *argv)
{
    fli_buf_clear(&r->ask);
    must(fli_resp_array(&r->ask, argc));
    for (unsigned i = 0; i < argc; i++) {
        must(fli_resp_text(&r->ask, argv[i]));
    }
}

/* The acquires never change; a release carries the token that was answered. */
static void make_requests(struct bench *b)
{
    for (unsigned i = 0; i < BATCH; i++) {
        const char *name = b->names[i];
        const char *owner = b->owners[i];
        snprintf(b->names[i], sizeof b->names[i], "tenant-7/report-%016u", i);
        snprintf(b->owners[i], sizeof b->owners[i], "client-%025u", i);
        fli_buf_init(&b->acquires[i].ask, 4096);
        fli_buf_init(&b->acquires[i].answer, 4096);
        fli_buf_init(&b->releases[i].ask, 4096);
        fli_buf_init(&b->releases[i].answer, 4096);
        ask(&b->acquires[i], 6, (const char *[]){"ACQUIRE", name, "TTL", "30000", "OWNER", owner});
        ask(&b->releases[i], 3, (const char *[]){"RELEASE", name, "1000000"});
    }
}

static struct frontdoor_context frontdoor;

/* The same locks, as a lock library for Redis asks for them. */
static void make_redis_requests(struct bench *b)
{
    for (unsigned i = 0; i < BATCH; i++) {
        const char *name = b->names[i];
        const char *owner = b->owners[i];
        ask(&b->acquires[i], 6, (const char *[]){"SET", name, owner, "NX", "PX", "30000"});
    }
}

static void set_up(struct bench *b)
{
    static const uint64_t seed[2] = {1, 2};
    struct dispatch_config config = {
        .sink = {.reply = sink_reply, .answer = sink_answer, .failed = sink_failed},
        .node = {.ctx = b,
                 .submit = submit,
                 .status = status,
                 .members = members,
                 .transfer = transfer,
                 .change = change,
                 .machine = get_machine},
        .ctx = b,
        .now_ms = now_ms,
        .frontdoor = &frontdoor,
    };
    must(frontdoor_scripts_create(&frontdoor.scripts));
    b->machine = machine_create(seed);
    must(dispatch_create(&config, &b->dispatch));
    fli_resp_parser_init(&b->parser,
                         (struct fli_resp_limits){.arg_max = 4096, .request_max = 8192});
    make_requests(b);
}

/* ---- the layers ------------------------------------------------------------------------------ */

static void parse(struct bench *b, struct request *r)
{
    if (fli_resp_next(&b->parser, r->ask.data, r->ask.len) != FLI_RESP_REQUEST) {
        abort();
    }
}

static void parse_all(struct bench *b, struct request *list)
{
    for (unsigned i = 0; i < BATCH; i++) {
        parse(b, &list[i]);
        (void)fli_resp_consume(&b->parser);
    }
}

/* Hands them to dispatch; parsing comes along, and what it costs is known. */
static void submit_all(struct bench *b, struct request *list)
{
    b->n_sent = 0;
    for (unsigned i = 0; i < BATCH; i++) {
        struct request *r = &list[i];
        fli_buf_clear(&r->answer);
        r->done = false;
        parse(b, r);
        dispatch_request(b->dispatch, r, &r->slot, 2, b->parser.argv, b->parser.argc);
        (void)fli_resp_consume(&b->parser);
    }
    if (b->n_sent != BATCH) {
        abort();
    }
}

static void check_answers(const struct request *list)
{
    for (unsigned i = 0; i < BATCH; i++) {
        if (!list[i].done || list[i].answer.data[0] == '-') {
            abort();
        }
    }
}

static void dispatch_all(struct bench *b, struct request *list, int code)
{
    struct machine_result result = {.code = (uint8_t)code, .token = 1000000};
    const struct fli_slice nothing = {NULL, 0};
    submit_all(b, list);
    for (unsigned i = 0; i < BATCH; i++) {
        b->sent[i].cb(b->sent[i].ticket, 0, &result, nothing);
    }
    check_answers(list);
}

static void batch_start(struct bench *b)
{
    static const uint8_t header[MACHINE_BATCH_HEADER_SIZE];
    fli_buf_init(&b->entry, BATCH_MAX);
    b->clock_ms++;
    b->count = 0;
    must(fli_buf_append(&b->entry, header, sizeof header));
}

static size_t batch_seal(struct bench *b)
{
    const struct machine_batch_header h = {.count = b->count,
                                           .timestamp_ms = b->clock_ms,
                                           .term = 1,
                                           .length = (uint32_t)b->entry.len};
    must(fli_buf_reserve(&b->entry, 8));
    return machine_batch_seal(b->entry.data, &h);
}

static void apply(struct bench *b, size_t size, bool answers)
{
    struct machine_cursor cur;
    struct machine_result result;
    const struct fli_slice nothing = {NULL, 0};
    must(machine_begin(b->machine, b->entry.data, size, &cur));
    for (uint32_t i = 0; machine_next(b->machine, &cur, &result); i++) {
        if (answers) {
            b->sent[i].cb(b->sent[i].ticket, 0, &result, nothing);
        }
    }
}

static void do_all(struct bench *b, struct request *list)
{
    b->keeps = true;
    batch_start(b);
    submit_all(b, list);
    apply(b, batch_seal(b), true);
    check_answers(list);
    fli_buf_fini(&b->entry);
    b->keeps = false;
}

/* The next releases carry the tokens that were just granted. */
static void take_tokens(struct bench *b)
{
    uint64_t first = machine_last_token(b->machine) - BATCH + 1;
    for (unsigned i = 0; i < BATCH; i++) {
        char token[24];
        snprintf(token, sizeof token, "%llu", (unsigned long long)(first + i));
        ask(&b->releases[i], 3, (const char *[]){"RELEASE", b->names[i], token});
    }
}

static void add_commands(struct bench *b, uint8_t op, uint64_t first_token)
{
    uint8_t bytes[256];
    struct fli_buf encoded = {.data = bytes, .cap = sizeof bytes, .max = sizeof bytes};
    for (unsigned i = 0; i < BATCH; i++) {
        struct machine_command c = {.op = op,
                                    .n_names = 1,
                                    .permits = 1,
                                    .name = {(const uint8_t *)b->names[i], NAME_LEN},
                                    .token = first_token + i,
                                    .ttl_ms = 30000};
        if (op == MACHINE_OP_ACQUIRE) {
            c.owner = (struct fli_slice){(const uint8_t *)b->owners[i], NAME_LEN};
        }
        encoded.len = 0;
        must(machine_command_encode(&c, &encoded));
        must(batch_append(b, encoded.data, encoded.len));
    }
}

static void turn_parse(struct bench *b)
{
    parse_all(b, b->acquires);
    parse_all(b, b->releases);
}

static void turn_dispatch(struct bench *b)
{
    dispatch_all(b, b->acquires, MACHINE_GRANTED);
    dispatch_all(b, b->releases, MACHINE_DONE);
}

static void turn_batch(struct bench *b)
{
    for (unsigned k = 0; k < 2; k++) {
        batch_start(b);
        add_commands(b, k == 0 ? MACHINE_OP_ACQUIRE : MACHINE_OP_RELEASE, 1);
        (void)batch_seal(b);
        fli_buf_fini(&b->entry);
    }
}

static void turn_apply(struct bench *b)
{
    for (unsigned k = 0; k < 2; k++) {
        batch_start(b);
        uint64_t token = machine_last_token(b->machine);
        add_commands(b, k == 0 ? MACHINE_OP_ACQUIRE : MACHINE_OP_RELEASE,
                     k == 0 ? 1 : token - BATCH + 1);
        apply(b, batch_seal(b), false);
        fli_buf_fini(&b->entry);
    }
}

static void turn_all(struct bench *b)
{
    do_all(b, b->acquires);
    take_tokens(b);
    do_all(b, b->releases);
}

/* The releases are the same, so the difference is that of the acquires. */
static void turn_frontdoor(struct bench *b)
{
    static bool made;
    if (!made) {
        make_redis_requests(b);
        made = true;
    }
    do_all(b, b->acquires);
    take_tokens(b);
    do_all(b, b->releases);
}

/* ---- TLS ------------------------------------------------------------------------------------- */

static struct fli_tls_context *tls_context(const char *dir, bool server)
{
    char cert[96], key[96], ca[96], errmsg[FLI_TLS_ERRMSG_SIZE];
    struct fli_tls_context *c = NULL;
    snprintf(cert, sizeof cert, "%s/%s.crt", dir, server ? "server" : "client");
    snprintf(key, sizeof key, "%s/%s.key", dir, server ? "server" : "client");
    snprintf(ca, sizeof ca, "%s/ca.crt", dir);
    const struct fli_tls_config config = {.server = server,
                                          .cert_file = cert,
                                          .key_file = key,
                                          .ca_file = ca,
                                          .auth = FLI_TLS_AUTH_REQUIRED};
    if (fli_tls_context_create(&config, &c, errmsg, sizeof errmsg) != 0) {
        fprintf(stderr, "micro: %s\n", errmsg);
        exit(1);
    }
    return c;
}

/* What one end has to send goes to the other. */
static void pass(struct bench *b, struct fli_tls *to)
{
    struct fli_buf sent = b->cipher;
    b->cipher = b->back;
    fli_buf_clear(&b->cipher);
    must(fli_tls_read(to, sent.data, sent.len, &b->plain, &b->cipher));
    b->back = sent;
}

static void shake_hands(struct bench *b, struct ends *e)
{
    fli_buf_clear(&b->cipher);
    must(fli_tls_read(e->client, NULL, 0, &b->plain, &b->cipher));
    for (bool to_server = true; b->cipher.len > 0; to_server = !to_server) {
        pass(b, to_server ? e->server : e->client);
    }
    if (fli_tls_state(e->server) != FLI_TLS_OPEN || fli_tls_state(e->client) != FLI_TLS_OPEN) {
        abort();
    }
}

static void set_up_tls(struct bench *b)
{
    char path[64];
    const char *dir = certs_dir(path);
    certs_make(dir, "ca", &(struct cert){.cn = "ca", .ca = true});
    certs_make(dir, "server", &(struct cert){.cn = "s", .san = "DNS:server", .issuer = "ca"});
    certs_make(dir, "client", &(struct cert){.cn = "client", .issuer = "ca"});
    struct fli_tls_context *server = tls_context(dir, true);
    struct fli_tls_context *client = tls_context(dir, false);
    fli_buf_init(&b->plain, FLI_TLS_PLAIN_MAX(BATCH_MAX));
    fli_buf_init(&b->cipher, BATCH_MAX);
    fli_buf_init(&b->back, BATCH_MAX);
    for (unsigned i = 0; i < BATCH; i++) {
        must(fli_tls_create(server, NULL, &b->ends[i].server));
        must(fli_tls_create(client, "server", &b->ends[i].client));
        shake_hands(b, &b->ends[i]);
    }
    fli_tls_context_destroy(server);
    fli_tls_context_destroy(client);
    certs_remove(dir);
}

static void carry(struct bench *b, struct fli_tls *from, struct fli_tls *to, const void *data,
                  size_t len)
{
    fli_buf_clear(&b->plain);
    fli_buf_clear(&b->cipher);
    must(fli_tls_write(from, data, len, &b->cipher));
    pass(b, to);
    if (b->plain.len != len) {
        abort();
    }
}

static void turn_tls(struct bench *b)
{
    static const char answer[] = ":1000000\r\n";
    if (b->ends[0].server == NULL) {
        set_up_tls(b);
    }
    for (unsigned k = 0; k < 2; k++) {
        for (unsigned i = 0; i < BATCH; i++) {
            const struct fli_buf *asked = k == 0 ? &b->acquires[i].ask : &b->releases[i].ask;
            struct ends *e = &b->ends[i];
            carry(b, e->client, e->server, asked->data, asked->len);
            carry(b, e->server, e->client, answer, sizeof answer - 1);
        }
    }
}

/* What a turn does besides what it is there for; taken off in the table. */
static const struct layer {
    const char *name;
    void (*turn)(struct bench *b);
    int less; /* the layer whose work this one repeats; -1: none */
} layers[] = {
    {"parse", turn_parse, -1},        {"dispatch", turn_dispatch, 0}, {"batch", turn_batch, -1},
    {"apply", turn_apply, 2},         {"all", turn_all, -1},          {"tls", turn_tls, -1},
    {"frontdoor", turn_frontdoor, -1}};
#define LAYERS (sizeof layers / sizeof layers[0])

static void print_table(struct bench *b)
{
    double ns[LAYERS];
    double allocs[LAYERS];
    printf("%-10s %14s %22s\n", "layer", "ns/command", "allocations/command");
    for (size_t i = 0; i < LAYERS; i++) {
        layers[i].turn(b); /* pools fill up */
        uint64_t before = allocations;
        uint64_t start = fli_clock_ns();
        for (unsigned k = 0; k < TURNS; k++) {
            layers[i].turn(b);
        }
        double n = 2.0 * BATCH * TURNS;
        ns[i] = (double)(fli_clock_ns() - start) / n;
        allocs[i] = (double)(allocations - before) / n;
        int less = layers[i].less;
        printf("%-10s %14.1f %22.3f\n", layers[i].name, ns[i] - (less < 0 ? 0 : ns[less]),
               allocs[i] - (less < 0 ? 0 : allocs[less]));
    }
}

int main(int argc, char **argv)
{
    struct bench *b = &bench;
    fli_tls_keep_buffers(); /* as the programs do */
    set_up(b);
    if (argc == 1) {
        print_table(b);
        return 0;
    }
    for (size_t i = 0; i < LAYERS; i++) {
        if (argc == 3 && strcmp(argv[1], layers[i].name) == 0) {
            for (unsigned long n = strtoul(argv[2], NULL, 10); n > 0; n--) {
                layers[i].turn(b);
            }
            return 0;
        }
    }
    fputs("usage: micro [parse|dispatch|batch|apply|all|tls TURNS]\n", stderr);
    return 2;
}
