/* Contract: warm.h. The memory taken is given back before it returns. */
#include "backend/warm.h"

#include "backend/run_op.h"
#include "base/ctx.h"

#define WIDTH 64 /* of the square matrices */

static weft_status run_product(weft_ctx *ctx, weft_dtype dtype)
{
    weft_backend *b = ctx->backend;
    const size_t matrix = (size_t)(WIDTH * WIDTH) * weft_dtype_bytes(dtype);
    weft_gemm_args g = {.a = weft_view_make(NULL, dtype, WIDTH, WIDTH),
                        .b = weft_view_make(NULL, dtype, WIDTH, WIDTH),
                        .c = weft_view_make(NULL, dtype, WIDTH, WIDTH)};
    weft_arena arena;
    size_t scratch = 0;
    void *memory = NULL;
    WEFT_TRY(b->ops->workspace_bytes(b, WEFT_OP_GEMM, &g, &scratch));
    WEFT_TRY(
        b->ops->mem_get(b, WEFT_MEM_WORKSPACE, 3 * matrix + scratch, "a first product", &memory));
    g.a.data = memory;
    g.b.data = (char *)memory + matrix;
    g.c.data = (char *)memory + 2 * matrix;
    weft_i_arena_init(&arena, (char *)memory + 3 * matrix, scratch);
    const weft_status st = weft_i_op_run(b, WEFT_OP_GEMM, &g, &arena);
    b->ops->mem_put(b, memory);
    return st;
}

weft_status weft_i_backend_warm(const weft_ctx_options *options)
{
    weft_ctx *ctx = NULL;
    WEFT_TRY(weft_ctx_create(&ctx, options));
    weft_status st = run_product(ctx, WEFT_DTYPE_F32);
    if (st == WEFT_OK)
        st = run_product(ctx, WEFT_DTYPE_BF16);
    weft_ctx_destroy(ctx);
    return st;
}
