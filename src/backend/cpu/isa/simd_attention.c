/* Causal attention, row by row. */
#include "backend/cpu/isa/kernels.h"

#include <math.h>

#include "backend/cpu/isa/simd.h"
#include "backend/cpu/isa/simd_dropout.h"

size_t WEFT_ISA_NAME(attention_scratch)(const weft_attention_shape *s, bool is_backward)
{
    const int64_t t = s->kv_tokens + 16, d = s->head_dim;
    return (size_t)(is_backward ? 3 * t + d + 2 * t * d : 2 * t + d);
}

static float dot_of(const void *a, const void *b, int64_t n, bool is_bf16)
{
    float s = 0.0f;
    WEFT_SIMD_SUM(s)
    for (int64_t i = 0; i < n; i++)
        s += load(a, i, is_bf16) * load(b, i, is_bf16);
    return s;
}

static void add_scaled(float *y, const void *x, float f, int64_t n, bool is_bf16)
{
    WEFT_SIMD
    for (int64_t i = 0; i < n; i++)
        y[i] += f * load(x, i, is_bf16);
}

static void
mask_row(float *keep, const weft_attention_shape *s, int64_t row, int64_t head, int64_t n)
{
    for (int64_t j = 0; j < n; j++)
        keep[j] = 1.0f;
    for (int64_t j = 0; s->dropout.p > 0.0f && j < n; j += DROPOUT_CHUNK)
        dropout_factors(keep + j, &s->dropout, row, (s->dropout.first_elem + head) * 65536 + j,
                        WEFT_MIN(n - j, (int64_t)DROPOUT_CHUNK));
}

void WEFT_ISA_NAME(attention_forward)(const weft_attention_forward_args *a,
                                      const weft_attn_task *t,
                                      float *scratch)
{
    const weft_attention_shape *const s = t->shape;
    const bool is_bf16 = t->dtype == WEFT_DTYPE_BF16;
    const int64_t d = s->head_dim, kv = s->kv_of_head[t->head] * d, kv_row = t->seq * s->kv_tokens;
    const int64_t exist = s->kv_length == NULL ? s->kv_tokens : s->kv_length[t->seq];
    const int64_t offset = s->q_offset == NULL ? 0 : s->q_offset[t->seq];
    float *const p = scratch, *const keep = p + s->kv_tokens + 16,
                 *const o = keep + s->kv_tokens + 16;
    for (int64_t i = t->first_query; i < t->first_query + t->n_queries; i++) {
        const int64_t row = t->seq * s->q_tokens + i,
                      n = WEFT_MAX(WEFT_MIN(offset + i + 1, exist), (int64_t)0);
        const void *const q = at(a->q, row, t->head * d);
        float largest = -INFINITY, sum = 0.0f;
        for (int64_t j = 0; j < n; j++) {
            p[j] = s->scale * dot_of(q, at(a->k, kv_row + j, kv), d, is_bf16);
            largest = WEFT_MAX(largest, p[j]);
        }
        mask_row(keep, s, row, t->head, n);
        memset(o, 0, (size_t)d * sizeof(float));
        for (int64_t j = 0; j < n; j++) {
            const float e = exp_f32(p[j] - largest);
            sum += e;
            add_scaled(o, at(a->v, kv_row + j, kv), e * keep[j], d, is_bf16);
        }
        for (int64_t c = 0; c < d; c++)
            store(at(a->out, row, t->head * d), c, n == 0 ? 0.0f : o[c] / sum, is_bf16);
        if (a->lse.data != NULL)
            *((float *)at(a->lse, t->seq * s->n_heads + t->head, i)) =
                n == 0 ? -INFINITY : largest + logf(sum);
    }
}

static void backward_head(const weft_attention_backward_args *a,
                          const weft_attn_task *t,
                          int64_t head,
                          float *scratch)
{
    const weft_attention_shape *const s = t->shape;
    const bool is_bf16 = t->dtype == WEFT_DTYPE_BF16;
    const int64_t d = s->head_dim, kv = t->head * d, kv_row = t->seq * s->kv_tokens,
                  n_kv = s->kv_tokens;
    float *const keep = scratch, *const dq = keep + n_kv + 16, *const dk = dq + d,
                 *const dv = dk + n_kv * d;
    for (int64_t i = 0; i < s->q_tokens; i++) {
        const int64_t row = t->seq * s->q_tokens + i, n = WEFT_MIN(i + 1, n_kv);
        const void *const q = at(a->q, row, head * d), *const dout = at(a->dout, row, head * d);
        const float delta = dot_of(dout, at(a->out, row, head * d), d, is_bf16);
        const float lse = *(float *)at(a->lse, t->seq * s->n_heads + head, i);
        memset(dq, 0, (size_t)d * sizeof(float));
        mask_row(keep, s, row, head, n);
        for (int64_t j = 0; j < n; j++) {
            const void *const k = at(a->k, kv_row + j, kv), *const v = at(a->v, kv_row + j, kv);
            const float p = exp_f32(s->scale * dot_of(q, k, d, is_bf16) - lse);
            const float dp = keep[j] * dot_of(dout, v, d, is_bf16);
            const float ds = p * (dp - delta) * s->scale;
            add_scaled(dq, k, ds, d, is_bf16);
            add_scaled(dk + j * d, q, ds, d, is_bf16);
            add_scaled(dv + j * d, dout, p * keep[j], d, is_bf16);
        }
        for (int64_t c = 0; c < d; c++)
            store(at(a->dq, row, head * d), c, dq[c], is_bf16);
    }
}

void WEFT_ISA_NAME(attention_backward)(const weft_attention_backward_args *a,
                                       const weft_attn_task *t,
                                       float *scratch)
{
    const weft_attention_shape *const s = t->shape;
    const int64_t d = s->head_dim, n_kv = s->kv_tokens;
    float *const dk = scratch + n_kv + 16 + d, *const dv = dk + n_kv * d;
    memset(dk, 0, (size_t)(2 * n_kv * d) * sizeof(float));
    for (int64_t h = 0; h < s->n_heads; h++)
        if (s->kv_of_head[h] == t->head)
            backward_head(a, t, h, scratch);
    for (int64_t j = 0; j < n_kv; j++) {
        for (int64_t c = 0; c < d; c++) {
            store(at(a->dk, t->seq * n_kv + j, t->head * d), c, dk[j * d + c],
                  t->dtype == WEFT_DTYPE_BF16);
            store(at(a->dv, t->seq * n_kv + j, t->head * d), c, dv[j * d + c],
                  t->dtype == WEFT_DTYPE_BF16);
        }
    }
}
