/* LayerNorm and RMSNorm over rows, with the parameters' hooks. Used inside blocks and before the head. */
#ifndef WEFT_NN_NORM_H
#define WEFT_NN_NORM_H

#include "weft/ext/layer.h"

typedef struct weft_norm {
    weft_norm_kind kind;
    double eps;
    weft_param *gain;
    weft_param *bias; /* LayerNorm; NULL: none */
} weft_norm;

/** y, mean, rstd from x. mean is written for LayerNorm only. */
weft_status weft_i_norm_forward(
    weft_exec *e, const weft_norm *n, weft_view x, weft_view y, weft_view mean, weft_view rstd);

/** What backward reads: the norm's input, the gradient of its output, its statistics. */
typedef struct weft_norm_backward {
    weft_view x, dy, mean, rstd;
} weft_norm_backward;

/** dx = gradient of x + residual (residual optional; may be dx). */
weft_status weft_i_norm_backward_input(weft_exec *e,
                                       const weft_norm *n,
                                       const weft_norm_backward *b,
                                       weft_view residual,
                                       weft_view dx);

/** Where the gradients of gain and bias go; is_gain, is_bias: false when frozen or absent. */
typedef struct weft_norm_targets {
    weft_grad_target gain, bias;
    bool is_gain, is_bias;
} weft_norm_targets;

/** begin once, weight for each chunk of rows (a second one adds), end once. */
weft_status weft_i_norm_grad_begin(weft_exec *e, const weft_norm *n, weft_norm_targets *t);
weft_status weft_i_norm_backward_weight(weft_exec *e,
                                        const weft_norm *n,
                                        const weft_norm_backward *b,
                                        weft_norm_targets *t);
weft_status weft_i_norm_grad_end(weft_exec *e, const weft_norm *n, const weft_norm_targets *t);

#endif
