/* server_check.h: checks whether a configuration could be served, without serving it. */
#ifndef SERVER_SERVER_CHECK_H
#define SERVER_SERVER_CHECK_H

#include "members/data_dir.h"
#include "server/config.h"

/* Reads every file that the configuration names, as a start does, and inspects the data directory.
 * It changes nothing and opens no port. 0; else errmsg says what is wrong and what to do. *ret
 * describes the directory in any case. */
int server_check(const struct config *c, struct directory_summary *ret, char *errmsg,
                 size_t errmsg_size) FLI_MUST_USE;

#endif
