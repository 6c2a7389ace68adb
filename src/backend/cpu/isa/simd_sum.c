/**
 * Exact sums of squares of floats, many at once, for base/sum.h's accumulator.
 *
 * A square is exact in double. It is split by the splitting of Rump, Ogita, Oishi 2008 ("Accurate floating-point
 * summation I", algorithm 3.2): with s a power of two, q = (s + x) - s is x rounded to a multiple of the last digit of s,
 * and x - q is exact. When s is at least 2^14 times the largest of 2^13 numbers, sums of such q fit 53 bits whatever
 * their order, so they are exact. Three splittings, each 38 binary digits lower, leave nothing of numbers down to 2^-33 of
 * the block's largest; where something is left the block is refused and the caller adds it element by element.
 */
#include "backend/cpu/isa/kernels.h"

#include <math.h>

#include "backend/cpu/isa/simd.h"

enum { NOT_FINITE = 255, ROOM_BITS = 14, DIGITS = 52 - ROOM_BITS };

static int largest_exponent(const float *x, int64_t n)
{
    uint32_t largest = 0;
    WEFT_SIMD_PRAGMA(omp simd reduction(max : largest))
    for (int64_t i = 0; i < n; i++) {
        const uint32_t magnitude = bits_of_float(x[i]) & 0x7fffffffu;
        largest = magnitude > largest ? magnitude : largest;
    }
    return (int)(largest >> 23);
}

void WEFT_ISA_NAME(sum_squares)(weft_square_sum *out, const float *x, int64_t n)
{
    const int field = largest_exponent(x, n);
    out->is_exact = false;
    if (field == NOT_FINITE)
        return;
    /* Squares are below 4 * 2^(2 (field - 127)). */
    const double split0 = ldexp(1.0, 2 * (WEFT_MAX(field, 1) - 126) + ROOM_BITS);
    const double split1 = ldexp(split0, -DIGITS), split2 = ldexp(split0, -2 * DIGITS);
    double sum0 = 0.0, sum1 = 0.0, sum2 = 0.0, rest = 0.0;
    WEFT_SIMD_PRAGMA(omp simd reduction(+ : sum0, sum1, sum2, rest))
    for (int64_t i = 0; i < n; i++) {
        const double v = (double)x[i];
        const double square = v * v;
        const double q0 = (split0 + square) - split0;
        const double r0 = square - q0;
        const double q1 = (split1 + r0) - split1;
        const double r1 = r0 - q1;
        const double q2 = (split2 + r1) - split2;
        const double r2 = r1 - q2;
        sum0 += q0;
        sum1 += q1;
        sum2 += q2;
        rest +=
            r2 * r2; /* not exact: only whether it is 0 counts, and r2 is 0 or at least 2^-298 */
    }
    out->part[0] = sum0;
    out->part[1] = sum1;
    out->part[2] = sum2;
    out->is_exact = rest == 0.0;
}
