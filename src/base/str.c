/*
 * Strings that never fail silently: growing ones in CONTROL memory, bounded ones that refuse what does not fit,
 * and the two parsers for numbers a user wrote.
 *
 * Numbers are read in the C locale whatever the calling program has set: "0.1" is a tenth everywhere.
 */
#include "base/str.h"

#include <ctype.h>
#include <errno.h>
#include <locale.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- growing strings ---- */

void weft_i_str_init(weft_str *s, weft_alloc *alloc)
{
    *s = (weft_str){.alloc = alloc};
}

void weft_i_str_fini(weft_str *s)
{
    weft_i_alloc_put(s->alloc, s->text);
    *s = (weft_str){.alloc = s->alloc};
}

void weft_i_str_clear(weft_str *s)
{
    s->n_bytes = 0;
    if (s->text != NULL)
        s->text[0] = '\0';
}

/* Room for n_more bytes and the NUL. */
static weft_status str_reserve(weft_str *s, size_t n_more)
{
    if (n_more > SIZE_MAX - 1 - s->n_bytes)
        WEFT_FAIL(WEFT_STATUS_NOMEM, "a text of %zu more bytes is more than memory can hold",
                  n_more);
    void *text = s->text;
    WEFT_TRY(weft_i_alloc_grow(s->alloc, WEFT_MAX(s->n_bytes + n_more + 1, (size_t)32), 1,
                               &s->capacity, &text));
    s->text = text;
    return WEFT_OK;
}

weft_status weft_i_str_add(weft_str *s, const char *bytes, size_t n_bytes)
{
    WEFT_TRY(str_reserve(s, n_bytes));
    if (n_bytes != 0)
        memcpy(s->text + s->n_bytes, bytes, n_bytes);
    s->n_bytes += n_bytes;
    s->text[s->n_bytes] = '\0';
    return WEFT_OK;
}

weft_status weft_i_str_addf(weft_str *s, const char *fmt, ...)
{
    va_list args, again;
    va_start(args, fmt);
    va_copy(again, args);
    const int n = vsnprintf(NULL, 0, fmt, args);
    weft_status st = WEFT_OK;
    if (n < 0)
        st = weft_i_error_set(WEFT_STATUS_ARG, "a text could not be formatted by \"%s\"", fmt);
    else
        st = str_reserve(s, (size_t)n);
    if (st == WEFT_OK) {
        (void)vsnprintf(s->text + s->n_bytes, (size_t)n + 1, fmt, again);
        s->n_bytes += (size_t)n;
    }
    va_end(again);
    va_end(args);
    return st;
}

/* ---- bounded strings ---- */

weft_status weft_i_str_print(char *out, size_t size, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    const int n = vsnprintf(out, size, fmt, args);
    va_end(args);
    if (n < 0 || (size_t)n >= size)
        WEFT_FAIL(WEFT_STATUS_ARG, "a text of %d bytes did not fit in %zu: \"%.200s...\"", n, size,
                  size ? out : "");
    return WEFT_OK;
}

weft_status weft_i_str_copy(weft_alloc *alloc, const char *text, char **out)
{
    const size_t n_bytes = strlen(text);
    void *copy = NULL;
    WEFT_TRY(weft_i_alloc_new(alloc, n_bytes + 1, 1, &copy));
    memcpy(copy, text, n_bytes + 1);
    *out = copy;
    return WEFT_OK;
}

/* ---- matching ---- */

/* Matches one character of the text against the item at *pattern, and steps *pattern over the item. An unclosed
 * bracket stands for itself. */
static bool glob_item(const char **pattern, unsigned char c)
{
    const char *p = *pattern;
    const char *const close = *p == '[' && p[1] != '\0' ? strchr(p + 2, ']') : NULL;
    if (close == NULL) {
        *pattern = p + 1;
        return *p == '?' || (unsigned char)*p == c;
    }
    const bool is_negated = p[1] == '!' || p[1] == '^';
    bool is_in = false;
    for (p += is_negated ? 2 : 1; p < close; p++) {
        const unsigned char low = (unsigned char)*p;
        unsigned char high = low;
        if (p[1] == '-' && p + 2 < close) {
            high = (unsigned char)p[2];
            p += 2;
        }
        is_in = is_in || (low <= c && c <= high);
    }
    *pattern = close + 1;
    return is_in != is_negated;
}

bool weft_i_str_glob(const char *pattern, const char *text)
{
    const char *star = NULL; /* after the last '*' met */
    const char *resume = NULL;
    while (*text != '\0' || *pattern == '*') {
        if (*pattern == '*') {
            star = ++pattern;
            resume = text;
            continue;
        }
        const char *next = pattern;
        if (*pattern != '\0' && glob_item(&next, (unsigned char)*text)) {
            pattern = next;
            text++;
            continue;
        }
        if (star == NULL)
            return false;
        pattern = star; /* the star takes one character more */
        text = ++resume;
    }
    return *pattern == '\0';
}

/* ---- numbers for people ---- */

const char *weft_i_str_thousands(int64_t value, char *out, size_t size)
{
    char digits[32];
    const uint64_t magnitude = value < 0 ? 0 - (uint64_t)value : (uint64_t)value;
    const int n = snprintf(digits, sizeof(digits), "%llu", (unsigned long long)magnitude);
    size_t used = 0;
    if (value < 0 && used + 1 < size)
        out[used++] = '-';
    for (int i = 0; i < n; i++) {
        if (i > 0 && (n - i) % 3 == 0 && used + 1 < size)
            out[used++] = ',';
        if (used + 1 < size)
            out[used++] = digits[i];
    }
    if (size > 0)
        out[used] = '\0';
    return out;
}

const char *weft_i_str_bytes(double bytes, char *out, size_t size)
{
    static const char *const unit[] = {"B", "kB", "MB", "GB", "TB", "PB", "EB"};
    size_t i = 0;
    double value = bytes;
    /* 999.95 would be shown as 1000.0: the next unit reads better. */
    while (i + 1 < WEFT_COUNT_OF(unit) && fabs(value) >= (i == 0 ? 1000.0 : 999.95)) {
        value /= 1000.0;
        i++;
    }
    (void)snprintf(out, size, i == 0 ? "%.0f %s" : "%.1f %s", value, unit[i]);
    return out;
}

/* ---- numbers from people ---- */

bool weft_i_str_to_int64(const char *text, int64_t *out)
{
    const char *digits = text[0] == '-' ? text + 1 : text;
    if (!isdigit((unsigned char)digits[0]))
        return false;
    char *end = NULL;
    errno = 0;
    const long long value = strtoll(text, &end, 10);
    if (errno != 0 || *end != '\0')
        return false;
    *out = value;
    return true;
}

/* Plain decimal notation: no blanks, hexadecimal, "inf" or "nan". */
static bool is_decimal(const char *text)
{
    bool has_digit = false;
    for (const char *c = text; *c != '\0'; c++) {
        if (isdigit((unsigned char)*c))
            has_digit = true;
        else if (strchr("+-.eE", *c) == NULL)
            return false;
    }
    return has_digit && text[0] != '+';
}

bool weft_i_str_to_double(const char *text, double *out)
{
    if (!is_decimal(text))
        return false;
    const locale_t plain = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    const locale_t before = plain != (locale_t)0 ? uselocale(plain) : (locale_t)0;
    char *end = NULL;
    errno = 0;
    const double value = strtod(text, &end);
    const bool is_out_of_range = errno == ERANGE && (value == 0.0 || !isfinite(value));
    if (plain != (locale_t)0) {
        (void)uselocale(before);
        freelocale(plain);
    }
    if (*end != '\0' || is_out_of_range)
        return false;
    *out = value;
    return true;
}
