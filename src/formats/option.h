/**
 * Tables of options: what a command takes, as data. Defaults, command line, run configuration, help and manual pages
 * are all read from them (options.c, options_parse.c, options_help.c, options_man.c).
 */
#ifndef WEFT_FORMATS_OPTION_H
#define WEFT_FORMATS_OPTION_H

#include "base/str.h"
#include "weft/options.h"

#include <math.h>
#include <stddef.h>

typedef enum weft_option_type {
    WEFT_OPTION_STRING, /* const char * */
    WEFT_OPTION_MAYBE,  /* const char *: without a value "", not given NULL */
    WEFT_OPTION_CHOICE, /* const char *: one of `choices` */
    WEFT_OPTION_LIST,   /* const char ** and size_t: values up to the next option */
    WEFT_OPTION_EACH,   /* the same, one value for each time it is given */
    WEFT_OPTION_INT,    /* int64_t */
    WEFT_OPTION_REAL,   /* double, finite */
    WEFT_OPTION_SWITCH  /* bool */
} weft_option_type;

typedef struct weft_option {
    const char *name; /* "seq-length" */
    weft_option_type type;
    size_t offset;       /* of the field, from the group's base */
    size_t offset_count; /* of a list's size_t */
    bool is_required;
    bool is_positional; /* given without its name, in the order of the table */
    bool is_also_named; /* a positional that may be given by name too */
    const char
        *fallback;     /* the default as one would write it; NULL: NULL, an empty list, 0 or off */
    const char *shown; /* the default in words, where `fallback` says too little; "" shows none */
    double low, high;  /* what may be written; the default is always allowed. high 0: no limit */
    bool is_low_open, is_high_open;
    const char *choices;  /* "none|selective|full" */
    const char *argument; /* "N", "DIR"; NULL: from the type */
    const char *help;     /* sentences */
} weft_option;

typedef struct weft_option_group {
    const char *title;
    size_t base; /* of the struct the offsets count from, in the command's struct */
    const weft_option *options;
    size_t n_options;
} weft_option_group;

typedef struct weft_option_spec {
    const char *name;
    const char *summary;
    const char *const *description; /* paragraphs, ended by NULL */
    const char *const *examples; /* command lines, each followed by what it does; ended by NULL */
    const weft_option_group *groups;
    size_t n_groups;
    bool takes_run_file; /* a first argument RUN.json */
} weft_option_spec;

/* Offsets that do not compile when the field has another type than the row says. */
#define WEFT_FIELD_(type, field, wanted)                                                           \
    (offsetof(type, field) + 0 * sizeof(_Generic(((type *)0)->field, wanted : (char)0)))
#define WEFT_AT_TEXT(type, field) .offset = WEFT_FIELD_(type, field, const char *)
#define WEFT_AT_INT(type, field) .offset = WEFT_FIELD_(type, field, int64_t)
#define WEFT_AT_REAL(type, field) .offset = WEFT_FIELD_(type, field, double)
#define WEFT_AT_BOOL(type, field) .offset = WEFT_FIELD_(type, field, bool)
#define WEFT_AT_LIST(type, field)                                                                  \
    .offset = WEFT_FIELD_(type, field, const char **),                                             \
    .offset_count = WEFT_FIELD_(type, n_##field, size_t)

#define WEFT_OPTION_COLUMNS 100 /* of help, unless the caller wants another width */

/* Groups that several commands share; `base` is set where they are used. */
#define WEFT_OPTIONS_LAYOUT 21
#define WEFT_OPTIONS_COMPUTE 5
extern const weft_option weft_i_options_layout[WEFT_OPTIONS_LAYOUT];
extern const weft_option weft_i_options_compute[WEFT_OPTIONS_COMPUTE];

extern const weft_option_spec weft_i_option_spec_train;
extern const weft_option_spec weft_i_option_spec_eval;
extern const weft_option_spec weft_i_option_spec_generate;
extern const weft_option_spec weft_i_option_spec_probe;
extern const weft_option_spec weft_i_option_spec_info;
extern const weft_option_spec weft_i_option_spec_diff;
extern const weft_option_spec weft_i_option_spec_tokenize;
extern const weft_option_spec weft_i_option_spec_checkpoint;
extern const weft_option_spec weft_i_option_spec_simulate;
extern const weft_option_spec weft_i_option_spec_layout;

/** NULL for COUNT. */
const weft_option_spec *weft_i_option_spec(weft_command command);

/** Row i over all groups, with its group's base; NULL past the end. */
const weft_option *weft_i_option_at(const weft_option_spec *spec, size_t i, size_t *base);

/** What may be written, for messages and help: "a whole number >= 1", "one of none, selective, full". */
const char *weft_i_option_allowed(const weft_option *o, char *out, size_t size);

/** "N", "DIR", "none|selective|full", "on|off". */
const char *weft_i_option_argument(const weft_option *o);

/** The default for people: `shown`, else `fallback`; NULL when there is none to show. */
const char *weft_i_option_default(const weft_option *o);

/** Whether a number may be written for this option. */
bool weft_i_option_in_range(const weft_option *o, double value);
bool weft_i_option_is_choice(const weft_option *o, const char *text);

/** The nearest of the spec's names, also for names other programs use; NULL when none is near. */
const char *weft_i_option_nearest(const weft_option_spec *spec, const char *name);

/** Edits (insert, delete, replace) from a to b, '_' taken as '-'; SIZE_MAX for names over 63 bytes. */
size_t weft_i_option_distance(const char *a, const char *b);

#endif
