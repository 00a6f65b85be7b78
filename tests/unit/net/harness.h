/* harness.h: a server and its clients in one process and one thread, over real sockets.
 *
 * The service of these tests knows a few words:
 *   ECHO x     x, at once
 *   BIG n      n bytes of 'x', at once
 *   LATER ...  kept; the test answers it with answer_kept()
 *   SPIN       keeps the thread busy for 3 ms
 *   FAIL       net_answer_failed()
 *   DROP       closes after answers, like QUIT
 * Clients are plain non-blocking sockets; every wait has a deadline. */
#ifndef TESTS_NET_HARNESS_H
#define TESTS_NET_HARNESS_H

#include "../../lib/unit.h"

#include "net/net.h"

#define KEPT_MAX 20480
#define WAIT_MS 240000

struct fixture {
    uv_loop_t loop;
    struct net_server *server;
    struct net_limits limits;
    struct net_request *kept[KEPT_MAX]; /* NULL once answered or cancelled */
    unsigned kept_n, cancelled, hangups, opened, closed, requests, echoes;
    bool stopped;
    uint16_t port;
};

static inline struct net_limits test_limits(void)
{
    return (struct net_limits){.resp = {.arg_max = 1024, .request_max = 4096},
                               .connections_max = 10000,
                               .pipeline_max = 1024,
                               .output_max = 256 * 1024,
                               .idle_first_ms = 0};
}

void fixture_start(struct fixture *f, struct net_limits limits);
void fixture_end(struct fixture *f); /* stops, checks that nothing is left, frees */

void fixture_limit_memory(struct fixture *f, size_t bytes); /* from now on */

/* One turn of the loop, without blocking for longer than a millisecond. Handshakes of TLS that are
 * under way get all the time they need. */
void turn(struct fixture *f);
#define turn_until(f, cond)                                                                        \
    do {                                                                                           \
        uint64_t deadline_ = deadline();                                                           \
        while (!(cond)) {                                                                          \
            turn(f);                                                                               \
            check_deadline(deadline_, #cond, __FILE__, __LINE__);                                  \
        }                                                                                          \
    } while (0)
uint64_t deadline(void);
void check_deadline(uint64_t at, const char *what, const char *file, int line);

void answer_kept(struct fixture *f, unsigned i, const char *text);
size_t output_bytes(struct fixture *f); /* of all connections: not yet sent */

int client_open(const struct fixture *f);
int client_open_from(const struct fixture *f, const char *address); /* of loopback */
void client_send(struct fixture *f, int fd, const char *data, size_t len);
void client_say(struct fixture *f, int fd, const char *text);
/* Waits, without a turn of the loop, until the kernel has so many bytes for the server of a client
 * that was accepted: the next turn finds them. */
void client_arrived(struct fixture *f, int fd, size_t len);
/* Reads exactly these bytes. */
void client_expect(struct fixture *f, int fd, const char *data, size_t len);
void client_hear(struct fixture *f, int fd, const char *text);
/* Reads what has come, without waiting: bytes, 0 at the end, -1 when nothing is there. */
long client_try(int fd, char *data, size_t size);
void client_expect_end(struct fixture *f, int fd); /* end or reset; anything before it is read */
/* The end, and no reset: what the server said last cannot have been lost. */
void client_expect_clean_end(struct fixture *f, int fd);
void client_set_window(int fd, int bytes); /* or the kernel takes megabytes for it */
/* It is served as ever. */
void client_expect_served(struct fixture *f, int fd);
void client_close(int fd);

/* With these limits on memory, one client that does not read goes for what it keeps, and hears
 * `text` before its end. */
void expect_cut_off_with(struct net_limits limits, const char *text);

#endif
