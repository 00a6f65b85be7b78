/* commands.c: see commands.h. */
#include "commands/commands.h"

#include <stdlib.h>
#include <string.h>

#include "machine/batch.h"

struct key {
    uint64_t via, source;
};

struct command_source {
    struct fli_map_node node;
    struct key key;
    struct fli_list ring;     /* linked while one of its commands waits, and may be taken out */
    struct fli_list commands; /* all that have no answer, in the order in which they came */
    struct command *next;     /* the first of these that waits; NULL: all were taken out */
    uint64_t out, taker;      /* how many were taken out, and by whom */
    uint64_t joined;          /* says who was first, of two in different rings */
};

/* Keys are numbers that nodes count up, so no client can choose colliding ones. */
static uint64_t hash_of(struct key key)
{
    uint64_t hash = key.source * UINT64_C(0x9e3779b97f4a7c15) + key.via;
    return hash ^ hash >> 32;
}

/* The class that has each of eight turns. When it has none waiting, the turn is of the first class
 * that has. */
static const enum command_class TURNS[] = {COMMAND_URGENT,  COMMAND_URGENT, COMMAND_URGENT,
                                           COMMAND_OTHER,   COMMAND_URGENT, COMMAND_URGENT,
                                           COMMAND_CLEANUP, COMMAND_OTHER};

static bool source_eq(const struct fli_map_node *node, const void *key, size_t key_len)
{
    const struct command_source *s = FLI_CONTAINER_OF(node, struct command_source, node);
    FLI_ASSERT(key_len == sizeof s->key);
    return memcmp(&s->key, key, sizeof s->key) == 0;
}

static struct command *at_source(const struct fli_list *pos)
{
    return FLI_CONTAINER_OF(pos, struct command, at_source);
}

void commands_init(struct commands *q, size_t bytes_max, uint64_t hold_ms)
{
    *q = (struct commands){.bytes_max = bytes_max, .hold_ms = hold_ms};
    fli_map_init(&q->sources, source_eq, (const uint64_t[2]){0, 0});
    for (unsigned i = 0; i < COMMAND_CLASSES; i++) {
        fli_list_init(&q->rings[i]);
    }
    fli_list_init(&q->own);
    fli_list_init(&q->bound);
}

void commands_fini(struct commands *q)
{
    FLI_ASSERT(q->count == 0 && q->bytes == 0 && q->sources.len == 0);
    FLI_ASSERT(fli_list_empty(&q->own) && fli_list_empty(&q->bound));
    fli_map_fini(&q->sources);
}

/* ---- coming ---- */

static enum command_class class_of(const struct key *key, uint8_t op)
{
    if (key->source == NODE_SOURCE_CLEANUP) {
        return COMMAND_CLEANUP;
    }
    if (key->source == NODE_SOURCE_CLUSTER && key->via == 0) {
        return COMMAND_CLUSTER;
    }
    switch (op) {
    case MACHINE_OP_RENEW:
    case MACHINE_OP_SESSION_RENEW:
    case MACHINE_OP_RELEASE:
    case MACHINE_OP_SESSION_CLOSE:
        return COMMAND_URGENT;
    default:
        return MACHINE_OP_IS_QUERY(op) ? COMMAND_QUERY : COMMAND_OTHER;
    }
}

static bool has_room(const struct commands *q, enum command_class class, bool known, size_t len)
{
    size_t room = q->bytes < q->bytes_max ? q->bytes_max - q->bytes : 0;
    size_t kept = class == COMMAND_URGENT ? 0 : COMMANDS_URGENT(q->bytes_max / 4);
    kept = known ? q->bytes_max / 4 : kept;
    return class == COMMAND_CLUSTER || (room >= kept && len <= room - kept);
}

static struct command_source *make_source(struct commands *q, const struct key *key, uint64_t hash)
{
    struct command_source *s = malloc(sizeof *s);
    if (s == NULL) {
        return NULL;
    }
    *s = (struct command_source){.key = *key};
    fli_list_init(&s->ring);
    fli_list_init(&s->commands);
    if (fli_map_insert(&q->sources, &s->node, hash) != 0) {
        free(s);
        return NULL;
    }
    return s;
}

static void forget_source(struct commands *q, struct command_source *s)
{
    FLI_ASSERT(s->next == NULL && !fli_list_linked(&s->ring));
    fli_map_remove(&q->sources, &s->node);
    free(s);
}

static void join_ring(struct commands *q, struct command_source *s)
{
    fli_list_remove(&s->ring);
    if (s->next != NULL) {
        s->joined = ++q->joined;
        fli_list_push(&q->rings[s->next->class], &s->ring);
    }
}

static struct command *make_command(enum command_class class, struct fli_slice command)
{
    FLI_ASSERT(command.len > 0 && command.len <= MACHINE_COMMAND_LARGEST);
    struct command *c = malloc(sizeof *c + command.len);
    if (c != NULL) {
        *c = (struct command){.len = (uint32_t)command.len, .class = (uint8_t) class};
        memcpy(c->data, command.data, command.len);
        fli_list_init(&c->at_batch);
    }
    return c;
}

static int add(struct commands *q, struct node_ticket *t, const struct command_way *way,
               struct fli_slice command, uint64_t now_ns)
{
    const struct key key = {way->via, way->source};
    uint64_t hash = hash_of(key);
    enum command_class class = class_of(&key, command.data[0]);
    struct fli_map_node *node = fli_map_find_hashed(&q->sources, hash, &key, sizeof key);
    if (q->closed) {
        return FL_ENOLEADER;
    }
    if (!has_room(q, class, node != NULL, command.len)) {
        return FL_EBUSY;
    }
    struct command *c = make_command(class, command);
    struct command_source *s = node != NULL ? FLI_CONTAINER_OF(node, struct command_source, node)
                                            : make_source(q, &key, hash);
    if (c == NULL || s == NULL) {
        if (s != NULL && node == NULL) {
            forget_source(q, s);
        }
        free(c);
        return FL_ENOMEM;
    }
    c->source = s;
    c->t = t;
    c->way = *way;
    c->number = ++q->number;
    c->came_ns = now_ns;
    q->bytes += command.len;
    q->count++;
    fli_list_push(key.via != 0 || class == COMMAND_CLUSTER ? &q->bound : &q->own, &c->age);
    fli_list_push(&s->commands, &c->at_source);
    if (s->next == NULL) {
        s->next = c;
        join_ring(q, s);
    }
    return 0;
}

int commands_add(struct commands *q, struct node_ticket *t, const void *command, size_t len,
                 uint64_t now_ns)
{
    const struct command_way own = {.source = t->source};
    return add(q, t, &own, (struct fli_slice){command, len}, now_ns);
}

int commands_add_relayed(struct commands *q, const struct command_way *way,
                         struct fli_slice command, uint64_t now_ns)
{
    FLI_ASSERT(way->via != 0);
    return add(q, NULL, way, command, now_ns);
}

/* ---- taking turns ---- */

/* Sources that have commands out at a former taker leave the ring until one of these comes back or
 * ends. */
static const struct command_source *head(struct commands *q, enum command_class class,
                                         unsigned classes)
{
    struct fli_list *first;
    while ((classes & COMMANDS_OF(class)) != 0 &&
           (first = fli_list_first(&q->rings[class])) != NULL) {
        const struct command_source *s = FLI_CONTAINER_OF(first, struct command_source, ring);
        if (s->out == 0 || s->taker == q->taker) {
            return s;
        }
        fli_list_remove(first);
    }
    return NULL;
}

/* OTHER and QUERY are one class, unless there is no room for one of them. */
static const struct command_source *head_of_turn(struct commands *q, enum command_class class,
                                                 unsigned classes)
{
    const struct command_source *s = head(q, class, classes);
    const struct command_source *asks =
        class == COMMAND_OTHER ? head(q, COMMAND_QUERY, classes) : NULL;
    return s == NULL || (asks != NULL && asks->joined < s->joined) ? asks : s;
}

struct command *commands_first(struct commands *q, unsigned classes)
{
    enum command_class turn = TURNS[q->taken % (sizeof TURNS / sizeof TURNS[0])];
    const struct command_source *s = head(q, COMMAND_CLUSTER, classes);
    s = s != NULL ? s : head_of_turn(q, turn, classes);
    for (unsigned i = COMMAND_URGENT; s == NULL && i < COMMAND_CLASSES; i++) {
        s = head_of_turn(q, i, classes);
    }
    return s == NULL ? NULL : s->next;
}

/* The first that waits, from this place of its source's on. */
static struct command *first_waiting(const struct command_source *s, struct fli_list *pos)
{
    while (pos != &s->commands && at_source(pos)->out) {
        pos = pos->next;
    }
    return pos == &s->commands ? NULL : at_source(pos);
}

void commands_take(struct commands *q, struct command *c)
{
    struct command_source *s = c->source;
    FLI_ASSERT(s->next == c && !c->out && (s->out == 0 || s->taker == q->taker));
    c->out = true;
    q->out++;
    s->out++;
    s->taker = q->taker;
    q->taken++;
    s->next = first_waiting(s, c->at_source.next);
    join_ring(q, s);
}

void commands_put_back(struct commands *q, struct command *c)
{
    struct command_source *s = c->source;
    FLI_ASSERT(c->out && !fli_list_linked(&c->at_batch));
    c->out = false;
    q->out--;
    s->out--;
    bool first = s->next == NULL || c->number < s->next->number;
    s->next = first ? c : s->next;
    if (first || !fli_list_linked(&s->ring)) {
        join_ring(q, s); /* which may be another one now */
    }
}

/* ---- ending ---- */

void commands_end(struct commands *q, struct command *c, int status,
                  const struct machine_result *result, struct fli_slice payload)
{
    struct node_ticket *t = c->t;
    const struct command_way way = c->way;
    struct command_source *s = c->source;
    FLI_ASSERT(!fli_list_linked(&c->at_batch));
    FLI_ASSERT(q->count > 0 && q->bytes >= c->len);
    q->count--;
    q->out -= c->out;
    s->out -= c->out;
    q->bytes -= c->len;
    q->uncertain += status == FL_EUNCERTAIN;
    bool first = s->next == c;
    s->next = first ? first_waiting(s, c->at_source.next) : s->next;
    if (first || !fli_list_linked(&s->ring)) {
        join_ring(q, s);
    }
    fli_list_remove(&c->at_source);
    fli_list_remove(&c->age);
    if (fli_list_empty(&s->commands)) {
        forget_source(q, s);
    }
    free(c);
    if (t != NULL) {
        t->cb(t, status, result, payload);
    } else {
        q->answer(q->ctx, &way, status, result, payload);
    }
}

void commands_fail(struct commands *q, struct command *c, int status)
{
    commands_end(q, c, status, NULL, (struct fli_slice){NULL, 0});
}

/* Ends commands of a list that wait and came by that time, the oldest first. Callbacks may add
 * commands, so they run after the walk. True: there may be more. */
static bool end_some(struct commands *q, struct fli_list *list, uint64_t came_ns, unsigned most)
{
    struct fli_list due;
    struct fli_list *first;
    unsigned n = 0;
    fli_list_init(&due);
    FLI_LIST_FOREACH_SAFE(pos, next, list)
    {
        const struct command *c = FLI_CONTAINER_OF(pos, struct command, age);
        if (c->came_ns > came_ns || n == most) {
            break;
        }
        if (!c->out) {
            n++;
            fli_list_remove(pos);
            fli_list_push(&due, pos);
        }
    }
    while ((first = fli_list_pop(&due)) != NULL) {
        commands_fail(q, FLI_CONTAINER_OF(first, struct command, age), FL_ENOLEADER);
    }
    return n == most;
}

bool commands_expire(struct commands *q, uint64_t now_ns)
{
    uint64_t hold_ns = q->hold_ms * 1000000;
    return now_ns >= hold_ns && end_some(q, &q->own, now_ns - hold_ns, COMMANDS_EXPIRED_MAX);
}

void commands_expire_bound(struct commands *q, uint64_t now_ns)
{
    struct fli_list *oldest = fli_list_first(&q->bound);
    uint64_t hold_ns = q->hold_ms * 1000000;
    if (oldest != NULL && now_ns >= hold_ns &&
        FLI_CONTAINER_OF(oldest, struct command, age)->came_ns <= now_ns - hold_ns) {
        commands_end_bound(q);
    }
}

void commands_end_bound(struct commands *q)
{
    (void)end_some(q, &q->bound, UINT64_MAX, UINT32_MAX);
}

void commands_end_waiting(struct commands *q)
{
    commands_end_bound(q);
    (void)end_some(q, &q->own, UINT64_MAX, UINT32_MAX);
}
