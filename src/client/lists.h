/* lists.h: reads the answers to SHOW, LOCKS, MEMBERS and INFO into the structs of client.h. Pure.
 * Fields are found by name; unknown ones are skipped, and missing ones stay empty, so that clients
 * and servers of different versions get along. */
#ifndef FLI_CLIENT_LISTS_H
#define FLI_CLIENT_LISTS_H

#include <hiredis/hiredis.h>

#include "fencelock/client.h"

/* Owns the reply from now on, also on failure. 0, FL_EPROTO, FL_ENOMEM. */
int fli_list_of_one(redisReply *show, struct fl_lock_list **ret) FL_MUST_USE;
int fli_list_of_page(redisReply *locks, struct fl_lock_list **ret) FL_MUST_USE;
int fli_list_of_sessions(redisReply *sessions, struct fl_session_list **ret) FL_MUST_USE;
/* What is no member is left out. */
int fli_list_of_members(redisReply *members, struct fl_member_list **ret) FL_MUST_USE;

/* The next field of an INFO. False: there is none. */
bool fli_info_next(struct fl_bytes *rest, struct fl_bytes *ret_key, struct fl_bytes *ret_value);

/* size: of *ret, as the program knows it; what it does not know is left out, and what this library
 * does not know is zero. */
void fli_status_of_info(const char *text, size_t len, struct fl_node_status *ret, size_t size);

#endif
