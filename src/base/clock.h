/* Time. */
#ifndef WEFT_BASE_CLOCK_H
#define WEFT_BASE_CLOCK_H

#include <stdint.h>

/** Seconds on a monotonic clock; only differences mean something. */
double weft_i_clock_seconds(void);

/** Sleeps until that clock shows `seconds`, whatever signals come. */
void weft_i_clock_sleep_until(double seconds);

#endif
