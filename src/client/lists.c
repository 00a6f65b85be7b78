/* lists.c: see lists.h. */
#include "client/lists.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/base.h"
#include "base/bytes.h"

/* A list, and the reply that holds all its bytes: freed together. */
struct owned {
    union { /* its user has a pointer to one of these */
        struct fl_lock_list locks;
        struct fl_session_list sessions;
        struct fl_member_list members;
        struct { /* they are alike, but for the type of the elements */
            void **elements;
            size_t len;
            struct fl_bytes cursor;
        } any;
    } list;
    redisReply *reply;
    void **parts[2]; /* of FL_ASK_SHOW: the queue, and the holders */
};

static bool is_text(struct fl_bytes b, const char *text)
{
    return b.len == strlen(text) && memcmp(b.data, text, b.len) == 0;
}

/* ---- what a map says ------------------------------------------------------------------------- */

enum kind { TEXT, BYTES, NUMBER, FLAG, STATE, MODE };

struct field {
    const char *name;
    enum kind kind;
    size_t offset;
};

/* Of elements of one kind. */
struct shape {
    const struct field *fields;
    size_t n;
    size_t size;
    bool skips; /* what has no number in its first field is left out */
};

#define FIELD(type, kind, field)                                                                   \
    {                                                                                              \
#field, kind, offsetof(struct type, field)                                                 \
    }
#define SHAPE(fields, type, skips)                                                                 \
    {                                                                                              \
        (fields), sizeof(fields) / sizeof(fields)[0], sizeof(struct type), skips                   \
    }

static const struct field lock_fields[] = {
    FIELD(fl_lock_info, BYTES, name),         FIELD(fl_lock_info, STATE, state),
    FIELD(fl_lock_info, BYTES, owner),        FIELD(fl_lock_info, BYTES, label),
    FIELD(fl_lock_info, BYTES, value),        FIELD(fl_lock_info, FLAG, session),
    FIELD(fl_lock_info, NUMBER, token),       FIELD(fl_lock_info, NUMBER, age_ms),
    FIELD(fl_lock_info, NUMBER, ttl_left_ms), FIELD(fl_lock_info, NUMBER, waiters),
    FIELD(fl_lock_info, MODE, mode),          FIELD(fl_lock_info, NUMBER, permits),
    FIELD(fl_lock_info, NUMBER, holders),     FIELD(fl_lock_info, NUMBER, together),
    FIELD(fl_lock_info, NUMBER, waited_ms),   FIELD(fl_lock_info, NUMBER, waited_over_ms),
    FIELD(fl_lock_info, NUMBER, waits),       FIELD(fl_lock_info, NUMBER, longest_ms),
    FIELD(fl_lock_info, NUMBER, refused),     FIELD(fl_lock_info, BYTES, user),
    FIELD(fl_lock_info, BYTES, address),      FIELD(fl_lock_info, NUMBER, renewals),
};
static const struct shape lock_shape = SHAPE(lock_fields, fl_lock_info, false);

static const struct field holder_fields[] = {
    FIELD(fl_holder, BYTES, owner),        FIELD(fl_holder, BYTES, label),
    FIELD(fl_holder, BYTES, value),        FIELD(fl_holder, FLAG, session),
    FIELD(fl_holder, NUMBER, token),       FIELD(fl_holder, NUMBER, age_ms),
    FIELD(fl_holder, NUMBER, ttl_left_ms), FIELD(fl_holder, BYTES, user),
    FIELD(fl_holder, BYTES, address),      FIELD(fl_holder, NUMBER, renewals),
};
static const struct shape holder_shape = SHAPE(holder_fields, fl_holder, false);

static const struct field waiter_fields[] = {
    FIELD(fl_waiter, BYTES, owner),
    FIELD(fl_waiter, BYTES, label),
    FIELD(fl_waiter, FLAG, session),
    FIELD(fl_waiter, NUMBER, wait_left_ms),
};
static const struct shape waiter_shape = SHAPE(waiter_fields, fl_waiter, false);

static const struct field session_fields[] = {
    FIELD(fl_session_info, BYTES, owner),         FIELD(fl_session_info, BYTES, label),
    FIELD(fl_session_info, NUMBER, ttl_ms),       FIELD(fl_session_info, NUMBER, ttl_left_ms),
    FIELD(fl_session_info, NUMBER, lockdelay_ms), FIELD(fl_session_info, NUMBER, locks),
    FIELD(fl_session_info, NUMBER, waits),
};
static const struct shape session_shape = SHAPE(session_fields, fl_session_info, false);

static const struct field member_fields[] = {
    FIELD(fl_member, NUMBER, id),           FIELD(fl_member, TEXT, role),
    FIELD(fl_member, TEXT, state),          FIELD(fl_member, TEXT, peer_address),
    FIELD(fl_member, TEXT, client_address), FIELD(fl_member, TEXT, incarnation),
    FIELD(fl_member, NUMBER, version),      FIELD(fl_member, NUMBER, starts),
    FIELD(fl_member, FLAG, connected),
};
static const struct shape member_shape = SHAPE(member_fields, fl_member, true);

/* The value of a field in a flat array of names and values; NULL: no such field. */
static const redisReply *field(const redisReply *map, const char *name)
{
    for (size_t i = 0; i + 1 < map->elements; i += 2) {
        const redisReply *key = map->element[i];
        bool text = key->type == REDIS_REPLY_STRING || key->type == REDIS_REPLY_STATUS;
        if (text && is_text((struct fl_bytes){key->str, key->len}, name)) {
            return map->element[i + 1];
        }
    }
    return NULL;
}

uint64_t fli_session_locks(const redisReply *reply)
{
    const redisReply *locks = field(reply, "locks");
    bool tells = locks != NULL && locks->type == REDIS_REPLY_INTEGER && locks->integer >= 0;
    return tells ? (uint64_t)locks->integer : UINT64_MAX;
}

static const char *const states[] = {
    [FL_LOCK_HELD] = "held", [FL_LOCK_DELAYED] = "delayed", [FL_LOCK_QUEUED] = "queued"};
static const char *const modes[] = {[FL_MODE_SHARED] = "shared", [FL_MODE_PERMITS] = "permits"};

/* The number of a word; 0: it is none of these. */
static unsigned number_of(struct fl_bytes word, const char *const *words, unsigned n)
{
    unsigned i = n - 1;
    while (i > 0 && !is_text(word, words[i])) {
        i--;
    }
    return i;
}

/* v: NULL, or not of this kind: the field is empty. */
static void take(const redisReply *v, enum kind kind, void *to)
{
    bool text = v != NULL && (v->type == REDIS_REPLY_STRING || v->type == REDIS_REPLY_STATUS);
    const struct fl_bytes bytes = text ? (struct fl_bytes){v->str, v->len} : fl_str("");
    bool positive = v != NULL && v->type == REDIS_REPLY_INTEGER && v->integer > 0;
    uint64_t number = positive ? (uint64_t)v->integer : 0;
    switch (kind) {
    case TEXT:
        *(const char **)to = bytes.data;
        break;
    case BYTES:
        *(struct fl_bytes *)to = bytes;
        break;
    case NUMBER:
        *(uint64_t *)to = number;
        break;
    case FLAG:
        *(bool *)to = number == 1;
        break;
    case STATE:
        *(enum fl_lock_state *)to = number_of(bytes, states, sizeof states / sizeof states[0]);
        break;
    case MODE:
        *(enum fl_mode *)to = number_of(bytes, modes, sizeof modes / sizeof modes[0]);
        break;
    }
}

/* 0, FL_EPROTO. */
static int read_map(const redisReply *map, const struct shape *shape, void *to)
{
    bool good = map->type == REDIS_REPLY_ARRAY && map->elements % 2 == 0;
    for (size_t i = 0; good && i < shape->n; i++) {
        const struct field *f = &shape->fields[i];
        take(field(map, f->name), f->kind, (char *)to + f->offset);
    }
    return good ? 0 : FL_EPROTO;
}

/* ---- lists ----------------------------------------------------------------------------------- */

static void owned_free(void *list)
{
    struct owned *o = list; /* the list is its first member */
    if (o != NULL) {
        freeReplyObject(o->reply);
        free(o->list.any.elements);
        free(o->parts[0]);
        free(o->parts[1]);
        free(o);
    }
}

void fl_lock_list_free(struct fl_lock_list *list)
{
    owned_free(list);
}

void fl_session_list_free(struct fl_session_list *list)
{
    owned_free(list);
}

void fl_member_list_free(struct fl_member_list *list)
{
    owned_free(list);
}

/* n elements, and n pointers to them in front: who has the pointers needs not know how large an
 * element is. *ret_len: how many were not left out. 0, FL_EPROTO, FL_ENOMEM. */
static int read_array(redisReply *const *from, size_t n, const struct shape *shape, void ***ret,
                      size_t *ret_len)
{
    size_t front = (n + n % 2) * sizeof(void *); /* so that elements are aligned as in an array */
    char *memory = n > 0 ? calloc(1, front + n * shape->size) : NULL;
    void **at = (void **)(void *)memory;
    size_t len = 0;
    *ret = at; /* its owner frees it */
    for (size_t i = 0; memory != NULL && i < n; i++) {
        void *element = at[len] = memory + front + len * shape->size;
        int rc = read_map(from[i], shape, element);
        if (rc != 0 && !shape->skips) {
            return rc;
        }
        len += !shape->skips || (rc == 0 && *(const uint64_t *)element != 0);
    }
    *ret_len = len;
    return n > 0 && memory == NULL ? FL_ENOMEM : 0;
}

/* The waiting requests of a lock, or its holders, of a field that is an array. */
static int read_part(struct owned *o, unsigned part, const char *name, const struct shape *shape,
                     size_t *ret_len)
{
    const redisReply *array = field(o->reply, name);
    bool is_array = array != NULL && array->type == REDIS_REPLY_ARRAY;
    return is_array ? read_array(array->element, array->elements, shape, &o->parts[part], ret_len)
                    : 0;
}

static int read_one(struct owned *o)
{
    int rc = read_array(&o->reply, 1, &lock_shape, &o->list.any.elements, &o->list.any.len);
    if (rc != 0) {
        return rc;
    }
    struct fl_lock_info *lock = o->list.any.elements[0];
    rc = read_part(o, 0, "queue", &waiter_shape, &lock->queue_len);
    rc = rc == 0 ? read_part(o, 1, "held_by", &holder_shape, &lock->held_by_len) : rc;
    lock->queue = (void *)o->parts[0];
    lock->held_by = (void *)o->parts[1];
    lock->waiters = lock->waiters != 0 ? lock->waiters : lock->queue_len;
    return rc;
}

/* Of a page: a cursor, and the elements behind it. */
static int read_many(struct owned *o, const struct shape *shape, bool is_page)
{
    const redisReply *r = o->reply;
    bool good =
        !is_page ||
        (r->type == REDIS_REPLY_ARRAY && r->elements == 2 &&
         (r->element[0]->type == REDIS_REPLY_STRING || r->element[0]->type == REDIS_REPLY_NIL));
    if (good && is_page) {
        take(r->element[0], BYTES, &o->list.any.cursor);
        r = r->element[1];
    }
    return good && r->type == REDIS_REPLY_ARRAY
               ? read_array(r->element, r->elements, shape, &o->list.any.elements, &o->list.any.len)
               : FL_EPROTO;
}

int fli_list_read(enum fli_list_kind kind, redisReply *reply, void *ret)
{
    static const struct shape *const shapes[] = {[FLI_LIST_LOCKS] = &lock_shape,
                                                 [FLI_LIST_SESSIONS] = &session_shape,
                                                 [FLI_LIST_MEMBERS] = &member_shape};
    struct owned *o = calloc(1, sizeof *o);
    if (o == NULL) {
        freeReplyObject(reply);
        return FL_ENOMEM;
    }
    o->reply = reply;
    o->list.any.cursor = fl_str("");
    int rc =
        kind == FLI_LIST_ONE ? read_one(o) : read_many(o, shapes[kind], kind != FLI_LIST_MEMBERS);
    if (rc != 0) {
        owned_free(o);
        return rc;
    }
    memcpy(ret, &o, sizeof o);
    return 0;
}

/* ---- INFO ------------------------------------------------------------------------------------ */

/* Of a text: the size with its zero byte. */
static const struct {
    const char *name;
    size_t offset;
    size_t size;
} info_fields[] = {
#define INFO_TEXT(name, field)                                                                     \
    {                                                                                              \
        name, offsetof(struct fl_node_status, field), sizeof(((struct fl_node_status *)0)->field)  \
    }
#define INFO_NUMBER(name, field)                                                                   \
    {                                                                                              \
        name, offsetof(struct fl_node_status, field), 0                                            \
    }
    INFO_TEXT("node_role", role),
    INFO_TEXT("version", version),
    INFO_TEXT("leader_address", leader),
    INFO_TEXT("cluster_state", cluster_state),
    INFO_NUMBER("node_id", node_id),
    INFO_NUMBER("leader_id", leader_id),
    INFO_NUMBER("cluster_nodes", cluster_nodes),
    INFO_NUMBER("cluster_nodes_connected", cluster_nodes_connected),
    INFO_NUMBER("term", term),
    INFO_NUMBER("commit_index", commit_index),
    INFO_NUMBER("applied_index", applied_index),
    INFO_NUMBER("connected_clients", clients),
    INFO_NUMBER("uptime_ms", uptime_ms),
    INFO_NUMBER("locks_held", locks_held),
    INFO_NUMBER("waits", waits),
    INFO_NUMBER("last_token", last_token),
    INFO_NUMBER("min_live_token", min_live_token),
    INFO_NUMBER("grants", grants),
    INFO_NUMBER("expiries", expiries),
    INFO_NUMBER("breaks", breaks),
    INFO_NUMBER("leader_changes", leader_changes),
    INFO_NUMBER("log_bytes", log_bytes),
    INFO_NUMBER("log_write_avg_us", log_write_avg_us),
    INFO_NUMBER("log_waits_for_segment", log_waits),
#undef INFO_TEXT
#undef INFO_NUMBER
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
        if (info_fields[i].size > 0) {
            snprintf(at, info_fields[i].size, "%.*s", (int)(value.len < 1024 ? value.len : 1024),
                     (const char *)value.data);
        } else if (fli_parse_u64(value.data, value.len, UINT64_MAX, &v)) {
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
