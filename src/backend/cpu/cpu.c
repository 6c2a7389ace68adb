/**
 * The cpu backend: memory is the context's allocator, operations run at once, the kernels are those of the widest
 * instruction set the machine has.
 */
#include "backend/cpu/cpu.h"

#include <string.h>

#include "base/env.h"

enum { PART_ELEMS = 16384, COLUMN_STRIPE = 128 };

/* Work below this runs in the calling thread: waking another costs some microseconds. */
static const double SMALL_WORK = 8192.0;

void weft_i_cpu_run(weft_cpu *cpu, int64_t n_blocks, double work, weft_pool_fn *fn, void *user)
{
    if (n_blocks > 1 && work > SMALL_WORK && cpu->n_threads > 1) {
        weft_i_pool_run(cpu->pool, n_blocks, fn, user);
        return;
    }
    for (int64_t b = 0; b < n_blocks; b++)
        fn(user, b, 0);
}

typedef struct part_grid {
    const weft_cpu *cpu;
    weft_cpu_part_fn *fn;
    const void *args;
    int64_t rows, cols;           /* of the whole */
    int64_t part_rows, part_cols; /* of a block */
    int64_t n_col_blocks;
} part_grid;

static void run_part(void *user, int64_t block, int worker)
{
    (void)worker;
    const part_grid *const g = user;
    const int64_t br = block / g->n_col_blocks, bc = block % g->n_col_blocks;
    weft_cpu_part p = {br * g->part_rows, 0, bc * g->part_cols, 0};
    p.rows = WEFT_MIN(g->part_rows, g->rows - p.row);
    p.n = WEFT_MIN(g->part_cols, g->cols - p.col);
    g->fn(g->cpu, g->args, &p);
}

static void run_grid(weft_cpu *cpu, part_grid *g)
{
    if (g->rows <= 0 || g->cols <= 0)
        return;
    g->cpu = cpu;
    g->n_col_blocks = (g->cols + g->part_cols - 1) / g->part_cols;
    const int64_t n_row_blocks = (g->rows + g->part_rows - 1) / g->part_rows;
    weft_i_cpu_run(cpu, n_row_blocks * g->n_col_blocks, (double)g->rows * (double)g->cols, run_part,
                   g);
}

void weft_i_cpu_each_part(weft_cpu *cpu,
                          int64_t rows,
                          int64_t cols,
                          bool is_dense,
                          weft_cpu_part_fn *fn,
                          const void *args)
{
    part_grid g = {.fn = fn, .args = args, .rows = rows, .cols = cols};
    if (is_dense) {
        g.rows = 1;
        g.cols = rows * cols;
    }
    g.part_cols = WEFT_MIN(WEFT_MAX(g.cols, (int64_t)1), (int64_t)PART_ELEMS);
    g.part_rows = PART_ELEMS / g.part_cols;
    run_grid(cpu, &g);
}

void weft_i_cpu_each_rows(
    weft_cpu *cpu, int64_t rows, int64_t cols, weft_cpu_part_fn *fn, const void *args)
{
    part_grid g = {.fn = fn, .args = args, .rows = rows, .cols = cols};
    g.part_cols = WEFT_MAX(cols, (int64_t)1);
    g.part_rows = WEFT_MAX(PART_ELEMS / g.part_cols, (int64_t)1);
    run_grid(cpu, &g);
}

void weft_i_cpu_each_columns(
    weft_cpu *cpu, int64_t rows, int64_t cols, weft_cpu_part_fn *fn, const void *args)
{
    part_grid g = {.fn = fn, .args = args, .rows = WEFT_MAX(rows, (int64_t)1), .cols = cols};
    g.part_rows = g.rows;
    g.part_cols = COLUMN_STRIPE;
    run_grid(cpu, &g);
}

static const weft_cpu_kernels *kernels_of_machine(void)
{
#if defined(__x86_64__)
    const int level = weft_i_env_isa_level();
    if (level >= 4)
        return &weft_i_cpu_kernels_isa4;
    if (level >= 3)
        return &weft_i_cpu_kernels_isa3;
#endif
    return &weft_i_cpu_kernels_isa0;
}

static weft_status
mem_get_cpu(weft_backend *b, int kind, size_t n_bytes, const char *what, void **out)
{
    return weft_i_alloc_get(b->ctx->alloc, (weft_mem)kind, n_bytes, what, out);
}

static void mem_put_cpu(weft_backend *b, void *block)
{
    weft_i_alloc_put(b->ctx->alloc, block);
}

static weft_status workspace_bytes_cpu(weft_backend *b, weft_op op, const void *args, size_t *out)
{
    weft_cpu *const cpu = weft_i_cpu_of(b);
    size_t n = 0;
    if (op == WEFT_OP_SUM || op == WEFT_OP_SUM_SQUARES)
        n = weft_i_cpu_sum_workspace(&((const weft_sum_args *)args)->x);
    else if (op == WEFT_OP_FIND_NONFINITE)
        n = weft_i_cpu_find_nonfinite_workspace(&((const weft_find_nonfinite_args *)args)->x);
    else if (op == WEFT_OP_ATTENTION_FORWARD)
        n = weft_i_cpu_attention_workspace(cpu, &((const weft_attention_forward_args *)args)->shape,
                                           false);
    else if (op == WEFT_OP_ATTENTION_BACKWARD)
        n = weft_i_cpu_attention_workspace(
            cpu, &((const weft_attention_backward_args *)args)->shape, true);
    else if (op == WEFT_OP_GEMM)
        WEFT_TRY(weft_i_cpu_gemm_workspace(cpu, args, &n));
    *out = weft_i_alloc_rounded(n);
    return WEFT_OK;
}

static weft_status copy_to_host_cpu(weft_backend *b, void *host, const void *device, size_t n_bytes)
{
    (void)b;
    if (n_bytes > 0)
        memcpy(host, device, n_bytes);
    return WEFT_OK;
}

static weft_status
copy_from_host_cpu(weft_backend *b, void *device, const void *host, size_t n_bytes)
{
    (void)b;
    if (n_bytes > 0)
        memcpy(device, host, n_bytes);
    return WEFT_OK;
}

static weft_status sync_cpu(weft_backend *b)
{
    (void)b;
    return WEFT_OK;
}

static void destroy_cpu(weft_backend *b)
{
    if (b == NULL)
        return;
    weft_i_gemm_cache_destroy(weft_i_cpu_of(b)->gemms);
    weft_i_alloc_put(b->ctx->alloc, b);
}

static const weft_backend_ops CPU_OPS = {
    .name = "cpu",
    .run =
        {
            [WEFT_OP_FILL] = weft_i_cpu_fill,
            [WEFT_OP_COPY] = weft_i_cpu_copy,
            [WEFT_OP_ADD] = weft_i_cpu_add,
            [WEFT_OP_SCALE] = weft_i_cpu_scale,
            [WEFT_OP_INIT_NORMAL] = weft_i_cpu_init_normal,
            [WEFT_OP_GATHER_ROWS] = weft_i_cpu_gather_rows,
            [WEFT_OP_SUM] = weft_i_cpu_sum,
            [WEFT_OP_SUM_SQUARES] = weft_i_cpu_sum_squares,
            [WEFT_OP_FIND_NONFINITE] = weft_i_cpu_find_nonfinite,
            [WEFT_OP_GEMM] = weft_i_cpu_gemm,
            [WEFT_OP_COLUMN_SUM] = weft_i_cpu_column_sum,
            [WEFT_OP_EMBEDDING_FORWARD] = weft_i_cpu_embedding_forward,
            [WEFT_OP_EMBEDDING_BACKWARD] = weft_i_cpu_embedding_backward,
            [WEFT_OP_NORM_FORWARD] = weft_i_cpu_norm_forward,
            [WEFT_OP_NORM_BACKWARD_INPUT] = weft_i_cpu_norm_backward_input,
            [WEFT_OP_NORM_BACKWARD_WEIGHT] = weft_i_cpu_norm_backward_weight,
            [WEFT_OP_ACTIVATION_FORWARD] = weft_i_cpu_activation_forward,
            [WEFT_OP_ACTIVATION_BACKWARD] = weft_i_cpu_activation_backward,
            [WEFT_OP_RESIDUAL] = weft_i_cpu_residual,
            [WEFT_OP_DROPOUT] = weft_i_cpu_dropout,
            [WEFT_OP_ROPE] = weft_i_cpu_rope,
            [WEFT_OP_ATTENTION_FORWARD] = weft_i_cpu_attention_forward,
            [WEFT_OP_ATTENTION_BACKWARD] = weft_i_cpu_attention_backward,
            [WEFT_OP_XENT_STATS] = weft_i_cpu_xent_stats,
            [WEFT_OP_XENT_RESCALE] = weft_i_cpu_xent_rescale,
            [WEFT_OP_XENT_LOSS] = weft_i_cpu_xent_loss,
            [WEFT_OP_XENT_GRAD] = weft_i_cpu_xent_grad,
            [WEFT_OP_ADAMW] = weft_i_cpu_adamw,
            [WEFT_OP_SGD] = weft_i_cpu_sgd,
        },
    .mem_get = mem_get_cpu,
    .mem_put = mem_put_cpu,
    .workspace_bytes = workspace_bytes_cpu,
    .copy_to_host = copy_to_host_cpu,
    .copy_from_host = copy_from_host_cpu,
    .sync = sync_cpu,
    .destroy = destroy_cpu,
};

weft_status weft_i_backend_cpu_create(weft_backend **out, weft_ctx *ctx)
{
    *out = NULL;
    void *memory = NULL;
    WEFT_TRY(weft_i_alloc_new(ctx->alloc, 1, sizeof(weft_cpu), &memory));
    weft_cpu *const cpu = memory;
    cpu->base.ops = &CPU_OPS;
    cpu->base.ctx = ctx;
    cpu->kernels = kernels_of_machine();
    cpu->pool = ctx->pool;
    cpu->n_threads = weft_i_pool_threads(ctx->pool);
    cpu->has_bf16 = weft_i_env_has_bf16();
    const weft_status st = weft_i_gemm_cache_create(&cpu->gemms, ctx);
    if (st != WEFT_OK) {
        weft_i_alloc_put(ctx->alloc, cpu);
        return st;
    }
    *out = &cpu->base;
    return WEFT_OK;
}
