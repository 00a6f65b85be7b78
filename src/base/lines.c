/* lines.c: see lines.h. */
#include "base/lines.h"

#include <errno.h>
#include <string.h>

int fli_line_read(FILE *f, char *room, size_t size, size_t *ret_len, const char **ret_why)
{
    size_t len = 0;
    int c = getc(f);
    bool over = c == EOF;
    *ret_why = NULL;
    for (; c != EOF && c != '\n' && *ret_why == NULL; c = getc(f)) {
        *ret_why = c == '\0' ? "it has a zero byte" : len + 1 == size ? "it is too long" : NULL;
        room[len] = (char)c;
        len += *ret_why == NULL;
    }
    if (*ret_why == NULL && ferror(f) != 0) {
        *ret_why = strerror(errno);
    }
    len -= len > 0 && room[len - 1] == '\r';
    room[len] = '\0';
    *ret_len = len;
    return *ret_why != NULL ? FL_EINVAL : over ? 0 : 1;
}

int fli_line_first(const char *path, char *room, size_t size, char *why, size_t why_size)
{
    const char *reason = "it is empty";
    size_t len = 0;
    FILE *f = fopen(path, "re");
    room[0] = '\0';
    if (f == NULL) {
        (void)snprintf(why, why_size, "cannot open %.256s: %s", path, strerror(errno));
        return FL_EINVAL;
    }
    (void)setvbuf(f, NULL, _IONBF, 0); /* the password stays in no buffer of stdio's */
    int rc = fli_line_read(f, room, size, &len, &reason);
    (void)fclose(f);
    if (rc == 1 && len > 0) {
        return 0;
    }
    explicit_bzero(room, size);
    (void)snprintf(why, why_size, "the first line of %.256s is no password of 1 to %zu bytes: %s",
                   path, size - 1, reason != NULL ? reason : "it is empty");
    return FL_EINVAL;
}

int fli_file_read(const char *path, uint8_t *room, size_t size, size_t *ret_len, char *why,
                  size_t why_size)
{
    FILE *f = fopen(path, "re");
    size_t len = f == NULL ? 0 : fread(room, 1, size, f);
    bool longer = f != NULL && len == size && getc(f) != EOF;
    bool failed = f == NULL || ferror(f) != 0;
    if (failed) {
        (void)snprintf(why, why_size, "cannot read %.512s: %s", path, strerror(errno));
    } else if (longer) {
        (void)snprintf(why, why_size, "%.512s is longer than %zu bytes", path, size);
    }
    if (f != NULL) {
        (void)fclose(f);
    }
    *ret_len = len;
    return failed || longer ? FL_EINVAL : 0;
}
