/* marks.c: the library's own durable marks, for storages without transactions (fence.h).
 *
 * Threads that raise marks at the same time share one commit. Each puts its request on a queue; the
 * first one that finds no thread writing takes the whole queue, runs it as one transaction and
 * wakes the others. A token equal to the mark, or below it, needs no write: it is answered from the
 * last commit, beside the one that writes.
 *
 * When a shared transaction does not fit, its requests are tried again one by one, so that a
 * request that does not fit fails alone. Any other failure is reported to all requests of the
 * transaction. One of unknown outcome (FL_EIO, FL_ECORRUPT) stays until the directory is opened
 * again. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/list.h"
#include "base/process.h"
#include "fence/db.h"

#define SIZE_DEFAULT ((size_t)1 << 30)
#define KIND "marks"
#define GROUP_MAX 1024u

struct fl_fence {
    struct fli_db db;
    uint64_t process;     /* that has opened it; the marks are that one's alone */
    pthread_mutex_t lock; /* guards all below, and reading from db */
    pthread_cond_t turn;
    struct fli_list queue;
    bool writing;                 /* a thread is in a transaction */
    struct fli_db_name forgotten; /* the last one: the next pass begins behind it */
};

struct raise_request {
    struct fli_list link;
    struct fli_slice lock;
    fl_token token;
    fl_token mark;
    int result;
    bool done;
};

int fl_fence_open(const char *dir, size_t size_max, fl_fence **ret)
{
    char errmsg[256];
    struct fli_db_options options = {
        .kind = KIND, .schema = "", .size_max = size_max == 0 ? SIZE_DEFAULT : size_max};
    if (dir == NULL || ret == NULL) {
        return FL_EINVAL;
    }
    struct fl_fence *f = calloc(1, sizeof(*f));
    if (f == NULL) {
        return FL_ENOMEM;
    }
    int rc = fli_db_open(dir, &options, &f->db, errmsg, sizeof(errmsg));
    if (rc != 0) {
        free(f);
        return rc;
    }
    fli_list_init(&f->queue);
    f->process = fli_process();
    pthread_mutex_init(&f->lock, NULL); /* neither can fail */
    pthread_cond_init(&f->turn, NULL);
    *ret = f;
    return 0;
}

static bool is_inherited(const struct fl_fence *f)
{
    return f->process != fli_process();
}

void fl_fence_close(fl_fence *f)
{
    if (f == NULL) {
        return;
    }
    if (is_inherited(f)) { /* threads of the parent's may be at work in it */
        fli_db_abandon(&f->db);
        free(f);
        return;
    }
    FLI_ASSERT(fli_list_empty(&f->queue));
    fli_db_close(&f->db);
    pthread_cond_destroy(&f->turn);
    pthread_mutex_destroy(&f->lock);
    free(f);
}

static bool lock_valid(const void *lock, size_t lock_len)
{
    return lock != NULL && lock_len >= 1 && lock_len <= FL_NAME_MAX;
}

/* ---- raising ---- */

static int raise_one(struct fli_db *db, struct raise_request *r)
{
    fl_token stored = FL_TOKEN_NONE;
    int rc = fli_db_get_mark(db, r->lock, &stored);
    if (rc != 0) {
        return rc;
    }
    r->mark = fli_fence_effective(stored, db->now.floor);
    r->result = fl_fence_judge(r->mark, r->token, &r->mark);
    return r->result == 0 && r->mark > stored ? fli_db_put_mark(db, r->lock, stored, r->mark) : 0;
}

/* Runs the requests as one transaction. On 0 each has its own result; otherwise none took
 * effect. */
static int run_together(struct fl_fence *f, struct fli_list *group)
{
    int rc = fli_db_begin(&f->db);
    if (rc != 0) {
        return rc;
    }
    FLI_LIST_FOREACH(node, group)
    {
        rc = raise_one(&f->db, FLI_CONTAINER_OF(node, struct raise_request, link));
        if (rc != 0) {
            fli_db_rollback(&f->db);
            return rc;
        }
    }
    rc = fli_db_commit(&f->db);
    int later = fli_db_checkpoint(&f->db); /* reported by the next transaction */
    (void)later;
    return rc;
}

static void run_group(struct fl_fence *f, struct fli_list *group)
{
    int rc = run_together(f, group);
    bool alone = (rc == FL_ELIMIT || rc == FL_ENOMEM) && group->next != group->prev;
    for (struct fli_list *node = group->next, *next = node->next; node != group;
         node = next, next = node->next) {
        struct raise_request *r = FLI_CONTAINER_OF(node, struct raise_request, link);
        if (alone) {
            struct fli_list one;
            fli_list_init(&one);
            fli_list_remove(node);
            fli_list_push(&one, node);
            rc = run_together(f, &one);
            fli_list_remove(node);
            fli_list_insert_before(next, node);
        }
        r->result = rc != 0 ? rc : r->result;
    }
}

/* Takes up to GROUP_MAX requests and runs them; meanwhile the lock is released. */
static void write_group(struct fl_fence *f)
{
    struct fli_list group;
    fli_list_init(&group);
    struct fli_list *next = NULL;
    for (unsigned i = 0; i < GROUP_MAX && (next = fli_list_pop(&f->queue)) != NULL; i++) {
        fli_list_push(&group, next);
    }
    f->writing = true;
    pthread_mutex_unlock(&f->lock);
    run_group(f, &group);
    pthread_mutex_lock(&f->lock);
    f->writing = false;
    for (struct fli_list *n = fli_list_pop(&group); n != NULL; n = fli_list_pop(&group)) {
        FLI_CONTAINER_OF(n, struct raise_request, link)->done = true;
    }
    pthread_cond_broadcast(&f->turn);
}

/* Called under the lock: waits until some thread has run the request. */
static void raise_and_wait(struct fl_fence *f, struct raise_request *r)
{
    fli_list_push(&f->queue, &r->link);
    while (!r->done) {
        if (f->writing) {
            pthread_cond_wait(&f->turn, &f->lock);
        } else {
            write_group(f);
        }
    }
}

int fl_fence_admit(fl_fence *f, const void *lock, size_t lock_len, fl_token token,
                   fl_token *ret_mark)
{
    if (f == NULL || !lock_valid(lock, lock_len) || !fli_fence_token_valid(token)) {
        return FL_EINVAL;
    }
    if (is_inherited(f)) {
        return FL_EBUSY;
    }
    struct raise_request r = {.lock = {lock, lock_len}, .token = token};
    pthread_mutex_lock(&f->lock);
    r.result = fli_db_read_mark(&f->db, r.lock, &r.mark);
    if (r.result == 0 && token < r.mark) {
        r.result = FL_ESTALE;
    } else if (r.result == 0 && token > r.mark) {
        raise_and_wait(f, &r);
    }
    pthread_mutex_unlock(&f->lock);
    if ((r.result == 0 || r.result == FL_ESTALE) && ret_mark != NULL) {
        *ret_mark = r.mark;
    }
    return r.result;
}

int fl_fence_mark(fl_fence *f, const void *lock, size_t lock_len, fl_token *ret_mark)
{
    if (f == NULL || ret_mark == NULL || !lock_valid(lock, lock_len)) {
        return FL_EINVAL;
    }
    if (is_inherited(f)) {
        return FL_EBUSY;
    }
    pthread_mutex_lock(&f->lock);
    int rc = fli_db_read_mark(&f->db, (struct fli_slice){lock, lock_len}, ret_mark);
    pthread_mutex_unlock(&f->lock);
    return rc;
}

/* ---- forgetting ---- */

/* Goes on where the last call ended, and round once, since a floor that has risen makes marks go
 * that were passed before. */
static int forget_steps(struct fl_fence *f, size_t max, size_t *ret_removed)
{
    struct fli_db_name *at = &f->forgotten;
    bool round = at->len == 0;
    int rc = 0;
    while (rc == 0 && *ret_removed < max) {
        rc = fli_db_forget_next(&f->db, at);
        *ret_removed += rc == 0;
        if (rc == FL_ENOTFOUND && !round) {
            round = true;
            at->len = 0;
            rc = 0;
        }
    }
    return rc == FL_ENOTFOUND ? 0 : rc;
}

/* One transaction removes marks and raises the floor: a mark is never missing without the floor. */
static int forget(struct fl_fence *f, fl_token min_live, size_t max, size_t *ret_removed)
{
    int rc = fli_db_begin(&f->db);
    if (rc != 0) {
        return rc;
    }
    rc = fli_db_raise_floor(&f->db, min_live);
    rc = rc != 0 ? rc : forget_steps(f, max, ret_removed);
    if (rc != 0) {
        fli_db_rollback(&f->db);
        return rc;
    }
    rc = fli_db_commit(&f->db);
    return rc != 0 ? rc : fli_db_checkpoint(&f->db);
}

int fl_fence_forget(fl_fence *f, fl_token min_live, size_t max, size_t *ret_removed)
{
    if (f == NULL || ret_removed == NULL || min_live > FL_TOKEN_MAX) {
        return FL_EINVAL;
    }
    if (is_inherited(f)) {
        return FL_EBUSY;
    }
    size_t removed = 0;
    pthread_mutex_lock(&f->lock);
    while (f->writing) {
        pthread_cond_wait(&f->turn, &f->lock);
    }
    f->writing = true;
    pthread_mutex_unlock(&f->lock);
    int rc = forget(f, min_live, max, &removed);
    pthread_mutex_lock(&f->lock);
    f->writing = false;
    pthread_cond_broadcast(&f->turn);
    pthread_mutex_unlock(&f->lock);
    if (rc == 0) {
        *ret_removed = removed;
    }
    return rc;
}
