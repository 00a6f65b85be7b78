/* fencelock_cmd_frontdoor.c: `fencelock frontdoor check`: watches a live Redis for a while, through
 * MONITOR, and says which of the commands and scripts it is sent a front door would serve. Changes
 * nothing there. */
#include <errno.h>
#include <hiredis/hiredis.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "cli/loadgen.h"
#include "cli/redlock_args.h"
#include "client/nodes.h"
#include "face/monitor.h"
#include "machine/glob.h"

#define DURATION_DEFAULT_MS UINT64_C(10000)
#define DURATION_MAX_MS UINT64_C(86400000)
#define KINDS_MAX 256u
#define POLL_MS UINT64_C(200) /* at most so long between looks at the clock */

struct kind {
    struct face_verdict verdict;
    uint64_t times;
    char key[FL_NAME_MAX + 1]; /* one of them */
    size_t key_len;
};

struct check {
    const struct cli_args *a;
    struct face_context context;
    struct fli_slice match; /* empty: all keys */
    uint64_t seen, served, left_out;
    size_t n;
    struct kind kinds[KINDS_MAX];
};

/* ---- what is seen ---------------------------------------------------------------------------- */

static void count(struct check *k, const struct face_verdict *v, struct fli_slice key)
{
    size_t i = 0;
    while (i < k->n && (strcmp(k->kinds[i].verdict.what, v->what) != 0 ||
                        strcmp(k->kinds[i].verdict.why, v->why) != 0)) {
        i++;
    }
    if (i == KINDS_MAX) {
        k->left_out++;
        return;
    }
    struct kind *to = &k->kinds[i];
    if (i == k->n) {
        k->n++;
        to->verdict = *v;
        to->key_len = key.len < FL_NAME_MAX ? key.len : FL_NAME_MAX;
        if (to->key_len > 0) {
            memcpy(to->key, key.data, to->key_len);
        }
    }
    to->times++;
}

static void take_line(struct check *k, struct fli_slice line)
{
    struct face_monitored m;
    struct face_verdict v;
    uint64_t steps = 0;
    uint8_t *room = fli_xmalloc(line.len + 1);
    if (face_monitor_read(line, room, &m) && !m.script) {
        struct fli_slice key = face_monitor_key(&m);
        if (k->match.len == 0 || (key.len > 0 && machine_glob_match(k->match, key, &steps))) {
            k->context.wall_ms = fli_clock_wall_ms();
            face_monitor_check(&k->context, &m, &v);
            k->seen++;
            k->served += v.served;
            count(k, &v, key);
        }
    }
    free(room);
}

/* ---- the Redis ------------------------------------------------------------------------------- */

/* False, and a sentence in errmsg, when it says no. */
static bool say(redisContext *c, int argc, const char **argv, char *errmsg, size_t size)
{
    redisReply *r = redisCommandArgv(c, argc, argv, NULL);
    bool ok = r != NULL && r->type != REDIS_REPLY_ERROR;
    if (!ok) {
        snprintf(errmsg, size, "%s: %s", argv[0], r == NULL ? c->errstr : r->str);
    }
    if (r != NULL) {
        freeReplyObject(r);
    }
    return ok;
}

static redisContext *start(const struct fli_node *at, const struct cli_redlock_options *o,
                           uint64_t timeout_ms, char *errmsg, size_t size)
{
    struct timeval tv = {.tv_sec = (time_t)(timeout_ms / 1000),
                         .tv_usec = (suseconds_t)(timeout_ms % 1000 * 1000)};
    redisContext *c = redisConnectWithTimeout(at->host, loadgen_port(at), tv);
    const char *user = o->options.login.username;
    const char *password = o->options.login.password;
    if (c == NULL || c->err != 0) {
        snprintf(errmsg, size, "cannot connect to %s: %s", at->text,
                 c == NULL ? "out of memory" : c->errstr);
        redisFree(c);
        return NULL;
    }
    bool ok = redisSetTimeout(c, tv) == REDIS_OK;
    if (ok && password != NULL) {
        const char *words[3] = {"AUTH", user == NULL ? "default" : user, password};
        const char *old[2] = {"AUTH", password};
        ok = user == NULL ? say(c, 2, old, errmsg, size) : say(c, 3, words, errmsg, size);
    }
    const char *monitor[1] = {"MONITOR"};
    if (!ok || !say(c, 1, monitor, errmsg, size)) {
        redisFree(c);
        return NULL;
    }
    return c;
}

/* The next line, or NULL: none within the time. False: the connection is gone. */
static bool next_line(redisContext *c, uint64_t wait_ms, redisReply **ret)
{
    void *reply = NULL;
    struct timeval tv = {.tv_sec = (time_t)(wait_ms / 1000),
                         .tv_usec = (suseconds_t)(wait_ms % 1000 * 1000)};
    *ret = NULL;
    if (redisSetTimeout(c, tv) != REDIS_OK) {
        return false;
    }
    if (redisGetReply(c, &reply) == REDIS_OK) {
        *ret = reply;
        return true;
    }
    bool timed_out = c->err == REDIS_ERR_IO && (errno == EAGAIN || errno == EWOULDBLOCK);
    if (timed_out) {
        c->err = 0;
        c->errstr[0] = '\0';
    }
    return timed_out;
}

static volatile sig_atomic_t interrupted;

static void on_signal(int number)
{
    (void)number;
    interrupted = 1;
}

/* Until the time is over; or, interrupted, until what was on its way has come. */
static bool watch(struct check *k, redisContext *c, uint64_t duration_ms, char *errmsg, size_t size)
{
    uint64_t end_ms = fli_clock_ms() + duration_ms;
    for (uint64_t now_ms = fli_clock_ms(); now_ms < end_ms; now_ms = fli_clock_ms()) {
        redisReply *r;
        if (!next_line(c, end_ms - now_ms < POLL_MS ? end_ms - now_ms : POLL_MS, &r)) {
            snprintf(errmsg, size, "the connection has ended: %s", c->errstr);
            return false;
        }
        if (r == NULL && interrupted != 0) {
            return true;
        }
        if (r != NULL && r->type == REDIS_REPLY_STATUS && r->len <= FACE_MONITOR_LINE_MAX) {
            take_line(k, (struct fli_slice){(const uint8_t *)r->str, r->len});
        }
        if (r != NULL) {
            freeReplyObject(r);
        }
    }
    return true;
}

/* ---- what is said ---------------------------------------------------------------------------- */

/* What is not served first, then what was seen most. */
static int by_importance(const void *a, const void *b)
{
    const struct kind *x = a;
    const struct kind *y = b;
    if (x->verdict.served != y->verdict.served) {
        return x->verdict.served ? 1 : -1;
    }
    return x->times == y->times  ? strcmp(x->verdict.what, y->verdict.what)
           : x->times < y->times ? 1
                                 : -1;
}

static void print_json(const struct check *k)
{
    struct cli_json j;
    cli_json_init(&j, stdout);
    cli_json_object(&j, NULL);
    cli_json_u64(&j, "seen", k->seen);
    cli_json_u64(&j, "served", k->served);
    cli_json_u64(&j, "left_out", k->left_out);
    cli_json_array(&j, "commands");
    for (size_t i = 0; i < k->n; i++) {
        const struct kind *one = &k->kinds[i];
        cli_json_object(&j, NULL);
        cli_json_text(&j, "command", one->verdict.what);
        cli_json_bool(&j, "served", one->verdict.served);
        cli_json_u64(&j, "times", one->times);
        cli_json_bytes(&j, "key", (struct fl_bytes){one->key, one->key_len});
        cli_json_text(&j, "why", one->verdict.why);
        cli_json_end_object(&j);
    }
    cli_json_end_array(&j);
    cli_json_end_object(&j);
    cli_json_finish(&j);
}

static void print_table(const struct check *k, bool colours)
{
    static const struct cli_column columns[] = {{"COMMAND", false},
                                                {"TIMES", true},
                                                {"SERVED", false},
                                                {"A KEY", false},
                                                {"WHY NOT", false}};
    struct cli_table t;
    cli_table_init(&t, columns, sizeof columns / sizeof columns[0]);
    for (size_t i = 0; i < k->n; i++) {
        const struct kind *one = &k->kinds[i];
        bool served = one->verdict.served;
        cli_table_text(&t, CLI_PLAIN, one->verdict.what);
        cli_table_u64(&t, CLI_PLAIN, one->times);
        cli_table_text(&t, served ? CLI_GREEN : CLI_RED, served ? "yes" : "no");
        cli_table_bytes(&t, CLI_DIM, (struct fl_bytes){one->key, one->key_len});
        cli_table_text(&t, CLI_PLAIN, one->verdict.why);
    }
    cli_table_print(&t, stdout, colours);
    cli_table_fini(&t);
}

static int report(struct check *k)
{
    struct cli_style style = cli_style_of(k->a);
    qsort(k->kinds, k->n, sizeof k->kinds[0], by_importance);
    if (style.json) {
        print_json(k);
    } else if (k->seen == 0) {
        puts("nothing was sent to it in that time; watch for longer with --duration");
    } else {
        print_table(k, style.colours);
    }
    if (k->left_out > 0) {
        cli_complain("%llu more commands were of kinds that are not listed: look at fewer keys "
                     "with --match",
                     (unsigned long long)k->left_out);
    }
    return k->seen > 0 && k->served == k->seen ? CLI_EXIT_DONE : CLI_EXIT_NO;
}

static int run(struct check *k, const struct fli_node *at, const struct cli_redlock_options *o,
               uint64_t duration_ms)
{
    char errmsg[512] = "";
    struct sigaction action = {.sa_handler = on_signal};
    (void)sigaction(SIGINT, &action, NULL);
    (void)sigaction(SIGTERM, &action, NULL);
    uint64_t timeout_ms = cli_has(k->a, CLI_OPT_TIMEOUT) ? k->a->number[CLI_OPT_TIMEOUT] : 5000;
    redisContext *c = start(at, o, timeout_ms, errmsg, sizeof errmsg);
    bool ok = c != NULL && watch(k, c, duration_ms, errmsg, sizeof errmsg);
    redisFree(c);
    return ok ? report(k) : cli_fail(k->a, FL_ENOCONN, errmsg, NULL, NULL);
}

int cli_run_frontdoor_check(const struct cli_args *a)
{
    struct cli_redlock_options o;
    struct fli_node at;
    char errmsg[256];
    uint64_t duration_ms =
        cli_has(a, CLI_OPT_DURATION) ? a->number[CLI_OPT_DURATION] : DURATION_DEFAULT_MS;
    int code = cli_redlock_options(a, &o);
    if (code != 0) {
        return code;
    }
    const char *text = a->text[CLI_OPT_REDIS];
    if (fli_node_parse(text, strlen(text), &at, errmsg, sizeof errmsg) != 0) {
        cli_complain("--redis: %s (one server is watched at a time)", errmsg);
        return CLI_EXIT_USAGE;
    }
    if (duration_ms < 1 || duration_ms > DURATION_MAX_MS) {
        cli_complain("--duration is 1 ms to 24h");
        return CLI_EXIT_USAGE;
    }
    struct check *k = fli_xcalloc(1, sizeof *k);
    k->a = a;
    if (cli_has(a, CLI_OPT_MATCH)) {
        const char *match = a->text[CLI_OPT_MATCH];
        k->match = (struct fli_slice){(const uint8_t *)match, strlen(match)};
    }
    code = CLI_EXIT_UNKNOWN;
    if (face_scripts_create(&k->context.scripts) == 0) {
        code = run(k, &at, &o, duration_ms);
    }
    face_scripts_destroy(k->context.scripts);
    free(k);
    return code;
}
