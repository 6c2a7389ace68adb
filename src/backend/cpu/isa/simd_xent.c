/**
 * Cross-entropy over a row of logits, and its gradient. A row of a large vocabulary fits the second-level cache, so the
 * largest logit is found first and the exponentials are summed in a second pass over the row.
 */
#include "backend/cpu/isa/kernels.h"

#include "backend/cpu/isa/simd.h"

enum { NOT_COUNTED = -100, SUM_BLOCK = 4096 };

static float largest_of(const float *x, int64_t n)
{
    float best = -float_of_bits(0x7f800000u);
    WEFT_SIMD_PRAGMA(omp simd reduction(max : best))
    for (int64_t i = 0; i < n; i++)
        best = x[i] > best ? x[i] : best;
    return best;
}

/** In blocks, whose sums are added in double: 50,000 small terms must not lose the last digits. */
static float sum_of_exp(const float *x, int64_t n, float largest)
{
    double total = 0.0;
    for (int64_t b = 0; b < n; b += SUM_BLOCK) {
        const int64_t end = WEFT_MIN(b + SUM_BLOCK, n);
        float sum = 0.0f;
        WEFT_SIMD_SUM(sum)
        for (int64_t i = b; i < end; i++)
            sum += exp_down_f32(x[i] - largest);
        total += (double)sum;
    }
    return (float)total;
}

void WEFT_ISA_NAME(xent_stats)(const weft_xent_stats_args *a, int64_t row, int64_t n)
{
    const int64_t cols = a->logits.cols;
    for (int64_t r = row; r < row + n; r++) {
        const float *const x = at(a->logits, r, 0);
        const int64_t id = (int64_t)i32_at(a->targets, r) - a->first_id;
        const bool is_here = i32_at(a->targets, r) != NOT_COUNTED && id >= 0 && id < cols;
        const float largest = largest_of(x, cols);
        *(float *)at(a->max, r, 0) = largest;
        *(float *)at(a->sum, r, 0) = sum_of_exp(x, cols, largest);
        *(float *)at(a->target, r, 0) = is_here ? x[id] : 0.0f;
    }
}

static WEFT_ALWAYS_INLINE void
grad_row(void *dx, const float *x, int64_t n, float largest, float factor, bool is_bf16)
{
    WEFT_SIMD
    for (int64_t i = 0; i < n; i++)
        store(dx, i, exp_down_f32(x[i] - largest) * factor, is_bf16);
}

void WEFT_ISA_NAME(xent_grad)(const weft_xent_grad_args *a, int64_t row, int64_t n)
{
    const int64_t cols = a->logits.cols;
    const bool is_bf16 = a->dlogits.dtype == WEFT_DTYPE_BF16;
    for (int64_t r = row; r < row + n; r++) {
        const float *const x = at(a->logits, r, 0);
        void *const dx = at(a->dlogits, r, 0);
        const int64_t target = i32_at(a->targets, r);
        if (target == NOT_COUNTED) {
            memset(dx, 0, (size_t)cols * (is_bf16 ? 2u : 4u));
            continue;
        }
        const int64_t id = target - a->first_id;
        const float largest = f32_at(a->max, r);
        const float inverse = 1.0f / f32_at(a->sum, r);
        const float at_target = id >= 0 && id < cols ? x[id] : 0.0f;
        if (is_bf16)
            grad_row(dx, x, cols, largest, inverse * a->scale, true);
        else
            grad_row(dx, x, cols, largest, inverse * a->scale, false);
        if (id >= 0 && id < cols)
            store(dx, id, (exp_down_f32(at_target - largest) * inverse - 1.0f) * a->scale, is_bf16);
    }
}
