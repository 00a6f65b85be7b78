/* cluster.c: calls about the members of the cluster; see client.h. */
#include <inttypes.h>
#include <stdio.h>

#include "base/clock.h"
#include "client/caller.h"
#include "client/handle.h"
#include "client/lists.h"

#define LEADER_MS UINT64_C(1000) /* before a question, to find out who leads */

/* ---- any command ----------------------------------------------------------------------------- */

/* The engine learns from the answer, too. Without a leader any node is as good. */
static void find_leader(fl_client *c, uint64_t timeout_ms)
{
    struct fli_call_plan q = {.request = {.command = FLI_CALL_LEADER}, .timeout_ms = timeout_ms};
    struct fli_outcome o;
    (void)!fli_run(c, &q, &o);
    freeReplyObject(o.reply);
}

int fli_client_words(fl_client *c, const char *const *words, size_t n, bool changes, bool at_leader,
                     uint64_t timeout_ms, struct redisReply **ret, bool *ret_unknown)
{
    struct fl_bytes also[FLI_CALL_ALSO_MAX];
    struct fli_outcome o = {.reply = NULL};
    struct fli_call_plan q = {.request = {.command = changes ? FLI_CALL_CHANGE : FLI_CALL_READ,
                                          .name = fl_str(words[0]),
                                          .also = also,
                                          .also_len = n - 1},
                              .timeout_ms = timeout_ms};
    FLI_ASSERT(n >= 1 && n - 1 <= FLI_CALL_ALSO_MAX);
    for (size_t i = 1; i < n; i++) {
        also[i - 1] = fl_str(words[i]);
    }
    if (at_leader && c != NULL && timeout_ms <= FL_TIMEOUT_MAX_MS) {
        timeout_ms = timeout_ms != 0 ? timeout_ms : c->engine.timeout_ms;
        uint64_t until_ms = fli_clock_ms() + timeout_ms;
        find_leader(c, timeout_ms < 4 * LEADER_MS ? timeout_ms / 4 + 1 : LEADER_MS);
        uint64_t now_ms = fli_clock_ms();
        q.timeout_ms = until_ms > now_ms ? until_ms - now_ms : 1;
    }
    int rc = fli_run(c, &q, &o);
    *ret = o.reply;
    *ret_unknown = o.unknown;
    return rc;
}

/* ---- members --------------------------------------------------------------------------------- */

int fl_members(fl_client *c, uint64_t timeout_ms, struct fl_member_list **ret)
{
    static const char *const words[] = {"CLUSTER", "MEMBERS"};
    redisReply *reply;
    bool unused;
    int rc = fli_client_words(c, words, 2, false, true, timeout_ms, &reply, &unused);
    if (rc != 0) {
        freeReplyObject(reply);
        return rc;
    }
    rc = fli_list_read(FLI_LIST_MEMBERS, reply, ret);
    return rc == 0 ? 0
                   : fli_fail(c, rc, "%s",
                              rc == FL_ENOMEM ? "out of memory"
                                              : "the answer to CLUSTER MEMBERS makes no sense");
}

/* ---- changes --------------------------------------------------------------------------------- */

int fl_member_change(fl_client *c, enum fl_change what, const struct fl_member_change *change,
                     uint64_t timeout_ms)
{
    static const char *const names[] = {[FL_CHANGE_ADD] = "ADD",
                                        [FL_CHANGE_REMOVE] = "REMOVE",
                                        [FL_CHANGE_REPLACE] = "REPLACE",
                                        [FL_CHANGE_MOVE] = "MOVE",
                                        [FL_CHANGE_TRANSFER] = "TRANSFER"};
    char number[24];
    if ((unsigned)what > FL_CHANGE_TRANSFER) {
        return fli_fail(c, FL_EINVAL, "this version of the library does not know that change");
    }
    (void)snprintf(number, sizeof number, "%" PRIu64, change->id);
    const char *const all[] = {"CLUSTER",
                               names[what],
                               change->id != 0 ? number : NULL,
                               change->peer_address,
                               change->learner ? "LEARNER" : NULL,
                               change->force ? "FORCE" : NULL,
                               change->incarnation != NULL ? "OF" : NULL,
                               change->incarnation};
    const char *words[sizeof all / sizeof all[0]];
    size_t len = 0;
    redisReply *reply;
    bool unknown;
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        words[len] = all[i];
        len += all[i] != NULL;
    }
    int rc = fli_client_words(c, words, len, true, false, timeout_ms, &reply, &unknown);
    bool refused = reply != NULL && reply->type == REDIS_REPLY_ERROR;
    if (rc == FL_EINVAL && refused) { /* ERR is its word for every reason */
        rc = FL_EDENIED;
    }
    freeReplyObject(reply);
    return rc;
}
