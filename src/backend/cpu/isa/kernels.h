/**
 * The table of kernels that is compiled once for every instruction set (WEFT_ISA 0, 3, 4) and chosen at run time.
 *
 * A kernel works on a span of elements or of rows in the calling thread and needs no memory of its own; cutting work
 * into blocks and handing it to threads is the business of cpu_*.c. Every symbol carries the number of its instruction
 * set, and helpers are static, so that the linker can never hand a wide instruction to a narrow machine.
 */
#ifndef WEFT_BACKEND_CPU_ISA_KERNELS_H
#define WEFT_BACKEND_CPU_ISA_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "weft/ext/backend.h"

/** Queries of one call of attention_forward, at most. */
#define WEFT_ATTENTION_QUERIES 64

/**
 * A part of attention: forward, queries [first_query, first_query + n_queries) of one head; backward, all queries of the
 * heads that read one key head (`head`).
 */
typedef struct weft_attn_task {
    const weft_attention_shape *shape;
    int64_t seq;
    int64_t head;
    int64_t first_query;
    int64_t n_queries;
} weft_attn_task;

/** The sum of part[], each exact; !is_exact: the numbers were too far apart, or not all finite. */
typedef struct weft_square_sum {
    double part[3];
    bool is_exact;
} weft_square_sum;

/** Elements of one call of sum_squares, at most 2^13. */
#define WEFT_SQUARE_SUM_ELEMS 8192

#define WEFT_CPU_KERNELS(X)                                                                        \
    X(fill, (void *x, weft_dtype t, int64_t n, float value))                                       \
    X(convert, (void *y, weft_dtype ty, const void *x, weft_dtype tx, int64_t n))                  \
    X(add, (const weft_add_args *a, int64_t row, int64_t col, int64_t n))                          \
    X(scale, (void *x, weft_dtype t, int64_t n, float factor))                                     \
    X(column_sum, (const weft_column_sum_args *a, int64_t col, int64_t n))                         \
    X(embedding_forward, (const weft_embedding_forward_args *a, int64_t row, int64_t n))           \
    X(embedding_backward, (const weft_embedding_backward_args *a, int64_t col, int64_t n))         \
    X(norm_forward, (const weft_norm_forward_args *a, int64_t row, int64_t n))                     \
    X(norm_backward_input, (const weft_norm_backward_input_args *a, int64_t row, int64_t n))       \
    X(norm_backward_weight, (const weft_norm_backward_weight_args *a, int64_t col, int64_t n))     \
    X(activation_forward,                                                                          \
      (const weft_activation_forward_args *a, int64_t row, int64_t col, int64_t n))                \
    X(activation_backward,                                                                         \
      (const weft_activation_backward_args *a, int64_t row, int64_t col, int64_t n))               \
    X(residual, (const weft_residual_args *a, int64_t row, int64_t n))                             \
    X(rope, (const weft_rope_args *a, int64_t row, int64_t n))                                     \
    X(attention_forward,                                                                           \
      (const weft_attention_forward_args *a, const weft_attn_task *t, float *scratch))             \
    X(attention_backward,                                                                          \
      (const weft_attention_backward_args *a, const weft_attn_task *t, float *scratch))            \
    X(xent_stats, (const weft_xent_stats_args *a, int64_t row, int64_t n))                         \
    X(xent_grad, (const weft_xent_grad_args *a, int64_t row, int64_t n))                           \
    X(sum_squares, (weft_square_sum * out, const float *x, int64_t n))                             \
    X(adamw, (const weft_adamw_args *a, int64_t first, int64_t n))                                 \
    X(sgd, (const weft_sgd_args *a, int64_t first, int64_t n))

typedef struct weft_cpu_kernels {
#define WEFT_CPU_FIELD(name, params) void(*name) params;
    WEFT_CPU_KERNELS(WEFT_CPU_FIELD)
#undef WEFT_CPU_FIELD
    /** Floats of scratch of one call. */
    size_t (*attention_forward_scratch)(const weft_attention_shape *s);
    size_t (*attention_backward_scratch)(const weft_attention_shape *s);
} weft_cpu_kernels;

extern const weft_cpu_kernels weft_i_cpu_kernels_isa0;
extern const weft_cpu_kernels weft_i_cpu_kernels_isa3;
extern const weft_cpu_kernels weft_i_cpu_kernels_isa4;

#ifdef WEFT_ISA
#define WEFT_ISA_PASTE(name, isa) weft_i_##name##_isa##isa
#define WEFT_ISA_EXPAND(name, isa) WEFT_ISA_PASTE(name, isa)
#define WEFT_ISA_NAME(name) WEFT_ISA_EXPAND(name, WEFT_ISA)

#define WEFT_CPU_PROTOTYPE(name, params) void WEFT_ISA_NAME(name) params;
WEFT_CPU_KERNELS(WEFT_CPU_PROTOTYPE)
#undef WEFT_CPU_PROTOTYPE
size_t WEFT_ISA_NAME(attention_forward_scratch)(const weft_attention_shape *s);
size_t WEFT_ISA_NAME(attention_backward_scratch)(const weft_attention_shape *s);
#endif

#endif
