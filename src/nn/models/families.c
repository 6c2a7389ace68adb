/* From a config to a list of layers (contract: weft_model_from_config in weft/model.h), and what families share. */
#include "nn/models/families.h"

#include "base/ctx.h"
#include "nn/model_parts.h"

weft_status weft_i_family_matrix(
    weft_model *m, weft_param **out, int64_t rows, int64_t cols, double std, const char *name)
{
    WEFT_TRY(weft_model_add_param(m, name, 2, rows, cols, out));
    (*out)->init = WEFT_INIT_NORMAL;
    (*out)->init_std = std;
    return WEFT_OK;
}

weft_status weft_i_family_vector(
    weft_model *m, weft_param **out, int64_t n, weft_param_init init, const char *name)
{
    WEFT_TRY(weft_model_add_param(m, name, 1, 1, n, out));
    (*out)->init = init;
    return WEFT_OK;
}

weft_status
weft_i_family_kv_of_head(weft_model *m, const weft_config *c, const weft_model_slice *s, int **out)
{
    int64_t first_kv = 0;
    int64_t n_kv = 0;
    void *p = NULL;
    weft_i_slice_kv(s, c, &first_kv, &n_kv);
    WEFT_TRY(weft_i_alloc_new(weft_model_ctx(m)->alloc, (size_t)s->n_heads, sizeof(int), &p));
    int *kv = p;
    for (int64_t i = 0; i < s->n_heads; i++)
        kv[i] = (int)((s->first_head + i) / (c->n_heads / c->n_kv_heads) - first_kv);
    *out = kv;
    return WEFT_OK;
}

void weft_i_family_in_strips(const weft_model *m, weft_linear *l, weft_strip_kind kind)
{
    l->n_strips = m->slice.n_strips;
    if (l->n_strips > 0)
        l->strip_ends = m->strip_ends + (int64_t)kind * l->n_strips;
}

void weft_i_family_cut_ids(weft_param *p, const weft_model_slice *s)
{
    const weft_slice_range range = {s->first_id, s->n_ids, true};
    weft_i_slice_cut(p, 0, &range, 1);
}

bool weft_i_family_has_item(const weft_model_slice *s, int64_t item)
{
    return item >= s->first_item && item < s->first_item + s->n_items;
}

uint32_t weft_i_family_site(int number, int place)
{
    return (uint32_t)number * 4u + (uint32_t)place;
}

weft_status
weft_model_from_config(weft_model **out, weft_ctx *ctx, const weft_config *config, weft_dtype dtype)
{
    const weft_model_slice whole = weft_i_slice_whole(config);
    return weft_i_model_from_slice(out, ctx, config, dtype, &whole);
}
