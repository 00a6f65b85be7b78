/* fencelock_store_offline.h: what fencelock-store can do besides serving; and the text of
 * --help. */
#ifndef CLI_FENCELOCK_STORE_OFFLINE_H
#define CLI_FENCELOCK_STORE_OFFLINE_H

#include <stdbool.h>

#define STORE_LISTEN_DEFAULT "127.0.0.1:7411"
#define STORE_DATA_DEFAULT "./fencelock-store-data"

/* Whether the first argument asks for one of these. */
bool store_offline_is_asked(int argc, char **argv);
/* Does it. The exit code: 0; 1: it could not be done; 2: usage. */
int store_offline(int argc, char **argv);

extern const char store_help[];

#endif
