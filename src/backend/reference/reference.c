/*
 * The reference backend: the table of the plain-loop operations on memory of the process. It runs a call at once, on
 * the calling thread, so nothing ever waits.
 */
#include <string.h>

#include "backend/backends.h"
#include "backend/reference/ref_ops.h"

static weft_status
mem_get_reference(weft_backend *b, int kind, size_t n_bytes, const char *what, void **out)
{
    return weft_i_alloc_get(b->ctx->alloc, (weft_mem)kind, n_bytes, what, out);
}

static void mem_put_reference(weft_backend *b, void *block)
{
    weft_i_alloc_put(b->ctx->alloc, block);
}

static weft_status
workspace_bytes_reference(weft_backend *b, weft_op op, const void *args, size_t *out)
{
    (void)b;
    *out = 0;
    if (op == WEFT_OP_ATTENTION_FORWARD)
        *out =
            weft_i_ref_attention_forward_bytes(&((const weft_attention_forward_args *)args)->shape);
    else if (op == WEFT_OP_ATTENTION_BACKWARD)
        *out = weft_i_ref_attention_backward_bytes(
            &((const weft_attention_backward_args *)args)->shape);
    return WEFT_OK;
}

static weft_status
copy_to_host_reference(weft_backend *b, void *host, const void *device, size_t n_bytes)
{
    (void)b;
    if (n_bytes > 0)
        memcpy(host, device, n_bytes);
    return WEFT_OK;
}

static weft_status
copy_from_host_reference(weft_backend *b, void *device, const void *host, size_t n_bytes)
{
    (void)b;
    if (n_bytes > 0)
        memcpy(device, host, n_bytes);
    return WEFT_OK;
}

static weft_status sync_reference(weft_backend *b)
{
    (void)b;
    return WEFT_OK;
}

static void destroy_reference(weft_backend *b)
{
    weft_i_alloc_put(b->ctx->alloc, b);
}

static const weft_backend_ops ops_reference = {
    .name = "reference",
    .run = {[WEFT_OP_FILL] = weft_i_ref_fill,
            [WEFT_OP_COPY] = weft_i_ref_copy,
            [WEFT_OP_ADD] = weft_i_ref_add,
            [WEFT_OP_SCALE] = weft_i_ref_scale,
            [WEFT_OP_INIT_NORMAL] = weft_i_ref_init_normal,
            [WEFT_OP_GATHER_ROWS] = weft_i_ref_gather_rows,
            [WEFT_OP_SUM] = weft_i_ref_sum,
            [WEFT_OP_SUM_SQUARES] = weft_i_ref_sum_squares,
            [WEFT_OP_FIND_NONFINITE] = weft_i_ref_find_nonfinite,
            [WEFT_OP_GEMM] = weft_i_ref_gemm,
            [WEFT_OP_COLUMN_SUM] = weft_i_ref_column_sum,
            [WEFT_OP_EMBEDDING_FORWARD] = weft_i_ref_embedding_forward,
            [WEFT_OP_EMBEDDING_BACKWARD] = weft_i_ref_embedding_backward,
            [WEFT_OP_NORM_FORWARD] = weft_i_ref_norm_forward,
            [WEFT_OP_NORM_BACKWARD_INPUT] = weft_i_ref_norm_backward_input,
            [WEFT_OP_NORM_BACKWARD_WEIGHT] = weft_i_ref_norm_backward_weight,
            [WEFT_OP_ACTIVATION_FORWARD] = weft_i_ref_activation_forward,
            [WEFT_OP_ACTIVATION_BACKWARD] = weft_i_ref_activation_backward,
            [WEFT_OP_RESIDUAL] = weft_i_ref_residual,
            [WEFT_OP_DROPOUT] = weft_i_ref_dropout,
            [WEFT_OP_ROPE] = weft_i_ref_rope,
            [WEFT_OP_ATTENTION_FORWARD] = weft_i_ref_attention_forward,
            [WEFT_OP_ATTENTION_BACKWARD] = weft_i_ref_attention_backward,
            [WEFT_OP_XENT_STATS] = weft_i_ref_xent_stats,
            [WEFT_OP_XENT_RESCALE] = weft_i_ref_xent_rescale,
            [WEFT_OP_XENT_LOSS] = weft_i_ref_xent_loss,
            [WEFT_OP_XENT_GRAD] = weft_i_ref_xent_grad,
            [WEFT_OP_ADAMW] = weft_i_ref_adamw,
            [WEFT_OP_SGD] = weft_i_ref_sgd},
    .mem_get = mem_get_reference,
    .mem_put = mem_put_reference,
    .workspace_bytes = workspace_bytes_reference,
    .copy_to_host = copy_to_host_reference,
    .copy_from_host = copy_from_host_reference,
    .sync = sync_reference,
    .destroy = destroy_reference,
};

weft_status weft_i_backend_reference_create(weft_backend **out, weft_ctx *ctx)
{
    void *block = NULL;
    *out = NULL;
    WEFT_TRY(weft_i_alloc_new(ctx->alloc, 1, sizeof(weft_backend), &block));
    *out = block;
    (*out)->ops = &ops_reference;
    (*out)->ctx = ctx;
    return WEFT_OK;
}
