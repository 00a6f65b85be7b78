/* monitor.h: a line of Redis's MONITOR, and what a front door would do with the command in it: so
 * that it is known before a program is moved. Pure. */
#ifndef FACE_MONITOR_H
#define FACE_MONITOR_H

#include "face/request.h"
#include "wire/resp.h"

#define FACE_MONITOR_LINE_MAX 65536u

struct face_monitored {
    unsigned n; /* words; more than there is room for are left out */
    struct fli_slice words[FLI_RESP_ARGS_MAX];
    bool script; /* a script has sent it, so it is a part of what was seen already */
};

/* Reads a line, without its end, and puts the bytes of its words into `room`, which has as many
 * bytes as the line. False when it is no such line. */
bool face_monitor_read(struct fli_slice line, uint8_t *room,
                       struct face_monitored *ret) FLI_MUST_USE;

/* The key that the command is about, the first of several; empty when there is none. */
struct fli_slice face_monitor_key(const struct face_monitored *m);

/* What became of it. `what`: the command in upper case, or the form of its script, or the SHA-1 of
 * one that is not known; `why`: the error that it would get. */
struct face_verdict {
    bool served;
    char what[64];
    char why[FACE_ERRMSG_SIZE];
};
void face_monitor_check(const struct face_context *c, const struct face_monitored *m,
                        struct face_verdict *ret);

#endif
