/* driver.c: one client of the library, driven line by line over stdin, so that a test can look at
 * what happens between calls: which connection is kept, who is asked first, what is learned.
 *
 *   driver NODES [STORE]
 *   acquire NAME TTL WAIT TIMEOUT | renew TIMEOUT | release TIMEOUT | check TIMEOUT | token NAME
 *   break NAME TIMEOUT | show NAME | remaining | threads | closed
 *   claim LOCK TOKEN | get KEY LOCK TOKEN | info | text
 *   members | add ID ADDRESS | replace ID ADDRESS OF | move ID ADDRESS | remove ID | transfer ID
 *
 * Each line is answered by one: the name of the result, a number, and the error text. */
#include <dirent.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fencelock/store_client.h"

#define WORDS_MAX 6
#define STORE_TIMEOUT_MS 300000u /* the largest answers take a minute under sanitizers */

static fl_client *client;
static fl_store *store;
static fl_lock *lock;
static fl_token token;
static uint64_t ttl_ms, deadline_ms;
static char held[256];

static void answer(int rc, uint64_t number, const char *text)
{
    printf("%s %" PRIu64 " %s\n", rc == 0 ? "OK" : fl_err_name(rc), number, text);
    fflush(stdout);
}

static uint64_t number(const char *text)
{
    return strtoull(text, NULL, 10);
}

static int acquire(char **w)
{
    const struct fl_take options = {.ttl_ms = number(w[2]),
                                    .wait_ms = number(w[3]),
                                    .timeout_ms = number(w[4]),
                                    .unrenewed = true};
    fl_lock_free(lock);
    lock = NULL;
    token = FL_TOKEN_NONE;
    ttl_ms = options.ttl_ms;
    snprintf(held, sizeof held, "%s", w[1]);
    int rc = fl_lock_take(client, held, &options, &lock);
    if (rc == 0) {
        deadline_ms = fl_lock_deadline_ms(lock);
        rc = fl_lock_token(lock, &token);
    }
    return rc;
}

/* The driver keeps time itself, as a program does that was told a token. */
static int renew(uint64_t timeout_ms)
{
    struct fl_result r;
    const struct fl_ask ask = {.what = FL_ASK_RENEW,
                               .name = fl_str(held),
                               .token = token,
                               .ttl_ms = ttl_ms,
                               .timeout_ms = timeout_ms};
    int rc = fl_ask(client, &ask, &r);
    deadline_ms = rc == 0 ? r.deadline_ms : rc == FL_ENOTHELD ? 0 : deadline_ms;
    return rc;
}

static uint64_t remaining_ms(void)
{
    uint64_t now_ms = fl_now_ms();
    return deadline_ms > now_ms ? deadline_ms - now_ms : 0;
}

static uint64_t count_threads(void)
{
    uint64_t n = 0;
    DIR *d = opendir("/proc/self/task");
    for (struct dirent *e = readdir(d); e != NULL; e = readdir(d)) {
        n += e->d_name[0] != '.' ? 1 : 0;
    }
    closedir(d);
    return n;
}

/* Whether any of our sockets has been closed by its peer. */
static uint64_t count_closed(void)
{
    uint64_t n = 0;
    for (int fd = 3; fd < 64; fd++) {
        struct pollfd p = {.fd = fd, .events = POLLRDHUP};
        n += poll(&p, 1, 0) == 1 && (p.revents & POLLRDHUP) != 0 ? 1 : 0;
    }
    return n;
}

static void lock_command(char **w)
{
    int rc = FL_EINVAL;
    uint64_t n = 0;
    struct fl_result r = {.status = 0};
    struct fl_ask ask = {.name = fl_str(held), .token = token};
    if (strcmp(w[0], "acquire") == 0) {
        rc = acquire(w);
        n = token;
    } else if (strcmp(w[0], "renew") == 0) {
        rc = renew(number(w[1]));
    } else if (strcmp(w[0], "release") == 0) {
        ask.what = FL_ASK_RELEASE;
        ask.timeout_ms = number(w[1]);
        rc = fl_ask(client, &ask, &r);
    } else if (strcmp(w[0], "check") == 0) {
        ask.what = FL_ASK_CHECK;
        ask.timeout_ms = number(w[1]);
        rc = fl_ask(client, &ask, &r);
    } else if (strcmp(w[0], "break") == 0) {
        ask =
            (struct fl_ask){.what = FL_ASK_BREAK, .name = fl_str(w[1]), .timeout_ms = number(w[2])};
        rc = fl_ask(client, &ask, &r);
        n = r.token;
    } else if (strcmp(w[0], "token") == 0) {
        ask = (struct fl_ask){.what = FL_ASK_TOKEN, .name = fl_str(w[1])};
        rc = fl_ask(client, &ask, &r);
        n = r.token;
    } else if (strcmp(w[0], "show") == 0) {
        ask = (struct fl_ask){.what = FL_ASK_SHOW, .name = fl_str(w[1])};
        rc = fl_ask(client, &ask, &r);
        n = rc == 0 ? r.locks->locks[0]->token : 0;
        fl_lock_list_free(r.locks);
    }
    answer(rc, n, fl_client_error(client));
}

static void show_members(void)
{
    struct fl_member_list *list = NULL;
    char text[256] = "";
    int rc = fl_members(client, 0, &list);
    for (size_t i = 0; rc == 0 && i < list->len; i++) {
        const struct fl_member *m = list->members[i];
        size_t len = strlen(text);
        snprintf(text + len, sizeof text - len, "%" PRIu64 " %s %s %s;", m->id, m->state, m->role,
                 m->client_address);
    }
    answer(rc, rc == 0 ? list->len : 0, rc == 0 ? text : fl_client_error(client));
    fl_member_list_free(list);
}

/* False: it is no such command. */
static bool cluster_command(char **w)
{
    static const char *const names[] = {[FL_CHANGE_ADD] = "add",
                                        [FL_CHANGE_REMOVE] = "remove",
                                        [FL_CHANGE_REPLACE] = "replace",
                                        [FL_CHANGE_MOVE] = "move",
                                        [FL_CHANGE_TRANSFER] = "transfer"};
    if (strcmp(w[0], "members") == 0) {
        show_members();
        return true;
    }
    for (unsigned what = 0; what < sizeof names / sizeof names[0]; what++) {
        if (strcmp(w[0], names[what]) == 0) {
            bool has_address =
                what == FL_CHANGE_ADD || what == FL_CHANGE_REPLACE || what == FL_CHANGE_MOVE;
            const struct fl_member_change change = {
                .id = number(w[1]),
                .peer_address = has_address ? w[2] : NULL,
                .incarnation = what == FL_CHANGE_REPLACE ? w[3] : NULL,
                .learner = what == FL_CHANGE_ADD,
                .force = what == FL_CHANGE_MOVE || what == FL_CHANGE_REMOVE,
            };
            int rc = fl_member_change(client, (enum fl_change)what, &change, 0);
            answer(rc, 0, fl_client_error(client));
            return true;
        }
    }
    return false;
}

static void store_command(char **w)
{
    fl_token mark = 0;
    char *value = NULL;
    int rc = FL_EINVAL;
    if (strcmp(w[0], "claim") == 0) {
        rc = fl_store_claim(store, fl_str(w[1]), number(w[2]), 0, &mark);
    } else if (strcmp(w[0], "get") == 0) {
        const struct fl_fencing fencing = {fl_str(w[2]), number(w[3])};
        rc = fl_store_get(store, fl_str(w[1]), fencing, 0, &mark, &value, NULL);
    }
    answer(rc, mark, rc == 0 && value != NULL ? value : fl_store_error(store));
    free(value);
}

static void obey(char **w)
{
    if (strcmp(w[0], "remaining") == 0) {
        answer(0, remaining_ms(), "");
    } else if (strcmp(w[0], "threads") == 0) {
        answer(0, count_threads(), "");
    } else if (strcmp(w[0], "closed") == 0) {
        answer(0, count_closed(), "");
    } else if (strcmp(w[0], "info") == 0) {
        struct fl_node_status status;
        int rc = fl_node_ask(client, 0, STORE_TIMEOUT_MS, &status, sizeof status);
        answer(rc, 0, fl_client_error(client));
    } else if (strcmp(w[0], "claim") == 0 || strcmp(w[0], "get") == 0) {
        store_command(w);
    } else if (!cluster_command(w)) {
        lock_command(w);
    }
}

int main(int argc, char **argv)
{
    char line[512];
    const char *attempt_ms = getenv("DRIVER_ATTEMPT_MS");
    const char *timeout_ms = getenv("DRIVER_TIMEOUT_MS"); /* of calls that give none */
    const struct fl_client_options options = {
        .attempt_ms = attempt_ms != NULL ? number(attempt_ms) : 300,
        .timeout_ms = timeout_ms != NULL ? number(timeout_ms) : 0};
    const struct fl_client_options store_options = {.timeout_ms = STORE_TIMEOUT_MS};
    if (argc < 2 || fl_open(argv[1], &options, &client) != 0 ||
        (argc > 2 && fl_store_open(argv[2], &store_options, &store) != 0)) {
        fputs("driver: bad addresses\n", stderr);
        return 2;
    }
    while (fgets(line, sizeof line, stdin) != NULL) {
        char empty[] = "";
        char *words[WORDS_MAX] = {empty, empty, empty, empty, empty, empty};
        char *rest = line;
        for (int i = 0; i < WORDS_MAX && rest[strspn(rest, " \n")] != '\0'; i++) {
            rest += strspn(rest, " \n");
            words[i] = rest;
            rest += strcspn(rest, " \n");
            if (*rest != '\0') {
                *rest++ = '\0';
            }
        }
        obey(words);
    }
    fl_store_close(store);
    fl_lock_free(lock);
    fl_close(client);
    return 0;
}
