/* world.h: random commands in a world so small that everything collides all the time. */
#ifndef TEST_MACHINE_WORLD_H
#define TEST_MACHINE_WORLD_H

#include "kit.h"
#include "machine/acl.h"
#include "model.h"

struct world {
    struct kit k;
    struct machine *twin;
    struct model model;
    uint64_t rng;
    struct model_event events[MODEL_EVENTS_MAX];
    unsigned n_events;
    uint64_t max_tokens_at; /* the step in which tokens nearly run out; 0: never */
    /* What kind of world it is. */
    uint64_t explicit_percent; /* of ACQUIRE */
    uint64_t shared_percent;   /* of ACQUIRE */
    uint64_t semaphores;       /* how many names are, as a rule */
    uint64_t several_percent;  /* of ACQUIRE: of more than one lock */
    uint8_t also[MACHINE_ALSO_SIZE];
    uint64_t patience; /* factor of all durations */
    bool narrow;       /* limits are changed to small ones */
    bool tiny;         /* a batch has steps for next to nothing */
    bool users;        /* there are some, and they change */
    uint64_t unrest;   /* of so many commands one is about users */
    char words[1024];
    uint8_t records[MODEL_USERS * ACL_ENCODED_MAX];
    struct acl_user loaded[MODEL_USERS];
    uint64_t codes[MACHINE_CODE_MAX + 1];
    uint64_t several[MACHINE_CODE_MAX + 1];
    uint64_t denied, foreign, hidden, loads; /* of users */
    uint64_t plans;                          /* of nodes, met in comparing */
    uint64_t several_waited;                 /* how often each result code came */
    uint64_t pieces;                         /* batches that work took beside those of commands */
};

uint64_t world_below(struct world *w, uint64_t n);
/* A name or an owner of one letter; empty for 0. */
struct fli_slice world_letter(char c);
/* One that as a rule means something in the world of its model. */
struct machine_command world_any_command(struct world *w);

/* Where there are users. */
struct machine_command world_any_change_of_users(struct world *w);
uint64_t world_any_login(struct world *w);
void world_say_who(struct world *w, struct machine_command *c);

struct machine_command world_any_change_of_nodes(struct world *w);

#endif
