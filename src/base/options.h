/* options.h: the options of a program, from one table. Each has the same name everywhere:
 * `--name value` or `--name=value` on the command line, PREFIX_NAME=value in the environment,
 * `name = value` in a file. The source that is read first wins. Nothing is guessed: an unknown
 * option or an impossible value is refused with a sentence that names it, its source, and what to
 * write. Pure. */
#ifndef FLI_BASE_OPTIONS_H
#define FLI_BASE_OPTIONS_H

#include "base/base.h"

#define FLI_OPTIONS_MAX 64u
#define FLI_OPTION_NAME_MAX 64u

enum fli_option_kind {
    FLI_OPTION_NUMBER,  /* min to max, into a uint32_t or uint64_t */
    FLI_OPTION_SIZE,    /* the same, in bytes: K, M or G may follow */
    FLI_OPTION_TIME,    /* the same, in milliseconds: fli_parse_duration() */
    FLI_OPTION_TEXT,    /* 1 byte or more, into a char array */
    FLI_OPTION_POINTER, /* any text, into a const char *, until fli_options_fini() */
    FLI_OPTION_WORD,    /* one of words: its place there plus min, into a bool or a uint32_t */
    FLI_OPTION_YES_NO,  /* into a bool */
    FLI_OPTION_FLAG,    /* the same; on the command line no value is needed */
    FLI_OPTION_OWN,     /* set() reads it */
    FLI_OPTION_GONE,    /* words[0] says what has replaced it */
};

/* A value, and where it was found. */
struct fli_given {
    char *text, *where; /* NULL: not given */
};

struct fli_options;

struct fli_option {
    const char *name;
    enum fli_option_kind kind;
    const char *value;   /* what stands for it in help, such as FILE; NULL: nothing is said */
    size_t offset, size; /* of the field in `values` */
    uint64_t min, max;
    const char *const *words;                                     /* the last is NULL */
    int (*set)(struct fli_options *o, const struct fli_given *g); /* 0, or fli_options_wrong() */
    bool once;           /* for one start alone: on the command line only */
    bool many;           /* may be given again and again; for fli_options_next() alone */
    const char *help;    /* a line for who asks; NULL: the program has a text of its own */
    bool in_environment; /* for programs that do not take all from there */
};

/* The program fills in the members down to errmsg_size and sets the others to zero. */
struct fli_options {
    const struct fli_option *table;
    size_t n;           /* FLI_OPTIONS_MAX at most */
    const char *prefix; /* of variables, such as "FENCELOCK_" */
    bool empty_is_none; /* a variable that is empty counts as not given */
    void *values;       /* a struct with defaults */
    char *errmsg;
    size_t errmsg_size;
    struct fli_given given[FLI_OPTIONS_MAX];
    bool seen[FLI_OPTIONS_MAX]; /* on the command line */
};

enum { FLI_OPTIONS_HELP = 1, FLI_OPTIONS_VERSION = 2 };

/* The option at argv[*at], which is moved behind it and its value: 0, its row, and the value, which
 * is NULL for a flag without one; else as below. For programs that have more than options. */
int fli_options_next(struct fli_options *o, int argc, const char *const *argv, int *at, size_t *ret,
                     const char **ret_value) FLI_MUST_USE;

/* Each reads one source. 0; HELP or VERSION, which the command line asks for; FL_EINVAL with a
 * sentence in errmsg. argv is without the program's name; env as in environ, or NULL. */
int fli_options_arguments(struct fli_options *o, int argc, const char *const *argv) FLI_MUST_USE;
int fli_options_environment(struct fli_options *o, const char *const *env) FLI_MUST_USE;
/* One line of a file, without its line feed. seen: n of them, false at the first line. */
int fli_options_line(struct fli_options *o, const char *line, size_t len, const char *where,
                     bool *seen) FLI_MUST_USE;

/* Reads a text by its row, which is of a number, a size, a time, a word, or yes or no. 0; or
 * FL_EINVAL, and a sentence that says what to write. where: as in struct fli_given. */
int fli_option_read(struct fli_options *o, const struct fli_option *row, const char *text,
                    const char *where, uint64_t *ret) FLI_MUST_USE;

/* Then this reads the texts into their fields. */
int fli_options_set(struct fli_options *o) FLI_MUST_USE;
void fli_options_fini(struct fli_options *o);

/* Writes errmsg; returns FL_EINVAL. */
int fli_options_wrong(struct fli_options *o, const char *fmt, ...) FLI_PRINTF(2, 3);

/* Of an option that is in the table. */
const struct fli_given *fli_options_given(const struct fli_options *o, const char *name);

/* The value that a field has, as it would be written; "" for OWN. */
void fli_option_text(const struct fli_options *o, const struct fli_option *row, char *out,
                     size_t size);

/* Words that more than one program takes; NULL is the last. */
extern const char *const fli_words_tls_auth[];   /* in the order of enum fli_tls_auth */
extern const char *const fli_words_cert_users[]; /* in the order of enum fli_tls_user */
extern const char *const fli_words_log_level[];  /* the first is level 1 */
extern const char *const fli_words_log_format[];
extern const char *const fli_instead_of_allow_remote[];

#endif
