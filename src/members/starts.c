/* starts.c: see starts.h. */
#include "members/starts.h"

#include <stddef.h>
#include <string.h>

const struct fli_field starts_fields[STARTS_FIELDS] = {
    {FLI_U64, offsetof(struct starts_known, id)},
    {FLI_U64, offsetof(struct starts_known, incarnation)},
    {FLI_U64, offsetof(struct starts_known, start.number)},
    {FLI_U64, offsetof(struct starts_known, start.nonce)},
    {FLI_U64, offsetof(struct starts_known, term)},
    {FLI_U64, offsetof(struct starts_known, index)},
};

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

size_t starts_message_encode(const struct starts *s, uint64_t id, uint64_t incarnation,
                             uint64_t term, uint64_t index, uint8_t out[STARTS_MESSAGE_MAX])
{
    const struct starts_known self = {.id = id, .incarnation = incarnation, .start = s->own};
    fli_put_u64(out, term);
    fli_put_u64(out + 8, index);
    fli_put_u64(out + 16, s->n + 1);
    uint8_t *at = fli_put_fields(out + 24, starts_fields, STARTS_TOLD, &self);
    for (unsigned i = 0; i < s->n; i++) {
        at = fli_put_fields(at, starts_fields, STARTS_TOLD, &s->known[i]);
    }
    return (size_t)(at - out);
}

int starts_message_decode(struct fli_slice body, struct starts_message *ret)
{
    struct fli_reader r;
    memset(ret, 0, sizeof *ret);
    fli_reader_init(&r, body.data, body.len);
    ret->term = fli_read_u64(&r);
    ret->index = fli_read_u64(&r);
    uint64_t n = fli_read_u64(&r);
    while (ret->n < n && ret->n < KNOWN_MEMBERS_MAX + 1) {
        struct starts_known *k = &ret->list[ret->n++];
        fli_read_fields(&r, starts_fields, STARTS_TOLD, k);
        r.bad = r.bad || k->id == 0 || k->incarnation == 0 || k->start.number == 0;
    }
    return !r.bad && n > 0 && ret->n == n && fli_reader_left(&r) == 0 ? 0 : FL_EPROTO;
}
