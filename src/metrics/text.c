/* text.c: see text.h. */
#include "metrics/text.h"

#include <inttypes.h>
#include <string.h>

void metrics_text_init(struct metrics_text *t, struct fli_buf *out)
{
    *t = (struct metrics_text){.out = out};
}

static bool is_name(const char *s)
{
    size_t n = strspn(s, "abcdefghijklmnopqrstuvwxyz0123456789_");
    return n > 0 && s[n] == '\0' && (*s < '0' || *s > '9');
}

static bool ends_with(const char *s, const char *end)
{
    size_t n = strlen(s);
    size_t m = strlen(end);
    return n > m && strcmp(s + n - m, end) == 0;
}

#define PUT(t, ...)                                                                                \
    do {                                                                                           \
        if ((t)->rc == 0) {                                                                        \
            (t)->rc = fli_buf_printf((t)->out, __VA_ARGS__);                                       \
        }                                                                                          \
    } while (0)

void metrics_family(struct metrics_text *t, const char *name, const char *type, const char *help)
{
    FLI_ASSERT(is_name(name) && strchr(help, '\n') == NULL);
    FLI_ASSERT((strcmp(type, "counter") == 0) == ends_with(name, "_total"));
    t->family = name;
    PUT(t, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

static void put_label(struct metrics_text *t, const struct metrics_label *l)
{
    FLI_ASSERT(is_name(l->name));
    PUT(t, "%s=\"", l->name);
    for (const char *p = l->value; *p != '\0' && t->rc == 0; p++) {
        if (*p == '\n') {
            PUT(t, "\\n");
        } else {
            PUT(t, "%s%c", *p == '\\' || *p == '"' ? "\\" : "", *p);
        }
    }
    PUT(t, "\"");
}

static void put_series(struct metrics_text *t, const struct metrics_label *labels, size_t n)
{
    FLI_ASSERT(t->family != NULL);
    PUT(t, "%s", t->family);
    for (size_t i = 0; i < n; i++) {
        PUT(t, "%c", i == 0 ? '{' : ',');
        put_label(t, &labels[i]);
    }
    PUT(t, n > 0 ? "} " : " ");
}

void metrics_whole(struct metrics_text *t, const struct metrics_label *label, uint64_t value)
{
    put_series(t, label, label != NULL);
    PUT(t, "%" PRIu64 "\n", value);
}

void metrics_milli(struct metrics_text *t, const struct metrics_label *label, uint64_t thousandths)
{
    put_series(t, label, label != NULL);
    PUT(t, "%" PRIu64 ".%03u\n", thousandths / 1000, (unsigned)(thousandths % 1000));
}

void metrics_real(struct metrics_text *t, const struct metrics_label *label, double value)
{
    put_series(t, label, label != NULL);
    PUT(t, "%.9g\n", value);
}

void metrics_info(struct metrics_text *t, const struct metrics_label *labels, size_t n)
{
    put_series(t, labels, n);
    PUT(t, "1\n");
}

void metrics_counter(struct metrics_text *t, const char *name, const char *help, uint64_t value)
{
    metrics_family(t, name, "counter", help);
    metrics_whole(t, NULL, value);
}

void metrics_gauge(struct metrics_text *t, const char *name, const char *help, uint64_t value)
{
    metrics_family(t, name, "gauge", help);
    metrics_whole(t, NULL, value);
}

/* Microseconds as seconds, exactly and without zeros at the end. */
static void put_seconds(struct metrics_text *t, uint64_t us)
{
    unsigned fraction = (unsigned)(us % 1000000);
    int digits = 6;
    while (digits > 0 && fraction % 10 == 0) {
        fraction /= 10;
        digits--;
    }
    PUT(t, "%" PRIu64, us / 1000000);
    if (digits > 0) {
        PUT(t, ".%0*u", digits, fraction);
    }
}

void metrics_histogram(struct metrics_text *t, const char *name, const char *help,
                       const struct metrics_histogram *h)
{
    uint64_t below = 0;
    FLI_ASSERT(ends_with(name, "_seconds"));
    metrics_family(t, name, "histogram", help);
    for (unsigned i = 0; i < METRICS_BUCKETS; i++) {
        below += h->counts[i];
        PUT(t, "%s_bucket{le=\"", name);
        put_seconds(t, metrics_histogram_bound_us(h, i));
        PUT(t, "\"} %" PRIu64 "\n", below);
    }
    uint64_t all = below + h->counts[METRICS_BUCKETS];
    PUT(t, "%s_bucket{le=\"+Inf\"} %" PRIu64 "\n%s_sum ", name, all, name);
    put_seconds(t, h->sum_us);
    PUT(t, "\n%s_count %" PRIu64 "\n", name, all);
}
