/* frontdoor_open.h: the options of the front door, made ready for dispatch. */
#ifndef SERVER_FRONTDOOR_OPEN_H
#define SERVER_FRONTDOOR_OPEN_H

#include "server/config.h"
#include "server/dispatch.h"

/* Reads the file of aliases. `ret->scripts` is NULL when the front door is switched off. 0;
 * FL_EINVAL, with a sentence in errmsg; FL_ENOMEM. */
int frontdoor_open(const struct config *config, struct frontdoor_context *ret, char *errmsg,
                   size_t errmsg_size) FLI_MUST_USE;
void frontdoor_close(struct frontdoor_context *f);

#endif
