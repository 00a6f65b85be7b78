/* pages.h: reads an LMDB data file page by page and says whether it is whole, before LMDB maps it.
 *
 * LMDB trusts its file: a damaged page number makes it crash, and a damaged meta page makes it fall
 * back to the commit before, silently. For marks both are worse than refusing to start. This check
 * uses plain reads with every bound tested, so it can be given any bytes at all.
 *
 * What it proves, for a file in the format of LMDB 0.9 (data version 1, native word size):
 *   - the two meta pages carry two consecutive transactions, each in the page its number says; the
 *     caller is shown the first record of both trees, so that it can tell by what it keeps there
 *     whether these numbers are true, or the newer one is an older one left over;
 *   - both trees (free pages, records) have the depth, page counts and number of entries their
 *     meta page says, every page is of the right kind and carries its own number, keys ascend
 *     through the whole tree and agree with the separators above them, so that a lookup finds
 *     every record that a walk finds;
 *   - no page is used twice or used and free, so that no later write can destroy a live page.
 * It says nothing about the bytes of values; the caller gets each record and can check those. */
#ifndef FLI_FENCE_PAGES_H
#define FLI_FENCE_PAGES_H

#include "base/base.h"

struct fli_pages_record {
    struct fli_slice key;
    struct fli_slice head; /* the value, or the beginning of it when it has pages of its own */
    uint64_t size;         /* bytes of the whole value */
    uint8_t tail[4];       /* the last bytes of the value; zeros when it is shorter than that */
};

struct fli_pages_info {
    uint64_t txnid;          /* the last commit; 0 when there was none */
    uint64_t previous_txnid; /* the one before; 0 when there was none */
    size_t page_size;
    uint64_t pages; /* used and free ones, meta pages included */
};

/* A non-zero return stops the check and is returned from it. The record is valid during the call.
 */
typedef int (*fli_pages_visit)(void *ctx, const struct fli_pages_record *record);

/* Checks the file; visit sees every record in key order, and `previous` the first record as it was
 * in the commit before, if there was one. The file must not change meanwhile. 0; FL_EVERSION (not
 * an LMDB file of the known format); FL_ECORRUPT; FL_EIO; FL_ENOMEM; or what a visit returned.
 * errmsg gets a sentence on every failure but a visit's. */
int fli_pages_check(int fd, fli_pages_visit visit, fli_pages_visit previous, void *ctx,
                    struct fli_pages_info *ret, char *errmsg, size_t errmsg_size) FLI_MUST_USE;

#endif
