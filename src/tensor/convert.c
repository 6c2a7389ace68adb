/*
 * Conversions between storage types (tensor/convert.h): one rounding to nearest, ties to even, from any source.
 *
 * Source: IEEE 754-2019 sections 3.4 and 4.3.1 for the formats and the rounding; Boldo and Melquiond, "Emulation of
 * FMA and correctly rounded sums: proved algorithms using rounding to odd", IEEE Trans. Computers 57(4), 2008, for
 * narrowing in two steps without rounding twice.
 *
 * Invariants: 1. the result does not depend on alignment: elements are moved with memcpy, never read through a cast
 * pointer. 2. NaN stays NaN; its payload is not kept, except where the type does not change and bytes are copied.
 */
#include "tensor/convert.h"

#include <math.h>
#include <stdbool.h>

static float float_of_bits(uint32_t bits)
{
    float f;
    memcpy(&f, &bits, sizeof(f));
    return f;
}

static uint32_t bits_of_float(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, sizeof(bits));
    return bits;
}

/* The exponent is shifted into place as an integer and corrected by a multiplication, which also normalises
 * subnormal numbers exactly: 2^112 = 2^(127 - 15) moves the bias. */
float weft_i_f16_to_f32(uint16_t x)
{
    const uint32_t sign = ((uint32_t)x & 0x8000u) << 16;
    const uint32_t rest = ((uint32_t)x & 0x7fffu) << 13;
    if (((uint32_t)x & 0x7c00u) == 0x7c00u) {
        const uint32_t quiet = ((uint32_t)x & 0x03ffu) != 0 ? 0x00400000u : 0;
        return float_of_bits(sign | 0x7f800000u | (rest & 0x007fffffu) | quiet);
    }
    return float_of_bits(sign | bits_of_float(float_of_bits(rest) * 0x1p112f));
}

uint16_t weft_i_f32_to_f16(float f)
{
    const uint32_t bits = bits_of_float(f);
    const uint32_t sign = (bits >> 16) & 0x8000u;
    const uint32_t rest = bits & 0x7fffffffu;
    if (rest > 0x7f800000u)
        return (uint16_t)(sign | 0x7e00u);
    if (rest >= 0x477ff000u) /* 65520 and more round to infinity */
        return (uint16_t)(sign | 0x7c00u);
    if (rest <
        0x38800000u) { /* below 2^-14: subnormal; adding 0.5 leaves the rounding to the sum itself */
        const float shifted = float_of_bits(rest) + 0.5f;
        return (uint16_t)(sign | (bits_of_float(shifted) - 0x3f000000u));
    }
    const uint32_t rebiased = rest - 0x38000000u;
    return (uint16_t)(sign | ((rebiased + 0x0fffu + ((rebiased >> 13) & 1u)) >> 13));
}

/* To float with "round to odd": what is inexact keeps its last bit set, so that a second rounding to a narrower type
 * cannot fall on a false tie. */
static float f64_to_f32_odd(double d)
{
    const float f = (float)d;
    if (!(fabs(d) <= (double)INFINITY) || isinf(d) || (double)f == d)
        return f;
    uint32_t bits = bits_of_float(f);
    if (fabs((double)f) > fabs(d))
        bits -= 1;
    return float_of_bits(bits | 1u);
}

static float load_f32(const char *src, int64_t i)
{
    float f;
    memcpy(&f, src + 4 * i, sizeof(f));
    return f;
}

static uint16_t load_u16(const char *src, int64_t i)
{
    uint16_t x;
    memcpy(&x, src + 2 * i, sizeof(x));
    return x;
}

static double load_f64(const char *src, int64_t i)
{
    double d;
    memcpy(&d, src + 8 * i, sizeof(d));
    return d;
}

static void store_f32(char *dst, int64_t i, float f)
{
    memcpy(dst + 4 * i, &f, sizeof(f));
}

static void store_u16(char *dst, int64_t i, uint16_t x)
{
    memcpy(dst + 2 * i, &x, sizeof(x));
}

static void convert_to_f32(char *dst, const char *src, weft_dtype src_type, int64_t n)
{
    if (src_type == WEFT_DTYPE_BF16) {
        for (int64_t i = 0; i < n; i++)
            store_f32(dst, i, weft_i_bf16_to_f32(load_u16(src, i)));
    } else if (src_type == WEFT_DTYPE_F16) {
        for (int64_t i = 0; i < n; i++)
            store_f32(dst, i, weft_i_f16_to_f32(load_u16(src, i)));
    } else {
        for (int64_t i = 0; i < n; i++)
            store_f32(dst, i, (float)load_f64(src, i));
    }
}

static void convert_to_bf16(char *dst, const char *src, weft_dtype src_type, int64_t n)
{
    if (src_type == WEFT_DTYPE_F32) {
        for (int64_t i = 0; i < n; i++)
            store_u16(dst, i, weft_i_f32_to_bf16(load_f32(src, i)));
    } else if (src_type == WEFT_DTYPE_F16) {
        for (int64_t i = 0; i < n; i++)
            store_u16(dst, i, weft_i_f32_to_bf16(weft_i_f16_to_f32(load_u16(src, i))));
    } else {
        for (int64_t i = 0; i < n; i++)
            store_u16(dst, i, weft_i_f32_to_bf16(f64_to_f32_odd(load_f64(src, i))));
    }
}

static void convert_to_f16(char *dst, const char *src, weft_dtype src_type, int64_t n)
{
    if (src_type == WEFT_DTYPE_F32) {
        for (int64_t i = 0; i < n; i++)
            store_u16(dst, i, weft_i_f32_to_f16(load_f32(src, i)));
    } else if (src_type == WEFT_DTYPE_BF16) {
        for (int64_t i = 0; i < n; i++)
            store_u16(dst, i, weft_i_f32_to_f16(weft_i_bf16_to_f32(load_u16(src, i))));
    } else {
        for (int64_t i = 0; i < n; i++)
            store_u16(dst, i, weft_i_f32_to_f16(f64_to_f32_odd(load_f64(src, i))));
    }
}

static bool is_float(weft_dtype dtype)
{
    return dtype == WEFT_DTYPE_F32 || dtype == WEFT_DTYPE_BF16 || dtype == WEFT_DTYPE_F16;
}

weft_status
weft_i_convert(void *dst, weft_dtype dst_type, const void *src, weft_dtype src_type, int64_t n)
{
    if (!is_float(dst_type) || !(is_float(src_type) || src_type == WEFT_DTYPE_F64))
        WEFT_FAIL(WEFT_STATUS_UNSUPPORTED, "cannot convert %s to %s", weft_dtype_name(src_type),
                  weft_dtype_name(dst_type));
    if (n <= 0)
        return WEFT_OK;
    if (dst_type == src_type)
        memcpy(dst, src, (size_t)n * weft_dtype_bytes(dst_type));
    else if (dst_type == WEFT_DTYPE_F32)
        convert_to_f32(dst, src, src_type, n);
    else if (dst_type == WEFT_DTYPE_BF16)
        convert_to_bf16(dst, src, src_type, n);
    else
        convert_to_f16(dst, src, src_type, n);
    return WEFT_OK;
}
