/* nodes.h: parses addresses of servers. Pure. */
#ifndef FLI_CLIENT_NODES_H
#define FLI_CLIENT_NODES_H

#include "base/base.h"
#include "fencelock/client.h"

#define FLI_SOCKET_MAX 107u /* of a path; sun_path has a zero byte behind it */

struct fli_node {
    char text[FL_ADDRESS_MAX + 1]; /* as written */
    char host[FL_ADDRESS_MAX + 1]; /* without brackets; "": text is the path of a socket */
    char port[6];
};

/* HOST:PORT or [IPV6]:PORT. 0; FL_EINVAL with a sentence in errmsg. */
int fli_node_parse(const char *text, size_t len, struct fli_node *ret, char *errmsg,
                   size_t errmsg_size) FLI_MUST_USE;

/* Parses 1 to FL_NODES_MAX addresses with commas between them, no two alike; sockets: also paths of
 * Unix sockets. ret has room for FL_NODES_MAX. */
int fli_nodes_parse(const char *text, bool sockets, struct fli_node *ret, uint32_t *ret_n,
                    char *errmsg, size_t errmsg_size) FLI_MUST_USE;

#endif
