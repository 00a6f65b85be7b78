/* throttle.c: see throttle.h. */
#include "auth/throttle.h"

#include <string.h>

#include "base/bytes.h"

static void key_of(struct fli_slice address, uint8_t key[16])
{
    FLI_ASSERT(address.len == 0 || address.len == 4 || address.len == 16);
    memset(key, 0, 16);
    if (address.len > 0) {
        memcpy(key, address.data, address.len == 16 ? 8 : 4);
    }
    key[15] = (uint8_t)address.len;
}

static struct throttle_entry *find(struct throttle *t, struct fli_slice address)
{
    uint8_t key[16];
    key_of(address, key);
    for (unsigned i = 0; i < THROTTLE_MAX; i++) {
        struct throttle_entry *e = &t->entries[i];
        if (e->failures > 0 && memcmp(e->address, key, sizeof key) == 0) {
            return e;
        }
    }
    return NULL;
}

static uint64_t step_ms(unsigned failures)
{
    if (failures < THROTTLE_FREE) {
        return 0;
    }
    unsigned doublings = failures - THROTTLE_FREE;
    uint64_t ms = doublings > 10 ? THROTTLE_STEP_MAX_MS : THROTTLE_STEP_MS << doublings;
    return ms < THROTTLE_STEP_MAX_MS ? ms : THROTTLE_STEP_MAX_MS;
}

uint64_t throttle_ask(struct throttle *t, struct fli_slice address, uint64_t now_ms)
{
    struct throttle_entry *e = find(t, address);
    if (e != NULL && now_ms - e->failed_ms > THROTTLE_FORGET_MS) {
        e->failures = 0;
        e = NULL;
    }
    if (e == NULL || e->failures < THROTTLE_FREE) {
        return now_ms;
    }
    uint64_t at_ms = e->next_ms > now_ms ? e->next_ms : now_ms;
    if (at_ms - now_ms > THROTTLE_AHEAD_MS) {
        return UINT64_MAX;
    }
    e->next_ms = at_ms + step_ms(e->failures);
    return at_ms;
}

/* Returns a free entry, or the one whose failure is the oldest. */
static struct throttle_entry *make_room(struct throttle *t)
{
    struct throttle_entry *oldest = &t->entries[0];
    for (unsigned i = 0; i < THROTTLE_MAX; i++) {
        struct throttle_entry *e = &t->entries[i];
        if (e->failures == 0) {
            return e;
        }
        oldest = e->failed_ms < oldest->failed_ms ? e : oldest;
    }
    return oldest;
}

static bool is_user(const struct throttle_entry *e, struct fli_slice user)
{
    return fli_bytes_cmp(e->user, e->user_len, user.data, user.len) == 0;
}

void throttle_failed(struct throttle *t, struct fli_slice address, struct fli_slice user,
                     uint64_t now_ms)
{
    FLI_ASSERT(user.len <= ACL_NAME_MAX);
    struct throttle_entry *e = find(t, address);
    t->failures++;
    if (e == NULL) {
        e = make_room(t);
        memset(e, 0, sizeof *e);
        key_of(address, e->address);
        e->user_len = user.len;
        if (user.len > 0) {
            memcpy(e->user, user.data, user.len);
        }
    }
    e->others = e->others || !is_user(e, user);
    e->failures++;
    e->failed_ms = now_ms;
    uint64_t next_ms = now_ms + step_ms(e->failures);
    e->next_ms = next_ms > e->next_ms ? next_ms : e->next_ms;
}

void throttle_succeeded(struct throttle *t, struct fli_slice address, struct fli_slice user)
{
    struct throttle_entry *e = find(t, address);
    if (e != NULL && !e->others && is_user(e, user)) {
        e->failures = 0;
    }
}
