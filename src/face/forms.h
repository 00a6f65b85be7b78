/* forms.h: what Redis clients ask about locks, each as one thing that the lock machine can do: an
 * operation, where its arguments stand, and how the answer is worded. Scripts are recognised as
 * one of these forms (scripts.h), and commands become one of them as well (request.h). Pure. */
#ifndef FACE_FORMS_H
#define FACE_FORMS_H

#include "base/base.h"

#define FACE_KEYS_MAX 16u  /* of one request */
#define FACE_EACH_MAX 120u /* of one that is for each key by itself */

/* What is done; see MACHINE_KEYS_GRANT and so on, which have these values (server/face.c). */
enum face_change {
    FACE_GRANT = 1,
    FACE_EXTEND = 2,
    FACE_ADD = 4,
    FACE_RELEASE = 8,
    FACE_EACH = 16,
    FACE_SWAP = 32,
    FACE_AGAIN = 64,
};

/* Which command of the machine it is (server/face.c). */
enum face_op {
    FACE_OP_KEYS = 0,   /* KEYS by `change`, or KEY */
    FACE_OP_REENTER,    /* takes it, or once more */
    FACE_OP_ONCE,       /* takes it, but not twice */
    FACE_OP_LEAVE,      /* gives one of these back */
    FACE_OP_HOLDS,      /* asks how often it was taken */
    FACE_OP_RENEW_EACH, /* keys with a value each: prolongs those that are theirs */
    FACE_OP_BREAK,      /* takes it from whoever has it */
};

/* How one outcome is answered. */
enum face_answer {
    FACE_NEVER = 0, /* this form cannot come to it */
    FACE_OK,
    FACE_NIL,
    FACE_INT_0,
    FACE_INT_1,
    FACE_INT_2,
    FACE_INT_MINUS_1,
    FACE_INT_MINUS_2,
    FACE_INT_MINUS_3,
    FACE_COUNT,         /* how many keys it was done to, or are there */
    FACE_ERROR_WORD,    /* an error that says ERROR */
    FACE_ERROR_HELD,    /* an error: another value has the key */
    FACE_ERROR_NOT_KEY, /* an error: it is held, and not in the way of a key */
    FACE_ERROR_CHANGED, /* an error: it was given back between two questions */
    FACE_VALUE,
    FACE_SENT,       /* the value that came with the request */
    FACE_PTTL,       /* milliseconds of the lease that are left */
    FACE_TTL,        /* the same in seconds, rounded */
    FACE_VALUE_PTTL, /* an array of both */
    FACE_NIL_PTTL,   /* the same of a key that is not there */
    FACE_TOKEN,
    FACE_COUNT_TEXT,     /* as a string */
    FACE_MINUS_1_TOKEN,  /* an array of -1 and the token */
    FACE_PTTL_MINUS_1,   /* an array of what is left and -1 */
    FACE_ERROR_REENTERS, /* an error: the value has the key already */
};

struct face_answers {
    uint8_t granted; /* a question: not used */
    uint8_t
        own; /* of a change: it was done; of a question: there, and the value's if one was named */
    uint8_t other;
    uint8_t absent;
};

/* Positions count from 1 among ARGV; 0: there is none. */
struct face_form {
    const char *name;   /* for the file of aliases and for messages */
    const char *script; /* this form written by us, in Lua; NULL: it has no script */
    uint8_t op;         /* enum face_op */
    bool any;           /* whoever has the keys: a longer lease */
    uint8_t change;     /* enum face_change; 0: a question */
    uint8_t change_if;  /* instead, when the argument at `word_at` is `word` */
    uint8_t keys_min, keys_max;
    bool
        first_key; /* only the first key is a lock; the others are signals that nobody needs here */
    uint8_t value_at, new_value_at, ttl_at, word_at;
    uint8_t latch_key; /* among KEYS: its name tells one LEAVE from others; 0: there is none */
    uint8_t keep_at;   /* how long that is remembered, in ms */
    uint8_t empty_at;  /* an argument that must be empty */
    const char *word;
    bool seconds; /* of ttl_at */
    struct face_answers answers;
};

extern const struct face_form face_forms[];
extern const size_t face_forms_len;

/* NULL when there is none of this name. */
const struct face_form *face_form_find(struct fli_slice name);

#endif
