/* watch_event.h: an event of a lock as a node sends it to subscribers, taken apart and shown.
 * Pure but for the FILE that the showing writes to. */
#ifndef CLI_WATCH_EVENT_H
#define CLI_WATCH_EVENT_H

#include "cli/output.h"

#define WATCH_TEXT_MAX 4096u /* of one event on the wire; longer ones are no events of ours */
#define WATCH_NAME_WIDTH_MAX 40u

struct watch_event {
    struct fl_bytes text; /* as it came */
    struct fl_bytes name; /* of the lock; empty when it is about none */
    char event[24];
    char reason[24];       /* why a wait ended; or "" */
    struct fl_bytes owner; /* decoded, in `bytes` */
    bool has_owner, has_token, has_wait;
    fl_token token;
    uint64_t clock_ms;
    uint64_t wait; /* number of the place in the queue */
    char bytes[WATCH_TEXT_MAX];
};

/* The text that came on a channel. ret points into both of them. False: not an event. */
bool watch_event_parse(struct fl_bytes channel, struct fl_bytes text, struct watch_event *ret);

/* Events were, or may have been, missed. */
bool watch_event_is_gap(const struct watch_event *e);

/* One line. width: of the names before, raised when this one is longer. */
void watch_event_print(const struct watch_event *e, FILE *f, bool colours, size_t *width);

/* One line of key=value words, in the encoding of the wire. */
void watch_event_print_plain(const struct watch_event *e, FILE *f);

/* One line of JSON. */
void watch_event_print_json(const struct watch_event *e, FILE *f);

#endif
