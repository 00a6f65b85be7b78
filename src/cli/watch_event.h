/* watch_event.h: parses and prints an event of a lock, as a node sends it to subscribers. Pure, but
 * for the FILE that it prints to. */
#ifndef CLI_WATCH_EVENT_H
#define CLI_WATCH_EVENT_H

#include "cli/output.h"

#define WATCH_TEXT_MAX 4096u /* of one event on the wire; no event of ours is longer */
#define WATCH_NAME_WIDTH_MAX 40u

struct watch_event {
    struct fl_bytes text; /* as it came */
    struct fl_bytes name; /* of the lock; empty when it is about none */
    char event[24];
    char reason[24];       /* why a wait ended; "" for none */
    struct fl_bytes owner; /* decoded; points into `bytes` */
    bool has_owner, has_token, has_wait;
    fl_token token;
    uint64_t clock_ms; /* of the cluster clock */
    uint64_t wall_ms;  /* when it came, by the clock of this machine; the caller sets it */
    uint64_t wait;     /* the number of the wait */
    char bytes[WATCH_TEXT_MAX];
};

/* Parses the text that came on a channel. ret points into both. False: not an event. */
bool watch_event_parse(struct fl_bytes channel, struct fl_bytes text, struct watch_event *ret);

/* Whether events were, or may have been, missed. */
bool watch_event_is_gap(const struct watch_event *e);

/* Prints one line. width: the widest name so far, raised when this one is wider. */
void watch_event_print(const struct watch_event *e, FILE *f, bool colours, size_t *width);

/* Prints one line of key=value words, encoded as on the wire. */
void watch_event_print_plain(const struct watch_event *e, FILE *f);

/* Prints one line of JSON. */
void watch_event_print_json(const struct watch_event *e, FILE *f);

#endif
