/* text.c: see text.h. */
#include "wire/text.h"

#include <stdio.h>

#define SHOWN_MAX 32u

void fli_quote(char *out, size_t size, const struct fli_slice *bytes)
{
    static const char hex[] = "0123456789abcdef";
    FLI_ASSERT(size >= FLI_QUOTE_SIZE);
    size_t len = 0;
    size_t n = bytes->len < SHOWN_MAX ? bytes->len : SHOWN_MAX;
    out[len++] = '\'';
    for (size_t i = 0; i < n; i++) {
        uint8_t c = bytes->data[i];
        if (c >= ' ' && c < 0x7f && c != '\'' && c != '\\') {
            out[len++] = (char)c;
            continue;
        }
        out[len++] = '\\';
        out[len++] = 'x';
        out[len++] = hex[c >> 4];
        out[len++] = hex[c & 15];
    }
    for (unsigned i = 0; i < 3 && n < bytes->len; i++) {
        out[len++] = '.';
    }
    out[len++] = '\'';
    out[len] = '\0';
    FLI_ASSERT(len < size);
}

void fli_command_usage(char *out, size_t size, const struct fli_command *c)
{
    snprintf(out, size, "%s%s%s%s%s", c->name, c->subcommand == NULL ? "" : " ",
             c->subcommand == NULL ? "" : c->subcommand, c->syntax[0] == '\0' ? "" : " ",
             c->syntax);
}
