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

/* One [in, out] weight with its bias, of full size. */
static weft_status
add_conv1d(weft_model *m, weft_linear *l, const char *name, int64_t in, int64_t out, double std)
{
    char full[WEFT_PARAM_NAME_BYTES];
    l->n_parts = 1;
    l->is_in_out = true;
    WEFT_TRY(weft_i_str_print(full, sizeof(full), "%s.weight", name));
    WEFT_TRY(weft_i_family_matrix(m, &l->weight[0], in, out, std, full));
    WEFT_TRY(weft_i_str_print(full, sizeof(full), "%s.bias", name));
    return weft_i_family_vector(m, &l->bias[0], out, WEFT_INIT_ZEROS, full);
}

/* Column-parallel: of the outputs those of the ranges. */
static void cut_column(weft_linear *l, const weft_slice_range *ranges, int n_ranges)
{
    weft_i_slice_cut(l->weight[0], 1, ranges, n_ranges);
    weft_i_slice_cut(l->bias[0], 1, ranges, n_ranges);
    l->in = l->weight[0]->rows;
    l->out[0] = l->weight[0]->cols;
}

/* Row-parallel: of the inputs those of the range; the bias is added to the sum. */
static void cut_row(weft_linear *l, int64_t first, int64_t n, const weft_model_slice *s)
{
    const weft_slice_range range = {first, n, true};
    weft_i_slice_cut(l->weight[0], 0, &range, 1);
    weft_i_slice_same(l->bias[0], s);
    l->in = l->weight[0]->rows;
    l->out[0] = l->weight[0]->cols;
    l->is_bias_apart = true;
}

/* A strip is a run of each of the n_runs parts of the fused weight, which are `width` apart here. */
static void set_runs(weft_linear *l, int n_runs, int64_t width, int64_t unit)
{
    l->n_runs = n_runs;
    for (int i = 0; i < n_runs; i++)
        l->run[i] = (weft_linear_run){.first = i * width, .unit = unit};
}

static weft_status add_norm(
    weft_model *m, weft_norm *n, const weft_config *c, const weft_model_slice *s, const char *name)
{
    char full[WEFT_PARAM_NAME_BYTES];
    n->kind = WEFT_NORM_LAYER;
    n->eps = c->norm_eps;
    WEFT_TRY(weft_i_str_print(full, sizeof(full), "%s.weight", name));
    WEFT_TRY(weft_i_family_vector(m, &n->gain, c->hidden_size, WEFT_INIT_ONES, full));
    WEFT_TRY(weft_i_str_print(full, sizeof(full), "%s.bias", name));
    WEFT_TRY(weft_i_family_vector(m, &n->bias, c->hidden_size, WEFT_INIT_ZEROS, full));
    weft_i_slice_stream(n->gain, s);
    weft_i_slice_stream(n->bias, s);
    return WEFT_OK;
}

static float attention_scale(const weft_config *c, int64_t layer)
{
    double scale = c->is_attn_scaled ? 1.0 / sqrt((double)c->head_dim) : 1.0;
    if (c->is_scaled_by_layer)
        scale /= (double)(layer + 1);
    return (float)scale;
}

/* "transformer.h.I.NAME" */
static weft_status layer_name(char *out, int64_t i, const char *name)
{
    return weft_i_str_print(out, WEFT_PARAM_NAME_BYTES, "transformer.h.%lld.%s", (long long)i,
                            name);
}

static weft_status add_attention(
    weft_model *m, weft_attention *a, const weft_config *c, const weft_model_slice *s, int64_t i)
{
    const double std = c->initializer_range;
    const double out_std = std / sqrt(2.0 * (double)c->n_layers);
    const int64_t h = c->hidden_size;
    const int64_t first = s->first_head * c->head_dim;
    const int64_t n = s->n_heads * c->head_dim;
    char name[WEFT_PARAM_NAME_BYTES];
    a->n_heads = a->n_kv_heads = s->n_heads;
    a->first_head = s->first_head;
    a->head_dim = c->head_dim;
    a->scale = attention_scale(c, i);
    a->dropout = (float)c->attn_dropout;
    /* The fused product is cut by its parts: q | k | v of the heads here. */
    const weft_slice_range parts[3] = {
        {first, n, true}, {h + first, n, true}, {2 * h + first, n, true}};
    WEFT_TRY(layer_name(name, i, "attn.c_attn"));
    WEFT_TRY(add_conv1d(m, &a->qkv, name, h, 3 * h, std));
    cut_column(&a->qkv, parts, 3);
    WEFT_TRY(layer_name(name, i, "attn.c_proj"));
    WEFT_TRY(add_conv1d(m, &a->out, name, h, h, out_std));
    cut_row(&a->out, first, n, s);
    set_runs(&a->qkv, 3, n, c->head_dim);
    set_runs(&a->out, 1, 0, c->head_dim);
    weft_i_family_in_strips(m, &a->qkv, WEFT_STRIP_KV);
    weft_i_family_in_strips(m, &a->out, WEFT_STRIP_KV);
    return WEFT_OK;
}

static weft_status
add_mlp(weft_model *m, weft_mlp *mlp, const weft_config *c, const weft_model_slice *s, int64_t i)
{
    const double std = c->initializer_range;
    const double out_std = std / sqrt(2.0 * (double)c->n_layers);
    const weft_slice_range range = {s->first_ffn, s->n_ffn, true};
    char name[WEFT_PARAM_NAME_BYTES];
    mlp->activation = c->activation;
    mlp->width = s->n_ffn;
    WEFT_TRY(layer_name(name, i, "mlp.c_fc"));
    WEFT_TRY(add_conv1d(m, &mlp->up, name, c->hidden_size, c->ffn_size, std));
    cut_column(&mlp->up, &range, 1);
    WEFT_TRY(layer_name(name, i, "mlp.c_proj"));
    WEFT_TRY(add_conv1d(m, &mlp->down, name, c->ffn_size, c->hidden_size, out_std));
    cut_row(&mlp->down, s->first_ffn, s->n_ffn, s);
    set_runs(&mlp->up, 1, 0, 1);
    set_runs(&mlp->down, 1, 0, 1);
    weft_i_family_in_strips(m, &mlp->up, WEFT_STRIP_FFN);
    weft_i_family_in_strips(m, &mlp->down, WEFT_STRIP_FFN);
    return WEFT_OK;
}

static weft_status
add_block(weft_model *m, const weft_config *c, const weft_model_slice *s, int64_t i)
{
    const int number = (int)i + 1; /* in the whole list */
    char name[WEFT_PARAM_NAME_BYTES];
    weft_block b = {.cols = c->hidden_size,
                    .resid_dropout = (float)c->resid_dropout,
                    .site1 = weft_i_family_site(number, 2),
                    .site2 = weft_i_family_site(number, 3)};
    b.attention.site = weft_i_family_site(number, 1);
    WEFT_TRY(layer_name(name, i, "ln_1"));
    WEFT_TRY(add_norm(m, &b.norm1, c, s, name));
    WEFT_TRY(add_attention(m, &b.attention, c, s, i));
    WEFT_TRY(layer_name(name, i, "ln_2"));
    WEFT_TRY(add_norm(m, &b.norm2, c, s, name));
    WEFT_TRY(add_mlp(m, &b.mlp, c, s, i));
    WEFT_TRY(weft_i_family_kv_of_head(m, c, s, &b.attention.kv_of_head));
    return weft_i_block_add(m, &b);
}

static weft_status
add_table(weft_model *m, weft_param **out, const weft_config *c, const weft_model_slice *s)
{
    WEFT_TRY(weft_i_family_matrix(m, out, c->vocab_size, c->hidden_size, c->initializer_range,
                                  "transformer.wte.weight"));
    weft_i_family_cut_ids(*out, s);
    return WEFT_OK;
}

static weft_status
add_embedding(weft_model *m, weft_embedding *e, const weft_config *c, const weft_model_slice *s)
{
    e->cols = c->hidden_size;
    e->first_id = s->first_id;
    e->dropout = (float)c->embd_dropout;
    e->site = weft_i_family_site(0, 0);
    WEFT_TRY(add_table(m, &e->tokens, c, s));
    WEFT_TRY(weft_i_family_matrix(m, &e->positions, c->max_positions, c->hidden_size,
                                  c->initializer_range, "transformer.wpe.weight"));
    weft_i_slice_same(e->positions, s);
    return weft_i_embedding_add(m, e);
}

static weft_status
add_head(weft_model *m, weft_param *table, const weft_config *c, const weft_model_slice *s)
{
    weft_head head = {.cols = c->hidden_size, .first_id = s->first_id};
    WEFT_TRY(add_norm(m, &head.norm, c, s, "transformer.ln_f"));
    if (!c->is_tied) {
        WEFT_TRY(weft_i_family_matrix(m, &table, c->vocab_size, c->hidden_size,
                                      c->initializer_range, "lm_head.weight"));
        weft_i_family_cut_ids(table, s);
    } else if (table == NULL) { /* another stage has the embedding and owns the table */
        WEFT_TRY(add_table(m, &table, c, s));
        table->piece[0].is_owned = false;
    }
    head.product.weight[0] = table;
    weft_i_family_in_strips(m, &head.product, WEFT_STRIP_IDS);
    return weft_i_head_add(m, &head);
}

weft_status weft_i_gpt2_build(weft_model *m, const weft_config *c, const weft_model_slice *s)
{
    weft_embedding e = {.tokens = NULL};
    if (weft_i_family_has_item(s, 0))
        WEFT_TRY(add_embedding(m, &e, c, s));
    for (int64_t i = 0; i < c->n_layers; i++) {
        if (weft_i_family_has_item(s, i + 1))
            WEFT_TRY(add_block(m, c, s, i));
    }
    return weft_i_family_has_item(s, c->n_layers + 1) ? add_head(m, e.tokens, c, s) : WEFT_OK;
}
