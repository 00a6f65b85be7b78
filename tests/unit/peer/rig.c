/* rig.c: see rig.h. */
#include "rig.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include "../../lib/ports.h"
#include "peer/transport_private.h"

const struct handshake_formats RIG_FORMATS = {.low = 3, .high = 5};
const struct stream_limits RIG_LIMITS = {.frame_max = (size_t)1 << 20, .out_max = (size_t)4 << 20};

/* ---- the loop ---- */

static void tick_cb(uv_timer_t *timer)
{
}

static void tick_closed(uv_handle_t *handle)
{
    free(handle);
}

uint64_t rig_deadline(struct rig *r)
{
    uv_update_time(&r->loop);
    return uv_now(&r->loop) + DEADLINE_MS;
}

/* A timer of its own ends the turn when nothing happens. It is due again and again: uv_run() calls
 * what is due before it waits, and would then wait for ever. */
bool rig_turn(struct rig *r, uint64_t deadline_ms)
{
    uv_timer_t *tick = malloc(sizeof *tick);
    assert_non_null(tick);
    uv_timer_init(&r->loop, tick);
    uv_timer_start(tick, tick_cb, 20, 20);
    uv_run(&r->loop, UV_RUN_ONCE);
    uv_close((uv_handle_t *)tick, tick_closed);
    uv_run(&r->loop, UV_RUN_NOWAIT);
    if (r->turn != NULL) {
        r->turn(r->turn_ctx);
    }
    return uv_now(&r->loop) < deadline_ms;
}

/* ---- streams ---- */

static void frame_cb(void *ctx, uint8_t type, struct fli_slice body)
{
    struct held_stream *h = ctx;
    h->frames++;
    h->type = type;
    fli_buf_clear(&h->body);
    assert_int_equal(fli_buf_append(&h->body, body.data, body.len), 0);
    if (h->answer) {
        struct fli_slice part = {h->body.data, h->body.len};
        assert_int_equal(stream_send(h->s, type, &part, 1), 0);
        stream_flush(h->s);
    }
    if (h->frames == h->close_after) {
        stream_close(h->s);
        h->s = NULL;
    }
}

static void lost_cb(void *ctx, const char *why)
{
    struct held_stream *h = ctx;
    h->lost++;
    snprintf(h->why, sizeof h->why, "%s", why);
}

static void held_init(struct held_stream *h, enum stream_kind kind,
                      const struct peer_identity *peer, struct stream *s)
{
    unsigned close_after = h->close_after;
    fli_buf_fini(&h->body);
    memset(h, 0, sizeof *h);
    h->s = s;
    h->kind = kind;
    h->close_after = close_after;
    if (peer != NULL) {
        h->peer = *peer;
    }
    fli_buf_init(&h->body, FRAME_MAX);
}

void held_start(struct held_stream *h)
{
    struct stream_callbacks cbs = {.ctx = h, .frame = frame_cb, .lost = lost_cb};
    (void)stream_start(h->s, &cbs);
}

void held_close(struct held_stream *h)
{
    stream_close(h->s);
    h->s = NULL;
    fli_buf_fini(&h->body);
}

bool held_is_hung_up(const struct held_stream *h)
{
    return h->lost == 1 && (strcmp(h->why, "the peer closed it") == 0 ||
                            strcmp(h->why, uv_strerror(UV_ECONNRESET)) == 0 ||
                            strcmp(h->why, uv_strerror(UV_EPIPE)) == 0);
}

/* ---- the transport's callbacks ---- */

static enum handshake_verdict check_cb(void *ctx, const struct peer_identity *peer,
                                       char reason[HANDSHAKE_REASON_MAX])
{
    struct side *s = ctx;
    s->judged++;
    s->peer = *peer;
    if (s->undecided) {
        return HANDSHAKE_UNDECIDED;
    }
    if (s->refuse) {
        snprintf(reason, HANDSHAKE_REASON_MAX, "no: node %llu", (unsigned long long)peer->node_id);
        return HANDSHAKE_OTHER_INCARNATION;
    }
    return HANDSHAKE_WELCOME;
}

static void accepted_cb(void *ctx, enum stream_kind kind, const struct peer_identity *peer,
                        struct stream *stream)
{
    struct side *s = ctx;
    struct held_stream *h = &s->streams[s->accepted % RIG_STREAMS];
    s->accepted++;
    if (s->discard) {
        stream_close(stream);
        return;
    }
    if (h->s != NULL && h->lost > 0) {
        held_close(h);
    }
    assert_null(h->s);
    held_init(h, kind, peer, stream);
    if (!s->unstarted) {
        held_start(h);
    }
}

static void answered_cb(void *ctx, uint64_t peer_id, enum handshake_verdict verdict,
                        const char *reason)
{
    struct side *s = ctx;
    s->answered++;
    s->verdict = verdict;
    snprintf(s->reason, sizeof s->reason, "%s", reason);
}

static void absent_cb(void *ctx, uint64_t peer_id)
{
    struct side *s = ctx;
    s->absent++;
    s->absent_id = peer_id;
}

static void log_cb(void *ctx, int level, const char *message)
{
    struct side *s = ctx;
    assert_true(level >= 1 && level <= 4);
    s->logged++;
    snprintf(s->log, sizeof s->log, "%s", message);
}

static void closed_cb(void *ctx)
{
    ((struct side *)ctx)->closed++;
}

static void dialed_cb(void *ctx, int status, const struct peer_identity *peer, struct stream *s)
{
    struct rig *r = ctx;
    r->dialed++;
    r->status = status;
    assert_int_equal(status == 0, s != NULL);
    if (status == 0) {
        held_init(&r->mine, 0, peer, s);
    }
}

/* ---- life ---- */

void side_config(struct rig *r, struct side *s, struct transport_config *ret)
{
    memset(ret, 0, sizeof *ret);
    ret->bind_address = r->members.list[s->id - 1].address;
    ret->members = r->members;
    ret->self = s->self;
    ret->formats = RIG_FORMATS;
    ret->connect_ms = ret->answer_ms = ret->unacked_ms = RIG_PATIENCE_MS;
    for (unsigned kind = 1; kind <= STREAM_KINDS; kind++) {
        ret->limits[kind] = RIG_LIMITS;
    }
}

struct transport_callbacks rig_callbacks(struct side *s)
{
    return (struct transport_callbacks){.ctx = s,
                                        .check = check_cb,
                                        .accepted = accepted_cb,
                                        .answered = answered_cb,
                                        .absent = absent_cb,
                                        .log = log_cb};
}

void side_start(struct rig *r, struct side *s, const struct transport_config *config)
{
    struct transport_callbacks cbs = rig_callbacks(s);
    if (transport_create(&r->loop, config, &cbs, &s->t, r->errmsg, sizeof r->errmsg) != 0 ||
        transport_start(s->t, r->errmsg, sizeof r->errmsg) != 0) {
        fail_msg("%s", r->errmsg);
    }
    assert_true(transport_is_at(s->t, r->members.list[s->id - 1].address));
    s->t->pending_ms = 2 * DEADLINE_MS;
}

static void side_init(struct rig *r, struct side *s, uint64_t id)
{
    struct transport_config config;
    s->rig = r;
    s->id = id;
    s->self.node_id = id;
    s->self.incarnation = 1000 + id;
    s->self.start.number = 1;
    s->self.cluster_id = 7;
    s->self.members_crc = 42;
    s->self.version = RIG_FORMATS.high;
    snprintf(s->self.client_address, sizeof s->self.client_address, "client-%d:1", (int)id);
    side_config(r, s, &config);
    side_start(r, s, &config);
}

/* A loop opens a descriptor of its own with its first socket, which tests must not count. */
static void open_spare(struct rig *r)
{
    uv_tcp_t first;
    assert_int_equal(uv_tcp_init(&r->loop, &first), 0);
    uv_close((uv_handle_t *)&first, NULL);
    uv_run(&r->loop, UV_RUN_DEFAULT);
}

struct rig *rig_open(const char *third)
{
    struct rig *r = test_calloc(1, sizeof *r);
    char text[256];
    (void)signal(SIGPIPE, SIG_IGN); /* as node_create does */
    uv_loop_init(&r->loop);
    open_spare(r);
    for (unsigned i = 0; i < 3; i++) {
        r->reserved[i] = port_reserve(&r->ports[i]);
    }
    snprintf(text, sizeof text, "1=127.0.0.1:%u,2=127.0.0.1:%u,3=127.0.0.1:%u", r->ports[0],
             r->ports[1], r->ports[2]);
    assert_int_equal(members_parse(text, &r->members, r->errmsg, sizeof r->errmsg), 0);
    if (third != NULL) {
        snprintf(r->members.list[2].address, MEMBER_ADDRESS_MAX, "%s", third);
    }
    side_init(r, &r->a, 1);
    side_init(r, &r->b, 2);
    return r;
}

void side_stop(struct side *s)
{
    if (s->t == NULL) {
        return;
    }
    for (unsigned i = 0; i < RIG_STREAMS; i++) {
        held_close(&s->streams[i]);
    }
    transport_close(s->t, closed_cb, s);
    assert_int_equal(s->closed, 0);
    RUN_UNTIL(s->rig, s->closed == 1);
    assert_true(fli_list_empty(&s->t->all));
    transport_destroy(s->t);
    s->t = NULL;
    s->closed = 0;
}

void rig_close(struct rig *r)
{
    held_close(&r->mine);
    side_stop(&r->a);
    side_stop(&r->b);
    RUN_UNTIL(r, !uv_loop_alive(&r->loop));
    assert_int_equal(uv_loop_close(&r->loop), 0);
    for (unsigned i = 0; i < 3; i++) {
        close(r->reserved[i]);
    }
    test_free(r);
}

void rig_dial(struct rig *r, uint64_t id, enum stream_kind kind)
{
    unsigned before = r->dialed;
    assert_int_equal(transport_dial(r->a.t, id, kind, dialed_cb, r), 0);
    assert_int_equal(r->dialed, before);
    RUN_UNTIL(r, r->dialed == before + 1);
}

size_t rig_memory(const struct stream *s)
{
    return sizeof *s + s->gather.cap + s->in.in.cap + s->out.cap + s->cipher.cap;
}

void rig_pair(struct rig *r, enum stream_kind kind)
{
    rig_dial(r, 2, kind);
    assert_int_equal(r->status, 0);
    held_start(&r->mine);
    RUN_UNTIL(r, r->b.accepted == 1);
}

/* ---- plain sockets ---- */

struct handshake rig_handshake(const struct rig *r)
{
    struct handshake h;
    memset(&h, 0, sizeof h);
    h.kind = STREAM_RAFT;
    h.target = 2;
    h.from = r->a.self;
    return h;
}

int plain_listener(uint16_t *ret_port, int backlog)
{
    struct sockaddr_in addr = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof addr;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&addr, len), 0);
    assert_int_equal(listen(fd, backlog), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&addr, &len), 0);
    *ret_port = ntohs(addr.sin_port);
    return fd;
}

int plain_connect_from(uint32_t address, uint16_t port)
{
    struct sockaddr_in from = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(address)};
    struct sockaddr_in addr = {
        .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = htons(port)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&from, sizeof from), 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&addr, sizeof addr), 0);
    return fd;
}

int plain_connect(uint16_t port)
{
    return plain_connect_from(INADDR_LOOPBACK, port);
}

void plain_send(int fd, const void *data, size_t len)
{
    assert_int_equal(send(fd, data, len, MSG_NOSIGNAL), (int)len);
}

void plain_say(int fd, const struct handshake *h)
{
    uint8_t bytes[HANDSHAKE_SIZE];
    handshake_encode(h, &RIG_FORMATS, bytes);
    plain_send(fd, bytes, sizeof bytes);
}

ssize_t plain_peek(int fd)
{
    char byte[2 * HANDSHAKE_SIZE];
    ssize_t n = recv(fd, byte, sizeof byte, MSG_DONTWAIT | MSG_PEEK);
    if (n == 0) {
        return -1;
    }
    return n > 0 ? n : errno == EAGAIN ? 0 : -2;
}

void plain_read_answer(struct rig *r, int fd, uint8_t bytes[HANDSHAKE_SIZE])
{
    RUN_UNTIL(r, plain_peek(fd) >= (ssize_t)HANDSHAKE_SIZE || plain_peek(fd) < 0);
    assert_int_equal(recv(fd, bytes, HANDSHAKE_SIZE, MSG_DONTWAIT), HANDSHAKE_SIZE);
}

unsigned rig_pending(const struct side *s)
{
    unsigned n = 0;
    FLI_LIST_FOREACH(pos, &s->t->all)
    {
        n += is_pending(stream_of(pos));
    }
    return n;
}

unsigned rig_dialing(const struct side *s)
{
    unsigned n = 0;
    FLI_LIST_FOREACH(pos, &s->t->all)
    {
        n += stream_of(pos)->dialed && stream_of(pos)->phase < STREAM_GIVEN;
    }
    return n;
}

unsigned rig_turned_away(const struct side *s)
{
    return (unsigned)s->t->turned_away;
}

unsigned descriptors(void)
{
    unsigned n = 0;
    DIR *dir = opendir("/proc/self/fd");
    assert_non_null(dir);
    while (readdir(dir) != NULL) {
        n++;
    }
    closedir(dir);
    return n - 3; /* itself, and two names that are none */
}
