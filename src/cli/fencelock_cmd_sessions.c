/* fencelock_cmd_sessions.c: the commands that show queues and sessions. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "cli/fencelock_common.h"

#define LIMIT_DEFAULT UINT64_C(1000)
#define PAGE_MAX UINT64_C(1000)

/* ---- queue ----------------------------------------------------------------------------------- */

static const struct cli_column queue_columns[] = {
    {"PLACE", true},
    {"OWNER", false},
    {"LABEL", false},
};

static void queue_json(const struct cli_args *a, const struct fl_lock_info *l)
{
    struct fli_json j = cli_json_begin();
    fli_json_bytes(&j, "name", fl_str(a->arg[0]));
    fli_json_u64(&j, "waiters", l->waiters);
    fli_json_array(&j, "queue");
    for (size_t i = 0; i < l->queue_len; i++) {
        fli_json_object(&j, NULL);
        fli_json_u64(&j, "place", i + 1);
        fli_json_bytes(&j, "owner", l->queue[i].owner);
        fli_json_bool(&j, "session", l->queue[i].session);
        fli_json_bytes(&j, "label", l->queue[i].label);
        fli_json_end_object(&j);
    }
    fli_json_end_array(&j);
    cli_json_print(&j, stdout);
}

static void queue_text(const struct cli_args *a, const struct fl_lock_info *l)
{
    struct cli_style style = cli_style_of(a);
    struct cli_table t;
    if (l->queue_len == 0) {
        if (style.terminal) {
            fputs("nobody waits\n", stdout);
        }
        return;
    }
    cli_table_init(&t, queue_columns, sizeof queue_columns / sizeof queue_columns[0]);
    for (size_t i = 0; i < l->queue_len; i++) {
        cli_table_u64(&t, CLI_BOLD, i + 1);
        char who[CLI_WHO_SIZE];
        cli_table_bytes(&t, CLI_PLAIN, cli_who(l->queue[i].owner, who));
        cli_table_bytes(&t, CLI_DIM, l->queue[i].label);
    }
    cli_table_print(&t, stdout, style.colours);
    cli_table_fini(&t);
    if (l->waiters > l->queue_len) {
        cli_complain("and %" PRIu64 " more", l->waiters - l->queue_len);
    }
}

static int show_queue(const struct cli_args *a, const struct fl_lock_info *l)
{
    static const struct fl_lock_info nobody;
    l = l != NULL ? l : &nobody;
    if (cli_has(a, CLI_OPT_JSON)) {
        queue_json(a, l);
    } else {
        queue_text(a, l);
    }
    return CLI_EXIT_DONE;
}

int cli_run_queue(const struct cli_args *a)
{
    return cli_with_lock(a, show_queue);
}

/* ---- sessions -------------------------------------------------------------------------------- */

static const struct cli_column session_columns[] = {
    {"OWNER", false},     {"TTL", true},   {"TTL LEFT", true}, {"LOCKS", true},
    {"LOCK-DELAY", true}, {"WAITS", true}, {"LABEL", false},
};

static void session_json(struct fli_json *j, const struct fl_session_info *s)
{
    fli_json_object(j, NULL);
    fli_json_bytes(j, "owner", s->owner);
    fli_json_bytes(j, "label", s->label);
    fli_json_u64(j, "ttl_ms", s->ttl_ms);
    fli_json_u64(j, "ttl_left_ms", s->ttl_left_ms);
    fli_json_u64(j, "lockdelay_ms", s->lockdelay_ms);
    fli_json_u64(j, "locks", s->locks);
    fli_json_u64(j, "waits", s->waits);
    fli_json_end_object(j);
}

static void session_row(struct cli_table *t, const struct fl_session_info *s)
{
    cli_table_bytes(t, CLI_PLAIN, s->owner);
    cli_table_duration(t, CLI_PLAIN, s->ttl_ms);
    cli_table_duration(t, CLI_PLAIN, s->ttl_left_ms);
    cli_table_u64(t, CLI_BOLD, s->locks);
    cli_table_duration(t, CLI_DIM, s->lockdelay_ms);
    cli_table_u64(t, s->waits > 0 ? CLI_YELLOW : CLI_DIM, s->waits);
    cli_table_bytes(t, CLI_DIM, s->label);
}

/* One list, page by page: into a table; or as JSON into memory, since an error in the middle must
 * not leave half a value on stdout. */
struct listing {
    fl_client *client;
    struct fli_json *json; /* NULL: into the table */
    struct cli_table table;
    uint64_t left, shown;
    bool more;
};

static int list_pages(struct listing *w)
{
    char cursor[512];
    struct fl_bytes from = {cursor, 0};
    for (;;) {
        struct fl_session_list *list = NULL;
        int rc = fl_sessions(w->client, from, w->left < PAGE_MAX ? w->left : PAGE_MAX, 0, &list);
        if (rc != 0) {
            return rc;
        }
        size_t n = list->len < w->left ? list->len : (size_t)w->left;
        for (size_t i = 0; i < n; i++) {
            if (w->json != NULL) {
                session_json(w->json, &list->sessions[i]);
            } else {
                session_row(&w->table, &list->sessions[i]);
            }
        }
        w->shown += n;
        w->left -= n;
        w->more = list->cursor.len > 0 || n < list->len;
        from.len = list->cursor.len <= sizeof cursor ? list->cursor.len : 0;
        memcpy(cursor, list->cursor.data, from.len);
        fl_session_list_free(list);
        if (from.len == 0 || w->left == 0) {
            return 0;
        }
    }
}

static void print_sessions(const struct cli_args *a, struct listing *w)
{
    struct cli_style style = cli_style_of(a);
    if (w->shown > 0) {
        cli_table_print(&w->table, stdout, style.colours);
    } else if (style.terminal) {
        fputs("no sessions\n", stdout);
    }
    if (w->more) {
        cli_complain("there %s more than %" PRIu64 " session%s; see more with --limit",
                     w->shown == 1 ? "is" : "are", w->shown, fli_s(w->shown));
    }
}

static int list_sessions(const struct cli_args *a, struct listing *w)
{
    char *text = NULL;
    size_t text_len = 0;
    struct fli_json j;
    FILE *memory = open_memstream(&text, &text_len);
    if (memory == NULL) {
        fli_fatal("fencelock: out of memory");
    }
    if (cli_has(a, CLI_OPT_JSON)) {
        w->json = &j;
        j = cli_json_begin();
        fli_json_array(&j, "sessions");
    }
    int rc = w->left == 0 ? 0 : list_pages(w);
    if (rc == 0 && w->json != NULL) {
        fli_json_end_array(&j);
        fli_json_bool(&j, "more", w->more);
        cli_json_print(&j, stdout);
        fflush(memory);
        fwrite(text, 1, text_len, stdout);
    } else if (rc == 0) {
        print_sessions(a, w);
    }
    fclose(memory);
    free(text);
    return rc;
}

int cli_run_sessions(const struct cli_args *a)
{
    int code;
    fl_client *c = cli_client_create(a, &code);
    if (c == NULL) {
        return code;
    }
    struct listing w = {
        .client = c, .left = cli_has(a, CLI_OPT_LIMIT) ? a->number[CLI_OPT_LIMIT] : LIMIT_DEFAULT};
    cli_table_init(&w.table, session_columns, sizeof session_columns / sizeof session_columns[0]);
    int rc = list_sessions(a, &w);
    code = rc == 0 ? CLI_EXIT_DONE : cli_fail(a, rc, fl_client_error(c), NULL, NULL);
    cli_table_fini(&w.table);
    fl_client_destroy(c);
    return code;
}
