/* fencelock_cmd_cluster.c: shows and changes the members of the cluster, and the settings for all
 * nodes.
 *
 * When the leader has answered, the change is in the log, and every leader from then on carries it
 * out. The command waits until it is done, and prints what it waits for. After a lost answer it
 * sends the change again, which does no harm. */
#include <inttypes.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include <hiredis/hiredis.h>

#include "base/bytes.h"
#include "base/clock.h"
#include "cli/fencelock_common.h"
#include "client/caller.h"

#define TIMEOUT_DEFAULT_MS UINT64_C(10000)
#define WAIT_DEFAULT_MS UINT64_C(120000)
#define EVERY_MS 200
#define CONFIG_WIDTH 24 /* of the names of settings */
#define ERROR_SIZE 512u

/* The calls of one command to the leader. */
struct cluster {
    const struct cli_args *args;
    fl_client *client;
    fl_client *wider; /* the same one, if it knows members that were not named; else NULL */
    uint64_t id;      /* of the member that the command is about; 0: of none */
    uint64_t until_ms;
    bool uncertain; /* an earlier attempt may have made the change */
    bool refused;   /* the leader has refused it, and error says why */
    char error[ERROR_SIZE];
    char of[17]; /* replace: the incarnation that is to be replaced; "": any */
};

static struct cluster begin(const struct cli_args *a, fl_client *c)
{
    return (struct cluster){.args = a,
                            .client = c,
                            .until_ms = fli_clock_ms() +
                                        cli_number(a, CLI_OPT_TIMEOUT, TIMEOUT_DEFAULT_MS)};
}

static bool is_subcommand(const struct cluster *k, const char *sub)
{
    return strcmp(cli_verb(k->args), sub) == 0;
}

static uint64_t left_ms(uint64_t until_ms)
{
    uint64_t now_ms = fli_clock_ms();
    return until_ms > now_ms ? until_ms - now_ms : 1;
}

/* Tries until a leader answers, or the time is over; then BUSY is a refusal too. 0: *ret is no
 * error; or a code, and why in k->error. What the leader refuses, an earlier attempt may have
 * done. */
static int ask(struct cluster *k, const char *const *words, size_t n, bool changes,
               redisReply **ret)
{
    bool unknown;
    int rc = fli_client_words(k->client, words, n, changes, !changes, left_ms(k->until_ms), ret,
                              &unknown);
    const char *error = *ret != NULL && (*ret)->type == REDIS_REPLY_ERROR ? (*ret)->str : NULL;
    k->uncertain = k->uncertain || unknown;
    if (rc == 0 && error == NULL) {
        return 0;
    }
    k->refused = error != NULL && rc != FL_ENOLEADER &&
                 (rc != FL_EBUSY || strncmp(error, "BUSY ", 5) == 0) &&
                 (rc != FL_EUNCERTAIN || strncmp(error, "UNCERTAIN", 9) != 0);
    (void)snprintf(k->error, sizeof k->error, "%.400s%s",
                   k->refused ? error : fl_client_error(k->client),
                   k->refused && k->uncertain ? "; an earlier attempt, whose answer was lost, may "
                                                "have been carried out"
                                              : "");
    freeReplyObject(*ret);
    *ret = NULL;
    return !k->refused ? rc : k->uncertain ? FL_EUNCERTAIN : FL_EDENIED;
}

/* What the leader says of all members, and of the one of the command; NULL: nothing, or that there
 * is none. */
static struct fl_member_list *see(const struct cluster *k, uint64_t until_ms,
                                  const struct fl_member **ret)
{
    struct fl_member_list *members = NULL;
    *ret = NULL;
    if (fl_members(k->client, left_ms(until_ms), &members) != 0) {
        return NULL;
    }
    for (size_t i = 0; i < members->len; i++) {
        *ret = members->members[i]->id == k->id ? members->members[i] : *ret;
    }
    return members;
}

/* ---- status ---------------------------------------------------------------------------------- */

static bool is_stable(const struct fl_member *m)
{
    return strcmp(m->state, "voter") == 0 || strcmp(m->state, "learner") == 0;
}

static struct fl_bytes or_dash(const char *address)
{
    return fl_str(address[0] != '\0' ? address : "-");
}

static void list_members(struct cli_out *o, const struct fl_member_list *members)
{
    struct cli_list l;
    cli_list_begin(&l, o, "members");
    for (size_t i = 0; i < members->len; i++) {
        const struct fl_member *m = members->members[i];
        const char *client = m->client_address;
        const char *peer = m->peer_address;
        bool leads = strcmp(m->role, "leader") == 0;
        cli_list_row(&l);
        cli_list_u64(&l, "id", "ID", CLI_BOLD, m->id);
        cli_list_text(&l, "state", "STATE", is_stable(m) ? CLI_PLAIN : CLI_YELLOW, m->state);
        cli_list_shown(&l, "role", "ROLE", leads ? CLI_GREEN : CLI_PLAIN, fl_str(m->role),
                       fl_str(leads ? "leader" : "follower"));
        cli_list_bool(&l, "connected", "CONNECTED", m->connected ? CLI_PLAIN : CLI_RED,
                      m->connected, m->connected ? "yes" : "no");
        cli_list_u64(&l, "knows_version", "KNOWS", CLI_PLAIN, m->version);
        cli_list_u64(&l, "starts", "STARTS", CLI_PLAIN, m->starts);
        cli_list_shown(&l, "peer_address", "PEER ADDRESS", CLI_PLAIN, fl_str(peer), or_dash(peer));
        cli_list_shown(&l, "client_address", "CLIENT ADDRESS", CLI_PLAIN, fl_str(client),
                       or_dash(client));
    }
    cli_list_end(&l);
}

/* 0: unknown. */
static uint64_t ask_version(struct cluster *k)
{
    static const char *const words[] = {"CLUSTER", "INFO"};
    static const char key[] = "cluster_version:";
    redisReply *r = NULL;
    if (ask(k, words, 2, false, &r) != 0) {
        return 0;
    }
    const char *at = r->type == REDIS_REPLY_STRING ? strstr(r->str, key) : NULL;
    uint64_t version = at == NULL ? 0 : strtoull(at + strlen(key), NULL, 10);
    freeReplyObject(r);
    return version;
}

static int show_status(struct cluster *k)
{
    struct fl_member_list *members = NULL;
    cli_need(k->args, k->client, fl_members(k->client, left_ms(k->until_ms), &members));
    uint64_t version = ask_version(k);
    bool well = true;
    for (size_t i = 0; i < members->len; i++) {
        const struct fl_member *m = members->members[i];
        well = well && m->connected && is_stable(m);
    }
    struct cli_out o = cli_result(k->args);
    fli_json_u64(&o.j, "version", version);
    list_members(&o, members);
    cli_text(&o, "the cluster is at version %" PRIu64 "\n", version);
    cli_out_end(&o);
    fl_member_list_free(members);
    return well ? CLI_EXIT_DONE : CLI_EXIT_NO;
}

/* ---- changes --------------------------------------------------------------------------------- */

/* Whether the change is done, by what the leader says of the member (NULL: there is none). */
static bool is_done(const struct cluster *k, const struct fl_member *m)
{
    const char *wanted = cli_has(k->args, CLI_OPT_LEARNER) ? "learner" : "voter";
    if (m == NULL || is_subcommand(k, "remove")) {
        return m == NULL && is_subcommand(k, "remove");
    }
    return is_subcommand(k, "move")  ? strcmp(m->peer_address, k->args->arg[1]) == 0
           : is_subcommand(k, "add") ? strcmp(m->state, wanted) == 0
                                     : is_stable(m);
}

/* The addresses for clients of the members, and the nodes that were named; 0: no member is known by
 * one. */
static size_t list_nodes_of(const struct cli_args *a, const struct fl_member_list *members,
                            bool with_named, char *list, size_t size)
{
    size_t len = with_named ? (size_t)snprintf(list, size, "%s", cli_nodes_of(a)) : 0;
    size_t begin = len;
    unsigned n = 0;
    for (size_t i = 0; i < members->len && n < FL_NODES_MAX; i++) {
        const char *client = members->members[i]->client_address;
        bool known = client[0] == '\0' || (with_named && strstr(list, client) != NULL);
        if (!known && strlen(client) + 2 < size - len) {
            len += (size_t)snprintf(list + len, size - len, "%s%s", len == 0 ? "" : ",", client);
            n++;
        }
    }
    return len > begin ? len : 0;
}

/* The only node that was named may be the one that is removed: then others are asked. */
static void learn_members(struct cluster *k, const struct fl_member_list *members)
{
    char list[2 * FL_NODES_MAX * (FL_ADDRESS_MAX + 2)];
    if (k->wider == NULL && list_nodes_of(k->args, members, true, list, sizeof list) > 0 &&
        cli_client_try(k->args, list, &cli_for_changes, &k->wider) == 0) {
        k->client = k->wider;
    }
}

/* Waits until the change is done. False: it is not, when the time is over. */
static bool wait_done(struct cluster *k, uint64_t until_ms)
{
    char printed[32] = "";
    for (;;) {
        const struct fl_member *m;
        struct fl_member_list *members = see(k, until_ms, &m);
        bool done = members != NULL && is_done(k, m);
        const char *state = m != NULL ? m->state : "not a member";
        if (members != NULL && !done && strcmp(state, printed) != 0) {
            (void)snprintf(printed, sizeof printed, "%s", state);
            if (!cli_has(k->args, CLI_OPT_JSON)) {
                cli_complain("node %s: %s", k->args->arg[0], state);
            }
        }
        if (members != NULL) {
            learn_members(k, members);
        }
        fl_member_list_free(members);
        if (done || fli_clock_ms() >= until_ms) {
            return done;
        }
        (void)poll(NULL, 0, EVERY_MS);
    }
}

/* done: or the log has the change, and nobody has waited for its end. */
static int report(const struct cluster *k, bool done)
{
    const struct cli_args *a = k->args;
    struct cli_out o = cli_result(a);
    fli_json_text(&o.j, "change", cli_verb(a));
    if (is_subcommand(k, "config")) {
        fli_json_text(&o.j, "name", a->arg[1]);
        fli_json_text(&o.j, "value", a->arg[2]);
    } else {
        fli_json_text(&o.j, "node", a->n_args > 0 ? a->arg[0] : "");
    }
    fli_json_bool(&o.j, "done", done);
    cli_text(&o, done ? "done\n" : "ordered; fencelock cluster status shows how far it is\n");
    cli_out_end(&o);
    return CLI_EXIT_DONE;
}

/* Learns which incarnation of the member is to be replaced, so that the change can be sent again:
 * it never replaces the one that came in its place. */
static void learn_incarnation(struct cluster *k)
{
    const struct fl_member *m = NULL;
    bool given = cli_has(k->args, CLI_OPT_OF);
    struct fl_member_list *members =
        !given && is_subcommand(k, "replace") ? see(k, k->until_ms, &m) : NULL;
    (void)snprintf(k->of, sizeof k->of, "%.16s",
                   given       ? k->args->text[CLI_OPT_OF]
                   : m != NULL ? m->incarnation
                               : "");
    fl_member_list_free(members);
}

/* Whether the change that was refused is in the log already: the command may be run again,
 * to go on waiting. A removal that is over looks like a wrong id, and a replacement like a wrong
 * incarnation: they stay refused, unless an earlier attempt may have made them. */
static bool is_under_way(struct cluster *k)
{
    const struct fl_member *m;
    struct fl_member_list *members = see(k, k->until_ms, &m);
    bool same = false;
    bool address =
        m != NULL && k->args->n_args == 2 && strcmp(m->peer_address, k->args->arg[1]) == 0;
    bool joins = address && strcmp(m->state, "joining") == 0;
    if (members == NULL) {
        return false;
    }
    if (is_subcommand(k, "add")) {
        same = joins || (address && is_done(k, m));
    } else if (is_subcommand(k, "replace")) {
        same = joins || (k->uncertain && strstr(k->error, "was replaced already") != NULL);
    } else if (is_subcommand(k, "remove")) {
        same = m != NULL ? strcmp(m->state, "leaving") == 0 : k->uncertain;
    } else {
        same = is_subcommand(k, "move") && k->uncertain && address;
    }
    fl_member_list_free(members);
    return same;
}

/* The servers say it in their own words. */
static const char *remedy_of_refusal(const char *error)
{
    return strstr(error, "say FORCE") != NULL ? "FORCE is --force-lose-majority here."
           : strstr(error, "CLUSTER MEMBERS lists them") != NULL
               ? "fencelock cluster status shows the same."
               : NULL;
}

/* Whoever runs a replacement again must not replace the successor, which may be there by then. */
static int report_failure(struct cluster *k, int rc)
{
    char again[96];
    const char *hint = k->refused && rc == FL_EDENIED ? remedy_of_refusal(k->error) : NULL;
    rc = k->refused || rc == FL_EBUSY || !k->uncertain ? rc : FL_EUNCERTAIN;
    if (rc == FL_EUNCERTAIN && k->of[0] != '\0') {
        (void)snprintf(
            again, sizeof again,
            "Run it again with --of %s: that does it once, and is refused when it was done.",
            k->of);
        hint = again;
    }
    return cli_fail_with(k->args, rc, k->error,
                         hint != NULL ? hint : cli_remedy(k->args, rc, k->error));
}

static int change(struct cluster *k)
{
    const struct cli_args *a = k->args;
    learn_incarnation(k);
    const char *const all[] = {"CLUSTER",
                               cli_verb(a),
                               a->arg[0],
                               a->arg[1],
                               cli_has(a, CLI_OPT_LEARNER) ? "LEARNER" : NULL,
                               cli_has(a, CLI_OPT_FORCE_LOSE_MAJORITY) ? "FORCE" : NULL,
                               k->of[0] != '\0' ? "OF" : NULL,
                               k->of[0] != '\0' ? k->of : NULL};
    const char *words[sizeof all / sizeof all[0]];
    size_t n = 0;
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        words[n] = all[i];
        n += all[i] != NULL;
    }
    redisReply *r = NULL;
    int rc = ask(k, words, n, true, &r);
    freeReplyObject(r);
    if (rc != 0 && !(k->refused && is_under_way(k))) {
        return report_failure(k, rc);
    }
    uint64_t wait_ms = cli_number(a, CLI_OPT_WAIT, WAIT_DEFAULT_MS);
    bool transfers = is_subcommand(k, "transfer"); /* its answer is its end, as that of a move */
    bool waits = !transfers && wait_ms > 0;
    return !waits || wait_done(k, fli_clock_ms() + wait_ms)
               ? report(k, waits || transfers || is_subcommand(k, "move"))
               : cli_fail_with(a, FL_ETIMEOUT,
                               "the log has the change, and it is not done yet: the leader goes on "
                               "with it; fencelock cluster status shows how far it is",
                               "--wait TIME waits for longer.");
}

/* ---- configuration --------------------------------------------------------------------------- */

/* All settings; or in text the value of the one that was named. */
static int show_config(const struct cli_args *a, const redisReply *map)
{
    const char *only = a->n_args == 2 ? a->arg[1] : NULL;
    bool found = only == NULL;
    struct cli_list l;
    struct cli_out o = cli_result(a);
    cli_list_one(&l, &o, only == NULL ? CONFIG_WIDTH : 0);
    for (size_t i = 0; i + 1 < map->elements; i += 2) {
        const redisReply *v = map->element[i + 1];
        const char *name = map->element[i]->str != NULL ? map->element[i]->str : "?";
        bool is_it = only != NULL && strcmp(name, only) == 0;
        const char *title = only == NULL ? name : is_it ? "" : NULL;
        char key[64];
        (void)snprintf(key, sizeof key, "%s", name);
        for (char *p = strchr(key, '-'); p != NULL; p = strchr(p, '-')) {
            *p = '_';
        }
        found = found || is_it;
        l.none = v->type != REDIS_REPLY_INTEGER && v->str == NULL;
        if (v->type == REDIS_REPLY_INTEGER) {
            cli_list_u64(&l, key, title, CLI_PLAIN, (uint64_t)v->integer);
        } else {
            cli_list_text(&l, key, title, CLI_PLAIN, v->str);
        }
    }
    if (!found) {
        cli_die(a, FL_EINVAL, "there is no such name; fencelock cluster config get lists them");
    }
    cli_out_end(&o);
    return CLI_EXIT_DONE;
}

/* SET may be sent again like any other change: twice has the effect of once. */
static int run_config(struct cluster *k)
{
    const struct cli_args *a = k->args;
    bool get = a->n_args == 0 || (strcmp(a->arg[0], "get") == 0 && a->n_args <= 2);
    const char *const words[] = {"CLUSTER", "CONFIG", get ? "GET" : "SET", a->arg[1], a->arg[2]};
    redisReply *r = NULL;
    if (!get && (strcmp(a->arg[0], "set") != 0 || a->n_args != 3)) {
        cli_usage("write cluster config get [NAME], or cluster config set NAME VALUE");
    }
    /* a question goes to the leader: a follower may not have a value yet that was just set */
    int rc = ask(k, words, get ? 3 : 5, !get, &r);
    int code = rc != 0 ? report_failure(k, rc) : get ? show_config(a, r) : report(k, true);
    freeReplyObject(r);
    return code;
}

/* ---- for the others -------------------------------------------------------------------------- */

void cli_discover(struct cli_args *a)
{
    static char list[FL_NODES_MAX * (FL_ADDRESS_MAX + 2)];
    struct fl_member_list *members = NULL;
    fl_client *c = cli_client_create(a, &cli_for_changes);
    struct cluster k = begin(a, c);
    cli_need(a, c, fl_members(c, left_ms(k.until_ms), &members));
    if (list_nodes_of(a, members, false, list, sizeof list) > 0) {
        a->text[CLI_OPT_NODES] = list;
        a->given |= CLI_BIT(CLI_OPT_NODES);
    }
    fl_member_list_free(members);
    fl_close(c);
}

redisReply *cli_ask_cluster(const struct cli_args *a, fl_client *c, const char *const *words,
                            unsigned n, bool changes, bool *ret_uncertain)
{
    struct cluster k = begin(a, c);
    redisReply *r = NULL;
    int rc = ask(&k, words, n, changes, &r);
    if (rc != 0) {
        cli_end(report_failure(&k, rc));
    }
    if (ret_uncertain != NULL) {
        *ret_uncertain = k.uncertain;
    }
    return r;
}

int cli_run_cluster(const struct cli_args *a, fl_client *c)
{
    struct cluster k = begin(a, c);
    bool config = is_subcommand(&k, "config");
    if (!config && a->n_args > 0 &&
        !fli_parse_u64(a->arg[0], strlen(a->arg[0]), INT64_MAX, &k.id)) {
        cli_usage("'%.64s' is no node's id: write a number", a->arg[0]);
    }
    int code = is_subcommand(&k, "status") ? show_status(&k) : config ? run_config(&k) : change(&k);
    fl_close(k.wider);
    return code;
}
