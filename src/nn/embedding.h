/* The first layer: token table, and position table where the family has learned positions (GPT-2). */
#ifndef WEFT_NN_EMBEDDING_H
#define WEFT_NN_EMBEDDING_H

#include "weft/model.h"

typedef struct weft_embedding {
    weft_param *tokens;
    weft_param *positions; /* NULL: rotary or none */
    int64_t cols;
    int64_t first_id; /* of the table's row 0 */
    float dropout;
    uint32_t site;
} weft_embedding;

/** Appends the layer to the model. */
weft_status weft_i_embedding_add(weft_model *m, const weft_embedding *embedding);

#endif
