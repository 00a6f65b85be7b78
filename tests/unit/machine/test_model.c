/* test_model.c: the machine against a naive model (model.c), over random batches in a state so
 * small that everything collides all the time.
 *
 * After every command: result, events, counts and invariants. After every batch: all locks, queues
 * and sessions as the queries show them, and the hash of a second machine with another hash seed
 * that was fed the same bytes. Now and then the machine is replaced by one decoded from its
 * snapshot, which must not make any difference; the second machine never is.
 *
 * Every third run has users, who come and go and whose rights change; in those, what some user
 * is shown is compared too. Requests for several locks do not wait there: when one lost right ends
 * several such waits, the model does not know their order.
 *
 * Every third run has machines with steps for one thing a batch; what is left is then worked off
 * by empty batches, and the second machine, which has the usual steps, must end in the same state.
 *
 * The default is a short slice: 100 runs of 200 batches. FENCELOCK_ROUNDS=600 makes that 60 000
 * runs, in some minutes; FENCELOCK_SEED gives the same ones again. */
#include "fixture.h"
#include "machine/budget.h"
#include "random_run.h"

static const struct budget tiny_budget = {
    .due = 1, .commands = 0, .search_min = 1000, .search_max = 1000};

static char first(struct fli_slice s)
{
    return s.len == 0 ? 0 : (char)s.data[0];
}

static void record(void *ctx, const struct machine_event *e)
{
    struct random_run *w = ctx;
    assert_true(w->n_events < MODEL_EVENTS_MAX);
    assert_true(e->name.len <= 1 && (e->owner.len == 1 || e->type == MACHINE_EVENT_USER_CHANGED));
    assert_int_equal(e->clock_ms, machine_clock(w->k.m));
    w->denied += e->reason == MACHINE_REASON_DENIED;
    w->multi_lock_waits += e->type == MACHINE_EVENT_GRANTED && e->index == 1 && e->wait != 0;
    w->events[w->n_events++] = (struct model_event){
        .type = e->type,
        .reason = e->reason,
        .index = e->index,
        .is_explicit = e->session_explicit,
        .name = e->name.len == 0 ? 0 : (char)e->name.data[0],
        .owner = first(e->owner),
        .user = first(e->user),
        .by = first(e->by),
        .token = e->token,
        .wait = e->wait,
        .deadline_ms = e->deadline_ms,
    };
}

static void compare_events(struct random_run *w)
{
    assert_int_equal(w->n_events, w->model.n_events);
    for (unsigned i = 0; i < w->n_events; i++) {
        const struct model_event *a = &w->events[i];
        const struct model_event *b = &w->model.events[i];
        assert_int_equal(a->type, b->type);
        assert_int_equal(a->reason, b->reason);
        assert_int_equal(a->index, b->index);
        assert_int_equal(a->is_explicit, b->is_explicit);
        assert_int_equal(a->name, b->name);
        assert_int_equal(a->owner, b->owner);
        assert_int_equal(a->user, b->user);
        assert_true(a->by == b->by || w->few_steps); /* or it comes in a later batch, by nobody */
        assert_int_equal(a->token, b->token);
        assert_int_equal(a->wait, b->wait);
        assert_int_equal(a->deadline_ms, b->deadline_ms);
    }
    w->n_events = 0;
    w->model.n_events = 0;
}

static void compare_results(const struct machine_result *a, const struct machine_result *b)
{
    assert_int_equal(a->code, b->code);
    assert_int_equal(a->number, b->number);
    assert_int_equal(a->token, b->token);
    assert_int_equal(a->wait, b->wait);
    assert_int_equal(a->deadline_ms, b->deadline_ms);
    assert_int_equal(a->clock_ms, b->clock_ms);
}

static void compare_counts(struct random_run *w)
{
    struct machine_counts a;
    machine_get_counts(w->k.m, &a);
    struct machine_counts b = model_counts(&w->model);
    assert_memory_equal(&a, &b, sizeof a);
    assert_int_equal(machine_clock(w->k.m), w->model.clock_ms);
    assert_int_equal(machine_last_token(w->k.m), w->model.last_token);
    assert_int_equal(machine_cluster_id(w->k.m), w->model.cluster_id);
    uint64_t min_live = w->model.last_token + 1;
    for (unsigned i = 0; i < MODEL_HOLDS_MAX; i++) {
        if (w->model.holds[i].exists && w->model.holds[i].token < min_live) {
            min_live = w->model.holds[i].token;
        }
    }
    assert_int_equal(machine_min_live_token(w->k.m), min_live);
}

static void compare_nodes(struct random_run *w)
{
    unsigned known;
    (void)machine_nodes(w->k.m, &known);
    assert_int_equal(machine_version(w->k.m), w->model.version);
    assert_int_equal(known, w->model.n_nodes);
    for (unsigned i = 0; i < w->model.n_nodes; i++) {
        const struct model_node *n = &w->model.nodes[i];
        struct machine_node a = *machine_node_find(w->k.m, n->id);
        assert_int_equal(a.id, n->id);
        assert_int_equal(a.version, n->version);
        assert_int_equal(a.plan, n->plan);
        assert_int_equal(a.learner, n->learner);
        assert_int_equal(a.forced, n->forced);
        assert_int_equal(a.address[0], n->address);
        w->plans |= UINT64_C(1) << n->plan;
    }
}

static void same_letter(struct fli_slice s, char c)
{
    assert_int_equal(s.len, c != 0);
    assert_int_equal(s.len == 0 ? 0 : (char)s.data[0], c);
}

/* The lock with this one of its holders; -1: with none. */
static void compare_lock(struct random_run *w, char name, int hold,
                         const struct machine_lock_view *v)
{
    const struct model_lock *l = &w->model.locks[name - 'a'];
    static const struct model_hold nobody;
    const struct model_hold *h = hold < 0 ? &nobody : &w->model.holds[hold];
    unsigned queue[MODEL_WAITS_MAX];
    unsigned holds[MODEL_HOLDS_MAX];
    unsigned holders = model_holders(&w->model, name, holds);
    bool held = holders > 0;
    same_letter(v->name, name);
    assert_int_equal(v->waiters, model_queue(&w->model, name, queue));
    assert_int_equal(v->state, held         ? MACHINE_LOCK_HELD
                               : l->delayed ? MACHINE_LOCK_DELAYED
                                            : MACHINE_LOCK_QUEUED);
    assert_int_equal(v->holders, holders);
    assert_int_equal(v->permits, l->permits);
    assert_int_equal(v->mode, !held                      ? MACHINE_LOCK_NONE
                              : l->slots == 1            ? MACHINE_LOCK_EXCLUSIVE
                              : l->slots == MODEL_SHARED ? MACHINE_LOCK_SHARED
                                                         : MACHINE_LOCK_PERMITS);
    assert_int_equal(v->token, h->token);
    assert_int_equal(v->since_ms, h->since_ms);
    assert_int_equal(v->together, held ? h->together : 1);
    same_letter(v->value, h->value);
    const struct model_session *s = held ? &w->model.sessions[h->session] : NULL;
    assert_int_equal(v->session_explicit, s != NULL && s->is_explicit);
    same_letter(v->owner, s == NULL ? 0 : s->owner);
    assert_int_equal(first(v->user), s == NULL ? 0 : model_user_name(&w->model, s->uid));
    same_letter(v->label, s == NULL ? 0 : s->label);
    uint64_t until_ms = s != NULL ? s->deadline_ms : l->until_ms;
    assert_int_equal(v->ttl_left_ms, until_ms == 0 ? 0 : until_ms - w->model.clock_ms);
}

static void compare_session(struct random_run *w, const struct model_session *s,
                            const struct machine_session_view *v)
{
    unsigned index = (unsigned)(s - w->model.sessions);
    uint32_t locks = 0;
    uint32_t waits = 0;
    for (unsigned i = 0; i < MODEL_HOLDS_MAX; i++) {
        locks += w->model.holds[i].exists && w->model.holds[i].session == index;
    }
    for (unsigned i = 0; i < MODEL_WAITS_MAX; i++) {
        waits += w->model.waits[i].exists && w->model.waits[i].session == index;
    }
    assert_int_equal(v->session_explicit, s->is_explicit);
    same_letter(v->owner, s->owner);
    same_letter(v->label, s->label);
    same_letter(v->lock, s->name);
    assert_int_equal(v->ttl_ms, s->ttl_ms);
    assert_int_equal(v->ttl_left_ms, s->leased ? s->deadline_ms - w->model.clock_ms : 0);
    assert_int_equal(v->lockdelay_ms, s->lockdelay_ms);
    assert_int_equal(v->locks, locks);
    assert_int_equal(v->waits, waits);
}

/* The lock and holder that come after `last` in LOCKS: grants by token, then idle locks by
 * serial. */
static char next_lock(const struct model *m, bool *in_idle, uint64_t *last, int *ret_hold)
{
    int best = -1;
    uint64_t least = 0;
    for (unsigned i = 0; !*in_idle && i < MODEL_HOLDS_MAX; i++) {
        const struct model_hold *h = &m->holds[i];
        uint64_t order = h->token * 16 + h->index;
        if (h->exists && order > *last && (best < 0 || order < least)) {
            best = (int)i;
            least = order;
        }
    }
    *ret_hold = best;
    if (best >= 0) {
        *last = least;
        return m->holds[best].name;
    }
    *last = *in_idle ? *last : 0;
    *in_idle = true;
    for (unsigned i = 0; i < MODEL_NAMES; i++) {
        const struct model_lock *l = &m->locks[i];
        if (l->idle && l->idle_serial > *last &&
            (best < 0 || l->idle_serial < m->locks[best].idle_serial)) {
            best = (int)i;
        }
    }
    *last = best < 0 ? *last : m->locks[best].idle_serial;
    return best < 0 ? 0 : (char)('a' + best);
}

/* Asks as a node does, which may see everything. */
static struct machine_result ask(struct random_run *w, struct machine_command q)
{
    q.user = MACHINE_USER_NODE;
    q.flags |= MACHINE_COMMAND_BY;
    return fixture_query(&w->k, q);
}

static void compare_locks(struct random_run *w)
{
    bool in_idle = false;
    uint64_t last = 0;
    int hold = -1;
    char cursor[32] = "";
    struct machine_command q = {.op = MACHINE_OP_LOCKS, .number = 1 + random_below(w, 3)};
    for (bool more = true; more;) {
        q.name = fixture_slice(cursor);
        assert_int_equal(ask(w, q).code, MACHINE_DONE);
        struct machine_page page = fixture_page(&w->k);
        assert_true(page.count <= q.number);
        struct machine_lock_view v;
        int rc;
        while ((rc = machine_page_next_lock(&page, &v)) == 1) {
            char name = next_lock(&w->model, &in_idle, &last, &hold);
            assert_true(name != 0);
            compare_lock(w, name, hold, &v);
        }
        assert_int_equal(rc, 0);
        more = page.more;
        assert_int_equal(more, page.cursor.len > 0);
        snprintf(cursor, sizeof cursor, "%.*s", (int)page.cursor.len,
                 (const char *)page.cursor.data);
    }
    assert_int_equal(next_lock(&w->model, &in_idle, &last, &hold), 0);
}

static void compare_show(struct random_run *w, char name)
{
    struct machine_command q = {.op = MACHINE_OP_SHOW, .name = letter_slice(name)};
    const struct model_lock *l = &w->model.locks[name - 'a'];
    struct machine_result r = ask(w, q);
    unsigned holds[MODEL_HOLDS_MAX];
    unsigned holders = model_holders(&w->model, name, holds);
    assert_int_equal(r.code, holders > 0 || l->idle ? MACHINE_DONE : MACHINE_NOTFOUND);
    if (r.code == MACHINE_NOTFOUND) {
        assert_int_equal(w->k.payload.len, 0);
        return;
    }
    struct machine_page page = fixture_page(&w->k);
    struct machine_lock_view v;
    for (unsigned i = 0; i < (holders == 0 ? 1 : holders); i++) {
        assert_int_equal(machine_page_next_lock(&page, &v), 1);
        compare_lock(w, name, holders == 0 ? -1 : (int)holds[i], &v);
    }
    unsigned queue[MODEL_WAITS_MAX];
    unsigned n = model_queue(&w->model, name, queue);
    struct machine_session_view s;
    for (unsigned i = 0; i < n; i++) {
        const struct model_wait *x = &w->model.waits[queue[i]];
        assert_int_equal(machine_page_next_session(&page, &s), 1);
        assert_int_equal(s.together, x->together);
        compare_session(w, &w->model.sessions[x->session], &s);
    }
    assert_int_equal(machine_page_next_session(&page, &s), 0);
}

static void compare_sessions(struct random_run *w)
{
    struct machine_session_view v;
    for (char owner = 'u'; owner < (char)('u' + MODEL_OWNERS); owner++) {
        const struct model_session *s = NULL;
        for (unsigned i = 0; i < MODEL_SESSIONS_MAX; i++) {
            const struct model_session *x = &w->model.sessions[i];
            s = x->exists && x->is_explicit && x->owner == owner ? x : s;
        }
        struct machine_command q = {.op = MACHINE_OP_SESSION_SHOW, .owner = letter_slice(owner)};
        struct machine_result r = ask(w, q);
        assert_int_equal(r.code, s != NULL ? MACHINE_DONE : MACHINE_NOTFOUND);
        if (s != NULL) {
            struct machine_page page = fixture_page(&w->k);
            assert_int_equal(machine_page_next_session(&page, &v), 1);
            compare_session(w, s, &v);
        }
    }
    struct machine_command q = {.op = MACHINE_OP_SESSION_LIST};
    ask(w, q);
    struct machine_page page = fixture_page(&w->k);
    uint64_t last = 0;
    while (machine_page_next_session(&page, &v) == 1) {
        const struct model_session *next = NULL;
        for (unsigned i = 0; i < MODEL_SESSIONS_MAX; i++) {
            const struct model_session *s = &w->model.sessions[i];
            if (s->exists && s->is_explicit && s->serial > last &&
                (next == NULL || s->serial < next->serial)) {
                next = s;
            }
        }
        assert_non_null(next);
        compare_session(w, next, &v);
        last = next->serial;
    }
    for (unsigned i = 0; i < MODEL_SESSIONS_MAX; i++) {
        const struct model_session *s = &w->model.sessions[i];
        assert_false(s->exists && s->is_explicit && s->serial > last);
    }
}

static void compare_users(struct random_run *w)
{
    struct machine_command q = {.op = MACHINE_OP_USERS};
    struct acl_user u;
    uint64_t login = 0;
    assert_int_equal(ask(w, q).code, MACHINE_DONE);
    struct fli_slice rest = {w->k.payload.data, w->k.payload.len};
    for (unsigned i = 0; i < w->model.n_users; i++) {
        const struct model_user *m = &w->model.users[i];
        assert_int_equal(machine_users_next(&rest, &login, &u), 1);
        assert_int_equal(login, machine_user_of(m->uid, m->login));
        assert_int_equal(u.name[0], m->name);
        assert_int_equal(u.n_passwords, strlen(m->passwords));
        assert_true(u.on == m->on && u.nopass == m->nopass && u.n_rules == m->n_rules);
    }
    assert_int_equal(machine_users_next(&rest, &login, &u), 0);
    assert_int_equal(machine_users_are_new(w->k.m), !w->model.sealed);
}

/* What the query answers to this user; true: it is not refused. */
static bool is_shown(struct random_run *w, uint64_t login, struct machine_command q, bool may,
                     struct machine_result *ret)
{
    q.user = login;
    q.flags |= login == 0 ? 0 : MACHINE_COMMAND_BY;
    *ret = fixture_query(&w->k, q);
    if (w->model.asker < 0) {
        assert_int_equal(ret->code, MACHINE_NOAUTH);
    } else if (!may) {
        assert_int_equal(ret->code, MACHINE_NOPERM);
        assert_int_equal(ret->number, ACL_SEE);
        w->hidden++;
    }
    return w->model.asker >= 0 && may;
}

/* Compares the lock as this user is shown it, and the user's own grant, which it may always
 * query. */
static void compare_shown(struct random_run *w, uint64_t login, char name)
{
    struct machine_command q = {.op = MACHINE_OP_SHOW, .name = letter_slice(name)};
    struct machine_result r;
    bool may = w->model.asker >= 0 && model_asker_may(&w->model, ACL_SEE, name);
    bool in_use = model_in_use(&w->model, name);
    if (is_shown(w, login, q, may, &r)) {
        assert_int_equal(r.code, in_use ? MACHINE_DONE : MACHINE_NOTFOUND);
    }
    unsigned holds[MODEL_HOLDS_MAX];
    q.op = MACHINE_OP_CHECK;
    for (unsigned n = model_holders(&w->model, name, holds); n > 0; n--) {
        const struct model_hold *h = &w->model.holds[holds[n - 1]];
        bool own = w->model.asker >= 0 && model_owns(&w->model, h->session);
        q.token = h->token;
        w->foreign += w->model.asker >= 0 && !own;
        if (is_shown(w, login, q, may || own, &r)) {
            assert_int_equal(r.code, MACHINE_DONE);
        }
    }
}

static void compare_listed(struct random_run *w, uint64_t login)
{
    struct machine_command q = {.op = MACHINE_OP_LOCKS, .number = 1000};
    struct machine_lock_view v;
    struct machine_result r;
    bool some = w->model.asker >= 0 && model_asker_may_some(&w->model, ACL_SEE);
    char listed[MODEL_NAMES + 1] = "";
    if (!is_shown(w, login, q, some, &r)) {
        return;
    }
    struct machine_page page = fixture_page(&w->k);
    while (machine_page_next_lock(&page, &v) == 1) {
        char *known = strchr(listed, v.name.data[0]);
        if (known == NULL) {
            listed[strlen(listed)] = (char)v.name.data[0];
        }
    }
    for (char name = 'a'; name < (char)('a' + MODEL_NAMES); name++) {
        bool may = model_asker_may(&w->model, ACL_SEE, name);
        assert_int_equal(strchr(listed, name) != NULL, may && model_in_use(&w->model, name));
    }
}

static void compare_for_somebody(struct random_run *w)
{
    uint64_t login = random_any_login(w);
    w->model.asker = model_find_login(&w->model, login);
    for (char name = 'a'; name < (char)('a' + MODEL_NAMES); name++) {
        compare_shown(w, login, name);
    }
    compare_listed(w, login);
}

static void compare_all(struct random_run *w)
{
    compare_locks(w);
    compare_sessions(w);
    compare_users(w);
    compare_nodes(w);
    if (w->users) {
        compare_for_somebody(w);
    }
    for (char name = 'a'; name < (char)('a' + MODEL_NAMES); name++) {
        compare_show(w, name);
    }
}

/* Applies a batch with this command (NULL: an empty one) at this clock, then empty batches until no
 * work is left. */
static void run_in_pieces(struct random_run *w, const struct machine_command *c, bool mark,
                          struct machine_result *ret)
{
    unsigned pieces = 0;
    w->k.flags = mark ? MACHINE_BATCH_TERM_MARK : 0;
    fixture_start(&w->k);
    if (c != NULL) {
        fixture_add(&w->k, *c);
    }
    for (;;) {
        fixture_give_up(&w->k);
        assert_true(w->k.count <= 1 || ret == NULL);
        size_t len = fixture_seal(&w->k);
        assert_int_equal(machine_apply(w->k.m, w->k.batch.data, len, ret), 0);
        assert_int_equal(machine_apply(w->twin, w->k.batch.data, len, NULL), 0);
        assert_false(machine_has_work(w->twin));
        machine_check(w->k.m);
        if (!machine_has_work(w->k.m)) {
            return;
        }
        w->pieces++;
        assert_true(pieces++ < 1000);
        if (random_below(w, 10) == 0) {
            fixture_reload(&w->k);
            machine_set_event_cb(w->k.m, record, w);
            machine_set_budget(w->k.m, &tiny_budget);
        }
        fixture_start(&w->k);
        ret = NULL;
    }
}

/* Applies one command at a time with so few steps that its effects take many batches. In the end
 * the same has happened, in the same order. */
static void run_batch_tiny(struct random_run *w, bool mark)
{
    static uint8_t copy[1 << 16];
    size_t len = fixture_seal(&w->k);
    struct machine_cursor cur;
    assert_true(len <= sizeof copy);
    memcpy(copy, w->k.batch.data, len);
    struct machine_batch_header h;
    assert_int_equal(machine_batch_open(copy, len, &h), 0);
    run_in_pieces(w, NULL, mark, NULL);
    model_begin(&w->model, w->k.clock_ms, mark);
    compare_events(w);
    cur.p = copy + MACHINE_BATCH_HEADER_SIZE;
    for (uint32_t i = 0; i < h.count; i++) {
        struct machine_command c;
        struct machine_result r;
        size_t size;
        assert_int_equal(
            machine_command_decode(cur.p, (size_t)(copy + h.length - cur.p), &c, &size), 0);
        cur.p += size;
        run_in_pieces(w, &c, false, &r);
        struct machine_result expected = model_apply(&w->model, &c);
        compare_results(&r, &expected);
        compare_events(w);
        compare_counts(w);
    }
}

/* The commands are decoded from the sealed batch, so that the model and the machine read the
 * same. */
static void run_batch(struct random_run *w, bool mark)
{
    struct machine_cursor cur;
    fixture_give_up(&w->k);
    size_t len = fixture_seal(&w->k);
    assert_int_equal(machine_begin(w->k.m, w->k.batch.data, len, &cur), 0);
    model_begin(&w->model, w->k.clock_ms, mark);
    compare_events(w);
    machine_check(w->k.m);
    for (;;) {
        struct machine_command c;
        struct machine_result r;
        size_t size;
        bool some = cur.left > 0;
        if (some) {
            assert_int_equal(machine_command_decode(cur.p, (size_t)(cur.end - cur.p), &c, &size),
                             0);
        }
        assert_int_equal(machine_next(w->k.m, &cur, &r), some);
        if (!some) {
            break;
        }
        if (c.op == MACHINE_OP_EXPIRE) {
            continue; /* the model's leases end by themselves */
        }
        struct machine_result expected = model_apply(&w->model, &c);
        compare_results(&r, &expected);
        w->codes[r.code]++;
        w->loads += c.op == MACHINE_OP_USERS_LOAD && r.code == MACHINE_DONE;
        w->multi_lock_codes[r.code] += c.op == MACHINE_OP_ACQUIRE && c.n_names > 1;
        compare_events(w);
        compare_counts(w);
        machine_check(w->k.m);
    }
    assert_int_equal(machine_apply(w->twin, w->k.batch.data, len, NULL), 0);
}

static void step(struct random_run *w, uint64_t i)
{
    bool mark = random_below(w, 12) == 0;
    uint64_t dice = random_below(w, 20);
    w->k.clock_ms += dice == 0 ? 200 : dice == 1 ? 0 : random_below(w, 12);
    /* A stamp that is behind the clock must not turn it back. */
    uint64_t stamp = w->k.clock_ms;
    w->k.clock_ms -= random_below(w, 15) == 0 && stamp > 50 ? 50 : 0;
    w->k.flags = mark ? MACHINE_BATCH_TERM_MARK : 0;
    fixture_start(&w->k);
    if (i == w->max_tokens_at) {
        w->model.last_token = FL_TOKEN_MAX - random_below(w, 30);
        machine_set_last_token(w->k.m, w->model.last_token);
        machine_set_last_token(w->twin, w->model.last_token);
    }
    for (uint64_t n = random_below(w, 6); n > 0; n--) {
        fixture_add(&w->k, random_any_command(w));
    }
    if (w->few_steps) {
        run_batch_tiny(w, mark);
    } else {
        run_batch(w, mark);
    }
    w->k.clock_ms = stamp;
    compare_all(w);
    if (random_below(w, 25) == 0) {
        fixture_reload(&w->k);
        machine_set_event_cb(w->k.m, record, w);
        if (w->few_steps) {
            machine_set_budget(w->k.m, &tiny_budget);
        }
    }
    assert_int_equal(machine_hash(w->k.m), machine_hash(w->twin));
    assert_true(fixture_next_deadline(&w->k) > machine_clock(w->k.m));
}

struct tally {
    uint64_t codes[MACHINE_CODE_MAX + 1];
    uint64_t multi_lock_codes[MACHINE_CODE_MAX + 1];
    uint64_t multi_lock_waits;
    uint64_t pieces;
    uint64_t denied, foreign, hidden, loads, plans;
};

static void run_world(uint64_t seed, uint64_t steps, struct tally *t)
{
    struct random_run w = {.rng = seed};
    fixture_init(&w.k);
    w.k.check = false;
    machine_set_event_cb(w.k.m, record, &w);
    w.twin = machine_create((const uint64_t[2]){rng_next(&w.rng), rng_next(&w.rng)});
    /* The empty batch that the fixture began with. */
    assert_int_equal(machine_apply(w.twin, w.k.batch.data, MACHINE_BATCH_HEADER_SIZE, NULL), 0);
    w.explicit_percent = (const uint64_t[]){20, 50, 98}[random_below(&w, 3)];
    w.shared_percent = (const uint64_t[]){0, 40, 80}[random_below(&w, 3)];
    w.semaphores = (const uint64_t[]){0, 1, 3}[random_below(&w, 3)];
    w.multi_lock_percent = (const uint64_t[]){0, 25, 70}[random_below(&w, 3)];
    w.duration_factor = random_below(&w, 2) == 0 ? 1 : 20;
    w.small_limits = random_below(&w, 2) == 0;
    w.few_steps = random_below(&w, 3) == 0;
    w.users = random_below(&w, 3) == 0;
    w.user_command_interval = w.users ? 8 + random_below(&w, 40) : 0;
    /* Where tokens run out decides which locks get numbers as idle ones, in which order. */
    w.max_tokens_at = !w.few_steps && random_below(&w, 4) == 0 ? 1 + random_below(&w, steps) : 0;
    if (w.few_steps) {
        machine_set_budget(w.k.m, &tiny_budget);
    }
    model_init(&w.model);
    model_begin(&w.model, w.k.clock_ms, false);
    for (uint64_t i = 0; i < steps; i++) {
        step(&w, i + 1);
    }
    for (unsigned i = 0; i <= MACHINE_CODE_MAX; i++) {
        t->codes[i] += w.codes[i];
        t->multi_lock_codes[i] += w.multi_lock_codes[i];
    }
    t->denied += w.denied;
    t->foreign += w.foreign;
    t->hidden += w.hidden;
    t->loads += w.loads;
    t->plans |= w.plans;
    t->multi_lock_waits += w.multi_lock_waits;
    t->pieces += w.pieces;
    machine_destroy(w.twin);
    fixture_fini(&w.k);
}

/** The runs are of use only if everything happens in them. */
static bool everything_happened(const struct tally *t)
{
    bool all = t->codes[MACHINE_NOADMIN] > 0 && t->multi_lock_waits > 0 && t->pieces > 0 &&
               t->denied > 0 && t->foreign > 0 && t->hidden > 0 && t->loads > 0 &&
               t->plans == 15; /* of nodes: each was met */
    for (unsigned code = MACHINE_DONE; code < MACHINE_LATE; code++) {
        all = all && t->codes[code] > 0;
    }
    static const uint8_t several[] = {MACHINE_GRANTED,  MACHINE_QUEUED,     MACHINE_HELD,
                                      MACHINE_DEADLOCK, MACHINE_LIMIT,      MACHINE_NOSESSION,
                                      MACHINE_MISMATCH, MACHINE_UNSUPPORTED};
    for (unsigned i = 0; i < sizeof several; i++) {
        all = all && t->multi_lock_codes[several[i]] > 0;
    }
    return all;
}

static void show(const struct tally *t)
{
    for (unsigned code = MACHINE_DONE; code < MACHINE_LATE; code++) {
        print_message("code %u: %llu, for several locks %llu\n", code,
                      (unsigned long long)t->codes[code],
                      (unsigned long long)t->multi_lock_codes[code]);
    }
    print_message("several locks granted out of their queues: %llu\n",
                  (unsigned long long)t->multi_lock_waits);
    print_message("batches for work that was left: %llu\n", (unsigned long long)t->pieces);
    print_message("waits that their users lost: %llu; asked for grants of others: %llu; locks that "
                  "were not shown: %llu; lists of users: %llu; plans of nodes: %llx\n",
                  (unsigned long long)t->denied, (unsigned long long)t->foreign,
                  (unsigned long long)t->hidden, (unsigned long long)t->loads,
                  (unsigned long long)t->plans);
}

TEST(test_random_worlds)
{
    uint64_t rng = rng_seed();
    struct tally t = {.multi_lock_waits = 0};
    uint64_t wanted = fixture_rounds(100);
    /* So few worlds do not make the rarest of what is counted with each seed: more are run then. */
    for (uint64_t i = 0; i < wanted || (i < 10 * wanted && !everything_happened(&t)); i++) {
        run_world(rng_next(&rng), 200, &t);
    }
    show(&t);
    assert_true(everything_happened(&t));
}
