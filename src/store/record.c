/* record.c: see record.h.
 *
 *   key 'L' + lock   the mark, fence/mark.h
 *   key 'F'          the floor, likewise
 *   key 'K' + key    state u8: 0 deleted, 1 present | length of the lock u8 | lock | value
 *
 * The length of the lock is 0 only in records written without fencing: the key is not bound yet. */
#include "store/record.h"

#include "base/bytes.h"
#include "fence/mark.h"

int store_entry_decode(struct fli_slice record, struct store_entry *ret)
{
    struct fli_reader r;
    fli_reader_init(&r, record.data, record.len);
    uint8_t state = fli_read_u8(&r);
    uint8_t lock_len = fli_read_u8(&r);
    struct fli_slice lock = fli_read_bytes(&r, lock_len);
    if (r.bad || state > STORE_STATE_PRESENT) {
        return FL_ECORRUPT;
    }
    size_t left = fli_reader_left(&r);
    *ret = (struct store_entry){
        .present = state == STORE_STATE_PRESENT, .lock = lock, .value = fli_read_bytes(&r, left)};
    return 0;
}

int store_record_check(struct fli_slice key, struct fli_slice value, enum store_record_kind *ret,
                       fl_token *ret_mark)
{
    struct store_entry entry;
    if (key.data[0] != STORE_KEY_PREFIX) {
        *ret = key.data[0] == FLI_MARK_FLOOR ? STORE_RECORD_FLOOR : STORE_RECORD_MARK;
        return fli_mark_decode(key, value, ret_mark);
    }
    if (key.len < 2 || key.len > 1 + STORE_KEY_MAX || store_entry_decode(value, &entry) != 0) {
        return FL_ECORRUPT;
    }
    *ret = entry.present ? STORE_RECORD_KEY : STORE_RECORD_DELETED;
    return 0;
}
