/* fields.h: the fields of a record, described once for both directions: where each is in its
 * struct, and how it is written. Little endian. */
#ifndef FLI_FIELDS_H
#define FLI_FIELDS_H

#include "base/bytes.h"

enum fli_field_kind {
    FLI_U8 = 1,
    FLI_BOOL, /* in a byte */
    FLI_U32,
    FLI_U64,
    FLI_SHORT, /* a struct fli_slice: length in a byte, bytes */
    FLI_LONG   /* length in two bytes, bytes */
};

struct fli_field {
    uint8_t kind; /* enum fli_field_kind */
    uint16_t at;  /* offset in the struct */
};

/* Writes the fields of a list, for which there is room, and returns their end. */
uint8_t *fli_put_fields(uint8_t *p, const struct fli_field *list, size_t n, const void *record);
/* Reads them; slices point into the bytes. A boolean that is neither 0 nor 1 makes the reader
 * bad. */
void fli_read_fields(struct fli_reader *r, const struct fli_field *list, size_t n, void *record);

#endif
