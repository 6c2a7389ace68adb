/* From a path a user gives (--model) to a model with weights: config, type, parameters, files. */
#ifndef WEFT_NN_MODELS_LOAD_H
#define WEFT_NN_MODELS_LOAD_H

#include "formats/hf_config.h"
#include "nn/models/weights.h"

/** What --model named, opened once and used by the dry run and the real one. */
typedef struct weft_source {
    weft_hf_config hf;
    weft_st *weights; /* NULL for a config.json alone: fresh weights */
    weft_weight_names names;
    weft_dtype dtype;        /* to compute in */
    char dir[WEFT_PATH_MAX]; /* the folder; "" for a config.json alone */
} weft_source;

/**
 * `dtype_name`: "" (the folder's own: BF16 when its weights are all BF16, else F32; for a config alone what it names, F16
 * counted as F32), "fp32" or "bf16".
 */
weft_status
weft_i_source_open(weft_source *out, weft_ctx *ctx, const char *path, const char *dtype_name);
void weft_i_source_close(weft_source *s, weft_ctx *ctx);

/**
 * Warns when the folder brings a tokenizer of its own: text is about to be taken as bytes, which is not what the model was
 * trained on. For commands that have text in hand.
 */
void weft_i_source_warn_tokenizer(const weft_source *s, const weft_ctx *ctx);

/**
 * What tells one source from another: the config as it would be saved, and name, type and shape of every tensor ("fresh
 * weights" without files). Both texts are empty ones that weft_i_str_init made.
 */
weft_status weft_i_source_describe(const weft_source *s, weft_str *config, weft_str *header);

/** Unmaps the weights; what was loaded stays. */
void weft_i_source_unmap(weft_source *s);

/**
 * Fills parts of a model built from this source: from its files, or fresh from `seed` when it has none (the same values
 * whatever the parts). A dry context fills nothing.
 *
 * @return WEFT_OK | what weft_i_weights_load_parts returns | DEVICE | INTERNAL a folder whose weights are unmapped already
 */
weft_status weft_i_source_fill(
    const weft_source *s, weft_model *m, const weft_part *parts, int64_t n, uint64_t seed);

/** Builds, allocates and fills the model (fresh weights from `seed` when the source has none; a dry context fills nothing). */
weft_status weft_i_source_model(
    weft_model **out, const weft_source *s, weft_ctx *ctx, bool is_training, uint64_t seed);

#endif
