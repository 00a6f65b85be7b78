/* rule.c: fencing is this one comparison. The rest of this folder makes sure that its right-hand
 * side, the mark, is not forgotten. */
#include "fence/rule.h"

int fl_fence_judge(fl_token mark, fl_token token, fl_token *ret_mark)
{
    if (!fli_fence_token_valid(token)) {
        return FL_EINVAL;
    }
    if (token < mark) {
        return FL_ESTALE;
    }
    *ret_mark = token;
    return 0;
}

fl_token fli_fence_effective(fl_token stored, fl_token floor)
{
    return stored < floor ? floor : stored;
}
