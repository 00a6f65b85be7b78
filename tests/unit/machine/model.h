/* model.h: the lock machine a second time, as plainly as possible: arrays, scans, eager time,
 * one-letter names and owners. Shares no code with the machine, only the structs that commands,
 * results and counts travel in. Where the two differ, one of them is wrong. */
#ifndef TEST_MACHINE_MODEL_H
#define TEST_MACHINE_MODEL_H

#include <stdbool.h>

#include "machine/machine.h"

#define MODEL_NAMES 5u  /* locks are called 'a'... */
#define MODEL_OWNERS 6u /* owners 'u'... */
#define MODEL_SESSIONS_MAX (MODEL_OWNERS + MODEL_OWNERS * MODEL_NAMES)
#define MODEL_WAITS_MAX (2 * MODEL_OWNERS * MODEL_NAMES)
#define MODEL_HOLDS_MAX (2 * MODEL_OWNERS * MODEL_NAMES)
#define MODEL_EVENTS_MAX 256u
#define MODEL_SHARED UINT32_MAX /* in place of a number of permits */
#define MODEL_USERS 4u          /* 'd' is the default one; 'p'... */
#define MODEL_RULES_MAX 8u

struct model_session {
    bool exists;
    bool is_explicit;
    bool leased;
    char owner;
    char name; /* of the lock, or the first of several, implicit only; else 0 */
    char label;
    uint32_t uid; /* of its user */
    uint64_t ttl_ms, deadline_ms, lockdelay_ms, serial;
};

/* In use: held by somebody, or idle, which is neither held nor free. */
struct model_lock {
    bool delayed, idle;
    uint32_t slots;   /* how it is held: 1, MODEL_SHARED, or permits */
    uint32_t permits; /* while it is in use; 1 unless it is a semaphore */
    uint64_t until_ms, idle_serial;
};

struct model_hold {
    bool exists;
    char name;
    unsigned session;
    uint64_t token, since_ms;
    unsigned index, together; /* which, of how many, of the locks of its token */
    char value;
};

struct model_wait {
    bool exists;
    char name;
    unsigned session;
    uint32_t slots;
    uint64_t id, times_asked, deadline_ms;
    unsigned index, together; /* which, of how many, of the places of its id */
    char value;
};

struct model_event {
    uint8_t type, reason, index;
    bool is_explicit;
    char name, owner;
    char user, by; /* 0: the default one, or nobody */
    uint64_t token, wait, deadline_ms;
};

struct model_rule {
    bool all;
    unsigned rights;
    char names[8]; /* in the order in which they were given */
};

struct model_user {
    char name;
    bool on, nopass;
    uint32_t uid, login;
    unsigned n_rules;
    struct model_rule rules[MODEL_RULES_MAX];
    char passwords[4]; /* a digit each */
};

struct model_node {
    uint64_t id;
    uint32_t version;
    enum machine_plan plan;
    bool learner, forced;
    char address; /* 0: none */
};

struct model {
    struct model_session sessions[MODEL_SESSIONS_MAX];
    struct model_lock locks[MODEL_NAMES];
    struct model_hold holds[MODEL_HOLDS_MAX]; /* in no order */
    struct model_wait waits[MODEL_WAITS_MAX]; /* in no order */
    struct machine_limits limits;
    struct machine_counts counts; /* the ones for ever */
    uint64_t clock_ms, last_token, serial, cluster_id;
    struct model_node nodes[MACHINE_NODES_MAX]; /* in no order */
    unsigned n_nodes;
    uint32_t version;
    struct model_user users[MODEL_USERS]; /* by uid; 'd' first */
    unsigned n_users;
    uint32_t last_uid;
    bool sealed;
    int asker; /* of the command: index of users; -1: a node */
    char by;   /* its name, for events */
    struct model_event events[MODEL_EVENTS_MAX];
    unsigned n_events;
};

void model_init(struct model *m);
void model_begin(struct model *m, uint64_t timestamp_ms, bool term_mark);
struct machine_result model_apply(struct model *m, const struct machine_command *c);
struct machine_counts model_counts(const struct model *m);

/* The holders of a lock as indexes of holds, the oldest first; returns how many. */
unsigned model_holders(const struct model *m, char name, unsigned holds[MODEL_HOLDS_MAX]);
/* The queue of a lock as indexes of waits, first one first; returns how many. */
unsigned model_queue(const struct model *m, char name, unsigned queue[MODEL_WAITS_MAX]);

/* Whether sessions would wait in a circle if this one also waited at the ends of the queues of
 * these locks, one letter each. */
bool model_closes_cycle(const struct model *m, unsigned session, const char *names);

/* model_acquire.c, model_multi.c: ACQUIRE, and that of several locks. */
void model_acquire(struct model *m, const struct machine_command *c, struct machine_result *r);
void model_acquire_multi(struct model *m, const struct machine_command *c,
                         struct machine_result *r);

/* model_nodes.c */
void model_nodes_apply(struct model *m, const struct machine_command *c, struct machine_result *r);

/* model_users.c. `login` as in commands; -1: nobody's. */
void model_users_init(struct model *m);
bool model_enter(struct model *m, const struct machine_command *c, struct machine_result *r);
void model_users_apply(struct model *m, const struct machine_command *c, struct machine_result *r);
int model_find_login(const struct model *m, uint64_t login);
uint32_t model_asker_uid(const struct model *m);
char model_user_name(const struct model *m, uint32_t uid);
bool model_asker_may(const struct model *m, unsigned right, char name);
bool model_asker_may_some(const struct model *m, unsigned right);
bool model_owns(const struct model *m, unsigned session);
bool model_wait_may(const struct model *m, const char *names, unsigned session);
void model_refuse(struct machine_result *r, unsigned right);

/* Ends each wait that its user may not have any more. */
void model_recheck(struct model *m);

/* What the files of the model have in common. */
int model_find_session(const struct model *m, bool is_explicit, char owner, char name);
int model_find_hold(const struct model *m, int session, char name);
unsigned model_new_session(struct model *m, bool is_explicit, char owner, char name);
bool model_in_use(const struct model *m, char name);
bool model_lets_in(const struct model *m, char name, uint32_t slots);
void model_tell(struct model *m, struct model_event e);
void model_grant(struct model *m, const char *names, unsigned session, uint32_t slots, char value,
                 uint64_t wait);
void model_renew(struct model *m, unsigned session, uint64_t ttl_ms, struct machine_result *r);
void model_answer_limit(struct model *m, struct machine_result *r, uint32_t limit);
uint64_t model_count_sessions(const struct model *m, bool only_explicit);
unsigned model_count_holders(const struct model *m, char name);
uint64_t model_count_waits(const struct model *m);
uint64_t model_requests(const struct model *m, unsigned session);

#endif
