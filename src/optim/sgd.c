/*
 * SGD on a span: the arguments of the backend's one-pass operation (contract of WEFT_OP_SGD; weight decay is added to the
 * gradient, as in PyTorch).
 */
#include "optim/optimizer.h"

#include "backend/run_op.h"
#include "base/ctx.h"

weft_status weft_i_sgd_apply(weft_optimizer *o,
                             weft_arena *workspace,
                             const weft_span *span,
                             const weft_optimizer_step *step)
{
    const weft_optimizer_options *c = &o->options;
    const int64_t n = span->value.cols;
    const weft_sgd_args args = {
        .x = span->value,
        .master = weft_i_optimizer_state(o, WEFT_STATE_MASTER, span->first, n),
        .grad = span->grad,
        .m = weft_i_optimizer_state(o, WEFT_STATE_MOMENTUM, span->first, n),
        .lr = (float)step->lr,
        .momentum = (float)c->momentum,
        .decay = span->is_decayed ? (float)c->weight_decay : 0.0f,
        .grad_scale = (float)step->grad_scale,
    };
    return weft_i_op_run(o->ctx->backend, WEFT_OP_SGD, &args, workspace);
}
