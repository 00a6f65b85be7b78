/* members.h: the cluster as configured, "1=host:port,2=host:port,...": parsing, checking, canonical
 * form. Pure. */
#ifndef PEER_MEMBERS_H
#define PEER_MEMBERS_H

#include "base/base.h"

#define MEMBERS_MAX 9u /* of a cluster */
/* Nodes that one node may list: members, and nodes that are about to be members. */
#define KNOWN_MEMBERS_MAX 16u
#define MEMBER_ADDRESS_MAX 264u /* host of 255, brackets, colon, port, NUL */
#define MEMBERS_TEXT_MAX (KNOWN_MEMBERS_MAX * (MEMBER_ADDRESS_MAX + 22u))

struct member {
    uint64_t id;
    char address[MEMBER_ADDRESS_MAX];
};

struct members {
    unsigned n;
    struct member list[KNOWN_MEMBERS_MAX]; /* sorted by id */
};

/* 0; or FL_EINVAL with a sentence in errmsg that names the wrong part and the correct form. */
int members_parse(const char *text, struct members *ret, char *errmsg,
                  size_t errmsg_size) FLI_MUST_USE;
const struct member *members_find(const struct members *m, uint64_t id); /* NULL when absent */
/* Adds a member, or changes its address. False: there is no room. */
bool members_put(struct members *m, uint64_t id, const char *address);
bool members_equal(const struct members *a, const struct members *b);
/* Whether any id but this one (0: any at all) has the same address in both. */
bool members_overlap(const struct members *a, const struct members *b, uint64_t except);

/* The canonical text, always NUL-terminated; returns its length, as snprintf does. MEMBERS_TEXT_MAX
 * bytes are always enough. */
size_t members_format(const struct members *m, char *out, size_t size);

/* Splits HOST:PORT, [V6]:PORT; port 1..65535. 0 or FL_EINVAL. */
int address_split(const char *address, char host[256], uint16_t *ret_port) FLI_MUST_USE;

#endif
