/* link.c: see link.h. */
#include "link/link.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/no_users.h"
#include "base/process.h"

#define CHUNK 16384u /* bytes of one read */
#define SENT_MAX ((size_t)64 << 20)
/* When the packet that opens a connection is lost, another one is sent sooner than TCP would. TCP's
 * own pauses double from 1 s on, so a network that has healed would go unnoticed for as long as it
 * was broken. */
#define BEGIN_AGAIN_MS 200u

/* hiredis allocates an array as soon as its header has come, of whatever size it claims, and some
 * 80 bytes for each element, which may have four on the wire. From 1.0 on it takes arrays in one
 * another to any depth, and frees them by recursion. */
static void *make_bounded_array(const redisReadTask *task, fli_array_len elements)
{
    struct fli_link *l = task->privdata;
    if (elements < 0 || (uint64_t)elements > FLI_REPLY_ELEMENTS_MAX - l->elements ||
        l->reader->ridx >= FLI_REPLY_DEPTH_MAX) {
        return NULL;
    }
    l->elements += (uint32_t)elements;
    return l->make_array(task, elements);
}

void fli_link_init(struct fli_link *l)
{
    memset(l, 0, sizeof *l);
    l->fd = -1;
    l->first_fd = -1;
    l->again_ms = UINT64_MAX;
    l->bytes_max = FLI_REPLY_BYTES_MAX;
    l->line_max = FLI_REPLY_LINE_MAX;
}

/* Closing TLS is a courtesy: bytes that the kernel does not take at once are dropped. */
static void end_tls(struct fli_link *l)
{
    if (l->fd >= 0 && l->out.len == l->out_at && l->process == fli_process()) {
        fli_buf_clear(&l->out);
        fli_tls_end(l->tls, &l->out);
        if (l->out.len > 0) {
            (void)!send(l->fd, l->out.data, l->out.len, MSG_NOSIGNAL | MSG_DONTWAIT);
        }
    }
    fli_tls_destroy(l->tls);
    fli_buf_fini(&l->plain);
    fli_buf_fini(&l->out);
    l->tls = NULL;
    l->out_at = 0;
}

void fli_link_close(struct fli_link *l)
{
    if (l->tls != NULL) {
        end_tls(l);
    }
    l->security = NULL;
    l->ready = false;
    l->again_ms = UINT64_MAX;
    if (l->first_fd >= 0) {
        close(l->first_fd);
        l->first_fd = -1;
    }
    if (l->fd >= 0) {
        close(l->fd);
        l->fd = -1;
    }
    if (l->reader != NULL) {
        redisReaderFree(l->reader);
        l->reader = NULL;
    }
}

static void set_error(struct fli_link *l, const char *what)
{
    snprintf(l->error, sizeof l->error, "%s", what);
}

static void set_errno(struct fli_link *l, const char *what, int error)
{
    char text[96];
    snprintf(l->error, sizeof l->error, "%s: %s", what, strerror_r(error, text, sizeof text));
}

/* Whether there are events on a descriptor now: 1, 0, or an errno as a negative number. */
static int has_events(int fd, short events)
{
    struct pollfd p = {.fd = fd, .events = events};
    int n = poll(&p, 1, 0);
    return n >= 0 ? n : errno == EINTR ? 0 : -errno;
}

/* These options only improve the connection, so errors are ignored. */
static void set_socket_options(int fd)
{
    const int on = 1;
    const int idle_s = 5;
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    (void)setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof idle_s);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &idle_s, sizeof idle_s);
}

/* Opens a socket and begins to connect it. The descriptor, or -1. */
static int begin_socket(struct fli_link *l)
{
    const struct sockaddr *address = (const struct sockaddr *)&l->to;
    int fd = socket(address->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        set_errno(l, "no socket", errno);
        return -1;
    }
    if (connect(fd, address, l->to_len) != 0 && errno != EINPROGRESS && errno != EINTR) {
        set_errno(l, "cannot connect", errno);
        close(fd);
        return -1;
    }
    return fd;
}

/* The first one stays beside the newest: its answer may only be slow. */
static void begin_second_socket(struct fli_link *l)
{
    int fd = begin_socket(l);
    l->again_ms = fli_clock_ms() + BEGIN_AGAIN_MS;
    if (fd < 0) {
        return;
    }
    if (l->first_fd < 0) {
        l->first_fd = l->fd;
    } else {
        close(l->fd);
    }
    l->fd = fd;
}

/* 1: it is connected; 0: not yet; an errno as a negative number. */
static int is_connected(int fd)
{
    int error = 0;
    socklen_t size = sizeof error;
    int ready = has_events(fd, POLLOUT);
    if (ready <= 0) {
        return ready;
    }
    if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) != 0) {
        error = errno;
    }
    return error == 0 ? 1 : -error;
}

/* 0 when there is a connection; FL_EBUSY; FL_ENOCONN. */
static int connect_step(struct fli_link *l)
{
    int rc = is_connected(l->fd);
    if (rc == 0 && l->first_fd >= 0) {
        rc = is_connected(l->first_fd);
        if (rc == 1) {
            close(l->fd);
            l->fd = l->first_fd;
            l->first_fd = -1;
        }
    }
    if (rc < 0) {
        set_errno(l, "cannot connect", -rc);
        return FL_ENOCONN;
    }
    if (rc == 0) {
        if (fli_clock_ms() >= l->again_ms) {
            begin_second_socket(l);
        }
        set_error(l, "cannot connect: no answer in time");
        l->wants_read = false;
        return FL_EBUSY;
    }
    if (l->first_fd >= 0) {
        close(l->first_fd);
        l->first_fd = -1;
    }
    l->again_ms = UINT64_MAX;
    set_socket_options(l->fd);
    return 0;
}

static int make_reader(struct fli_link *l)
{
    l->reader = redisReaderCreate();
    if (l->reader == NULL) {
        set_error(l, "out of memory");
        return FL_ENOMEM;
    }
    l->functions = *l->reader->fn;
    l->make_array = l->functions.createArray;
    l->functions.createArray = make_bounded_array;
    l->reader->fn = &l->functions;
    l->reader->privdata = l;
    l->fed = 0;
    l->elements = 0;
    return 0;
}

/* ---- the TLS handshake ----------------------------------------------------------------------- */

/* Hands over the bytes from *at on, and moves *at. 0; FL_EBUSY; FL_EIO. */
static int send_from(struct fli_link *l, const uint8_t *data, size_t len, size_t *at)
{
    while (*at < len) {
        ssize_t n = send(l->fd, data + *at, len - *at, MSG_NOSIGNAL);
        if (n > 0) {
            *at += (size_t)n;
        } else if (n == 0 || errno == EAGAIN) {
            set_error(l, "does not read what is sent");
            l->wants_read = false;
            return FL_EBUSY;
        } else if (errno != EINTR) {
            set_errno(l, "connection lost while sending", errno);
            return FL_EIO;
        }
    }
    return 0;
}

/* Hands over what was encrypted. 0; FL_EBUSY; FL_EIO. */
static int flush_out(struct fli_link *l)
{
    int rc = send_from(l, l->out.data, l->out.len, &l->out_at);
    if (rc == 0) {
        fli_buf_clear(&l->out);
        l->out_at = 0;
    }
    return rc;
}

static int feed(struct fli_link *l, const void *data, size_t len)
{
    l->fed += len;
    if (l->fed > l->bytes_max) {
        set_error(l, "its answer is too large");
        return FL_EPROTO;
    }
    if (redisReaderFeed(l->reader, data, len) != REDIS_OK) {
        set_error(l, "its answer cannot be kept in memory");
        return FL_EPROTO;
    }
    return 0;
}

/* Ciphertext into plaintext, and that into the reader when there is one already. */
static int take_cipher(struct fli_link *l, const void *data, size_t len)
{
    if (fli_tls_state(l->tls) == FLI_TLS_FAILED) {
        return FL_EIO; /* l->error says why already */
    }
    int rc = fli_tls_read(l->tls, data, len, &l->plain, &l->out);
    if (rc != 0) {
        /* The alert tells the server why, if it arrives. */
        int flushed = flush_out(l);
        (void)flushed;
        snprintf(l->error, sizeof l->error, "TLS: %.140s", fli_tls_error(l->tls));
        return fli_tls_was_refused(l->tls) ? FL_EDENIED : FL_EIO;
    }
    if (l->plain.len > 0) {
        rc = feed(l, l->plain.data, l->plain.len);
        fli_buf_clear(&l->plain);
    }
    int sent = flush_out(l);
    return rc != 0 || sent == FL_EBUSY ? rc : sent;
}

static int begin_tls(struct fli_link *l)
{
    fli_buf_init(&l->plain, FLI_TLS_PLAIN_MAX(CHUNK));
    fli_buf_init(&l->out, FLI_TLS_CIPHER_MAX(SENT_MAX) + FLI_TLS_HANDSHAKE_MAX);
    if (fli_link_security_session(l->security, l->host, &l->tls) != 0) {
        set_error(l, "out of memory");
        return FL_ENOMEM;
    }
    return take_cipher(l, NULL, 0);
}

/* One step. 0 when the handshake is complete; FL_EBUSY; FL_ENOCONN; FL_ENOMEM. */
static int handshake_step(struct fli_link *l)
{
    int rc = l->tls == NULL ? begin_tls(l) : 0;
    while (rc == 0 && fli_tls_state(l->tls) == FLI_TLS_SHAKING) {
        char chunk[CHUNK];
        rc = flush_out(l);
        if (rc != 0) {
            break;
        }
        ssize_t n = recv(l->fd, chunk, sizeof chunk, 0);
        if (n < 0 && errno == EAGAIN) {
            set_error(l, "no answer to the TLS handshake in time");
            l->wants_read = true;
            return FL_EBUSY;
        }
        if (n == 0) {
            set_error(l, "TLS: it ended the connection in the handshake; is that a port for TLS?");
            return FL_ENOCONN;
        }
        if (n < 0 && errno != EINTR) {
            set_errno(l, "connection lost in the TLS handshake", errno);
            return FL_ENOCONN;
        }
        rc = n > 0 ? take_cipher(l, chunk, (size_t)n) : 0;
    }
    rc = rc == 0 ? flush_out(l) : rc;
    return rc == 0 || rc == FL_EBUSY || rc == FL_ENOMEM ? rc : FL_ENOCONN;
}

/* ---- logging in ------------------------------------------------------------------------------ */

/* Nothing else is sent before the login is answered: a request must not be carried out as another
 * user. */
static int check_login(struct fli_link *l, redisReply *reply)
{
    /* A storage without users serves everybody alike. */
    static const char nobody[] = FLI_NO_USERS_WORD " " FLI_NO_USERS;
    bool none =
        reply->type == REDIS_REPLY_ERROR && strncmp(reply->str, nobody, sizeof nobody - 1) == 0;
    bool ok = reply->type == REDIS_REPLY_STATUS || none;
    bool wrong = reply->type == REDIS_REPLY_ERROR && strncmp(reply->str, "WRONGPASS", 9) == 0;
    if (!ok) {
        snprintf(l->error, sizeof l->error, "the login is refused: %.120s",
                 reply->type == REDIS_REPLY_ERROR ? reply->str : "not understood");
    }
    if (wrong) {
        memcpy(l->security->refused, l->error, sizeof l->security->refused);
        l->security->refused_ms = fli_clock_ms();
    }
    freeReplyObject(reply);
    return ok ? 0 : wrong ? FL_EDENIED : FL_ENOCONN;
}

static int login_step(struct fli_link *l)
{
    redisReply *reply = NULL;
    if (l->security->refused[0] != '\0') {
        if (fli_clock_ms() - l->security->refused_ms < FLI_LOGIN_AGAIN_MS) {
            set_error(l, l->security->refused);
            return FL_EDENIED;
        }
        l->security->refused[0] = '\0';
    }
    int rc = fli_link_push(l, l->security->login, l->security->login_len, &l->login_at);
    for (bool has_read = false; rc == 0; has_read = true) {
        int n = fli_link_next(l, &reply);
        if (n != 0) {
            return n < 0 ? FL_ENOCONN : check_login(l, reply);
        }
        if (has_read || has_events(l->fd, POLLIN) == 0) {
            set_error(l, "no answer to the login in time");
            l->wants_read = true;
            return FL_EBUSY;
        }
        rc = fli_link_read(l);
        rc = rc > 0 ? 0 : rc;
    }
    return rc == FL_EBUSY || rc == FL_ENOMEM ? rc : FL_ENOCONN;
}

/* A connection is there: one step towards being able to talk. */
static int ready_step(struct fli_link *l)
{
    int rc = l->reader == NULL ? make_reader(l) : 0;
    if (rc == 0 && l->security != NULL && l->security->context != NULL) {
        rc = handshake_step(l); /* what comes with its end is read already */
    }
    if (rc == 0 && l->security != NULL && l->security->login != NULL) {
        rc = login_step(l);
    }
    l->ready = rc == 0;
    return rc;
}

/* ---- connecting ------------------------------------------------------------------------------ */

int fli_link_begin(struct fli_link *l, struct fli_link_security *security, const char *host,
                   const struct sockaddr *address, socklen_t address_len)
{
    FLI_ASSERT(l->fd < 0 && l->reader == NULL && address_len <= sizeof l->to);
    l->security = security;
    l->wants_read = false;
    l->ready = false;
    l->login_at = 0;
    l->process = fli_process();
    snprintf(l->host, sizeof l->host, "%s", host);
    memcpy(&l->to, address, address_len);
    l->to_len = address_len;
    l->again_ms = fli_clock_ms() + BEGIN_AGAIN_MS;
    l->fd = begin_socket(l);
    return l->fd >= 0 ? 0 : FL_ENOCONN;
}

int fli_link_finish(struct fli_link *l)
{
    FLI_ASSERT(l->fd >= 0 && !l->ready);
    if (l->reader != NULL) {
        return ready_step(l);
    }
    int rc = connect_step(l);
    return rc == 0 ? ready_step(l) : rc;
}

/* ---- sending --------------------------------------------------------------------------------- */

/* Encrypts the rest of the data, and hands over as much as the kernel takes. */
static int push_tls(struct fli_link *l, const void *data, size_t len, size_t *at)
{
    if (*at < len) {
        const uint8_t *p = data;
        if (fli_tls_state(l->tls) == FLI_TLS_FAILED ||
            fli_tls_write(l->tls, p + *at, len - *at, &l->out) != 0) {
            snprintf(l->error, sizeof l->error, "TLS: %.140s", fli_tls_error(l->tls));
            return FL_EIO;
        }
        *at = len;
    }
    return flush_out(l);
}

int fli_link_push(struct fli_link *l, const void *data, size_t len, size_t *at)
{
    return l->tls != NULL ? push_tls(l, data, len, at) : send_from(l, data, len, at);
}

/* ---- receiving ------------------------------------------------------------------------------- */

/* Whenever bytes have come, hiredis looks for the end of the line from its beginning again. */
static bool has_long_line(const struct fli_link *l)
{
    const redisReader *r = l->reader;
    return r->len - r->pos > l->line_max && memchr(r->buf + r->pos, '\n', l->line_max) == NULL;
}

int fli_link_next(struct fli_link *l, redisReply **ret)
{
    void *reply = NULL;
    if (redisReaderGetReply(l->reader, &reply) != REDIS_OK || (reply == NULL && has_long_line(l))) {
        set_error(l, "its answer is not RESP, or too large");
        return FL_EPROTO;
    }
    if (reply == NULL && l->tls != NULL && fli_tls_state(l->tls) == FLI_TLS_ENDED) {
        set_error(l, "it ended the connection before the answer");
        return FL_EIO;
    }
    if (reply == NULL) {
        return 0;
    }
    l->fed = l->reader->len - l->reader->pos;
    l->elements = 0;
    *ret = reply;
    return 1;
}

int fli_link_read(struct fli_link *l)
{
    char chunk[CHUNK];
    ssize_t n = recv(l->fd, chunk, sizeof chunk, 0);
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) {
        return 0;
    }
    if (n <= 0) {
        set_errno(l, "connection lost before the answer", n == 0 ? ECONNRESET : errno);
        return FL_EIO;
    }
    int rc = l->tls != NULL ? take_cipher(l, chunk, (size_t)n) : feed(l, chunk, (size_t)n);
    return rc != 0 ? rc : (size_t)n == sizeof chunk;
}
