/* nodes.c: see nodes.h. */
#include "client/nodes.h"

#include <stdio.h>
#include <string.h>

#include "base/bytes.h"

static int bad(char *errmsg, size_t errmsg_size, const char *text, size_t len, const char *why)
{
    int shown = len > 64 ? 64 : (int)len;
    snprintf(errmsg, errmsg_size, "'%.*s' %s: write HOST:PORT or [IPV6]:PORT", shown, text, why);
    return FL_EINVAL;
}

static const char *last_colon(const char *text, size_t len)
{
    for (size_t i = len; i > 0; i--) {
        if (text[i - 1] == ':') {
            return text + i - 1;
        }
    }
    return NULL;
}

int fli_node_parse(const char *text, size_t len, struct fli_node *ret, char *errmsg,
                   size_t errmsg_size)
{
    if (len == 0 || len > FL_ADDRESS_MAX) {
        return bad(errmsg, errmsg_size, text, len, len == 0 ? "is empty" : "is too long");
    }
    const char *colon = last_colon(text, len);
    if (colon == NULL) {
        return bad(errmsg, errmsg_size, text, len, "has no port");
    }
    const char *host = text;
    size_t host_len = (size_t)(colon - text);
    if (host_len >= 2 && host[0] == '[' && host[host_len - 1] == ']') {
        host++;
        host_len -= 2;
    } else if (memchr(host, ':', host_len) != NULL) {
        return bad(errmsg, errmsg_size, text, len, "has more than one colon");
    }
    uint64_t port;
    size_t port_len = len - (size_t)(colon + 1 - text);
    if (!fli_parse_u64(colon + 1, port_len, 65535, &port) || port == 0) {
        return bad(errmsg, errmsg_size, text, len, "has a port that is not 1 to 65535");
    }
    if (host_len == 0 || memchr(text, ' ', len) != NULL || memchr(text, '\0', len) != NULL) {
        return bad(errmsg, errmsg_size, text, len, "has no proper host");
    }
    struct fli_node node = {.text = ""};
    memcpy(node.text, text, len);
    memcpy(node.host, host, host_len);
    snprintf(node.port, sizeof node.port, "%u", (unsigned)port);
    *ret = node;
    return 0;
}

int fli_nodes_parse(const char *text, struct fli_node *ret, uint32_t *ret_n, char *errmsg,
                    size_t errmsg_size)
{
    uint32_t n = 0;
    for (const char *p = text;; p++) {
        size_t len = strcspn(p, ",");
        if (n == FL_NODES_MAX) {
            snprintf(errmsg, errmsg_size, "more than %u nodes are given", FL_NODES_MAX);
            return FL_EINVAL;
        }
        int rc = fli_node_parse(p, len, &ret[n], errmsg, errmsg_size);
        if (rc != 0) {
            return rc;
        }
        for (uint32_t i = 0; i < n; i++) {
            if (strcmp(ret[i].text, ret[n].text) == 0) {
                snprintf(errmsg, errmsg_size, "node %s is given twice", ret[n].text);
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
