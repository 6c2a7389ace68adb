/* The families weft builds from a Hugging Face config: one file each, all through the same few helpers. */
#ifndef WEFT_NN_MODELS_FAMILIES_H
#define WEFT_NN_MODELS_FAMILIES_H

#include "nn/block.h"
#include "nn/models/slice.h"

weft_status weft_i_gpt2_build(weft_model *m, const weft_config *c, const weft_model_slice *s);
weft_status weft_i_llama_build(weft_model *m, const weft_config *c, const weft_model_slice *s);

/** Adds [rows, cols], drawn normal(0, std). */
weft_status weft_i_family_matrix(
    weft_model *m, weft_param **out, int64_t rows, int64_t cols, double std, const char *name);

/** Adds a vector, filled with ones (gains) or zeros (biases). */
weft_status weft_i_family_vector(
    weft_model *m, weft_param **out, int64_t n, weft_param_init init, const char *name);

/** kv_of_head of the slice's query heads, counted from its first kv head, in CONTROL memory. */
weft_status
weft_i_family_kv_of_head(weft_model *m, const weft_config *c, const weft_model_slice *s, int **out);

/** l's products are computed in the slice's strips of this kind; its runs are given. */
void weft_i_family_in_strips(const weft_model *m, weft_linear *l, weft_strip_kind kind);

/** Of a table [vocabulary, C]: the slice's rows. */
void weft_i_family_cut_ids(weft_param *p, const weft_model_slice *s);

/** Whether item number `item` of the list embedding | blocks | head is built here. */
bool weft_i_family_has_item(const weft_model_slice *s, int64_t item);

/**
 * A number per dropout of the model. `place` in item `number` of the whole list: 0 embedding, 1 attention, 2 and 3 the two
 * residuals.
 */
uint32_t weft_i_family_site(int number, int place);

#endif
