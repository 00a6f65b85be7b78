/* loop_info.c: the section Loop of INFO, and the lines about clients in the section Memory. */
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

int net_memory_info(struct fli_buf *b, const struct net_memory *m)
{
    return fli_buf_printf(b,
                          "clients_memory:%zu\r\n"
                          "clients_memory_max_seen:%zu\r\n"
                          "clients_memory_limit:%zu\r\n"
                          "clients_memory_largest:%zu\r\n"
                          "clients_memory_heavy:%zu\r\n"
                          "clients_memory_pooled:%zu\r\n"
                          "clients_cut_off_for_memory:%" PRIu64 "\r\n"
                          "clients_addresses:%zu\r\n"
                          "clients_address_memory_limit:%zu\r\n"
                          "clients_address_memory_max_seen:%zu\r\n"
                          "clients_address_connections_limit:%u\r\n"
                          "clients_address_connections_max_seen:%u\r\n"
                          "clients_cut_off_for_address_memory:%" PRIu64 "\r\n"
                          "clients_refused_for_address:%" PRIu64 "\r\n",
                          m->clients, m->clients_max, m->limit, m->largest, m->heavy, m->pooled,
                          m->cut_off, m->origins, m->origin_limit, m->origin_max,
                          m->origin_connections_limit, m->origin_connections_max, m->origin_cut_off,
                          m->origin_refused);
}
