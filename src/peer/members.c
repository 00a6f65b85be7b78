/* members.c: parsing of the cluster's configuration.
 *
 * The text is a list of ID=HOST:PORT separated by commas; blanks around a part are allowed. The
 * result is sorted by id, so that two nodes that were given the same members in another order have
 * the same canonical text, and so the same first entry in their logs. */
#include "peer/members.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "base/address.h"
#include "base/bytes.h"

/* Ids fit into a signed 64-bit number, since some clients read them as such. */
#define MEMBER_ID_MAX UINT64_C(0x7fffffffffffffff)

static bool host_char(char c, bool bracketed)
{
    if (isalnum((unsigned char)c) || c == '.' || c == '-' || c == '_') {
        return true;
    }
    return bracketed && (c == ':' || c == '%');
}

int address_split(const char *address, char host[256], uint16_t *ret_port)
{
    struct fli_address a;
    bool bracketed = address[0] == '[';
    if (fli_address_split((struct fli_slice){(const uint8_t *)address, strlen(address)}, &a) !=
            NULL ||
        a.port == 0 || a.host.len > 255) {
        return FL_EINVAL;
    }
    for (size_t i = 0; i < a.host.len; i++) {
        if (!host_char((char)a.host.data[i], bracketed)) {
            return FL_EINVAL;
        }
    }
    memcpy(host, a.host.data, a.host.len);
    host[a.host.len] = '\0';
    *ret_port = a.port;
    return 0;
}

static struct fli_slice trim(const char *start, const char *end)
{
    while (start < end && (*start == ' ' || *start == '\t')) {
        start++;
    }
    while (end > start && (end[-1] == ' ' || end[-1] == '\t')) {
        end--;
    }
    return (struct fli_slice){(const uint8_t *)start, (size_t)(end - start)};
}

/* Parses one ID=HOST:PORT. */
static int parse_one(struct fli_slice part, struct member *ret, char *errmsg, size_t errmsg_size)
{
    int shown = part.len > 100 ? 100 : (int)part.len;
    const char *text = (const char *)part.data;
    const uint8_t *equals = part.len == 0 ? NULL : memchr(part.data, '=', part.len);
    if (equals == NULL) {
        return fli_refuse(errmsg, errmsg_size, FL_EINVAL,
                          "member '%.*s' is not of the form ID=HOST:PORT", shown, text);
    }
    size_t id_len = (size_t)(equals - part.data);
    if (!fli_parse_u64(part.data, id_len, MEMBER_ID_MAX, &ret->id) || ret->id == 0) {
        return fli_refuse(errmsg, errmsg_size, FL_EINVAL,
                          "member '%.*s': the id must be a number from 1 up", shown, text);
    }
    size_t len = part.len - id_len - 1;
    char host[256];
    uint16_t port;
    if (len >= sizeof ret->address) {
        return fli_refuse(errmsg, errmsg_size, FL_EINVAL,
                          "member %llu: the address is longer than %zu bytes",
                          (unsigned long long)ret->id, sizeof ret->address - 1);
    }
    memcpy(ret->address, equals + 1, len);
    ret->address[len] = '\0';
    if (strlen(ret->address) != len || address_split(ret->address, host, &port) != 0) {
        return fli_refuse(errmsg, errmsg_size, FL_EINVAL,
                          "member %llu: '%.100s' is not HOST:PORT (write [ADDRESS]:PORT for IPv6)",
                          (unsigned long long)ret->id, ret->address);
    }
    return 0;
}

/* Adds m, whose id and address no other may have. */
static int add(struct members *all, const struct member *m, char *errmsg, size_t errmsg_size)
{
    for (unsigned i = 0; i < all->n; i++) {
        if (all->list[i].id == m->id) {
            return fli_refuse(errmsg, errmsg_size, FL_EINVAL, "id %llu appears twice",
                              (unsigned long long)m->id);
        }
        if (strcmp(all->list[i].address, m->address) == 0) {
            return fli_refuse(
                errmsg, errmsg_size, FL_EINVAL, "members %llu and %llu have the same address %s",
                (unsigned long long)all->list[i].id, (unsigned long long)m->id, m->address);
        }
    }
    if (all->n == MEMBERS_MAX) {
        return fli_refuse(errmsg, errmsg_size, FL_EINVAL, "more than %u members", MEMBERS_MAX);
    }
    bool added = members_put(all, m->id, m->address);
    FLI_ASSERT(added);
    return 0;
}

int members_parse(const char *text, struct members *ret, char *errmsg, size_t errmsg_size)
{
    struct members all;
    memset(&all, 0, sizeof all);
    const char *p = text;
    for (;;) {
        const char *end = strchr(p, ',');
        struct member m;
        memset(&m, 0, sizeof m);
        int rv = parse_one(trim(p, end == NULL ? p + strlen(p) : end), &m, errmsg, errmsg_size);
        if (rv == 0) {
            rv = add(&all, &m, errmsg, errmsg_size);
        }
        if (rv != 0) {
            return rv;
        }
        if (end == NULL) {
            break;
        }
        p = end + 1;
    }
    FLI_ASSERT(all.n > 0 && all.n <= MEMBERS_MAX);
    *ret = all;
    return 0;
}

const struct member *members_find(const struct members *m, uint64_t id)
{
    for (unsigned i = 0; i < m->n; i++) {
        if (m->list[i].id == id) {
            return &m->list[i];
        }
    }
    return NULL;
}

bool members_put(struct members *m, uint64_t id, const char *address)
{
    unsigned at = 0;
    FLI_ASSERT(id != 0 && strlen(address) < MEMBER_ADDRESS_MAX);
    while (at < m->n && m->list[at].id < id) {
        at++;
    }
    if (at == m->n || m->list[at].id != id) {
        if (m->n == KNOWN_MEMBERS_MAX) {
            return false;
        }
        memmove(&m->list[at + 1], &m->list[at], (m->n - at) * sizeof m->list[0]);
        memset(&m->list[at], 0, sizeof m->list[at]);
        m->list[at].id = id;
        m->n++;
    }
    (void)snprintf(m->list[at].address, sizeof m->list[at].address, "%s", address);
    return true;
}

bool members_equal(const struct members *a, const struct members *b)
{
    bool equal = a->n == b->n;
    for (unsigned i = 0; equal && i < a->n; i++) {
        equal =
            a->list[i].id == b->list[i].id && strcmp(a->list[i].address, b->list[i].address) == 0;
    }
    return equal;
}

bool members_overlap(const struct members *a, const struct members *b)
{
    for (unsigned i = 0; i < a->n; i++) {
        const struct member *other = members_find(b, a->list[i].id);
        if (other != NULL && strcmp(other->address, a->list[i].address) == 0) {
            return true;
        }
    }
    return false;
}

size_t members_format(const struct members *m, char *out, size_t size)
{
    size_t len = 0;
    if (size > 0) {
        out[0] = '\0';
    }
    for (unsigned i = 0; i < m->n; i++) {
        size_t room = len < size ? size - len : 0;
        int n = snprintf(room == 0 ? NULL : out + len, room, "%s%llu=%s", i == 0 ? "" : ",",
                         (unsigned long long)m->list[i].id, m->list[i].address);
        FLI_ASSERT(n > 0);
        len += (size_t)n;
    }
    return len;
}
