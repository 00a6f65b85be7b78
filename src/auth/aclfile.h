/* aclfile.h: files of users, as Redis has them: a line `user NAME WORDS` each, blank lines, and
 * lines that begin with #. Passwords may stand there in clear (>PASSWORD); they become hashes when
 * they are read, which takes some 40 ms each. Blocks on the disk. */
#ifndef AUTH_ACLFILE_H
#define AUTH_ACLFILE_H

#include "machine/acl.h"

#define ACLFILE_USERS_MAX 1024u
#define ACLFILE_SIZE_MAX ((size_t)1 << 20)

struct aclfile_user {
    uint8_t name_len;
    uint8_t name[ACL_NAME_MAX];
    struct fli_buf words; /* without passwords in clear; begin with "reset" */
};

struct aclfile {
    struct aclfile_user *users;
    unsigned n;
};

/* 0; FL_EINVAL with a sentence that names file and line, but no password; FL_ENOMEM, FL_ESYSTEM.
 * *ret is to be freed in any case. rights: as acl_apply() takes them; with those of the lock
 * service the users are also no more than it can keep. */
int aclfile_read(const char *path, unsigned rights, struct aclfile *ret, char *errmsg,
                 size_t errmsg_size) FLI_MUST_USE;
/* The same of text in memory; `path` is only for messages. */
int aclfile_parse(const char *path, struct fli_slice text, unsigned rights, struct aclfile *ret,
                  char *errmsg, size_t errmsg_size) FLI_MUST_USE;
void aclfile_free(struct aclfile *f);

/* Appends all users as USERS_LOAD takes them. 0, or the buffer's error, or FL_ENOMEM. */
int aclfile_pack(const struct aclfile *f, struct fli_buf *out) FLI_MUST_USE;

/* Replaces the file by this text, whole or not at all; mode 0600. */
int aclfile_write(const char *path, struct fli_slice text, char *errmsg,
                  size_t errmsg_size) FLI_MUST_USE;

#endif
