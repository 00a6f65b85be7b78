/* raft_guard_append.c: see raft_guard_append.h. */
#include "consensus/raft_guard_append.h"

#include <stdio.h>

#include "base/clock.h"
#include "consensus/cut.h"

#define WHAT "write log entries to disk"

struct guarded_append {
    struct fli_list link;
    struct raft_io_append inner;
    struct raft_io_append *outer;
    raft_io_append_cb cb;
    struct raft_guard *g;
    uint64_t start_ns;
    const struct raft_entry *entries; /* raft's, until its callback */
    unsigned n;
    raft_index cut_at; /* the first write behind a cut at this index; 0: it is not */
};

static struct guarded_append *first_of(const struct fli_list *list)
{
    return FLI_CONTAINER_OF(list->next, struct guarded_append, link);
}

/* ---- cuts, see cut.h ---- */

static void cut_failed(struct raft_guard *g, const char *why)
{
    char message[1024];
    snprintf(message, sizeof message,
             "cannot cut the log off: %s: see what is wrong with the disk (is it full?), then "
             "start this node again",
             why);
    guard_end(g, message);
}

/* The smallest index of the cuts that nothing on disk shows yet, but for the one before `done`; 0:
 * there is none. */
static raft_index pending_cut(const struct raft_guard *g, const struct guarded_append *done)
{
    raft_index at = g->cut_at;
    FLI_LIST_FOREACH(link, &g->appending)
    {
        const struct guarded_append *a = FLI_CONTAINER_OF(link, struct guarded_append, link);
        if (a != done && a->cut_at != 0 && (at == 0 || a->cut_at < at)) {
            at = a->cut_at;
        }
    }
    return at;
}

bool guard_cut(struct raft_guard *g, raft_index index)
{
    char why[512];
    raft_index before = pending_cut(g, NULL);
    raft_index at = before != 0 && before < index ? before : index;
    if (g->path != NULL && cut_begin(g->path, at, why, sizeof why) != 0) {
        cut_failed(g, why);
        return false;
    }
    g->cut_at = index;
    g->next_index = index;
    return true;
}

/* The first write behind a cut is on disk. When the log was cut again since, the intention that
 * remains is that one. */
static void end_cut(struct raft_guard *g, const struct guarded_append *done)
{
    char why[512];
    raft_index at = pending_cut(g, done);
    int rv = cut_look(g->path, done->cut_at, why, sizeof why);
    if (rv == 0) {
        rv = at == 0 ? cut_forget(g->path, why, sizeof why)
                     : cut_begin(g->path, at, why, sizeof why);
    }
    if (rv != 0) {
        cut_failed(g, why);
    }
}

/* ---- writes ---- */

static void append_cb(struct raft_io_append *inner, int status)
{
    struct guarded_append *a = FLI_CONTAINER_OF(inner, struct guarded_append, inner);
    struct raft_guard *g = a->g;
    struct raft_io_append *outer = a->outer;
    raft_io_append_cb cb = a->cb;
    if (status == 0 && a->cut_at != 0 && g->path != NULL && !g->failed) {
        end_cut(g, a);
    }
    if (status == 0) {
        uint64_t ns = fli_clock_ns() - a->start_ns;
        g->stats.appends++;
        g->stats.entries += a->n;
        g->stats.append_ns_sum += ns;
        if (g->stats.append_ns_max < ns) {
            g->stats.append_ns_max = ns;
        }
    } else if (status != RAFT_CANCELED) {
        guard_fail(g, WHAT, status);
    }
    fli_list_remove(&a->link);
    raft_free(a);
    cb(outer, g->failed && status == 0 ? RAFT_CANCELED : status);
}

static int append_inner(struct raft_guard *g, struct guarded_append *a)
{
    fli_list_push(&g->appending, &a->link);
    a->cut_at = g->cut_at;
    g->cut_at = 0;
    int rv = g->inner->append(g->inner, &a->inner, a->entries, a->n, append_cb);
    if (rv != 0) {
        fli_list_remove(&a->link);
    }
    return guard_must(g, WHAT, rv);
}

int guard_append(struct raft_io *io, struct raft_io_append *req, const struct raft_entry entries[],
                 unsigned n, raft_io_append_cb cb)
{
    struct raft_guard *g = guard_of(io);
    struct guarded_append *a = raft_malloc(sizeof *a);
    if (a == NULL) {
        return guard_must(g, WHAT, RAFT_NOMEM);
    }
    *a = (struct guarded_append){
        .outer = req, .cb = cb, .g = g, .start_ns = fli_clock_ns(), .entries = entries, .n = n};
    g->next_index += n;
    if (g->failed) {
        fli_list_push(&g->held, &a->link);
        return 0; /* it waits for the close */
    }
    if (g->delays) {
        fli_list_push(&g->delayed, &a->link);
        return 0;
    }
    int rv = append_inner(g, a);
    if (rv != 0) {
        raft_free(a);
    }
    return rv;
}

void raft_guard_delay_appends(struct raft_guard *g)
{
    FLI_ASSERT(!g->delays && fli_list_empty(&g->delayed));
    g->delays = true;
}

void guard_append_delayed(struct raft_guard *g)
{
    while (!fli_list_empty(&g->delayed)) {
        struct guarded_append *a = first_of(&g->delayed);
        fli_list_remove(&a->link);
        /* Raft was told that it is on its way, so one that is refused waits for the close. */
        if (g->failed || append_inner(g, a) != 0) {
            fli_list_push(&g->held, &a->link);
        }
    }
}

void raft_guard_append_now(struct raft_guard *g)
{
    g->delays = false;
    guard_append_delayed(g);
}

void guard_cancel_appends(struct raft_guard *g)
{
    fli_list_splice(&g->held, &g->delayed);
    while (!fli_list_empty(&g->held)) {
        struct guarded_append *a = first_of(&g->held);
        struct raft_io_append *outer = a->outer;
        raft_io_append_cb cb = a->cb;
        fli_list_remove(&a->link);
        raft_free(a);
        cb(outer, RAFT_CANCELED);
    }
}

uint64_t guard_append_waiting_ns(const struct raft_guard *g)
{
    return fli_list_empty(&g->appending) ? 0 : fli_clock_ns() - first_of(&g->appending)->start_ns;
}
