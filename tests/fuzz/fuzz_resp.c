/* fuzz_resp.c: the request parser on any bytes. The first two bytes of an input choose limits and
 * how the rest is cut; cut or whole, the same must come out. */
#include "fuzz.h"

#include <stdlib.h>

#include "base/map.h"
#include "wire/resp.h"

static const uint64_t seed[2] = {1, 2};

/* What has come out so far, as a number. */
static uint64_t mix(uint64_t sum, const void *data, size_t len)
{
    uint64_t parts[2] = {sum, fli_siphash(seed, data, len)};
    return fli_siphash(seed, parts, sizeof parts);
}

struct run {
    struct fli_resp_parser parser;
    uint64_t sum;
    size_t start; /* of the unconsumed input */
    bool broken;
};

/* Takes in everything up to `end` of data. */
static void advance(struct run *r, const uint8_t *data, size_t end)
{
    struct fli_resp_parser *p = &r->parser;
    while (!r->broken) {
        size_t len = end - r->start;
        enum fli_resp_status status = fli_resp_next(p, data + r->start, len);
        if (status == FLI_RESP_MORE) {
            return;
        }
        if (status == FLI_RESP_BROKEN) {
            r->sum = mix(r->sum, p->error, strlen(p->error));
            r->broken = true;
            return;
        }
        if (status == FLI_RESP_REQUEST) {
            FLI_ASSERT(p->argc >= 1 && p->argc <= FLI_RESP_ARGS_MAX);
            r->sum = mix(r->sum, "request", 7);
            for (unsigned i = 0; i < p->argc; i++) {
                FLI_ASSERT(p->argv[i].len <= p->limits.arg_max);
                FLI_ASSERT(p->argv[i].data >= data + r->start);
                FLI_ASSERT(p->argv[i].data + p->argv[i].len <= data + end);
                r->sum = mix(r->sum, p->argv[i].data, p->argv[i].len);
            }
        } else if (status == FLI_RESP_TOOBIG) {
            r->sum = mix(r->sum, p->error, strlen(p->error));
        }
        size_t size = fli_resp_consume(p);
        FLI_ASSERT(size > 0 && size <= len);
        r->start += size;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 2) {
        return 0;
    }
    struct fli_resp_limits limits = {1 + data[0] % 64u, 16 + data[0]};
    size_t piece = 1 + data[1] % 16u;
    data += 2;
    size -= 2;
    struct run whole = {.sum = 0};
    struct run cut = {.sum = 0};
    fli_resp_parser_init(&whole.parser, limits);
    fli_resp_parser_init(&cut.parser, limits);
    advance(&whole, data, size);
    for (size_t end = 0; end < size;) {
        end = size - end < piece ? size : end + piece;
        advance(&cut, data, end);
    }
    FLI_ASSERT(whole.sum == cut.sum);
    FLI_ASSERT(whole.broken == cut.broken);
    return 0;
}
