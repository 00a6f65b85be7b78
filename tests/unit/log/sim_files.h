/* sim_files.h: the files of a simulated disk: each as reads see it and as it is on stable storage,
 * and names for them in a directory. */
#ifndef TEST_SIM_FILES_H
#define TEST_SIM_FILES_H

#include "log/device.h"

#define FILES_MAX 512u

struct inode {
    unsigned refs; /* names, changes and handles */
    uint8_t *seen, *stable;
    size_t cap; /* of both */
    size_t seen_len, stable_len;
    uint64_t bad[8]; /* sectors, + 1 */
    unsigned bad_len;
};

struct name {
    char text[LOG_NAME_MAX + 1];
    struct inode *inode;
};

struct directory {
    struct name names[FILES_MAX];
    size_t len;
};

/* A change of the directory that is not synced. */
struct change {
    char from[LOG_NAME_MAX + 1]; /* "": a new file */
    char to[LOG_NAME_MAX + 1];   /* "": removed */
    struct inode *inode;
};

void sim_inode_resize(struct inode *n, size_t len);
void sim_inode_unref(struct inode *n);
void sim_inode_sync(struct inode *n);
void sim_unlink_name(struct directory *dir, const char *text);
void sim_link_name(struct directory *dir, const char *text, struct inode *inode);
void sim_change_directory(struct directory *dir, const struct change *c);
void sim_copy_directory(struct directory *to, const struct directory *from);
struct name *sim_lookup(struct directory *dir, const char *text);

#endif
