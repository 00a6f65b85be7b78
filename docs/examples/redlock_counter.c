/* redlock_counter.c: counter.c with the lock on Redis servers (Redlock), the token from fencelock.
 *   cc redlock_counter.c $(pkg-config --cflags --libs fencelock) -o counter
 *   ./counter REDIS,REDIS,REDIS NODE,NODE,NODE STORE [new servers count at once] */
#include <fencelock/redlock.h>
#include <fencelock/store_client.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv)
{
    fl_client *r, *tokens;
    fl_store *store;
    fl_lock *lock;
    struct fl_fencing fence;
    struct fl_take how = {.ttl_ms = 5000, .wait_ms = 60000};
    char *old = NULL, text[32];
    if (argc < 4 || fl_open(argv[2], NULL, &tokens) || fl_store_open(argv[3], NULL, &store)) {
        return 2; /* usage: see above */
    }
    struct fl_redlock_options options = {
        .servers = argv[1], .tokens = tokens, .restarts_are_safe = argc == 5};
    if (fl_redlock_open(&options, &r) || fl_lock_take(r, "counter", &how, &lock)) {
        exit(fprintf(stderr, "not acquired: %s\n", fl_client_error(r)) > 0);
    }
    /* Two may believe to hold it now. This read is a claim: the older one can write no more. */
    int rc = fl_lock_fencing(lock, &fence);
    rc = rc ? rc : fl_store_get(store, fl_str("n"), fence, 0, NULL, &old, NULL);
    if (rc == 0 || rc == FL_ENOTFOUND) {
        snprintf(text, sizeof text, "%ld", (old ? strtol(old, NULL, 10) : 0) + 1);
        rc = fl_store_set(store, fl_str("n"), fl_str(text), fence, 0, NULL);
    }
    printf("%s\n", rc ? fl_store_error(store) : text);
    free(old);
    rc = fl_lock_release(lock) || rc;
    fl_store_close(store);
    fl_close(r);
    fl_close(tokens);
    return rc != 0;
}
