/* log_throttle.h: limits repeated log lines, so that retries and strangers do not fill the log.
 * Pure.
 *
 * A line is logged again after LOG_THROTTLE_AGAIN_MS. Different lines are logged up to
 * LOG_THROTTLE_BURST at once, and then one every LOG_THROTTLE_EVERY_MS. */
#ifndef PEER_LOG_THROTTLE_H
#define PEER_LOG_THROTTLE_H

#include "base/base.h"

#define LOG_THROTTLE_LINES 32u
#define LOG_THROTTLE_AGAIN_MS 60000u
#define LOG_THROTTLE_BURST 32u
#define LOG_THROTTLE_EVERY_MS 1000u

struct log_throttle {
    struct {
        uint32_t crc; /* of the text */
        uint64_t at_ms;
    } lines[LOG_THROTTLE_LINES];
    unsigned next;
    uint64_t spent_until_ms; /* the burst is used up this far ahead of now */
    uint64_t left_out;
};

/* Whether to log a line now; if so, it is recorded. *left_out: when true, the number of lines left
 * out since the last logged one, for being too many. */
bool log_throttle_allows(struct log_throttle *s, const char *text, uint64_t now_ms,
                         uint64_t *left_out);

#endif
