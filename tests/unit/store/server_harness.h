/* server_harness.h: the server of the storage and its clients in one process and one thread, over
 * real sockets. A test decides when a client reads. */
#ifndef TEST_SERVER_HARNESS_H
#define TEST_SERVER_HARNESS_H

#include "scratch.h"

#include "store/info.h"
#include "store/server.h"

struct fixture {
    struct scratch scratch;
    uv_loop_t loop;
    uv_timer_t tick; /* a turn waits for a millisecond at most */
    struct store *store;
    struct store_server *server;
    bool stopped;
    int silent;        /* strict mode: a lock service that takes connections and says nothing */
    unsigned failures; /* of the database */
    bool may_fail;     /* that is no failure of the test */
};

struct client {
    int fd;
    uint8_t *in;
    size_t at, len;
};

/* One reply: its first line without CR LF; a bulk string's bytes are skipped. */
struct reply {
    char line[256];
};

int fixture_setup(void **state);
int fixture_setup_strict(void **state);
int fixture_teardown(void **state);

void turn(struct fixture *x);
uint64_t deadline(void);
void check_deadline(uint64_t at, const char *what, int line);
#define turn_until(x, cond)                                                                        \
    do {                                                                                           \
        uint64_t deadline_ = deadline();                                                           \
        while (!(cond)) {                                                                          \
            turn(x);                                                                               \
            check_deadline(deadline_, #cond, __LINE__);                                            \
        }                                                                                          \
    } while (0)
struct store_info info(struct fixture *x);

/* With a small buffer for what the server sends. */
struct client client_open(struct fixture *x);
struct client client_open_from(struct fixture *x, const char *address);
void client_close(struct client *c, bool reset);
void client_say(struct fixture *x, struct client *c, const void *data, size_t len);
void client_text(struct fixture *x, struct client *c, const char *text); /* inline commands */
void client_set(struct fixture *x, struct client *c, const char *key, size_t len, fl_token token);
struct reply client_hear(struct fixture *x, struct client *c);
/* Asks, and returns what is answered: for a client with nothing else under way. */
struct reply client_ask(struct fixture *x, struct client *c, const char *text);

/* `n` reads of a key of 1 MiB, by a client that does not read its answers: returns when it is
 * behind and the next read waits in its socket. */
void fall_behind(struct fixture *x, struct client *c, unsigned n);

#endif
