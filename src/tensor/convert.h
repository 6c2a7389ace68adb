/* Conversions of numbers between storage types, one element and whole arrays. Round to nearest, ties to even. */
#ifndef WEFT_TENSOR_CONVERT_H
#define WEFT_TENSOR_CONVERT_H

#include <stdint.h>
#include <string.h>

#include "base/error.h"
#include "weft/dtype.h"

static inline float weft_i_bf16_to_f32(uint16_t x)
{
    const uint32_t bits = (uint32_t)x << 16;
    float f;
    memcpy(&f, &bits, sizeof(f));
    return f;
}

/** NaN stays a quiet NaN; everything else rounds to nearest even, overflowing to infinity. */
static inline uint16_t weft_i_f32_to_bf16(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, sizeof(bits));
    if ((bits & 0x7fffffffu) > 0x7f800000u)
        return (uint16_t)((bits >> 16) | 0x40u);
    return (uint16_t)((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

float weft_i_f16_to_f32(uint16_t x);
uint16_t weft_i_f32_to_f16(float f);

/**
 * dst[i] = src[i] for n elements, any of F32, BF16, F16, F64 to any of F32, BF16, F16. The arrays may be unaligned (a
 * mapped file) and must not overlap.
 *
 * @return WEFT_OK | UNSUPPORTED the pair of types
 */
weft_status
weft_i_convert(void *dst, weft_dtype dst_type, const void *src, weft_dtype src_type, int64_t n);

#endif
