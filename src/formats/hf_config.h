/* config.json and generation_config.json of Hugging Face folders. weft_config_read (weft/config.h) is implemented here too. */
#ifndef WEFT_FORMATS_HF_CONFIG_H
#define WEFT_FORMATS_HF_CONFIG_H

#include "base/alloc.h"
#include "base/str.h"
#include "weft/config.h"

/** A parsed config and the file's own text, so that a saved folder keeps every key the user's file had. */
typedef struct weft_hf_config {
    weft_config config;
    char *text; /* the JSON as read, CONTROL memory */
    char path[4096];
} weft_hf_config;

/**
 * `path`: a folder with config.json, or a JSON file under any name. When a folder also holds generation_config.json its
 * eos_token_id replaces the config's.
 */
weft_status weft_i_hf_config_read(weft_hf_config *out, weft_alloc *alloc, const char *path);

/** The same from text in memory; `path` is for messages and is kept. */
weft_status weft_i_hf_config_parse(
    weft_hf_config *out, weft_alloc *alloc, const char *path, const char *text, size_t n_bytes);

/** Takes eos_token_id from the text of a generation_config.json when it names one. */
weft_status weft_i_hf_config_parse_generation(weft_config *config,
                                              const char *path,
                                              const char *text,
                                              size_t n_bytes);

void weft_i_hf_config_fini(weft_hf_config *c, weft_alloc *alloc);

/**
 * The config.json to save: every key of the file that was read, in its order, with only the type set to `dtype` (under
 * the spelling the file used; "dtype" when it named none), "architectures" and "model_type" added when absent. An unchanged
 * model saved in its own type gives the file that was read, byte for byte. `out` is initialised here.
 *
 * @return WEFT_OK | ARG a type no config can name | NOMEM
 */
weft_status
weft_i_hf_config_write(const weft_hf_config *c, weft_alloc *alloc, weft_dtype dtype, weft_str *out);

/** "gelu_new", "linear": what a config calls a kind; of several names the first. */
const char *weft_i_hf_activation_name(weft_activation kind);
const char *weft_i_hf_rope_name(weft_rope_kind kind);

/**
 * Reasons why a config cannot run in weft, all of them, one a line ("" when none): for `weft info`. `out` is initialised
 * here, also on failure (IO; FORMAT the file is no JSON object).
 */
weft_status weft_i_hf_config_unsupported(const char *path, weft_alloc *alloc, weft_str *out);

/** Inverse frequencies [head_dim / 2] for a sequence of `n_positions` (only `dynamic` depends on it), in double. */
void weft_i_rope_frequencies(const weft_rope *rope,
                             int64_t head_dim,
                             int64_t max_positions,
                             int64_t n_positions,
                             double *out);

#endif
