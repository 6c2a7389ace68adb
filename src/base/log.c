/*
 * Messages to the caller's sink. One call is one line: control bytes become spaces, and a text longer than the
 * buffer is cut with "..." (a log line is for reading; nothing parses it).
 */
#include "base/log.h"

#include "base/ctx.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define LINE_BYTES 2048

void weft_log(const weft_ctx *ctx, weft_log_level level, const char *area, const char *fmt, ...)
{
    if (ctx == NULL || ctx->log == NULL || level < ctx->log_level || level >= WEFT_LOG_SILENT)
        return;
    char line[LINE_BYTES];
    const int n_area = snprintf(line, sizeof(line), "%s: ", area);
    const size_t used = n_area < 0 ? 0 : WEFT_MIN((size_t)n_area, sizeof(line) - 1);
    va_list args;
    va_start(args, fmt);
    const int n_text = vsnprintf(line + used, sizeof(line) - used, fmt, args);
    va_end(args);
    if (n_text < 0)
        return;
    if ((size_t)n_text >= sizeof(line) - used)
        memcpy(line + sizeof(line) - 4, "...", 4);
    for (char *c = line; *c != '\0'; c++) {
        if ((unsigned char)*c < 0x20)
            *c = ' ';
    }
    ctx->log(ctx->log_user, level, line);
}
