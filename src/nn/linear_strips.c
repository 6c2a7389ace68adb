/*
 * Products in strips: a product that tensor parallelism cuts is computed in the strips that any number of ranks cuts it in,
 * each by itself, so that a strip's numbers do not depend on how many of them lie here (contract: linear.h).
 *
 * Column-parallel: y and dW strip by strip, side by side; dx of every strip apart, one below the other. Row-parallel: y of
 * every strip apart, dx and dW strip by strip. What is apart is added up by the region that follows, in the order of all
 * strips (parallel/strip_sums.c).
 *
 * Invariant: operands and results of every product lie without gaps. The library of products picks its kernels by strides
 * as well as by sizes (seen: 12 rows, fp32), and strides are those of the slice.
 * Communication: none.
 */
#include "nn/linear.h"

#include "base/error.h"

/* A run of a strip: of its part outputs (row-parallel: inputs) [first, first + n), columns from `col` of y (of x). */
typedef struct run_at {
    int part;
    int64_t first, n, col;
} run_at;

static run_at run_of(const weft_linear *l, int64_t strip, int k)
{
    const weft_linear_run *run = &l->run[k];
    const int64_t start = strip > 0 ? l->strip_ends[strip - 1] : 0;
    run_at r = {.part = run->part,
                .first = run->first + run->unit * start,
                .n = run->unit * (l->strip_ends[strip] - start)};
    r.col = r.first;
    for (int i = 0; i < run->part; i++)
        r.col += l->out[i];
    return r;
}

/* Of a weight, or its gradient: what belongs to the run. */
static weft_view weight_of(const weft_linear *l, weft_view weight, const run_at *r)
{
    const bool is_by_rows = l->is_in_out == l->is_bias_apart;
    return is_by_rows ? weft_view_rows(weight, r->first, r->n)
                      : weft_view_cols(weight, r->first, r->n);
}

static weft_view strip_rows(weft_view stacked, int64_t strip, int64_t rows)
{
    return weft_view_rows(stacked, strip * rows, rows);
}

/* v, or a copy of it without gaps between rows. */
static weft_status dense(weft_exec *e, weft_view v, weft_view *out)
{
    *out = v;
    if (v.ld == v.cols)
        return WEFT_OK;
    WEFT_TRY(weft_exec_view(e, v.dtype, v.rows, v.cols, out));
    const weft_copy_args c = {.dst = *out, .src = v};
    return weft_exec_op(e, WEFT_OP_COPY, &c);
}

/* A product whose operands and result have no gaps, whatever lies beside them: the kernel chosen for it may see strides. */
static weft_status product(weft_exec *e, const weft_gemm_args *args)
{
    const size_t mark = weft_exec_mark(e);
    weft_gemm_args g = *args;
    WEFT_TRY(dense(e, args->a, &g.a));
    WEFT_TRY(dense(e, args->b, &g.b));
    if (g.c.ld != g.c.cols)
        WEFT_TRY(weft_exec_view(e, g.c.dtype, g.c.rows, g.c.cols, &g.c));
    WEFT_TRY(weft_exec_op(e, WEFT_OP_GEMM, &g));
    if (g.c.data != args->c.data) {
        const weft_copy_args c = {.dst = args->c, .src = g.c};
        WEFT_TRY(weft_exec_op(e, WEFT_OP_COPY, &c));
    }
    weft_exec_reset(e, mark);
    return WEFT_OK;
}

weft_status weft_i_strips_forward(weft_exec *e, const weft_linear *l, weft_view x, weft_view y)
{
    const bool is_row = l->is_bias_apart;
    for (int64_t i = 0; i < l->n_strips; i++) {
        for (int k = 0; k < l->n_runs; k++) {
            const run_at r = run_of(l, i, k);
            const bool has_bias = !is_row && l->bias[r.part] != NULL;
            const weft_gemm_args g = {
                .c = is_row ? strip_rows(y, i, x.rows) : weft_view_cols(y, r.col, r.n),
                .a = is_row ? weft_view_cols(x, r.col, r.n) : x,
                .b = weight_of(l, l->weight[r.part]->value, &r),
                .bias = has_bias ? weft_view_cols(l->bias[r.part]->value, r.first, r.n)
                                 : weft_view_none(),
                .is_b_transposed = !l->is_in_out};
            WEFT_TRY(product(e, &g));
        }
    }
    return WEFT_OK;
}

weft_status
weft_i_strips_backward_input(weft_exec *e, const weft_linear *l, weft_view dy, weft_view dx)
{
    const bool is_row = l->is_bias_apart;
    for (int64_t i = 0; i < l->n_strips; i++) {
        for (int k = 0; k < l->n_runs; k++) {
            const run_at r = run_of(l, i, k);
            const weft_gemm_args g = {.c = is_row ? weft_view_cols(dx, r.col, r.n)
                                                  : strip_rows(dx, i, dy.rows),
                                      .a = is_row ? dy : weft_view_cols(dy, r.col, r.n),
                                      .b = weight_of(l, l->weight[r.part]->value, &r),
                                      .is_b_transposed = l->is_in_out,
                                      .is_added = k > 0};
            WEFT_TRY(product(e, &g));
        }
    }
    return WEFT_OK;
}

/* What is there already is added apart from the product, where both lie without gaps and where they do not. */
static weft_status weight_product(weft_exec *e, const weft_gemm_args *args, bool is_added)
{
    const size_t mark = weft_exec_mark(e);
    weft_gemm_args g = *args;
    if (is_added)
        WEFT_TRY(weft_exec_view(e, g.c.dtype, g.c.rows, g.c.cols, &g.c));
    WEFT_TRY(product(e, &g));
    if (is_added) {
        const weft_add_args add = {.dst = args->c, .a = args->c, .b = g.c};
        WEFT_TRY(weft_exec_op(e, WEFT_OP_ADD, &add));
    }
    weft_exec_reset(e, mark);
    return WEFT_OK;
}

weft_status weft_i_strips_weight_product(
    weft_exec *e, const weft_linear *l, const weft_grad_target *t, weft_view x, weft_view dy)
{
    const bool is_row = l->is_bias_apart;
    for (int64_t i = 0; i < l->n_strips; i++) {
        for (int k = 0; k < l->n_runs; k++) {
            const run_at r = run_of(l, i, k);
            const weft_view in = is_row ? weft_view_cols(x, r.col, r.n) : x;
            const weft_view out = is_row ? dy : weft_view_cols(dy, r.col, r.n);
            if (l->weight[r.part]->is_frozen)
                continue;
            const weft_gemm_args g = {.c = weight_of(l, t[r.part].view, &r),
                                      .a = l->is_in_out ? in : out,
                                      .b = l->is_in_out ? out : in,
                                      .is_a_transposed = true};
            WEFT_TRY(weight_product(e, &g, t[r.part].is_added));
        }
    }
    return WEFT_OK;
}
