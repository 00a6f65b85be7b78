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

int address_split(const char *address, char host[256], uint16_t *ret_port)
{
    struct fli_address a;
    const char *marks = address[0] == '[' ? "._-:%" : "._-";
    if (fli_address_split((struct fli_slice){(const uint8_t *)address, strlen(address)}, &a) !=
            NULL ||
        a.port == 0 || a.host.len > 255) {
        return FL_EINVAL;
    }
    for (size_t i = 0; i < a.host.len; i++) {
        if (!isalnum(a.host.data[i]) && strchr(marks, a.host.data[i]) == NULL) {
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

/* Adds one ID=HOST:PORT, whose id and address no other may have. */
static int add(struct members *all, struct fli_slice part, char *errmsg, size_t errmsg_size)
{
    int shown = part.len > 100 ? 100 : (int)part.len;
    const char *text = (const char *)part.data;
    const char *equals = memchr(text, '=', part.len);
    size_t id_len = equals == NULL ? 0 : (size_t)(equals - text);
    struct member m = {.id = 0};
    char host[256];
    uint16_t port;
    if (equals == NULL) {
        return fli_refuse(errmsg, errmsg_size, FL_EINVAL,
                          "member '%.*s' is not of the form ID=HOST:PORT", shown, text);
    }
    if (!fli_parse_u64(text, id_len, MEMBER_ID_MAX, &m.id) || m.id == 0) {
        return fli_refuse(errmsg, errmsg_size, FL_EINVAL,
                          "member '%.*s': the id must be a number from 1 up", shown, text);
    }
    unsigned long long id = m.id;
    if (part.len - id_len - 1 >= sizeof m.address) {
        return fli_refuse(errmsg, errmsg_size, FL_EINVAL,
                          "member %llu: the address is longer than %zu bytes", id,
                          sizeof m.address - 1);
    }
    memcpy(m.address, equals + 1, part.len - id_len - 1);
    if (address_split(m.address, host, &port) != 0) {
        return fli_refuse(errmsg, errmsg_size, FL_EINVAL,
                          "member %llu: '%.100s' is not HOST:PORT (write [ADDRESS]:PORT for IPv6)",
                          id, m.address);
    }
    for (unsigned i = 0; i < all->n; i++) {
        if (all->list[i].id == m.id) {
            return fli_refuse(errmsg, errmsg_size, FL_EINVAL, "id %llu appears twice", id);
        }
        if (strcmp(all->list[i].address, m.address) == 0) {
            return fli_refuse(errmsg, errmsg_size, FL_EINVAL,
                              "members %llu and %llu have the same address %s",
                              (unsigned long long)all->list[i].id, id, m.address);
        }
    }
    if (all->n == MEMBERS_MAX) {
        return fli_refuse(errmsg, errmsg_size, FL_EINVAL, "more than %u members", MEMBERS_MAX);
    }
    return members_put(all, m.id, m.address) ? 0 : FL_EINVAL;
}

int members_parse(const char *text, struct members *ret, char *errmsg, size_t errmsg_size)
{
    struct members all = {.n = 0};
    const char *end;
    int rv;
    for (const char *p = text;; p = end + 1) {
        end = strchrnul(p, ',');
        rv = add(&all, trim(p, end), errmsg, errmsg_size);
        if (rv != 0 || *end == '\0') {
            break;
        }
    }
    if (rv == 0) {
        *ret = all;
    }
    return rv;
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

bool members_overlap(const struct members *a, const struct members *b, uint64_t except)
{
    for (unsigned i = 0; i < a->n; i++) {
        const struct member *other = members_find(b, a->list[i].id);
        if (other != NULL && other->id != except &&
            strcmp(other->address, a->list[i].address) == 0) {
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
