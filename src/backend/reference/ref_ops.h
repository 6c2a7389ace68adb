/**
 * The reference set: every operation in plain loops, one element after another, on one thread.
 *
 * It is read to learn what an operation means and is the oracle of every fast kernel, so it is written to be obviously
 * right: elements are read and written one by one whatever their type, sums are in double, results are rounded once.
 * Where the contract fixes an order of fp32 operations (embedding gradients, optimizer), it follows that order in fp32.
 */
#ifndef WEFT_BACKEND_REFERENCE_REF_OPS_H
#define WEFT_BACKEND_REFERENCE_REF_OPS_H

#include "base/error.h"
#include "tensor/convert.h"
#include "weft/ext/backend.h"

/** Element (r, c) of an F32, BF16 or F16 view. */
static inline float weft_i_ref_get(const weft_view *v, int64_t r, int64_t c)
{
    const int64_t i = r * v->ld + c;
    if (v->dtype == WEFT_DTYPE_BF16)
        return weft_i_bf16_to_f32(((const uint16_t *)v->data)[i]);
    if (v->dtype == WEFT_DTYPE_F16)
        return weft_i_f16_to_f32(((const uint16_t *)v->data)[i]);
    return ((const float *)v->data)[i];
}

/** Sets element (r, c) of an F32, BF16 or F16 view, rounding x once. */
static inline void weft_i_ref_set(const weft_view *v, int64_t r, int64_t c, double x)
{
    const size_t at = (size_t)(r * v->ld + c) * weft_dtype_bytes(v->dtype);
    (void)weft_i_convert((char *)v->data + at, v->dtype, &x, WEFT_DTYPE_F64, 1);
}

/** Row r of an I32 view with one column: ids, positions, targets. */
static inline int32_t weft_i_ref_id(const weft_view *v, int64_t r)
{
    return ((const int32_t *)v->data)[r * v->ld];
}

/** What dropout multiplies element `elem` (of the full row) of row r by: 0, or 1 / (1 - p), or 1 without dropout. */
float weft_i_ref_dropout_factor(const weft_dropout *d, int64_t r, int64_t elem);

weft_op_fn weft_i_ref_fill;
weft_op_fn weft_i_ref_copy;
weft_op_fn weft_i_ref_add;
weft_op_fn weft_i_ref_scale;
weft_op_fn weft_i_ref_init_normal;
weft_op_fn weft_i_ref_gather_rows;
weft_op_fn weft_i_ref_sum;
weft_op_fn weft_i_ref_sum_squares;
weft_op_fn weft_i_ref_find_nonfinite;
weft_op_fn weft_i_ref_gemm;
weft_op_fn weft_i_ref_column_sum;
weft_op_fn weft_i_ref_embedding_forward;
weft_op_fn weft_i_ref_embedding_backward;
weft_op_fn weft_i_ref_norm_forward;
weft_op_fn weft_i_ref_norm_backward_input;
weft_op_fn weft_i_ref_norm_backward_weight;
weft_op_fn weft_i_ref_activation_forward;
weft_op_fn weft_i_ref_activation_backward;
weft_op_fn weft_i_ref_residual;
weft_op_fn weft_i_ref_dropout;
weft_op_fn weft_i_ref_rope;
weft_op_fn weft_i_ref_attention_forward;
weft_op_fn weft_i_ref_attention_backward;
weft_op_fn weft_i_ref_xent_stats;
weft_op_fn weft_i_ref_xent_rescale;
weft_op_fn weft_i_ref_xent_loss;
weft_op_fn weft_i_ref_xent_grad;
weft_op_fn weft_i_ref_adamw;
weft_op_fn weft_i_ref_sgd;

/** Bytes of workspace of the two operations that need any. */
size_t weft_i_ref_attention_forward_bytes(const weft_attention_shape *s);
size_t weft_i_ref_attention_backward_bytes(const weft_attention_shape *s);

#endif
