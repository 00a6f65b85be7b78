/* batch_build.c: see batch_build.h. */
#include "consensus/batch_build.h"

#include <stdlib.h>
#include <string.h>

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
    fli_list_init(&b->commands);
}

void batch_fini(struct batch *b)
{
    FLI_ASSERT(fli_list_empty(&b->commands));
    free(b->data);
    b->data = NULL;
}

void batch_drop_bytes(struct batch *b)
{
    free(b->data);
    b->data = NULL;
    b->cap = 0;
}

bool batch_has_room(const struct batch *b, size_t len, bool reads)
{
    if (reads) {
        return len <= b->max - b->read_bytes;
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

int batch_append(struct batch *b, const void *command, size_t len)
{
    FLI_ASSERT(batch_has_room(b, len, false));
    int rv = batch_reserve(b, b->len + len);
    if (rv == 0) {
        memcpy(b->data + b->len, command, len);
        b->len += len;
        b->count++;
    }
    return rv;
}

int batch_add(struct batch *b, struct command *c, bool reads)
{
    FLI_ASSERT(c->out && batch_has_room(b, c->len, reads));
    c->position = b->count;
    c->reads = reads;
    int rv = reads ? 0 : batch_append(b, c->data, c->len);
    if (rv != 0) {
        return rv;
    }
    b->reads += reads;
    b->read_bytes += reads ? c->len : 0;
    fli_list_push(&b->commands, &c->at_batch);
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

struct command *batch_take(struct batch *b, uint32_t position, bool reads)
{
    struct fli_list *first = fli_list_first(&b->commands);
    if (first == NULL) {
        return NULL;
    }
    struct command *c = FLI_CONTAINER_OF(first, struct command, at_batch);
    FLI_ASSERT(c->position >= position);
    if (c->position != position || c->reads != reads) {
        return NULL;
    }
    fli_list_remove(first);
    return c;
}

struct command *batch_pop(struct batch *b)
{
    struct fli_list *first = fli_list_pop(&b->commands);
    return first == NULL ? NULL : FLI_CONTAINER_OF(first, struct command, at_batch);
}
