/* fencelock_cmd_show.c: the commands that show locks, queues and sessions. */
#include <inttypes.h>
#include <string.h>

#include "base/clock.h"
#include "cli/fencelock_common.h"

#define LIMIT_DEFAULT UINT64_C(1000)
#define PAGE_MAX UINT64_C(1000)

static const char *const state_words[] = {"unknown", "held", "delayed", "queued"};
static const char *const mode_words[] = {"exclusive", "shared", "permits"};

static enum cli_colour state_colour(enum fl_lock_state state)
{
    return state == FL_LOCK_HELD ? CLI_GREEN : CLI_YELLOW;
}

/* Who holds it: whom `fencelock run` has named, else the label, the value or the owner. */
static struct fl_bytes who_of(const struct fl_lock_info *l, char room[CLI_WHO_SIZE])
{
    struct fl_bytes who = cli_who(l->owner, room);
    return who.data == room ? who : l->label.len > 0 ? l->label : l->value.len > 0 ? l->value : who;
}

/* ---- show ------------------------------------------------------------------------------------ */

static void put_holder(struct cli_list *f, const struct fl_holder *h)
{
    char room[CLI_WHO_SIZE];
    struct fl_bytes who = cli_who(h->owner, room);
    cli_list_u64(f, "token", "token", CLI_PLAIN, h->token);
    cli_list_bytes(f, NULL, "holder", CLI_PLAIN, who.data == room ? who : fl_str(""));
    cli_list_bytes(f, "owner", h->session ? "session" : "owner", CLI_PLAIN, h->owner);
    cli_list_bool(f, "session", NULL, CLI_PLAIN, h->session, "");
    cli_list_bytes(f, "label", "label", CLI_PLAIN, h->label);
    cli_list_bytes(f, "value", "value", CLI_PLAIN, h->value);
    cli_list_bytes(f, "user", "user", CLI_PLAIN, h->user);
    cli_list_count(f, "age_ms", h->age_ms);
    cli_list_count(f, "renewals", h->renewals);
    f->none = f->none || h->address.len == 0;
    cli_list_bytes(f, "address", "address", CLI_PLAIN, h->address);
}

/* How long ago it was granted, and when that was by this machine's clock. */
static void put_since(struct cli_list *f, const struct fl_lock_info *l)
{
    char age[CLI_DURATION_SIZE];
    char when[FLI_UTC_SIZE];
    uint64_t now_ms = fli_clock_wall_ms();
    fli_utc(when, now_ms > l->age_ms ? now_ms - l->age_ms : 0);
    cli_format_duration(age, l->age_ms);
    cli_list_say(f, "since", "%s, %s ago", when, age);
    cli_list_say(f, "renewed", "%" PRIu64 " time%s", l->renewals, fli_s(l->renewals));
}

/* What a lock with a holder has, without one is null. */
static void put_lock(struct cli_list *f, const struct fl_lock_info *l)
{
    const struct fl_holder holder = {.token = l->token,
                                     .owner = l->owner,
                                     .session = l->session,
                                     .label = l->label,
                                     .value = l->value,
                                     .age_ms = l->age_ms,
                                     .user = l->user,
                                     .address = l->address,
                                     .renewals = l->renewals};
    const char *left = l->state != FL_LOCK_QUEUED ? "ttl left" : NULL;
    cli_list_bytes(f, "name", "lock", CLI_PLAIN, l->name);
    cli_list_text(f, "state", "state", state_colour(l->state), state_words[l->state]);
    f->none = l->state != FL_LOCK_HELD;
    cli_list_text(f, "mode", NULL, CLI_PLAIN, mode_words[l->mode]);
    put_holder(f, &holder);
    f->none = l->state != FL_LOCK_HELD;
    put_since(f, l);
    f->none = false;
    cli_list_ms(f, "ttl_left_ms", left, CLI_PLAIN, l->ttl_left_ms);
    cli_list_count(f, "waiters", l->waiters);
    cli_list_count(f, "permits", l->permits);
    cli_list_count(f, "holders", l->holders);
    cli_list_count(f, "together", l->together);
}

/* All holders; in text the mode, if others may hold the lock too, and those after the oldest. */
static void put_holders(struct cli_out *o, struct cli_list *f, const struct fl_lock_info *l)
{
    bool several = l->state == FL_LOCK_HELD && l->mode != FL_MODE_EXCLUSIVE;
    if (several && l->mode == FL_MODE_SHARED) {
        cli_list_say(f, "mode", "shared by %" PRIu64, l->holders);
    } else if (several) {
        cli_list_say(f, "mode", "%" PRIu64 " of %" PRIu64 " permits", l->holders, l->permits);
    }
    fli_json_array(&o->j, "held_by");
    for (size_t i = 0; i < l->held_by_len; i++) {
        const struct fl_holder *h = l->held_by[i];
        char left[CLI_DURATION_SIZE];
        fli_json_object(&o->j, NULL);
        f->none = false; /* the one before may have no address */
        cli_list_count(f, "ttl_left_ms", h->ttl_left_ms);
        if (o->json) {
            put_holder(f, h);
        } else if (several && i > 0) {
            cli_format_duration(left, h->ttl_left_ms);
            cli_text(o, "and token %" PRIu64 ", ttl left %s, ", h->token, left);
            cli_text_safe(o, h->owner);
            cli_text(o, "\n");
        }
        fli_json_end_object(&o->j);
    }
    fli_json_end_array(&o->j);
}

static void put_queue(struct cli_out *o, const struct fl_lock_info *l)
{
    char room[CLI_WHO_SIZE];
    fli_json_array(&o->j, "queue");
    for (size_t i = 0; i < l->queue_len; i++) {
        const struct fl_waiter *w = l->queue[i];
        fli_json_object(&o->j, NULL);
        fli_json_bytes(&o->j, "owner", w->owner);
        fli_json_bool(&o->j, "session", w->session);
        fli_json_bytes(&o->j, "label", w->label);
        fli_json_end_object(&o->j);
        cli_text(o, "%8zu. ", i + 1);
        cli_text_safe(o, cli_who(w->owner, room));
        cli_text(o, w->label.len > 0 ? "  " : "");
        cli_text_safe(o, w->label);
        cli_text(o, "\n");
    }
    fli_json_end_array(&o->j);
    if (l->waiters > l->queue_len && l->queue_len > 0) {
        cli_text(o, "%8s  and %" PRIu64 " more\n", "", l->waiters - l->queue_len);
    }
}

static int show_lock(const struct cli_args *a, const struct fl_lock_info *l)
{
    struct cli_out o = cli_result(a);
    struct cli_list f;
    cli_list_one(&f, &o, 10);
    if (l == NULL) {
        fli_json_bytes(&o.j, "name", cli_name_of(a));
        fli_json_text(&o.j, "state", "free");
        cli_text_safe(&o, cli_name_of(a));
        cli_text(&o, ": free\n");
    } else {
        put_lock(&f, l);
        put_holders(&o, &f, l);
        if (l->state == FL_LOCK_HELD && l->together > 1) {
            cli_list_say(&f, "together", "with %" PRIu64 " more, under one token", l->together - 1);
        }
        cli_list_u64(&f, NULL, "waiters", CLI_PLAIN, l->waiters);
        put_queue(&o, l);
    }
    cli_out_end(&o);
    return l == NULL ? CLI_EXIT_NO : CLI_EXIT_DONE;
}

int cli_run_show(const struct cli_args *a, fl_client *c)
{
    return cli_with_lock(a, c, show_lock);
}

/* ---- queue ----------------------------------------------------------------------------------- */

static int show_queue(const struct cli_args *a, const struct fl_lock_info *lock)
{
    static const struct fl_lock_info nobody;
    const struct fl_lock_info *l = lock != NULL ? lock : &nobody;
    struct cli_out o = cli_result(a);
    struct cli_list t;
    fli_json_bytes(&o.j, "name", fl_str(a->arg[0]));
    fli_json_u64(&o.j, "waiters", l->waiters);
    cli_list_begin(&t, &o, "queue");
    for (size_t i = 0; i < l->queue_len; i++) {
        const struct fl_waiter *s = l->queue[i];
        char who[CLI_WHO_SIZE];
        cli_list_row(&t);
        cli_list_u64(&t, "place", "PLACE", CLI_BOLD, i + 1);
        cli_list_shown(&t, "owner", "OWNER", CLI_PLAIN, s->owner, cli_who(s->owner, who));
        cli_list_bool(&t, "session", NULL, CLI_PLAIN, s->session, "");
        cli_list_bytes(&t, "label", "LABEL", CLI_DIM, s->label);
    }
    cli_list_end(&t);
    if (l->queue_len == 0 && o.terminal) {
        cli_text(&o, "nobody waits\n");
    } else if (l->queue_len > 0 && l->waiters > l->queue_len && !o.json) {
        cli_complain("and %" PRIu64 " more", l->waiters - l->queue_len);
    }
    cli_out_end(&o);
    return CLI_EXIT_DONE;
}

int cli_run_queue(const struct cli_args *a, fl_client *c)
{
    return cli_with_lock(a, c, show_queue);
}

/* ---- lists that come page by page ------------------------------------------------------------ */

struct pages {
    const struct cli_args *args;
    struct cli_list list;
    uint64_t left;          /* so many may still be shown */
    uint64_t count;         /* so many are asked for */
    bool more;              /* there are, beyond what is shown */
    struct fl_bytes cursor; /* empty: at the beginning, and behind the last page */
    char room[512];
};

/* A page has come. How many of its things are to be shown. */
static size_t pages_take(struct pages *p, size_t len, struct fl_bytes next)
{
    size_t n = len < p->left ? len : (size_t)p->left;
    p->left -= n;
    p->more = next.len > 0 || len > n;
    p->cursor = (struct fl_bytes){p->room, next.len <= sizeof p->room ? next.len : 0};
    memcpy(p->room, next.data, p->cursor.len);
    return n;
}

/* Prints the list. add: asks for a page, and adds its things to the list. Returns the exit code. */
static int pages_run(const struct cli_args *a, fl_client *c, const char *thing,
                     void (*add)(struct pages *p, fl_client *c))
{
    struct cli_out o = cli_result(a);
    char key[16];
    struct pages p = {.args = a, .left = cli_number(a, CLI_OPT_LIMIT, LIMIT_DEFAULT)};
    snprintf(key, sizeof key, "%ss", thing);
    cli_list_begin(&p.list, &o, key);
    do { /* one thing is enough to see whether there is any */
        p.count = p.left == 0 ? 1 : p.left < PAGE_MAX ? p.left : PAGE_MAX;
        add(&p, c);
    } while (p.cursor.len > 0 && p.left > 0);
    uint64_t shown = p.list.rows;
    cli_list_end(&p.list);
    fli_json_bool(&o.j, "more", p.more);
    if (shown == 0 && o.terminal) {
        cli_text(&o, "no %s\n", key);
    }
    cli_out_end(&o);
    if (p.more && !o.json) {
        cli_complain("there %s more than %" PRIu64 " %s%s; see more with --limit",
                     shown == 1 ? "is" : "are", shown, thing, fli_s(shown));
    }
    return CLI_EXIT_DONE;
}

/* ---- locks ----------------------------------------------------------------------------------- */

static void add_lock(struct cli_list *t, const struct fl_lock_info *l)
{
    bool held = l->state == FL_LOCK_HELD;
    char state[64];
    char holder[CLI_WHO_SIZE];
    cli_list_row(t);
    if (t->out->json) {
        put_lock(t, l);
        return;
    }
    cli_list_bytes(t, NULL, "NAME", CLI_PLAIN, l->name);
    snprintf(state, sizeof state, "%s", state_words[l->state]);
    if (held && l->mode == FL_MODE_SHARED) {
        snprintf(state, sizeof state, "held, shared");
    } else if (held && l->mode == FL_MODE_PERMITS) {
        snprintf(state, sizeof state, "held, %" PRIu64 "/%" PRIu64, l->holders, l->permits);
    }
    cli_list_text(t, NULL, "STATE", state_colour(l->state), state);
    t->none = !held;
    cli_list_u64(t, NULL, "TOKEN", CLI_BOLD, l->token);
    cli_list_ms(t, NULL, "AGE", CLI_PLAIN, l->age_ms);
    t->none = l->state == FL_LOCK_QUEUED;
    cli_list_ms(t, NULL, "TTL LEFT", CLI_PLAIN, l->ttl_left_ms);
    t->none = false;
    cli_list_u64(t, NULL, "WAITERS", l->waiters > 0 ? CLI_YELLOW : CLI_DIM, l->waiters);
    cli_list_bytes(t, NULL, "HOLDER", CLI_PLAIN, who_of(l, holder));
}

static void add_locks(struct pages *p, fl_client *c)
{
    struct fl_result r;
    const struct fl_ask ask = {.what = FL_ASK_LOCKS,
                               .name = fl_str(p->args->text[CLI_OPT_MATCH]),
                               .cursor = p->cursor,
                               .count = p->count};
    (void)cli_call(p->args, c, &ask, 0, &r);
    size_t n = pages_take(p, r.locks->len, r.locks->cursor);
    for (size_t i = 0; i < n; i++) {
        add_lock(&p->list, r.locks->locks[i]);
    }
    fl_lock_list_free(r.locks);
}

int cli_run_locks(const struct cli_args *a, fl_client *c)
{
    return cli_has(a, CLI_OPT_BY) ? cli_run_locks_by(a, c) : pages_run(a, c, "lock", add_locks);
}

/* ---- sessions -------------------------------------------------------------------------------- */

static void add_session(struct cli_list *l, const struct fl_session_info *s)
{
    cli_list_row(l);
    cli_list_bytes(l, "owner", "OWNER", CLI_PLAIN, s->owner);
    cli_list_ms(l, "ttl_ms", "TTL", CLI_PLAIN, s->ttl_ms);
    cli_list_ms(l, "ttl_left_ms", "TTL LEFT", CLI_PLAIN, s->ttl_left_ms);
    cli_list_u64(l, "locks", "LOCKS", CLI_BOLD, s->locks);
    cli_list_ms(l, "lockdelay_ms", "LOCK-DELAY", CLI_DIM, s->lockdelay_ms);
    cli_list_u64(l, "waits", "WAITS", s->waits > 0 ? CLI_YELLOW : CLI_DIM, s->waits);
    cli_list_bytes(l, "label", "LABEL", CLI_DIM, s->label);
}

static void add_sessions(struct pages *p, fl_client *c)
{
    struct fl_result r;
    const struct fl_ask ask = {.what = FL_ASK_SESSIONS, .cursor = p->cursor, .count = p->count};
    (void)cli_call(p->args, c, &ask, 0, &r);
    size_t n = pages_take(p, r.sessions->len, r.sessions->cursor);
    for (size_t i = 0; i < n; i++) {
        add_session(&p->list, r.sessions->sessions[i]);
    }
    fl_session_list_free(r.sessions);
}

int cli_run_sessions(const struct cli_args *a, fl_client *c)
{
    return pages_run(a, c, "session", add_sessions);
}
