/*
 * Calls of backend operations to compare: each operation has a numbered list of cases (odd sizes, strides, types,
 * optional operands, operands that lie on each other), and a rig runs a case on a backend.
 *
 * Padding between rows is filled with 0xff bytes (NaN as a float), so that reading it poisons the result, and whether it
 * was written is seen afterwards.
 */
#ifndef WEFT_TESTS_OP_CASE_H
#define WEFT_TESTS_OP_CASE_H

#include "check.h"

#include "base/ctx.h"
#include "base/sum.h"
#include "weft/ext/backend.h"

#define OP_MAX_VIEWS 13
#define OP_MAX_BLOCKS 128

/* Host memory of one case, and its random numbers. */
typedef struct op_bag {
    void *block[OP_MAX_BLOCKS];
    int n_blocks;
    uint64_t seed;
} op_bag;

/* Zero-initialise, use, empty. */
void op_bag_empty(op_bag *bag);
void *op_bag_get(op_bag *bag, size_t n_bytes);

double op_uniform(op_bag *bag);                          /* [0, 1) */
int64_t op_below(op_bag *bag, int64_t n);                /* [0, n) */
double op_normal(op_bag *bag);                           /* near enough to a standard normal */
double op_get(const weft_view *v, int64_t r, int64_t c); /* F32, BF16, F16, I32, I64 */
void op_set(const weft_view *v, int64_t r, int64_t c, double); /* the same */

/* A new matrix; `pad` elements of 0xff bytes after each row. */
weft_view op_matrix(op_bag *bag, weft_dtype dtype, int64_t rows, int64_t cols, int64_t pad);
/* scale * normal + shift */
weft_view op_random(op_bag *bag,
                    weft_dtype dtype,
                    int64_t rows,
                    int64_t cols,
                    int64_t pad,
                    double scale,
                    double shift);
/* whole numbers in [low, low + n) */
weft_view op_ids(op_bag *bag, weft_dtype dtype, int64_t rows, int64_t low, int64_t n);

typedef union op_args {
    weft_fill_args fill;
    weft_copy_args copy;
    weft_add_args add;
    weft_scale_args scale;
    weft_init_normal_args init_normal;
    weft_gather_rows_args gather_rows;
    weft_sum_args sum;
    weft_find_nonfinite_args find_nonfinite;
    weft_gemm_args gemm;
    weft_column_sum_args column_sum;
    weft_embedding_forward_args embedding_forward;
    weft_embedding_backward_args embedding_backward;
    weft_norm_forward_args norm_forward;
    weft_norm_backward_input_args norm_backward_input;
    weft_norm_backward_weight_args norm_backward_weight;
    weft_activation_forward_args activation_forward;
    weft_activation_backward_args activation_backward;
    weft_residual_args residual;
    weft_dropout_args dropout;
    weft_rope_args rope;
    weft_attention_forward_args attention_forward;
    weft_attention_backward_args attention_backward;
    weft_xent_stats_args xent_stats;
    weft_xent_rescale_args xent_rescale;
    weft_xent_loss_args xent_loss;
    weft_xent_grad_args xent_grad;
    weft_adamw_args adamw;
    weft_sgd_args sgd;
} op_args;

typedef struct op_case {
    weft_op op;
    op_args args;
    int64_t n_terms; /* length of the sums behind one element of the result */
    char label[160];
} op_case;

/* How many cases an operation has, and one of them. */
int op_case_count(weft_op op);
void op_case_make(weft_op op, int index, op_bag *bag, op_case *out);

/* The makers, by theme (op_cases_*.c); they fill args, n_terms and the label. */
typedef struct op_maker {
    int n_cases;
    void (*make)(int index, op_bag *bag, op_case *out);
} op_maker;
extern const op_maker op_makers_memory[WEFT_OP_COUNT];
extern const op_maker op_makers_layer[WEFT_OP_COUNT];
extern const op_maker op_makers_loss[WEFT_OP_COUNT];

/* The views of an operation. */
typedef struct op_view {
    size_t offset;
    bool is_output;
} op_view;
const op_view *op_views(weft_op op, int *n_views);
weft_view *op_view_at(op_args *args, size_t offset);

/* A backend and what it needs. */
typedef struct op_rig {
    weft_ctx *ctx;
    weft_backend *b;
} op_rig;
void op_rig_open(op_rig *rig, weft_backend_kind kind, int n_threads);
void op_rig_close(op_rig *rig);

/* All views after a call, whole rows with their padding, and what went to the host. */
typedef struct op_result {
    void *data[OP_MAX_VIEWS];
    size_t n_bytes[OP_MAX_VIEWS];
    weft_sum sum;
    int64_t index;
} op_result;

/*
 * Copies the case into the rig's memory, runs it with a workspace of exactly the bytes asked for (full of 0xff), and
 * copies everything back. The workspace must not be left.
 */
weft_status op_case_run(op_rig *rig, const op_case *c, op_result *out);
void op_result_free(op_result *r);
/* Runs a case that must succeed and leaves its results in the case's own views. */
void op_case_apply(op_rig *rig, const op_case *c);

/* Fails the test when inputs or padding of `got` are not what the case put there. */
void op_check_untouched(const op_case *c, const op_result *got);
/* Fails the test when any output differs in a bit. */
void op_check_same_bits(const op_case *c, const op_result *got, const op_result *want);
/* |got - want| <= rel * |want| + abs, the bf16 storage of an output adding one unit in its last place. */
void op_check_near(
    const op_case *c, const op_result *got, const op_result *want, double rel, double abs);

#endif
