/**
 * Reading typed, bounded values from a JSON object, one message form for all that can be wrong.
 *
 * A reader either stops at the first problem, or (`reasons` set) writes every problem as a line and goes on with the
 * default, which is how `weft info` lists all that keeps a config from running. Absent and null are the same: the default.
 */
#ifndef WEFT_FORMATS_CONFIG_READER_H
#define WEFT_FORMATS_CONFIG_READER_H

#include "formats/json.h"

typedef struct weft_reader {
    const char *path;   /* for messages */
    const json_t *root; /* the object values are read from */
    const char
        *within; /* "" or the name of the object inside the file, with a dot: "rope_parameters." */
    weft_str *reasons; /* NULL: stop at the first problem */
} weft_reader;

typedef struct weft_int_range {
    int64_t fallback, min, max;
} weft_int_range;

typedef struct weft_real_range {
    double fallback, min, max; /* both ends allowed */
} weft_real_range;

/** "PATH: TEXT" as the error, or as a line of the reasons; then WEFT_OK and reading goes on. */
weft_status weft_i_reader_reject(const weft_reader *r, weft_status code, const char *fmt, ...)
    WEFT_PRINTF(3, 4);

/** A problem was listed already, so a check of one value against another could only repeat it. */
bool weft_i_reader_has_failed(const weft_reader *r);

/** NULL when the key is absent or null. */
const json_t *weft_i_reader_find(const weft_reader *r, const char *key);

/** A whole number in [min, max]. FORMAT names key, value and what is allowed. */
weft_status
weft_i_reader_int(const weft_reader *r, const char *key, weft_int_range range, int64_t *out);

/** The same under two names (gpt2: n_embd, hidden_size); both given must agree. */
weft_status weft_i_reader_int_either(
    const weft_reader *r, const char *key, const char *other, weft_int_range range, int64_t *out);

weft_status
weft_i_reader_real(const weft_reader *r, const char *key, weft_real_range range, double *out);
weft_status weft_i_reader_bool(const weft_reader *r, const char *key, bool fallback, bool *out);

/** Borrowed from the JSON; `fallback` may be NULL. */
weft_status
weft_i_reader_string(const weft_reader *r, const char *key, const char *fallback, const char **out);

#endif
