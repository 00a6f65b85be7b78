/* starts.c: see starts.h. */
#include "consensus/starts.h"

#include <string.h>

#include "base/bytes.h"

struct start starts_next(const struct starts *s, uint64_t nonce)
{
    bool resumed = s->own.number != 0 && s->next.number != STARTS_RECORDED;
    return resumed ? s->own : (struct start){.number = s->own.number + 1, .nonce = nonce};
}

/* ---- what is known ---- */

static struct starts_known *find(struct starts *s, uint64_t incarnation)
{
    for (unsigned i = 0; i < s->n; i++) {
        if (s->known[i].incarnation == incarnation) {
            return &s->known[i];
        }
    }
    return NULL;
}

const struct starts_known *starts_find(const struct starts *s, uint64_t incarnation)
{
    return find((struct starts *)(uintptr_t)s, incarnation);
}

bool starts_record(struct starts *s, uint64_t id, uint64_t incarnation, struct start start)
{
    struct starts_known *k = find(s, incarnation);
    if (k == NULL && start.number != 0 && s->n < KNOWN_MEMBERS_MAX) {
        k = &s->known[s->n++];
        *k = (struct starts_known){.id = id, .incarnation = incarnation};
    }
    bool news = k != NULL && start.number > k->start.number;
    if (news) {
        k->start = start;
    }
    return news;
}

bool starts_record_progress(struct starts *s, uint64_t incarnation, uint64_t term, uint64_t index)
{
    struct starts_known *k = find(s, incarnation);
    if (k == NULL || (term <= k->term && index <= k->index)) {
        return false;
    }
    k->term = term > k->term ? term : k->term;
    k->index = index > k->index ? index : k->index;
    return true;
}

void starts_make_room(struct starts *s, const struct configuration *members)
{
    unsigned kept = 0;
    for (unsigned i = 0; s->n == KNOWN_MEMBERS_MAX && i < KNOWN_MEMBERS_MAX; i++) {
        if (configuration_server(members, s->known[i].incarnation) != NULL) {
            s->known[kept++] = s->known[i];
        }
    }
    s->n = s->n == KNOWN_MEMBERS_MAX ? kept : s->n;
}

/* ---- telling ---- */

static uint8_t *put_known(uint8_t *at, uint64_t id, uint64_t incarnation, struct start start)
{
    fli_put_u64(at, id);
    fli_put_u64(at + 8, incarnation);
    fli_put_u64(at + 16, start.number);
    fli_put_u64(at + 24, start.nonce);
    return at + 32;
}

size_t starts_message_encode(const struct starts *s, uint64_t id, uint64_t incarnation,
                             uint64_t term, uint64_t index, uint8_t out[STARTS_MESSAGE_MAX])
{
    uint8_t *at = out + 24;
    fli_put_u64(out, term);
    fli_put_u64(out + 8, index);
    fli_put_u64(out + 16, s->n + 1);
    at = put_known(at, id, incarnation, s->own);
    for (unsigned i = 0; i < s->n; i++) {
        at = put_known(at, s->known[i].id, s->known[i].incarnation, s->known[i].start);
    }
    return (size_t)(at - out);
}

int starts_message_decode(struct fli_slice body, struct starts_message *ret)
{
    uint64_t n = body.len < 24 ? 0 : fli_get_u64(body.data + 16);
    if (n < 1 || n > KNOWN_MEMBERS_MAX + 1 || body.len != 24 + n * 32) {
        return FL_EPROTO;
    }
    memset(ret, 0, sizeof *ret);
    ret->term = fli_get_u64(body.data);
    ret->index = fli_get_u64(body.data + 8);
    ret->n = (unsigned)n;
    for (unsigned i = 0; i < ret->n; i++) {
        const uint8_t *at = body.data + 24 + (size_t)i * 32;
        ret->list[i] = (struct starts_known){
            .id = fli_get_u64(at),
            .incarnation = fli_get_u64(at + 8),
            .start = {.number = fli_get_u64(at + 16), .nonce = fli_get_u64(at + 24)}};
        if (ret->list[i].id == 0 || ret->list[i].incarnation == 0 ||
            ret->list[i].start.number == 0) {
            return FL_EPROTO;
        }
    }
    return 0;
}
