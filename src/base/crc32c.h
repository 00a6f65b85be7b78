/* crc32c.h: the two halves of fli_crc32c() by name, for the tests that compare them. Everybody else
 * includes bytes.h. */
#ifndef FLI_CRC32C_H
#define FLI_CRC32C_H

#include <stdbool.h>

#include "base/base.h"

uint32_t fli_crc32c_table(uint32_t crc, const void *data, size_t len);
bool fli_crc32c_has_hardware(void);

#endif
