/* page_state.c: see page_state.h. */
#include "server/page_state.h"

#include <inttypes.h>
#include <stdio.h>

#include "machine/view.h"
#include "metrics/json.h"

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

static void put_series(const struct page_series *s, struct json *j, const char *key, size_t offset)
{
    uint64_t n = s->n < PAGE_SECONDS ? s->n : PAGE_SECONDS;
    json_open(j, key, '[');
    for (uint64_t k = s->n - n; k < s->n; k++) {
        const struct page_second *at = &s->seconds[k % PAGE_SECONDS];
        json_number(j, NULL, *(const uint32_t *)(const void *)((const char *)at + offset));
    }
    json_close(j, ']');
}

static void put_all_series(const struct page_series *s, struct json *j)
{
    json_open(j, "series", '{');
    put_series(s, j, "grants", offsetof(struct page_second, grants));
    put_series(s, j, "refused", offsetof(struct page_second, refused));
    put_series(s, j, "lost", offsetof(struct page_second, lost));
    put_series(s, j, "waits", offsetof(struct page_second, waits));
    put_series(s, j, "leader", offsetof(struct page_second, leader));
    json_close(j, '}');
}

/* ---- this node and the others ---- */

static const char *role_text(enum node_role role)
{
    return role == NODE_LEADER      ? "leader"
           : role == NODE_CANDIDATE ? "candidate"
           : role == NODE_FOLLOWER  ? "follower"
                                    : "stopped";
}

static void put_node(const struct page_view *v, struct json *j)
{
    const struct node_status *s = &v->info->status;
    uint64_t writes = s->log_writes == 0 ? 1 : s->log_writes;
    json_number(j, "node", s->id);
    json_text(j, "version", FL_VERSION);
    json_flag(j, "ready", v->ready);
    json_flag(j, "formed", v->formed);
    json_text(j, "role", role_text(s->role));
    json_number(j, "leader", s->leader_id);
    json_number(j, "leader_changes", s->leader_changes);
    json_number(j, "term", s->term);
    json_number(j, "commit", s->commit_index);
    json_number(j, "applied", s->applied_index);
    json_number(j, "last", s->last_index);
    json_number(j, "uptime_ms", v->info->server_facts.uptime_ms);
    json_number(j, "connections", v->info->server_facts.connections);
    json_open(j, "log", '{');
    json_number(j, "bytes", s->log_bytes);
    json_flag(j, "waits", s->log_waits);
    json_number(j, "sync_avg_us", s->log_write_ns_sum / writes / 1000);
    json_number(j, "sync_max_us", s->log_write_ns_max / 1000);
    json_close(j, '}');
}

/* What the node last reported; a report that is too old is left out. */
static void put_report(const struct node_report *r, struct json *j)
{
    json_text(j, "role", role_text(r->role));
    json_number(j, "term", r->term);
    json_number(j, "lag", r->lag);
    json_flag(j, "log_waits", r->log_waits);
    if (r->disk_bytes > 0) {
        json_number(j, "disk_bytes", r->disk_bytes);
        json_number(j, "disk_free_bytes", r->disk_free_bytes);
    }
}

static void put_member(const struct node_member *m, struct json *j)
{
    json_open(j, NULL, '{');
    json_number(j, "id", m->id);
    json_text(j, "peer", m->peer_address);
    json_text(j, "client", m->client_address);
    json_flag(j, "self", m->self);
    json_flag(j, "leader", m->leader);
    json_flag(j, "voter", m->voter);
    json_flag(j, "connected", m->connected);
    if (m->report != NULL) {
        put_report(m->report, j);
    }
    json_close(j, '}');
}

static void put_counts(const struct page_view *v, struct json *j)
{
    struct machine *m = v->info->machine;
    struct machine_counts c;
    if (m == NULL) {
        return;
    }
    machine_get_counts(m, &c);
    json_number(j, "clock", machine_clock(m));
    json_number(j, "last_token", machine_last_token(m));
    json_number(j, "locks", c.locks);
    json_number(j, "held", c.locks_held);
    json_number(j, "sessions", c.sessions);
    json_number(j, "waits", c.waits);
    json_number(j, "grants", c.grants);
    json_number(j, "expiries", c.expiries);
    json_number(j, "breaks", c.breaks);
}

/* ---- one lock ---- */

static void put_grant(const struct machine_lock_view *l, struct json *j)
{
    json_bytes(j, "owner", l->owner);
    json_bytes(j, "label", l->label);
    json_bytes(j, "value", l->value);
    json_number(j, "token", l->token);
    json_number(j, "since", l->since_ms);
    json_number(j, "left_ms", l->ttl_left_ms);
    json_number(j, "renewals", l->renewals);
}

/* The page has no login, so it shows what a client without one may see. */
static bool may_see(const struct page_view *v, struct fli_slice name)
{
    uint64_t steps = 0;
    return v->info->machine == NULL || machine_may_see(v->info->machine, 0, name, &steps);
}

/* False: there is nothing to show, or, with the code LIMIT, it cannot be told yet. */
static bool show(struct machine *m, struct fli_slice name, struct fli_buf *payload,
                 struct machine_page *ret, uint8_t *ret_code)
{
    struct machine_command c = {.op = MACHINE_OP_SHOW, .name = name};
    struct machine_result r = {.code = MACHINE_NOTFOUND};
    int rc = m == NULL ? FL_EINVAL : machine_query(m, &c, &r, payload);
    *ret_code = r.code;
    return rc == 0 && r.code == MACHINE_DONE &&
           machine_page_open(payload->data, payload->len, ret) == 0;
}

static void put_hot_now(const struct page_view *v, struct fli_slice name, struct json *j)
{
    struct fli_buf payload;
    struct machine_page page;
    struct machine_lock_view lock;
    uint8_t code = 0;
    fli_buf_init(&payload, PAYLOAD_MAX);
    bool found = show(v->info->machine, name, &payload, &page, &code) &&
                 machine_page_next_lock(&page, &lock) == 1;
    json_number(j, "waiters", found ? lock.waiters : 0);
    json_number(j, "holders", found ? lock.holders : 0);
    fli_buf_fini(&payload);
}

static void put_hot(const struct page_view *v, struct json *j)
{
    const struct busiest_entry *top[PAGE_BUSIEST];
    unsigned n = busiest_top(&v->stats->busiest, top, PAGE_BUSIEST);
    json_open(j, "hot", '[');
    for (unsigned i = 0; i < n; i++) {
        struct fli_slice name = {top[i]->name, top[i]->name_len};
        if (!may_see(v, name)) {
            continue;
        }
        json_open(j, NULL, '{');
        json_bytes(j, "name", name);
        json_number(j, "waited_ms", top[i]->weight);
        json_number(j, "over_ms", top[i]->over);
        json_number(j, "waits", top[i]->waits);
        json_number(j, "longest_ms", top[i]->longest);
        json_number(j, "refused", top[i]->refused);
        put_hot_now(v, name, j);
        json_close(j, '}');
    }
    json_close(j, ']');
}

/* The first of the locks that are held: who has them, and for how long. */
static void put_locks(const struct page_view *v, struct json *j)
{
    struct machine_command c = {.op = MACHINE_OP_LOCKS, .number = PAGE_LOCKS};
    struct machine_result r = {.code = MACHINE_NOTFOUND};
    struct machine_page page;
    struct machine_lock_view lock;
    struct fli_buf payload;
    fli_buf_init(&payload, PAYLOAD_MAX);
    json_open(j, "held_locks", '[');
    if (v->info->machine != NULL && machine_query(v->info->machine, &c, &r, &payload) == 0 &&
        r.code == MACHINE_DONE && machine_page_open(payload.data, payload.len, &page) == 0) {
        while (machine_page_next_lock(&page, &lock) == 1) {
            json_open(j, NULL, '{');
            json_bytes(j, "name", lock.name);
            json_number(j, "waiters", lock.waiters);
            put_grant(&lock, j);
            json_close(j, '}');
        }
    }
    json_close(j, ']');
    fli_buf_fini(&payload);
}

int page_state(const struct page_view *v, struct fli_buf *out)
{
    struct json j;
    json_init(&j, out);
    json_open(&j, NULL, '{');
    put_node(v, &j);
    put_counts(v, &j);
    json_open(&j, "members", '[');
    for (size_t i = 0; i < v->info->members_n; i++) {
        put_member(&v->info->members[i], &j);
    }
    json_close(&j, ']');
    put_hot(v, &j);
    put_locks(v, &j);
    put_all_series(v->series, &j);
    json_close(&j, '}');
    return j.rc;
}

static void put_holder(const struct machine_lock_view *l, struct json *j)
{
    json_open(j, NULL, '{');
    put_grant(l, j);
    json_close(j, '}');
}

static void put_waiter(const struct machine_session_view *s, struct json *j)
{
    json_open(j, NULL, '{');
    json_bytes(j, "owner", s->owner);
    json_bytes(j, "label", s->label);
    json_close(j, '}');
}

static void put_lock(struct machine_page *page, struct json *j)
{
    struct machine_lock_view first;
    struct machine_session_view waiter;
    if (machine_page_next_lock(page, &first) != 1) {
        return;
    }
    static const char *const states[] = {"", "held", "delayed", "queued"};
    FLI_ASSERT(first.state < 4);
    json_text(j, "state", states[first.state]);
    json_number(j, "holders_n", first.holders);
    json_number(j, "waiters_n", first.waiters);
    json_number(j, "permits", first.permits);
    json_number(j, "left_ms", first.ttl_left_ms);
    json_flag(j, "shared", first.mode == MACHINE_LOCK_SHARED);
    json_open(j, "holders", '[');
    struct machine_lock_view next = first;
    for (uint32_t i = 0; i < first.holders; i++) {
        put_holder(&next, j);
        if (i + 1 < first.holders &&
            (!machine_page_is_at_lock(page) || machine_page_next_lock(page, &next) != 1)) {
            break;
        }
    }
    json_close(j, ']');
    json_open(j, "queue", '[');
    while (machine_page_next_session(page, &waiter) == 1) {
        put_waiter(&waiter, j);
    }
    json_close(j, ']');
}

static void put_events(const struct page_view *v, struct fli_slice name, struct json *j)
{
    struct history_event events[HISTORY_EVENTS];
    unsigned n = history_get(&v->stats->history, name, events);
    json_open(j, "events", '[');
    for (unsigned i = 0; i < n; i++) {
        const struct history_event *e = &events[i];
        json_open(j, NULL, '{');
        json_text(j, "what", history_what_name(e->what));
        json_number(j, "clock", e->clock_ms);
        json_number(j, "since", e->since_ms);
        json_number(j, "token", e->token);
        json_number(j, "wait", e->wait);
        json_bytes(j, "owner", (struct fli_slice){e->owner, e->owner_len});
        json_close(j, '}');
    }
    json_close(j, ']');
}

int page_lock(const struct page_view *v, struct fli_slice name, struct fli_buf *out)
{
    struct json j;
    struct fli_buf payload;
    struct machine_page page;
    if (!may_see(v, name)) {
        return FL_ENOTFOUND;
    }
    fli_buf_init(&payload, PAYLOAD_MAX);
    json_init(&j, out);
    json_open(&j, NULL, '{');
    json_bytes(&j, "name", name);
    json_number(&j, "clock", v->info->machine == NULL ? 0 : machine_clock(v->info->machine));
    uint8_t code = 0;
    if (show(v->info->machine, name, &payload, &page, &code)) {
        put_lock(&page, &j);
    } else {
        json_text(&j, "state", code == MACHINE_LIMIT ? "not known yet" : "free");
    }
    put_events(v, name, &j);
    json_close(&j, '}');
    fli_buf_fini(&payload);
    history_follow(&v->stats->history, name);
    return j.rc;
}
