/* audit_record.c: see audit_record.h. */
#include "server/audit_record.h"

#include <inttypes.h>
#include <string.h>
#include <time.h>

#include "server/render.h"

struct note {
    uint64_t wall_ms, clock_ms, number;
    uint8_t word;
    uint8_t again;
    uint8_t lens[AUDIT_TEXTS];
};

_Static_assert(sizeof(struct note) == AUDIT_RECORD_SIZE, "what a note takes without its texts");
_Static_assert(FL_NAME_MAX <= AUDIT_TEXT_MAX && FL_OWNER_MAX <= AUDIT_TEXT_MAX &&
                   AUDIT_TEXT_MAX <= UINT8_MAX,
               "every text has room, and its length a byte");

/* ---- notes ----------------------------------------------------------------------------------- */

size_t audit_record_size(const struct audit_record *r)
{
    size_t size = sizeof(struct note);
    for (unsigned i = 0; i < AUDIT_TEXTS; i++) {
        size += r->texts[i].len;
    }
    return size;
}

/* Copies the texts and notes their lengths. False: one is too long. */
static bool copy_texts(const struct audit_record *r, uint8_t lens[AUDIT_TEXTS], uint8_t *to)
{
    for (unsigned i = 0; i < AUDIT_TEXTS; i++) {
        size_t len = r->texts[i].len;
        if (len > AUDIT_TEXT_MAX) {
            return false;
        }
        lens[i] = (uint8_t)len;
        if (len > 0) {
            memcpy(to, r->texts[i].data, len);
            to += len;
        }
    }
    return true;
}

int audit_record_note(struct fli_buf *b, const struct audit_record *r)
{
    struct note note = {.wall_ms = r->wall_ms,
                        .clock_ms = r->clock_ms,
                        .number = r->number,
                        .word = (uint8_t)r->word,
                        .again = r->again};
    size_t size = audit_record_size(r);
    int rc = fli_buf_reserve(b, size);
    if (rc != 0) {
        return rc;
    }
    if (!copy_texts(r, note.lens, b->data + b->len + sizeof note)) {
        return FL_EINVAL;
    }
    memcpy(b->data + b->len, &note, sizeof note);
    b->len += size;
    return 0;
}

size_t audit_record_read(const uint8_t *at, struct audit_record *ret)
{
    struct note note;
    const uint8_t *text = at + sizeof note;
    memcpy(&note, at, sizeof note);
    FLI_ASSERT(note.word < AUDIT_WORDS);
    *ret = (struct audit_record){.word = (enum audit_word)note.word,
                                 .again = note.again != 0,
                                 .wall_ms = note.wall_ms,
                                 .clock_ms = note.clock_ms,
                                 .number = note.number};
    for (unsigned i = 0; i < AUDIT_TEXTS; i++) {
        ret->texts[i] = (struct fli_slice){text, note.lens[i]};
        text += note.lens[i];
    }
    return (size_t)(text - at);
}

/* ---- lines ----------------------------------------------------------------------------------- */

static const char *const words[AUDIT_WORDS] = {[AUDIT_GRANTED] = "granted",
                                               [AUDIT_RELEASED] = "released",
                                               [AUDIT_EXPIRED] = "expired",
                                               [AUDIT_BROKEN] = "broken",
                                               [AUDIT_DENIED] = "denied",
                                               [AUDIT_USER_CHANGED] = "user_changed",
                                               [AUDIT_USER_DELETED] = "user_deleted",
                                               [AUDIT_REFUSED] = "refused",
                                               [AUDIT_DROPPED] = "dropped"};

static struct fli_slice slice_of(const char *text)
{
    return (struct fli_slice){(const uint8_t *)text, strlen(text)};
}

static int put_time(struct fli_buf *b, uint64_t wall_ms)
{
    time_t seconds = (time_t)(wall_ms / 1000);
    struct tm utc;
    char text[32];
    (void)gmtime_r(&seconds, &utc);
    (void)strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &utc);
    return fli_buf_printf(b, "{\"time\":\"%s.%03uZ\"", text, (unsigned)(wall_ms % 1000));
}

static uint8_t *escape(uint8_t *at, uint8_t c)
{
    static const char hex[] = "0123456789abcdef";
    static const uint8_t begin[] = {'\\', 'u', '0', '0'};
    bool is_text = c >= ' ' && c < 0x7f;
    if (is_text && c != '"' && c != '\\') {
        *at = c;
        return at + 1;
    }
    if (is_text) {
        at[0] = '\\';
        at[1] = c;
        return at + 2;
    }
    memcpy(at, begin, sizeof begin);
    at[4] = (uint8_t)hex[c >> 4];
    at[5] = (uint8_t)hex[c & 15];
    return at + 6;
}

/* Writes bytes as a string of JSON. A byte that is not ASCII becomes the code point of its number,
 * so that any name can be read back byte by byte. */
static int put_text(struct fli_buf *b, const char *key, struct fli_slice v)
{
    uint8_t text[AUDIT_TEXT_MAX * 6];
    uint8_t *at = text;
    FLI_ASSERT(v.len <= AUDIT_TEXT_MAX);
    for (size_t i = 0; i < v.len; i++) {
        at = escape(at, v.data[i]);
    }
    int rc = fli_buf_printf(b, ",\"%s\":\"", key);
    rc = rc != 0 ? rc : fli_buf_append(b, text, (size_t)(at - text));
    return rc != 0 ? rc : fli_buf_append(b, "\"", 1);
}

static int put_origin(struct fli_buf *b, const char *user_key, struct fli_slice user,
                      const char *address_key, struct fli_slice address)
{
    char text[RENDER_ADDRESS_MAX];
    render_address(address, text);
    int rc = put_text(b, user_key, user.len > 0 ? user : slice_of("default"));
    return rc != 0 || text[0] == '\0' ? rc : put_text(b, address_key, slice_of(text));
}

static int put_user(struct fli_buf *b, const struct audit_record *r)
{
    return put_origin(b, "user", r->texts[AUDIT_USER], "address", r->texts[AUDIT_ADDRESS]);
}

static int put_refusal(struct fli_buf *b, const struct audit_record *r)
{
    int rc = put_text(b, "command", r->texts[AUDIT_NAME]);
    rc = rc != 0 ? rc : put_text(b, "why", r->texts[AUDIT_OWNER]);
    return rc != 0 ? rc : put_user(b, r);
}

static int put_event(struct fli_buf *b, const struct audit_record *r)
{
    bool of_user = r->word == AUDIT_USER_CHANGED || r->word == AUDIT_USER_DELETED;
    int rc = 0;
    if (of_user) {
        rc = put_text(b, "changed", r->texts[AUDIT_OWNER]);
    } else {
        rc = put_text(b, "lock", r->texts[AUDIT_NAME]);
        rc = rc != 0 || r->number == 0 ? rc : fli_buf_printf(b, ",\"token\":%" PRIu64, r->number);
        rc = rc != 0 ? rc : put_user(b, r);
        rc = rc != 0 ? rc : put_text(b, "owner", r->texts[AUDIT_OWNER]);
    }
    if (of_user || r->word == AUDIT_BROKEN) {
        rc = rc != 0 ? rc
                     : put_origin(b, "by", r->texts[AUDIT_BY], "by_address",
                                  r->texts[AUDIT_BY_ADDRESS]);
    }
    rc = rc != 0 ? rc : fli_buf_printf(b, ",\"clock\":%" PRIu64, r->clock_ms);
    return rc != 0 || !r->again ? rc : fli_buf_printf(b, ",\"again\":true");
}

int audit_record_line(struct fli_buf *b, uint64_t node_id, const struct audit_record *r)
{
    int rc = put_time(b, r->wall_ms);
    rc = rc != 0 ? rc : fli_buf_printf(b, ",\"node\":%" PRIu64, node_id);
    rc = rc != 0 ? rc : put_text(b, "event", slice_of(words[r->word]));
    if (r->word == AUDIT_DROPPED) {
        rc = rc != 0 ? rc : fli_buf_printf(b, ",\"lines\":%" PRIu64, r->number);
    } else {
        rc = rc != 0 ? rc : r->word == AUDIT_REFUSED ? put_refusal(b, r) : put_event(b, r);
    }
    return rc != 0 ? rc : fli_buf_append(b, "}\n", 2);
}
