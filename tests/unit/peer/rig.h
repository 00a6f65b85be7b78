/* rig.h: the transports of nodes 1 and 2 on one loop, node 3 that is not up, and plain sockets. */
#ifndef TEST_PEER_RIG_H
#define TEST_PEER_RIG_H

#include "../../lib/unit.h"

#include "base/buf.h"
#include "peer/transport.h"

#define DEADLINE_MS 240000u
/* For connecting, for answers and for what is not acknowledged: nobody gives up because this
 * process stood still. Tests of giving up have times of their own. */
#define RIG_PATIENCE_MS DEADLINE_MS
#define RIG_STREAMS 16u

struct rig;

/* A stream that is held, and what came on it. */
struct held_stream {
    struct stream *s; /* NULL when closed */
    enum stream_kind kind;
    struct peer_identity peer;
    unsigned frames, lost;
    char why[128];
    uint8_t type;         /* of the last frame */
    struct fli_buf body;  /* of the last frame */
    unsigned close_after; /* closed inside the frame of this number; 0: never */
    bool answer;          /* each frame is sent back */
};

struct side {
    struct rig *rig;
    uint64_t id;
    struct transport *t;
    struct peer_identity self;
    bool refuse;    /* the judge says no */
    bool undecided; /* it says nothing yet */
    bool unstarted; /* accepted streams are not started */
    bool discard;   /* accepted streams are closed at once */
    unsigned judged, accepted, answered, absent, closed, logged;
    struct peer_identity peer;               /* last judged */
    struct held_stream streams[RIG_STREAMS]; /* accepted, in order */
    enum handshake_verdict verdict;
    char reason[HANDSHAKE_REASON_MAX];
    uint64_t absent_id;
    char log[512]; /* the last line */
};

struct rig {
    uv_loop_t loop;
    struct members members;
    uint16_t ports[3];
    int reserved[3];
    struct side a, b;
    unsigned dialed;
    int status;              /* of the last dial */
    struct held_stream mine; /* from the last dial */
    void (*turn)(void *ctx); /* called after each turn of the loop; NULL: nothing is */
    void *turn_ctx;
    char errmsg[512];
};

extern const struct handshake_formats RIG_FORMATS;
extern const struct stream_limits RIG_LIMITS; /* of all kinds, unless set otherwise */

/* third: the address of node 3 (NULL: a port where nobody listens). */
struct rig *rig_open(const char *third);
void rig_close(struct rig *r);
void side_config(struct rig *r, struct side *s, struct transport_config *ret);
struct transport_callbacks rig_callbacks(struct side *s);
void side_start(struct rig *r, struct side *s, const struct transport_config *config);
void side_stop(struct side *s);
void rig_dial(struct rig *r, uint64_t id, enum stream_kind kind); /* by a; waits for the answer */
size_t rig_memory(const struct stream *s);           /* bytes that it uses, with its connection */
void rig_pair(struct rig *r, enum stream_kind kind); /* r->mine and r->b.streams[0], started */
void held_start(struct held_stream *h);
void held_close(struct held_stream *h);
bool held_is_hung_up(const struct held_stream *h); /* lost, and the other side ended it */

struct handshake rig_handshake(const struct rig *r); /* as node 1 would say it to node 2 */
int plain_listener(uint16_t *ret_port, int backlog);
int plain_connect(uint16_t port);
int plain_connect_from(uint32_t address, uint16_t port); /* of this machine, host order */
void plain_send(int fd, const void *data, size_t len);
void plain_say(int fd, const struct handshake *h);
ssize_t plain_peek(int fd); /* bytes that have arrived; -1 end of stream, -2 reset */
void plain_read_answer(struct rig *r, int fd, uint8_t bytes[HANDSHAKE_SIZE]);
unsigned rig_pending(const struct side *s);
unsigned rig_dialing(const struct side *s);
unsigned rig_turned_away(const struct side *s); /* connections that were refused, or dropped */
unsigned descriptors(void);                     /* that this process has */

bool rig_turn(struct rig *r, uint64_t deadline_ms); /* one turn of the loop; false: too late */
uint64_t rig_deadline(struct rig *r);

/* Runs the loop until the condition holds. */
#define RUN_UNTIL(r, condition)                                                                    \
    do {                                                                                           \
        uint64_t deadline_ = rig_deadline(r);                                                      \
        while (!(condition)) {                                                                     \
            if (!rig_turn(r, deadline_)) {                                                         \
                fail_msg("never came: %s", #condition);                                            \
            }                                                                                      \
        }                                                                                          \
    } while (0)

#endif
