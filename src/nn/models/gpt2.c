/*
 * GPT-2 (Radford et al. 2019) as a list of layers: learned positions, LayerNorm, fused q | k | v, GELU MLP, biases
 * everywhere, the head tied to the token table unless the config says otherwise.
 *
 * Names and shapes are those of GPT2LMHeadModel's files; its linear weights are stored [in, out]. Fresh weights: normal with
 * initializer_range, the two products into the stream scaled by 1 / sqrt(2 layers).
 */
#include "nn/models/families.h"

#include <math.h>

#include "base/error.h"
#include "base/str.h"
#include "nn/embedding.h"
#include "nn/head.h"

/* One [in, out] weight with its bias. */
static weft_status
add_conv1d(weft_model *m, weft_linear *l, const char *name, int64_t in, int64_t out, double std)
{
    char full[WEFT_PARAM_NAME_BYTES];
    l->n_parts = 1;
    l->in = in;
    l->out[0] = out;
    l->is_in_out = true;
    WEFT_TRY(weft_i_str_print(full, sizeof(full), "%s.weight", name));
    WEFT_TRY(weft_i_family_matrix(m, &l->weight[0], in, out, std, full));
    WEFT_TRY(weft_i_str_print(full, sizeof(full), "%s.bias", name));
    return weft_i_family_vector(m, &l->bias[0], out, WEFT_INIT_ZEROS, full);
}

static weft_status add_norm(weft_model *m, weft_norm *n, const weft_config *c, const char *name)
{
    char full[WEFT_PARAM_NAME_BYTES];
    n->kind = WEFT_NORM_LAYER;
    n->eps = c->norm_eps;
    WEFT_TRY(weft_i_str_print(full, sizeof(full), "%s.weight", name));
    WEFT_TRY(weft_i_family_vector(m, &n->gain, c->hidden_size, WEFT_INIT_ONES, full));
    WEFT_TRY(weft_i_str_print(full, sizeof(full), "%s.bias", name));
    return weft_i_family_vector(m, &n->bias, c->hidden_size, WEFT_INIT_ZEROS, full);
}

static float attention_scale(const weft_config *c, int64_t layer)
{
    double scale = c->is_attn_scaled ? 1.0 / sqrt((double)c->head_dim) : 1.0;
    if (c->is_scaled_by_layer)
        scale /= (double)(layer + 1);
    return (float)scale;
}

static weft_status add_block(weft_model *m, const weft_config *c, int64_t i)
{
    const double std = c->initializer_range;
    const double out_std = std / sqrt(2.0 * (double)c->n_layers);
    const int64_t h = c->hidden_size;
    const int number = (int)weft_model_layer_count(m);
    char name[WEFT_PARAM_NAME_BYTES];
    weft_block b = {.cols = h,
                    .resid_dropout = (float)c->resid_dropout,
                    .site1 = weft_i_family_site(number, 2),
                    .site2 = weft_i_family_site(number, 3)};
    weft_attention *a = &b.attention;
    a->n_heads = a->n_kv_heads = c->n_heads;
    a->head_dim = c->head_dim;
    a->scale = attention_scale(c, i);
    a->dropout = (float)c->attn_dropout;
    a->site = weft_i_family_site(number, 1);
    a->out.is_bias_apart = true;
    b.mlp.activation = c->activation;
    b.mlp.width = c->ffn_size;
    b.mlp.down.is_bias_apart = true;

    const char *const prefix = "transformer.h";
    const size_t size = sizeof(name);
    WEFT_TRY(weft_i_str_print(name, size, "%s.%lld.ln_1", prefix, (long long)i));
    WEFT_TRY(add_norm(m, &b.norm1, c, name));
    WEFT_TRY(weft_i_str_print(name, size, "%s.%lld.attn.c_attn", prefix, (long long)i));
    WEFT_TRY(add_conv1d(m, &a->qkv, name, h, 3 * h, std));
    WEFT_TRY(weft_i_str_print(name, size, "%s.%lld.attn.c_proj", prefix, (long long)i));
    WEFT_TRY(add_conv1d(m, &a->out, name, h, h, out_std));
    WEFT_TRY(weft_i_str_print(name, size, "%s.%lld.ln_2", prefix, (long long)i));
    WEFT_TRY(add_norm(m, &b.norm2, c, name));
    WEFT_TRY(weft_i_str_print(name, size, "%s.%lld.mlp.c_fc", prefix, (long long)i));
    WEFT_TRY(add_conv1d(m, &b.mlp.up, name, h, c->ffn_size, std));
    WEFT_TRY(weft_i_str_print(name, size, "%s.%lld.mlp.c_proj", prefix, (long long)i));
    WEFT_TRY(add_conv1d(m, &b.mlp.down, name, c->ffn_size, h, out_std));
    WEFT_TRY(weft_i_family_kv_of_head(m, a->n_heads, a->n_kv_heads, &a->kv_of_head));
    return weft_i_block_add(m, &b);
}

weft_status weft_i_gpt2_build(weft_model *m, const weft_config *c)
{
    const double std = c->initializer_range;
    weft_embedding e = {.cols = c->hidden_size,
                        .dropout = (float)c->embd_dropout,
                        .site = weft_i_family_site(0, 0)};
    weft_head head = {.cols = c->hidden_size};
    WEFT_TRY(weft_i_family_matrix(m, &e.tokens, c->vocab_size, c->hidden_size, std,
                                  "transformer.wte.weight"));
    WEFT_TRY(weft_i_family_matrix(m, &e.positions, c->max_positions, c->hidden_size, std,
                                  "transformer.wpe.weight"));
    WEFT_TRY(weft_i_embedding_add(m, &e));
    for (int64_t i = 0; i < c->n_layers; i++)
        WEFT_TRY(add_block(m, c, i));
    WEFT_TRY(add_norm(m, &head.norm, c, "transformer.ln_f"));
    head.weight = e.tokens;
    if (!c->is_tied)
        WEFT_TRY(weft_i_family_matrix(m, &head.weight, c->vocab_size, c->hidden_size, std,
                                      "lm_head.weight"));
    return weft_i_head_add(m, &head);
}
