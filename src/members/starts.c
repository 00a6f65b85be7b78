/* starts.c: see starts.h. */
#include "members/starts.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>

#include "members/record.h"

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

struct starts_known *starts_find(const struct starts *s, uint64_t incarnation)
{
    for (unsigned i = 0; i < s->n; i++) {
        if (s->known[i].incarnation == incarnation) {
            return (struct starts_known *)(uintptr_t)&s->known[i];
        }
    }
    return NULL;
}

bool starts_record(struct starts *s, uint64_t id, uint64_t incarnation, struct start start)
{
    struct starts_known *k = starts_find(s, incarnation);
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
    struct starts_known *k = starts_find(s, incarnation);
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

/* What a node told and what a leader had confirmed is compared only with a handshake that was made
 * after all of it: the first one of a start, or one that asks for a stream of Raft's messages,
 * which a node does only when it has none. A handshake that has waited is older than what may be
 * known by now; it was compared when it came. */
bool starts_went_back(const struct starts *s, const struct peer_identity *peer, bool first,
                      struct starts_follower follower)
{
    const struct starts_known *k = starts_find(s, peer->incarnation);
    bool past = k != NULL && start_is_past(peer->start, k->start);
    bool told_more = k != NULL && (peer->term < k->term || peer->last_index < k->index);
    bool had_more =
        follower.match > 0 && (peer->term < follower.term ||
                               (peer->term == follower.term && peer->last_index < follower.match));
    return past || (!peer->waited && (first || peer->asks_raft) && (told_more || had_more));
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

/* ---- the witness ---- */

#define REFUSE(w, code, ...) fli_refuse((w)->errmsg, (w)->errmsg_size, code, __VA_ARGS__)

/* Whether the directory and its witness fit each other. It may have been started without it, and
 * either may be an older copy. */
static int check(const struct witness *w)
{
    const struct starts *s = &w->record->starts;
    const struct starts *seen = &w->now->starts;
    if (w->record->identity.incarnation != w->now->identity.incarnation) {
        return REFUSE(w, FL_EDENIED,
                      "the witness %s belongs to another data directory than %s: name the right "
                      "one, or another file; if the directory is a new one in the place of "
                      "another, start once with --witness-reset",
                      w->path, w->directory);
    }
    bool fits = start_is(s->own, seen->own) || start_is(s->own, seen->next);
    if ((!fits && start_is_past(s->own, seen->own)) || w->term < seen->term ||
        w->last_index < seen->index) {
        return REFUSE(w, FL_EDENIED,
                      "the data directory %s is an older copy, says the witness %s: put the newest "
                      "one back. If it is lost, replace the member (fencelock cluster replace). A "
                      "node alone begins anew with fencelockd --recover-from %s --tokens-above N",
                      w->directory, w->path, w->directory);
    }
    return fits ? 0
                : REFUSE(w, FL_EDENIED,
                         "the witness %s is older than the data directory %s: it was put back, or "
                         "the node has run without it; if the directory is the newest one, start "
                         "once with --witness-reset",
                         w->path, w->directory);
}

static int read_witness(const struct witness *w)
{
    int rv = record_read(w->path, w->now);
    if (rv == FL_ENOTFOUND && w->is_new) {
        return 0;
    }
    if (rv == FL_ENOTFOUND) {
        return REFUSE(w, FL_EDENIED,
                      "there is no witness %s: look whether its disk is there; if the data "
                      "directory %s is the newest one, start once with --witness-reset",
                      w->path, w->directory);
    }
    if (rv == FL_ECORRUPT || rv == FL_EVERSION) {
        return REFUSE(w, rv,
                      "%s is no witness, or damaged: if the data directory %s is the newest one, "
                      "move that file away and start once with --witness-reset",
                      w->path, w->directory);
    }
    return rv == 0 ? check(w)
                   : REFUSE(w, rv, "cannot read the witness %s: %s", w->path, strerror(errno));
}

static int write_starts(const struct witness *w, struct start own, struct start next)
{
    w->now->starts.own = own;
    w->now->starts.next = next;
    int rv = record_write(-1, w->path, w->now);
    return rv == 0 ? 0 : REFUSE(w, rv, "cannot write the witness %s: %s", w->path, strerror(errno));
}

int witness_begin(const struct witness *w, bool reset, struct start next)
{
    *w->now = (struct record){.identity = w->record->identity};
    int rv = reset ? 0 : read_witness(w);
    return rv != 0 ? rv : write_starts(w, w->record->starts.own, next);
}

int witness_settle(const struct witness *w)
{
    return write_starts(w, w->now->starts.next, (struct start){.number = 0});
}
