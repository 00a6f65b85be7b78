/* guard_sql.h: the text of guards/sqlite/guard.sql. */
#ifndef FLI_FENCE_GUARD_SQL_H
#define FLI_FENCE_GUARD_SQL_H

#include <stddef.h>

extern const unsigned char fli_guard_sql[];
extern const size_t fli_guard_sql_len;

#endif
