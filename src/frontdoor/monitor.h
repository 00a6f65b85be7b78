/* monitor.h: reads a line of Redis's MONITOR, and tells what the front door would do with its
 * command, before a program is moved to fencelock. Pure. */
#ifndef FRONTDOOR_MONITOR_H
#define FRONTDOOR_MONITOR_H

#include "frontdoor/request.h"
#include "wire/resp.h"

#define FRONTDOOR_MONITOR_LINE_MAX 65536u

struct frontdoor_monitored {
    unsigned n; /* words; those beyond the limit are left out */
    struct fli_slice words[FLI_RESP_ARGS_MAX];
    bool script; /* a script sent it, so it is a part of a script seen before */
};

/* Reads a line without its end, and puts the bytes of its words into `room`, which is as long as
 * the line. False when it is no line of MONITOR. */
bool frontdoor_monitor_read(struct fli_slice line, uint8_t *room,
                            struct frontdoor_monitored *ret) FLI_MUST_USE;

/* The key of the command, the first of several; empty when there is none. */
struct fli_slice frontdoor_monitor_key(const struct frontdoor_monitored *m);

/* The result for a command. `what`: the command in upper case, or the form of its script, or the
 * SHA-1 of an unknown script; `why`: the error that it would get. */
struct frontdoor_verdict {
    bool served;
    char what[64];
    char why[FRONTDOOR_ERRMSG_SIZE];
};
void frontdoor_monitor_check(const struct frontdoor_context *c, const struct frontdoor_monitored *m,
                             struct frontdoor_verdict *ret);

#endif
