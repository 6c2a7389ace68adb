/**
 * LayerNorm (Ba et al. 2016) and RMSNorm (Zhang, Sennrich 2019), forward and backward.
 *
 * A row is one thread's; the variance is that of the centred row (two passes over a row in cache). Gains' gradients: a
 * task owns columns and adds the rows in order, in blocks of SUM_ROWS so that rounding errors do not pile up.
 */
#include "backend/cpu/isa/kernels.h"

#include <math.h>

#include "backend/cpu/isa/simd.h"

enum { SUM_ROWS = 64, STRIPE = 128 };

/** The many types a call can have; `is_bf16` is a compile-time constant in each copy. */
typedef struct norm_row {
    const void *x;
    const void *gain;
    const void *bias;
    bool is_gain_bf16;
} norm_row;

static WEFT_ALWAYS_INLINE void layer_forward_row(void *y,
                                                 const norm_row *w,
                                                 int64_t n,
                                                 float eps,
                                                 float stats[2],
                                                 bool is_bf16,
                                                 bool is_gain_bf16)
{
    const void *const x = w->x, *const gain = w->gain, *const bias = w->bias;
    float sum = 0.0f;
    WEFT_SIMD_SUM(sum)
    for (int64_t i = 0; i < n; i++)
        sum += load(x, i, is_bf16);
    const float mean = sum / (float)n;
    float square = 0.0f;
    WEFT_SIMD_SUM(square)
    for (int64_t i = 0; i < n; i++) {
        const float d = load(x, i, is_bf16) - mean;
        square = weft_fma(d, d, square);
    }
    const float rstd = 1.0f / sqrtf(square / (float)n + eps);
    stats[0] = mean;
    stats[1] = rstd;
    if (bias == NULL) {
        WEFT_SIMD
        for (int64_t i = 0; i < n; i++)
            store(y, i, (load(x, i, is_bf16) - mean) * rstd * load(gain, i, is_gain_bf16), is_bf16);
        return;
    }
    WEFT_SIMD
    for (int64_t i = 0; i < n; i++) {
        const float xhat = (load(x, i, is_bf16) - mean) * rstd;
        store(y, i, weft_fma(xhat, load(gain, i, is_gain_bf16), load(bias, i, is_gain_bf16)),
              is_bf16);
    }
}

static WEFT_ALWAYS_INLINE void rms_forward_row(void *y,
                                               const norm_row *w,
                                               int64_t n,
                                               float eps,
                                               float stats[2],
                                               bool is_bf16,
                                               bool is_gain_bf16)
{
    const void *const x = w->x, *const gain = w->gain;
    float square = 0.0f;
    WEFT_SIMD_SUM(square)
    for (int64_t i = 0; i < n; i++) {
        const float v = load(x, i, is_bf16);
        square = weft_fma(v, v, square);
    }
    const float rstd = 1.0f / sqrtf(square / (float)n + eps);
    stats[0] = 0.0f;
    stats[1] = rstd;
    WEFT_SIMD
    for (int64_t i = 0; i < n; i++)
        store(y, i, load(x, i, is_bf16) * rstd * load(gain, i, is_gain_bf16), is_bf16);
}

static WEFT_ALWAYS_INLINE void forward_rows(
    const weft_norm_forward_args *a, int64_t row, int64_t n, bool is_bf16, bool is_gain_bf16)
{
    for (int64_t r = row; r < row + n; r++) {
        norm_row w = {at(a->x, r, 0), a->gain.data, a->bias.data, is_gain_bf16};
        float stats[2];
        if (a->kind == WEFT_NORM_LAYER) {
            layer_forward_row(at(a->y, r, 0), &w, a->x.cols, a->eps, stats, is_bf16, is_gain_bf16);
            *(float *)at(a->mean, r, 0) = stats[0];
        } else {
            rms_forward_row(at(a->y, r, 0), &w, a->x.cols, a->eps, stats, is_bf16, is_gain_bf16);
        }
        *(float *)at(a->rstd, r, 0) = stats[1];
    }
}

void WEFT_ISA_NAME(norm_forward)(const weft_norm_forward_args *a, int64_t row, int64_t n)
{
    const bool is_gain_bf16 = a->gain.dtype == WEFT_DTYPE_BF16;
    if (a->x.dtype == WEFT_DTYPE_F32 && !is_gain_bf16)
        forward_rows(a, row, n, false, false);
    else if (a->x.dtype == WEFT_DTYPE_BF16 && is_gain_bf16)
        forward_rows(a, row, n, true, true);
    else
        forward_rows(a, row, n, a->x.dtype == WEFT_DTYPE_BF16, is_gain_bf16);
}

/**
 * With w = dy * gain and xhat the normalised row: dx = rstd (w - mean(w) - xhat mean(w xhat)); RMSNorm without mean(w).
 */
static WEFT_ALWAYS_INLINE void backward_row(const weft_norm_backward_input_args *a,
                                            int64_t r,
                                            bool is_layer,
                                            bool is_bf16,
                                            bool is_gain_bf16)
{
    const int64_t n = a->x.cols;
    const void *const x = at(a->x, r, 0), *const dy = at(a->dy, r, 0), *const gain = a->gain.data;
    void *const dx = at(a->dx, r, 0);
    const float mean = is_layer ? f32_at(a->mean, r) : 0.0f;
    const float rstd = f32_at(a->rstd, r);
    float sum = 0.0f, dot = 0.0f;
    WEFT_SIMD_PRAGMA(omp simd reduction(+ : sum, dot))
    for (int64_t i = 0; i < n; i++) {
        const float w = load(dy, i, is_bf16) * load(gain, i, is_gain_bf16);
        sum += w;
        dot = weft_fma(w, load(x, i, is_bf16) - mean, dot);
    }
    const float mean_w = is_layer ? sum / (float)n : 0.0f;
    const float slope = dot * rstd * rstd / (float)n; /* mean(w xhat) rstd */
    if (a->residual.data == NULL) {
        WEFT_SIMD
        for (int64_t i = 0; i < n; i++) {
            const float w = load(dy, i, is_bf16) * load(gain, i, is_gain_bf16);
            store(dx, i, rstd * (w - mean_w - (load(x, i, is_bf16) - mean) * slope), is_bf16);
        }
        return;
    }
    const void *const residual = at(a->residual, r, 0);
    WEFT_SIMD
    for (int64_t i = 0; i < n; i++) {
        const float w = load(dy, i, is_bf16) * load(gain, i, is_gain_bf16);
        const float d = rstd * (w - mean_w - (load(x, i, is_bf16) - mean) * slope);
        store(dx, i, d + load(residual, i, is_bf16), is_bf16);
    }
}

static WEFT_ALWAYS_INLINE void backward_rows(
    const weft_norm_backward_input_args *a, int64_t row, int64_t n, bool is_bf16, bool is_gain_bf16)
{
    for (int64_t r = row; r < row + n; r++) {
        if (a->kind == WEFT_NORM_LAYER)
            backward_row(a, r, true, is_bf16, is_gain_bf16);
        else
            backward_row(a, r, false, is_bf16, is_gain_bf16);
    }
}

void WEFT_ISA_NAME(norm_backward_input)(const weft_norm_backward_input_args *a,
                                        int64_t row,
                                        int64_t n)
{
    const bool is_gain_bf16 = a->gain.dtype == WEFT_DTYPE_BF16;
    if (a->x.dtype == WEFT_DTYPE_F32 && !is_gain_bf16)
        backward_rows(a, row, n, false, false);
    else if (a->x.dtype == WEFT_DTYPE_BF16 && is_gain_bf16)
        backward_rows(a, row, n, true, true);
    else
        backward_rows(a, row, n, a->x.dtype == WEFT_DTYPE_BF16, is_gain_bf16);
}

static WEFT_ALWAYS_INLINE void weight_row(float *restrict sums,
                                          const void *x,
                                          const void *dy,
                                          const float stats[2],
                                          int64_t n,
                                          bool is_bf16)
{
    const float mean = stats[0], rstd = stats[1];
    WEFT_SIMD
    for (int64_t c = 0; c < n; c++) {
        const float g = load(dy, c, is_bf16);
        sums[c] = weft_fma(g, (load(x, c, is_bf16) - mean) * rstd, sums[c]);
        sums[STRIPE + c] += g;
    }
}

/** sums [2][STRIPE]: of dy * xhat and of dy, over SUM_ROWS rows. */
static WEFT_ALWAYS_INLINE void weight_block(const weft_norm_backward_weight_args *a,
                                            int64_t col,
                                            int64_t n,
                                            int64_t r0,
                                            float *sums,
                                            bool is_bf16)
{
    const int64_t r1 = WEFT_MIN(r0 + SUM_ROWS, a->x.rows);
    for (int64_t c = 0; c < 2 * STRIPE; c++)
        sums[c] = 0.0f;
    for (int64_t r = r0; r < r1; r++) {
        const void *const x = at(a->x, r, col), *const dy = at(a->dy, r, col);
        const float stats[2] = {a->kind == WEFT_NORM_LAYER ? f32_at(a->mean, r) : 0.0f,
                                f32_at(a->rstd, r)};
        if (n == STRIPE)
            weight_row(sums, x, dy, stats, STRIPE, is_bf16);
        else
            weight_row(sums, x, dy, stats, n, is_bf16);
    }
}

static WEFT_ALWAYS_INLINE void
weight_stripe(const weft_norm_backward_weight_args *a, int64_t col, int64_t n, bool is_bf16)
{
    float total[2 * STRIPE], part[2 * STRIPE];
    for (int64_t c = 0; c < 2 * STRIPE; c++)
        total[c] = 0.0f;
    for (int64_t r = 0; r < a->x.rows; r += SUM_ROWS) {
        weight_block(a, col, n, r, part, is_bf16);
        WEFT_SIMD
        for (int64_t c = 0; c < 2 * STRIPE; c++)
            total[c] += part[c];
    }
    float *const dgain = at(a->dgain, 0, col);
    for (int64_t c = 0; c < n; c++)
        dgain[c] = a->is_added ? dgain[c] + total[c] : total[c];
    if (a->dbias.data == NULL)
        return;
    float *const dbias = at(a->dbias, 0, col);
    for (int64_t c = 0; c < n; c++)
        dbias[c] = a->is_added ? dbias[c] + total[STRIPE + c] : total[STRIPE + c];
}

void WEFT_ISA_NAME(norm_backward_weight)(const weft_norm_backward_weight_args *a,
                                         int64_t col,
                                         int64_t n)
{
    for (int64_t c = 0; c < n; c += STRIPE) {
        const int64_t m = WEFT_MIN(n - c, (int64_t)STRIPE);
        if (a->x.dtype == WEFT_DTYPE_BF16)
            weight_stripe(a, col + c, m, true);
        else
            weight_stripe(a, col + c, m, false);
    }
}
