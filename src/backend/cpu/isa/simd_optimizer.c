/**
 * AdamW (Loshchilov, Hutter, arXiv:1711.05101) and SGD in one pass over weights, gradient and moments.
 */
#include "backend/cpu/isa/kernels.h"

#include <math.h>

#include "backend/cpu/isa/simd.h"

/** Numbers of the step: taken in double and rounded once, where they meet a tensor (as PyTorch does). */
typedef struct adamw_numbers {
    float keep, lerp, beta2, rest2, step, root_bias2, eps, grad_scale;
} adamw_numbers;

/**
 * p: fp32 weights; rounded: their bf16 copy or NULL. Every operation is rounded in PyTorch's order, without fused
 * multiply-adds, so the bits are the same on every machine: memory, not arithmetic, sets the pace here.
 */
static WEFT_ALWAYS_INLINE void adamw_loop(float *p,
                                          uint16_t *rounded,
                                          const float *grad,
                                          float *m,
                                          float *v,
                                          int64_t n,
                                          const adamw_numbers *k)
{
    const adamw_numbers c = *k;
    WEFT_SIMD
    for (int64_t i = 0; i < n; i++) {
        const float g = grad[i] * c.grad_scale;
        const float m1 = m[i] + c.lerp * (g - m[i]);
        const float v1 = v[i] * c.beta2 + c.rest2 * g * g;
        const float w = p[i] * c.keep + c.step * m1 / (sqrtf(v1) / c.root_bias2 + c.eps);
        m[i] = m1;
        v[i] = v1;
        p[i] = w;
        if (rounded != NULL)
            rounded[i] = bf16_of_float(w);
    }
}

void WEFT_ISA_NAME(adamw)(const weft_adamw_args *a, int64_t first, int64_t n)
{
    const adamw_numbers k = {
        .keep = (float)(1.0 - a->lr * a->decay),
        .lerp = (float)(1.0 - a->beta1),
        .beta2 = (float)a->beta2,
        .rest2 = (float)(1.0 - a->beta2),
        .step = (float)(-a->lr / a->bias1),
        .root_bias2 = (float)sqrt(a->bias2),
        .eps = (float)a->eps,
        .grad_scale = a->grad_scale,
    };
    float *const m = (float *)a->m.data + first, *const v = (float *)a->v.data + first;
    const float *const grad = (const float *)a->grad.data + first;
    const bool has_master = a->master.data != NULL;
    float *const p = (has_master ? (float *)a->master.data : (float *)a->x.data) + first;
    if (!has_master) {
        adamw_loop(p, NULL, grad, m, v, n, &k);
    } else if (a->x.dtype == WEFT_DTYPE_BF16) {
        adamw_loop(p, (uint16_t *)a->x.data + first, grad, m, v, n, &k);
    } else {
        adamw_loop(p, NULL, grad, m, v, n, &k);
        memcpy((float *)a->x.data + first, p, (size_t)n * sizeof(float));
    }
}

void WEFT_ISA_NAME(sgd)(const weft_sgd_args *a, int64_t first, int64_t n)
{
    const bool has_master = a->master.data != NULL;
    float *const p = (has_master ? (float *)a->master.data : (float *)a->x.data) + first;
    const float *const grad = (const float *)a->grad.data + first;
    const float scale = a->grad_scale, decay = a->decay, lr = a->lr, momentum = a->momentum;
    if (momentum > 0.0f) {
        float *const m = (float *)a->m.data + first;
        WEFT_SIMD
        for (int64_t i = 0; i < n; i++) {
            const float g = grad[i] * scale + decay * p[i];
            m[i] = m[i] * momentum + g;
            p[i] = p[i] - lr * m[i];
        }
    } else {
        WEFT_SIMD
        for (int64_t i = 0; i < n; i++)
            p[i] = p[i] - lr * (grad[i] * scale + decay * p[i]);
    }
    if (has_master)
        WEFT_ISA_NAME(convert)
    ((char *)a->x.data + (size_t)first * (a->x.dtype == WEFT_DTYPE_BF16 ? 2u : 4u), a->x.dtype, p,
     WEFT_DTYPE_F32, n);
}
