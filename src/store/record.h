/* record.h: what may stand in the storage's database, and what it is. Pure; see store.c for the
 * bytes. */
#ifndef STORE_RECORD_H
#define STORE_RECORD_H

#include "store/store.h"

#define STORE_KEY_PREFIX 'K'
#define STORE_STATE_DELETED 0u
#define STORE_STATE_PRESENT 1u

enum store_record_kind {
    STORE_RECORD_MARK,
    STORE_RECORD_FLOOR, /* a restore set it: see restore.h */
    STORE_RECORD_KEY,
    STORE_RECORD_DELETED
};

/* The lock a key is bound to and its value; both may be empty. */
struct store_entry {
    bool present;
    struct fli_slice lock;
    struct fli_slice value;
};

int store_entry_decode(struct fli_slice record, struct store_entry *ret) FLI_MUST_USE;

/* Of a whole record, or one whose value is cut off at its end. *ret_mark: of a mark or a floor. 0
 * or FL_ECORRUPT. */
int store_record_check(struct fli_slice key, struct fli_slice value, enum store_record_kind *ret,
                       fl_token *ret_mark) FLI_MUST_USE;

#endif
