/* Waiting on a context without looking dead (contract: ctx.h). Communication: none. */
#include "base/ctx.h"

#include "base/clock.h"
#include "base/compiler.h"
#include "base/error.h"

#define LONGEST_NAP_SECONDS 0.05 /* between two signs of life */

weft_status weft_i_ctx_sleep_until(const weft_ctx *ctx, double when)
{
    for (double now = weft_i_clock_seconds(); now < when; now = weft_i_clock_seconds()) {
        weft_i_clock_sleep_until(WEFT_MIN(when, now + LONGEST_NAP_SECONDS));
        WEFT_TRY(weft_i_ctx_alive(ctx));
    }
    return WEFT_OK;
}
