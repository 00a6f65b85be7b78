/* option_rows.h: short names for the rows of a table of options. Before the table stands which
 * struct has the values: #define OPTION_VALUES struct config */
#ifndef FLI_BASE_OPTION_ROWS_H
#define FLI_BASE_OPTION_ROWS_H

#include "base/options.h"

#define FIELD(f) .offset = offsetof(OPTION_VALUES, f), .size = sizeof(((OPTION_VALUES *)0)->f)
#define NUMBER(name, f, lo, hi)                                                                    \
    {                                                                                              \
        name, FLI_OPTION_NUMBER, FIELD(f), .min = (lo), .max = (hi)                                \
    }
#define TEXT(name, f)                                                                              \
    {                                                                                              \
        name, FLI_OPTION_TEXT, FIELD(f)                                                            \
    }
#define POINTER(name, f)                                                                           \
    {                                                                                              \
        name, FLI_OPTION_POINTER, FIELD(f)                                                         \
    }
#define YES_NO(name, f)                                                                            \
    {                                                                                              \
        name, FLI_OPTION_YES_NO, FIELD(f)                                                          \
    }
#define WORD(name, f, list, first)                                                                 \
    {                                                                                              \
        name, FLI_OPTION_WORD, FIELD(f), .min = (first), .words = (list)                           \
    }
#define ONCE(name, kind, f, lo, hi)                                                                \
    {                                                                                              \
        name, kind, FIELD(f), .min = (lo), .max = (hi), .once = true                               \
    }

#endif
