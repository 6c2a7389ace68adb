/**
 * Weights between Hugging Face files and a model's parameters, by the parameters' descriptions alone.
 *
 * Names: a parameter's own name, or a published variant of it (GPT-2 without "transformer."). Stale buffers
 * (attn.bias masks, attn.masked_bias, rotary_emb.inv_freq) are passed over; a tied head in the file is passed over when it
 * equals the embedding and warned about when it does not.
 */
#ifndef WEFT_NN_MODELS_WEIGHTS_H
#define WEFT_NN_MODELS_WEIGHTS_H

#include "formats/safetensors.h"
#include "nn/param_part.h"

/** Which spelling a file uses, so that what is written back has the names that were read. */
typedef struct weft_weight_names {
    bool has_no_prefix; /* GPT-2 without "transformer." */
} weft_weight_names;

/** Looks at the file's names. */
weft_status weft_i_weights_names(weft_weight_names *out, weft_model *m, const weft_st *file);

/** Name of a parameter in such a file, into out (WEFT_PARAM_NAME_BYTES). */
void weft_i_weights_file_name(const weft_weight_names *names, const weft_param *p, char *out);

/** What a tensor of a file is to a model. */
typedef enum weft_weight_role {
    WEFT_WEIGHT_PARAM,  /* a parameter, under its name in this file */
    WEFT_WEIGHT_TIED,   /* the head of a model whose head is its embedding */
    WEFT_WEIGHT_BUFFER, /* a mask or a table that older exports carry along */
    WEFT_WEIGHT_UNKNOWN /* nothing this model has */
} weft_weight_role;

weft_weight_role
weft_i_weights_role(weft_model *m, const weft_weight_names *names, const char *file_name);

/**
 * Everything weft_i_weights_load refuses, from the headers alone: what is missing, shapes, types.
 *
 * @return WEFT_OK | FORMAT | UNSUPPORTED
 */
weft_status
weft_i_weights_check(weft_model *m, const weft_st *file, const weft_weight_names *names);

/**
 * Fills the memory of parts (their value) from the file, converting F32, BF16, F16 to the model's type; elements that no
 * piece covers stay as they are. Whatever the parts, the whole model is checked: every missing tensor is listed in one
 * message; a shape that differs names both shapes; unknown extra tensors are warned about once. Pages of the map are
 * dropped as they are done.
 *
 * @return WEFT_OK | FORMAT | UNSUPPORTED a dtype that is no number weft reads | NOMEM | REMOTE
 */
weft_status weft_i_weights_load_parts(weft_model *m,
                                      const weft_st *file,
                                      const weft_weight_names *names,
                                      const weft_part *parts,
                                      int64_t n);

/** The same for every parameter whole, where the model keeps it. */
weft_status weft_i_weights_load(weft_model *m, const weft_st *file, const weft_weight_names *names);

/** The type a folder's weights ask to be computed in: BF16 when all its matrices are BF16, else F32. */
weft_dtype weft_i_weights_dtype(const weft_st *file);

#endif
