/* starts_witness.c: see starts_witness.h. */
#include "consensus/starts_witness.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

enum witness_verdict {
    WITNESS_FITS,
    WITNESS_OF_ANOTHER, /* it belongs to another directory */
    WITNESS_IS_NEWER,   /* the directory is an older copy */
    WITNESS_IS_OLDER,   /* the directory was started without it, or the witness is an older
                           copy */
};

static enum witness_verdict check(const struct witness_view *view, const struct record *witness)
{
    const struct starts *s = &view->record->starts;
    const struct starts *w = &witness->starts;
    if (view->record->identity.incarnation != witness->identity.incarnation) {
        return WITNESS_OF_ANOTHER;
    }
    bool fits = start_is(s->own, w->own) || start_is(s->own, w->next);
    if ((!fits && start_is_past(s->own, w->own)) || view->term < w->term ||
        view->last_index < w->index) {
        return WITNESS_IS_NEWER;
    }
    return fits ? WITNESS_FITS : WITNESS_IS_OLDER;
}

static int refuse(enum witness_verdict verdict, const char *path, const struct witness_view *view,
                  char *errmsg, size_t errmsg_size)
{
    switch (verdict) {
    case WITNESS_OF_ANOTHER:
        snprintf(
            errmsg, errmsg_size,
            "the witness %s belongs to another data directory than %s: name the right one, "
            "or another file; if the directory is a new one in the place of another, start once "
            "with --witness-reset",
            path, view->directory);
        break;
    case WITNESS_IS_NEWER:
        snprintf(errmsg, errmsg_size,
                 "the data directory %s is an older copy, says the witness %s: put the newest one "
                 "back. If it is lost, replace the member (fencelock cluster replace). A node "
                 "alone begins anew with fencelockd --recover-from %s --tokens-above N",
                 view->directory, path, view->directory);
        break;
    default:
        snprintf(errmsg, errmsg_size,
                 "the witness %s is older than the data directory %s: it was put back, or the node "
                 "has run without it; if the directory is the newest one, start once with "
                 "--witness-reset",
                 path, view->directory);
        break;
    }
    return FL_EDENIED;
}

static int read_witness(const char *path, const struct witness_view *view, struct record *ret,
                        char *errmsg, size_t errmsg_size)
{
    int rv = record_read(path, ret);
    if (rv == FL_ENOTFOUND && view->is_new) {
        *ret = (struct record){.identity = view->record->identity};
        return 0;
    }
    if (rv == FL_ENOTFOUND) {
        snprintf(errmsg, errmsg_size,
                 "there is no witness %s: look whether its disk is there; if the data directory %s "
                 "is the newest one, start once with --witness-reset",
                 path, view->directory);
        return FL_EDENIED;
    }
    if (rv == FL_ECORRUPT || rv == FL_EVERSION) {
        snprintf(errmsg, errmsg_size,
                 "%s is no witness, or damaged: if the data directory %s is the newest one, move "
                 "that file away and start once with --witness-reset",
                 path, view->directory);
    } else if (rv != 0) {
        snprintf(errmsg, errmsg_size, "cannot read the witness %s: %s", path, strerror(errno));
    }
    return rv;
}

static int write_witness(const char *path, struct record *w, char *errmsg, size_t errmsg_size)
{
    int rv = record_write(path, w);
    if (rv != 0) {
        snprintf(errmsg, errmsg_size, "cannot write the witness %s: %s", path, strerror(errno));
    }
    return rv;
}

int witness_begin(const char *path, bool reset, const struct witness_view *view, struct start next,
                  struct record *ret, char *errmsg, size_t errmsg_size)
{
    int rv = 0;
    *ret = (struct record){.identity = view->record->identity};
    if (!reset) {
        rv = read_witness(path, view, ret, errmsg, errmsg_size);
        enum witness_verdict verdict = rv == 0 ? check(view, ret) : WITNESS_FITS;
        rv = verdict == WITNESS_FITS ? rv : refuse(verdict, path, view, errmsg, errmsg_size);
    }
    if (rv != 0) {
        return rv;
    }
    ret->starts.own = view->record->starts.own;
    ret->starts.next = next;
    return write_witness(path, ret, errmsg, errmsg_size);
}

int witness_settle(const char *path, struct record *witness, char *errmsg, size_t errmsg_size)
{
    witness->starts.own = witness->starts.next;
    witness->starts.next = (struct start){.number = 0};
    return write_witness(path, witness, errmsg, errmsg_size);
}
