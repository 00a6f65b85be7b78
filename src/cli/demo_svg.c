/* demo_svg.c: the picture of a run: for each mode a column of lanes, one for each writer, with time
 * running down (a row for each event, so waiting is shortened), and a sentence beside each event.
 * Two columns of one seed show the same rounds beside each other. */
#include <inttypes.h>
#include <string.h>

#include "cli/demo.h"

#define PANEL_WIDTH 560u
#define MARGIN 24u
#define TOP 150u
#define ROW 22u
#define ROUND_HEAD 44u
#define LANES_LEFT 64u
#define LANE 26u
#define TEXT_LEFT (LANES_LEFT + DEMO_WRITERS_MAX * LANE + 10u)

#define INK "#1f2933"
#define FAINT "#66727f"
#define GRID "#d5dbe1"
#define RED "#c81e1e"
#define GREEN "#18794e"

static const char *const colours[DEMO_WRITERS_MAX] = {"#1d5fbf", "#b4570a", "#5b4b8a", "#0f766e",
                                                      "#9d2463"};

struct panel {
    FILE *f;
    const struct demo_result *r;
    unsigned x;
    const unsigned *round_y; /* where each round begins; the same in both panels */
    unsigned y[DEMO_EVENTS_MAX];
};

/* None of our texts has characters that XML minds. */
static void text(const struct panel *p, unsigned x, unsigned y, const char *style, const char *s)
{
    fprintf(p->f, "<text x=\"%u\" y=\"%u\" %s>%s</text>\n", p->x + x, y, style, s);
}

static unsigned events_of_round(const struct demo_result *r, unsigned round)
{
    unsigned n = 0;
    for (unsigned i = 0; r != NULL && i < r->events; i++) {
        n += r->event[i].round == round ? 1 : 0;
    }
    return n;
}

static void place(struct panel *p)
{
    unsigned row = 0;
    unsigned round = 0;
    for (unsigned i = 0; i < p->r->events; i++) {
        const struct demo_event *e = &p->r->event[i];
        row = e->round == round ? row + 1 : 1;
        round = e->round;
        p->y[i] = p->round_y[e->round] + ROUND_HEAD + (row - 1) * ROW;
    }
}

/* The event with which a hold that began at `from` is over for its holder. */
static unsigned end_of_hold(const struct demo_result *r, unsigned from)
{
    for (unsigned i = from + 1; i < r->events; i++) {
        const struct demo_event *e = &r->event[i];
        bool ends =
            e->kind == DEMO_EV_WRITTEN || e->kind == DEMO_EV_REFUSED || e->kind == DEMO_EV_ACQUIRED;
        if (e->round != r->event[from].round || (ends && e->who == r->event[from].who)) {
            return i;
        }
    }
    return r->events - 1;
}

static unsigned find_after(const struct demo_result *r, unsigned from, enum demo_event_kind kind,
                           unsigned who)
{
    for (unsigned i = from + 1; i < r->events; i++) {
        if (r->event[i].kind == kind && r->event[i].who == who) {
            return i;
        }
    }
    return from;
}

/* Behind the lanes: from the grant of the next holder until one of the two is through. */
static void draw_two_at_once(const struct panel *p)
{
    unsigned first = 0; /* index of the last grant but one, within the round */
    bool have = false;
    for (unsigned i = 0; i < p->r->events; i++) {
        const struct demo_event *e = &p->r->event[i];
        if (e->kind == DEMO_EV_RESULT) {
            have = false;
        }
        if (e->kind != DEMO_EV_ACQUIRED) {
            continue;
        }
        if (have && e->who != p->r->event[first].who) {
            unsigned a = end_of_hold(p->r, first);
            unsigned b = end_of_hold(p->r, i);
            unsigned until = a < b ? a : b;
            fprintf(p->f,
                    "<rect x=\"%u\" y=\"%u\" width=\"%u\" height=\"%u\" fill=\"#fde2e2\" "
                    "rx=\"4\"/>\n",
                    p->x + LANES_LEFT - 4, p->y[i] - 6, p->r->plan.writers * LANE + 8,
                    p->y[until] - p->y[i] + 12);
        }
        first = i;
        have = true;
    }
}

static void draw_stop(const struct panel *p, unsigned i, enum demo_event_kind end, unsigned x)
{
    unsigned until = find_after(p->r, i, end, p->r->event[i].who);
    fprintf(p->f,
            "<rect x=\"%u\" y=\"%u\" width=\"16\" height=\"%u\" fill=\"url(#away)\" stroke=\"%s\" "
            "rx=\"3\"/>\n",
            x - 8, p->y[i], p->y[until] - p->y[i], colours[p->r->event[i].who]);
}

static void draw_lanes(const struct panel *p, unsigned bottom)
{
    for (unsigned w = 0; w < p->r->plan.writers; w++) {
        unsigned x = p->x + LANES_LEFT + w * LANE + LANE / 2;
        fprintf(p->f, "<line x1=\"%u\" y1=\"%u\" x2=\"%u\" y2=\"%u\" stroke=\"" GRID "\"/>\n", x,
                TOP - 14, x, bottom);
        fprintf(p->f,
                "<circle cx=\"%u\" cy=\"%u\" r=\"10\" fill=\"%s\"/><text x=\"%u\" y=\"%u\" "
                "text-anchor=\"middle\" font-size=\"13\" font-weight=\"700\" "
                "fill=\"#fff\">%u</text>\n",
                x, TOP - 22, colours[w], x, TOP - 17, w + 1);
    }
    text(p, 8, TOP - 17, "font-size=\"13\" fill=\"" FAINT "\"", "writer");
}

static void draw_holds(const struct panel *p)
{
    for (unsigned i = 0; i < p->r->events; i++) {
        const struct demo_event *e = &p->r->event[i];
        unsigned x = p->x + LANES_LEFT + e->who * LANE + LANE / 2;
        if (e->kind == DEMO_EV_ACQUIRED) {
            fprintf(p->f,
                    "<rect x=\"%u\" y=\"%u\" width=\"10\" height=\"%u\" fill=\"%s\" rx=\"3\"/>\n",
                    x - 5, p->y[i], p->y[end_of_hold(p->r, i)] - p->y[i], colours[e->who]);
        }
    }
    for (unsigned i = 0; i < p->r->events; i++) {
        const struct demo_event *e = &p->r->event[i];
        unsigned x = p->x + LANES_LEFT + e->who * LANE + LANE / 2;
        if (e->kind == DEMO_EV_STOPPED) {
            draw_stop(p, i, DEMO_EV_CONTINUED, x);
        } else if (e->kind == DEMO_EV_HELD_BACK) {
            draw_stop(p, i, DEMO_EV_LET_GO, x);
        } else if (e->kind == DEMO_EV_WRITTEN) {
            fprintf(p->f,
                    "<circle cx=\"%u\" cy=\"%u\" r=\"6\" fill=\"#fff\" stroke=\"%s\" "
                    "stroke-width=\"3\"/>\n",
                    x, p->y[i], colours[e->who]);
        } else if (e->kind == DEMO_EV_REFUSED) {
            fprintf(p->f,
                    "<path d=\"M%u %u l12 12 m0 -12 l-12 12\" stroke=\"" RED "\" "
                    "stroke-width=\"4\" stroke-linecap=\"round\"/>\n",
                    x - 6, p->y[i] - 6);
        }
    }
}

static const char *style_of(const struct demo_event *e, char out[96])
{
    const char *colour = INK;
    const char *weight = "400";
    switch (e->kind) {
    case DEMO_EV_ACQUIRED:
    case DEMO_EV_READ:
    case DEMO_EV_WRITTEN:
        colour = colours[e->who];
        break;
    case DEMO_EV_REFUSED:
        colour = RED;
        weight = "700";
        break;
    case DEMO_EV_STOPPED:
    case DEMO_EV_HELD_BACK:
    case DEMO_EV_FORGETS:
    case DEMO_EV_JUMPS:
        weight = "700";
        break;
    case DEMO_EV_UP:
    case DEMO_EV_DOWN:
    case DEMO_EV_ADDED:
        colour = FAINT;
        break;
    default:
        break;
    }
    snprintf(out, 96, "font-size=\"14\" fill=\"%s\" font-weight=\"%s\"", colour, weight);
    return out;
}

static void draw_words(const struct panel *p)
{
    for (unsigned i = 0; i < p->r->events; i++) {
        const struct demo_event *e = &p->r->event[i];
        char words[160];
        char style[96];
        demo_event_text(p->r, e, words, sizeof words);
        if (e->kind == DEMO_EV_RESULT) {
            uint64_t lost = p->r->round[e->round].lost;
            size_t len = strlen(words);
            snprintf(words + len, sizeof words - len, "%s", lost > 0 ? ": one is lost" : "");
            snprintf(style, sizeof style, "font-size=\"14\" font-weight=\"700\" fill=\"%s\"",
                     lost > 0 ? RED : GREEN);
            text(p, TEXT_LEFT, p->y[i] + 5, style, words);
            continue;
        }
        text(p, TEXT_LEFT, p->y[i] + 5, style_of(e, style), words);
        char when[32];
        snprintf(when, sizeof when, "%" PRIu64 " ms", e->t_us / 1000);
        text(p, LANES_LEFT - 12, p->y[i] + 4,
             "font-size=\"11\" text-anchor=\"end\" fill=\"" FAINT "\"", when);
    }
}

static void draw_panel(struct panel *p, unsigned bottom)
{
    place(p);
    text(p, LANES_LEFT, TOP - 48,
         p->r->mode == DEMO_ON ? "font-size=\"19\" font-weight=\"700\" fill=\"" GREEN "\""
                               : "font-size=\"19\" font-weight=\"700\" fill=\"" RED "\"",
         p->r->mode == DEMO_ON       ? "With tokens"
         : p->r->mode == DEMO_WRITES ? "Tokens on writes alone, no claim"
                                     : "Without tokens");
    draw_lanes(p, bottom);
    draw_two_at_once(p);
    draw_holds(p);
    draw_words(p);
    char sum[160];
    snprintf(sum, sizeof sum,
             "%" PRIu64 " updates acknowledged, the counter is %" PRIu64 ": %" PRIu64 " lost",
             p->r->acknowledged, p->r->counter, p->r->lost);
    text(p, LANES_LEFT, bottom + 30,
         p->r->lost > 0 ? "font-size=\"17\" font-weight=\"700\" fill=\"" RED "\""
                        : "font-size=\"17\" font-weight=\"700\" fill=\"" GREEN "\"",
         sum);
}

static void draw_heads(FILE *f, const struct demo_plan *plan, const unsigned *round_y,
                       unsigned width)
{
    for (unsigned i = 0; i < plan->rounds; i++) {
        fprintf(f,
                "<rect x=\"%u\" y=\"%u\" width=\"%u\" height=\"24\" fill=\"#eef1f4\" rx=\"5\"/>"
                "<text x=\"%u\" y=\"%u\" font-size=\"14\" font-weight=\"700\" fill=\"" INK "\">"
                "%u. %s</text>\n",
                MARGIN, round_y[i], width - 2 * MARGIN, MARGIN + 10, round_y[i] + 17, i + 1,
                demo_fault_text(plan->round[i].fault));
    }
}

static void draw(FILE *f, const struct demo_result *left, const struct demo_result *right)
{
    const struct demo_plan *plan = &left->plan;
    unsigned round_y[DEMO_FAULTS + 1] = {TOP};
    for (unsigned i = 0; i < plan->rounds; i++) {
        unsigned a = events_of_round(left, i);
        unsigned b = events_of_round(right, i);
        round_y[i + 1] = round_y[i] + ROUND_HEAD + (a > b ? a : b) * ROW + 6;
    }
    unsigned bottom = round_y[plan->rounds];
    unsigned panels = right != NULL ? 2 : 1;
    unsigned width = MARGIN * 2 + panels * PANEL_WIDTH;
    unsigned height = bottom + 52;
    fprintf(f,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %u %u\" role=\"img\" "
            "font-family=\"'Helvetica Neue', Helvetica, Arial, 'Liberation Sans', sans-serif\">\n"
            "<title>Redlock under real faults, seed %" PRIu64 "</title>\n"
            "<defs><pattern id=\"away\" width=\"6\" height=\"6\" patternUnits=\"userSpaceOnUse\" "
            "patternTransform=\"rotate(45)\"><rect width=\"6\" height=\"6\" fill=\"#fff\"/>"
            "<rect width=\"2.5\" height=\"6\" fill=\"#9aa5b1\"/></pattern></defs>\n"
            "<rect width=\"%u\" height=\"%u\" fill=\"#fff\" rx=\"12\"/>\n"
            "<text x=\"%u\" y=\"36\" font-size=\"22\" font-weight=\"700\" fill=\"" INK "\">"
            "Redlock under real faults</text>\n"
            "<text x=\"%u\" y=\"58\" font-size=\"13\" fill=\"" FAINT "\">Drawn from a run on real "
            "processes, seed %" PRIu64 ": five Redis, %u writers of one counter. Time runs down, "
            "waiting is shortened. Red: two hold the lock at once.</text>\n",
            width, height, plan->seed, width, height, MARGIN, MARGIN, plan->seed, plan->writers);
    struct panel p = {.f = f, .r = left, .x = MARGIN, .round_y = round_y};
    draw_panel(&p, bottom);
    if (right != NULL) {
        p.r = right;
        p.x += PANEL_WIDTH;
        draw_panel(&p, bottom);
    }
    draw_heads(f, plan, round_y, width);
    fputs("</svg>\n", f);
}

bool demo_draw(const struct demo_result *left, const struct demo_result *right, const char *path)
{
    FILE *f = fopen(path, "we");
    if (f == NULL) {
        return false;
    }
    draw(f, left, right);
    bool failed = ferror(f) != 0;
    return fclose(f) == 0 && !failed;
}
