/* sim_files.h: the files and directories of the simulated disk (sim_device.c, which alone includes
 * it). A file that is seen and a file on stable storage are two arrays of the same length; what was
 * not synced is where they differ. */
#ifndef TEST_SIM_FILES_H
#define TEST_SIM_FILES_H

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "log/device.h"

struct inode {
    unsigned refs; /* names, changes and handles */
    uint8_t *seen, *stable;
    size_t cap; /* of both */
    size_t seen_len, stable_len;
    uint64_t bad[8]; /* sectors, + 1 */
    unsigned bad_len;
    size_t clean_at, clean_len; /* seen, and no sync makes it stable */
};

struct name {
    char text[LOG_NAME_MAX + 1];
    struct inode *inode;
};

struct directory {
    struct name *names;
    size_t len, cap;
};

/* A change of the directory that is not synced. */
struct change {
    char from[LOG_NAME_MAX + 1]; /* "": a new file */
    char to[LOG_NAME_MAX + 1];   /* "": removed */
    struct inode *inode;
};

static inline void inode_resize(struct inode *n, size_t len)
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

static inline void inode_unref(struct inode *n)
{
    if (--n->refs == 0) {
        free(n->seen);
        free(n->stable);
        free(n);
    }
}

static inline void inode_sync(struct inode *n)
{
    size_t from = n->clean_at + n->clean_len;
    if (n->cap > 0) {
        memcpy(n->stable, n->seen, n->clean_at);
        memcpy(n->stable + from, n->seen + from, n->cap - from);
    }
    n->stable_len = n->seen_len;
}

/* A sync has failed: what it did not write counts as written from now on. */
static inline void inode_sync_failed(struct inode *n)
{
    size_t from = 0;
    size_t to = n->cap;
    while (from < to && n->seen[from] == n->stable[from]) {
        from++;
    }
    while (to > from && n->seen[to - 1] == n->stable[to - 1]) {
        to--;
    }
    if (from < to) {
        n->clean_at = from;
        n->clean_len = to - from;
    }
}

static inline void inode_write(struct inode *n, const void *data, size_t len, size_t offset)
{
    memcpy(n->seen + offset, data, len);
    size_t clean_end = n->clean_at + n->clean_len;
    if (offset <= n->clean_at && offset + len >= clean_end) {
        n->clean_at = n->clean_len = 0;
    } else if (offset <= n->clean_at && offset + len > n->clean_at) {
        n->clean_at = offset + len;
        n->clean_len = clean_end - n->clean_at;
    } else if (offset < clean_end && offset + len >= clean_end) {
        n->clean_len = offset - n->clean_at;
    }
}

/* The power goes, and the cache with it. */
static inline void inode_forget_clean(struct inode *n)
{
    if (n->clean_len > 0) {
        memcpy(n->seen + n->clean_at, n->stable + n->clean_at, n->clean_len);
        n->clean_at = n->clean_len = 0;
    }
}

/* What pread() would. */
static inline int64_t inode_read(const struct inode *n, void *data, size_t len, uint64_t offset)
{
    if (offset >= n->seen_len) {
        return 0;
    }
    if (len > n->seen_len - offset) {
        len = (size_t)(n->seen_len - offset);
    }
    for (unsigned i = 0; i < n->bad_len; i++) {
        uint64_t at = (n->bad[i] - 1) * LOG_SECTOR;
        if (at < offset + len && at + LOG_SECTOR > offset) {
            return -EIO;
        }
    }
    memcpy(data, n->seen + offset, len);
    return (int64_t)len;
}

static inline struct name *lookup(struct directory *dir, const char *text)
{
    for (size_t i = 0; i < dir->len; i++) {
        if (strcmp(dir->names[i].text, text) == 0) {
            return &dir->names[i];
        }
    }
    return NULL;
}

static inline void unlink_name(struct directory *dir, const char *text)
{
    struct name *n = lookup(dir, text);
    if (n != NULL) {
        inode_unref(n->inode);
        *n = dir->names[--dir->len];
    }
}

static inline void make_room(struct directory *dir, size_t len)
{
    if (len > dir->cap) {
        dir->cap = 2 * len;
        dir->names = realloc(dir->names, dir->cap * sizeof dir->names[0]);
        FLI_ASSERT(dir->names != NULL);
    }
}

static inline void link_name(struct directory *dir, const char *text, struct inode *inode)
{
    inode->refs++;
    unlink_name(dir, text);
    make_room(dir, dir->len + 1);
    struct name *n = &dir->names[dir->len++];
    snprintf(n->text, sizeof n->text, "%s", text);
    n->inode = inode;
}

static inline void change_directory(struct directory *dir, const struct change *c)
{
    if (c->from[0] != '\0') {
        struct name *n = lookup(dir, c->from);
        if (n == NULL || n->inode != c->inode) {
            return; /* it never got there */
        }
    }
    if (c->to[0] != '\0') {
        link_name(dir, c->to, c->inode);
    }
    if (c->from[0] != '\0') {
        unlink_name(dir, c->from);
    }
}

static inline void copy_directory(struct directory *to, const struct directory *from)
{
    for (size_t i = 0; i < from->len; i++) {
        from->names[i].inode->refs++;
    }
    while (to->len > 0) {
        inode_unref(to->names[--to->len].inode);
    }
    make_room(to, from->len);
    if (from->len > 0) {
        memcpy(to->names, from->names, from->len * sizeof from->names[0]);
    }
    to->len = from->len;
}

/* A write that was acknowledged and is not on stable storage yet. */
struct late {
    struct late *next;
    struct inode *inode;
    size_t offset, len;
};

struct late_writes {
    struct late *first, *last;
};

static inline void note_late(struct late_writes *w, struct inode *n, size_t offset, size_t len)
{
    struct late *l = fli_xmalloc(sizeof *l);
    *l = (struct late){.inode = n, .offset = offset, .len = len};
    n->refs++;
    if (w->first == NULL) {
        w->first = l;
    } else {
        w->last->next = l;
    }
    w->last = l;
}

/* The oldest one gets there, or is lost. */
static inline void end_late(struct late_writes *w, bool kept)
{
    struct late *l = w->first;
    struct inode *n = l->inode;
    w->first = l->next;
    if (l->offset + l->len <= n->seen_len) {
        uint8_t *to = kept ? n->stable : n->seen;
        const uint8_t *from = kept ? n->seen : n->stable;
        memcpy(to + l->offset, from + l->offset, l->len);
    }
    inode_unref(n);
    free(l);
}

static inline uint64_t directory_bytes(const struct directory *d)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < d->len; i++) {
        sum += d->names[i].inode->seen_len;
    }
    return sum;
}

#endif
