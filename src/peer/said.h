/* said.h: limits repeated log lines, so that retries and strangers do not fill the log. Pure.
 *
 * A line is logged again after SAID_AGAIN_MS. Different lines are logged up to SAID_BURST at once,
 * and then one every SAID_EVERY_MS. */
#ifndef PEER_SAID_H
#define PEER_SAID_H

#include "base/base.h"

#define SAID_LINES 32u
#define SAID_AGAIN_MS 60000u
#define SAID_BURST 32u
#define SAID_EVERY_MS 1000u

struct said {
    struct {
        uint32_t crc; /* of the text */
        uint64_t at_ms;
    } lines[SAID_LINES];
    unsigned next;
    uint64_t spent_until_ms; /* the burst is used up this far ahead of now */
    uint64_t left_out;
};

/* Whether to log a line now; if so, it is recorded. *left_out: when true, the number of lines left
 * out since the last logged one, for being too many. */
bool said_allows(struct said *s, const char *text, uint64_t now_ms, uint64_t *left_out);

#endif
