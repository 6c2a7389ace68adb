/* Bounded and growing strings. Nothing here fails silently: a text that does not fit is an error, never a cut. */
#ifndef WEFT_BASE_STR_H
#define WEFT_BASE_STR_H

#include "base/alloc.h"

/** A growing byte string in CONTROL memory, always ended by a NUL that n_bytes does not count. */
typedef struct weft_str {
    weft_alloc *alloc;
    char *text;
    size_t n_bytes;
    size_t capacity;
} weft_str;

void weft_i_str_init(weft_str *s, weft_alloc *alloc);
void weft_i_str_fini(weft_str *s);
void weft_i_str_clear(weft_str *s);
weft_status weft_i_str_add(weft_str *s, const char *bytes, size_t n_bytes);
weft_status weft_i_str_addf(weft_str *s, const char *fmt, ...) WEFT_PRINTF(2, 3);

/** snprintf that fails with ARG when the text does not fit. */
weft_status weft_i_str_print(char *out, size_t size, const char *fmt, ...) WEFT_PRINTF(3, 4);

/** A copy in CONTROL memory. */
weft_status weft_i_str_copy(weft_alloc *alloc, const char *text, char **out);

/** Shell-style match with * and ? and [a-z] (--freeze GLOB). */
bool weft_i_str_glob(const char *pattern, const char *text);

/** "1,234,567" into out (at least 32 bytes). */
const char *weft_i_str_thousands(int64_t value, char *out, size_t size);

/** "12.3 MB" (1 MB = 1e6 bytes) into out. */
const char *weft_i_str_bytes(double bytes, char *out, size_t size);

/** Whole text as a number; no leading or trailing characters. false when it is none or out of range. */
bool weft_i_str_to_int64(const char *text, int64_t *out);
bool weft_i_str_to_double(const char *text, double *out);

#endif
