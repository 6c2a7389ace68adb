/*
 * What layers call: operations with workspace, and the hooks around parameters, gradients and regions.
 *
 * Invariants
 *  1. Hooks that come before something run in list order, those that come after in reverse.
 *  2. A parameter's first gradient of a step overwrites, every later one adds, unless a hook says otherwise.
 *  3. grad_ready comes once per parameter and micro-batch: after the last of its uses.
 * Communication: none of its own; whatever the hooks do.
 */
#include "weft/ext/layer.h"

#include "backend/run_op.h"
#include "base/arena.h"

weft_status weft_exec_op(weft_exec *e, weft_op op, const void *args)
{
    return weft_i_op_run(e->backend, op, args, e->workspace);
}

weft_status
weft_exec_view(weft_exec *e, weft_dtype dtype, int64_t rows, int64_t cols, weft_view *out)
{
    void *data = NULL;
    WEFT_TRY(
        weft_i_arena_get(e->workspace, (size_t)(rows * cols) * weft_dtype_bytes(dtype), &data));
    *out = weft_view_make(data, dtype, rows, cols);
    return WEFT_OK;
}

size_t weft_exec_mark(const weft_exec *e)
{
    return weft_i_arena_mark(e->workspace);
}

void weft_exec_reset(weft_exec *e, size_t mark)
{
    weft_i_arena_reset(e->workspace, mark);
}

weft_status weft_exec_need(weft_exec *e, weft_param *p)
{
    for (int i = 0; i < e->n_hooks; i++) {
        const weft_hooks *h = e->hooks[i];
        if (h->param_need != NULL)
            WEFT_TRY(h->param_need(h->user, p, e->pass));
    }
    return WEFT_OK;
}

weft_status weft_exec_done(weft_exec *e, weft_param *p)
{
    for (int i = e->n_hooks - 1; i >= 0; i--) {
        const weft_hooks *h = e->hooks[i];
        if (h->param_done != NULL)
            WEFT_TRY(h->param_done(h->user, p, e->pass));
    }
    return WEFT_OK;
}

weft_status weft_exec_grad_begin(weft_exec *e, weft_param *p, weft_grad_target *out)
{
    WEFT_ASSERT(!p->is_frozen);
    out->view = p->grad;
    out->is_added = p->has_grad;
    for (int i = 0; i < e->n_hooks; i++) {
        const weft_hooks *h = e->hooks[i];
        if (h->grad_need != NULL)
            WEFT_TRY(h->grad_need(h->user, p, out));
    }
    p->has_grad = true;
    return WEFT_OK;
}

weft_status weft_exec_grad_end(weft_exec *e, weft_param *p)
{
    p->n_uses_left--;
    if (p->n_uses_left > 0)
        return WEFT_OK;
    for (int i = e->n_hooks - 1; i >= 0; i--) {
        const weft_hooks *h = e->hooks[i];
        if (h->grad_ready != NULL)
            WEFT_TRY(h->grad_ready(h->user, p));
    }
    return WEFT_OK;
}

weft_status weft_exec_region_start(
    weft_exec *e, weft_region_kind kind, weft_pass way, weft_view in, weft_view *out)
{
    weft_view shape = in;
    shape.data = NULL;
    for (int i = 0; i < e->n_hooks; i++) {
        const weft_hooks *h = e->hooks[i];
        if (h->region_shape != NULL)
            WEFT_TRY(h->region_shape(h->user, kind, way, in, &shape));
    }
    *out = in;
    if (shape.rows != in.rows || shape.cols != in.cols)
        WEFT_TRY(weft_exec_view(e, in.dtype, shape.rows, shape.cols, out));
    for (int i = 0; i < e->n_hooks; i++) {
        const weft_hooks *h = e->hooks[i];
        if (h->region_start != NULL)
            WEFT_TRY(h->region_start(h->user, kind, way, in, *out));
    }
    return WEFT_OK;
}

weft_status weft_exec_region_finish(
    weft_exec *e, weft_region_kind kind, weft_pass way, weft_view in, weft_view out)
{
    for (int i = e->n_hooks - 1; i >= 0; i--) {
        const weft_hooks *h = e->hooks[i];
        if (h->region_finish != NULL)
            WEFT_TRY(h->region_finish(h->user, kind, way, in, out));
    }
    return WEFT_OK;
}
