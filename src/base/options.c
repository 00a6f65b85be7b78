/* options.c: see options.h. Sources only keep texts; values are read after the last source, so that
 * an error can name the source. */
#include "base/options.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/distance.h"

const char *const fli_words_tls_auth[] = {"no", "optional", "yes", NULL};
const char *const fli_words_cert_users[] = {"off", "CN", "SAN", NULL};
const char *const fli_words_log_level[] = {"error", "warning", "info", "debug", NULL};
const char *const fli_words_log_format[] = {"text", "json", NULL};
const char *const fli_instead_of_allow_remote[] = {"protected-mode no", NULL};

int fli_options_wrong(struct fli_options *o, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(o->errmsg, o->errmsg_size, fmt, args);
    va_end(args);
    return FL_EINVAL;
}

/* ctype.h is the locale's. */
static char lower(char c)
{
    return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
}

static size_t find(const struct fli_options *o, const char *name)
{
    size_t i = 0;
    while (i < o->n && strcmp(o->table[i].name, name) != 0) {
        i++;
    }
    return i;
}

const struct fli_given *fli_options_given(const struct fli_options *o, const char *name)
{
    size_t i = find(o, name);
    FLI_ASSERT(i < o->n);
    return &o->given[i];
}

/* lasting: of a source that has no options for one start alone. */
static const char *nearest(const struct fli_options *o, const char *name, bool lasting,
                           size_t *ret_distance)
{
    const char *best = "help";
    size_t least = lasting ? SIZE_MAX : fli_distance(name, best);
    for (size_t i = 0; i < o->n; i++) {
        size_t d = fli_distance(name, o->table[i].name);
        bool fits = o->table[i].kind != FLI_OPTION_GONE && !(lasting && o->table[i].once);
        if (d < least && fits) {
            least = d;
            best = o->table[i].name;
        }
    }
    *ret_distance = least;
    return best;
}

static int unknown(struct fli_options *o, const char *where, const char *name)
{
    size_t d = 0;
    const char *near = nearest(o, name, true, &d);
    if (d <= 1 + strlen(near) / 3) {
        return fli_options_wrong(o, "%s: there is no option '%.64s'; did you mean '%s'?", where,
                                 name, near);
    }
    return fli_options_wrong(o, "%s: there is no option '%.64s'; --help lists them", where, name);
}

static char *copy_text(const char *text, size_t len)
{
    char *copy = fli_xmalloc(len + 1);
    memcpy(copy, text, len);
    copy[len] = '\0';
    return copy;
}

static int take_value(struct fli_options *o, size_t i, const char *text, size_t len,
                      const char *where)
{
    struct fli_given *g = &o->given[i];
    const struct fli_option *row = &o->table[i];
    if (row->kind == FLI_OPTION_GONE) {
        return fli_options_wrong(o,
                                 "%s: there is no option '%s' any more; what it did is said by %s",
                                 where, row->name, row->words[0]);
    }
    if (g->text == NULL) {
        g->text = copy_text(text, len);
        g->where = copy_text(where, strlen(where));
    }
    return 0;
}

/* Takes a value from a source that outlives one start: the environment, or a file. */
static int take_lasting_value(struct fli_options *o, size_t i, const char *text, size_t len,
                              const char *where)
{
    const char *name = o->table[i].name;
    if (o->table[i].once) {
        return fli_options_wrong(
            o, "%s: '%s' is for one start alone: write it on the command line, as --%s", where,
            name, name);
    }
    return take_value(o, i, text, len, where);
}

/* ---- command line ---------------------------------------------------------------------------- */

static int unknown_argument(struct fli_options *o, const char *name)
{
    size_t d = 0;
    const char *near = nearest(o, name, false, &d);
    return d <= 1 + strlen(near) / 3
               ? fli_options_wrong(o, "there is no option --%s; did you mean --%s?", name, near)
               : fli_options_wrong(o, "there is no option --%s; --help lists them", name);
}

int fli_options_next(struct fli_options *o, int argc, const char *const *argv, int *at, size_t *ret,
                     const char **ret_value)
{
    const char *arg = argv[(*at)++];
    char name[FLI_OPTION_NAME_MAX];
    if (strcmp(arg, "-h") == 0 || strcmp(arg, "--help") == 0) {
        return FLI_OPTIONS_HELP;
    }
    if (strcmp(arg, "-V") == 0 || strcmp(arg, "--version") == 0) {
        return FLI_OPTIONS_VERSION;
    }
    if (strncmp(arg, "--", 2) != 0) {
        return fli_options_wrong(
            o, "'%.64s' is not an option: options begin with --; --help lists them", arg);
    }
    size_t len = strcspn(arg + 2, "=");
    (void)snprintf(name, sizeof name, "%.*s", (int)(len < 63 ? len : 63), arg + 2);
    size_t i = find(o, name);
    if (i == o->n) {
        return unknown_argument(o, name);
    }
    const struct fli_option *row = &o->table[i];
    if (o->seen[i] && !row->many) {
        return fli_options_wrong(o, "--%s is given twice: give it once", name);
    }
    o->seen[i] = true;
    *ret = i;
    *ret_value = NULL;
    if (arg[2 + len] == '=') {
        *ret_value = arg + 3 + len;
    } else if (row->kind != FLI_OPTION_FLAG && row->kind != FLI_OPTION_GONE) {
        if (*at >= argc) {
            return row->value == NULL ? fli_options_wrong(o, "--%s needs a value", name)
                                      : fli_options_wrong(o, "--%s needs a value: --%s %s", name,
                                                          name, row->value);
        }
        *ret_value = argv[(*at)++];
    }
    return 0;
}

static int read_argument(struct fli_options *o, int argc, const char *const *argv, int *at)
{
    char where[FLI_OPTION_NAME_MAX + 2];
    const char *value = NULL;
    size_t i = 0;
    int rc = fli_options_next(o, argc, argv, at, &i, &value);
    if (rc != 0) {
        return rc;
    }
    (void)snprintf(where, sizeof where, "--%s", o->table[i].name);
    value = value != NULL ? value : "yes";
    return take_value(o, i, value, strlen(value), where);
}

int fli_options_arguments(struct fli_options *o, int argc, const char *const *argv)
{
    FLI_ASSERT(o->n <= FLI_OPTIONS_MAX);
    int rc = 0;
    for (int at = 0; rc == 0 && at < argc;) {
        rc = read_argument(o, argc, argv, &at);
    }
    return rc;
}

/* ---- environment ----------------------------------------------------------------------------- */

/* Turns FENCELOCK_ELECTION_MS into election-ms. False when the variable is not one of ours. */
static bool variable_name(const struct fli_options *o, const char *entry,
                          char name[FLI_OPTION_NAME_MAX], const char **ret_value)
{
    size_t before = strlen(o->prefix);
    const char *equals = strchr(entry, '=');
    if (equals == NULL || strncmp(entry, o->prefix, before) != 0) {
        return false;
    }
    const char *p = entry + before;
    size_t len = (size_t)(equals - p);
    if (len == 0 || len >= FLI_OPTION_NAME_MAX) {
        return false;
    }
    for (size_t i = 0; i < len; i++) {
        name[i] = p[i] == '_' ? '-' : lower(p[i]);
    }
    name[len] = '\0';
    *ret_value = equals + 1;
    return true;
}

static int read_variable(struct fli_options *o, const char *entry)
{
    char name[FLI_OPTION_NAME_MAX];
    char where[FLI_OPTION_NAME_MAX + 64];
    const char *value = NULL;
    if (!variable_name(o, entry, name, &value) || (o->empty_is_none && value[0] == '\0')) {
        return 0;
    }
    (void)snprintf(where, sizeof where, "%.*s in the environment", (int)(value - 1 - entry), entry);
    size_t i = find(o, name);
    if (i < o->n) {
        return take_lasting_value(o, i, value, strlen(value), where);
    }
    /* Clients and tests use the prefix too, so only likely misspellings are refused. */
    size_t d = 0;
    (void)nearest(o, name, true, &d);
    return d <= 2 && strlen(name) > 4 ? unknown(o, where, name) : 0;
}

int fli_options_environment(struct fli_options *o, const char *const *env)
{
    int rc = 0;
    for (; rc == 0 && env != NULL && *env != NULL; env++) {
        rc = read_variable(o, *env);
    }
    return rc;
}

/* ---- file ------------------------------------------------------------------------------------ */

static const char *skip_blanks(const char *p, const char *end)
{
    while (p < end && (*p == ' ' || *p == '\t')) {
        p++;
    }
    return p;
}

static const char *trim_blanks(const char *start, const char *end)
{
    while (end > start && (end[-1] == ' ' || end[-1] == '\t' || end[-1] == '\r')) {
        end--;
    }
    return end;
}

int fli_options_line(struct fli_options *o, const char *line, size_t len, const char *where,
                     bool *seen)
{
    const char *start = skip_blanks(line, line + len);
    const char *end = trim_blanks(start, fli_comment_of(start, line + len));
    if (start == end) {
        return 0;
    }
    const char *equals = memchr(start, '=', (size_t)(end - start));
    if (equals == NULL) {
        return fli_options_wrong(o, "%s: write `option = value`", where);
    }
    char name[FLI_OPTION_NAME_MAX];
    size_t name_len = (size_t)(trim_blanks(start, equals) - start);
    (void)snprintf(name, sizeof name, "%.*s", (int)(name_len < 63 ? name_len : 63), start);
    size_t i = find(o, name);
    if (i == o->n) {
        return unknown(o, where, name);
    }
    if (seen[i]) {
        return fli_options_wrong(o, "%s: '%s' is given twice: give it once", where, name);
    }
    seen[i] = true;
    const char *value = skip_blanks(equals + 1, end);
    return take_lasting_value(o, i, value, (size_t)(end - value), where);
}

/* ---- values ---------------------------------------------------------------------------------- */

static const char *const yes_no[] = {"no", "yes", "false", "true", "0", "1", "off", "on", NULL};

/* The bytes of a text with K, M or G behind it; or a whole number. */
static bool parse_number(const struct fli_option *row, const char *text, uint64_t *ret)
{
    static const char units[] = "kmg";
    size_t len = strlen(text);
    unsigned shift = 0;
    if (row->kind == FLI_OPTION_SIZE && len > 1) {
        const char *unit = strchr(units, lower(text[len - 1]));
        shift = unit != NULL ? 10 * (unsigned)(unit - units + 1) : 0;
        len -= unit != NULL ? 1 : 0;
    }
    if (!fli_parse_u64(text, len, row->max >> shift, ret)) {
        return false;
    }
    *ret <<= shift;
    return *ret >= row->min;
}

static void put(const struct fli_option *row, void *field, uint64_t v)
{
    if (row->size == sizeof(bool)) {
        bool b = v != 0;
        memcpy(field, &b, sizeof b);
    } else if (row->size == sizeof(uint32_t)) {
        uint32_t small = (uint32_t)v;
        memcpy(field, &small, sizeof small);
    } else {
        FLI_ASSERT(row->size == sizeof v);
        memcpy(field, &v, sizeof v);
    }
}

static uint64_t get(const struct fli_option *row, const void *field)
{
    bool b = false;
    uint32_t small = 0;
    uint64_t v = 0;
    if (row->size == sizeof b) {
        memcpy(&b, field, sizeof b);
        return b;
    }
    if (row->size == sizeof small) {
        memcpy(&small, field, sizeof small);
        return small;
    }
    memcpy(&v, field, sizeof v);
    return v;
}

static int read_number(struct fli_options *o, const struct fli_option *row, const char *text,
                       const char *where, uint64_t *ret)
{
    return parse_number(row, text, ret)
               ? 0
               : fli_options_wrong(
                     o, "%.512s: '%.64s' is not a whole number from %llu to %llu%s", where, text,
                     (unsigned long long)row->min, (unsigned long long)row->max,
                     row->kind == FLI_OPTION_SIZE ? ", in bytes, or such as 64M" : "");
}

/* As a person would write it: "500ms", "24h". */
static const char *time_text(char out[32], uint64_t ms)
{
    bool hours = ms > 0 && ms % 3600000 == 0;
    (void)snprintf(out, 32, "%" PRIu64 "%s", hours ? ms / 3600000 : ms, hours ? "h" : "ms");
    return out;
}

static int read_time(struct fli_options *o, const struct fli_option *row, const char *text,
                     const char *where, uint64_t *ret)
{
    char least[32];
    char most[32];
    return fli_parse_duration(text, ret) && *ret >= row->min && *ret <= row->max
               ? 0
               : fli_options_wrong(o,
                                   "%.512s: '%.64s' is not a time from %s to %s: write 500ms, 5s, "
                                   "2m, 1h, or a number of milliseconds",
                                   where, text, time_text(least, row->min),
                                   time_text(most, row->max));
}

static int read_word(struct fli_options *o, const struct fli_option *row, const char *text,
                     const char *where, uint64_t *ret)
{
    char list[160] = "";
    for (size_t i = 0; row->words[i] != NULL; i++) {
        size_t len = strlen(list);
        if (strcmp(text, row->words[i]) == 0) {
            *ret = i + row->min;
            return 0;
        }
        (void)snprintf(list + len, sizeof list - len, "%s%s",
                       i == 0                      ? ""
                       : row->words[i + 1] == NULL ? " and "
                                                   : ", ",
                       row->words[i]);
    }
    return fli_options_wrong(o, "%.512s: '%.64s' is %s %s", where, text,
                             row->words[1] == NULL ? "not" : "none of", list);
}

static int read_yes_no(struct fli_options *o, const char *text, const char *where, uint64_t *ret)
{
    for (size_t i = 0; yes_no[i] != NULL; i++) {
        if (strcmp(text, yes_no[i]) == 0) {
            *ret = i % 2;
            return 0;
        }
    }
    return fli_options_wrong(o, "%.512s: '%.64s' is neither yes nor no", where, text);
}

int fli_option_read(struct fli_options *o, const struct fli_option *row, const char *text,
                    const char *where, uint64_t *ret)
{
    switch (row->kind) {
    case FLI_OPTION_NUMBER:
    case FLI_OPTION_SIZE:
        return read_number(o, row, text, where, ret);
    case FLI_OPTION_TIME:
        return read_time(o, row, text, where, ret);
    case FLI_OPTION_WORD:
        return read_word(o, row, text, where, ret);
    default:
        FLI_ASSERT(row->kind == FLI_OPTION_YES_NO || row->kind == FLI_OPTION_FLAG);
        return read_yes_no(o, text, where, ret);
    }
}

static int set_text(struct fli_options *o, const struct fli_option *row, const struct fli_given *g,
                    void *field)
{
    size_t len = strlen(g->text);
    if (len == 0 || len >= row->size) {
        return fli_options_wrong(o, "%.512s: %s must have 1 to %zu bytes, not %zu", g->where,
                                 row->name, row->size - 1, len);
    }
    memcpy(field, g->text, len + 1);
    return 0;
}

/* It means stdin or stdout to whoever writes it; a file of that name would be made. */
static bool is_dash(struct fli_options *o, const struct fli_given *g)
{
    bool is = strcmp(g->text, "-") == 0;
    if (is) {
        (void)fli_options_wrong(o, "%.512s: '-' is neither read nor written here: write a name",
                                g->where);
    }
    return is;
}

static int set_one(struct fli_options *o, const struct fli_option *row, const struct fli_given *g)
{
    void *field = (char *)o->values + row->offset;
    uint64_t v = 0;
    switch (row->kind) {
    case FLI_OPTION_TEXT:
        return is_dash(o, g) ? FL_EINVAL : set_text(o, row, g, field);
    case FLI_OPTION_POINTER:
        memcpy(field, &g->text, sizeof g->text);
        return is_dash(o, g) ? FL_EINVAL : 0;
    case FLI_OPTION_OWN:
        return row->set(o, g);
    default:
        if (fli_option_read(o, row, g->text, g->where, &v) != 0) {
            return FL_EINVAL;
        }
        put(row, field, v);
        return 0;
    }
}

int fli_options_set(struct fli_options *o)
{
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < o->n; i++) {
        rc = o->given[i].text == NULL ? 0 : set_one(o, &o->table[i], &o->given[i]);
    }
    return rc;
}

void fli_options_fini(struct fli_options *o)
{
    for (size_t i = 0; i < o->n; i++) {
        free(o->given[i].text);
        free(o->given[i].where);
        o->given[i] = (struct fli_given){NULL, NULL};
    }
}

void fli_option_text(const struct fli_options *o, const struct fli_option *row, char *out,
                     size_t size)
{
    const void *field = (const char *)o->values + row->offset;
    const char *pointer = "";
    switch (row->kind) {
    case FLI_OPTION_NUMBER:
    case FLI_OPTION_SIZE:
    case FLI_OPTION_TIME:
        (void)snprintf(out, size, "%" PRIu64, get(row, field));
        return;
    case FLI_OPTION_WORD:
        (void)snprintf(out, size, "%s", row->words[get(row, field) - row->min]);
        return;
    case FLI_OPTION_YES_NO:
    case FLI_OPTION_FLAG:
        (void)snprintf(out, size, "%s", yes_no[get(row, field)]);
        return;
    case FLI_OPTION_TEXT:
        (void)snprintf(out, size, "%s", (const char *)field);
        return;
    case FLI_OPTION_POINTER:
        memcpy(&pointer, field, sizeof pointer);
        (void)snprintf(out, size, "%s", pointer == NULL ? "" : pointer);
        return;
    default: /* it has no field of its own */
        out[0] = '\0';
    }
}
