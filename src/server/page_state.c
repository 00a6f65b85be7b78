/* page_state.c: see page_state.h. */
#include "server/page_state.h"

#include <inttypes.h>
#include <stdio.h>

#include "machine/view.h"
#include "base/json.h"

#define PAGE_LOCKS 20u
#define PAYLOAD_MAX ((size_t)128 * 1024) /* above the limit of machine_query() */

/* ---- the last minutes ---- */

void page_series_sample(struct page_series *s, uint64_t now_ms, const struct lock_stats *stats,
                        const struct info *i)
{
    struct machine_counts c = {0};
    if (i->machine != NULL) {
        machine_get_counts(i->machine, &c);
    }
    uint64_t refused = stats->refused_seen;
    uint64_t lost = c.expiries + c.breaks;
    if (s->has_base && now_ms - s->began_ms < 1000) {
        return;
    }
    /* Entries applied before there is a leader are old ones, read from the log. */
    bool counts = s->has_base && i->status.leader_id != 0 && c.grants >= s->grants;
    if (s->has_base) {
        s->seconds[s->n++ % PAGE_SECONDS] = (struct page_second){
            .grants = counts ? (uint32_t)(c.grants - s->grants) : 0,
            .refused = counts ? (uint32_t)(refused - s->refused) : 0,
            .lost = counts && lost >= s->lost ? (uint32_t)(lost - s->lost) : 0,
            .waits = (uint32_t)c.waits,
            .leader = (uint32_t)i->status.leader_id,
        };
    }
    s->has_base = true;
    s->began_ms = now_ms;
    s->grants = c.grants;
    s->refused = refused;
    s->lost = lost;
}

static void put_series(const struct page_series *s, struct fli_json *j, const char *key,
                       size_t offset)
{
    uint64_t n = s->n < PAGE_SECONDS ? s->n : PAGE_SECONDS;
    fli_json_array(j, key);
    for (uint64_t k = s->n - n; k < s->n; k++) {
        const struct page_second *at = &s->seconds[k % PAGE_SECONDS];
        fli_json_u64(j, NULL, *(const uint32_t *)(const void *)((const char *)at + offset));
    }
    fli_json_end_array(j);
}

static void put_all_series(const struct page_series *s, struct fli_json *j)
{
    fli_json_object(j, "series");
    put_series(s, j, "grants", offsetof(struct page_second, grants));
    put_series(s, j, "refused", offsetof(struct page_second, refused));
    put_series(s, j, "lost", offsetof(struct page_second, lost));
    put_series(s, j, "waits", offsetof(struct page_second, waits));
    put_series(s, j, "leader", offsetof(struct page_second, leader));
    fli_json_end_object(j);
}

/* ---- this node and the others ---- */

static const char *role_text(enum node_role role)
{
    return role == NODE_LEADER      ? "leader"
           : role == NODE_CANDIDATE ? "candidate"
           : role == NODE_FOLLOWER  ? "follower"
                                    : "stopped";
}

static void put_node(const struct page_view *v, struct fli_json *j)
{
    const struct node_status *s = &v->info->status;
    uint64_t writes = s->log.writes == 0 ? 1 : s->log.writes;
    fli_json_u64(j, "node", s->id);
    fli_json_text(j, "version", FENCELOCK_VERSION);
    fli_json_bool(j, "ready", v->ready);
    fli_json_bool(j, "formed", v->formed);
    fli_json_text(j, "role", role_text(s->role));
    fli_json_u64(j, "leader", s->leader_id);
    fli_json_u64(j, "leader_changes", s->leader_changes);
    fli_json_u64(j, "term", s->term);
    fli_json_u64(j, "commit", s->commit_index);
    fli_json_u64(j, "applied", s->applied_index);
    fli_json_u64(j, "last", s->last_index);
    fli_json_u64(j, "uptime_ms", v->info->server_facts.uptime_ms);
    fli_json_u64(j, "connections", v->info->server_facts.connections);
    fli_json_object(j, "log");
    fli_json_u64(j, "bytes", s->log.bytes);
    fli_json_bool(j, "waits", s->log.waiting_for_segment);
    fli_json_u64(j, "sync_avg_us", s->log.write_ns_sum / writes / 1000);
    fli_json_u64(j, "sync_max_us", s->log.write_ns_max / 1000);
    fli_json_end_object(j);
}

/* What the node last reported; a report that is too old is left out. */
static void put_report(const struct node_report *r, struct fli_json *j)
{
    fli_json_text(j, "role", role_text(r->role));
    fli_json_u64(j, "term", r->term);
    fli_json_u64(j, "lag", r->lag);
    fli_json_bool(j, "log_waits", r->log_waits);
    if (r->disk_bytes > 0) {
        fli_json_u64(j, "disk_bytes", r->disk_bytes);
        fli_json_u64(j, "disk_free_bytes", r->disk_free_bytes);
    }
}

static void put_member(const struct node_member *m, struct fli_json *j)
{
    fli_json_object(j, NULL);
    fli_json_u64(j, "id", m->id);
    fli_json_text(j, "peer", m->peer_address);
    fli_json_text(j, "client", m->client_address);
    fli_json_bool(j, "self", m->self);
    fli_json_bool(j, "leader", m->leader);
    fli_json_bool(j, "voter", m->voter);
    fli_json_bool(j, "connected", m->connected);
    if (m->report != NULL) {
        put_report(m->report, j);
    }
    fli_json_end_object(j);
}

static void put_counts(const struct page_view *v, struct fli_json *j)
{
    struct machine *m = v->info->machine;
    struct machine_counts c;
    if (m == NULL) {
        return;
    }
    machine_get_counts(m, &c);
    fli_json_u64(j, "clock", v->info->status.clock_ms);
    fli_json_u64(j, "last_token", machine_last_token(m));
    fli_json_u64(j, "locks", c.locks);
    fli_json_u64(j, "held", c.locks_held);
    fli_json_u64(j, "sessions", c.sessions);
    fli_json_u64(j, "waits", c.waits);
    fli_json_u64(j, "grants", c.grants);
    fli_json_u64(j, "expiries", c.expiries);
    fli_json_u64(j, "breaks", c.breaks);
}

/* ---- one lock ---- */

/* Only the leader knows when a lease ends, since it may have renewed it in its memory. */
static void put_left(const struct page_view *v, uint64_t left_ms, struct fli_json *j)
{
    if (v->info->status.role == NODE_LEADER) {
        fli_json_u64(j, "left_ms", left_ms);
    }
}

static void put_grant(const struct page_view *v, const struct machine_lock_view *l,
                      struct fli_json *j)
{
    fli_json_percent(j, "owner", l->owner);
    fli_json_percent(j, "label", l->label);
    fli_json_percent(j, "value", l->value);
    fli_json_u64(j, "token", l->token);
    fli_json_u64(j, "since", l->since_ms);
    put_left(v, l->ttl_left_ms, j);
    fli_json_u64(j, "renewals", l->renewals);
}

/* The page has no login, so it shows what a client without one may see. */
static bool may_see(const struct page_view *v, struct fli_slice name)
{
    uint64_t steps = 0;
    return v->info->machine == NULL || machine_may_see(v->info->machine, 0, name, &steps);
}

/* False: there is nothing to show, or, with the code LIMIT, it cannot be told yet. */
static bool show(const struct page_view *v, struct fli_slice name, struct fli_buf *payload,
                 struct machine_page *ret, uint8_t *ret_code)
{
    struct machine_command c = {.op = MACHINE_OP_SHOW, .name = name};
    struct machine_result r = {.code = MACHINE_NOTFOUND};
    struct machine *m = v->info->machine;
    uint64_t now_ms = v->info->status.clock_ms;
    int rc = m == NULL ? FL_EINVAL : machine_query(m, &c, now_ms, &r, payload);
    *ret_code = r.code;
    return rc == 0 && r.code == MACHINE_DONE &&
           machine_page_open(payload->data, payload->len, ret) == 0;
}

static void put_hot_now(const struct page_view *v, struct fli_slice name, struct fli_json *j)
{
    struct fli_buf payload;
    struct machine_page page;
    struct machine_lock_view lock;
    uint8_t code = 0;
    fli_buf_init(&payload, PAYLOAD_MAX);
    bool found = show(v, name, &payload, &page, &code) && machine_page_next_lock(&page, &lock) == 1;
    fli_json_u64(j, "waiters", found ? lock.waiters : 0);
    fli_json_u64(j, "holders", found ? lock.holders : 0);
    fli_buf_fini(&payload);
}

static void put_hot(const struct page_view *v, struct fli_json *j)
{
    const struct busiest_entry *top[PAGE_BUSIEST];
    unsigned n = busiest_top(&v->stats->busiest, top, PAGE_BUSIEST);
    fli_json_array(j, "hot");
    for (unsigned i = 0; i < n; i++) {
        struct fli_slice name = {top[i]->name, top[i]->name_len};
        if (!may_see(v, name)) {
            continue;
        }
        fli_json_object(j, NULL);
        fli_json_percent(j, "name", name);
        fli_json_u64(j, "waited_ms", top[i]->weight);
        fli_json_u64(j, "over_ms", top[i]->over);
        fli_json_u64(j, "waits", top[i]->waits);
        fli_json_u64(j, "longest_ms", top[i]->longest);
        fli_json_u64(j, "refused", top[i]->refused);
        put_hot_now(v, name, j);
        fli_json_end_object(j);
    }
    fli_json_end_array(j);
}

/* The first of the locks that are held: who has them, and for how long. */
static void put_locks(const struct page_view *v, struct fli_json *j)
{
    struct machine_command c = {.op = MACHINE_OP_LOCKS, .number = PAGE_LOCKS};
    struct machine_result r = {.code = MACHINE_NOTFOUND};
    struct machine_page page;
    struct machine_lock_view lock;
    struct fli_buf payload;
    fli_buf_init(&payload, PAYLOAD_MAX);
    fli_json_array(j, "held_locks");
    if (v->info->machine != NULL &&
        machine_query(v->info->machine, &c, v->info->status.clock_ms, &r, &payload) == 0 &&
        r.code == MACHINE_DONE && machine_page_open(payload.data, payload.len, &page) == 0) {
        while (machine_page_next_lock(&page, &lock) == 1) {
            fli_json_object(j, NULL);
            fli_json_percent(j, "name", lock.name);
            fli_json_u64(j, "waiters", lock.waiters);
            put_grant(v, &lock, j);
            fli_json_end_object(j);
        }
    }
    fli_json_end_array(j);
    fli_buf_fini(&payload);
}

int page_state(const struct page_view *v, struct fli_buf *out)
{
    struct fli_json j;
    fli_json_init(&j, out);
    fli_json_object(&j, NULL);
    put_node(v, &j);
    put_counts(v, &j);
    fli_json_array(&j, "members");
    for (size_t i = 0; i < v->info->members_n; i++) {
        put_member(&v->info->members[i], &j);
    }
    fli_json_end_array(&j);
    put_hot(v, &j);
    put_locks(v, &j);
    put_all_series(v->series, &j);
    fli_json_end_object(&j);
    return j.rc;
}

static void put_holder(const struct page_view *v, const struct machine_lock_view *l,
                       struct fli_json *j)
{
    fli_json_object(j, NULL);
    put_grant(v, l, j);
    fli_json_end_object(j);
}

static void put_waiter(const struct machine_session_view *s, struct fli_json *j)
{
    fli_json_object(j, NULL);
    fli_json_percent(j, "owner", s->owner);
    fli_json_percent(j, "label", s->label);
    fli_json_end_object(j);
}

static void put_lock(const struct page_view *v, struct machine_page *page, struct fli_json *j)
{
    struct machine_lock_view first;
    struct machine_session_view waiter;
    if (machine_page_next_lock(page, &first) != 1) {
        return;
    }
    static const char *const states[] = {"", "held", "delayed", "queued"};
    FLI_ASSERT(first.state < 4);
    fli_json_text(j, "state", states[first.state]);
    fli_json_u64(j, "holders_n", first.holders);
    fli_json_u64(j, "waiters_n", first.waiters);
    fli_json_u64(j, "permits", first.permits);
    put_left(v, first.ttl_left_ms, j);
    fli_json_bool(j, "shared", first.mode == MACHINE_LOCK_SHARED);
    fli_json_array(j, "holders");
    struct machine_lock_view next = first;
    for (uint32_t i = 0; i < first.holders; i++) {
        put_holder(v, &next, j);
        if (i + 1 < first.holders &&
            (!machine_page_is_at_lock(page) || machine_page_next_lock(page, &next) != 1)) {
            break;
        }
    }
    fli_json_end_array(j);
    fli_json_array(j, "queue");
    while (machine_page_next_session(page, &waiter) == 1) {
        put_waiter(&waiter, j);
    }
    fli_json_end_array(j);
}

static void put_events(const struct page_view *v, struct fli_slice name, struct fli_json *j)
{
    struct history_event events[HISTORY_EVENTS];
    unsigned n = history_get(&v->stats->history, name, events);
    fli_json_array(j, "events");
    for (unsigned i = 0; i < n; i++) {
        const struct history_event *e = &events[i];
        fli_json_object(j, NULL);
        fli_json_text(j, "what", history_what_name(e->what));
        fli_json_u64(j, "clock", e->clock_ms);
        fli_json_u64(j, "since", e->since_ms);
        fli_json_u64(j, "token", e->token);
        fli_json_u64(j, "wait", e->wait);
        fli_json_percent(j, "owner", (struct fli_slice){e->owner, e->owner_len});
        fli_json_end_object(j);
    }
    fli_json_end_array(j);
}

int page_lock(const struct page_view *v, struct fli_slice name, struct fli_buf *out)
{
    struct fli_json j;
    struct fli_buf payload;
    struct machine_page page;
    if (!may_see(v, name)) {
        return FL_ENOTFOUND;
    }
    fli_buf_init(&payload, PAYLOAD_MAX);
    fli_json_init(&j, out);
    fli_json_object(&j, NULL);
    fli_json_percent(&j, "name", name);
    fli_json_u64(&j, "clock", v->info->machine == NULL ? 0 : v->info->status.clock_ms);
    uint8_t code = 0;
    if (show(v, name, &payload, &page, &code)) {
        put_lock(v, &page, &j);
    } else {
        fli_json_text(&j, "state", code == MACHINE_LIMIT ? "not known yet" : "free");
    }
    put_events(v, name, &j);
    fli_json_end_object(&j);
    fli_buf_fini(&payload);
    history_follow(&v->stats->history, name);
    return j.rc;
}
