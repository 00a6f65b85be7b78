/* fuzz_script.c: any text as a script, as an operator's aliases and as the arguments of SET: never
 * two names for one text, blanks and comments between tokens change none, and what is recognised
 * once is found again. */
#include "fuzz.h"

#include <stdlib.h>
#include <string.h>

#include "face/monitor.h"
#include "face/normal.h"
#include "face/request.h"

static void check_names(struct fli_slice text)
{
    uint8_t a[FACE_SHA1_SIZE];
    uint8_t b[FACE_SHA1_SIZE];
    bool ok = face_normal(text, a);
    FLI_ASSERT(face_normal(text, b) == ok && memcmp(a, b, sizeof a) == 0);
    /* A comment in front and a line end behind are no tokens. */
    static const char front[] = "-- \xff'[[\n \t";
    size_t len = sizeof front - 1 + text.len + 1;
    uint8_t *more = fli_xmalloc(len);
    memcpy(more, front, sizeof front - 1);
    if (text.len > 0) {
        memcpy(more + sizeof front - 1, text.data, text.len);
    }
    more[len - 1] = '\n';
    bool marked = text.len >= 3 && memcmp(text.data, "\xef\xbb\xbf", 3) == 0;
    bool again = face_normal((struct fli_slice){more, len}, b);
    FLI_ASSERT(marked || !ok || (again && memcmp(a, b, sizeof a) == 0));
    free(more);
}

/* As what stands behind our own text of a form: how many keys, and words. */
static void check_form(struct fli_slice text, struct face_scripts *s)
{
    struct face_context c = {.scripts = s, .wall_ms = 1};
    struct fli_slice args[2 + 2 * FACE_EACH_MAX] = {{NULL, 0}};
    struct face_request q;
    char errmsg[FACE_ERRMSG_SIZE];
    unsigned n = 1;
    if (text.len == 0) {
        return;
    }
    const struct face_form *f = &face_forms[text.data[0] % face_forms_len];
    args[0] = (struct fli_slice){(const uint8_t *)f->script, strlen(f->script)};
    for (size_t i = 1, at = 1; i <= text.len && n < sizeof args / sizeof args[0]; i++) {
        if (i == text.len || text.data[i] == ' ') {
            args[n++] = (struct fli_slice){text.data + at, i - at};
            at = i + 1;
        }
    }
    if (n < 2 || face_request_parse(&c, FLI_CMD_EVAL, args, n, &q, errmsg) != 0) {
        return;
    }
    FLI_ASSERT((q.n_keys >= 1 && q.n_keys <= FACE_KEYS_MAX && q.n_each == 0) ||
               (q.n_keys == 0 && q.n_each >= 1 && q.n_each <= FACE_EACH_MAX));
    FLI_ASSERT(q.ttl_ms == 0 || (q.ttl_ms >= FL_TTL_MIN_MS && q.ttl_ms <= FL_TTL_MAX_MS));
    FLI_ASSERT(q.has_latch == (q.keep_ms != 0) && q.keep_ms <= FACE_KEEP_MAX_MS);
    for (unsigned i = 0; i < q.n_each; i++) {
        FLI_ASSERT(q.each_keys[i].len >= 1 && q.each_values[i].len >= 1);
        FLI_ASSERT(&q.each_values[i] < &args[n]);
    }
}

/* As a line of MONITOR. */
static void check_line(struct fli_slice line, struct face_scripts *s)
{
    struct face_context c = {.scripts = s, .wall_ms = 1};
    struct face_monitored m;
    struct face_verdict v;
    uint8_t *room = fli_xmalloc(line.len + 1);
    if (face_monitor_read(line, room, &m)) {
        FLI_ASSERT(m.n > 0);
        (void)face_monitor_key(&m);
        face_monitor_check(&c, &m, &v);
        FLI_ASSERT(strlen(v.what) > 0 && v.served == (v.why[0] == '\0'));
    }
    free(room);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fli_slice text = {data, size};
    struct face_scripts *s;
    uint8_t sha1[FACE_SHA1_SIZE];
    char errmsg[FACE_ERRMSG_SIZE];
    check_names(text);
    FLI_ASSERT(face_scripts_create(&s) == 0);
    const struct face_form *f = face_scripts_load(s, text, sha1);
    FLI_ASSERT(face_scripts_find(s, sha1) == f);
    int rc = face_scripts_alias(s, text, errmsg, sizeof errmsg);
    FLI_ASSERT(rc == 0 || rc == FL_EINVAL);
    /* SET with the words of the text behind key and value. */
    struct face_context c = {.scripts = s, .wall_ms = 1};
    struct fli_slice args[16] = {{data, size}, {data, size}};
    unsigned n = 2;
    for (size_t i = 0, at = 0; i <= size && n < 16; i++) {
        if (i == size || data[i] == ' ') {
            args[n++] = (struct fli_slice){data + at, i - at};
            at = i + 1;
        }
    }
    struct face_request q;
    rc = face_request_parse(&c, FLI_CMD_KEY_SET, args, n, &q, errmsg);
    FLI_ASSERT(rc == FL_EINVAL || (rc == 0 && (q.ttl_ms == 0 || (q.ttl_ms >= FL_TTL_MIN_MS &&
                                                                 q.ttl_ms <= FL_TTL_MAX_MS))));
    check_line(text, s);
    check_form(text, s);
    face_scripts_destroy(s);
    return 0;
}
