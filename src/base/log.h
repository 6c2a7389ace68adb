/* Messages to the caller's sink; the library itself never prints. */
#ifndef WEFT_BASE_LOG_H
#define WEFT_BASE_LOG_H

#include "base/compiler.h"
#include "weft/context.h"

/** One line to the context's sink when `level` is at or above its threshold. `area` is the folder's name. */
void weft_log(const weft_ctx *ctx, weft_log_level level, const char *area, const char *fmt, ...)
    WEFT_PRINTF(4, 5);

#endif
