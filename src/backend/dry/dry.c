/*
 * The dry backend: nothing is computed and no tensor exists, yet a program runs on it as it would on the cpu backend,
 * and what it would take is counted: memory by the dry allocator of the context, operations and FLOPs by
 * weft_i_op_run, which checks arguments for all backends alike.
 *
 * Workspace is what the backend it stands for answers for the same arguments: the dry backend holds one, on the same context
 * (so for the same number of threads), and asks it. That one never runs an operation and takes no tensor memory.
 *
 * What an operation returns to the host is a harmless value: sums grow by nothing, nothing is found not to be finite,
 * and what is copied to the host is zeros.
 */
#include <string.h>

#include "backend/backends.h"

typedef struct dry_backend {
    weft_backend base;
    weft_backend *inner; /* the backend it stands for */
} dry_backend;

static weft_status run_dry(weft_backend *b, const void *args, void *workspace)
{
    (void)b;
    (void)args;
    (void)workspace;
    return WEFT_OK;
}

static weft_status find_nonfinite_dry(weft_backend *b, const void *args, void *workspace)
{
    const weft_find_nonfinite_args *a = args;
    (void)b;
    (void)workspace;
    *a->index = -1;
    return WEFT_OK;
}

static weft_status
mem_get_dry(weft_backend *b, int kind, size_t n_bytes, const char *what, void **out)
{
    return weft_i_alloc_get(b->ctx->alloc, (weft_mem)kind, n_bytes, what, out);
}

static void mem_put_dry(weft_backend *b, void *block)
{
    weft_i_alloc_put(b->ctx->alloc, block);
}

static weft_status workspace_bytes_dry(weft_backend *b, weft_op op, const void *args, size_t *out)
{
    weft_backend *inner = ((dry_backend *)(void *)b)->inner;
    return inner->ops->workspace_bytes(inner, op, args, out);
}

static weft_status copy_to_host_dry(weft_backend *b, void *host, const void *device, size_t n_bytes)
{
    (void)b;
    (void)device;
    if (n_bytes > 0)
        memset(host, 0, n_bytes);
    return WEFT_OK;
}

static weft_status
copy_from_host_dry(weft_backend *b, void *device, const void *host, size_t n_bytes)
{
    (void)b;
    (void)device;
    (void)host;
    (void)n_bytes;
    return WEFT_OK;
}

static weft_status sync_dry(weft_backend *b)
{
    (void)b;
    return WEFT_OK;
}

static void destroy_dry(weft_backend *b)
{
    dry_backend *d = (void *)b;
    if (d->inner != NULL)
        d->inner->ops->destroy(d->inner);
    weft_i_alloc_put(b->ctx->alloc, b);
}

static const weft_backend_ops ops_dry = {
    .name = "dry",
    .run = {[WEFT_OP_FILL] = run_dry,
            [WEFT_OP_COPY] = run_dry,
            [WEFT_OP_ADD] = run_dry,
            [WEFT_OP_SCALE] = run_dry,
            [WEFT_OP_INIT_NORMAL] = run_dry,
            [WEFT_OP_GATHER_ROWS] = run_dry,
            [WEFT_OP_SUM] = run_dry,
            [WEFT_OP_SUM_SQUARES] = run_dry,
            [WEFT_OP_FIND_NONFINITE] = find_nonfinite_dry,
            [WEFT_OP_GEMM] = run_dry,
            [WEFT_OP_COLUMN_SUM] = run_dry,
            [WEFT_OP_EMBEDDING_FORWARD] = run_dry,
            [WEFT_OP_EMBEDDING_BACKWARD] = run_dry,
            [WEFT_OP_NORM_FORWARD] = run_dry,
            [WEFT_OP_NORM_BACKWARD_INPUT] = run_dry,
            [WEFT_OP_NORM_BACKWARD_WEIGHT] = run_dry,
            [WEFT_OP_ACTIVATION_FORWARD] = run_dry,
            [WEFT_OP_ACTIVATION_BACKWARD] = run_dry,
            [WEFT_OP_RESIDUAL] = run_dry,
            [WEFT_OP_DROPOUT] = run_dry,
            [WEFT_OP_ROPE] = run_dry,
            [WEFT_OP_ATTENTION_FORWARD] = run_dry,
            [WEFT_OP_ATTENTION_BACKWARD] = run_dry,
            [WEFT_OP_XENT_STATS] = run_dry,
            [WEFT_OP_XENT_RESCALE] = run_dry,
            [WEFT_OP_XENT_LOSS] = run_dry,
            [WEFT_OP_XENT_GRAD] = run_dry,
            [WEFT_OP_ADAMW] = run_dry,
            [WEFT_OP_SGD] = run_dry},
    .mem_get = mem_get_dry,
    .mem_put = mem_put_dry,
    .workspace_bytes = workspace_bytes_dry,
    .copy_to_host = copy_to_host_dry,
    .copy_from_host = copy_from_host_dry,
    .sync = sync_dry,
    .destroy = destroy_dry,
};

weft_status weft_i_backend_dry_create(weft_backend **out, weft_ctx *ctx, weft_backend_kind of)
{
    void *block = NULL;
    *out = NULL;
    WEFT_TRY(weft_i_alloc_new(ctx->alloc, 1, sizeof(dry_backend), &block));
    dry_backend *d = block;
    d->base.ops = &ops_dry;
    d->base.ctx = ctx;
    const weft_status st = of == WEFT_BACKEND_REFERENCE
                               ? weft_i_backend_reference_create(&d->inner, ctx)
                               : weft_i_backend_cpu_create(&d->inner, ctx);
    if (st != WEFT_OK) {
        destroy_dry(&d->base);
        return st;
    }
    *out = &d->base;
    return WEFT_OK;
}

weft_backend_kind weft_i_backend_kind(const weft_backend *b)
{
    if (b->ops == &ops_dry)
        return weft_i_backend_kind(((const dry_backend *)(const void *)b)->inner);
    return strcmp(b->ops->name, "reference") == 0 ? WEFT_BACKEND_REFERENCE : WEFT_BACKEND_CPU;
}
