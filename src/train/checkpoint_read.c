/*
 * The optimizer's state back from a checkpoint's folder.
 *
 * Every state the trainer keeps must be there, whole and in its shape; what is missing is named. Weights are loaded
 * before, from the model's files; here they are replaced where the checkpoint holds finer ones (master/NAME).
 */
#include "train/checkpoint.h"

#include "base/ctx.h"
#include "train/tensor_writer.h"

#define STAGE_ELEMS ((int64_t)1 << 18)

typedef struct reader {
    weft_trainer *t;
    const weft_source *source;
    const char *dir;
    weft_st *file;
    void *stage;
} reader;

/* The tensor of a state; NULL in *out when it is absent and may be. */
static weft_status find(const reader *r,
                        weft_state state,
                        const weft_param *p,
                        bool is_needed,
                        const weft_st_tensor **out)
{
    char name[WEFT_PARAM_NAME_BYTES + 16], have[96], want[96];
    weft_i_checkpoint_state_name(name, state, &r->source->names, p);
    const weft_st_tensor *tensor = weft_i_st_find(r->file, name);
    *out = tensor;
    if (tensor == NULL && !is_needed)
        return WEFT_OK;
    if (tensor == NULL)
        WEFT_FAIL(WEFT_STATUS_MISMATCH,
                  "%s: the optimizer's state has no tensor %s, which this run needs; it was saved "
                  "with other settings (--optimizer, --sgd-momentum, --freeze, --dtype)",
                  r->dir, name);
    const weft_shape shape = p->n_dims == 1 ? weft_i_shape_1d(p->full_cols)
                                            : weft_i_shape_2d(p->full_rows, p->full_cols);
    if (tensor->dtype != WEFT_DTYPE_F32 || !weft_i_shape_equal(&tensor->shape, &shape))
        WEFT_FAIL(WEFT_STATUS_FORMAT, "%s: %s is %s %s, should be F32 %s",
                  weft_i_st_file(r->file, tensor->file), name, tensor->dtype_name,
                  weft_i_shape_text(&tensor->shape, have, sizeof(have)),
                  weft_i_shape_text(&shape, want, sizeof(want)));
    return WEFT_OK;
}

static weft_status
fill(const reader *r, const weft_st_tensor *from, const weft_param *p, weft_view to)
{
    WEFT_TRY(weft_i_tensor_fill(r->t->ctx->backend, from, p, to, r->stage, STAGE_ELEMS));
    weft_i_st_drop(r->file, from);
    return WEFT_OK;
}

static weft_status read_param(const reader *r, weft_param *p)
{
    const weft_optimizer *o = r->t->optimizer;
    const weft_st_tensor *tensor = NULL;
    for (int k = 0; k < WEFT_STATE_COUNT && !p->is_frozen; k++) {
        const weft_state state = (weft_state)k;
        const weft_view v = weft_i_optimizer_state(o, state, p->grad_first, p->rows * p->cols);
        if (v.data == NULL)
            continue;
        WEFT_TRY(find(r, state, p, true, &tensor));
        WEFT_TRY(fill(r, tensor, p, weft_view_make(v.data, v.dtype, p->rows, p->cols)));
    }
    if (p->value.dtype != WEFT_DTYPE_F32)
        return WEFT_OK;
    WEFT_TRY(find(r, WEFT_STATE_MASTER, p, false, &tensor));
    return tensor != NULL ? fill(r, tensor, p, p->value) : WEFT_OK;
}

weft_status weft_i_checkpoint_read(weft_trainer *t, const weft_source *source, const char *dir)
{
    reader r = {.t = t, .source = source, .dir = dir};
    weft_status st = WEFT_OK;
    WEFT_TRY(weft_i_st_open_folder(&r.file, t->ctx->alloc, dir, "optimizer"));
    WEFT_TRY_GOTO(st, weft_i_alloc_new(t->ctx->alloc, (size_t)STAGE_ELEMS, sizeof(float), &r.stage),
                  out);
    for (int64_t i = 0; i < weft_model_param_count(t->model); i++)
        WEFT_TRY_GOTO(st, read_param(&r, weft_model_param(t->model, i)), out);
out:
    weft_i_alloc_put(t->ctx->alloc, r.stage);
    weft_i_st_close(r.file);
    return st;
}
