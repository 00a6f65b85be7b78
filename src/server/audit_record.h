/* audit_record.h: an event of the audit log, as apply notes it, and the line of JSON that a thread
 * makes of it. Pure.
 *
 * A note is a copy: its numbers, and the bytes of its texts one behind the other. It takes
 * AUDIT_RECORD_MAX bytes at most, where the line, in which a byte may become six, takes up to
 * AUDIT_LINE_MAX. */
#ifndef SERVER_AUDIT_RECORD_H
#define SERVER_AUDIT_RECORD_H

#include "base/buf.h"

enum audit_word {
    AUDIT_GRANTED,
    AUDIT_RELEASED,
    AUDIT_EXPIRED,
    AUDIT_BROKEN,
    AUDIT_DENIED,
    AUDIT_USER_CHANGED,
    AUDIT_USER_DELETED,
    AUDIT_REFUSED,
    AUDIT_DROPPED,
    AUDIT_WORDS
};

enum audit_text {
    AUDIT_NAME,  /* the lock; of a refusal, the command */
    AUDIT_OWNER, /* or the user that was changed; of a refusal, the reason */
    AUDIT_USER,  /* empty: the default user */
    AUDIT_ADDRESS,
    AUDIT_BY,
    AUDIT_BY_ADDRESS,
    AUDIT_TEXTS
};

#define AUDIT_TEXT_MAX 255u /* bytes of a text */
#define AUDIT_RECORD_SIZE 32u
#define AUDIT_RECORD_MAX (AUDIT_RECORD_SIZE + AUDIT_TEXTS * AUDIT_TEXT_MAX)
#define AUDIT_LINE_MAX (512u + AUDIT_TEXTS * AUDIT_TEXT_MAX * 6u)

struct audit_record {
    enum audit_word word;
    bool again;
    uint64_t wall_ms, clock_ms;
    uint64_t number; /* the token, 0 for none; of DROPPED, the lines */
    struct fli_slice texts[AUDIT_TEXTS];
};

/* The bytes of its note. */
size_t audit_record_size(const struct audit_record *r);
/* Appends the note. 0; FL_EINVAL (a text is too long), FL_ELIMIT, FL_ENOMEM. */
int audit_record_note(struct fli_buf *b, const struct audit_record *r) FLI_MUST_USE;
/* Reads the note at `at`, into which the texts point. Returns its size. */
size_t audit_record_read(const uint8_t *at, struct audit_record *ret);
/* Appends the line, with its end. 0, FL_ELIMIT, FL_ENOMEM. */
int audit_record_line(struct fli_buf *b, uint64_t node_id,
                      const struct audit_record *r) FLI_MUST_USE;

#endif
