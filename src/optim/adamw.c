/*
 * AdamW on a span: the arguments of the backend's one-pass operation.
 *
 * Source: Loshchilov, Hutter, arXiv:1711.05101, in the order of operations that PyTorch has (contract of WEFT_OP_ADAMW).
 * The bias corrections 1 - beta^t are taken in double from the step's number, so a resumed run has the same ones.
 */
#include "optim/optimizer.h"

#include "backend/run_op.h"
#include "base/ctx.h"

#include <math.h>

weft_status weft_i_adamw_apply(weft_optimizer *o,
                               weft_arena *workspace,
                               const weft_span *span,
                               const weft_optimizer_step *step)
{
    const weft_optimizer_options *c = &o->options;
    const int64_t n = span->value.cols;
    const weft_adamw_args args = {
        .x = span->value,
        .master = weft_i_optimizer_state(o, WEFT_STATE_MASTER, span->first, n),
        .grad = span->grad,
        .m = weft_i_optimizer_state(o, WEFT_STATE_EXP_AVG, span->first, n),
        .v = weft_i_optimizer_state(o, WEFT_STATE_EXP_AVG_SQ, span->first, n),
        .lr = step->lr,
        .beta1 = c->beta1,
        .beta2 = c->beta2,
        .eps = c->eps,
        .decay = span->is_decayed ? c->weight_decay : 0.0,
        .bias1 = 1.0 - pow(c->beta1, (double)step->step),
        .bias2 = 1.0 - pow(c->beta2, (double)step->step),
        .grad_scale = (float)step->grad_scale,
    };
    return weft_i_op_run(o->ctx->backend, WEFT_OP_ADAMW, &args, workspace);
}
