/*
 * Linear maps (contract: linear.h). Three products a map: y = x W^T, dx = dy W, dW = dy^T x.
 *
 * Communication: none. Leaves to others: where a gradient goes and whether it adds (exec.c and its hooks).
 */
#include "nn/linear.h"

#include "base/error.h"

int64_t weft_i_linear_stack(const weft_linear *l)
{
    return l->n_strips > 0 ? l->n_strips : 1;
}

int64_t weft_i_linear_out(const weft_linear *l)
{
    int64_t n = 0;
    for (int i = 0; i < l->n_parts; i++)
        n += l->out[i];
    return n;
}

/* Whether `next` starts where `first` ends, both without gaps between rows. */
static bool are_adjacent(weft_view first, weft_view next)
{
    const size_t bytes = (size_t)(first.rows * first.ld) * weft_dtype_bytes(first.dtype);
    return (const char *)first.data + bytes == (const char *)next.data && first.ld == first.cols &&
           next.ld == next.cols;
}

/* One matrix over two that lie one after another: rows grow, also where each has one row. False when they do not. */
static bool join_weights(weft_view *joined, weft_view next)
{
    if (!are_adjacent(*joined, next) || joined->cols != next.cols)
        return false;
    joined->rows += next.rows;
    return true;
}

/* The same for biases, which are one row each: columns grow. */
static bool join_biases(weft_view *joined, weft_view next)
{
    if (!are_adjacent(*joined, next))
        return false;
    joined->cols += next.cols;
    joined->ld = joined->cols;
    return true;
}

/* The values of parts [first, first + *n) as one matrix: as many as are adjacent. */
static weft_view joined_values(const weft_linear *l, int first, int *n, weft_view *bias)
{
    weft_view w = l->weight[first]->value;
    const bool has_bias = l->bias[first] != NULL && !l->is_bias_apart;
    *bias = has_bias ? l->bias[first]->value : weft_view_none();
    *n = 1;
    while (first + *n < l->n_parts) {
        weft_view longer = w;
        weft_view longer_bias = *bias;
        if (!join_weights(&longer, l->weight[first + *n]->value))
            break;
        if (has_bias && !join_biases(&longer_bias, l->bias[first + *n]->value))
            break;
        w = longer;
        *bias = longer_bias;
        (*n)++;
    }
    return w;
}

/* weft_exec_need or weft_exec_done for every parameter a product reads. */
static weft_status for_all(weft_exec *e,
                           const weft_linear *l,
                           bool is_bias_read,
                           weft_status (*announce)(weft_exec *e, weft_param *p))
{
    for (int i = 0; i < l->n_parts; i++) {
        WEFT_TRY(announce(e, l->weight[i]));
        if (is_bias_read && l->bias[i] != NULL)
            WEFT_TRY(announce(e, l->bias[i]));
    }
    return WEFT_OK;
}

static weft_status forward_products(weft_exec *e, const weft_linear *l, weft_view x, weft_view y)
{
    int64_t col = 0;
    int n = 0;
    for (int i = 0; i < l->n_parts; i += n) {
        weft_view bias;
        const weft_view w = joined_values(l, i, &n, &bias);
        const int64_t cols = l->is_in_out ? w.cols : w.rows;
        const weft_gemm_args g = {.c = weft_view_cols(y, col, cols),
                                  .a = x,
                                  .b = w,
                                  .bias = bias,
                                  .is_b_transposed = !l->is_in_out};
        WEFT_TRY(weft_exec_op(e, WEFT_OP_GEMM, &g));
        col += cols;
    }
    return WEFT_OK;
}

weft_status weft_i_linear_forward(weft_exec *e, const weft_linear *l, weft_view x, weft_view y)
{
    WEFT_TRY(for_all(e, l, !l->is_bias_apart, weft_exec_need));
    WEFT_TRY(l->n_strips > 0 ? weft_i_strips_forward(e, l, x, y) : forward_products(e, l, x, y));
    return for_all(e, l, !l->is_bias_apart, weft_exec_done);
}

static weft_status input_products(weft_exec *e, const weft_linear *l, weft_view dy, weft_view dx)
{
    int64_t col = 0;
    int n = 0;
    for (int i = 0; i < l->n_parts; i += n) {
        weft_view bias;
        const weft_view w = joined_values(l, i, &n, &bias);
        const int64_t cols = l->is_in_out ? w.cols : w.rows;
        const weft_gemm_args g = {.c = dx,
                                  .a = weft_view_cols(dy, col, cols),
                                  .b = w,
                                  .is_b_transposed = l->is_in_out,
                                  .is_added = i > 0};
        WEFT_TRY(weft_exec_op(e, WEFT_OP_GEMM, &g));
        col += cols;
    }
    return WEFT_OK;
}

weft_status
weft_i_linear_backward_input(weft_exec *e, const weft_linear *l, weft_view dy, weft_view dx)
{
    WEFT_TRY(for_all(e, l, false, weft_exec_need));
    WEFT_TRY(l->n_strips > 0 ? weft_i_strips_backward_input(e, l, dy, dx)
                             : input_products(e, l, dy, dx));
    return for_all(e, l, false, weft_exec_done);
}

/* dW (+)= of the columns of dy that belong to parts [first, first + n) whose targets are one matrix. */
static weft_status
weight_product(weft_exec *e, const weft_linear *l, weft_grad_target t, weft_view x, weft_view dy)
{
    const weft_gemm_args g = {.c = t.view,
                              .a = l->is_in_out ? x : dy,
                              .b = l->is_in_out ? dy : x,
                              .is_a_transposed = true,
                              .is_added = t.is_added};
    return weft_exec_op(e, WEFT_OP_GEMM, &g);
}

static weft_status weight_products(
    weft_exec *e, const weft_linear *l, const weft_grad_target *t, weft_view x, weft_view dy)
{
    int64_t col = 0;
    int n = 0;
    for (int i = 0; i < l->n_parts; i += n) {
        n = 1;
        int64_t cols = l->out[i];
        if (l->weight[i]->is_frozen) {
            col += cols;
            continue;
        }
        weft_grad_target joined = t[i];
        while (i + n < l->n_parts && !l->weight[i + n]->is_frozen &&
               t[i + n].is_added == joined.is_added) {
            weft_view longer = joined.view;
            if (!join_weights(&longer, t[i + n].view))
                break;
            joined.view = longer;
            cols += l->out[i + n];
            n++;
        }
        WEFT_TRY(weight_product(e, l, joined, x, weft_view_cols(dy, col, cols)));
        col += cols;
    }
    return WEFT_OK;
}

weft_status weft_i_linear_weight_product(
    weft_exec *e, const weft_linear *l, const weft_grad_target *t, weft_view x, weft_view dy)
{
    return l->n_strips > 0 ? weft_i_strips_weight_product(e, l, t, x, dy)
                           : weight_products(e, l, t, x, dy);
}

static weft_status weight_gradients(weft_exec *e, const weft_linear *l, weft_view x, weft_view dy)
{
    weft_grad_target t[WEFT_LINEAR_PARTS];
    for (int i = 0; i < l->n_parts; i++) {
        if (!l->weight[i]->is_frozen)
            WEFT_TRY(weft_exec_grad_begin(e, l->weight[i], &t[i]));
    }
    WEFT_TRY(weft_i_linear_weight_product(e, l, t, x, dy));
    for (int i = 0; i < l->n_parts; i++) {
        if (!l->weight[i]->is_frozen)
            WEFT_TRY(weft_exec_grad_end(e, l->weight[i]));
    }
    return WEFT_OK;
}

weft_status
weft_i_linear_backward_weight(weft_exec *e, const weft_linear *l, weft_view x, weft_view dy)
{
    WEFT_TRY(weight_gradients(e, l, x, dy));
    int64_t col = 0;
    for (int i = 0; i < l->n_parts; i++) {
        weft_param *b = l->bias[i];
        if (b != NULL && !b->is_frozen) {
            weft_grad_target t;
            WEFT_TRY(weft_exec_grad_begin(e, b, &t));
            const weft_column_sum_args s = {
                .out = t.view, .x = weft_view_cols(dy, col, l->out[i]), .is_added = t.is_added};
            WEFT_TRY(weft_exec_op(e, WEFT_OP_COLUMN_SUM, &s));
            WEFT_TRY(weft_exec_grad_end(e, b));
        }
        col += l->out[i];
    }
    return WEFT_OK;
}
