/* aclfile.h: files of users in Redis' format: lines `user NAME WORDS`, blank lines, and lines that
 * begin with #. Passwords may be given in clear (>PASSWORD). They are hashed when the file is read,
 * which takes some 40 ms each. Blocks on the disk. */
#ifndef AUTH_ACLFILE_H
#define AUTH_ACLFILE_H

#include "machine/acl.h"
#include "machine/limits.h"

#define ACLFILE_USERS_MAX MACHINE_USERS_MAX
#define ACLFILE_SIZE_MAX ((size_t)1 << 20)

struct aclfile_user {
    uint8_t name_len;
    uint8_t name[ACL_NAME_MAX];
    struct fli_buf words; /* without passwords in clear; begin with "reset" */
};

struct aclfile {
    struct aclfile_user *users;
    unsigned n;
    /* Whether one of them can change users; and whether one could who has a certificate. The
     * default user can, as long as no line changes it. */
    bool administered, certified;
};

/* 0; FL_EINVAL with a sentence that names file and line, but no password; FL_ENOMEM, FL_ESYSTEM.
 * *ret must be freed in any case. rights: as for acl_apply(); with the rights of the lock service,
 * there may only be as many users as it can keep. */
int aclfile_read(const char *path, unsigned rights, struct aclfile *ret, char *errmsg,
                 size_t errmsg_size) FLI_MUST_USE;
/* The same for text in memory; `path` is only for messages. */
int aclfile_parse(const char *path, struct fli_slice text, unsigned rights, struct aclfile *ret,
                  char *errmsg, size_t errmsg_size) FLI_MUST_USE;
/* The same, and FL_EINVAL when nobody could ever change users. */
int aclfile_read_administered(const char *path, bool certificates, struct aclfile *ret,
                              char *errmsg, size_t errmsg_size) FLI_MUST_USE;
void aclfile_free(struct aclfile *f);

/* Appends all users in the format of USERS_LOAD. 0, or the buffer's error, or FL_ENOMEM. */
int aclfile_pack(const struct aclfile *f, struct fli_buf *out) FLI_MUST_USE;

/* As fli_replace_file(). */
int aclfile_write(const char *path, struct fli_slice text, char *errmsg,
                  size_t errmsg_size) FLI_MUST_USE;

#endif
