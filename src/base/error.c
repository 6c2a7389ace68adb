/*
 * The thread's error text and the names of the statuses.
 *
 * The text lives in a thread-local buffer (the one mutable global the conventions allow), so that setting it
 * allocates nothing and cannot itself fail. Newlines and other control bytes become spaces: a message is one line.
 */
#include "base/error.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MESSAGE_BYTES 1024

static _Thread_local char message[MESSAGE_BYTES];
static _Thread_local bool is_of_run;

static void keep_one_line(char *text)
{
    for (; *text != '\0'; text++) {
        if ((unsigned char)*text < 0x20)
            *text = ' ';
    }
}

weft_status weft_i_error_set(weft_status code, const char *fmt, ...)
{
    /* Formatted apart first: an argument may point into the message that is replaced. */
    char text[MESSAGE_BYTES];
    va_list args;
    va_start(args, fmt);
    const int n = vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    if (n < 0)
        text[0] = '\0';
    keep_one_line(text);
    memcpy(message, text, strlen(text) + 1);
    is_of_run = false;
    return code;
}

weft_status weft_i_error_prefix(weft_status code, const char *fmt, ...)
{
    char text[MESSAGE_BYTES];
    va_list args;
    va_start(args, fmt);
    const int n = vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    if (n < 0)
        return code;
    size_t used = strlen(text);
    const char *parts[] = {": ", message};
    for (size_t i = 0; i < WEFT_COUNT_OF(parts); i++) {
        const size_t n_bytes = WEFT_MIN(strlen(parts[i]), sizeof(text) - 1 - used);
        memcpy(text + used, parts[i], n_bytes);
        used += n_bytes;
    }
    text[used] = '\0';
    keep_one_line(text);
    memcpy(message, text, used + 1);
    return code;
}

void weft_i_assert_failed(const char *expr, const char *file, int line)
{
    (void)fprintf(stderr, "weft: bug: %s:%d: \"%s\" does not hold\n", file, line, expr);
    abort();
}

void weft_i_error_mark_run(void)
{
    is_of_run = true;
}

bool weft_last_error_is_of_run(void)
{
    return is_of_run;
}

const char *weft_last_error(void)
{
    return message;
}

const char *weft_status_name(weft_status status)
{
    switch (status) {
    case WEFT_OK:
        return "OK";
    case WEFT_STATUS_ARG:
        return "ARG";
    case WEFT_STATUS_NOMEM:
        return "NOMEM";
    case WEFT_STATUS_IO:
        return "IO";
    case WEFT_STATUS_FORMAT:
        return "FORMAT";
    case WEFT_STATUS_UNSUPPORTED:
        return "UNSUPPORTED";
    case WEFT_STATUS_MISMATCH:
        return "MISMATCH";
    case WEFT_STATUS_LAYOUT:
        return "LAYOUT";
    case WEFT_STATUS_REMOTE:
        return "REMOTE";
    case WEFT_STATUS_TIMEOUT:
        return "TIMEOUT";
    case WEFT_STATUS_DEVICE:
        return "DEVICE";
    case WEFT_STATUS_NUMERIC:
        return "NUMERIC";
    case WEFT_STATUS_INTERNAL:
        return "INTERNAL";
    }
    return "UNKNOWN";
}
