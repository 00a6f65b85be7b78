/* pages.h: a list that comes page by page, for `locks` and `sessions`: at most --limit of its
 * things, as a table or as JSON. */
#ifndef CLI_PAGES_H
#define CLI_PAGES_H

#include "cli/fencelock_common.h"

struct pages {
    const struct cli_args *args;
    struct cli_list list;
    uint64_t left; /* so many may still be shown */
    uint64_t taken;
    bool more; /* there are, beyond what is shown */
    char cursor[512];
    size_t cursor_len; /* 0: at the beginning, and behind the last page */
};

/* For add(): what to ask for next; whether one more thing is shown; and what has come. */
struct fl_bytes pages_cursor(const struct pages *p);
uint64_t pages_count(const struct pages *p);
bool pages_take(struct pages *p);
void pages_next(struct pages *p, size_t len, struct fl_bytes cursor);

/* Prints the list. add: asks for a page, and adds its things to the list. Returns the exit code. */
int pages_run(const struct cli_args *a, fl_client *c, const char *thing,
              int (*add)(struct pages *p, fl_client *c));

#endif
