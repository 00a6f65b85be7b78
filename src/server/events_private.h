/* events_private.h: shared by the two parts of the events: events.c (subscriptions) and
 * events_publish.c (the queue, and sending). */
#ifndef SERVER_EVENTS_PRIVATE_H
#define SERVER_EVENTS_PRIVATE_H

#include <string.h>

#include "server/events.h"

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
    struct fli_list missed; /* of its lane */
    struct topic *topic;
    struct events_subscriber *subscriber;
    uint64_t since; /* the first event in the queue that is for it */
    bool fresh;     /* of a min_live topic: has not received it yet */
};

struct events_subscriber {
    struct fli_list doomed;
    struct fli_list subs;
    void *to;
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

/* events_publish.c */
bool events_glob_matches(const struct topic *t, struct fli_slice channel, uint64_t *steps);
/* A pattern is being removed: a lane that stands at it continues with the next one. */
void events_glob_gone(struct events *e, struct topic *t);
/* No subscriber is left for the events that wait. */
void events_forget(struct events *e);
/* The subscriber has a costly pattern: the other lane serves it from the same event on. */
void events_change_lane(struct events *e, struct events_subscriber *s);

#endif
