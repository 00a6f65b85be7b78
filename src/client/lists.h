/* lists.h: reads the answers to SHOW, LOCKS, MEMBERS and INFO into the structs of client.h. Pure.
 * Fields are found by name; unknown ones are skipped, and missing ones stay empty, so that clients
 * and servers of different versions get along. */
#ifndef FLI_CLIENT_LISTS_H
#define FLI_CLIENT_LISTS_H

#include <hiredis/hiredis.h>

#include "fencelock/client.h"

enum fli_list_kind {
    FLI_LIST_ONE,   /* SHOW; the list is one of locks */
    FLI_LIST_LOCKS, /* a page of LOCKS */
    FLI_LIST_SESSIONS,
    FLI_LIST_MEMBERS, /* what is no member is left out */
};

/* Owns the reply from now on, also on failure. ret: a pointer to the pointer that gets the list of
 * this kind. 0, FL_EPROTO, FL_ENOMEM. */
int fli_list_read(enum fli_list_kind kind, redisReply *reply, void *ret) FL_MUST_USE;

/* How many locks the session has, by a reply to SESSION SHOW; UINT64_MAX: it does not say so. */
uint64_t fli_session_locks(const redisReply *reply);

/* The next field of an INFO. False: there is none. */
bool fli_info_next(struct fl_bytes *rest, struct fl_bytes *ret_key, struct fl_bytes *ret_value);

/* size: of *ret, as the program knows it; what it does not know is left out, and what this library
 * does not know is zero. */
void fli_status_of_info(const char *text, size_t len, struct fl_node_status *ret, size_t size);

#endif
