/* batch.c: the codec of batches and commands. The header's byte table is in batch.h; these are the
 * fields of a command, after its 4 bytes of op, flags and length:
 *
 *   INIT           number 8 (cluster id), limits
 *   LIMITS         limits
 *   ACQUIRE        mode 1, n_names 1, permits 4, n_names names, owner, ttl 4, wait 4, value; with
 *                  its flag, attempt 8
 *   CANCEL         number 8 (wait), number2 8 (request count)
 *   RENEW          name, token 8, ttl 4
 *   RELEASE        name, token 8
 *   BREAK, TOKEN   name
 *   SESSION_OPEN   owner, ttl 4, lockdelay 4, label
 *   SESSION_RENEW, SESSION_CLOSE, SESSION_SHOW   owner
 *   RAISE          number 8
 *   EXPIRE         number 8 (lease), number2 8 (deadline)
 *   CHECK          name, token 8
 *   SHOW           name
 *   LOCKS          pattern (as a value), cursor (as a name), number 8 (count)
 *   SESSION_LIST   cursor (as an owner), number 8 (count)
 *   USER_SET       user's name (as an owner), words (as a value)
 *   USER_DELETE, USER   user's name (as an owner)
 *   USERS_SEAL, USERS   nothing
 *   MAY            number 8
 *   KEYS           as ACQUIRE up to the owner, ttl 4, label, number 8, further keys (as a value)
 *   KEY            as ACQUIRE up to the names, an owner (as a label)
 *   NODE_ADD, NODE_REPLACE   number 8 (node), number2 8 (flags), address (as a value)
 *   NODE_REMOVE, NODE_SETTLED   number 8 (node)
 *   NODE_VERSION   number 8 (node), number2 8 (version)
 *   VERSION_RAISE  number 8
 *   LIMIT_SET, SETTING_SET   number 8, number2 8
 *   USERS_LOAD     users (as a value)
 *
 * where name, owner, label = length 1, bytes; value = length 2, bytes; limits = five numbers of 4
 * in the order of struct machine_limits; everything little endian. One table (layout_of) drives
 * check, encode and decode, so that the three cannot disagree. */
#include "machine/batch.h"

#include <stddef.h>
#include <string.h>

#include "base/fields.h"
#include "machine/acl.h"
#include "machine/machine.h"
#include "machine/page.h"

enum field {
    FIELD_END = 0,
    FIELD_SHAPE, /* mode, n_names, permits */
    FIELD_NAMES, /* n_names names, all different */
    FIELD_NAME,
    FIELD_OWNER,
    FIELD_LABEL,
    FIELD_VALUE,
    FIELD_TOKEN,
    FIELD_TTL,
    FIELD_WAIT,
    FIELD_LOCKDELAY,
    FIELD_NUMBER,
    FIELD_NUMBER2,
    FIELD_LIMITS,
    FIELD_PATTERN,
    FIELD_LOCKS_CURSOR,
    FIELD_SESSIONS_CURSOR,
    FIELD_USER,
    FIELD_WORDS,
    FIELD_ATTEMPT, /* number, with the flag */
    FIELD_NODE_ADDRESS,
    FIELD_USERS,
    FIELD_PAIRS,
    FIELD_NOTHING,
};

#define FIELDS_MAX 7
struct layout {
    uint8_t flags; /* the flags that this version knows */
    uint8_t fields[FIELDS_MAX + 1];
};

#define LIMIT(field)                                                                               \
    {                                                                                              \
        FLI_U32, offsetof(struct machine_command, limits.field)                                    \
    }
static const struct fli_field limits[] = {LIMIT(locks_max), LIMIT(sessions_max), LIMIT(waits_max),
                                          LIMIT(lock_waits_max), LIMIT(session_locks_max)};

#define COMMAND_HEADER_SIZE 4u
#define KEYS_ALL 63u

static const struct layout layouts[] = {
    [MACHINE_OP_INIT] = {0, {FIELD_NUMBER, FIELD_LIMITS}},
    [MACHINE_OP_LIMITS] = {0, {FIELD_LIMITS}},
    [MACHINE_OP_ACQUIRE] = {MACHINE_ACQUIRE_EXPLICIT | MACHINE_ACQUIRE_WAIT |
                                MACHINE_ACQUIRE_ATTEMPT,
                            {FIELD_SHAPE, FIELD_NAMES, FIELD_OWNER, FIELD_TTL, FIELD_WAIT,
                             FIELD_VALUE, FIELD_ATTEMPT}},
    [MACHINE_OP_CANCEL] = {0, {FIELD_NUMBER, FIELD_NUMBER2}},
    [MACHINE_OP_RENEW] = {0, {FIELD_NAME, FIELD_TOKEN, FIELD_TTL}},
    [MACHINE_OP_RELEASE] = {0, {FIELD_NAME, FIELD_TOKEN}},
    [MACHINE_OP_BREAK] = {0, {FIELD_NAME}},
    [MACHINE_OP_TOKEN] = {0, {FIELD_NAME}},
    [MACHINE_OP_SESSION_OPEN] = {0, {FIELD_OWNER, FIELD_TTL, FIELD_LOCKDELAY, FIELD_LABEL}},
    [MACHINE_OP_SESSION_RENEW] = {0, {FIELD_OWNER}},
    [MACHINE_OP_SESSION_CLOSE] = {0, {FIELD_OWNER}},
    [MACHINE_OP_RAISE] = {0, {FIELD_NUMBER}},
    [MACHINE_OP_EXPIRE] = {MACHINE_EXPIRE_EXPLICIT, {FIELD_NUMBER, FIELD_NUMBER2}},
    [MACHINE_OP_USER_SET] = {MACHINE_USER_INITIAL, {FIELD_USER, FIELD_WORDS}},
    [MACHINE_OP_USER_DELETE] = {0, {FIELD_USER}},
    [MACHINE_OP_USERS_SEAL] = {0, {FIELD_NOTHING}},
    [MACHINE_OP_USERS_LOAD] = {MACHINE_USER_INITIAL, {FIELD_USERS}},
    [MACHINE_OP_KEYS] = {KEYS_ALL,
                         {FIELD_SHAPE, FIELD_NAMES, FIELD_OWNER, FIELD_TTL, FIELD_LABEL,
                          FIELD_NUMBER, FIELD_PAIRS}},
    [MACHINE_OP_NODE_ADD] = {0, {FIELD_NUMBER, FIELD_NUMBER2, FIELD_NODE_ADDRESS}},
    [MACHINE_OP_NODE_REPLACE] = {MACHINE_NODE_FORCED,
                                 {FIELD_NUMBER, FIELD_NUMBER2, FIELD_NODE_ADDRESS}},
    [MACHINE_OP_NODE_REMOVE] = {MACHINE_NODE_FORCED, {FIELD_NUMBER}},
    [MACHINE_OP_NODE_SETTLED] = {0, {FIELD_NUMBER}},
    [MACHINE_OP_NODE_VERSION] = {0, {FIELD_NUMBER, FIELD_NUMBER2}},
    [MACHINE_OP_VERSION_RAISE] = {0, {FIELD_NUMBER}},
    [MACHINE_OP_LIMIT_SET] = {0, {FIELD_NUMBER, FIELD_NUMBER2}},
    [MACHINE_OP_SETTING_SET] = {0, {FIELD_NUMBER, FIELD_NUMBER2}},
    [MACHINE_OP_CHECK] = {0, {FIELD_NAME, FIELD_TOKEN}},
    [MACHINE_OP_SHOW] = {0, {FIELD_NAME}},
    [MACHINE_OP_LOCKS] = {0, {FIELD_PATTERN, FIELD_LOCKS_CURSOR, FIELD_NUMBER}},
    [MACHINE_OP_SESSION_SHOW] = {0, {FIELD_OWNER}},
    [MACHINE_OP_SESSION_LIST] = {0, {FIELD_SESSIONS_CURSOR, FIELD_NUMBER}},
    [MACHINE_OP_USERS] = {0, {FIELD_NOTHING}},
    [MACHINE_OP_USER] = {0, {FIELD_USER}},
    [MACHINE_OP_MAY] = {0, {FIELD_NUMBER}},
    [MACHINE_OP_KEY] = {MACHINE_KEYS_COUNT, {FIELD_SHAPE, FIELD_NAMES, FIELD_LABEL}},
};

/* NULL for an op this version does not know. */
static const struct layout *layout_of(unsigned op)
{
    bool known = op < sizeof layouts / sizeof layouts[0] && layouts[op].fields[0] != FIELD_END;
    return known ? &layouts[op] : NULL;
}

static bool length_ok(struct fli_slice s, size_t min, size_t max)
{
    return s.len >= min && s.len <= max && (s.len == 0 || s.data != NULL);
}

static bool cursor_ok(struct fli_slice s, const char *phases)
{
    char phase = 0;
    uint64_t key = 0;
    return length_ok(s, 0, FL_NAME_MAX) && machine_cursor_parse(s, phases, &phase, &key);
}

static bool ttl_in_range(uint64_t ttl_ms)
{
    return ttl_ms >= FL_TTL_MIN_MS && ttl_ms <= FL_TTL_MAX_MS;
}

static bool ttl_ok(const struct machine_command *c)
{
    switch (c->op) {
    case MACHINE_OP_ACQUIRE:
        return (c->flags & MACHINE_ACQUIRE_EXPLICIT) != 0 ? c->ttl_ms == 0
                                                          : ttl_in_range(c->ttl_ms);
    case MACHINE_OP_RENEW:
        return c->ttl_ms == 0 || ttl_in_range(c->ttl_ms);
    case MACHINE_OP_KEYS:
        return ttl_in_range(c->ttl_ms) || (c->ttl_ms == 0 && (c->flags & MACHINE_KEYS_GRANT) == 0);
    default:
        return ttl_in_range(c->ttl_ms);
    }
}

static bool wait_ok(const struct machine_command *c)
{
    return (c->flags & MACHINE_ACQUIRE_WAIT) != 0 ? c->wait_ms >= 1 && c->wait_ms <= FL_WAIT_MAX_MS
                                                  : c->wait_ms == 0;
}

static bool attempt_ok(const struct machine_command *c)
{
    return (c->flags & MACHINE_ACQUIRE_ATTEMPT) != 0
               ? c->number >= 2 && c->number <= MACHINE_ATTEMPT_MAX
               : c->number == 0;
}

static bool number_ok(const struct machine_command *c)
{
    switch (c->op) {
    case MACHINE_OP_RAISE:
        return c->number >= 1 && c->number <= MACHINE_RAISE_STEP_MAX;
    case MACHINE_OP_EXPIRE:
        return c->number >= 1 && c->number <= FL_TOKEN_MAX;
    case MACHINE_OP_INIT:
    case MACHINE_OP_NODE_ADD:
    case MACHINE_OP_NODE_REPLACE:
    case MACHINE_OP_NODE_REMOVE:
    case MACHINE_OP_NODE_SETTLED:
    case MACHINE_OP_NODE_VERSION:
        return c->number >= 1;
    case MACHINE_OP_VERSION_RAISE:
        return c->number >= 1 && c->number <= UINT32_MAX;
    case MACHINE_OP_LIMIT_SET:
        return c->number >= 1 && c->number <= MACHINE_LIMITS_SETTABLE;
    case MACHINE_OP_KEYS:
        return c->number <= (MACHINE_KEYS_NEED_LEFT(c) ? FL_TTL_MAX_MS : MACHINE_LEAVE_KEEP_MS);
    case MACHINE_OP_SETTING_SET:
        return c->number >= 1 && c->number <= MACHINE_SETTINGS;
    default:
        return true;
    }
}

static bool number2_ok(const struct machine_command *c)
{
    switch (c->op) {
    case MACHINE_OP_NODE_ADD:
    case MACHINE_OP_NODE_REPLACE:
        return c->number2 <= MACHINE_NODE_FLAGS;
    case MACHINE_OP_EXPIRE:
        return c->number2 <= MACHINE_CLOCK_MAX_MS;
    case MACHINE_OP_NODE_VERSION:
    case MACHINE_OP_LIMIT_SET:
        return c->number2 >= 1 && c->number2 <= UINT32_MAX;
    case MACHINE_OP_SETTING_SET:
        return machine_setting_ok(c->number, c->number2);
    default:
        return true;
    }
}

/* The leader checks whether the address can be dialed; here it only has to be a string. */
static bool node_address_ok(struct fli_slice a)
{
    return length_ok(a, 1, MACHINE_NODE_ADDRESS_MAX) && memchr(a.data, 0, a.len) == NULL;
}

bool machine_limits_ok(const struct machine_limits *l)
{
    return l->locks_max >= 1 && l->sessions_max >= 1 && l->waits_max >= 1 &&
           l->lock_waits_max >= 1 && l->session_locks_max >= 1;
}

/* Reads the names one after the other. False when there are not exactly n_names, or one is
 * wrong. */
static bool split_names(const struct machine_command *c, struct fli_slice names[MACHINE_NAMES_MAX])
{
    struct fli_reader r;
    fli_reader_init(&r, c->also.data, c->also.len);
    names[0] = c->name;
    for (unsigned i = 1; i < c->n_names; i++) {
        names[i] = fli_read_bytes(&r, fli_read_u8(&r));
        if (r.bad || names[i].len == 0) {
            return false;
        }
    }
    return fli_reader_left(&r) == 0;
}

static bool names_ok(const struct machine_command *c)
{
    struct fli_slice names[MACHINE_NAMES_MAX];
    if (!length_ok(c->name, 1, FL_NAME_MAX) || c->n_names > MACHINE_NAMES_MAX) {
        return false;
    }
    if (c->n_names == 1) {
        return c->also.len == 0;
    }
    if (!split_names(c, names)) {
        return false;
    }
    for (unsigned i = 1; i < c->n_names; i++) {
        for (unsigned k = 0; k < i; k++) {
            if (fli_bytes_cmp(names[i].data, names[i].len, names[k].data, names[k].len) == 0) {
                return false;
            }
        }
    }
    return true;
}

/* Reads the keys with an owner each that come behind the first one. */
static bool pairs_ok(struct fli_slice pairs)
{
    struct fli_reader r;
    fli_reader_init(&r, pairs.data, pairs.len);
    for (unsigned n = 1; fli_reader_left(&r) > 0; n++) {
        size_t name_len = fli_read_bytes(&r, fli_read_u8(&r)).len;
        size_t owner_len = fli_read_bytes(&r, fli_read_u8(&r)).len;
        if (r.bad || n == MACHINE_KEYS_MAX || name_len == 0 || owner_len == 0) {
            return false;
        }
    }
    return true;
}

static bool keys_flags_ok(const struct machine_command *c)
{
    bool labelled = c->label.len > 0;
    switch (c->flags & KEYS_ALL) {
    case MACHINE_KEYS_GRANT:
    case MACHINE_KEYS_GRANT | MACHINE_KEYS_EXTEND:
    case MACHINE_KEYS_EXTEND:
    case MACHINE_KEYS_EXTEND | MACHINE_KEYS_ADD:
        return c->owner.len > 0 && (c->number == 0 || MACHINE_KEYS_NEED_LEFT(c));
    case MACHINE_KEYS_EXTEND | MACHINE_KEYS_EACH:
        return !labelled && c->number == 0;
    case MACHINE_KEYS_RELEASE | MACHINE_KEYS_EACH:
        return !labelled && (c->owner.len > 0 || c->number == 0);
    case MACHINE_KEYS_RELEASE:
    case MACHINE_KEYS_RELEASE | MACHINE_KEYS_GRANT:
        return c->owner.len > 0 &&
               ((!labelled && (c->flags & MACHINE_KEYS_GRANT) == 0) ||
                (labelled && c->n_names == 1 && (c->number == 0 || MACHINE_KEYS_NEED_LEFT(c))));
    case MACHINE_KEYS_COUNT | MACHINE_KEYS_GRANT:
    case MACHINE_KEYS_COUNT | MACHINE_KEYS_GRANT | MACHINE_KEYS_EXTEND:
        return c->owner.len > 0 && !labelled && c->n_names == 1 && c->number == 0;
    case MACHINE_KEYS_COUNT | MACHINE_KEYS_RELEASE:
        return c->owner.len > 0 && labelled == (c->number > 0) && c->n_names == 1;
    default:
        return false;
    }
}

/* Whether an op on keys has the shape that it needs. */
static bool keys_ok(const struct machine_command *c)
{
    if (c->op != MACHINE_OP_KEYS && c->op != MACHINE_OP_KEY) {
        return true;
    }
    bool alone = c->mode == MACHINE_MODE_EXCLUSIVE && c->permits == 1;
    if (c->op == MACHINE_OP_KEY) {
        return alone &&
               ((c->flags & MACHINE_KEYS_COUNT) == 0 || (c->n_names == 1 && c->label.len > 0));
    }
    return alone && keys_flags_ok(c) &&
           (c->value.len == 0 ||
            ((c->flags & KEYS_ALL) == (MACHINE_KEYS_EXTEND | MACHINE_KEYS_EACH) &&
             c->n_names == 1 && c->owner.len > 0));
}

static bool field_ok(const struct machine_command *c, unsigned field)
{
    switch (field) {
    case FIELD_SHAPE:
        return c->mode <= MACHINE_MODE_SHARED && c->n_names >= 1 &&
               c->n_names <= MACHINE_NAMES_MAX && c->permits >= 1 && keys_ok(c);
    case FIELD_NAMES:
        return names_ok(c);
    case FIELD_NAME:
        return length_ok(c->name, 1, FL_NAME_MAX);
    case FIELD_OWNER:
        return length_ok(c->owner, c->op != MACHINE_OP_KEYS, FL_OWNER_MAX);
    case FIELD_LABEL:
        return length_ok(c->label, 0, FL_LABEL_MAX);
    case FIELD_VALUE:
    case FIELD_PATTERN:
        return length_ok(c->value, 0, FL_VALUE_MAX);
    case FIELD_TOKEN:
        return c->token <= FL_TOKEN_MAX;
    case FIELD_TTL:
        return ttl_ok(c);
    case FIELD_WAIT:
        return wait_ok(c);
    case FIELD_LOCKDELAY:
        return c->lockdelay_ms <= FL_LOCKDELAY_MAX_MS;
    case FIELD_NUMBER:
        return number_ok(c);
    case FIELD_ATTEMPT:
        return attempt_ok(c);
    case FIELD_NUMBER2:
        return number2_ok(c);
    case FIELD_LIMITS:
        return machine_limits_ok(&c->limits);
    case FIELD_LOCKS_CURSOR:
        return cursor_ok(c->name, MACHINE_CURSOR_LOCKS);
    case FIELD_SESSIONS_CURSOR:
        return cursor_ok(c->owner, MACHINE_CURSOR_SESSIONS);
    case FIELD_USER:
        return acl_name_ok(c->owner);
    case FIELD_WORDS:
        return length_ok(c->words, 0, ACL_TEXT_MAX);
    case FIELD_NODE_ADDRESS:
        return node_address_ok(c->value);
    case FIELD_USERS:
        return length_ok(c->value, 0, MACHINE_USERS_BYTES_MAX) && machine_users_ok(c->value);
    case FIELD_PAIRS:
        return length_ok(c->value, 0, MACHINE_COMMAND_LARGEST - MACHINE_COMMAND_MAX) &&
               pairs_ok(c->value);
    case FIELD_NOTHING:
        return true;
    default:
        return false;
    }
}

static bool address_ok(struct fli_slice a)
{
    return (a.len == 0 || a.len == 6 || a.len == MACHINE_ADDRESS_MAX) &&
           (a.len == 0 || a.data != NULL);
}

/* A command names its sender exactly when it carries the flag MACHINE_COMMAND_BY. */
static bool by_ok(const struct machine_command *c)
{
    bool says = c->user != 0 || c->address.len > 0;
    return says == ((c->flags & MACHINE_COMMAND_BY) != 0) && address_ok(c->address);
}

static bool fields_ok(const struct machine_command *c, const struct layout *l)
{
    if (!by_ok(c)) {
        return false;
    }
    for (const uint8_t *f = l->fields; *f != FIELD_END; f++) {
        if (!field_ok(c, *f)) {
            return false;
        }
    }
    return true;
}

/* Returns the layout of a command whose every field is in range; else NULL. */
static const struct layout *checked_layout(const struct machine_command *c)
{
    const struct layout *l = layout_of(c->op);
    return l == NULL || (c->flags & ~(l->flags | MACHINE_COMMAND_BY)) != 0 || !fields_ok(c, l)
               ? NULL
               : l;
}

unsigned machine_command_names(const struct machine_command *c,
                               struct fli_slice ret[MACHINE_NAMES_MAX])
{
    bool ok = split_names(c, ret);
    FLI_ASSERT(ok);
    return c->n_names;
}

size_t machine_also_add(uint8_t also[MACHINE_ALSO_SIZE], size_t len, struct fli_slice name)
{
    FLI_ASSERT(name.len >= 1 && name.len <= FL_NAME_MAX);
    FLI_ASSERT(len + 1 + name.len <= MACHINE_ALSO_SIZE);
    also[len] = (uint8_t)name.len;
    memcpy(also + len + 1, name.data, name.len);
    return len + 1 + name.len;
}

/* The most bytes that an encoded command of this kind has. */
static size_t command_size_max(unsigned op)
{
    return op == MACHINE_OP_USERS_LOAD || op == MACHINE_OP_KEYS ? MACHINE_COMMAND_LARGEST
                                                                : MACHINE_COMMAND_MAX;
}

int machine_command_check(const struct machine_command *c)
{
    return checked_layout(c) != NULL ? 0 : FL_EINVAL;
}

static uint8_t *put_bytes(uint8_t *p, struct fli_slice s)
{
    if (s.len > 0) {
        memcpy(p, s.data, s.len);
    }
    return p + s.len;
}

static uint8_t *put_short(uint8_t *p, struct fli_slice s)
{
    FLI_ASSERT(s.len <= UINT8_MAX);
    *p = (uint8_t)s.len;
    return put_bytes(p + 1, s);
}

static uint8_t *put_long(uint8_t *p, struct fli_slice s)
{
    FLI_ASSERT(s.len <= UINT16_MAX);
    fli_put_u16(p, (uint16_t)s.len);
    return put_bytes(p + 2, s);
}

static uint8_t *put_u32(uint8_t *p, uint64_t v)
{
    FLI_ASSERT(v <= UINT32_MAX);
    fli_put_u32(p, (uint32_t)v);
    return p + 4;
}

static uint8_t *put_u64(uint8_t *p, uint64_t v)
{
    fli_put_u64(p, v);
    return p + 8;
}

static uint8_t *put_field(uint8_t *p, const struct machine_command *c, unsigned field)
{
    switch (field) {
    case FIELD_SHAPE:
        p[0] = c->mode;
        p[1] = c->n_names;
        return put_u32(p + 2, c->permits);
    case FIELD_NAMES:
        return put_bytes(put_short(p, c->name), c->also);
    case FIELD_NAME:
    case FIELD_LOCKS_CURSOR:
        return put_short(p, c->name);
    case FIELD_OWNER:
    case FIELD_SESSIONS_CURSOR:
    case FIELD_USER:
        return put_short(p, c->owner);
    case FIELD_WORDS:
        return put_long(p, c->words);
    case FIELD_NOTHING:
        return p;
    case FIELD_LABEL:
        return put_short(p, c->label);
    case FIELD_VALUE:
    case FIELD_PATTERN:
    case FIELD_NODE_ADDRESS:
    case FIELD_USERS:
    case FIELD_PAIRS:
        return put_long(p, c->value);
    case FIELD_TOKEN:
        return put_u64(p, c->token);
    case FIELD_TTL:
        return put_u32(p, c->ttl_ms);
    case FIELD_WAIT:
        return put_u32(p, c->wait_ms);
    case FIELD_LOCKDELAY:
        return put_u32(p, c->lockdelay_ms);
    case FIELD_NUMBER:
        return put_u64(p, c->number);
    case FIELD_NUMBER2:
        return put_u64(p, c->number2);
    case FIELD_ATTEMPT:
        return (c->flags & MACHINE_ACQUIRE_ATTEMPT) != 0 ? put_u64(p, c->number) : p;
    default:
        FLI_ASSERT(field == FIELD_LIMITS);
        return fli_put_fields(p, limits, sizeof limits / sizeof limits[0], c);
    }
}

int machine_command_encode(const struct machine_command *c, struct fli_buf *out)
{
    const struct layout *l = checked_layout(c);
    if (l == NULL) {
        return FL_EINVAL;
    }
    uint8_t bytes[MACHINE_COMMAND_LARGEST];
    uint8_t *p = bytes + COMMAND_HEADER_SIZE;
    if ((c->flags & MACHINE_COMMAND_BY) != 0) {
        p = put_short(put_u64(p, c->user), c->address);
    }
    for (const uint8_t *f = l->fields; *f != FIELD_END; f++) {
        p = put_field(p, c, *f);
    }
    size_t len = (size_t)(p - bytes);
    FLI_ASSERT(len <= command_size_max(c->op));
    bytes[0] = c->op;
    bytes[1] = c->flags;
    fli_put_u16(bytes + 2, (uint16_t)len);
    return fli_buf_append(out, bytes, len);
}

static void get_names(struct fli_reader *r, struct machine_command *c)
{
    c->name = fli_read_bytes(r, fli_read_u8(r));
    for (unsigned i = 1; i < c->n_names && !r->bad; i++) {
        struct fli_slice more = fli_read_bytes(r, fli_read_u8(r));
        if (r->bad) {
            return;
        }
        c->also.data = c->also.data == NULL ? more.data - 1 : c->also.data;
        c->also.len += 1 + more.len;
    }
}

static void get_field(struct fli_reader *r, struct machine_command *c, unsigned field)
{
    switch (field) {
    case FIELD_SHAPE:
        c->mode = fli_read_u8(r);
        c->n_names = fli_read_u8(r);
        c->permits = fli_read_u32(r);
        break;
    case FIELD_NAMES:
        get_names(r, c);
        break;
    case FIELD_NAME:
    case FIELD_LOCKS_CURSOR:
        c->name = fli_read_bytes(r, fli_read_u8(r));
        break;
    case FIELD_OWNER:
    case FIELD_SESSIONS_CURSOR:
    case FIELD_USER:
        c->owner = fli_read_bytes(r, fli_read_u8(r));
        break;
    case FIELD_WORDS:
        c->words = fli_read_bytes(r, fli_read_u16(r));
        break;
    case FIELD_NOTHING:
        break;
    case FIELD_LABEL:
        c->label = fli_read_bytes(r, fli_read_u8(r));
        break;
    case FIELD_VALUE:
    case FIELD_PATTERN:
    case FIELD_NODE_ADDRESS:
    case FIELD_USERS:
    case FIELD_PAIRS:
        c->value = fli_read_bytes(r, fli_read_u16(r));
        break;
    case FIELD_TOKEN:
        c->token = fli_read_u64(r);
        break;
    case FIELD_TTL:
        c->ttl_ms = fli_read_u32(r);
        break;
    case FIELD_WAIT:
        c->wait_ms = fli_read_u32(r);
        break;
    case FIELD_LOCKDELAY:
        c->lockdelay_ms = fli_read_u32(r);
        break;
    case FIELD_NUMBER:
        c->number = fli_read_u64(r);
        break;
    case FIELD_NUMBER2:
        c->number2 = fli_read_u64(r);
        break;
    case FIELD_ATTEMPT:
        c->number = (c->flags & MACHINE_ACQUIRE_ATTEMPT) != 0 ? fli_read_u64(r) : 0;
        break;
    default:
        FLI_ASSERT(field == FIELD_LIMITS);
        fli_read_fields(r, limits, sizeof limits / sizeof limits[0], c);
        break;
    }
}

/* Reads the fields into *ret, without a check of their ranges. */
static int read_command(const uint8_t *p, size_t len, struct machine_command *ret,
                        const struct layout **ret_layout)
{
    if (len < COMMAND_HEADER_SIZE) {
        return FL_ECORRUPT;
    }
    size_t size = fli_get_u16(p + 2);
    if (size < COMMAND_HEADER_SIZE || size > len || size > command_size_max(p[0])) {
        return FL_ECORRUPT;
    }
    const struct layout *l = layout_of(p[0]);
    if (l == NULL || (p[1] & ~(l->flags | MACHINE_COMMAND_BY)) != 0) {
        return FL_EVERSION;
    }
    *ret = (struct machine_command){.op = p[0], .flags = p[1]};
    struct fli_reader r;
    fli_reader_init(&r, p + COMMAND_HEADER_SIZE, size - COMMAND_HEADER_SIZE);
    if ((ret->flags & MACHINE_COMMAND_BY) != 0) {
        ret->user = fli_read_u64(&r);
        ret->address = fli_read_bytes(&r, fli_read_u8(&r));
    }
    for (const uint8_t *f = l->fields; *f != FIELD_END; f++) {
        get_field(&r, ret, *f);
    }
    if (ret->mode > MACHINE_MODE_SHARED) {
        return FL_EVERSION;
    }
    *ret_layout = l;
    return r.bad || fli_reader_left(&r) != 0 ? FL_ECORRUPT : 0;
}

int machine_command_decode(const uint8_t *p, size_t len, struct machine_command *ret,
                           size_t *ret_size)
{
    const struct layout *l = NULL;
    int rc = read_command(p, len, ret, &l);
    if (rc == 0 && !fields_ok(ret, l)) {
        rc = FL_ECORRUPT;
    }
    if (rc == 0) {
        *ret_size = fli_get_u16(p + 2);
    }
    return rc;
}

size_t machine_command_redecode(const uint8_t *p, size_t len, struct machine_command *ret)
{
    const struct layout *l = NULL;
    int rc = read_command(p, len, ret, &l);
    FLI_ASSERT(rc == 0); /* machine_command_decode() has accepted these bytes */
    return fli_get_u16(p + 2);
}

static size_t padded(size_t len)
{
    return (len + 7) & ~(size_t)7;
}

/* The checksum covers the header (with a zero in the checksum field) and the commands. */
static uint32_t checksum(const uint8_t *data, uint32_t length)
{
    uint8_t header[MACHINE_BATCH_HEADER_SIZE];
    memcpy(header, data, sizeof header);
    fli_put_u32(header + 36, 0);
    uint32_t crc = fli_crc32c(0, header, sizeof header);
    return fli_crc32c(crc, data + sizeof header, length - sizeof header);
}

size_t machine_batch_seal(uint8_t *data, const struct machine_batch_header *h)
{
    FLI_ASSERT(h->length >= MACHINE_BATCH_HEADER_SIZE && h->length <= MACHINE_BATCH_MAX);
    FLI_ASSERT(h->count <= MACHINE_BATCH_COMMANDS_MAX);
    FLI_ASSERT((h->flags & ~MACHINE_BATCH_TERM_MARK) == 0);
    FLI_ASSERT(h->timestamp_ms <= MACHINE_CLOCK_MAX_MS);
    fli_put_u16(data, h->format != 0 ? h->format : MACHINE_BATCH_FORMAT);
    fli_put_u16(data + 2, h->flags);
    fli_put_u32(data + 4, h->count);
    fli_put_u64(data + 8, h->timestamp_ms);
    fli_put_u64(data + 16, h->term);
    fli_put_u64(data + 24, h->sequence);
    fli_put_u32(data + 32, h->length);
    size_t size = padded(h->length);
    memset(data + h->length, 0, size - h->length);
    fli_put_u32(data + 36, checksum(data, h->length));
    return size;
}

int machine_batch_open(const void *data, size_t len, struct machine_batch_header *ret)
{
    const uint8_t *p = data;
    if (len < MACHINE_BATCH_HEADER_SIZE) {
        return FL_ECORRUPT;
    }
    struct machine_batch_header h = {
        .format = fli_get_u16(p),
        .flags = fli_get_u16(p + 2),
        .count = fli_get_u32(p + 4),
        .timestamp_ms = fli_get_u64(p + 8),
        .term = fli_get_u64(p + 16),
        .sequence = fli_get_u64(p + 24),
        .length = fli_get_u32(p + 32),
    };
    if (h.length < MACHINE_BATCH_HEADER_SIZE || h.length > MACHINE_BATCH_MAX ||
        padded(h.length) != len || fli_get_u32(p + 36) != checksum(p, h.length)) {
        return FL_ECORRUPT;
    }
    /* Another format version counts as such only when the entry is whole; else it is corrupt. */
    if (h.format < MACHINE_BATCH_FORMAT ||
        h.format >= MACHINE_BATCH_FORMAT + machine_version_max() ||
        (h.flags & ~MACHINE_BATCH_TERM_MARK) != 0) {
        return FL_EVERSION;
    }
    for (size_t i = h.length; i < len; i++) {
        if (p[i] != 0) {
            return FL_ECORRUPT;
        }
    }
    if (h.count > MACHINE_BATCH_COMMANDS_MAX || h.timestamp_ms > MACHINE_CLOCK_MAX_MS) {
        return FL_ECORRUPT;
    }
    *ret = h;
    return 0;
}
