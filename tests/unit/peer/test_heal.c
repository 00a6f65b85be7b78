/* How soon two nodes hear each other again after the network between them dropped everything:
 * nodes 1 and 2 in network namespaces of their own, the router between them in a third. Packets
 * vanish when it does not forward, as they do in a real partition: nobody is told.
 *
 * Each node keeps a stream to the other up and sends a message every PING_MS. That both are heard
 * again, and still run, is asserted; how soon is printed, to be looked at on a quiet machine. */
#include "../../lib/unit.h"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "peer/outbound.h"

#define PING_MS 20u
#define SKIP 77
#define MEMBERS "1=10.99.1.1:7101,2=10.99.2.1:7101"
#define UNACKED_MS 600u /* twice the election time that most clusters have */

/* ---- a node, in a child ---- */

struct heal_node {
    uv_loop_t loop;
    uv_timer_t timer;
    struct transport *t;
    struct host host;
    struct outbound o;
    struct stream *in[8];
    unsigned in_n;
    uint64_t other;
    int heard_fd; /* a byte for each message */
};

static void must(bool fine, const char *what)
{
    if (!fine) {
        fprintf(stderr, "node: %s\n", what);
        _exit(1);
    }
}

static enum handshake_verdict check_cb(void *ctx, const struct peer_identity *peer,
                                       char reason[HANDSHAKE_REASON_MAX])
{
    return HANDSHAKE_WELCOME;
}

struct heal_in {
    struct heal_node *n;
    struct stream *s;
};

static void frame_cb(void *ctx, uint8_t type, struct fli_slice body)
{
    struct heal_in *in = ctx;
    must(write(in->n->heard_fd, &type, 1) == 1, "the test has gone");
}

static void lost_cb(void *ctx, const char *why)
{
    struct heal_in *in = ctx;
    stream_close(in->s);
    free(in);
}

static void accepted_cb(void *ctx, enum stream_kind kind, const struct peer_identity *peer,
                        struct stream *s)
{
    struct heal_in *in = malloc(sizeof *in);
    must(in != NULL, "out of memory");
    *in = (struct heal_in){.n = ctx, .s = s};
    struct stream_callbacks cbs = {.ctx = in, .frame = frame_cb, .lost = lost_cb};
    (void)stream_start(s, &cbs);
}

static void answered_cb(void *ctx, uint64_t peer_id, enum handshake_verdict verdict,
                        const char *reason)
{
}

static void absent_cb(void *ctx, uint64_t peer_id)
{
}

static void log_cb(void *ctx, int level, const char *message)
{
}

static void ping_cb(uv_timer_t *timer)
{
    struct heal_node *n = timer->data;
    struct fli_slice part = {(const uint8_t *)"ping", 4};
    outbound_turn(&n->o);
    int rv = outbound_send(&n->o, 1, &part, 1);
    must(rv == 0 || rv == FL_ENOCONN || rv == FL_ELIMIT, "sending");
    outbound_flush(&n->o);
}

static void wake_cb(void *ctx)
{
    (void)ctx; /* the next ping comes soon */
}

static void run_node(uint64_t id, int heard_fd)
{
    static struct heal_node n;
    struct transport_config config;
    struct transport_callbacks cbs = {.ctx = &n,
                                      .check = check_cb,
                                      .accepted = accepted_cb,
                                      .answered = answered_cb,
                                      .absent = absent_cb,
                                      .log = log_cb};
    char errmsg[256] = "";
    memset(&config, 0, sizeof config);
    (void)signal(SIGPIPE, SIG_IGN);
    n.other = 3 - id;
    n.heard_fd = heard_fd;
    uv_loop_init(&n.loop);
    must(members_parse(MEMBERS, &config.members, errmsg, sizeof errmsg) == 0, errmsg);
    config.bind_address = config.members.list[id - 1].address;
    config.self.node_id = id;
    config.self.incarnation = id;
    config.self.start.number = 1;
    config.connect_ms = UNACKED_MS / 3;
    config.answer_ms = 2 * UNACKED_MS / 3;
    config.unacked_ms = UNACKED_MS;
    for (unsigned kind = 1; kind <= STREAM_KINDS; kind++) {
        config.limits[kind] = (struct stream_limits){FRAME_MAX, FRAME_MAX + FRAME_HEADER_SIZE};
    }
    must(transport_create(&n.loop, &config, &cbs, &n.t, errmsg, sizeof errmsg) == 0 &&
             transport_start(n.t, errmsg, sizeof errmsg) == 0,
         errmsg);
    n.host.wake = wake_cb;
    outbound_open(&n.o, &n.host, n.t, n.other);
    uv_timer_init(&n.loop, &n.timer);
    n.timer.data = &n;
    uv_timer_start(&n.timer, ping_cb, PING_MS, PING_MS);
    uv_run(&n.loop, UV_RUN_DEFAULT);
    _exit(0);
}

/* ---- the namespaces; this process is the router ---- */

struct heal {
    pid_t pids[2];
    int heard[2];
};

static bool shell(const char *fmt, ...) FLI_PRINTF(1, 2);

static bool shell(const char *fmt, ...)
{
    char command[512];
    va_list args;
    va_start(args, fmt);
    vsnprintf(command, sizeof command, fmt, args);
    va_end(args);
    return system(command) == 0;
}

static void forward(bool on)
{
    int fd = open("/proc/sys/net/ipv4/ip_forward", O_WRONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, on ? "1" : "0", 1), 1);
    close(fd);
}

static void start_node(struct heal *h, unsigned i)
{
    int heard[2];
    int ready[2];
    int go[2];
    char byte = 0;
    assert_int_equal(pipe2(heard, O_CLOEXEC), 0);
    assert_int_equal(pipe2(ready, O_CLOEXEC), 0);
    assert_int_equal(pipe2(go, O_CLOEXEC), 0);
    h->pids[i] = fork();
    if (h->pids[i] == 0) {
        must(unshare(CLONE_NEWNET) == 0, "unshare");
        must(write(ready[1], &byte, 1) == 1 && read(go[0], &byte, 1) == 1, "the test has gone");
        run_node(i + 1, heard[1]);
    }
    assert_true(h->pids[i] > 0);
    assert_int_equal(read(ready[0], &byte, 1), 1);
    int pid = (int)h->pids[i];
    unsigned net = i + 1;
    assert_true(shell("ip link add v%u type veth peer name eth0 netns %d", net, pid));
    assert_true(shell("ip addr add 10.99.%u.254/24 dev v%u && ip link set v%u up", net, net, net));
    assert_true(shell("nsenter -t %d -n ip addr add 10.99.%u.1/24 dev eth0", pid, net));
    assert_true(shell("nsenter -t %d -n ip link set eth0 up", pid));
    assert_true(shell("nsenter -t %d -n ip route add default via 10.99.%u.254", pid, net));
    assert_int_equal(write(go[1], &byte, 1), 1);
    h->heard[i] = heard[0];
    close(heard[1]);
    close(ready[0]);
    close(ready[1]);
    close(go[0]);
    close(go[1]);
}

/* Throws away what was heard so far; then how long until node i + 1 hears something. */
static uint64_t heard_after_ms(const struct heal *h, unsigned i, uint64_t since_ms)
{
    char byte;
    struct pollfd p = {.fd = h->heard[i], .events = POLLIN};
    assert_int_equal(poll(&p, 1, 240000), 1);
    assert_int_equal(read(h->heard[i], &byte, 1), 1);
    return fli_clock_ms() - since_ms;
}

static void drain(const struct heal *h)
{
    char bytes[4096];
    for (unsigned i = 0; i < 2; i++) {
        struct pollfd p = {.fd = h->heard[i], .events = POLLIN};
        while (poll(&p, 1, 0) == 1) {
            assert_true(read(h->heard[i], bytes, sizeof bytes) > 0);
        }
    }
}

TEST(test_heal)
{
    static const unsigned LENGTHS_MS[] = {100, 310, 720, 1030, 1540, 2050, 3160, 5270, 7380};
    struct heal h;
    forward(true);
    start_node(&h, 0);
    start_node(&h, 1);
    (void)heard_after_ms(&h, 0, 0);
    (void)heard_after_ms(&h, 1, 0);
    printf("cut for ms   node 1 hears after ms   node 2\n");
    for (unsigned i = 0; i < sizeof LENGTHS_MS / sizeof LENGTHS_MS[0]; i++) {
        forward(false);
        usleep(LENGTHS_MS[i] * 1000);
        drain(&h);
        uint64_t healed_ms = fli_clock_ms();
        forward(true);
        uint64_t first_ms = heard_after_ms(&h, 0, healed_ms);
        uint64_t second_ms = heard_after_ms(&h, 1, healed_ms);
        printf("%10u   %21llu   %6llu\n", LENGTHS_MS[i], (unsigned long long)first_ms,
               (unsigned long long)second_ms);
    }
    for (unsigned i = 0; i < 2; i++) {
        assert_int_equal(waitpid(h.pids[i], NULL, WNOHANG), 0); /* it still runs */
        kill(h.pids[i], SIGKILL);
        waitpid(h.pids[i], NULL, 0);
        close(h.heard[i]);
    }
}

int main(int argc, char **argv)
{
    if (unshare(CLONE_NEWNET) != 0 || system("ip link show lo > /dev/null 2>&1") != 0) {
        printf("no network namespaces may be made here: skipped\n");
        return SKIP;
    }
    return unit_run(argc, argv, NULL, NULL);
}
