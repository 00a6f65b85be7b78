/* sim_files.c: see sim_files.h. What was not synced is where the two arrays of an inode differ. */
#include "sim_files.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void sim_inode_resize(struct inode *n, size_t len)
{
    if (len > n->cap) {
        uint8_t *seen = fli_xcalloc(1, len);
        uint8_t *stable = fli_xcalloc(1, len);
        if (n->cap > 0) {
            memcpy(seen, n->seen, n->cap);
            memcpy(stable, n->stable, n->cap);
        }
        free(n->seen);
        free(n->stable);
        n->seen = seen;
        n->stable = stable;
        n->cap = len;
    }
    if (len < n->seen_len) {
        memset(n->seen + len, 0, n->seen_len - len);
    }
    n->seen_len = len;
}

void sim_inode_unref(struct inode *n)
{
    if (--n->refs == 0) {
        free(n->seen);
        free(n->stable);
        free(n);
    }
}

void sim_inode_sync(struct inode *n)
{
    if (n->cap > 0) {
        memcpy(n->stable, n->seen, n->cap);
    }
    n->stable_len = n->seen_len;
}

struct name *sim_lookup(struct directory *dir, const char *text)
{
    for (size_t i = 0; i < dir->len; i++) {
        if (strcmp(dir->names[i].text, text) == 0) {
            return &dir->names[i];
        }
    }
    return NULL;
}

void sim_unlink_name(struct directory *dir, const char *text)
{
    struct name *n = sim_lookup(dir, text);
    if (n != NULL) {
        sim_inode_unref(n->inode);
        *n = dir->names[--dir->len];
    }
}

void sim_link_name(struct directory *dir, const char *text, struct inode *inode)
{
    inode->refs++;
    sim_unlink_name(dir, text);
    FLI_ASSERT(dir->len < FILES_MAX);
    struct name *n = &dir->names[dir->len++];
    snprintf(n->text, sizeof n->text, "%s", text);
    n->inode = inode;
}

void sim_change_directory(struct directory *dir, const struct change *c)
{
    if (c->from[0] != '\0') {
        struct name *n = sim_lookup(dir, c->from);
        if (n == NULL || n->inode != c->inode) {
            return; /* it never got there */
        }
    }
    if (c->to[0] != '\0') {
        sim_link_name(dir, c->to, c->inode);
    }
    if (c->from[0] != '\0') {
        sim_unlink_name(dir, c->from);
    }
}

void sim_copy_directory(struct directory *to, const struct directory *from)
{
    for (size_t i = 0; i < from->len; i++) {
        from->names[i].inode->refs++;
    }
    while (to->len > 0) {
        sim_inode_unref(to->names[--to->len].inode);
    }
    memcpy(to->names, from->names, from->len * sizeof from->names[0]);
    to->len = from->len;
}
