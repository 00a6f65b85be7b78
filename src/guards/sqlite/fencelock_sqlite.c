/* fencelock_sqlite.c: the function that the triggers of guard.sql call, for programs in C. Link
 * with sqlite3 and fencelock-fence.
 *
 *     struct fence_held held = {"acct", 37};         a lock and its token; either may change later
 *     fencelock_sqlite_open(db, &held);              once for each connection; sets two pragmas
 *
 * To claim: BEGIN IMMEDIATE; INSERT INTO fence_mark VALUES (lock, token) ON CONFLICT (lock) DO
 * UPDATE SET mark = excluded.mark; COMMIT. A smaller token is refused by a trigger. Claim before
 * the transaction that reads, never inside it. */
#include <sqlite3.h>
#include <string.h>

#include <fencelock/fence.h>

struct fence_held {
    const char *lock;
    fl_token token;
};

int fencelock_sqlite_open(sqlite3 *db, struct fence_held *held);

/* The SQL function fence_admit(lock, mark): the arguments are the row's lock, and its mark or
 * NULL. */
static void admit(sqlite3_context *ctx, int argc, sqlite3_value **argv)
{
    const struct fence_held *held = sqlite3_user_data(ctx);
    const char *lock = (const char *)sqlite3_value_text(argv[0]);
    fl_token mark = argc == 2 ? (fl_token)sqlite3_value_int64(argv[1]) : FL_TOKEN_NONE;
    fl_token now = mark;
    int bytes = sqlite3_value_bytes(argv[0]); /* a name may have a NUL */
    if (lock == NULL || held->lock == NULL || strlen(held->lock) != (size_t)bytes ||
        memcmp(lock, held->lock, (size_t)bytes) != 0) {
        sqlite3_result_error(ctx, "NOTOKEN no token for the lock of this row: claim first", -1);
    } else if (fl_fence_judge(mark, held->token, &now) != 0) {
        sqlite3_result_error(ctx, "STALE the token is below the mark of its lock", -1);
    } else if (now != mark) {
        sqlite3_result_error(ctx, "NOTCLAIMED the token is above the mark: claim, read again", -1);
    } else {
        sqlite3_result_int(ctx, 1);
    }
}

int fencelock_sqlite_open(sqlite3 *db, struct fence_held *held)
{
    int rc = sqlite3_create_function(db, "fence_admit", 2, SQLITE_UTF8, held, admit, NULL, NULL);
    const char *pragmas = "PRAGMA synchronous = FULL; PRAGMA recursive_triggers = ON";
    return rc != SQLITE_OK ? rc : sqlite3_exec(db, pragmas, NULL, NULL, NULL);
}
