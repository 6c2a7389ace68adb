/**
 * What the kernels share: loads and stores of both storage types, and the vector mathematics. All static: compiled
 * anew for every instruction set.
 *
 * Loops marked WEFT_SIMD may be vectorised, sums of WEFT_SIMD_SUM may be reassociated (their order is then that of the
 * vector's lanes, fixed for an instruction set). Errors, measured against double over their whole range: exp_f32 1.1 ulp,
 * sigmoid_f32 2.3, erfc_f32 8.3 (without fused multiply-add up to 66 in its tail, t near 9, the square losing its last bits).
 */
#ifndef WEFT_BACKEND_CPU_ISA_SIMD_H
#define WEFT_BACKEND_CPU_ISA_SIMD_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "base/compiler.h"
#include "weft/ext/view.h"

#define WEFT_SIMD _Pragma("omp simd")
#define WEFT_SIMD_SUM(s) WEFT_SIMD_PRAGMA(omp simd reduction(+ : s))
#define WEFT_SIMD_PRAGMA(x) _Pragma(#x)

static WEFT_ALWAYS_INLINE float float_of_bits(uint32_t bits)
{
    float f;
    memcpy(&f, &bits, sizeof(f));
    return f;
}

static WEFT_ALWAYS_INLINE uint32_t bits_of_float(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, sizeof(bits));
    return bits;
}

static WEFT_ALWAYS_INLINE uint16_t bf16_of_float(float f)
{
    const uint32_t bits = bits_of_float(f);
    const uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
    const uint32_t quiet = (bits >> 16) | 0x40u;
    return (uint16_t)((bits & 0x7fffffffu) > 0x7f800000u ? quiet : rounded);
}

/** Element i of an F32 or BF16 array. `is_bf16` is a constant where it matters, so the test costs nothing. */
static WEFT_ALWAYS_INLINE float load(const void *x, int64_t i, bool is_bf16)
{
    return is_bf16 ? float_of_bits((uint32_t)((const uint16_t *)x)[i] << 16)
                   : ((const float *)x)[i];
}

static WEFT_ALWAYS_INLINE void store(void *x, int64_t i, float value, bool is_bf16)
{
    if (is_bf16)
        ((uint16_t *)x)[i] = bf16_of_float(value);
    else
        ((float *)x)[i] = value;
}

static WEFT_ALWAYS_INLINE void *at(weft_view v, int64_t row, int64_t col)
{
    return (char *)v.data + (size_t)(row * v.ld + col) * (v.dtype == WEFT_DTYPE_BF16 ? 2u : 4u);
}

static WEFT_ALWAYS_INLINE float f32_at(weft_view v, int64_t row)
{
    return ((const float *)v.data)[row * v.ld];
}

static WEFT_ALWAYS_INLINE int32_t i32_at(weft_view v, int64_t row)
{
    return ((const int32_t *)v.data)[row * v.ld];
}

/**
 * exp of x from -87.33654 to 88.72283: 2^n * e^r, r in [-ln2/2, ln2/2], minimax polynomial of (e^r - 1 - r) / r^2 (relative
 * error 1e-9, fitted here).
 */
static WEFT_ALWAYS_INLINE float exp_within_f32(float x)
{
    const float shifted =
        weft_fma(x, 1.44269504f, 12582912.0f); /* rounds to whole in the low bits */
    const float n = shifted - 12582912.0f;
    float r = weft_fma(n, -0x1.62e4p-1f, x);
    r = weft_fma(n, -1.42860682e-6f, r);
    float p = weft_fma(0x1.6d7538p-10f, r, 0x1.120b68p-7f);
    p = weft_fma(p, r, 0x1.5554b8p-5f);
    p = weft_fma(p, r, 0x1.5554dcp-3f);
    p = weft_fma(p, r, 0.5f);
    p = weft_fma(p * r, r, r) + 1.0f;
    return float_of_bits((bits_of_float(shifted) << 23) + bits_of_float(p));
}

/** exp. Below the smallest normal number it gives 0. NaN stays NaN. */
static WEFT_ALWAYS_INLINE float exp_f32(float x)
{
    const float low = -87.33654f;
    const float high = 88.72283f;
    const float c = x < low ? low : x;
    const float y = exp_within_f32(c > high ? high : c);
    const float z = x < low ? 0.0f : y;
    return x > high ? float_of_bits(0x7f800000u) : z;
}

/** exp of a number that is not positive (or -inf): the same without the upper end. */
static WEFT_ALWAYS_INLINE float exp_down_f32(float x)
{
    const float low = -87.33654f;
    const float y = exp_within_f32(x < low ? low : x);
    return x < low ? 0.0f : y;
}

static WEFT_ALWAYS_INLINE float sigmoid_f32(float x)
{
    return 1.0f / (1.0f + exp_f32(-x));
}

/**
 * erfc(t) for t >= 0: exp(-t^2) erfcx(t), erfcx as a polynomial in y = 1 / (1 + 0.3 t) (relative error 2e-8 for t <= 10,
 * where erfc is below the smallest float anyway; fitted here). *gauss is exp(-t^2).
 */
static WEFT_ALWAYS_INLINE float erfc_f32(float t, float *gauss)
{
    const float y = 1.0f / weft_fma(0.3f, t, 1.0f);
    const float square = t * t;
    const float rest =
        weft_fma(t, t, -square); /* what rounding the square lost, where the target has fma */
    const float e = exp_f32(-square);
    float p = weft_fma(-0.129522324f, y, 0.485560566f);
    p = weft_fma(p, y, -0.512273014f);
    p = weft_fma(p, y, 0.54771471f);
    p = weft_fma(p, y, -0.0946473777f);
    p = weft_fma(p, y, 0.214924783f);
    p = weft_fma(p, y, 0.148339465f);
    p = weft_fma(p, y, 0.170715198f);
    p = weft_fma(p, y, 0.169188008f);
    *gauss = weft_fma(-e, rest, e);
    return *gauss * (p * y);
}

#endif
