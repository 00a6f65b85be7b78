/* record.h: the kinds of records in the storage's database, and their decoding. Pure; record.c has
 * the bytes. */
#ifndef STORE_RECORD_H
#define STORE_RECORD_H

#include "store/store.h"

#define STORE_KEY_PREFIX 'K'
#define STORE_STATE_DELETED 0u
#define STORE_STATE_PRESENT 1u

enum store_record_kind {
    STORE_RECORD_MARK,
    STORE_RECORD_FLOOR, /* set by a restore, see restore.h */
    STORE_RECORD_KEY,
    STORE_RECORD_DELETED
};

/* The lock that a key is bound to, and its value; both may be empty. */
struct store_entry {
    bool present;
    struct fli_slice lock;
    struct fli_slice value;
};

int store_entry_decode(struct fli_slice record, struct store_entry *ret) FLI_MUST_USE;

/* Checks a record, which may be cut off at the end of its value. *ret_mark: the number in a mark or
 * a floor. 0 or FL_ECORRUPT. */
int store_record_check(struct fli_slice key, struct fli_slice value, enum store_record_kind *ret,
                       fl_token *ret_mark) FLI_MUST_USE;

#endif
