/* random_run.h: random commands on a state so small that everything collides all the time. The
 * machine and the model (model.h) get the same ones, and are compared. */
#ifndef TEST_MACHINE_RANDOM_RUN_H
#define TEST_MACHINE_RANDOM_RUN_H

#include "fixture.h"
#include "machine/acl.h"
#include "model.h"

struct random_run {
    struct fixture k;
    struct machine *twin;
    struct model model;
    uint64_t rng;
    struct model_event events[MODEL_EVENTS_MAX];
    unsigned n_events;
    uint64_t max_tokens_at; /* the step in which tokens nearly run out; 0: never */
    /* What kind of run it is. */
    uint64_t explicit_percent;   /* of ACQUIRE */
    uint64_t shared_percent;     /* of ACQUIRE */
    uint64_t semaphores;         /* how many names are, as a rule */
    uint64_t multi_lock_percent; /* of ACQUIRE: of more than one lock */
    uint8_t also[MACHINE_ALSO_SIZE];
    uint64_t duration_factor;       /* factor of all durations */
    bool small_limits;              /* limits are changed to small ones */
    bool few_steps;                 /* a batch has steps for next to nothing */
    bool users;                     /* there are some, and they change */
    uint64_t user_command_interval; /* of so many commands one is about users */
    char words[1024];
    uint8_t records[MODEL_USERS * ACL_ENCODED_MAX];
    struct acl_user loaded[MODEL_USERS];
    /* How often each result code came, of all commands and of those on several locks. */
    uint64_t codes[MACHINE_CODE_MAX + 1];
    uint64_t multi_lock_codes[MACHINE_CODE_MAX + 1];
    uint64_t denied, foreign, hidden, loads; /* of users */
    uint64_t plans;                          /* of nodes, met in comparing */
    uint64_t multi_lock_waits;
    uint64_t pieces; /* batches that work took beside those of commands */
};

uint64_t random_below(struct random_run *w, uint64_t n);
/* A name or an owner of one letter; empty for 0. */
struct fli_slice letter_slice(char c);
/* One that as a rule means something in the state of its model. */
struct machine_command random_any_command(struct random_run *w);

/* Where there are users. */
struct machine_command random_any_change_of_users(struct random_run *w);
uint64_t random_any_login(struct random_run *w);
void random_set_user(struct random_run *w, struct machine_command *c);

struct machine_command random_any_change_of_nodes(struct random_run *w);

#endif
