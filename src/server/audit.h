/* audit.h: who did what: one line of JSON for each grant, each end of one, each break, refusal and
 * change of users, to a file or to syslog.
 *
 * Lines are made on the loop and written by a thread of their own, so a slow disk holds up nobody.
 * What does not fit while it is slow is counted and left out, and the log has a line that says how
 * many. A file that was renamed or removed is made anew by its name.
 *
 *   {"time":"2026-11-22T20:46:01.123Z","node":1,"event":"granted","lock":"a","token":7,
 *    "user":"ann","address":"10.0.0.7:4711","owner":"...","clock":123456}
 *
 * Every node writes what its own log brings, and refuses; so the file of one node has all grants. A
 * node that starts goes through the end of its log once more: those lines have "again":true. Of a
 * node that was brought up to date by a snapshot, what is in it is missing. */
#ifndef SERVER_AUDIT_H
#define SERVER_AUDIT_H

#include <uv.h>

#include "machine/machine.h"

#define AUDIT_ROOM ((size_t)4 << 20) /* bytes that may wait to be written */

struct audit;

struct audit_counts {
    uint64_t lines, dropped, failures; /* ever; failures: lines that could not be written */
};

/* target: a path, or "syslog". 0; FL_EINVAL with a sentence (it cannot be opened); FL_ENOMEM;
 * FL_ESYSTEM. */
int audit_create(uv_loop_t *loop, const char *target, uint64_t node_id, struct audit **ret,
                 char *errmsg, size_t errmsg_size) FLI_MUST_USE;

void audit_event(struct audit *a, const struct machine_event *e, bool again);
/* A request was refused: by whose, from where, what and why ("NOPERM"). */
void audit_refusal(struct audit *a, const char *user, struct fli_slice address, const char *command,
                   const char *why);

/* Writes what waits, then calls cb, from the loop; the audit is freed by then. */
void audit_close(struct audit *a, void (*cb)(void *ctx), void *ctx);

void audit_get_counts(const struct audit *a, struct audit_counts *ret);

#endif
