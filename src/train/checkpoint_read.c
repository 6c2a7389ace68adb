/*
 * The optimizer's state back from a checkpoint's folder, each rank the parts it holds.
 *
 * Every state the run keeps must be there, whole and in its shape; what is missing is named. All ranks look at all names, so
 * all fail alike; each reads the stretches of its own parts. Weights are loaded before, from the model's files; here they
 * are replaced where the checkpoint holds finer ones (master/NAME).
 *
 * Communication: one agreement over the world, at the end.
 */
#include "train/checkpoint.h"

#include "base/ctx.h"
#include "tensor/convert.h"
#include "train/agree.h"

#define STAGE_ELEMS ((int64_t)1 << 18)

typedef struct reader {
    const weft_checkpoint *c;
    const char *dir;
    weft_st *file;
    char *stage; /* STAGE_ELEMS of up to 4 bytes */
} reader;

/* The tensor of a state; NULL in *out when it is absent and may be. */
static weft_status find(const reader *r,
                        weft_state state,
                        const weft_param *p,
                        bool is_needed,
                        const weft_st_tensor **out)
{
    char name[WEFT_PARAM_NAME_BYTES + 16], have[96], want[96];
    weft_i_checkpoint_state_name(name, state, &r->c->source->names, p);
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

/* Weights of this type may be kept finer than in the model's files. */
static bool may_have_master(const reader *r)
{
    return weft_model_dtype(r->c->model) == WEFT_DTYPE_F32;
}

static weft_status check_all(const reader *r)
{
    const weft_st_tensor *tensor = NULL;
    for (int64_t i = 0; i < weft_model_param_count(r->c->model); i++) {
        const weft_param *p = weft_model_param(r->c->model, i);
        for (int k = 0; k < WEFT_STATE_COUNT; k++) {
            if (weft_i_checkpoint_is_kept(r->c, (weft_state)k, p))
                WEFT_TRY(find(r, (weft_state)k, p, true, &tensor));
        }
        if (may_have_master(r))
            WEFT_TRY(find(r, WEFT_STATE_MASTER, p, false, &tensor));
    }
    return WEFT_OK;
}

/* n elements from number `first` of the full tensor on, to `at` in the backend's memory. */
static weft_status
fill_block(const reader *r, const weft_st_tensor *from, int64_t first, int64_t n, weft_view at)
{
    weft_backend *b = r->c->ctx->backend;
    weft_st_tensor block = *from;
    WEFT_TRY(weft_i_ctx_alive(r->c->ctx));
    block.data = (const char *)from->data + (size_t)first * weft_dtype_bytes(from->dtype);
    block.n_bytes = (size_t)n * weft_dtype_bytes(from->dtype);
    WEFT_TRY(weft_i_convert(r->stage, at.dtype, block.data, from->dtype, n));
    WEFT_TRY(b->ops->copy_from_host(b, at.data, r->stage, (size_t)n * weft_dtype_bytes(at.dtype)));
    if (n == STAGE_ELEMS)
        weft_i_st_drop(r->file, &block);
    return WEFT_OK;
}

static weft_status
fill(const reader *r, const weft_st_tensor *from, const weft_part *part, weft_view to)
{
    weft_stretch s;
    weft_stretch_walk walk = weft_i_stretch_begin(part->param, part->first, part->n);
    while (weft_i_stretch_next(&walk, &s)) {
        for (int64_t done = 0; done < s.n; done += STAGE_ELEMS) {
            const int64_t n = WEFT_MIN(STAGE_ELEMS, s.n - done);
            const weft_view at = weft_view_cols(to, s.local - part->first + done, n);
            WEFT_TRY(fill_block(r, from, s.full + done, n, at));
        }
    }
    return WEFT_OK;
}

static weft_status read_states(const reader *r, const weft_part *part)
{
    const weft_st_tensor *tensor = NULL;
    for (int k = 0; k < WEFT_STATE_COUNT; k++) {
        const weft_state state = (weft_state)k;
        if (!weft_i_checkpoint_is_kept(r->c, state, part->param))
            continue;
        WEFT_TRY(find(r, state, part->param, true, &tensor));
        WEFT_TRY(fill(r, tensor, part,
                      weft_i_optimizer_state(r->c->optimizer, state, part->state_first, part->n)));
    }
    return WEFT_OK;
}

static weft_status read_value(const reader *r, const weft_part *part)
{
    const weft_st_tensor *tensor = NULL;
    if (!may_have_master(r) || part->value.data == NULL)
        return WEFT_OK;
    WEFT_TRY(find(r, WEFT_STATE_MASTER, part->param, false, &tensor));
    return tensor != NULL ? fill(r, tensor, part, part->value) : WEFT_OK;
}

static weft_status read_parts(reader *r)
{
    const weft_checkpoint *c = r->c;
    WEFT_TRY(weft_i_st_open_folder(&r->file, c->ctx->alloc, r->dir, "optimizer"));
    WEFT_TRY(weft_i_alloc_array(c->ctx->alloc, STAGE_ELEMS, sizeof(float), &r->stage));
    WEFT_TRY(check_all(r));
    for (int64_t i = 0; i < c->states->n; i++)
        WEFT_TRY(read_states(r, &c->states->part[i]));
    for (int64_t i = 0; i < c->values->n; i++)
        WEFT_TRY(read_value(r, &c->values->part[i]));
    return WEFT_OK;
}

weft_status weft_i_checkpoint_restore(const weft_checkpoint *c, const char *dir)
{
    reader r = {.c = c, .dir = dir};
    const weft_status st = read_parts(&r);
    weft_i_alloc_put(c->ctx->alloc, r.stage);
    weft_i_st_close(r.file);
    return weft_i_train_agree(c->mesh, st);
}
