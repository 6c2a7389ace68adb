/**
 * Linear maps: y = x W^T + b, over one weight or several side by side (q | k | v, gate | up).
 *
 * Weights are stored as Hugging Face files have them: [out, in] (Linear) or [in, out] (GPT-2's Conv1D). Parts whose
 * storage is adjacent are multiplied as one matrix: fewer and larger products. Storage order follows the model's list, so
 * whether parts are adjacent depends on sizes alone and is the same in every layout.
 */
#ifndef WEFT_NN_LINEAR_H
#define WEFT_NN_LINEAR_H

#include "weft/ext/layer.h"

#define WEFT_LINEAR_PARTS 3

/**
 * Outputs of a part (row-parallel: inputs) that are computed in strips: strip i has those from first + unit * end of strip
 * i - 1 to first + unit * its own end.
 */
typedef struct weft_linear_run {
    int part;
    int64_t first, unit;
} weft_linear_run;

typedef struct weft_linear {
    int n_parts;
    weft_param *weight[WEFT_LINEAR_PARTS];
    weft_param *bias[WEFT_LINEAR_PARTS]; /* all or none NULL */
    int64_t out[WEFT_LINEAR_PARTS];
    int64_t in;
    bool is_in_out;     /* weights are [in, out]; one part only */
    bool is_bias_apart; /* row-parallel: the bias is added after the region, by the caller */

    /* In strips (linear_strips.c) */
    int64_t n_strips;          /* 0: whole products */
    const int64_t *strip_ends; /* [n_strips], ascending; of the model */
    int n_runs;
    weft_linear_run run[WEFT_LINEAR_PARTS];
} weft_linear;

/** Rows of a product that is cut between strips, for each row of its result: the strips' own, one below the other. */
int64_t weft_i_linear_stack(const weft_linear *l);

/** Sum of out: columns of y. */
int64_t weft_i_linear_out(const weft_linear *l);

/** y [rows, out] = x [rows, in] W^T + b (without b when is_bias_apart; then [stack * rows, out], to be added up). */
weft_status weft_i_linear_forward(weft_exec *e, const weft_linear *l, weft_view x, weft_view y);

/** dx [rows, in] = dy W; of what is not row-parallel [stack * rows, in], to be added up. */
weft_status
weft_i_linear_backward_input(weft_exec *e, const weft_linear *l, weft_view dy, weft_view dx);

/** The product of weft_i_linear_backward_weight alone, into targets begun by the caller. */
weft_status weft_i_linear_weight_product(
    weft_exec *e, const weft_linear *l, const weft_grad_target *t, weft_view x, weft_view dy);

/** Gradients of W and of b (also when is_bias_apart: db = column sums of dy). Frozen parts are passed over. */
weft_status
weft_i_linear_backward_weight(weft_exec *e, const weft_linear *l, weft_view x, weft_view dy);

/* ---- linear_strips.c, for linear.c ---- */

weft_status weft_i_strips_forward(weft_exec *e, const weft_linear *l, weft_view x, weft_view y);
weft_status
weft_i_strips_backward_input(weft_exec *e, const weft_linear *l, weft_view dy, weft_view dx);
weft_status weft_i_strips_weight_product(
    weft_exec *e, const weft_linear *l, const weft_grad_target *t, weft_view x, weft_view dy);

#endif
