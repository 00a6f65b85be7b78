/* utc.h: the time of a wall clock in UTC, as people and logs write it. Pure. */
#ifndef FLI_BASE_UTC_H
#define FLI_BASE_UTC_H

#include "base/base.h"

#define FLI_UTC_SIZE 88u /* enough for any number */

/* "2026-11-28T03:49:17.123Z" */
void fli_utc(char out[FLI_UTC_SIZE], uint64_t wall_ms);

#endif
