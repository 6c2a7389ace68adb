/**
 * The last layer: final norm, product with the vocabulary, cross-entropy; fused in chunks of rows, so that the logits of
 * a whole batch are never stored unless somebody asks for them (exec->logits).
 */
#ifndef WEFT_NN_HEAD_H
#define WEFT_NN_HEAD_H

#include "nn/linear.h"
#include "nn/norm.h"
#include "weft/model.h"

typedef struct weft_head {
    weft_norm norm;
    weft_linear
        product; /* one part: its weight is [vocabulary here, cols], the embedding's when tied */
    int64_t cols;
    int64_t first_id; /* of the weight's row 0 */
} weft_head;

/** Appends the layer to the model; of the product its weight is enough. */
weft_status weft_i_head_add(weft_model *m, const weft_head *head);

#endif
