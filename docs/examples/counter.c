/* counter.c: adds one to a counter in fencelock-store, and loses no update whoever else does so.
 *   cc counter.c $(pkg-config --cflags --libs fencelock) -o counter
 *   ./counter 127.0.0.1:7401,127.0.0.1:7402,127.0.0.1:7403 127.0.0.1:7411 */
#include <fencelock/store_client.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv)
{
    fl_client *locks;
    fl_store *store;
    struct fl_grant grant;
    struct fl_acquire_options options = {.ttl_ms = 5000, .wait_ms = 60000};
    char *old = NULL, text[32];
    if (argc != 3 || fl_client_create(argv[1], NULL, &locks) ||
        fl_store_create(argv[2], 0, &store)) {
        fputs("usage: counter NODE,NODE... STORE\n", stderr);
        return 2;
    }
    if (fl_acquire(locks, fl_str("counter"), &options, &grant) != 0) {
        fprintf(stderr, "not acquired: %s\n", fl_client_error(locks));
        fl_store_destroy(store);
        fl_client_destroy(locks);
        return 1;
    }
    struct fl_fencing fence = {fl_str("counter"), grant.token};
    /* A read with the token is a claim too: from here on nobody with an older token can write. */
    int rc = fl_store_get(store, fl_str("n"), fence, 0, NULL, &old, NULL);
    if (rc == 0 || rc == FL_ENOTFOUND) {
        snprintf(text, sizeof text, "%ld", (old ? strtol(old, NULL, 10) : 0) + 1);
        rc = fl_store_set(store, fl_str("n"), fl_str(text), fence, 0, NULL);
    }
    printf("%s\n", rc ? fl_store_error(store) : text);
    int released = fl_release(locks, fence.lock, grant.token, 0);
    free(old);
    fl_store_destroy(store);
    fl_client_destroy(locks);
    return rc || released;
}
