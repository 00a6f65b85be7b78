/* address.c: see address.h. */
#include "base/address.h"

#include <string.h>

#include "base/bytes.h"

static bool host_ok(struct fli_slice host)
{
    for (size_t i = 0; i < host.len; i++) {
        if (host.data[i] == '\0' || strchr(" \t[]", host.data[i]) != NULL) {
            return false;
        }
    }
    return host.len > 0;
}

const char *fli_address_split(struct fli_slice text, struct fli_address *ret)
{
    size_t at = text.len;
    while (at > 0 && text.data[at - 1] != ':') {
        at--;
    }
    if (at == 0) {
        return "has no port";
    }
    struct fli_slice host = {text.data, at - 1};
    if (host.len >= 2 && host.data[0] == '[' && host.data[host.len - 1] == ']') {
        host = (struct fli_slice){host.data + 1, host.len - 2};
    } else if (host.len > 0 && memchr(host.data, ':', host.len) != NULL) {
        return "has more than one colon";
    }
    uint64_t port = 0;
    if (text.len - at > 5 || !fli_parse_u64(text.data + at, text.len - at, UINT16_MAX, &port)) {
        return "has a port that is not 1 to 65535";
    }
    if (!host_ok(host)) {
        return "has no proper host";
    }
    *ret = (struct fli_address){host, (uint16_t)port};
    return NULL;
}

bool fli_host_is_any(const char *host)
{
    return strcmp(host, "*") == 0 || strcmp(host, "0.0.0.0") == 0 || strcmp(host, "::") == 0;
}
