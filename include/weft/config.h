/**
 * The description of a model: what a Hugging Face config.json says, for the families weft has.
 *
 * Both spellings are read (rope_scaling + rope_theta, or rope_parameters; torch_dtype or dtype); keys that are absent
 * or null take the defaults transformers gives that family; what a config asks for and weft lacks is refused by name.
 */
#ifndef WEFT_CONFIG_H
#define WEFT_CONFIG_H

#include <stdbool.h>
#include <stdint.h>

#include "weft/context.h"
#include "weft/dtype.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum weft_family { WEFT_FAMILY_GPT2, WEFT_FAMILY_LLAMA } weft_family;

typedef enum weft_activation {
    WEFT_ACTIVATION_GELU_TANH, /* gelu_new, gelu_pytorch_tanh, gelu_fast */
    WEFT_ACTIVATION_GELU_ERF,  /* gelu */
    WEFT_ACTIVATION_RELU,
    WEFT_ACTIVATION_SILU /* silu, swish */
} weft_activation;

typedef enum weft_rope_kind {
    WEFT_ROPE_DEFAULT,
    WEFT_ROPE_LINEAR,
    WEFT_ROPE_DYNAMIC,
    WEFT_ROPE_LLAMA3,
    WEFT_ROPE_YARN
} weft_rope_kind;

/** Rotary positions as transformers' modeling_rope_utils computes them. Fields of other kinds are 0. */
typedef struct weft_rope {
    weft_rope_kind kind;
    double theta;
    double factor;               /* linear, dynamic, llama3, yarn */
    double low_freq_factor;      /* llama3 */
    double high_freq_factor;     /* llama3 */
    double beta_fast, beta_slow; /* yarn: 32, 1 */
    double
        attention_factor; /* yarn: what cos and sin are multiplied by, already resolved; 1 for the others */
    bool is_truncated; /* yarn: round the correction range to whole dimensions (default true) */
    int64_t original_max_positions; /* llama3, yarn, dynamic */
} weft_rope;

typedef struct weft_config {
    weft_family family;
    int64_t vocab_size;
    int64_t hidden_size;
    int64_t n_layers;
    int64_t n_heads;
    int64_t n_kv_heads; /* = n_heads for gpt2 */
    int64_t head_dim;
    int64_t ffn_size;
    int64_t max_positions;
    weft_activation activation;
    double norm_eps;
    double initializer_range;
    bool is_tied;            /* the head is the embedding */
    bool has_attention_bias; /* llama: q, k, v, o; gpt2: always true */
    bool has_mlp_bias;       /* llama: gate, up, down; gpt2: always true */
    weft_rope rope;          /* llama */
    double embd_dropout, resid_dropout, attn_dropout;
    bool is_attn_scaled;     /* gpt2 scale_attn_weights: scores / sqrt(head_dim) */
    bool is_scaled_by_layer; /* gpt2 scale_attn_by_inverse_layer_idx: scores / (layer + 1) */
    int64_t bos_id;          /* -1: none */
    int64_t pad_id;          /* -1: none */
    int64_t eos_ids[8];
    int n_eos;        /* eos_token_id: absent, one number or a list */
    weft_dtype dtype; /* dtype or torch_dtype */
    bool has_dtype;   /* the file names one */
} weft_config;

/** "gpt2", "llama": the model_type of its files; "unknown" for a number that is no family. @collective none */
WEFT_API const char *weft_family_name(weft_family family);

/**
 * Reads a config.json, or the config.json of a folder.
 *
 * @collective  none
 * @return      WEFT_OK | IO | FORMAT key, value and what is allowed | UNSUPPORTED the key and value weft lacks | NOMEM
 */
WEFT_API weft_status weft_config_read(weft_config *out, weft_ctx *ctx, const char *path);

#ifdef __cplusplus
}
#endif
#endif
