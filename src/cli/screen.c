/*
 * Progress on standard error, and numbers written for people.
 */
#include "cli/cli.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define USUAL_COLUMNS 80

void weft_i_cli_screen_init(weft_cli_screen *s)
{
    *s = (weft_cli_screen){.is_terminal = isatty(STDERR_FILENO) == 1};
    (void)pthread_mutex_init(&s->lock, NULL);
}

/* Under the lock. */
static void clear(weft_cli_screen *s)
{
    if (s->has_live)
        (void)fputs("\r\033[K", stderr);
    s->has_live = false;
}

void weft_i_cli_screen_clear(weft_cli_screen *s)
{
    (void)pthread_mutex_lock(&s->lock);
    clear(s);
    (void)pthread_mutex_unlock(&s->lock);
}

/* Columns of the terminal now, less one: a live line that wraps could not be written over. */
static int live_columns(void)
{
    struct winsize w = {0};
    const bool is_known = ioctl(STDERR_FILENO, TIOCGWINSZ, &w) == 0 && w.ws_col > 0;
    return (is_known ? (int)w.ws_col : USUAL_COLUMNS) - 1;
}

void weft_i_cli_screen_live(weft_cli_screen *s, const char *line)
{
    if (!s->is_terminal)
        return;
    (void)pthread_mutex_lock(&s->lock);
    clear(s);
    (void)fprintf(stderr, "%.*s", live_columns(), line);
    (void)fflush(stderr);
    s->has_live = true;
    (void)pthread_mutex_unlock(&s->lock);
}

void weft_i_cli_screen_line(weft_cli_screen *s, const char *line)
{
    (void)pthread_mutex_lock(&s->lock);
    clear(s);
    (void)fprintf(stderr, "%s\n", line);
    (void)pthread_mutex_unlock(&s->lock);
}

void weft_i_cli_note(void *user, const char *line)
{
    weft_i_cli_screen_line(user, line);
}

static void log_line(void *user, weft_log_level level, const char *line)
{
    weft_cli_screen *s = user;
    (void)pthread_mutex_lock(&s->lock);
    clear(s);
    (void)fprintf(stderr, "weft: %s%s\n", level == WEFT_LOG_WARN ? "warning: " : "", line);
    (void)pthread_mutex_unlock(&s->lock);
}

weft_ctx_options weft_i_cli_ctx_options(weft_cli_screen *s)
{
    return (weft_ctx_options){.log = log_line, .log_user = s, .log_level = WEFT_LOG_WARN};
}

const char *weft_i_cli_thousands(int64_t value, char *out, size_t size)
{
    char digits[24];
    const uint64_t magnitude = value < 0 ? 0 - (uint64_t)value : (uint64_t)value;
    const int n = snprintf(digits, sizeof(digits), "%llu", (unsigned long long)magnitude);
    size_t used = 0;
    if (value < 0 && size > 1)
        out[used++] = '-';
    for (int i = 0; i < n && used + 2 < size; i++) {
        if (i > 0 && (n - i) % 3 == 0)
            out[used++] = ',';
        out[used++] = digits[i];
    }
    out[used] = '\0';
    return out;
}

const char *weft_i_cli_bytes(double bytes, char *out, size_t size)
{
    static const char *const units[] = {"B", "KB", "MB", "GB", "TB", "PB"};
    size_t unit = 0;
    while (bytes >= 999.95 && unit + 1 < sizeof(units) / sizeof(units[0])) {
        bytes /= 1000;
        unit++;
    }
    (void)snprintf(out, size, unit == 0 ? "%.0f %s" : "%.1f %s", bytes, units[unit]);
    return out;
}

const char *weft_i_cli_duration(double seconds, char *out, size_t size)
{
    if (!(seconds >= 0) || seconds > 1e9) {
        (void)snprintf(out, size, "?");
        return out;
    }
    const long long s = (long long)(seconds + 0.5);
    if (s < 3600)
        (void)snprintf(out, size, "%lld:%02lld", s / 60, s % 60);
    else
        (void)snprintf(out, size, "%lld:%02lld:%02lld", s / 3600, s / 60 % 60, s % 60);
    return out;
}

/* Length of the well-formed UTF-8 sequence at `text`; 0 when there is none (Unicode 15, table 3-7). */
static size_t utf8_length(const unsigned char *text)
{
    const unsigned char a = text[0];
    if (a < 0x80)
        return 1;
    const size_t n = a >= 0xF0 ? 4 : a >= 0xE0 ? 3 : 2;
    if (a < 0xC2 || a > 0xF4)
        return 0;
    const unsigned char low = a == 0xE0 ? 0xA0 : a == 0xF0 ? 0x90 : 0x80;
    const unsigned char high = a == 0xED ? 0x9F : a == 0xF4 ? 0x8F : 0xBF;
    if (text[1] < low || text[1] > high)
        return 0;
    for (size_t i = 2; i < n; i++) {
        if (text[i] < 0x80 || text[i] > 0xBF)
            return 0;
    }
    return n;
}

void weft_i_cli_json_string(const char *text)
{
    (void)putchar('"');
    for (const unsigned char *c = (const unsigned char *)text; *c != '\0';) {
        const size_t n = utf8_length(c);
        if (n == 0)
            (void)fputs("\\ufffd", stdout);
        else if (*c == '"' || *c == '\\')
            (void)printf("\\%c", *c);
        else if (*c < 0x20)
            (void)printf("\\u%04x", (unsigned)*c);
        else
            (void)fwrite(c, 1, n, stdout);
        c += n == 0 ? 1 : n;
    }
    (void)putchar('"');
}

void weft_i_cli_json_number(double value)
{
    if (isfinite(value))
        (void)printf("%.17g", value);
    else
        (void)fputs("null", stdout);
}
