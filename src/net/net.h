/* net.h: RESP over TCP on libuv: a listener and its connections, the same for fencelockd and
 * fencelock-store.
 *
 * A connection reads into one bounded buffer, parses requests in place and hands them to the
 * service one after the other. The service answers each request exactly once, at once or later;
 * answers leave in the order of the requests whatever the order in which they are made. All answers
 * made in one turn of the loop leave in one write. Bounds, each with a clear error or a closed
 * connection at its end: bytes of a request, requests in flight per connection (reading pauses),
 * bytes of unsent answers (the slow reader is cut off), connections. One loop, one thread. */
#ifndef NET_NET_H
#define NET_NET_H

#include <stdbool.h>
#include <uv.h>

#include "base/buf.h"
#include "base/list.h"
#include "base/turn.h"
#include "tls/tls.h"
#include "wire/resp.h"

struct net_server;
struct net_conn;
struct net_request;
struct net_client_list;

struct net_limits {
    struct fli_resp_limits resp;
    unsigned connections_max;
    unsigned pipeline_max; /* requests in flight per connection before reading pauses */
    size_t output_max;     /* unsent bytes per connection before it is cut off */
    size_t request_memory; /* the most that the service keeps for a request in flight */
    size_t memory_max;     /* bytes for all connections; above it the largest is closed; 0: no
                          limit */
    unsigned address_connections_max; /* of one address (origin.c); 0: no ceiling */
    size_t address_memory_max;        /* bytes of one address, likewise; then its largest go */
    /* A connection that never completes a first request is closed; 0: never. */
    unsigned idle_first_ms;
    /* A client whose machine takes no byte of what is sent to it for so long is cut off; 0: never.
     * What it has not read yet would keep memory that others need. */
    unsigned unread_ms;
    bool fixed; /* the program has no options for the limits of connections and memory */
};
#define NET_UNREAD_MS 60000u /* for servers */

/* cancel, hangup, opened and closed come from the loop or from net_flush(), never from inside
 * net_answer() or another function that a service calls while it walks its own structures. */
struct net_callbacks {
    void *ctx;
    /* A request arrived. argv is valid during the call only. Answer now with net_answer() or keep
     * `r` and answer later. */
    void (*request)(void *ctx, struct net_request *r, const struct fli_slice *argv, unsigned argc);
    /* The connection of r is gone before r was answered: forget r (net frees it after this call).
     * Not called for answered ones. */
    void (*cancel)(void *ctx, struct net_request *r);
    /* The client has closed its sending side while r is unanswered. It may still read (a
     * half-closed socket) or be dead; the two look the same. r may still be answered, also inside
     * this call. May come more than once for a request. May be NULL. */
    void (*hangup)(void *ctx, struct net_request *r);
    void (*opened)(void *ctx, struct net_conn *c);          /* may be NULL */
    void (*shaken)(void *ctx, struct net_conn *c);          /* TLS: before its first request,
    and at each RESET; may be NULL */
    void (*closed)(void *ctx, struct net_conn *c);          /* may be NULL; after every cancel */
    void (*log)(void *ctx, int level, const char *message); /* may be NULL; levels as in node.h */
};

/* One request in flight. net allocates it from a pool; `user` has room for the service's own state
 * of the request (size given at create). */
struct net_request {
    struct fli_list link; /* private: in the connection's order */
    struct net_conn *conn;
    bool answered;        /* private */
    bool is_push;         /* private: no request, but pushed bytes behind the requests before
                             it */
    struct fli_buf reply; /* private: an answer that waits for earlier ones */
    size_t counted;       /* private: its bytes that the connection's count includes */
    size_t kept;          /* private: set by net_request_keeps() */
    struct net_client_list *list; /* private: it waits for its CLIENT LIST */
    _Alignas(16) uint8_t user[];
};

struct net_conn_info {
    uint64_t id;
    int proto; /* 2 or 3 */
    char peer[64];
    char name[64]; /* CLIENT SETNAME */
    uint64_t age_ms, idle_ms, requests;
    size_t output_bytes;
    unsigned in_flight;
};

/* 0, FL_EINVAL (a limit is 0), FL_ENOMEM, FL_ESYSTEM. `limits` and `cbs` are copied. */
int net_server_create(uv_loop_t *loop, const struct net_limits *limits, size_t request_user_size,
                      const struct net_callbacks *cbs, struct net_server **ret) FLI_MUST_USE;

/* Binds HOST:PORT (numeric or a name; port 0 picks one). 0; FL_EINVAL, FL_ESYSTEM with a sentence
 * in errmsg. May be called again for more addresses. */
int net_server_listen(struct net_server *s, const char *address, char *errmsg,
                      size_t errmsg_size) FLI_MUST_USE;
/* The same for connections with TLS; at most one. The files of `config` are read and checked, and
 * read again when they change. A client has NET_SHAKE_MS (10 s) for its handshake. */
int net_server_listen_tls(struct net_server *s, const char *address,
                          const struct fli_tls_config *config, char *errmsg,
                          size_t errmsg_size) FLI_MUST_USE;
void net_server_tls_reload(struct net_server *s); /* now; nothing without a TLS port */
bool net_server_tls_facts(const struct net_server *s, struct fli_tls_facts *ret); /* false: none */
/* Port that was bound, for port 0; 0 when there is no such listener. */
uint16_t net_server_port(const struct net_server *s);
uint16_t net_server_tls_port(const struct net_server *s);

/* Answering. net_reply() returns the buffer to append RESP to (the connection's output when it is
 * this request's turn); net_answer() then says that the answer is complete. After any append error
 * call net_answer_failed(): it closes the connection, since the stream is incomplete. */
struct fli_buf *net_reply(struct net_request *r);
void net_answer(struct net_request *r);
void net_answer_failed(struct net_request *r);

/* The service keeps so many bytes for this request, besides request_memory. Its connection is
 * charged for them until it is answered. */
void net_request_keeps(struct net_request *r, size_t bytes);

bool net_conn_is_tls(const struct net_conn *c);
/* The CN of the client's verified certificate; false when it has shown none. */
bool net_conn_cert_name(const struct net_conn *c, char ret[FLI_TLS_NAME_MAX]);
/* Whether it has shown one, with a name or without. */
bool net_conn_has_cert(const struct net_conn *c);
/* The part of the certificate that names the user, as `by` says; false as above, or when it has no
 * such name. */
bool net_conn_cert_user(const struct net_conn *c, enum fli_tls_user by, char ret[FLI_TLS_NAME_MAX]);
int net_conn_proto(const struct net_conn *c);
/* The login of the client: a number that the service sets; 0 at first. */
uint64_t net_conn_login(const struct net_conn *c);
void net_conn_set_login(struct net_conn *c, uint64_t login);
/* A login that is nobody's: of a certificate that stands for a user, and names none. */
#define NET_LOGIN_NOBODY UINT64_C(0xffffffff)
/* Whether the client is on this machine; and its address: 4 or 16 bytes, then the port in 2, both
 * in network order; empty when unknown. */
bool net_conn_is_local(const struct net_conn *c);
struct fli_slice net_conn_address(const struct net_conn *c);
#define NET_CONN_ADDRESS_MAX 18u
/* A number for what address-connections counts as one address: the address without the port; of
 * version 6, its network of 64 bits. */
uint64_t net_conn_origin(const struct net_conn *c);
/* Takes no more requests from the connection, and reads nothing, until it is released. */
void net_conn_hold(struct net_conn *c);
void net_conn_release(struct net_conn *c);
void net_conn_set_proto(struct net_conn *c, int proto);
void net_conn_set_name(struct net_conn *c, const char *name);
uint64_t net_conn_id(const struct net_conn *c);
void *net_conn_user(const struct net_conn *c);
void net_conn_set_user(struct net_conn *c, void *user);
void net_conn_info(const struct net_conn *c, struct net_conn_info *ret);
/* Bytes of answers that the client has not taken yet; output_max limits them. */
size_t net_conn_output_bytes(const struct net_conn *c);
/* Requests without an answer, or whose answer waits for an earlier one. */
unsigned net_conn_in_flight(const struct net_conn *c);
/* Whether the client has closed its sending side. */
bool net_conn_eof(const struct net_conn *c);
/* Closes after every request taken so far was answered and the answers were sent (QUIT). */
void net_conn_close_after_answers(struct net_conn *c);
/* Sends bytes that are no answer: one or more whole RESP values, such as events to a subscriber. In
 * RESP3 they go ahead of the answers still owed. In RESP2, where a client could not tell them
 * apart, they go behind the answers to all requests taken so far. False: nothing was sent, since
 * the connection is about to close or takes no more. Not while a reply is being made. */
bool net_push(struct net_conn *c, const void *data, size_t len) FLI_MUST_USE;
/* Ends a connection that does not take what is pushed. `last_word` is pushed as the last message,
 * and the connection is cut off if it has not taken that within NET_LAST_WORD_MS. `why` is for the
 * log. */
void net_conn_cut_off(struct net_conn *c, const char *why, const void *last_word, size_t len);
#define NET_LAST_WORD_MS 5000u
/* Calls fn for each open connection, oldest first; fn may not close any. */
void net_each_conn(struct net_server *s, void (*fn)(void *ctx, struct net_conn *c), void *ctx);
size_t net_connections(const struct net_server *s);

struct net_stats {
    uint64_t accepted; /* connections, including refused ones */
    uint64_t refused;  /* over connections_max, or over what one address may have */
    uint64_t cut_off;  /* slow readers over output_max */
    uint64_t broken;   /* closed because framing was lost */
    uint64_t requests; /* handed to the service */
    uint64_t bytes_in, bytes_out;
    uint64_t tls_handshakes, tls_failed;
    uint64_t tls_deferred; /* handshakes that had to wait for a later turn of the loop */
    uint64_t paused;       /* how often reading from a connection paused */
};
void net_get_stats(const struct net_server *s, struct net_stats *ret);
/* The memory of connections: buffers of input and output, requests in flight with the service's
 * state for each (request_memory), TLS, subscriptions. */
struct net_memory {
    size_t clients;     /* bytes */
    size_t clients_max; /* the most so far; one turn of the loop may exceed the limit */
    size_t limit;       /* memory_max */
    size_t largest;     /* of one connection, when it is one of the heavy ones */
    size_t heavy;       /* connections with NET_HEAVY_MIN or more */
    size_t pooled;      /* free, kept for reuse */
    uint64_t cut_off;   /* connections closed because of the limit */
    /* Of one address: what it may have (0: no ceiling), the most that one ever had. */
    unsigned origin_connections_limit, origin_connections_max;
    size_t origin_limit, origin_max;
    size_t origins;          /* addresses that have a connection */
    uint64_t origin_refused; /* connections */
    uint64_t origin_cut_off; /* connections */
};
#define NET_HEAVY_MIN ((size_t)32 << 10)
void net_get_memory(const struct net_server *s, struct net_memory *ret);
/* Lines for the section Memory of INFO. 0, FL_ELIMIT, FL_ENOMEM. */
int net_memory_info(struct fli_buf *b, const struct net_memory *m) FLI_MUST_USE;
/* The service's memory for the connection besides its requests. */
void net_conn_set_subscribed(struct net_conn *c, size_t bytes);
/* Measures the loop's turns: net ends each turn, other parts report theirs. */
struct fli_turn *net_server_turn(struct net_server *s);
/* The section of INFO about the loop. 0, FL_ELIMIT, FL_ENOMEM. */
int net_loop_info(struct fli_buf *b, const struct fli_turn_stats *stats) FLI_MUST_USE;
/* The section TLS of INFO; port 0: there is no TLS port. 0, FL_ELIMIT, FL_ENOMEM. */
int net_tls_info(struct fli_buf *b, uint16_t port, const struct fli_tls_facts *facts,
                 const struct net_stats *stats) FLI_MUST_USE;

/* Writes out all answers of this turn. net does this itself in a uv_check handle and before
 * closing; a service calls it only after answering outside of the loop's poll phase. */
void net_flush(struct net_server *s);

/* Stops accepting and reading. Answers still owed may be given. Closes each connection when its
 * answers were sent, and all of them after drain_ms. Calls cb once, never inside this call. */
void net_server_stop(struct net_server *s, unsigned drain_ms, void (*cb)(void *ctx), void *ctx);
void net_server_destroy(struct net_server *s); /* after stop's cb; NULL is fine */

#endif
