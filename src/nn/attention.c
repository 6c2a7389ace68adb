/*
 * Attention (contract: attention.h). q | k | v are columns of one matrix [rows, (heads + 2 kv heads) * head_dim], so that
 * one product makes them and one product takes their gradient.
 *
 * Source: Vaswani et al. 2017; grouped queries: Ainslie et al. 2023 (arXiv:2305.13245); rotary positions: Su et al. 2021.
 * Communication: none. Leaves to others: the products' regions (block.c), tiling (the backend).
 */
#include "nn/attention.h"

#include "base/error.h"
#include "nn/dropout.h"

int64_t weft_i_attention_qkv_cols(const weft_attention *a)
{
    return (a->n_heads + 2 * a->n_kv_heads) * a->head_dim;
}

typedef struct qkv_views {
    weft_view q, k, v, q_and_k;
} qkv_views;

static qkv_views split_qkv(const weft_attention *a, weft_view qkv)
{
    const int64_t q_cols = a->n_heads * a->head_dim;
    const int64_t kv_cols = a->n_kv_heads * a->head_dim;
    const qkv_views s = {.q = weft_view_cols(qkv, 0, q_cols),
                         .k = weft_view_cols(qkv, q_cols, kv_cols),
                         .v = weft_view_cols(qkv, q_cols + kv_cols, kv_cols),
                         .q_and_k = weft_view_cols(qkv, 0, q_cols + kv_cols)};
    return s;
}

static weft_status
rotate(weft_layer_io *io, const weft_attention *a, weft_view q_and_k, bool is_inverse)
{
    if (!a->has_rope)
        return WEFT_OK;
    const weft_rope_args r = {.x = q_and_k,
                              .head_dim = a->head_dim,
                              .positions = io->batch->positions,
                              .cos = io->exec->rope_cos,
                              .sin = io->exec->rope_sin,
                              .is_inverse = is_inverse};
    return weft_exec_op(io->exec, WEFT_OP_ROPE, &r);
}

static weft_attention_shape shape_of(const weft_layer_io *io, const weft_attention *a)
{
    weft_attention_shape s = {.n_seqs = io->batch->n_seqs,
                              .q_tokens = io->batch->n_tokens,
                              .kv_tokens = io->batch->n_tokens,
                              .n_heads = a->n_heads,
                              .n_kv_heads = a->n_kv_heads,
                              .head_dim = a->head_dim,
                              .kv_of_head = a->kv_of_head,
                              .scale = a->scale,
                              .dropout = weft_i_dropout_at(io, a->dropout, a->site)};
    s.dropout.first_elem = a->first_head;
    return s;
}

/* Appends this pass's keys and values to the cache, each sequence at its own length. */
static weft_status append_to_cache(weft_layer_io *io, const qkv_views *s)
{
    const weft_batch *b = io->batch;
    for (int64_t i = 0; i < b->n_seqs; i++) {
        const int64_t to = i * io->kv->capacity + b->q_offset[i];
        const int64_t from = i * b->n_tokens;
        const weft_copy_args k = {.dst = weft_view_rows(io->kv->k, to, b->n_tokens),
                                  .src = weft_view_rows(s->k, from, b->n_tokens)};
        const weft_copy_args v = {.dst = weft_view_rows(io->kv->v, to, b->n_tokens),
                                  .src = weft_view_rows(s->v, from, b->n_tokens)};
        WEFT_TRY(weft_exec_op(io->exec, WEFT_OP_COPY, &k));
        WEFT_TRY(weft_exec_op(io->exec, WEFT_OP_COPY, &v));
    }
    return WEFT_OK;
}

weft_status weft_i_attention_forward(weft_layer_io *io,
                                     const weft_attention *a,
                                     weft_view h,
                                     weft_view qkv,
                                     weft_view attended,
                                     weft_view lse)
{
    WEFT_TRY(weft_i_linear_forward(io->exec, &a->qkv, h, qkv));
    const qkv_views s = split_qkv(a, qkv);
    WEFT_TRY(rotate(io, a, s.q_and_k, false));
    weft_attention_forward_args f = {
        .shape = shape_of(io, a), .out = attended, .lse = lse, .q = s.q, .k = s.k, .v = s.v};
    if (io->kv != NULL) {
        WEFT_TRY(append_to_cache(io, &s));
        f.shape.kv_tokens = io->kv->capacity;
        f.shape.q_offset = io->batch->q_offset;
        f.shape.kv_length = io->batch->kv_length;
        f.k = weft_view_rows(io->kv->k, 0, io->batch->n_seqs * io->kv->capacity);
        f.v = weft_view_rows(io->kv->v, 0, io->batch->n_seqs * io->kv->capacity);
    }
    return weft_exec_op(io->exec, WEFT_OP_ATTENTION_FORWARD, &f);
}

weft_status weft_i_attention_backward(weft_layer_io *io,
                                      const weft_attention *a,
                                      const weft_attention_backward *b,
                                      weft_view dqkv)
{
    const qkv_views s = split_qkv(a, b->qkv);
    const qkv_views d = split_qkv(a, dqkv);
    const weft_attention_backward_args args = {.shape = shape_of(io, a),
                                               .dq = d.q,
                                               .dk = d.k,
                                               .dv = d.v,
                                               .dout = b->d_attended,
                                               .out = b->attended,
                                               .lse = b->lse,
                                               .q = s.q,
                                               .k = s.k,
                                               .v = s.v};
    WEFT_TRY(weft_exec_op(io->exec, WEFT_OP_ATTENTION_BACKWARD, &args));
    return rotate(io, a, d.q_and_k, true);
}
