/* keepalive.c: holds a lock for longer than one lease: the library renews it beside the work, and
 * the program asks before each piece of work whether it still may.
 *   cc keepalive.c $(pkg-config --cflags --libs fencelock) -o keepalive
 *   ./keepalive 127.0.0.1:7401,127.0.0.1:7402,127.0.0.1:7403 127.0.0.1:7411 PIECES */
#include <fencelock/store_client.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv)
{
    const struct fl_take how = {.ttl_ms = 10000, .wait_ms = 60000};
    struct fl_fencing fence;
    fl_client *locks;
    fl_store *store;
    fl_lock *lock;
    char text[64] = "";
    if (argc != 4 || fl_open(argv[1], NULL, &locks) || fl_store_open(argv[2], NULL, &store)) {
        fputs("usage: keepalive NODE,NODE... STORE PIECES\n", stderr);
        return 2;
    }
    long pieces = strtol(argv[3], NULL, 10), done = 0;
    int rc = fl_lock_take_claimed(locks, store, "progress", &how, 0, NULL, &lock);
    if (rc != 0) {
        fprintf(stderr, "not acquired: %s\n", fl_strerror(rc));
    } else {
        /* Not held any more? Then stop: the storage would refuse this token anyway. */
        while (done < pieces && rc == 0 && (rc = fl_lock_fencing(lock, &fence)) == 0) {
            snprintf(text, sizeof text, "%ld of %ld", ++done, pieces);
            rc = fl_store_set(store, fl_str("progress"), fl_str(text), fence, 0, NULL);
        }
        printf("%s\n", rc == 0 ? text : fl_strerror(rc));
        rc = fl_lock_release(lock) || rc;
    }
    fl_store_close(store);
    fl_close(locks);
    return rc != 0;
}
