/* dispatch_private.h: one request from its submission on, and the work for clients that are gone.
 * For dispatch.c, backup.c, listing.c, cleanup.c and frontdoor.c.
 *
 *   state                     request  where
 *   listing in line           set      dispatch->listings (listing.c)
 *   listing in line, left     NULL     dispatch->listings
 *   in flight                 set      with the node (ticket)
 *   in flight, orphan         NULL     with the node
 *   parked                    set      parked.wait
 *   parked, ghost             NULL     parked.wait: its owner was made here, so a grant that comes
 *                                      before the cancel must be released
 *   to be cleaned up          NULL     dispatch->cleanup (now) or dispatch->again (in a while)
 *   being cleaned up          NULL     with the node
 *
 * The last two may be parked as well: a ghost, or a request whose client has hung up and is to be
 * answered. */
#ifndef SERVER_DISPATCH_PRIVATE_H
#define SERVER_DISPATCH_PRIVATE_H

#include "base/line.h"
#include "base/share.h"
#include "frontdoor/signals.h"
#include "server/dispatch.h"
#include "server/parked.h"

#define OWNER_RANDOM 16u /* random bytes of an owner */

enum call_cleanup { CLEANUP_NONE, CLEANUP_WAIT, CLEANUP_GRANT };

struct call {
    struct node_ticket ticket;
    struct fli_list link; /* spare, cleanup, again */
    struct parked_request parked;
    struct frontdoor_waiter waiter; /* of a BLPOP */
    struct dispatch *dispatch;
    void *request; /* NULL: nothing is to be answered */
    struct dispatch_slot *slot;
    enum fli_command_id id;
    uint8_t proto;
    uint8_t cleanup;      /* enum call_cleanup: what is to be done */
    uint8_t cleanup_sent; /* of that, what is with the node */
    uint8_t name_len;
    bool waits;      /* may be answered QUEUED */
    bool made_owner; /* this node made the owner, and no client knows it */
    bool counted;    /* the attempt has a number, so the newest one is known */
    bool hung_up;    /* the client has closed its sending side */
    bool listing;    /* in flight, counted in listings_in_flight */
    bool frontdoor;  /* a request of a Redis client, answered with one of `answers` */
    bool fetches;    /* of frontdoor: may need another's value of the key */
    uint8_t value_len;
    struct frontdoor_answers answers;
    unsigned tries;
    uint64_t wait_ms;
    uint64_t address;  /* of a client that has left, as dispatch_config says */
    uint64_t since;    /* from parked_request_sent() */
    uint64_t restores; /* of dispatch, when it was submitted */
    uint64_t again_ms; /* when to try to clean up again */
    uint64_t wait;     /* the wait that it was parked on; CLEANUP_WAIT: to be cancelled, under */
    uint64_t times_asked;
    uint64_t token;  /* CLEANUP_GRANT: to be released */
    uint64_t number; /* of a change of a member: the node */
    uint8_t name[FL_NAME_MAX];
    uint8_t value[FL_OWNER_MAX];
};

_Static_assert(sizeof(struct call) <= DISPATCH_CALL_MEMORY, "what a connection is charged for it");

struct dispatch {
    struct dispatch_config config;
    struct parked parked;
    struct frontdoor_signals signals;
    struct fli_list spare; /* calls for reuse */
    unsigned spare_n;
    struct fli_line cleanup; /* to be tried now */
    struct fli_queue cleanup_of[DISPATCH_CLEANUP_QUEUES];
    struct fli_list again;    /* to be tried again, in order of again_ms */
    unsigned cleaning;        /* with the node */
    size_t calls;             /* in use */
    struct fli_line listings; /* in line, see listing.c */
    struct listings_of {
        struct fli_queue queue;
        struct fli_share share;
    } listings_of[DISPATCH_LISTINGS_QUEUES];
    struct fli_shares listings_shares;
    struct fli_list listings_by_age;
    unsigned listings_in_flight;
    struct fli_buf scratch;
    struct info_counts counts;
    bool stopping;
    uint64_t restores; /* number of snapshots that replaced the state */
    size_t random_left;
    uint8_t owner[2 * OWNER_RANDOM];
    uint8_t random[4096];
};

/* dispatch.c */
/* Whether n more calls for this request are too many. */
bool dispatch_is_full(struct dispatch *d, void *request, size_t n);
struct call *dispatch_call_take(struct dispatch *d);
void dispatch_call_free(struct call *c);
void *dispatch_call_detach(struct call *c); /* the request, which the call then forgets */
void dispatch_answer_failure(struct call *c, int status);
void dispatch_answer_news(struct call *c, const struct parked_news *news);
void dispatch_finish(struct dispatch *d, void *request, int rc);
void dispatch_error(struct dispatch *d, void *request, const char *word, const char *text);
void dispatch_fail(struct dispatch *d, void *request, int status, bool retryable);
/* Answers CLUSTER MEMBERS, or SENTINEL with these arguments. */
void dispatch_answer_nodes(struct dispatch *d, void *request, int proto,
                           const struct fli_slice *args, unsigned n);
void dispatch_set_sender(struct dispatch *d, void *request, struct machine_command *m);
/* A call for the command, which names its sender from here on. NULL: there are too many calls, and
 * the request is answered. */
struct call *dispatch_begin(struct dispatch *d, void *request, struct dispatch_slot *slot,
                            int proto, enum fli_command_id id, struct machine_command *m);
/* Sends it. False: that failed, the request is answered, and the call is gone. */
bool dispatch_send(struct call *c, const struct machine_command *m);
/* Calls the config's `refused` if the result is for want of a right or of a login. Once for each
 * request. */
void dispatch_tell_refused(struct dispatch *d, void *request, enum fli_command_id id,
                           const struct machine_result *result);
struct call *dispatch_attach(struct dispatch *d, void *request, struct dispatch_slot *slot,
                             int proto, enum fli_command_id id);
void dispatch_on_result(struct node_ticket *t, int status, const struct machine_result *result,
                        struct fli_slice payload);
int dispatch_submit(struct call *c, const struct machine_command *m,
                    node_ticket_cb cb) FLI_MUST_USE;

/* Does the same for an encoded command. */
int dispatch_submit_bytes(struct call *c, const void *command, size_t len,
                          node_ticket_cb cb) FLI_MUST_USE;

/* listing.c */
void listing_init(struct dispatch *d);
void listing_fini(struct dispatch *d); /* none stands in line */
bool listing_is(const struct machine_command *m);
int listing_submit(struct call *c, const struct machine_command *m, node_ticket_cb cb) FLI_MUST_USE;
void listing_done(struct call *c); /* its answer has come */
void listing_turn(struct dispatch *d);
uint64_t listing_next_turn_ms(const struct dispatch *d);

/* cleanup.c */
void dispatch_park(struct call *c, const struct machine_result *queued);
/* Begins the wait of a BLPOP for the signal that c->name is, before its query is sent. False: there
 * are too many waits, the request is answered, and the call is gone. */
bool dispatch_signal_begin(struct call *c, uint64_t wait_ms);
/* The result of a BLPOP's query; NULL: there is none. Whether that is all that it is for. */
bool dispatch_signal_asked(struct call *c, const struct machine_result *result);
void dispatch_orphan_done(struct call *c, int status, const struct machine_result *result);
void dispatch_drop_all(struct dispatch *d); /* those that wait to be cleaned up, and ghosts */

#endif
