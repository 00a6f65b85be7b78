/* unsafe_ack.c: breaks a node on purpose, without a line of that in the program that ships.
 * Preloaded (LD_PRELOAD) into fencelockd, it sits below raft and answers in the name of each
 * follower that entries have arrived, the moment they are sent. So the leader takes them for
 * committed, and clients are answered, before anybody else has them. */
#include <dlfcn.h>
#include <raft.h>
#include <raft/uv.h>
#include <stdlib.h>
#include <string.h>
#include <uv.h>

#define EXPORT __attribute__((visibility("default")))

struct lie {
    struct lie *next;
    struct raft_message message;
};

static struct raft_io *backend;
static int (*real_send)(struct raft_io *io, struct raft_io_send *req,
                        const struct raft_message *message, raft_io_send_cb cb);
static int (*real_start)(struct raft_io *io, unsigned msecs, raft_io_tick_cb tick,
                         raft_io_recv_cb recv);
static raft_io_recv_cb deliver;
static uv_timer_t timer;
static struct lie *first, **last = &first;

static void tell(uv_timer_t *handle)
{
    while (first != NULL) {
        struct lie *l = first;
        first = l->next;
        if (first == NULL) {
            last = &first;
        }
        deliver(backend, &l->message);
        free(l);
    }
}

static int send_and_lie(struct raft_io *io, struct raft_io_send *req,
                        const struct raft_message *message, raft_io_send_cb cb)
{
    struct lie *l = NULL;
    if (message->type == RAFT_APPEND_ENTRIES && message->append_entries.n_entries > 0) {
        l = calloc(1, sizeof *l);
    }
    if (l != NULL) {
        const struct raft_append_entries *sent = &message->append_entries;
        l->message.type = RAFT_APPEND_ENTRIES_RESULT;
        l->message.server_id = message->server_id;
        l->message.server_address = message->server_address;
        l->message.append_entries_result = (struct raft_append_entries_result){
            .version = 2,
            .term = sent->term,
            .last_log_index = sent->prev_log_index + sent->n_entries,
            .capacity = 65535,
        };
        *last = l;
        last = &l->next;
        (void)uv_timer_start(&timer, tell, 0, 0); /* raft is in the middle of something now */
    }
    return real_send(io, req, message, cb);
}

static int start(struct raft_io *io, unsigned msecs, raft_io_tick_cb tick, raft_io_recv_cb recv)
{
    deliver = recv;
    return real_start(io, msecs, tick, recv);
}

EXPORT int raft_uv_init(struct raft_io *io, struct uv_loop_s *loop, const char *dir,
                        struct raft_uv_transport *transport)
{
    int (*real)(struct raft_io *, struct uv_loop_s *, const char *, struct raft_uv_transport *);
    void *found = dlsym(RTLD_NEXT, "raft_uv_init");
    memcpy((void *)&real, &found, sizeof found);
    int rc = real(io, loop, dir, transport);
    if (rc != 0) {
        return rc;
    }
    backend = io;
    real_send = io->send;
    real_start = io->start;
    io->send = send_and_lie;
    io->start = start;
    (void)uv_timer_init(loop, &timer);
    uv_unref((uv_handle_t *)&timer);
    return 0;
}
