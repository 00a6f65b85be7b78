/* fitness.c: see fitness.h. The rules follow "Distributed Locks with Redis" (independent masters,
 * crash recovery and fsync, delayed restarts) and what has gone wrong for others: evicted lock
 * keys, the same server given twice, replicas. */
#include "redlock/fitness.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static void FLI_PRINTF(5, 6)
    add(struct fl_redlock_check_report *r, enum fl_redlock_finding_kind kind, bool refuses,
        int server, const char *fmt, ...)
{
    FLI_ASSERT(r->len < FL_REDLOCK_FINDINGS_MAX);
    struct fl_redlock_finding *f = &r->finding[r->len++];
    f->kind = kind;
    f->refuses = refuses;
    f->server = server;
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(f->text, sizeof f->text, fmt, args);
    va_end(args);
}

static void check_number(uint32_t n, struct fl_redlock_check_report *r)
{
    if (n < 3) {
        add(r, FL_REDLOCK_FIND_FEW, false, -1,
            "%u server%s: no failure can be borne; Redlock wants 3 or 5 that fail independently", n,
            n == 1 ? "" : "s");
    }
    if (n % 2 == 0) {
        add(r, FL_REDLOCK_FIND_EVEN, false, -1,
            "%u servers bear no more failures than %u; take one away or add one", n, n - 1);
    }
}

static void check_memory(const struct fli_facts *f, int i, const struct fli_fitness_rules *rules,
                         struct fl_redlock_check_report *r)
{
    if (f->policy[0] != '\0' && strcmp(f->policy, "noeviction") != 0) {
        add(r, FL_REDLOCK_FIND_EVICTS, !rules->eviction_allowed, i,
            "maxmemory-policy is %s: locks would be deleted when memory is short; set noeviction",
            f->policy);
    }
}

static void check_disk(const struct fli_facts *f, int i, const struct fli_fitness_rules *rules,
                       struct fl_redlock_check_report *r)
{
    if (rules->restarts_are_safe || f->aof < 0) {
        return;
    }
    if (f->aof == 0) {
        add(r, FL_REDLOCK_FIND_FORGETS, false, i,
            "appendonly is no: a restart forgets locks; it will not count for the longest TTL "
            "after one");
    } else if (f->fsync[0] != '\0' && strcmp(f->fsync, "always") != 0) {
        add(r, FL_REDLOCK_FIND_FORGETS, false, i,
            "appendfsync is %s: a crash forgets the latest locks; set always", f->fsync);
    }
}

/* Reports the facts that the server did not tell. */
static void check_silence(const struct fli_facts *f, int i, struct fl_redlock_check_report *r)
{
    const char *missing[6];
    size_t n = 0;
    const struct {
        bool absent;
        const char *what;
    } rows[] = {
        {f->run_id[0] == '\0', "run_id"}, {f->role[0] == '\0', "role"},
        {f->uptime_s < 0, "uptime"},      {f->policy[0] == '\0', "maxmemory-policy"},
        {f->aof < 0, "appendonly"},       {f->aof == 1 && f->fsync[0] == '\0', "appendfsync"},
    };
    for (size_t k = 0; k < sizeof rows / sizeof rows[0]; k++) {
        if (rows[k].absent) {
            missing[n++] = rows[k].what;
        }
    }
    if (n == 0) {
        return;
    }
    char list[96] = "";
    size_t len = 0;
    for (size_t k = 0; k < n; k++) {
        int wrote = snprintf(list + len, sizeof list - len, "%s%s", k == 0 ? "" : ", ", missing[k]);
        len += (size_t)wrote;
        FLI_ASSERT(len < sizeof list);
    }
    add(r, FL_REDLOCK_FIND_UNKNOWN, false, i, "it does not tell its %s", list);
}

/* A lock was set, extended and released on a scratch key. */
static void check_trial(const struct fli_facts *f, int i, struct fl_redlock_check_report *r)
{
    if (f->refused != NULL) {
        add(r, FL_REDLOCK_FIND_UNABLE, !f->refused_key, i, "a lock could not be %s there%s: %.120s",
            f->refused, f->refused_key ? " under the name fencelock-check-..." : "", f->refusal);
    }
}

static int first_with_run_id(const struct fli_facts *facts, uint32_t i)
{
    for (uint32_t j = 0; j < i && facts[i].run_id[0] != '\0'; j++) {
        if (strcmp(facts[j].run_id, facts[i].run_id) == 0) {
            return (int)j;
        }
    }
    return -1;
}

static void check_one(const struct fli_facts *facts, uint32_t index,
                      const struct fli_fitness_rules *rules, struct fl_redlock_check_report *r)
{
    const struct fli_facts *f = &facts[index];
    int i = (int)index;
    if (f->error[0] != '\0') {
        add(r, FL_REDLOCK_FIND_REFUSED, true, i, "it refuses: %s", f->error);
        return;
    }
    if (!f->heard) {
        add(r, FL_REDLOCK_FIND_UNREACHABLE, false, i, "it cannot be reached, or is silent");
        return;
    }
    if (f->informed && !f->is_redis) {
        add(r, FL_REDLOCK_FIND_STRANGER, true, i,
            f->is_node
                ? "it is no Redis server but fencelockd: all nodes of a cluster are one "
                  "server, so lock with fencelock acquire, and name nodes with --nodes"
                : "it is no Redis server: its INFO has no run_id (fencelock-store is not for "
                  "this list)");
        return;
    }
    int other = first_with_run_id(facts, index);
    if (other >= 0) {
        add(r, FL_REDLOCK_FIND_TWICE, true, i,
            "it is the same server as number %d (run_id): a quorum would be less than one",
            other + 1);
    }
    if (f->role[0] != '\0' && strcmp(f->role, "master") != 0) {
        add(r, FL_REDLOCK_FIND_REPLICA, true, i,
            "its role is %s: Redlock needs independent masters", f->role);
    }
    check_trial(f, i, r);
    check_memory(f, i, rules, r);
    check_disk(f, i, rules, r);
    if (f->young_ms > 0) {
        add(r, FL_REDLOCK_FIND_YOUNG, false, i,
            "restarted recently, or its uptime is unknown: it counts in %llu ms",
            (unsigned long long)f->young_ms);
    }
    check_silence(f, i, r);
}

bool fli_fitness(const struct fli_facts *facts, uint32_t n, const struct fli_fitness_rules *rules,
                 struct fl_redlock_check_report *ret)
{
    ret->len = 0;
    check_number(n, ret);
    for (uint32_t i = 0; i < n; i++) {
        check_one(facts, i, rules, ret);
    }
    for (size_t i = 0; i < ret->len; i++) {
        if (ret->finding[i].refuses) {
            return false;
        }
    }
    return true;
}
