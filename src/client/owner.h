/* owner.h: makes an owner id that no other client has. */
#ifndef FLI_CLIENT_OWNER_H
#define FLI_CLIENT_OWNER_H

#include <stddef.h>

#include "fencelock/types.h"

/* 128 random bits as hex digits. Returns how many bytes that is. */
size_t fli_owner_make(char ret[FL_OWNER_MAX]);

#endif
