/* worst.h: what the files of the search for worst cases share.
 *
 * A case is a list of genes. A gene is one kind of thing that a client may send, or that time may
 * do, so many times, with a name and an owner that may step along. As text it is a line, so that
 * what was found can be read, kept and played again:
 *
 *   acquire NAME OWNER HOW TIMES
 *
 * HOW: bit 0 the name steps, bit 1 the owner steps, the rest as the kind has it (run.c). */
#ifndef FUZZ_WORST_H
#define FUZZ_WORST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define WORST_GENES_MAX 40u
#define WORST_TIMES_MAX 8192u
#define WORST_COMMANDS_MAX 24000u /* of one case */

enum worst_kind {
    WORST_ACQUIRE,
    WORST_OPEN,
    WORST_RENEW_SESSION,
    WORST_CLOSE,
    WORST_RENEW,
    WORST_RELEASE,
    WORST_CHECK,
    WORST_BREAK,
    WORST_TOKEN,
    WORST_CANCEL,
    WORST_KEYS,
    WORST_ANY_KEYS,
    WORST_REENTER,
    WORST_LEAVE,
    WORST_USER,
    WORST_TIME,  /* passes: TIMES * 1, 100, 10000 ms by HOW */
    WORST_MARK,  /* another leader */
    WORST_FLUSH, /* the batch ends here */
    WORST_DRAIN, /* empty batches while there is work, TIMES at most */
    WORST_SHOW,
    WORST_LOCKS,
    WORST_SESSION_SHOW,
    WORST_SESSION_LIST,
    WORST_KEY,
    WORST_SUBSCRIBE,
    WORST_ENROLL,   /* users of that name and the next ones */
    WORST_USERS,    /* all users are listed */
    WORST_PATTERNS, /* somebody may have names that match the last of its long patterns, which have
                       one set or, with EXPLICIT, many; with VALUE another right, too */
    WORST_WORDS,    /* somebody is given as many short patterns as one command can have */
    WORST_DISMISS,  /* users who do not exist are deleted */
    WORST_KINDS
};

struct worst_gene {
    uint8_t kind; /* enum worst_kind */
    uint16_t name, owner, how, times;
};

struct worst_case {
    unsigned n;
    struct worst_gene gene[WORST_GENES_MAX];
};

/* What is to be as large as can be. */
enum worst_metric {
    WORST_STEPS, /* as the machine counts them, of one apply */
    WORST_APPLY, /* branches of the code that one apply came along */
    WORST_TURN,  /* the same, with the queries and events of that entry */
    WORST_METRICS
};

struct worst_mark {
    uint64_t value;
    uint8_t kind; /* of the gene at hand in that batch */
};

struct worst_result {
    struct worst_mark mark[WORST_METRICS];
    uint64_t apply_ns, turn_ns; /* of processor time, the longest */
    uint64_t commands;
};

/* run.c: plays a case on a machine of its own. `check`: looks at its invariants at the end. */
void worst_run(const struct worst_case *c, bool check, struct worst_result *ret);

/* text.c */
const char *worst_kind_name(unsigned kind);
/* False: it is none, or too long; *ret_line tells where. */
bool worst_parse(const char *text, struct worst_case *ret, unsigned *ret_line);
size_t worst_print(const struct worst_case *c, char *out, size_t size); /* its length */

/* mutate.c */
uint64_t worst_random(uint64_t *state);
uint64_t worst_below(uint64_t *state, uint64_t n);
/* Changes it a little, or puts a piece of `other` into it. */
void worst_mutate(struct worst_case *c, const struct worst_case *other, uint64_t *random);

#endif
