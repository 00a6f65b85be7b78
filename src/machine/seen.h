/* seen.h (private to machine): requests that were here before and may come again, with what is
 * known of each: a number and a time. attempt.c and reentrant.c each have such a table.
 *
 * A table is bounded in number and in time, and users share it (base/share.h): each new request
 * first drops up to two whose time is over, the oldest of all; when the table is full all the same,
 * the user who has the most loses the oldest one. So nobody who floods it makes the machine forget
 * what others have sent. The order of all requests is state, as is the order within each user's,
 * which follows from it. */
#ifndef MACHINE_SEEN_H
#define MACHINE_SEEN_H

#include "base/list.h"
#include "base/map.h"
#include "base/share.h"
#include "machine/machine.h"

#define SEEN_KEY_MAX (4 + 1 + 1 + FL_NAME_MAX + FL_OWNER_MAX)

enum seen_kind { SEEN_IMPLICIT, SEEN_EXPLICIT, SEEN_LEAVE }; /* in keys, and so in snapshots */

/* A user who has requests in a table. */
struct seen_user {
    struct fli_map_node node;
    struct fli_share share; /* id: the uid */
    struct fli_list list;   /* seen.of_user, the oldest first */
};

struct seen {
    struct fli_map_node node;
    struct fli_list link, of_user;
    struct seen_user *user;
    uint64_t number;
    uint64_t at_ms; /* on the cluster clock; kept from then on as long as the table says */
    size_t key_len;
    uint8_t key[]; /* uid 4, enum seen_kind 1, name (length 1, bytes), owner or label */
};

struct seen_table {
    struct fli_map by_key, users;
    struct fli_list list; /* seen.link, the oldest first */
    struct fli_shares shares;
    uint32_t max;
    uint32_t keep_ms;
};

struct machine;

void machine_seen_init(struct seen_table *t, const uint64_t hash_seed[2], uint32_t max,
                       uint32_t keep_ms);
void machine_seen_fini(struct machine *m, struct seen_table *t);

/* Builds the key of a request of the sender. Returns its length. */
size_t machine_seen_key(const struct machine *m, enum seen_kind kind, struct fli_slice name,
                        struct fli_slice owner, uint8_t key[SEEN_KEY_MAX]);
struct seen *machine_seen_find(struct seen_table *t, struct fli_slice key); /* NULL: none */
/* Adds a request whose key is not in the table; drops what there is no room for. */
void machine_seen_add(struct machine *m, struct seen_table *t, struct fli_slice key,
                      uint64_t number, uint64_t at_ms);
/* The same for one of a snapshot, in the snapshot's order; there is room. */
void machine_seen_load(struct machine *m, struct seen_table *t, struct fli_slice key,
                       uint64_t number, uint64_t at_ms);
/* Changes one, which is the newest then. */
void machine_seen_renew(struct machine *m, struct seen_table *t, struct seen *s, uint64_t number,
                        uint64_t at_ms);
void machine_seen_drop(struct machine *m, struct seen_table *t, struct seen *s);

static inline const struct seen *seen_of(const struct fli_list *link)
{
    return FLI_CONTAINER_OF((struct fli_list *)(uintptr_t)link, struct seen, link);
}

uint64_t machine_digest_seen(const struct seen *s); /* digest.c */

#endif
