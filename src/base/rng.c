/*
 * Counter-based random numbers: Philox 4x32-10.
 *
 * Source: J. Salmon, M. Moraes, R. Dror, D. Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011, section
 * 3.3 (the bijection and its constants). Normal values: G. Box, M. Muller, "A note on the generation of random
 * normal deviates", 1958.
 *
 * The logarithm and the sines are computed here from additions, multiplications and divisions alone: the C
 * library's differ in the last bit between machines, and initial weights must be the same bits on all of them.
 */
#include "base/rng.h"

#include <math.h>
#include <string.h>

#define N_ROUNDS 10

/* ---- keys and the bijection ---- */

/* The finaliser of SplitMix64: every bit of the input changes about half of the output's. */
static uint64_t mix64(uint64_t x)
{
    x = (x ^ (x >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94D049BB133111EB);
    return x ^ (x >> 31);
}

weft_rng_key weft_i_rng_key(uint64_t seed, const char *name)
{
    uint64_t hash = UINT64_C(0xCBF29CE484222325); /* FNV-1a, 64 bits */
    for (const char *c = name; *c != '\0'; c++)
        hash = (hash ^ (unsigned char)*c) * UINT64_C(0x100000001B3);
    const uint64_t key = mix64(mix64(seed + UINT64_C(0x9E3779B97F4A7C15)) ^ hash);
    return (weft_rng_key){{(uint32_t)key, (uint32_t)(key >> 32)}};
}

weft_rng_block weft_i_rng_philox(weft_rng_key key, weft_rng_block counter)
{
    weft_rng_block x = counter;
    uint32_t k0 = key.word[0];
    uint32_t k1 = key.word[1];
    for (int round = 0; round < N_ROUNDS; round++) {
        const uint64_t p0 = (uint64_t)UINT32_C(0xD2511F53) * x.word[0];
        const uint64_t p1 = (uint64_t)UINT32_C(0xCD9E8D57) * x.word[2];
        x = (weft_rng_block){{
            (uint32_t)(p1 >> 32) ^ x.word[1] ^ k0,
            (uint32_t)p1,
            (uint32_t)(p0 >> 32) ^ x.word[3] ^ k1,
            (uint32_t)p0,
        }};
        k0 += UINT32_C(0x9E3779B9);
        k1 += UINT32_C(0xBB67AE85);
    }
    return x;
}

/* The two 64-bit words of counter `pair`. */
static void draw_pair(weft_rng_key key, uint64_t pair, uint64_t out[2])
{
    const weft_rng_block b =
        weft_i_rng_philox(key, (weft_rng_block){{(uint32_t)pair, (uint32_t)(pair >> 32), 0, 0}});
    out[0] = ((uint64_t)b.word[1] << 32) | b.word[0];
    out[1] = ((uint64_t)b.word[3] << 32) | b.word[2];
}

static uint64_t draw(weft_rng_key key, uint64_t index)
{
    uint64_t pair[2];
    draw_pair(key, index / 2, pair);
    return pair[index % 2];
}

/* ---- functions that give the same bits everywhere ---- */

/* Natural logarithm of a normal x > 0: x = 2^e m with m in [sqrt(1/2), sqrt(2)), ln m = 2 artanh((m-1)/(m+1)). */
static double portable_log(double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof(bits));
    int e = (int)(bits >> 52) - 1023;
    bits = (bits & UINT64_C(0xFFFFFFFFFFFFF)) | (UINT64_C(1023) << 52);
    double m;
    memcpy(&m, &bits, sizeof(m));
    if (m > 1.4142135623730951) {
        m *= 0.5;
        e++;
    }
    const double s = (m - 1.0) / (m + 1.0);
    const double s2 = s * s; /* at most 0.0295: ten terms reach 1e-17 */
    double series = 1.0 / 21.0;
    for (int k = 19; k >= 3; k -= 2)
        series = series * s2 + 1.0 / (double)k;
    const double ln2_high =
        6.93147180369123816490e-01; /* low 32 bits zero: e * ln2_high is exact */
    const double ln2_low = 1.90821492927058770002e-10;
    return (double)e * ln2_high + (2.0 * s + (2.0 * s * s2 * series + (double)e * ln2_low));
}

/* sin and cos of 2 pi u for u in [0, 1): the nearest eighth turn apart, then Taylor on [-pi/4, pi/4]. */
static void portable_sincos_turn(double u, double *sine, double *cosine)
{
    const int quarter = (int)(u * 4.0 + 0.5); /* 0..4 */
    const double x = (u - 0.25 * (double)quarter) * 6.283185307179586;
    const double x2 = x * x;
    const double s =
        x * (1.0 + x2 * (-1.0 / 6.0 +
                         x2 * (1.0 / 120.0 +
                               x2 * (-1.0 / 5040.0 +
                                     x2 * (1.0 / 362880.0 + x2 * (-1.0 / 39916800.0 +
                                                                  x2 * (1.0 / 6227020800.0 -
                                                                        x2 / 1307674368000.0)))))));
    const double c =
        1.0 + x2 * (-0.5 + x2 * (1.0 / 24.0 +
                                 x2 * (-1.0 / 720.0 +
                                       x2 * (1.0 / 40320.0 + x2 * (-1.0 / 3628800.0 +
                                                                   x2 * (1.0 / 479001600.0 -
                                                                         x2 / 87178291200.0))))));
    const double sines[4] = {s, c, -s, -c};
    const double cosines[4] = {c, -s, -c, s};
    *sine = sines[quarter & 3];
    *cosine = cosines[quarter & 3];
}

/* ---- distributions ---- */

#define UNIT_53 (1.0 / 9007199254740992.0) /* 2^-53 */

/* Both normals of a pair. */
static void normal_pair(weft_rng_key key, uint64_t pair, double out[2])
{
    uint64_t bits[2];
    draw_pair(key, pair, bits);
    const double u1 =
        ((double)(bits[0] >> 11) + 1.0) * UNIT_53; /* (0, 1]: its logarithm is finite */
    const double u2 = (double)(bits[1] >> 11) * UNIT_53;
    const double radius = sqrt(-2.0 * portable_log(u1));
    double sine, cosine;
    portable_sincos_turn(u2, &sine, &cosine);
    out[0] = radius * cosine;
    out[1] = radius * sine;
}

double weft_i_rng_normal(weft_rng_key key, uint64_t index)
{
    double pair[2];
    normal_pair(key, index / 2, pair);
    return pair[index % 2];
}

void weft_i_rng_normals(weft_rng_key key, uint64_t first, int64_t n, double *out)
{
    int64_t i = 0;
    if (n > 0 && first % 2 == 1)
        out[i++] = weft_i_rng_normal(key, first);
    for (; i + 2 <= n; i += 2)
        normal_pair(key, (first + (uint64_t)i) / 2, out + i);
    if (i < n)
        out[i] = weft_i_rng_normal(key, first + (uint64_t)i);
}

double weft_i_rng_uniform(weft_rng_key key, uint64_t index)
{
    return (double)(draw(key, index) >> 11) * UNIT_53;
}

/* High 64 bits of a * b. */
static uint64_t multiply_high(uint64_t a, uint64_t b)
{
    const uint64_t a_low = a & UINT32_MAX, a_high = a >> 32;
    const uint64_t b_low = b & UINT32_MAX, b_high = b >> 32;
    const uint64_t low = a_low * b_low;
    const uint64_t middle = a_high * b_low + (low >> 32);
    const uint64_t middle2 = a_low * b_high + (middle & UINT32_MAX);
    return a_high * b_high + (middle >> 32) + (middle2 >> 32);
}

uint64_t weft_i_rng_below(weft_rng_key key, uint64_t index, uint64_t n)
{
    return multiply_high(draw(key, index), n);
}
