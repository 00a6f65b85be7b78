/* info.c: see info.h. */
#include "store/info.h"

#include <inttypes.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

typedef int info_section(struct fli_buf *b, const struct store_info *i);

static int server_section(struct fli_buf *b, const struct store_info *i)
{
    return fli_buf_printf(b,
                          "# Server\r\n"
                          "server:fencelock-store\r\n"
                          "version:%s\r\n"
                          "process_id:%ld\r\n"
                          "tcp_port:%u\r\n"
                          "uptime_in_seconds:%" PRIu64 "\r\n"
                          "fencing:%s\r\n"
                          "strict:%s\r\n",
                          FENCELOCK_VERSION, (long)getpid(), i->port, i->uptime_ms / 1000,
                          i->fencing ? "on" : "off (tokens are ignored; for demonstrations only)",
                          i->strict ? "on" : "off");
}

static int clients_section(struct fli_buf *b, const struct store_info *i)
{
    return fli_buf_printf(b,
                          "# Clients\r\n"
                          "connected_clients:%" PRIu64 "\r\n"
                          "connections_accepted:%" PRIu64 "\r\n"
                          "connections_refused:%" PRIu64 "\r\n"
                          "slow_readers_cut_off:%" PRIu64 "\r\n"
                          "broken_connections:%" PRIu64 "\r\n"
                          "held_ops:%" PRIu64 "\r\n",
                          i->connections, i->net.accepted, i->net.refused, i->net.cut_off,
                          i->net.broken, i->held_ops);
}

static int users_section(struct fli_buf *b, const struct store_info *i)
{
    const struct users_counts *c = &i->users;
    if (!i->has_users) {
        return 0;
    }
    return fli_buf_printf(b,
                          "# Users\r\n"
                          "users:%" PRIu64 "\r\n"
                          "logins:%" PRIu64 "\r\n"
                          "login_failures:%" PRIu64 "\r\n"
                          "logins_delayed:%" PRIu64 "\r\n"
                          "requests_denied:%" PRIu64 "\r\n",
                          c->users, c->logins, c->failures, c->delayed, c->denied);
}

static int storage_section(struct fli_buf *b, const struct store_info *i)
{
    const struct store_counts *c = &i->counts;
    return fli_buf_printf(b,
                          "# Storage\r\n"
                          "keys:%" PRIu64 "\r\n"
                          "deleted_keys_bound:%" PRIu64 "\r\n"
                          "marks:%" PRIu64 "\r\n"
                          "db_bytes:%" PRIu64 "\r\n"
                          "db_bytes_max:%" PRIu64 "\r\n"
                          "db_file_bytes:%" PRIu64 "\r\n",
                          c->keys, c->tombstones, i->marks, i->db_bytes, i->db_bytes_max,
                          i->db_file_bytes);
}

static int stats_section(struct fli_buf *b, const struct store_info *i)
{
    const struct store_counts *c = &i->counts;
    double per_commit = c->commits == 0 ? 0.0 : (double)c->ops_written / (double)c->commits;
    return fli_buf_printf(b,
                          "# Stats\r\n"
                          "ops:%" PRIu64 "\r\n"
                          "commits:%" PRIu64 "\r\n"
                          "ops_per_commit:%.2f\r\n"
                          "refused_stale:%" PRIu64 "\r\n"
                          "refused_wronglock:%" PRIu64 "\r\n"
                          "refused_notoken:%" PRIu64 "\r\n"
                          "refused_limit:%" PRIu64 "\r\n"
                          "strict_checks:%" PRIu64 "\r\n"
                          "strict_refused:%" PRIu64 "\r\n"
                          "strict_unreachable:%" PRIu64 "\r\n"
                          "requests:%" PRIu64 "\r\n"
                          "bytes_in:%" PRIu64 "\r\n"
                          "bytes_out:%" PRIu64 "\r\n",
                          c->ops, c->commits, per_commit, c->stale, c->wronglock, c->notoken,
                          c->limit, i->strict_counts.checks, i->strict_counts.refused,
                          i->strict_counts.unreachable, i->net.requests, i->net.bytes_in,
                          i->net.bytes_out);
}

static int tls_section(struct fli_buf *b, const struct store_info *i)
{
    return net_tls_info(b, i->tls_port, &i->tls, &i->net);
}

static int memory_section(struct fli_buf *b, const struct store_info *i)
{
    int rc = fli_buf_printf(b, "# Memory\r\n");
    return rc != 0 ? rc : net_memory_info(b, &i->memory);
}

static int loop_section(struct fli_buf *b, const struct store_info *i)
{
    return net_loop_info(b, &i->turn);
}

static bool is_word(struct fli_slice s, const char *word)
{
    return s.len == strlen(word) && strncasecmp((const char *)s.data, word, s.len) == 0;
}

int store_info_text(struct fli_buf *b, const struct store_info *info, struct fli_slice section)
{
    static const struct {
        const char *name;
        info_section *write;
    } sections[] = {
        {"server", server_section}, {"clients", clients_section}, {"tls", tls_section},
        {"users", users_section},   {"storage", storage_section}, {"stats", stats_section},
        {"loop", loop_section},     {"memory", memory_section},
    };
    bool all = section.len == 0 || is_word(section, "all") || is_word(section, "everything") ||
               is_word(section, "default");
    size_t start = b->len;
    for (size_t i = 0; i < sizeof(sections) / sizeof(sections[0]); i++) {
        if (!all && !is_word(section, sections[i].name)) {
            continue;
        }
        int rc = b->len > start ? fli_buf_append(b, "\r\n", 2) : 0;
        if (rc == 0) {
            rc = sections[i].write(b, info);
        }
        if (rc != 0) {
            return rc;
        }
    }
    return 0;
}
