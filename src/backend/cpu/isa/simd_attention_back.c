/**
 * Causal attention backward in tiles of 64 queries x 64 keys (Dao et al. 2023, arXiv:2307.08691, algorithm 2, with the
 * loops the other way round: queries outside, so that a query's gradient is finished in one go).
 *
 * One call owns a key head: all query heads that read it are done one after another, so its gradients of keys and
 * values are summed in one order and need no lock. As in the forward, scores are transposed, one query a lane:
 *   S^T = K Q^T, P^T = exp(scale S^T - lse), dP^T = V dO^T, dS^T = P^T (dP^T - delta) scale, delta = row sums of dO O,
 *   dV += P^T dO, dK += dS^T Q, dQ = dS K.
 */
#include "backend/cpu/isa/kernels.h"

#include "backend/cpu/isa/simd_attention.h"

typedef struct backward_scratch {
    float *q_rows, *dout_rows; /* [QUERIES, padded D] */
    float *q, *dout;           /* [D, QUERIES] */
    float *dq;                 /* [QUERIES, padded D] */
    float *key, *value;        /* [KEYS, padded D] */
    float *weight, *slope;     /* [KEYS, QUERIES]: P^T, dS^T */
    float *keep;               /* [KEYS, QUERIES] */
    float *dk, *dv;            /* [kv_tokens, padded D] */
    float lse[QUERIES], delta[QUERIES];
} backward_scratch;

size_t WEFT_ISA_NAME(attention_backward_scratch)(const weft_attention_shape *s)
{
    const int64_t d = padded(s->head_dim);
    return (size_t)(7 * QUERIES * d + 3 * KEYS * QUERIES + 2 * s->kv_tokens * d);
}

static void lay_out(backward_scratch *w, float *scratch, const weft_attention_shape *s)
{
    const int64_t d = padded(s->head_dim), n = QUERIES * d;
    w->q_rows = scratch;
    w->dout_rows = w->q_rows + n;
    w->q = w->dout_rows + n;
    w->dout = w->q + n;
    w->dq = w->dout + n;
    w->key = w->dq + n;
    w->value = w->key + n;
    w->weight = w->value + n;
    w->slope = w->weight + KEYS * QUERIES;
    w->keep = w->slope + KEYS * QUERIES;
    w->dk = w->keep + KEYS * QUERIES;
    w->dv = w->dk + s->kv_tokens * d;
}

/**
 * delta from dO^T and O^T (in w->q), added in the order in which dP^T is: where a query sees one key alone, or one takes all
 * of its weight, O is that key's value, and dP - delta is exactly zero as it should be, not the difference of two roundings.
 */
static void set_delta(backward_scratch *w, int64_t d)
{
    memset(w->delta, 0, sizeof(w->delta));
    for (int64_t c = 0; c < d; c++) {
        const float *const x = w->dout + c * QUERIES, *const y = w->q + c * QUERIES;
        WEFT_SIMD
        for (int64_t i = 0; i < QUERIES; i++)
            w->delta[i] = weft_fma(y[i], x[i], w->delta[i]);
    }
}

/** Loads a tile of queries, what comes back to them, and their row numbers; padding gives zeros everywhere. */
static void load_queries(const weft_attention_backward_args *a,
                         const weft_attn_task *t,
                         int64_t head,
                         int64_t first,
                         int64_t n,
                         backward_scratch *w)
{
    const weft_attention_shape *const s = t->shape;
    const int64_t d = s->head_dim, ld = padded(d), row = t->seq * s->q_tokens + first;
    const size_t tile_bytes = (size_t)(QUERIES * ld) * sizeof(float);
    if (n < QUERIES)
        memset(w->q_rows, 0, 5 * tile_bytes); /* to dq */
    tile_load(w->dq, a->out, row, head * d, n, d);
    tile_load(w->q_rows, a->q, row, head * d, n, d);
    tile_load(w->dout_rows, a->dout, row, head * d, n, d);
    const float *const lse = at(a->lse, t->seq * s->n_heads + head, first);
    for (int64_t i = 0; i < QUERIES; i++)
        w->lse[i] = i < n ? lse[i] : 0.0f;
    tile_transpose(w->dout, QUERIES, w->dout_rows, ld, QUERIES, d);
    tile_transpose(w->q, QUERIES, w->dq, ld, QUERIES, d); /* the outputs, for delta */
    set_delta(w, d);
    tile_transpose(w->q, QUERIES, w->q_rows, ld, QUERIES, d);
    memset(w->dq, 0, tile_bytes);
}

/** S^T and dP^T to P^T (with dropout, where keep is given) and dS^T, for ROW_FLOATS queries of one key. */
static WEFT_ALWAYS_INLINE void slopes_of_key(
    float *p, float *g, const float *keep, const float *lse, const float *delta, float scale)
{
    WEFT_SIMD
    for (int64_t i = 0; i < ROW_FLOATS; i++) {
        const float x = exp_f32(weft_fma(scale, p[i], -lse[i]));
        const float kept = keep == NULL ? 1.0f : keep[i];
        g[i] = x * (g[i] * kept - delta[i]) * scale;
        p[i] = x * kept;
    }
}

static void
slopes_of_tile(backward_scratch *w, int64_t n_keys, int64_t first, float scale, bool is_dropped)
{
    for (int64_t j = 0; j < n_keys; j++) {
        for (int64_t i = first_seeing(j, first); i < QUERIES; i += ROW_FLOATS) {
            const int64_t at_query = j * QUERIES + i;
            float *const p = w->weight + at_query, *const g = w->slope + at_query;
            if (is_dropped)
                slopes_of_key(p, g, w->keep + at_query, w->lse + i, w->delta + i, scale);
            else
                slopes_of_key(p, g, NULL, w->lse + i, w->delta + i, scale);
        }
    }
}

/** dV += P^T dO, dK += dS^T Q, dQ += dS K. */
static void
add_gradients(backward_scratch *w, const tile_a *k, int64_t n_keys, int64_t first_key, int64_t ld)
{
    const tile_a p = {w->weight, QUERIES, 1}, g = {w->slope, QUERIES, 1},
                 g_back = {w->slope, 1, QUERIES};
    const tile_shape to_keys = {n_keys, ld, QUERIES, ld, ld, true};
    const tile_shape to_queries = {QUERIES, ld, n_keys, k->row, ld, true};
    tile_product(w->dv + first_key * ld, &p, w->dout_rows, &to_keys);
    tile_product(w->dk + first_key * ld, &g, w->q_rows, &to_keys);
    tile_product(w->dq, &g_back, k->a, &to_queries);
}

/**
 * The same where key j is seen by queries j and later only: a slab of keys meets later queries, one of queries earlier
 * keys.
 */
static void add_gradients_diagonal(
    backward_scratch *w, const tile_a *k, int64_t n_keys, int64_t first_key, int64_t ld)
{
    for (int64_t j = 0; j < n_keys; j += SLAB) {
        const int64_t n = WEFT_MIN(n_keys - j, (int64_t)SLAB), from = j * QUERIES + j;
        const tile_a p = {w->weight + from, QUERIES, 1}, g = {w->slope + from, QUERIES, 1};
        const tile_a g_back = {w->slope + j, 1, QUERIES};
        const tile_shape to_keys = {n, ld, QUERIES - j, ld, ld, true};
        const tile_shape to_queries = {SLAB, ld, j + n, k->row, ld, true};
        tile_product(w->dv + (first_key + j) * ld, &p, w->dout_rows + j * ld, &to_keys);
        tile_product(w->dk + (first_key + j) * ld, &g, w->q_rows + j * ld, &to_keys);
        tile_product(w->dq + j * ld, &g_back, k->a, &to_queries);
    }
}

static void backward_tile(const weft_attention_backward_args *a,
                          const weft_attn_task *t,
                          int64_t head,
                          int64_t first,
                          backward_scratch *w)
{
    const weft_attention_shape *const s = t->shape;
    const int64_t d = s->head_dim, ld = padded(d), row = t->seq * s->q_tokens + first;
    const int64_t n_queries = WEFT_MIN(s->q_tokens - first, (int64_t)QUERIES);
    const int64_t n_keys = WEFT_MIN(first + n_queries, s->kv_tokens);
    const bool is_dropped = s->dropout.p > 0.0f;
    mask_rows m;
    load_queries(a, t, head, first, n_queries, w);
    if (is_dropped)
        mask_rows_of(&m, &s->dropout, row, n_queries);
    for (int64_t j = 0; j < n_keys; j += KEYS) {
        const int64_t n = WEFT_MIN(n_keys - j, (int64_t)KEYS);
        const tile_a k = tile_rows(a->k, t->seq * s->kv_tokens + j, t->head * d, n, d, w->key);
        const tile_a v = tile_rows(a->v, t->seq * s->kv_tokens + j, t->head * d, n, d, w->value);
        score_product(w->weight, &k, w->q, n, d, first - j);
        score_product(w->slope, &v, w->dout, n, d, first - j);
        mask_scores(w->weight, n, first - j);
        if (is_dropped)
            mask_tile(w->keep, &m, &s->dropout, head, j, n);
        slopes_of_tile(w, n, first - j, s->scale, is_dropped);
        if (j < first)
            add_gradients(w, &k, n, j, ld);
        else
            add_gradients_diagonal(w, &k, n, j, ld);
    }
    tile_store(a->dq, row, head * d, w->dq, n_queries, d);
}

void WEFT_ISA_NAME(attention_backward)(const weft_attention_backward_args *a,
                                       const weft_attn_task *t,
                                       float *scratch)
{
    const weft_attention_shape *const s = t->shape;
    const int64_t d = s->head_dim;
    backward_scratch w;
    lay_out(&w, scratch, s);
    memset(w.dk, 0, (size_t)(2 * s->kv_tokens * padded(d)) * sizeof(float));
    for (int64_t h = 0; h < s->n_heads; h++) {
        if (s->kv_of_head[h] != t->head)
            continue;
        for (int64_t i = 0; i < s->q_tokens; i += QUERIES)
            backward_tile(a, t, h, i, &w);
    }
    tile_store(a->dk, t->seq * s->kv_tokens, t->head * d, w.dk, s->kv_tokens, d);
    tile_store(a->dv, t->seq * s->kv_tokens, t->head * d, w.dv, s->kv_tokens, d);
}
