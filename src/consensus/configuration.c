/* configuration.c: see configuration.h. */
#include "consensus/configuration.h"

#include <string.h>

#include "base/bytes.h"

#define HEAD 10u        /* bytes in front of the servers */
#define SERVER_HEAD 19u /* bytes of a server in front of its address */

static unsigned position_of(const struct configuration *c, uint64_t id)
{
    unsigned i = 0;
    while (i < c->n && c->servers[i].id < id) {
        i++;
    }
    return i;
}

static unsigned find(const struct configuration *c, uint64_t id)
{
    unsigned i = position_of(c, id);
    return i < c->n && c->servers[i].id == id ? i : c->n;
}

const struct configuration_server *configuration_find(const struct configuration *c, uint64_t id)
{
    unsigned i = find(c, id);
    return i == c->n ? NULL : &c->servers[i];
}

const struct configuration_server *configuration_server(const struct configuration *c,
                                                        uint64_t incarnation)
{
    for (unsigned i = 0; i < c->n && incarnation != 0; i++) {
        if (c->servers[i].incarnation == incarnation) {
            return &c->servers[i];
        }
    }
    return NULL;
}

static bool has_address(const struct configuration *c, const char *address)
{
    for (unsigned i = 0; i < c->n; i++) {
        if (strcmp(c->servers[i].address, address) == 0) {
            return true;
        }
    }
    return false;
}

int configuration_add(struct configuration *c, uint64_t id, uint64_t incarnation,
                      const char *address, enum configuration_role role)
{
    FLI_ASSERT(c->n <= MEMBERS_MAX);
    size_t len = strlen(address);
    if (id == 0 || incarnation == 0 || len == 0 || len >= MEMBER_ADDRESS_MAX ||
        configuration_find(c, id) != NULL || configuration_server(c, incarnation) != NULL ||
        has_address(c, address)) {
        return FL_EINVAL;
    }
    if (c->n == MEMBERS_MAX) {
        return FL_ELIMIT;
    }
    unsigned i = position_of(c, id);
    memmove(&c->servers[i + 1], &c->servers[i], (c->n - i) * sizeof c->servers[0]);
    memset(&c->servers[i], 0, sizeof c->servers[i]);
    c->servers[i].id = id;
    c->servers[i].incarnation = incarnation;
    c->servers[i].role = role;
    memcpy(c->servers[i].address, address, len);
    c->n++;
    return 0;
}

int configuration_remove(struct configuration *c, uint64_t id)
{
    unsigned i = find(c, id);
    if (i == c->n) {
        return FL_ENOTFOUND;
    }
    c->n--;
    memmove(&c->servers[i], &c->servers[i + 1], (c->n - i) * sizeof c->servers[0]);
    return 0;
}

int configuration_set_role(struct configuration *c, uint64_t id, enum configuration_role role)
{
    unsigned i = find(c, id);
    if (i == c->n) {
        return FL_ENOTFOUND;
    }
    c->servers[i].role = role;
    return 0;
}

int configuration_set_address(struct configuration *c, uint64_t id, const char *address)
{
    unsigned i = find(c, id);
    size_t len = strlen(address);
    if (i == c->n) {
        return FL_ENOTFOUND;
    }
    if (strcmp(c->servers[i].address, address) == 0) {
        return 0;
    }
    if (len == 0 || len >= MEMBER_ADDRESS_MAX || has_address(c, address)) {
        return FL_EINVAL;
    }
    memset(c->servers[i].address, 0, sizeof c->servers[i].address);
    memcpy(c->servers[i].address, address, len);
    return 0;
}

unsigned configuration_voters(const struct configuration *c)
{
    unsigned voters = 0;
    for (unsigned i = 0; i < c->n; i++) {
        voters += c->servers[i].role == CONFIGURATION_VOTER;
    }
    return voters;
}

size_t configuration_encode(const struct configuration *c, uint8_t out[CONFIGURATION_SIZE_MAX])
{
    FLI_ASSERT(c->n <= MEMBERS_MAX);
    size_t len = HEAD;
    out[0] = CONFIGURATION_FORMAT;
    out[1] = (uint8_t)c->n;
    fli_put_u64(out + 2, c->cluster_id);
    for (unsigned i = 0; i < c->n; i++) {
        const struct configuration_server *s = &c->servers[i];
        size_t address_len = strlen(s->address);
        fli_put_u64(out + len, s->id);
        fli_put_u64(out + len + 8, s->incarnation);
        out[len + 16] = (uint8_t)s->role;
        fli_put_u16(out + len + 17, (uint16_t)address_len);
        memcpy(out + len + SERVER_HEAD, s->address, address_len);
        len += SERVER_HEAD + address_len;
    }
    FLI_ASSERT(len <= CONFIGURATION_SIZE_MAX);
    return len;
}

/* Reads one server at *at. Ids must rise, so that equal configurations have equal bytes. */
static int decode_server(const uint8_t *bytes, size_t len, size_t *at, struct configuration *c)
{
    char address[MEMBER_ADDRESS_MAX];
    if (len - *at < SERVER_HEAD) {
        return FL_ECORRUPT;
    }
    const uint8_t *head = bytes + *at;
    uint64_t id = fli_get_u64(head);
    uint64_t incarnation = fli_get_u64(head + 8);
    uint8_t role = head[16];
    size_t address_len = fli_get_u16(head + 17);
    *at += SERVER_HEAD;
    if (address_len >= MEMBER_ADDRESS_MAX || len - *at < address_len ||
        memchr(bytes + *at, 0, address_len) != NULL ||
        (role != CONFIGURATION_VOTER && role != CONFIGURATION_LEARNER) ||
        (c->n > 0 && c->servers[c->n - 1].id >= id)) {
        return FL_ECORRUPT;
    }
    memcpy(address, bytes + *at, address_len);
    address[address_len] = '\0';
    *at += address_len;
    int rv = configuration_add(c, id, incarnation, address, (enum configuration_role)role);
    return rv == 0 ? 0 : FL_ECORRUPT;
}

int configuration_decode(const void *bytes, size_t len, struct configuration *ret)
{
    const uint8_t *b = bytes;
    struct configuration c = {0};
    size_t at = HEAD;
    if (len > 0 && b[0] != CONFIGURATION_FORMAT) {
        return FL_EVERSION;
    }
    if (len < HEAD || b[1] > MEMBERS_MAX) {
        return FL_ECORRUPT;
    }
    c.cluster_id = fli_get_u64(b + 2);
    for (unsigned i = 0; i < b[1]; i++) {
        int rv = decode_server(b, len, &at, &c);
        if (rv != 0) {
            return rv;
        }
    }
    if (at != len) {
        return FL_ECORRUPT;
    }
    *ret = c;
    return 0;
}

void configuration_to_raft(const struct configuration *c, struct raft_configuration *ret)
{
    raft_configuration_init(ret);
    for (unsigned i = 0; i < c->n; i++) {
        const struct configuration_server *s = &c->servers[i];
        int role = s->role == CONFIGURATION_VOTER ? RAFT_VOTER : RAFT_STANDBY;
        if (raft_configuration_add(ret, s->incarnation, s->address, role) != 0) {
            fli_fatal("the raft library does not take server %llu (%s): out of memory, or the "
                      "address stands twice",
                      (unsigned long long)s->id, s->address);
        }
    }
}

struct raft_buffer configuration_to_raft_bytes(const struct configuration *c)
{
    struct raft_configuration conf;
    struct raft_buffer bytes;
    configuration_to_raft(c, &conf);
    if (raft_configuration_encode(&conf, &bytes) != 0) {
        fli_fatal("out of memory for a configuration of %u servers", c->n);
    }
    raft_configuration_close(&conf);
    return bytes;
}
