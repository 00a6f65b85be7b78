/* configuration.c: see configuration.h. */
#include "consensus/configuration.h"

#include <stdlib.h>
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

struct configuration_server *configuration_find(const struct configuration *c, uint64_t id)
{
    unsigned i = position_of(c, id);
    bool there = i < c->n && c->servers[i].id == id;
    return there ? (struct configuration_server *)(uintptr_t)&c->servers[i] : NULL;
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
    struct configuration_server *s = &c->servers[position_of(c, id)];
    memmove(s + 1, s, (size_t)(&c->servers[c->n] - s) * sizeof *s);
    memset(s, 0, sizeof *s);
    s->id = id;
    s->incarnation = incarnation;
    s->role = role;
    memcpy(s->address, address, len);
    c->n++;
    return 0;
}

int configuration_remove(struct configuration *c, uint64_t id)
{
    struct configuration_server *s = configuration_find(c, id);
    if (s == NULL) {
        return FL_ENOTFOUND;
    }
    c->n--;
    memmove(s, s + 1, (size_t)(&c->servers[c->n] - s) * sizeof *s);
    return 0;
}

int configuration_set_address(struct configuration *c, uint64_t id, const char *address)
{
    struct configuration_server *s = configuration_find(c, id);
    size_t len = strlen(address);
    if (s == NULL) {
        return FL_ENOTFOUND;
    }
    if (strcmp(s->address, address) == 0) {
        return 0;
    }
    if (len == 0 || len >= MEMBER_ADDRESS_MAX || has_address(c, address)) {
        return FL_EINVAL;
    }
    memset(s->address, 0, sizeof s->address);
    memcpy(s->address, address, len);
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

/* Ids must rise, so that equal configurations have equal bytes. */
static bool decode_server(struct fli_reader *r, struct configuration *c)
{
    char address[MEMBER_ADDRESS_MAX] = {0};
    uint64_t id = fli_read_u64(r);
    uint64_t incarnation = fli_read_u64(r);
    uint8_t role = fli_read_u8(r);
    struct fli_slice a = fli_read_bytes(r, fli_read_u16(r));
    if (a.len == 0 || a.len >= MEMBER_ADDRESS_MAX || memchr(a.data, 0, a.len) != NULL ||
        (role != CONFIGURATION_VOTER && role != CONFIGURATION_LEARNER) ||
        (c->n > 0 && c->servers[c->n - 1].id >= id)) {
        return false;
    }
    memcpy(address, a.data, a.len);
    return configuration_add(c, id, incarnation, address, (enum configuration_role)role) == 0;
}

int configuration_decode(const void *bytes, size_t len, struct configuration *ret)
{
    struct configuration c = {0};
    struct fli_reader r;
    fli_reader_init(&r, bytes, len);
    uint8_t format = fli_read_u8(&r);
    uint8_t n = fli_read_u8(&r);
    c.cluster_id = fli_read_u64(&r);
    if (len > 0 && format != CONFIGURATION_FORMAT) {
        return FL_EVERSION;
    }
    while (!r.bad && c.n < n && decode_server(&r, &c)) {
    }
    if (r.bad || c.n != n || fli_reader_left(&r) != 0) {
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

/* ---- those of a log ---- */

void changes_fini(struct changes *c)
{
    free(c->list);
    *c = (struct changes){0};
}

const struct change *changes_last(const struct changes *c)
{
    FLI_ASSERT(c->n > 0);
    return &c->list[c->n - 1];
}

void changes_add(struct changes *c, uint64_t index, const struct configuration *conf)
{
    FLI_ASSERT(c->n == 0 || changes_last(c)->index < index);
    if (c->n == c->cap) {
        c->cap = c->cap == 0 ? 4 : 2 * c->cap;
        c->list = realloc(c->list, c->cap * sizeof *c->list);
        if (c->list == NULL) {
            fli_fatal("out of memory for the configuration");
        }
    }
    c->list[c->n++] = (struct change){index, *conf};
}

void changes_truncate(struct changes *c, uint64_t index)
{
    while (c->n > 0 && changes_last(c)->index >= index) {
        c->n--;
    }
}

const struct change *changes_at(const struct changes *c, uint64_t index)
{
    unsigned i = c->n;
    while (i > 0 && c->list[i - 1].index > index) {
        i--;
    }
    return i == 0 ? NULL : &c->list[i - 1];
}

void changes_compact(struct changes *c, uint64_t index)
{
    const struct change *first = changes_at(c, index);
    FLI_ASSERT(first != NULL);
    unsigned gone = (unsigned)(first - c->list);
    c->n -= gone;
    memmove(c->list, c->list + gone, c->n * sizeof *c->list);
}
