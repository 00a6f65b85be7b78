/* durable.h: small files that are replaced as a whole: after a power cut the file is either the old
 * one or the new one. */
#ifndef CONSENSUS_DURABLE_H
#define CONSENSUS_DURABLE_H

#include <stddef.h>

#include "base/base.h"

#define DURABLE_NAME_MAX 64
/* A crash may leave the file NAME.new behind, which nothing reads. */

/* Both functions return 0, or FL_EIO with errno. folder: the path of the directory. */

/* Afterwards the file has this content; after an error, this or the old one. */
FLI_MUST_USE int durable_replace(const char *folder, const char *name, const void *data,
                                 size_t len);

#endif
