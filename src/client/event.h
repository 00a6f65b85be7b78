/* event.h: parses an event of a lock, as a node sends it to subscribers. Pure. */
#ifndef FLI_CLIENT_EVENT_H
#define FLI_CLIENT_EVENT_H

#include "base/base.h"
#include "fencelock/client.h"

#define FLI_EVENT_TEXT_MAX 4096u /* of one event on the wire; no event of ours is longer */

/* Where the texts of an event are. */
struct fli_event_room {
    char text[FLI_EVENT_TEXT_MAX + 1];
    char owner[FLI_EVENT_TEXT_MAX];
    char name[FL_NAME_MAX];
    char word[24], reason[24];
};

/* Parses the text that came on a channel; copies both into the room. False: not an event. */
bool fli_event_parse(struct fl_bytes channel, struct fl_bytes text, struct fli_event_room *room,
                     struct fl_event *ret) FLI_MUST_USE;

#endif
