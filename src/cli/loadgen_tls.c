/* loadgen_tls.c: see loadgen_tls.h. */
#include "cli/loadgen_tls.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#define READ_SIZE ((size_t)16 << 10)
#define OUT_MAX ((size_t)1 << 20)

struct loadgen_tls {
    redisContext *redis;
    struct fli_tls *tls;
    struct fli_buf asked, cipher, plain;
    char error[128];
};

static int fail(struct loadgen_tls *t, int error, const char *why)
{
    (void)snprintf(t->error, sizeof t->error, "%s", why);
    return error;
}

static int send_all(struct loadgen_tls *t)
{
    size_t at = 0;
    while (at < t->cipher.len) {
        ssize_t n = send(t->redis->fd, t->cipher.data + at, t->cipher.len - at, MSG_NOSIGNAL);
        if (n < 0 && errno != EINTR) {
            return fail(t, FL_ENOCONN, strerror(errno));
        }
        at += n > 0 ? (size_t)n : 0;
    }
    fli_buf_clear(&t->cipher);
    return 0;
}

/* Decrypts what comes next into `plain`. */
static int receive(struct loadgen_tls *t)
{
    uint8_t bytes[READ_SIZE];
    ssize_t n = recv(t->redis->fd, bytes, sizeof bytes, 0);
    if (n <= 0) {
        return fail(t, FL_ENOCONN, n == 0 ? "the server closed it" : strerror(errno));
    }
    int rc = fli_tls_read(t->tls, bytes, (size_t)n, &t->plain, &t->cipher);
    int sent = send_all(t);
    return rc != 0 ? fail(t, FL_ENOCONN, fli_tls_error(t->tls)) : sent;
}

static int shake(struct loadgen_tls *t)
{
    int rc = fli_tls_read(t->tls, NULL, 0, &t->plain, &t->cipher);
    rc = rc != 0 ? fail(t, FL_ENOCONN, fli_tls_error(t->tls)) : send_all(t);
    while (rc == 0 && fli_tls_state(t->tls) == FLI_TLS_SHAKING) {
        rc = receive(t);
    }
    return rc;
}

struct loadgen_tls *loadgen_tls_open(redisContext *redis, struct fli_link_tls *with,
                                     const char *host, char *errmsg, size_t errmsg_size)
{
    struct loadgen_tls *t = fli_xcalloc(1, sizeof *t);
    t->redis = redis;
    fli_buf_init(&t->asked, OUT_MAX);
    fli_buf_init(&t->cipher, FLI_TLS_CIPHER_MAX(OUT_MAX) + FLI_TLS_SHAKE_MAX);
    fli_buf_init(&t->plain, FLI_TLS_PLAIN_MAX(READ_SIZE));
    int rc = fli_link_tls_session(with, host, &t->tls);
    rc = rc != 0 ? fail(t, rc, "no session can be made") : shake(t);
    if (rc != 0) {
        (void)snprintf(errmsg, errmsg_size, "%s", t->error);
        loadgen_tls_close(t);
        return NULL;
    }
    return t;
}

void loadgen_tls_close(struct loadgen_tls *t)
{
    if (t == NULL) {
        return;
    }
    fli_tls_destroy(t->tls);
    fli_buf_fini(&t->asked);
    fli_buf_fini(&t->cipher);
    fli_buf_fini(&t->plain);
    free(t);
}

int loadgen_tls_put(struct loadgen_tls *t, const void *data, size_t len)
{
    int rc = fli_buf_append(&t->asked, data, len);
    return rc != 0 ? fail(t, rc, "too much to be sent at once") : 0;
}

int loadgen_tls_flush(struct loadgen_tls *t)
{
    if (t->asked.len == 0) {
        return 0;
    }
    int rc = fli_tls_write(t->tls, t->asked.data, t->asked.len, &t->cipher);
    fli_buf_clear(&t->asked);
    return rc != 0 ? fail(t, rc, fli_tls_error(t->tls)) : send_all(t);
}

int loadgen_tls_read(struct loadgen_tls *t)
{
    fli_buf_clear(&t->plain);
    int rc = receive(t);
    if (rc == 0 && t->plain.len > 0 &&
        redisReaderFeed(t->redis->reader, (const char *)t->plain.data, t->plain.len) != REDIS_OK) {
        rc = fail(t, FL_ENOMEM, "out of memory");
    }
    if (rc == 0 && fli_tls_state(t->tls) == FLI_TLS_ENDED) {
        rc = fail(t, FL_ENOCONN, "the server closed it");
    }
    return rc;
}

const char *loadgen_tls_error(const struct loadgen_tls *t)
{
    return t->error;
}
