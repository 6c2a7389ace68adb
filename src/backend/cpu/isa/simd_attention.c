/**
 * Causal attention forward: tiles of 64 queries x 64 keys with a running maximum (Dao et al. 2022, arXiv:2205.14135,
 * algorithm 1; 2023, arXiv:2307.08691), and row by row for a few queries (decoding).
 *
 * A tile's scores are kept transposed, S^T = K Q^T, one query a lane: maxima, sums and rescaling over keys are then
 * vector operations, K and V are read as they lie, and only Q and the result are transposed, once a tile. All in fp32.
 */
#include "backend/cpu/isa/kernels.h"

#include "backend/cpu/isa/simd_attention.h"

/* Below this many queries the tile would be mostly padding. */
enum { FEW_QUERIES = 8 };

typedef struct forward_scratch {
    float *rows;  /* [QUERIES, padded D]: queries, then the result */
    float *q;     /* [D, QUERIES] */
    float *out;   /* [D, QUERIES] */
    float *key;   /* [KEYS, padded D], bf16 only */
    float *value; /* the same */
    float *score; /* [KEYS, QUERIES] */
    float *keep;  /* the same: dropout */
    float largest[QUERIES], sum[QUERIES];
} forward_scratch;

size_t WEFT_ISA_NAME(attention_forward_scratch)(const weft_attention_shape *s)
{
    if (s->q_tokens < FEW_QUERIES)
        return (size_t)(padded(s->kv_tokens) + 2 * padded(s->head_dim));
    return (size_t)(QUERIES * (5 * padded(s->head_dim) + 2 * KEYS));
}

static void lay_out(forward_scratch *w, float *scratch, int64_t head_dim)
{
    const int64_t n = QUERIES * padded(head_dim);
    w->rows = scratch;
    w->q = w->rows + n;
    w->out = w->q + n;
    w->key = w->out + n;
    w->value = w->key + n;
    w->score = w->value + n;
    w->keep = w->score + KEYS * QUERIES;
}

/**
 * Scores to weights exp(scale * s - max), the running maximum and sum, and what was summed before brought to the new
 * maximum.
 */
static void softmax_tile(forward_scratch *w, int64_t n_keys, float scale, int64_t head_dim)
{
    float shift[QUERIES], shrink[QUERIES], sum[QUERIES];
    float *const score = w->score;
    for (int64_t i = 0; i < QUERIES; i++)
        shift[i] = w->largest[i];
    for (int64_t j = 0; j < n_keys; j++) {
        WEFT_SIMD
        for (int64_t i = 0; i < QUERIES; i++) {
            const float x = scale * score[j * QUERIES + i];
            shift[i] = x > shift[i] ? x : shift[i];
        }
    }
    for (int64_t i = 0; i < QUERIES; i++) {
        const float largest = shift[i];
        shift[i] =
            largest < -3e38f ? 0.0f : largest; /* no key seen yet: any finite shift gives zeros */
        shrink[i] = exp_down_f32(w->largest[i] - shift[i]);
        w->largest[i] = largest;
        sum[i] = w->sum[i] * shrink[i];
    }
    for (int64_t j = 0; j < n_keys; j++) {
        WEFT_SIMD
        for (int64_t i = 0; i < QUERIES; i++) {
            const float p = exp_down_f32(weft_fma(scale, score[j * QUERIES + i], -shift[i]));
            sum[i] += p;
            score[j * QUERIES + i] = p;
        }
    }
    for (int64_t i = 0; i < QUERIES; i++)
        w->sum[i] = sum[i];
    for (int64_t d = 0; d < head_dim; d++) {
        WEFT_SIMD
        for (int64_t i = 0; i < QUERIES; i++)
            w->out[d * QUERIES + i] *= shrink[i];
    }
}

static void drop_tile(float *score, const float *keep, int64_t n_keys)
{
    WEFT_SIMD
    for (int64_t i = 0; i < n_keys * QUERIES; i++)
        score[i] *= keep[i];
}

/** out [d, queries] += V^T P^T; on the diagonal slab by slab of keys, for the queries that see any of it. */
static void
add_values(forward_scratch *w, const tile_a *v, int64_t n_keys, int64_t d, int64_t first)
{
    for (int64_t j = 0; j < n_keys;) {
        const int64_t n = first >= n_keys - 1 ? n_keys : WEFT_MIN(n_keys - j, (int64_t)SLAB);
        const int64_t i = WEFT_MIN(first_seeing(j, first), (int64_t)QUERIES - SLAB);
        const tile_a part = {v->a + j * v->col, v->row, v->col};
        const tile_shape s = {d, QUERIES - i, n, QUERIES, QUERIES, true};
        tile_product(w->out + i, &part, w->score + j * QUERIES + i, &s);
        j += n;
    }
}

static void
finish_tile(const weft_attention_forward_args *a, const weft_attn_task *t, forward_scratch *w)
{
    const weft_attention_shape *const s = t->shape;
    const int64_t d = s->head_dim, row = t->seq * s->q_tokens + t->first_query;
    for (int64_t i = 0; i < QUERIES; i++)
        w->sum[i] = w->sum[i] > 0.0f ? w->sum[i] : 1.0f;
    for (int64_t c = 0; c < d; c++)
        for (int64_t i = 0; i < QUERIES; i++)
            w->out[c * QUERIES + i] /= w->sum[i];
    tile_transpose(w->rows, padded(d), w->out, QUERIES, d, QUERIES);
    tile_store(a->out, row, t->head * d, w->rows, t->n_queries, d);
    if (a->lse.data == NULL)
        return;
    float *const lse = at(a->lse, t->seq * s->n_heads + t->head, t->first_query);
    for (int64_t i = 0; i < t->n_queries; i++)
        lse[i] = w->largest[i] + logf(w->sum[i]);
}

static void
forward_tile(const weft_attention_forward_args *a, const weft_attn_task *t, float *scratch)
{
    const weft_attention_shape *const s = t->shape;
    const int64_t d = s->head_dim, kv_col = s->kv_of_head[t->head] * d,
                  kv_row = t->seq * s->kv_tokens;
    const int64_t first = (s->q_offset == NULL ? 0 : s->q_offset[t->seq]) + t->first_query;
    const int64_t exist = s->kv_length == NULL ? s->kv_tokens : s->kv_length[t->seq];
    const int64_t n_keys = WEFT_MIN(first + t->n_queries, exist);
    const int64_t row = t->seq * s->q_tokens + t->first_query;
    forward_scratch w;
    mask_rows m;
    lay_out(&w, scratch, d);
    memset(w.out, 0, (size_t)(QUERIES * d) * sizeof(float));
    if (t->n_queries < QUERIES)
        memset(w.q, 0, (size_t)(QUERIES * d) * sizeof(float));
    tile_load(w.rows, a->q, row, t->head * d, t->n_queries, d);
    tile_transpose(w.q, QUERIES, w.rows, padded(d), t->n_queries, d);
    for (int64_t i = 0; i < QUERIES; i++) {
        w.largest[i] = -INFINITY;
        w.sum[i] = 0.0f;
    }
    if (s->dropout.p > 0.0f)
        mask_rows_of(&m, &s->dropout, row, t->n_queries);
    for (int64_t j = 0; j < n_keys; j += KEYS) {
        const int64_t n = WEFT_MIN(n_keys - j, (int64_t)KEYS);
        const tile_a k = tile_rows(a->k, kv_row + j, kv_col, n, d, w.key);
        const tile_a v = tile_rows(a->v, kv_row + j, kv_col, n, d, w.value);
        const tile_a v_transposed = {v.a, v.col, v.row};
        score_product(w.score, &k, w.q, n, d, first - j);
        mask_scores(w.score, n, first - j);
        softmax_tile(&w, n, s->scale, d);
        if (s->dropout.p > 0.0f) {
            mask_tile(w.keep, &m, &s->dropout, t->head, j, n);
            drop_tile(w.score, w.keep, n);
        }
        add_values(&w, &v_transposed, n, d, first - j);
    }
    finish_tile(a, t, &w);
}

/* ---- a few queries: a row at a time, memory is what it waits for --------------------------------------------- */

static WEFT_ALWAYS_INLINE float dot_of(const float *q, const void *k, int64_t n, bool is_bf16)
{
    float s = 0.0f;
    WEFT_SIMD_SUM(s)
    for (int64_t i = 0; i < n; i++)
        s = weft_fma(q[i], load(k, i, is_bf16), s);
    return s;
}

static WEFT_ALWAYS_INLINE void
add_rows(float *out, const float *p, const void *v, int64_t ld, int64_t n, int64_t d, bool is_bf16)
{
    int64_t j = 0;
    for (; j + 4 <= n; j += 4) {
        const float p0 = p[j], p1 = p[j + 1], p2 = p[j + 2], p3 = p[j + 3];
        const int64_t r = j * ld;
        WEFT_SIMD
        for (int64_t c = 0; c < d; c++) {
            float o = weft_fma(p0, load(v, r + c, is_bf16), out[c]);
            o = weft_fma(p1, load(v, r + ld + c, is_bf16), o);
            o = weft_fma(p2, load(v, r + 2 * ld + c, is_bf16), o);
            out[c] = weft_fma(p3, load(v, r + 3 * ld + c, is_bf16), o);
        }
    }
    for (; j < n; j++) {
        const float p0 = p[j];
        WEFT_SIMD
        for (int64_t c = 0; c < d; c++)
            out[c] = weft_fma(p0, load(v, j * ld + c, is_bf16), out[c]);
    }
}

static void keep_row(float *p, const weft_attention_shape *s, int64_t row, int64_t head, int64_t n)
{
    float keep[DROPOUT_CHUNK];
    for (int64_t j = 0; j < n; j += DROPOUT_CHUNK) {
        const int64_t m = WEFT_MIN(n - j, (int64_t)DROPOUT_CHUNK);
        dropout_factors(keep, &s->dropout, row, (s->dropout.first_elem + head) * 65536 + j, m);
        for (int64_t i = 0; i < m; i++)
            p[j + i] *= keep[i];
    }
}

static WEFT_ALWAYS_INLINE void forward_row(const weft_attention_forward_args *a,
                                           const weft_attn_task *t,
                                           int64_t query,
                                           float *scratch,
                                           bool is_bf16,
                                           int64_t d)
{
    const weft_attention_shape *const s = t->shape;
    const int64_t kv_col = s->kv_of_head[t->head] * d, kv_row = t->seq * s->kv_tokens;
    const int64_t seen = (s->q_offset == NULL ? 0 : s->q_offset[t->seq]) + query + 1;
    const int64_t n = WEFT_MIN(seen, s->kv_length == NULL ? s->kv_tokens : s->kv_length[t->seq]);
    const int64_t row = t->seq * s->q_tokens + query;
    float *const p = scratch, *const q = p + padded(s->kv_tokens), *const out = q + padded(d);
    for (int64_t c = 0; c < d; c++) {
        q[c] = load(at(a->q, row, t->head * d), c, is_bf16) * s->scale;
        out[c] = 0.0f;
    }
    float largest = -INFINITY, sum = 0.0f;
    const void *const k = at(a->k, kv_row, kv_col);
    for (int64_t j = 0; j < n; j++) {
        p[j] = dot_of(q,
                      is_bf16 ? (const void *)((const uint16_t *)k + j * a->k.ld)
                              : (const void *)((const float *)k + j * a->k.ld),
                      d, is_bf16);
        largest = WEFT_MAX(largest, p[j]);
    }
    WEFT_SIMD_SUM(sum)
    for (int64_t j = 0; j < n; j++) {
        p[j] = exp_down_f32(p[j] - largest);
        sum += p[j];
    }
    if (s->dropout.p > 0.0f)
        keep_row(p, s, row, t->head, n);
    add_rows(out, p, at(a->v, kv_row, kv_col), a->v.ld, n, d, is_bf16);
    const float inverse = n > 0 ? 1.0f / sum : 0.0f;
    void *const to = at(a->out, row, t->head * d);
    for (int64_t c = 0; c < d; c++)
        store(to, c, out[c] * inverse, is_bf16);
    if (a->lse.data != NULL)
        *(float *)at(a->lse, t->seq * s->n_heads + t->head, query) =
            n > 0 ? largest + logf(sum) : -INFINITY;
}

/** The usual sizes of a head as constants: loops this short are half overhead when the compiler does not know them. */
static WEFT_ALWAYS_INLINE void forward_row_of_type(const weft_attention_forward_args *a,
                                                   const weft_attn_task *t,
                                                   int64_t query,
                                                   float *scratch,
                                                   bool is_bf16)
{
    if (t->shape->head_dim == 64)
        forward_row(a, t, query, scratch, is_bf16, 64);
    else if (t->shape->head_dim == 128)
        forward_row(a, t, query, scratch, is_bf16, 128);
    else
        forward_row(a, t, query, scratch, is_bf16, t->shape->head_dim);
}

void WEFT_ISA_NAME(attention_forward)(const weft_attention_forward_args *a,
                                      const weft_attn_task *t,
                                      float *scratch)
{
    if (t->shape->q_tokens >= FEW_QUERIES) {
        forward_tile(a, t, scratch);
        return;
    }
    for (int64_t i = t->first_query; i < t->first_query + t->n_queries; i++) {
        if (a->q.dtype == WEFT_DTYPE_BF16)
            forward_row_of_type(a, t, i, scratch, true);
        else
            forward_row_of_type(a, t, i, scratch, false);
    }
}
