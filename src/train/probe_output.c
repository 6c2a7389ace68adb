/*
 * Writes what a probe found (contract: probe_output.h).
 *
 * Tensors are written in the order of the plan, so nothing of the batch's size is held: logits of a micro-batch are written
 * as they come, gradients by pieces.
 */
#include "train/probe_output.h"

#include <stdio.h>
#include <string.h>

#define PIECE_ELEMS ((int64_t)1 << 16)
#define NAME_BYTES (WEFT_PARAM_NAME_BYTES + 8)
#define N_FIXED 3

static bool is_number(weft_dtype t)
{
    return t == WEFT_DTYPE_F32 || t == WEFT_DTYPE_BF16 || t == WEFT_DTYPE_F16 ||
           t == WEFT_DTYPE_F64;
}

static void add(weft_probe_output *o, const char *name, weft_shape shape, weft_param *p)
{
    o->plan[o->n_plan] = (weft_st_plan){.name = name, .dtype = WEFT_DTYPE_F32, .shape = shape};
    o->param[o->n_plan] = p;
    o->n_plan++;
}

static weft_status
add_grad(weft_probe_output *o, const char *file_name, weft_shape shape, weft_param *p)
{
    char *name = o->names + o->n_plan * NAME_BYTES;

    WEFT_TRY(weft_i_str_print(name, NAME_BYTES, "grad/%s", file_name));
    add(o, name, shape, p);
    o->n_grads++;
    return WEFT_OK;
}

static weft_status plan_grads(weft_probe_output *o, weft_model *m, const weft_source *s)
{
    char name[WEFT_PARAM_NAME_BYTES];

    for (int64_t i = 0; i < weft_model_param_count(m); i++) {
        weft_param *p = weft_model_param(m, i);
        const weft_shape shape = p->n_dims == 1 ? weft_i_shape_1d(p->full_cols)
                                                : weft_i_shape_2d(p->full_rows, p->full_cols);
        weft_i_weights_file_name(&s->names, p, name);
        WEFT_TRY(add_grad(o, name, shape, p));
    }
    for (size_t i = 0; s->weights != NULL && i < weft_i_st_count(s->weights); i++) {
        const weft_st_tensor *t = weft_i_st_at(s->weights, i);
        if (weft_i_weights_role(m, &s->names, t->name) == WEFT_WEIGHT_UNKNOWN &&
            is_number(t->dtype) && strlen(t->name) < WEFT_PARAM_NAME_BYTES)
            WEFT_TRY(add_grad(o, t->name, t->shape, NULL));
    }
    return WEFT_OK;
}

static weft_status take_lists(weft_probe_output *o, weft_model *m, const weft_source *s)
{
    const size_t n_file = s->weights != NULL ? weft_i_st_count(s->weights) : 0;
    void *block = NULL;

    o->capacity = (size_t)weft_model_param_count(m) + n_file + N_FIXED;
    WEFT_TRY(weft_i_alloc_new(o->ctx->alloc, o->capacity, sizeof(weft_st_plan), &block));
    o->plan = block;
    WEFT_TRY(weft_i_alloc_new(o->ctx->alloc, o->capacity, sizeof(weft_param *), &block));
    o->param = block;
    WEFT_TRY(weft_i_alloc_new(o->ctx->alloc, o->capacity, NAME_BYTES, &block));
    o->names = block;
    return WEFT_OK;
}

weft_status weft_i_probe_output_create(weft_probe_output *out,
                                       const char *path,
                                       weft_model *m,
                                       const weft_source *source,
                                       const weft_probe_batch *batch,
                                       bool is_grads)
{
    const weft_st_meta meta = {.key = "format", .value = "pt"};
    const weft_shape logits = {
        .n_dims = 3, .dim = {batch->n_seqs, batch->n_tokens, source->hf.config.vocab_size}};
    weft_probe_output o = {.ctx = weft_model_ctx(m)};
    weft_status st = WEFT_OK;

    memset(out, 0, sizeof(*out));
    WEFT_TRY_GOTO(st, take_lists(&o, m, source), out);
    add(&o, "logits", logits, NULL);
    add(&o, "token_loss", weft_i_shape_2d(batch->n_seqs, batch->n_tokens - 1), NULL);
    add(&o, "loss", weft_i_shape_1d(1), NULL);
    if (is_grads)
        WEFT_TRY_GOTO(st, plan_grads(&o, m, source), out);
    WEFT_TRY_GOTO(st, weft_i_str_print(o.path, sizeof(o.path), "%s", path), out);
    WEFT_TRY_GOTO(st, weft_i_file_temporary(o.temporary, path), out);
    WEFT_TRY_GOTO(
        st, weft_i_st_create(&o.writer, o.ctx->alloc, o.temporary, o.plan, o.n_plan, &meta, 1),
        out);
out:
    if (st == WEFT_OK)
        *out = o;
    else
        weft_i_probe_output_destroy(&o);
    return st;
}

weft_status weft_i_probe_output_add(weft_probe_output *o, const float *values, int64_t n)
{
    return weft_i_st_append(o->writer, values, (size_t)n * sizeof(float));
}

/* A gradient by pieces; p NULL: zeros. */
static weft_status add_values(weft_probe_output *o, const weft_param *p, int64_t n, float *piece)
{
    weft_backend *b = o->ctx->backend;

    for (int64_t i = 0; i < n; i += PIECE_ELEMS) {
        const int64_t k = WEFT_MIN(PIECE_ELEMS, n - i);
        const size_t n_bytes = (size_t)k * sizeof(float);
        memset(piece, 0, n_bytes);
        if (p != NULL)
            WEFT_TRY(b->ops->copy_to_host(b, piece, (const float *)p->grad.data + i, n_bytes));
        WEFT_TRY(weft_i_st_append(o->writer, piece, n_bytes));
    }
    return WEFT_OK;
}

weft_status weft_i_probe_output_finish(weft_probe_output *o)
{
    void *piece = NULL;
    weft_status st = WEFT_OK;

    WEFT_TRY(weft_i_alloc_new(o->ctx->alloc, (size_t)PIECE_ELEMS, sizeof(float), &piece));
    for (size_t i = N_FIXED; i < o->n_plan; i++) {
        int64_t n = 0;
        WEFT_TRY_GOTO(st, weft_i_shape_count(&o->plan[i].shape, &n), out);
        WEFT_TRY_GOTO(st, add_values(o, o->param[i], n, piece), out);
    }
    st = weft_i_st_finish(o->writer);
    o->writer = NULL;
    if (st == WEFT_OK)
        st = weft_i_file_appear(o->temporary, o->path);
    if (st != WEFT_OK)
        weft_i_file_discard(o->temporary, o->path);
out:
    weft_i_alloc_put(o->ctx->alloc, piece);
    return st;
}

void weft_i_probe_output_destroy(weft_probe_output *o)
{
    if (o->ctx == NULL)
        return;
    if (o->writer != NULL) {
        weft_i_st_abandon(o->writer);
        weft_i_file_discard(o->temporary, o->path);
    }
    weft_i_alloc_put(o->ctx->alloc, o->plan);
    weft_i_alloc_put(o->ctx->alloc, o->param);
    weft_i_alloc_put(o->ctx->alloc, o->names);
    memset(o, 0, sizeof(*o));
}
