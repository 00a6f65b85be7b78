/* redlock_counter.c: counter.c with the lock on Redis servers (Redlock), the token from fencelock.
 *   cc redlock_counter.c $(pkg-config --cflags --libs fencelock fencelock-redlock) -o counter
 *   ./counter REDIS,REDIS,REDIS NODE,NODE,NODE STORE
 * New servers count after 30 s only (max_ttl_ms); a fourth argument says that they may at once. */
#include <fencelock/redlock.h>
#include <fencelock/store_client.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv)
{
    fl_redlock *redlock;
    fl_client *tokens;
    fl_store *store;
    struct fl_redlock_lock lock;
    struct fl_redlock_options options = {.servers = argv[1], .restarts_are_safe = argc == 5};
    struct fl_redlock_acquire_options acquire = {
        .ttl_ms = 5000, .min_validity_ms = 1000, .wait_ms = 60000};
    char *old = NULL, text[32];
    if (argc < 4 || fl_redlock_create(NULL, &options, &redlock, NULL, 0) ||
        fl_client_create(argv[2], NULL, &tokens) || fl_store_create(argv[3], 0, &store)) {
        fputs("usage: redlock_counter REDIS,REDIS... NODE,NODE... STORE\n", stderr);
        return 2;
    }
    if (fl_redlock_acquire_fenced(redlock, fl_str("counter"), &acquire, fl_issue_token_from, tokens,
                                  &lock) != 0) {
        fprintf(stderr, "not acquired: %s\n", fl_redlock_error(redlock));
        fl_store_destroy(store);
        fl_client_destroy(tokens);
        fl_redlock_close(redlock, NULL, NULL);
        return 1;
    }
    /* Two may believe to hold it now. This read is a claim, and decides: the older one can write no
     * more. */
    struct fl_fencing fence = {fl_str("counter"), lock.token};
    int rc = fl_store_get(store, fl_str("n"), fence, 0, NULL, &old, NULL);
    if (rc == 0 || rc == FL_ENOTFOUND) {
        snprintf(text, sizeof text, "%ld", (old ? strtol(old, NULL, 10) : 0) + 1);
        rc = fl_store_set(store, fl_str("n"), fl_str(text), fence, 0, NULL);
    }
    printf("%s\n", rc ? fl_store_error(store) : text);
    int released = fl_redlock_release(redlock, fence.lock, &lock);
    free(old);
    fl_store_destroy(store);
    fl_client_destroy(tokens);
    fl_redlock_close(redlock, NULL, NULL);
    return rc || released;
}
