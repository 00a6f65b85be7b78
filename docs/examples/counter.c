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
    fl_lock *lock;
    struct fl_fencing fence;
    struct fl_take how = {.ttl_ms = 5000, .wait_ms = 60000};
    char *old = NULL, text[32] = "";
    if (argc != 3 || fl_open(argv[1], NULL, &locks) || fl_store_open(argv[2], NULL, &store)) {
        fputs("usage: counter NODE,NODE... STORE\n", stderr);
        return 2;
    }
    int rc = fl_lock_take(locks, "counter", &how, &lock);
    if (rc != 0) {
        fprintf(stderr, "not acquired: %s\n", fl_client_error(locks));
    } else if ((rc = fl_lock_fencing(lock, &fence)) == 0) {
        /* A read with the token is a claim too: from here on nobody with an older one can write. */
        rc = fl_store_get(store, fl_str("n"), fence, 0, NULL, &old, NULL);
        if (rc == 0 || rc == FL_ENOTFOUND) {
            snprintf(text, sizeof text, "%ld", (old ? strtol(old, NULL, 10) : 0) + 1);
            rc = fl_store_set(store, fl_str("n"), fl_str(text), fence, 0, NULL);
        }
        printf("%s\n", rc ? fl_store_error(store) : text);
        rc = fl_lock_release(lock) || rc;
    }
    free(old);
    fl_store_close(store);
    fl_close(locks);
    return rc != 0;
}
