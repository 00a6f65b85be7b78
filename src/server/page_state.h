/* page_state.h: what the page shows, as JSON, from this node's own replica: it may lag behind the
 * leader's. Whoever wants to be sure asks with SHOW. */
#ifndef SERVER_PAGE_STATE_H
#define SERVER_PAGE_STATE_H

#include "server/info.h"
#include "server/lock_stats.h"

#define PAGE_SECONDS 300u /* that are kept */
#define PAGE_HOT 12u      /* locks in the list of the hottest */

/* What happened in one second; leader: whoever led at its end, 0 for nobody. */
struct page_second {
    uint32_t grants, refused, lost, waits, leader;
};

struct page_series {
    struct page_second seconds[PAGE_SECONDS];
    uint64_t n; /* ever; the next one goes to n % PAGE_SECONDS */
    uint64_t began_ms;
    bool has_base;
    uint64_t grants, refused, lost; /* at the beginning of this second */
};

/* Now and then; a second is over when it is. */
void page_series_sample(struct page_series *s, uint64_t now_ms, const struct lock_stats *stats,
                        const struct info *i);

struct page_view {
    const struct info *info;
    struct lock_stats *stats;
    const struct page_series *series;
    bool formed, ready;
};

/* 0, FL_ELIMIT, FL_ENOMEM. */
int page_state(const struct page_view *v, struct fli_buf *out) FLI_MUST_USE;
/* One lock: holders, queue, events. It is followed from now on. */
int page_lock(const struct page_view *v, struct fli_slice name, struct fli_buf *out) FLI_MUST_USE;

/* page.html */
extern const unsigned char page_html[];
extern const size_t page_html_len;

#endif
