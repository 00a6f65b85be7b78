/* scripts.h: finds the form of a script. Scripts are recognised, never run: by the SHA-1 of their
 * text (texts that libraries are known to send, and those of the operator's aliases), then by the
 * SHA-1 of their Lua tokens (normal.h). Any other script is refused by its name.
 *
 * Texts that were recognised by their tokens are remembered for EVALSHA, the last
 * FRONTDOOR_LOADED_MAX of them. One thread. Pure. */
#ifndef FRONTDOOR_SCRIPTS_H
#define FRONTDOOR_SCRIPTS_H

#include "frontdoor/forms.h"
#include "base/sha1.h"

#define FRONTDOOR_LOADED_MAX 1024u
#define FRONTDOOR_ALIASES_MAX 256u
#define FRONTDOOR_ALIASES_SIZE_MAX ((size_t)256 << 10) /* of their file */

struct frontdoor_scripts;

int frontdoor_scripts_create(struct frontdoor_scripts **ret) FLI_MUST_USE;
void frontdoor_scripts_destroy(struct frontdoor_scripts *s); /* NULL is fine */

/* Finds the form of a text and remembers it; NULL when it has none. `sha1`: of the text. */
const struct frontdoor_form *frontdoor_scripts_load(struct frontdoor_scripts *s,
                                                    struct fli_slice text,
                                                    uint8_t sha1[FLI_SHA1_SIZE]);

/* The form of the known or loaded text with this SHA-1; NULL when there is none. */
const struct frontdoor_form *frontdoor_scripts_find(const struct frontdoor_scripts *s,
                                                    const uint8_t sha1[FLI_SHA1_SIZE]);

/* Forgets the loaded texts. */
void frontdoor_scripts_flush(struct frontdoor_scripts *s);

/* Adds the operator's aliases: lines of `sha1 = form`; # begins a comment. 0; FL_EINVAL, with the
 * line and the error in errmsg. */
int frontdoor_scripts_alias(struct frontdoor_scripts *s, struct fli_slice text, char *errmsg,
                            size_t errmsg_size) FLI_MUST_USE;

/* For aliases.c: adds one alias; false when there are too many. And whether a text with this SHA-1
 * is known without being loaded. */
bool frontdoor_scripts_add_alias(struct frontdoor_scripts *s, const uint8_t sha1[FLI_SHA1_SIZE],
                                 const struct frontdoor_form *form) FLI_MUST_USE;
bool frontdoor_scripts_is_text(const struct frontdoor_scripts *s,
                               const uint8_t sha1[FLI_SHA1_SIZE]);

/* Compiled-in names: of whole texts, and of their tokens. */
struct frontdoor_known {
    const char *sha1;
    const char *form;
};
extern const struct frontdoor_known frontdoor_known_texts[];
extern const size_t frontdoor_known_texts_len;
extern const struct frontdoor_known frontdoor_known_tokens[];
extern const size_t frontdoor_known_tokens_len;

#endif
