/* decode.c: see decode.h. */
#include "snapshot/decode.h"

static int refuse(const struct snapshot_reader *reader, int code, struct snapshot_error *error)
{
    const char *why = code == FL_EVERSION   ? "the state is of another version of fencelock"
                      : code == FL_ECORRUPT ? "the state makes no sense"
                                            : fl_strerror(code);
    return snapshot_reader_refuse(reader, code, why, error);
}

int snapshot_decode(struct snapshot_reader *reader, const uint64_t hash_seed[2],
                    struct machine **ret, struct snapshot_error *error)
{
    struct machine_restore *restore;
    struct fli_slice whole;
    struct fli_slice data;
    int rv = machine_restore_begin(hash_seed, &restore);
    if (rv != 0) {
        return refuse(reader, rv, error);
    }
    do {
        rv = snapshot_reader_next(reader, &whole, &data, error);
        if (rv == 0 && machine_restore_feed(restore, data.data, data.len) != 0) {
            rv = refuse(reader, FL_ECORRUPT, error);
        }
    } while (rv == 0 && whole.len > 0);
    if (rv != 0) {
        machine_restore_abort(restore);
        return rv;
    }
    rv = machine_restore_finish(restore, ret);
    return rv == 0 ? 0 : refuse(reader, rv, error);
}
