/* world.c: begins, passes time, and does what steps say. The world is the whole simulation of
 * tests/sim without its faults and its clients, so its oracle looks on here too. */
#include <stdlib.h>
#include <string.h>

#include "../steps.h"
#include "base/bytes.h"
#include "web.h"

#define FORM_BOUND_MS 20000u
#define SETTLE_MS 3000u /* nodes tell each other what they are */
#define FOR_EVER_MS (2u * SIM_WEB_RUN_MAX_MS)
#define READY_BOUND_MS 60000u
#define JUMP_MS 10000

struct web web;

/* ---- what the cluster does, told once, by the node that applies it first ---- */

void __real_sim_order_event(struct sim *s, const struct machine_event *e);
void __wrap_sim_order_event(struct sim *s, const struct machine_event *e);

struct web_client *web_client_of_owner(uint64_t owner)
{
    for (unsigned i = 0; i < WEB_CLIENTS; i++) {
        if (owner != 0 && web.clients[i].owner == owner) {
            return &web.clients[i];
        }
    }
    return NULL;
}

void __wrap_sim_order_event(struct sim *s, const struct machine_event *e)
{
    __real_sim_order_event(s, e);
    if (sim_lock_number(e->name) != WEB_LOCK) {
        return;
    }
    const struct web_client *w = web_client_of_owner(sim_order_owner(s, e->owner));
    if (w == NULL) {
        return;
    }
    switch (e->type) {
    case MACHINE_EVENT_GRANTED:
        web_note("granted", w->number, "The lock service grants client %u the lock: token %llu.",
                 w->number, (unsigned long long)e->token);
        break;
    case MACHINE_EVENT_QUEUED:
        web_note("queued", w->number, "The lock is held. Client %u waits in the queue.", w->number);
        break;
    case MACHINE_EVENT_EXPIRED:
        web_note("expired", w->number, "The lease of client %u is over: the lock is free.",
                 w->number);
        break;
    case MACHINE_EVENT_RELEASED:
        web_note("released", w->number, "Client %u has released the lock.", w->number);
        break;
    default:
        break;
    }
}

unsigned web_holder(void)
{
    const struct sim_lock *l = &web.s->oracle.locks[WEB_LOCK];
    const struct sim_token *t = l->holders_n == 0 ? NULL : sim_oracle_token(web.s, l->holders[0]);
    const struct web_client *w = t == NULL ? NULL : web_client_of_owner(t->owner);
    return w == NULL ? 0 : w->number;
}

/* ---- time ---- */

static uint64_t commands_of(const struct sim_node *leader)
{
    return leader->node->proposer.stats.commands;
}

/* A command that the leader was given since is in the log of a majority, and nobody was told. */
static bool is_granting(const struct sim_node *leader)
{
    uint64_t last = replica_last_index(leader->node->replica);
    if (commands_of(leader) <= web.commands_seen || last <= web.s->oracle.max_index) {
        return false;
    }
    for (unsigned i = 0; i < web.s->n; i++) {
        const struct sim_node *n = &web.s->nodes[i];
        if (n != leader && n->power == SIM_UP && n->node != NULL &&
            replica_last_index(n->node->replica) == last) {
            return true;
        }
    }
    return false;
}

static void lose_power(struct sim_node *n)
{
    web_note("down", 0, "Node %u, which leads, loses power.", n->index + 1);
    sim_node_crash(n, true);
    n->restart_at = SIM_NEVER;
}

/* After events only, so that it is the same however the time was cut into steps. */
static void watch(void)
{
    struct sim_node *leader = sim_leader(web.s);
    if (web.kill_at_grant && leader != NULL && is_granting(leader)) {
        web.kill_at_grant = false;
        web_note("granted", 0, "The grant is in the log of a majority. Nobody has been told yet.");
        lose_power(leader);
        leader = NULL;
    }
    for (unsigned i = 0; i < WEB_CLIENTS; i++) {
        const struct web_client *w = &web.clients[i];
        web_span("believes", i + 1, web_lease_left(w) > 0);
        web_span("holds", i + 1, web_holder() == i + 1);
        web_span("stopped", i + 1, w->c->paused);
    }
    unsigned leads = leader == NULL ? 0 : leader->index + 1;
    if (leads != 0 && leads != web.leader_seen) {
        web_note("leader", 0, "Node %u leads.", leads);
        web.leader_seen = leads;
    }
    web_worker_watch();
}

/* All that happens up to this time, so that it is the same however the time was cut into steps. */
static void pass(uint64_t ms, const struct web_client *until_ready)
{
    struct sim *s = web.s;
    uint64_t until = s->now + ms;
    while (sim_next_at(s) <= until) {
        if (until_ready != NULL && until_ready->phase == WEB_READY && sim_next_at(s) > s->now) {
            return;
        }
        sim_step(s);
        watch();
    }
    sim_move_on(s, until);
}

/* ---- beginning and end ---- */

static void choose(struct sim_options *o)
{
    *o = (struct sim_options){.nodes = 3,
                              .redis = WEB_REDIS,
                              .delay_ms = 40,
                              .delay_spread_ms = 40,
                              .disk_ms = 5,
                              .disk_spread_ms = 5,
                              .heartbeat_ms = 150,
                              .election_ms = 1500,
                              .hold_ms = 30000,
                              .ttl_max_ms = WEB_TTL_MS,
                              .pending_max = NODE_PENDING_MAX,
                              .snapshot_bytes = NODE_SNAPSHOT_BYTES,
                              .segment_bytes = (uint64_t)LOG_SEGMENT_MIN << 2,
                              .limits = MACHINE_LIMITS_DEFAULT,
                              .slack_ms = DISPATCH_SLACK_DEFAULT_MS};
}

static bool formed(struct sim *s)
{
    const struct sim_node *leader = sim_leader(s);
    return leader != NULL && machine_cluster_id(fsm_machine(leader->node->fsm)) != 0 &&
           sim_converged(s);
}

void sim_web_begin(uint64_t seed)
{
    sim_web_end();
    struct sim *s = fli_xcalloc(1, sizeof *s);
    web.s = s;
    web.seed = seed;
    web.check = web.claim = true;
    web.storage.value = 100;
    s->orders.seed = seed;
    s->marks = &web.marks;
    sim_event_queue_init(s);
    choose(&s->options);
    s->random.state = seed * UINT64_C(0x2545f4914f6cdd1d) + 1;
    s->node_random.state = seed * UINT64_C(0x2545f4914f6cdd1d) + 2;
    sim_oracle_init(s);
    sim_steps_init(s);
    sim_redis_init(s);
    sim_store_init(s);
    s->redis_setup = SIM_REDIS_FIT;
    s->redis_durable = false;
    s->healed = true; /* no faults but those that steps ask for */
    web_workers_init();
    sim_nodes_init(s);
    while (!formed(s)) {
        sim_step(s);
        SIM_CHECK(s, s->now < FORM_BOUND_MS, "the cluster does not form");
    }
    pass(SETTLE_MS, NULL);
    SIM_CHECK(s, formed(s), "the cluster does not come to rest");
    web.notes_n = web.spans_n = 0;
    web.begun_at = s->now;
}

void sim_web_end(void)
{
    struct sim *s = web.s;
    fli_buf_fini(&web.json);
    if (s != NULL) {
        web_storage_fini();
        sim_nodes_fini(s);
        sim_event_queue_fini(s);
        sim_net_fini(s);
        sim_oracle_fini(s);
        sim_steps_fini(s);
        free(s);
    }
    memset(&web, 0, sizeof web);
}

/* ---- steps: true, or it is not possible now ---- */

static bool do_go(unsigned i)
{
    return web_worker_begin(&web.clients[i - 1]);
}

static bool do_pause(unsigned i)
{
    struct web_client *w = &web.clients[i - 1];
    if (w->c->paused) {
        return false;
    }
    web_note("pause", i, "Client %u's process is stopped, as by garbage collection.", i);
    sim_client_pause(w->c, FOR_EVER_MS);
    return true;
}

static bool do_wake(unsigned i)
{
    struct web_client *w = &web.clients[i - 1];
    if (!w->c->paused) {
        return false;
    }
    web_note("wake", i, "Client %u's process goes on where it was. It noticed nothing.", i);
    sim_client_resume(w->c);
    return true;
}

static bool do_ready(unsigned i)
{
    struct web_client *w = &web.clients[i - 1];
    bool on_its_way = w->phase >= WEB_ASKS && w->phase <= WEB_COMPUTES;
    if (!on_its_way || web_now() + READY_BOUND_MS > SIM_WEB_RUN_MAX_MS) {
        return false;
    }
    pass(READY_BOUND_MS, w);
    return true;
}

static bool do_silent(unsigned i)
{
    struct web_client *w = &web.clients[i - 1];
    if (!w->c->holding || w->redlock || w->silent) {
        return false;
    }
    w->silent = true;
    web_note("step", i, "Client %u's renewals are lost from now on.", i);
    return true;
}

static bool do_hold(unsigned i)
{
    struct web_client *w = &web.clients[i - 1];
    if (w->holds_back || web.storage.held[i - 1] != NULL) {
        return false;
    }
    w->holds_back = true;
    web_note("step", i, "The network will hold back client %u's next write.", i);
    return true;
}

static bool do_late(unsigned i)
{
    return web_storage_late(&web.clients[i - 1]);
}

static bool do_kill(unsigned none)
{
    struct sim_node *leader = sim_leader(web.s);
    (void)none;
    if (leader == NULL) {
        return false;
    }
    lose_power(leader);
    return true;
}

static bool do_kill_at_grant(unsigned none)
{
    const struct sim_node *leader = sim_leader(web.s);
    (void)none;
    if (web.kill_at_grant || leader == NULL) {
        return false;
    }
    web.kill_at_grant = true;
    web.commands_seen = commands_of(leader);
    web_note("step", 0, "The leader will lose power in the middle of the next grant.");
    return true;
}

static bool do_start(unsigned none)
{
    bool any = false;
    (void)none;
    for (unsigned i = 0; i < web.s->n; i++) {
        if (web.s->nodes[i].power == SIM_DOWN) {
            web_note("up", 0, "Node %u starts again, with its disk.", i + 1);
            sim_node_start(&web.s->nodes[i]);
            any = true;
        }
    }
    return any;
}

static bool do_part(unsigned node)
{
    struct sim *s = web.s;
    for (unsigned i = 0; i < s->n; i++) {
        if (i != node - 1) {
            s->links[i][node - 1].cut_until = s->links[node - 1][i].cut_until = SIM_NEVER;
        }
    }
    web_note("cut", 0, "Node %u is cut off from the other nodes.", node);
    return true;
}

static bool do_cut(unsigned both)
{
    struct web_client *w = &web.clients[both / 10 - 1];
    unsigned server = both % 10 - 1;
    if ((w->cut >> server & 1) != 0) {
        return false;
    }
    w->cut |= 1u << server;
    web_note("cut", w->number, "Client %u cannot reach Redis server %c.", w->number,
             (char)('A' + server));
    return true;
}

static bool do_join(unsigned none)
{
    (void)none;
    memset(web.s->links, 0, sizeof web.s->links);
    web.clients[0].cut = web.clients[1].cut = 0;
    web_note("joined", 0, "All links work again.");
    return true;
}

static bool do_jump(unsigned server)
{
    web_note("jump", 0, "The clock of Redis server %c jumps ahead by %d seconds.",
             (char)('A' + server - 1), JUMP_MS / 1000);
    sim_redis_jump(web.s, server - 1, JUMP_MS);
    return true;
}

static bool do_restart(unsigned server)
{
    web_note("restart", 0, "Redis server %c starts again, and its keys are gone.",
             (char)('A' + server - 1));
    sim_redis_restart(web.s, server - 1, 0);
    return true;
}

static bool turn(bool *what, unsigned on, const char *yes, const char *no)
{
    if (*what == (on != 0)) {
        return false;
    }
    *what = on != 0;
    web_note("switch", 0, "%s", on != 0 ? yes : no);
    return true;
}

static bool do_check(unsigned on)
{
    return turn(&web.check, on, "The storage checks tokens.", "The storage checks no tokens.");
}

static bool do_claim(unsigned on)
{
    return turn(&web.claim, on, "A reader shows its token, which is a claim.",
                "A reader shows no token; only writes do.");
}

static bool do_redlock(unsigned on)
{
    return turn(&web.redlock, on, "Clients that begin now take the lock by Redlock.",
                "Clients that begin now take the lock of the lock service.");
}

static bool do_wait(unsigned on)
{
    return turn(&web.wait, on, "Clients count a server that has restarted only after a lease.",
                "Clients count a server that has restarted at once.");
}

/* ---- words ---- */

static const struct deed {
    const char *word;
    const char *numbers; /* the first and last number of each digit; "": no digits */
    bool (*act)(unsigned number);
} deeds[] = {
    {"go", "12", do_go},       {"pause", "12", do_pause},   {"wake", "12", do_wake},
    {"ready", "12", do_ready}, {"silent", "12", do_silent}, {"hold", "12", do_hold},
    {"late", "12", do_late},   {"kill", "", do_kill},       {"killgrant", "", do_kill_at_grant},
    {"start", "", do_start},   {"part", "13", do_part},     {"cut", "1215", do_cut},
    {"join", "", do_join},     {"jump", "15", do_jump},     {"restart", "15", do_restart},
    {"check", "01", do_check}, {"claim", "01", do_claim},   {"redlock", "01", do_redlock},
    {"wait", "01", do_wait},
};

/* The number behind the word of this deed; -1: these are not its digits. */
static int number_of(const struct deed *d, const char *digits)
{
    int number = 0;
    size_t len = strlen(d->numbers) / 2;
    if (strlen(digits) != len) {
        return -1;
    }
    for (size_t i = 0; i < len; i++) {
        if (digits[i] < d->numbers[2 * i] || digits[i] > d->numbers[2 * i + 1]) {
            return -1;
        }
        number = number * 10 + (digits[i] - '0');
    }
    return number;
}

static int do_deed(const char *word)
{
    size_t letters = strspn(word, "abcdefghijklmnopqrstuvwxyz");
    for (size_t i = 0; i < sizeof deeds / sizeof deeds[0]; i++) {
        const struct deed *d = &deeds[i];
        if (strlen(d->word) != letters || strncmp(d->word, word, letters) != 0) {
            continue;
        }
        int number = number_of(d, word + letters);
        return number >= 0 && d->act((unsigned)number) ? 0 : -1;
    }
    return -1;
}

/* Time behind time is one step. */
static bool add_time(const char *word)
{
    struct web_step *last = web.steps_n == 0 ? NULL : &web.steps[web.steps_n - 1];
    uint64_t before;
    uint64_t more;
    if (last == NULL || !fli_parse_u64(word, strlen(word), SIM_WEB_STEP_MAX_MS, &more) ||
        !fli_parse_u64(last->word, strlen(last->word), SIM_WEB_STEP_MAX_MS, &before) ||
        before + more > SIM_WEB_STEP_MAX_MS) {
        return false;
    }
    snprintf(last->word, sizeof last->word, "%llu", (unsigned long long)(before + more));
    return true;
}

static void remember(uint64_t at, const char *word)
{
    if (add_time(word)) {
        return;
    }
    struct web_step *step = &web.steps[web.steps_n++];
    step->at = at;
    snprintf(step->word, sizeof step->word, "%s", word);
}

static int step_time(const char *word)
{
    uint64_t ms;
    if (!fli_parse_u64(word, strlen(word), SIM_WEB_STEP_MAX_MS, &ms) || ms == 0 ||
        web_now() + ms > SIM_WEB_RUN_MAX_MS) {
        return -1;
    }
    remember(web_now(), word);
    pass(ms, NULL);
    return 0;
}

int sim_web_step(const char *word)
{
    uint64_t at;
    if (web.s == NULL || web_full() || web.steps_n == WEB_STEPS_MAX || strlen(word) > 15) {
        return -1;
    }
    if (word[0] >= '0' && word[0] <= '9') {
        return step_time(word);
    }
    at = web_now();
    if (do_deed(word) != 0) {
        return -1;
    }
    remember(at, word);
    watch();
    return 0;
}

int sim_web_open(const char *address)
{
    char text[SIM_WEB_ADDRESS_MAX + 1];
    char *rest = NULL;
    uint64_t seed;
    size_t len = strlen(address);
    if (len > SIM_WEB_ADDRESS_MAX) {
        return -1;
    }
    memcpy(text, address, len + 1);
    const char *word = strtok_r(text, ".", &rest);
    if (word == NULL || !fli_parse_u64(word, strlen(word), UINT32_MAX, &seed)) {
        return -1;
    }
    sim_web_begin(seed);
    while ((word = strtok_r(NULL, ".", &rest)) != NULL) {
        if (sim_web_step(word) != 0) {
            return -1;
        }
    }
    return 0;
}

/* ---- presets ---- */

#define BOTH_CUT ".cut14.cut15.cut21.cut22"

static const struct {
    const char *name, *address;
} presets[] = {
    {"pause", "1.claim0.go1.ready1.pause1.500.go2.16000.wake1.1200"},
    {"unchecked", "1.check0.go1.ready1.pause1.500.go2.16000.wake1.1200"},
    {"unclaimed", "1.claim0.go1.ready1.pause1.500.go2.ready2.wake1.2200"},
    {"claimed", "1.go1.ready1.pause1.500.go2.ready2.wake1.2200"},
    {"jump", "1.redlock1.check0" BOTH_CUT ".go1.1200.jump3.go2.4800"},
    {"jumptoken", "1.redlock1" BOTH_CUT ".go1.1200.jump3.go2.4800"},
    {"restart", "1.redlock1.check0" BOTH_CUT ".go1.1200.restart3.go2.4800"},
    {"grant", "1.killgrant.go1.7000.start.2000"},
};
#define PRESETS (sizeof presets / sizeof presets[0])

const char *sim_web_preset_name(unsigned i)
{
    return i < PRESETS ? presets[i].name : NULL;
}

const char *sim_web_preset_address(unsigned i)
{
    return i < PRESETS ? presets[i].address : NULL;
}
