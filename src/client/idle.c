/* idle.c: see idle.h. */
#include "client/idle.h"

static void drop(struct fli_idle *idle, unsigned i)
{
    fli_link_close(&idle->kept[i].link);
    idle->n--;
    if (i != idle->n) {
        fli_link_move(&idle->kept[i].link, &idle->kept[idle->n].link);
        idle->kept[i].node = idle->kept[idle->n].node;
    }
}

bool fli_idle_take(struct fli_idle *idle, uint32_t node, struct fli_link *to)
{
    for (unsigned i = idle->n; i-- > 0;) {
        if (idle->kept[i].node != node) {
            continue;
        }
        bool fresh = fli_link_is_fresh(&idle->kept[i].link);
        if (fresh) {
            fli_link_move(to, &idle->kept[i].link);
        }
        drop(idle, i);
        if (fresh) {
            return true;
        }
    }
    return false;
}

void fli_idle_keep(struct fli_idle *idle, uint32_t node, struct fli_link *link)
{
    FLI_ASSERT(idle->n < FLI_IDLE_MAX);
    fli_link_init(&idle->kept[idle->n].link);
    fli_link_move(&idle->kept[idle->n].link, link);
    idle->kept[idle->n++].node = node;
}

void fli_idle_drop(struct fli_idle *idle, uint32_t node)
{
    for (unsigned i = idle->n; i-- > 0;) {
        if (idle->kept[i].node == node) {
            drop(idle, i);
        }
    }
}

void fli_idle_drop_all(struct fli_idle *idle)
{
    while (idle->n > 0) {
        drop(idle, idle->n - 1);
    }
}
