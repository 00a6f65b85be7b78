/* rule.h: the rule of the mark, for the parts of fencelock that keep marks themselves.
 *
 * A storage may forget marks that are below the smallest live token, if it keeps that token as a
 * floor. Then every lock counts as if its mark were at least the floor. Pure; any thread. */
#ifndef FLI_FENCE_RULE_H
#define FLI_FENCE_RULE_H

#include <stdbool.h>

#include "fencelock/fence.h"

/* Whether a token could ever have been issued. */
static inline bool fli_fence_token_valid(fl_token token)
{
    return token != FL_TOKEN_NONE && token <= FL_TOKEN_MAX;
}

/* The effective mark of a lock: the stored one (0 when there is none), but at least the floor. */
fl_token fli_fence_effective(fl_token stored, fl_token floor);

#endif
