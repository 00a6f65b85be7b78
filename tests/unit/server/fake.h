/* fake.h: dispatch with a sink of buffers and a node that does what the test says.
 *
 * A command that dispatch submits is decoded and kept; the test looks at it with sent(i) and
 * answers it with a result of its choosing. */
#ifndef TESTS_SERVER_FAKE_H
#define TESTS_SERVER_FAKE_H

#include "../../lib/unit.h"

#include "machine/view.h"
#include "server/dispatch.h"

#define SENT_MAX 128
#define ASKED_MAX 64

struct asked {
    struct fake *fake;
    struct dispatch_slot slot;
    struct fli_buf reply;
    bool answered, failed;
};

struct sent {
    struct node_ticket *ticket; /* NULL once answered */
    node_ticket_cb cb;
    struct machine_command command; /* points into bytes */
    uint8_t bytes[MACHINE_COMMAND_MAX];
};

struct fake {
    struct dispatch *d;
    uint64_t now_ms;
    int submit_rc; /* what submit answers; not 0: nothing is kept */
    struct sent sent[SENT_MAX];
    unsigned sent_n;
    struct asked asked[ASKED_MAX];
    unsigned asked_n;
    size_t reply_max; /* ceiling of replies */
    struct node_status status;
    struct node_member members[3];
    size_t members_n;
    int change_rc; /* of transfer and changes of members */
    struct node_change wanted;
    void (*change_cb)(void *ctx, int status);
    void *change_ctx;
    uint64_t change_id;
    struct machine *machine;
    unsigned connection_commands;
};

void fake_start(struct fake *f);
void fake_start_with(struct fake *f, size_t calls_max);
void fake_end(struct fake *f); /* everything must have been answered, or come to nothing */
/* For TEST_WITH: a fake of its own for each test, in *state. */
int fake_setup(void **state);
int fake_teardown(void **state);

/* Sends one request of words, separated by single blanks. */
struct asked *ask(struct fake *f, int proto, const char *line);
void expect(struct asked *a, const char *reply);
void expect_nothing(const struct asked *a);

struct sent *last_sent(struct fake *f);
/* Answers the command submitted last (or s). */
void result(struct sent *s, struct machine_result r);
void result_payload(struct sent *s, struct machine_result r, struct fli_slice payload);
void failure(struct sent *s, int status);
/* An event, and the turn after it. */
void event(struct fake *f, uint8_t type, uint64_t wait, uint64_t token, uint8_t reason);
/* The event alone, as it comes from inside apply. */
void apply_event(struct fake *f, uint8_t type, uint64_t wait, uint64_t token, uint8_t reason);

#endif
