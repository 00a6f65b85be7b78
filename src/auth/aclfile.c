/* aclfile.c: see aclfile.h. */
#include "auth/aclfile.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "auth/hash.h"
#include "base/part.h"

/* `user`, the name, and as many words as a user can have. */
#define ARGS_MAX (2u + ACL_TEXT_MAX / 2)
/* Bytes to leave for the default user if the file does not name it: it exists all the same. */
#define DEFAULT_USER_BYTES 64u

struct reading {
    const char *path;
    unsigned line;
    unsigned rights;
    struct aclfile *file;
    size_t bytes; /* what a cluster stores for the users read so far */
    char *errmsg;
    size_t errmsg_size;
};

static int wrong(struct reading *r, int rc, const char *why)
{
    (void)snprintf(r->errmsg, r->errmsg_size, "%.256s:%u: %s", r->path, r->line, why);
    return rc;
}

void aclfile_free(struct aclfile *f)
{
    for (unsigned i = 0; i < f->n; i++) {
        fli_buf_fini(&f->users[i].words);
    }
    free(f->users);
    *f = (struct aclfile){.users = NULL};
}

static struct aclfile_user *find(const struct aclfile *f, struct fli_slice name)
{
    for (unsigned i = 0; i < f->n; i++) {
        struct aclfile_user *u = &f->users[i];
        if (fli_bytes_cmp(u->name, u->name_len, name.data, name.len) == 0) {
            return u;
        }
    }
    return NULL;
}

static int add(struct reading *r, struct fli_slice name, struct aclfile_user **ret)
{
    struct aclfile *f = r->file;
    if (!acl_name_ok(name)) {
        return wrong(r, FL_EINVAL, "a user's name has 1 to 64 visible characters");
    }
    if (find(f, name) != NULL) {
        return wrong(r, FL_EINVAL, "this user has a line already: write one for each");
    }
    if (f->n == ACLFILE_USERS_MAX) {
        return wrong(r, FL_EINVAL, "there are more than 2048 users");
    }
    struct aclfile_user *users = realloc(f->users, (f->n + 1) * sizeof *users);
    if (users == NULL) {
        return wrong(r, FL_ENOMEM, "out of memory");
    }
    f->users = users;
    *ret = &users[f->n++];
    (*ret)->name_len = (uint8_t)name.len;
    memcpy((*ret)->name, name.data, name.len);
    fli_buf_init(&(*ret)->words, ACL_TEXT_MAX);
    return 0;
}

/* Counts what a node keeps of a user: a number, a login, and the encoded user. */
static int count_bytes(struct reading *r, const struct acl_user *u)
{
    static const struct fli_slice name = {(const uint8_t *)"default", 7};
    uint8_t bytes[ACL_ENCODED_MAX];
    size_t more = find(r->file, name) == NULL ? DEFAULT_USER_BYTES : 0;
    r->bytes += 8 + acl_encode(u, bytes);
    return r->rights != ACL_LOCK_RIGHTS || r->bytes + more <= MACHINE_USERS_BYTES_MAX
               ? 0
               : wrong(r, FL_EINVAL,
                       "up to this line the users take more than the 48 KiB that a cluster keeps "
                       "for all of them: give clients that may do the same one user, or name locks "
                       "by shorter patterns");
}

/* Reads the words after the name, and checks them by making a user of them. */
static int read_words(struct reading *r, struct aclfile_user *u, const struct fli_slice *args,
                      unsigned n)
{
    char why[256];
    struct acl_user tried;
    int rc = fli_buf_append(&u->words, "reset", 5);
    rc = rc != 0 ? rc : auth_words(args, n, NULL, &u->words, why, sizeof why);
    if (rc == 0) {
        acl_user_init(&tried, (struct fli_slice){u->name, u->name_len});
        struct fli_slice words = {u->words.data, u->words.len};
        rc = acl_apply(&tried, words, r->rights, why, sizeof why);
    }
    if (rc == 0) {
        r->file->administered = r->file->administered || acl_is_administrator(&tried, false);
        r->file->certified = r->file->certified || acl_is_administrator(&tried, true);
    }
    return rc == 0 ? count_bytes(r, &tried) : wrong(r, rc == FL_ENOMEM ? rc : FL_EINVAL, why);
}

static int read_line(struct reading *r, struct fli_slice line)
{
    struct fli_slice args[ARGS_MAX];
    struct fli_slice rest = line;
    struct fli_slice word;
    struct aclfile_user *u = NULL;
    unsigned n = 0;
    if (memchr(line.data, '\0', line.len) != NULL) {
        return wrong(r, FL_EINVAL, "the line has a zero byte: write the file anew");
    }
    while (acl_next_word(&rest, &word)) {
        if (n == ARGS_MAX) {
            return wrong(r, FL_EINVAL, "the line has more words than a user can have");
        }
        args[n++] = word;
    }
    if (n == 0 || args[0].data[0] == '#') {
        return 0;
    }
    if (n < 2 || args[0].len != 4 || memcmp(args[0].data, "user", 4) != 0) {
        return wrong(r, FL_EINVAL, "write `user NAME WORDS`");
    }
    int rc = add(r, args[1], &u);
    return rc != 0 ? rc : read_words(r, u, args + 2, n - 2);
}

int aclfile_parse(const char *path, struct fli_slice text, unsigned rights, struct aclfile *ret,
                  char *errmsg, size_t errmsg_size)
{
    struct reading r = {
        .path = path, .rights = rights, .file = ret, .errmsg = errmsg, .errmsg_size = errmsg_size};
    *ret = (struct aclfile){.users = NULL};
    int rc = 0;
    while (rc == 0 && text.len > 0) {
        const uint8_t *end = memchr(text.data, '\n', text.len);
        size_t len = end == NULL ? text.len : (size_t)(end - text.data);
        size_t used = end == NULL ? len : len + 1;
        len -= len > 0 && text.data[len - 1] == '\r';
        r.line++;
        rc = read_line(&r, (struct fli_slice){text.data, len});
        text.data += used;
        text.len -= used;
    }
    if (find(ret, (struct fli_slice){(const uint8_t *)"default", 7}) == NULL) {
        ret->administered = ret->certified = true;
    }
    return rc;
}

static int by_name(const void *a, const void *b)
{
    const struct aclfile_user *const *x = a;
    const struct aclfile_user *const *y = b;
    return fli_bytes_cmp((*x)->name, (*x)->name_len, (*y)->name, (*y)->name_len);
}

int aclfile_pack(const struct aclfile *f, struct fli_buf *out)
{
    const struct aclfile_user **sorted = calloc(f->n + 1, sizeof *sorted);
    int rc = sorted == NULL ? FL_ENOMEM : 0;
    for (unsigned i = 0; rc == 0 && i < f->n; i++) {
        sorted[i] = &f->users[i];
    }
    if (rc == 0) {
        qsort(sorted, f->n, sizeof(*sorted), by_name);
    }
    for (unsigned i = 0; rc == 0 && i < f->n; i++) {
        uint8_t bytes[ACL_ENCODED_MAX];
        struct acl_user u;
        char unused[128];
        struct fli_slice words = {sorted[i]->words.data, sorted[i]->words.len};
        acl_user_init(&u, (struct fli_slice){sorted[i]->name, sorted[i]->name_len});
        rc = acl_apply(&u, words, ACL_LOCK_RIGHTS, unused, sizeof unused);
        FLI_ASSERT(rc == 0); /* they were applied successfully before */
        rc = fli_buf_append(out, bytes, acl_encode(&u, bytes));
    }
    free(sorted);
    return rc;
}

static int io_error(char *errmsg, size_t errmsg_size, const char *what, const char *path)
{
    int error = errno;
    (void)snprintf(errmsg, errmsg_size, "cannot %s %.256s: %s", what, path, strerror(error));
    return FL_ESYSTEM;
}

int aclfile_read(const char *path, unsigned rights, struct aclfile *ret, char *errmsg,
                 size_t errmsg_size)
{
    *ret = (struct aclfile){.users = NULL};
    FILE *f = fopen(path, "re");
    if (f == NULL) {
        return io_error(errmsg, errmsg_size, "open the file of users", path);
    }
    (void)setvbuf(f, NULL, _IONBF, 0); /* passwords stay in no buffer but ours */
    uint8_t *text = malloc(ACLFILE_SIZE_MAX + 1);
    size_t len = text == NULL ? 0 : fread(text, 1, ACLFILE_SIZE_MAX + 1, f);
    int rc = text == NULL ? FL_ENOMEM : 0;
    if (rc == 0 && ferror(f) != 0) {
        rc = io_error(errmsg, errmsg_size, "read the file of users", path);
    } else if (rc == 0 && len > ACLFILE_SIZE_MAX) {
        (void)snprintf(errmsg, errmsg_size, "%.256s is larger than 1 MiB", path);
        rc = FL_EINVAL;
    }
    if (rc == 0 && len > 0 && text[len - 1] != '\n') {
        (void)snprintf(errmsg, errmsg_size,
                       "the last line of %.256s has no end, so the file may have been cut off: if "
                       "it is whole, end it with a newline",
                       path);
        rc = FL_EINVAL;
    }
    (void)fclose(f);
    if (rc == 0) {
        rc = aclfile_parse(path, (struct fli_slice){text, len}, rights, ret, errmsg, errmsg_size);
    }
    if (text != NULL) {
        explicit_bzero(text, len);
    }
    free(text);
    return rc;
}

int aclfile_read_administered(const char *path, bool certificates, struct aclfile *ret,
                              char *errmsg, size_t errmsg_size)
{
    int rc = aclfile_read(path, ACL_LOCK_RIGHTS, ret, errmsg, errmsg_size);
    if (rc != 0 || (certificates ? ret->certified : ret->administered)) {
        return rc;
    }
    (void)snprintf(errmsg, errmsg_size,
                   "%.256s has no user who is on, has @admin and can log in, so nobody could ever "
                   "change users: give one of them +@admin and a password",
                   path);
    return FL_EINVAL;
}

int aclfile_write(const char *path, struct fli_slice text, char *errmsg, size_t errmsg_size)
{
    return fli_replace_file(path, text.data, text.len) == 0
               ? 0
               : io_error(errmsg, errmsg_size, "write", path);
}
