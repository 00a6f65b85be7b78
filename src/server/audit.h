/* audit.h: one line of JSON, to a file or to syslog, for each grant, its end, each break, each
 * refusal and each change of users.
 *
 * The loop notes what the lines will say, and a thread of their own makes them and writes them; so
 * neither a slow disk nor long names delay anything. Lines that do not fit while the disk is slow
 * are counted and left out; a line in the log says how many. A file that was renamed or removed is
 * made again under its name.
 *
 *   {"time":"2026-11-22T20:46:01.123Z","node":1,"event":"granted","lock":"a","token":7,
 *    "user":"ann","address":"10.0.0.7:4711","owner":"...","clock":123456}
 *
 * Every node writes the events of its own log, and its own refusals; so the file of one node has
 * all grants. A node that starts applies the end of its log once more: those lines have
 * "again":true. Events that a snapshot skipped are missing in that node's file. */
#ifndef SERVER_AUDIT_H
#define SERVER_AUDIT_H

#include <uv.h>

#include "machine/machine.h"

/* Bytes of notes (audit_record.h) that may wait. As many may be with the thread, which makes lines
 * of them, 64 KiB at a time. A note is 32 bytes and the names; its line is longer than that. */
#define AUDIT_ROOM ((size_t)4 << 20)

struct audit;

struct audit_counts {
    uint64_t lines, dropped, failures; /* ever; failures: lines that could not be written */
};

/* target: a path, or "syslog". 0; FL_EINVAL with a sentence (it cannot be opened); FL_ENOMEM;
 * FL_ESYSTEM. */
int audit_create(uv_loop_t *loop, const char *target, uint64_t node_id, struct audit **ret,
                 char *errmsg, size_t errmsg_size) FLI_MUST_USE;

void audit_event(struct audit *a, const struct machine_event *e, bool again);
/* Notes a refused request: its user, its address, the command and the reason ("NOPERM"). */
void audit_refusal(struct audit *a, const char *user, struct fli_slice address, const char *command,
                   const char *why);

/* Writes what waits, then calls cb, from the loop; by then the audit is freed. */
void audit_close(struct audit *a, void (*cb)(void *ctx), void *ctx);

void audit_get_counts(const struct audit *a, struct audit_counts *ret);

#endif
