/**
 * Activations and their derivatives, with the product of a gated MLP.
 *
 * gelu_tanh(x) = 0.5 x (1 + tanh u) is computed as x * sigmoid(2 u), u = sqrt(2/pi) (x + 0.044715 x^3): the same
 * function, without the cancellation of 1 + tanh in its left tail. Source: Hendrycks, Gimpel 2016 (arXiv:1606.08415).
 */
#include "backend/cpu/isa/kernels.h"

#include "backend/cpu/isa/simd.h"

#define GELU_A 1.5957691216f        /* 2 sqrt(2 / pi) */
#define GELU_B 0.0713548162726f     /* GELU_A * 0.044715 */
#define SQRT_HALF 0.70710678118655f /* 1 / sqrt 2 */
#define INV_SQRT_2PI 0.3989422804f  /* of the normal density */

static WEFT_ALWAYS_INLINE float normal_cdf(float x, float *density)
{
    const float t = (x < 0.0f ? -x : x) * SQRT_HALF;
    float gauss;
    const float half_tail = 0.5f * erfc_f32(t, &gauss);
    *density = gauss * INV_SQRT_2PI;
    return x < 0.0f ? half_tail : 1.0f - half_tail;
}

static WEFT_ALWAYS_INLINE float value_of(weft_activation kind, float x)
{
    if (kind == WEFT_ACTIVATION_GELU_TANH)
        return x * sigmoid_f32(x * weft_fma(GELU_B * x, x, GELU_A));
    if (kind == WEFT_ACTIVATION_SILU)
        return x * sigmoid_f32(x);
    if (kind == WEFT_ACTIVATION_RELU)
        return x > 0.0f ? x : 0.0f;
    float density;
    return x * normal_cdf(x, &density);
}

/** act'(x); *value = act(x). */
static WEFT_ALWAYS_INLINE float slope_of(weft_activation kind, float x, float *value)
{
    if (kind == WEFT_ACTIVATION_GELU_TANH) {
        const float s = sigmoid_f32(x * weft_fma(GELU_B * x, x, GELU_A));
        *value = x * s;
        return weft_fma(*value * (1.0f - s), weft_fma(3.0f * GELU_B * x, x, GELU_A), s);
    }
    if (kind == WEFT_ACTIVATION_SILU) {
        const float s = sigmoid_f32(x);
        *value = x * s;
        return weft_fma(*value, 1.0f - s, s);
    }
    if (kind == WEFT_ACTIVATION_RELU) {
        *value = x > 0.0f ? x : 0.0f;
        return x > 0.0f ? 1.0f : 0.0f;
    }
    float density;
    const float cdf = normal_cdf(x, &density);
    *value = x * cdf;
    return weft_fma(x, density, cdf);
}

static WEFT_ALWAYS_INLINE void
forward_loop(weft_activation kind, void *y, const void *x, const void *up, int64_t n, bool is_bf16)
{
    if (up == NULL) {
        WEFT_SIMD
        for (int64_t i = 0; i < n; i++)
            store(y, i, value_of(kind, load(x, i, is_bf16)), is_bf16);
        return;
    }
    WEFT_SIMD
    for (int64_t i = 0; i < n; i++)
        store(y, i, value_of(kind, load(x, i, is_bf16)) * load(up, i, is_bf16), is_bf16);
}

/* Where a run of elements of each operand starts; up and dup NULL without a gate. */
typedef struct backward_rows {
    void *dx, *dup;
    const void *dy, *x, *up;
} backward_rows;

static WEFT_ALWAYS_INLINE void
backward_loop(weft_activation kind, const backward_rows *rows, int64_t n, bool is_bf16)
{
    void *const dx = rows->dx, *const dup = rows->dup;
    const void *const dy = rows->dy, *const x = rows->x, *const up = rows->up;
    if (up == NULL) {
        WEFT_SIMD
        for (int64_t i = 0; i < n; i++) {
            float value;
            const float slope = slope_of(kind, load(x, i, is_bf16), &value);
            store(dx, i, load(dy, i, is_bf16) * slope, is_bf16);
        }
        return;
    }
    WEFT_SIMD
    for (int64_t i = 0; i < n; i++) {
        float value;
        const float slope = slope_of(kind, load(x, i, is_bf16), &value);
        const float g = load(dy, i, is_bf16);
        const float u = load(up, i, is_bf16);
        store(dx, i, g * slope * u, is_bf16);
        store(dup, i, g * value, is_bf16);
    }
}

static WEFT_ALWAYS_INLINE void
forward_typed(weft_activation kind, void *y, const void *x, const void *up, int64_t n, bool is_bf16)
{
    if (kind == WEFT_ACTIVATION_GELU_TANH)
        forward_loop(WEFT_ACTIVATION_GELU_TANH, y, x, up, n, is_bf16);
    else if (kind == WEFT_ACTIVATION_SILU)
        forward_loop(WEFT_ACTIVATION_SILU, y, x, up, n, is_bf16);
    else if (kind == WEFT_ACTIVATION_RELU)
        forward_loop(WEFT_ACTIVATION_RELU, y, x, up, n, is_bf16);
    else
        forward_loop(WEFT_ACTIVATION_GELU_ERF, y, x, up, n, is_bf16);
}

static WEFT_ALWAYS_INLINE void
backward_typed(weft_activation kind, const backward_rows *rows, int64_t n, bool is_bf16)
{
    if (kind == WEFT_ACTIVATION_GELU_TANH)
        backward_loop(WEFT_ACTIVATION_GELU_TANH, rows, n, is_bf16);
    else if (kind == WEFT_ACTIVATION_SILU)
        backward_loop(WEFT_ACTIVATION_SILU, rows, n, is_bf16);
    else if (kind == WEFT_ACTIVATION_RELU)
        backward_loop(WEFT_ACTIVATION_RELU, rows, n, is_bf16);
    else
        backward_loop(WEFT_ACTIVATION_GELU_ERF, rows, n, is_bf16);
}

void WEFT_ISA_NAME(activation_forward)(const weft_activation_forward_args *a,
                                       int64_t row,
                                       int64_t col,
                                       int64_t n)
{
    const void *const up = a->up.data == NULL ? NULL : at(a->up, row, col);
    if (a->y.dtype == WEFT_DTYPE_BF16)
        forward_typed(a->kind, at(a->y, row, col), at(a->x, row, col), up, n, true);
    else
        forward_typed(a->kind, at(a->y, row, col), at(a->x, row, col), up, n, false);
}

void WEFT_ISA_NAME(activation_backward)(const weft_activation_backward_args *a,
                                        int64_t row,
                                        int64_t col,
                                        int64_t n)
{
    const backward_rows rows = {.dx = at(a->dx, row, col),
                                .dup = a->up.data == NULL ? NULL : at(a->dup, row, col),
                                .dy = at(a->dy, row, col),
                                .x = at(a->x, row, col),
                                .up = a->up.data == NULL ? NULL : at(a->up, row, col)};
    if (a->dx.dtype == WEFT_DTYPE_BF16)
        backward_typed(a->kind, &rows, n, true);
    else
        backward_typed(a->kind, &rows, n, false);
}
