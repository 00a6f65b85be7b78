/* lab.h: Redlock in virtual time: the shipping client with op.c and request.c, complete, over
 * simulated Redis servers. lab.c replaces the clock, the timer and server.c, and has the servers;
 * main.c has the clients and the judge.
 *
 * Servers are slow at times, drift, and restart without their keys; in some
 * seeds they end keys early. Connections break. Processes are stopped. The seed decides
 * everything. */
#ifndef SIM_REDLOCK_LAB_H
#define SIM_REDLOCK_LAB_H

#include <stdbool.h>

#include "redlock/redlock_private.h"

#define SERVERS_MAX 5u
#define CLIENTS_MAX 6u
#define LOCKS_MAX 2u
#define MAX_TTL_MS 3000u

/* A clock that runs wrong by this rate. */
struct drift {
    uint64_t base_us;
    int64_t ppm;
};

struct key {
    char value[FL_REDLOCK_VALUE_LEN + 1]; /* "": none */
    uint64_t expires_us;                  /* on the server's clock */
};

struct redis {
    unsigned index;
    struct drift clock;
    struct key keys[LOCKS_MAX];
    uint64_t down_until_us, up_since_us; /* true time */
    uint64_t slow_until_us;
    uint64_t life;
};

struct holder {
    unsigned index;
    struct drift clock;
    fl_client *handle;
    uint64_t stopped_until_us;
    uint64_t alarm_number; /* of the time that was set last */
    int timer_fd;
    bool closing;
    uint64_t connection[SERVERS_MAX]; /* number; 0: none */
    uint64_t life[SERVERS_MAX];       /* of the server, when it was made */
    uint64_t arrives_us[SERVERS_MAX]; /* when the last bytes sent will arrive */
    uint64_t answers_us[SERVERS_MAX];
    void *use; /* for main.c's use */
};

struct lab {
    uint64_t seed, random, now_us;
    unsigned servers_n, holders_n, locks_n;
    struct redis servers[SERVERS_MAX];
    struct holder holders[CLIENTS_MAX];
    struct holder *running; /* the holder whose process is running */
    bool early;             /* servers end keys before their deadline */
    uint64_t events, requests, restarts, breaks, stops, slow;
};

extern struct lab lab;

void lab_init(uint64_t seed);
bool lab_step(uint64_t until_us); /* false: no event before that time */
uint64_t lab_next_us(void);       /* the time of the next event */
void lab_free(void);              /* drops the events to come */

uint64_t lab_below(uint64_t n);
bool lab_chance(unsigned percent);
uint64_t lab_read(const struct drift *d);              /* in us */
uint64_t lab_true(const struct drift *d, uint64_t us); /* the true time at which it will show
                                                          that */

/* Calls fn at this time of the holder's clock; later if its process is stopped then. */
void lab_later(struct holder *h, uint64_t at_ms, void (*fn)(struct holder *h, uint64_t n),
               uint64_t n);
/* Whether the server holds the lock under this value now. */
bool lab_has(const struct redis *r, unsigned lock, const char *value);

_Noreturn void lab_fail(const char *fmt, ...) FLI_PRINTF(1, 2);

#endif
