/* pages.h: checks an LMDB data file page by page, before LMDB maps it.
 *
 * LMDB trusts its file. A damaged page number makes it crash, and a damaged meta page makes it fall
 * back to the commit before, silently. For marks both are worse than refusing to start. This check
 * uses plain reads and tests every bound, so it can be given any bytes.
 *
 * It proves, for a file in the format of LMDB 0.9 (data version 1, native word size):
 *   - The two meta pages carry two consecutive transactions, each in the page for its number. The
 *     caller gets the first record of both trees. From its own content the caller can tell
 *     whether these numbers are true, or the newer page is a left-over older one.
 *   - Both trees (free pages, records) have the depth, page counts and number of entries that
 *     their meta page says. Every page is of the right kind and carries its own number. Keys
 *     ascend through the whole tree and agree with the separators above them, so that a lookup
 *     finds every record that a walk finds.
 *   - No page is used twice, or both used and free, so that no later write can destroy a live one.
 * It says nothing about the bytes of values; the caller gets each record and can check those. */
#ifndef FLI_FENCE_PAGES_H
#define FLI_FENCE_PAGES_H

#include "base/base.h"

struct fli_pages_record {
    struct fli_slice key;
    struct fli_slice head; /* the value, or its beginning when it has pages of its own */
    uint64_t size;         /* bytes of the whole value */
    uint8_t tail[4];       /* the last bytes of the value; zeros when it is shorter than that */
};

struct fli_pages_info {
    uint64_t txnid;          /* the last commit; 0 when there was none */
    uint64_t previous_txnid; /* the one before; 0 when there was none */
    size_t page_size;
    uint64_t pages; /* used and free ones, meta pages included */
};

/* A non-zero result stops the check and becomes its result. The record is valid during the call. */
typedef int (*fli_pages_visit)(void *ctx, const struct fli_pages_record *record);

/* Checks the file. `visit` gets every record in key order; `previous` gets the first record of the
 * commit before, if there was one. The file must not change meanwhile. 0; FL_EVERSION (not an LMDB
 * file of the known format); FL_ECORRUPT; FL_EIO; FL_ENOMEM; or a visit's result. errmsg gets a
 * sentence on every failure except a visit's. */
int fli_pages_check(int fd, fli_pages_visit visit, fli_pages_visit previous, void *ctx,
                    struct fli_pages_info *ret, char *errmsg, size_t errmsg_size) FLI_MUST_USE;

#endif
