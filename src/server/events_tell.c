/* events_tell.c: what subscriptions are told one by one, each with a frame of its own: `resync`,
 * and min_live_token.
 *
 * Of min_live_token only the newest value matters to a subscription that was not told the last one
 * yet. So a lane has one value, and lists of those that were told and were not; when it moves, the
 * lists are joined. A value comes behind the events that waited when it was new: until the lane has
 * come to that place, it tells the value before. The next one is taken up only then, so that a lane
 * that is always behind tells each some value in the end. */
#include "server/events_private.h"

static void tell(struct events *e, const struct sub *sub, const struct message *m,
                 struct fli_buf *out, uint64_t *steps)
{
    struct events_subscriber *s = sub->subscriber;
    *steps += EVENTS_STEPS_MESSAGE + EVENTS_STEPS_FRAME;
    fli_buf_clear(out);
    events_frame(out, e->sink.proto(e->sink.ctx, s->to), sub->topic, m);
    events_push_frame(e, s, out);
}

/* --- resync --- */

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
void events_miss(struct events *e, enum events_lane_id lane, uint64_t clock_ms)
{
    struct resync r = {&e->lanes[lane], lane};
    e->lanes[lane].missed_ms = clock_ms;
    fli_map_each(&e->channels, note_channel, &r);
    FLI_LIST_FOREACH(link, &e->globs)
    {
        note_missed(&r, topic_of_link(link));
    }
}

static void tell_one_missed(struct events *e, const struct sub *sub, uint64_t clock_ms,
                            struct fli_buf *out, uint64_t *steps)
{
    const struct topic *t = sub->topic;
    struct message m;
    events_begin(&m, t->is_glob ? slice_of(EVENTS_RESYNC_CHANNEL) : topic_name(t), "resync");
    events_put(&m, "clock", clock_ms);
    if (t->wake && !t->is_glob) { /* every waiter asks again */
        m.text[0] = '0';
        m.text_len = 1;
    }
    tell(e, sub, &m, out, steps);
}

void events_tell_missed(struct events *e, struct events_lane *l, uint64_t *steps, uint64_t most)
{
    struct fli_buf out;
    struct fli_list *link = NULL;
    fli_buf_init(&out, EVENTS_FRAME_MAX);
    while (*steps < most && (link = fli_list_pop(&l->missed)) != NULL) {
        struct sub *sub = FLI_CONTAINER_OF(link, struct sub, missed);
        ++*steps;
        if (!fli_list_linked(&sub->subscriber->doomed)) {
            tell_one_missed(e, sub, l->missed_ms, &out, steps);
        }
    }
    fli_buf_fini(&out);
}

/* --- min_live_token --- */

void events_min_live(struct events *e, uint64_t min_live_token, uint64_t clock_ms)
{
    e->newest = (struct events_mark){true, min_live_token, clock_ms};
}

static bool differs(const struct events_mark *a, const struct events_mark *b)
{
    return a->known != b->known || a->token != b->token;
}

static void set_mark(struct events_lane *l, const struct events_mark *mark)
{
    if (differs(&l->mark, mark)) {
        fli_list_splice(&l->untold, &l->told);
    }
    l->mark = *mark; /* the clock goes on also while the token stays */
    l->next.known = false;
}

void events_update_min_live(struct events *e, enum events_lane_id lane)
{
    struct events_lane *l = &e->lanes[lane];
    if (!e->newest.known) {
        return;
    }
    if (events_caught_up(e, lane)) {
        set_mark(l, &e->newest);
        return;
    }
    if (l->next.known && l->at >= l->next_at) {
        set_mark(l, &l->next);
    }
    if (!l->next.known && differs(&l->mark, &e->newest)) {
        l->next = e->newest;
        l->next_at = e->end;
    }
}

bool events_min_live_left(const struct events_lane *l)
{
    return l->mark.known && !fli_list_empty(&l->untold);
}

/* A subscription that came from the other lane may have heard the value there, or a later one. */
static bool is_news(const struct sub *sub, const struct events_mark *mark)
{
    return !fli_list_linked(&sub->subscriber->doomed) &&
           (!sub->heard.known || sub->heard.token < mark->token);
}

void events_tell_min_live(struct events *e, struct events_lane *l, uint64_t *steps, uint64_t most)
{
    struct message m;
    struct fli_buf out;
    if (!events_min_live_left(l)) {
        return;
    }
    events_begin(&m, slice_of(EVENTS_MIN_LIVE_CHANNEL), "min_live_token");
    events_put(&m, "token", l->mark.token);
    events_put(&m, "clock", l->mark.clock_ms);
    fli_buf_init(&out, EVENTS_FRAME_MAX);
    for (struct fli_list *link = NULL; (link = fli_list_pop(&l->untold)) != NULL;) {
        struct sub *sub = FLI_CONTAINER_OF(link, struct sub, min_live);
        fli_list_push(&l->told, link);
        ++*steps;
        if (is_news(sub, &l->mark)) {
            sub->heard = l->mark;
            tell(e, sub, &m, &out, steps);
        }
        if (*steps >= most) {
            break;
        }
    }
    fli_buf_fini(&out);
}
