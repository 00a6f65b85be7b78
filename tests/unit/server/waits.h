/* waits.h: requests that wait, for tests of dispatch. */
#ifndef TESTS_SERVER_WAITS_H
#define TESTS_SERVER_WAITS_H

#include "fake.h"

#define OWNER "owner-0123456789"
#define NAMED "ACQUIRE n TTL 500 OWNER " OWNER " WAIT 3000"
#define UNNAMED "ACQUIRE n TTL 500 WAIT 3000"
#define WAIT 41u
#define GRANTED MACHINE_EVENT_GRANTED
#define ENDED MACHINE_EVENT_WAIT_ENDED

/* The answer of the machine: the first request of WAIT. */
extern const struct machine_result queued;

/* Asks, and is queued; the owner has asked so often. */
struct asked *ask_and_queue(struct fake *f, const char *line, uint64_t times_asked);
uint64_t parked(struct fake *f);

/* The next turn submits this, as the next command, or nothing. */
void expect_cancel(struct fake *f, unsigned sent_before, uint64_t times_asked);
void expect_release(struct fake *f, unsigned sent_before, uint64_t token);
void expect_no_cleanup(struct fake *f, unsigned sent_before);

/* A machine whose only wait has an id of 1. */
struct machine *machine_with_a_wait(void);

#endif
