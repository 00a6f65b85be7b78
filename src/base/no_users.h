/* no_users.h: how the error begins with which a server without users answers a login. Clients that
 * have a user go on without one when they read it, so it stays as it is (docs/PROTOCOL.md). */
#ifndef FLI_BASE_NO_USERS_H
#define FLI_BASE_NO_USERS_H

#define FLI_NO_USERS_WORD "ERR"
#define FLI_NO_USERS "AUTH: there are no users here"

#endif
