/* view.c: payloads of queries, both ways: page.h writes them, view.h reads them.
 *
 *   offset size  page
 *   0      1     kind: 1 locks, 2 sessions, 3 SHOW (holders of a lock, then sessions)
 *   1      1     more: 1 when there is a next page
 *   2      2     0
 *   4      4     count of records
 *   8      4     length of the cursor, then its bytes
 *   then each record: 4-byte length of what follows, 1-byte type (1 lock, 2 session), and
 *
 *   lock:    state 1, explicit 1, mode 1, together 1, waiters 4, holders 4, permits 4, token 8,
 *            since 8, ttl left 8, renewals 4, name (length 1, bytes), owner (1), label (1),
 *            user (1), address (1), value (length 2, bytes)
 *   session: explicit 1, together 1, locks 4, waits 4, ttl 8, ttl left 8, lockdelay 8,
 *            owner (length 1, bytes), label (1), lock (1), user (1), address (1)
 *
 * all little endian. */
#include "machine/page.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "base/fields.h"
#include "machine/acl.h"
#include "machine/batch.h"
#include "machine/limits.h"

#define PAGE_HEADER_SIZE 12u
#define CURSOR_TEXT_MAX 21u /* a letter and 20 digits */
#define RECORD_SIZE_MAX                                                                            \
    (5u + 64u + 3u * (1u + 255u) + 2u + ACL_NAME_MAX + MACHINE_ADDRESS_MAX + 2u + FL_VALUE_MAX)
#define TYPE_LOCK 1u
#define TYPE_SESSION 2u

/* Writing. The header is given room for the longest cursor. At the end, the records are moved down
 * to the cursor's true length. */

#define PAGE_ROOM (PAGE_HEADER_SIZE + CURSOR_TEXT_MAX)

void machine_page_begin(struct page_writer *w, struct fli_buf *out, uint8_t kind)
{
    static const uint8_t room[PAGE_ROOM];
    *w = (struct page_writer){.out = out, .start = out->len, .kind = kind};
    w->error = fli_buf_append(out, room, sizeof room);
}

/* The fields behind the type, in their order. */
#define LOCK(kind, field)                                                                          \
    {                                                                                              \
        FLI_##kind, offsetof(struct machine_lock_view, field)                                      \
    }
static const struct fli_field lock_fields[] = {
    LOCK(U8, state),     LOCK(BOOL, session_explicit), LOCK(U8, mode),      LOCK(U8, together),
    LOCK(U32, waiters),  LOCK(U32, holders),           LOCK(U32, permits),  LOCK(U64, token),
    LOCK(U64, since_ms), LOCK(U64, ttl_left_ms),       LOCK(U32, renewals), LOCK(SHORT, name),
    LOCK(SHORT, owner),  LOCK(SHORT, label),           LOCK(SHORT, user),   LOCK(SHORT, address),
    LOCK(LONG, value),
};
#define SESSION(kind, field)                                                                       \
    {                                                                                              \
        FLI_##kind, offsetof(struct machine_session_view, field)                                   \
    }
static const struct fli_field session_fields[] = {
    SESSION(BOOL, session_explicit),
    SESSION(U8, together),
    SESSION(U32, locks),
    SESSION(U32, waits),
    SESSION(U64, ttl_ms),
    SESSION(U64, ttl_left_ms),
    SESSION(U64, lockdelay_ms),
    SESSION(SHORT, owner),
    SESSION(SHORT, label),
    SESSION(SHORT, lock),
    SESSION(SHORT, user),
    SESSION(SHORT, address),
};
#define LEN(list) (sizeof(list) / sizeof(list)[0])

static bool add_record(struct page_writer *w, uint8_t *record, const uint8_t *end)
{
    size_t len = (size_t)(end - record);
    FLI_ASSERT(len <= RECORD_SIZE_MAX);
    if (w->error != 0 || w->count == MACHINE_PAGE_COUNT_MAX ||
        w->out->len - w->start + len > MACHINE_PAGE_SIZE_MAX) {
        return false;
    }
    fli_put_u32(record, (uint32_t)(len - 4));
    w->error = fli_buf_append(w->out, record, len);
    w->count += w->error == 0;
    return w->error == 0;
}

bool machine_page_add_lock(struct page_writer *w, const struct machine_lock_view *v)
{
    uint8_t record[RECORD_SIZE_MAX];
    char digits[16];
    struct machine_lock_view said = *v;
    if (v->count > 0) {
        int n = snprintf(digits, sizeof digits, "%u", (unsigned)v->count);
        said.value = (struct fli_slice){(const uint8_t *)digits, (size_t)n};
    }
    FLI_ASSERT(said.value.len <= FL_VALUE_MAX);
    record[4] = TYPE_LOCK;
    return add_record(w, record, fli_put_fields(record + 5, lock_fields, LEN(lock_fields), &said));
}

bool machine_page_add_session(struct page_writer *w, const struct machine_session_view *v)
{
    uint8_t record[RECORD_SIZE_MAX];
    record[4] = TYPE_SESSION;
    return add_record(w, record,
                      fli_put_fields(record + 5, session_fields, LEN(session_fields), v));
}

/* Returns the length. */
static size_t cursor_text(uint8_t text[CURSOR_TEXT_MAX], char phase, uint64_t key)
{
    uint8_t digits[20];
    size_t n = 0;
    do {
        digits[n++] = (uint8_t)('0' + key % 10);
        key /= 10;
    } while (key != 0);
    text[0] = (uint8_t)phase;
    for (size_t i = 0; i < n; i++) {
        text[1 + i] = digits[n - 1 - i];
    }
    return 1 + n;
}

int machine_page_end(struct page_writer *w, bool more, char phase, uint64_t key)
{
    if (w->error != 0) {
        w->out->len = w->start;
        return w->error;
    }
    uint8_t *p = w->out->data + w->start;
    size_t records = w->out->len - w->start - PAGE_ROOM;
    uint8_t cursor[CURSOR_TEXT_MAX];
    size_t cursor_len = phase == 0 ? 0 : cursor_text(cursor, phase, key);
    p[0] = w->kind;
    p[1] = more;
    fli_put_u16(p + 2, 0);
    fli_put_u32(p + 4, w->count);
    fli_put_u32(p + 8, (uint32_t)cursor_len);
    memcpy(p + PAGE_HEADER_SIZE, cursor, cursor_len);
    memmove(p + PAGE_HEADER_SIZE + cursor_len, p + PAGE_ROOM, records);
    w->out->len -= CURSOR_TEXT_MAX - cursor_len;
    return 0;
}

bool machine_cursor_parse(struct fli_slice text, const char *phases, char *ret_phase,
                          uint64_t *ret_key)
{
    if (text.len == 0 || (text.len == 1 && text.data[0] == '0')) {
        *ret_phase = phases[0];
        *ret_key = 0;
        return true;
    }
    char phase = (char)text.data[0];
    if (phase == '\0' || strchr(phases, phase) == NULL ||
        !fli_parse_u64(text.data + 1, text.len - 1, UINT64_MAX, ret_key)) {
        return false;
    }
    *ret_phase = phase;
    return true;
}

/* Reading. */

int machine_page_open(const void *data, size_t len, struct machine_page *ret)
{
    struct fli_reader r;
    fli_reader_init(&r, data, len);
    unsigned kind = fli_read_u8(&r);
    unsigned more = fli_read_u8(&r);
    unsigned zero = fli_read_u16(&r);
    struct machine_page page = {.more = more == 1, .count = fli_read_u32(&r)};
    page.cursor = fli_read_bytes(&r, fli_read_u32(&r));
    page.rest = r;
    if (r.bad || kind < PAGE_KIND_LOCKS || kind > PAGE_KIND_SHOW || more > 1 || zero != 0 ||
        page.count > fli_reader_left(&r) / 5) {
        return FL_ECORRUPT;
    }
    *ret = page;
    return 0;
}

/* A page that was found corrupt stays corrupt. */
static int corrupt(struct machine_page *page)
{
    page->rest.bad = true;
    return FL_ECORRUPT;
}

/* Opens the next record, which must be of this type, as a reader of its own. 1, 0 at the end,
 * FL_ECORRUPT. */
static int open_record(struct machine_page *page, unsigned type, struct fli_reader *ret)
{
    if (page->count == 0 && !page->rest.bad) {
        return fli_reader_left(&page->rest) == 0 ? 0 : corrupt(page);
    }
    struct fli_slice record = fli_read_bytes(&page->rest, fli_read_u32(&page->rest));
    if (page->rest.bad) {
        return FL_ECORRUPT;
    }
    page->count--;
    fli_reader_init(ret, record.data, record.len);
    return fli_read_u8(ret) == type && !ret->bad ? 1 : corrupt(page);
}

static bool origin_ok(struct fli_slice user, struct fli_slice address)
{
    return user.len <= ACL_NAME_MAX &&
           (address.len == 0 || address.len == 6 || address.len == MACHINE_ADDRESS_MAX);
}

int machine_page_next_lock(struct machine_page *p, struct machine_lock_view *ret)
{
    struct fli_reader r;
    int rc = open_record(p, TYPE_LOCK, &r);
    if (rc != 1) {
        return rc;
    }
    struct machine_lock_view v = {.count = 0};
    fli_read_fields(&r, lock_fields, LEN(lock_fields), &v);
    bool held = v.state == MACHINE_LOCK_HELD;
    if (r.bad || fli_reader_left(&r) != 0 || !origin_ok(v.user, v.address) ||
        v.state < MACHINE_LOCK_HELD || v.state > MACHINE_LOCK_QUEUED || v.name.len == 0 ||
        v.value.len > FL_VALUE_MAX || v.token > FL_TOKEN_MAX || held != (v.token != 0) ||
        held != (v.owner.len != 0) || held != (v.mode != MACHINE_LOCK_NONE) ||
        v.mode > MACHINE_LOCK_PERMITS || v.together < 1 || v.together > MACHINE_NAMES_MAX ||
        held != (v.holders != 0) || v.permits == 0) {
        return corrupt(p);
    }
    *ret = v;
    return 1;
}

bool machine_page_is_at_lock(const struct machine_page *p)
{
    struct machine_page copy = *p;
    struct fli_reader r;
    return open_record(&copy, TYPE_LOCK, &r) == 1;
}

int machine_page_next_session(struct machine_page *p, struct machine_session_view *ret)
{
    struct fli_reader r;
    int rc = open_record(p, TYPE_SESSION, &r);
    if (rc != 1) {
        return rc;
    }
    struct machine_session_view v = {.session_explicit = false};
    fli_read_fields(&r, session_fields, LEN(session_fields), &v);
    if (!origin_ok(v.user, v.address) || r.bad || fli_reader_left(&r) != 0 || v.owner.len == 0 ||
        v.together > MACHINE_NAMES_MAX || v.session_explicit != (v.lock.len == 0)) {
        return corrupt(p);
    }
    *ret = v;
    return 1;
}
