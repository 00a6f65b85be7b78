/* demo_report.c: what happened, as tables, JSON and sentences. */
#include <inttypes.h>
#include <string.h>

#include "cli/demo.h"

void demo_totals_add(struct demo_totals *t, const struct demo_result *r)
{
    t->runs++;
    t->runs_lost += r->lost > 0 ? 1 : 0;
    t->runs_two += r->two_at_once > 0 ? 1 : 0;
    t->acknowledged += r->acknowledged;
    t->counter += r->counter;
    t->lost += r->lost;
    t->unknown += r->unknown;
    t->two_at_once += r->two_at_once;
    t->refused += r->refused;
    t->grants += r->grants;
}

const char *demo_mode_word(enum demo_mode mode)
{
    static const char *const words[] = {"off", "writes", "on"};
    FLI_ASSERT(mode < DEMO_MODES);
    return words[mode];
}

static const char *mode_text(enum demo_mode mode)
{
    static const char *const texts[] = {"without tokens", "tokens on writes alone", "with tokens"};
    return texts[mode];
}

/* ---- tables ---------------------------------------------------------------------------------- */

static void writer_cell(struct cli_table *t, unsigned w)
{
    char text[32];
    snprintf(text, sizeof text, "writer %u", w + 1);
    cli_table_text(t, CLI_PLAIN, text);
}

void demo_show_run(const struct demo_result *r, bool colours)
{
    static const struct cli_column columns[] = {
        {"FAULT", false},       {"HOLDER", false},      {"NEXT HOLDER", false},
        {"TWO AT ONCE", false}, {"LATE WRITE", false},  {"ACKNOWLEDGED", true},
        {"COUNTER", true},      {"LOST UPDATES", true},
    };
    struct cli_table t;
    cli_table_init(&t, columns, sizeof columns / sizeof columns[0]);
    uint64_t acknowledged = 0;
    for (unsigned i = 0; i < r->plan.rounds; i++) {
        const struct demo_round *d = &r->plan.round[i];
        const struct demo_round_result *x = &r->round[i];
        acknowledged += x->acknowledged;
        cli_table_text(&t, CLI_PLAIN, demo_fault_text(d->fault));
        writer_cell(&t, d->first);
        writer_cell(&t, d->next);
        cli_table_text(&t, x->two_at_once ? CLI_YELLOW : CLI_PLAIN,
                       !x->two_at_once ? "no"
                       : x->both_valid ? "yes, both in time"
                                       : "yes");
        cli_table_text(&t, x->refused ? CLI_GREEN : CLI_RED, x->refused ? "refused" : "accepted");
        cli_table_u64(&t, CLI_PLAIN, acknowledged);
        cli_table_u64(&t, CLI_BOLD, x->counter);
        cli_table_u64(&t, x->lost > 0 ? CLI_RED : CLI_GREEN, x->lost);
    }
    printf("%sseed %" PRIu64 ", %s%s: %u writers, %u grants, %" PRIu64 " ms\n",
           cli_colour_on(CLI_BOLD, colours), r->plan.seed, mode_text(r->mode),
           cli_colour_off(CLI_BOLD, colours), r->plan.writers, r->grants, r->elapsed_ms);
    cli_table_print(&t, stdout, colours);
    cli_table_fini(&t);
    putchar('\n');
}

void demo_show_totals(const struct demo_totals totals[DEMO_MODES], const bool wanted[DEMO_MODES],
                      bool colours)
{
    static const struct cli_column columns[] = {
        {"TOKENS", false},     {"RUNS", true},           {"GRANTS", true},
        {"TWO AT ONCE", true}, {"WRITES REFUSED", true}, {"ACKNOWLEDGED", true},
        {"COUNTER", true},     {"LOST UPDATES", true},   {"RUNS WITH LOSS", true},
    };
    struct cli_table t;
    cli_table_init(&t, columns, sizeof columns / sizeof columns[0]);
    for (unsigned i = 0; i < DEMO_MODES; i++) {
        const struct demo_totals *x = &totals[i];
        enum cli_colour colour = x->lost > 0 ? CLI_RED : CLI_GREEN;
        if (!wanted[i]) {
            continue;
        }
        cli_table_text(&t, CLI_BOLD, demo_mode_word((enum demo_mode)i));
        cli_table_u64(&t, CLI_PLAIN, x->runs);
        cli_table_u64(&t, CLI_PLAIN, x->grants);
        cli_table_u64(&t, CLI_PLAIN, x->two_at_once);
        cli_table_u64(&t, CLI_PLAIN, x->refused);
        cli_table_u64(&t, CLI_PLAIN, x->acknowledged);
        cli_table_u64(&t, CLI_PLAIN, x->counter);
        cli_table_u64(&t, colour, x->lost);
        cli_table_u64(&t, colour, x->runs_lost);
    }
    cli_table_print(&t, stdout, colours);
    cli_table_fini(&t);
}

/* ---- JSON ------------------------------------------------------------------------------------ */

static void json_round(struct cli_json *j, const struct demo_round *d,
                       const struct demo_round_result *x)
{
    cli_json_object(j, NULL);
    cli_json_text(j, "fault", demo_fault_word(d->fault));
    cli_json_u64(j, "holder", d->first + 1);
    cli_json_u64(j, "next", d->next + 1);
    cli_json_bool(j, "late_write_first", d->late_write_first);
    cli_json_bool(j, "two_at_once", x->two_at_once);
    cli_json_bool(j, "both_valid", x->both_valid);
    cli_json_bool(j, "late_write_refused", x->refused);
    cli_json_u64(j, "acknowledged", x->acknowledged);
    cli_json_u64(j, "counter", x->counter);
    cli_json_u64(j, "lost", x->lost);
    cli_json_end_object(j);
}

void demo_json_run(struct cli_json *j, const struct demo_result *r)
{
    cli_json_object(j, NULL);
    cli_json_u64(j, "seed", r->plan.seed);
    cli_json_text(j, "tokens", demo_mode_word(r->mode));
    cli_json_u64(j, "writers", r->plan.writers);
    cli_json_u64(j, "grants", r->grants);
    cli_json_u64(j, "two_at_once", r->two_at_once);
    cli_json_u64(j, "refused", r->refused);
    cli_json_u64(j, "acknowledged", r->acknowledged);
    cli_json_u64(j, "unknown", r->unknown);
    cli_json_u64(j, "counter", r->counter);
    cli_json_u64(j, "lost", r->lost);
    cli_json_u64(j, "retries", r->retries);
    cli_json_u64(j, "elapsed_ms", r->elapsed_ms);
    cli_json_array(j, "rounds");
    for (unsigned i = 0; i < r->plan.rounds; i++) {
        json_round(j, &r->plan.round[i], &r->round[i]);
    }
    cli_json_end_array(j);
    cli_json_end_object(j);
}

void demo_json_totals(struct cli_json *j, const char *key, const struct demo_totals *t)
{
    cli_json_object(j, key);
    cli_json_u64(j, "runs", t->runs);
    cli_json_u64(j, "runs_with_loss", t->runs_lost);
    cli_json_u64(j, "runs_with_two_at_once", t->runs_two);
    cli_json_u64(j, "grants", t->grants);
    cli_json_u64(j, "two_at_once", t->two_at_once);
    cli_json_u64(j, "refused", t->refused);
    cli_json_u64(j, "acknowledged", t->acknowledged);
    cli_json_u64(j, "unknown", t->unknown);
    cli_json_u64(j, "counter", t->counter);
    cli_json_u64(j, "lost", t->lost);
    cli_json_end_object(j);
}

/* ---- sentences ------------------------------------------------------------------------------- */

void demo_event_text(const struct demo_result *r, const struct demo_event *e, char *out,
                     size_t size)
{
    unsigned who = e->who + 1;
    switch (e->kind) {
    case DEMO_EV_ADDED:
        snprintf(out, size, "all writers in turn: %" PRIu64 " updates", e->number);
        break;
    case DEMO_EV_ACQUIRED:
        if (r->mode != DEMO_OFF) {
            snprintf(out, size, "writer %u has the lock, token %" PRIu64, who, e->number);
        } else {
            snprintf(out, size, "writer %u has the lock", who);
        }
        break;
    case DEMO_EV_READ:
        snprintf(out, size, "writer %u %s %" PRIu64, who,
                 r->mode == DEMO_ON ? "claims, reads" : "reads", e->number);
        break;
    case DEMO_EV_STOPPED:
        snprintf(out, size, "writer %u is stopped (SIGSTOP)", who);
        break;
    case DEMO_EV_CONTINUED:
        snprintf(out, size, "writer %u goes on", who);
        break;
    case DEMO_EV_HELD_BACK:
        snprintf(out, size, "writer %u writes: held back on its way", who);
        break;
    case DEMO_EV_LET_GO:
        snprintf(out, size, "the write of writer %u goes on its way", who);
        break;
    case DEMO_EV_DOWN:
        snprintf(out, size, "Redis %u is down", who);
        break;
    case DEMO_EV_UP:
        snprintf(out, size, "Redis %u is up, without keys", who);
        break;
    case DEMO_EV_FORGETS:
        snprintf(out, size, "Redis %u is killed and restarted", who);
        break;
    case DEMO_EV_JUMPS:
        snprintf(out, size, "the clock of Redis %u jumps by %" PRIu64 " s", who, e->number);
        break;
    case DEMO_EV_WRITTEN:
        snprintf(out, size, "writer %u writes %" PRIu64 ": accepted", who, e->number);
        break;
    case DEMO_EV_REFUSED:
        snprintf(out, size, "writer %u writes: refused, the mark is %" PRIu64, who, e->more);
        break;
    case DEMO_EV_AGAIN:
        snprintf(out, size, "writer %u starts anew, and is accepted", who);
        break;
    case DEMO_EV_RESULT:
        snprintf(out, size, "%" PRIu64 " acknowledged, counter %" PRIu64, e->more, e->number);
        break;
    }
}
