/* fencelock_store_offline.h: what fencelock-store can do besides serving; and the text of
 * --help. */
#ifndef CLI_FENCELOCK_STORE_OFFLINE_H
#define CLI_FENCELOCK_STORE_OFFLINE_H

#include "base/base.h"

#define STORE_LISTEN_DEFAULT "127.0.0.1:7411"
#define STORE_DATA_DEFAULT "./fencelock-store-data"

/* At least one of the first three, or a token, was given. */
struct store_offline {
    const char *backup, *verify, *restore; /* NULL: not given */
    const char *data;
    fl_token above; /* FL_TOKEN_NONE: not given */
    size_t size_max;
};

/* Ends the process when it could not be done. */
void store_offline(const struct store_offline *o);

extern const char store_help[];

#endif
