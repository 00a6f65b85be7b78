/* events.c: see events.h.
 *
 *   topic --subs--> sub <--subs-- subscriber
 *
 * Frames are made once a topic and protocol, and the same bytes go to each subscriber. While a list
 * of subs is walked nobody is taken off it: who does not take a frame is put on `doomed`, passed
 * over from then on, and dropped at the end. */
#include "server/events.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "machine/glob.h"
#include "wire/resp.h"

#define TEXT_MAX (3u * FL_OWNER_MAX + 256u)
#define FRAME_MAX (2u * EVENTS_TOPIC_MAX + TEXT_MAX + 128u)

struct topic {
    struct fli_map_node by_name; /* channels */
    struct fli_list link;        /* patterns */
    struct fli_list subs;
    bool is_glob;
    bool min_live; /* hears of min_live_token */
    uint16_t len;
    uint8_t name[];
};

struct sub_key {
    const struct events_subscriber *subscriber;
    const struct topic *topic;
};

struct sub {
    struct fli_map_node by_key;
    struct fli_list at_topic;
    struct fli_list at_subscriber;
    struct topic *topic;
    struct events_subscriber *subscriber;
    bool fresh; /* min_live topics: was not told any yet */
};

struct events_subscriber {
    struct fli_list doomed;
    struct fli_list subs;
    void *to;
    unsigned channels, globs;
};

/* A message on its way: its text, and the frames already made for the topic in hand. */
struct message {
    struct fli_slice channel;
    struct fli_slice lock; /* that it is about; empty: none */
    size_t text_len;
    char text[TEXT_MAX];
};

static struct topic *topic_of_link(struct fli_list *link)
{
    return FLI_CONTAINER_OF(link, struct topic, link);
}

static struct sub *sub_at_topic(struct fli_list *link)
{
    return FLI_CONTAINER_OF(link, struct sub, at_topic);
}

static struct fli_slice topic_name(const struct topic *t)
{
    return (struct fli_slice){t->name, t->len};
}

static bool slice_is(struct fli_slice s, const char *text)
{
    return s.len == strlen(text) && memcmp(s.data, text, s.len) == 0;
}

static struct fli_slice slice_of(const char *text)
{
    return (struct fli_slice){(const uint8_t *)text, strlen(text)};
}

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
}

void events_fini(struct events *e)
{
    FLI_ASSERT(e->subs_n == 0 && e->channels.len == 0 && e->globs_n == 0);
    fli_map_fini(&e->channels);
    fli_map_fini(&e->subs);
}

void events_get_counts(const struct events *e, struct events_counts *ret)
{
    *ret = e->counts;
}

/* --- topics and subscriptions --- */

static struct topic *topic_find(struct events *e, bool is_glob, struct fli_slice name)
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

static bool glob_matches(const struct topic *t, struct fli_slice channel)
{
    uint64_t steps = 0;
    return machine_glob_match(topic_name(t), channel, &steps);
}

static struct topic *topic_create(struct events *e, bool is_glob, struct fli_slice name)
{
    struct topic *t = fli_xcalloc(1, sizeof *t + name.len);
    fli_list_init(&t->link);
    fli_list_init(&t->subs);
    t->is_glob = is_glob;
    t->len = (uint16_t)name.len;
    memcpy(t->name, name.data, name.len);
    t->min_live = is_glob ? glob_matches(t, slice_of(EVENTS_MIN_LIVE_CHANNEL))
                          : slice_is(name, EVENTS_MIN_LIVE_CHANNEL);
    if (is_glob) {
        fli_list_push(&e->globs, &t->link);
        e->globs_n++;
    } else if (fli_map_insert(&e->channels, &t->by_name,
                              fli_map_hash(&e->channels, name.data, name.len)) != 0) {
        fli_fatal("out of memory for a channel");
    }
    return t;
}

static void topic_relax(struct events *e, struct topic *t)
{
    if (!fli_list_empty(&t->subs)) {
        return;
    }
    if (t->is_glob) {
        fli_list_remove(&t->link);
        e->globs_n--;
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
    sub->fresh = t->min_live;
    e->min_live_subs += t->min_live;
    e->fresh_subs += t->min_live;
}

static void sub_free(struct events *e, struct sub *sub)
{
    struct topic *t = sub->topic;
    struct events_subscriber *s = sub->subscriber;
    *(t->is_glob ? &s->globs : &s->channels) -= 1;
    *(t->is_glob ? &e->counts.patterns : &e->counts.channels) -= 1;
    e->subs_n--;
    e->min_live_subs -= t->min_live;
    e->fresh_subs -= sub->fresh;
    fli_map_remove(&e->subs, &sub->by_key);
    fli_list_remove(&sub->at_topic);
    fli_list_remove(&sub->at_subscriber);
    free(sub);
    topic_relax(e, t);
}

static struct events_subscriber *subscriber_create(struct events *e, void *to)
{
    struct events_subscriber *s = fli_xcalloc(1, sizeof *s);
    fli_list_init(&s->doomed);
    fli_list_init(&s->subs);
    s->to = to;
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
    free(s);
}

static void drop_doomed(struct events *e)
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

/* Why a name cannot be subscribed to; NULL when it can. */
static const char *wrong_name(bool is_glob, struct fli_slice name)
{
    size_t prefix = sizeof EVENTS_LOCK_PREFIX - 1;
    if (is_glob) {
        bool fits = name.len >= 1 && name.len <= EVENTS_TOPIC_MAX;
        return fits ? NULL : "a pattern has 1 to 260 bytes";
    }
    bool lock = name.len > prefix && name.len <= EVENTS_TOPIC_MAX &&
                memcmp(name.data, EVENTS_LOCK_PREFIX, prefix) == 0;
    return lock || slice_is(name, EVENTS_MIN_LIVE_CHANNEL) ? NULL
                                                           : "the channels are " EVENTS_LOCK_PREFIX
                                                             "<name of a lock, 1 to 255 bytes> "
                                                             "and " EVENTS_MIN_LIVE_CHANNEL;
}

/* Why no `n` more subscriptions to `topics` new topics can be had; NULL when they can. */
static const char *over_limit(const struct events *e, const struct events_subscriber *s,
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
    return NULL;
}

static enum events_outcome refuse(struct fli_buf *out, const char *word, const char *command,
                                  const char *why)
{
    int rc = fli_resp_error(out, word, "%s: %s", command, why);
    return rc == 0 ? EVENTS_REFUSED : EVENTS_FAILED;
}

/* How many subscriptions it takes, and in *ret_topics how many topics. What is given twice in one
 * request counts twice. */
static unsigned count_new(struct events *e, const struct events_subscriber *s, bool is_glob,
                          const struct fli_slice *args, unsigned n, unsigned *ret_topics)
{
    unsigned fresh = 0;
    *ret_topics = 0;
    for (unsigned i = 0; i < n; i++) {
        struct topic *t = topic_find(e, is_glob, args[i]);
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
    const char *why = over_limit(e, *at, is_glob, fresh, topics);
    if (why != NULL) {
        return refuse(out, "LIMIT", command, why);
    }
    if (*at == NULL) {
        *at = subscriber_create(e, to);
    }
    int rc = 0;
    for (unsigned i = 0; rc == 0 && i < n; i++) {
        struct topic *t = topic_find(e, is_glob, args[i]);
        t = t != NULL ? t : topic_create(e, is_glob, args[i]);
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
        struct topic *t = *at == NULL ? NULL : topic_find(e, is_glob, args[i]);
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
    case FLI_CMD_QUIT:
    case FLI_CMD_RESET:
        return true;
    default:
        return false;
    }
}

/* --- messages --- */

static void put(struct message *m, const char *key, uint64_t v)
{
    int n = snprintf(m->text + m->text_len, sizeof m->text - m->text_len, " %s=%" PRIu64, key, v);
    FLI_ASSERT(n > 0 && (size_t)n < sizeof m->text - m->text_len);
    m->text_len += (size_t)n;
}

static void put_bytes(struct message *m, const char *key, struct fli_slice v)
{
    static const char digits[] = "0123456789ABCDEF";
    int n = snprintf(m->text + m->text_len, sizeof m->text - m->text_len, " %s=", key);
    FLI_ASSERT(n > 0);
    m->text_len += (size_t)n;
    FLI_ASSERT(m->text_len + 3 * v.len < sizeof m->text);
    for (size_t i = 0; i < v.len; i++) {
        uint8_t c = v.data[i];
        if (c > ' ' && c < 0x7f && c != '%') {
            m->text[m->text_len++] = (char)c;
        } else {
            m->text[m->text_len++] = '%';
            m->text[m->text_len++] = digits[c >> 4];
            m->text[m->text_len++] = digits[c & 15];
        }
    }
}

static void begin(struct message *m, struct fli_slice channel, const char *event)
{
    m->channel = channel;
    m->lock = (struct fli_slice){NULL, 0};
    m->text_len = (size_t)snprintf(m->text, sizeof m->text, "event=%s", event);
}

static int frame(struct fli_buf *out, int proto, const struct topic *t, const struct message *m)
{
    int rc = fli_resp_push(out, proto, t->is_glob ? 4 : 3);
    rc = rc != 0 ? rc : fli_resp_text(out, t->is_glob ? "pmessage" : "message");
    if (rc == 0 && t->is_glob) {
        rc = fli_resp_bulk(out, t->name, t->len);
    }
    rc = rc != 0 ? rc : fli_resp_bulk(out, m->channel.data, m->channel.len);
    return rc != 0 ? rc : fli_resp_bulk(out, m->text, m->text_len);
}

/* What is said of no lock is for every subscriber. */
static bool may_hear(const struct events *e, const struct events_subscriber *s,
                     const struct message *m)
{
    return e->sink.may_see == NULL || m->lock.len == 0 ||
           e->sink.may_see(e->sink.ctx, s->to, m->lock);
}

/* Tells the subscribers of one topic; only the fresh ones when asked so. */
static void tell(struct events *e, struct topic *t, const struct message *m, bool only_fresh)
{
    struct fli_buf frames[2]; /* of RESP2 and RESP3 */
    fli_buf_init(&frames[0], FRAME_MAX);
    fli_buf_init(&frames[1], FRAME_MAX);
    FLI_LIST_FOREACH(link, &t->subs)
    {
        struct sub *sub = sub_at_topic(link);
        struct events_subscriber *s = sub->subscriber;
        if (fli_list_linked(&s->doomed) || (only_fresh && !sub->fresh) || !may_hear(e, s, m)) {
            continue;
        }
        int proto = e->sink.proto(e->sink.ctx, s->to);
        struct fli_buf *f = &frames[proto == 3];
        if (f->len == 0 && frame(f, proto, t, m) != 0) {
            fli_fatal("out of memory for a message");
        }
        if (e->sink.push(e->sink.ctx, s->to, f->data, f->len)) {
            e->counts.messages++;
        } else {
            fli_list_push(&e->doomed, &s->doomed);
        }
    }
    fli_buf_fini(&frames[0]);
    fli_buf_fini(&frames[1]);
}

static const char *event_word(uint8_t type)
{
    switch (type) {
    case MACHINE_EVENT_GRANTED:
        return "granted";
    case MACHINE_EVENT_QUEUED:
        return "queued";
    case MACHINE_EVENT_RELEASED:
        return "released";
    case MACHINE_EVENT_EXPIRED:
        return "expired";
    case MACHINE_EVENT_BROKEN:
        return "broken";
    case MACHINE_EVENT_WAIT_ENDED:
        return "left";
    default:
        return NULL;
    }
}

static const char *reason_word(uint8_t reason)
{
    switch (reason) {
    case MACHINE_REASON_DEADLINE:
        return "deadline";
    case MACHINE_REASON_CANCEL:
        return "cancel";
    case MACHINE_REASON_DENIED:
        return "denied";
    default:
        return "session";
    }
}

void events_feed(struct events *e, const struct machine_event *event)
{
    const char *word = event_word(event->type);
    if (word == NULL || !events_wanted(e)) {
        return;
    }
    size_t prefix = sizeof EVENTS_LOCK_PREFIX - 1;
    uint8_t name[EVENTS_TOPIC_MAX];
    FLI_ASSERT(event->name.len >= 1 && event->name.len <= FL_NAME_MAX);
    memcpy(name, EVENTS_LOCK_PREFIX, prefix);
    memcpy(name + prefix, event->name.data, event->name.len);
    struct message m;
    begin(&m, (struct fli_slice){name, prefix + event->name.len}, word);
    m.lock = event->name;
    if (event->token != 0) {
        put(&m, "token", event->token);
    }
    put_bytes(&m, "owner", event->owner);
    put(&m, "clock", event->clock_ms);
    if (event->wait != 0) {
        put(&m, "wait", event->wait);
    }
    if (event->type == MACHINE_EVENT_WAIT_ENDED) {
        put_bytes(&m, "reason", slice_of(reason_word(event->reason)));
    }
    struct topic *t = topic_find(e, false, m.channel);
    if (t != NULL) {
        tell(e, t, &m, false);
    }
    FLI_LIST_FOREACH(link, &e->globs)
    {
        if (glob_matches(topic_of_link(link), m.channel)) {
            tell(e, topic_of_link(link), &m, false);
        }
    }
    drop_doomed(e);
}

struct resync {
    struct events *events;
    uint64_t clock_ms;
};

static void resync_channel(void *ctx, struct fli_map_node *node)
{
    const struct resync *r = ctx;
    struct topic *t = FLI_CONTAINER_OF(node, struct topic, by_name);
    struct message m;
    begin(&m, topic_name(t), "resync");
    put(&m, "clock", r->clock_ms);
    tell(r->events, t, &m, false);
}

void events_resync(struct events *e, uint64_t clock_ms)
{
    if (!events_wanted(e)) {
        return;
    }
    e->counts.resyncs++;
    struct resync r = {e, clock_ms};
    fli_map_each(&e->channels, resync_channel, &r);
    struct message m;
    begin(&m, slice_of(EVENTS_RESYNC_CHANNEL), "resync");
    put(&m, "clock", clock_ms);
    FLI_LIST_FOREACH(link, &e->globs)
    {
        tell(e, topic_of_link(link), &m, false);
    }
    drop_doomed(e);
}

static void tell_min_live(struct events *e, struct topic *t, const struct message *m, bool moved)
{
    tell(e, t, m, !moved);
    FLI_LIST_FOREACH(link, &t->subs)
    {
        struct sub *sub = sub_at_topic(link);
        e->fresh_subs -= sub->fresh;
        sub->fresh = false;
    }
}

void events_turn(struct events *e, uint64_t min_live_token, uint64_t clock_ms)
{
    bool moved = min_live_token != e->min_live_token;
    if (e->min_live_subs == 0 || (!moved && e->fresh_subs == 0)) {
        return;
    }
    e->min_live_token = min_live_token;
    struct message m;
    begin(&m, slice_of(EVENTS_MIN_LIVE_CHANNEL), "min_live_token");
    put(&m, "token", min_live_token);
    put(&m, "clock", clock_ms);
    struct topic *t = topic_find(e, false, m.channel);
    if (t != NULL) {
        tell_min_live(e, t, &m, moved);
    }
    FLI_LIST_FOREACH(link, &e->globs)
    {
        if (topic_of_link(link)->min_live) {
            tell_min_live(e, topic_of_link(link), &m, moved);
        }
    }
    drop_doomed(e);
}
