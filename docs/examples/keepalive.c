/* keepalive.c: a program with blocking calls that holds a lock for longer than one lease: a thread
 * of the library renews it, and the program asks before each piece of work whether it still may.
 *   cc keepalive.c $(pkg-config --cflags --libs fencelock) -o keepalive
 *   ./keepalive 127.0.0.1:7401,127.0.0.1:7402,127.0.0.1:7403 127.0.0.1:7411 PIECES */
#include <fencelock/hold.h>
#include <fencelock/store_client.h>
#include <stdio.h>
#include <stdlib.h>

static int work(fl_store *store, fl_lock *lock, struct fl_bytes name, long pieces)
{
    char text[64];
    for (long i = 1; i <= pieces; i++) {
        struct fl_fencing fence = {name, FL_TOKEN_NONE};
        /* Not held any more? Then stop: the storage would refuse this token anyway. */
        if (fl_lock_token(lock, &fence.token) != 0) {
            fprintf(stderr, "lost: %s\n", fl_lost_reason_text(fl_lock_reason(lock)));
            return 1;
        }
        snprintf(text, sizeof text, "%ld of %ld", i, pieces);
        int rc = fl_store_set(store, fl_str("progress"), fl_str(text), fence, 0, NULL);
        if (rc != 0) {
            fprintf(stderr, "not written: %s\n", fl_store_error(store));
            return 1;
        }
    }
    printf("%s\n", text);
    return 0;
}

int main(int argc, char **argv)
{
    const struct fl_bytes name = fl_str("progress");
    const struct fl_acquire_options options = {.ttl_ms = 10000, .wait_ms = 60000};
    fl_client *locks = NULL;
    fl_store *store = NULL;
    fl_keepalive *keepalive = NULL;
    fl_lock *lock = NULL;
    struct fl_grant grant;
    int rc = 1;
    if (argc != 4 || fl_client_create(argv[1], NULL, &locks) != 0 ||
        fl_store_create(argv[2], 0, &store) != 0 ||
        fl_keepalive_start(argv[1], NULL, &keepalive) != 0) {
        fputs("usage: keepalive NODE,NODE... STORE PIECES\n", stderr);
        return 2;
    }
    if (fl_acquire(locks, name, &options, &grant) != 0) {
        fprintf(stderr, "not acquired: %s\n", fl_client_error(locks));
    } else if (fl_keepalive_lock(keepalive, name, &grant, NULL, &lock) != 0 ||
               fl_store_claim(store, name, grant.token, 0, NULL) != 0) {
        fputs("lost at once\n", stderr); /* or a newer holder has been at the storage */
    } else {
        rc = work(store, lock, name, strtol(argv[3], NULL, 10));
        rc = fl_lock_release(locks, lock, 0) != 0 ? 1 : rc;
    }
    fl_lock_free(lock);
    fl_keepalive_stop(keepalive);
    fl_store_destroy(store);
    fl_client_destroy(locks);
    return rc;
}
