/* mark_decode.c: the bytes of a mark, for programs that read them without a database. */
#include "base/bytes.h"
#include "fence/mark.h"

int fli_mark_decode(struct fli_slice key, struct fli_slice value, fl_token *ret)
{
    FLI_ASSERT(key.len >= 1);
    bool floor = key.data[0] == FLI_MARK_FLOOR && key.len == 1;
    bool lock = key.data[0] == FLI_MARK_KEY && key.len >= 2 && key.len <= 1 + FL_NAME_MAX;
    if ((!floor && !lock) || value.len != FLI_MARK_SIZE) {
        return FL_ECORRUPT;
    }
    fl_token token = fli_get_u64(value.data);
    if (!fli_fence_token_valid(token)) {
        return FL_ECORRUPT;
    }
    *ret = token;
    return 0;
}
