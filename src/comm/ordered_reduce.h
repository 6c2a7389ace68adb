/* Reductions in rank order: the one rule of self, thread and mpi, so that their bits agree. */
#ifndef WEFT_COMM_ORDERED_REDUCE_H
#define WEFT_COMM_ORDERED_REDUCE_H

#include "weft/ext/comm.h"

#define WEFT_REDUCE_TILE_ELEMS 512
#define WEFT_REDUCE_TILE_BYTES (8 * WEFT_REDUCE_TILE_ELEMS)

/** A tile of results, aligned for every type. */
typedef union weft_reduce_tile {
    int64_t i64[WEFT_REDUCE_TILE_ELEMS];
    int32_t i32[WEFT_REDUCE_TILE_ELEMS];
    float f32[WEFT_REDUCE_TILE_ELEMS];
    uint16_t bf16[WEFT_REDUCE_TILE_ELEMS];
} weft_reduce_tile;

/**
 * out[i] = ((send[0][first + i] + send[1][first + i]) + send[2][first + i]) + ..., or the largest of them.
 *
 * BF16 is added in fp32 and rounded once at the end. Integers wrap. MAX keeps a NaN that any rank brought.
 *
 * @param[out] out   [n] of dtype
 * @param[in] send   [size] buffers, in rank order
 * @param n          1 .. WEFT_REDUCE_TILE_ELEMS
 */
void weft_i_reduce_tile(weft_reduce_tile *out,
                        const void *const *send,
                        int size,
                        int64_t first,
                        int n,
                        weft_dtype dtype,
                        weft_reduction reduction);

/**
 * acc[i] = ((acc[i] + send[0][first + i]) + send[1][first + i]) + ...: a sum that starts from what is there.
 *
 * @param acc        [n] apart from every send
 * @param[in] send   [size] buffers of F32, in rank order
 */
void weft_i_reduce_onto(float *acc, const void *const *send, int size, int64_t first, int n);

#endif
