/* transport_accept.c: connections that others open.
 *
 * Until its handshake is complete, a connection is `pending`: it is dropped at end of stream, at
 * its deadline, when there are too many, after a bad handshake, or when the transport closes. */
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/listen.h"
#include "peer/transport_private.h"

#define ACCEPT_RETRY_MS 100u

void accept_turn_away(struct stream *s)
{
    s->t->turned_away++;
    stream_let_go(s);
}

/* ---- too many ---- */

static bool is_from(const struct stream *s, const struct origin *o)
{
    return is_pending(s) && memcmp(&s->origin, o, sizeof *o) == 0;
}

/* How many connections of an origin are pending, and the oldest of them. */
static unsigned count_of(const struct transport *t, const struct origin *o,
                         struct stream **ret_oldest)
{
    unsigned n = 0;
    FLI_LIST_FOREACH(pos, &t->all)
    {
        if (is_from(stream_of(pos), o)) {
            *ret_oldest = n++ == 0 ? stream_of(pos) : *ret_oldest;
        }
    }
    return n;
}

/* How many connections are pending, and the oldest of the origin with the most of them. */
static unsigned count_all(const struct transport *t, struct stream **ret_least_likely)
{
    unsigned all = 0;
    unsigned most = 0;
    FLI_LIST_FOREACH(pos, &t->all)
    {
        struct stream *s = stream_of(pos);
        unsigned n = is_pending(s) ? count_of(t, &s->origin, &s) : 0;
        all += n > 0;
        if (n > most) {
            most = n;
            *ret_least_likely = s;
        }
    }
    return all;
}

/* A real peer sends its handshake at once, so the oldest pending connection is the least likely to
 * be one. */
static void make_room(struct transport *t, const struct origin *o)
{
    struct stream *victim = NULL;
    if (count_of(t, o, &victim) <= TRANSPORT_PENDING_ADDRESS_MAX &&
        count_all(t, &victim) <= TRANSPORT_PENDING_MAX) {
        return;
    }
    transport_log(t, 2, "too many connections to the peer port say nothing: one of %s is dropped",
                  victim->address);
    accept_turn_away(victim);
}

/* ---- accepting ---- */

static void note_origin(struct stream *s, const struct sockaddr_storage *from)
{
    const struct sockaddr_in6 *six = (const struct sockaddr_in6 *)from;
    if (from->ss_family == AF_INET) {
        const struct sockaddr_in *four = (const struct sockaddr_in *)from;
        memcpy(s->origin.bytes, &four->sin_addr, 4);
        (void)uv_ip4_name(four, s->address, sizeof s->address);
        return;
    }
    (void)uv_ip6_name(six, s->address, sizeof s->address);
    if (IN6_IS_ADDR_V4MAPPED(&six->sin6_addr)) {
        memcpy(s->origin.bytes, six->sin6_addr.s6_addr + 12, 4);
    } else {
        memcpy(s->origin.bytes, six->sin6_addr.s6_addr, sizeof s->origin.bytes);
    }
}

/* Takes the descriptor over. */
static void begin(struct transport *t, int fd, const struct sockaddr_storage *from)
{
    struct stream *s = stream_create(t, false);
    if (s == NULL) {
        (void)close(fd);
        return;
    }
    s->phase = STREAM_SHAKING;
    note_origin(s, from);
    stream_socket(s);
    if (uv_tcp_open(&s->tcp, fd) != 0) {
        (void)close(fd);
        accept_turn_away(s);
        return;
    }
    stream_tune(s);
    make_room(t, &s->origin);
    deadline_set(t, &s->deadline, t->pending_ms);
    if (t->security != NULL && security_answer(t->security, &s->tls) != 0) {
        accept_turn_away(s);
        return;
    }
    stream_read_start(s);
}

/* A system without descriptors says so as long as a connection waits. */
static void pause_accepting(struct transport *t, int error)
{
    transport_log(t, 2, "a connection to the peer port cannot be accepted: %s%s",
                  uv_strerror(error), fli_files_remedy(uv_strerror(error)));
    (void)uv_poll_stop(&t->listener);
    deadline_set(t, &t->accept_retry, ACCEPT_RETRY_MS);
}

/* Accepts the next connection. False when there is none, or it cannot be accepted. */
static bool accept_one(struct transport *t)
{
    struct sockaddr_storage from = {.ss_family = AF_INET};
    socklen_t len = sizeof from;
    int fd = accept4(t->fd, (struct sockaddr *)&from, &len, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd >= 0) {
        begin(t, fd, &from);
    } else if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED) {
        pause_accepting(t, uv_translate_sys_error(errno));
    }
    return fd >= 0;
}

static void listener_cb(uv_poll_t *listener, int status, int events)
{
    struct transport *t = listener->data;
    unsigned n = 0;
    if (status != 0) {
        pause_accepting(t, status);
        n = TRANSPORT_ACCEPTS_TURN_MAX;
    }
    while (n < TRANSPORT_ACCEPTS_TURN_MAX && accept_one(t)) {
        n++;
    }
}

static int listen_on(struct transport *t)
{
    return uv_poll_start(&t->listener, UV_READABLE, listener_cb);
}

int accept_start(struct transport *t, char *errmsg, size_t errmsg_size)
{
    int rv = uv_poll_init(t->loop, &t->listener, t->fd);
    t->listening = rv == 0;
    rv = rv != 0 ? rv : listen_on(t);
    if (rv != 0) {
        return fli_refuse(errmsg, errmsg_size, FL_ESYSTEM, "cannot listen on the peer port: %s",
                          uv_strerror(rv));
    }
    return 0;
}

void accept_sweep(struct transport *t)
{
    if (deadline_over(&t->accept_retry)) {
        t->accept_retry.at_ms = UINT64_MAX;
        if (listen_on(t) != 0) {
            deadline_set(t, &t->accept_retry, ACCEPT_RETRY_MS);
        }
    }
}
