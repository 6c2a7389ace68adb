/*
 * Reference operations on memory: fill, copy, add, scale, random start values, gathered rows, exact sums, the first
 * element that is not finite.
 *
 * The sums go element by element into base/sum.h: a float is exact in double, and so is its square.
 */
#include <math.h>
#include <string.h>

#include "backend/reference/ref_ops.h"
#include "base/rng.h"
#include "base/sum.h"

weft_status weft_i_ref_fill(weft_backend *b, const void *args, void *workspace)
{
    const weft_fill_args *a = args;
    (void)b;
    (void)workspace;
    for (int64_t r = 0; r < a->x.rows; r++) {
        for (int64_t c = 0; c < a->x.cols; c++) {
            if (a->x.dtype == WEFT_DTYPE_I32)
                ((int32_t *)a->x.data)[r * a->x.ld + c] = (int32_t)a->value;
            else
                weft_i_ref_set(&a->x, r, c, (double)a->value);
        }
    }
    return WEFT_OK;
}

weft_status weft_i_ref_copy(weft_backend *b, const void *args, void *workspace)
{
    const weft_copy_args *a = args;
    const size_t size = weft_dtype_bytes(a->src.dtype);
    (void)b;
    (void)workspace;
    for (int64_t r = 0; r < a->dst.rows; r++) {
        for (int64_t c = 0; c < a->dst.cols; c++) {
            if (a->dst.dtype == a->src.dtype)
                memcpy((char *)a->dst.data + (size_t)(r * a->dst.ld + c) * size,
                       (const char *)a->src.data + (size_t)(r * a->src.ld + c) * size, size);
            else
                weft_i_ref_set(&a->dst, r, c, (double)weft_i_ref_get(&a->src, r, c));
        }
    }
    return WEFT_OK;
}

weft_status weft_i_ref_add(weft_backend *b, const void *args, void *workspace)
{
    const weft_add_args *a = args;
    (void)b;
    (void)workspace;
    for (int64_t r = 0; r < a->dst.rows; r++) {
        for (int64_t c = 0; c < a->dst.cols; c++) {
            const float sum = weft_i_ref_get(&a->a, r, c) + weft_i_ref_get(&a->b, r, c);
            weft_i_ref_set(&a->dst, r, c, (double)sum);
        }
    }
    return WEFT_OK;
}

weft_status weft_i_ref_scale(weft_backend *b, const void *args, void *workspace)
{
    const weft_scale_args *a = args;
    (void)b;
    (void)workspace;
    for (int64_t r = 0; r < a->x.rows; r++) {
        for (int64_t c = 0; c < a->x.cols; c++) {
            const float product = weft_i_ref_get(&a->x, r, c) * a->factor;
            weft_i_ref_set(&a->x, r, c, (double)product);
        }
    }
    return WEFT_OK;
}

weft_status weft_i_ref_init_normal(weft_backend *b, const void *args, void *workspace)
{
    const weft_init_normal_args *a = args;
    const weft_rng_key key = {{a->key[0], a->key[1]}};
    (void)b;
    (void)workspace;
    for (int64_t r = 0; r < a->x.rows; r++) {
        for (int64_t c = 0; c < a->x.cols; c++) {
            const uint64_t index = a->first + (uint64_t)r * a->row_step + (uint64_t)c;
            weft_i_ref_set(&a->x, r, c, a->std * weft_i_rng_normal(key, index));
        }
    }
    return WEFT_OK;
}

weft_status weft_i_ref_gather_rows(weft_backend *b, const void *args, void *workspace)
{
    const weft_gather_rows_args *a = args;
    (void)b;
    (void)workspace;
    for (int64_t r = 0; r < a->dst.rows; r++) {
        for (int64_t c = 0; c < a->dst.cols; c++)
            weft_i_ref_set(&a->dst, r, c, (double)weft_i_ref_get(&a->src, a->row[r], c));
    }
    return WEFT_OK;
}

weft_status weft_i_ref_sum(weft_backend *b, const void *args, void *workspace)
{
    const weft_sum_args *a = args;
    (void)b;
    (void)workspace;
    for (int64_t r = 0; r < a->x.rows; r++) {
        for (int64_t c = 0; c < a->x.cols; c++)
            weft_i_sum_add(a->sum, (double)weft_i_ref_get(&a->x, r, c));
    }
    return WEFT_OK;
}

weft_status weft_i_ref_sum_squares(weft_backend *b, const void *args, void *workspace)
{
    const weft_sum_args *a = args;
    (void)b;
    (void)workspace;
    for (int64_t r = 0; r < a->x.rows; r++) {
        for (int64_t c = 0; c < a->x.cols; c++) {
            const double x = (double)weft_i_ref_get(&a->x, r, c);
            weft_i_sum_add(a->sum, x * x);
        }
    }
    return WEFT_OK;
}

weft_status weft_i_ref_find_nonfinite(weft_backend *b, const void *args, void *workspace)
{
    const weft_find_nonfinite_args *a = args;
    (void)b;
    (void)workspace;
    *a->index = -1;
    for (int64_t r = 0; r < a->x.rows; r++) {
        for (int64_t c = 0; c < a->x.cols; c++) {
            if (!isfinite(weft_i_ref_get(&a->x, r, c))) {
                *a->index = r * a->x.cols + c;
                return WEFT_OK;
            }
        }
    }
    return WEFT_OK;
}
