/* conn.h: private to src/net: what a server and its connections share.
 *
 * An idle connection has only this struct. Input is read through one buffer that all connections
 * share, output is collected in a buffer from a pool, and both go back when they are empty. Only an
 * incomplete request, or a paused connection, keeps an input buffer of its own (struct net_input,
 * with the parser's state).
 *
 *        accept           QUIT, lost framing,              error, cut off, drained
 *   (new) ---> open ---> last (takes no more) ---> lingering ---> doomed ---> closed
 *               |          refused, stop, too slow     (until the client has seen the end)
 *               `--> eof (client sends no more; owed answers still leave) ---> doomed
 *
 * Nothing is closed inside a call of the service. A connection is marked doomed, put on the dirty
 * list and freed when the loop comes round (or in net_flush()). Until then its requests stay valid,
 * and answers to them go to a scratch buffer. */
#ifndef NET_CONN_H
#define NET_CONN_H

#include "base/heap.h"
#include "base/map.h"
#include "base/turn.h"
#include "base/line.h"
#include "net/net.h"

#define NET_READ_SIZE (64u * 1024u) /* bytes of one read; one such buffer for all connections */
#define NET_INPUT_SIZE FLI_TLS_PLAIN_MAX(NET_READ_SIZE) /* the most that one read may yield */
#define NET_BUFFER_KEEP (16u * 1024u)                   /* larger buffers are freed, not pooled */
#define NET_BUFFERS_MAX 512u                            /* buffers kept in the pool */
#define NET_REQUESTS_KEEP 65536u                        /* requests kept in the pool */
#define NET_INPUTS_KEEP 64u                             /* partial inputs kept in the pool */
#define NET_REAPED_TURN 8192u /* requests given up with their connections in a turn, about */
#define NET_HUNG_TURN 2048u   /* requests whose client has hung up, in a turn, about */
#define NET_REFUSED_MAX 64u   /* refused connections that get an error and an orderly end */
#define NET_LISTENERS_MAX 8u
#define NET_BACKLOG 1024
#define NET_ACCEPTS_TURN_MAX 64u /* connections that a turn of the loop accepts */
#define NET_LINGER_MS 1000u      /* how long it waits for the client's end */
#define NET_TICK_MS 100u
#define NET_KEEPALIVE_S 50u
#define NET_LISTEN_RETRY_MS 250u
#define NET_SHAKE_MS 10000u /* how long a TLS handshake may take */

struct net_input {
    struct fli_list link; /* in the pool */
    struct fli_resp_parser parser;
    struct fli_buf buf;
};

struct net_sending {
    uv_write_t write;
    struct net_conn *conn;
    struct fli_buf buf;
};

/* The additional state of a connection of the TLS port. */
struct net_secure {
    struct net_conn *conn;
    struct fli_tls *tls;      /* NULL until the client has sent something */
    bool shaken;              /* the handshake is over */
    bool ended;               /* the client sends no more; reported when everything was taken */
    struct fli_list deferred; /* in a line of the server: a handshake, whose `in` waits */
    struct fli_buf in, out;   /* ciphertext; usually empty */
};

/* The connections of an address in each of the server's lines. */
struct net_waits {
    struct fli_queue unserved, yielded, deferred, deferred_begun;
};

/* An address that clients come from. */
struct net_origin {
    struct fli_map_node node; /* server->origins */
    uint8_t key[16];
    uint8_t key_len;
    unsigned connections;
    size_t bytes;
    struct fli_heap heavy;    /* of it, as server->heavy */
    struct net_waits waiting; /* its connections in the lines of the server */
};

struct net_conn {
    uv_tcp_t tcp;
    struct net_server *server;
    struct fli_list link;     /* server->conns */
    struct fli_list dirty;    /* on server->dirty: has something to flush, resume or free; or on
                               * ->ending; or, with `later`, on ->pushed */
    struct fli_list watch;    /* server->fresh, ->leaving or ->lingering, oldest first */
    struct fli_list yielded;  /* in server->yielded or ->unserved: paused until its turn comes */
    struct fli_list hung;     /* on server->hanging_up: the service is not told yet */
    struct fli_list requests; /* in order of arrival: taken, and their answers not yet in the
                                 output */
    struct net_input *input;  /* NULL while nothing is left over */
    struct net_sending *sending;
    struct fli_buf out;
    size_t sending_left;             /* bytes of `sending` that the kernel has not taken */
    size_t waiting_len;              /* bytes of answers that wait for earlier ones */
    size_t replies;                  /* memory of those, and what requests keep */
    size_t subscribed;               /* memory that the service keeps for it */
    size_t bytes;                    /* all its memory, as of the last time that it was counted */
    struct fli_heap_node heavy;      /* server->heavy */
    struct fli_heap_node heavy_here; /* origin->heavy */
    struct net_origin *origin;       /* NULL: it was refused */
    struct net_secure *secure;       /* NULL: a plain connection */
    void *user;
    uint64_t id, opened_ms, active_ms, watch_ms, taken;
    uint64_t read_in;   /* the turn of the loop in which it was read last */
    unsigned in_flight; /* length of `requests` */
    uint8_t proto;
    uint64_t login;
    uint8_t address[NET_CONN_ADDRESS_MAX];
    uint8_t address_len;
    bool local;           /* the client is on this machine */
    bool transaction;     /* from MULTI to EXEC or DISCARD */
    bool waits;           /* from net_conn_hold to net_conn_release */
    bool admitted;        /* the service was told of it */
    bool reading;         /* uv_read is on */
    bool paused;          /* takes no requests: it is full, waits, or yielded */
    bool full;            /* too much is in flight or unsent; reset at half the limit */
    bool later;           /* it has only pushes to send, on server->pushed */
    bool requests_in_use; /* the list is being walked: answered ones must stay on it */
    bool eof;             /* the client sends no more */
    bool last;            /* takes no more requests; closes when everything was sent */
    bool lingering;       /* our side is shut down; waits for the client's end */
    bool doomed;          /* to be freed */
    bool reset;           /* it was cut off: also discard what the kernel holds for it */
    bool closing;         /* being freed */
    char name[64];
};

struct net_listener {
    uv_tcp_t tcp;
    struct net_server *server;
    struct sockaddr_storage address;
    socklen_t address_len;
    bool secure;
    bool open;  /* the tcp handle is initialised and not being closed */
    bool ends;  /* the tcp handle is being closed */
    bool waits; /* a connection is accepted in the next turn */
    bool retry; /* closed for want of file descriptors: the tick opens it again */
};

struct net_server {
    uv_loop_t *loop;
    struct net_limits limits;
    struct net_callbacks cbs;
    size_t user_size;
    size_t output_pause; /* unsent bytes at which reading pauses */
    uv_check_t check;
    uv_prepare_t prepare;
    uv_timer_t tick;
    uv_timer_t files;            /* checks the files of `tls` */
    struct fli_tls_context *tls; /* NULL: no TLS port */
    struct fli_buf plain;        /* decrypted bytes of the last read */
    uint64_t tls_logged_ms, tls_unlogged;
    struct net_listener *listeners[NET_LISTENERS_MAX];
    unsigned listeners_n;
    unsigned handles; /* uv handles that are still open */
    uv_idle_t idle;   /* active while connections have yielded: the poll does not wait */
    struct fli_turn turn;
    bool turning;          /* the first turn has begun */
    uint64_t polled_at_ms; /* when the loop began to wait, on the loop's clock */
    uint64_t idle_ns;      /* how long it waited in this turn */
    uint64_t share_ns;     /* what requests may take of a turn, see base/turn.h */
    uint64_t take_ns;      /* spent on requests in this turn */
    uint64_t turn_n;       /* this turn; counted from 2 */
    uint64_t read_at_ns;   /* when the read under way began */
    uint64_t counted_ns;   /* what was spent on requests and handshakes until then */
    enum fli_turn_part read_part;
    uint64_t visit_ns;        /* when the current connection began to take requests */
    unsigned visit_n;         /* how many it took */
    struct fli_line unserved; /* came in an earlier turn and were not served yet: they go first */
    struct fli_line yielded;  /* had their share, and continue */
    struct net_waits refused; /* of connections without an address that counts */
    uint64_t shake_ns;        /* for handshakes in this turn */
    struct fli_line deferred; /* handshakes that wait */
    struct fli_line deferred_begun;
    struct fli_list conns, dirty;
    struct fli_list fresh;      /* sent no whole request yet */
    struct fli_list leaving;    /* cut off: the last message is on its way out */
    struct fli_list lingering;  /* our side is shut down: wait for the client's end */
    struct fli_list shaking;    /* in the TLS handshake */
    struct fli_list ending;     /* doomed, and put off to the next turn; by `dirty` */
    struct fli_list hanging_up; /* clients that hung up, and put off to the next turn */
    struct fli_list pushed;     /* got pushes and nothing else; by `dirty` */
    uint64_t push_ns;           /* spent on those in this turn */
    struct fli_list lists;      /* of CLIENT LIST: the first is being made, the others wait */
    unsigned lists_n;           /* length of `lists` */
    unsigned listed;            /* connections that lists have looked at in this turn */
    size_t reaped, hung;        /* requests given up, and of clients that hung up, in this turn */
    uint64_t reap_ns, hang_ns;  /* spent on those in this turn */
    unsigned accepts;           /* in this turn */
    size_t conns_n;             /* length of `conns` */
    size_t refused_n;           /* of them, not admitted */
    uint64_t next_id;
    uint64_t drain_at_ms, retry_at_ms;
    bool stopping, closing, flushing;
    void (*stop_cb)(void *ctx);
    void *stop_ctx;
    struct net_stats stats;
    struct net_memory memory;
    struct fli_heap heavy; /* connections of NET_HEAVY_MIN bytes and more, the largest first */
    struct fli_map origins;
    uint64_t origin_logged_ms;
    struct fli_list free_requests, free_inputs;
    unsigned free_requests_n, free_inputs_n, free_buffers_n;
    struct fli_buf free_buffers[NET_BUFFERS_MAX];
    struct fli_buf scratch;        /* answers to a doomed connection */
    struct fli_resp_parser parser; /* for input that is parsed in the shared buffer */
    char read_buf[NET_READ_SIZE];
};

/* conn.c */
void net_conn_accept(struct net_listener *l); /* accepts the next connection */
void net_conn_doom(struct net_conn *c);
void net_conn_work(struct net_conn *c); /* flush, resume, settle, or reap */
void net_conn_set_reading(struct net_conn *c);
void net_conn_read_now(struct net_conn *c); /* once, without waiting */
void net_input_drop(struct net_conn *c);    /* of its own, if it has one */
void net_conn_stop(struct net_conn *c);     /* takes no more; closes when everything was sent */

void net_conn_take(struct net_conn *c, const uint8_t *data, size_t len); /* bytes that were read */
void net_conn_yield(struct net_conn *c, bool served);      /* it goes on in a later turn */
void net_conn_send(struct net_conn *c, struct fli_buf *b); /* nothing is being sent */

/* end.c */
void net_conn_read_end(struct net_conn *c); /* the client has hung up */
void net_conn_settle(struct net_conn *c);   /* lingers or dooms it, when nothing is owed */
void net_conn_reap(struct net_conn *c);     /* doomed: frees it, now or in a later turn */
void net_ends_go_on(struct net_server *s);  /* begins a turn's share */

/* secure.c */
bool net_secure_attach(struct net_conn *c); /* false: out of memory */
void net_secure_drop(struct net_conn *c);
void net_secure_read(struct net_conn *c, const uint8_t *data, size_t len);
void net_secure_go_on(struct net_conn *c);    /* the turn of a deferred one has come */
void net_secure_resume(struct net_conn *c);   /* decrypts what waits, unless it is paused */
void net_secure_send_end(struct net_conn *c); /* when the client has ended and everything was
                                                 taken */
void net_secure_flush(struct net_conn *c);
void net_secure_end(struct net_conn *c); /* the last message before our side is shut down */

/* reply.c */
void net_conn_drop(struct net_conn *c, const char *why);  /* cut off: doomed, counted, logged */
struct net_request *net_request_take(struct net_conn *c); /* NULL: out of memory */
/* transaction.c. True: it was answered, and is not the service's. */
bool net_transaction(struct net_request *r, const struct fli_slice *argv);
void net_request_free(struct net_request *r); /* the caller has removed it from its
                                                             list */
void net_conn_advance(struct net_conn *c);    /* moves answers whose turn it is to the output */
void net_buffer_take(struct net_server *s, struct fli_buf *b, size_t max);
void net_buffer_give(struct net_server *s, struct fli_buf *b);

/* memory.c */
void net_memory_init(struct net_server *s);
void net_memory_fini(struct net_server *s);
void net_memory_note(struct net_conn *c);     /* counts it anew; may doom it or others */
void net_memory_forget(struct net_conn *c);   /* it ends, and counts no more */
void net_memory_reply(struct net_request *r); /* its reply has grown */
void net_memory_heap_init(struct fli_heap *heavy_here);

/* unread.c */
void net_unread_limit(const struct net_conn *c);
void net_conn_failed(struct net_conn *c, int error); /* its socket failed: ends it */

/* origin.c */
void net_waits_init(struct net_waits *w, struct net_server *s);
struct net_waits *net_waits_of(const struct net_conn *c);
void net_waits_leave(struct net_conn *c); /* it ends, and waits in no line any more */
void net_origin_init(struct net_server *s);
void net_origin_fini(struct net_server *s);
void net_origin_note(struct net_conn *c); /* its address, once it is accepted */
bool net_origin_join(struct net_conn *c); /* false: its address has all it may have */
void net_origin_leave(struct net_conn *c);

/* client_list.c */
void net_lists_turn(struct net_server *s);    /* the turn's share of CLIENT LIST */
void net_list_leave(struct net_request *r);   /* it is answered or given up */
void net_list_skip(const struct net_conn *c); /* it ends, and is about to leave `conns` */

/* server.c */
void net_server_closed(struct net_server *s); /* one handle or connection is closed */
void net_server_tick_start(struct net_server *s);
void net_server_stay_awake(struct net_server *s); /* the next turn comes at once */
int net_server_listen_on(struct net_server *s, const char *address, bool secure, char *errmsg,
                         size_t errmsg_size) FLI_MUST_USE;
void net_server_log(struct net_server *s, int level, const char *fmt, ...) FLI_PRINTF(3, 4);

static inline size_t net_conn_unsent(const struct net_conn *c)
{
    return c->out.len + c->sending_left + c->waiting_len +
           (c->secure != NULL ? c->secure->out.len : 0);
}

/* Whether requests have had their share of this turn. */
static inline bool net_take_over(const struct net_server *s)
{
    return s->take_ns > s->share_ns;
}

static inline bool net_shake_over(const struct net_server *s)
{
    return s->shake_ns > FLI_TURN_HANDSHAKES_US * UINT64_C(1000);
}

/* Whether the parser is between two requests and needs to remember nothing. */
static inline bool net_parser_idle(const struct fli_resp_parser *p)
{
    return p->pos == 0 && p->args_left < 0 && !p->skipping;
}

static inline void net_conn_touch(struct net_conn *c)
{
    if (c->later) {
        c->later = false;
        fli_list_remove(&c->dirty);
    }
    if (!fli_list_linked(&c->dirty)) {
        fli_list_push(&c->server->dirty, &c->dirty);
    }
}

/* It got a push: it is flushed when those with answers have been. */
static inline void net_conn_touch_later(struct net_conn *c)
{
    if (!fli_list_linked(&c->dirty)) {
        c->later = true;
        fli_list_push(&c->server->pushed, &c->dirty);
    }
}

#endif
