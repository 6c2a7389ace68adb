/* Inside of weft_model, for run.c and the loaders; everybody else uses weft/model.h. */
#ifndef WEFT_NN_MODEL_PARTS_H
#define WEFT_NN_MODEL_PARTS_H

#include "base/name_table.h"
#include "nn/models/slice.h"
#include "weft/model.h"

struct weft_model {
    weft_ctx *ctx;
    weft_dtype dtype;
    weft_config config;     /* of a family; zero for a list of one's own */
    weft_model_slice slice; /* of that family that was built; zero for a list of one's own */
    int64_t *strip_ends;    /* [WEFT_STRIP_KINDS][slice.n_strips]; NULL: products are whole */
    bool has_rope;
    weft_param **params;
    int64_t n_params;
    size_t params_capacity;
    weft_name_table names; /* of params, by number */
    weft_layer *layers;
    int64_t n_layers;
    size_t layers_capacity;
    bool is_laid_out;
    void *values; /* its own flat weights; NULL where others keep them */
    void *grads;  /* its own flat f32 gradients; NULL when not training or others keep them */
    int64_t n_value_elems; /* with padding between parameters */
    int64_t n_grad_elems;
};

/**
 * A micro-batch's backward begins: every parameter waits for its uses again. A parameter that two layers here use (tied)
 * gets both with BACKWARD_INPUT, so micro-batches whose weight parts wait cannot mix up the counts.
 */
void weft_i_model_begin_micro_batch(weft_model *m);

#endif
