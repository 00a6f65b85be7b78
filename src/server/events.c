/* events.c: see events.h: the subscriptions.
 *
 *   topic --subs--> sub <--subs-- subscriber
 */
#include <stdlib.h>
#include <string.h>

#include "server/events_private.h"
#include "wire/resp.h"

static bool topic_eq(const struct fli_map_node *n, const void *key, size_t len)
{
    const struct topic *t =
        (const struct topic *)(const void *)((const char *)n - offsetof(struct topic, by_name));
    return t->len == len && memcmp(t->name, key, len) == 0;
}

static bool sub_eq(const struct fli_map_node *n, const void *key, size_t len)
{
    const struct sub *s =
        (const struct sub *)(const void *)((const char *)n - offsetof(struct sub, by_key));
    struct sub_key own = {s->subscriber, s->topic};
    return len == sizeof own && memcmp(&own, key, len) == 0;
}

/* --- life --- */

void events_init(struct events *e, const struct events_sink *sink, const uint64_t seed[2])
{
    memset(e, 0, sizeof *e);
    e->sink = *sink;
    fli_map_init(&e->channels, topic_eq, seed);
    fli_map_init(&e->subs, sub_eq, seed);
    fli_list_init(&e->globs);
    fli_list_init(&e->doomed);
    fli_buf_init(&e->queue, EVENTS_QUEUE_MAX);
    events_lanes_init(e);
}

void events_fini(struct events *e)
{
    FLI_ASSERT(e->subs_n == 0 && e->channels.len == 0 && e->globs_n == 0);
    fli_map_fini(&e->channels);
    fli_map_fini(&e->subs);
    fli_buf_fini(&e->queue);
    events_lanes_fini(e);
}

void events_get_counts(const struct events *e, struct events_counts *ret)
{
    *ret = e->counts;
}

/* --- topics and subscriptions --- */

struct topic *events_topic_find(struct events *e, bool is_glob, struct fli_slice name)
{
    if (!is_glob) {
        struct fli_map_node *n = fli_map_find(&e->channels, name.data, name.len);
        return n == NULL ? NULL : FLI_CONTAINER_OF(n, struct topic, by_name);
    }
    FLI_LIST_FOREACH(link, &e->globs)
    {
        struct topic *t = topic_of_link(link);
        if (t->len == name.len && memcmp(t->name, name.data, name.len) == 0) {
            return t;
        }
    }
    return NULL;
}

/* A pattern is cheap to match unless a long piece of it follows a star: that piece is then tried at
 * each byte of a name. */
static bool is_costly(struct fli_slice pattern)
{
    size_t piece = 0;
    size_t longest = 0;
    bool star = false;
    for (size_t i = 0; i < pattern.len; i++) {
        bool is_star = pattern.data[i] == '*';
        star = star || is_star;
        piece = is_star ? 0 : piece + star;
        longest = piece > longest ? piece : longest;
    }
    return longest > EVENTS_CHEAP_PIECE_MAX;
}

static bool begins_with(struct fli_slice s, const char *prefix)
{
    return s.len >= strlen(prefix) && memcmp(s.data, prefix, strlen(prefix)) == 0;
}

static struct topic *topic_create(struct events *e, bool is_glob, struct fli_slice name,
                                  unsigned address)
{
    struct topic *t = fli_xcalloc(1, sizeof *t + name.len);
    fli_list_init(&t->link);
    fli_list_init(&t->subs);
    t->is_glob = is_glob;
    t->address = address;
    t->len = (uint16_t)name.len;
    memcpy(t->name, name.data, name.len);
    uint64_t steps = 0;
    t->min_live = is_glob ? events_glob_matches(t, slice_of(EVENTS_MIN_LIVE_CHANNEL), &steps)
                          : slice_is(name, EVENTS_MIN_LIVE_CHANNEL);
    t->wake = begins_with(name, EVENTS_WAKE_PREFIX);
    t->costly = is_glob && is_costly(name);
    if (is_glob) {
        fli_list_push(&e->globs, &t->link);
        e->globs_n++;
        e->of_address[address].globs++;
    } else if (fli_map_insert(&e->channels, &t->by_name,
                              fli_map_hash(&e->channels, name.data, name.len)) != 0) {
        fli_fatal("out of memory for a channel");
    }
    return t;
}

/* A pattern counts for the address of the oldest of its subscriptions. */
static void charge_oldest(struct events *e, struct topic *t)
{
    unsigned address = sub_at_topic(t->subs.next)->subscriber->address;
    e->of_address[t->address].globs -= t->is_glob;
    e->of_address[address].globs += t->is_glob;
    t->address = address;
}

/* A subscription to it has gone. */
static void topic_left(struct events *e, struct topic *t)
{
    if (!fli_list_empty(&t->subs)) {
        charge_oldest(e, t);
        return;
    }
    events_topic_gone(e, t);
    if (t->is_glob) {
        fli_list_remove(&t->link);
        e->globs_n--;
        e->of_address[t->address].globs--;
    } else {
        fli_map_remove(&e->channels, &t->by_name);
    }
    free(t);
}

static struct sub *sub_find(struct events *e, const struct events_subscriber *s,
                            const struct topic *t)
{
    struct sub_key key = {s, t};
    struct fli_map_node *n = fli_map_find(&e->subs, &key, sizeof key);
    return n == NULL ? NULL : FLI_CONTAINER_OF(n, struct sub, by_key);
}

static void sub_create(struct events *e, struct events_subscriber *s, struct topic *t)
{
    struct sub *sub = fli_xcalloc(1, sizeof *sub);
    struct sub_key key = {s, t};
    fli_list_init(&sub->missed);
    fli_list_init(&sub->min_live);
    sub->topic = t;
    sub->subscriber = s;
    if (fli_map_insert(&e->subs, &sub->by_key, fli_map_hash(&e->subs, &key, sizeof key)) != 0) {
        fli_fatal("out of memory for a subscription");
    }
    fli_list_push(&t->subs, &sub->at_topic);
    fli_list_push(&s->subs, &sub->at_subscriber);
    *(t->is_glob ? &s->globs : &s->channels) += 1;
    *(t->is_glob ? &e->counts.patterns : &e->counts.channels) += 1;
    e->subs_n++;
    e->of_address[s->address].subs++;
    sub->since = e->end;
    if (t->min_live) {
        fli_list_push(&e->lanes[s->lane].untold, &sub->min_live);
    }
    e->wake_subs += t->wake;
    t->lane_subs[s->lane]++;
    if (t->costly) {
        events_change_lane(e, s);
    }
}

static void sub_free(struct events *e, struct sub *sub)
{
    struct topic *t = sub->topic;
    struct events_subscriber *s = sub->subscriber;
    *(t->is_glob ? &s->globs : &s->channels) -= 1;
    *(t->is_glob ? &e->counts.patterns : &e->counts.channels) -= 1;
    e->subs_n--;
    e->of_address[s->address].subs--;
    e->wake_subs -= t->wake;
    FLI_ASSERT(t->lane_subs[s->lane] > 0);
    t->lane_subs[s->lane]--;
    events_sub_gone(e, sub);
    fli_map_remove(&e->subs, &sub->by_key);
    fli_list_remove(&sub->at_topic);
    fli_list_remove(&sub->at_subscriber);
    fli_list_remove(&sub->missed); /* these two if it is on such a list */
    fli_list_remove(&sub->min_live);
    free(sub);
    topic_left(e, t);
    if (e->subs_n == 0) {
        events_forget(e);
    }
}

static unsigned address_of(const struct events *e, void *to)
{
    return e->sink.address == NULL
               ? 0
               : (unsigned)(e->sink.address(e->sink.ctx, to) % EVENTS_ADDRESSES);
}

static struct events_subscriber *subscriber_create(struct events *e, void *to)
{
    struct events_subscriber *s = fli_xcalloc(1, sizeof *s);
    fli_list_init(&s->doomed);
    fli_list_init(&s->subs);
    s->to = to;
    s->address = address_of(e, to);
    e->counts.subscribers++;
    return s;
}

void events_drop(struct events *e, struct events_subscriber *s)
{
    if (s == NULL) {
        return;
    }
    FLI_LIST_FOREACH_SAFE(link, tmp, &s->subs)
    {
        sub_free(e, FLI_CONTAINER_OF(link, struct sub, at_subscriber));
    }
    if (fli_list_linked(&s->doomed)) {
        fli_list_remove(&s->doomed);
    }
    FLI_ASSERT(e->counts.subscribers > 0);
    e->counts.subscribers--;
    e->costly_subscribers -= s->lane == EVENTS_COSTLY;
    free(s);
}

void events_drop_doomed(struct events *e)
{
    struct fli_list *link = NULL;
    while ((link = fli_list_pop(&e->doomed)) != NULL) {
        struct events_subscriber *s = FLI_CONTAINER_OF(link, struct events_subscriber, doomed);
        void *to = s->to;
        e->counts.dropped++;
        events_drop(e, s);
        e->sink.dropped(e->sink.ctx, to);
    }
}

/* --- commands --- */

static int confirm(struct fli_buf *out, int proto, const char *word, const struct fli_slice *name,
                   const struct events_subscriber *s)
{
    int rc = fli_resp_push(out, proto, 3);
    rc = rc != 0 ? rc : fli_resp_text(out, word);
    rc = rc != 0        ? rc
         : name == NULL ? fli_resp_null(out, proto)
                        : fli_resp_bulk(out, name->data, name->len);
    return rc != 0 ? rc : fli_resp_u64(out, s == NULL ? 0 : s->channels + s->globs);
}

/* Whether it is this prefix and the name of a lock, with at most `more` bytes around the name. */
static bool is_channel(struct fli_slice name, const char *prefix, size_t more)
{
    size_t len = strlen(prefix);
    return begins_with(name, prefix) && name.len > len && name.len <= len + FL_NAME_MAX + more;
}

/* Why a name cannot be subscribed to; NULL when it can. */
static const char *wrong_name(bool is_glob, struct fli_slice name)
{
    if (is_glob) {
        bool fits = name.len >= 1 && name.len <= EVENTS_GLOB_MAX;
        return fits ? NULL : "a pattern has 1 to 260 bytes";
    }
    return is_channel(name, EVENTS_LOCK_PREFIX, 0) || is_channel(name, EVENTS_WAKE_PREFIX, 2) ||
                   slice_is(name, EVENTS_MIN_LIVE_CHANNEL)
               ? NULL
               : "the channels are " EVENTS_LOCK_PREFIX
                 "<name of a lock, 1 to 255 bytes>, " EVENTS_MIN_LIVE_CHANNEL
                 " and Redisson's " EVENTS_WAKE_PREFIX "{<name>}";
}

/* Whether `n` more subscriptions, to `topics` new patterns, are more than the address may have. */
static bool over_share(const struct events *e, void *to, unsigned n, unsigned topics)
{
    unsigned at = address_of(e, to);
    return e->sink.address != NULL &&
           (e->of_address[at].subs + n > EVENTS_ADDRESS_MAX(EVENTS_SUBS_MAX) ||
            e->of_address[at].globs + topics > EVENTS_ADDRESS_MAX(EVENTS_GLOBS_MAX));
}

/* The reason why `n` more subscriptions, to `topics` new topics, are too many; NULL when they are
 * allowed. */
static const char *over_limit(const struct events *e, const struct events_subscriber *s, void *to,
                              bool is_glob, unsigned n, unsigned topics)
{
    unsigned own = s == NULL ? 0 : is_glob ? s->globs : s->channels;
    if (own + n > (is_glob ? EVENTS_PATTERNS_MAX : EVENTS_CHANNELS_MAX)) {
        return is_glob ? "a connection may have 16 patterns; take some away with PUNSUBSCRIBE"
                       : "a connection may have 256 channels; take some away with UNSUBSCRIBE, or "
                         "use a pattern";
    }
    if (e->subs_n + n > EVENTS_SUBS_MAX) {
        return "this node has as many subscriptions as it takes (32768); ask another node";
    }
    if (is_glob && e->globs_n + topics > EVENTS_GLOBS_MAX) {
        return "this node has as many different patterns as it takes (128); ask another node";
    }
    if (over_share(e, to, n, is_glob ? topics : 0)) {
        return "one address may have three quarters of the subscriptions (24576) and of the "
               "different patterns (96) of a node; ask another node";
    }
    return NULL;
}

static enum events_outcome refuse(struct fli_buf *out, const char *word, const char *command,
                                  const char *why)
{
    int rc = fli_resp_error(out, word, "%s: %s", command, why);
    return rc == 0 ? EVENTS_REFUSED : EVENTS_FAILED;
}

/* Counts the new subscriptions and, in *ret_topics, the new topics. A name given twice in one
 * request counts twice. */
static unsigned count_new(struct events *e, const struct events_subscriber *s, bool is_glob,
                          const struct fli_slice *args, unsigned n, unsigned *ret_topics)
{
    unsigned fresh = 0;
    *ret_topics = 0;
    for (unsigned i = 0; i < n; i++) {
        struct topic *t = events_topic_find(e, is_glob, args[i]);
        *ret_topics += t == NULL;
        fresh += t == NULL || s == NULL || sub_find(e, s, t) == NULL;
    }
    return fresh;
}

static enum events_outcome subscribe(struct events *e, struct events_subscriber **at, void *to,
                                     bool is_glob, int proto, const struct fli_slice *args,
                                     unsigned n, struct fli_buf *out)
{
    const char *command = is_glob ? "PSUBSCRIBE" : "SUBSCRIBE";
    for (unsigned i = 0; i < n; i++) {
        const char *why = wrong_name(is_glob, args[i]);
        if (why != NULL) {
            return refuse(out, "ERR", command, why);
        }
    }
    unsigned topics = 0;
    unsigned fresh = count_new(e, *at, is_glob, args, n, &topics);
    const char *why = over_limit(e, *at, to, is_glob, fresh, topics);
    if (why != NULL) {
        return refuse(out, "LIMIT", command, why);
    }
    if (*at == NULL) {
        *at = subscriber_create(e, to);
    }
    int rc = 0;
    for (unsigned i = 0; rc == 0 && i < n; i++) {
        struct topic *t = events_topic_find(e, is_glob, args[i]);
        t = t != NULL ? t : topic_create(e, is_glob, args[i], (*at)->address);
        if (sub_find(e, *at, t) == NULL) {
            sub_create(e, *at, t);
        }
        rc = confirm(out, proto, is_glob ? "psubscribe" : "subscribe", &args[i], *at);
    }
    return rc == 0 ? EVENTS_CONFIRMED : EVENTS_FAILED;
}

static int unsubscribe_all(struct events *e, struct events_subscriber *s, bool is_glob, int proto,
                           const char *word, struct fli_buf *out)
{
    int rc = 0;
    if (s == NULL || (is_glob ? s->globs : s->channels) == 0) {
        return confirm(out, proto, word, NULL, s);
    }
    FLI_LIST_FOREACH_SAFE(link, tmp, &s->subs)
    {
        struct sub *sub = FLI_CONTAINER_OF(link, struct sub, at_subscriber);
        if (sub->topic->is_glob == is_glob) {
            uint8_t copy[EVENTS_TOPIC_MAX];
            struct fli_slice name = {copy, sub->topic->len};
            memcpy(copy, sub->topic->name, name.len);
            sub_free(e, sub);
            rc = rc != 0 ? rc : confirm(out, proto, word, &name, s);
        }
    }
    return rc;
}

static enum events_outcome unsubscribe(struct events *e, struct events_subscriber **at,
                                       bool is_glob, int proto, const struct fli_slice *args,
                                       unsigned n, struct fli_buf *out)
{
    const char *word = is_glob ? "punsubscribe" : "unsubscribe";
    int rc = n == 0 ? unsubscribe_all(e, *at, is_glob, proto, word, out) : 0;
    for (unsigned i = 0; i < n; i++) {
        struct topic *t = *at == NULL ? NULL : events_topic_find(e, is_glob, args[i]);
        struct sub *sub = t == NULL ? NULL : sub_find(e, *at, t);
        if (sub != NULL) {
            sub_free(e, sub);
        }
        rc = rc != 0 ? rc : confirm(out, proto, word, &args[i], *at);
    }
    if (*at != NULL && fli_list_empty(&(*at)->subs)) {
        events_drop(e, *at);
        *at = NULL;
    }
    return rc == 0 ? EVENTS_CONFIRMED : EVENTS_FAILED;
}

enum events_outcome events_command(struct events *e, struct events_subscriber **at, void *to,
                                   enum fli_command_id id, int proto, const struct fli_slice *args,
                                   unsigned n, struct fli_buf *out)
{
    switch (id) {
    case FLI_CMD_SUBSCRIBE:
    case FLI_CMD_PSUBSCRIBE:
        return subscribe(e, at, to, id == FLI_CMD_PSUBSCRIBE, proto, args, n, out);
    default:
        FLI_ASSERT(id == FLI_CMD_UNSUBSCRIBE || id == FLI_CMD_PUNSUBSCRIBE);
        return unsubscribe(e, at, id == FLI_CMD_PUNSUBSCRIBE, proto, args, n, out);
    }
}

bool events_may_send(enum fli_command_id id)
{
    switch (id) {
    case FLI_CMD_SUBSCRIBE:
    case FLI_CMD_PSUBSCRIBE:
    case FLI_CMD_UNSUBSCRIBE:
    case FLI_CMD_PUNSUBSCRIBE:
    case FLI_CMD_PING:
    case FLI_CMD_LEADER:
    case FLI_CMD_QUIT:
    case FLI_CMD_RESET:
        return true;
    default:
        return false;
    }
}

size_t events_memory_of(const struct events_subscriber *s)
{
    if (s == NULL) {
        return 0;
    }
    size_t each = sizeof(struct sub) + sizeof(struct topic) + EVENTS_TOPIC_MAX;
    return sizeof *s + (s->channels + s->globs) * each;
}
