/* config_private.h: shared by config.c (the table and the sources), config_values.c (the value of
 * one option), config_check.c (options that depend on each other). */
#ifndef SERVER_CONFIG_PRIVATE_H
#define SERVER_CONFIG_PRIVATE_H

#include "base/base.h"
#include "server/config.h"

/* A flag needs no value on the command line. */
enum config_kind {
    KIND_NUMBER,
    KIND_TEXT,
    KIND_FLAG,
    KIND_YES_NO,
    KIND_LEVEL,
    KIND_CLUSTER,
    KIND_JOIN,
    KIND_AUTH,
    KIND_FORMAT,
    KIND_CERT_USER
};

struct config_option {
    const char *name;
    enum config_kind kind;
    size_t offset;
    size_t size; /* of the field that holds the value */
    uint64_t min, max;
    bool once; /* for this start only: not in the environment or the file */
};

#define CONFIG_OPTIONS_MAX 64u

/* A value and where it was found. */
struct config_given {
    char *text; /* NULL: not given */
    char where[CONFIG_PATH_MAX + 32];
};

struct config_reader {
    struct config_given given[CONFIG_OPTIONS_MAX];
    struct config *config;
    char *errmsg;
    config_value_cb tell; /* NULL: no values are listed */
    void *tell_ctx;
};

/* Writes the error message. Returns CONFIG_WRONG. */
enum config_outcome FLI_PRINTF(2, 3) config_wrong(struct config_reader *r, const char *fmt, ...);

/* Whether any source gave this option, which must be in the table. */
bool config_was_given(const struct config_reader *r, const char *name);

/* Reads the given text into the field of its option. */
enum config_outcome config_set(struct config_reader *r, const struct config_option *o,
                               const struct config_given *g);

/* Reports an option's value in force. */
void config_tell(const struct config_reader *r, const struct config_option *o,
                 const struct config_given *g);

/* Checks options that depend on each other, and fills in values that follow from others. */
enum config_outcome config_check(struct config_reader *r);

#endif
