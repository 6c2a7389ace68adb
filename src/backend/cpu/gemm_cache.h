/**
 * oneDNN's matrix products by shape: making one costs milliseconds, running it must not.
 *
 * The table has a fixed number of places; when all are taken the one used longest ago is given up.
 */
#ifndef WEFT_BACKEND_CPU_GEMM_CACHE_H
#define WEFT_BACKEND_CPU_GEMM_CACHE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/ctx.h"
#include "weft/dtype.h"

/** C [m, n] = op(A) [m, k] op(B) [k, n] + bias, or C += ... . Compared byte by byte: zero it before it is filled. */
typedef struct weft_gemm_key {
    int64_t m, n, k;
    int64_t lda, ldb, ldc; /* of the matrices as they are stored */
    weft_dtype ab_type;
    weft_dtype c_type;
    weft_dtype bias_type; /* OTHER: no bias */
    bool is_a_transposed;
    bool is_b_transposed;
    bool is_added;
    bool padding;
} weft_gemm_key;

typedef struct weft_gemm_cache weft_gemm_cache;
typedef struct weft_gemm_plan weft_gemm_plan;

weft_status weft_i_gemm_cache_create(weft_gemm_cache **out, weft_ctx *ctx);
void weft_i_gemm_cache_destroy(weft_gemm_cache *c);

/**
 * The product of this shape. Valid until some hundred other shapes were asked for. Only the thread that owns the
 * context may call it.
 *
 * It is compiled even when only its scratchpad's size is wanted: a plan asks for just what the run will use, the
 * library keeps what it compiled, and so its code is part of the program before a run's memory is measured.
 *
 * @return WEFT_OK | DEVICE oneDNN refused
 */
weft_status
weft_i_gemm_cache_find(weft_gemm_cache *c, const weft_gemm_key *key, weft_gemm_plan **out);

size_t weft_i_gemm_plan_scratch_bytes(const weft_gemm_plan *p);

/** What one run reads and writes. */
typedef struct weft_gemm_data {
    void *c;
    const void *a;
    const void *b;
    const void *bias;
    void *scratch;
} weft_gemm_data;

/** Runs in the calling thread; `worker` is its number in the pool. */
weft_status weft_i_gemm_plan_run(weft_gemm_plan *p, int worker, const weft_gemm_data *d);

#endif
