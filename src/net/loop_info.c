/* loop_info.c: the section Loop of INFO. */
#include <inttypes.h>

#include "net/net.h"

int net_loop_info(struct fli_buf *b, const struct fli_turn_stats *t)
{
    int rc = fli_buf_printf(b,
                            "# Loop\r\n"
                            "loop_turns:%" PRIu64 "\r\n"
                            "loop_turns_slow:%" PRIu64 "\r\n"
                            "loop_turns_slow_working:%" PRIu64 "\r\n"
                            "loop_turn_max_us:%" PRIu64 "\r\n",
                            t->turns, t->slow, t->slow_cpu, t->max_ns / 1000);
    for (unsigned i = 0; rc == 0 && i < FLI_TURN_PARTS; i++) {
        const char *name = fli_turn_part_name((enum fli_turn_part)i);
        rc = fli_buf_printf(b, "loop_ms_%s:%" PRIu64 "\r\nloop_turns_slow_%s:%" PRIu64 "\r\n", name,
                            t->ns[i] / 1000000, name, t->slow_part[i]);
    }
    return rc;
}
