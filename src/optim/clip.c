/*
 * The norm of the gradients and the factor that clipping gives.
 *
 * Nothing is scaled here: the factor goes into the optimizer's one pass (its grad_scale), so clipping reads and writes no
 * memory of its own.
 *
 * Source of the constant: PyTorch, torch.nn.utils.clip_grad_norm_.
 */
#include "optim/clip.h"

#include "backend/run_op.h"

#include <math.h>

#define NORM_FLOOR 1e-6

weft_status
weft_i_clip_add_squares(weft_sum *sum, weft_backend *b, weft_arena *workspace, weft_view grad)
{
    const weft_sum_args args = {.x = grad, .sum = sum};
    return weft_i_op_run(b, WEFT_OP_SUM_SQUARES, &args, workspace);
}

double weft_i_clip_norm(const weft_sum *squares)
{
    return sqrt(weft_i_sum_value(squares));
}

double weft_i_clip_scale(double norm, double clip)
{
    if (clip <= 0.0)
        return 1.0;
    return fmin(1.0, clip / (norm + NORM_FLOOR));
}
