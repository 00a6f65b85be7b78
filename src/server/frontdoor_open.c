/* frontdoor_open.c: see frontdoor_open.h. */
#include "server/frontdoor_open.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/lines.h"

static int read_aliases(const char *path, struct frontdoor_scripts *scripts, char *errmsg,
                        size_t errmsg_size)
{
    char why[FRONTDOOR_ERRMSG_SIZE + 64] = "";
    uint8_t *text = fli_xmalloc(FRONTDOOR_ALIASES_SIZE_MAX);
    size_t len = 0;
    int rc = fli_file_read(path, text, FRONTDOOR_ALIASES_SIZE_MAX, &len, why, sizeof why);
    if (rc != 0) {
        (void)snprintf(errmsg, errmsg_size, "--front-door-aliases: %s", why);
    } else {
        rc = frontdoor_scripts_alias(scripts, (struct fli_slice){text, len}, why, sizeof why);
        (void)snprintf(errmsg, errmsg_size, "--front-door-aliases: %.512s: %s", path, why);
    }
    free(text);
    return rc;
}

int frontdoor_open(const struct config *config, struct frontdoor_context *ret, char *errmsg,
                   size_t errmsg_size)
{
    *ret = (struct frontdoor_context){.shared = config->front_door_shared,
                                      .del = config->front_door_del};
    if (strcmp(config->front_door, "no") == 0) {
        return 0;
    }
    ret->pattern = strcmp(config->front_door, "yes") == 0 ? NULL : config->front_door;
    int rc = frontdoor_scripts_create(&ret->scripts);
    if (rc == 0 && config->front_door_aliases[0] != '\0') {
        rc = read_aliases(config->front_door_aliases, ret->scripts, errmsg, errmsg_size);
    }
    if (rc != 0) {
        frontdoor_close(ret);
    }
    return rc;
}

void frontdoor_close(struct frontdoor_context *f)
{
    frontdoor_scripts_destroy(f->scripts);
    f->scripts = NULL;
}
