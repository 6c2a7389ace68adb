/*
 * Contract: warm.h. The memory taken is given back before it returns. A transposed left operand is tried too: oneDNN has
 * kernels of another family for it, which it compiles when first run.
 */
#include "backend/warm.h"

#include "backend/run_op.h"
#include "base/ctx.h"

enum { M = 128, N = 256, K = 768 }; /* large enough for either family of kernels to be chosen */

static weft_status run_product(weft_ctx *ctx, weft_dtype dtype, bool is_a_transposed)
{
    weft_backend *b = ctx->backend;
    const size_t size = weft_dtype_bytes(dtype);
    weft_gemm_args g = {.a = is_a_transposed ? weft_view_make(NULL, dtype, K, M)
                                             : weft_view_make(NULL, dtype, M, K),
                        .b = weft_view_make(NULL, dtype, K, N),
                        .c = weft_view_make(NULL, dtype, M, N),
                        .is_a_transposed = is_a_transposed};
    const size_t a_bytes = size * M * K, b_bytes = size * K * N, c_bytes = size * M * N;
    const size_t operands = a_bytes + b_bytes + c_bytes;
    weft_arena arena;
    size_t scratch = 0;
    void *memory = NULL;
    WEFT_TRY(b->ops->workspace_bytes(b, WEFT_OP_GEMM, &g, &scratch));
    WEFT_TRY(
        b->ops->mem_get(b, WEFT_MEM_WORKSPACE, operands + scratch, "a first product", &memory));
    g.a.data = memory;
    g.b.data = (char *)memory + a_bytes;
    g.c.data = (char *)memory + a_bytes + b_bytes;
    weft_i_arena_init(&arena, (char *)memory + operands, scratch);
    const weft_status st = weft_i_op_run(b, WEFT_OP_GEMM, &g, &arena);
    b->ops->mem_put(b, memory);
    return st;
}

weft_status weft_i_backend_warm(const weft_ctx_options *options)
{
    weft_ctx *ctx = NULL;
    WEFT_TRY(weft_ctx_create(&ctx, options));
    static const weft_dtype type[] = {WEFT_DTYPE_F32, WEFT_DTYPE_BF16};
    weft_status st = WEFT_OK;
    for (size_t i = 0; i < 2 * WEFT_COUNT_OF(type) && st == WEFT_OK; i++)
        st = run_product(ctx, type[i / 2], i % 2 == 1);
    weft_ctx_destroy(ctx);
    return st;
}
