/* events_rig.h: events with clients that note what they hear; for test_events*.c. */
#ifndef TEST_EVENTS_RIG_H
#define TEST_EVENTS_RIG_H

#include "../../lib/unit.h"

#include "server/events.h"

#define CLIENTS 4
#define OUT_MAX (1u << 20)

struct client {
    struct events_subscriber *subscriber;
    int proto;
    bool full; /* the buffer of its answers takes no more */
    uint64_t user, address;
    unsigned dropped;
    struct fli_buf heard;
};

struct fixture {
    struct events e;
    struct client *client; /* protocols 2 and 3 by turns */
    unsigned clients;
};

void start(struct fixture *f); /* with CLIENTS */
void start_many(struct fixture *f, unsigned clients);
void end(struct fixture *f);

struct fli_slice text(const char *s);

/* Sends one command; its answer is appended to what the client heard. */
enum events_outcome say(struct fixture *f, struct client *c, enum fli_command_id id,
                        const char *words);

#define OK(f, c, id, words) assert_int_equal(say(f, c, id, words), EVENTS_CONFIRMED)

/* Checks what the client has heard since the last check. */
void assert_heard(struct client *c, const char *want);
/* How often it has heard this since then. */
unsigned count_heard(const struct client *c, const char *what);

#endif
