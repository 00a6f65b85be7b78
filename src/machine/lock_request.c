/* lock_request.c: a lock request, what one session wants of one lock. See state.h. */
#include "machine/state.h"

#include <stdlib.h>
#include <string.h>

_Static_assert(sizeof(void *) != 8 || (sizeof(struct timer) == 16 && sizeof(struct request) == 40 &&
                                       offsetof(struct session_implicit, bytes) == 64 &&
                                       offsetof(struct lock, name) == 24),
               "a held lock costs what state.h says");
_Static_assert(MACHINE_CLOCK_MAX_MS < UINT64_C(1) << 48, "a clock fits since_ms");
_Static_assert(MACHINE_NAMES_MAX <= 16 && FL_TOKEN_MAX < UINT64_C(1) << 60,
               "a token and a place in a multi-lock fit held_key");
_Static_assert(FL_VALUE_MAX < 1u << 11, "a length of a value fits value_len");
_Static_assert(FL_OWNER_MAX <= UINT8_MAX && FL_NAME_MAX <= UINT8_MAX && FL_LABEL_MAX <= UINT8_MAX,
               "lengths fit a byte");
_Static_assert(FL_TTL_MAX_MS < UINT32_C(1) << 30 && FL_LOCKDELAY_MAX_MS <= UINT32_MAX,
               "durations fit 32 bits");

static void request_init(struct request *request, struct lock *lock, struct fli_slice value)
{
    FLI_ASSERT(value.len <= FL_VALUE_MAX);
    *request = (struct request){.lock = lock};
    request->value_len = value.len & 0x7ff;
}

static void linked_request_init(struct linked_request *linked, struct lock *lock,
                                struct session *session, struct fli_slice value)
{
    request_init(&linked->request, lock, value);
    linked->request.linked = 1;
    linked->session = session;
    fli_list_init(&linked->at_session);
}

static uint8_t *copy(uint8_t *to, struct fli_slice from)
{
    if (from.len > 0) {
        memcpy(to, from.data, from.len);
    }
    return to + from.len;
}

size_t machine_origin_pack(const struct origin *origin, uint8_t out[ORIGIN_SIZE_MAX])
{
    if (origin->uid == 0 && origin->address_len == 0) {
        return 0;
    }
    fli_put_u32(out, origin->uid);
    out[4] = origin->address_len;
    memcpy(out + 5, origin->address, origin->address_len);
    return 5u + origin->address_len;
}

bool machine_origin_unpack(struct fli_slice packed, struct origin *ret)
{
    *ret = (struct origin){.uid = 0};
    if (packed.len == 0) {
        return true;
    }
    size_t n = packed.len < 5 ? 1 : packed.data[4];
    if ((n != 0 && n != 6 && n != MACHINE_ADDRESS_MAX) || packed.len != 5 + n) {
        return false;
    }
    ret->uid = fli_get_u32(packed.data);
    ret->address_len = (uint8_t)n;
    memcpy(ret->address, packed.data + 5, n);
    return ret->uid != 0 || n > 0;
}

/* The length of a struct origin that was packed here. */
static size_t origin_len(const uint8_t *packed)
{
    return 5u + packed[4];
}

struct request *machine_request_create_implicit(struct machine *m, struct lock *lock,
                                                struct fli_slice owner, uint64_t ttl_ms,
                                                struct fli_slice value, const struct origin *origin)
{
    uint8_t packed[ORIGIN_SIZE_MAX];
    struct fli_slice packed_origin = {packed, machine_origin_pack(origin, packed)};
    FLI_ASSERT(owner.len >= 1 && owner.len <= FL_OWNER_MAX);
    FLI_ASSERT(ttl_ms >= FL_TTL_MIN_MS && ttl_ms <= FL_TTL_MAX_MS);
    struct session_implicit *s =
        fli_slab_alloc(&m->slab, offsetof(struct session_implicit, bytes) + owner.len + value.len +
                                     packed_origin.len);
    machine_timer_init(&s->base.lease, TIMER_LEASE_IMPLICIT);
    timer_set_ttl(&s->base.lease, ttl_ms);
    s->base.later_ms = s->base.renewals = 0;
    s->base.lease.owner_len = (uint8_t)owner.len;
    request_init(&s->request, lock, value);
    s->request.has_origin = packed_origin.len > 0;
    copy(copy(copy(s->bytes, owner), value), packed_origin);
    m->n_implicit++;
    return &s->request;
}

struct request *machine_request_create_explicit(struct machine *m, struct lock *lock,
                                                struct session_explicit *s, struct fli_slice value)
{
    struct request_explicit *e =
        fli_slab_alloc(&m->slab, offsetof(struct request_explicit, value) + value.len);
    linked_request_init(&e->linked, lock, &s->base, value);
    copy(e->value, value);
    return &e->linked.request;
}

/* The bytes that hold owner and value of a multi-lock. */
static uint8_t *multi_bytes(struct multi_lock *g)
{
    return (uint8_t *)&g->parts[g->n];
}

struct request *machine_multi_create(struct machine *m, struct lock *const *locks, unsigned n,
                                     struct session_explicit *s, struct fli_slice owner,
                                     uint64_t ttl_ms, struct fli_slice value,
                                     const struct origin *origin)
{
    uint8_t packed[ORIGIN_SIZE_MAX];
    struct fli_slice packed_origin = {packed, s != NULL ? 0 : machine_origin_pack(origin, packed)};
    FLI_ASSERT(n >= 2 && n <= MACHINE_NAMES_MAX);
    size_t owner_len = s != NULL ? 0 : owner.len;
    struct multi_lock *g =
        fli_xcalloc(1, offsetof(struct multi_lock, parts) + n * sizeof g->parts[0] + owner_len +
                           value.len + packed_origin.len);
    machine_timer_init(&g->own.lease, TIMER_LEASE_IMPLICIT);
    machine_work_init(&g->work, WORK_MULTI);
    g->own.lease.is_multi = 1;
    g->n = (uint8_t)n;
    if (s == NULL) {
        FLI_ASSERT(owner.len >= 1 && owner.len <= FL_OWNER_MAX);
        FLI_ASSERT(ttl_ms >= FL_TTL_MIN_MS && ttl_ms <= FL_TTL_MAX_MS);
        timer_set_ttl(&g->own.lease, ttl_ms);
        g->own.lease.owner_len = (uint8_t)owner.len;
        copy(multi_bytes(g), owner);
        m->n_implicit++;
    }
    for (unsigned i = 0; i < n; i++) {
        struct multi_part *part = &g->parts[i];
        linked_request_init(&part->linked, locks[i], s != NULL ? &s->base : &g->own, value);
        part->linked.request.is_multi = 1;
        part->linked.request.has_origin = packed_origin.len > 0;
        part->multi = g;
    }
    copy(copy(multi_bytes(g) + owner_len, value), packed_origin);
    return multi_request(g, 0);
}

static void multi_free(struct machine *m, struct multi_lock *g)
{
    for (unsigned i = 0; i < g->n; i++) {
        const struct request *request = multi_request(g, i);
        FLI_ASSERT(!request->waiting && lock_holder(request->lock) != request);
        FLI_ASSERT(!fli_list_linked(&g->parts[i].linked.at_session));
    }
    if (!session_is_explicit(request_session(multi_request(g, 0)))) {
        machine_timer_clear(m, &g->own.lease);
        FLI_ASSERT(m->n_implicit > 0);
        m->n_implicit--;
    }
    machine_work_forget(m, &g->work);
    free(g);
}

void machine_request_free(struct machine *m, struct request *request)
{
    if (request->is_multi) {
        multi_free(m, request_multi(request));
        return;
    }
    FLI_ASSERT(!request->waiting && lock_holder(request->lock) != request);
    if (session_is_explicit(request_session(request))) {
        FLI_ASSERT(!fli_list_linked(&linked_request_of(request)->at_session));
        fli_slab_free(&m->slab, FLI_CONTAINER_OF(request, struct request_explicit, linked.request),
                      offsetof(struct request_explicit, value) + request->value_len);
        return;
    }
    struct session_implicit *s = session_implicit_of(request_session(request));
    machine_timer_clear(m, &s->base.lease);
    FLI_ASSERT(m->n_implicit > 0);
    m->n_implicit--;
    size_t len = s->base.lease.owner_len + (size_t)request->value_len;
    len += request->has_origin ? origin_len(s->bytes + len) : 0;
    fli_slab_free(&m->slab, s, offsetof(struct session_implicit, bytes) + len);
}

struct fli_slice machine_session_address(struct session *s)
{
    if (session_is_explicit(s)) {
        const struct origin *origin = &session_explicit_of(s)->origin;
        return (struct fli_slice){origin->address, origin->address_len};
    }
    const struct request *request = session_request(s);
    if (!request->has_origin) {
        return (struct fli_slice){NULL, 0};
    }
    struct fli_slice value = machine_request_value(request);
    const uint8_t *packed = value.data + value.len;
    return (struct fli_slice){packed + 5, packed[4]};
}

struct origin machine_session_origin(struct session *s)
{
    struct origin origin = {.uid = 0};
    if (session_is_explicit(s)) {
        return session_explicit_of(s)->origin;
    }
    const struct request *request = session_request(s);
    if (request->has_origin) {
        struct fli_slice value = machine_request_value(request);
        const uint8_t *packed = value.data + value.len;
        bool ok = machine_origin_unpack((struct fli_slice){packed, origin_len(packed)}, &origin);
        FLI_ASSERT(ok);
    }
    return origin;
}

/* Reads only the number of the user, which a packed struct origin begins with. */
uint32_t machine_session_uid(struct session *s)
{
    if (session_is_explicit(s)) {
        return session_explicit_of(s)->origin.uid;
    }
    const struct request *request = session_request(s);
    struct fli_slice value = machine_request_value(request);
    return request->has_origin ? fli_get_u32(value.data + value.len) : 0;
}

uint32_t machine_request_count(const struct request *request)
{
    return request->counted ? fli_get_u32(machine_request_value(request).data) : 0;
}

void machine_request_set_count(struct request *request, uint32_t n)
{
    FLI_ASSERT(request->counted && n >= 1 && n <= MACHINE_HOLD_COUNT_MAX);
    struct session_implicit *s = session_implicit_of(request_session(request));
    fli_put_u32(s->bytes + s->base.lease.owner_len, n);
}

struct fli_slice machine_request_value(const struct request *request)
{
    size_t len = request->value_len;
    if (request->is_multi) {
        struct multi_lock *g =
            CONST_CONTAINER_OF(request, struct multi_part, linked.request)->multi;
        size_t skip = session_is_explicit(request_session(request)) ? 0 : g->own.lease.owner_len;
        return (struct fli_slice){multi_bytes(g) + skip, len};
    }
    if (session_is_explicit(request_session(request))) {
        return (struct fli_slice){
            CONST_CONTAINER_OF(request, struct request_explicit, linked.request)->value, len};
    }
    const struct session_implicit *s =
        CONST_CONTAINER_OF(request, struct session_implicit, request);
    return (struct fli_slice){s->bytes + s->base.lease.owner_len, len};
}
