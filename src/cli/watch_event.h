/* watch_event.h: prints an event of a lock, for people, for pipes and as JSON. wall_ms: when it
 * came, by the clock of this machine. */
#ifndef CLI_WATCH_EVENT_H
#define CLI_WATCH_EVENT_H

#include "cli/output.h"
#include "fencelock/client.h"

#define WATCH_NAME_WIDTH_MAX 40u

/* One line. width: the widest name so far, raised when this one is wider. */
void watch_event_print(const struct fl_event *e, uint64_t wall_ms, FILE *f, bool colours,
                       size_t *width);

/* One line of key=value words, encoded as on the wire. */
void watch_event_print_plain(const struct fl_event *e, uint64_t wall_ms, FILE *f);

/* One line of JSON. */
void watch_event_print_json(const struct fl_event *e, uint64_t wall_ms, FILE *f);

#endif
