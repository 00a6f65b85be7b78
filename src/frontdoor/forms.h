/* forms.h: requests of Redis clients about locks. Each form is one operation of the lock machine,
 * with the places of its arguments and the wording of its answers. Scripts are recognised as one of
 * these forms (scripts.h), and commands are translated to one as well (request.h). Pure. */
#ifndef FRONTDOOR_FORMS_H
#define FRONTDOOR_FORMS_H

#include "machine/batch.h"

/* The answer to one outcome. */
enum frontdoor_answer {
    FRONTDOOR_NEVER = 0, /* this form cannot have this outcome */
    FRONTDOOR_OK,
    FRONTDOOR_NIL,
    FRONTDOOR_INT_0,
    FRONTDOOR_INT_1,
    FRONTDOOR_INT_2,
    FRONTDOOR_INT_MINUS_1,
    FRONTDOOR_INT_MINUS_2,
    FRONTDOOR_INT_MINUS_3,
    FRONTDOOR_COUNT,         /* the number of keys that were changed, or that exist */
    FRONTDOOR_ERROR_WORD,    /* an error with the text ERROR */
    FRONTDOOR_ERROR_HELD,    /* an error: another value has the key */
    FRONTDOOR_ERROR_NOT_KEY, /* an error: the lock is held, but not as a key */
    FRONTDOOR_ERROR_CHANGED, /* an error: it was released between two queries */
    FRONTDOOR_VALUE,
    FRONTDOOR_SENT,       /* the value in the request */
    FRONTDOOR_PTTL,       /* milliseconds left of the lease */
    FRONTDOOR_TTL,        /* the same in seconds, rounded */
    FRONTDOOR_VALUE_PTTL, /* an array of both */
    FRONTDOOR_NIL_PTTL,   /* the same for a key that does not exist */
    FRONTDOOR_TOKEN,
    FRONTDOOR_COUNT_TEXT,     /* the count as a string */
    FRONTDOOR_MINUS_1_TOKEN,  /* an array of -1 and the token */
    FRONTDOOR_PTTL_MINUS_1,   /* an array of the milliseconds left and -1 */
    FRONTDOOR_ERROR_REENTERS, /* an error: this value has the key already */
    FRONTDOOR_EACH,           /* an array of 1 or 0 for each key: whether it is the owner's */
};

struct frontdoor_answers {
    uint8_t granted; /* for a query: not used */
    uint8_t own; /* of a change: it was done; of a query: there, and the value's if one was named */
    uint8_t other;
    uint8_t absent;
    uint8_t n_each; /* of EACH */
};

/* Positions count from 1 in ARGV; 0: none. */
struct frontdoor_form {
    const char *name;   /* for the file of aliases and for messages */
    const char *script; /* our own wording in Lua; NULL: the form has no script */
    uint8_t op;         /* enum machine_op; 0: KEYS by `change`, or KEY */
    bool each;          /* keys with a value each */
    uint8_t change;     /* flags of the op; of KEYS 0: a query */
    uint8_t change_if;  /* in place of `change`, when the argument at `word_at` is `word` */
    uint8_t keys_min, keys_max;
    bool
        first_key; /* only the first key is a lock; the others are signals that nobody needs here */
    uint8_t value_at, new_value_at, ttl_at, word_at;
    uint8_t latch_key; /* in KEYS: its name identifies one LEAVE; 0: none */
    uint8_t keep_at;   /* how long the LEAVE is remembered, in ms */
    uint8_t empty_at;  /* an argument that must be empty */
    const char *word;
    bool seconds; /* ttl_at is in seconds */
    struct frontdoor_answers answers;
};

extern const struct frontdoor_form frontdoor_forms[];
extern const size_t frontdoor_forms_len;

/* NULL when there is no form with this name. */
const struct frontdoor_form *frontdoor_form_find(struct fli_slice name);

/* Whether it is this word, which is in upper case, in any case. */
bool frontdoor_is_word(struct fli_slice s, const char *word);

#endif
