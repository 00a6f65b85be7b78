/* list.h: intrusive doubly linked list with a sentinel. All O(1). The element is found with
 * FLI_CONTAINER_OF. */
#ifndef FLI_LIST_H
#define FLI_LIST_H

#include <stdbool.h>

#include "base/base.h"

struct fli_list {
    struct fli_list *next;
    struct fli_list *prev;
};

static inline void fli_list_init(struct fli_list *l)
{
    l->next = l;
    l->prev = l;
}

static inline bool fli_list_empty(const struct fli_list *l)
{
    return l->next == l;
}

/* A node that is on no list points to itself after init or remove. */
static inline bool fli_list_linked(const struct fli_list *n)
{
    return n->next != n;
}

static inline void fli_list_insert_before(struct fli_list *at, struct fli_list *n)
{
    n->next = at;
    n->prev = at->prev;
    at->prev->next = n;
    at->prev = n;
}

static inline void fli_list_push(struct fli_list *l, struct fli_list *n)
{
    fli_list_insert_before(l, n);
}

static inline void fli_list_remove(struct fli_list *n)
{
    n->prev->next = n->next;
    n->next->prev = n->prev;
    fli_list_init(n);
}

static inline struct fli_list *fli_list_first(const struct fli_list *l)
{
    return l->next == l ? NULL : l->next;
}

static inline struct fli_list *fli_list_pop(struct fli_list *l)
{
    struct fli_list *n = fli_list_first(l);
    if (n != NULL) {
        fli_list_remove(n);
    }
    return n;
}

/* Moves everything on src to the end of dst; src is empty afterwards. */
static inline void fli_list_splice(struct fli_list *dst, struct fli_list *src)
{
    if (fli_list_empty(src)) {
        return;
    }
    src->next->prev = dst->prev;
    src->prev->next = dst;
    dst->prev->next = src->next;
    dst->prev = src->prev;
    fli_list_init(src);
}

#define FLI_LIST_FOREACH(pos, list)                                                                \
    for (struct fli_list *pos = (list)->next; pos != (list); pos = pos->next)

/* The current element may be removed (or freed) in the body. */
#define FLI_LIST_FOREACH_SAFE(pos, tmp, list)                                                      \
    for (struct fli_list *pos = (list)->next, *tmp = pos->next; pos != (list);                     \
         pos = tmp, tmp = pos->next)

#endif
