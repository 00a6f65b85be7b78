/* marks.c: the library's own durable marks, for storages without transactions (fence.h).
 *
 * Threads that raise marks at the same time share one commit. Each puts its request on a queue; the
 * first one that finds no thread writing takes the whole queue, runs it as one transaction and
 * wakes the others. A token equal to the mark, or below it, needs no write: it is answered from the
 * last commit.
 *
 * Failures: when a shared transaction does not fit, its requests are tried again one by one, so
 * that a request that does not fit fails alone. Any other failure is reported to all requests of
 * the transaction. One of unknown outcome (FL_EIO, FL_ECORRUPT) stays until the directory is opened
 * again. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/list.h"
#include "base/process.h"
#include "fence/mark.h"

#define SIZE_DEFAULT ((size_t)1 << 30)
#define KIND "marks"
#define GROUP_MAX 1024u
#define FORGET_SMALL 32u /* marks forgotten at once when space is short */

struct fl_fence {
    struct fli_env *env;
    uint64_t process;     /* that has opened it; the marks are that one's alone */
    pthread_mutex_t lock; /* guards all below */
    pthread_cond_t turn;
    struct fli_list queue;
    bool writing; /* a thread is in a transaction */
    bool moving;  /* marks are being forgotten and the floor is not raised yet: readers must
                     wait */
    fl_token floor;
    uint8_t forget_from[1 + FL_NAME_MAX]; /* where the next pass of forgetting begins */
    size_t forget_from_len;
};

struct raise_request {
    struct fli_list link;
    struct fli_slice lock;
    fl_token token;
    fl_token mark;
    int result;
    bool done;
};

static const uint8_t floor_key_byte[1] = {FLI_MARK_FLOOR};
static const struct fli_slice floor_key = {floor_key_byte, 1};

static int visit(void *ctx, struct fli_slice key, struct fli_slice value)
{
    struct fl_fence *f = ctx;
    fl_token token;
    int rc = fli_mark_decode(key, value, &token);
    if (rc == 0 && key.data[0] == FLI_MARK_FLOOR) {
        f->floor = token;
    }
    return rc;
}

static int start(struct fl_fence *f, const char *dir, size_t size_max)
{
    char errmsg[256];
    int rc = FL_ENOMEM;
    if (pthread_mutex_init(&f->lock, NULL) != 0) {
        return rc;
    }
    if (pthread_cond_init(&f->turn, NULL) != 0) {
        goto fail_lock;
    }
    rc = fli_env_open(dir, KIND, size_max, visit, f, &f->env, errmsg, sizeof(errmsg));
    if (rc != 0) {
        goto fail_cond;
    }
    return 0;
fail_cond:
    pthread_cond_destroy(&f->turn);
fail_lock:
    pthread_mutex_destroy(&f->lock);
    return rc;
}

int fl_fence_open(const char *dir, size_t size_max, fl_fence **ret)
{
    if (dir == NULL || ret == NULL) {
        return FL_EINVAL;
    }
    struct fl_fence *f = calloc(1, sizeof(*f));
    if (f == NULL) {
        return FL_ENOMEM;
    }
    fli_list_init(&f->queue);
    f->process = fli_process();
    f->forget_from[0] = FLI_MARK_KEY;
    f->forget_from_len = 1;
    int rc = start(f, dir, size_max == 0 ? SIZE_DEFAULT : size_max);
    if (rc != 0) {
        free(f);
        return rc;
    }
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
        fli_env_abandon(f->env);
        free(f);
        return;
    }
    FLI_ASSERT(fli_list_empty(&f->queue));
    fli_env_close(f->env);
    pthread_cond_destroy(&f->turn);
    pthread_mutex_destroy(&f->lock);
    free(f);
}

static bool lock_valid(const void *lock, size_t lock_len)
{
    return lock != NULL && lock_len >= 1 && lock_len <= FL_NAME_MAX;
}

/* The effective mark, as of the last commit. Called under the lock. */
static int read_mark(struct fl_fence *f, struct fli_slice lock, fl_token *ret)
{
    while (f->moving) {
        pthread_cond_wait(&f->turn, &f->lock);
    }
    struct fli_mark_key key;
    uint8_t raw[FLI_MARK_SIZE];
    size_t len;
    fl_token stored = FL_TOKEN_NONE;
    fli_mark_key_init(&key, lock);
    int rc = fli_env_read(f->env, fli_mark_key_slice(&key), raw, sizeof(raw), &len);
    if (rc == 0) {
        rc = fli_mark_decode(fli_mark_key_slice(&key), (struct fli_slice){raw, len}, &stored);
    }
    if (rc != 0 && rc != FL_ENOTFOUND) {
        return rc;
    }
    *ret = fli_fence_effective(stored, f->floor);
    return 0;
}

/* Runs the requests as one transaction. On 0 each has its own result; otherwise none took
 * effect. */
static int run_together(struct fl_fence *f, struct fli_list *group, fl_token floor)
{
    struct fli_txn txn;
    int rc = fli_txn_begin(f->env, &txn);
    if (rc != 0) {
        return rc;
    }
    FLI_LIST_FOREACH(node, group)
    {
        struct raise_request *r = FLI_CONTAINER_OF(node, struct raise_request, link);
        r->result = fli_mark_raise(&txn, r->lock, floor, r->token, &r->mark, NULL);
        if (r->result != 0 && r->result != FL_ESTALE) {
            fli_txn_abort(&txn);
            return r->result;
        }
    }
    return fli_txn_commit(&txn);
}

static void run_alone(struct fl_fence *f, struct raise_request *r, fl_token floor)
{
    struct fli_list one;
    fli_list_init(&one);
    fli_list_push(&one, &r->link);
    int rc = run_together(f, &one, floor);
    fli_list_remove(&r->link);
    if (rc != 0) {
        r->result = rc;
    }
}

static void run_group(struct fl_fence *f, struct fli_list *group, fl_token floor)
{
    int rc = run_together(f, group, floor);
    if (rc == FL_ELIMIT || rc == FL_ENOMEM) {
        struct fli_list alone;
        fli_list_init(&alone);
        fli_list_splice(&alone, group);
        for (struct fli_list *n = fli_list_pop(&alone); n != NULL; n = fli_list_pop(&alone)) {
            run_alone(f, FLI_CONTAINER_OF(n, struct raise_request, link), floor);
            fli_list_push(group, n);
        }
        return;
    }
    if (rc != 0) {
        FLI_LIST_FOREACH(node, group)
        {
            FLI_CONTAINER_OF(node, struct raise_request, link)->result = rc;
        }
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
    fl_token floor = f->floor;
    f->writing = true;
    pthread_mutex_unlock(&f->lock);
    run_group(f, &group, floor);
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
    r.result = read_mark(f, r.lock, &r.mark);
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
    int rc = read_mark(f, (struct fli_slice){lock, lock_len}, ret_mark);
    pthread_mutex_unlock(&f->lock);
    return rc;
}

/* ---- forgetting ---- */

/* One pass over all marks, beginning where the last call ended. The position is kept as a name
 * rather than a cursor, since records may change between calls. */
struct pass {
    uint8_t from[2 + FL_NAME_MAX]; /* the first key not seen yet */
    size_t from_len;
    uint8_t begin[1 + FL_NAME_MAX];
    size_t begin_len;
    bool wrapped; /* it has reached the end, and goes on from the first mark up to `begin` */
};

static void pass_init(struct pass *p, const struct fl_fence *f)
{
    memcpy(p->begin, f->forget_from, f->forget_from_len);
    memcpy(p->from, f->forget_from, f->forget_from_len);
    p->begin_len = f->forget_from_len;
    p->from_len = f->forget_from_len;
    p->wrapped = false;
}

static void pass_wrap(struct pass *p)
{
    p->from[0] = FLI_MARK_KEY;
    p->from_len = 1;
    p->wrapped = true;
}

/* The smallest key after `key` is `key` with a zero byte at its end. */
static void pass_after(struct pass *p, struct fli_slice key)
{
    FLI_ASSERT(key.len < sizeof(p->from));
    memcpy(p->from, key.data, key.len);
    p->from[key.len] = 0;
    p->from_len = key.len + 1;
}

static int forget_next(struct fli_txn *t, struct pass *p, fl_token floor, bool *ret_end,
                       size_t *ret_removed)
{
    struct fli_slice key;
    struct fli_slice value;
    fl_token mark;
    int rc = fli_txn_next(t, (struct fli_slice){p->from, p->from_len}, &key, &value);
    if (rc == FL_ENOTFOUND || (rc == 0 && key.data[0] != FLI_MARK_KEY)) {
        *ret_end = p->wrapped;
        pass_wrap(p);
        return 0;
    }
    if (rc == 0) {
        rc = fli_mark_decode(key, value, &mark);
    }
    if (rc != 0) {
        return rc;
    }
    if (p->wrapped && fli_bytes_cmp(key.data, key.len, p->begin, p->begin_len) >= 0) {
        *ret_end = true;
        return 0;
    }
    struct fli_mark_key own; /* the key must outlive its record */
    memcpy(own.raw, key.data, key.len);
    own.len = key.len;
    pass_after(p, key);
    if (mark < floor) {
        rc = fli_txn_del(t, fli_mark_key_slice(&own));
        *ret_removed += rc == 0 ? 1 : 0;
    }
    return rc;
}

static int forget_steps(struct fli_txn *t, struct pass *p, fl_token old_floor, fl_token floor,
                        size_t max, size_t *ret_removed)
{
    size_t removed = 0;
    bool end = false;
    int rc = 0;
    if (floor > old_floor) {
        uint8_t raw[FLI_MARK_SIZE];
        struct fli_slice part = {raw, sizeof(raw)};
        fli_put_u64(raw, floor);
        rc = fli_txn_put(t, floor_key, &part, 1);
    }
    while (rc == 0 && !end && removed < max) {
        rc = forget_next(t, p, floor, &end, &removed);
    }
    if (rc == 0) {
        *ret_removed = removed;
    }
    return rc;
}

/* One transaction removes marks and raises the floor, so a mark is never missing without the floor
 * on disk; `moving` ensures the same for concurrent readers. The scan, which is the long part,
 * holds up only writers. */
static int forget(struct fl_fence *f, struct pass *p, fl_token old_floor, fl_token floor,
                  size_t max, size_t *ret_removed)
{
    struct fli_txn txn;
    int rc = fli_txn_begin(f->env, &txn);
    if (rc != 0) {
        return rc;
    }
    rc = forget_steps(&txn, p, old_floor, floor, max, ret_removed);
    if (rc != 0) {
        fli_txn_abort(&txn);
        return rc;
    }
    pthread_mutex_lock(&f->lock);
    f->moving = true;
    pthread_mutex_unlock(&f->lock);
    return fli_txn_commit(&txn);
}

/* Runs one transaction, from taking the turn to write to giving it up. */
static int forget_once(struct fl_fence *f, fl_token min_live, size_t max, size_t *ret_removed)
{
    struct pass p;
    size_t removed = 0;
    pthread_mutex_lock(&f->lock);
    while (f->writing) {
        pthread_cond_wait(&f->turn, &f->lock);
    }
    fl_token old_floor = f->floor;
    fl_token floor = fli_fence_effective(min_live, old_floor);
    pass_init(&p, f);
    f->writing = true;
    pthread_mutex_unlock(&f->lock);
    int rc = forget(f, &p, old_floor, floor, max, &removed);
    pthread_mutex_lock(&f->lock);
    f->writing = false;
    f->moving = false;
    if (rc == 0) {
        size_t len = p.from_len < sizeof(f->forget_from) ? p.from_len : sizeof(f->forget_from);
        f->floor = floor;
        f->forget_from_len = len;
        memcpy(f->forget_from, p.from, len);
        *ret_removed = removed;
    }
    pthread_cond_broadcast(&f->turn);
    pthread_mutex_unlock(&f->lock);
    return rc;
}

int fl_fence_forget(fl_fence *f, fl_token min_live, size_t max, size_t *ret_removed)
{
    if (f == NULL || ret_removed == NULL || min_live > FL_TOKEN_MAX) {
        return FL_EINVAL;
    }
    if (is_inherited(f)) {
        return FL_EBUSY;
    }
    int rc = forget_once(f, min_live, max, ret_removed);
    if (rc != FL_ELIMIT) {
        return rc;
    }
    /* Removing marks that are far apart takes many fresh pages; small steps always succeed. */
    size_t total = 0;
    size_t removed = FORGET_SMALL;
    size_t step = FORGET_SMALL;
    while (total < max && removed == step) {
        step = max - total < FORGET_SMALL ? max - total : FORGET_SMALL;
        rc = forget_once(f, min_live, step, &removed);
        if (rc != 0) {
            return rc;
        }
        total += removed;
    }
    *ret_removed = total;
    return 0;
}
