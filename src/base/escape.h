/* escape.h: the one rule for what others have said (names, labels, errors of a server) before
 * people see it: in the tool, in logs, and in JSON. The status page has the same rule in its
 * language (src/server/page.html).
 *
 * Bytes that are no UTF-8, controls (C0, DEL, C1), and characters that break a line or turn the
 * direction of a text (U+2028 to U+202E, U+2066 to U+2069, U+200E, U+200F, U+061C) are never
 * printed as they stand: they move cursors, set colours, and make a line look like another one.
 * Pure. */
#ifndef FLI_BASE_ESCAPE_H
#define FLI_BASE_ESCAPE_H

#include "base/buf.h"

/* Length of the UTF-8 character at p; 0: there is none. left: bytes from p on, 1 or more. */
size_t fli_utf8_len(const void *p, size_t left);
bool fli_is_utf8(const void *data, size_t len);

/* Length of the character at p if it may be printed as it stands; 0: it may not, or is none. */
size_t fli_shown_len(const void *p, size_t left);

/* Appends the bytes, and \xNN for each that may not be printed. lossless: for a backslash as well,
 * so that what is printed can be read back. What has no room ends it behind a whole character: 0,
 * FL_ELIMIT, FL_ENOMEM. */
int fli_put_shown(struct fli_buf *out, const void *data, size_t len, bool lossless) FLI_MUST_USE;

#endif
