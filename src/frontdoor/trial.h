/* trial.h: sends a request, as the front door translates it, to a lock machine of its
 * own: for a free lock, for a lock of another holder, for its holder's, and after the end of the
 * lease. So what the tables say of a request is not believed but seen. The words of the command, or
 * of its script, say what it has to do: a script with `del` gives a lock back, and so on. Pure. */
#ifndef FRONTDOOR_TRIAL_H
#define FRONTDOOR_TRIAL_H

#include "frontdoor/monitor.h"

struct frontdoor_trial {
    bool holds;
    char saw[512]; /* each step: what became of the lock, and the answer */
    char why[128]; /* it does not hold: the step, and what is wrong there */
};

/* False: this is no request for locks that is served, so that there is nothing to try. */
bool frontdoor_try(const struct frontdoor_context *c, const struct frontdoor_monitored *m,
                   struct frontdoor_trial *ret) FLI_MUST_USE;

#endif
