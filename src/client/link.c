/* link.c: see link.h. */
#include "client/link.h"

#include <errno.h>
#include <limits.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"

#define ADDRESSES_MAX 8 /* of one name that are tried */

/* hiredis allocates an array as soon as its header has come, of whatever size it claims. */
static void *make_bounded_array(const redisReadTask *task, int elements)
{
    if (elements < 0 || elements > FLI_REPLY_ELEMENTS_MAX) {
        return NULL;
    }
    const struct fli_link *l = task->privdata;
    return l->make_array(task, elements);
}

void fli_link_init(struct fli_link *l)
{
    memset(l, 0, sizeof *l);
    l->fd = -1;
}

void fli_link_close(struct fli_link *l)
{
    if (l->fd >= 0) {
        close(l->fd);
        l->fd = -1;
    }
    if (l->reader != NULL) {
        redisReaderFree(l->reader);
        l->reader = NULL;
    }
}

void fli_link_move(struct fli_link *to, struct fli_link *from)
{
    FLI_ASSERT(to->fd < 0 && to->reader == NULL);
    *to = *from;
    if (to->reader != NULL) { /* which points back at its link */
        to->reader->fn = &to->functions;
        to->reader->privdata = to;
    }
    fli_link_init(from);
}

static void say(struct fli_link *l, const char *what)
{
    snprintf(l->error, sizeof l->error, "%s", what);
}

static void say_errno(struct fli_link *l, const char *what, int error)
{
    char text[96];
    snprintf(l->error, sizeof l->error, "%s: %s", what, strerror_r(error, text, sizeof text));
}

/* Waits for events on a descriptor. 1; 0 when the time is over; an errno as a negative number. */
static int wait_for(int fd, short events, uint64_t until_ms)
{
    for (;;) {
        uint64_t now_ms = fli_clock_ms();
        uint64_t left_ms = until_ms > now_ms ? until_ms - now_ms : 0;
        struct pollfd p = {.fd = fd, .events = events};
        int n = poll(&p, 1, left_ms > INT_MAX ? INT_MAX : (int)left_ms);
        if (n > 0) {
            return 1;
        }
        if (n < 0 && errno != EINTR) {
            return -errno;
        }
        if (n == 0 && left_ms == 0) {
            return 0;
        }
    }
}

/* Options that only make things better are not worth failing for. */
static void tune(int fd)
{
    const int on = 1;
    const int idle_s = 5;
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    (void)setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof idle_s);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &idle_s, sizeof idle_s);
}

static int connect_one(struct fli_link *l, const struct addrinfo *a, uint64_t until_ms)
{
    int fd = socket(a->ai_family, a->ai_socktype | SOCK_NONBLOCK | SOCK_CLOEXEC, a->ai_protocol);
    if (fd < 0) {
        say_errno(l, "no socket", errno);
        return FL_ENOCONN;
    }
    int error = connect(fd, a->ai_addr, a->ai_addrlen) == 0 ? 0 : errno;
    if (error == EINPROGRESS || error == EINTR) {
        int ready = wait_for(fd, POLLOUT, until_ms);
        socklen_t size = sizeof error;
        if (ready <= 0) {
            error = ready == 0 ? ETIMEDOUT : -ready;
        } else if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) != 0) {
            error = errno;
        }
    }
    if (error != 0) {
        say_errno(l, "cannot connect", error);
        close(fd);
        return FL_ENOCONN;
    }
    tune(fd);
    l->fd = fd;
    return 0;
}

static int make_reader(struct fli_link *l)
{
    l->reader = redisReaderCreate();
    if (l->reader == NULL) {
        say(l, "out of memory");
        return FL_ENOMEM;
    }
    l->functions = *l->reader->fn;
    l->make_array = l->functions.createArray;
    l->functions.createArray = make_bounded_array;
    l->reader->fn = &l->functions;
    l->reader->privdata = l;
    l->fed = 0;
    return 0;
}

int fli_link_connect(struct fli_link *l, const struct fli_node *node, uint64_t until_ms)
{
    FLI_ASSERT(l->fd < 0 && l->reader == NULL);
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
    struct addrinfo *list = NULL;
    int error = getaddrinfo(node->host, node->port, &hints, &list);
    if (error != 0) {
        snprintf(l->error, sizeof l->error, "cannot find the host: %s", gai_strerror(error));
        return FL_ENOCONN;
    }
    unsigned n = 0;
    for (struct addrinfo *a = list; a != NULL && n < ADDRESSES_MAX; a = a->ai_next) {
        n++;
    }
    int rc = FL_ENOCONN;
    for (struct addrinfo *a = list; n > 0; a = a->ai_next, n--) {
        /* A dead address must not eat the time of those after it. */
        uint64_t now_ms = fli_clock_ms();
        uint64_t left_ms = until_ms > now_ms ? until_ms - now_ms : 0;
        rc = connect_one(l, a, now_ms + left_ms / n);
        if (rc == 0) {
            break;
        }
    }
    freeaddrinfo(list);
    if (rc == 0) {
        rc = make_reader(l);
        if (rc != 0) {
            fli_link_close(l);
        }
    }
    return rc;
}

int fli_link_begin(struct fli_link *l, const struct sockaddr *address, socklen_t address_len)
{
    FLI_ASSERT(l->fd < 0 && l->reader == NULL);
    int fd = socket(address->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        say_errno(l, "no socket", errno);
        return FL_ENOCONN;
    }
    if (connect(fd, address, address_len) != 0 && errno != EINPROGRESS && errno != EINTR) {
        say_errno(l, "cannot connect", errno);
        close(fd);
        return FL_ENOCONN;
    }
    l->fd = fd;
    return 0;
}

int fli_link_finish(struct fli_link *l)
{
    FLI_ASSERT(l->fd >= 0 && l->reader == NULL);
    if (wait_for(l->fd, POLLOUT, 0) == 0) {
        say(l, "cannot connect: no answer in time");
        return FL_EBUSY;
    }
    int error = 0;
    socklen_t size = sizeof error;
    if (getsockopt(l->fd, SOL_SOCKET, SO_ERROR, &error, &size) != 0) {
        error = errno;
    }
    if (error != 0) {
        say_errno(l, "cannot connect", error);
        return FL_ENOCONN;
    }
    tune(l->fd);
    return make_reader(l);
}

int fli_link_push(struct fli_link *l, const void *data, size_t len, size_t *at)
{
    const uint8_t *p = data;
    while (*at < len) {
        ssize_t n = send(l->fd, p + *at, len - *at, MSG_NOSIGNAL);
        if (n > 0) {
            *at += (size_t)n;
        } else if (n == 0 || errno == EAGAIN) {
            say(l, "does not read what is sent");
            return FL_EBUSY;
        } else if (errno != EINTR) {
            say_errno(l, "connection lost while sending", errno);
            return FL_EIO;
        }
    }
    return 0;
}

bool fli_link_is_fresh(const struct fli_link *l)
{
    if (l->fd < 0 || l->reader->err != 0 || l->fed != 0) {
        return false;
    }
    struct pollfd p = {.fd = l->fd, .events = POLLIN | POLLRDHUP};
    return poll(&p, 1, 0) == 0;
}

int fli_link_send(struct fli_link *l, const void *data, size_t len, uint64_t until_ms)
{
    const uint8_t *p = data;
    while (len > 0) {
        ssize_t n = send(l->fd, p, len, MSG_NOSIGNAL);
        if (n > 0) {
            p += n;
            len -= (size_t)n;
            continue;
        }
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n < 0 && errno != EAGAIN) {
            say_errno(l, "connection lost while sending", errno);
            return FL_EIO;
        }
        int ready = wait_for(l->fd, POLLOUT, until_ms);
        if (ready <= 0) {
            say(l, ready == 0 ? "does not read what is sent" : "connection lost while sending");
            return ready == 0 ? FL_ETIMEOUT : FL_EIO;
        }
    }
    return 0;
}

/* A reply out of what was fed already. 1: there is one. */
static int next_reply(struct fli_link *l, redisReply **ret)
{
    void *reply = NULL;
    if (redisReaderGetReply(l->reader, &reply) != REDIS_OK) {
        say(l, "its answer is not RESP, or too large");
        return FL_EPROTO;
    }
    if (reply == NULL) {
        return 0;
    }
    l->fed = l->reader->len - l->reader->pos;
    *ret = reply;
    return 1;
}

static int read_some(struct fli_link *l)
{
    char chunk[16384];
    ssize_t n = recv(l->fd, chunk, sizeof chunk, 0);
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) {
        return 0;
    }
    if (n <= 0) {
        say_errno(l, "connection lost before the answer", n == 0 ? ECONNRESET : errno);
        return FL_EIO;
    }
    l->fed += (size_t)n;
    if (l->fed > FLI_REPLY_BYTES_MAX) {
        say(l, "its answer is too large");
        return FL_EPROTO;
    }
    if (redisReaderFeed(l->reader, chunk, (size_t)n) != REDIS_OK) {
        say(l, "its answer cannot be kept in memory");
        return FL_EPROTO;
    }
    return 0;
}

int fli_link_receive(struct fli_link *l, uint64_t until_ms, redisReply **ret)
{
    for (;;) {
        int n = next_reply(l, ret);
        if (n != 0) {
            return n < 0 ? n : 0;
        }
        int ready = wait_for(l->fd, POLLIN, until_ms);
        if (ready == 0) {
            say(l, "no answer in time");
            return FL_ETIMEOUT;
        }
        if (ready < 0) {
            say_errno(l, "connection lost before the answer", -ready);
            return FL_EIO;
        }
        int rc = read_some(l);
        if (rc != 0) {
            return rc;
        }
    }
}
