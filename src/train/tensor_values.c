/*
 * Elements of a tensor in a file as doubles. Files may place tensors at any byte, so nothing is read through a pointer
 * of the element's type.
 */
#include "train/tensor_values.h"

#include "tensor/convert.h"

#include <string.h>

bool weft_i_tensor_is_readable(weft_dtype dtype)
{
    return weft_dtype_bytes(dtype) != 0;
}

static double value_at(weft_dtype dtype, const void *at)
{
    union {
        float f32;
        double f64;
        uint64_t u64;
        int64_t i64;
        uint32_t u32;
        int32_t i32;
        uint16_t u16;
        int16_t i16;
        uint8_t u8;
        int8_t i8;
    } v = {.u64 = 0};
    memcpy(&v, at, weft_dtype_bytes(dtype));
    switch (dtype) {
    case WEFT_DTYPE_F32:
        return (double)v.f32;
    case WEFT_DTYPE_BF16:
        return (double)weft_i_bf16_to_f32(v.u16);
    case WEFT_DTYPE_F16:
        return (double)weft_i_f16_to_f32(v.u16);
    case WEFT_DTYPE_F64:
        return v.f64;
    case WEFT_DTYPE_I64:
        return (double)v.i64;
    case WEFT_DTYPE_I32:
        return (double)v.i32;
    case WEFT_DTYPE_I16:
        return (double)v.i16;
    case WEFT_DTYPE_I8:
        return (double)v.i8;
    case WEFT_DTYPE_U64:
        return (double)v.u64;
    case WEFT_DTYPE_U32:
        return (double)v.u32;
    case WEFT_DTYPE_U16:
        return (double)v.u16;
    case WEFT_DTYPE_U8:
    case WEFT_DTYPE_BOOL:
        return (double)v.u8;
    case WEFT_DTYPE_OTHER:
    case WEFT_DTYPE_COUNT:
        break;
    }
    return 0;
}

void weft_i_tensor_values(double *out, const weft_st_tensor *t, int64_t first, int64_t n)
{
    WEFT_ASSERT(first >= 0 && n >= 0 && first <= t->n_elems - n);
    const size_t size = weft_dtype_bytes(t->dtype);
    const char *at = (const char *)t->data + (size_t)first * size;
    if (t->dtype == WEFT_DTYPE_F32) { /* the common case, without a switch inside the loop */
        for (int64_t i = 0; i < n; i++) {
            float x;
            memcpy(&x, at + (size_t)i * size, sizeof(x));
            out[i] = (double)x;
        }
        return;
    }
    for (int64_t i = 0; i < n; i++)
        out[i] = value_at(t->dtype, at + (size_t)i * size);
}
