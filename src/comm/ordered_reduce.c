/*
 * Reductions in rank order (weft/ext/comm.h, rule 4).
 *
 * One tile at a time: the accumulator stays in the cache while the ranks' buffers stream by. Each element is added by
 * one thread in rank order, so the cut into tiles and who works on them change no bit.
 * Communication: none.
 */
#include "comm/ordered_reduce.h"

#include "tensor/convert.h"

static void reduce_f32(float *acc, const float *x, int n, weft_reduction reduction)
{
    if (reduction == WEFT_REDUCTION_SUM) {
#pragma omp simd
        for (int i = 0; i < n; i++)
            acc[i] += x[i];
        return;
    }
    for (int i = 0; i < n; i++)
        acc[i] = x[i] > acc[i] || x[i] != x[i] ? x[i] : acc[i];
}

static void tile_f32(
    float *acc, const void *const *send, int size, int64_t first, int n, weft_reduction reduction)
{
    const float *const x0 = (const float *)send[0] + first;
    for (int i = 0; i < n; i++)
        acc[i] = x0[i];
    for (int r = 1; r < size; r++)
        reduce_f32(acc, (const float *)send[r] + first, n, reduction);
}

static void tile_bf16(uint16_t *out,
                      const void *const *send,
                      int size,
                      int64_t first,
                      int n,
                      weft_reduction reduction)
{
    float acc[WEFT_REDUCE_TILE_ELEMS], x[WEFT_REDUCE_TILE_ELEMS];
    for (int r = 0; r < size; r++) {
        const uint16_t *const from = (const uint16_t *)send[r] + first;
        float *const to = r == 0 ? acc : x;
        for (int i = 0; i < n; i++)
            to[i] = weft_i_bf16_to_f32(from[i]);
        if (r > 0)
            reduce_f32(acc, x, n, reduction);
    }
    for (int i = 0; i < n; i++)
        out[i] = weft_i_f32_to_bf16(acc[i]);
}

static void tile_i32(
    int32_t *acc, const void *const *send, int size, int64_t first, int n, weft_reduction reduction)
{
    for (int r = 0; r < size; r++) {
        const int32_t *const x = (const int32_t *)send[r] + first;
        for (int i = 0; i < n; i++) {
            if (r == 0)
                acc[i] = x[i];
            else if (reduction == WEFT_REDUCTION_SUM)
                acc[i] = (int32_t)((uint32_t)acc[i] + (uint32_t)x[i]);
            else if (x[i] > acc[i])
                acc[i] = x[i];
        }
    }
}

static void tile_i64(
    int64_t *acc, const void *const *send, int size, int64_t first, int n, weft_reduction reduction)
{
    for (int r = 0; r < size; r++) {
        const int64_t *const x = (const int64_t *)send[r] + first;
        for (int i = 0; i < n; i++) {
            if (r == 0)
                acc[i] = x[i];
            else if (reduction == WEFT_REDUCTION_SUM)
                acc[i] = (int64_t)((uint64_t)acc[i] + (uint64_t)x[i]);
            else if (x[i] > acc[i])
                acc[i] = x[i];
        }
    }
}

void weft_i_reduce_tile(weft_reduce_tile *out,
                        const void *const *send,
                        int size,
                        int64_t first,
                        int n,
                        weft_dtype dtype,
                        weft_reduction reduction)
{
    if (dtype == WEFT_DTYPE_F32)
        tile_f32(out->f32, send, size, first, n, reduction);
    else if (dtype == WEFT_DTYPE_BF16)
        tile_bf16(out->bf16, send, size, first, n, reduction);
    else if (dtype == WEFT_DTYPE_I32)
        tile_i32(out->i32, send, size, first, n, reduction);
    else if (dtype == WEFT_DTYPE_I64)
        tile_i64(out->i64, send, size, first, n, reduction);
}

void weft_i_reduce_onto(float *acc, const void *const *send, int size, int64_t first, int n)
{
    for (int r = 0; r < size; r++)
        reduce_f32(acc, (const float *)send[r] + first, n, WEFT_REDUCTION_SUM);
}
