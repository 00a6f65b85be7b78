/* backlog.c: see backlog.h. */
#include "consensus/backlog.h"

#include <stdlib.h>
#include <string.h>

#include "machine/batch.h"

struct key {
    uint64_t via, source;
};

struct backlog_source {
    struct fli_map_node node;
    struct key key;
    struct fli_list ring;     /* of the backlog */
    struct fli_list returned; /* held.at_source of those that came back; they go first */
    struct fli_list commands; /* of the others; one of the two lists has some */
};

/* Keys are numbers that nodes count up, so no client can choose colliding ones. */
static const uint64_t SEED[2] = {0, 0};

static bool source_eq(const struct fli_map_node *node, const void *key, size_t key_len)
{
    const struct backlog_source *s = FLI_CONTAINER_OF(node, struct backlog_source, node);
    FLI_ASSERT(key_len == sizeof s->key);
    return memcmp(&s->key, key, sizeof s->key) == 0;
}

static struct key key_of(const struct node_ticket *t)
{
    return t == NULL ? (struct key){0, 0} : (struct key){t->via, t->source};
}

static struct backlog_source *find(struct backlog *b, const struct key *key)
{
    struct fli_map_node *node = fli_map_find(&b->sources, key, sizeof *key);
    return node == NULL ? NULL : FLI_CONTAINER_OF(node, struct backlog_source, node);
}

static struct backlog_source *find_or_make(struct backlog *b, struct key key)
{
    struct backlog_source *s = find(b, &key);
    if (s != NULL) {
        return s;
    }
    s = malloc(sizeof *s);
    if (s == NULL) {
        return NULL;
    }
    s->key = key;
    fli_list_init(&s->ring);
    fli_list_init(&s->returned);
    fli_list_init(&s->commands);
    if (fli_map_insert(&b->sources, &s->node, fli_map_hash(&b->sources, &key, sizeof key)) != 0) {
        free(s);
        return NULL;
    }
    return s;
}

static struct held *head(const struct backlog_source *s)
{
    struct fli_list *first = fli_list_first(&s->returned);
    first = first != NULL ? first : fli_list_first(&s->commands);
    FLI_ASSERT(first != NULL);
    return FLI_CONTAINER_OF(first, struct held, at_source);
}

/* What has no ticket is a node's own, and nobody's leavings. */
static bool is_cleanup(const struct node_ticket *t)
{
    return t != NULL && t->source == NODE_SOURCE_CLEANUP;
}

bool backlog_is_urgent(const struct node_ticket *t, uint8_t op)
{
    if (is_cleanup(t)) {
        return false;
    }
    switch (op) {
    case MACHINE_OP_RENEW:
    case MACHINE_OP_SESSION_RENEW:
    case MACHINE_OP_RELEASE:
    case MACHINE_OP_SESSION_CLOSE:
        return true;
    default:
        return false;
    }
}

static struct fli_list *ring_of(struct backlog *b, const struct held *h)
{
    if (is_cleanup(h->t)) {
        return &b->last;
    }
    return backlog_is_urgent(h->t, h->data[0]) ? &b->urgent : &b->others;
}

/* Puts a source behind the others of the ring that its next command says. */
static void join_ring(struct backlog *b, struct backlog_source *s)
{
    fli_list_remove(&s->ring);
    fli_list_push(ring_of(b, head(s)), &s->ring);
}

static bool due_before(const struct fli_heap_node *x, const struct fli_heap_node *y)
{
    const struct held *a = FLI_CONTAINER_OF(x, struct held, at_due);
    const struct held *b = FLI_CONTAINER_OF(y, struct held, at_due);
    return a->due_ms != b->due_ms ? a->due_ms < b->due_ms : a->number < b->number;
}

void backlog_init(struct backlog *b)
{
    fli_map_init(&b->sources, source_eq, SEED);
    fli_list_init(&b->urgent);
    fli_list_init(&b->others);
    fli_list_init(&b->last);
    fli_list_init(&b->fresh);
    fli_heap_init(&b->back, due_before);
    b->number = 0;
    b->taken = 0;
    b->taken_last = 0;
}

void backlog_fini(struct backlog *b)
{
    FLI_ASSERT(b->sources.len == 0 && fli_list_empty(&b->fresh) && b->back.len == 0);
    FLI_ASSERT(fli_list_empty(&b->urgent) && fli_list_empty(&b->others));
    FLI_ASSERT(fli_list_empty(&b->last));
    fli_heap_fini(&b->back);
    fli_map_fini(&b->sources);
}

/* Forgets a source that has no commands. */
static bool forget_empty(struct backlog *b, struct backlog_source *s)
{
    if (!fli_list_empty(&s->returned) || !fli_list_empty(&s->commands)) {
        return false;
    }
    fli_list_remove(&s->ring);
    fli_map_remove(&b->sources, &s->node);
    free(s);
    return true;
}

static int give_up(struct backlog *b, struct backlog_source *s)
{
    if (s != NULL) {
        (void)forget_empty(b, s);
    }
    return FL_ENOMEM;
}

static struct backlog_source *source_of(struct backlog *b, struct held *h)
{
    FLI_ASSERT(h->source == NULL && !fli_list_linked(&h->link));
    h->due_ms = h->t == NULL ? UINT64_MAX : h->t->deadline_ms;
    return find_or_make(b, key_of(h->t));
}

/* As long as deadlines come in their order, a list is enough. The time for which commands are held
 * may be lowered, and a command without a ticket has no deadline at all. */
static int stand_by_deadline(struct backlog *b, struct held *h, bool again)
{
    const struct fli_list *last = fli_list_empty(&b->fresh) ? NULL : b->fresh.prev;
    bool later = last == NULL || FLI_CONTAINER_OF(last, struct held, link)->due_ms <= h->due_ms;
    if (!again && later && h->due_ms != UINT64_MAX) {
        fli_list_push(&b->fresh, &h->link);
        return 0;
    }
    h->number = ++b->number;
    return fli_heap_insert(&b->back, &h->at_due) == 0 ? 0 : FL_ENOMEM;
}

int backlog_push(struct backlog *b, struct held *h)
{
    struct backlog_source *s = source_of(b, h);
    if (s == NULL || stand_by_deadline(b, h, false) != 0) {
        return give_up(b, s);
    }
    h->source = s;
    fli_list_push(&s->commands, &h->at_source);
    if (!fli_list_linked(&s->ring)) {
        join_ring(b, s);
    }
    return 0;
}

static bool came_before(const struct fli_list *at_source, const struct held *h)
{
    const struct held *other = FLI_CONTAINER_OF(at_source, struct held, at_source);
    return h->t == NULL || other->t == NULL || other->t->number <= h->t->number;
}

/* Most come back behind all that did before. One that comes back for the second time, alone, stands
 * in front of all. */
static void stand_in_order(struct fli_list *returned, struct held *h)
{
    struct fli_list *at = returned->next;
    if (fli_list_empty(returned) || came_before(returned->prev, h)) {
        fli_list_push(returned, &h->at_source);
        return;
    }
    while (came_before(at, h)) {
        at = at->next; /* it ends: the last did not come before */
    }
    fli_list_insert_before(at, &h->at_source);
}

int backlog_return(struct backlog *b, struct held *h)
{
    struct backlog_source *s = source_of(b, h);
    if (s == NULL || stand_by_deadline(b, h, true) != 0) {
        return give_up(b, s);
    }
    h->source = s;
    stand_in_order(&s->returned, h);
    if (head(s) == h) { /* another command was next, which may be of the other ring */
        join_ring(b, s);
    }
    return 0;
}

/* The ring that has the next turn. */
static const struct fli_list *turn(const struct backlog *b)
{
    bool any = !fli_list_empty(&b->urgent) || !fli_list_empty(&b->others);
    if (!any || (!fli_list_empty(&b->last) && b->taken_last + 1 >= BACKLOG_TURN_LAST)) {
        return &b->last;
    }
    if (fli_list_empty(&b->urgent) || fli_list_empty(&b->others)) {
        return fli_list_empty(&b->urgent) ? &b->others : &b->urgent;
    }
    return b->taken + 1 < BACKLOG_TURN ? &b->urgent : &b->others;
}

struct held *backlog_first(const struct backlog *b)
{
    struct fli_list *first = fli_list_first(turn(b));
    return first == NULL ? NULL : head(FLI_CONTAINER_OF(first, struct backlog_source, ring));
}

void backlog_pass(struct backlog *b, const struct held *h)
{
    FLI_ASSERT(head(h->source) == h);
    join_ring(b, h->source);
}

struct held *backlog_first_urgent(const struct backlog *b)
{
    struct fli_list *first = fli_list_first(&b->urgent);
    return first == NULL ? NULL : head(FLI_CONTAINER_OF(first, struct backlog_source, ring));
}

struct held *backlog_first_due(const struct backlog *b)
{
    struct fli_list *pos = fli_list_first(&b->fresh);
    struct fli_heap_node *min = fli_heap_min(&b->back);
    struct held *fresh = pos == NULL ? NULL : FLI_CONTAINER_OF(pos, struct held, link);
    struct held *back = min == NULL ? NULL : FLI_CONTAINER_OF(min, struct held, at_due);
    if (fresh == NULL || back == NULL) {
        return fresh == NULL ? back : fresh;
    }
    return back->due_ms <= fresh->due_ms ? back : fresh;
}

void backlog_remove(struct backlog *b, struct held *h)
{
    struct backlog_source *s = h->source;
    FLI_ASSERT(s != NULL);
    const struct fli_list *ring = ring_of(b, head(s));
    b->taken_last = ring == &b->last ? 0 : b->taken_last + 1;
    b->taken = ring == &b->others ? 0 : b->taken + (ring == &b->urgent);
    fli_list_remove(&h->at_source);
    if (h->at_due.pos == FLI_HEAP_NONE) {
        fli_list_remove(&h->link);
    } else {
        fli_heap_remove(&b->back, &h->at_due);
    }
    h->source = NULL;
    if (!forget_empty(b, s)) {
        join_ring(b, s);
    }
}

bool backlog_has(struct backlog *b, const struct node_ticket *t)
{
    struct key key = key_of(t);
    return find(b, &key) != NULL;
}
