/* starts_witness.c: see starts_witness.h. */
#include "members/starts_witness.h"

#include <errno.h>
#include <string.h>

/* Whether the directory and its witness fit each other. It may have been started without it, and
 * either may be an older copy. */
static int check(const char *path, const struct witness_view *view, const struct record *witness,
                 char *errmsg, size_t errmsg_size)
{
    const struct starts *s = &view->record->starts;
    const struct starts *w = &witness->starts;
    if (view->record->identity.incarnation != witness->identity.incarnation) {
        return fli_refuse(
            errmsg, errmsg_size, FL_EDENIED,
            "the witness %s belongs to another data directory than %s: name the right one, "
            "or another file; if the directory is a new one in the place of another, start "
            "once with --witness-reset",
            path, view->directory);
    }
    bool fits = start_is(s->own, w->own) || start_is(s->own, w->next);
    if ((!fits && start_is_past(s->own, w->own)) || view->term < w->term ||
        view->last_index < w->index) {
        return fli_refuse(
            errmsg, errmsg_size, FL_EDENIED,
            "the data directory %s is an older copy, says the witness %s: put the newest "
            "one back. If it is lost, replace the member (fencelock cluster replace). A "
            "node alone begins anew with fencelockd --recover-from %s --tokens-above N",
            view->directory, path, view->directory);
    }
    return fits ? 0
                : fli_refuse(
                      errmsg, errmsg_size, FL_EDENIED,
                      "the witness %s is older than the data directory %s: it was put back, or "
                      "the node has run without it; if the directory is the newest one, start "
                      "once with --witness-reset",
                      path, view->directory);
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
        return fli_refuse(
            errmsg, errmsg_size, FL_EDENIED,
            "there is no witness %s: look whether its disk is there; if the data directory "
            "%s is the newest one, start once with --witness-reset",
            path, view->directory);
    }
    if (rv == FL_ECORRUPT || rv == FL_EVERSION) {
        return fli_refuse(
            errmsg, errmsg_size, rv,
            "%s is no witness, or damaged: if the data directory %s is the newest one, move "
            "that file away and start once with --witness-reset",
            path, view->directory);
    }
    return rv == 0 ? check(path, view, ret, errmsg, errmsg_size)
                   : fli_refuse(errmsg, errmsg_size, rv, "cannot read the witness %s: %s", path,
                                strerror(errno));
}

static int write_witness(const char *path, struct record *w, char *errmsg, size_t errmsg_size)
{
    int rv = record_write(path, w);
    return rv == 0 ? 0
                   : fli_refuse(errmsg, errmsg_size, rv, "cannot write the witness %s: %s", path,
                                strerror(errno));
}

int witness_begin(const char *path, bool reset, const struct witness_view *view, struct start next,
                  struct record *ret, char *errmsg, size_t errmsg_size)
{
    *ret = (struct record){.identity = view->record->identity};
    int rv = reset ? 0 : read_witness(path, view, ret, errmsg, errmsg_size);
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
