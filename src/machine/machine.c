/* machine.c: the machine as a whole: its creation and end, a batch from begin to end, and the
 * commands without a lock request. The others are in acquire.c, lock.c, wait.c, session.c. */
#include "machine/state.h"
#include "machine/users.h"

#include <stdlib.h>
#include <string.h>

#define HELD_PART_MAX 1024u
#define OPENED_PART_MAX 1024u
#define IDLE_PART_MAX 1024u

static bool lock_eq(const struct fli_map_node *n, const void *key, size_t len)
{
    const struct lock *lock = CONST_CONTAINER_OF(n, struct lock, by_name);
    return lock->by_name.own[LOCK_NAME_LEN] == len && memcmp(lock->name, key, len) == 0;
}

static bool session_eq(const struct fli_map_node *n, const void *key, size_t len)
{
    const struct session_explicit *s = CONST_CONTAINER_OF(n, struct session_explicit, by_key);
    return s->base.lease.owner_len == len && memcmp(s->owner, key, len) == 0;
}

static bool ending_eq(const struct fli_map_node *n, const void *key, size_t len)
{
    FLI_ASSERT(len == 8);
    return CONST_CONTAINER_OF(n, struct session_explicit, by_key)->opened.key == fli_get_u64(key);
}

static bool token_eq(const struct fli_map_node *n, const void *key, size_t len)
{
    FLI_ASSERT(len == 8);
    return request_token(CONST_CONTAINER_OF(n, struct share, by_token)->request) ==
           fli_get_u64(key);
}

/* The key is built by machine_request_key(): kind, length of the name, name, owner. */
static bool is_request(const struct request *request, const void *key, size_t len)
{
    const uint8_t *p = key;
    struct fli_slice name = lock_name(request->lock);
    struct fli_slice owner = machine_session_owner(request_session(request));
    return len == 2 + name.len + owner.len &&
           p[0] == session_is_explicit(request_session(request)) && p[1] == name.len &&
           memcmp(p + 2, name.data, name.len) == 0 &&
           memcmp(p + 2 + name.len, owner.data, owner.len) == 0;
}

static bool request_eq(const struct fli_map_node *n, const void *key, size_t len)
{
    return is_request(CONST_CONTAINER_OF(n, struct wait, by_request)->request, key, len);
}

static bool share_eq(const struct fli_map_node *n, const void *key, size_t len)
{
    return is_request(CONST_CONTAINER_OF(n, struct share, by_request)->request, key, len);
}

static bool id_eq(const struct fli_map_node *n, const void *key, size_t len)
{
    FLI_ASSERT(len == 8);
    return wait_id(CONST_CONTAINER_OF(n, struct wait, by_id)) == fli_get_u64(key);
}

struct machine *machine_create(const uint64_t hash_seed[2])
{
    struct machine *m = fli_xcalloc(1, sizeof *m);
    fli_map_init(&m->locks, lock_eq, hash_seed);
    fli_map_init(&m->sessions, session_eq, hash_seed);
    fli_map_init(&m->waits_by_request, request_eq, hash_seed);
    fli_map_init(&m->waits_by_id, id_eq, hash_seed);
    fli_map_init(&m->shares, share_eq, hash_seed);
    fli_map_init(&m->shares_by_token, token_eq, hash_seed);
    fli_map_init(&m->ending, ending_eq, hash_seed);
    machine_outcomes_init(&m->outcomes, hash_seed);
    machine_order_init(&m->held, HELD_PART_MAX);
    machine_order_init(&m->idle, IDLE_PART_MAX);
    machine_order_init(&m->opened, OPENED_PART_MAX);
    fli_list_init(&m->waits);
    fli_list_init(&m->work);
    fli_slab_init(&m->slab);
    machine_timers_init(m);
    machine_users_init(m);
    m->limits = MACHINE_LIMITS_DEFAULT;
    m->version = 1;
    m->budget = (struct budget){.due = MACHINE_BATCH_DUE_STEPS,
                                .commands = MACHINE_BATCH_COMMAND_STEPS,
                                .search_min = MACHINE_SEARCH_STEPS_MIN,
                                .search_max = MACHINE_SEARCH_STEPS_MAX};
    return m;
}

static void free_grant(struct machine *m, struct request *request)
{
    struct lock *locks[MACHINE_NAMES_MAX];
    unsigned parts = request_parts(request);
    for (unsigned i = 0; i < parts; i++) {
        locks[i] = request_part(request, i)->lock;
        machine_lock_unhold(m, request_part(request, i));
    }
    machine_request_free(m, request);
    for (unsigned i = 0; i < parts; i++) {
        if (lock_holder(locks[i]) == NULL) {
            if (lock_contention(locks[i]) != NULL) {
                machine_timer_clear(m, &contention_of(locks[i])->delay);
            }
            machine_lock_free(m, locks[i]);
        }
    }
}

/* Frees locks that are neither held nor idle: only the list of work refers to them. */
static void free_work(struct machine *m)
{
    while (!fli_list_empty(&m->work)) {
        struct work *w = FLI_CONTAINER_OF(m->work.next, struct work, link);
        machine_work_forget(m, w);
        if (w->kind == WORK_LOCK) {
            struct contention *c = machine_work_contention(w);
            if (c->holder == NULL && !c->is_idle) {
                machine_lock_free(m, c->lock);
            }
        }
    }
}

/* Frees the state in such an order that no freed record is still referred to. */
static void free_records(struct machine *m)
{
    while (!fli_list_empty(&m->waits)) {
        machine_request_free(m, machine_wait_detach(m, wait_of_all(m->waits.next)));
    }
    free_work(m);
    struct order_node *n;
    while ((n = machine_order_last(&m->held)) != NULL) {
        free_grant(m, request_of_held(n));
    }
    while ((n = machine_order_last(&m->idle)) != NULL) {
        struct contention *c = contention_of_idle(n);
        machine_timer_clear(m, &c->delay);
        m->digest -= machine_digest_idle(c);
        machine_order_remove(&m->idle, n);
        machine_lock_free(m, c->lock);
    }
    while ((n = machine_order_last(&m->opened)) != NULL) {
        machine_session_free(m, session_of_opened(n));
    }
    FLI_ASSERT(m->locks.len == 0 && m->sessions.len == 0 && m->n_implicit == 0);
    machine_outcomes_fini(m);
    FLI_ASSERT(m->timers.len == 0 && m->leases.len == 0 && m->leaving.len == 0 && m->digest == 0);
}

void machine_destroy(struct machine *m)
{
    if (m == NULL) {
        return;
    }
    free_records(m);
    machine_users_fini(m);
    fli_map_fini(&m->locks);
    fli_map_fini(&m->sessions);
    fli_map_fini(&m->waits_by_request);
    fli_map_fini(&m->waits_by_id);
    fli_map_fini(&m->shares);
    fli_map_fini(&m->shares_by_token);
    fli_map_fini(&m->ending);
    machine_order_fini(&m->held);
    machine_order_fini(&m->idle);
    machine_order_fini(&m->opened);
    fli_heap_fini(&m->timers);
    fli_heap_fini(&m->leases);
    fli_heap_fini(&m->leaving);
    fli_slab_fini(&m->slab);
    free(m);
}

void machine_set_event_cb(struct machine *m, machine_event_cb cb, void *ctx)
{
    m->event_cb = cb;
    m->event_ctx = ctx;
}

void machine_emit(struct machine *m, struct machine_event *e)
{
    if (m->event_cb != NULL) {
        e->clock_ms = m->clock_ms;
        if (m->sender.user != NULL) {
            e->by = machine_uid_name(m, m->sender.user->uid);
            e->by_address = m->sender.address;
        }
        m->event_cb(m->event_ctx, e);
    }
}

void machine_emit_of(struct machine *m, struct session *s, struct machine_event *e)
{
    if (m->event_cb != NULL) {
        e->session_explicit = session_is_explicit(s);
        e->owner = machine_session_owner(s);
        e->user = machine_uid_name(m, machine_session_uid(s));
        e->address = machine_session_address(s);
        machine_emit(m, e);
    }
}

static void init(struct machine *m, const struct machine_command *c, struct machine_result *r)
{
    if (m->cluster_id != 0) {
        r->code = MACHINE_EXISTS;
        return;
    }
    m->cluster_id = c->number;
    m->limits = c->limits;
    r->code = MACHINE_DONE;
}

/* Raises the last token by a step, up to `most`, and answers with the new one. False, with the
 * answer LIMIT, when that would go too far. */
static bool burn_tokens(struct machine *m, uint64_t step, fl_token most, struct machine_result *r)
{
    FLI_ASSERT(m->last_token <= FL_TOKEN_MAX);
    if (m->last_token > most || step > most - m->last_token) {
        machine_answer_limit(m, r, MACHINE_LIMIT_TOKENS);
        return false;
    }
    m->last_token += step;
    r->code = MACHINE_DONE;
    r->token = m->last_token;
    return true;
}

static void token(struct machine *m, struct machine_result *r)
{
    if (burn_tokens(m, 1, FL_TOKEN_MAX, r)) {
        m->totals.tokens++;
    }
}

/* Finds the request that holds this name under this token; NULL when there is none. */
static struct request *find_held(struct machine *m, struct fli_slice name, fl_token token)
{
    uint64_t hash;
    struct lock *lock = machine_lock_find(m, name, &hash);
    struct request *request = lock == NULL ? NULL : machine_lock_held_under(m, lock, token);
    return request == NULL || machine_request_is_over(m, request) ? NULL : request;
}

/* NULL, with an answer in r, when no grant matches or it is another user's. Only a user who may see
 * the lock learns which of the two it is. */
static struct request *find_own(struct machine *m, const struct machine_command *c,
                                struct machine_result *r)
{
    uint64_t steps = 0;
    struct request *request = find_held(m, c->name, c->token);
    if (request != NULL && machine_sender_owns(m, request_session(request))) {
        return request;
    }
    r->code = MACHINE_NO;
    if (request != NULL && machine_sender_may(m, ACL_SEE, c->name, &steps)) {
        machine_refuse(r, 0);
    }
    return NULL;
}

static void renew(struct machine *m, const struct machine_command *c, struct machine_result *r)
{
    struct request *request = find_own(m, c, r);
    if (request == NULL) {
        return;
    }
    r->code = MACHINE_DONE;
    r->token = c->token;
    r->deadline_ms = machine_session_renew(m, request_session(request), c->ttl_ms);
}

/* Renews a lease in the memory of its leader alone. False: a new ttl is for all nodes. */
static bool watch(struct machine *m, struct session *s, uint64_t ttl_ms)
{
    const struct timer *lease = &s->lease;
    return (ttl_ms == 0 || ttl_ms == lease->ttl_ms) &&
           machine_lease_watch(m, s, m->query_ms + lease->ttl_ms);
}

static bool watch_lock(struct machine *m, const struct machine_command *c, struct machine_result *r)
{
    struct request *request = find_own(m, c, r);
    if (request == NULL) {
        return true;
    }
    if (!watch(m, request_session(request), c->ttl_ms)) {
        return false;
    }
    r->code = MACHINE_DONE;
    r->token = c->token;
    r->deadline_ms = machine_lease_until(m, request_session(request));
    return true;
}

static bool watch_session(struct machine *m, const struct machine_command *c,
                          struct machine_result *r)
{
    struct session_explicit *s = machine_session_find(m, c->owner);
    bool found =
        s != NULL && !machine_session_is_over(m, &s->base) && machine_sender_owns(m, &s->base);
    if (found && !watch(m, &s->base, 0)) {
        return false;
    }
    r->code = found ? MACHINE_DONE : MACHINE_NOSESSION;
    r->deadline_ms = found ? machine_lease_until(m, &s->base) : 0;
    return true;
}

bool machine_renew(struct machine *m, const struct machine_command *c, uint64_t now_ms,
                   struct machine_result *ret)
{
    FLI_ASSERT(MACHINE_IS_RENEWAL(c));
    m->query_ms = now_ms > m->clock_ms ? now_ms : m->clock_ms;
    m->renewal_counts = ret != NULL;
    struct machine_result r = {.clock_ms = m->query_ms};
    bool done = true;
    if (machine_sender_enter(m, c, &r)) {
        done = c->op == MACHINE_OP_RENEW  ? watch_lock(m, c, &r)
               : c->op == MACHINE_OP_KEYS ? machine_keys_watch(m, c, &r)
                                          : watch_session(m, c, &r);
    }
    machine_sender_leave(m);
    if (done && ret != NULL) {
        *ret = r;
    }
    return done;
}

/* A user may always release its own lock, whatever its rights. */
static void release(struct machine *m, const struct machine_command *c, struct machine_result *r)
{
    uint64_t steps = 0;
    struct request *request = find_own(m, c, r);
    if (request == NULL && !machine_sender_may(m, ACL_ACQUIRE, c->name, &steps)) {
        machine_refuse(r, ACL_ACQUIRE);
    }
    if (request == NULL) {
        return;
    }
    r->code = MACHINE_DONE;
    r->token = c->token;
    if (request->is_multi && m->steps == 0) {
        machine_work_later(m, &request_multi(request)->work);
    } else {
        machine_lock_end(m, request, MACHINE_EVENT_RELEASED, MACHINE_REASON_RELEASE, 0);
    }
}

/* The token is burnt before the lock is passed on, so that the next holder's is larger. A delayed
 * lock has no holder to notify, but its last holder may still be writing: it is fenced too. */
static void break_lock(struct machine *m, const struct machine_command *c, struct machine_result *r)
{
    uint64_t hash;
    struct lock *lock = machine_lock_find(m, c->name, &hash);
    const struct contention *contention = lock == NULL ? NULL : lock_contention(lock);
    if (lock == NULL || (contention != NULL && contention->is_broken) ||
        (lock_holder(lock) == NULL && !contention_of(lock)->is_delayed)) {
        r->code = MACHINE_NO;
        return;
    }
    if (!burn_tokens(m, 1, FL_TOKEN_MAX, r)) {
        return;
    }
    if (lock_holder(lock) != NULL) {
        machine_lock_break(m, lock);
    } else {
        m->totals.breaks++;
        machine_lock_end_delay(m, lock);
    }
}

static void cancel(struct machine *m, const struct machine_command *c, struct machine_result *r)
{
    struct wait *w = machine_wait_find_id(m, c->number);
    if (w == NULL || w->times_asked != c->number2) {
        r->code = MACHINE_NO;
        return;
    }
    r->code = MACHINE_DONE;
    r->wait = c->number;
    machine_wait_end(m, w, MACHINE_REASON_CANCEL);
}

static void session_open(struct machine *m, const struct machine_command *c,
                         struct machine_result *r)
{
    struct session_explicit *s = machine_session_live(m, c->owner);
    bool is_new = s == NULL;
    if (!is_new && !machine_sender_owns(m, &s->base)) {
        machine_refuse(r, 0);
        return;
    }
    if (is_new && machine_sessions_len(m) >= m->limits.sessions_max) {
        machine_answer_limit(m, r, MACHINE_LIMIT_SESSIONS);
        return;
    }
    if (is_new) {
        struct origin origin = machine_sender_origin(m);
        s = machine_session_create(m, c->owner, ++m->serial, &origin);
    }
    machine_session_describe(m, s, (uint32_t)c->lockdelay_ms, c->label);
    r->code = MACHINE_DONE;
    r->deadline_ms = machine_session_renew(m, &s->base, c->ttl_ms);
    if (is_new) {
        machine_emit_of(m, &s->base, &(struct machine_event){.type = MACHINE_EVENT_SESSION_OPENED});
    }
}

static void session_renew(struct machine *m, const struct machine_command *c,
                          struct machine_result *r)
{
    struct session_explicit *s = machine_session_live(m, c->owner);
    if (s == NULL || !machine_sender_owns(m, &s->base)) {
        r->code = MACHINE_NOSESSION;
        return;
    }
    r->code = MACHINE_DONE;
    r->deadline_ms = machine_session_renew(m, &s->base, 0);
}

static void session_close(struct machine *m, const struct machine_command *c,
                          struct machine_result *r)
{
    struct session_explicit *s = machine_session_live(m, c->owner);
    if (s == NULL || !machine_sender_owns(m, &s->base)) {
        r->code = MACHINE_NOSESSION;
        return;
    }
    r->code = MACHINE_DONE;
    machine_session_end(m, s, MACHINE_REASON_CLOSE);
}

uint32_t machine_command_cost(const struct machine_command *c)
{
    bool searches =
        (c->flags & MACHINE_ACQUIRE_EXPLICIT) != 0 && (c->flags & MACHINE_ACQUIRE_WAIT) != 0;
    switch ((enum machine_op)c->op) {
    case MACHINE_OP_ACQUIRE:
        return MACHINE_STEPS_RECORD * (1u + c->n_names) + (searches ? MACHINE_SEARCH_STEPS_MIN : 0);
    case MACHINE_OP_KEYS:
        return c->value.len > 0 ? MACHINE_KEYS_COST : MACHINE_STEPS_RECORD * (2u + c->n_names);
    case MACHINE_OP_KEY:
        return MACHINE_STEPS_RECORD * c->n_names;
    case MACHINE_OP_CANCEL:
    case MACHINE_OP_BREAK:
        return MACHINE_STEPS_RECORD * (1u + MACHINE_NAMES_MAX);
    case MACHINE_OP_RELEASE:
    case MACHINE_OP_SESSION_OPEN:
    case MACHINE_OP_SESSION_CLOSE:
        return 2 * MACHINE_STEPS_RECORD;
    case MACHINE_OP_EXPIRE:
        return 1;
    case MACHINE_OP_LOCKS:
    case MACHINE_OP_SESSION_LIST:
    case MACHINE_OP_USERS_LOAD:
    case MACHINE_OP_USERS:
        return MACHINE_LIST_COST;
    case MACHINE_OP_SHOW:
    case MACHINE_OP_SESSION_SHOW:
    case MACHINE_OP_USER:
    case MACHINE_OP_USER_DELETE:
        return MACHINE_SHOW_COST;
    case MACHINE_OP_USER_SET: /* each pattern among the words is compared with those there are */
        return MACHINE_SHOW_COST + MACHINE_WORD_BYTE_COST * (uint32_t)c->words.len;
    default:
        return MACHINE_STEPS_RECORD;
    }
}

static void apply_one(struct machine *m, const struct machine_command *c, struct machine_result *r)
{
    switch ((enum machine_op)c->op) {
    case MACHINE_OP_INIT:
        init(m, c, r);
        break;
    case MACHINE_OP_NODE_ADD:
    case MACHINE_OP_NODE_REPLACE:
    case MACHINE_OP_NODE_REMOVE:
    case MACHINE_OP_NODE_SETTLED:
    case MACHINE_OP_NODE_VERSION:
    case MACHINE_OP_VERSION_RAISE:
        machine_nodes_apply(m, c, r);
        break;
    case MACHINE_OP_LIMITS:
    case MACHINE_OP_LIMIT_SET:
    case MACHINE_OP_SETTING_SET:
        machine_config_apply(m, c, r);
        break;
    case MACHINE_OP_ACQUIRE:
        machine_acquire(m, c, r);
        break;
    case MACHINE_OP_KEYS:
        machine_keys(m, c, r);
        break;
    case MACHINE_OP_CANCEL:
        cancel(m, c, r);
        break;
    case MACHINE_OP_RENEW:
        renew(m, c, r);
        break;
    case MACHINE_OP_RELEASE:
        release(m, c, r);
        break;
    case MACHINE_OP_BREAK:
        break_lock(m, c, r);
        break;
    case MACHINE_OP_TOKEN:
        token(m, r);
        break;
    case MACHINE_OP_SESSION_OPEN:
        session_open(m, c, r);
        break;
    case MACHINE_OP_SESSION_RENEW:
        session_renew(m, c, r);
        break;
    case MACHINE_OP_SESSION_CLOSE:
        session_close(m, c, r);
        break;
    case MACHINE_OP_RAISE:
        burn_tokens(m, c->number, MACHINE_RAISE_TO_MAX, r);
        break;
    case MACHINE_OP_USER_SET:
        machine_user_set(m, c, r);
        break;
    case MACHINE_OP_USER_DELETE:
        machine_user_delete(m, c, r);
        break;
    case MACHINE_OP_USERS_LOAD:
        machine_users_replace(m, c, r);
        break;
    case MACHINE_OP_EXPIRE: /* machine_begin() has carried it out */
        r->code = MACHINE_DONE;
        break;
    case MACHINE_OP_USERS_SEAL:
        machine_users_seal(m);
        r->code = MACHINE_DONE;
        break;
    default:
        FLI_ASSERT(!MACHINE_OP_IS_QUERY(c->op)); /* machine_begin() refuses a batch with a query */
        break;
    }
}

/* Checks that the bytes are exactly `count` commands that are allowed in a batch. 0, or an error.
 * *ret_last: the last of them that is an EXPIRE. */
static int verify_commands(const uint8_t *p, const uint8_t *end, uint32_t count, uint32_t *ret_last)
{
    *ret_last = 0;
    for (uint32_t i = 0; i < count; i++) {
        struct machine_command c;
        size_t size = 0;
        int rc = machine_command_decode(p, (size_t)(end - p), &c, &size);
        if (rc != 0) {
            return rc;
        }
        if (MACHINE_OP_IS_QUERY(c.op)) {
            return FL_ECORRUPT;
        }
        *ret_last = c.op == MACHINE_OP_EXPIRE ? i + 1 : *ret_last;
        p += size;
    }
    return p == end ? 0 : FL_ECORRUPT;
}

/* Leases that their leader has given up are over before what is due runs, so that all of it ends in
 * the order of the deadlines. */
static void expire_leases(struct machine *m, const uint8_t *p, const uint8_t *end, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        struct machine_command c;
        p += machine_command_redecode(p, (size_t)(end - p), &c);
        if (c.op == MACHINE_OP_EXPIRE) {
            machine_lease_expire(m, &c);
        }
    }
}

int machine_begin(struct machine *m, const void *batch, size_t len, struct machine_cursor *ret)
{
    struct machine_batch_header h;
    int rc = machine_batch_open(batch, len, &h);
    if (rc != 0) {
        return rc;
    }
    const uint8_t *p = (const uint8_t *)batch + MACHINE_BATCH_HEADER_SIZE;
    const uint8_t *end = (const uint8_t *)batch + h.length;
    uint32_t expiries;
    rc = verify_commands(p, end, h.count, &expiries);
    if (rc != 0) {
        return rc;
    }
    if (h.timestamp_ms > m->clock_ms) {
        m->clock_ms = h.timestamp_ms;
    }
    m->mark_due = m->mark_due || (h.flags & MACHINE_BATCH_TERM_MARK) != 0;
    m->spent = 0;
    m->steps = m->budget.due;
    rights_forget(&m->users.known);
    expire_leases(m, p, end, expiries);
    machine_expire(m);
    m->steps = m->budget.commands;
    *ret = (struct machine_cursor){.header = h, .p = p, .end = end, .left = h.count};
    return 0;
}

bool machine_next(struct machine *m, struct machine_cursor *cur, struct machine_result *ret)
{
    if (cur->left == 0) {
        FLI_ASSERT(cur->p == cur->end);
        return false;
    }
    struct machine_command c;
    cur->p += machine_command_redecode(cur->p, (size_t)(cur->end - cur->p), &c);
    cur->left--;
    *ret = (struct machine_result){.clock_ms = m->clock_ms};
    m->spent += machine_command_cost(&c);
    if (machine_sender_enter(m, &c, ret)) {
        apply_one(m, &c, ret);
    }
    machine_sender_leave(m);
    FLI_ASSERT(ret->code >= MACHINE_DONE && ret->code <= MACHINE_CODE_MAX);
    return true;
}

int machine_apply(struct machine *m, const void *batch, size_t len, struct machine_result *results)
{
    struct machine_cursor cur;
    int rc = machine_begin(m, batch, len, &cur);
    if (rc != 0) {
        return rc;
    }
    struct machine_result r;
    for (size_t i = 0; machine_next(m, &cur, &r); i++) {
        if (results != NULL) {
            results[i] = r;
        }
    }
    return 0;
}

uint64_t machine_next_deadline(const struct machine *m)
{
    if (machine_is_behind(m)) {
        return m->clock_ms;
    }
    const struct fli_heap_node *n = fli_heap_min(&m->timers);
    if (n == NULL) {
        return UINT64_MAX;
    }
    uint64_t at_ms = CONST_CONTAINER_OF(n, struct timer, node)->at_ms;
    return at_ms + 1;
}

bool machine_mark_waits(const struct machine *m)
{
    return m->mark_due;
}

uint64_t machine_clock(const struct machine *m)
{
    return m->clock_ms;
}

fl_token machine_last_token(const struct machine *m)
{
    return m->last_token;
}

fl_token machine_min_live_token(const struct machine *m)
{
    const struct order_node *first = machine_order_first(&m->held);
    return first == NULL ? m->last_token + 1 : held_key_token(first->key);
}

bool machine_is_waiting(struct machine *m, uint64_t wait)
{
    return machine_wait_find_id(m, wait) != NULL;
}

uint64_t machine_cluster_id(const struct machine *m)
{
    return m->cluster_id;
}

const struct machine_limits *machine_get_limits(const struct machine *m)
{
    return &m->limits;
}

const struct machine_settings *machine_get_settings(const struct machine *m)
{
    return &m->settings;
}

void machine_get_counts(const struct machine *m, struct machine_counts *ret)
{
    *ret = m->totals;
    ret->locks_held = m->held.len;
    ret->locks = m->locks.len;
    ret->sessions = machine_sessions_len(m);
    ret->sessions_explicit = m->sessions.len;
    ret->waits = m->waits_by_request.len;
    ret->work = m->n_work;
}
