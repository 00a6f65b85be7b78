/* readiness.c: see readiness.h. */
#include "server/readiness.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

struct check {
    struct fli_buf *out;
    bool ready;
};

static void FLI_PRINTF(3, 4) line(struct check *c, bool ok, const char *fmt, ...)
{
    char text[256];
    va_list args;
    c->ready = c->ready && ok;
    if (c->out == NULL) {
        return;
    }
    va_start(args, fmt);
    (void)vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    if (fli_buf_printf(c->out, "[%c] %s\n", ok ? '+' : '-', text) != 0) {
        c->out = NULL; /* the buffer is full; only the result matters now */
    }
}

/* Whether commands from here reach a leader now. */
static bool reaches_leader(const struct readiness_facts *f)
{
    const struct node_status *s = f->status;
    if (s->leader_id == 0) {
        return false;
    }
    for (size_t i = 0; i < f->members_n; i++) {
        if (f->members[i].id == s->leader_id) {
            return f->members[i].connected;
        }
    }
    return false;
}

static void check_leader(struct readiness *r, const struct readiness_facts *f, struct check *c)
{
    const struct node_status *s = f->status;
    if (reaches_leader(f)) {
        r->apart_since_ms = 0;
        line(c, true, "leader: node %" PRIu64 "%s, term %" PRIu64, s->leader_id,
             s->leader_id == s->id ? ", which is this one" : "", s->term);
        return;
    }
    r->apart_since_ms = r->apart_since_ms == 0 ? f->now_ms : r->apart_since_ms;
    uint64_t apart_ms = f->now_ms - r->apart_since_ms;
    bool held = apart_ms <= f->hold_ms;
    if (s->leader_id == 0) {
        line(c, held, "leader: none known for %" PRIu64 " ms; requests are held for %u ms%s",
             apart_ms, f->hold_ms, held ? "" : ", then refused with NOLEADER");
    } else {
        line(c, held,
             "leader: node %" PRIu64 " has not been reached for %" PRIu64
             " ms; requests are held for %u ms",
             s->leader_id, apart_ms, f->hold_ms);
    }
}

bool readiness_check(struct readiness *r, const struct readiness_facts *f, struct fli_buf *out)
{
    struct check c = {.out = out, .ready = true};
    const struct node_status *s = f->status;
    if (f->stopping || s->role == NODE_STOPPED) {
        line(&c, false, "process: it is stopping");
    } else {
        line(&c, true, "process: running");
    }
    if (!f->formed && s->founds) {
        line(&c, false,
             "cluster: not formed yet; for its first start every member must be up at once");
    } else if (!f->formed) {
        line(&c, false, "cluster: nothing of its state is here yet");
    } else {
        line(&c, true, "cluster: formed, %zu member%s", f->members_n, fli_s(f->members_n));
    }
    check_leader(r, f, &c);
    /* The other nodes commit without a follower's disk. */
    if (s->log.waiting_for_segment && s->role == NODE_LEADER) {
        line(&c, false, "disk: the log has no room to write; free some, or look for a slow disk");
    } else if (s->log.waiting_for_segment) {
        line(&c, true,
             "disk: the log of this follower waits for room; the others go on without it");
    } else {
        line(&c, true, "disk: the log can be written");
    }
    return c.ready;
}
