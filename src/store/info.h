/* info.h: the answer to INFO: sections of name:value lines, as Redis writes them. */
#ifndef STORE_INFO_H
#define STORE_INFO_H

#include "auth/file_users.h"
#include "net/net.h"
#include "store/store.h"
#include "store/strict.h"

struct store_info {
    struct store_counts counts;
    uint64_t marks;
    uint64_t db_bytes; /* of the pages that records take */
    uint64_t db_file_bytes;
    uint64_t db_bytes_max;
    bool serving; /* the database has not failed, and the server does not stop */
    bool fencing;
    bool strict;
    struct strict_counts strict_counts;
    uint16_t port;
    uint64_t uptime_ms;
    uint64_t held_ops; /* that wait for a verdict */
    uint64_t connections;
    struct net_stats net;
    struct net_memory memory;
    struct fli_turn_stats turn;
    uint16_t tls_port; /* 0: none */
    struct fli_tls_facts tls;
    bool has_users;
    struct file_users_counts users;
};

/* Appends one section, or all when `section` is empty, "all", "everything" or "default". An unknown
 * section has no lines. 0, FL_ELIMIT, FL_ENOMEM. */
int store_info_text(struct fli_buf *b, const struct store_info *info,
                    struct fli_slice section) FLI_MUST_USE;

#endif
