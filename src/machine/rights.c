/* rights.c: see rights.h. */
#include "machine/rights.h"

#include <string.h>

void rights_forget(struct known_rights *known)
{
    known->n = 0;
}

static const struct known_right *find(const struct known_rights *known, uint32_t uid,
                                      struct fli_slice name)
{
    for (unsigned i = 0; i < known->n && i < RIGHTS_KNOWN_MAX; i++) {
        const struct known_right *k = &known->list[i];
        if (k->uid == uid && fli_bytes_cmp(k->name, k->name_len, name.data, name.len) == 0) {
            return k;
        }
    }
    return NULL;
}

static void remember(struct known_rights *known, uint32_t uid, struct fli_slice name, bool may)
{
    struct known_right *k = &known->list[known->n++ % RIGHTS_KNOWN_MAX];
    FLI_ASSERT(name.len <= FL_NAME_MAX);
    k->uid = uid;
    k->may = may;
    k->name_len = (uint8_t)name.len;
    memcpy(k->name, name.data, name.len);
}

bool rights_may_acquire(struct known_rights *known, uint32_t uid, const struct acl_user *u,
                        struct fli_slice name, uint64_t *steps)
{
    uint64_t own_steps = 0;
    const struct known_right *k = find(known, uid, name);
    if (k != NULL) {
        return k->may;
    }
    bool may = acl_may(u, ACL_ACQUIRE, name, &own_steps);
    *steps += own_steps;
    if (own_steps >= RIGHTS_KNOWN_STEPS) {
        remember(known, uid, name, may);
    }
    return may;
}
