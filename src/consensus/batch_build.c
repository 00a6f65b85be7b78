/* batch_build.c: see batch_build.h. */
#include "consensus/batch_build.h"

#include <stdlib.h>

#include "machine/batch.h"

#define BATCH_CAP_MIN ((size_t)512)

_Static_assert(MACHINE_BATCH_HEADER_SIZE % 8 == 0, "an empty batch is padded by itself");
_Static_assert(BATCH_CAP_MIN % 8 == 0, "capacities stay multiples of 8, so the padding has room");

void batch_init(struct batch *b, size_t max)
{
    FLI_ASSERT(max % 8 == 0);
    FLI_ASSERT(max >= BATCH_CAP_MIN);
    FLI_ASSERT(max <= MACHINE_BATCH_MAX);
    *b = (struct batch){.max = max, .len = MACHINE_BATCH_HEADER_SIZE};
    fli_list_init(&b->link);
    fli_list_init(&b->tickets);
    fli_list_init(&b->queries);
    fli_buf_init(&b->query_bytes, max);
}

void batch_fini(struct batch *b)
{
    FLI_ASSERT(fli_list_empty(&b->tickets));
    FLI_ASSERT(fli_list_empty(&b->queries));
    fli_buf_fini(&b->query_bytes);
    free(b->data);
    b->data = NULL;
}

void batch_drop_bytes(struct batch *b)
{
    free(b->data);
    b->data = NULL;
    b->cap = 0;
}

bool batch_has_room(const struct batch *b, size_t len, bool query)
{
    if (query) {
        return len <= b->max - b->query_bytes.len;
    }
    return b->count < MACHINE_BATCH_COMMANDS_MAX && len <= b->max - b->len;
}

/* Makes room for n bytes in all; doubles, so that a batch of any size is copied less than twice. */
static int batch_reserve(struct batch *b, size_t n)
{
    FLI_ASSERT(n <= b->max);
    if (n <= b->cap) {
        return 0;
    }
    size_t cap = b->cap == 0 ? BATCH_CAP_MIN : b->cap;
    while (cap < n) {
        cap *= 2;
    }
    if (cap > b->max) {
        cap = b->max;
    }
    uint8_t *data = realloc(b->data, cap);
    if (data == NULL) {
        return FL_ENOMEM;
    }
    b->data = data;
    b->cap = cap;
    return 0;
}

int batch_add(struct batch *b, struct node_ticket *t, const void *command, size_t len, bool query)
{
    FLI_ASSERT(batch_has_room(b, len, query));
    if (query) {
        FLI_ASSERT(t != NULL);
        int rv = fli_buf_append(&b->query_bytes, command, len);
        if (rv != 0) {
            return rv;
        }
        t->position = b->count;
        t->size = (uint32_t)len;
        fli_list_push(&b->queries, &t->link);
        b->queries_count++;
        return 0;
    }
    int rv = batch_reserve(b, b->len + len);
    if (rv != 0) {
        return rv;
    }
    memcpy(b->data + b->len, command, len);
    b->len += len;
    if (t != NULL) {
        t->position = b->count;
        t->size = (uint32_t)len;
        fli_list_push(&b->tickets, &t->link);
    }
    b->count++;
    return 0;
}

int batch_seal(struct batch *b, uint16_t flags, size_t *ret_size)
{
    int rv = batch_reserve(b, MACHINE_BATCH_HEADER_SIZE);
    if (rv != 0) {
        return rv;
    }
    struct machine_batch_header h = {
        .format = b->format,
        .flags = flags,
        .count = b->count,
        .timestamp_ms = b->timestamp_ms,
        .term = b->term,
        .sequence = b->sequence,
        .length = (uint32_t)b->len,
    };
    size_t size = machine_batch_seal(b->data, &h);
    FLI_ASSERT(size % 8 == 0);
    FLI_ASSERT(size <= b->cap);
    *ret_size = size;
    return 0;
}

struct node_ticket *batch_take_ticket(struct batch *b, uint32_t position)
{
    struct fli_list *first = fli_list_first(&b->tickets);
    if (first == NULL) {
        return NULL;
    }
    struct node_ticket *t = FLI_CONTAINER_OF(first, struct node_ticket, link);
    if (t->position != position) {
        FLI_ASSERT(t->position > position);
        return NULL;
    }
    fli_list_remove(first);
    return t;
}

struct node_ticket *batch_take_query(struct batch *b, uint32_t position, struct fli_slice *ret)
{
    struct fli_list *first = fli_list_first(&b->queries);
    if (first == NULL) {
        return NULL;
    }
    struct node_ticket *t = FLI_CONTAINER_OF(first, struct node_ticket, link);
    if (t->position > position) {
        return NULL;
    }
    fli_list_remove(first);
    ret->data = b->query_bytes.data + b->query_done;
    ret->len = t->size;
    b->query_done += t->size;
    FLI_ASSERT(b->query_done <= b->query_bytes.len);
    return t;
}
