/**
 * The Transformer block as a layer: x + attention(norm(x)), then + mlp(norm(...)). GPT-2 and Llama differ in data only.
 */
#ifndef WEFT_NN_BLOCK_H
#define WEFT_NN_BLOCK_H

#include "nn/attention.h"
#include "nn/mlp.h"
#include "nn/norm.h"
#include "weft/model.h"

typedef struct weft_block {
    weft_norm norm1;
    weft_attention attention;
    weft_norm norm2;
    weft_mlp mlp;
    int64_t cols; /* of the stream */
    float resid_dropout;
    uint32_t site1, site2; /* of the two residual dropouts */
} weft_block;

/** Appends the block to the model, which owns it from then on (also on failure). */
weft_status weft_i_block_add(weft_model *m, const weft_block *take_block);

#endif
