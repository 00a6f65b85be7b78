/* mark.c: see mark.h. */
#include "fence/mark.h"

#include <string.h>

#include "base/bytes.h"

void fli_mark_key_init(struct fli_mark_key *k, struct fli_slice lock)
{
    FLI_ASSERT(lock.len >= 1);
    FLI_ASSERT(lock.len <= FL_NAME_MAX);
    k->raw[0] = FLI_MARK_KEY;
    memcpy(k->raw + 1, lock.data, lock.len);
    k->len = 1 + lock.len;
}

int fli_mark_get(struct fli_txn *t, struct fli_slice lock, fl_token *ret)
{
    struct fli_mark_key key;
    struct fli_slice value;
    fli_mark_key_init(&key, lock);
    int rc = fli_txn_get(t, fli_mark_key_slice(&key), &value);
    if (rc == FL_ENOTFOUND) {
        *ret = FL_TOKEN_NONE;
        return 0;
    }
    return rc != 0 ? rc : fli_mark_decode(fli_mark_key_slice(&key), value, ret);
}

int fli_mark_raise(struct fli_txn *t, struct fli_slice lock, fl_token floor, fl_token token,
                   fl_token *ret_mark, bool *ret_new)
{
    fl_token stored;
    int rc = fli_mark_get(t, lock, &stored);
    if (rc != 0) {
        return rc;
    }
    fl_token mark = fli_fence_effective(stored, floor);
    fl_token raised;
    rc = fl_fence_judge(mark, token, &raised);
    if (rc == FL_ESTALE) {
        *ret_mark = mark;
    }
    if (rc != 0) {
        return rc;
    }
    FLI_ASSERT(raised >= mark);
    if (raised > stored) { /* also when only the floor covered the lock so far */
        uint8_t raw[FLI_MARK_SIZE];
        struct fli_mark_key key;
        struct fli_slice part = {raw, sizeof(raw)};
        fli_put_u64(raw, raised);
        fli_mark_key_init(&key, lock);
        rc = fli_txn_put(t, fli_mark_key_slice(&key), &part, 1);
        if (rc != 0) {
            return rc;
        }
    }
    if (ret_new != NULL) {
        *ret_new = stored == FL_TOKEN_NONE;
    }
    *ret_mark = raised;
    return 0;
}
