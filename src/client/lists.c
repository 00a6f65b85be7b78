/* lists.c: see lists.h. */
#include "client/lists.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/base.h"
#include "base/bytes.h"

/* A list, its elements, and the reply that holds all their bytes: freed together. */
struct owned {
    redisReply *reply;
    void *elements, *queue, *held_by; /* of array_make() */
    union {                           /* the caller has a pointer to it */
        struct fl_lock_list locks;
        struct fl_session_list sessions;
        struct fl_member_list members;
    } list;
};

/* n elements, and n pointers to them in front: who has the pointers needs not know how large an
 * element is. NULL: out of memory. */
static void *array_make(size_t n, size_t size)
{
    size_t front = (n + n % 2) * sizeof(void *); /* so that elements are aligned as in an array */
    char *memory = calloc(1, front + n * size);
    void **at = (void **)(void *)memory;
    for (size_t i = 0; memory != NULL && i < n; i++) {
        at[i] = memory + front + i * size;
    }
    return memory;
}

static void *element(void *array, size_t i)
{
    return ((void **)array)[i];
}

/* The value of a field in a flat array of names and values; NULL: no such field. */
static const redisReply *field(const redisReply *map, const char *name)
{
    for (size_t i = 0; i + 1 < map->elements; i += 2) {
        const redisReply *key = map->element[i];
        bool text = key->type == REDIS_REPLY_STRING || key->type == REDIS_REPLY_STATUS;
        if (text && key->len == strlen(name) && memcmp(key->str, name, key->len) == 0) {
            return map->element[i + 1];
        }
    }
    return NULL;
}

static struct fl_bytes bytes_field(const redisReply *map, const char *name)
{
    const redisReply *v = field(map, name);
    struct fl_bytes none = {"", 0};
    if (v == NULL || (v->type != REDIS_REPLY_STRING && v->type != REDIS_REPLY_STATUS)) {
        return none;
    }
    struct fl_bytes found = {v->str, v->len};
    return found;
}

static uint64_t number_field(const redisReply *map, const char *name)
{
    const redisReply *v = field(map, name);
    return v != NULL && v->type == REDIS_REPLY_INTEGER && v->integer > 0 ? (uint64_t)v->integer : 0;
}

static bool is_text(struct fl_bytes b, const char *text)
{
    return b.len == strlen(text) && memcmp(b.data, text, b.len) == 0;
}

static enum fl_lock_state state_of(struct fl_bytes word)
{
    if (is_text(word, "held")) {
        return FL_LOCK_HELD;
    }
    if (is_text(word, "delayed")) {
        return FL_LOCK_DELAYED;
    }
    return is_text(word, "queued") ? FL_LOCK_QUEUED : FL_LOCK_OTHER;
}

static bool is_session(const redisReply *map)
{
    struct fl_bytes kind = bytes_field(map, "session");
    return is_text(kind, "explicit") || number_field(map, "session") != 0;
}

static enum fl_mode mode_of(struct fl_bytes word)
{
    if (is_text(word, "shared")) {
        return FL_MODE_SHARED;
    }
    return is_text(word, "permits") ? FL_MODE_PERMITS : FL_MODE_EXCLUSIVE;
}

static int read_lock(const redisReply *map, struct fl_lock_info *ret)
{
    if (map->type != REDIS_REPLY_ARRAY || map->elements % 2 != 0) {
        return FL_EPROTO;
    }
    const redisReply *queue = field(map, "queue");
    uint64_t waiters = number_field(map, "waiters");
    if (waiters == 0 && queue != NULL && queue->type == REDIS_REPLY_ARRAY) {
        waiters = queue->elements;
    }
    *ret = (struct fl_lock_info){
        .name = bytes_field(map, "name"),
        .state = state_of(bytes_field(map, "state")),
        .owner = bytes_field(map, "owner"),
        .label = bytes_field(map, "label"),
        .value = bytes_field(map, "value"),
        .session = is_session(map),
        .token = number_field(map, "token"),
        .age_ms = number_field(map, "age_ms"),
        .ttl_left_ms = number_field(map, "ttl_left_ms"),
        .waiters = waiters,
        .mode = mode_of(bytes_field(map, "mode")),
        .permits = number_field(map, "permits"),
        .holders = number_field(map, "holders"),
        .together = number_field(map, "together"),
        .waited_ms = number_field(map, "waited_ms"),
        .waited_over_ms = number_field(map, "waited_over_ms"),
        .waits = number_field(map, "waits"),
        .longest_ms = number_field(map, "longest_ms"),
        .refused = number_field(map, "refused"),
        .user = bytes_field(map, "user"),
        .address = bytes_field(map, "address"),
        .renewals = number_field(map, "renewals"),
    };
    return 0;
}

static void owned_free(struct owned *o)
{
    freeReplyObject(o->reply);
    free(o->elements);
    free(o->queue);
    free(o->held_by);
    free(o);
}

/* Owns the reply from now on. NULL: out of memory. */
static struct owned *make_list(size_t n, size_t size, redisReply *reply)
{
    struct owned *o = calloc(1, sizeof *o);
    void *elements = n > 0 ? array_make(n, size) : NULL;
    if (o == NULL || (n > 0 && elements == NULL)) {
        free(o);
        free(elements);
        freeReplyObject(reply);
        return NULL;
    }
    o->reply = reply;
    o->elements = elements;
    return o;
}

void fl_lock_list_free(struct fl_lock_list *list)
{
    if (list != NULL) {
        owned_free(FLI_CONTAINER_OF(list, struct owned, list.locks));
    }
}

void fl_session_list_free(struct fl_session_list *list)
{
    if (list != NULL) {
        owned_free(FLI_CONTAINER_OF(list, struct owned, list.sessions));
    }
}

void fl_member_list_free(struct fl_member_list *list)
{
    if (list != NULL) {
        owned_free(FLI_CONTAINER_OF(list, struct owned, list.members));
    }
}

static struct fl_lock_info *first_of(struct owned *o)
{
    return element(o->elements, 0);
}

static int read_holders(struct owned *o)
{
    const redisReply *held_by = field(o->reply, "held_by");
    if (held_by == NULL || held_by->type != REDIS_REPLY_ARRAY || held_by->elements == 0) {
        return 0;
    }
    o->held_by = array_make(held_by->elements, sizeof(struct fl_holder));
    if (o->held_by == NULL) {
        return FL_ENOMEM;
    }
    for (size_t i = 0; i < held_by->elements; i++) {
        const redisReply *h = held_by->element[i];
        if (h->type != REDIS_REPLY_ARRAY || h->elements % 2 != 0) {
            return FL_EPROTO;
        }
        *(struct fl_holder *)element(o->held_by, i) =
            (struct fl_holder){.owner = bytes_field(h, "owner"),
                               .label = bytes_field(h, "label"),
                               .value = bytes_field(h, "value"),
                               .session = is_session(h),
                               .token = number_field(h, "token"),
                               .age_ms = number_field(h, "age_ms"),
                               .ttl_left_ms = number_field(h, "ttl_left_ms"),
                               .user = bytes_field(h, "user"),
                               .address = bytes_field(h, "address"),
                               .renewals = number_field(h, "renewals")};
    }
    first_of(o)->held_by = o->held_by;
    first_of(o)->held_by_len = held_by->elements;
    return 0;
}

static int read_queue(struct owned *o)
{
    const redisReply *queue = field(o->reply, "queue");
    if (queue == NULL || queue->type != REDIS_REPLY_ARRAY || queue->elements == 0) {
        return 0;
    }
    o->queue = array_make(queue->elements, sizeof(struct fl_waiter));
    if (o->queue == NULL) {
        return FL_ENOMEM;
    }
    for (size_t i = 0; i < queue->elements; i++) {
        const redisReply *w = queue->element[i];
        struct fl_waiter *to = element(o->queue, i);
        if (w->type == REDIS_REPLY_STRING) {
            to->owner = (struct fl_bytes){w->str, w->len};
        } else if (w->type == REDIS_REPLY_ARRAY) {
            *to = (struct fl_waiter){.owner = bytes_field(w, "owner"),
                                     .label = bytes_field(w, "label"),
                                     .session = is_session(w),
                                     .wait_left_ms = number_field(w, "wait_left_ms")};
        } else {
            return FL_EPROTO;
        }
    }
    first_of(o)->queue = o->queue;
    first_of(o)->queue_len = queue->elements;
    return 0;
}

int fli_list_of_one(redisReply *show, struct fl_lock_list **ret)
{
    struct owned *o = make_list(1, sizeof(struct fl_lock_info), show);
    if (o == NULL) {
        return FL_ENOMEM;
    }
    int rc = read_lock(show, first_of(o));
    rc = rc == 0 ? read_queue(o) : rc;
    rc = rc == 0 ? read_holders(o) : rc;
    if (rc != 0) {
        owned_free(o);
        return rc;
    }
    o->list.locks = (struct fl_lock_list){.locks = o->elements, .len = 1, .cursor = {"", 0}};
    *ret = &o->list.locks;
    return 0;
}

static bool is_page(const redisReply *r)
{
    return r->type == REDIS_REPLY_ARRAY && r->elements == 2 &&
           (r->element[0]->type == REDIS_REPLY_STRING || r->element[0]->type == REDIS_REPLY_NIL) &&
           r->element[1]->type == REDIS_REPLY_ARRAY;
}

static int read_one_lock(const redisReply *map, void *to)
{
    return read_lock(map, to);
}

static int read_session(const redisReply *map, void *to)
{
    if (map->type != REDIS_REPLY_ARRAY || map->elements % 2 != 0) {
        return FL_EPROTO;
    }
    *(struct fl_session_info *)to = (struct fl_session_info){
        .owner = bytes_field(map, "owner"),
        .label = bytes_field(map, "label"),
        .ttl_ms = number_field(map, "ttl_ms"),
        .ttl_left_ms = number_field(map, "ttl_left_ms"),
        .lockdelay_ms = number_field(map, "lockdelay_ms"),
        .locks = number_field(map, "locks"),
        .waits = number_field(map, "waits"),
    };
    return 0;
}

/* Reads a cursor and the elements behind it. */
static int read_page(redisReply *r, size_t size, int (*read)(const redisReply *map, void *to),
                     struct fl_bytes *ret_cursor, struct owned **ret)
{
    if (!is_page(r)) {
        freeReplyObject(r);
        return FL_EPROTO;
    }
    const redisReply *cursor = r->element[0];
    const redisReply *page = r->element[1];
    struct owned *o = make_list(page->elements, size, r);
    if (o == NULL) {
        return FL_ENOMEM;
    }
    for (size_t i = 0; i < page->elements; i++) {
        int rc = read(page->element[i], element(o->elements, i));
        if (rc != 0) {
            owned_free(o);
            return rc;
        }
    }
    bool more = cursor->type == REDIS_REPLY_STRING;
    *ret_cursor = (struct fl_bytes){more ? cursor->str : "", more ? cursor->len : 0};
    *ret = o;
    return 0;
}

int fli_list_of_page(redisReply *locks, struct fl_lock_list **ret)
{
    struct fl_bytes cursor;
    struct owned *o;
    int rc = read_page(locks, sizeof(struct fl_lock_info), read_one_lock, &cursor, &o);
    if (rc == 0) {
        o->list.locks = (struct fl_lock_list){
            .locks = o->elements, .len = o->reply->element[1]->elements, .cursor = cursor};
        *ret = &o->list.locks;
    }
    return rc;
}

int fli_list_of_sessions(redisReply *sessions, struct fl_session_list **ret)
{
    struct fl_bytes cursor;
    struct owned *o;
    int rc = read_page(sessions, sizeof(struct fl_session_info), read_session, &cursor, &o);
    if (rc == 0) {
        o->list.sessions = (struct fl_session_list){
            .sessions = o->elements, .len = o->reply->element[1]->elements, .cursor = cursor};
        *ret = &o->list.sessions;
    }
    return rc;
}

/* ---- members --------------------------------------------------------------------------------- */

static const char *text_field(const redisReply *map, const char *name)
{
    const redisReply *r = field(map, name);
    return r != NULL && r->type == REDIS_REPLY_STRING ? r->str : "";
}

int fli_list_of_members(redisReply *members, struct fl_member_list **ret)
{
    if (members->type != REDIS_REPLY_ARRAY) {
        freeReplyObject(members);
        return FL_EPROTO;
    }
    struct owned *o = make_list(members->elements, sizeof(struct fl_member), members);
    if (o == NULL) {
        return FL_ENOMEM;
    }
    o->list.members = (struct fl_member_list){.members = o->elements};
    for (size_t i = 0; i < members->elements; i++) {
        const redisReply *map = members->element[i];
        struct fl_member *m = element(o->elements, o->list.members.len);
        *m = (struct fl_member){.id = number_field(map, "id"),
                                .role = text_field(map, "role"),
                                .state = text_field(map, "state"),
                                .peer_address = text_field(map, "peer_address"),
                                .client_address = text_field(map, "client_address"),
                                .incarnation = text_field(map, "incarnation"),
                                .version = number_field(map, "version"),
                                .starts = number_field(map, "starts"),
                                .connected = number_field(map, "connected") == 1};
        o->list.members.len += m->id != 0; /* else it is no member */
    }
    *ret = &o->list.members;
    return 0;
}

/* ---- INFO ------------------------------------------------------------------------------------ */

enum kind { KIND_TEXT, KIND_NUMBER, KIND_SECONDS /* sent in seconds, kept in ms */ };

static const struct {
    const char *name;
    enum kind kind;
    size_t offset;
    size_t size; /* of a text: with its zero byte */
} info_fields[] = {
#define TEXT(name, field)                                                                          \
    {                                                                                              \
        name, KIND_TEXT, offsetof(struct fl_node_status, field),                                   \
            sizeof(((struct fl_node_status *)0)->field)                                            \
    }
#define NUMBER(name, field)                                                                        \
    {                                                                                              \
        name, KIND_NUMBER, offsetof(struct fl_node_status, field), 0                               \
    }
    TEXT("node_role", role),
    TEXT("version", version),
    TEXT("leader_address", leader),
    TEXT("cluster_state", cluster_state),
    NUMBER("node_id", node_id),
    NUMBER("leader_id", leader_id),
    NUMBER("cluster_nodes", cluster_nodes),
    NUMBER("cluster_nodes_connected", cluster_nodes_connected),
    NUMBER("term", term),
    NUMBER("commit_index", commit_index),
    NUMBER("applied_index", applied_index),
    NUMBER("connected_clients", clients),
    {"uptime_in_seconds", KIND_SECONDS, offsetof(struct fl_node_status, uptime_ms), 0},
    NUMBER("uptime_ms", uptime_ms),
    NUMBER("locks_held", locks_held),
    NUMBER("waits", waits),
    NUMBER("last_token", last_token),
    NUMBER("min_live_token", min_live_token),
    NUMBER("grants", grants),
    NUMBER("expiries", expiries),
    NUMBER("breaks", breaks),
    NUMBER("leader_changes", leader_changes),
    NUMBER("log_bytes", log_bytes),
    NUMBER("log_write_avg_us", log_write_avg_us),
    NUMBER("log_waits_for_segment", log_waits),
#undef TEXT
#undef NUMBER
};

bool fli_info_next(struct fl_bytes *rest, struct fl_bytes *ret_key, struct fl_bytes *ret_value)
{
    while (rest->len > 0) {
        const char *line = rest->data;
        const char *eol = memchr(line, '\n', rest->len);
        size_t len = eol == NULL ? rest->len : (size_t)(eol - line);
        size_t taken = eol == NULL ? len : len + 1;
        *rest = (struct fl_bytes){line + taken, rest->len - taken};
        len -= len > 0 && line[len - 1] == '\r';
        const char *colon = memchr(line, ':', len);
        if (colon != NULL && *line != '#') {
            *ret_key = (struct fl_bytes){line, (size_t)(colon - line)};
            *ret_value = (struct fl_bytes){colon + 1, len - ret_key->len - 1};
            return true;
        }
    }
    return false;
}

static void take_info(struct fl_node_status *s, struct fl_bytes key, struct fl_bytes value)
{
    for (size_t i = 0; i < sizeof info_fields / sizeof info_fields[0]; i++) {
        if (!is_text(key, info_fields[i].name)) {
            continue;
        }
        char *at = (char *)s + info_fields[i].offset;
        uint64_t v;
        if (info_fields[i].kind == KIND_TEXT) {
            snprintf(at, info_fields[i].size, "%.*s", (int)(value.len < 1024 ? value.len : 1024),
                     (const char *)value.data);
        } else if (fli_parse_u64(value.data, value.len, UINT64_MAX / 1000, &v)) {
            v *= info_fields[i].kind == KIND_SECONDS ? 1000 : 1;
            memcpy(at, &v, sizeof v);
        }
        return;
    }
}

void fli_status_of_info(const char *text, size_t len, struct fl_node_status *ret, size_t size)
{
    struct fl_node_status known = {.role = ""};
    struct fl_bytes rest = {text, len};
    struct fl_bytes key;
    struct fl_bytes value;
    while (fli_info_next(&rest, &key, &value)) {
        take_info(&known, key, value);
    }
    memset(ret, 0, size);
    memcpy(ret, &known, size < sizeof known ? size : sizeof known);
}
