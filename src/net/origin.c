/* origin.c: the addresses that clients come from, and what each of them has: connections, and bytes
 * as memory.c counts them. One address may have a share of each, so that whoever has one machine
 * cannot take what all clients share.
 *
 * An address of version 6 stands for its network of 64 bits, since every machine has 2^64 of them
 * to choose from. An address is remembered as long as it has a connection. */
#include <stdlib.h>
#include <string.h>

#include "net/conn.h"

#define TELL_EVERY_MS 5000u /* whoever connects in a loop does not fill the log */

static bool has_key(const struct fli_map_node *node, const void *key, size_t key_len)
{
    const struct net_origin *o =
        FLI_CONTAINER_OF((struct fli_map_node *)(uintptr_t)node, struct net_origin, node);
    return o->key_len == key_len && memcmp(o->key, key, key_len) == 0;
}

void net_origin_init(struct net_server *s)
{
    uint64_t seed[2];
    fli_random(seed, sizeof seed);
    fli_map_init(&s->origins, has_key, seed);
}

void net_origin_fini(struct net_server *s)
{
    FLI_ASSERT(s->origins.len == 0);
    fli_map_fini(&s->origins);
}

/* The port is behind the address, and no part of it. */
static size_t key_of(const struct net_conn *c)
{
    return c->address_len == 18 ? NET_ORIGIN_NETWORK6
           : c->address_len < 2 ? 0
                                : c->address_len - 2u;
}

static struct net_origin *find(struct net_server *s, const struct net_conn *c)
{
    size_t len = key_of(c);
    uint64_t hash = fli_map_hash(&s->origins, c->address, len);
    struct fli_map_node *node = fli_map_find_hashed(&s->origins, hash, c->address, len);
    if (node != NULL) {
        return FLI_CONTAINER_OF(node, struct net_origin, node);
    }
    struct net_origin *o = calloc(1, sizeof *o);
    if (o == NULL) {
        return NULL;
    }
    memcpy(o->key, c->address, len);
    o->key_len = (uint8_t)len;
    net_memory_heap_init(&o->heavy);
    if (fli_map_insert(&s->origins, &o->node, hash) != 0) {
        free(o);
        return NULL;
    }
    return o;
}

static void drop_if_empty(struct net_server *s, struct net_origin *o)
{
    if (o->connections == 0) {
        FLI_ASSERT(o->bytes == 0 && o->heavy.len == 0);
        fli_map_remove(&s->origins, &o->node);
        fli_heap_fini(&o->heavy);
        free(o);
    }
}

static void log_full(struct net_server *s, const struct net_conn *c, const struct net_origin *o)
{
    uint64_t now = uv_now(s->loop);
    if (s->origin_told_ms != 0 && now < s->origin_told_ms + TELL_EVERY_MS) {
        return;
    }
    s->origin_told_ms = now;
    struct net_conn_info info;
    net_conn_info(c, &info);
    net_server_log(s, 2,
                   "%s refused: its address has %u connections and %zu bytes; one may have %u and "
                   "%zu (address-connections, address-memory)",
                   info.peer, o->connections, o->bytes, s->limits.address_connections_max,
                   s->limits.address_memory_max);
}

bool net_origin_join(struct net_conn *c)
{
    struct net_server *s = c->server;
    const struct net_limits *l = &s->limits;
    struct net_origin *o = find(s, c);
    if (o == NULL) {
        return false;
    }
    if ((l->address_connections_max > 0 && o->connections >= l->address_connections_max) ||
        (l->address_memory_max > 0 && o->bytes >= l->address_memory_max)) {
        s->memory.origin_refused++;
        log_full(s, c, o);
        drop_if_empty(s, o);
        return false;
    }
    c->origin = o;
    o->connections++;
    if (o->connections > s->memory.origin_connections_max) {
        s->memory.origin_connections_max = o->connections;
    }
    return true;
}

void net_origin_leave(struct net_conn *c)
{
    struct net_origin *o = c->origin;
    if (o == NULL) {
        return;
    }
    FLI_ASSERT(o->connections > 0);
    c->origin = NULL;
    o->connections--;
    drop_if_empty(c->server, o);
}
