/* reentrant.h (private to machine): locks that one owner may take several times, see reentrant.c;
 * and the state of a key, as these and KEYS (keys.c) see it. */
#ifndef MACHINE_REENTRANT_H
#define MACHINE_REENTRANT_H

#include "base/list.h"
#include "base/map.h"
#include "machine/machine.h"

#define HOLD_COUNT_SIZE 4u /* bytes of a count, in the place of the request's value */

/* A LEAVE with a label, and the answer that it got. */
struct leave {
    struct fli_map_node node;
    struct fli_list link; /* in leaves.list */
    uint64_t until_ms;    /* the cluster clock up to which it is remembered */
    uint8_t released;
    size_t key_len;
    uint8_t key[]; /* uid 4, LEAVE_KEY_KIND 1, name (length 1, bytes), label */
};
#define LEAVE_KEY_KIND 2u /* in a snapshot, beside the kinds of attempts */

struct leaves {
    struct fli_map by_key;
    struct fli_list list; /* in the order in which they came */
};

static inline const struct leave *leave_of(const struct fli_list *link)
{
    return FLI_CONTAINER_OF(link, struct leave, link);
}

struct request;

/* keys.c: the state of a key for one owner. OWN: *ret is the request with which the owner alone
 * holds it. */
enum machine_key_state { KEY_FREE, KEY_OWN, KEY_OTHER };
enum machine_key_state machine_key_find(struct machine *m, struct fli_slice name,
                                        struct fli_slice owner, struct request **ret);
/* Grants a free lock to the owner in the command; or answers which limit is reached. */
void machine_key_grant(struct machine *m, const struct machine_command *c, bool counted,
                       struct machine_result *r);
void machine_keys(struct machine *m, const struct machine_command *c, struct machine_result *r);
int machine_key(struct machine *m, const struct machine_command *q, struct machine_result *r,
                struct fli_buf *payload);

/* lock_request.c: how often a counted request was taken; 0 for others. */
uint32_t machine_request_count(const struct request *request);
void machine_request_set_count(struct request *request, uint32_t n);

/* reentrant.c: REENTER, LEAVE and HOLDS. */
void machine_leaves_init(struct machine *m, const uint64_t hash_seed[2]);
void machine_leaves_fini(struct machine *m);
/* Loads one from a snapshot, in the snapshot's order. False: it is not valid. */
bool machine_leave_load(struct machine *m, struct fli_slice key, uint64_t released,
                        uint64_t until_ms);
void machine_reenter(struct machine *m, const struct machine_command *c, struct machine_result *r);
void machine_leave(struct machine *m, const struct machine_command *c, struct machine_result *r);
/* Answers the query HOLDS: as KEY does for one key and an owner. DONE: `number` is how often the
 * owner has taken the key. */
int machine_holds(struct machine *m, const struct machine_command *q, struct machine_result *r,
                  struct fli_buf *payload);
uint64_t machine_digest_leave(const struct leave *l); /* digest.c */

#endif
