/* Which servers are fit for Redlock. */
#include "rng.h"

#include "redlock/fitness.h"

static void good(struct fli_facts *f, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        fli_facts_init(&f[i]);
        f[i].heard = true;
        (void)snprintf(f[i].run_id, sizeof f[i].run_id, "run-%u", i);
        (void)snprintf(f[i].role, sizeof f[i].role, "master");
        (void)snprintf(f[i].policy, sizeof f[i].policy, "noeviction");
        (void)snprintf(f[i].fsync, sizeof f[i].fsync, "always");
        f[i].aof = 1;
        f[i].uptime_s = 100;
    }
}

static struct fli_facts facts[FL_REDLOCK_SERVERS_MAX];
static struct fl_redlock_check_report report;
static struct fli_fitness_rules rules;

static void expect(bool fit, enum fl_redlock_finding_kind kind, bool refuses, int server)
{
    assert_int_equal(fit, !refuses);
    assert_int_equal(report.len, 1);
    assert_int_equal(report.finding[0].kind, kind);
    assert_int_equal(report.finding[0].refuses, refuses);
    assert_int_equal(report.finding[0].server, server);
    assert_true(report.finding[0].text[0] != '\0');
}

static int setup(void **state)
{
    good(facts, FL_REDLOCK_SERVERS_MAX);
    memset(&rules, 0, sizeof rules);
    return 0;
}

TEST_WITH(test_numbers, setup, NULL)
{
    for (uint32_t n = 1; n <= FL_REDLOCK_SERVERS_MAX; n++) {
        assert_true(fli_fitness(facts, n, &rules, &report));
        assert_int_equal(report.len, (n < 3) + (n % 2 == 0));
    }
    expect(fli_fitness(facts, 1, &rules, &report), FL_REDLOCK_FIND_FEW, false, -1);
    expect(fli_fitness(facts, 4, &rules, &report), FL_REDLOCK_FIND_EVEN, false, -1);
}

TEST_WITH(test_each_fault, setup, NULL)
{
    memcpy(facts[2].run_id, facts[0].run_id, sizeof facts[0].run_id);
    expect(fli_fitness(facts, 3, &rules, &report), FL_REDLOCK_FIND_TWICE, true, 2);
    setup(NULL);
    facts[1].refused = "released";
    expect(fli_fitness(facts, 3, &rules, &report), FL_REDLOCK_FIND_UNABLE, true, 1);
    facts[1].refused_key = true;
    expect(fli_fitness(facts, 3, &rules, &report), FL_REDLOCK_FIND_UNABLE, false, 1);
    setup(NULL);
    memcpy(facts[1].role, "slave", 6);
    expect(fli_fitness(facts, 3, &rules, &report), FL_REDLOCK_FIND_REPLICA, true, 1);
    setup(NULL);
    memcpy(facts[1].policy, "allkeys-lru", 12);
    expect(fli_fitness(facts, 3, &rules, &report), FL_REDLOCK_FIND_EVICTS, true, 1);
    rules.eviction_allowed = true;
    expect(fli_fitness(facts, 3, &rules, &report), FL_REDLOCK_FIND_EVICTS, false, 1);
    setup(NULL);
    facts[0].aof = 0;
    expect(fli_fitness(facts, 3, &rules, &report), FL_REDLOCK_FIND_FORGETS, false, 0);
    setup(NULL);
    memcpy(facts[0].fsync, "everysec", 9);
    expect(fli_fitness(facts, 3, &rules, &report), FL_REDLOCK_FIND_FORGETS, false, 0);
    rules.restarts_are_safe = true;
    assert_true(fli_fitness(facts, 3, &rules, &report) && report.len == 0);
    setup(NULL);
    facts[2].young_ms = 1;
    expect(fli_fitness(facts, 3, &rules, &report), FL_REDLOCK_FIND_YOUNG, false, 2);
    setup(NULL);
    fli_facts_init(&facts[1]);
    expect(fli_fitness(facts, 3, &rules, &report), FL_REDLOCK_FIND_UNREACHABLE, false, 1);
    memcpy(facts[1].error, "WRONGPASS", 10);
    expect(fli_fitness(facts, 3, &rules, &report), FL_REDLOCK_FIND_REFUSED, true, 1);
}

TEST_WITH(test_what_is_no_redis, setup, NULL)
{
    static const char ours[] = "# Server\r\nredis_version:7.0.0\r\nserver_name:fencelock\r\n";
    fli_facts_init(&facts[1]);
    facts[1].heard = true;
    fli_facts_take_info(&facts[1], ours, sizeof ours - 1);
    expect(fli_fitness(facts, 3, &rules, &report), FL_REDLOCK_FIND_STRANGER, true, 1);
    setup(NULL);
    fli_facts_take_info(&facts[1], "run_id:abc\r\n", 12);
    assert_true(fli_fitness(facts, 3, &rules, &report));
}

TEST_WITH(test_what_is_not_told, setup, NULL)
{
    fli_facts_init(&facts[1]);
    facts[1].heard = true;
    facts[1].aof = 1;
    expect(fli_fitness(facts, 3, &rules, &report), FL_REDLOCK_FIND_UNKNOWN, false, 1);
    assert_non_null(strstr(report.finding[0].text, "run_id, role, uptime, maxmemory-policy"));
    /* Two that tell no run_id are not taken for one. */
    facts[2].run_id[0] = '\0';
    assert_true(fli_fitness(facts, 3, &rules, &report));
}

TEST_WITH(test_the_most_findings, setup, NULL)
{
    static char name[] = "same";
    for (uint32_t i = 0; i < FL_REDLOCK_SERVERS_MAX; i++) {
        fli_facts_init(&facts[i]);
        facts[i].heard = true;
        memcpy(facts[i].run_id, name, sizeof name);
        memcpy(facts[i].role, "slave", 6);
        memcpy(facts[i].policy, "allkeys-lru", 12);
        facts[i].aof = 0;
        facts[i].young_ms = 5;
    }
    assert_false(fli_fitness(facts, FL_REDLOCK_SERVERS_MAX, &rules, &report));
    assert_true(report.len <= FL_REDLOCK_FINDINGS_MAX);
    assert_int_equal(report.len, 6 * FL_REDLOCK_SERVERS_MAX - 1);
}
