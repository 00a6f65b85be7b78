/* The data directory: who may use it, and what is refused. */
#include "../../lib/unit.h"

#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/bytes.h"
#include "members/data_dir.h"
#include "../../lib/scratch.h"

#define SEGMENT "segment-0000000001"

/* What was synced. */
static ino_t synced[16];
static unsigned synced_n;

int __real_fsync(int fd);
int __wrap_fsync(int fd);

int __wrap_fsync(int fd)
{
    struct stat st;
    assert_int_equal(fstat(fd, &st), 0);
    synced[synced_n++ % 16] = st.st_ino;
    return __real_fsync(fd);
}

static bool was_synced(const char *path)
{
    struct stat st;
    bool was = false;
    assert_int_equal(stat(path, &st), 0);
    for (unsigned i = 0; i < synced_n && i < 16; i++) {
        was = was || synced[i] == st.st_ino;
    }
    return was;
}

struct fixture {
    char *root;
    char *path; /* does not exist yet */
    struct members members;
    struct data_dir dir;
    char errmsg[2048];
};

static int set_up(void **state)
{
    struct fixture *f = test_calloc(1, sizeof *f);
    f->root = scratch_make();
    f->path = scratch_path(f->root, "deep/er/data");
    f->dir.lock_fd = f->dir.record_fd = -1;
    assert_int_equal(members_parse("1=a:1,2=b:2,3=c:3", &f->members, f->errmsg, sizeof f->errmsg),
                     0);
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *f = *state;
    data_dir_close(&f->dir);
    scratch_remove(f->root);
    free(f->path);
    test_free(f);
    return 0;
}

static void open_dir(struct fixture *f)
{
    assert_int_equal(data_dir_open(f->path, &f->dir, f->errmsg, sizeof f->errmsg), 0);
}

/* As a start of a node does it, which the one before has ended. */
static int open_record(struct fixture *f, uint64_t id, struct record *ret)
{
    if (f->dir.record_fd >= 0) {
        data_dir_close(&f->dir);
        open_dir(f);
    }
    return record_open(&f->dir, id, &f->members, false, ret, f->errmsg, sizeof f->errmsg);
}

static void expect_message(struct fixture *f, const char *part)
{
    if (strstr(f->errmsg, part) == NULL) {
        fail_msg("'%s' is not in '%s'", part, f->errmsg);
    }
}

/* As node_create does it. */
static void make_bootstrapped(struct fixture *f, struct record *ret)
{
    open_dir(f);
    assert_int_equal(open_record(f, 2, ret), 0);
    char *segment = scratch_path(f->dir.log_path, SEGMENT);
    scratch_write(segment, "x", 1);
    free(segment);
    ret->identity.bootstrapped = true;
    assert_int_equal(record_store(&f->dir, ret), 0);
}

TEST_WITH(test_pristine, set_up, tear_down)
{
    struct fixture *f = *state;
    struct record id;
    struct record again;
    open_dir(f);
    assert_int_equal(open_record(f, 2, &id), 0);
    assert_int_equal(id.identity.id, 2);
    assert_int_not_equal(id.identity.incarnation, 0);
    assert_int_equal(id.identity.cluster_id, 0);
    assert_false(id.identity.bootstrapped);
    assert_int_equal(open_record(f, 2, &again), 0);
    assert_memory_equal(&again, &id, sizeof id);
}

/* A start that was cut off before it said that its log is there. */
TEST_WITH(what_was_half_made_is_made_anew, set_up, tear_down)
{
    struct fixture *f = *state;
    struct record id;
    open_dir(f);
    assert_int_equal(open_record(f, 2, &id), 0);
    char *segment = scratch_path(f->dir.log_path, SEGMENT);
    scratch_write(segment, "x", 1);
    assert_int_equal(open_record(f, 2, &id), 0);
    assert_int_not_equal(access(segment, F_OK), 0);
    free(segment);
}

/* It has told nobody with which members it was to begin. */
TEST_WITH(what_was_half_made_takes_other_members, set_up, tear_down)
{
    struct fixture *f = *state;
    struct record id;
    struct record again;
    open_dir(f);
    assert_int_equal(open_record(f, 2, &id), 0);
    assert_int_equal(members_parse("1=a:1,2=b:4", &f->members, f->errmsg, sizeof f->errmsg), 0);
    assert_int_equal(open_record(f, 2, &again), 0);
    assert_true(members_equal(&again.identity.members, &f->members));
    assert_int_not_equal(again.identity.begun_crc, id.identity.begun_crc);
    assert_int_equal(again.identity.incarnation, id.identity.incarnation);
    assert_int_equal(open_record(f, 1, &again), FL_EDENIED);
}

TEST_WITH(test_two_directories_differ, set_up, tear_down)
{
    struct fixture *f = *state;
    struct record a;
    struct record b;
    open_dir(f);
    assert_int_equal(open_record(f, 2, &a), 0);
    data_dir_close(&f->dir);
    scratch_wipe(f->path);
    open_dir(f);
    assert_int_equal(open_record(f, 2, &b), 0);
    assert_true(a.identity.incarnation != b.identity.incarnation);
}

TEST_WITH(test_everything_survives, set_up, tear_down)
{
    struct fixture *f = *state;
    struct record id;
    struct record again;
    make_bootstrapped(f, &id);
    id.identity.cluster_id = UINT64_MAX;
    id.identity.founders[0] = 1;
    id.identity.founders[1] = id.identity.incarnation;
    id.identity.founders[2] = UINT64_MAX;
    assert_int_equal(record_store(&f->dir, &id), 0);
    assert_int_equal(open_record(f, 2, &again), 0);
    assert_memory_equal(&again, &id, sizeof id);
}

TEST_WITH(test_locked, set_up, tear_down)
{
    struct fixture *f = *state;
    struct data_dir second;
    char pid[32];
    open_dir(f);
    assert_int_equal(data_dir_open(f->path, &second, f->errmsg, sizeof f->errmsg), FL_EBUSY);
    expect_message(f, f->path);
    snprintf(pid, sizeof pid, "pid %ld", (long)getpid());
    expect_message(f, pid);
    data_dir_close(&f->dir);
    open_dir(f);
}

/* What a node leaves behind that is killed while it forks: a child with a copy of its lock. */
static _Noreturn void lock_and_leave_a_child(const char *path)
{
    struct data_dir d;
    char errmsg[512];
    const struct timespec a_while = {.tv_nsec = 300000000};
    if (data_dir_open(path, &d, errmsg, sizeof errmsg) != 0) {
        _exit(1);
    }
    if (fork() == 0) {
        (void)nanosleep(&a_while, NULL);
    }
    _exit(0);
}

TEST_WITH(test_lock_of_a_child, set_up, tear_down)
{
    struct fixture *f = *state;
    int status = 0;
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        lock_and_leave_a_child(f->path);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    open_dir(f);
}

TEST_WITH(test_path_limits, set_up, tear_down)
{
    struct fixture *f = *state;
    struct data_dir d;
    char path[DATA_DIR_PATH_MAX + 1];
    memset(path, 0, sizeof path);
    size_t len = (size_t)snprintf(path, sizeof path, "%s", f->root);
    while (len < DATA_DIR_PATH_MAX - 1) {
        path[len] = len % 100 == 99 ? '/' : 'd';
        len++;
    }
    path[len - 1] = 'e';
    assert_int_equal(data_dir_open(path, &d, f->errmsg, sizeof f->errmsg), 0);
    data_dir_close(&d);
    path[len] = 'f';
    assert_int_equal(data_dir_open(path, &d, f->errmsg, sizeof f->errmsg), FL_EINVAL);
    assert_int_equal(data_dir_open("", &d, f->errmsg, sizeof f->errmsg), FL_EINVAL);
}

TEST_WITH(test_not_a_directory, set_up, tear_down)
{
    struct fixture *f = *state;
    struct data_dir d;
    char *file = scratch_path(f->root, "file");
    scratch_write(file, "x", 1);
    assert_int_equal(data_dir_open(file, &d, f->errmsg, sizeof f->errmsg), FL_ESYSTEM);
    expect_message(f, "cannot make data directory");
    free(file);
}

TEST_WITH(test_other_id, set_up, tear_down)
{
    struct fixture *f = *state;
    struct record id;
    make_bootstrapped(f, &id);
    assert_int_equal(open_record(f, 3, &id), FL_EDENIED);
    expect_message(f, "belongs to node 2, but this is node 3");
}

TEST_WITH(test_other_cluster, set_up, tear_down)
{
    struct fixture *f = *state;
    struct record id;
    make_bootstrapped(f, &id);
    assert_int_equal(members_parse("1=a:1,2=b:2,3=c:4", &f->members, f->errmsg, sizeof f->errmsg),
                     0);
    assert_int_equal(open_record(f, 2, &id), FL_EDENIED);
    expect_message(f, "1=a:1,2=b:2,3=c:3");
    expect_message(f, "1=a:1,2=b:2,3=c:4");
}

/* The same members in another order are the same cluster. */
TEST_WITH(test_other_order, set_up, tear_down)
{
    struct fixture *f = *state;
    struct record id;
    make_bootstrapped(f, &id);
    assert_int_equal(members_parse("3=c:3,2=b:2,1=a:1", &f->members, f->errmsg, sizeof f->errmsg),
                     0);
    assert_int_equal(open_record(f, 2, &id), 0);
}

static void remove_in(const char *dir, const char *name)
{
    char *path = scratch_path(dir, name);
    assert_int_equal(unlink(path), 0);
    free(path);
}

TEST_WITH(test_identity_missing, set_up, tear_down)
{
    struct fixture *f = *state;
    struct record id;
    make_bootstrapped(f, &id);
    remove_in(f->dir.path, "identity");
    assert_int_equal(open_record(f, 2, &id), FL_EDENIED);
    expect_message(f, "identity is missing although");
}

/* A crash between the first files of the log and the note that they are there. */
TEST_WITH(test_half_bootstrapped, set_up, tear_down)
{
    struct fixture *f = *state;
    struct record id;
    make_bootstrapped(f, &id);
    id.identity.bootstrapped = false;
    assert_int_equal(record_store(&f->dir, &id), 0);
    char *segment = scratch_path(f->dir.log_path, SEGMENT);
    assert_true(scratch_exists(segment));
    assert_int_equal(open_record(f, 2, &id), 0);
    assert_false(scratch_exists(segment));
    assert_true(scratch_exists(f->dir.log_path));
    free(segment);
}

static void write_identity(struct fixture *f, const void *bytes, size_t len)
{
    char *path = scratch_path(f->dir.path, "identity");
    scratch_write(path, bytes, len);
    free(path);
}

/* One slot may be damaged, and not both. */
TEST_WITH(test_damage, set_up, tear_down)
{
    struct fixture *f = *state;
    struct record id;
    char file[RECORD_FILE_SIZE];
    make_bootstrapped(f, &id);
    char *path = scratch_path(f->dir.path, "identity");
    assert_int_equal(scratch_read(path, file, sizeof file), sizeof file);
    free(path);
    file[20] ^= 1;
    write_identity(f, file, sizeof file);
    assert_int_equal(open_record(f, 2, &id), 0);
    file[RECORD_SLOT_STEP + 20] ^= 1;
    write_identity(f, file, sizeof file);
    assert_int_equal(open_record(f, 2, &id), FL_ECORRUPT);
    expect_message(f, "is damaged");
    write_identity(f, "", 0);
    assert_int_equal(open_record(f, 2, &id), FL_ECORRUPT);
}

/* Those before were never released, and were text; of what comes later nothing is known. */
TEST_WITH(test_version, set_up, tear_down)
{
    struct fixture *f = *state;
    struct record id;
    static const char text[] = "fencelock-identity 4\nid 2\n";
    uint8_t slot[RECORD_SLOT_SIZE];
    make_bootstrapped(f, &id);
    write_identity(f, text, sizeof text - 1);
    assert_int_equal(open_record(f, 2, &id), FL_EVERSION);
    record_encode(&id, slot);
    assert_int_equal(slot[8], 6);
    slot[8] = 7;
    write_identity(f, slot, sizeof slot);
    assert_int_equal(open_record(f, 2, &id), FL_EVERSION);
    expect_message(f, "another version of fencelock (0.1.0, which was never released");
}

/* The largest identity there can be fits its slot and comes back. */
TEST(test_largest)
{
    struct record id;
    struct record again;
    uint8_t slot[RECORD_SLOT_SIZE];
    memset(&id, 0, sizeof id);
    id.identity.members.n = MEMBERS_MAX;
    for (unsigned i = 0; i < MEMBERS_MAX; i++) {
        struct member *m = &id.identity.members.list[i];
        m->id = UINT64_C(0x7fffffffffffffff) - MEMBERS_MAX + 1 + i;
        memset(m->address, 'x', 255);
        snprintf(m->address + 255, sizeof m->address - 255, ":6553%u", i > 5 ? 5 : i);
        m->address[0] = (char)('a' + i);
        id.identity.founders[i] = UINT64_MAX - i;
    }
    id.identity.id = id.identity.members.list[3].id;
    id.identity.incarnation = UINT64_MAX;
    id.identity.cluster_id = UINT64_MAX;
    id.identity.bootstrapped = true;
    id.identity.joins = true;
    id.identity.begun_crc = UINT32_MAX;
    record_encode(&id, slot);
    assert_int_equal(record_decode(slot, &again), 0);
    assert_memory_equal(&again, &id, sizeof id);
}

/* The process that wrote it, or made the directory, may have been killed before it was durable. */
TEST_WITH(test_what_is_read_is_durable, set_up, tear_down)
{
    struct fixture *f = *state;
    struct record id;
    make_bootstrapped(f, &id);
    char *file = scratch_path(f->path, "identity");
    char *parent = scratch_path(f->root, "deep/er");
    synced_n = 0;
    assert_int_equal(open_record(f, 2, &id), 0);
    assert_true(was_synced(file) && was_synced(f->path));
    free(file);
    data_dir_close(&f->dir);
    scratch_wipe(f->path);
    open_dir(f);
    synced_n = 0;
    assert_int_equal(open_record(f, 2, &id), 0);
    assert_true(was_synced(parent));
    free(parent);
}

/* A power cut must not take away a directory whose content was synced. */
TEST_WITH(test_made_durably, set_up, tear_down)
{
    struct fixture *f = *state;
    char *deep = scratch_path(f->root, "deep");
    char *deeper = scratch_path(f->root, "deep/er");
    synced_n = 0;
    open_dir(f);
    assert_true(was_synced(f->root) && was_synced(deep) && was_synced(deeper));
    data_dir_close(&f->dir);
    synced_n = 0;
    open_dir(f); /* it is there already */
    assert_int_equal(synced_n, 0);
    free(deep);
    free(deeper);
}
