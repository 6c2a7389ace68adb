/**
 * Inside of the cpu backend: what its files share. An operation cuts its work into blocks from shapes alone, and the
 * kernels of isa/ run them.
 */
#ifndef WEFT_BACKEND_CPU_CPU_H
#define WEFT_BACKEND_CPU_CPU_H

#include "backend/backends.h"
#include "backend/cpu/gemm_cache.h"
#include "backend/cpu/isa/kernels.h"

typedef struct weft_cpu {
    weft_backend base;
    const weft_cpu_kernels *kernels;
    weft_pool *pool;
    int n_threads;
    bool has_bf16;          /* the processor multiplies bf16 */
    weft_gemm_cache *gemms; /* oneDNN primitives by shape */
} weft_cpu;

static inline weft_cpu *weft_i_cpu_of(weft_backend *b)
{
    return (weft_cpu *)(void *)b;
}

/** Runs the blocks in this thread when the work (in elements or so) is too small to wake others for. */
void weft_i_cpu_run(weft_cpu *cpu, int64_t n_blocks, double work, weft_pool_fn *fn, void *user);

/** A part of a matrix: n columns of each of `rows` rows. */
typedef struct weft_cpu_part {
    int64_t row, rows, col, n;
} weft_cpu_part;

typedef void weft_cpu_part_fn(const weft_cpu *cpu, const void *args, const weft_cpu_part *part);

/**
 * Calls fn for parts that cover [rows, cols] and hold about 16,384 elements each; a dense matrix (is_dense: every view's
 * ld is cols) is one long row.
 */
void weft_i_cpu_each_part(weft_cpu *cpu,
                          int64_t rows,
                          int64_t cols,
                          bool is_dense,
                          weft_cpu_part_fn *fn,
                          const void *args);

/** Calls fn for blocks of whole rows (part.n = cols). */
void weft_i_cpu_each_rows(
    weft_cpu *cpu, int64_t rows, int64_t cols, weft_cpu_part_fn *fn, const void *args);

/** Calls fn for stripes of 128 columns over all rows. */
void weft_i_cpu_each_columns(
    weft_cpu *cpu, int64_t rows, int64_t cols, weft_cpu_part_fn *fn, const void *args);

static inline bool weft_i_cpu_is_dense(const weft_view *v)
{
    return v->ld == v->cols || v->rows <= 1;
}

/* One function an operation; the comment of its arguments in weft/ext/backend.h is its contract. */
weft_op_fn weft_i_cpu_fill, weft_i_cpu_copy, weft_i_cpu_add, weft_i_cpu_scale,
    weft_i_cpu_init_normal, weft_i_cpu_gather_rows, weft_i_cpu_activation_forward,
    weft_i_cpu_activation_backward, weft_i_cpu_residual, weft_i_cpu_dropout, weft_i_cpu_rope,
    weft_i_cpu_embedding_forward, weft_i_cpu_embedding_backward;
weft_op_fn weft_i_cpu_sum, weft_i_cpu_sum_squares, weft_i_cpu_find_nonfinite, weft_i_cpu_column_sum;
weft_op_fn weft_i_cpu_norm_forward, weft_i_cpu_norm_backward_input, weft_i_cpu_norm_backward_weight;
weft_op_fn weft_i_cpu_xent_stats, weft_i_cpu_xent_rescale, weft_i_cpu_xent_loss,
    weft_i_cpu_xent_grad;
weft_op_fn weft_i_cpu_adamw, weft_i_cpu_sgd;
weft_op_fn weft_i_cpu_attention_forward, weft_i_cpu_attention_backward;
weft_op_fn weft_i_cpu_gemm;

/* Workspace of the operations that need any. */
size_t weft_i_cpu_sum_workspace(const weft_view *x);
size_t weft_i_cpu_find_nonfinite_workspace(const weft_view *x);
size_t weft_i_cpu_attention_workspace(const weft_cpu *cpu,
                                      const weft_attention_shape *s,
                                      bool is_backward);
weft_status weft_i_cpu_gemm_workspace(weft_cpu *cpu, const weft_gemm_args *a, size_t *out);

#endif
