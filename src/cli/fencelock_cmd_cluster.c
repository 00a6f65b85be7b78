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
#define WORDS_MAX 8u
#define ERROR_SIZE 512u

/* The calls of one command to the leader. */
struct cluster {
    const struct cli_args *args;
    fl_client *client;
    fl_client *wider; /* the same one, if it knows members that were not named; else NULL */
    bool uncertain;   /* an earlier attempt may have made the change */
    bool refused;     /* the leader has refused it, and error says why */
    char error[ERROR_SIZE];
    char of[17]; /* replace: the incarnation that is to be replaced; "": any */
};

static uint64_t left_ms(uint64_t until_ms)
{
    uint64_t now_ms = fli_clock_ms();
    return until_ms > now_ms ? until_ms - now_ms : 1;
}

/* What the leader refuses, an earlier attempt may have done. */
static int refused(struct cluster *k, const char *why)
{
    static const char more[] =
        "; an earlier attempt, whose answer was lost, may have been carried out";
    k->refused = true;
    (void)snprintf(k->error, sizeof k->error, "%.400s%s", why, k->uncertain ? more : "");
    return k->uncertain ? FL_EUNCERTAIN : FL_EDENIED;
}

/* Tries until a leader answers, or the time is over. 0: *ret is no error; or a code, and why in
 * k->error. */
static int ask(struct cluster *k, const char *const *words, size_t n, bool changes,
               uint64_t until_ms, redisReply **ret)
{
    bool unknown;
    int rc =
        fli_client_words(k->client, words, n, changes, !changes, left_ms(until_ms), ret, &unknown);
    const char *error = *ret != NULL && (*ret)->type == REDIS_REPLY_ERROR ? (*ret)->str : NULL;
    bool is_final = rc != FL_ENOLEADER && rc != FL_EBUSY &&
                    (rc != FL_EUNCERTAIN || error == NULL || strncmp(error, "UNCERTAIN", 9) != 0);
    k->uncertain = k->uncertain || unknown;
    if (rc == 0 && error == NULL) {
        return 0;
    }
    if (error != NULL && is_final) {
        rc = refused(k, error);
    } else {
        (void)snprintf(k->error, sizeof k->error, "%.500s", fl_client_error(k->client));
    }
    freeReplyObject(*ret);
    *ret = NULL;
    return rc;
}

/* NULL: there is none. */
static const struct fl_member *find_member(const struct fl_member_list *members, uint64_t id)
{
    for (size_t i = 0; i < members->len; i++) {
        if (members->members[i]->id == id) {
            return members->members[i];
        }
    }
    return NULL;
}

/* ---- status ---------------------------------------------------------------------------------- */

static bool is_stable(const struct fl_member *m)
{
    return strcmp(m->state, "voter") == 0 || strcmp(m->state, "learner") == 0;
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
        cli_list_text(&l, "role", NULL, CLI_PLAIN, m->role);
        cli_list_text(&l, NULL, "ROLE", leads ? CLI_GREEN : CLI_PLAIN,
                      leads ? "leader" : "follower");
        cli_list_bool(&l, "connected", m->connected);
        cli_list_text(&l, NULL, "CONNECTED", m->connected ? CLI_PLAIN : CLI_RED,
                      m->connected ? "yes" : "no");
        cli_list_u64(&l, "knows_version", "KNOWS", CLI_PLAIN, m->version);
        cli_list_u64(&l, "starts", "STARTS", CLI_PLAIN, m->starts);
        cli_list_text(&l, "peer_address", NULL, CLI_PLAIN, peer);
        cli_list_text(&l, NULL, "PEER ADDRESS", CLI_PLAIN, peer[0] != '\0' ? peer : "-");
        cli_list_text(&l, "client_address", NULL, CLI_PLAIN, client);
        cli_list_text(&l, NULL, "CLIENT ADDRESS", CLI_PLAIN, client[0] != '\0' ? client : "-");
    }
    cli_list_end(&l);
}

/* 0: unknown. */
static uint64_t ask_version(struct cluster *k, uint64_t until_ms)
{
    static const char *const words[] = {"CLUSTER", "INFO"};
    static const char key[] = "cluster_version:";
    redisReply *r = NULL;
    uint64_t version = 0;
    if (ask(k, words, 2, false, until_ms, &r) != 0) {
        return 0;
    }
    const char *at = r->type == REDIS_REPLY_STRING ? strstr(r->str, key) : NULL;
    version = at == NULL ? 0 : strtoull(at + strlen(key), NULL, 10);
    freeReplyObject(r);
    return version;
}

static int show_status(struct cluster *k, uint64_t until_ms)
{
    struct fl_member_list *members = NULL;
    int rc = fl_members(k->client, left_ms(until_ms), &members);
    if (rc != 0) {
        return cli_fail(k->args, rc, fl_client_error(k->client));
    }
    uint64_t version = ask_version(k, until_ms);
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

static bool is_subcommand(const struct cluster *k, const char *sub)
{
    return strcmp(cli_verb(k->args), sub) == 0;
}

/* Whether the change is done, by what the leader says of the member (NULL: there is none). */
static bool is_done(const struct cluster *k, const struct fl_member *m)
{
    const char *wanted = cli_has(k->args, CLI_OPT_LEARNER) ? "learner" : "voter";
    if (is_subcommand(k, "remove")) {
        return m == NULL;
    }
    if (m == NULL) {
        return false;
    }
    if (is_subcommand(k, "move")) {
        return strcmp(m->peer_address, k->args->arg[1]) == 0;
    }
    return is_subcommand(k, "add") ? strcmp(m->state, wanted) == 0 : is_stable(m);
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
    int code;
    if (k->wider != NULL || list_nodes_of(k->args, members, true, list, sizeof list) == 0) {
        return;
    }
    k->wider = cli_client_create_for(k->args, list, &cli_for_changes, &code);
    k->client = k->wider != NULL ? k->wider : k->client;
}

/* Waits until the change is done. 0; FL_ETIMEOUT. */
static int wait_done(struct cluster *k, uint64_t id, uint64_t until_ms)
{
    char printed[32] = "";
    for (;;) {
        struct fl_member_list *members = NULL;
        bool done = false;
        if (fl_members(k->client, left_ms(until_ms), &members) == 0) {
            const struct fl_member *m = find_member(members, id);
            done = is_done(k, m);
            const char *state = m != NULL ? m->state : "not a member";
            if (!done && strcmp(state, printed) != 0) {
                (void)snprintf(printed, sizeof printed, "%s", state);
                if (!cli_has(k->args, CLI_OPT_JSON)) {
                    cli_complain("node %s: %s", k->args->arg[0], state);
                }
            }
            learn_members(k, members);
            fl_member_list_free(members);
        }
        if (done || fli_clock_ms() >= until_ms) {
            return done ? 0 : FL_ETIMEOUT;
        }
        (void)poll(NULL, 0, EVERY_MS);
    }
}

static int report_done(const struct cluster *k)
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
    fli_json_bool(&o.j, "done", true);
    cli_text(&o, "done\n");
    cli_out_end(&o);
    return CLI_EXIT_DONE;
}

/* Learns which incarnation of the member is to be replaced, so that the change can be sent again:
 * it never replaces the one that came in its place. */
static void learn_incarnation(struct cluster *k, uint64_t id, uint64_t until_ms)
{
    struct fl_member_list *members = NULL;
    if (cli_has(k->args, CLI_OPT_OF)) {
        (void)snprintf(k->of, sizeof k->of, "%.16s", k->args->text[CLI_OPT_OF]);
    } else if (is_subcommand(k, "replace") &&
               fl_members(k->client, left_ms(until_ms), &members) == 0) {
        const struct fl_member *m = find_member(members, id);
        if (m != NULL) {
            (void)snprintf(k->of, sizeof k->of, "%.16s", m->incarnation);
        }
        fl_member_list_free(members);
    }
}

static unsigned words_of(const struct cluster *k, const char *words[WORDS_MAX])
{
    const struct cli_args *a = k->args;
    unsigned n = 0;
    words[n++] = "CLUSTER";
    words[n++] = cli_verb(a);
    for (unsigned i = 0; i < a->n_args; i++) {
        words[n++] = a->arg[i];
    }
    if (cli_has(a, CLI_OPT_LEARNER)) {
        words[n++] = "LEARNER";
    }
    if (cli_has(a, CLI_OPT_FORCE_LOSE_MAJORITY)) {
        words[n++] = "FORCE";
    }
    if (k->of[0] != '\0') {
        words[n++] = "OF";
        words[n++] = k->of;
    }
    return n;
}

/* Whether the change that was refused is in the log already: the command may be run again,
 * to go on waiting. A removal that is over looks like a wrong id, and stays refused, unless an
 * earlier attempt may have made it. */
static bool is_under_way(struct cluster *k, uint64_t id, uint64_t until_ms)
{
    struct fl_member_list *members = NULL;
    bool same = false;
    if (fl_members(k->client, left_ms(until_ms), &members) == 0) {
        const struct fl_member *m = find_member(members, id);
        bool address =
            m != NULL && k->args->n_args == 2 && strcmp(m->peer_address, k->args->arg[1]) == 0;
        if (is_subcommand(k, "add")) {
            same = address && (strcmp(m->state, "joining") == 0 || is_done(k, m));
        } else if (is_subcommand(k, "replace")) {
            same = strstr(k->error, "was replaced already") != NULL ||
                   (address && strcmp(m->state, "joining") == 0);
        } else if (is_subcommand(k, "remove")) {
            same = m != NULL ? strcmp(m->state, "leaving") == 0 : k->uncertain;
        } else {
            same = is_subcommand(k, "move") && k->uncertain && address;
        }
        fl_member_list_free(members);
    }
    return same;
}

/* The servers say it in their own words. */
static const char *remedy_of_refusal(const char *error)
{
    if (strstr(error, "say FORCE") != NULL) {
        return "FORCE is --force-lose-majority here.";
    }
    return strstr(error, "CLUSTER MEMBERS lists them") != NULL
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
        (void)snprintf(again, sizeof again, "Run it again with --of %s: that does it once.", k->of);
        hint = again;
    }
    return cli_fail_with(k->args, rc, k->error,
                         hint != NULL ? hint : cli_remedy(k->args, rc, k->error));
}

/* The same as ask(), but for the exit code after a sentence. */
static int ask_for(struct cluster *k, const char *const *words, size_t n, bool changes,
                   uint64_t until_ms, redisReply **ret)
{
    int rc = ask(k, words, n, changes, until_ms, ret);
    return rc != 0 ? report_failure(k, rc) : 0;
}

static int change(struct cluster *k, uint64_t until_ms)
{
    const struct cli_args *a = k->args;
    const char *words[WORDS_MAX];
    uint64_t id = a->n_args > 0 ? strtoull(a->arg[0], NULL, 10) : 0;
    learn_incarnation(k, id, until_ms);
    unsigned n = words_of(k, words);
    redisReply *r = NULL;
    int rc = ask(k, words, n, true, until_ms, &r);
    freeReplyObject(r);
    if (rc != 0 && !(k->refused && is_under_way(k, id, until_ms))) {
        return report_failure(k, rc);
    }
    uint64_t wait_ms = cli_number(a, CLI_OPT_WAIT, WAIT_DEFAULT_MS);
    bool waits = !is_subcommand(k, "transfer") && wait_ms > 0;
    if (waits && wait_done(k, id, fli_clock_ms() + wait_ms) != 0) {
        return cli_fail_with(a, FL_ETIMEOUT,
                             "the log has the change, and it is not done yet: the leader goes on "
                             "with it; fencelock cluster status shows how far it is",
                             "--wait TIME waits for longer.");
    }
    return report_done(k);
}

/* ---- configuration --------------------------------------------------------------------------- */

/* "?" for what no node answers. */
static const char *text_of(const redisReply *r, char room[24])
{
    (void)snprintf(room, 24, "%lld", r->integer);
    return r->type == REDIS_REPLY_INTEGER ? room : r->type == REDIS_REPLY_STRING ? r->str : "?";
}

static void json_setting(struct fli_json *j, const char *name, const redisReply *value)
{
    char key[64];
    (void)snprintf(key, sizeof key, "%s", name);
    for (char *p = strchr(key, '-'); p != NULL; p = strchr(p, '-')) {
        *p = '_';
    }
    if (value->type == REDIS_REPLY_INTEGER) {
        fli_json_u64(j, key, (uint64_t)value->integer);
    } else {
        fli_json_text(j, key, value->str);
    }
}

/* All settings; or in text the value of the one that was named. */
static int show_config(struct cluster *k, const redisReply *map)
{
    const struct cli_args *a = k->args;
    const char *only = a->n_args == 2 ? a->arg[1] : NULL;
    bool found = only == NULL;
    char room[2][24];
    struct cli_list l;
    struct cli_out o = cli_result(a);
    bool lists = only == NULL && !o.json;
    if (lists) {
        cli_list_begin(&l, &o, "settings");
    }
    for (size_t i = 0; i + 1 < map->elements; i += 2) {
        const char *name = text_of(map->element[i], room[0]);
        const char *value = text_of(map->element[i + 1], room[1]);
        json_setting(&o.j, name, map->element[i + 1]);
        if (lists) {
            cli_list_row(&l);
            cli_list_text(&l, NULL, "NAME", CLI_PLAIN, name);
            cli_list_text(&l, NULL, "VALUE", CLI_PLAIN, value);
        } else if (only != NULL && strcmp(name, only) == 0) {
            found = true;
            cli_text_safe(&o, fl_str(value));
            cli_text(&o, "\n");
        }
    }
    if (!found) {
        return cli_fail(a, FL_EINVAL,
                        "there is no such name; fencelock cluster config get lists them");
    }
    if (lists) {
        cli_list_end(&l);
    }
    cli_out_end(&o);
    return CLI_EXIT_DONE;
}

/* SET may be sent again like any other change: twice has the effect of once. */
static int run_config(struct cluster *k, uint64_t until_ms)
{
    const struct cli_args *a = k->args;
    bool get = a->n_args == 0 || (strcmp(a->arg[0], "get") == 0 && a->n_args <= 2);
    const char *words[WORDS_MAX] = {"CLUSTER", "CONFIG", get ? "GET" : "SET"};
    redisReply *r = NULL;
    if (!get && (strcmp(a->arg[0], "set") != 0 || a->n_args != 3)) {
        cli_complain("write cluster config get [NAME], or cluster config set NAME VALUE");
        return CLI_EXIT_USAGE;
    }
    words[3] = get ? NULL : a->arg[1];
    words[4] = get ? NULL : a->arg[2];
    /* a question goes to the leader: a follower may not have a value yet that was just set */
    int code = ask_for(k, words, get ? 3 : 5, !get, until_ms, &r);
    if (code == 0) {
        code = get ? show_config(k, r) : report_done(k);
        freeReplyObject(r);
    }
    return code;
}

static uint64_t end_of(const struct cli_args *a)
{
    uint64_t timeout_ms = a->number[CLI_OPT_TIMEOUT];
    return fli_clock_ms() + (timeout_ms != 0 ? timeout_ms : TIMEOUT_DEFAULT_MS);
}

int cli_discover(struct cli_args *a)
{
    static char list[FL_NODES_MAX * (FL_ADDRESS_MAX + 2)];
    struct fl_member_list *members = NULL;
    int code;
    fl_client *c = cli_client_create_for(a, cli_nodes_of(a), &cli_for_changes, &code);
    int rc = code == 0 ? fl_members(c, left_ms(end_of(a)), &members) : 0;
    if (rc != 0) {
        code = cli_fail(a, rc, fl_client_error(c));
    } else if (code == 0 && list_nodes_of(a, members, false, list, sizeof list) > 0) {
        a->text[CLI_OPT_NODES] = list;
        a->given |= CLI_BIT(CLI_OPT_NODES);
    }
    fl_member_list_free(members);
    fl_close(c);
    return code;
}

int cli_ask_cluster(const struct cli_args *a, fl_client *c, const char *const *words, unsigned n,
                    bool changes, redisReply **ret, bool *ret_uncertain)
{
    struct cluster k = {.args = a, .client = c};
    int code = ask_for(&k, words, n, changes, end_of(a), ret);
    if (ret_uncertain != NULL) {
        *ret_uncertain = k.uncertain;
    }
    return code;
}

int cli_run_cluster(const struct cli_args *a, fl_client *c)
{
    struct cluster k = {.args = a, .client = c};
    uint64_t until_ms = end_of(a);
    uint64_t id;
    bool config = is_subcommand(&k, "config");
    if (!config && a->n_args > 0 && !fli_parse_u64(a->arg[0], strlen(a->arg[0]), INT64_MAX, &id)) {
        cli_complain("'%.64s' is no node's id: write a number", a->arg[0]);
        return CLI_EXIT_USAGE;
    }
    int code = is_subcommand(&k, "status") ? show_status(&k, until_ms)
               : config                    ? run_config(&k, until_ms)
                                           : change(&k, until_ms);
    fl_close(k.wider);
    return code;
}
