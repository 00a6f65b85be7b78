/* channel.h: the connections of an engine. A channel carries any number of requests to one node,
 * one behind the other, and their answers come in that order. A request that waits for a lock holds
 * back the answers behind it, so it has a channel of its own while it waits.
 *
 * What a call there waits for is the order of its state: for the connection, at which it begins;
 * that its request is with the kernel to its last byte; or for the answer.
 *
 * A call that gives its answer up leaves the channel; the answer is counted when it comes. When
 * nothing was heard on a channel for as long as the call was patient, or all answers wait for the
 * one that it gives up, no other call begins there; those that are there stay for as long as they
 * are patient, and then it is closed.
 *
 * A listener (watch.c) has a channel for itself: after the answers that it is owed, it takes what
 * comes one by one, and nothing is read meanwhile. So what it is too slow for waits at the node.
 *
 * Probes, of whether a node lives (LEADER) or serves (CHECK), go over its channel, too, once for
 * all calls that ask.
 *
 * A node to which no connection can be made is left alone for a while, longer each time: a
 * thousand calls do not make a thousand connections. */
#ifndef FLI_CLIENT_CHANNEL_H
#define FLI_CLIENT_CHANNEL_H

#include "client/engine_state.h"

/* A channel that is ready, or that is being connected. waiting: for a request that waits. NULL,
 * with the reason in the node's error, and *ret_code as for FLI_EVENT_REFUSED, or 0. */
struct fli_channel *fli_channel_get(struct fli_engine *e, uint32_t node, uint64_t until_ms,
                                    bool waiting, int *ret_code) FLI_MUST_USE;

/* A channel that a listener has for itself: it hears of all that happens there, and of the end of
 * it, but for when the channel is closed by fli_channel_unlisten() or with the engine. LEADER is
 * put in front of its request, and its answer is the first. Returns as fli_channel_get(); opened()
 * may have been called already. */
struct fli_channel *fli_channel_open(struct fli_engine *e, uint32_t node, uint64_t until_ms,
                                     struct fli_listener *l, int *ret_code) FLI_MUST_USE;
void fli_channel_unlisten(struct fli_channel *ch);
/* Puts so many requests. 0; FL_ELIMIT, FL_ENOMEM. */
int fli_channel_put_bytes(struct fli_channel *ch, const struct fli_buf *requests,
                          unsigned n) FLI_MUST_USE;
/* The next of what has come unasked. False: there is nothing more now, or it has ended. */
bool fli_channel_hear(struct fli_channel *ch, redisReply **ret);

/* Adds a request, and counts it. 0; FL_ELIMIT, FL_ENOMEM. */
int fli_channel_put(struct fli_channel *ch, const struct fli_call_request *request,
                    uint64_t wait_ms) FLI_MUST_USE;
/* LEADER, unless its answer is owed. */
void fli_channel_put_leader(struct fli_channel *ch);

/* Asks the node for its askers; `serves`: also whether it serves. False: it cannot be connected to,
 * for the reason in its error. *ret_alive: it has said already that it lives. */
bool fli_channel_ask(struct fli_engine *e, uint32_t node, uint64_t until_ms, bool serves,
                     bool *ret_alive) FLI_MUST_USE;
/* One of the askers has had no answer in time. */
void fli_channel_ask_over(struct fli_engine *e, uint32_t node);

/* The call leaves its channel. silent: since it got no answer. */
void fli_channel_leave(struct fl_call *c, bool silent);

/* Its bytes are not taken. Its calls hear of it. */
void fli_channel_break(struct fli_channel *ch, int rc);

/* Closes the connections that nobody needs, but for one to that node. */
void fli_channels_tidy(struct fli_engine *e, uint32_t node);
void fli_channels_drop(struct fli_engine *e, uint32_t node); /* all that nobody needs */
bool fli_channel_is_ready(const struct fli_engine *e, uint32_t node);
bool fli_channel_is_in_use(const struct fli_engine *e, uint32_t node);

void fli_channels_take_events(struct fli_engine *e);
void fli_channels_flush(struct fli_engine *e);
void fli_channels_free_closed(struct fli_engine *e);
void fli_channels_close_all(struct fli_engine *e);

#endif
