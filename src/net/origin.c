/* origin.c: the addresses of clients, and what each address uses: connections, and bytes as
 * memory.c counts them. Each address may use a share of both, so that one machine cannot use up
 * what all clients share.
 *
 * An IPv6 address stands for its network of 64 bits, since every machine can choose from 2^64
 * addresses. An address is remembered as long as it has a connection. */
#include <stdlib.h>
#include <string.h>

#include "net/conn.h"

#include "base/clock.h"

#define NETWORK6 8u        /* bytes of an address of version 6 that count */
#define LOG_EVERY_MS 5000u /* a client that connects in a loop must not fill the log */

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

/* An IPv4 address that is mapped into IPv6 counts as IPv4. */
void net_origin_note(struct net_conn *c)
{
    static const uint8_t mapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
    static const uint8_t loopback6[16] = {[15] = 1};
    struct sockaddr_storage name;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
    int len = sizeof name;
    if (uv_tcp_getpeername(&c->tcp, (struct sockaddr *)&name, &len) != 0) {
        return;
    }
    memcpy(&v4, &name, sizeof v4);
    memcpy(&v6, &name, sizeof v6);
    const uint8_t *bytes6 = v6.sin6_addr.s6_addr;
    bool is_mapped = name.ss_family == AF_INET6 && memcmp(bytes6, mapped, sizeof mapped) == 0;
    if (name.ss_family == AF_INET6 && !is_mapped) {
        c->local = memcmp(bytes6, loopback6, sizeof loopback6) == 0;
        memcpy(c->address, bytes6, 16);
        memcpy(c->address + 16, &v6.sin6_port, 2);
        c->address_len = 18;
    } else if (name.ss_family == AF_INET || is_mapped) {
        const void *bytes4 = is_mapped ? (const void *)(bytes6 + 12) : (const void *)&v4.sin_addr;
        memcpy(c->address, bytes4, 4);
        memcpy(c->address + 4, &v4.sin_port, 2); /* at the same offset in both address families */
        c->local = c->address[0] == 127;
        c->address_len = 6;
    }
}

/* The port follows the address, and is not a part of the key. */
static size_t key_len_of(const struct net_conn *c)
{
    return c->address_len == 18 ? NETWORK6 : c->address_len < 2 ? 0 : c->address_len - 2u;
}

void net_waits_init(struct net_waits *w, struct net_server *s)
{
    fli_queue_init(&w->unserved, &s->unserved);
    fli_queue_init(&w->yielded, &s->yielded);
    fli_queue_init(&w->deferred, &s->deferred);
    fli_queue_init(&w->deferred_begun, &s->deferred_begun);
}

struct net_waits *net_waits_of(const struct net_conn *c)
{
    return c->origin == NULL ? &c->server->refused : &c->origin->waiting;
}

void net_waits_leave(struct net_conn *c)
{
    struct net_waits *w = net_waits_of(c);
    fli_list_remove(&c->yielded);
    fli_queue_left(&w->unserved);
    fli_queue_left(&w->yielded);
    if (c->secure != NULL) {
        fli_list_remove(&c->secure->deferred);
        fli_queue_left(&w->deferred);
        fli_queue_left(&w->deferred_begun);
    }
}

uint64_t net_conn_origin(const struct net_conn *c)
{
    return fli_map_hash(&c->server->origins, c->address, key_len_of(c));
}

static struct net_origin *find_or_make(struct net_server *s, const struct net_conn *c)
{
    size_t len = key_len_of(c);
    uint64_t hash = fli_map_hash(&s->origins, c->address, len);
    struct fli_map_node *node = fli_map_find_hashed(&s->origins, hash, c->address, len);
    if (node != NULL) {
        return FLI_CONTAINER_OF(node, struct net_origin, node);
    }
    struct net_origin *o = fli_xcalloc(1, sizeof *o);
    memcpy(o->key, c->address, len);
    o->key_len = (uint8_t)len;
    net_memory_heap_init(&o->heavy);
    net_waits_init(&o->waiting, s);
    if (fli_map_insert(&s->origins, &o->node, hash) != 0) {
        fli_fatal("out of memory for an address of clients");
    }
    return o;
}

static void log_full(struct net_server *s, const struct net_conn *c, const struct net_origin *o)
{
    uint64_t now = fli_clock_ms();
    if (s->origin_logged_ms != 0 && now < s->origin_logged_ms + LOG_EVERY_MS) {
        return;
    }
    s->origin_logged_ms = now;
    struct net_conn_info info;
    net_conn_info(c, &info);
    net_server_log(s, 2,
                   "%s refused: its address has %u connections and %zu bytes; one may have %u and "
                   "%zu%s",
                   info.peer, o->connections, o->bytes, s->limits.address_connections_max,
                   s->limits.address_memory_max,
                   s->limits.fixed ? "" : " (address-connections, address-memory)");
}

bool net_origin_join(struct net_conn *c)
{
    struct net_server *s = c->server;
    const struct net_limits *l = &s->limits;
    struct net_origin *o = find_or_make(s, c);
    if ((l->address_connections_max > 0 && o->connections >= l->address_connections_max) ||
        (l->address_memory_max > 0 && o->bytes >= l->address_memory_max)) {
        s->memory.origin_refused++;
        log_full(s, c, o);
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
    if (o->connections == 0) {
        FLI_ASSERT(o->bytes == 0 && o->heavy.len == 0);
        fli_map_remove(&c->server->origins, &o->node);
        fli_heap_fini(&o->heavy);
        free(o);
    }
}
