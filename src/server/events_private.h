/* events_private.h: shared by the parts of the events: events.c (subscriptions), events_message.c
 * (texts and frames), events_publish.c (the queue, and sending events) and events_tell.c (what
 * subscriptions are told one by one: resync and min_live_token). */
#ifndef SERVER_EVENTS_PRIVATE_H
#define SERVER_EVENTS_PRIVATE_H

#include <string.h>

#include "server/events.h"

#define EVENTS_TEXT_MAX (3u * FL_OWNER_MAX + 256u)
#define EVENTS_FRAME_MAX (2u * EVENTS_TOPIC_MAX + EVENTS_TEXT_MAX + 128u)
#define EVENTS_STEPS_MESSAGE 100u /* to make a message */
#define EVENTS_STEPS_FRAME 100u   /* to give it to one subscriber: a microsecond, with writing */

/* A message being sent. */
struct message {
    struct fli_slice channel;
    size_t text_len;
    char text[EVENTS_TEXT_MAX];
};

struct topic {
    struct fli_map_node by_name; /* channels */
    struct fli_list link;        /* patterns */
    struct fli_list subs;
    bool is_glob;
    bool min_live;                    /* receives min_live_token */
    bool wake;                        /* one of Redisson's: begins with EVENTS_WAKE_PREFIX */
    bool costly;                      /* a costly pattern: matching it may take many steps */
    uint32_t lane_subs[EVENTS_LANES]; /* of `subs`, by the lane of the subscriber */
    uint16_t len;
    unsigned address; /* of its oldest subscription: a place in events.of_address */
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
    struct fli_list missed;   /* of its lane */
    struct fli_list min_live; /* told or untold of its lane, if the topic receives min_live_token */
    struct topic *topic;
    struct events_subscriber *subscriber;
    uint64_t since;           /* the first event in the queue that is still for it */
    struct events_mark heard; /* the last min_live_token that it was told */
};

struct events_subscriber {
    struct fli_list doomed;
    struct fli_list subs;
    void *to;
    unsigned address; /* a place in events.of_address */
    unsigned channels, globs;
    uint8_t lane; /* enum events_lane_id */
};

static inline struct topic *topic_of_link(struct fli_list *link)
{
    return FLI_CONTAINER_OF(link, struct topic, link);
}

static inline struct sub *sub_at_topic(struct fli_list *link)
{
    return FLI_CONTAINER_OF(link, struct sub, at_topic);
}

static inline struct fli_slice topic_name(const struct topic *t)
{
    return (struct fli_slice){t->name, t->len};
}

static inline bool slice_is(struct fli_slice s, const char *text)
{
    return s.len == strlen(text) && memcmp(s.data, text, s.len) == 0;
}

static inline struct fli_slice slice_of(const char *text)
{
    return (struct fli_slice){(const uint8_t *)text, strlen(text)};
}

/* events.c */
struct topic *events_topic_find(struct events *e, bool is_glob, struct fli_slice name);
void events_drop_doomed(struct events *e);

/* events_message.c */
void events_begin(struct message *m, struct fli_slice channel, const char *event);
void events_put(struct message *m, const char *key, uint64_t v);
void events_put_bytes(struct message *m, const char *key, struct fli_slice v);
/* The message to Redisson's threads; `name` gets that of their channel. */
void events_begin_wake(struct message *m, struct fli_slice lock, uint8_t name[EVENTS_TOPIC_MAX]);
void events_frame(struct fli_buf *out, int proto, const struct topic *t, const struct message *m);

/* events_publish.c */
void events_lanes_init(struct events *e);
void events_lanes_fini(struct events *e);
bool events_glob_matches(const struct topic *t, struct fli_slice channel, uint64_t *steps);
/* One is being removed: a lane that stands at it goes on behind it. */
void events_sub_gone(struct events *e, const struct sub *sub);
void events_topic_gone(struct events *e, const struct topic *t);
/* No subscriber is left for the events that wait. */
void events_forget(struct events *e);
/* The subscriber has a costly pattern: the other lane serves it from the same event on. */
void events_change_lane(struct events *e, struct events_subscriber *s);
bool events_caught_up(const struct events *e, enum events_lane_id lane);
void events_push_frame(struct events *e, struct events_subscriber *s, const struct fli_buf *frame);

/* events_tell.c */
/* Notes that the subscriptions of the lane missed events. */
void events_miss(struct events *e, enum events_lane_id lane, uint64_t clock_ms);
void events_tell_missed(struct events *e, struct events_lane *l, uint64_t *steps, uint64_t most);
/* What min_live_token the lane is to tell now that it has come so far. */
void events_update_min_live(struct events *e, enum events_lane_id lane);
bool events_min_live_left(const struct events_lane *l);
/* At least one message, if one is left. */
void events_tell_min_live(struct events *e, struct events_lane *l, uint64_t *steps, uint64_t most);

#endif
