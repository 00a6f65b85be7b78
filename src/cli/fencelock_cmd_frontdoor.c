/* fencelock_cmd_frontdoor.c: `fencelock frontdoor check`: watches a live Redis through MONITOR for
 * a while, and says which of its commands and scripts the front door would serve. It sends the
 * first of each kind to a lock machine of its own (frontdoor/trial.h). Changes nothing there. */
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/lines.h"
#include "frontdoor/trial.h"
#include "cli/fencelock_common.h"
#include "client/place.h"
#include "machine/glob.h"

#define DURATION_DEFAULT_MS UINT64_C(10000)
#define KINDS_MAX 256u
#define POLL_MS UINT64_C(200) /* how often the clock is looked at */

struct kind {
    struct frontdoor_verdict verdict;
    struct frontdoor_trial trial; /* holds, and saw nothing, when there was nothing to try */
    uint64_t times;
    char key[FL_NAME_MAX + 1]; /* an example of the keys */
    size_t key_len;
};

struct check {
    const struct cli_args *a;
    struct frontdoor_context context;
    struct fli_slice match; /* only keys that match; empty: all */
    uint64_t seen, served, left_out, broken;
    uint64_t keyless; /* refused, and of no key, so that --match cannot tell whose they are */
    size_t n;
    struct kind kinds[KINDS_MAX];
};

/* ---- counting -------------------------------------------------------------------------------- */

static void try_first(struct check *k, const struct frontdoor_monitored *m, struct kind *to)
{
    if (!to->verdict.served || !frontdoor_try(&k->context, m, &to->trial)) {
        to->trial = (struct frontdoor_trial){.holds = true};
    }
    if (!to->trial.holds) {
        k->broken++;
        memcpy(to->verdict.why, to->trial.why, sizeof to->trial.why);
    }
}

static void count(struct check *k, const struct frontdoor_monitored *m,
                  const struct frontdoor_verdict *v, struct fli_slice key)
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
        try_first(k, m, to);
        to->key_len = key.len < FL_NAME_MAX ? key.len : FL_NAME_MAX;
        if (to->key_len > 0) {
            memcpy(to->key, key.data, to->key_len);
        }
    }
    to->times++;
}

static void count_line(struct check *k, struct fli_slice line)
{
    struct frontdoor_monitored m;
    struct frontdoor_verdict v;
    uint64_t steps = 0;
    uint8_t *room = fli_xmalloc(line.len + 1);
    if (frontdoor_monitor_read(line, room, &m) && !m.script) {
        struct fli_slice key = frontdoor_monitor_key(&m);
        k->context.wall_ms = fli_clock_wall_ms();
        frontdoor_monitor_check(&k->context, &m, &v);
        bool all = k->match.len == 0;
        bool keyless = !all && key.len == 0 && !v.served;
        if (all || keyless || (key.len > 0 && machine_glob_match(k->match, key, &steps))) {
            k->keyless += keyless;
            k->seen++;
            k->served += v.served;
            count(k, &m, &v, key);
        }
    }
    free(room);
}

/* ---- the Redis ------------------------------------------------------------------------------- */

/* The connection on which it is watched. */
struct watched {
    const struct cli_args *a;
    struct fli_link link;
    struct cli_signals signals;
    bool interrupted;
};

_Noreturn static void fail(const struct watched *w, const char *what, const char *why)
{
    char message[512];
    (void)snprintf(message, sizeof message, "%s: %s", what, why);
    cli_die(w->a, FL_ENOCONN, message);
}

/* Waits until something comes. False: the time is over, or a signal has come. */
static bool wait_for(struct watched *w, short events, uint64_t until_ms)
{
    struct pollfd p[] = {{.fd = w->link.fd, .events = events},
                         {.fd = w->signals.fd, .events = POLLIN}};
    uint64_t now_ms = fli_clock_ms();
    uint64_t left_ms = until_ms > now_ms ? until_ms - now_ms : 0;
    (void)poll(p, 2, left_ms < POLL_MS ? (int)left_ms : (int)POLL_MS);
    w->interrupted = w->interrupted || cli_signals_next(&w->signals) != 0;
    return left_ms > 0 && !w->interrupted;
}

/* A dead address leaves time for those after it. */
static void connect_to(struct watched *w, const struct fli_node *at, uint64_t timeout_ms)
{
    struct fli_place place = {.node = *at};
    int rc;
    fli_place_resolve(&place, false);
    do {
        uint64_t until_ms = fli_clock_ms() + timeout_ms / (place.n > 0 ? place.n : 1);
        fli_link_close(&w->link);
        rc = fli_place_connect(&place, &w->link, NULL) ? fli_link_finish(&w->link) : FL_ENOCONN;
        while (rc == FL_EBUSY && wait_for(w, POLLOUT, until_ms)) {
            rc = fli_link_finish(&w->link);
        }
    } while (rc != 0 && !w->interrupted && ++place.turn < place.n);
    if (rc != 0) {
        fail(w, at->text, w->link.error);
    }
}

/* The next answer or line; NULL: not yet. */
static redisReply *hear(struct watched *w, uint64_t until_ms)
{
    redisReply *r = NULL;
    int rc = fli_link_next(&w->link, &r);
    if (rc == 0) {
        (void)wait_for(w, POLLIN, until_ms);
        rc = fli_link_read(&w->link);
        rc = rc < 0 ? rc : fli_link_next(&w->link, &r);
    }
    if (rc < 0) {
        fail(w, "the connection has ended", w->link.error);
    }
    return r;
}

static void send_command(struct watched *w, int argc, const char **argv, uint64_t timeout_ms)
{
    redisReply *r = NULL;
    char *request = NULL;
    size_t at = 0;
    uint64_t until_ms = fli_clock_ms() + timeout_ms;
    long long len = redisFormatCommandArgv(&request, argc, argv, NULL);
    if (len <= 0 || fli_link_push(&w->link, request, (size_t)len, &at) != 0) {
        fail(w, argv[0], w->link.error);
    }
    redisFreeCommand(request);
    while (r == NULL && !w->interrupted && fli_clock_ms() < until_ms) {
        r = hear(w, until_ms);
    }
    char why[256] = "";
    if (r == NULL || r->type == REDIS_REPLY_ERROR) {
        (void)snprintf(why, sizeof why, "%s", r != NULL ? r->str : "no answer in time");
    }
    freeReplyObject(r);
    if (why[0] != '\0') {
        fail(w, argv[0], why);
    }
}

/* Watches until the time is over. After a signal it still reads what is on its way. */
static void watch(struct check *k, struct watched *w, uint64_t duration_ms)
{
    bool heard = true;
    uint64_t end_ms = fli_clock_ms() + duration_ms;
    while (fli_clock_ms() < end_ms && (heard || !w->interrupted)) {
        redisReply *r = hear(w, end_ms);
        heard = r != NULL;
        if (heard && r->type == REDIS_REPLY_STATUS && r->len <= FRONTDOOR_MONITOR_LINE_MAX) {
            count_line(k, (struct fli_slice){(const uint8_t *)r->str, r->len});
        }
        freeReplyObject(r);
    }
}

static void run(struct check *k, const struct fli_node *at, const struct cli_access *with)
{
    struct watched w = {.a = k->a};
    uint64_t timeout_ms = cli_timeout_ms(k->a);
    const char *user = with->user;
    const char *password = with->password;
    const char *words[] = {"AUTH", user != NULL ? user : password, password};
    const char *monitor[] = {"MONITOR"};
    if (!cli_signals_take(&w.signals)) {
        cli_die(k->a, FL_ESYSTEM, "signals cannot be received");
    }
    fli_link_init(&w.link);
    w.link.line_max = w.link.bytes_max; /* a line of MONITOR has all arguments of a command */
    connect_to(&w, at, timeout_ms);
    if (password != NULL) { /* without a user: all that a Redis before 6 understands */
        send_command(&w, user != NULL ? 3 : 2, words, timeout_ms);
    }
    send_command(&w, 1, monitor, timeout_ms);
    watch(k, &w, cli_number(k->a, CLI_OPT_DURATION, DURATION_DEFAULT_MS));
    fli_link_close(&w.link);
    cli_signals_give_back(&w.signals);
}

/* ---- the report ------------------------------------------------------------------------------ */

/* Sorts: what is not served first, then what was seen most. */
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

static void list_commands(struct cli_out *o, const struct check *k)
{
    struct cli_list l;
    cli_list_begin(&l, o, "commands");
    for (size_t i = 0; i < k->n; i++) {
        const struct kind *one = &k->kinds[i];
        bool served = one->verdict.served;
        cli_list_row(&l);
        cli_list_text(&l, "command", "COMMAND", CLI_PLAIN, one->verdict.what);
        cli_list_u64(&l, "times", "TIMES", CLI_PLAIN, one->times);
        bool holds = one->trial.holds;
        struct fl_bytes key = {one->key, one->key_len};
        cli_list_bool(&l, "served", "SERVED", served ? CLI_GREEN : CLI_RED, served,
                      served ? "yes" : "no");
        cli_list_bool(&l, "holds", "HOLDS", holds ? CLI_GREEN : CLI_RED, holds,
                      !served ? ""
                      : holds ? "yes"
                              : "no");
        cli_list_bytes(&l, "key", "A KEY", CLI_DIM, key);
        cli_list_text(&l, "why", "WHY NOT", CLI_PLAIN, one->verdict.why);
        cli_list_text(&l, "saw", "TRIED WITH", CLI_DIM, one->trial.saw);
    }
    cli_list_end(&l);
}

static int report(struct check *k)
{
    qsort(k->kinds, k->n, sizeof k->kinds[0], by_importance);
    struct cli_out o = cli_result(k->a);
    fli_json_u64(&o.j, "seen", k->seen);
    fli_json_u64(&o.j, "served", k->served);
    fli_json_u64(&o.j, "left_out", k->left_out);
    fli_json_u64(&o.j, "keyless", k->keyless);
    fli_json_u64(&o.j, "broken", k->broken);
    list_commands(&o, k);
    if (k->seen == 0) {
        cli_text(&o, "nothing was sent to it in that time; watch for longer with --duration\n");
    }
    cli_out_end(&o);
    if (k->left_out > 0) {
        cli_complain("%llu more command%s of kinds that are not listed: look at fewer keys "
                     "with --match",
                     (unsigned long long)k->left_out, k->left_out == 1 ? " was" : "s were");
    }
    if (k->keyless > 0) {
        cli_complain("%llu refused command%s no key (MULTI, ...), so they may be of programs that "
                     "--match leaves out",
                     (unsigned long long)k->keyless, k->keyless == 1 ? " has" : "s have");
    }
    return k->seen > 0 && k->served == k->seen && k->broken == 0 ? CLI_EXIT_DONE : CLI_EXIT_NO;
}

/* Reads the file of aliases. */
static void read_aliases(struct check *k, const char *path)
{
    char why[FRONTDOOR_ERRMSG_SIZE + 64];
    size_t len = 0;
    uint8_t *text = fli_xmalloc(FRONTDOOR_ALIASES_SIZE_MAX);
    if (fli_file_read(path, text, FRONTDOOR_ALIASES_SIZE_MAX, &len, why, sizeof why) != 0 ||
        frontdoor_scripts_alias(k->context.scripts, (struct fli_slice){text, len}, why,
                                sizeof why) != 0) {
        cli_usage("--front-door-aliases: %s", why);
    }
    free(text);
}

int cli_run_frontdoor_check(const struct cli_args *a)
{
    static struct check k;
    struct cli_access with;
    struct fli_node at;
    char errmsg[256];
    const char *match = a->text[CLI_OPT_MATCH];
    cli_redis_access(a, &with);
    const char *text = a->text[CLI_OPT_REDIS];
    if (fli_node_parse(text, strlen(text), &at, errmsg, sizeof errmsg) != 0) {
        cli_usage("--redis: %s (one server is watched at a time)", errmsg);
    }
    k.a = a;
    k.match = (struct fli_slice){(const uint8_t *)match, match != NULL ? strlen(match) : 0};
    if (frontdoor_scripts_create(&k.context.scripts) != 0) {
        cli_end(CLI_EXIT_UNKNOWN);
    }
    if (cli_has(a, CLI_OPT_ALIASES)) {
        read_aliases(&k, a->text[CLI_OPT_ALIASES]);
    }
    run(&k, &at, &with);
    int code = report(&k);
    frontdoor_scripts_destroy(k.context.scripts);
    return code;
}
