/*
 * Norms (contract: norm.h). Source: Ba et al. 2016 (arXiv:1607.06450), Zhang and Sennrich 2019 (arXiv:1910.07467).
 * Communication: none.
 */
#include "nn/norm.h"

#include "base/error.h"

weft_status weft_i_norm_forward(
    weft_exec *e, const weft_norm *n, weft_view x, weft_view y, weft_view mean, weft_view rstd)
{
    WEFT_TRY(weft_exec_need(e, n->gain));
    if (n->bias != NULL)
        WEFT_TRY(weft_exec_need(e, n->bias));
    const weft_norm_forward_args a = {.kind = n->kind,
                                      .eps = (float)n->eps,
                                      .y = y,
                                      .mean = n->kind == WEFT_NORM_LAYER ? mean : weft_view_none(),
                                      .rstd = rstd,
                                      .x = x,
                                      .gain = n->gain->value,
                                      .bias = n->bias != NULL ? n->bias->value : weft_view_none()};
    WEFT_TRY(weft_exec_op(e, WEFT_OP_NORM_FORWARD, &a));
    if (n->bias != NULL)
        WEFT_TRY(weft_exec_done(e, n->bias));
    return weft_exec_done(e, n->gain);
}

weft_status weft_i_norm_backward_input(
    weft_exec *e, const weft_norm *n, const weft_norm_backward *b, weft_view residual, weft_view dx)
{
    WEFT_TRY(weft_exec_need(e, n->gain));
    const weft_norm_backward_input_args a = {.kind = n->kind,
                                             .dx = dx,
                                             .dy = b->dy,
                                             .residual = residual,
                                             .x = b->x,
                                             .gain = n->gain->value,
                                             .mean = n->kind == WEFT_NORM_LAYER ? b->mean
                                                                                : weft_view_none(),
                                             .rstd = b->rstd};
    WEFT_TRY(weft_exec_op(e, WEFT_OP_NORM_BACKWARD_INPUT, &a));
    return weft_exec_done(e, n->gain);
}

weft_status weft_i_norm_grad_begin(weft_exec *e, const weft_norm *n, weft_norm_targets *t)
{
    t->is_gain = !n->gain->is_frozen;
    t->is_bias = n->bias != NULL && !n->bias->is_frozen;
    if (t->is_gain)
        WEFT_TRY(weft_exec_grad_begin(e, n->gain, &t->gain));
    if (t->is_bias)
        WEFT_TRY(weft_exec_grad_begin(e, n->bias, &t->bias));
    return WEFT_OK;
}

/* v with all rows, where a method wants that; else as it is. */
static weft_status all_rows(weft_exec *e, weft_view *v)
{
    const weft_region_kind kind = WEFT_REGION_NORM_ROWS;
    const weft_view here = *v;
    if (here.data == NULL && here.rows == 0)
        return WEFT_OK;
    WEFT_TRY(weft_exec_region_start(e, kind, WEFT_PASS_FORWARD, here, v));
    return weft_exec_region_finish(e, kind, WEFT_PASS_FORWARD, here, *v);
}

static weft_status weight_gradients(weft_exec *e,
                                    const weft_norm *n,
                                    const weft_norm_backward *b,
                                    weft_norm_targets *t)
{
    /* The bias alone, where the operation cannot do both: the gain is frozen, or only one of the two adds. */
    const bool is_bias_apart = t->is_bias && (!t->is_gain || t->bias.is_added != t->gain.is_added);
    if (is_bias_apart) {
        const weft_column_sum_args s = {
            .out = t->bias.view, .x = b->dy, .is_added = t->bias.is_added};
        WEFT_TRY(weft_exec_op(e, WEFT_OP_COLUMN_SUM, &s));
    }
    if (t->is_gain) {
        const weft_norm_backward_weight_args a = {
            .kind = n->kind,
            .dgain = t->gain.view,
            .dbias = t->is_bias && !is_bias_apart ? t->bias.view : weft_view_none(),
            .dy = b->dy,
            .x = b->x,
            .mean = n->kind == WEFT_NORM_LAYER ? b->mean : weft_view_none(),
            .rstd = b->rstd,
            .is_added = t->gain.is_added};
        WEFT_TRY(weft_exec_op(e, WEFT_OP_NORM_BACKWARD_WEIGHT, &a));
    }
    t->gain.is_added = true;
    t->bias.is_added = true;
    return WEFT_OK;
}

weft_status weft_i_norm_backward_weight(weft_exec *e,
                                        const weft_norm *n,
                                        const weft_norm_backward *b,
                                        weft_norm_targets *t)
{
    const size_t mark = weft_exec_mark(e);
    weft_norm_backward whole = *b;
    if (!t->is_gain && !t->is_bias)
        return WEFT_OK;
    WEFT_TRY(all_rows(e, &whole.x));
    WEFT_TRY(all_rows(e, &whole.dy));
    WEFT_TRY(all_rows(e, &whole.rstd));
    if (n->kind == WEFT_NORM_LAYER)
        WEFT_TRY(all_rows(e, &whole.mean));
    WEFT_TRY(weight_gradients(e, n, &whole, t));
    weft_exec_reset(e, mark);
    return WEFT_OK;
}

weft_status weft_i_norm_grad_end(weft_exec *e, const weft_norm *n, const weft_norm_targets *t)
{
    if (t->is_gain)
        WEFT_TRY(weft_exec_grad_end(e, n->gain));
    if (t->is_bias)
        WEFT_TRY(weft_exec_grad_end(e, n->bias));
    return WEFT_OK;
}
