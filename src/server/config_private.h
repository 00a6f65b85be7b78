/* config_private.h: shared by config.c (the table and the sources) and config_check.c (options that
 * depend on each other). */
#ifndef SERVER_CONFIG_PRIVATE_H
#define SERVER_CONFIG_PRIVATE_H

#include "base/options.h"
#include "server/config.h"

struct config_reader {
    struct fli_options options;
    struct config *config;
};

/* Writes the error message. Returns CONFIG_WRONG. */
enum config_outcome FLI_PRINTF(2, 3) config_wrong(struct config_reader *r, const char *fmt, ...);

/* Whether any source gave this option, which must be in the table. */
bool config_was_given(const struct config_reader *r, const char *name);

/* Checks options that depend on each other, and fills in values that follow from others. */
enum config_outcome config_check(struct config_reader *r);

#endif
