/* relay_codec.h: the bodies of relay frames. Pure.
 *
 *   COMMAND    8 sequence, 8 source (ticket.h), then the command as machine_command_encode made it;
 *              a stream's sequences begin at a random number and go up by one
 *   RESULT     8 sequence, 4 status (negated code), 1 code, 3 zero, 4 number, 8 token, 8 wait,
 *              8 deadline, 8 clock, 16 each, then the payload; when the status is an error, all
 *              but it and the sequence are zero. FL_ENOLEADER: the command was not done and
 *              never will be, send it to the next leader. All that come behind it on its stream
 *              get this result, so nothing is overtaken
 *   PUSH       1 type, 1 reason, 1 explicit, 8 token, 8 wait, 8 deadline, 8 clock, 1 length, name,
 *              1 length, owner
 *   PING, PONG  nothing
 *
 * Decoded bytes come from a socket: lengths and ranges are checked, with FL_EPROTO otherwise. */
#ifndef COMMANDS_RELAY_CODEC_H
#define COMMANDS_RELAY_CODEC_H

#include "machine/machine.h"

/* Types of frames on a stream of kind STREAM_RELAY. The values are sent and must not change. */
enum relay_frame {
    RELAY_COMMAND = 1, /* to the leader: sequence, source, command */
    RELAY_RESULT = 2,  /* from the leader: sequence, status, result, payload */
    RELAY_PUSH = 4,    /* from the leader: an event of a wait */
    RELAY_PING = 6,    /* to the leader */
    RELAY_PONG = 7     /* from the leader */
};

#define RELAY_WINDOW 1536u /* a follower has no more commands unanswered than these */
#define RELAY_RESULT_SIZE 68u
#define RELAY_EVENT_SIZE (37u + FL_NAME_MAX + FL_OWNER_MAX)

struct relay_answer {
    uint64_t sequence;
    int status;
    struct machine_result result;
    struct fli_slice payload;
};

/* result may be NULL when status is not 0. The payload is sent behind these bytes. */
void relay_result_encode(uint64_t sequence, int status, const struct machine_result *result,
                         uint8_t out[RELAY_RESULT_SIZE]);
int relay_result_decode(struct fli_slice body, struct relay_answer *ret) FLI_MUST_USE;

size_t relay_event_encode(const struct machine_event *e, uint8_t out[RELAY_EVENT_SIZE]);
int relay_event_decode(struct fli_slice body, struct machine_event *ret) FLI_MUST_USE;

#define RELAY_COMMAND_HEAD_SIZE 16u
int relay_command_decode(struct fli_slice body, uint64_t *ret_sequence, uint64_t *ret_source,
                         struct fli_slice *ret_command) FLI_MUST_USE;

#endif
