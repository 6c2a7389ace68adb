/* Typed, bounded values from a JSON object (formats/config_reader.h). */
#include "formats/config_reader.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

#define TEXT_BYTES 160

weft_status weft_i_reader_reject(const weft_reader *r, weft_status code, const char *fmt, ...)
{
    char text[1024];
    va_list args;
    va_start(args, fmt);
    const int n = vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    if (n < 0)
        text[0] = '\0';
    if (r->reasons == NULL)
        WEFT_FAIL(code, "%s: %s", r->path, text);
    for (char *c = text; *c != '\0'; c++) {
        if ((unsigned char)*c < 0x20)
            *c = ' ';
    }
    return weft_i_str_addf(r->reasons, "%s\n", text);
}

bool weft_i_reader_has_failed(const weft_reader *r)
{
    return r->reasons != NULL && r->reasons->n_bytes > 0;
}

const json_t *weft_i_reader_find(const weft_reader *r, const char *key)
{
    const json_t *value = json_object_get(r->root, key);
    return json_is_null(value) ? NULL : value;
}

static weft_status
reject_value(const weft_reader *r, const char *key, const json_t *value, const char *wanted)
{
    char text[TEXT_BYTES];
    return weft_i_reader_reject(r, WEFT_STATUS_FORMAT, "%s%s = %s: must be %s", r->within, key,
                                weft_i_json_text(value, text, sizeof(text)), wanted);
}

weft_status
weft_i_reader_int(const weft_reader *r, const char *key, weft_int_range range, int64_t *out)
{
    char wanted[TEXT_BYTES];
    const json_t *value = weft_i_reader_find(r, key);
    *out = range.fallback;
    if (value == NULL)
        return WEFT_OK;
    if (json_is_integer(value) && json_integer_value(value) >= range.min &&
        json_integer_value(value) <= range.max) {
        *out = json_integer_value(value);
        return WEFT_OK;
    }
    (void)snprintf(wanted, sizeof(wanted), "a whole number from %" PRId64 " to %" PRId64, range.min,
                   range.max);
    return reject_value(r, key, value, wanted);
}

weft_status weft_i_reader_int_either(
    const weft_reader *r, const char *key, const char *other, weft_int_range range, int64_t *out)
{
    const json_t *a = weft_i_reader_find(r, key);
    const json_t *b = weft_i_reader_find(r, other);
    char text_a[TEXT_BYTES];
    char text_b[TEXT_BYTES];
    if (a != NULL && b != NULL && !json_equal(a, b)) {
        *out = range.fallback;
        return weft_i_reader_reject(r, WEFT_STATUS_FORMAT,
                                    "%s = %s and %s = %s contradict each other", key,
                                    weft_i_json_text(a, text_a, sizeof(text_a)), other,
                                    weft_i_json_text(b, text_b, sizeof(text_b)));
    }
    return weft_i_reader_int(r, a == NULL ? other : key, range, out);
}

weft_status
weft_i_reader_real(const weft_reader *r, const char *key, weft_real_range range, double *out)
{
    char wanted[TEXT_BYTES];
    const json_t *value = weft_i_reader_find(r, key);
    *out = range.fallback;
    if (value == NULL)
        return WEFT_OK;
    if (json_is_number(value) && json_number_value(value) >= range.min &&
        json_number_value(value) <= range.max) {
        *out = json_number_value(value);
        return WEFT_OK;
    }
    (void)snprintf(wanted, sizeof(wanted), "a number from %.12g to %.12g", range.min, range.max);
    return reject_value(r, key, value, wanted);
}

weft_status weft_i_reader_bool(const weft_reader *r, const char *key, bool fallback, bool *out)
{
    const json_t *value = weft_i_reader_find(r, key);
    *out = fallback;
    if (value == NULL)
        return WEFT_OK;
    if (!json_is_boolean(value))
        return reject_value(r, key, value, "true or false");
    *out = json_is_true(value);
    return WEFT_OK;
}

weft_status
weft_i_reader_string(const weft_reader *r, const char *key, const char *fallback, const char **out)
{
    const json_t *value = weft_i_reader_find(r, key);
    *out = fallback;
    if (value == NULL)
        return WEFT_OK;
    if (!json_is_string(value))
        return reject_value(r, key, value, "a string");
    *out = json_string_value(value);
    return WEFT_OK;
}
