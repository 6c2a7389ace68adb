/*
 * Reference causal attention with grouped keys and values, one (sequence, head, query) after another.
 *
 * For a query i with keys j < n_seen: s_j = scale * q_i . k_j; p = softmax(s); m_j = dropout factor of (i, j);
 *   out_i = sum_j p_j m_j v_j,  lse_i = log sum_j exp(s_j).
 * Backward, with P_j = exp(s_j - lse_i) and D_i = dout_i . out_i (Dao et al., arXiv:2205.14135, equations 3 to 6):
 *   dv_j += P_j m_j dout_i;  ds_j = P_j (m_j dout_i . v_j - D_i);  dq_i += scale ds_j k_j;  dk_j += scale ds_j q_i.
 * Scores are computed again wherever they are needed; the workspace is one row of sums.
 */
#include <math.h>

#include "backend/reference/ref_ops.h"
#include "base/alloc.h"

/* Where one query, or one key, of one head lies: row and first column. */
typedef struct place {
    int64_t row;
    int64_t col;
} place;

static place query_place(const weft_attention_shape *s, int64_t seq, int64_t head, int64_t i)
{
    const place p = {seq * s->q_tokens + i, head * s->head_dim};
    return p;
}

static place key_place(const weft_attention_shape *s, int64_t seq, int64_t head, int64_t j)
{
    const place p = {seq * s->kv_tokens + j, (int64_t)s->kv_of_head[head] * s->head_dim};
    return p;
}

static double dot(const weft_view *x, place at_x, const weft_view *y, place at_y, int64_t n)
{
    double sum = 0.0;
    for (int64_t d = 0; d < n; d++)
        sum += (double)weft_i_ref_get(x, at_x.row, at_x.col + d) *
               (double)weft_i_ref_get(y, at_y.row, at_y.col + d);
    return sum;
}

static int64_t keys_seen(const weft_attention_shape *s, int64_t seq, int64_t i)
{
    const int64_t offset = s->q_offset != NULL ? s->q_offset[seq] : 0;
    const int64_t length = s->kv_length != NULL ? s->kv_length[seq] : s->kv_tokens;
    return WEFT_MAX(WEFT_MIN(offset + i + 1, length), 0);
}

static double dropout_factor(const weft_attention_shape *s, place query, int64_t head, int64_t j)
{
    const int64_t elem = (s->dropout.first_elem + head) * 65536 + j;
    return (double)weft_i_ref_dropout_factor(&s->dropout, query.row, elem);
}

size_t weft_i_ref_attention_forward_bytes(const weft_attention_shape *s)
{
    return weft_i_alloc_rounded((size_t)s->head_dim * sizeof(double));
}

/* out [head_dim] is a row of sums. */
static void
attend(const weft_attention_forward_args *a, int64_t seq, int64_t head, int64_t i, double *out)
{
    const weft_attention_shape *s = &a->shape;
    const place query = query_place(s, seq, head, i);
    const int64_t n_seen = keys_seen(s, seq, i);
    double max = -HUGE_VAL;
    double sum = 0.0;
    for (int64_t j = 0; j < n_seen; j++) {
        const double score =
            (double)s->scale * dot(&a->q, query, &a->k, key_place(s, seq, head, j), s->head_dim);
        max = score > max || isnan(score) ? score : max;
    }
    for (int64_t d = 0; d < s->head_dim; d++)
        out[d] = 0.0;
    for (int64_t j = 0; j < n_seen; j++) {
        const place key = key_place(s, seq, head, j);
        const double p = exp((double)s->scale * dot(&a->q, query, &a->k, key, s->head_dim) - max);
        const double factor = dropout_factor(s, query, head, j);
        sum += p;
        for (int64_t d = 0; d < s->head_dim; d++)
            out[d] += p * factor * (double)weft_i_ref_get(&a->v, key.row, key.col + d);
    }
    for (int64_t d = 0; d < s->head_dim; d++)
        weft_i_ref_set(&a->out, query.row, query.col + d, n_seen > 0 ? out[d] / sum : 0.0);
    if (a->lse.data != NULL)
        weft_i_ref_set(&a->lse, seq * s->n_heads + head, i,
                       n_seen > 0 ? max + log(sum) : -HUGE_VAL);
}

weft_status weft_i_ref_attention_forward(weft_backend *b, const void *args, void *workspace)
{
    const weft_attention_forward_args *a = args;
    (void)b;
    for (int64_t seq = 0; seq < a->shape.n_seqs; seq++) {
        for (int64_t head = 0; head < a->shape.n_heads; head++) {
            for (int64_t i = 0; i < a->shape.q_tokens; i++)
                attend(a, seq, head, i, workspace);
        }
    }
    return WEFT_OK;
}

/* What the backward needs of one (query, key): the dropped probability and the gradient of the score. */
typedef struct pair {
    double p_dropped;
    double dscore;
} pair;

static pair
pair_of(const weft_attention_backward_args *a, int64_t seq, int64_t head, int64_t i, int64_t j)
{
    const weft_attention_shape *s = &a->shape;
    const place query = query_place(s, seq, head, i);
    const place key = key_place(s, seq, head, j);
    const double lse = (double)weft_i_ref_get(&a->lse, seq * s->n_heads + head, i);
    const double p = exp((double)s->scale * dot(&a->q, query, &a->k, key, s->head_dim) - lse);
    const double factor = dropout_factor(s, query, head, j);
    const double dp = factor * dot(&a->dout, query, &a->v, key, s->head_dim);
    const pair out = {p * factor, p * (dp - dot(&a->dout, query, &a->out, query, s->head_dim))};
    return out;
}

size_t weft_i_ref_attention_backward_bytes(const weft_attention_shape *s)
{
    return weft_i_alloc_rounded(2 * (size_t)s->head_dim * sizeof(double));
}

static void backward_query(
    const weft_attention_backward_args *a, int64_t seq, int64_t head, int64_t i, double *dq)
{
    const weft_attention_shape *s = &a->shape;
    const place query = query_place(s, seq, head, i);
    for (int64_t d = 0; d < s->head_dim; d++)
        dq[d] = 0.0;
    for (int64_t j = 0; j < keys_seen(s, seq, i); j++) {
        const place key = key_place(s, seq, head, j);
        const double dscore = (double)s->scale * pair_of(a, seq, head, i, j).dscore;
        for (int64_t d = 0; d < s->head_dim; d++)
            dq[d] += dscore * (double)weft_i_ref_get(&a->k, key.row, key.col + d);
    }
    for (int64_t d = 0; d < s->head_dim; d++)
        weft_i_ref_set(&a->dq, query.row, query.col + d, dq[d]);
}

/* Sums over all query heads that use the kv head: dk and dv have one row for them together. */
static void backward_key(
    const weft_attention_backward_args *a, int64_t seq, int64_t kv_head, int64_t j, double *dkv)
{
    const weft_attention_shape *s = &a->shape;
    const int64_t n = s->head_dim;
    for (int64_t d = 0; d < 2 * n; d++)
        dkv[d] = 0.0;
    for (int64_t head = 0; head < s->n_heads; head++) {
        for (int64_t i = 0; s->kv_of_head[head] == kv_head && i < s->q_tokens; i++) {
            if (j >= keys_seen(s, seq, i))
                continue;
            const place query = query_place(s, seq, head, i);
            const pair p = pair_of(a, seq, head, i, j);
            for (int64_t d = 0; d < n; d++) {
                dkv[d] += (double)s->scale * p.dscore *
                          (double)weft_i_ref_get(&a->q, query.row, query.col + d);
                dkv[n + d] +=
                    p.p_dropped * (double)weft_i_ref_get(&a->dout, query.row, query.col + d);
            }
        }
    }
    for (int64_t d = 0; d < n; d++) {
        weft_i_ref_set(&a->dk, seq * s->kv_tokens + j, kv_head * n + d, dkv[d]);
        weft_i_ref_set(&a->dv, seq * s->kv_tokens + j, kv_head * n + d, dkv[n + d]);
    }
}

weft_status weft_i_ref_attention_backward(weft_backend *b, const void *args, void *workspace)
{
    const weft_attention_backward_args *a = args;
    const weft_attention_shape *s = &a->shape;
    (void)b;
    for (int64_t seq = 0; seq < s->n_seqs; seq++) {
        for (int64_t head = 0; head < s->n_heads; head++) {
            for (int64_t i = 0; i < s->q_tokens; i++)
                backward_query(a, seq, head, i, workspace);
        }
        for (int64_t kv_head = 0; kv_head < s->n_kv_heads; kv_head++) {
            for (int64_t j = 0; j < s->kv_tokens; j++)
                backward_key(a, seq, kv_head, j, workspace);
        }
    }
    return WEFT_OK;
}
