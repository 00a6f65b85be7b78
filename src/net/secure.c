/* secure.c: connections of the TLS port: between the socket's bytes and those of conn.c.
 *
 * Bytes that were read are decrypted into one buffer of the server and taken from there, like those
 * of a plain connection. Output is collected in plain text and encrypted piece by piece when the
 * kernel is about to take it, so that a slow reader costs no second copy.
 *
 * A handshake costs a thousand times as much as a request. So each turn of the loop works on as
 * many as fit into their share (base/turn.h). The input of the others waits in buffers of their
 * connections: handshakes that have begun go before new ones, else first come, first served.
 *
 * After the handshake, decrypting counts as part of the requests' share: a record costs a
 * microsecond and new keys cost ten, however few bytes they bring. So the input is decrypted in
 * pieces, and what does not fit into the share waits as ciphertext, like a plain client's rest. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "net/conn.h"

#include "base/clock.h"

#define PIECE ((size_t)64 << 10)   /* plaintext that is encrypted at once */
#define PIECE_IN ((size_t)2 << 10) /* ciphertext that is decrypted at once */
#define OUT_MAX ((size_t)512 << 10)
#define LOG_EVERY_MS UINT64_C(1000)

bool net_secure_attach(struct net_conn *c)
{
    struct net_server *s = c->server;
    struct net_secure *sec = calloc(1, sizeof *sec);
    if (sec == NULL) {
        return false;
    }
    fli_list_init(&sec->deferred);
    fli_buf_init(&sec->in, NET_READ_SIZE);
    fli_buf_init(&sec->out, OUT_MAX);
    sec->conn = c;
    c->secure = sec;
    c->watch_ms = c->opened_ms + NET_SHAKE_MS;
    fli_list_push(&s->shaking, &c->watch);
    net_server_tick_start(s);
    return true;
}

void net_secure_drop(struct net_conn *c)
{
    struct net_secure *sec = c->secure;
    if (sec == NULL) {
        return;
    }
    FLI_ASSERT(!fli_list_linked(&sec->deferred));
    net_buffer_give(c->server, &sec->in);
    net_buffer_give(c->server, &sec->out);
    fli_tls_destroy(sec->tls);
    free(sec);
    c->secure = NULL;
}

/* ---- reading --------------------------------------------------------------------------------- */

/* Any client can fail as often as it likes, so not every failure is logged. */
static void note_failure(struct net_conn *c, const char *why)
{
    struct net_server *s = c->server;
    struct net_conn_info info;
    uint64_t now = fli_clock_ms();
    s->stats.tls_failed++;
    s->tls_unlogged++;
    if (s->tls_logged_ms != 0 && now - s->tls_logged_ms < LOG_EVERY_MS) {
        return;
    }
    net_conn_info(c, &info);
    net_server_log(s, 3, "TLS with %s: %s (failures so far: %llu)", info.peer, why,
                   (unsigned long long)s->stats.tls_failed);
    s->tls_logged_ms = now;
    s->tls_unlogged = 0;
}

/* Sends plain text that a client without TLS can understand. */
static void answer_plainly(struct net_conn *c)
{
    static const char text[] =
        "-DENIED this port takes TLS only: connect with TLS (fencelock --tls, redis-cli --tls), or "
        "use the port for plain connections if there is one\r\n";
    uv_buf_t all = uv_buf_init((char *)(uintptr_t)text, sizeof text - 1);
    (void)uv_try_write((uv_stream_t *)&c->tcp, &all, 1);
    note_failure(c, "its first words are no handshake");
    net_conn_stop(c);
}

static void opened(struct net_conn *c)
{
    struct net_server *s = c->server;
    c->secure->shaken = true;
    s->stats.tls_handshakes++;
    if (fli_list_linked(&c->watch)) {
        fli_list_remove(&c->watch);
    }
    if (s->limits.idle_first_ms > 0) {
        c->watch_ms = fli_clock_ms() + s->limits.idle_first_ms;
        fli_list_push(&s->fresh, &c->watch);
        net_server_tick_start(s);
    }
    if (s->cbs.shaken != NULL) {
        s->cbs.shaken(s->cbs.ctx, c);
    }
}

/* False: the connection is about to end. */
static bool begin(struct net_conn *c, uint8_t first)
{
    struct net_secure *sec = c->secure;
    if (first >= ' ' && first <= '~') {
        answer_plainly(c);
        return false;
    }
    if (fli_tls_create(c->server->tls, NULL, &sec->tls) != 0) {
        net_conn_doom(c);
        return false;
    }
    return true;
}

void net_secure_send_end(struct net_conn *c)
{
    if (c->secure != NULL && c->secure->ended && !c->paused && !c->eof && !c->doomed) {
        net_conn_read_end(c);
    }
}

static int tls_read(struct net_conn *c, const void *data, size_t len)
{
    struct net_server *s = c->server;
    struct net_secure *sec = c->secure;
    bool is_request = sec->shaken;
    uint64_t began_ns = fli_clock_ns();
    int rc = fli_tls_read(sec->tls, data, len, &s->plain, &sec->out);
    s->take_ns += is_request ? fli_clock_ns() - began_ns : 0;
    return rc;
}

static void decrypt(struct net_conn *c, const void *data, size_t len)
{
    struct net_server *s = c->server;
    struct net_secure *sec = c->secure;
    fli_buf_clear(&s->plain);
    net_buffer_take(s, &sec->out, OUT_MAX);
    int rc = tls_read(c, data, len);
    if (rc == 0 && !sec->shaken && fli_tls_state(sec->tls) != FLI_TLS_SHAKING) {
        opened(c);
    }
    if (sec->out.len > 0 || rc != 0) {
        net_conn_touch(c);
    } else {
        net_buffer_give(s, &sec->out);
    }
    if (rc != 0) {
        note_failure(c, fli_tls_error(sec->tls));
        net_conn_stop(c); /* its last message is the reason; it has a moment to read it */
        return;
    }
    if (s->plain.len > 0) {
        net_conn_take(c, s->plain.data, s->plain.len);
    }
    sec->ended = fli_tls_state(sec->tls) == FLI_TLS_ENDED;
    net_secure_send_end(c);
}

/* Decrypts pieces until the connection pauses or has had its visit. Returns how many bytes. */
static size_t decrypt_pieces(struct net_conn *c, const uint8_t *data, size_t len)
{
    struct net_server *s = c->server;
    uint64_t until_ns = fli_clock_ns() + FLI_TURN_VISIT_US * UINT64_C(1000);
    size_t at = 0;
    while (at < len && !c->paused && !c->doomed && !c->last && !c->secure->ended) {
        if (net_take_over(s) || (at > 0 && fli_clock_ns() > until_ns)) {
            net_conn_yield(c, at > 0);
            break;
        }
        size_t n = len - at < PIECE_IN ? len - at : PIECE_IN;
        decrypt(c, data + at, n);
        at += n;
    }
    return c->paused ? at : len; /* who is not paused takes no more, or has taken all */
}

/* Bytes after the handshake. What is not decrypted now waits. */
static void read_open(struct net_conn *c, const uint8_t *data, size_t len)
{
    struct net_server *s = c->server;
    struct net_secure *sec = c->secure;
    enum fli_turn_part part = fli_turn_enter(&s->turn, FLI_TURN_REQUESTS);
    size_t used = decrypt_pieces(c, data, len);
    fli_turn_leave(&s->turn, part);
    if (used == len) {
        return;
    }
    net_buffer_take(s, &sec->in, NET_READ_SIZE);
    if (fli_buf_append(&sec->in, data + used, len - used) != 0) {
        net_conn_doom(c);
    }
    net_memory_note(c);
}

void net_secure_resume(struct net_conn *c)
{
    struct net_secure *sec = c->secure;
    if (sec == NULL || !sec->shaken || sec->in.len == 0 || c->paused || c->doomed) {
        return;
    }
    struct fli_buf in = sec->in;
    fli_buf_init(&sec->in, NET_READ_SIZE);
    read_open(c, in.data, in.len);
    net_buffer_give(c->server, &in);
}

static void shake(struct net_conn *c, const uint8_t *data, size_t len)
{
    struct net_server *s = c->server;
    enum fli_turn_part part = fli_turn_enter(&s->turn, FLI_TURN_HANDSHAKES);
    uint64_t began_ns = fli_clock_ns();
    if (c->secure->tls != NULL || begin(c, data[0])) {
        decrypt(c, data, len);
    }
    s->shake_ns += fli_clock_ns() - began_ns;
    fli_turn_leave(&s->turn, part);
}

static void defer(struct net_conn *c, const uint8_t *data, size_t len)
{
    struct net_server *s = c->server;
    struct net_secure *sec = c->secure;
    net_buffer_take(s, &sec->in, NET_READ_SIZE);
    if (fli_buf_append(&sec->in, data, len) != 0) {
        net_conn_doom(c);
        return;
    }
    s->stats.tls_deferred++;
    /* Clients that have answered our part of the handshake go first: beginning a handshake costs a
     * client nothing, and the server most. */
    struct net_waits *w = net_waits_of(c);
    fli_queue_push(sec->tls != NULL ? &w->deferred_begun : &w->deferred, &sec->deferred);
    net_server_stay_awake(s);
}

void net_secure_read(struct net_conn *c, const uint8_t *data, size_t len)
{
    struct net_secure *sec = c->secure;
    FLI_ASSERT(!fli_list_linked(&sec->deferred)); /* its socket is not read meanwhile */
    if (sec->shaken) {
        FLI_ASSERT(sec->in.len == 0); /* its socket is not read meanwhile */
        read_open(c, data, len);
    } else if (net_shake_over(c->server)) {
        defer(c, data, len);
    } else {
        shake(c, data, len);
    }
}

/* Whether the client has gone while it waited: then its handshake is dropped. */
static bool has_gone(const struct net_conn *c)
{
    char byte;
    uv_os_fd_t fd = -1;
    return uv_fileno((const uv_handle_t *)&c->tcp, &fd) == 0 &&
           recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0;
}

void net_secure_go_on(struct net_conn *c)
{
    struct net_secure *sec = c->secure;
    if (c->doomed || c->last) {
        return;
    }
    if (has_gone(c)) {
        net_conn_doom(c);
        return;
    }
    struct fli_buf in = sec->in;
    fli_buf_init(&sec->in, NET_READ_SIZE);
    shake(c, in.data, in.len);
    net_buffer_give(c->server, &in);
    net_conn_touch(c); /* this reads on */
}

/* ---- writing --------------------------------------------------------------------------------- */

void net_secure_flush(struct net_conn *c)
{
    struct net_server *s = c->server;
    struct net_secure *sec = c->secure;
    size_t at = 0;
    while (c->sending == NULL && !c->doomed) {
        size_t left = sec->shaken && !c->lingering ? c->out.len - at : 0;
        size_t n = left < PIECE ? left : PIECE;
        if (n > 0 && fli_tls_state(sec->tls) == FLI_TLS_FAILED) {
            at += n; /* no one can read it any more */
            continue;
        }
        if (n > 0) {
            net_buffer_take(s, &sec->out, OUT_MAX);
            if (fli_tls_write(sec->tls, c->out.data + at, n, &sec->out) != 0) {
                net_conn_doom(c);
                return;
            }
            at += n;
        }
        if (sec->out.len == 0) {
            break;
        }
        net_conn_send(c, &sec->out);
    }
    if (at > 0 && at == c->out.len) {
        net_buffer_give(s, &c->out);
    } else if (at > 0) {
        fli_buf_consume(&c->out, at);
    }
}

void net_secure_end(struct net_conn *c)
{
    struct net_secure *sec = c->secure;
    if (sec == NULL || sec->tls == NULL || c->sending != NULL) {
        return;
    }
    net_buffer_take(c->server, &sec->out, OUT_MAX);
    fli_tls_end(sec->tls, &sec->out);
    if (sec->out.len > 0) {
        uv_buf_t all = uv_buf_init((char *)sec->out.data, (unsigned)sec->out.len);
        (void)uv_try_write((uv_stream_t *)&c->tcp, &all, 1); /* optional */
    }
    net_buffer_give(c->server, &sec->out);
}

/* ---- the files ------------------------------------------------------------------------------- */

static void renew(struct net_server *s, bool always)
{
    char line[FLI_TLS_LINE_SIZE];
    int level = fli_tls_context_renew(s->tls, always, line);
    if (level != 0) {
        net_server_log(s, level, "TLS: %s", line);
    }
}

void net_server_tls_reload(struct net_server *s)
{
    if (s->tls != NULL) {
        renew(s, true);
    }
}

static void files_cb(uv_timer_t *timer)
{
    renew(timer->data, false);
}

int net_server_listen_tls(struct net_server *s, const char *address,
                          const struct fli_tls_config *config, char *errmsg, size_t errmsg_size)
{
    FLI_ASSERT(s->tls == NULL && config->server);
    int rc = fli_tls_context_create(config, &s->tls, errmsg, errmsg_size);
    if (rc != 0) {
        return rc;
    }
    fli_buf_init(&s->plain, FLI_TLS_PLAIN_MAX(NET_READ_SIZE));
    rc = net_server_listen_on(s, address, true, errmsg, errmsg_size);
    if (rc != 0) {
        return rc;
    }
    char line[FLI_TLS_LINE_SIZE];
    int level = fli_tls_context_tell(s->tls, "clients are shown", line);
    net_server_log(s, level, "TLS: %s", line);
    rc = uv_timer_start(&s->files, files_cb, FLI_TLS_FILES_MS, FLI_TLS_FILES_MS);
    FLI_ASSERT(rc == 0);
    return 0;
}

bool net_server_tls_facts(const struct net_server *s, struct fli_tls_facts *ret)
{
    if (s->tls == NULL) {
        return false;
    }
    fli_tls_context_facts(s->tls, ret);
    return true;
}

bool net_conn_is_tls(const struct net_conn *c)
{
    return c->secure != NULL;
}

bool net_conn_cert_name(const struct net_conn *c, char ret[FLI_TLS_NAME_MAX])
{
    return c->secure != NULL && c->secure->tls != NULL && fli_tls_peer_name(c->secure->tls, ret);
}

bool net_conn_has_cert(const struct net_conn *c)
{
    return c->secure != NULL && c->secure->tls != NULL && fli_tls_peer_is_shown(c->secure->tls);
}

bool net_conn_cert_user(const struct net_conn *c, enum fli_tls_user by, char ret[FLI_TLS_NAME_MAX])
{
    if (by != FLI_TLS_USER_SAN) {
        return by == FLI_TLS_USER_CN && net_conn_cert_name(c, ret);
    }
    return c->secure != NULL && c->secure->tls != NULL &&
           fli_tls_peer_alt_name(c->secure->tls, ret);
}
