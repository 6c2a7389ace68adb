/* From a config to a list of layers (contract: weft_model_from_config in weft/model.h), and what families share. */
#include "nn/models/families.h"

#include "base/ctx.h"
#include "base/error.h"
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

weft_status weft_i_family_kv_of_head(weft_model *m, int64_t n_heads, int64_t n_kv_heads, int **out)
{
    void *p = NULL;
    WEFT_TRY(weft_i_alloc_new(weft_model_ctx(m)->alloc, (size_t)n_heads, sizeof(int), &p));
    int *kv = p;
    for (int64_t i = 0; i < n_heads; i++)
        kv[i] = (int)(i / (n_heads / n_kv_heads));
    *out = kv;
    return WEFT_OK;
}

uint32_t weft_i_family_site(int number, int place)
{
    return (uint32_t)number * 4u + (uint32_t)place;
}

weft_status
weft_model_from_config(weft_model **out, weft_ctx *ctx, const weft_config *config, weft_dtype dtype)
{
    weft_model *m = NULL;
    weft_status st = WEFT_OK;
    *out = NULL;
    WEFT_TRY(weft_model_create(&m, ctx, dtype));
    m->config = *config;
    switch (config->family) {
    case WEFT_FAMILY_GPT2:
        st = weft_i_gpt2_build(m, config);
        break;
    case WEFT_FAMILY_LLAMA:
        m->has_rope = true;
        st = weft_i_llama_build(m, config);
        break;
    default:
        st = weft_i_error_set(WEFT_STATUS_UNSUPPORTED, "family %d is none weft builds",
                              (int)config->family);
        break;
    }
    if (st != WEFT_OK) {
        weft_model_destroy(m);
        return st;
    }
    *out = m;
    return WEFT_OK;
}
