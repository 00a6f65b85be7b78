/* log_throttle.c: see log_throttle.h. */
#include "peer/log_throttle.h"

#include <string.h>

#include "base/bytes.h"

bool log_throttle_allows(struct log_throttle *s, const char *text, uint64_t now_ms,
                         uint64_t *left_out)
{
    uint32_t crc = fli_crc32c(0, text, strlen(text));
    *left_out = 0;
    for (unsigned i = 0; i < LOG_THROTTLE_LINES; i++) {
        if (s->lines[i].crc == crc && s->lines[i].at_ms != 0 &&
            now_ms - s->lines[i].at_ms < LOG_THROTTLE_AGAIN_MS) {
            return false;
        }
    }
    uint64_t spent = s->spent_until_ms > now_ms ? s->spent_until_ms - now_ms : 0;
    if (spent > (LOG_THROTTLE_BURST - 1) * LOG_THROTTLE_EVERY_MS) {
        s->left_out++;
        return false;
    }
    s->spent_until_ms = now_ms + spent + LOG_THROTTLE_EVERY_MS;
    s->lines[s->next].crc = crc;
    s->lines[s->next].at_ms = now_ms;
    s->next = (s->next + 1) % LOG_THROTTLE_LINES;
    *left_out = s->left_out;
    s->left_out = 0;
    return true;
}
