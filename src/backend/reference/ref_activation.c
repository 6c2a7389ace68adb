/*
 * Reference activations, gated or not, and dropout with what is fused to it.
 *
 * Sources: GELU, its tanh form and SiLU: Hendrycks, Gimpel (arXiv:1606.08415); gated MLP: Shazeer (arXiv:2002.05202);
 * dropout: Srivastava et al., JMLR 15 (2014), scaled while training.
 */
#include <math.h>

#include "backend/dropout_mask.h"
#include "backend/reference/ref_ops.h"

#define SQRT_HALF 0.70710678118654752440
#define INV_SQRT_2PI 0.39894228040143267794
#define SQRT_2_OVER_PI 0.79788456080286535588
#define GELU_CUBIC 0.044715

static double sigmoid(double x)
{
    return 1.0 / (1.0 + exp(-x));
}

static double activate(weft_activation kind, double x)
{
    switch (kind) {
    case WEFT_ACTIVATION_GELU_TANH:
        return 0.5 * x * (1.0 + tanh(SQRT_2_OVER_PI * (x + GELU_CUBIC * x * x * x)));
    case WEFT_ACTIVATION_GELU_ERF:
        return 0.5 * x * (1.0 + erf(x * SQRT_HALF));
    case WEFT_ACTIVATION_RELU:
        return x > 0.0 || isnan(x) ? x : 0.0;
    case WEFT_ACTIVATION_SILU:
        return x * sigmoid(x);
    }
    return 0.0;
}

static double derivative(weft_activation kind, double x)
{
    switch (kind) {
    case WEFT_ACTIVATION_GELU_TANH: {
        const double t = tanh(SQRT_2_OVER_PI * (x + GELU_CUBIC * x * x * x));
        const double inner = SQRT_2_OVER_PI * (1.0 + 3.0 * GELU_CUBIC * x * x);
        return 0.5 * (1.0 + t) + 0.5 * x * (1.0 - t * t) * inner;
    }
    case WEFT_ACTIVATION_GELU_ERF:
        return 0.5 * (1.0 + erf(x * SQRT_HALF)) + x * INV_SQRT_2PI * exp(-0.5 * x * x);
    case WEFT_ACTIVATION_RELU:
        return x > 0.0 ? 1.0 : 0.0;
    case WEFT_ACTIVATION_SILU: {
        const double s = sigmoid(x);
        return s * (1.0 + x * (1.0 - s));
    }
    }
    return 0.0;
}

weft_status weft_i_ref_activation_forward(weft_backend *b, const void *args, void *workspace)
{
    const weft_activation_forward_args *a = args;
    (void)b;
    (void)workspace;
    for (int64_t r = 0; r < a->x.rows; r++) {
        for (int64_t c = 0; c < a->x.cols; c++) {
            const double y = activate(a->kind, (double)weft_i_ref_get(&a->x, r, c));
            const double up = a->up.data != NULL ? (double)weft_i_ref_get(&a->up, r, c) : 1.0;
            weft_i_ref_set(&a->y, r, c, y * up);
        }
    }
    return WEFT_OK;
}

weft_status weft_i_ref_activation_backward(weft_backend *b, const void *args, void *workspace)
{
    const weft_activation_backward_args *a = args;
    const bool is_gated = a->up.data != NULL;
    (void)b;
    (void)workspace;
    for (int64_t r = 0; r < a->x.rows; r++) {
        for (int64_t c = 0; c < a->x.cols; c++) {
            const double x = (double)weft_i_ref_get(&a->x, r, c);
            const double dy = (double)weft_i_ref_get(&a->dy, r, c); /* dx or dup may lie on dy */
            const double up = is_gated ? (double)weft_i_ref_get(&a->up, r, c) : 1.0;
            weft_i_ref_set(&a->dx, r, c, dy * derivative(a->kind, x) * up);
            if (is_gated)
                weft_i_ref_set(&a->dup, r, c, dy * activate(a->kind, x));
        }
    }
    return WEFT_OK;
}

float weft_i_ref_dropout_factor(const weft_dropout *d, int64_t r, int64_t elem)
{
    if (d->p <= 0.0f)
        return 1.0f;
    const int64_t sample = ((const int64_t *)d->sample.data)[r * d->sample.ld];
    const weft_rng_block words =
        weft_i_dropout_words(d, (uint32_t)(elem / 4), weft_i_ref_id(&d->position, r), sample);
    const bool is_kept = words.word[elem % 4] >= weft_i_dropout_threshold(d->p);
    return is_kept ? 1.0f / (1.0f - d->p) : 0.0f;
}

weft_status weft_i_ref_residual(weft_backend *b, const void *args, void *workspace)
{
    const weft_residual_args *a = args;
    (void)b;
    (void)workspace;
    for (int64_t r = 0; r < a->y.rows; r++) {
        for (int64_t c = 0; c < a->y.cols; c++) {
            double y = (double)weft_i_ref_get(&a->x, r, c);
            if (a->bias.data != NULL)
                y += (double)weft_i_ref_get(&a->bias, 0, c);
            y *= (double)weft_i_ref_dropout_factor(&a->dropout, r, a->dropout.first_elem + c);
            if (a->residual.data != NULL)
                y += (double)weft_i_ref_get(&a->residual, r, c);
            weft_i_ref_set(&a->y, r, c, y);
        }
    }
    return WEFT_OK;
}

weft_status weft_i_ref_dropout(weft_backend *b, const void *args, void *workspace)
{
    const weft_dropout_args *a = args;
    (void)b;
    (void)workspace;
    for (int64_t r = 0; r < a->y.rows; r++) {
        for (int64_t c = 0; c < a->y.cols; c++) {
            const float factor =
                weft_i_ref_dropout_factor(&a->dropout, r, a->dropout.first_elem + c);
            weft_i_ref_set(&a->y, r, c, (double)(weft_i_ref_get(&a->x, r, c) * factor));
        }
    }
    return WEFT_OK;
}
