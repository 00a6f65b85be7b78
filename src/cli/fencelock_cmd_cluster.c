/* fencelock_cmd_cluster.c: shows and changes the members of the cluster, and the settings for all
 * nodes.
 *
 * The command asks one of the named nodes for the leader, and sends the change to that. When the
 * leader has answered, the change is in the log, and every leader from then on carries it out. The
 * command waits until it is done, and prints what it waits for. After a lost answer it sends the
 * change again, which does no harm. */
#include <inttypes.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/clock.h"
#include "cli/fencelock_common.h"
#include "client/nodes.h"
#include "link/link.h"

#define TIMEOUT_DEFAULT_MS UINT64_C(10000)
#define WAIT_DEFAULT_MS UINT64_C(120000)
#define ATTEMPT_MS UINT64_C(3000)
#define EVERY_MS 200
#define SILENCE_MS UINT64_C(2000) /* nobody waits longer without a word */
#define SAY_EVERY_MS UINT64_C(5000)
#define WORDS_MAX 8u
#define ERROR_SIZE 512u

/* The calls of one command to the leader. */
struct leader_link {
    const struct cli_args *args;
    struct fli_node nodes[FL_NODES_MAX];
    uint32_t n, next;
    struct fli_node leader; /* with has_leader: the last known leader */
    bool has_leader;
    bool uncertain; /* an earlier attempt may have made the change */
    struct fli_link_security tls;
    struct fli_link link;
    int code;
    char error[ERROR_SIZE];
    char said[ERROR_SIZE]; /* the last error that was printed while it was waited */
    char of[17];           /* replace: the incarnation that is to be replaced; "": any */
};

static bool is_error(const redisReply *r, const char *word)
{
    return r->type == REDIS_REPLY_ERROR && strncmp(r->str, word, strlen(word)) == 0;
}

/* A node that is up and hears no leader explains more than one that is down. */
static int set_error(struct leader_link *k, int code, const struct fli_node *node, const char *why)
{
    if (code == FL_ENOCONN && k->code == FL_ENOLEADER) {
        fli_link_close(&k->link);
        return k->code;
    }
    k->code = code;
    (void)snprintf(k->error, sizeof k->error, "%.128s: %.300s", node->text, why);
    fli_link_close(&k->link);
    return code;
}

/* Sends one request on the open connection, and reads its answer. */
static int exchange(struct leader_link *k, const struct fli_node *node, const char *const *words,
                    unsigned n, uint64_t until_ms, redisReply **ret)
{
    int rc = cli_exchange(&k->link, words, n, until_ms, ret);
    if (rc == 0) {
        return 0;
    }
    k->uncertain = k->uncertain || (rc != FL_ENOCONN && rc != FL_ELIMIT);
    return set_error(k, rc == FL_ELIMIT ? FL_ENOCONN : rc, node,
                     rc == FL_ELIMIT ? "too long" : k->link.error);
}

/* Asks a node that does not lead who does. */
static void learn_leader(struct leader_link *k, const struct fli_node *node, uint64_t until_ms)
{
    static const char *const words[] = {"LEADER"};
    char why[256];
    redisReply *r = NULL;
    k->has_leader = false;
    bool uncertain = k->uncertain;
    int rc = exchange(k, node, words, 1, until_ms, &r);
    k->uncertain = uncertain; /* asking for the leader has changed nothing */
    if (rc != 0) {
        return;
    }
    if (r->type == REDIS_REPLY_ARRAY && r->elements == 2 &&
        r->element[1]->type == REDIS_REPLY_STRING &&
        fli_node_parse(r->element[1]->str, r->element[1]->len, &k->leader, why, sizeof why) == 0) {
        k->has_leader = true;
    }
    freeReplyObject(r);
}

/* One attempt. 0: *ret is the answer of a leader. */
static int try_once(struct leader_link *k, const char *const *words, unsigned n, uint64_t until_ms,
                    redisReply **ret)
{
    uint64_t limit_ms = fli_clock_ms() + ATTEMPT_MS;
    bool at_leader = k->has_leader;
    const struct fli_node *node = at_leader ? &k->leader : &k->nodes[k->next];
    limit_ms = limit_ms < until_ms ? limit_ms : until_ms;
    k->next = at_leader ? k->next : (k->next + 1) % k->n;
    k->has_leader = false;
    if (fli_link_connect(&k->link, &k->tls, node->host, node->port, limit_ms) != 0) {
        return set_error(k, FL_ENOCONN, node, k->link.error);
    }
    int rc = exchange(k, node, words, n, limit_ms, ret);
    if (rc != 0) {
        return rc;
    }
    if (!is_error(*ret, "NOLEADER") && !is_error(*ret, "BUSY") && !is_error(*ret, "UNCERTAIN")) {
        k->has_leader = at_leader;
        fli_link_close(&k->link);
        return 0;
    }
    k->uncertain = k->uncertain || is_error(*ret, "UNCERTAIN");
    k->code = is_error(*ret, "NOLEADER") ? FL_ENOLEADER : FL_EBUSY;
    (void)snprintf(k->error, sizeof k->error, "%.128s: %.300s", node->text, (*ret)->str);
    if (is_error(*ret, "NOLEADER")) {
        learn_leader(k, node, limit_ms);
    }
    freeReplyObject(*ret);
    fli_link_close(&k->link);
    return k->code;
}

static void say_why_it_waits(struct leader_link *k, uint64_t *say_ms)
{
    uint64_t now_ms = fli_clock_ms();
    if (now_ms >= *say_ms && !cli_has(k->args, CLI_OPT_JSON) && strcmp(k->error, k->said) != 0) {
        (void)snprintf(k->said, sizeof k->said, "%s", k->error);
        cli_complain("waiting for a leader that takes the request: %s", k->error);
        *say_ms = now_ms + SAY_EVERY_MS;
    }
}

/* Tries until a leader answers or the time is over; then k->error is the last error. It pauses when
 * all nodes were asked, and when the node that was named as the leader does not lead: it may name
 * another one that does not, and so on. */
static int ask(struct leader_link *k, const char *const *words, unsigned n, uint64_t until_ms,
               redisReply **ret)
{
    uint64_t say_ms = fli_clock_ms() + SILENCE_MS;
    k->code = 0;
    for (unsigned i = 0;; i++) {
        bool at_leader = k->has_leader;
        if (try_once(k, words, n, until_ms, ret) == 0) {
            return 0;
        }
        if (fli_clock_ms() >= until_ms) {
            return k->code;
        }
        say_why_it_waits(k, &say_ms);
        if (at_leader || (!k->has_leader && i % k->n == k->n - 1)) {
            (void)poll(NULL, 0, EVERY_MS);
        }
    }
}

/* ---- members --------------------------------------------------------------------------------- */

struct member {
    /* version: the newest that the node knows; 0: unknown */
    uint64_t id, version, starts;
    const char *role, *state, *peer, *client; /* client: "" when unknown */
    const char *incarnation;                  /* likewise */
    bool connected;
};

static const redisReply *field(const redisReply *map, const char *name)
{
    for (size_t i = 0; i + 1 < map->elements; i += 2) {
        const redisReply *key = map->element[i];
        if (key->type == REDIS_REPLY_STRING && strcmp(key->str, name) == 0) {
            return map->element[i + 1];
        }
    }
    return NULL;
}

static const char *text_of(const redisReply *map, const char *name)
{
    const redisReply *r = field(map, name);
    return r != NULL && r->type == REDIS_REPLY_STRING ? r->str : "";
}

/* 0: it is none, or not there. */
static uint64_t number_of(const redisReply *map, const char *name)
{
    const redisReply *r = field(map, name);
    return r != NULL && r->type == REDIS_REPLY_INTEGER && r->integer > 0 ? (uint64_t)r->integer : 0;
}

static bool read_member(const redisReply *map, struct member *ret)
{
    if (map->type != REDIS_REPLY_ARRAY) {
        return false;
    }
    *ret = (struct member){.id = number_of(map, "id"),
                           .version = number_of(map, "version"),
                           .starts = number_of(map, "starts"),
                           .role = text_of(map, "role"),
                           .state = text_of(map, "state"),
                           .peer = text_of(map, "peer_address"),
                           .client = text_of(map, "client_address"),
                           .incarnation = text_of(map, "incarnation"),
                           .connected = number_of(map, "connected") == 1};
    return ret->id != 0;
}

/* Asks the nodes in turn for the leader, until one knows it. */
static void prefer_leader(struct leader_link *k, uint64_t until_ms)
{
    for (uint32_t i = 0; i < k->n && !k->has_leader; i++) {
        const struct fli_node *node = &k->nodes[k->next];
        uint64_t limit_ms = fli_clock_ms() + ATTEMPT_MS;
        limit_ms = limit_ms < until_ms ? limit_ms : until_ms;
        if (fli_link_connect(&k->link, &k->tls, node->host, node->port, limit_ms) == 0) {
            learn_leader(k, node, limit_ms);
        }
        fli_link_close(&k->link);
        k->next = k->has_leader ? k->next : (k->next + 1) % k->n;
    }
}

/* Any node would answer CLUSTER MEMBERS, and only the leader knows all. */
static int ask_members(struct leader_link *k, uint64_t until_ms, redisReply **ret)
{
    static const char *const words[] = {"CLUSTER", "MEMBERS"};
    prefer_leader(k, until_ms);
    int rc = ask(k, words, 2, until_ms, ret);
    if (rc == 0 && (*ret)->type != REDIS_REPLY_ARRAY) {
        freeReplyObject(*ret);
        k->code = FL_EPROTO;
        (void)snprintf(k->error, sizeof k->error, "the answer to CLUSTER MEMBERS makes no sense");
        return FL_EPROTO;
    }
    return rc;
}

static bool find_member(const redisReply *members, uint64_t id, struct member *ret)
{
    for (size_t i = 0; i < members->elements; i++) {
        if (read_member(members->element[i], ret) && ret->id == id) {
            return true;
        }
    }
    return false;
}

/* ---- status ---------------------------------------------------------------------------------- */

static bool is_stable(const struct member *m)
{
    return strcmp(m->state, "voter") == 0 || strcmp(m->state, "learner") == 0;
}

static void list_members(struct fli_json *json, const redisReply *members, bool colours)
{
    struct cli_list l;
    cli_list_begin(&l, json, "members");
    for (size_t i = 0; i < members->elements; i++) {
        struct member m;
        if (!read_member(members->element[i], &m)) {
            continue;
        }
        bool leads = strcmp(m.role, "leader") == 0;
        cli_list_row(&l);
        cli_list_u64(&l, "id", "ID", CLI_BOLD, m.id);
        cli_list_text(&l, "state", "STATE", is_stable(&m) ? CLI_PLAIN : CLI_YELLOW, m.state);
        cli_list_text(&l, "role", NULL, CLI_PLAIN, m.role);
        cli_list_text(&l, NULL, "ROLE", leads ? CLI_GREEN : CLI_PLAIN,
                      leads ? "leader" : "follower");
        cli_list_bool(&l, "connected", m.connected);
        cli_list_text(&l, NULL, "CONNECTED", m.connected ? CLI_PLAIN : CLI_RED,
                      m.connected ? "yes" : "no");
        cli_list_u64(&l, "knows_version", "KNOWS", CLI_PLAIN, m.version);
        cli_list_u64(&l, "starts", "STARTS", CLI_PLAIN, m.starts);
        cli_list_text(&l, "peer_address", NULL, CLI_PLAIN, m.peer);
        cli_list_text(&l, NULL, "PEER ADDRESS", CLI_PLAIN, m.peer[0] != '\0' ? m.peer : "-");
        cli_list_text(&l, "client_address", NULL, CLI_PLAIN, m.client);
        cli_list_text(&l, NULL, "CLIENT ADDRESS", CLI_PLAIN, m.client[0] != '\0' ? m.client : "-");
    }
    cli_list_end(&l, stdout, colours);
}

static void print_status(const struct cli_args *a, const redisReply *members, uint64_t version)
{
    if (!cli_has(a, CLI_OPT_JSON)) {
        list_members(NULL, members, cli_style_of(a).colours);
        printf("the cluster is at version %" PRIu64 "\n", version);
        return;
    }
    struct fli_json j = cli_json_begin();
    fli_json_u64(&j, "version", version);
    list_members(&j, members, false);
    cli_json_print(&j, stdout);
}

/* 0: unknown. */
static uint64_t ask_version(struct leader_link *k, uint64_t until_ms)
{
    static const char *const words[] = {"CLUSTER", "INFO"};
    static const char key[] = "cluster_version:";
    redisReply *r = NULL;
    uint64_t version = 0;
    if (ask(k, words, 2, until_ms, &r) != 0) {
        return 0;
    }
    const char *at = r->type == REDIS_REPLY_STRING ? strstr(r->str, key) : NULL;
    version = at == NULL ? 0 : strtoull(at + strlen(key), NULL, 10);
    freeReplyObject(r);
    return version;
}

static int show_status(struct leader_link *k, uint64_t until_ms)
{
    redisReply *members = NULL;
    int rc = ask_members(k, until_ms, &members);
    uint64_t version = rc == 0 ? ask_version(k, until_ms) : 0;
    if (rc != 0) {
        return cli_fail(k->args, rc, k->error, NULL, NULL);
    }
    bool well = true;
    for (size_t i = 0; i < members->elements; i++) {
        struct member m;
        bool read = read_member(members->element[i], &m);
        well = well && read && m.connected && is_stable(&m);
    }
    print_status(k->args, members, version);
    freeReplyObject(members);
    return well ? CLI_EXIT_DONE : CLI_EXIT_NO;
}

/* ---- changes --------------------------------------------------------------------------------- */

static bool is_subcommand(const struct leader_link *k, const char *sub)
{
    return strcmp(k->args->command->sub, sub) == 0;
}

/* Whether the change is done, by what the leader says of the member (NULL: there is none). */
static bool is_done(const struct leader_link *k, const struct member *m)
{
    const char *wanted = cli_has(k->args, CLI_OPT_LEARNER) ? "learner" : "voter";
    if (is_subcommand(k, "remove")) {
        return m == NULL;
    }
    if (m == NULL) {
        return false;
    }
    if (is_subcommand(k, "move")) {
        return strcmp(m->peer, k->args->arg[1]) == 0;
    }
    return is_subcommand(k, "add") ? strcmp(m->state, wanted) == 0 : is_stable(m);
}

/* The only node that was named may be the one that is removed: then others are asked. */
static void learn_members(struct leader_link *k, const redisReply *members)
{
    char why[256];
    for (size_t i = 0; i < members->elements && k->n < FL_NODES_MAX; i++) {
        struct member m;
        bool known = !read_member(members->element[i], &m) || m.client[0] == '\0';
        for (uint32_t j = 0; !known && j < k->n; j++) {
            known = strcmp(k->nodes[j].text, m.client) == 0;
        }
        if (!known &&
            fli_node_parse(m.client, strlen(m.client), &k->nodes[k->n], why, sizeof why) == 0) {
            k->n++;
        }
    }
}

/* Waits until the change is done. 0; FL_ETIMEOUT. */
static int wait_done(struct leader_link *k, uint64_t id, uint64_t until_ms)
{
    char printed[32] = "";
    for (;;) {
        redisReply *members = NULL;
        struct member m = {0};
        bool done = false;
        if (ask_members(k, until_ms, &members) == 0) {
            bool there = find_member(members, id, &m);
            done = is_done(k, there ? &m : NULL);
            const char *state = there ? m.state : "not a member";
            if (!done && strcmp(state, printed) != 0) {
                (void)snprintf(printed, sizeof printed, "%s", state);
                if (!cli_has(k->args, CLI_OPT_JSON)) {
                    cli_complain("node %s: %s", k->args->arg[0], state);
                }
            }
            learn_members(k, members);
            freeReplyObject(members);
        }
        if (done || fli_clock_ms() >= until_ms) {
            return done ? 0 : FL_ETIMEOUT;
        }
        (void)poll(NULL, 0, EVERY_MS);
    }
}

static int report_done(const struct leader_link *k)
{
    const struct cli_args *a = k->args;
    if (cli_has(a, CLI_OPT_JSON)) {
        struct fli_json j = cli_json_begin();
        fli_json_text(&j, "change", a->command->sub);
        if (is_subcommand(k, "config")) {
            fli_json_text(&j, "name", a->arg[1]);
            fli_json_text(&j, "value", a->arg[2]);
        } else {
            fli_json_text(&j, "node", a->n_args > 0 ? a->arg[0] : "");
        }
        fli_json_bool(&j, "done", true);
        cli_json_print(&j, stdout);
    } else {
        puts("done");
    }
    return CLI_EXIT_DONE;
}

/* Learns which incarnation of the member is to be replaced, so that the change can be sent again:
 * it never replaces the one that came in its place. */
static void learn_incarnation(struct leader_link *k, uint64_t id, uint64_t until_ms)
{
    redisReply *members = NULL;
    if (cli_has(k->args, CLI_OPT_OF)) {
        (void)snprintf(k->of, sizeof k->of, "%.16s", k->args->text[CLI_OPT_OF]);
    } else if (is_subcommand(k, "replace") && ask_members(k, until_ms, &members) == 0) {
        struct member m;
        if (find_member(members, id, &m)) {
            (void)snprintf(k->of, sizeof k->of, "%.16s", m.incarnation);
        }
        freeReplyObject(members);
    }
}

static unsigned words_of(const struct leader_link *k, const char *words[WORDS_MAX])
{
    const struct cli_args *a = k->args;
    unsigned n = 0;
    words[n++] = "CLUSTER";
    words[n++] = a->command->sub;
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
static bool is_under_way(struct leader_link *k, uint64_t id, uint64_t until_ms)
{
    char error[ERROR_SIZE];
    bool uncertain = k->uncertain;
    redisReply *members = NULL;
    struct member m;
    bool same = false;
    memcpy(error, k->error, sizeof error);
    if (ask_members(k, until_ms, &members) == 0) {
        bool there = find_member(members, id, &m);
        bool address = there && k->args->n_args == 2 && strcmp(m.peer, k->args->arg[1]) == 0;
        if (is_subcommand(k, "add")) {
            same = address && (strcmp(m.state, "joining") == 0 || is_done(k, &m));
        } else if (is_subcommand(k, "replace")) {
            same = strstr(error, "was replaced already") != NULL ||
                   (address && strcmp(m.state, "joining") == 0);
        } else if (is_subcommand(k, "remove")) {
            same = there ? strcmp(m.state, "leaving") == 0 : uncertain;
        } else {
            same = is_subcommand(k, "move") && uncertain && address;
        }
        freeReplyObject(members);
    }
    memcpy(k->error, error, sizeof error);
    k->uncertain = uncertain;
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

/* Who runs a replacement again must not replace the successor, which may be there by then. */
static int report_unanswered(struct leader_link *k, int rc)
{
    char hint[96];
    rc = rc == FL_EBUSY || !k->uncertain ? rc : FL_EUNCERTAIN;
    bool names_it = rc == FL_EUNCERTAIN && k->of[0] != '\0';
    (void)snprintf(hint, sizeof hint, "Run it again with --of %s: that does it once.", k->of);
    return names_it ? cli_fail_with(k->args, rc, k->error, hint, NULL, NULL)
                    : cli_fail(k->args, rc, k->error, NULL, NULL);
}

/* What the leader refuses, an earlier attempt may have done. Changes k->error. */
static int take_refusal(struct leader_link *k, const redisReply *r)
{
    static const char more[] =
        "; an earlier attempt, whose answer was lost, may have been carried out";
    (void)snprintf(k->error, sizeof k->error, "%.400s%s", r->str, k->uncertain ? more : "");
    return k->uncertain ? FL_EUNCERTAIN : FL_EDENIED;
}

static int change(struct leader_link *k, uint64_t until_ms)
{
    const struct cli_args *a = k->args;
    const char *words[WORDS_MAX];
    uint64_t id = a->n_args > 0 ? strtoull(a->arg[0], NULL, 10) : 0;
    learn_incarnation(k, id, until_ms);
    unsigned n = words_of(k, words);
    redisReply *r = NULL;
    int rc = ask(k, words, n, until_ms, &r);
    if (rc != 0) {
        return report_unanswered(k, rc);
    }
    rc = r->type == REDIS_REPLY_ERROR ? take_refusal(k, r) : 0;
    freeReplyObject(r);
    if (rc != 0 && !is_under_way(k, id, until_ms)) {
        return cli_fail_with(a, rc, k->error, rc == FL_EDENIED ? remedy_of_refusal(k->error) : NULL,
                             NULL, NULL);
    }
    uint64_t wait_ms = cli_has(a, CLI_OPT_WAIT) ? a->number[CLI_OPT_WAIT] : WAIT_DEFAULT_MS;
    bool waits = !is_subcommand(k, "transfer") && !is_subcommand(k, "forget") && wait_ms > 0;
    if (waits && wait_done(k, id, fli_clock_ms() + wait_ms) != 0) {
        return cli_fail_with(a, FL_ETIMEOUT,
                             "the log has the change, and it is not done yet: the leader goes on "
                             "with it; fencelock cluster status shows how far it is",
                             "--wait TIME waits for longer.", NULL, NULL);
    }
    return report_done(k);
}

/* ---- configuration --------------------------------------------------------------------------- */

static void value_text(const redisReply *value, char out[64])
{
    if (value->type == REDIS_REPLY_INTEGER) {
        (void)snprintf(out, 64, "%lld", value->integer);
    } else {
        (void)snprintf(out, 64, "%.60s", value->type == REDIS_REPLY_STRING ? value->str : "?");
    }
}

static void config_json(const redisReply *map)
{
    struct fli_json j = cli_json_begin();
    for (size_t i = 0; i + 1 < map->elements; i += 2) {
        char name[64];
        value_text(map->element[i], name);
        for (char *p = strchr(name, '-'); p != NULL; p = strchr(p, '-')) {
            *p = '_';
        }
        if (map->element[i + 1]->type == REDIS_REPLY_INTEGER) {
            fli_json_u64(&j, name, (uint64_t)map->element[i + 1]->integer);
        } else {
            fli_json_text(&j, name, map->element[i + 1]->str);
        }
    }
    cli_json_print(&j, stdout);
}

static void config_text(const struct cli_args *a, const redisReply *map)
{
    struct cli_list l;
    char name[64];
    char value[64];
    cli_list_begin(&l, NULL, NULL);
    for (size_t i = 0; i + 1 < map->elements; i += 2) {
        value_text(map->element[i], name);
        value_text(map->element[i + 1], value);
        cli_list_row(&l);
        cli_list_text(&l, NULL, "NAME", CLI_PLAIN, name);
        cli_list_text(&l, NULL, "VALUE", CLI_PLAIN, value);
    }
    cli_list_end(&l, stdout, cli_style_of(a).colours);
}

static int show_config(struct leader_link *k, const redisReply *map)
{
    const struct cli_args *a = k->args;
    const redisReply *one = a->n_args == 2 ? field(map, a->arg[1]) : NULL;
    if (a->n_args == 2 && one == NULL) {
        return cli_fail(a, FL_EINVAL,
                        "there is no such name; fencelock cluster config get lists them", NULL,
                        NULL);
    }
    if (cli_has(a, CLI_OPT_JSON)) {
        config_json(map);
    } else if (one != NULL) {
        char value[64];
        value_text(one, value);
        cli_print_safe(stdout, fl_str(value));
        putchar('\n');
    } else {
        config_text(a, map);
    }
    return CLI_EXIT_DONE;
}

/* SET may be sent again like any other change: twice has the effect of once. */
static int run_config(struct leader_link *k, uint64_t until_ms)
{
    const struct cli_args *a = k->args;
    bool get = a->n_args == 0 || (strcmp(a->arg[0], "get") == 0 && a->n_args <= 2);
    const char *words[WORDS_MAX] = {"CLUSTER", "CONFIG", get ? "GET" : "SET"};
    redisReply *r = NULL;
    if (!get && (strcmp(a->arg[0], "set") != 0 || a->n_args != 3)) {
        cli_complain("write cluster config get [NAME], or cluster config set NAME VALUE");
        return CLI_EXIT_USAGE;
    }
    if (get) { /* followers are a moment behind: a value that was just set must be seen */
        prefer_leader(k, until_ms);
    }
    words[3] = get ? NULL : a->arg[1];
    words[4] = get ? NULL : a->arg[2];
    int rc = ask(k, words, get ? 3 : 5, until_ms, &r);
    if (rc != 0) {
        return report_unanswered(k, rc);
    }
    int code;
    if (r->type == REDIS_REPLY_ERROR) {
        code = cli_fail(a, take_refusal(k, r), k->error, NULL, NULL);
    } else {
        code = get ? show_config(k, r) : report_done(k);
    }
    freeReplyObject(r);
    return code;
}

static int open_leader_link(struct leader_link *k, const struct cli_args *a)
{
    struct cli_access with;
    *k = (struct leader_link){.args = a};
    fli_link_init(&k->link);
    int code = cli_access_of(a, &with);
    if (code == 0) {
        memcpy(k->nodes, with.nodes, sizeof k->nodes);
        k->n = with.n;
        code = cli_security_of(a, &with, &k->tls);
    }
    return code;
}

static uint64_t end_of(const struct cli_args *a)
{
    uint64_t timeout_ms = a->number[CLI_OPT_TIMEOUT];
    return fli_clock_ms() + (timeout_ms != 0 ? timeout_ms : TIMEOUT_DEFAULT_MS);
}

static void close_leader_link(struct leader_link *k)
{
    fli_link_close(&k->link);
    fli_link_security_fini(&k->tls);
}

/* The members that are known by an address for clients, in place of the nodes that were named. */
static void name_members(struct cli_args *a, const redisReply *members)
{
    static char list[FL_NODES_MAX * (FL_ADDRESS_MAX + 2)];
    size_t len = 0;
    for (size_t i = 0; i < members->elements && i < FL_NODES_MAX; i++) {
        struct member m;
        if (read_member(members->element[i], &m) && m.client[0] != '\0' &&
            strlen(m.client) + 2 < sizeof list - len) {
            len += (size_t)snprintf(list + len, sizeof list - len, "%s%s", len == 0 ? "" : ",",
                                    m.client);
        }
    }
    if (len > 0) {
        a->text[CLI_OPT_NODES] = list;
        a->given |= CLI_BIT(CLI_OPT_NODES);
    }
}

int cli_discover(struct cli_args *a)
{
    static struct leader_link k; /* large */
    redisReply *members = NULL;
    int code = open_leader_link(&k, a);
    if (code == 0 && ask_members(&k, end_of(a), &members) != 0) {
        code = cli_fail(a, k.code, k.error, NULL, NULL);
    } else if (code == 0) {
        name_members(a, members);
        freeReplyObject(members);
    }
    close_leader_link(&k);
    return code;
}

int cli_ask_cluster(const struct cli_args *a, const char *const *words, unsigned n,
                    redisReply **ret, bool *ret_uncertain)
{
    static struct leader_link k; /* large */
    int code = open_leader_link(&k, a);
    int rc = code != 0 ? 0 : ask(&k, words, n, end_of(a), ret);
    if (rc != 0) {
        code = report_unanswered(&k, rc);
    } else if (code == 0 && (*ret)->type == REDIS_REPLY_ERROR) {
        code = cli_fail(a, take_refusal(&k, *ret), k.error, NULL, NULL);
        freeReplyObject(*ret);
    }
    *ret_uncertain = k.uncertain;
    close_leader_link(&k);
    return code;
}

int cli_run_cluster(const struct cli_args *a)
{
    static struct leader_link k; /* large */
    uint64_t id;
    bool config = strcmp(a->command->sub, "config") == 0;
    if (!config && a->n_args > 0 && !fli_parse_u64(a->arg[0], strlen(a->arg[0]), INT64_MAX, &id)) {
        cli_complain("'%.64s' is no node's id: write a number", a->arg[0]);
        return CLI_EXIT_USAGE;
    }
    int code = open_leader_link(&k, a);
    if (code == 0) {
        uint64_t until_ms = end_of(a);
        code = is_subcommand(&k, "status") ? show_status(&k, until_ms)
               : config                    ? run_config(&k, until_ms)
                                           : change(&k, until_ms);
    }
    close_leader_link(&k);
    return code;
}
