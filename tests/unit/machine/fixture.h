/* fixture.h: what the machine's tests share: building commands and batches, running them, recording
 * events as text that a test can spell out, randomness from one printed seed. */
#ifndef TEST_MACHINE_FIXTURE_H
#define TEST_MACHINE_FIXTURE_H

#include "../../lib/machine_check.h"
#include "../../lib/rng.h"
#include "../../lib/snapshot_bytes.h"
#include "machine/machine.h"
#include "machine/view.h"

#define FIXTURE_SEED ((const uint64_t[2]){7, 9})

struct fixture {
    struct machine *m;
    struct fli_buf batch;
    uint32_t count;
    uint16_t flags; /* of the next batch */
    uint64_t clock_ms;
    uint64_t sequence;
    struct fli_buf events; /* one line an event, see record() in fixture.c */
    struct fli_buf payload;
    bool check; /* machine_check after every command */
};

void fixture_init(struct fixture *k);
void fixture_fini(struct fixture *k);

/* For cmocka: a fixture of its own for each test, in *state. */
int fixture_setup(void **state);
int fixture_teardown(void **state);

void fixture_start(struct fixture *k);
void fixture_add(struct fixture *k, struct machine_command c);
/* Seals what was added and returns its size. */
size_t fixture_seal(struct fixture *k);
/* Applies what was added; results as machine_apply wants them. */
/* Adds the EXPIRE of each lease that is due at the clock; fixture_apply() does so. */
void fixture_give_up(struct fixture *k);
void fixture_apply(struct fixture *k, struct machine_result *results);

/* One command in a batch of its own at the current clock. */
struct machine_result fixture_run(struct fixture *k, struct machine_command c);
/* An empty batch at this clock. */
void fixture_tick(struct fixture *k, uint64_t clock_ms);
/* Empty batches at the same clock until no work is left; returns how many. */
unsigned fixture_drain(struct fixture *k);
uint64_t fixture_next_deadline(struct fixture *k); /* of timers and leases */
/* One with a term mark. */
void fixture_mark(struct fixture *k, uint64_t clock_ms);

struct machine_result fixture_query(struct fixture *k, struct machine_command c);
/* The page that the last query left. */
struct machine_page fixture_page(struct fixture *k);

/* Compares the events since the last call with lines such as
 *   "granted L ann token=1 wait=0 until=1010\n"
 * (owner of an explicit session with a * behind it), and forgets them. */
void fixture_expect_events(struct fixture *k, const char *text);
void fixture_forget_events(struct fixture *k);

/* Takes a snapshot and goes on with the machine decoded from it. */
void fixture_reload(struct fixture *k);

struct fli_slice fixture_slice(const char *text);

/* Commands. `_x`: by the owner's explicit session. cmd_held: of the grant with this token. */
struct machine_command cmd_acquire(const char *name, const char *owner, uint64_t ttl_ms);
struct machine_command cmd_wait(const char *name, const char *owner, uint64_t ttl_ms,
                                uint64_t wait_ms);
struct machine_command cmd_acquire_x(const char *name, const char *owner);
struct machine_command cmd_wait_x(const char *name, const char *owner, uint64_t wait_ms);
struct machine_command cmd_name(unsigned op, const char *name);
struct machine_command cmd_held(unsigned op, const char *name, uint64_t token, uint64_t ttl_ms);
struct machine_command cmd_number(unsigned op, uint64_t number, uint64_t number2);
struct machine_command cmd_owner(unsigned op, const char *owner);
struct machine_command cmd_open(const char *owner, uint64_t ttl_ms, uint64_t lockdelay_ms,
                                const char *label);
struct machine_command cmd_limits(unsigned op, uint64_t number, struct machine_limits limits);

/* Repetitions of a random test: `usual` times FENCELOCK_ROUNDS (default 1). */
uint64_t fixture_rounds(uint64_t usual);

#endif
