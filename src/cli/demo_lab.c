/* demo_lab.c: real servers for the demonstration, and the faults done to them. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <glob.h>
#include <poll.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/demo.h"

#define POLL_AGAIN_MS 2
#define ATTEMPTS 5
#define FAKETIME_MS UINT64_C(15000)

volatile sig_atomic_t demo_interrupted;

int demo_lab_fail(struct demo_lab *lab, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    vsnprintf(lab->error, sizeof lab->error, fmt, args);
    va_end(args);
    return FL_ESYSTEM;
}

/* ---- processes ------------------------------------------------------------------------------- */

pid_t demo_fork(const struct demo_lab *lab, const char *log)
{
    pid_t parent = getpid();
    (void)fflush(stdout);
    pid_t pid = fork();
    if (pid != 0) {
        return pid;
    }
    /* A Ctrl-C is for the command, which then ends all of us. */
    (void)setpgid(0, 0);
    const struct sigaction normal = {.sa_handler = SIG_DFL};
    (void)sigaction(SIGINT, &normal, NULL);
    (void)sigaction(SIGTERM, &normal, NULL);
    (void)sigaction(SIGHUP, &normal, NULL);
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) {
        _exit(1);
    }
    if (log != NULL) {
        char path[128];
        snprintf(path, sizeof path, "%s/%s", lab->dir, log);
        int fd = open(path, O_WRONLY | O_CREAT | O_APPEND, 0600);
        int nothing = open("/dev/null", O_RDONLY);
        (void)dup2(nothing, STDIN_FILENO);
        (void)dup2(fd, STDOUT_FILENO);
        (void)dup2(fd, STDERR_FILENO);
        (void)close_range(STDERR_FILENO + 1, ~0U, 0);
    }
    return 0;
}

void demo_kill(pid_t *pid)
{
    if (*pid > 0) {
        (void)kill(*pid, SIGKILL);
        (void)waitpid(*pid, NULL, 0);
    }
    *pid = 0;
}

bool demo_write_line(int fd, const char *line)
{
    char text[128];
    int len = snprintf(text, sizeof text, "%s\n", line);
    return write(fd, text, (size_t)len) == len;
}

bool demo_read_line(int fd, char *out, size_t size)
{
    size_t len = 0;
    while (len + 1 < size) {
        ssize_t n = read(fd, out + len, 1);
        if (n == 0 || (n < 0 && errno != EINTR)) {
            return false;
        }
        if (n < 0) {
            continue;
        }
        if (out[len] == '\n') {
            out[len] = '\0';
            return true;
        }
        len++;
    }
    return false;
}

/* Finds text after `mark` in a log, up to the line's end. */
static bool find_in_log(const struct demo_lab *lab, const char *log, const char *mark, char *out,
                        size_t size)
{
    char path[128];
    char data[4096];
    snprintf(path, sizeof path, "%s/%s", lab->dir, log);
    FILE *f = fopen(path, "re");
    if (f == NULL) {
        return false;
    }
    size_t len = fread(data, 1, sizeof data - 1, f);
    (void)fclose(f);
    data[len] = '\0';
    const char *at = strstr(data, mark);
    const char *end = at != NULL ? strchr(at, '\n') : NULL;
    if (end == NULL) {
        return false;
    }
    at += strlen(mark);
    snprintf(out, size, "%.*s", (int)(end - at), at);
    return true;
}

/* Waits until a program has said `mark`; what follows it in *out. FL_EDENIED: it has ended. */
static int wait_for_log(struct demo_lab *lab, pid_t *pid, const char *log, const char *mark,
                        char *out, size_t size)
{
    uint64_t until_ms = fl_now_ms() + DEMO_DEADLINE_MS;
    while (fl_now_ms() < until_ms && demo_interrupted == 0) {
        if (find_in_log(lab, log, mark, out, size)) {
            return 0;
        }
        if (waitpid(*pid, NULL, WNOHANG) == *pid) {
            *pid = 0;
            char line[256] = "";
            (void)find_in_log(lab, log, "", line, sizeof line);
            (void)demo_lab_fail(lab, "a server did not start (%s): %s", log, line);
            return FL_EDENIED;
        }
        (void)poll(NULL, 0, POLL_AGAIN_MS);
    }
    return demo_lab_fail(lab, "a server did not get ready in time (%s)", log);
}

/* ---- Redis ----------------------------------------------------------------------------------- */

static void become_redis(const struct demo_lab *lab, unsigned i)
{
    char clock[128];
    snprintf(clock, sizeof clock, "%s/clock", lab->dir);
    if (i == 0 && lab->faketime[0] != '\0') {
        /* Where Redis allocates with jemalloc, that asks for the time before libfaketime is ready,
         * and libfaketime for memory before jemalloc is: both would wait for ever. The allocator
         * of the C library, put in front of them, needs neither. */
        char preload[320];
        snprintf(preload, sizeof preload, "libc_malloc_debug.so.0:%s", lab->faketime);
        (void)setenv("LD_PRELOAD", preload, 1);
        (void)setenv("FAKETIME_TIMESTAMP_FILE", clock, 1);
        (void)setenv("FAKETIME_NO_CACHE", "1", 1);
        (void)setenv("FAKETIME_DONT_FAKE_MONOTONIC", "1", 1);
    }
    (void)execlp("redis-server", "redis-server", "--port", "0", "--unixsocket",
                 lab->redis_address[i], "--save", "", "--appendonly", "no", "--dir", lab->dir,
                 "--loglevel", "warning", (char *)NULL);
    fprintf(stderr, "redis-server: %s\n", strerror(errno));
    _exit(127);
}

int demo_redis_start(struct demo_lab *lab, unsigned i)
{
    char log[16];
    snprintf(log, sizeof log, "redis%u.log", i + 1);
    (void)unlink(lab->redis_address[i]);
    lab->redis[i] = demo_fork(lab, log);
    if (lab->redis[i] == 0) {
        become_redis(lab, i);
    }
    return lab->redis[i] > 0 ? 0 : demo_lab_fail(lab, "no process to be had for a Redis");
}

static bool answers_ping(const char *path)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    snprintf(a.sun_path, sizeof a.sun_path, "%s", path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    char answer[8] = "";
    bool yes = fd >= 0 && connect(fd, (struct sockaddr *)&a, sizeof a) == 0 &&
               send(fd, "PING\r\n", 6, MSG_NOSIGNAL) == 6 && recv(fd, answer, 7, 0) == 7 &&
               memcmp(answer, "+PONG\r\n", 7) == 0;
    if (fd >= 0) {
        close(fd);
    }
    return yes;
}

static int wait_for_redis(struct demo_lab *lab, unsigned i, uint64_t timeout_ms)
{
    uint64_t until_ms = fl_now_ms() + timeout_ms;
    while (fl_now_ms() < until_ms && demo_interrupted == 0) {
        if (answers_ping(lab->redis_address[i])) {
            return 0;
        }
        if (waitpid(lab->redis[i], NULL, WNOHANG) == lab->redis[i]) {
            lab->redis[i] = 0;
            char line[256] = "";
            char log[16];
            snprintf(log, sizeof log, "redis%u.log", i + 1);
            (void)find_in_log(lab, log, "", line, sizeof line);
            return demo_lab_fail(lab, "a redis-server ended as soon as it had started: %s", line);
        }
        (void)poll(NULL, 0, POLL_AGAIN_MS);
    }
    return demo_lab_fail(lab, "a redis-server did not answer in time");
}

int demo_redis_wait(struct demo_lab *lab, unsigned i)
{
    return wait_for_redis(lab, i, DEMO_DEADLINE_MS);
}

void demo_redis_kill(struct demo_lab *lab, unsigned i)
{
    demo_kill(&lab->redis[i]);
}

/* ---- the clock ------------------------------------------------------------------------------- */

static void find_faketime(struct demo_lab *lab)
{
    static const char *const patterns[] = {"/usr/lib/*/faketime/libfaketime.so.1",
                                           "/usr/lib*/faketime/libfaketime.so.1",
                                           "/usr/local/lib/faketime/libfaketime.so.1"};
    for (size_t i = 0; i < sizeof patterns / sizeof patterns[0]; i++) {
        glob_t found;
        if (glob(patterns[i], 0, NULL, &found) == 0) {
            snprintf(lab->faketime, sizeof lab->faketime, "%s", found.gl_pathv[0]);
            globfree(&found);
            return;
        }
        globfree(&found);
    }
}

/* In one step: a file that is half written would be no time at all. */
static int set_clock(struct demo_lab *lab)
{
    char path[128];
    char next[128];
    snprintf(path, sizeof path, "%s/clock", lab->dir);
    snprintf(next, sizeof next, "%s/clock.next", lab->dir);
    FILE *f = fopen(next, "we");
    if (f == NULL || fprintf(f, "+%llu\n", (unsigned long long)lab->clock_s) < 0 ||
        fclose(f) != 0 || rename(next, path) != 0) {
        return demo_lab_fail(lab, "the file with the clock of a Redis cannot be written");
    }
    return 0;
}

int demo_clock_jump(struct demo_lab *lab, uint64_t by_s)
{
    lab->clock_s += by_s;
    return set_clock(lab);
}

/* ---- nodes and storages ---------------------------------------------------------------------- */

/* A port that nobody listens on, below those that the system gives to outgoing connections. */
static int free_port(unsigned *ret)
{
    for (int i = 0; i < 1000; i++) {
        uint16_t random;
        if (getrandom(&random, sizeof random, 0) != (ssize_t)sizeof random) {
            break;
        }
        unsigned port = 11000 + random % 20000u;
        struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
        a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        bool is_free = fd >= 0 && bind(fd, (struct sockaddr *)&a, sizeof a) == 0;
        if (fd >= 0) {
            close(fd);
        }
        if (is_free) {
            *ret = port;
            return 0;
        }
    }
    return FL_ESYSTEM;
}

static void become_node(const struct demo_lab *lab, unsigned i, const unsigned port[],
                        unsigned attempt)
{
    char program[300];
    char id[16];
    char data[128];
    char listen[32];
    char peer[32];
    char members[160];
    snprintf(program, sizeof program, "%sfencelockd", lab->programs);
    snprintf(id, sizeof id, "%u", i + 1);
    snprintf(data, sizeof data, "%s/node%u.%u", lab->dir, i + 1, attempt);
    snprintf(listen, sizeof listen, "127.0.0.1:%u", port[i]);
    snprintf(peer, sizeof peer, "127.0.0.1:%u", port[DEMO_NODES + i]);
    snprintf(members, sizeof members, "1=127.0.0.1:%u,2=127.0.0.1:%u,3=127.0.0.1:%u",
             port[DEMO_NODES], port[DEMO_NODES + 1], port[DEMO_NODES + 2]);
    (void)execlp(program, "fencelockd", "--id", id, "--data", data, "--listen", listen, "--peer",
                 peer, "--cluster", members, (char *)NULL);
    fprintf(stderr, "%s: %s\n", program, strerror(errno));
    _exit(127);
}

static int start_nodes_once(struct demo_lab *lab, unsigned attempt)
{
    unsigned port[2 * DEMO_NODES];
    char log[DEMO_NODES][32];
    for (unsigned i = 0; i < 2 * DEMO_NODES; i++) {
        if (free_port(&port[i]) != 0) {
            return demo_lab_fail(lab, "no free port to be had");
        }
    }
    for (unsigned i = 0; i < DEMO_NODES; i++) {
        snprintf(log[i], sizeof log[i], "node%u.%u.log", i + 1, attempt);
        lab->node[i] = demo_fork(lab, log[i]);
        if (lab->node[i] == 0) {
            become_node(lab, i, port, attempt);
        }
        if (lab->node[i] < 0) {
            return demo_lab_fail(lab, "no process to be had for a node");
        }
    }
    for (unsigned i = 0; i < DEMO_NODES; i++) {
        char rest[64];
        int rc = wait_for_log(lab, &lab->node[i], log[i], "ready: ", rest, sizeof rest);
        if (rc != 0) {
            return rc;
        }
    }
    snprintf(lab->nodes, sizeof lab->nodes, "127.0.0.1:%u,127.0.0.1:%u,127.0.0.1:%u", port[0],
             port[1], port[2]);
    return 0;
}

/* Somebody may take a port between our look at it and the node's: then all start anew. */
static int start_nodes(struct demo_lab *lab)
{
    int rc = FL_EDENIED;
    for (unsigned attempt = 0; attempt < ATTEMPTS && rc == FL_EDENIED; attempt++) {
        for (unsigned i = 0; i < DEMO_NODES; i++) {
            demo_kill(&lab->node[i]);
        }
        rc = start_nodes_once(lab, attempt);
    }
    return rc;
}

static int start_store(struct demo_lab *lab, unsigned which)
{
    char program[300];
    char data[128];
    const char *log = which == 0 ? "store-off.log" : "store-on.log";
    snprintf(program, sizeof program, "%sfencelock-store", lab->programs);
    snprintf(data, sizeof data, "%s/store%u", lab->dir, which);
    lab->store[which] = demo_fork(lab, log);
    if (lab->store[which] == 0) {
        /* The last word counts only without tokens; with them the list ends before it. */
        (void)execlp(program, "fencelock-store", "--listen", "127.0.0.1:0", "--data", data,
                     which == 0 ? "--no-fencing" : (char *)NULL, (char *)NULL);
        fprintf(stderr, "%s: %s\n", program, strerror(errno));
        _exit(127);
    }
    if (lab->store[which] < 0) {
        return demo_lab_fail(lab, "no process to be had for a storage");
    }
    int rc = wait_for_log(lab, &lab->store[which], log, "ready: listening on ",
                          lab->store_address[which], sizeof lab->store_address[which]);
    return rc == 0 ? demo_proxy_start(lab, which) : rc;
}

/* ---- the whole ------------------------------------------------------------------------------- */

static void find_programs(struct demo_lab *lab)
{
    char path[256];
    ssize_t len = readlink("/proc/self/exe", path, sizeof path - 1);
    path[len > 0 ? len : 0] = '\0';
    char *slash = strrchr(path, '/');
    if (slash == NULL) {
        return;
    }
    slash[1] = '\0';
    char there[300];
    snprintf(there, sizeof there, "%sfencelockd", path);
    if (access(there, X_OK) == 0) { /* else they are looked for in the PATH */
        snprintf(lab->programs, sizeof lab->programs, "%s", path);
    }
}

static int start_redis(struct demo_lab *lab)
{
    size_t len = 0;
    int rc = set_clock(lab);
    for (unsigned i = 0; i < DEMO_REDIS && rc == 0; i++) {
        snprintf(lab->redis_address[i], sizeof lab->redis_address[i], "%s/r%u", lab->dir, i + 1);
        len += (size_t)snprintf(lab->redis_list + len, sizeof lab->redis_list - len, "%s%s",
                                i == 0 ? "" : ",", lab->redis_address[i]);
        rc = demo_redis_start(lab, i);
    }
    /* Should Redis not run under it here, its clock cannot jump. The rest goes on. */
    if (rc == 0 && lab->faketime[0] != '\0' && wait_for_redis(lab, 0, FAKETIME_MS) != 0) {
        lab->faketime[0] = '\0';
        demo_redis_kill(lab, 0);
        rc = demo_redis_start(lab, 0);
    }
    for (unsigned i = 0; i < DEMO_REDIS && rc == 0; i++) {
        rc = demo_redis_wait(lab, i);
    }
    return rc;
}

int demo_lab_open(struct demo_lab *lab)
{
    memset(lab, 0, sizeof *lab);
    const char *tmp = getenv("TMPDIR");
    if (tmp == NULL || tmp[0] != '/' || strlen(tmp) > 32) {
        tmp = "/tmp"; /* the sockets' paths must not get long */
    }
    snprintf(lab->dir, sizeof lab->dir, "%s/fencelock-demo-XXXXXX", tmp);
    if (mkdtemp(lab->dir) == NULL) {
        lab->dir[0] = '\0';
        return demo_lab_fail(lab, "no directory can be made in %s: %s", tmp, strerror(errno));
    }
    find_programs(lab);
    find_faketime(lab);
    int rc = start_redis(lab);
    if (rc == 0) {
        rc = start_nodes(lab);
    }
    for (unsigned which = 0; which < 2 && rc == 0; which++) {
        rc = start_store(lab, which);
    }
    return rc;
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st;
    (void)type;
    (void)ftw;
    (void)remove(path);
    return 0;
}

void demo_lab_close(struct demo_lab *lab)
{
    for (unsigned i = 0; i < 2; i++) {
        demo_kill(&lab->proxy[i].pid);
        if (lab->proxy[i].to > 0) {
            close(lab->proxy[i].to);
            close(lab->proxy[i].from);
        }
        demo_kill(&lab->store[i]);
    }
    for (unsigned i = 0; i < DEMO_NODES; i++) {
        demo_kill(&lab->node[i]);
    }
    for (unsigned i = 0; i < DEMO_REDIS; i++) {
        demo_kill(&lab->redis[i]);
    }
    if (lab->dir[0] != '\0') {
        (void)nftw(lab->dir, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    }
}
