/* watch_event.h: prints an event of a lock. wall_ms: when it came, by the clock of this machine. */
#ifndef CLI_WATCH_EVENT_H
#define CLI_WATCH_EVENT_H

#include "cli/output.h"
#include "fencelock/client.h"

#define WATCH_NAME_WIDTH_MAX 40u

/* One line: an object of JSON; on a terminal, one for people; otherwise key=value words, encoded as
 * on the wire. width: the widest name so far, raised when this one is wider. */
void watch_event_print(const struct fl_event *e, uint64_t wall_ms, struct cli_out *o,
                       size_t *width);

#endif
