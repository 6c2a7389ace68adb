/**
 * Causal self-attention with grouped queries, rotary positions and dropout of the probabilities: from the normalised
 * stream to the output product. The T x T scores are never stored.
 */
#ifndef WEFT_NN_ATTENTION_H
#define WEFT_NN_ATTENTION_H

#include "nn/linear.h"

typedef struct weft_attention {
    weft_linear qkv;                       /* one fused weight (GPT-2), or q, k, v side by side */
    weft_linear out;                       /* row-parallel: its bias is added after the region */
    int64_t n_heads, n_kv_heads, head_dim; /* here */
    int64_t first_head;                    /* number of head 0 in the whole model (dropout) */
    int *kv_of_head;                       /* [n_heads] */
    float scale;
    bool has_rope;
    float dropout;
    uint32_t site;
} weft_attention;

/** Columns of q | k | v. */
int64_t weft_i_attention_qkv_cols(const weft_attention *a);

/** qkv (rotated), attended [rows, heads * head_dim] and lse from h. With io->kv, keys and values go through the cache. */
weft_status weft_i_attention_forward(weft_layer_io *io,
                                     const weft_attention *a,
                                     weft_view h,
                                     weft_view qkv,
                                     weft_view attended,
                                     weft_view lse);

/** What backward reads. */
typedef struct weft_attention_backward {
    weft_view qkv, attended, lse;
    weft_view d_attended;
} weft_attention_backward;

/** dqkv: gradient of the products q | k | v before rotation. */
weft_status weft_i_attention_backward(weft_layer_io *io,
                                      const weft_attention *a,
                                      const weft_attention_backward *b,
                                      weft_view dqkv);

#endif
