/* many_driver.c: thousands of locks that one process holds on one client. Driven by
 * tests/integration/many_locks.py.
 *
 *   many_driver NODES LOCKS TTL [session]     session: under one, with that TTL
 *
 * Prints "taken LOCKS"; then, for each line, "HELD LOST SOCKETS CPU_MS SOONEST NOW": the soonest
 * deadline of those that are held, and the time, both by fl_now_ms(). */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>

#include "fencelock/client.h"

static unsigned sockets(void)
{
    unsigned n = 0;
    for (int fd = 3; fd < 256; fd++) {
        int type;
        socklen_t len = sizeof type;
        n += getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &len) == 0;
    }
    return n;
}

static unsigned long cpu_ms(void)
{
    return (unsigned long)(clock() / (CLOCKS_PER_SEC / 1000));
}

static void look(fl_lock **locks, unsigned long n)
{
    unsigned long held = 0;
    uint64_t soonest_ms = UINT64_MAX;
    for (unsigned long i = 0; i < n; i++) {
        uint64_t deadline_ms = fl_lock_deadline_ms(locks[i]);
        if (fl_lock_state(locks[i]) != FL_HOLD_LOST) {
            held++;
            soonest_ms = deadline_ms < soonest_ms ? deadline_ms : soonest_ms;
        }
    }
    printf("%lu %lu %u %lu %" PRIu64 " %" PRIu64 "\n", held, n - held, sockets(), cpu_ms(),
           soonest_ms, fl_now_ms());
    fflush(stdout);
}

int main(int argc, char **argv)
{
    const struct fl_client_options options = {.timeout_ms = 240000};
    fl_client *c;
    char line[16];
    if (argc < 4 || argc > 5 || fl_open(argv[1], &options, &c) != 0) {
        return 2;
    }
    unsigned long n = strtoul(argv[2], NULL, 10);
    struct fl_take how = {.ttl_ms = strtoull(argv[3], NULL, 10)};
    if (argc == 5) {
        const struct fl_take session = {.ttl_ms = how.ttl_ms};
        how.ttl_ms = 0;
        if (fl_session_open(c, &session, &how.session) != 0) {
            fprintf(stderr, "the session: %s\n", fl_client_error(c));
            return 1;
        }
    }
    fl_lock **locks = calloc(n, sizeof(fl_lock *));
    for (unsigned long i = 0; locks != NULL && i < n; i++) {
        char name[32];
        snprintf(name, sizeof name, "many-%lu", i);
        if (fl_lock_take(c, name, &how, &locks[i]) != 0) {
            fprintf(stderr, "%s: %s\n", name, fl_client_error(c));
            return 1;
        }
    }
    printf("taken %lu\n", n);
    fflush(stdout);
    while (locks != NULL && fgets(line, sizeof line, stdin) != NULL) {
        look(locks, n);
    }
    fl_close(c);
    for (unsigned long i = 0; locks != NULL && i < n; i++) {
        fl_lock_free(locks[i]);
    }
    fl_lock_free(how.session);
    free(locks);
    return 0;
}
