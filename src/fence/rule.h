/* rule.h: the rule of the mark, for the parts of this tree that keep marks themselves.
 *
 * A storage may forget marks that are below the smallest live token, provided it keeps that number
 * as a floor: every lock then behaves as if its mark were at least the floor. Pure; any thread. */
#ifndef FLI_FENCE_RULE_H
#define FLI_FENCE_RULE_H

#include <stdbool.h>

#include "fencelock/fence.h"

/* Whether a token could ever have been issued. */
static inline bool fli_fence_token_valid(fl_token token)
{
    return token != FL_TOKEN_NONE && token <= FL_TOKEN_MAX;
}

/* The mark that counts for a lock: what is stored for it (0 when nothing is), but at least the
 * floor. */
fl_token fli_fence_effective(fl_token stored, fl_token floor);

#endif
