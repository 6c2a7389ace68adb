/*
 * Reference LayerNorm (Ba, Kiros, Hinton, arXiv:1607.06450) and RMSNorm (Zhang, Sennrich, arXiv:1910.07467).
 *
 * With xhat = (x - mean) * rstd and d = dy * gain, per row:
 *   LayerNorm dx = rstd * (d - average(d) - xhat * average(d * xhat))
 *   RMSNorm   dx = rstd * (d - xhat * average(d * xhat)),  mean = 0
 * The statistics of a row are taken in double and stored in fp32; the backward works from what was stored.
 */
#include <math.h>

#include "backend/reference/ref_ops.h"

weft_status weft_i_ref_norm_forward(weft_backend *b, const void *args, void *workspace)
{
    const weft_norm_forward_args *a = args;
    const double n = (double)a->x.cols;
    (void)b;
    (void)workspace;
    for (int64_t r = 0; r < a->x.rows; r++) {
        double mean = 0.0;
        for (int64_t c = 0; a->kind == WEFT_NORM_LAYER && c < a->x.cols; c++)
            mean += (double)weft_i_ref_get(&a->x, r, c) / n;
        double var = 0.0;
        for (int64_t c = 0; c < a->x.cols; c++) {
            const double centred = (double)weft_i_ref_get(&a->x, r, c) - mean;
            var += centred * centred / n;
        }
        const double rstd = 1.0 / sqrt(var + (double)a->eps);
        if (a->kind == WEFT_NORM_LAYER)
            weft_i_ref_set(&a->mean, r, 0, mean);
        weft_i_ref_set(&a->rstd, r, 0, rstd);
        for (int64_t c = 0; c < a->x.cols; c++) {
            const double xhat = ((double)weft_i_ref_get(&a->x, r, c) - mean) * rstd;
            const double bias = a->bias.data != NULL ? (double)weft_i_ref_get(&a->bias, 0, c) : 0.0;
            weft_i_ref_set(&a->y, r, c, xhat * (double)weft_i_ref_get(&a->gain, 0, c) + bias);
        }
    }
    return WEFT_OK;
}

/* (x - mean) * rstd of one element, from the stored statistics; mean is not read for RMS. */
static double normalised(const weft_view *x,
                         const weft_view *mean,
                         const weft_view *rstd,
                         weft_norm_kind kind,
                         int64_t r,
                         int64_t c)
{
    const double centre = kind == WEFT_NORM_LAYER ? (double)weft_i_ref_get(mean, r, 0) : 0.0;
    return ((double)weft_i_ref_get(x, r, c) - centre) * (double)weft_i_ref_get(rstd, r, 0);
}

weft_status weft_i_ref_norm_backward_input(weft_backend *b, const void *args, void *workspace)
{
    const weft_norm_backward_input_args *a = args;
    const double n = (double)a->x.cols;
    (void)b;
    (void)workspace;
    for (int64_t r = 0; r < a->x.rows; r++) {
        double average_d = 0.0;
        double average_dxhat = 0.0;
        for (int64_t c = 0; c < a->x.cols; c++) {
            const double d =
                (double)weft_i_ref_get(&a->dy, r, c) * (double)weft_i_ref_get(&a->gain, 0, c);
            average_d += d / n;
            average_dxhat += d * normalised(&a->x, &a->mean, &a->rstd, a->kind, r, c) / n;
        }
        if (a->kind == WEFT_NORM_RMS)
            average_d = 0.0;
        for (int64_t c = 0; c < a->x.cols; c++) {
            const double d =
                (double)weft_i_ref_get(&a->dy, r, c) * (double)weft_i_ref_get(&a->gain, 0, c);
            const double xhat = normalised(&a->x, &a->mean, &a->rstd, a->kind, r, c);
            const double dx =
                (double)weft_i_ref_get(&a->rstd, r, 0) * (d - average_d - xhat * average_dxhat);
            const double residual =
                a->residual.data != NULL ? (double)weft_i_ref_get(&a->residual, r, c) : 0.0;
            weft_i_ref_set(&a->dx, r, c, dx + residual);
        }
    }
    return WEFT_OK;
}

weft_status weft_i_ref_norm_backward_weight(weft_backend *b, const void *args, void *workspace)
{
    const weft_norm_backward_weight_args *a = args;
    const bool has_bias = a->dbias.data != NULL;
    (void)b;
    (void)workspace;
    for (int64_t c = 0; c < a->x.cols; c++) {
        double dgain = a->is_added ? (double)weft_i_ref_get(&a->dgain, 0, c) : 0.0;
        double dbias = a->is_added && has_bias ? (double)weft_i_ref_get(&a->dbias, 0, c) : 0.0;
        for (int64_t r = 0; r < a->x.rows; r++) {
            const double dy = (double)weft_i_ref_get(&a->dy, r, c);
            dgain += dy * normalised(&a->x, &a->mean, &a->rstd, a->kind, r, c);
            dbias += dy;
        }
        weft_i_ref_set(&a->dgain, 0, c, dgain);
        if (has_bias)
            weft_i_ref_set(&a->dbias, 0, c, dbias);
    }
    return WEFT_OK;
}
