/* events_publish.c: the queue of events, and the messages to subscribers.
 *
 * During an apply an event is only copied to the queue. Messages are sent later, in a share of each
 * turn. A frame is made once for each topic and protocol, and all its subscribers get the same
 * bytes. While a list of subscriptions is walked, none is removed from it: a subscriber that does
 * not take a frame is put on `doomed`, skipped from then on, and dropped at the end.
 *
 * Two lanes go through the queue, each in the order of the log. One serves the subscribers with
 * cheap patterns only, an event at a time. The other serves those with a costly pattern, a pattern
 * at a time. It stays behind the first, which never waits for it. A lane that falls too far behind
 * skips to a later event. Before it goes on from there, it tells each of its subscriptions
 * `resync`. That has a share of each turn as well, since there may be 32768 of them. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "machine/glob.h"
#include "server/events_private.h"
#include "wire/resp.h"

#define TEXT_MAX (3u * FL_OWNER_MAX + 256u)
#define FRAME_MAX (2u * EVENTS_TOPIC_MAX + TEXT_MAX + 128u)
#define STEPS_EVENT 100u /* to make a message */
#define STEPS_FRAME 20u  /* to give it to one subscriber */
#define USERS_KNOWN 32u  /* whose rights to the current lock are remembered */
#define COSTLY_SHARE 4u  /* one part in so many of the steps is always for costly patterns */
#define NO_PLACE UINT64_MAX

/* A message being sent: its text, and the frames already made for the current topic. */
struct message {
    struct fli_slice channel;
    struct fli_slice lock; /* the lock it is about; empty: none */
    struct {
        uint64_t user;
        bool known, may;
    } users[USERS_KNOWN]; /* what was found out for this lock */
    size_t text_len;
    char text[TEXT_MAX];
};

/* An event in the queue; name and owner follow it. */
struct record {
    uint64_t token, wait, clock_ms;
    uint8_t type, reason, name_len, owner_len;
};

bool events_glob_matches(const struct topic *t, struct fli_slice channel, uint64_t *steps)
{
    return machine_glob_match(topic_name(t), channel, steps);
}

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

/* The message to Redisson's threads, and the name of their channel. */
static void begin_wake(struct message *m, struct fli_slice lock, uint8_t name[EVENTS_TOPIC_MAX])
{
    size_t len = sizeof EVENTS_WAKE_PREFIX - 1;
    bool braces = memchr(lock.data, '{', lock.len) == NULL;
    memcpy(name, EVENTS_WAKE_PREFIX, len);
    if (braces) {
        name[len++] = '{';
    }
    memcpy(name + len, lock.data, lock.len);
    len += lock.len;
    if (braces) {
        name[len++] = '}';
    }
    m->channel = (struct fli_slice){name, len};
    m->lock = lock;
    memset(m->users, 0, sizeof m->users);
    m->text[0] = '0';
    m->text_len = 1;
}

static void begin(struct message *m, struct fli_slice channel, const char *event)
{
    m->channel = channel;
    m->lock = (struct fli_slice){NULL, 0};
    memset(m->users, 0, sizeof m->users);
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

/* A message and its receivers: subscribers in `lane`, for events from place `at` of the queue on;
 * or only fresh ones. */
struct publication {
    struct message *m;
    enum events_lane_id lane;
    uint64_t at; /* NO_PLACE: it does not come from the queue */
    bool only_fresh;
    uint64_t *steps;
};

/* A message about no lock is for every subscriber. A message about a lock is for subscribers whose
 * users may see the lock now. A user's patterns may be costly to compare, and its subscribers many:
 * they are compared once for a message. */
static bool may_see(const struct events *e, const struct events_subscriber *s, struct message *m,
                    uint64_t *steps)
{
    if (e->sink.may_see == NULL || m->lock.len == 0) {
        return true;
    }
    uint64_t user = e->sink.user(e->sink.ctx, s->to);
    unsigned i = (unsigned)(user % USERS_KNOWN);
    if (!m->users[i].known || m->users[i].user != user) {
        m->users[i].user = user;
        m->users[i].known = true;
        m->users[i].may = e->sink.may_see(e->sink.ctx, s->to, m->lock, steps);
    }
    return m->users[i].may;
}

static bool receives(const struct events *e, const struct sub *sub, const struct publication *w)
{
    const struct events_subscriber *s = sub->subscriber;
    return s->lane == w->lane && !fli_list_linked(&s->doomed) && sub->since <= w->at &&
           (sub->fresh || !w->only_fresh) && may_see(e, s, w->m, w->steps);
}

static void publish(struct events *e, struct topic *t, const struct publication *w)
{
    struct fli_buf frames[2]; /* of RESP2 and RESP3 */
    if (t->lane_subs[w->lane] == 0) {
        return;
    }
    fli_buf_init(&frames[0], FRAME_MAX);
    fli_buf_init(&frames[1], FRAME_MAX);
    FLI_LIST_FOREACH(link, &t->subs)
    {
        struct sub *sub = sub_at_topic(link);
        struct events_subscriber *s = sub->subscriber;
        ++*w->steps;
        if (!receives(e, sub, w)) {
            continue;
        }
        *w->steps += STEPS_FRAME;
        int proto = e->sink.proto(e->sink.ctx, s->to);
        struct fli_buf *f = &frames[proto == 3];
        if (f->len == 0 && frame(f, proto, t, w->m) != 0) {
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

/* --- the queue --- */

static bool caught_up(const struct events *e, enum events_lane_id lane)
{
    return e->lanes[lane].at == e->end && fli_list_empty(&e->lanes[lane].missed);
}

/* Drops the events that both lanes have sent. Memory moves when at least half of it is dropped. */
static void trim(struct events *e)
{
    uint64_t first = e->lanes[0].at < e->lanes[1].at ? e->lanes[0].at : e->lanes[1].at;
    size_t done = (size_t)(first - e->begin);
    if (done == e->queue.len && e->queue.cap > EVENTS_QUEUE_KEEP) {
        fli_buf_fini(&e->queue);
        e->begin = first;
    } else if (done > 0 && done >= e->queue.len / 2) {
        fli_buf_consume(&e->queue, done);
        e->begin = first;
    }
}

static void go_to(struct events *e, enum events_lane_id lane, uint64_t at)
{
    e->lanes[lane].at = at;
    e->lanes[lane].next = NULL;
}

static void resync_lane(struct events *e, enum events_lane_id lane, uint64_t clock_ms);
static void resync_all(struct events *e, uint64_t clock_ms);

static bool has_room(struct events *e, size_t size)
{
    trim(e);
    return e->queue.len + size <= EVENTS_QUEUE_MAX;
}

/* Makes room: first the lane with costly patterns skips to the other one, then both skip to the
 * end. Subscribers that missed events are told. */
static void make_room(struct events *e, size_t size, uint64_t clock_ms)
{
    if (has_room(e, size)) {
        return;
    }
    e->counts.resyncs++;
    go_to(e, EVENTS_COSTLY, e->lanes[EVENTS_CHEAP].at);
    if (has_room(e, size)) {
        resync_lane(e, EVENTS_COSTLY, clock_ms);
    } else {
        resync_all(e, clock_ms);
    }
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
    if (event_word(event->type) == NULL || !events_wanted(e)) {
        return;
    }
    FLI_ASSERT(event->name.len >= 1 && event->name.len <= FL_NAME_MAX);
    FLI_ASSERT(event->owner.len <= FL_OWNER_MAX);
    struct record r = {.token = event->token,
                       .wait = event->wait,
                       .clock_ms = event->clock_ms,
                       .type = event->type,
                       .reason = event->reason,
                       .name_len = (uint8_t)event->name.len,
                       .owner_len = (uint8_t)event->owner.len};
    size_t size = sizeof r + event->name.len + event->owner.len;
    make_room(e, size, event->clock_ms);
    int rc = fli_buf_append(&e->queue, &r, sizeof r);
    rc = rc != 0 ? rc : fli_buf_append(&e->queue, event->name.data, event->name.len);
    rc = rc != 0 ? rc : fli_buf_append(&e->queue, event->owner.data, event->owner.len);
    if (rc != 0) {
        fli_fatal("out of memory for an event");
    }
    e->end += size;
}

static bool ends_hold(uint8_t type)
{
    return type == MACHINE_EVENT_RELEASED || type == MACHINE_EVENT_EXPIRED ||
           type == MACHINE_EVENT_BROKEN;
}

/* Reads the message of the record at `at`; returns where the next one begins. `name` gets the
 * channel's name. */
static uint64_t read_record(const struct events *e, uint64_t at, uint8_t name[EVENTS_TOPIC_MAX],
                            struct message *m, bool *ret_ends)
{
    struct record r;
    const uint8_t *p = e->queue.data + (at - e->begin);
    size_t prefix = sizeof EVENTS_LOCK_PREFIX - 1;
    memcpy(&r, p, sizeof r);
    *ret_ends = ends_hold(r.type);
    p += sizeof r;
    memcpy(name, EVENTS_LOCK_PREFIX, prefix);
    memcpy(name + prefix, p, r.name_len);
    begin(m, (struct fli_slice){name, prefix + r.name_len}, event_word(r.type));
    m->lock = (struct fli_slice){name + prefix, r.name_len};
    if (r.token != 0) {
        put(m, "token", r.token);
    }
    put_bytes(m, "owner", (struct fli_slice){p + r.name_len, r.owner_len});
    put(m, "clock", r.clock_ms);
    if (r.wait != 0) {
        put(m, "wait", r.wait);
    }
    if (r.type == MACHINE_EVENT_WAIT_ENDED) {
        put_bytes(m, "reason", slice_of(reason_word(r.reason)));
    }
    return at + sizeof r + r.name_len + r.owner_len;
}

/* Continues with the lane's current event. In the costly lane that may take many turns. */
static void publish_next(struct events *e, enum events_lane_id lane, uint64_t *steps, uint64_t most)
{
    struct events_lane *l = &e->lanes[lane];
    uint8_t name[EVENTS_TOPIC_MAX];
    uint8_t wake_name[EVENTS_TOPIC_MAX];
    struct message m;
    struct message wake;
    bool ends = false;
    uint64_t next = read_record(e, l->at, name, &m, &ends);
    struct publication w = {.m = &m, .lane = lane, .at = l->at, .steps = steps};
    struct publication wakes = {.m = &wake, .lane = lane, .at = l->at, .steps = steps};
    bool wanted = ends && e->wake_subs > 0;
    if (wanted) {
        begin_wake(&wake, m.lock, wake_name);
    }
    *steps += STEPS_EVENT;
    bool first = true; /* it always makes some progress */
    if (l->next == NULL) {
        struct topic *t = events_topic_find(e, false, m.channel);
        if (t != NULL) {
            publish(e, t, &w);
        }
        t = wanted ? events_topic_find(e, false, wake.channel) : NULL;
        if (t != NULL) {
            publish(e, t, &wakes);
        }
        l->next = e->globs.next;
    }
    while (l->next != &e->globs && (first || lane == EVENTS_CHEAP || *steps < most)) {
        struct topic *t = topic_of_link(l->next);
        first = false;
        l->next = l->next->next;
        const struct publication *what = !t->wake ? &w : wanted ? &wakes : NULL;
        if (what != NULL && t->lane_subs[lane] > 0 &&
            events_glob_matches(t, what->m->channel, steps)) {
            publish(e, t, what);
        }
    }
    if (l->next == &e->globs) {
        go_to(e, lane, next);
    }
}

/* Whether the lane has subscribers; an empty one has nothing to send. */
static bool lane_wanted(const struct events *e, enum events_lane_id lane)
{
    return lane == EVENTS_CHEAP ? e->counts.subscribers > e->costly_subscribers
                                : e->costly_subscribers > 0;
}

/* Tells one subscription that it missed events. False: its subscriber takes no more. */
static bool tell_missed(struct events *e, const struct sub *sub, uint64_t clock_ms,
                        struct fli_buf *out)
{
    const struct topic *t = sub->topic;
    struct message m;
    begin(&m, t->is_glob ? slice_of(EVENTS_RESYNC_CHANNEL) : topic_name(t), "resync");
    put(&m, "clock", clock_ms);
    if (t->wake && !t->is_glob) { /* every waiter asks again */
        m.text[0] = '0';
        m.text_len = 1;
    }
    fli_buf_clear(out);
    if (frame(out, e->sink.proto(e->sink.ctx, sub->subscriber->to), t, &m) != 0) {
        fli_fatal("out of memory for a message");
    }
    return e->sink.push(e->sink.ctx, sub->subscriber->to, out->data, out->len);
}

/* Goes on telling the subscriptions of the lane that they missed events. */
static void publish_missed(struct events *e, struct events_lane *l, uint64_t *steps, uint64_t most)
{
    struct fli_buf out;
    struct fli_list *link = NULL;
    fli_buf_init(&out, FRAME_MAX);
    while (*steps < most && (link = fli_list_pop(&l->missed)) != NULL) {
        struct sub *sub = FLI_CONTAINER_OF(link, struct sub, missed);
        struct events_subscriber *s = sub->subscriber;
        if (fli_list_linked(&s->doomed)) {
            continue;
        }
        *steps += STEPS_EVENT + STEPS_FRAME;
        if (tell_missed(e, sub, l->missed_ms, &out)) {
            e->counts.messages++;
        } else {
            fli_list_push(&e->doomed, &s->doomed);
        }
    }
    fli_buf_fini(&out);
}

/* The costly lane stays behind the other, so that a subscriber can change to it. */
static void publish_lane(struct events *e, enum events_lane_id lane, uint64_t *steps, uint64_t most)
{
    uint64_t end = lane == EVENTS_COSTLY ? e->lanes[EVENTS_CHEAP].at : e->end;
    if (!lane_wanted(e, lane)) {
        go_to(e, lane, end);
    }
    publish_missed(e, &e->lanes[lane], steps, most);
    while (e->lanes[lane].at < end && *steps < most) {
        publish_next(e, lane, steps, most);
    }
}

bool events_publish(struct events *e, uint64_t steps_max)
{
    uint64_t steps = 0;
    publish_lane(e, EVENTS_CHEAP, &steps, steps_max);
    publish_lane(e, EVENTS_COSTLY, &steps,
                 steps > steps_max - steps_max / COSTLY_SHARE ? steps + steps_max / COSTLY_SHARE
                                                              : steps_max);
    e->counts.steps += steps;
    events_drop_doomed(e);
    trim(e);
    return !caught_up(e, EVENTS_CHEAP) || !caught_up(e, EVENTS_COSTLY);
}

void events_forget(struct events *e)
{
    go_to(e, EVENTS_CHEAP, e->end);
    go_to(e, EVENTS_COSTLY, e->end);
    trim(e);
}

size_t events_queued_bytes(const struct events *e)
{
    return e->queue.cap;
}

void events_glob_gone(struct events *e, struct topic *t)
{
    for (unsigned i = 0; i < EVENTS_LANES; i++) {
        if (e->lanes[i].next == &t->link) {
            e->lanes[i].next = t->link.next;
        }
    }
}

void events_change_lane(struct events *e, struct events_subscriber *s)
{
    if (s->lane == EVENTS_COSTLY) {
        return;
    }
    uint64_t heard = e->lanes[EVENTS_CHEAP].at;
    FLI_ASSERT(e->lanes[EVENTS_COSTLY].at <= heard && e->lanes[EVENTS_CHEAP].next == NULL);
    s->lane = EVENTS_COSTLY;
    e->costly_subscribers++;
    FLI_LIST_FOREACH(link, &s->subs)
    {
        struct sub *sub = FLI_CONTAINER_OF(link, struct sub, at_subscriber);
        sub->since = sub->since > heard ? sub->since : heard;
        sub->topic->lane_subs[EVENTS_CHEAP]--;
        sub->topic->lane_subs[EVENTS_COSTLY]++;
        if (fli_list_linked(&sub->missed)) {
            fli_list_remove(&sub->missed);
            fli_list_push(&e->lanes[EVENTS_COSTLY].missed, &sub->missed);
            e->lanes[EVENTS_COSTLY].missed_ms = e->lanes[EVENTS_CHEAP].missed_ms;
        }
    }
}

/* --- messages that do not come from the queue --- */

struct resync {
    struct events_lane *lane;
    enum events_lane_id id;
};

static void note_missed(const struct resync *r, const struct topic *t)
{
    if (t->lane_subs[r->id] == 0) {
        return;
    }
    FLI_LIST_FOREACH(link, &t->subs)
    {
        struct sub *sub = sub_at_topic(link);
        if (sub->subscriber->lane == r->id && !fli_list_linked(&sub->missed)) {
            fli_list_push(&r->lane->missed, &sub->missed);
        }
    }
}

static void note_channel(void *ctx, struct fli_map_node *node)
{
    note_missed(ctx, FLI_CONTAINER_OF(node, struct topic, by_name));
}

/* Nothing is sent in here: it may be in the midst of an apply. */
static void resync_lane(struct events *e, enum events_lane_id lane, uint64_t clock_ms)
{
    struct resync r = {&e->lanes[lane], lane};
    e->lanes[lane].missed_ms = clock_ms;
    fli_map_each(&e->channels, note_channel, &r);
    FLI_LIST_FOREACH(link, &e->globs)
    {
        note_missed(&r, topic_of_link(link));
    }
}

/* Events that were not sent yet are skipped as well. */
static void resync_all(struct events *e, uint64_t clock_ms)
{
    for (unsigned i = 0; i < EVENTS_LANES; i++) {
        go_to(e, (enum events_lane_id)i, e->end);
        resync_lane(e, (enum events_lane_id)i, clock_ms);
    }
    trim(e);
}

void events_resync(struct events *e, uint64_t clock_ms)
{
    if (!events_wanted(e)) {
        return;
    }
    e->counts.resyncs++;
    resync_all(e, clock_ms);
}

static void publish_min_live(struct events *e, struct topic *t, const struct publication *w)
{
    publish(e, t, w);
    FLI_LIST_FOREACH(link, &t->subs)
    {
        struct sub *sub = sub_at_topic(link);
        if (sub->subscriber->lane == w->lane) {
            e->fresh_subs -= sub->fresh;
            sub->fresh = false;
        }
    }
}

static void min_live_lane(struct events *e, enum events_lane_id lane, uint64_t min_live_token,
                          uint64_t clock_ms)
{
    struct message m;
    uint64_t steps = 0;
    struct publication w = {.m = &m,
                            .lane = lane,
                            .at = NO_PLACE,
                            .only_fresh = min_live_token == e->lanes[lane].min_live_token,
                            .steps = &steps};
    e->lanes[lane].min_live_token = min_live_token;
    begin(&m, slice_of(EVENTS_MIN_LIVE_CHANNEL), "min_live_token");
    put(&m, "token", min_live_token);
    put(&m, "clock", clock_ms);
    struct topic *t = events_topic_find(e, false, m.channel);
    if (t != NULL) {
        publish_min_live(e, t, &w);
    }
    FLI_LIST_FOREACH(link, &e->globs)
    {
        if (topic_of_link(link)->min_live) {
            publish_min_live(e, topic_of_link(link), &w);
        }
    }
}

void events_turn(struct events *e, uint64_t min_live_token, uint64_t clock_ms)
{
    for (unsigned i = 0; i < EVENTS_LANES; i++) {
        bool moved = min_live_token != e->lanes[i].min_live_token;
        /* Comes behind the events, in each lane. */
        if (e->min_live_subs > 0 && (moved || e->fresh_subs > 0) &&
            caught_up(e, (enum events_lane_id)i)) {
            min_live_lane(e, (enum events_lane_id)i, min_live_token, clock_ms);
        }
    }
    events_drop_doomed(e);
}
