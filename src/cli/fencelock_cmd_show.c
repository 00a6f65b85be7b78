/* fencelock_cmd_show.c: the commands that show locks and nodes. */
#include <inttypes.h>
#include <string.h>

#include "base/clock.h"
#include "cli/pages.h"

static const char *state_word(enum fl_lock_state state)
{
    switch (state) {
    case FL_LOCK_HELD:
        return "held";
    case FL_LOCK_DELAYED:
        return "delayed";
    case FL_LOCK_QUEUED:
        return "queued";
    default:
        return "unknown";
    }
}

static enum cli_colour state_colour(enum fl_lock_state state)
{
    return state == FL_LOCK_HELD ? CLI_GREEN : CLI_YELLOW;
}

static const char *mode_word(enum fl_mode mode)
{
    switch (mode) {
    case FL_MODE_SHARED:
        return "shared";
    case FL_MODE_PERMITS:
        return "permits";
    default:
        return "exclusive";
    }
}

static void json_origin(struct fli_json *j, struct fl_bytes user, struct fl_bytes address,
                        uint64_t renewals)
{
    fli_json_bytes(j, "user", user);
    if (address.len > 0) {
        fli_json_bytes(j, "address", address);
    } else {
        fli_json_null(j, "address");
    }
    fli_json_u64(j, "renewals", renewals);
}

/* What a lock with a holder has; without one it is null. */
static void json_holder(struct fli_json *j, const struct fl_lock_info *l)
{
    fli_json_u64(j, "token", l->token);
    fli_json_bytes(j, "owner", l->owner);
    fli_json_bool(j, "session", l->session);
    fli_json_bytes(j, "label", l->label);
    fli_json_bytes(j, "value", l->value);
    fli_json_u64(j, "age_ms", l->age_ms);
    json_origin(j, l->user, l->address, l->renewals);
    fli_json_text(j, "mode", mode_word(l->mode));
}

static void json_lock(struct fli_json *j, const struct fl_lock_info *l)
{
    static const char *const keys[] = {"token",  "owner", "session", "label",    "value",
                                       "age_ms", "user",  "address", "renewals", "mode"};
    fli_json_bytes(j, "name", l->name);
    fli_json_text(j, "state", state_word(l->state));
    if (l->state == FL_LOCK_HELD) {
        json_holder(j, l);
    } else {
        for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
            fli_json_null(j, keys[i]);
        }
    }
    fli_json_u64(j, "ttl_left_ms", l->ttl_left_ms);
    fli_json_u64(j, "waiters", l->waiters);
    fli_json_u64(j, "permits", l->permits);
    fli_json_u64(j, "holders", l->holders);
    fli_json_u64(j, "together", l->together);
}

/* ---- show ------------------------------------------------------------------------------------ */

static void show_json(const struct fl_lock_info *l)
{
    struct fli_json j = cli_json_begin();
    json_lock(&j, l);
    fli_json_array(&j, "held_by");
    for (size_t i = 0; i < l->held_by_len; i++) {
        const struct fl_holder *h = l->held_by[i];
        fli_json_object(&j, NULL);
        fli_json_u64(&j, "token", h->token);
        fli_json_bytes(&j, "owner", h->owner);
        fli_json_bool(&j, "session", h->session);
        fli_json_bytes(&j, "label", h->label);
        fli_json_bytes(&j, "value", h->value);
        fli_json_u64(&j, "age_ms", h->age_ms);
        json_origin(&j, h->user, h->address, h->renewals);
        fli_json_u64(&j, "ttl_left_ms", h->ttl_left_ms);
        fli_json_end_object(&j);
    }
    fli_json_end_array(&j);
    fli_json_array(&j, "queue");
    for (size_t i = 0; i < l->queue_len; i++) {
        fli_json_object(&j, NULL);
        fli_json_bytes(&j, "owner", l->queue[i]->owner);
        fli_json_bool(&j, "session", l->queue[i]->session);
        fli_json_bytes(&j, "label", l->queue[i]->label);
        fli_json_end_object(&j);
    }
    fli_json_end_array(&j);
    cli_json_print(&j, stdout);
}

static void line_bytes(const char *title, struct fl_bytes b)
{
    if (b.len > 0) {
        printf("%-9s ", title);
        cli_print_safe(stdout, b);
        putchar('\n');
    }
}

static void line_duration(const char *title, uint64_t ms)
{
    char text[CLI_DURATION_SIZE];
    cli_format_duration(text, ms);
    printf("%-9s %s\n", title, text);
}

/* How long ago it was granted, and when that was by this machine's clock. */
static void show_since(const struct fl_lock_info *l)
{
    char age[CLI_DURATION_SIZE];
    char when[FLI_UTC_SIZE];
    uint64_t now_ms = fli_clock_wall_ms();
    fli_utc(when, now_ms > l->age_ms ? now_ms - l->age_ms : 0);
    cli_format_duration(age, l->age_ms);
    printf("%-9s %s, %s ago\n", "since", when, age);
    printf("%-9s %" PRIu64 "%s\n", "renewed", l->renewals, l->renewals == 1 ? " time" : " times");
}

/* The mode, if others may hold the lock too, and the holders after the oldest. */
static void show_holders(const struct fl_lock_info *l)
{
    if (l->state != FL_LOCK_HELD || l->mode == FL_MODE_EXCLUSIVE) {
        return;
    }
    if (l->mode == FL_MODE_SHARED) {
        printf("%-9s shared by %" PRIu64 "\n", "mode", l->holders);
    } else {
        printf("%-9s %" PRIu64 " of %" PRIu64 " permits\n", "mode", l->holders, l->permits);
    }
    for (size_t i = 1; i < l->held_by_len; i++) {
        char left[CLI_DURATION_SIZE];
        cli_format_duration(left, l->held_by[i]->ttl_left_ms);
        printf("%-9s %" PRIu64 ", ttl left %s, ", "and token", l->held_by[i]->token, left);
        cli_print_safe(stdout, l->held_by[i]->owner);
        putchar('\n');
    }
}

/* Who holds it: whom `fencelock run` has named, else the label, the value or the owner. */
static struct fl_bytes who_of(const struct fl_lock_info *l, char room[CLI_WHO_SIZE])
{
    struct fl_bytes who = cli_who(l->owner, room);
    return who.data == room ? who : l->label.len > 0 ? l->label : l->value.len > 0 ? l->value : who;
}

static void show_text(const struct fl_lock_info *l, bool colours)
{
    char holder[CLI_WHO_SIZE];
    enum cli_colour colour = state_colour(l->state);
    line_bytes("lock", l->name);
    printf("%-9s %s%s%s\n", "state", cli_colour_on(colour, colours), state_word(l->state),
           cli_colour_off(colour, colours));
    if (l->state == FL_LOCK_HELD) {
        printf("%-9s %" PRIu64 "\n", "token", l->token);
        struct fl_bytes who = who_of(l, holder);
        line_bytes("holder", who.data == holder ? who : fl_str(""));
        line_bytes(l->session ? "session" : "owner", l->owner);
        line_bytes("label", l->label);
        line_bytes("value", l->value);
        line_bytes("user", l->user);
        line_bytes("address", l->address);
        show_since(l);
    }
    if (l->state != FL_LOCK_QUEUED) {
        line_duration("ttl left", l->ttl_left_ms);
    }
    show_holders(l);
    if (l->state == FL_LOCK_HELD && l->together > 1) {
        printf("%-9s with %" PRIu64 " more, under one token\n", "together", l->together - 1);
    }
    printf("%-9s %" PRIu64 "\n", "waiters", l->waiters);
    for (size_t i = 0; i < l->queue_len; i++) {
        printf("%8zu. ", i + 1);
        cli_print_safe(stdout, cli_who(l->queue[i]->owner, holder));
        if (l->queue[i]->label.len > 0) {
            fputs("  ", stdout);
            cli_print_safe(stdout, l->queue[i]->label);
        }
        putchar('\n');
    }
    if (l->waiters > l->queue_len && l->queue_len > 0) {
        printf("%8s  and %" PRIu64 " more\n", "", l->waiters - l->queue_len);
    }
}

static int show_free(const struct cli_args *a)
{
    if (cli_has(a, CLI_OPT_JSON)) {
        struct fli_json j = cli_json_begin();
        fli_json_bytes(&j, "name", fl_str(a->arg[0]));
        fli_json_text(&j, "state", "free");
        cli_json_print(&j, stdout);
    } else {
        cli_print_safe(stdout, fl_str(a->arg[0]));
        fputs(": free\n", stdout);
    }
    return CLI_EXIT_NO;
}

static int show_lock(const struct cli_args *a, const struct fl_lock_info *l)
{
    struct cli_style style = cli_style_of(a);
    if (l == NULL) {
        return show_free(a);
    }
    if (style.json) {
        show_json(l);
    } else {
        show_text(l, style.colours);
    }
    return CLI_EXIT_DONE;
}

int cli_run_show(const struct cli_args *a, fl_client *c)
{
    return cli_with_lock(a, c, show_lock);
}

/* ---- locks ----------------------------------------------------------------------------------- */

static void add_lock(struct cli_list *t, const struct fl_lock_info *l)
{
    bool held = l->state == FL_LOCK_HELD;
    char state[64];
    char holder[CLI_WHO_SIZE];
    cli_list_row(t);
    if (t->json != NULL) {
        json_lock(t->json, l);
        return;
    }
    cli_list_bytes(t, NULL, "NAME", CLI_PLAIN, l->name);
    snprintf(state, sizeof state, "%s", state_word(l->state));
    if (held && l->mode == FL_MODE_SHARED) {
        snprintf(state, sizeof state, "held, shared");
    } else if (held && l->mode == FL_MODE_PERMITS) {
        snprintf(state, sizeof state, "held, %" PRIu64 "/%" PRIu64, l->holders, l->permits);
    }
    cli_list_text(t, NULL, "STATE", state_colour(l->state), state);
    if (held) {
        cli_list_u64(t, NULL, "TOKEN", CLI_BOLD, l->token);
        cli_list_ms(t, NULL, "AGE", CLI_PLAIN, l->age_ms);
    } else {
        cli_list_none(t, NULL, "TOKEN", true);
        cli_list_none(t, NULL, "AGE", true);
    }
    if (l->state == FL_LOCK_QUEUED) {
        cli_list_none(t, NULL, "TTL LEFT", true);
    } else {
        cli_list_ms(t, NULL, "TTL LEFT", CLI_PLAIN, l->ttl_left_ms);
    }
    cli_list_u64(t, NULL, "WAITERS", l->waiters > 0 ? CLI_YELLOW : CLI_DIM, l->waiters);
    cli_list_bytes(t, NULL, "HOLDER", CLI_PLAIN, who_of(l, holder));
}

static int add_page(struct pages *p, fl_client *c)
{
    struct fl_lock_list *list = NULL;
    struct fl_bytes match = fl_str(p->args->text[CLI_OPT_MATCH]);
    int rc = fl_locks(c, match, pages_cursor(p), pages_count(p), 0, &list);
    for (size_t i = 0; rc == 0 && i < list->len && pages_take(p); i++) {
        add_lock(&p->list, list->locks[i]);
    }
    if (rc == 0) {
        pages_next(p, list->len, list->cursor);
    }
    fl_lock_list_free(list);
    return rc;
}

int cli_run_locks(const struct cli_args *a, fl_client *c)
{
    return cli_has(a, CLI_OPT_BY) ? cli_run_locks_by(a, c) : pages_run(a, c, "lock", add_page);
}
