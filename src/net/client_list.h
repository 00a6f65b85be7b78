/* client_list.h: CLIENT INFO and CLIENT LIST.
 *
 * A list has a line for each connection, so making it goes on over turns of the loop: a turn looks
 * at NET_LISTED_TURN_MAX connections, whoever asks for lists. One list is made at a time. The
 * others stand in line, in the order in which they came, and beyond NET_LISTS_MAX they are refused
 * with BUSY. A connection takes no further request until it has its list.
 *
 * A list has the connections that were open when it was begun, oldest first, without those that
 * ended before it came to them; each as it is then. */
#ifndef NET_CLIENT_LIST_H
#define NET_CLIENT_LIST_H

#include "net/connection_commands.h"

#define NET_LISTED_TURN_MAX 256u
#define NET_LISTS_MAX 64u

/* Appends the answer to CLIENT INFO. Whether it fitted. */
bool net_client_info(const struct net_commands *commands, struct net_conn *c,
                     struct fli_buf *b) FLI_MUST_USE;
/* Takes the request for a list, and answers it now or in a later turn. */
void net_client_list(const struct net_commands *commands, struct net_request *r);

#endif
