/* test_part.c: a file is replaced as a whole, whoever reads or replaces it meanwhile. */
#include "../../lib/unit.h"

#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../../lib/scratch.h"
#include "base/part.h"

#define CONTENT_SIZE 65536u /* more than one page, so that half of it can be seen */

/* The calls in their order: a file was synced ('f'), a folder ('d'), or a file was renamed ('r').
 * Of the ones that begin with this letter the call fails. */
static char calls[16];
static char failing;
static char dying; /* ... and before such a one the process is killed */

int __real_fsync(int fd);
int __wrap_fsync(int fd);
int __real_rename(const char *from, const char *to);
int __wrap_rename(const char *from, const char *to);

static bool fails(char call)
{
    size_t len = strlen(calls);
    assert_true(len + 1 < sizeof calls);
    calls[len] = call;
    calls[len + 1] = '\0';
    if (call == dying) {
        (void)raise(SIGKILL);
    }
    errno = EIO;
    return call == failing;
}

int __wrap_fsync(int fd)
{
    struct stat st;
    assert_int_equal(fstat(fd, &st), 0);
    return fails(S_ISDIR(st.st_mode) ? 'd' : 'f') ? -1 : __real_fsync(fd);
}

int __wrap_rename(const char *from, const char *to)
{
    return fails('r') ? -1 : __real_rename(from, to);
}

static int replace(const char *path, const char *text)
{
    calls[0] = '\0';
    return fli_replace_file(path, text, strlen(text));
}

static void has(const char *path, const char *text)
{
    char found[64] = {0};
    size_t len = scratch_read(path, found, sizeof found);
    assert_int_equal(len, strlen(text));
    assert_memory_equal(found, text, len);
}

static unsigned count(const char *folder)
{
    struct dirent **names = NULL;
    int n = scandir(folder, &names, NULL, NULL);
    for (int i = 0; i < n; i++) {
        free(names[i]);
    }
    free(names);
    return (unsigned)n - 2; /* without . and .. */
}

TEST(content_then_name_then_folder_are_durable)
{
    char *folder = scratch_make();
    char *path = scratch_path(folder, "file");
    struct stat st;
    assert_int_equal(replace(path, "one"), 0);
    assert_string_equal(calls, "frd");
    assert_int_equal(replace(path, "two"), 0);
    has(path, "two");
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    assert_int_equal(count(folder), 1);
    free(path);
    scratch_remove(folder);
}

TEST(a_call_that_fails_leaves_a_whole_file_and_nothing_beside_it)
{
    char *folder = scratch_make();
    char *path = scratch_path(folder, "file");
    assert_int_equal(replace(path, "one"), 0);
    static const char all[] = "frd";
    for (const char *c = all; *c != '\0'; c++) {
        failing = *c;
        assert_int_equal(replace(path, "two"), FL_EIO);
        assert_int_equal(errno, EIO);
        has(path, *c == 'd' ? "two" : "one");
        assert_int_equal(count(folder), 1);
    }
    failing = '\0';
    free(path);
    scratch_remove(folder);
}

TEST(the_file_that_a_link_names_is_replaced)
{
    char *folder = scratch_make();
    char *elsewhere = scratch_make();
    char *file = scratch_path(elsewhere, "real");
    char *link = scratch_path(folder, "link");
    char *lost = scratch_path(folder, "lost");
    struct stat st;
    assert_int_equal(replace(file, "one"), 0);
    assert_int_equal(symlink(file, link), 0);
    assert_int_equal(replace(link, "two"), 0);
    assert_int_equal(lstat(link, &st), 0);
    assert_true(S_ISLNK(st.st_mode));
    has(file, "two");
    assert_int_equal(count(folder), 1);
    /* a link to nothing stays one: what it is to name is not known for sure */
    assert_int_equal(symlink("nothing", lost), 0);
    assert_int_equal(replace(lost, "three"), FL_EIO);
    assert_int_equal(errno, ENOENT);
    assert_int_equal(count(folder), 2);
    free(lost);
    free(link);
    free(file);
    scratch_remove(elsewhere);
    scratch_remove(folder);
}

/* What killed processes have left is gone after the next one. */
TEST(a_killed_process_leaves_nothing_for_long)
{
    char *folder = scratch_make();
    char *path = scratch_path(folder, "file");
    for (unsigned i = 0; i < 20; i++) {
        pid_t pid = fork();
        assert_true(pid >= 0);
        if (pid == 0) {
            dying = i % 2 == 0 ? 'f' : 'r';
            (void)!replace(path, "of a killed one");
            _exit(1);
        }
        int status = 0;
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(WIFSIGNALED(status));
        assert_int_equal(count(folder), 1);
    }
    assert_int_equal(replace(path, "one"), 0);
    has(path, "one");
    assert_int_equal(count(folder), 1);
    free(path);
    scratch_remove(folder);
}

TEST(so_many_may_replace_it_at_one_moment)
{
    char *folder = scratch_make();
    char *path = scratch_path(folder, "file");
    int fds[FLI_REPLACING_MAX];
    char name[32];
    for (unsigned i = 0; i < FLI_REPLACING_MAX; i++) {
        assert_int_equal(replace(path, "one"), 0);
        (void)snprintf(name, sizeof name, "file.%u.part", i);
        char *part = scratch_path(folder, name);
        fds[i] = fli_part_open(part);
        assert_true(fds[i] >= 0);
        free(part);
    }
    assert_int_equal(replace(path, "two"), FL_EIO);
    assert_int_equal(errno, EBUSY);
    has(path, "one");
    for (unsigned i = 0; i < FLI_REPLACING_MAX; i++) {
        close(fds[i]);
    }
    assert_int_equal(replace(path, "two"), 0);
    has(path, "two");
    free(path);
    scratch_remove(folder);
}

/* Two processes replace a file, a third one reads it. */
TEST(a_reader_beside_two_writers_finds_whole_files)
{
    static char content[CONTENT_SIZE];
    static char found[CONTENT_SIZE + 1];
    char *folder = scratch_make();
    char *path = scratch_path(folder, "file");
    pid_t pids[2];
    memset(content, 'z', sizeof content);
    assert_int_equal(fli_replace_file(path, content, sizeof content), 0);
    for (int i = 0; i < 2; i++) {
        pids[i] = fork();
        assert_true(pids[i] >= 0);
        memset(content, 'a' + i, sizeof content);
        while (pids[i] == 0) {
            calls[0] = '\0';
            if (fli_replace_file(path, content, sizeof content) != 0) {
                _exit(1);
            }
        }
    }
    unsigned changes = 0;
    for (char last = 'z'; changes < 40;) {
        assert_int_equal(scratch_read(path, found, sizeof found), sizeof content);
        for (size_t i = 1; i < sizeof content; i++) {
            assert_int_equal(found[i], found[0]);
        }
        changes += found[0] != last;
        last = found[0];
    }
    for (int i = 0; i < 2; i++) {
        int status = 0;
        assert_int_equal(waitpid(pids[i], &status, WNOHANG), 0); /* it met no error */
        assert_int_equal(kill(pids[i], SIGKILL), 0);
        assert_int_equal(waitpid(pids[i], &status, 0), pids[i]);
    }
    free(path);
    scratch_remove(folder);
}
