/* host.c: see host.h. */
#include "peer/host.h"

#include <stdarg.h>
#include <stdio.h>

void host_log(const struct host *h, int level, const char *fmt, ...)
{
    char text[512];
    va_list args;
    if (h->log == NULL) {
        return;
    }
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    h->log(h->ctx, level, text);
}

void host_fail(const struct host *h, int error, const char *fmt, ...)
{
    char text[512];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    h->fail(h->ctx, error, text);
}
