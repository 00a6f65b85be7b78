/* main.c: the same simulation without a browser.
 *
 *   sim_web ADDRESS       prints the state behind this address, as the page gets it
 *   sim_web --presets     the presets of the page, with their addresses
 *   sim_web --test        plays each preset and judges how it ends
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "web.h"

static unsigned failures;

static void check(bool ok, const char *what, const char *where)
{
    if (!ok) {
        fprintf(stderr, "sim_web: %s: not so: %s\n", where, what);
        failures++;
    }
}
#define CHECK(cond, where) check(cond, #cond, where)

static char *copy_state(void)
{
    char *copy = strdup(sim_web_state());
    FLI_ASSERT(copy != NULL);
    return copy;
}

static unsigned lost(void)
{
    unsigned n = 0;
    for (unsigned i = 0; i < web.storage.writes_n; i++) {
        n += web.storage.writes[i].lost;
    }
    return n;
}

static unsigned noted(const char *kind)
{
    unsigned n = 0;
    for (unsigned i = 0; i < web.notes_n; i++) {
        n += strcmp(web.notes[i].kind, kind) == 0;
    }
    return n;
}

/* ---- how each preset must end ---- */

struct ending {
    const char *name;
    uint64_t value;
    unsigned lost, refused;
    enum web_outcome first, second;
};

static const struct ending endings[] = {
    {"pause", 120, 0, 1, WEB_REFUSED, WEB_WRITTEN},
    {"unchecked", 110, 1, 0, WEB_WRITTEN, WEB_WRITTEN},
    {"unclaimed", 120, 1, 0, WEB_WRITTEN, WEB_WRITTEN},
    {"claimed", 120, 0, 1, WEB_REFUSED, WEB_WRITTEN},
    {"jump", 120, 1, 0, WEB_WRITTEN, WEB_WRITTEN},
    {"jumptoken", 120, 0, 1, WEB_REFUSED, WEB_WRITTEN},
    {"restart", 120, 1, 0, WEB_WRITTEN, WEB_WRITTEN},
    {"grant", 110, 0, 0, WEB_WRITTEN, WEB_NONE},
};

#define ENDINGS (unsigned)(sizeof endings / sizeof endings[0])

static void judge(const struct ending *e)
{
    CHECK(web.storage.value == e->value, e->name);
    CHECK(lost() == e->lost, e->name);
    CHECK(noted("lost") == e->lost, e->name);
    CHECK(noted("refused") == e->refused, e->name);
    CHECK(web.clients[0].outcome == e->first, e->name);
    CHECK(web.clients[1].outcome == e->second, e->name);
    if (strcmp(e->name, "grant") == 0) {
        CHECK(noted("unknown") == 1, e->name);
        CHECK(web.s->oracle.token_max == 1, e->name);
    }
}

/* ---- an address is a state ---- */

static void same_twice(const char *name, const char *address)
{
    CHECK(sim_web_open(address) == 0, name);
    char *first = copy_state();
    CHECK(sim_web_open(address) == 0, name);
    CHECK(strcmp(first, sim_web_state()) == 0, name);
    free(first);
}

/* Each step that passes time, as two. */
static void same_in_pieces(const char *name, const char *address)
{
    char pieces[SIM_WEB_ADDRESS_MAX + 1] = "";
    char text[SIM_WEB_ADDRESS_MAX + 1];
    char *rest = NULL;
    CHECK(sim_web_open(address) == 0, name);
    char *whole = copy_state();
    snprintf(text, sizeof text, "%s", address);
    for (char *w = strtok_r(text, ".", &rest); w != NULL; w = strtok_r(NULL, ".", &rest)) {
        size_t len = strlen(pieces);
        unsigned long ms = strtoul(w, NULL, 10);
        if (len > 0 && ms > 7) {
            snprintf(pieces + len, sizeof pieces - len, ".7.%lu", ms - 7);
        } else {
            snprintf(pieces + len, sizeof pieces - len, "%s%s", len > 0 ? "." : "", w);
        }
    }
    CHECK(sim_web_open(pieces) == 0, pieces);
    char *in_pieces = copy_state();
    CHECK(strcmp(whole, in_pieces) == 0, name);
    free(whole);
    free(in_pieces);
}

static void play(void)
{
    for (unsigned i = 0; i < ENDINGS; i++) {
        const char *name = sim_web_preset_name(i);
        const char *address = sim_web_preset_address(i);
        CHECK(name != NULL && strcmp(name, endings[i].name) == 0, endings[i].name);
        CHECK(sim_web_open(address) == 0, name);
        judge(&endings[i]);
        same_twice(name, address);
        same_in_pieces(name, address);
    }
    CHECK(sim_web_preset_name(ENDINGS) == NULL && sim_web_preset_address(ENDINGS) == NULL, "end");
}

/* With other seeds messages take other times, and the presets end alike. */
static void play_other_seeds(void)
{
    char address[SIM_WEB_ADDRESS_MAX + 1];
    for (unsigned seed = 2; seed <= 20; seed++) {
        for (unsigned i = 0; i < ENDINGS; i++) {
            snprintf(address, sizeof address, "%u%s", seed, sim_web_preset_address(i) + 1);
            CHECK(sim_web_open(address) == 0, address);
            unsigned before = failures;
            judge(&endings[i]);
            if (failures != before) {
                fprintf(stderr, "sim_web: with %s\n", address);
            }
        }
    }
}

/* ---- what the reader may do besides ---- */

static void try_the_rest(void)
{
    /* Its renewals are lost: the lease ends, it finds out and gives up. */
    CHECK(sim_web_open("1.go1.1000.silent1.pause1.15000.wake1.1000") == 0, "silent");
    CHECK(web.clients[0].outcome == WEB_GAVE_UP && web.storage.value == 100, "silent");
    /* A write that the network holds back, until the next holder has claimed. */
    CHECK(sim_web_open("1.hold1.go1.5000.silent1.go2.20000.late1.1000") == 0, "hold");
    CHECK(web.clients[0].outcome == WEB_REFUSED && web.storage.value == 120, "hold");
    CHECK(sim_web_open("1.check0.hold1.go1.5000.silent1.go2.20000.late1.1000") == 0, "hold");
    CHECK(lost() == 1 && web.storage.value == 110, "hold");
    /* The leader fails, and is cut off. */
    CHECK(sim_web_open("1.go1.1000.kill.10000.start.3000.part1.8000.join.3000.go2.8000") == 0,
          "kill");
    CHECK(web.storage.value == 130 && lost() == 0, "kill");
    /* Clients that wait until a restarted server counts do not hold it twice. */
    CHECK(sim_web_open("1.redlock1.check0.wait1.cut14.cut15.cut21.cut22.go1.1200.restart3.go2."
                       "25000") == 0,
          "wait");
    CHECK(lost() == 0 && web.storage.value == 130, "wait");
}

static void refuse(const char *before, const char *word)
{
    CHECK(sim_web_open(before) == 0, before);
    char *state = copy_state();
    CHECK(sim_web_step(word) == -1, word);
    CHECK(strcmp(state, sim_web_state()) == 0, word);
    free(state);
}

static void refuse_the_wrong(void)
{
    static const char *const addresses[] = {"", "x", "1..x", "1.go3", "4294967296", "-1"};
    static const char *const words[] = {"",
                                        "0",
                                        "go",
                                        "go0",
                                        "go3",
                                        "go11",
                                        "cut16",
                                        "cut31",
                                        "part4",
                                        "jump6",
                                        "kill1",
                                        "120001",
                                        "1x",
                                        "check2",
                                        "wake1",
                                        "late1",
                                        "start",
                                        "ready1",
                                        "gogogogogogogogogogogogogogogogo"};
    for (size_t i = 0; i < sizeof addresses / sizeof addresses[0]; i++) {
        CHECK(sim_web_open(addresses[i]) == -1, addresses[i]);
    }
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        refuse("1", words[i]);
    }
    refuse("1.go1", "go1");
    refuse("1.pause1", "pause1");
    CHECK(sim_web_open("4294967295.120000.120000.120000.120000.120000") == 0, "limits");
    CHECK(sim_web_step("1") == -1, "limits");
}

/* As many steps as one likes: in the end they are refused, and the state can still be read. */
static void fill(void)
{
    unsigned steps = 0;
    sim_web_begin(1);
    while (sim_web_step(steps % 2 == 0 ? "check0" : "check1") == 0) {
        steps++;
    }
    CHECK(steps == WEB_STEPS_MAX, "steps");
    sim_web_begin(1);
    for (steps = 0; steps < 3 * WEB_STEPS_MAX; steps++) {
        CHECK(sim_web_step("10") == 0, "times");
    }
    CHECK(web.steps_n == 1, "times");
    CHECK(strstr(sim_web_state(), "\"trace\"") != NULL, "steps");
}

static int test(void)
{
    play();
    play_other_seeds();
    try_the_rest();
    refuse_the_wrong();
    fill();
    sim_web_end();
    printf("%s\n", failures == 0 ? "passed" : "failed");
    return failures == 0 ? 0 : 1;
}

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "--test") == 0) {
        return test();
    }
    if (argc == 2 && strcmp(argv[1], "--presets") == 0) {
        for (unsigned i = 0; sim_web_preset_name(i) != NULL; i++) {
            printf("%s %s\n", sim_web_preset_name(i), sim_web_preset_address(i));
        }
        return 0;
    }
    if (argc != 2 || argv[1][0] == '-') {
        fprintf(stderr, "usage: %s ADDRESS | --presets | --test\n", argv[0]);
        return 2;
    }
    if (sim_web_open(argv[1]) != 0) {
        fprintf(stderr, "sim_web: this is no address of a state: %s\n", argv[1]);
        return 2;
    }
    printf("%s\n", sim_web_state());
    sim_web_end();
    return 0;
}
