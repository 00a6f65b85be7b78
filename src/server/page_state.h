/* page_state.h: the content of the monitoring page (page.html), as JSON. It comes from this node's
 * own replica, which may lag behind the leader's; SHOW is linearizable. */
#ifndef SERVER_PAGE_STATE_H
#define SERVER_PAGE_STATE_H

#include "server/info.h"
#include "server/lock_stats.h"

#define PAGE_SECONDS 300u /* the history that the page draws */
#define PAGE_BUSIEST 12u  /* locks in the list of those waited for most */

/* The events of one second. leader: the leader at its end, 0 for none. */
struct page_second {
    uint32_t grants, refused, lost, waits, leader;
};

struct page_series {
    struct page_second seconds[PAGE_SECONDS];
    uint64_t n; /* seconds recorded so far; the next one goes to n % PAGE_SECONDS */
    uint64_t began_ms;
    bool has_base;                  /* the next fields are set */
    uint64_t grants, refused, lost; /* counters at the beginning of this second */
};

/* Called from time to time; records a second once it is over. */
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
/* One lock: holders, queue, events. The history follows it from now on. FL_ENOTFOUND: whoever has
 * no login may not see it. */
int page_lock(const struct page_view *v, struct fli_slice name, struct fli_buf *out) FLI_MUST_USE;

/* page.html */
extern const unsigned char page_html[];
extern const size_t page_html_len;

#endif
