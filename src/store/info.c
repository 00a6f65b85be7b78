/* info.c: see info.h. */
#include "store/info.h"

#include <inttypes.h>
#include <stddef.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#define AT(member) offsetof(struct store_info, member)

static const struct figure {
    const char *section, *name;
    size_t at; /* of a uint64_t */
} figures[] = {
    {"Clients", "connected_clients", AT(connections)},
    {"Clients", "connections_accepted", AT(net.accepted)},
    {"Clients", "connections_refused", AT(net.refused)},
    {"Clients", "slow_readers_cut_off", AT(net.cut_off)},
    {"Clients", "broken_connections", AT(net.broken)},
    {"Clients", "held_ops", AT(held_ops)},
    {"Users", "users", AT(users.users)},
    {"Users", "logins", AT(users.logins)},
    {"Users", "login_failures", AT(users.failures)},
    {"Users", "logins_delayed", AT(users.delayed)},
    {"Users", "requests_denied", AT(users.denied)},
    {"Storage", "keys", AT(counts.keys)},
    {"Storage", "deleted_keys_bound", AT(counts.tombstones)},
    {"Storage", "marks", AT(marks)},
    {"Storage", "db_bytes", AT(db_bytes)},
    {"Storage", "db_bytes_max", AT(db_bytes_max)},
    {"Storage", "db_file_bytes", AT(db_file_bytes)},
    {"Stats", "ops", AT(counts.ops)},
    {"Stats", "ops_written", AT(counts.ops_written)},
    {"Stats", "commits", AT(counts.commits)},
    {"Stats", "refused_stale", AT(counts.stale)},
    {"Stats", "refused_wronglock", AT(counts.wronglock)},
    {"Stats", "refused_notoken", AT(counts.notoken)},
    {"Stats", "refused_limit", AT(counts.limit)},
    {"Stats", "strict_checks", AT(strict_counts.checks)},
    {"Stats", "strict_refused", AT(strict_counts.refused)},
    {"Stats", "strict_unreachable", AT(strict_counts.unreachable)},
    {"Stats", "requests", AT(net.requests)},
    {"Stats", "bytes_in", AT(net.bytes_in)},
    {"Stats", "bytes_out", AT(net.bytes_out)},
};

static int put_figures(struct fli_buf *b, const struct store_info *i, const char *section)
{
    int rc = fli_buf_printf(b, "# %s\r\n", section);
    for (size_t n = 0; rc == 0 && n < sizeof figures / sizeof figures[0]; n++) {
        uint64_t value = 0;
        memcpy(&value, (const uint8_t *)i + figures[n].at, sizeof value);
        rc = strcmp(figures[n].section, section) != 0
                 ? 0
                 : fli_buf_printf(b, "%s:%" PRIu64 "\r\n", figures[n].name, value);
    }
    return rc;
}

static int put_server(struct fli_buf *b, const struct store_info *i)
{
    return fli_buf_printf(b,
                          "# Server\r\nserver:fencelock-store\r\nversion:%s\r\n"
                          "process_id:%ld\r\ntcp_port:%u\r\nuptime_in_seconds:%" PRIu64 "\r\n"
                          "fencing:%s\r\nstrict:%s\r\n",
                          FENCELOCK_VERSION, (long)getpid(), i->port, i->uptime_ms / 1000,
                          i->fencing ? "on" : "off (tokens are ignored; for tests only)",
                          i->strict ? "on" : "off");
}

static int put_tls(struct fli_buf *b, const struct store_info *i)
{
    return net_tls_info(b, i->tls_port, &i->tls, &i->net);
}

static int put_loop(struct fli_buf *b, const struct store_info *i)
{
    return net_loop_info(b, &i->turn);
}

static int put_memory(struct fli_buf *b, const struct store_info *i)
{
    int rc = fli_buf_printf(b, "# Memory\r\n");
    return rc != 0 ? rc : net_memory_info(b, &i->memory);
}

static int put_users(struct fli_buf *b, const struct store_info *i)
{
    return i->has_users ? put_figures(b, i, "Users") : 0;
}

static const struct {
    const char *name;
    int (*put)(struct fli_buf *b, const struct store_info *i); /* NULL: its figures */
} sections[] = {{"Server", put_server}, {"Clients", NULL},     {"TLS", put_tls},
                {"Users", put_users},   {"Storage", NULL},     {"Stats", NULL},
                {"Loop", put_loop},     {"Memory", put_memory}};

static bool is_word(struct fli_slice s, const char *word)
{
    return s.len == strlen(word) && strncasecmp((const char *)s.data, word, s.len) == 0;
}

int store_info_text(struct fli_buf *b, const struct store_info *info, struct fli_slice section)
{
    bool all = section.len == 0 || is_word(section, "all") || is_word(section, "everything") ||
               is_word(section, "default");
    size_t start = b->len;
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < sizeof sections / sizeof sections[0]; i++) {
        if (!all && !is_word(section, sections[i].name)) {
            continue;
        }
        rc = b->len > start ? fli_buf_append(b, "\r\n", 2) : 0;
        if (rc == 0) {
            rc = sections[i].put == NULL ? put_figures(b, info, sections[i].name)
                                         : sections[i].put(b, info);
        }
    }
    return rc;
}
