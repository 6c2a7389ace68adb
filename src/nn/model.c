/*
 * A model: parameters in the order they were added, layers in the order they run, one block of weights, one of gradients.
 *
 * Invariants
 *  1. Weights lie in one flat block in the order of parameters, each aligned to WEFT_PARAM_ALIGN_ELEMS; gradients of what
 *     is not frozen in another, the same order and alignment.
 *  2. Fresh weights are f(seed, name, element of the full tensor): no layout, no order of creation enters.
 * Communication: none. Leaves to others: what layers compute, who owns a shard.
 */
#include "nn/model_parts.h"

#include <string.h>

#include "backend/run_op.h"
#include "base/ctx.h"
#include "base/str.h"
#include "nn/param_part.h"

weft_status weft_model_create(weft_model **out, weft_ctx *ctx, weft_dtype dtype)
{
    void *p = NULL;
    *out = NULL;
    if (dtype != WEFT_DTYPE_F32 && dtype != WEFT_DTYPE_BF16)
        WEFT_FAIL(WEFT_STATUS_UNSUPPORTED, "models compute in F32 or BF16, not in %s",
                  weft_dtype_name(dtype));
    WEFT_TRY(weft_i_alloc_new(ctx->alloc, 1, sizeof(weft_model), &p));
    weft_model *m = p;
    m->ctx = ctx;
    m->dtype = dtype;
    *out = m;
    return WEFT_OK;
}

void weft_model_destroy(weft_model *m)
{
    if (m == NULL)
        return;
    weft_backend *b = m->ctx->backend;
    for (int64_t i = m->n_layers - 1; i >= 0; i--) {
        weft_layer *l = &m->layers[i];
        if (l->ops->destroy != NULL)
            l->ops->destroy(l);
        weft_i_alloc_put(m->ctx->alloc, (void *)(uintptr_t)l->params);
    }
    weft_i_alloc_put(m->ctx->alloc, m->layers);
    for (int64_t i = 0; i < m->n_params; i++)
        weft_i_alloc_put(m->ctx->alloc, m->params[i]);
    weft_i_alloc_put(m->ctx->alloc, m->params);
    weft_i_name_table_fini(&m->names, m->ctx->alloc);
    weft_i_alloc_put(m->ctx->alloc, m->strip_ends);
    if (m->grads != NULL)
        b->ops->mem_put(b, m->grads);
    if (m->values != NULL)
        b->ops->mem_put(b, m->values);
    weft_i_alloc_put(m->ctx->alloc, m);
}

weft_status weft_model_add_param(
    weft_model *m, const char *name, int n_dims, int64_t rows, int64_t cols, weft_param **out)
{
    void *p = NULL;
    void *list = m->params;
    if (m->is_laid_out)
        WEFT_FAIL(WEFT_STATUS_ARG, "%s was added to a model that is allocated already", name);
    if (weft_model_find_param(m, name) != NULL)
        WEFT_FAIL(WEFT_STATUS_ARG, "the model has a parameter %s already", name);
    if (n_dims < 1 || n_dims > 2 || rows < 1 || cols < 1 || (n_dims == 1 && rows != 1))
        WEFT_FAIL(WEFT_STATUS_ARG, "%s cannot have %d dimensions of %lld x %lld", name, n_dims,
                  (long long)rows, (long long)cols);
    WEFT_TRY(weft_i_alloc_grow(m->ctx->alloc, (size_t)m->n_params + 1, sizeof(*m->params),
                               &m->params_capacity, &list));
    m->params = list;
    WEFT_TRY(weft_i_alloc_new(m->ctx->alloc, 1, sizeof(weft_param), &p));
    weft_param *param = p;
    weft_status st = weft_i_str_print(param->name, sizeof(param->name), "%s", name);
    if (st == WEFT_OK)
        st = weft_i_name_table_add(&m->names, m->ctx->alloc, param->name, m->n_params);
    if (st != WEFT_OK) {
        weft_i_alloc_put(m->ctx->alloc, param);
        return st;
    }
    param->n_dims = n_dims;
    param->number = m->n_params;
    param->full_rows = param->rows = rows;
    param->full_cols = param->cols = cols;
    param->piece[0] = (weft_param_piece){.rows = rows, .cols = cols, .is_owned = true};
    param->n_pieces = 1;
    param->is_decayed = n_dims == 2;
    param->init = n_dims == 2 ? WEFT_INIT_NORMAL : WEFT_INIT_ZEROS;
    param->init_std = 0.02;
    param->grad_first = -1;
    m->params[m->n_params++] = param;
    *out = param;
    return WEFT_OK;
}

weft_status weft_model_add_layer(weft_model *m,
                                 const weft_layer_ops *ops,
                                 void *take_data,
                                 int64_t cols_out,
                                 weft_param *const *params,
                                 int n_params)
{
    weft_layer l = {.ops = ops,
                    .data = take_data,
                    .ctx = m->ctx,
                    .number = (int)m->n_layers,
                    .cols_out = cols_out};
    void *list = NULL;
    void *layers = m->layers;
    weft_status st = WEFT_OK;
    WEFT_TRY_GOTO(
        st, weft_i_alloc_new(m->ctx->alloc, (size_t)n_params + 1, sizeof(weft_param *), &list),
        out);
    if (n_params > 0)
        memcpy(list, params, (size_t)n_params * sizeof(*params));
    l.params = list;
    l.n_params = n_params;
    WEFT_TRY_GOTO(st,
                  weft_i_alloc_grow(m->ctx->alloc, (size_t)m->n_layers + 1, sizeof(weft_layer),
                                    &m->layers_capacity, &layers),
                  out);
    m->layers = layers;
    m->layers[m->n_layers++] = l;
    for (int i = 0; i < n_params; i++)
        params[i]->n_uses++;
out:
    if (st != WEFT_OK) {
        weft_i_alloc_put(m->ctx->alloc, list);
        if (ops->destroy != NULL)
            ops->destroy(&l);
    }
    return st;
}

int64_t weft_model_param_count(const weft_model *m)
{
    return m->n_params;
}

weft_param *weft_model_param(weft_model *m, int64_t i)
{
    return i >= 0 && i < m->n_params ? m->params[i] : NULL;
}

weft_param *weft_model_find_param(weft_model *m, const char *name)
{
    const int64_t i = weft_i_name_table_find(&m->names, name);
    return i >= 0 ? m->params[i] : NULL;
}

int64_t weft_model_layer_count(const weft_model *m)
{
    return m->n_layers;
}

weft_layer *weft_model_layer(weft_model *m, int64_t i)
{
    return i >= 0 && i < m->n_layers ? &m->layers[i] : NULL;
}

int64_t weft_model_element_count(const weft_model *m)
{
    int64_t n = 0;
    for (int64_t i = 0; i < m->n_params; i++)
        n += m->params[i]->full_rows * m->params[i]->full_cols;
    return n;
}

weft_dtype weft_model_dtype(const weft_model *m)
{
    return m->dtype;
}

weft_ctx *weft_model_ctx(const weft_model *m)
{
    return m->ctx;
}

const weft_config *weft_model_config(const weft_model *m)
{
    return &m->config;
}

weft_status weft_model_freeze(weft_model *m, const char *glob, int64_t *n_matched)
{
    *n_matched = 0;
    if (m->is_laid_out)
        WEFT_FAIL(WEFT_STATUS_ARG, "parameters were frozen after the model was allocated");
    for (int64_t i = 0; i < m->n_params; i++) {
        if (weft_i_str_glob(glob, m->params[i]->name)) {
            m->params[i]->is_frozen = true;
            (*n_matched)++;
        }
    }
    return WEFT_OK;
}

static int64_t aligned(int64_t n)
{
    return (n + WEFT_PARAM_ALIGN_ELEMS - 1) / WEFT_PARAM_ALIGN_ELEMS * WEFT_PARAM_ALIGN_ELEMS;
}

weft_status weft_model_lay_out(weft_model *m, bool is_training)
{
    if (m->is_laid_out)
        WEFT_FAIL(WEFT_STATUS_ARG, "the model was laid out or allocated twice");
    for (int64_t i = 0; i < m->n_params; i++) {
        weft_param *p = m->params[i];
        p->value_first = m->n_value_elems;
        m->n_value_elems += aligned(p->rows * p->cols);
        if (is_training && !p->is_frozen) {
            p->grad_first = m->n_grad_elems;
            m->n_grad_elems += aligned(p->rows * p->cols);
        }
    }
    m->is_laid_out = true;
    weft_model_attach(m, NULL, NULL);
    return WEFT_OK;
}

int64_t weft_model_value_elems(const weft_model *m)
{
    return m->n_value_elems;
}

int64_t weft_model_grad_elems(const weft_model *m)
{
    return m->n_grad_elems;
}

/* Element `first` of a block; NULL stays NULL. */
static void *at_element(void *block, weft_dtype dtype, int64_t first)
{
    return block != NULL ? (char *)block + (size_t)first * weft_dtype_bytes(dtype) : NULL;
}

void weft_model_attach(weft_model *m, void *values, void *grads)
{
    for (int64_t i = 0; i < m->n_params; i++) {
        weft_param *p = m->params[i];
        p->value = weft_view_make(at_element(values, m->dtype, p->value_first), m->dtype, p->rows,
                                  p->cols);
        if (p->grad_first >= 0)
            p->grad = weft_view_make(at_element(grads, WEFT_DTYPE_F32, p->grad_first),
                                     WEFT_DTYPE_F32, p->rows, p->cols);
    }
}

weft_status weft_model_allocate(weft_model *m, bool is_training)
{
    weft_backend *b = m->ctx->backend;
    WEFT_TRY(weft_model_lay_out(m, is_training));
    WEFT_TRY(b->ops->mem_get(b, WEFT_MEM_PARAMETERS,
                             (size_t)m->n_value_elems * weft_dtype_bytes(m->dtype), "weights",
                             &m->values));
    if (is_training)
        WEFT_TRY(b->ops->mem_get(b, WEFT_MEM_GRADIENTS, (size_t)m->n_grad_elems * sizeof(float),
                                 "gradients", &m->grads));
    weft_model_attach(m, m->values, m->grads);
    return WEFT_OK;
}

weft_status weft_model_init_weights(weft_model *m, uint64_t seed)
{
    for (int64_t i = 0; i < m->n_params; i++) {
        const weft_part part = weft_i_part_whole(m, i);
        WEFT_TRY(weft_i_part_init(m->ctx->backend, &part, part.value, seed));
    }
    return WEFT_OK;
}

void weft_model_begin_step(weft_model *m)
{
    for (int64_t i = 0; i < m->n_params; i++)
        m->params[i]->has_grad = false;
}

weft_status weft_model_end_step(weft_model *m)
{
    for (int64_t i = 0; i < m->n_params; i++) {
        weft_param *p = m->params[i];
        if (p->grad.data != NULL && !p->has_grad) {
            const weft_fill_args a = {.x = p->grad, .value = 0.0f};
            WEFT_TRY(weft_i_op_run(m->ctx->backend, WEFT_OP_FILL, &a, NULL));
            p->has_grad = true;
        }
    }
    return WEFT_OK;
}

void weft_i_model_begin_micro_batch(weft_model *m)
{
    for (int64_t i = 0; i < m->n_params; i++)
        m->params[i]->n_uses_left = m->params[i]->n_uses;
}
