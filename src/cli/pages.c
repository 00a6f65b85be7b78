/* pages.c: see pages.h. */
#include "cli/pages.h"

#include <inttypes.h>
#include <string.h>

#define LIMIT_DEFAULT UINT64_C(1000)
#define PAGE_MAX UINT64_C(1000)

struct fl_bytes pages_cursor(const struct pages *p)
{
    return (struct fl_bytes){p->cursor, p->cursor_len};
}

/* One thing is enough to see whether there is any. */
uint64_t pages_count(const struct pages *p)
{
    return p->left == 0 ? 1 : p->left < PAGE_MAX ? p->left : PAGE_MAX;
}

bool pages_take(struct pages *p)
{
    bool takes = p->left > 0;
    p->left -= takes;
    p->taken += takes;
    return takes;
}

void pages_next(struct pages *p, size_t len, struct fl_bytes cursor)
{
    p->more = cursor.len > 0 || len > p->taken;
    p->taken = 0;
    p->cursor_len = cursor.len <= sizeof p->cursor ? cursor.len : 0;
    memcpy(p->cursor, cursor.data, p->cursor_len);
}

static void print_text(struct pages *p, const char *thing)
{
    struct cli_style style = cli_style_of(p->args);
    uint64_t shown = p->list.rows;
    cli_list_end(&p->list, stdout, style.colours);
    if (shown == 0 && style.terminal) {
        printf("no %ss\n", thing);
    }
    if (p->more) {
        cli_complain("there %s more than %" PRIu64 " %s%s; see more with --limit",
                     shown == 1 ? "is" : "are", shown, thing, fli_s(shown));
    }
}

int pages_run(const struct cli_args *a, fl_client *c, const char *thing,
              int (*add)(struct pages *p, fl_client *c))
{
    struct fli_json j = cli_json_begin();
    bool json = cli_has(a, CLI_OPT_JSON);
    char key[16];
    struct pages p = {.args = a,
                      .left = cli_has(a, CLI_OPT_LIMIT) ? a->number[CLI_OPT_LIMIT] : LIMIT_DEFAULT};
    snprintf(key, sizeof key, "%ss", thing);
    cli_list_begin(&p.list, json ? &j : NULL, key);
    int rc = 0;
    do {
        rc = add(&p, c);
    } while (rc == 0 && p.cursor_len > 0 && p.left > 0);
    if (rc != 0) {
        cli_list_free(&p.list);
        return cli_fail(a, rc, fl_client_error(c), NULL, NULL);
    }
    if (!json) {
        print_text(&p, thing);
        return CLI_EXIT_DONE;
    }
    cli_list_end(&p.list, stdout, false);
    fli_json_bool(&j, "more", p.more);
    cli_json_print(&j, stdout);
    return CLI_EXIT_DONE;
}
