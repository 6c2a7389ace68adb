/* Time: the monotonic clock, which a change of the wall clock does not move. */
#include "base/clock.h"

#include "base/compiler.h"

#include <time.h>

#define LATEST_SECONDS 1e12 /* what is later is never */

double weft_i_clock_seconds(void)
{
    struct timespec now = {0};
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

void weft_i_clock_sleep_until(double seconds)
{
    const double when = WEFT_MIN(seconds, LATEST_SECONDS);
    struct timespec at = {.tv_sec = (time_t)when};
    at.tv_nsec = (long)((when - (double)at.tv_sec) * 1e9);
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL) != 0)
        continue; /* a signal came */
}
