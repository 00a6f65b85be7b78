/* The directory of a database: when its own name is on disk, too. The linker lets this test see
 * what is synced. */
#include "scratch.h"

#include "fence/data_dir.h"

int __real_fsync(int fd);
int __wrap_fsync(int fd);

static ino_t parent;
static unsigned synced; /* how often the parent was */
static int broken;      /* an error of syncing it; 0: none */

int __wrap_fsync(int fd)
{
    struct stat st;
    assert_int_equal(fstat(fd, &st), 0);
    if (st.st_ino == parent) {
        synced++;
        if (broken != 0) {
            errno = broken;
            return -1;
        }
    }
    return __real_fsync(fd);
}

static int open_it(const struct scratch *s, bool establish)
{
    struct fli_data_dir d;
    char errmsg[256];
    int rc = fli_data_dir_open(s->data, "test", &d, errmsg, sizeof errmsg);
    if (rc == 0 && establish) {
        rc = fli_data_dir_establish(&d, "test", errmsg, sizeof errmsg);
    }
    if (rc == 0) {
        fli_data_dir_close(&d);
    }
    return rc;
}

/* Also after a start that was killed between making the directory and syncing its parent. */
TEST(the_name_of_a_new_directory_is_synced)
{
    struct scratch s;
    struct stat st;
    scratch_init(&s);
    assert_int_equal(stat(s.path, &st), 0);
    parent = st.st_ino;
    synced = 0;
    assert_int_equal(open_it(&s, false), 0);
    assert_int_equal(synced, 1);
    assert_int_equal(open_it(&s, true), 0);
    assert_int_equal(synced, 2);
    assert_int_equal(open_it(&s, false), 0); /* the line says that it is there */
    assert_int_equal(synced, 2);
    scratch_fini(&s);
}

/* An operator's directory may have a parent that cannot be synced; one that we made may not. */
TEST(a_parent_that_cannot_be_synced)
{
    static const int tolerated[] = {EACCES, EPERM, EROFS, EINVAL};
    struct scratch s;
    struct stat st;
    scratch_init(&s);
    assert_int_equal(stat(s.path, &st), 0);
    parent = st.st_ino;
    broken = EACCES;
    assert_int_equal(open_it(&s, false), FL_EIO);
    for (unsigned i = 0; i < sizeof tolerated / sizeof tolerated[0]; i++) {
        broken = tolerated[i];
        assert_int_equal(open_it(&s, false), 0);
    }
    broken = EIO;
    assert_int_equal(open_it(&s, false), FL_EIO);
    broken = 0;
    scratch_fini(&s);
}
