/* tls_info.c: the section TLS of INFO. It is a file of its own so that the writer of INFO does not
 * depend on connections. */
#include <inttypes.h>

#include "net/net.h"

int net_tls_info(struct fli_buf *b, uint16_t port, const struct fli_tls_facts *facts,
                 const struct net_stats *stats)
{
    if (port == 0) {
        return fli_buf_printf(b, "# TLS\r\ntls_port:0\r\n");
    }
    return fli_buf_printf(b,
                          "# TLS\r\n"
                          "tls_port:%u\r\n"
                          "tls_cert_subject:%s\r\n"
                          "tls_cert_days_left:%" PRId64 "\r\n"
                          "tls_ca_days_left:%" PRId64 "\r\n"
                          "tls_reloads:%" PRIu64 "\r\n"
                          "tls_reloads_refused:%" PRIu64 "\r\n"
                          "tls_handshakes:%" PRIu64 "\r\n"
                          "tls_handshakes_failed:%" PRIu64 "\r\n"
                          "tls_handshakes_deferred:%" PRIu64 "\r\n",
                          (unsigned)port, facts->subject, facts->cert_days, facts->ca_days,
                          facts->reloads, facts->failures, stats->tls_handshakes, stats->tls_failed,
                          stats->tls_deferred);
}
