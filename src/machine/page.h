/* page.h (private to machine): writing the payloads that view.h reads, and their cursors.
 *
 * A cursor is text: a letter for the phase of the walk, and in decimal the key of the last element
 * looked at. It names a place in replicated state, so any node can continue from it. Empty or "0"
 * is the start. */
#ifndef MACHINE_PAGE_H
#define MACHINE_PAGE_H

#include "machine/view.h"

#define MACHINE_CURSOR_HELD 'h'
#define MACHINE_CURSOR_IDLE 'i'
#define MACHINE_CURSOR_LOCKS "hi"   /* phases of LOCKS, first one first */
#define MACHINE_CURSOR_SESSIONS "s" /* of SESSION LIST */

bool machine_cursor_parse(struct fli_slice text, const char *phases, char *ret_phase,
                          uint64_t *ret_key);

#define PAGE_KIND_LOCKS 1u
#define PAGE_KIND_SESSIONS 2u
#define PAGE_KIND_SHOW 3u

/* Appends to `out`; remembers the first error, so that the caller checks once, at the end. */
struct page_writer {
    struct fli_buf *out;
    size_t start; /* of the payload in `out` */
    uint32_t count;
    uint8_t kind;
    int error;
};

void machine_page_begin(struct page_writer *w, struct fli_buf *out, uint8_t kind);

/* False when the record was not added: the page is full (count or size), or there is no memory. */
bool machine_page_add_lock(struct page_writer *w, const struct machine_lock_view *v);
bool machine_page_add_session(struct page_writer *w, const struct machine_session_view *v);

/* phase 0: no next page. Returns 0, FL_ENOMEM, FL_ELIMIT; on failure `out` is unchanged. */
int machine_page_end(struct page_writer *w, bool more, char phase, uint64_t key) FLI_MUST_USE;

#endif
