/* Connections from one address cost no descriptors: with few to be had, a thousand strangers, and
 * then a thousand who pass for a member. In a process of its own, for its limit. */
#include "rig.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define CONNECTIONS 1000u
#define DESCRIPTORS 160u

/* Nothing of the test's own is used here: a failure must not go on as a second test. */
static void flood_from_child(uint16_t port, const struct handshake *h)
{
    struct rlimit limit;
    struct sockaddr_in to = {
        .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = htons(port)};
    uint8_t bytes[HANDSHAKE_SIZE];
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
        limit.rlim_cur = limit.rlim_max < 4096 ? limit.rlim_max : 4096;
        (void)setrlimit(RLIMIT_NOFILE, &limit);
    }
    if (h != NULL) {
        handshake_encode(h, &RIG_FORMATS, bytes);
    }
    for (unsigned i = 0; i < CONNECTIONS; i++) {
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (fd < 0 || connect(fd, (struct sockaddr *)&to, sizeof to) != 0) {
            _exit(1);
        }
        if (h != NULL) {
            (void)send(fd, bytes, sizeof bytes, MSG_NOSIGNAL);
        }
    }
}

/* The other side of the flood is a child, which has descriptors enough; it says when it is done
 * and ends when told. A handshake is sent on each connection, if there is one. */
static pid_t flood(uint16_t port, const struct handshake *h, int *ret_done, int *ret_end)
{
    int done[2];
    int end[2];
    char byte = 0;
    assert_int_equal(pipe2(done, O_CLOEXEC), 0);
    assert_int_equal(pipe2(end, O_CLOEXEC), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid != 0) {
        close(done[1]);
        close(end[0]);
        *ret_done = done[0];
        *ret_end = end[1];
        return pid;
    }
    close(end[1]);
    flood_from_child(port, h);
    (void)!write(done[1], &byte, 1);
    (void)!read(end[0], &byte, 1);
    _exit(0);
}

static void limit_descriptors(void)
{
    struct rlimit limit;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    limit.rlim_cur = DESCRIPTORS;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
}

static bool is_done(int fd)
{
    char byte;
    return read(fd, &byte, 1) == 1;
}

/* `silent`: as many connections stay open and unanswered. All others are handled before the real
 * peer comes, or a late one would be counted for it. */
static void run(const struct handshake *h, unsigned silent, unsigned most)
{
    struct rig *r = rig_open(NULL);
    int done, end, status;
    unsigned before = descriptors();
    unsigned highest = 0;
    pid_t pid = flood(r->ports[1], h, &done, &end);
    before += 2;
    assert_int_equal(fcntl(done, F_SETFL, O_NONBLOCK), 0);
    uint64_t deadline_ms = rig_deadline(r);
    bool over = false;
    do {
        over = over || is_done(done);
        assert_true(rig_turn(r, deadline_ms));
        for (unsigned i = 0; i < RIG_STREAMS; i++) {
            if (r->b.streams[i].lost > 0) {
                held_close(&r->b.streams[i]);
            }
        }
        unsigned now = descriptors();
        highest = now > highest ? now : highest;
    } while (!over || rig_turned_away(&r->b) + r->b.accepted < CONNECTIONS - silent);
    printf("%u connections: at most %u descriptors more\n", CONNECTIONS, highest - before);
    assert_true(highest <= before + most);
    /* And this node still opens what it needs, and hears a real peer. */
    int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    close(fd);
    r->b.accepted = 0;
    for (unsigned i = 0; i < RIG_STREAMS; i++) {
        held_close(&r->b.streams[i]);
    }
    rig_pair(r, STREAM_RELAY);
    close(end);
    close(done);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    rig_close(r);
}

TEST(test_strangers)
{
    run(NULL, TRANSPORT_PENDING_ADDRESS_MAX, TRANSPORT_PENDING_ADDRESS_MAX + 1);
}

/* What the handshake of node 1 is, anybody may have learned, as long as there is no encryption. */
TEST(test_false_members)
{
    struct rig *r = rig_open(NULL);
    struct handshake h = rig_handshake(r);
    rig_close(r);
    run(&h, 0, TRANSPORT_PENDING_ADDRESS_MAX + 1 + TRANSPORT_ACCEPTED_MAX);
}

int main(int argc, char **argv)
{
    limit_descriptors();
    return unit_run(argc, argv, NULL, NULL);
}
