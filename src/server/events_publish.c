/* events_publish.c: the queue of events, and the messages to subscribers.
 *
 * During an apply an event is only copied to the queue. Messages are sent later, in a share of each
 * turn. A frame is made once for each topic and protocol, and all its subscribers get the same
 * bytes. One event may go to 32768 subscriptions, which is more than a share: so a lane stops
 * behind any of them, and in the next turn goes on with the one behind it, whichever subscriptions
 * have come and gone meanwhile. In a turn none is removed: a subscriber that does not take a frame
 * is put on `doomed`, skipped from then on, and dropped at the end.
 *
 * Two lanes go through the queue, each in the order of the log. One serves the subscribers with
 * cheap patterns only, the other those with a costly pattern. That stays behind the first, which
 * never waits for it. A lane that falls too far behind skips to a later event. Before it goes on
 * from there, it tells each of its subscriptions `resync`. */
#include <stdlib.h>

#include "machine/glob.h"
#include "server/events_private.h"

#define USERS_KNOWN 32u   /* whose rights to the current lock are remembered */
#define COSTLY_SHARE 4u   /* one part in so many of the steps is left for costly patterns */
#define MIN_LIVE_SHARE 8u /* and one of a lane's for min_live_token */

/* An event in the queue; name and owner follow it. */
struct record {
    uint64_t token, wait, clock_ms;
    uint8_t type, reason, name_len, owner_len;
};

/* In this order an event goes to the channel of its lock, to that of Redisson's threads, and to the
 * patterns. */
enum stage { STAGE_NEW, STAGE_CHANNEL, STAGE_WAKE, STAGE_GLOBS };

/* An event, and how far a lane has sent it: a turn may end behind each subscription. */
struct events_sending {
    enum stage stage;           /* what comes next when `topic` is NULL */
    struct fli_list *glob;      /* the pattern that comes next */
    struct topic *topic;        /* it is being sent to; NULL: to none */
    struct fli_list *sub;       /* of the topic: the subscription that comes next */
    const struct message *what; /* for the topic */
    struct fli_buf frames[2];   /* of it, in RESP2 and RESP3; empty: not made yet */
    uint64_t next;              /* the place of the next event */
    bool wakes;                 /* the event wakes Redisson's threads, and some listen */
    struct message event, wake;
    uint8_t name[EVENTS_TOPIC_MAX], wake_name[EVENTS_TOPIC_MAX];
    struct fli_slice lock;
    uint64_t rights; /* of events_rights(), when these were found out */
    struct {
        uint64_t user;
        bool known, may;
    } users[USERS_KNOWN]; /* who may hear of the lock */
};

/* --- life --- */

void events_lanes_init(struct events *e)
{
    for (unsigned i = 0; i < EVENTS_LANES; i++) {
        struct events_lane *l = &e->lanes[i];
        fli_list_init(&l->missed);
        fli_list_init(&l->untold);
        fli_list_init(&l->told);
        l->sending = fli_xcalloc(1, sizeof *l->sending);
        fli_buf_init(&l->sending->frames[0], EVENTS_FRAME_MAX);
        fli_buf_init(&l->sending->frames[1], EVENTS_FRAME_MAX);
    }
}

static void free_frames(struct events *e)
{
    for (unsigned i = 0; i < EVENTS_LANES; i++) {
        fli_buf_fini(&e->lanes[i].sending->frames[0]);
        fli_buf_fini(&e->lanes[i].sending->frames[1]);
    }
}

void events_lanes_fini(struct events *e)
{
    free_frames(e);
    for (unsigned i = 0; i < EVENTS_LANES; i++) {
        free(e->lanes[i].sending);
    }
}

/* --- one event --- */

bool events_glob_matches(const struct topic *t, struct fli_slice channel, uint64_t *steps)
{
    return machine_glob_match(topic_name(t), channel, steps);
}

/* A message about a lock is for subscribers whose users may see the lock now. A user's patterns may
 * be costly to compare, and its subscribers many: they are compared once for a message. */
static bool may_see(const struct events *e, const struct events_subscriber *s,
                    struct events_sending *g, uint64_t *steps)
{
    if (e->sink.may_see == NULL) {
        return true;
    }
    uint64_t user = e->sink.user(e->sink.ctx, s->to);
    unsigned i = (unsigned)(user % USERS_KNOWN);
    if (!g->users[i].known || g->users[i].user != user) {
        g->users[i].user = user;
        g->users[i].known = true;
        g->users[i].may = e->sink.may_see(e->sink.ctx, s->to, g->lock, steps);
    }
    return g->users[i].may;
}

void events_rights(struct events *e, uint64_t rights)
{
    e->rights = rights;
}

/* In a turn no right changes, but between two they may. */
static void update_rights(const struct events *e, struct events_sending *g)
{
    if (g->rights != e->rights) {
        g->rights = e->rights;
        memset(g->users, 0, sizeof g->users);
    }
}

void events_push_frame(struct events *e, struct events_subscriber *s, const struct fli_buf *frame)
{
    if (e->sink.push(e->sink.ctx, s->to, frame->data, frame->len)) {
        e->counts.messages++;
    } else {
        fli_list_push(&e->doomed, &s->doomed);
    }
}

/* Whoever has got an event does not get it again, also if it goes to the other lane meanwhile. */
static void publish_to(struct events *e, enum events_lane_id lane, struct sub *sub, uint64_t *steps)
{
    struct events_sending *g = e->lanes[lane].sending;
    struct events_subscriber *s = sub->subscriber;
    ++*steps;
    if (s->lane != lane || fli_list_linked(&s->doomed) || sub->since > e->lanes[lane].at) {
        return;
    }
    sub->since = g->next;
    if (!may_see(e, s, g, steps)) {
        return;
    }
    *steps += EVENTS_STEPS_FRAME;
    int proto = e->sink.proto(e->sink.ctx, s->to);
    struct fli_buf *f = &g->frames[proto == 3];
    if (f->len == 0) {
        events_frame(f, proto, g->topic, g->what);
    }
    events_push_frame(e, s, f);
}

static void publish(struct events *e, enum events_lane_id lane, uint64_t *steps, uint64_t most)
{
    struct events_sending *g = e->lanes[lane].sending;
    while (g->sub != &g->topic->subs && *steps < most) {
        struct sub *sub = sub_at_topic(g->sub);
        g->sub = g->sub->next;
        publish_to(e, lane, sub, steps);
    }
    if (g->sub == &g->topic->subs) {
        g->topic = NULL;
    }
}

static void begin_topic(struct events_sending *g, struct topic *t, enum events_lane_id lane,
                        const struct message *what)
{
    if (t == NULL || t->lane_subs[lane] == 0) {
        return;
    }
    g->topic = t;
    g->sub = t->subs.next;
    g->what = what;
    fli_buf_clear(&g->frames[0]);
    fli_buf_clear(&g->frames[1]);
}

/* --- the queue --- */

bool events_caught_up(const struct events *e, enum events_lane_id lane)
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
    e->lanes[lane].sending->stage = STAGE_NEW;
    e->lanes[lane].sending->topic = NULL;
}

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
        events_miss(e, EVENTS_COSTLY, clock_ms);
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

static void put_record(struct message *m, const struct record *r, struct fli_slice owner)
{
    if (r->token != 0) {
        events_put(m, "token", r->token);
    }
    events_put_bytes(m, "owner", owner);
    events_put(m, "clock", r->clock_ms);
    if (r->wait != 0) {
        events_put(m, "wait", r->wait);
    }
    if (r->type == MACHINE_EVENT_WAIT_ENDED) {
        events_put_bytes(m, "reason", slice_of(reason_word(r->reason)));
    }
}

/* Makes the messages of the event at `at`. */
static void begin_event(const struct events *e, uint64_t at, struct events_sending *g)
{
    struct record r;
    const uint8_t *p = e->queue.data + (at - e->begin);
    size_t prefix = sizeof EVENTS_LOCK_PREFIX - 1;
    memcpy(&r, p, sizeof r);
    p += sizeof r;
    memcpy(g->name, EVENTS_LOCK_PREFIX, prefix);
    memcpy(g->name + prefix, p, r.name_len);
    g->lock = (struct fli_slice){g->name + prefix, r.name_len};
    events_begin(&g->event, (struct fli_slice){g->name, prefix + r.name_len}, event_word(r.type));
    put_record(&g->event, &r, (struct fli_slice){p + r.name_len, r.owner_len});
    g->wakes = ends_hold(r.type) && e->wake_subs > 0;
    if (g->wakes) {
        events_begin_wake(&g->wake, g->lock, g->wake_name);
    }
    memset(g->users, 0, sizeof g->users);
    g->next = at + sizeof r + r.name_len + r.owner_len;
}

static void match_glob(struct events *e, enum events_lane_id lane, uint64_t *steps)
{
    struct events_sending *g = e->lanes[lane].sending;
    struct topic *t = topic_of_link(g->glob);
    const struct message *what = !t->wake ? &g->event : g->wakes ? &g->wake : NULL;
    g->glob = g->glob->next;
    ++*steps;
    if (what != NULL && t->lane_subs[lane] > 0 && events_glob_matches(t, what->channel, steps)) {
        begin_topic(g, t, lane, what);
    }
}

/* Goes to the next topic of the lane's current event, or behind the event. */
static void next_topic(struct events *e, enum events_lane_id lane, uint64_t *steps)
{
    struct events_sending *g = e->lanes[lane].sending;
    switch (g->stage) {
    case STAGE_NEW:
        *steps += EVENTS_STEPS_MESSAGE;
        begin_event(e, e->lanes[lane].at, g);
        g->stage = STAGE_CHANNEL;
        break;
    case STAGE_CHANNEL:
        g->stage = STAGE_WAKE;
        begin_topic(g, events_topic_find(e, false, g->event.channel), lane, &g->event);
        break;
    case STAGE_WAKE:
        g->stage = STAGE_GLOBS;
        g->glob = e->globs.next;
        if (g->wakes) {
            begin_topic(g, events_topic_find(e, false, g->wake.channel), lane, &g->wake);
        }
        break;
    case STAGE_GLOBS:
        if (g->glob != &e->globs) {
            match_glob(e, lane, steps);
        } else {
            go_to(e, lane, g->next);
        }
        break;
    }
}

/* The costly lane stays behind the other, so that a subscriber can change to it. */
static uint64_t end_of_lane(const struct events *e, enum events_lane_id lane)
{
    return lane == EVENTS_COSTLY ? e->lanes[EVENTS_CHEAP].at : e->end;
}

static void publish_events(struct events *e, enum events_lane_id lane, uint64_t *steps,
                           uint64_t most)
{
    struct events_lane *l = &e->lanes[lane];
    uint64_t end = end_of_lane(e, lane);
    update_rights(e, l->sending);
    while (l->at < end && *steps < most) {
        if (l->sending->topic != NULL) {
            publish(e, lane, steps, most);
        } else {
            next_topic(e, lane, steps);
        }
    }
}

/* --- both lanes --- */

/* Whether the lane has subscribers; an empty one has nothing to send. */
static bool lane_wanted(const struct events *e, enum events_lane_id lane)
{
    return lane == EVENTS_CHEAP ? e->counts.subscribers > e->costly_subscribers
                                : e->costly_subscribers > 0;
}

/* Whether the lane has something to send; of that, min_live_token may have moved. */
static bool has_work(struct events *e, enum events_lane_id lane)
{
    events_update_min_live(e, lane);
    return lane_wanted(e, lane) &&
           (!events_caught_up(e, lane) || events_min_live_left(&e->lanes[lane]));
}

static void publish_lane(struct events *e, enum events_lane_id lane, uint64_t *steps, uint64_t most)
{
    struct events_lane *l = &e->lanes[lane];
    if (!lane_wanted(e, lane)) {
        go_to(e, lane, end_of_lane(e, lane));
    }
    events_tell_missed(e, l, steps, most);
    if (fli_list_empty(&l->missed)) {
        uint64_t left = *steps < most ? most - *steps : 0;
        uint64_t kept = events_min_live_left(l) ? left / MIN_LIVE_SHARE : 0;
        publish_events(e, lane, steps, most - kept);
        events_update_min_live(e, lane);
        events_tell_min_live(e, l, steps, most);
    }
}

bool events_publish(struct events *e, uint64_t steps_max)
{
    uint64_t steps = 0;
    (void)has_work(e, EVENTS_CHEAP);
    uint64_t kept = has_work(e, EVENTS_COSTLY) ? steps_max / COSTLY_SHARE : 0;
    publish_lane(e, EVENTS_CHEAP, &steps, steps_max - kept);
    /* It makes some progress, whatever the last message took. */
    publish_lane(e, EVENTS_COSTLY, &steps, steps < steps_max ? steps_max : steps + 1);
    e->counts.steps += steps;
    events_drop_doomed(e);
    trim(e);
    bool cheap_left = has_work(e, EVENTS_CHEAP);
    return has_work(e, EVENTS_COSTLY) || cheap_left;
}

void events_forget(struct events *e)
{
    go_to(e, EVENTS_CHEAP, e->end);
    go_to(e, EVENTS_COSTLY, e->end);
    e->newest.known = false;
    for (unsigned i = 0; i < EVENTS_LANES; i++) {
        e->lanes[i].mark.known = e->lanes[i].next.known = false;
    }
    free_frames(e);
    trim(e);
}

size_t events_queued_bytes(const struct events *e)
{
    return e->queue.cap;
}

void events_sub_gone(struct events *e, const struct sub *sub)
{
    for (unsigned i = 0; i < EVENTS_LANES; i++) {
        struct events_sending *g = e->lanes[i].sending;
        if (g->topic == sub->topic && g->sub == &sub->at_topic) {
            g->sub = g->sub->next;
        }
    }
}

void events_topic_gone(struct events *e, const struct topic *t)
{
    for (unsigned i = 0; i < EVENTS_LANES; i++) {
        struct events_sending *g = e->lanes[i].sending;
        if (g->topic == t) {
            g->topic = NULL;
        }
        if (g->stage == STAGE_GLOBS && g->glob == &t->link) {
            g->glob = g->glob->next;
        }
    }
}

/* The subscription has come to the costly lane. */
static void move_lists(struct events *e, struct sub *sub)
{
    struct events_lane *l = &e->lanes[EVENTS_COSTLY];
    if (fli_list_linked(&sub->missed)) {
        fli_list_remove(&sub->missed);
        fli_list_push(&l->missed, &sub->missed);
        l->missed_ms = e->lanes[EVENTS_CHEAP].missed_ms;
    }
    if (fli_list_linked(&sub->min_live)) {
        fli_list_remove(&sub->min_live);
        fli_list_push(&l->untold, &sub->min_live);
    }
}

void events_change_lane(struct events *e, struct events_subscriber *s)
{
    if (s->lane == EVENTS_COSTLY) {
        return;
    }
    uint64_t heard = e->lanes[EVENTS_CHEAP].at; /* but for what it has got of that event */
    FLI_ASSERT(e->lanes[EVENTS_COSTLY].at <= heard);
    s->lane = EVENTS_COSTLY;
    e->costly_subscribers++;
    FLI_LIST_FOREACH(link, &s->subs)
    {
        struct sub *sub = FLI_CONTAINER_OF(link, struct sub, at_subscriber);
        sub->since = sub->since > heard ? sub->since : heard;
        sub->topic->lane_subs[EVENTS_CHEAP]--;
        sub->topic->lane_subs[EVENTS_COSTLY]++;
        move_lists(e, sub);
    }
}

/* Events that were not sent yet are skipped as well. */
static void resync_all(struct events *e, uint64_t clock_ms)
{
    for (unsigned i = 0; i < EVENTS_LANES; i++) {
        go_to(e, (enum events_lane_id)i, e->end);
        events_miss(e, (enum events_lane_id)i, clock_ms);
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
