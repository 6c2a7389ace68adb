/**
 * Exact sums of doubles, independent of order: a superaccumulator of 32-bit digits in 64-bit bins covering the whole
 * range of double (Kulisch). Adding the same numbers in any order or grouping gives the same bins after
 * normalisation, so sums that steer a step (loss, tokens, squared norm) are the same bits in every layout.
 */
#ifndef WEFT_BASE_SUM_H
#define WEFT_BASE_SUM_H

#include <stdbool.h>
#include <stdint.h>

#define WEFT_SUM_BINS 68 /* 68 * 32 bits from 2^-1074 up */

typedef struct weft_sum {
    int64_t bin[WEFT_SUM_BINS];
    int64_t n_pending;   /* additions since the last carry */
    int64_t n_nonfinite; /* infinities and NaNs seen; the value is NaN when not 0 */
} weft_sum;

void weft_i_sum_init(weft_sum *s);
void weft_i_sum_add(weft_sum *s, double x);

/** Adds x[i]^2 of n floats: each square is exact in double. The fast path bins by exponent (docs in sum.c). */
void weft_i_sum_add_squares(weft_sum *s, const float *x, int64_t n);

/** Adds n floats. */
void weft_i_sum_add_floats(weft_sum *s, const float *x, int64_t n);

void weft_i_sum_merge(weft_sum *s, const weft_sum *other);

/** Carries all bins so that equal sums are equal bytes (needed before bins are compared or reduced). */
void weft_i_sum_normalise(weft_sum *s);

/** The sum rounded once to double (round to nearest). NaN when a non-finite number was added. */
double weft_i_sum_value(const weft_sum *s);

#endif
