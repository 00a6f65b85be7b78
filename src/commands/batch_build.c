/* batch_build.c: see batch_build.h. */
#include "commands/batch_build.h"

#include <string.h>

#include "machine/batch.h"

void batch_init(struct batch *b, size_t max)
{
    FLI_ASSERT(max % 8 == 0); /* so the padding has room */
    FLI_ASSERT(max > MACHINE_BATCH_HEADER_SIZE && max <= MACHINE_BATCH_MAX);
    *b = (struct batch){.max = max, .len = MACHINE_BATCH_HEADER_SIZE};
    fli_list_init(&b->link);
    fli_list_init(&b->commands);
    fli_buf_init(&b->expired, max);
}

void batch_fini(struct batch *b)
{
    FLI_ASSERT(fli_list_empty(&b->commands));
    fli_buf_fini(&b->expired);
}

bool batch_has_room(const struct batch *b, size_t len, bool reads)
{
    if (reads) {
        return len <= b->max - b->read_bytes;
    }
    return b->count + b->expiries < MACHINE_BATCH_COMMANDS_MAX &&
           len <= b->max - b->len - b->expired.len;
}

void batch_add(struct batch *b, struct command *c)
{
    FLI_ASSERT(c->out && batch_has_room(b, c->len, c->reads));
    b->began_ns = fli_list_empty(&b->commands) ? c->came_ns : b->began_ns;
    c->position = b->count;
    *(c->reads ? &b->reads : &b->count) += 1;
    *(c->reads ? &b->read_bytes : &b->len) += c->len;
    b->cost += c->cost;
    fli_list_push(&b->commands, &c->at_batch);
}

int batch_expire(struct batch *b, const struct machine_command *c)
{
    int rv = machine_command_encode(c, &b->expired);
    b->expiries += rv == 0;
    FLI_ASSERT(b->len + b->expired.len <= b->max);
    return rv;
}

size_t batch_seal(const struct batch *b, const struct machine_batch_header *header, uint8_t *entry)
{
    uint8_t *at = entry + MACHINE_BATCH_HEADER_SIZE;
    FLI_LIST_FOREACH(pos, &b->commands)
    {
        const struct command *c = FLI_CONTAINER_OF(pos, struct command, at_batch);
        if (!c->reads) {
            memcpy(at, c->data, c->len);
            at += c->len;
        }
    }
    FLI_ASSERT(at == entry + b->len);
    if (b->expiries > 0) {
        memcpy(at, b->expired.data, b->expired.len);
    }
    struct machine_batch_header h = *header;
    h.count = b->count + b->expiries;
    h.length = (uint32_t)(b->len + b->expired.len);
    return machine_batch_seal(entry, &h);
}

struct command *batch_take(struct batch *b, uint32_t position, bool reads)
{
    struct fli_list *first = fli_list_first(&b->commands);
    const struct command *c =
        first == NULL ? NULL : FLI_CONTAINER_OF(first, struct command, at_batch);
    FLI_ASSERT(c == NULL || c->position >= position);
    return c != NULL && c->position == position && c->reads == reads ? batch_pop(b) : NULL;
}

struct command *batch_pop(struct batch *b)
{
    struct fli_list *first = fli_list_pop(&b->commands);
    return first == NULL ? NULL : FLI_CONTAINER_OF(first, struct command, at_batch);
}
