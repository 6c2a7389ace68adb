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

#define EMBEDDING "model.embed_tokens.weight"

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

static weft_status add_norm(
    weft_model *m, weft_norm *n, const weft_config *c, const weft_model_slice *s, const char *name)
{
    n->kind = WEFT_NORM_RMS;
    n->eps = c->norm_eps;
    WEFT_TRY(weft_i_family_vector(m, &n->gain, c->hidden_size, WEFT_INIT_ONES, name));
    weft_i_slice_stream(n->gain, s);
    return WEFT_OK;
}

/* Column-parallel part i: of its outputs those of the range. */
static void cut_column(weft_linear *l, int i, const weft_slice_range *range)
{
    weft_i_slice_cut(l->weight[i], 0, range, 1);
    if (l->bias[i] != NULL)
        weft_i_slice_cut(l->bias[i], 1, range, 1);
    l->out[i] = l->weight[i]->rows;
}

static void cut_kv(weft_linear *l, int i, const weft_config *c, const weft_model_slice *s)
{
    weft_i_slice_cut_kv(l->weight[i], 0, s, c);
    if (l->bias[i] != NULL)
        weft_i_slice_cut_kv(l->bias[i], 1, s, c);
    l->out[i] = l->weight[i]->rows;
}

/* Row-parallel: of the inputs those of the range; the bias is added to the sum. */
static void cut_row(weft_linear *l, const weft_slice_range *range, const weft_model_slice *s)
{
    weft_i_slice_cut(l->weight[0], 1, range, 1);
    if (l->bias[0] != NULL)
        weft_i_slice_same(l->bias[0], s);
    l->in = l->weight[0]->cols;
    l->is_bias_apart = true;
}

/* A strip is a run of every part: `first` rows (columns) of part 0 for each of its items, `others` of the others. */
static void set_runs(weft_linear *l, int64_t first, int64_t others)
{
    l->n_runs = l->n_parts;
    for (int i = 0; i < l->n_parts; i++)
        l->run[i] = (weft_linear_run){.part = i, .unit = i == 0 ? first : others};
}

/* "model.layers.I.NAME" */
static weft_status layer_name(char *out, int64_t i, const char *name)
{
    return weft_i_str_print(out, WEFT_PARAM_NAME_BYTES, "model.layers.%lld.%s", (long long)i, name);
}

static weft_status add_attention(
    weft_model *m, weft_attention *a, const weft_config *c, const weft_model_slice *s, int64_t i)
{
    char q[WEFT_PARAM_NAME_BYTES];
    char k[WEFT_PARAM_NAME_BYTES];
    char v[WEFT_PARAM_NAME_BYTES];
    char o[WEFT_PARAM_NAME_BYTES];
    const int64_t d = c->head_dim;
    const int64_t outs[3] = {c->n_heads * d, c->n_kv_heads * d, c->n_kv_heads * d};
    const char *const names[3] = {q, k, v};
    const char *const out_names[1] = {o};
    const weft_slice_range heads = {s->first_head * d, s->n_heads * d, true};
    int64_t first_kv = 0;
    WEFT_TRY(layer_name(q, i, "self_attn.q_proj"));
    WEFT_TRY(layer_name(k, i, "self_attn.k_proj"));
    WEFT_TRY(layer_name(v, i, "self_attn.v_proj"));
    WEFT_TRY(layer_name(o, i, "self_attn.o_proj"));
    weft_i_slice_kv(s, c, &first_kv, &a->n_kv_heads);
    a->n_heads = s->n_heads;
    a->first_head = s->first_head;
    a->head_dim = d;
    a->scale = (float)(1.0 / sqrt((double)d));
    a->has_rope = true;
    a->dropout = (float)c->attn_dropout;
    a->qkv.n_parts = 3;
    a->qkv.in = c->hidden_size;
    a->out.n_parts = 1;
    a->out.in = outs[0];
    WEFT_TRY(add_linear(m, &a->qkv, c, names, outs, c->has_attention_bias));
    cut_column(&a->qkv, 0, &heads);
    cut_kv(&a->qkv, 1, c, s);
    cut_kv(&a->qkv, 2, c, s);
    WEFT_TRY(add_linear(m, &a->out, c, out_names, &c->hidden_size, c->has_attention_bias));
    cut_row(&a->out, &heads, s);

    const int64_t group = c->n_heads / c->n_kv_heads * d;
    set_runs(&a->qkv, group, d);
    set_runs(&a->out, group, 0);
    weft_i_family_in_strips(m, &a->qkv, WEFT_STRIP_KV);
    weft_i_family_in_strips(m, &a->out, WEFT_STRIP_KV);
    return WEFT_OK;
}

static weft_status
add_mlp(weft_model *m, weft_mlp *mlp, const weft_config *c, const weft_model_slice *s, int64_t i)
{
    char gate[WEFT_PARAM_NAME_BYTES];
    char up[WEFT_PARAM_NAME_BYTES];
    char down[WEFT_PARAM_NAME_BYTES];
    const int64_t outs[2] = {c->ffn_size, c->ffn_size};
    const char *const names[2] = {gate, up};
    const char *const down_names[1] = {down};
    const weft_slice_range range = {s->first_ffn, s->n_ffn, true};
    WEFT_TRY(layer_name(gate, i, "mlp.gate_proj"));
    WEFT_TRY(layer_name(up, i, "mlp.up_proj"));
    WEFT_TRY(layer_name(down, i, "mlp.down_proj"));
    mlp->activation = c->activation;
    mlp->width = s->n_ffn;
    mlp->up.n_parts = 2;
    mlp->up.in = c->hidden_size;
    mlp->down.n_parts = 1;
    mlp->down.in = c->ffn_size;
    WEFT_TRY(add_linear(m, &mlp->up, c, names, outs, c->has_mlp_bias));
    cut_column(&mlp->up, 0, &range);
    cut_column(&mlp->up, 1, &range);
    WEFT_TRY(add_linear(m, &mlp->down, c, down_names, &c->hidden_size, c->has_mlp_bias));
    cut_row(&mlp->down, &range, s);
    set_runs(&mlp->up, 1, 1);
    set_runs(&mlp->down, 1, 0);
    weft_i_family_in_strips(m, &mlp->up, WEFT_STRIP_FFN);
    weft_i_family_in_strips(m, &mlp->down, WEFT_STRIP_FFN);
    return WEFT_OK;
}

static weft_status
add_block(weft_model *m, const weft_config *c, const weft_model_slice *s, int64_t i)
{
    char name[WEFT_PARAM_NAME_BYTES];
    const int number = (int)i + 1; /* in the whole list */
    weft_block b = {.cols = c->hidden_size,
                    .resid_dropout = (float)c->resid_dropout,
                    .site1 = weft_i_family_site(number, 2),
                    .site2 = weft_i_family_site(number, 3)};
    b.attention.site = weft_i_family_site(number, 1);
    WEFT_TRY(layer_name(name, i, "input_layernorm.weight"));
    WEFT_TRY(add_norm(m, &b.norm1, c, s, name));
    WEFT_TRY(add_attention(m, &b.attention, c, s, i));
    WEFT_TRY(layer_name(name, i, "post_attention_layernorm.weight"));
    WEFT_TRY(add_norm(m, &b.norm2, c, s, name));
    WEFT_TRY(add_mlp(m, &b.mlp, c, s, i));
    WEFT_TRY(weft_i_family_kv_of_head(m, c, s, &b.attention.kv_of_head));
    return weft_i_block_add(m, &b);
}

static weft_status add_table(weft_model *m,
                             weft_param **out,
                             const weft_config *c,
                             const weft_model_slice *s,
                             const char *name)
{
    WEFT_TRY(
        weft_i_family_matrix(m, out, c->vocab_size, c->hidden_size, c->initializer_range, name));
    weft_i_family_cut_ids(*out, s);
    return WEFT_OK;
}

static weft_status
add_head(weft_model *m, weft_param *table, const weft_config *c, const weft_model_slice *s)
{
    weft_head head = {.cols = c->hidden_size, .first_id = s->first_id};
    WEFT_TRY(add_norm(m, &head.norm, c, s, "model.norm.weight"));
    if (!c->is_tied) {
        WEFT_TRY(add_table(m, &table, c, s, "lm_head.weight"));
    } else if (table == NULL) { /* another stage has the embedding and owns the table */
        WEFT_TRY(add_table(m, &table, c, s, EMBEDDING));
        table->piece[0].is_owned = false;
    }
    head.product.weight[0] = table;
    weft_i_family_in_strips(m, &head.product, WEFT_STRIP_IDS);
    return weft_i_head_add(m, &head);
}

weft_status weft_i_llama_build(weft_model *m, const weft_config *c, const weft_model_slice *s)
{
    weft_embedding e = {.cols = c->hidden_size,
                        .first_id = s->first_id,
                        .dropout = (float)c->embd_dropout,
                        .site = weft_i_family_site(0, 0)};
    if (weft_i_family_has_item(s, 0)) {
        WEFT_TRY(add_table(m, &e.tokens, c, s, EMBEDDING));
        WEFT_TRY(weft_i_embedding_add(m, &e));
    }
    for (int64_t i = 0; i < c->n_layers; i++) {
        if (weft_i_family_has_item(s, i + 1))
            WEFT_TRY(add_block(m, c, s, i));
    }
    return weft_i_family_has_item(s, c->n_layers + 1) ? add_head(m, e.tokens, c, s) : WEFT_OK;
}
