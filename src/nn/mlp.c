/* The activation of an MLP (contract: mlp.h). Gated form: Shazeer 2020 (arXiv:2002.05202). Communication: none. */
#include "nn/mlp.h"

static bool is_gated(const weft_mlp *m)
{
    return m->up.n_parts == 2;
}

weft_status weft_i_mlp_activate(weft_exec *e, const weft_mlp *m, weft_view up, weft_view product)
{
    const weft_activation_forward_args a = {
        .kind = m->activation,
        .y = product,
        .x = weft_view_cols(up, 0, m->width),
        .up = is_gated(m) ? weft_view_cols(up, m->width, m->width) : weft_view_none()};
    return weft_exec_op(e, WEFT_OP_ACTIVATION_FORWARD, &a);
}

weft_status weft_i_mlp_activate_backward(
    weft_exec *e, const weft_mlp *m, weft_view up, weft_view d_product, weft_view d_up)
{
    const weft_activation_backward_args a = {
        .kind = m->activation,
        .dx = weft_view_cols(d_up, 0, m->width),
        .dup = is_gated(m) ? weft_view_cols(d_up, m->width, m->width) : weft_view_none(),
        .dy = d_product,
        .x = weft_view_cols(up, 0, m->width),
        .up = is_gated(m) ? weft_view_cols(up, m->width, m->width) : weft_view_none()};
    return weft_exec_op(e, WEFT_OP_ACTIVATION_BACKWARD, &a);
}
