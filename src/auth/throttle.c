/* throttle.c: see throttle.h. */
#include "auth/throttle.h"

#include <openssl/crypto.h>
#include <string.h>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/map.h"

static void init_table(struct throttle_table *t)
{
    memset(t, 0, sizeof *t);
    fli_list_init(&t->spare);
    fli_shares_init(&t->shares);
    for (unsigned i = 0; i < THROTTLE_GROUPS; i++) {
        fli_share_init(&t->groups[i].share, i);
        fli_list_init(&t->groups[i].entries);
    }
}

void throttle_init(struct throttle *t)
{
    init_table(&t->failed);
    init_table(&t->logged_in);
    fli_random(t->seed, sizeof t->seed);
    fli_random(t->key, sizeof t->key);
    t->failures = 0;
}

static struct throttle_entry *entry_of(struct fli_list *link)
{
    return FLI_CONTAINER_OF(link, struct throttle_entry, link);
}

static void drop(struct throttle_table *t, struct throttle_entry *e)
{
    fli_share_give_back(&t->shares, &t->groups[e->group].share, 1);
    fli_list_remove(&e->link);
    explicit_bzero(e->tag, sizeof e->tag);
    fli_list_push(&t->spare, &e->link);
}

static void fini_table(struct throttle_table *t)
{
    for (unsigned i = 0; i < THROTTLE_GROUPS; i++) {
        struct fli_list *link = NULL;
        while ((link = fli_list_first(&t->groups[i].entries)) != NULL) {
            drop(t, entry_of(link));
        }
    }
    fli_shares_fini(&t->shares);
}

void throttle_fini(struct throttle *t)
{
    fini_table(&t->failed);
    fini_table(&t->logged_in);
    explicit_bzero(t->key, sizeof t->key);
}

static void key_of(struct fli_slice address, uint8_t key[16])
{
    FLI_ASSERT(address.len == 0 || address.len == 4 || address.len == 16);
    memset(key, 0, 16);
    if (address.len > 0) {
        memcpy(key, address.data, address.len == 16 ? 8 : 4);
    }
    key[15] = (uint8_t)address.len;
}

/* Addresses share the failures, users the logins. */
static unsigned group_of(struct throttle *t, const struct throttle_table *in, const uint8_t key[16],
                         struct fli_slice user)
{
    uint64_t hash = in == &t->failed ? fli_siphash(t->seed, key, 16)
                                     : fli_siphash(t->seed, user.data, user.len);
    return (unsigned)(hash % THROTTLE_GROUPS);
}

static const struct fli_slice NOBODY = {(const uint8_t *)"", 0};

static struct throttle_entry *find(struct throttle *t, struct throttle_table *in,
                                   const struct throttle_who *who, struct fli_slice user)
{
    uint8_t key[16];
    key_of(who->address, key);
    FLI_LIST_FOREACH(link, &in->groups[group_of(t, in, key, user)].entries)
    {
        struct throttle_entry *e = entry_of(link);
        if (memcmp(e->address, key, sizeof key) == 0 &&
            fli_bytes_cmp(e->user, e->user_len, user.data, user.len) == 0) {
            return e;
        }
    }
    return NULL;
}

/* A free place; the share that has the most makes room when there is none. */
static struct throttle_entry *place(struct throttle_table *in)
{
    if (in->n < THROTTLE_MAX) {
        fli_list_init(&in->entries[in->n].link);
        return &in->entries[in->n++];
    }
    if (fli_list_empty(&in->spare)) {
        const struct fli_share *most = fli_shares_most(&in->shares);
        FLI_ASSERT(most != NULL);
        drop(in, entry_of(in->groups[most->id].entries.next));
    }
    struct fli_list *link = in->spare.next;
    fli_list_remove(link);
    return entry_of(link);
}

/* The entry, which is the newest of its share from now on. NULL: out of memory. */
static struct throttle_entry *note(struct throttle *t, struct throttle_table *in,
                                   const struct throttle_who *who, struct fli_slice user,
                                   uint64_t now_ms)
{
    FLI_ASSERT(user.len <= ACL_NAME_MAX);
    struct throttle_entry *e = find(t, in, who, user);
    if (e == NULL) {
        e = place(in);
        *e = (struct throttle_entry){.user_len = user.len};
        key_of(who->address, e->address);
        if (user.len > 0) {
            memcpy(e->user, user.data, user.len);
        }
        e->group = group_of(t, in, e->address, user);
        fli_list_init(&e->link);
        if (fli_share_take(&in->shares, &in->groups[e->group].share, 1) != 0) {
            fli_list_push(&in->spare, &e->link);
            return NULL;
        }
    }
    e->at_ms = now_ms;
    fli_list_remove(&e->link);
    fli_list_push(&in->groups[e->group].entries, &e->link);
    return e;
}

static uint64_t step_ms(const struct throttle_entry *e)
{
    if (e->failures + e->under_way < THROTTLE_FREE) {
        return 0;
    }
    bool doubles = e->user_len > 0 && e->failures > THROTTLE_FREE;
    unsigned doublings = doubles ? e->failures - THROTTLE_FREE : 0;
    uint64_t ms = doublings > 10 ? THROTTLE_STEP_MAX_MS : THROTTLE_STEP_MS << doublings;
    return ms < THROTTLE_STEP_MAX_MS ? ms : THROTTLE_STEP_MAX_MS;
}

static struct throttle_entry *find_failures(struct throttle *t, const struct throttle_who *who,
                                            struct fli_slice user, uint64_t now_ms)
{
    struct throttle_entry *e = find(t, &t->failed, who, user);
    if (e != NULL && e->under_way == 0 && now_ms - e->at_ms > THROTTLE_FORGET_MS) {
        drop(&t->failed, e);
        return NULL;
    }
    return e != NULL && e->failures + e->under_way >= THROTTLE_FREE ? e : NULL;
}

static bool same_tag(const struct throttle_entry *e, const struct throttle_who *who)
{
    return CRYPTO_memcmp(e->tag, who->tag, sizeof e->tag) == 0;
}

/* Whether this is the password of the last login. After too many that were not it is forgotten:
 * what is answered sooner, or later, tells a guesser as much as the answer. */
static bool is_known(struct throttle *t, const struct throttle_who *who)
{
    struct throttle_entry *e = find(t, &t->logged_in, who, who->user);
    if (e == NULL || same_tag(e, who)) {
        return e != NULL;
    }
    if (e->judged == THROTTLE_JUDGED_MAX) {
        drop(&t->logged_in, e);
    } else {
        e->judged++;
    }
    return false;
}

/* Notes an attempt that is under way, or has failed. */
static void count(struct throttle *t, const struct throttle_who *who, struct fli_slice user,
                  uint64_t now_ms, bool failed)
{
    struct throttle_entry *e = note(t, &t->failed, who, user, now_ms);
    if (e != NULL) {
        e->failures += failed;
        e->under_way += !failed;
        uint64_t next_ms = now_ms + step_ms(e);
        e->next_ms = next_ms > e->next_ms ? next_ms : e->next_ms;
    }
}

/* The end of an attempt that was counted. Its entry may have gone meanwhile, and be another's. */
static void settle(struct throttle *t, const struct throttle_who *who, struct fli_slice user)
{
    struct throttle_entry *e = find(t, &t->failed, who, user);
    if (e != NULL && who->counted && e->under_way > 0) {
        e->under_way--;
    }
    if (e != NULL && e->failures + e->under_way == 0) {
        drop(&t->failed, e);
    }
}

uint64_t throttle_ask(struct throttle *t, struct throttle_who *who, uint64_t now_ms)
{
    who->counted = false;
    if (is_known(t, who)) {
        return now_ms;
    }
    struct throttle_entry *all = find_failures(t, who, NOBODY, now_ms);
    struct throttle_entry *own =
        who->user.len == 0 ? NULL : find_failures(t, who, who->user, now_ms);
    uint64_t at_ms = now_ms;
    at_ms = all != NULL && all->next_ms > at_ms ? all->next_ms : at_ms;
    at_ms = own != NULL && own->next_ms > at_ms ? own->next_ms : at_ms;
    if (at_ms - now_ms > THROTTLE_AHEAD_MS) {
        return UINT64_MAX;
    }
    if (all != NULL) { /* the turn of the address, which others have while this one waits longer */
        uint64_t turn_ms = all->next_ms > now_ms ? all->next_ms : now_ms;
        all->next_ms = turn_ms + step_ms(all);
    }
    if (own != NULL) {
        own->next_ms = at_ms + step_ms(own);
    }
    who->counted = true;
    count(t, who, NOBODY, now_ms, false);
    if (who->user.len > 0) {
        count(t, who, who->user, now_ms, false);
    }
    return at_ms;
}

void throttle_left(struct throttle *t, const struct throttle_who *who)
{
    settle(t, who, NOBODY);
    if (who->user.len > 0) {
        settle(t, who, who->user);
    }
}

void throttle_failed(struct throttle *t, const struct throttle_who *who, uint64_t now_ms)
{
    struct throttle_entry *known = find(t, &t->logged_in, who, who->user);
    t->failures++;
    if (known != NULL && same_tag(known, who)) { /* it is the password no more */
        drop(&t->logged_in, known);
    }
    count(t, who, NOBODY, now_ms, true);
    if (who->user.len > 0) {
        count(t, who, who->user, now_ms, true);
    }
    throttle_left(t, who);
}

void throttle_succeeded(struct throttle *t, const struct throttle_who *who, uint64_t now_ms)
{
    struct throttle_entry *failed = who->user.len == 0 ? NULL : find(t, &t->failed, who, who->user);
    if (failed != NULL) {
        failed->failures = 0;
        failed->next_ms = 0;
    }
    throttle_left(t, who);
    struct throttle_entry *e = note(t, &t->logged_in, who, who->user, now_ms);
    /* A login that goes before others allows no more guesses: only one that did not makes an entry,
     * or has another password. */
    if (e != NULL && !same_tag(e, who)) {
        e->judged = 0;
        memcpy(e->tag, who->tag, sizeof e->tag);
    }
}
