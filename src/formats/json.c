/* JSON text in and out (formats/json.h). */
#include "formats/json.h"

#include <stdio.h>
#include <string.h>

weft_status weft_i_json_parse(
    json_t **out, const char *path, const char *what, const char *text, size_t n_bytes)
{
    json_error_t error;
    /* jansson overlooks a NUL behind a number, and the text may be kept as a C string. */
    const char *nul = n_bytes == 0 ? NULL : memchr(text, '\0', n_bytes);
    if (nul != NULL)
        WEFT_FAIL(WEFT_STATUS_FORMAT, "%s: the %s is no valid JSON: byte %zu is NUL", path, what,
                  (size_t)(nul - text));
    json_t *root = json_loadb(text, n_bytes, JSON_REJECT_DUPLICATES, &error);
    if (root == NULL) {
        const enum json_error_code code = json_error_code(&error);
        const bool is_silent =
            error.line < 0; /* a table could not be taken: jansson says nothing */
        if (code == json_error_out_of_memory || is_silent)
            WEFT_FAIL(WEFT_STATUS_NOMEM, "%s: no memory to parse the %s (%zu bytes)", path, what,
                      n_bytes);
        if (code == json_error_null_character || code == json_error_null_byte_in_key)
            WEFT_FAIL(WEFT_STATUS_FORMAT,
                      "%s: the %s has a NUL character inside a string (line %d, column %d)", path,
                      what, error.line, error.column);
        if (code == json_error_duplicate_key)
            WEFT_FAIL(WEFT_STATUS_FORMAT, "%s: the %s has a key twice: %s (line %d, column %d)",
                      path, what, error.text, error.line, error.column);
        WEFT_FAIL(WEFT_STATUS_FORMAT, "%s: the %s is no valid JSON: %s (line %d, column %d)", path,
                  what, error.text, error.line, error.column);
    }
    if (!json_is_object(root)) {
        json_decref(root);
        WEFT_FAIL(WEFT_STATUS_FORMAT, "%s: the %s is JSON, but no object {...}", path, what);
    }
    *out = root;
    return WEFT_OK;
}

static size_t utf8_length(unsigned char first)
{
    if (first < 0x80)
        return 1;
    if (first >= 0xc2 && first < 0xe0)
        return 2;
    if (first >= 0xe0 && first < 0xf0)
        return 3;
    return first >= 0xf0 && first < 0xf5 ? 4 : 0;
}

/* Bytes of the well-formed UTF-8 sequence at `s` (Unicode 15, table 3-7), 0 when there is none. */
static size_t utf8_sequence(const char *s)
{
    const unsigned char first = (unsigned char)s[0];
    const unsigned char second = first == 0 ? 0 : (unsigned char)s[1];
    const size_t n = utf8_length(first);
    for (size_t i = 1; i < n; i++) {
        if (((unsigned char)s[i] & 0xc0) != 0x80)
            return 0;
    }
    const bool is_overlong = (first == 0xe0 && second < 0xa0) || (first == 0xf0 && second < 0x90);
    const bool is_surrogate = first == 0xed && second >= 0xa0;
    const bool is_too_big = first == 0xf4 && second >= 0x90;
    return is_overlong || is_surrogate || is_too_big ? 0 : n;
}

weft_status weft_i_json_add_string(weft_str *s, const char *text)
{
    WEFT_TRY(weft_i_str_add(s, "\"", 1));
    for (const char *p = text; *p != '\0';) {
        const size_t n = utf8_sequence(p);
        if (n == 0)
            WEFT_FAIL(WEFT_STATUS_ARG,
                      "'%.200s' is not UTF-8 (byte %zu), so it cannot be written as JSON", text,
                      (size_t)(p - text));
        if (*p == '"' || *p == '\\')
            WEFT_TRY(weft_i_str_addf(s, "\\%c", *p));
        else if ((unsigned char)*p < 0x20)
            WEFT_TRY(weft_i_str_addf(s, "\\u%04x", (unsigned)(unsigned char)*p));
        else
            WEFT_TRY(weft_i_str_add(s, p, n));
        p += n;
    }
    return weft_i_str_add(s, "\"", 1);
}

static int add_dumped(const char *bytes, size_t n_bytes, void *text)
{
    return weft_i_str_add(text, bytes, n_bytes) == WEFT_OK ? 0 : -1;
}

weft_status weft_i_json_add_value(weft_str *s, const json_t *value)
{
    const size_t flags = JSON_ENCODE_ANY | JSON_SORT_KEYS | JSON_REAL_PRECISION(17);
    if (json_dump_callback(value, add_dumped, s, flags) != 0)
        WEFT_FAIL(WEFT_STATUS_NOMEM, "a JSON value could not be written as text");
    return WEFT_OK;
}

/* jansson leaves out what does not fit, so the buffer is cleared first and an ellipsis marks the cut. */
const char *weft_i_json_text(const json_t *value, char *out, size_t size)
{
    memset(out, 0, size);
    if (value == NULL) {
        (void)snprintf(out, size, "nothing");
        return out;
    }
    const size_t n = json_dumpb(value, out, size - 1,
                                JSON_ENCODE_ANY | JSON_REAL_PRECISION(15) | JSON_ENSURE_ASCII);
    if (n >= size) {
        const size_t used = strlen(out);
        memcpy(out + WEFT_MIN(used, size - 4), "...", 4);
    }
    return out;
}
