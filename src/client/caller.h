/* caller.h: what programs of our own use of a client beside its public calls: they can be
 * interrupted, and tell people what they wait for. */
#ifndef FLI_CLIENT_CALLER_H
#define FLI_CLIENT_CALLER_H

#include "base/base.h"
#include "fencelock/client.h"

struct fl_store;
struct redisReply;

#define FLI_SILENCE_MS UINT64_C(2000)

/* Called each time that a call goes on although no node is usable, and with 0 when one is usable
 * again; and once when a call that waits for no lock has had no answer for FLI_SILENCE_MS.
 * without_ms: for how long none has been. text: every node with its last error; it is valid
 * until the callback returns. It is called as every callback, outside of all locks. */
typedef void (*fli_trouble_cb)(void *arg, uint64_t without_ms, const char *text);

/* For every later call of this client that blocks. NULL: no callback any more. */
void fli_client_on_trouble(fl_client *c, fli_trouble_cb on_trouble, void *arg);
void fli_store_on_trouble(struct fl_store *s, fli_trouble_cb on_trouble, void *arg);

/* For programs that are interrupted: every later call that blocks ends with FL_EUNCERTAIN when fd
 * is readable; -1: none does. */
void fli_client_stop_at(fl_client *c, int fd);

/* Any command, as words. changes: it may be made twice; otherwise it is a question. at_leader: who
 * leads is found out first. 0; or the code of a call. *ret (NULL: there is none), for
 * freeReplyObject(), may be the error that has refused it. *ret_unknown: an attempt without an
 * answer may have made the change. */
int fli_client_words(fl_client *c, const char *const *words, size_t n, bool changes, bool at_leader,
                     uint64_t timeout_ms, struct redisReply **ret, bool *ret_unknown) FLI_MUST_USE;

/* Resolves the nodes' names now and never again: a call that resolves one does not see that. */
void fli_client_resolve(fl_client *c);

/* The number of an attempt at an ACQUIRE of this handle that may still be carried out; 0: there is
 * none. And: this handle's attempts come after that one of another handle. */
uint64_t fli_client_last_attempt(const fl_client *c);
void fli_client_begin_above(fl_client *c, uint64_t last);

#endif
