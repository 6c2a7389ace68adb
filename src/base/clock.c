/* Time: the monotonic clock, which a change of the wall clock does not move. */
#include "base/clock.h"

#include <time.h>

double weft_i_clock_seconds(void)
{
    struct timespec now = {0};
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}
