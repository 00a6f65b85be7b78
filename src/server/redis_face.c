/* redis_face.c: see redis_face.h. */
#include "server/redis_face.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"

#define ALIASES_SIZE_MAX ((size_t)256 << 10)

static int read_aliases(const char *path, struct face_scripts *scripts, char *errmsg,
                        size_t errmsg_size)
{
    char why[FACE_ERRMSG_SIZE] = "";
    uint8_t *text = fli_xmalloc(ALIASES_SIZE_MAX + 1);
    FILE *f = fopen(path, "re");
    size_t len = f == NULL ? 0 : fread(text, 1, ALIASES_SIZE_MAX + 1, f);
    bool failed = f == NULL || ferror(f) != 0;
    int error = errno;
    if (f != NULL) {
        (void)fclose(f);
    }
    int rc = 0;
    if (failed) {
        (void)snprintf(errmsg, errmsg_size, "--redis-face-aliases: cannot read %.512s: %s", path,
                       strerror(error));
        rc = FL_EINVAL;
    } else if (len > ALIASES_SIZE_MAX) {
        (void)snprintf(errmsg, errmsg_size, "--redis-face-aliases: %.512s is longer than %zu bytes",
                       path, ALIASES_SIZE_MAX);
        rc = FL_EINVAL;
    } else if (face_scripts_alias(scripts, (struct fli_slice){text, len}, why, sizeof why) != 0) {
        (void)snprintf(errmsg, errmsg_size, "--redis-face-aliases: %.512s: %s", path, why);
        rc = FL_EINVAL;
    }
    free(text);
    return rc;
}

int redis_face_open(const struct config *config, struct dispatch_face *ret, char *errmsg,
                    size_t errmsg_size)
{
    *ret = (struct dispatch_face){.wall_ms = fli_clock_wall_ms,
                                  .shared = config->redis_face_shared,
                                  .del = config->redis_face_del};
    if (strcmp(config->redis_face, "no") == 0) {
        return 0;
    }
    ret->pattern = strcmp(config->redis_face, "yes") == 0 ? NULL : config->redis_face;
    int rc = face_scripts_create(&ret->scripts);
    if (rc == 0 && config->redis_face_aliases[0] != '\0') {
        rc = read_aliases(config->redis_face_aliases, ret->scripts, errmsg, errmsg_size);
    }
    if (rc != 0) {
        redis_face_close(ret);
    }
    return rc;
}

void redis_face_close(struct dispatch_face *f)
{
    face_scripts_destroy(f->scripts);
    f->scripts = NULL;
}
