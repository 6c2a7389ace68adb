/**
 * JSON text in and out, through jansson, with weft's messages.
 *
 * jansson's objects live in memory that jansson takes itself, not in weft's allocator: they are short-lived (a header or
 * a config is read, copied into weft's own structs and let go) and never exist during a step.
 *
 * What jansson refuses and so weft refuses: repeated keys (everywhere), integers beyond 64 bits, reals that overflow,
 * invalid UTF-8, lone surrogates, NUL inside a string, over 2048 levels, NaN and Infinity.
 */
#ifndef WEFT_FORMATS_JSON_H
#define WEFT_FORMATS_JSON_H

#include <jansson.h>

#include "base/str.h"

/**
 * @param what   what the text is, for the message: "header", "index"
 * @param[out] out  an object; free with json_decref
 * @return WEFT_OK | FORMAT "PATH: the WHAT is no valid JSON: ..." | NOMEM
 */
weft_status weft_i_json_parse(
    json_t **out, const char *path, const char *what, const char *text, size_t n_bytes);

/** Adds "text" with quotes and escapes. @return WEFT_OK | NOMEM | ARG not UTF-8 */
weft_status weft_i_json_add_string(weft_str *s, const char *text);

/** Adds a value as text, keys sorted, so that equal values are equal texts. @return WEFT_OK | NOMEM */
weft_status weft_i_json_add_value(weft_str *s, const json_t *value);

/** A value as it would stand in a file, cut to fit, for messages; returns out. */
const char *weft_i_json_text(const json_t *value, char *out, size_t size);

#endif
