/*
 * Reference AdamW (Loshchilov, Hutter, arXiv:1711.05101) and SGD, in fp32, every operation rounded in PyTorch's order
 * (its single-tensor form): numbers of the step are taken in double and rounded to fp32 once, where they meet a tensor.
 */
#include <math.h>

#include "backend/reference/ref_ops.h"

/* Element i of a dense view that is counted as one row. */
static float dense_get(const weft_view *v, int64_t i)
{
    return ((const float *)v->data)[i];
}

/* p goes to the master when there is one, and its rounding to x. */
static void set_weight(const weft_view *x, const weft_view *master, int64_t i, float p)
{
    const weft_view row = weft_view_make(x->data, x->dtype, 1, x->rows * x->cols);
    if (master->data != NULL)
        ((float *)master->data)[i] = p;
    weft_i_ref_set(&row, 0, i, (double)p);
}

weft_status weft_i_ref_adamw(weft_backend *b, const void *args, void *workspace)
{
    const weft_adamw_args *a = args;
    const weft_view *weights = a->master.data != NULL ? &a->master : &a->x;
    const float keep = (float)(1.0 - a->lr * a->decay);
    const float lerp = (float)(1.0 - a->beta1);
    const float beta2 = (float)a->beta2;
    const float rest2 = (float)(1.0 - a->beta2);
    const float root_bias2 = (float)sqrt(a->bias2);
    const float eps = (float)a->eps;
    const float step = (float)(-a->lr / a->bias1);
    (void)b;
    (void)workspace;
    for (int64_t i = 0; i < a->x.rows * a->x.cols; i++) {
        const float g = dense_get(&a->grad, i) * a->grad_scale;
        const float p = dense_get(weights, i) * keep;
        const float m_old = dense_get(&a->m, i);
        const float m = m_old + lerp * (g - m_old);
        const float v = dense_get(&a->v, i) * beta2 + rest2 * g * g;
        const float denominator = sqrtf(v) / root_bias2 + eps;
        ((float *)a->m.data)[i] = m;
        ((float *)a->v.data)[i] = v;
        set_weight(&a->x, &a->master, i, p + step * m / denominator);
    }
    return WEFT_OK;
}

weft_status weft_i_ref_sgd(weft_backend *b, const void *args, void *workspace)
{
    const weft_sgd_args *a = args;
    const weft_view *weights = a->master.data != NULL ? &a->master : &a->x;
    (void)b;
    (void)workspace;
    for (int64_t i = 0; i < a->x.rows * a->x.cols; i++) {
        const float p = dense_get(weights, i);
        float g = dense_get(&a->grad, i) * a->grad_scale + a->decay * p;
        if (a->momentum > 0.0f) {
            g = dense_get(&a->m, i) * a->momentum + g;
            ((float *)a->m.data)[i] = g;
        }
        set_weight(&a->x, &a->master, i, p - a->lr * g);
    }
    return WEFT_OK;
}
