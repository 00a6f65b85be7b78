/* audit_record.c: see audit_record.h. */
#include "server/audit_record.h"

#include <string.h>

#include "base/json.h"
#include "base/utc.h"
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

static void put_origin(struct fli_json *j, const char *user_key, struct fli_slice user,
                       const char *address_key, struct fli_slice address)
{
    char text[RENDER_ADDRESS_MAX];
    render_address(address, text);
    fli_json_latin1(j, user_key, user.len > 0 ? user : slice_of("default"));
    if (text[0] != '\0') {
        fli_json_text(j, address_key, text);
    }
}

static void put_user(struct fli_json *j, const struct audit_record *r)
{
    put_origin(j, "user", r->texts[AUDIT_USER], "address", r->texts[AUDIT_ADDRESS]);
}

static void put_refusal(struct fli_json *j, const struct audit_record *r)
{
    fli_json_latin1(j, "command", r->texts[AUDIT_NAME]);
    fli_json_latin1(j, "why", r->texts[AUDIT_OWNER]);
    put_user(j, r);
}

static void put_event(struct fli_json *j, const struct audit_record *r)
{
    bool of_user = r->word == AUDIT_USER_CHANGED || r->word == AUDIT_USER_DELETED;
    if (of_user) {
        fli_json_latin1(j, "changed", r->texts[AUDIT_OWNER]);
    } else {
        fli_json_latin1(j, "lock", r->texts[AUDIT_NAME]);
        if (r->number != 0) {
            fli_json_u64(j, "token", r->number);
        }
        put_user(j, r);
        fli_json_latin1(j, "owner", r->texts[AUDIT_OWNER]);
    }
    if (of_user || r->word == AUDIT_BROKEN) {
        put_origin(j, "by", r->texts[AUDIT_BY], "by_address", r->texts[AUDIT_BY_ADDRESS]);
    }
    fli_json_u64(j, "clock", r->clock_ms);
    if (r->again) {
        fli_json_bool(j, "again", true);
    }
}

int audit_record_line(struct fli_buf *b, uint64_t node_id, const struct audit_record *r)
{
    char when[FLI_UTC_SIZE];
    struct fli_json j;
    fli_utc(when, r->wall_ms);
    fli_json_init(&j, b);
    fli_json_object(&j, NULL);
    fli_json_text(&j, "time", when);
    fli_json_u64(&j, "node", node_id);
    fli_json_text(&j, "event", words[r->word]);
    if (r->word == AUDIT_DROPPED) {
        fli_json_u64(&j, "lines", r->number);
    } else if (r->word == AUDIT_REFUSED) {
        put_refusal(&j, r);
    } else {
        put_event(&j, r);
    }
    fli_json_end_object(&j);
    return j.rc != 0 ? j.rc : fli_buf_append(b, "\n", 1);
}
