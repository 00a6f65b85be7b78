/* demo.h: the parts of `fencelock demo redlock`.
 *
 *     fencelock_cmd_demo.c   the command: which runs, and the verdict
 *       demo_plan.c          pure: what a seed makes happen
 *       demo_lab.c           real servers in a directory of their own: five Redis, three nodes, two
 *                            storages (one checks tokens, one does not); faults done to them
 *       demo_proxy.c         a process between the writers and a storage that can hold writes back
 *       demo_writer.c        a process that increments the counter; does what it is told, step by
 *                            step, so that a fault falls between the same two steps in every run
 *       demo_run.c           one run: tells the writers, makes the faults, keeps a record
 *       demo_report.c, demo_svg.c   what happened
 *
 * Every process belongs to the command and is killed by the kernel should the command die. */
#ifndef CLI_DEMO_H
#define CLI_DEMO_H

#include <signal.h>
#include <sys/types.h>

#include "cli/fencelock_common.h"

#define DEMO_REDIS 5u
#define DEMO_NODES 3u
#define DEMO_WRITERS_MAX 5u
#define DEMO_EVENTS_MAX 400u
#define DEMO_ADDRESS_SIZE 108u
#define DEMO_NAME_SIZE 64u
#define DEMO_DEADLINE_MS UINT64_C(60000) /* of each step; beyond it something is broken */
#define DEMO_TTL_MS UINT64_C(5000)

enum demo_fault {
    DEMO_PAUSE,   /* a writer is stopped past its TTL, between looking at the time and writing */
    DEMO_RESTART, /* a Redis is killed and started again without its keys */
    DEMO_CLOCK,   /* the wall clock of a Redis jumps */
    DEMO_DELAY,   /* a write is held back on its way until the next holder has begun */
    DEMO_FAULTS
};
/* How the writers work. */
enum demo_mode {
    DEMO_OFF,    /* without tokens */
    DEMO_WRITES, /* a token with each write, and no claim: not enough */
    DEMO_ON,     /* a claim, then everything with a token */
    DEMO_MODES
};

const char *demo_fault_text(enum demo_fault fault);
const char *demo_fault_word(enum demo_fault fault);

/* ---- plan ------------------------------------------------------------------------------------ */

struct demo_round {
    enum demo_fault fault;
    unsigned adds;         /* that every writer makes first, all at once, undisturbed */
    unsigned first, next;  /* writers: the holder that the fault hits, and the one after it */
    bool late_write_first; /* it arrives before the write of the next holder, else after */
    unsigned away[2];      /* restart, clock: Redis servers that are down when `first` acquires */
    unsigned loses;        /* restart, clock: the one that forgets the lock */
};

struct demo_plan {
    uint64_t seed;
    unsigned writers;
    unsigned rounds;
    struct demo_round round[DEMO_FAULTS];
};

/* clock: whether a clock can be made to jump here. */
void demo_plan_make(struct demo_plan *p, uint64_t seed, bool clock);

/* ---- lab ------------------------------------------------------------------------------------- */

struct demo_proxy {
    pid_t pid;
    int to, from; /* pipes: "h0" holds writer 0's writes, "p0" lets them pass */
    char address[DEMO_WRITERS_MAX][DEMO_ADDRESS_SIZE];
};

struct demo_lab {
    char dir[64];
    char programs[256]; /* where fencelockd and fencelock-store are */
    char faketime[256]; /* "": there is none */
    pid_t redis[DEMO_REDIS];
    char redis_address[DEMO_REDIS][DEMO_ADDRESS_SIZE];
    char redis_list[DEMO_REDIS * DEMO_ADDRESS_SIZE];
    uint64_t clock_s; /* how far the clock of the first Redis has jumped */
    pid_t node[DEMO_NODES];
    char nodes[DEMO_NODES * 32];
    pid_t store[2]; /* without, with tokens */
    char store_address[2][DEMO_ADDRESS_SIZE];
    struct demo_proxy proxy[2];
    char error[512]; /* a sentence after a failure */
};

/* Set by a signal that asks us to end; waits give up then. */
extern volatile sig_atomic_t demo_interrupted;

/* 0, or an enum fl_err with lab->error. demo_lab_close() in either case. */
int demo_lab_open(struct demo_lab *lab) FL_MUST_USE;
void demo_lab_close(struct demo_lab *lab);
int demo_lab_fail(struct demo_lab *lab, const char *fmt, ...) FLI_PRINTF(2, 3);

void demo_redis_kill(struct demo_lab *lab, unsigned i);
int demo_redis_start(struct demo_lab *lab, unsigned i) FL_MUST_USE;
int demo_redis_wait(struct demo_lab *lab, unsigned i) FL_MUST_USE;
int demo_clock_jump(struct demo_lab *lab, uint64_t by_s) FL_MUST_USE;

/* A process of ours that dies with us; its output goes to `log` in the lab's directory (NULL: is
 * kept). 0 in the child. */
pid_t demo_fork(const struct demo_lab *lab, const char *log);
void demo_kill(pid_t *pid);

/* Waits for a line, for ever. False: nobody is there any more, or it is too long. Slow, one byte at
 * a time: lines here are short and few. */
bool demo_read_line(int fd, char *out, size_t size);
bool demo_write_line(int fd, const char *line);

/* ---- processes ------------------------------------------------------------------------------- */

int demo_proxy_start(struct demo_lab *lab, unsigned which) FL_MUST_USE;

struct demo_writer_config {
    const char *redis, *nodes, *store;
    char name[DEMO_NAME_SIZE], key[DEMO_NAME_SIZE];
    enum demo_mode mode;
};

/* Reads a command from fd 0 and answers on fd 1 until fd 0 ends. Each answer is a word and two
 * numbers.
 *
 *     acquire TTL  acquired TOKEN VALID_MS | failed ERROR 0
 *     read         read N 0 | refused 0 MARK       (DEMO_ON claims first)
 *     look         valid MS 0 | over 0 0
 *     write        written N 0 | refused 0 MARK | unknown 0 0
 *     release      released 0 0
 *     add TTL      added N TRIES | failed 0 0      (all of these, until it is acknowledged) */
int demo_writer(const struct demo_writer_config *config);

/* ---- a run ----------------------------------------------------------------------------------- */

enum demo_event_kind {
    DEMO_EV_ADDED, /* number: what the counter was raised by */
    DEMO_EV_ACQUIRED,
    DEMO_EV_READ,
    DEMO_EV_STOPPED,
    DEMO_EV_CONTINUED,
    DEMO_EV_HELD_BACK,
    DEMO_EV_LET_GO,
    DEMO_EV_DOWN,
    DEMO_EV_UP,
    DEMO_EV_FORGETS,
    DEMO_EV_JUMPS,
    DEMO_EV_WRITTEN,
    DEMO_EV_REFUSED,
    DEMO_EV_AGAIN,  /* what was refused is done anew */
    DEMO_EV_RESULT, /* number: the counter, more: what was acknowledged */
};

struct demo_event {
    enum demo_event_kind kind;
    uint64_t t_us;
    unsigned round;
    unsigned who; /* writer or Redis */
    uint64_t number, more;
};

struct demo_round_result {
    bool two_at_once; /* the next one held it before the first was through with its write */
    bool both_valid;  /* and by its own clock the first one still held it */
    bool refused;     /* the late write */
    uint64_t acknowledged, counter; /* in this round; the counter after it */
    uint64_t lost;
};

struct demo_result {
    struct demo_plan plan;
    enum demo_mode mode;
    struct demo_round_result round[DEMO_FAULTS];
    uint64_t acknowledged, counter, lost, unknown;
    unsigned grants, two_at_once, refused, retries;
    uint64_t elapsed_ms;
    unsigned events;
    struct demo_event event[DEMO_EVENTS_MAX];
};

/* 0, or an enum fl_err with lab->error. */
int demo_run(struct demo_lab *lab, const struct demo_plan *plan, enum demo_mode mode,
             struct demo_result *ret) FL_MUST_USE;

/* ---- what is shown --------------------------------------------------------------------------- */

struct demo_totals {
    unsigned runs, runs_lost, runs_two;
    uint64_t acknowledged, counter, lost, unknown, two_at_once, refused, grants;
};
const char *demo_mode_word(enum demo_mode mode); /* as --tokens has it */
void demo_totals_add(struct demo_totals *t, const struct demo_result *r);

void demo_show_run(const struct demo_result *r, bool colours);
void demo_show_totals(const struct demo_totals totals[DEMO_MODES], const bool wanted[DEMO_MODES],
                      bool colours);
void demo_json_run(struct cli_json *j, const struct demo_result *r);
void demo_json_totals(struct cli_json *j, const char *key, const struct demo_totals *t);

/* A sentence about an event, as the picture has it. */
void demo_event_text(const struct demo_result *r, const struct demo_event *e, char *out,
                     size_t size);

/* Draws one or two runs of the same seed side by side (NULL: no second). False: not written. */
bool demo_draw(const struct demo_result *left, const struct demo_result *right, const char *path);

#endif
