/*
 * What is known of an operation without running it: its name, the size of its arguments, its floating-point operations.
 *
 * FLOPs: matrix products and attention are counted exactly (a multiply-add is two; a pair of query and key counts when
 * the query sees the key). All other operations count a whole number for each element of one operand, about what a plain
 * loop spends, an exponential or a root as one. One rule for all kinds of a family (both norms, all activations), so that
 * a closed form can state the same numbers.
 *
 * Source of the backward of attention as five products: arXiv:2205.14135, algorithm 4.
 */
#include "base/compiler.h"
#include "weft/ext/backend.h"

typedef struct op_info {
    const char *name;
    size_t args_bytes;
    size_t counted;                    /* offset of the view whose elements are counted */
    double per_elem;                   /* FLOPs for each of them */
    double (*flops)(const void *args); /* where that is not how the operation is counted */
} op_info;

static double flops_gemm(const void *args)
{
    const weft_gemm_args *a = args;
    const int64_t k = a->is_a_transposed ? a->a.rows : a->a.cols;
    return 2.0 * (double)a->c.rows * (double)a->c.cols * (double)k;
}

/* Keys seen, summed over the queries of one sequence: query i sees min(offset + i + 1, length) keys, at least 0. */
static double seen_pairs(int64_t q_tokens, int64_t offset, int64_t length)
{
    const int64_t first = WEFT_MIN(WEFT_MAX(-offset, 0), q_tokens);            /* sees a key */
    const int64_t full = WEFT_MIN(WEFT_MAX(length - offset, first), q_tokens); /* sees them all */
    const double n = (double)(full - first);
    const double growing = n * (double)(offset + first + 1) + n * (n - 1.0) / 2.0;
    return growing + (double)(q_tokens - full) * (double)length;
}

static double attention_pairs(const weft_attention_shape *s)
{
    double pairs = 0.0;
    for (int64_t i = 0; i < s->n_seqs; i++) {
        const int64_t offset = s->q_offset != NULL ? s->q_offset[i] : 0;
        const int64_t length = s->kv_length != NULL ? s->kv_length[i] : s->kv_tokens;
        pairs += seen_pairs(s->q_tokens, offset, length);
    }
    return pairs * (double)s->n_heads;
}

static double flops_attention_forward(const void *args)
{
    const weft_attention_forward_args *a = args;
    return 4.0 * (double)a->shape.head_dim * attention_pairs(&a->shape);
}

static double flops_attention_backward(const void *args)
{
    const weft_attention_backward_args *a = args;
    return 10.0 * (double)a->shape.head_dim * attention_pairs(&a->shape);
}

#define ELEMENTS(type, view, per_elem) sizeof(type), offsetof(type, view), per_elem, NULL
#define FUNCTION(type, function) sizeof(type), 0, 0.0, function

static const op_info infos[WEFT_OP_COUNT] = {
    [WEFT_OP_FILL] = {"fill", ELEMENTS(weft_fill_args, x, 0.0)},
    [WEFT_OP_COPY] = {"copy", ELEMENTS(weft_copy_args, dst, 0.0)},
    [WEFT_OP_ADD] = {"add", ELEMENTS(weft_add_args, dst, 1.0)},
    [WEFT_OP_SCALE] = {"scale", ELEMENTS(weft_scale_args, x, 1.0)},
    [WEFT_OP_INIT_NORMAL] = {"init_normal", ELEMENTS(weft_init_normal_args, x, 0.0)},
    [WEFT_OP_GATHER_ROWS] = {"gather_rows", ELEMENTS(weft_gather_rows_args, dst, 0.0)},
    [WEFT_OP_SUM] = {"sum", ELEMENTS(weft_sum_args, x, 1.0)},
    [WEFT_OP_SUM_SQUARES] = {"sum_squares", ELEMENTS(weft_sum_args, x, 2.0)},
    [WEFT_OP_FIND_NONFINITE] = {"find_nonfinite", ELEMENTS(weft_find_nonfinite_args, x, 0.0)},
    [WEFT_OP_GEMM] = {"gemm", FUNCTION(weft_gemm_args, flops_gemm)},
    [WEFT_OP_COLUMN_SUM] = {"column_sum", ELEMENTS(weft_column_sum_args, x, 1.0)},
    [WEFT_OP_EMBEDDING_FORWARD] = {"embedding_forward",
                                   ELEMENTS(weft_embedding_forward_args, y, 0.0)},
    [WEFT_OP_EMBEDDING_BACKWARD] = {"embedding_backward",
                                    ELEMENTS(weft_embedding_backward_args, dy, 1.0)},
    [WEFT_OP_NORM_FORWARD] = {"norm_forward", ELEMENTS(weft_norm_forward_args, x, 8.0)},
    [WEFT_OP_NORM_BACKWARD_INPUT] = {"norm_backward_input",
                                     ELEMENTS(weft_norm_backward_input_args, x, 12.0)},
    [WEFT_OP_NORM_BACKWARD_WEIGHT] = {"norm_backward_weight",
                                      ELEMENTS(weft_norm_backward_weight_args, x, 5.0)},
    [WEFT_OP_ACTIVATION_FORWARD] = {"activation_forward",
                                    ELEMENTS(weft_activation_forward_args, x, 8.0)},
    [WEFT_OP_ACTIVATION_BACKWARD] = {"activation_backward",
                                     ELEMENTS(weft_activation_backward_args, x, 16.0)},
    [WEFT_OP_RESIDUAL] = {"residual", ELEMENTS(weft_residual_args, y, 2.0)},
    [WEFT_OP_DROPOUT] = {"dropout", ELEMENTS(weft_dropout_args, y, 1.0)},
    [WEFT_OP_ROPE] = {"rope", ELEMENTS(weft_rope_args, x, 3.0)},
    [WEFT_OP_ATTENTION_FORWARD] = {"attention_forward",
                                   FUNCTION(weft_attention_forward_args, flops_attention_forward)},
    [WEFT_OP_ATTENTION_BACKWARD] = {"attention_backward", FUNCTION(weft_attention_backward_args,
                                                                   flops_attention_backward)},
    [WEFT_OP_XENT_STATS] = {"xent_stats", ELEMENTS(weft_xent_stats_args, logits, 4.0)},
    [WEFT_OP_XENT_RESCALE] = {"xent_rescale", ELEMENTS(weft_xent_rescale_args, sum, 3.0)},
    [WEFT_OP_XENT_LOSS] = {"xent_loss", ELEMENTS(weft_xent_loss_args, loss, 3.0)},
    [WEFT_OP_XENT_GRAD] = {"xent_grad", ELEMENTS(weft_xent_grad_args, logits, 5.0)},
    [WEFT_OP_ADAMW] = {"adamw", ELEMENTS(weft_adamw_args, x, 16.0)},
    [WEFT_OP_SGD] = {"sgd", ELEMENTS(weft_sgd_args, x, 7.0)},
};

double weft_op_flops(weft_op op, const void *args)
{
    if ((unsigned)op >= WEFT_OP_COUNT)
        return 0.0;
    const op_info *info = &infos[op];
    if (info->flops != NULL)
        return info->flops(args);
    const weft_view *v = (const void *)((const char *)args + info->counted);
    return info->per_elem * (double)v->rows * (double)v->cols;
}

const char *weft_op_name(weft_op op)
{
    return (unsigned)op < WEFT_OP_COUNT ? infos[op].name : "unknown";
}

size_t weft_op_args_bytes(weft_op op)
{
    return (unsigned)op < WEFT_OP_COUNT ? infos[op].args_bytes : 0;
}
