/* nodes.c: see nodes.h. */
#include "client/nodes.h"

#include <stdio.h>
#include <string.h>

#include "base/address.h"

static int bad(char *errmsg, size_t errmsg_size, const char *text, size_t len, const char *why)
{
    int shown = len > 64 ? 64 : (int)len;
    snprintf(errmsg, errmsg_size, "'%.*s' %s: write HOST:PORT or [IPV6]:PORT", shown, text, why);
    return FL_EINVAL;
}

int fli_node_parse(const char *text, size_t len, struct fli_node *ret, char *errmsg,
                   size_t errmsg_size)
{
    if (len == 0 || len > FL_ADDRESS_MAX) {
        return bad(errmsg, errmsg_size, text, len, len == 0 ? "is empty" : "is too long");
    }
    struct fli_address a;
    const char *why = fli_address_split((struct fli_slice){(const uint8_t *)text, len}, &a);
    if (why == NULL && a.port == 0) {
        why = "has a port that is not 1 to 65535";
    }
    if (why != NULL) {
        return bad(errmsg, errmsg_size, text, len, why);
    }
    struct fli_node node = {.text = ""};
    memcpy(node.text, text, len);
    memcpy(node.host, a.host.data, a.host.len);
    snprintf(node.port, sizeof node.port, "%u", (unsigned)a.port);
    *ret = node;
    return 0;
}

/* /path/of/a/socket */
static int parse_socket(const char *text, size_t len, struct fli_node *ret, char *errmsg,
                        size_t errmsg_size)
{
    if (len > FLI_SOCKET_MAX) {
        snprintf(errmsg, errmsg_size, "the path of a socket has at most %u bytes, not %zu",
                 FLI_SOCKET_MAX, len);
        return FL_EINVAL;
    }
    *ret = (struct fli_node){.text = ""};
    memcpy(ret->text, text, len);
    return 0;
}

int fli_nodes_parse(const char *text, bool sockets, struct fli_node *ret, uint32_t *ret_n,
                    char *errmsg, size_t errmsg_size)
{
    uint32_t n = 0;
    for (const char *p = text;; p++) {
        size_t len = strcspn(p, ",");
        if (n == FL_NODES_MAX) {
            snprintf(errmsg, errmsg_size, "more than %u nodes are given", FL_NODES_MAX);
            return FL_EINVAL;
        }
        bool is_socket = sockets && *p == '/';
        int rc = is_socket ? parse_socket(p, len, &ret[n], errmsg, errmsg_size)
                           : fli_node_parse(p, len, &ret[n], errmsg, errmsg_size);
        if (rc != 0) {
            return rc;
        }
        for (uint32_t i = 0; i < n; i++) {
            if (strcmp(ret[i].text, ret[n].text) == 0) {
                snprintf(errmsg, errmsg_size, "%s is given twice", ret[n].text);
                return FL_EINVAL;
            }
        }
        n++;
        p += len;
        if (*p == '\0') {
            break;
        }
    }
    *ret_n = n;
    return 0;
}
