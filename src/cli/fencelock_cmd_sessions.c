/* fencelock_cmd_sessions.c: the commands that show queues and sessions. */
#include <inttypes.h>
#include <string.h>

#include "cli/pages.h"

/* ---- queue ----------------------------------------------------------------------------------- */

static void list_queue(struct fli_json *json, const struct fl_lock_info *l, bool colours)
{
    struct cli_list t;
    cli_list_begin(&t, json, "queue");
    for (size_t i = 0; i < l->queue_len; i++) {
        const struct fl_waiter *s = l->queue[i];
        char who[CLI_WHO_SIZE];
        cli_list_row(&t);
        cli_list_u64(&t, "place", "PLACE", CLI_BOLD, i + 1);
        cli_list_bytes(&t, "owner", NULL, CLI_PLAIN, s->owner);
        cli_list_bytes(&t, NULL, "OWNER", CLI_PLAIN, cli_who(s->owner, who));
        cli_list_bool(&t, "session", s->session);
        cli_list_bytes(&t, "label", "LABEL", CLI_DIM, s->label);
    }
    cli_list_end(&t, stdout, colours);
}

static int show_queue(const struct cli_args *a, const struct fl_lock_info *l)
{
    static const struct fl_lock_info nobody;
    struct cli_style style = cli_style_of(a);
    l = l != NULL ? l : &nobody;
    if (style.json) {
        struct fli_json j = cli_json_begin();
        fli_json_bytes(&j, "name", fl_str(a->arg[0]));
        fli_json_u64(&j, "waiters", l->waiters);
        list_queue(&j, l, false);
        cli_json_print(&j, stdout);
        return CLI_EXIT_DONE;
    }
    list_queue(NULL, l, style.colours);
    if (l->queue_len == 0 && style.terminal) {
        fputs("nobody waits\n", stdout);
    } else if (l->queue_len > 0 && l->waiters > l->queue_len) {
        cli_complain("and %" PRIu64 " more", l->waiters - l->queue_len);
    }
    return CLI_EXIT_DONE;
}

int cli_run_queue(const struct cli_args *a, fl_client *c)
{
    return cli_with_lock(a, c, show_queue);
}

/* ---- sessions -------------------------------------------------------------------------------- */

static void add_session(struct cli_list *l, const struct fl_session_info *s)
{
    cli_list_row(l);
    cli_list_bytes(l, "owner", "OWNER", CLI_PLAIN, s->owner);
    cli_list_ms(l, "ttl_ms", "TTL", CLI_PLAIN, s->ttl_ms);
    cli_list_ms(l, "ttl_left_ms", "TTL LEFT", CLI_PLAIN, s->ttl_left_ms);
    cli_list_u64(l, "locks", "LOCKS", CLI_BOLD, s->locks);
    cli_list_ms(l, "lockdelay_ms", "LOCK-DELAY", CLI_DIM, s->lockdelay_ms);
    cli_list_u64(l, "waits", "WAITS", s->waits > 0 ? CLI_YELLOW : CLI_DIM, s->waits);
    cli_list_bytes(l, "label", "LABEL", CLI_DIM, s->label);
}

static int add_page(struct pages *p, fl_client *c)
{
    struct fl_session_list *list = NULL;
    int rc = fl_sessions(c, pages_cursor(p), pages_count(p), 0, &list);
    for (size_t i = 0; rc == 0 && i < list->len && pages_take(p); i++) {
        add_session(&p->list, list->sessions[i]);
    }
    if (rc == 0) {
        pages_next(p, list->len, list->cursor);
    }
    fl_session_list_free(list);
    return rc;
}

int cli_run_sessions(const struct cli_args *a, fl_client *c)
{
    return pages_run(a, c, "session", add_page);
}
