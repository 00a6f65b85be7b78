/* text.h: writes Prometheus's text format, version 0.0.4.
 *
 * A family (HELP, TYPE) comes first, then its samples. Assertions check the names, which are
 * constants. Values of labels may be any bytes and are escaped. The first failure of the buffer is
 * kept, and everything after it is left out. Pure. */
#ifndef METRICS_TEXT_H
#define METRICS_TEXT_H

#include "base/buf.h"
#include "metrics/histogram.h"

#define METRICS_CONTENT_TYPE "text/plain; version=0.0.4; charset=utf-8"

struct metrics_text {
    struct fli_buf *out;
    const char *family; /* the last family */
    int rc;             /* 0, FL_ELIMIT, FL_ENOMEM */
};

struct metrics_label {
    const char *name, *value;
};

void metrics_text_init(struct metrics_text *t, struct fli_buf *out);

/* type: "counter", whose name ends with _total; "gauge"; "histogram". */
void metrics_family(struct metrics_text *t, const char *name, const char *type, const char *help);

/* A sample of the last family with at most one label; NULL for none. */
void metrics_whole(struct metrics_text *t, const struct metrics_label *label, uint64_t value);
/* thousandths: for example milliseconds, written exactly as seconds. */
void metrics_milli(struct metrics_text *t, const struct metrics_label *label, uint64_t thousandths);
void metrics_real(struct metrics_text *t, const struct metrics_label *label, double value);
/* A sample that is always 1 and carries labels only. */
void metrics_info(struct metrics_text *t, const struct metrics_label *labels, size_t n);

/* Family and its one sample. */
void metrics_counter(struct metrics_text *t, const char *name, const char *help, uint64_t value);
void metrics_gauge(struct metrics_text *t, const char *name, const char *help, uint64_t value);
void metrics_histogram(struct metrics_text *t, const char *name, const char *help,
                       const struct metrics_histogram *h);

#endif
