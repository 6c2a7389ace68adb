/*
 * Llama (Touvron et al. 2023, arXiv:2302.13971) as a list of layers: rotary positions, RMSNorm, grouped queries, gated
 * MLP, separate or tied head. Names and shapes are those of LlamaForCausalLM's files; weights are stored [out, in].
 */
#include "nn/models/families.h"

#include <math.h>

#include "base/error.h"
#include "base/str.h"
#include "nn/embedding.h"
#include "nn/head.h"

/* What a linear map of parts side by side needs: names and widths. Weights come first, then biases: adjacent storage. */
static weft_status add_linear(weft_model *m,
                              weft_linear *l,
                              const weft_config *c,
                              const char *const *names,
                              const int64_t *outs,
                              bool has_bias)
{
    char full[WEFT_PARAM_NAME_BYTES];
    for (int i = 0; i < l->n_parts; i++) {
        l->out[i] = outs[i];
        WEFT_TRY(weft_i_str_print(full, sizeof(full), "%s.weight", names[i]));
        WEFT_TRY(
            weft_i_family_matrix(m, &l->weight[i], outs[i], l->in, c->initializer_range, full));
    }
    for (int i = 0; has_bias && i < l->n_parts; i++) {
        WEFT_TRY(weft_i_str_print(full, sizeof(full), "%s.bias", names[i]));
        WEFT_TRY(weft_i_family_vector(m, &l->bias[i], outs[i], WEFT_INIT_ZEROS, full));
    }
    return WEFT_OK;
}

static weft_status add_norm(weft_model *m, weft_norm *n, const weft_config *c, const char *name)
{
    n->kind = WEFT_NORM_RMS;
    n->eps = c->norm_eps;
    return weft_i_family_vector(m, &n->gain, c->hidden_size, WEFT_INIT_ONES, name);
}

/* "model.layers.I.NAME" */
static weft_status layer_name(char *out, int64_t i, const char *name)
{
    return weft_i_str_print(out, WEFT_PARAM_NAME_BYTES, "model.layers.%lld.%s", (long long)i, name);
}

static weft_status add_attention(weft_model *m, weft_attention *a, const weft_config *c, int64_t i)
{
    char q[WEFT_PARAM_NAME_BYTES];
    char k[WEFT_PARAM_NAME_BYTES];
    char v[WEFT_PARAM_NAME_BYTES];
    char o[WEFT_PARAM_NAME_BYTES];
    const int64_t kv = c->n_kv_heads * c->head_dim;
    const int64_t outs[3] = {c->n_heads * c->head_dim, kv, kv};
    const char *const names[3] = {q, k, v};
    const char *const out_names[1] = {o};
    WEFT_TRY(layer_name(q, i, "self_attn.q_proj"));
    WEFT_TRY(layer_name(k, i, "self_attn.k_proj"));
    WEFT_TRY(layer_name(v, i, "self_attn.v_proj"));
    WEFT_TRY(layer_name(o, i, "self_attn.o_proj"));
    a->n_heads = c->n_heads;
    a->n_kv_heads = c->n_kv_heads;
    a->head_dim = c->head_dim;
    a->scale = (float)(1.0 / sqrt((double)c->head_dim));
    a->has_rope = true;
    a->dropout = (float)c->attn_dropout;
    a->qkv.n_parts = 3;
    a->qkv.in = c->hidden_size;
    a->out.n_parts = 1;
    a->out.in = outs[0];
    a->out.is_bias_apart = true;
    WEFT_TRY(add_linear(m, &a->qkv, c, names, outs, c->has_attention_bias));
    return add_linear(m, &a->out, c, out_names, &c->hidden_size, c->has_attention_bias);
}

static weft_status add_mlp(weft_model *m, weft_mlp *mlp, const weft_config *c, int64_t i)
{
    char gate[WEFT_PARAM_NAME_BYTES];
    char up[WEFT_PARAM_NAME_BYTES];
    char down[WEFT_PARAM_NAME_BYTES];
    const int64_t outs[2] = {c->ffn_size, c->ffn_size};
    const char *const names[2] = {gate, up};
    const char *const down_names[1] = {down};
    WEFT_TRY(layer_name(gate, i, "mlp.gate_proj"));
    WEFT_TRY(layer_name(up, i, "mlp.up_proj"));
    WEFT_TRY(layer_name(down, i, "mlp.down_proj"));
    mlp->activation = c->activation;
    mlp->width = c->ffn_size;
    mlp->up.n_parts = 2;
    mlp->up.in = c->hidden_size;
    mlp->down.n_parts = 1;
    mlp->down.in = c->ffn_size;
    mlp->down.is_bias_apart = true;
    WEFT_TRY(add_linear(m, &mlp->up, c, names, outs, c->has_mlp_bias));
    return add_linear(m, &mlp->down, c, down_names, &c->hidden_size, c->has_mlp_bias);
}

static weft_status add_block(weft_model *m, const weft_config *c, int64_t i)
{
    char name[WEFT_PARAM_NAME_BYTES];
    const int number = (int)weft_model_layer_count(m);
    weft_block b = {.cols = c->hidden_size,
                    .resid_dropout = (float)c->resid_dropout,
                    .site1 = weft_i_family_site(number, 2),
                    .site2 = weft_i_family_site(number, 3)};
    b.attention.site = weft_i_family_site(number, 1);
    WEFT_TRY(layer_name(name, i, "input_layernorm.weight"));
    WEFT_TRY(add_norm(m, &b.norm1, c, name));
    WEFT_TRY(add_attention(m, &b.attention, c, i));
    WEFT_TRY(layer_name(name, i, "post_attention_layernorm.weight"));
    WEFT_TRY(add_norm(m, &b.norm2, c, name));
    WEFT_TRY(add_mlp(m, &b.mlp, c, i));
    WEFT_TRY(weft_i_family_kv_of_head(m, c->n_heads, c->n_kv_heads, &b.attention.kv_of_head));
    return weft_i_block_add(m, &b);
}

weft_status weft_i_llama_build(weft_model *m, const weft_config *c)
{
    weft_embedding e = {.cols = c->hidden_size,
                        .dropout = (float)c->embd_dropout,
                        .site = weft_i_family_site(0, 0)};
    weft_head head = {.cols = c->hidden_size};
    WEFT_TRY(weft_i_family_matrix(m, &e.tokens, c->vocab_size, c->hidden_size, c->initializer_range,
                                  "model.embed_tokens.weight"));
    WEFT_TRY(weft_i_embedding_add(m, &e));
    for (int64_t i = 0; i < c->n_layers; i++)
        WEFT_TRY(add_block(m, c, i));
    WEFT_TRY(add_norm(m, &head.norm, c, "model.norm.weight"));
    head.weight = e.tokens;
    if (!c->is_tied)
        WEFT_TRY(weft_i_family_matrix(m, &head.weight, c->vocab_size, c->hidden_size,
                                      c->initializer_range, "lm_head.weight"));
    return weft_i_head_add(m, &head);
}
