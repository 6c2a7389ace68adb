/*
 * Reference cross-entropy in steps: largest logit and sum of exponentials of the local vocabulary, the sum moved to
 * another largest logit, the loss, the gradient. Between the steps a cut vocabulary is reduced over its ranks.
 */
#include <math.h>

#include "backend/reference/ref_ops.h"

#define NOT_COUNTED (-100)

weft_status weft_i_ref_xent_stats(weft_backend *b, const void *args, void *workspace)
{
    const weft_xent_stats_args *a = args;
    (void)b;
    (void)workspace;
    for (int64_t r = 0; r < a->logits.rows; r++) {
        const int64_t local = (int64_t)weft_i_ref_id(&a->targets, r) - a->first_id;
        const bool is_local = local >= 0 && local < a->logits.cols;
        double max = -HUGE_VAL;
        double sum = 0.0;
        for (int64_t c = 0; c < a->logits.cols; c++) {
            const double logit = (double)weft_i_ref_get(&a->logits, r, c);
            max = logit > max || isnan(logit) ? logit : max;
        }
        for (int64_t c = 0; c < a->logits.cols; c++)
            sum += exp((double)weft_i_ref_get(&a->logits, r, c) - max);
        weft_i_ref_set(&a->max, r, 0, max);
        weft_i_ref_set(&a->sum, r, 0, sum);
        weft_i_ref_set(&a->target, r, 0,
                       is_local ? (double)weft_i_ref_get(&a->logits, r, local) : 0.0);
    }
    return WEFT_OK;
}

weft_status weft_i_ref_xent_rescale(weft_backend *b, const void *args, void *workspace)
{
    const weft_xent_rescale_args *a = args;
    (void)b;
    (void)workspace;
    for (int64_t r = 0; r < a->sum.rows; r++) {
        const double down =
            (double)weft_i_ref_get(&a->local_max, r, 0) - (double)weft_i_ref_get(&a->max, r, 0);
        weft_i_ref_set(&a->sum, r, 0, (double)weft_i_ref_get(&a->sum, r, 0) * exp(down));
    }
    return WEFT_OK;
}

weft_status weft_i_ref_xent_loss(weft_backend *b, const void *args, void *workspace)
{
    const weft_xent_loss_args *a = args;
    (void)b;
    (void)workspace;
    for (int64_t r = 0; r < a->loss.rows; r++) {
        const double above =
            (double)weft_i_ref_get(&a->max, r, 0) - (double)weft_i_ref_get(&a->target, r, 0);
        const double loss = above + log((double)weft_i_ref_get(&a->sum, r, 0));
        const bool is_counted = weft_i_ref_id(&a->targets, r) != NOT_COUNTED;
        weft_i_ref_set(&a->loss, r, 0, is_counted ? loss : 0.0);
    }
    return WEFT_OK;
}

weft_status weft_i_ref_xent_grad(weft_backend *b, const void *args, void *workspace)
{
    const weft_xent_grad_args *a = args;
    (void)b;
    (void)workspace;
    for (int64_t r = 0; r < a->logits.rows; r++) {
        const int32_t target = weft_i_ref_id(&a->targets, r);
        const double max = (double)weft_i_ref_get(&a->max, r, 0);
        const double sum = (double)weft_i_ref_get(&a->sum, r, 0);
        for (int64_t c = 0; c < a->logits.cols; c++) {
            const double p = exp((double)weft_i_ref_get(&a->logits, r, c) - max) / sum;
            const double wanted = a->first_id + c == target ? 1.0 : 0.0;
            const double grad = target != NOT_COUNTED ? (p - wanted) * (double)a->scale : 0.0;
            weft_i_ref_set(&a->dlogits, r, c, grad);
        }
    }
    return WEFT_OK;
}
